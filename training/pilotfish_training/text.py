"""Text to ids and back, and the chat template, from the target's own file."""

import json
from pathlib import Path

from jinja2 import Environment
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from .gguf_file import GgufFile

_QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")


class Text:
    """`tokenizer` (of `tokenizers`) and the strings between turns of a conversation."""

    def __init__(self, tokenizer: Tokenizer, template: str, bos: str = "", eos: str = ""):
        self.tokenizer = tokenizer
        environment = Environment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        self._template = environment.from_string(template)
        self._special = {"bos_token": bos, "eos_token": eos}
        # What stands around turns is found by rendering a conversation with marks in it.
        marks = ["\x01first\x01", "\x01second\x01", "\x01third\x01"]
        turns = [("user", marks[0]), ("assistant", marks[1]), ("user", marks[2])]
        whole = self._render([{"role": role, "content": mark} for role, mark in turns])
        opening, rest = whole.split(marks[0])
        to_assistant, rest = rest.split(marks[1])
        to_user, last = rest.split(marks[2])
        if not last.startswith(to_assistant.rstrip()):
            raise ValueError("the chat template asks for an answer in another way than it shows answers")
        self.opening, self.to_assistant, self.to_user = map(self.ids, (opening, to_assistant, to_user))

    @classmethod
    def load(cls, path):
        """From a `.gguf` file or a Hugging Face folder with `tokenizer.json`."""
        if Path(path).is_dir():
            path = Path(path)
            config = json.loads((path / "tokenizer_config.json").read_text())
            template = path / "chat_template.jinja"
            template = template.read_text() if template.exists() else config["chat_template"]
            name = lambda key: (config.get(key) or {}).get("content", "") if isinstance(config.get(key), dict) \
                else config.get(key) or ""
            return cls(Tokenizer.from_file(str(path / "tokenizer.json")), template, name("bos_token"),
                       name("eos_token"))
        fields = GgufFile(path).fields
        kind, pre = fields["tokenizer.ggml.model"], fields.get("tokenizer.ggml.pre")
        if kind != "gpt2" or pre not in ("smollm", "qwen2"):
            raise ValueError(f"{path}: the tokenizer {kind}/{pre} is not supported; use a folder with tokenizer.json")
        names = fields["tokenizer.ggml.tokens"]
        merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"]]
        tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=merges))
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre == "smollm")
        first = pre_tokenizers.Digits(individual_digits=True) if pre == "smollm" \
            else pre_tokenizers.Split(Regex(_QWEN2), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([first, plain])
        tokenizer.decoder = decoders.ByteLevel()
        types = fields["tokenizer.ggml.token_type"]
        tokenizer.add_special_tokens(
            [AddedToken(name, special=True, normalized=False) for name, type_ in zip(names, types) if type_ == 3])
        name = lambda key: names[fields[key]] if key in fields else ""
        return cls(tokenizer, fields["tokenizer.chat_template"], name("tokenizer.ggml.bos_token_id"),
                   name("tokenizer.ggml.eos_token_id"))

    def _render(self, messages):
        return self._template.render(messages=messages, add_generation_prompt=True, **self._special)

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def prompt(self, text: str) -> list[int]:
        """The ids of a conversation whose one user turn is `text`, ready for the answer."""
        return self.ids(self._render([{"role": "user", "content": text}]))

    def decode(self, ids) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)


def _refuse(message):
    raise ValueError(message)

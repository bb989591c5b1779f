"""Data, training in two steps, evaluation and export run on a tiny target, and the pieces do what they say."""

import json
import random

import torch
from safetensors.torch import load_file

from pilotfish_training import evaluate, export, generate, overlap, train
from pilotfish_training.export import load
from pilotfish_training.target import Target
from pilotfish_training.text import Text

HEADS = ["name=a,layers=1,vocab=300,rank=8,slots=4,taps=3", "name=b,layers=2,vocab=400,rank=8,slots=6,taps=2,warm=1,"
         "optimizer=muon,markov=rnn,kl=0.2"]


def run(module, monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["x", *map(str, arguments)])
    module.main()


def test_from_data_to_head(gguf_path, tmp_path, monkeypatch, capsys):
    bench = tmp_path / "bench"
    bench.mkdir()
    (bench / "one.txt").write_text("the code and the answer, write the text\n")
    data = tmp_path / "data.pt"
    run(generate, monkeypatch, gguf_path, data, "--rows", 24, "--batches", 2, "--length", 160, "--bench", bench,
        "--device", "cpu")
    made = torch.load(data)
    assert made["tokens"].shape == made["answer"].shape and made["report"]["answer_tokens"] > 500
    out = tmp_path / "out"
    for _ in range(2):
        run(train, monkeypatch, gguf_path, data, "--out", out, "--head", HEADS[0], "--head", HEADS[1], "--steps", 6,
            "--rows", 4, "--anchors", 5, "--eval-rows", 12, "--seconds", 30, "--total", 60, "--device", "cpu")
    report = json.loads((out / "report.json").read_text())
    assert report["a"]["steps"] == report["b"]["steps"] == 12, "the second call goes on from the first"
    head, d2t = load(out / "a")
    assert len(d2t) == 300 and head.config.taps == [1, 2, 3]
    run(evaluate, monkeypatch, gguf_path, out / "a", "--prompts", bench, "--tokens", 12, "--device", "cpu")
    assert '"mean tau"' in capsys.readouterr().out
    run(export, monkeypatch, out / "a", tmp_path / "again", "--dtype", "float32", "--lm-head", gguf_path)
    written = load_file(tmp_path / "again" / "model.safetensors")
    torch.testing.assert_close(written["lm_head.weight"], Target.load(gguf_path).output[d2t])
    assert (out / "a" / "config.json").read_text() == (tmp_path / "again" / "config.json").read_text()


def test_training_lowers_the_loss(gguf_path, tmp_path, capsys):
    """A head learns the greedy texts of one tiny target by heart: its loss falls and its first guess becomes right."""
    target, text = Target.load(gguf_path), Text.load(gguf_path)
    prompts, heats, _ = generate.make_batch(text, 12, {"paragraph": [], "program": []}, random.Random(1),
                                            0.5, 1.0)
    tokens, answer = generate.converse(target, text, prompts, heats, 96, seed=1)
    data = {"tokens": tokens.repeat(2, 1), "answer": answer.repeat(2, 1), "greedy": torch.ones(24, dtype=torch.bool)}
    options = train.parse_head("layers=1,vocab=400,rank=8,slots=4,taps=3,lr=0.003,ce=1.0,l1=0.0")
    report = train.train(target, text, data, [options], tmp_path, 300, 300, batch_rows=8, n_anchors=24,
                         eval_rows=12, max_steps=300)
    survival = report["head"]["held_out"]["survival"]
    assert survival[0] > 0.6 and survival[0] >= survival[1] >= survival[2], survival


def test_conversation(gguf_path):
    target, text = Target.load(gguf_path), Text.load(gguf_path)
    prompts = [text.prompt("write"), None, text.prompt("the answer")]
    tokens, answer = generate.converse(target, text, prompts, torch.tensor([0.0, 0.0, 0.9]), 60, seed=3)
    start = len(prompts[0])
    assert tokens[0, :start].tolist() == prompts[0] and not answer[0, :start].any() and answer[0, start]
    assert tokens[1, :len(text.opening)].tolist() == text.opening
    # Greedy answers are what the whole pass would choose, as long as the answer lasts.
    hidden, _ = target.forward(tokens.long())
    best = target.logits(hidden.flatten(0, 1)).argmax(-1).view(tokens.shape)
    for row in (0, 1):
        at = answer[row].nonzero()[:, 0]
        assert torch.equal(tokens[row, at].long(), best[row, at - 1])
    # After an end token that was drawn stands what the template puts between turns.
    for row in range(3):
        for at in (answer[row] & (tokens[row] == text.to_user[0])).nonzero()[:, 0].tolist():
            between = tokens[row, at:at + len(text.to_user)].tolist()
            assert between == text.to_user[:len(between)]


def test_bench_runs_are_dropped():
    banned = overlap.grams(list(range(100, 120)))
    tokens = torch.randint(0, 90, (40, 64), dtype=torch.int32)
    tokens[7, 20:33] = torch.arange(103, 116)
    tokens[9, 20:32] = torch.arange(103, 115)  # twelve are not enough
    assert overlap.sharing_rows(tokens, banned).nonzero()[:, 0].tolist() == [7]


def test_tau_counts_rounds():
    counts = torch.tensor([2, 0, 0, 1, 0, 3, 0])
    assert evaluate.tau(counts, 8) == (7, 3)  # 2 + 1, then 1 + 1, then 3 + 1 of which two are beyond the end
    assert evaluate.tau(counts, 1) == (7, 4)
    assert evaluate.spans([True, False, True, True]) == [(0, 0), (2, 3)]

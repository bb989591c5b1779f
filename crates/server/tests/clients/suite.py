"""Drives a server with the official clients of OpenAI and Anthropic.

    python suite.py BASE_URL

BASE_URL is a server's address, without a path. Every check is an assertion; the last line counts them. Needs the
packages of requirements.txt, and a server without a key whose model has a chat template.
"""

import sys
import threading

import anthropic
import openai

CHECKS = 0


def check(condition, what):
    global CHECKS
    assert condition, what
    CHECKS += 1


def refused(kind, call, word):
    """The call must raise this error, and its message must hold the word."""
    try:
        call()
    except kind as error:
        check(word in str(error), f"{word!r} is not in {error}")
        return error
    raise AssertionError(f"nothing was raised; {kind.__name__} about {word!r} was expected")


def chat(client, model):
    ask = {
        "model": model,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Count to five."}],
        "max_tokens": 24,
        "temperature": 0,
    }
    whole = client.chat.completions.create(**ask)
    text = whole.choices[0].message.content
    check(whole.id.startswith("chatcmpl-") and whole.object == "chat.completion", whole.id)
    check(whole.model == model and whole.choices[0].message.role == "assistant", whole)
    check(whole.choices[0].finish_reason in ("stop", "length"), whole)
    usage = whole.usage
    check(usage.total_tokens == usage.prompt_tokens + usage.completion_tokens <= usage.prompt_tokens + 24, usage)
    check(usage.completion_tokens_details.accepted_prediction_tokens >= 0, usage)
    check(whole.timings["draft_n"] >= whole.timings["draft_n_accepted"], whole.timings)
    check(client.chat.completions.create(**ask).choices[0].message.content == text, "the same again")

    chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    joined = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    check(joined == text, (joined, text))
    check(chunks[0].choices[0].delta.role == "assistant", chunks[0])
    check(chunks[-1].choices == [] and chunks[-1].usage.total_tokens == usage.total_tokens, chunks[-1])
    check(chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason, chunks[-2])

    scored = client.chat.completions.create(**ask, logprobs=True, top_logprobs=4)
    entries = scored.choices[0].logprobs.content
    check(len(entries) == usage.completion_tokens, len(entries))
    check(all(e.top_logprobs[0].logprob == e.logprob and len(e.top_logprobs) == 4 for e in entries), entries)

    several = client.chat.completions.create(**{**ask, "temperature": 1.0, "seed": 3, "n": 2})
    again = client.chat.completions.create(**{**ask, "temperature": 1.0, "seed": 3, "n": 2})
    texts = [choice.message.content for choice in several.choices]
    check(texts == [choice.message.content for choice in again.choices], texts)
    check(len(texts) == 2 and texts[0] != texts[1], texts)

    cut = client.chat.completions.create(**ask, stop=[text[2:4]])
    check(cut.choices[0].message.content == text[: text.index(text[2:4])], cut)
    check(cut.choices[0].finish_reason == "stop", cut)

    stream = client.chat.completions.create(**{**ask, "max_tokens": 2000}, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    check(client.chat.completions.create(**ask).choices[0].message.content == text, "after leaving a stream")


def completions(client, model):
    ask = {"model": model, "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
    whole = client.completions.create(**ask, logprobs=2)
    check(whole.object == "text_completion" and len(whole.choices[0].logprobs.tokens) == whole.usage.completion_tokens, whole)
    chunks = list(client.completions.create(**ask, stream=True))
    check("".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text, whole)


def responses(client, model):
    ask = {"model": model, "instructions": "Be brief.", "input": "Count to five.", "max_output_tokens": 24, "temperature": 0}
    whole = client.responses.create(**ask)
    check(whole.status in ("completed", "incomplete") and whole.output_text, whole)
    check(whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens, whole.usage)
    events = list(client.responses.create(**ask, stream=True))
    joined = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    check(joined == whole.output_text, (joined, whole.output_text))
    check(events[0].type == "response.created" and events[-1].response.output_text == joined, events[-1])
    refused(openai.BadRequestError, lambda: client.responses.create(**ask, previous_response_id="resp_1"), "previous_response_id")


def errors(client, model):
    hi = [{"role": "user", "content": "hi"}]
    create = client.chat.completions.create
    unknown = refused(openai.NotFoundError, lambda: create(model="gpt-4o", messages=hi), "model")
    check(unknown.code == "model_not_found" and unknown.param == "model", unknown.body)
    refused(openai.BadRequestError, lambda: create(model=model, messages=[]), "messages")
    refused(openai.BadRequestError, lambda: create(model=model, messages=hi, temperature=-1), "temperature")
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    refused(openai.BadRequestError, lambda: create(model=model, messages=hi, response_format=schema), "response_format")
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}]}]
    refused(openai.BadRequestError, lambda: create(model=model, messages=picture), "content[0]")
    long = [{"role": "user", "content": "word " * 200_000}]
    check(refused(openai.BadRequestError, lambda: create(model=model, messages=long), "tokens").code == "context_length_exceeded", "")
    refused(openai.InternalServerError, lambda: client.embeddings.create(model=model, input="x"), "embeddings")
    check([entry.id for entry in client.models.list()] == [model], "models")


def tools(client, model):
    """Only where the model's template shows tools; what the model then says is its own affair."""
    weather = {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
    messages = [{"role": "user", "content": "What is the weather in Paris? Use the tool."}]
    ask = {"model": model, "messages": messages, "tools": [weather], "max_tokens": 64, "temperature": 0}
    try:
        whole = client.chat.completions.create(**ask)
    except openai.BadRequestError as error:
        check(error.param == "tools", error.body)
        return
    calls = whole.choices[0].message.tool_calls or []
    chunks = list(client.chat.completions.create(**ask, stream=True))
    deltas = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    check([(c.function.name, c.function.arguments) for c in calls] == [(c.function.name, c.function.arguments) for c in deltas], calls)
    if calls:
        print(f"tool call: {calls[0].function.name}({calls[0].function.arguments})")
        check(whole.choices[0].finish_reason == chunks[-1].choices[0].finish_reason == "tool_calls", whole)
        follow = messages + [
            whole.choices[0].message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": calls[0].id, "content": "Rain, 12 degrees."},
        ]
        check(client.chat.completions.create(**{**ask, "messages": follow}).choices[0].message is not None, follow)


def messages(client, model):
    ask = {
        "model": model,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "Count to five."}],
        "max_tokens": 24,
        # This client has no parameter for it any more.
        "extra_body": {"temperature": 0},
    }
    whole = client.messages.create(**ask)
    check(whole.type == "message" and whole.content[0].type == "text", whole)
    check(whole.stop_reason in ("end_turn", "max_tokens"), whole.stop_reason)
    counted = client.messages.count_tokens(model=model, system=ask["system"], messages=ask["messages"])
    read = whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0)
    check(counted.input_tokens == read, (counted, whole.usage))
    with client.messages.stream(**ask) as stream:
        joined = "".join(stream.text_stream)
        final = stream.get_final_message()
    check(joined == whole.content[0].text == final.content[0].text, joined)
    check(final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens, final)
    stop = joined[2:4]
    cut = client.messages.create(**ask, stop_sequences=[stop])
    check(cut.stop_reason == "stop_sequence" and cut.stop_sequence == stop, cut)
    refused(anthropic.NotFoundError, lambda: client.messages.create(**{**ask, "model": "claude"}), "model")
    refused(anthropic.BadRequestError, lambda: client.messages.create(**{**ask, "messages": []}), "messages")


def parallel(client, model):
    def ask(n):
        words = [{"role": "user", "content": f"Say {n} in words."}]
        reply = client.chat.completions.create(model=model, messages=words, max_tokens=12, temperature=0.7, seed=n)
        return reply.choices[0].message.content

    alone = [ask(n) for n in range(8)]
    together = [None] * 8
    threads = [threading.Thread(target=lambda n=n: together.__setitem__(n, ask(n))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(alone == together, (alone, together))


def main():
    base = sys.argv[1].rstrip("/")
    client = openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0)
    model = next(iter(client.models.list())).id
    for part in (chat, completions, responses, errors, tools, parallel):
        part(client, model)
    messages(anthropic.Anthropic(base_url=base, api_key="none", max_retries=0), model)
    print(f"{CHECKS} passed, 0 failed")


main()

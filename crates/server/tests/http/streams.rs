//! Streams, byte by byte, and against whole replies and the library.

use std::time::Duration;

use pilotfish::{Event, GenerateOptions, Message, SamplingParams};
use pilotfish_server::Faults;
use serde_json::{Value, json};

use crate::harness::{Reply, Running, before_rounds, small};

fn chat(more: &Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "the cat sat on the mat, the cat"}],
        "max_tokens": 40, "ignore_eos": true, "temperature": 0
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// What the library says: the texts of the events, joined and apart.
fn library(server: &Running, sampling: SamplingParams) -> (String, Vec<String>) {
    let options =
        GenerateOptions { sampling, max_tokens: Some(40), ignore_eos: true, ..GenerateOptions::default() };
    let mut engine = server.engine();
    let messages = [Message::user("the cat sat on the mat, the cat")];
    let mut texts = Vec::new();
    for event in engine.chat(&messages, &options).unwrap() {
        if let Event::Text(text) = event.unwrap() {
            texts.push(text);
        }
    }
    (texts.concat(), texts)
}

/// The frames with what differs from run to run replaced: id, times, how guessing went.
fn normalised(reply: &Reply) -> String {
    let mut out = String::new();
    for frame in reply.body.split_inclusive("\n\n") {
        let data = frame.strip_prefix("data: ").and_then(|rest| rest.strip_suffix("\n\n"));
        let data = data.unwrap_or_else(|| panic!("{frame:?} is no frame"));
        let Ok(mut chunk) = serde_json::from_str::<Value>(data) else {
            out += frame;
            continue;
        };
        // Reading and writing times may round them.
        if chunk.get("timings").is_none() {
            assert_eq!(chunk.to_string(), data, "nothing but JSON, in the order written");
        }
        assert!(chunk["id"].as_str().unwrap().starts_with("chatcmpl-"));
        chunk["id"] = "ID".into();
        chunk["created"] = 0.into();
        for key in ["timings", "speculation"] {
            if chunk.get(key).is_some() {
                chunk[key] = "…".into();
            }
        }
        if let Some(details) = chunk["usage"].get_mut("completion_tokens_details") {
            *details = "…".into();
        }
        out += &format!("data: {chunk}\n\n");
    }
    out
}

#[test]
fn a_stream_has_exactly_these_bytes() {
    let server = Running::plain();
    let more = json!({"stream": true, "stream_options": {"include_usage": true}});
    let reply = server.post("/v1/chat/completions", &chat(&more));
    assert_eq!(reply.status, 200, "{}", reply.body);
    for (name, value) in
        [("content-type", "text/event-stream"), ("cache-control", "no-cache"), ("x-accel-buffering", "no")]
    {
        assert_eq!(reply.header(name), Some(value), "{}", reply.head);
    }
    let engine = server.engine();
    let messages = [Message::user("the cat sat on the mat, the cat")];
    let prompt = engine.tokenize(pilotfish::Prompt::Chat(&messages)).unwrap().len();
    let fingerprint = engine.lane_info().numerics_id.clone();
    let chunk = |choices: &str, usage: &str, more: &str| {
        format!(
            "data: {{\"id\":\"ID\",\"object\":\"chat.completion.chunk\",\"created\":0,\
             \"model\":\"model.gguf\",\"system_fingerprint\":\"{fingerprint}\",\
             \"choices\":[{choices}],\"usage\":{usage}{more}}}\n\n"
        )
    };
    let delta = |delta: &str, finish: &str| {
        format!("{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\"finish_reason\":{finish}}}")
    };
    let mut expected = chunk(&delta("{\"role\":\"assistant\",\"content\":\"\"}", "null"), "null", "");
    for text in library(&server, SamplingParams::greedy()).1 {
        let text = serde_json::to_string(&text).unwrap();
        expected += &chunk(&delta(&format!("{{\"content\":{text}}}"), "null"), "null", "");
    }
    let more = ",\"timings\":\"…\",\"speculation\":\"…\"";
    expected += &chunk(&delta("{}", "\"length\""), "null", more);
    let usage = format!(
        "{{\"prompt_tokens\":{prompt},\"completion_tokens\":40,\"total_tokens\":{},\
         \"prompt_tokens_details\":{{\"cached_tokens\":0}},\"completion_tokens_details\":\"…\"}}",
        prompt + 40
    );
    expected += &chunk("", &usage, "");
    expected += "data: [DONE]\n\n";
    assert_eq!(normalised(&reply), expected);
}

#[test]
fn whole_replies_are_their_streams_and_the_librarys_text() {
    let server = Running::new();
    let sampled = SamplingParams { seed: 7, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplingParams::default() };
    for (more, sampling) in
        [(json!({}), SamplingParams::greedy()), (json!({"temperature": 0.8, "seed": 7}), sampled)]
    {
        let text = library(&server, sampling).0;
        let whole = server.post("/v1/chat/completions", &chat(&more)).json();
        assert_eq!(whole["choices"][0]["message"]["content"], text.as_str());
        assert_eq!(whole["choices"][0]["finish_reason"], "length");
        assert_eq!(whole["usage"]["completion_tokens"], 40);
        let mut streamed = more.clone();
        streamed["stream"] = true.into();
        let stream = server.post("/v1/chat/completions", &chat(&streamed));
        let deltas: String = stream
            .chunks()
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
            .collect();
        assert_eq!(deltas, text);
        assert!(stream.body.ends_with("data: [DONE]\n\n"));
        let end = stream.chunks().pop().unwrap();
        for key in ["draft_n", "draft_n_accepted", "predicted_n", "predicted_ms", "cache_n", "prompt_n"] {
            assert!(end["timings"][key].is_number(), "{key}: {end}");
            assert!(whole["timings"][key].is_number(), "{key}: {whole}");
        }
        for key in ["drafter", "tau", "parked", "reason"] {
            assert!(end["speculation"].get(key).is_some(), "{key}: {end}");
        }
    }
}

#[test]
fn all_interfaces_say_the_same() {
    let server = Running::new();
    let text = library(&server, SamplingParams::greedy()).0;
    let message = server.post("/v1/messages", &chat(&json!({}))).json();
    assert_eq!(message["content"], json!([{"type": "text", "text": text}]));
    assert_eq!(
        (message["stop_reason"].as_str(), message["role"].as_str()),
        (Some("max_tokens"), Some("assistant"))
    );
    let stream = server.post("/v1/messages", &chat(&json!({"stream": true})));
    let kinds: Vec<_> = stream.chunks().iter().map(|c| c["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(&kinds[..3], ["message_start", "ping", "content_block_start"]);
    assert_eq!(&kinds[kinds.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    assert!(stream.body.starts_with("event: message_start\ndata: {"));
    let texts = stream.chunks();
    let texts = texts.iter().filter_map(|chunk| chunk["delta"]["text"].as_str());
    assert_eq!(texts.collect::<String>(), text);
    let count = server.post("/v1/messages/count_tokens", &chat(&json!({}))).json();
    let usage = &message["usage"];
    let read = usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(count["input_tokens"], read);

    let asked = json!({
        "input": "the cat sat on the mat, the cat",
        "max_output_tokens": 40, "ignore_eos": true, "temperature": 0
    });
    let response = server.post("/v1/responses", &asked).json();
    assert_eq!(response["output"][0]["content"][0]["text"], text.as_str());
    assert_eq!(response["status"], "incomplete");
    let mut streamed = asked.clone();
    streamed["stream"] = true.into();
    let stream = server.post("/v1/responses", &streamed);
    let chunks = stream.chunks();
    let deltas = chunks.iter().filter(|chunk| chunk["type"] == "response.output_text.delta");
    assert_eq!(deltas.map(|chunk| chunk["delta"].as_str().unwrap()).collect::<String>(), text);
    let last = chunks.last().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"]["output"][0]["content"], response["output"][0]["content"]);
    assert!(chunks.iter().enumerate().all(|(at, chunk)| chunk["sequence_number"] == at));
}

#[test]
fn rounds_are_told_to_those_who_ask() {
    let server = Running::new();
    let more = json!({"stream": true, "pilotfish": {"rounds": true}});
    let chunks = server.post("/v1/chat/completions", &chat(&more)).chunks();
    let rounds: Vec<&Value> = chunks.iter().filter_map(|chunk| chunk.get("pilotfish")).collect();
    let pieces = rounds.iter().flat_map(|round| round["pieces"].as_array().unwrap());
    let text: String = pieces.map(|piece| piece["text"].as_str().unwrap()).collect();
    assert_eq!(text, library(&server, SamplingParams::greedy()).0);
    let sum = |key: &str| rounds.iter().map(|round| round[key].as_u64().unwrap()).sum::<u64>();
    let timings = &chunks.last().unwrap()["timings"];
    assert_eq!(timings["draft_n"], sum("drafted"));
    assert_eq!(timings["draft_n_accepted"], sum("accepted"));
    assert_eq!(sum("committed"), 40);
}

#[test]
fn log_probabilities_come_with_every_token_once() {
    let server = Running::new();
    let more = json!({"logprobs": true, "top_logprobs": 3});
    let whole = server.post("/v1/chat/completions", &chat(&more)).json();
    let whole = whole["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
    assert_eq!(whole.len(), 40);
    for entry in &whole {
        let top = entry["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        assert_eq!((&top[0]["token"], &top[0]["logprob"]), (&entry["token"], &entry["logprob"]));
    }
    let streamed = json!({"logprobs": true, "top_logprobs": 3, "stream": true});
    let chunks = server.post("/v1/chat/completions", &chat(&streamed)).chunks();
    let entries = chunks.iter().filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array());
    assert_eq!(entries.flatten().cloned().collect::<Vec<_>>(), whole);

    let completion = json!({"prompt": "the cat", "max_tokens": 6, "logprobs": 2, "ignore_eos": true});
    let logprobs = &server.post("/v1/completions", &completion).json()["choices"][0]["logprobs"];
    for key in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(logprobs[key].as_array().unwrap().len(), 6, "{key}");
    }
}

#[test]
fn choices_share_a_prompt_and_differ() {
    let server = Running::new();
    let more = json!({"n": 3, "temperature": 1.0, "seed": 5});
    let whole = server.post("/v1/chat/completions", &chat(&more)).json();
    let texts: Vec<&str> =
        (0..3).map(|n| whole["choices"][n]["message"]["content"].as_str().unwrap()).collect();
    assert!(texts[0] != texts[1] && texts[1] != texts[2] && texts[0] != texts[2], "{texts:?}");
    assert_eq!(whole["usage"]["completion_tokens"], 120);
    let mut streamed = more.clone();
    streamed["stream"] = true.into();
    let chunks = server.post("/v1/chat/completions", &chat(&streamed)).chunks();
    for (index, text) in texts.iter().enumerate() {
        let own = chunks.iter().map(|chunk| &chunk["choices"][0]).filter(|c| c["index"] == index);
        let joined: String = own.filter_map(|choice| choice["delta"]["content"].as_str()).collect();
        assert_eq!(joined, *text);
    }
}

#[test]
fn stop_texts_cut_alike_everywhere() {
    let server = Running::new();
    let text = library(&server, SamplingParams::greedy()).0;
    let middle: Vec<(usize, char)> = text.char_indices().skip(8).take(4).collect();
    let stop: String = middle.iter().map(|(_, c)| c).collect();
    let expected = &text[..text.find(&stop).unwrap()];
    for stream in [false, true] {
        let more = json!({"stop": [stop, "never there"], "stream": stream});
        let chat_reply = server.post("/v1/chat/completions", &chat(&more));
        let message =
            server.post("/v1/messages", &chat(&json!({"stop_sequences": [stop], "stream": stream})));
        if stream {
            let joined = |reply: &Reply, at: &str| -> String {
                reply.chunks().iter().filter_map(|c| c.pointer(at)?.as_str().map(str::to_owned)).collect()
            };
            assert_eq!(joined(&chat_reply, "/choices/0/delta/content"), expected);
            assert_eq!(joined(&message, "/delta/text"), expected);
            assert_eq!(joined(&message, "/delta/stop_sequence"), stop);
        } else {
            assert_eq!(chat_reply.json()["choices"][0]["message"]["content"], expected);
            assert_eq!(chat_reply.json()["choices"][0]["finish_reason"], "stop");
            assert_eq!(message.json()["stop_reason"], "stop_sequence");
            assert_eq!(message.json()["stop_sequence"], stop.as_str());
        }
    }
}

#[test]
fn silence_is_filled() {
    let pause = before_rounds(|round| {
        if round == 3 {
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    let server =
        Running::with(&small(), |config| config.limits.keep_alive = Duration::from_millis(50), pause);
    let reply = server.post("/v1/chat/completions", &chat(&json!({"stream": true})));
    assert!(reply.body.contains("\n\n: keep-alive\n\n"), "{}", reply.body);
    assert!(reply.body.ends_with("data: [DONE]\n\n"));
    let quiet = Running::with(&small(), |_| {}, Faults::default());
    assert!(!quiet.post("/v1/chat/completions", &chat(&json!({"stream": true}))).body.contains("keep-alive"));
}

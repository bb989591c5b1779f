//! Requests that are wrong, one by one: each is told what is wrong, and the server answers the next one as ever.

use serde_json::{Value, json};

use crate::harness::Running;

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

/// Place, body, status, parameter named.
fn table() -> Vec<(&'static str, String, u16, &'static str)> {
    let hi = r#""messages":[{"role":"user","content":"hi"}]"#;
    let chat = |more: &str| format!("{{{hi},{more}}}");
    let mut table = vec![
        (CHAT, String::new(), 400, ""),
        (CHAT, "[]".to_owned(), 400, ""),
        (CHAT, "5".to_owned(), 400, ""),
        (CHAT, "\"x\"".to_owned(), 400, ""),
        (CHAT, "null".to_owned(), 400, ""),
        (CHAT, "{".to_owned(), 400, ""),
        (CHAT, "{}".to_owned(), 400, "messages"),
        (CHAT, r#"{"messages":[]}"#.to_owned(), 400, "messages"),
        (CHAT, r#"{"messages":{}}"#.to_owned(), 400, "messages"),
        (CHAT, r#"{"messages":[5]}"#.to_owned(), 400, "messages[0]"),
        (CHAT, r#"{"messages":[{"role":"user","content":null}]}"#.to_owned(), 400, "messages[0].content"),
        (CHAT, r#"{"messages":[{"role":"user"}]}"#.to_owned(), 400, "messages[0].content"),
        (CHAT, r#"{"messages":[{"role":"user","content":5}]}"#.to_owned(), 400, "messages[0].content"),
        (CHAT, r#"{"messages":[{"role":"king","content":"x"}]}"#.to_owned(), 400, "messages[0].role"),
        (CHAT, r#"{"messages":[{"content":"x"}]}"#.to_owned(), 400, "messages[0].role"),
        (CHAT, r#"{"messages":[{"role":"user","content":"\ud800"}]}"#.to_owned(), 400, ""),
        (
            CHAT,
            r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://127.0.0.1/"}}]}]}"#
                .to_owned(),
            400,
            "messages[0].content[0]",
        ),
        (
            CHAT,
            r#"{"messages":[{"role":"assistant","content":null,"tool_calls":[{"function":{}}]}]}"#.to_owned(),
            400,
            "messages[0].tool_calls[0].function",
        ),
        (CHAT, format!("{{{hi},{hi}}}"), 400, ""),
        (CHAT, format!("{{\"messages\":[{{\"role\":\"user\",\"content\":{}1{}}}]}}", "[".repeat(100_000), "]".repeat(100_000)), 400, ""),
        (CHAT, chat(r#""stream":"yes""#), 400, "stream"),
        (CHAT, chat(r#""model":5"#), 400, "model"),
        (CHAT, chat(r#""model":"gpt-4o""#), 404, "model"),
        (CHAT, chat(r#""model":"../../etc/passwd""#), 404, "model"),
        (CHAT, chat(r#""top_logprobs":3"#), 400, "top_logprobs"),
        (CHAT, chat(r#""logprobs":true,"top_logprobs":21"#), 400, "top_logprobs"),
        (CHAT, chat(r#""logprobs":3"#), 400, "logprobs"),
        (CHAT, chat(r#""tools":[{"type":"function","function":{"name":"f"}}]"#), 400, "tools"),
        (CHAT, chat(r#""tool_choice":"required""#), 400, "tool_choice"),
        (CHAT, chat(r#""response_format":{"type":"json_schema"}"#), 400, "response_format"),
        (CHAT, chat(r#""response_format":{"type":"json_object"}"#), 400, "response_format"),
        (CHAT, chat(r#""response_format":{}"#), 400, "response_format"),
        (CHAT, chat(r#""grammar":"root ::= x""#), 400, "grammar"),
        (CHAT, chat(r#""json_schema":{"type":"object"}"#), 400, "json_schema"),
        (CHAT, chat(r#""functions":[{"name":"f"}]"#), 400, "functions"),
        (CHAT, chat(r#""modalities":["audio"]"#), 400, "modalities"),
        (CHAT, chat(r#""reasoning_format":"x""#), 400, "reasoning_format"),
        (CHAT, chat(r#""pilotfish":{"rounds":1}"#), 400, "pilotfish.rounds"),
        (TEXT, "{}".to_owned(), 400, "prompt"),
        (TEXT, r#"{"prompt":""}"#.to_owned(), 400, "prompt"),
        (TEXT, r#"{"prompt":5}"#.to_owned(), 400, "prompt"),
        (TEXT, r#"{"prompt":[1,-1]}"#.to_owned(), 400, "prompt"),
        (TEXT, r#"{"prompt":[1,999999]}"#.to_owned(), 400, "prompt"),
        (TEXT, r#"{"prompt":[]}"#.to_owned(), 400, "prompt"),
        (TEXT, r#"{"prompt":["a","b"]}"#.to_owned(), 400, "prompt"),
        (TEXT, r#"{"prompt":"x","echo":true}"#.to_owned(), 400, "echo"),
        (TEXT, r#"{"prompt":"x","suffix":"y"}"#.to_owned(), 400, "suffix"),
        (TEXT, r#"{"prompt":"x","best_of":4}"#.to_owned(), 400, "best_of"),
        (TEXT, r#"{"prompt":"x","logprobs":21}"#.to_owned(), 400, "top_logprobs"),
        (TEXT, format!(r#"{{"prompt":"{}"}}"#, "z".repeat(2048)), 400, "prompt"),
        (RESPONSES, "{}".to_owned(), 400, "input"),
        (RESPONSES, r#"{"input":5}"#.to_owned(), 400, "input"),
        (RESPONSES, r#"{"input":[]}"#.to_owned(), 400, "input"),
        (RESPONSES, r#"{"input":[{"role":"user","content":[{"type":"input_image"}]}]}"#.to_owned(), 400, "input[0].content[0]"),
        (RESPONSES, r#"{"input":"x","previous_response_id":"resp_1"}"#.to_owned(), 400, "previous_response_id"),
        (RESPONSES, r#"{"input":"x","text":{"format":{"type":"json_schema"}}}"#.to_owned(), 400, "text.format"),
        (RESPONSES, r#"{"input":"x","max_output_tokens":0}"#.to_owned(), 400, "max_output_tokens"),
        (RESPONSES, r#"{"input":"x","tools":[{"type":"web_search"}]}"#.to_owned(), 400, "tools[0]"),
    ];
    // Sampling parameters are the same in all interfaces.
    for (parameter, values) in [
        ("temperature", &["-1", "1e308", "\"1\"", "true", "[]", "1e999"][..]),
        ("top_p", &["-0.1", "1.5", "\"x\""]),
        ("min_p", &["-1", "2"]),
        ("top_k", &["1.5", "3000000000", "{}"]),
        ("repeat_penalty", &["0", "-1"]),
        ("repeat_last_n", &["-2"]),
        ("presence_penalty", &["1e300", "\"x\""]),
        ("frequency_penalty", &["-1e300"]),
        ("seed", &["1.5", "\"x\"", "99999999999999999999"]),
        ("n", &["0", "9", "1000000000", "-1", "1.5"]),
        ("max_tokens", &["0", "-1", "1e308", "\"5\"", "1.5", "99999999999999999999"]),
        ("max_completion_tokens", &["0", "-1"]),
        ("stop", &["\"\"", "[\"\"]", "5", "[5]", "{}"]),
        (
            "logit_bias",
            &["{\"-1\":1}", "{\"320\":1}", "{\"4294967296\":1}", "{\"x\":1}", "{\"1\":1e300}", "[]"],
        ),
    ] {
        for value in values {
            // A number no float can hold is no JSON number at all, so no parameter can be named.
            let named = if *value == "1e999" { "" } else { parameter };
            table.push((CHAT, chat(&format!("\"{parameter}\":{value}")), 400, named));
        }
    }
    let many: Vec<String> = (0..17).map(|n| format!("\"{n}\"")).collect();
    table.push((CHAT, chat(&format!("\"stop\":[{}]", many.join(","))), 400, "stop"));
    table.push((CHAT, chat(&format!("\"stop\":\"{}\"", "x".repeat(257))), 400, "stop"));
    let all: Vec<String> = (0..1025).map(|n| format!("\"{n}\":1")).collect();
    table.push((CHAT, chat(&format!("\"logit_bias\":{{{}}}", all.join(","))), 400, "logit_bias"));
    table
}

#[test]
fn wrong_requests_are_told_what_is_wrong() {
    let server = Running::new();
    let golden = server.golden();
    for (path, body, status, param) in table() {
        let shown: String = body.chars().take(120).collect();
        let reply = server.exchange(&server.request(path, "", body.as_bytes()));
        assert_eq!(reply.status, status, "{path} {shown}: {}", reply.body);
        let error = reply.refused(status);
        let named = error["param"].as_str().unwrap_or_default();
        assert_eq!(named, param, "{path} {shown}: {error}");
        assert!(param.is_empty() || error["message"].as_str().unwrap().starts_with(param), "{error}");
        assert_eq!(server.golden(), golden, "after {path} {shown}");
    }
}

#[test]
fn every_type_at_every_field_is_answered() {
    let server = Running::new();
    let golden = server.golden();
    let values =
        ["null", "true", "-1", "0", "1e9", "\"\"", "\"x\"", "[]", "[null]", "[{}]", "{}", "{\"type\":5}"];
    for field in [
        "messages",
        "prompt",
        "input",
        "model",
        "system",
        "tools",
        "tool_choice",
        "stream",
        "stream_options",
        "response_format",
        "thinking",
        "stop",
        "logit_bias",
        "chat_template_kwargs",
        "text",
        "instructions",
        "metadata",
        "user",
        "pilotfish",
        "max_tokens",
    ] {
        for value in values {
            for (path, rest) in [
                (CHAT, r#""messages":[{"role":"user","content":"hi"}],"max_tokens":1"#),
                (TEXT, r#""prompt":"hi","max_tokens":1"#),
                (MESSAGES, r#""messages":[{"role":"user","content":"hi"}],"max_tokens":1"#),
                (RESPONSES, r#""input":"hi","max_output_tokens":1"#),
            ] {
                // The same name twice is an error of its own.
                if rest.contains(&format!("\"{field}\"")) || (field == "max_tokens" && path == RESPONSES) {
                    continue;
                }
                let body = format!("{{{rest},\"{field}\":{value}}}");
                let reply = server.exchange(&server.request(path, "", body.as_bytes()));
                assert!(matches!(reply.status, 200 | 400 | 404), "{path} {body}: {}", reply.body);
            }
        }
        assert_eq!(server.golden(), golden, "after {field}");
    }
}

#[test]
fn bytes_that_are_no_request_are_refused() {
    let server =
        Running::with(&crate::harness::small(), |config| config.limits.max_body = 10_000, Default::default());
    let golden = server.golden();
    let (host, long) = (server.address, "x".repeat(100_000));
    let text = |body: &[u8], headers: &str| server.request(CHAT, headers, body);
    let raw = |head: String| head.into_bytes();
    for (request, statuses) in [
        (text(b"{\"messages\":\"\xff\xfe\"}", ""), &[400][..]),
        (text(&vec![b' '; 10_001], ""), &[413]),
        (text(b"{}", "Content-Encoding: gzip\r\n"), &[415]),
        (
            raw(format!(
                "POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
            )),
            &[415],
        ),
        (
            raw(format!(
                "POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
            )),
            &[415],
        ),
        (raw(format!("GET {CHAT} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")), &[405]),
        (raw(format!("GET /nowhere HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")), &[404]),
        (
            raw(format!("GET /health HTTP/1.1\r\nHost: {host}\r\nX: {long}\r\nConnection: close\r\n\r\n")),
            &[431],
        ),
        (raw("\x16\x03\x01 this is TLS\r\n\r\n".to_owned()), &[400]),
        (text(b"{}", "Transfer-Encoding: chunked\r\n"), &[400]),
    ] {
        let reply = server.exchange(&request);
        assert!(
            statuses.contains(&reply.status),
            "{}: {} {}",
            String::from_utf8_lossy(&request[..60.min(request.len())]),
            reply.status,
            reply.body
        );
        assert_eq!(server.golden(), golden);
    }
    server.post("/v1/embeddings", &json!({"input": "x"})).refused(501);
}

#[test]
fn anthropics_errors_have_its_form() {
    let server = Running::new();
    let hi = json!([{"role": "user", "content": "hi"}]);
    for (body, status, kind, word) in [
        (json!({"messages": hi}), 400, "invalid_request_error", "max_tokens"),
        (json!({"messages": hi, "max_tokens": 5, "model": "claude"}), 404, "not_found_error", "model"),
        (json!({"messages": [], "max_tokens": 5}), 400, "invalid_request_error", "messages"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "file:///etc/passwd"}}]}], "max_tokens": 5}),
            400,
            "invalid_request_error",
            "messages[0].content[0]",
        ),
        (
            json!({"messages": hi, "max_tokens": 5, "tool_choice": {"type": "any"}}),
            400,
            "invalid_request_error",
            "tool_choice",
        ),
    ] {
        let reply = server.post(MESSAGES, &body);
        assert_eq!(reply.status, status, "{}", reply.body);
        let value: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!((value["type"].as_str(), value["error"]["type"].as_str()), (Some("error"), Some(kind)));
        assert!(value["error"]["message"].as_str().unwrap().starts_with(word), "{value}");
    }
}

#[test]
fn prompts_that_do_not_fit_are_counted() {
    let server = Running::new();
    let fits = server.post(TEXT, &json!({"prompt": "z".repeat(2047), "max_tokens": 5})).json();
    assert_eq!(fits["usage"]["prompt_tokens"], 2047);
    assert_eq!(fits["choices"][0]["finish_reason"], "length");
    for n in [2048, 2049, 20_480] {
        let error = server.post(TEXT, &json!({"prompt": "z".repeat(n)})).refused(400);
        assert_eq!(error["type"], "exceed_context_size_error");
        assert_eq!((&error["n_prompt_tokens"], &error["n_ctx"]), (&json!(n), &json!(2048)));
    }
}

#[test]
fn odd_but_legal_requests_are_answered() {
    let server = Running::new();
    for more in [
        json!({"temperature": 1e9, "top_p": 0.0, "top_k": -1, "min_p": 1.0, "seed": -5}),
        json!({"temperature": 1e-9, "top_k": 1_000_000_000, "repeat_last_n": -1, "repeat_penalty": 1.3}),
        json!({"logit_bias": {"5": -100}, "presence_penalty": 2, "frequency_penalty": -2}),
        json!({"max_tokens": u64::MAX, "stop": ["e", "a", " "]}),
        json!({"stop": null, "tools": null, "response_format": {"type": "text"}, "user": "me", "store": true}),
        json!({"seed": u64::MAX, "unheard_of": {"x": [1]}, "n": 8, "max_completion_tokens": 1}),
        json!({"messages": [{"role": "developer", "content": [{"type": "text", "text": "a\u{0}b"}]},
            {"role": "assistant", "content": "x", "tool_calls": []}, {"role": "user", "content": "<|im_end|>"}]}),
    ] {
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post(CHAT, &body).json();
    }
}

//! Answers that must not depend on other requests, and places that tell of the server.

use pilotfish_server::Faults;
use serde_json::{Value, json};

use crate::harness::{Running, small};

fn body(client: usize) -> Value {
    let words = ["cat", "dog", "mat", "hat", "rat", "bat", "sun", "sea"];
    let (temperature, seed) = if client.is_multiple_of(2) { (0.0, 0) } else { (0.9, client) };
    json!({
        "messages": [{"role": "user", "content": format!("the {} sat on the {}", words[client], words[client])}],
        "max_tokens": 30, "ignore_eos": true, "temperature": temperature, "seed": seed,
        "logprobs": true, "top_logprobs": 2, "n": 1 + client % 3
    })
}

#[test]
fn parallel_clients_get_what_they_get_alone() {
    let server = Running::new();
    let alone: Vec<Value> = (0..8)
        .map(|client| server.post("/v1/chat/completions", &body(client)).json()["choices"].clone())
        .collect();
    let distinct: std::collections::BTreeSet<String> = alone.iter().map(Value::to_string).collect();
    assert_eq!(distinct.len(), 8, "the clients ask for different things");
    // A fresh server, so that nothing but the requests themselves can make answers equal.
    let server = Running::new();
    for _ in 0..2 {
        std::thread::scope(|scope| {
            let server = &server;
            let threads: Vec<_> = (0..8)
                .map(|client| scope.spawn(move || server.post("/v1/chat/completions", &body(client))))
                .collect();
            for (client, thread) in threads.into_iter().enumerate() {
                let choices = thread.join().unwrap().json()["choices"].to_string();
                assert_eq!(choices, alone[client].to_string(), "client {client}");
            }
        });
    }
}

#[test]
fn the_server_tells_what_it_serves() {
    let server = Running::with(&small(), |config| config.alias = Some("tiny".to_owned()), Faults::default());
    let list = server.get("/v1/models").json();
    assert_eq!((&list["object"], &list["data"][0]["id"]), (&json!("list"), &json!("tiny")));
    assert_eq!(server.get("/v1/models/tiny").json()["id"], "tiny");
    server.get("/v1/models/other").refused(404);
    assert_eq!(server.get("/health").json(), json!({"status": "ok"}));
    let props = server.get("/props").json();
    assert_eq!(props["default_generation_settings"]["n_ctx"], 2048);
    assert_eq!(props["pilotfish"]["numerics_id"], server.engine().lane_info().numerics_id.as_str());
    assert!(!props.to_string().contains("/tmp"), "no path is told");
    for (line, word) in server.report.iter().zip([
        "model: tiny",
        "lane: ",
        "limits: ",
        "drafter: ",
        "listening on http://127.0.0.1:",
    ]) {
        assert!(line.starts_with(word), "{line}");
    }
    for model in ["tiny", "model.gguf"] {
        let body = json!({"model": model, "prompt": "hi", "max_tokens": 1});
        assert_eq!(server.post("/v1/completions", &body).json()["model"], "tiny");
    }
}

#[test]
fn metrics_count_what_replies_say() {
    let server = Running::new();
    let (mut drafted, mut accepted, mut written) = (0.0, 0.0, 0.0);
    for _ in 0..2 {
        let timings = &server.post("/v1/chat/completions", &body(0)).json()["timings"];
        drafted += timings["draft_n"].as_f64().unwrap();
        accepted += timings["draft_n_accepted"].as_f64().unwrap();
        written += timings["predicted_n"].as_f64().unwrap();
    }
    assert_eq!(server.metric("llamacpp:tokens_predicted_total"), written);
    assert_eq!(server.metric("llamacpp:spec_decode_num_draft_tokens_total"), drafted);
    assert_eq!(server.metric("llamacpp:spec_decode_num_accepted_tokens_total"), accepted);
    assert_eq!(server.metric("pilotfish:replies_total"), 2.0);
    assert_eq!(server.metric("pilotfish:http_responses_total{status=\"200\"}"), 6.0);
    assert_eq!(server.metric("pilotfish:time_to_first_token_seconds_count"), 2.0);
    assert_eq!(server.metric("llamacpp:requests_processing"), 0.0);
    // Every line is a comment or a name with a number.
    for line in server.get("/metrics").body.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok() && name.contains(':'), "{line}");
    }
}

#[test]
fn the_page_may_run_its_own_script_only() {
    let reply = Running::new().get("/");
    assert_eq!(reply.status, 200);
    let policy = reply.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; connect-src 'self'; style-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!reply.body.contains(outside), "{outside}");
    }
}

#[test]
fn templates_that_show_tools_get_them() {
    let template = "{% for tool in tools or [] %}<{{ tool.function.name }}>{% endfor %}\
        {% for message in messages %}{{ message.role }}: {{ message.content }}\
        {% for call in message.tool_calls or [] %}[{{ call.function.name }}\
        {{ call.function.arguments | tojson }}]{% endfor %}\n{% endfor %}";
    let mut file = small().writer();
    file.str("tokenizer.chat_template", template);
    let server = Running::with_file(&file.finish(), |_| {}, Faults::default());
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}});
    let call =
        json!({"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{\"at\": 1}"}});
    let messages = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "rain"}
    ]);
    let counted = |tools: Value, choice: &str| {
        let body = json!({
            "messages": messages, "tools": tools, "tool_choice": choice, "max_tokens": 1
        });
        server.post("/v1/chat/completions", &body).json()["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    let (with, without) = (counted(json!([tool]), "auto"), counted(json!([]), "auto"));
    assert!(with > without);
    assert_eq!(counted(json!([tool]), "none"), without);
    // The same conversation in the other interfaces is the same prompt.
    let anthropic = json!({
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "1", "name": "weather", "input": {"at": 1}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": "rain"}]}
        ],
        "tools": [{"name": "weather", "input_schema": {"type": "object"}}]
    });
    let count = server.post("/v1/messages/count_tokens", &anthropic).json();
    assert_eq!(count["input_tokens"], with);
    let responses = json!({
        "input": [
            {"role": "user", "content": "hi"},
            {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{\"at\": 1}"},
            {"type": "function_call_output", "call_id": "1", "output": "rain"}
        ],
        "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object"}}],
        "max_output_tokens": 1
    });
    assert_eq!(server.post("/v1/responses", &responses).json()["usage"]["input_tokens"], with);
    let error = server
        .post(
            "/v1/chat/completions",
            &json!({"messages": messages, "tools": [tool], "tool_choice": "required"}),
        )
        .refused(400);
    assert_eq!(error["param"], "tool_choice");
}

#[test]
fn thoughts_come_apart_from_the_text() {
    // The template opens the thought, and a random model never closes it.
    let template = "{% for message in messages %}{{ message.content }}{% endfor %}<think>\n";
    let mut file = small().writer();
    file.str("tokenizer.chat_template", template);
    let server = Running::with_file(&file.finish(), |_| {}, Faults::default());
    let body = |more: Value| {
        let mut body = json!({
            "messages": [{"role": "user", "content": "why"}],
            "max_tokens": 20, "ignore_eos": true, "temperature": 0
        });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let plain = server.post("/v1/chat/completions", &body(json!({"reasoning_format": "none"}))).json();
    let text = plain["choices"][0]["message"]["content"].as_str().unwrap().trim_start().to_owned();
    assert!(!text.is_empty());
    let whole = server.post("/v1/chat/completions", &body(json!({}))).json();
    let message = &whole["choices"][0]["message"];
    assert_eq!((&message["content"], &message["reasoning_content"]), (&json!(""), &json!(text)));
    let joined = |path: &str, body: &Value, at: &str| -> String {
        let chunks = server.post(path, body).chunks();
        chunks.iter().filter_map(|chunk| chunk.pointer(at)?.as_str().map(str::to_owned)).collect()
    };
    let stream = body(json!({"stream": true}));
    assert_eq!(joined("/v1/chat/completions", &stream, "/choices/0/delta/reasoning_content"), text);
    assert_eq!(joined("/v1/chat/completions", &stream, "/choices/0/delta/content"), "");
    assert_eq!(joined("/v1/messages", &stream, "/delta/thinking"), text);
    let block = &server.post("/v1/messages", &body(json!({}))).json()["content"][0];
    assert_eq!((&block["type"], &block["thinking"]), (&json!("thinking"), &json!(text)));
    let asked = json!({"input": "why", "max_output_tokens": 20, "ignore_eos": true, "temperature": 0});
    let response = server.post("/v1/responses", &asked).json();
    assert_eq!(response["output"][0]["type"], "reasoning");
    assert_eq!(response["output"][0]["content"][0]["text"], text.as_str());
    assert!(response["usage"].get("output_tokens_details").is_none(), "what was not counted is not told");
}

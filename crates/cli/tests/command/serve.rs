//! `serve` as a process: what it prints, that it answers as `run` does, how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::Home;

const SERVE: [&str; 7] = ["serve", "-m", "model.gguf", "-t", "1", "--port", "0"];

/// A running server; killed when a test fails.
struct Served {
    child: Child,
    lines: Vec<String>,
    rest: Option<BufReader<ChildStderr>>,
}

impl Served {
    fn new(home: &Home, more: &[&str]) -> Self {
        let mut child = home.command(&[&SERVE[..], more].concat()).spawn().unwrap();
        let mut rest = BufReader::new(child.stderr.take().unwrap());
        let mut lines = Vec::new();
        while !lines.last().is_some_and(|line: &String| line.starts_with("listening on ")) {
            let mut line = String::new();
            assert!(rest.read_line(&mut line).unwrap() > 0, "it ended: {lines:?}");
            lines.push(line.trim_end().to_owned());
        }
        Self { child, lines, rest: Some(rest) }
    }

    fn address(&self) -> &str {
        let line = self.lines.last().unwrap();
        line.strip_prefix("listening on http://").unwrap().split(' ').next().unwrap()
    }

    fn post(&self, path: &str, headers: &str, body: &Value) -> (u16, String) {
        let mut stream = self.send(path, headers, body);
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn send(&self, path: &str, headers: &str, body: &Value) -> TcpStream {
        let (address, body) = (self.address(), body.to_string());
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        stream
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for the end, but not for ever; returns the code and the rest of stderr.
    fn ended(mut self) -> (Option<i32>, String) {
        let start = Instant::now();
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            assert!(start.elapsed() < Duration::from_secs(30), "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut rest = String::new();
        self.rest.take().unwrap().read_to_string(&mut rest).unwrap();
        (code, rest)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn serve_says_what_run_says_and_ends_well() {
    let home = Home::with_model();
    for (flags, parameters) in [
        (&["--temp", "0"][..], json!({"temperature": 0})),
        (&["--temp", "0.9", "-s", "11"], json!({"temperature": 0.9, "seed": 11})),
    ] {
        let run = home.answer(&[flags, &["-n", "30", "--ignore-eos", "tell me"]].concat());
        let served = Served::new(&home, &[]);
        let mut body = json!({
            "messages": [{"role": "user", "content": "tell me"}], "max_tokens": 30, "ignore_eos": true
        });
        body.as_object_mut().unwrap().extend(parameters.as_object().unwrap().clone());
        let (status, reply) = served.post("/v1/chat/completions", "", &body);
        assert_eq!(status, 200, "{reply}");
        let reply: Value = serde_json::from_str(&reply).unwrap();
        assert_eq!(reply["choices"][0]["message"]["content"], run["text"]);
        served.signal("-TERM");
        let (code, rest) = served.ended();
        assert_eq!((code, rest.as_str()), (Some(0), "stopping: no more requests are taken\n"));
    }
}

#[test]
fn serve_reports_itself_in_five_lines() {
    let home = Home::with_model();
    let served = Served::new(&home, &["-a", "tiny", "--api-key", "secret", "--max-queue", "3", "-c", "100"]);
    let begin = [
        "model: tiny, model.gguf, llama, ",
        "lane: cpu",
        "limits: context 100, 3 waiting",
        "drafter: ngram+suffix, ",
    ];
    assert_eq!(served.lines.len(), 5, "{:?}", served.lines);
    for (line, begin) in served.lines.iter().zip(begin) {
        assert!(line.starts_with(begin), "{line}");
    }
    assert!(served.lines[3].contains("ms of a pass by rows 1: "), "{:?}", served.lines);
    assert!(!served.lines.concat().contains("secret"));
    let body = json!({"prompt": "x", "max_tokens": 1});
    assert_eq!(served.post("/v1/completions", "", &body).0, 401);
    assert_eq!(served.post("/v1/completions", "Authorization: Bearer secret\r\n", &body).0, 200);
    served.signal("-INT");
    assert_eq!(served.ended().0, Some(0));
}

#[test]
fn serve_takes_keys_from_a_file_and_the_environment() {
    let home = Home::with_model();
    home.write("keys", b"one\n\n two \n");
    let mut child = home.command(&[&SERVE[..], &["--api-key-file", "keys"]].concat());
    let mut child = child.env("PILOTFISH_API_KEY", "three").spawn().unwrap();
    let mut rest = BufReader::new(child.stderr.take().unwrap());
    let lines: Vec<String> = rest.by_ref().lines().take(5).map(Result::unwrap).collect();
    let served = Served { child, lines, rest: Some(rest) };
    let body = json!({"prompt": "x", "max_tokens": 1});
    for (key, status) in [("one", 200), ("two", 200), ("three", 200), ("four", 401), ("", 401)] {
        let header = format!("x-api-key: {key}\r\n");
        assert_eq!(served.post("/v1/completions", &header, &body).0, status, "{key}");
    }
}

#[test]
fn a_second_signal_ends_a_stubborn_server() {
    let home = Home::new();
    let spec = pilotfish_model::testing::TinySpec {
        context: 100_000,
        ..pilotfish_model::testing::TinySpec::new(pilotfish_model::Family::Llama)
    };
    home.write("model.gguf", &spec.gguf());
    for signal in ["-TERM", "-INT"] {
        let served = Served::new(&home, &["-c", "100000", "--grace", "600"]);
        let body = json!({"prompt": "on", "ignore_eos": true, "stream": true});
        let mut stream = served.send("/v1/completions", "", &body);
        stream.read_exact(&mut [0; 400]).unwrap();
        served.signal(signal);
        std::thread::sleep(Duration::from_millis(500));
        served.signal(signal);
        assert_eq!(served.ended().0, Some(130), "{signal}");
    }
}

#[test]
fn serve_refuses_what_it_cannot_be_asked() {
    let home = Home::with_model();
    let serve = |more: &[&str]| home.run(&[&SERVE[..], more].concat());
    serve(&["--host", "0.0.0.0"]).fails(2, &["0.0.0.0", "--api-key"]);
    serve(&["--host", "localhost"]).fails(2, &["--host"]);
    serve(&["--port", "70000"]).fails(2, &["--port", "too large"]);
    serve(&["--api-key", ""]).fails(2, &["--api-key", "empty"]);
    serve(&["--timeout", "0"]).fails(2, &["--timeout"]);
    serve(&["-n", "0"]).fails(2, &["-n", "above 0"]);
    serve(&["--api-key-file", "nowhere"]).fails(1, &["nowhere"]);
    serve(&["--parallel", "4"]).fails(2, &["--parallel", "--max-queue"]);
    serve(&["--metrics"]).fails(2, &["--metrics", "always"]);
    serve(&["--logit-bias", "999+1"]).fails(2, &["--logit-bias", "999"]);
}

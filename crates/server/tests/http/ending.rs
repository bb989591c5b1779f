//! How a server stops.

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Reply, Running, slow, small};

const CHAT: &str = "/v1/chat/completions";

fn request(server: &Running, tokens: usize) -> Vec<u8> {
    let body = json!({
        "messages": [{"role": "user", "content": "on and on"}],
        "max_tokens": tokens, "ignore_eos": true, "temperature": 0, "stream": true
    });
    server.request(CHAT, "", body.to_string().as_bytes())
}

fn started(server: &Running, tokens: usize) -> (TcpStream, Vec<u8>) {
    let mut stream = server.connect(&request(server, tokens));
    let mut bytes = vec![0; 600];
    stream.read_exact(&mut bytes).unwrap();
    (stream, bytes)
}

/// The rest of a reply whose beginning was read.
fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn running_replies_end_in_peace_and_waiting_ones_are_told() {
    let mut server = Running::with(&small(), |_| {}, slow());
    let (mut running, _) = started(&server, 40);
    let waiting = server.connect(&request(&server, 5));
    server.wait("llamacpp:requests_deferred", 1.0);
    let address = server.address;
    server.stop();
    let refused = Reply::read(waiting);
    assert!(refused.body.contains("unavailable_error"), "{}", refused.body);
    assert!(rest(&mut running).contains("data: [DONE]"));
    server.ended();
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}

#[test]
fn after_the_grace_time_replies_end_with_an_error() {
    let grace = |config: &mut pilotfish_server::Config| config.limits.grace = Duration::from_millis(200);
    let mut server = Running::with(&small(), grace, slow());
    let (mut running, _) = started(&server, 2000);
    let start = Instant::now();
    server.stop();
    let end = rest(&mut running);
    assert!(end.contains("\"type\":\"unavailable_error\""), "{end}");
    assert!(!end.contains("[DONE]") && !end.contains("\"finish_reason\":\"length\""), "{end}");
    server.ended();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn idle_servers_stop_at_once_whoever_is_connected() {
    let mut server = Running::new();
    server.golden();
    let idle: Vec<_> = (0..8).map(|_| server.connect(b"")).collect();
    let start = Instant::now();
    server.ended();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    drop(idle);
}

#[test]
fn requests_have_a_deadline() {
    let limit =
        |config: &mut pilotfish_server::Config| config.limits.request_timeout = Duration::from_secs(1);
    let server = Running::with(&small(), limit, slow());
    let body = json!({"prompt": "x", "max_tokens": 2000, "ignore_eos": true});
    let error = server.post("/v1/completions", &body).refused(504);
    assert_eq!(error["type"], "timeout_error");
    let stream = server.exchange(&request(&server, 2000));
    assert_eq!(stream.status, 200);
    assert!(stream.frames().last().unwrap().contains("timeout_error"), "{}", stream.body);
    server.wait("llamacpp:requests_processing", 0.0);
}

//! Clients that leave, read slowly or send slowly.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use pilotfish_model::Family;
use pilotfish_model::testing::TinySpec;
use pilotfish_server::Faults;
use serde_json::{Value, json};

use crate::harness::{Reply, Running, slow, small};

const CHAT: &str = "/v1/chat/completions";
const RUNNING: &str = "llamacpp:requests_processing";
const WAITING: &str = "llamacpp:requests_deferred";

fn endless(stream: bool) -> Vec<u8> {
    json!({
        "messages": [{"role": "user", "content": "on and on"}],
        "ignore_eos": true, "temperature": 0, "stream": stream
    })
    .to_string()
    .into_bytes()
}

#[test]
fn leaving_frees_the_engine_in_every_phase() {
    let server = Running::with(&small(), |_| {}, slow());
    let golden = server.golden();
    for stream in [true, false] {
        for how in [None, Some(Shutdown::Both), Some(Shutdown::Write)] {
            let mut client = server.connect(&server.request(CHAT, "", &endless(stream)));
            if stream {
                client.read_exact(&mut [0; 600]).unwrap();
            }
            server.wait(RUNNING, 1.0);
            let before = server.metric("pilotfish:cancelled_total");
            match how {
                None => drop(client),
                Some(how) => client.shutdown(how).unwrap(),
            }
            let left = Instant::now();
            server.wait(RUNNING, 0.0);
            assert!(left.elapsed() < Duration::from_secs(2), "{:?}", left.elapsed());
            server.wait("pilotfish:cancelled_total", before + 1.0);
            assert_eq!(server.golden(), golden);
        }
    }
}

#[test]
fn leaving_while_the_prompt_is_read_frees_the_engine() {
    let spec = TinySpec { context: 100_000, ..TinySpec::new(Family::Llama) };
    let server = Running::with(&spec, |_| {}, Faults::default());
    let body = json!({"prompt": "z".repeat(90_000), "max_tokens": 5}).to_string();
    let client = server.connect(&server.request("/v1/completions", "", body.as_bytes()));
    server.wait(RUNNING, 1.0);
    drop(client);
    server.wait(RUNNING, 0.0);
    // A pass takes half a second or so; the whole prompt would take minutes.
    assert_eq!(server.metric("llamacpp:tokens_predicted_total"), 0.0, "it never began to write");
    server.golden();
}

#[test]
fn leaving_the_queue_touches_nobody_else() {
    let server = Running::with(&small(), |_| {}, slow());
    let first = json!({
        "messages": [{"role": "user", "content": "the first"}], "max_tokens": 60, "ignore_eos": true,
        "temperature": 0
    });
    let alone = server.post(CHAT, &first).json()["choices"].clone();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| server.post(CHAT, &first));
        server.wait(RUNNING, 1.0);
        let waiting: Vec<_> =
            (0..5).map(|_| server.connect(&server.request(CHAT, "", &endless(true)))).collect();
        server.wait(WAITING, 5.0);
        drop(waiting);
        server.wait(WAITING, 0.0);
        assert_eq!(server.metric(RUNNING), 1.0);
        assert_eq!(running.join().unwrap().json()["choices"], alone);
    });
}

#[test]
fn hundreds_that_leave_leave_nothing_behind() {
    let server = Running::new();
    let golden = server.golden();
    for n in 0..200 {
        let request = server.request(CHAT, "", &endless(n % 2 == 0));
        // Cut anywhere: in the head, in the body, or after some of the reply.
        let cut = if n % 3 == 0 { request.len() } else { request.len() * (n % 50) / 50 };
        let mut client = server.connect(&request[..cut]);
        if n % 6 == 0 {
            let _ = client.read(&mut [0; 100]);
        }
    }
    server.wait(RUNNING, 0.0);
    server.wait(WAITING, 0.0);
    assert_eq!(server.golden(), golden);
}

#[test]
fn a_full_queue_says_so_at_once() {
    let server = Running::with(&small(), |config| config.limits.max_queue = 2, slow());
    let running = server.connect(&server.request(CHAT, "", &endless(true)));
    server.wait(RUNNING, 1.0);
    let waiting: Vec<_> = (0..2).map(|_| server.connect(&server.request(CHAT, "", &endless(true)))).collect();
    server.wait(WAITING, 2.0);
    let asked = Instant::now();
    let reply = server.exchange(&server.request(CHAT, "", &endless(false)));
    assert!(asked.elapsed() < Duration::from_secs(1));
    assert_eq!(reply.refused(429)["code"], "queue_full");
    assert!(reply.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    let reply = server
        .post("/v1/messages", &json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}));
    let error: Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!((reply.status, &error["error"]["type"]), (429, &json!("rate_limit_error")));
    drop(running);
    drop(waiting);
    server.wait(RUNNING, 0.0);
    server.golden();
}

#[test]
fn a_queue_is_served_in_its_order() {
    let server = Running::with(&small(), |_| {}, slow());
    let running = server.connect(&server.request(CHAT, "", &endless(true)));
    server.wait(RUNNING, 1.0);
    let order = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (server, order) = (&server, &order);
            scope.spawn(move || {
                server.golden();
                order.lock().unwrap().push(n);
            });
            server.wait(WAITING, f64::from(n + 1));
        }
        drop(running);
    });
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
}

#[test]
fn slow_readers_hold_up_nobody() {
    let spec = TinySpec { layers: 1, context: 8192, ..TinySpec::new(Family::Llama) };
    let stall =
        |config: &mut pilotfish_server::Config| config.limits.stall_timeout = Duration::from_millis(500);
    let server = Running::with(&spec, stall, Faults::default());
    let golden = server.golden();
    // Nothing of this is read: once the buffers of the system are full the rest waits in the server.
    let mut body: Value = serde_json::from_slice(&endless(true)).unwrap();
    body["logprobs"] = true.into();
    body["top_logprobs"] = 20.into();
    body["max_tokens"] = 6000.into();
    let lazy = server.connect(&server.request(CHAT, "", body.to_string().as_bytes()));
    server.wait(RUNNING, 1.0);
    assert_eq!(server.golden(), golden, "the engine does not wait for a socket");
    server.wait(RUNNING, 0.0);
    // The stalled connection is closed, not kept for ever.
    std::thread::sleep(Duration::from_millis(1500));
    let reply = Reply::read(lazy);
    assert!(!reply.body.ends_with("data: [DONE]\n\n"), "it was cut");
}

#[test]
fn slow_senders_are_sent_away() {
    let server = Running::with(
        &small(),
        |config| {
            config.limits.header_timeout = Duration::from_millis(300);
            config.limits.body_timeout = Duration::from_millis(300);
        },
        Faults::default(),
    );
    let start = Instant::now();
    let mut head = server.connect(b"POST /v1/chat/completions HTTP/1.1\r\nHost: loc");
    let mut nothing = server.connect(b"");
    let body = server.request(CHAT, "", &endless(true));
    let body = server.exchange(&body[..body.len() - 5]);
    assert_eq!(body.refused(408)["type"], "invalid_request_error");
    for stream in [&mut head, &mut nothing] {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        let _ = stream.write_all(b"alhost\r\n\r\n");
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    server.golden();
}

#[test]
fn idle_connections_keep_nobody_out() {
    let server = Running::new();
    let golden = server.golden();
    let idle: Vec<_> = (0..256).map(|_| server.connect(b"")).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(|| server.golden())).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), golden);
        }
    });
    drop(idle);
}

//! An engine that fails: only the request in which it did gets an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pilotfish_server::Faults;
use serde_json::json;

use crate::harness::{Running, before_rounds, small};

/// A panic before round 3, once the switch is on; it turns the switch off.
fn broken() -> (Faults, Arc<AtomicBool>) {
    let switch = Arc::new(AtomicBool::new(false));
    let armed = Arc::clone(&switch);
    let fault = before_rounds(move |round| {
        if round == 3 && armed.swap(false, Ordering::SeqCst) {
            panic!("a fault, as the test asked");
        }
    });
    (fault, switch)
}

#[test]
fn a_panic_costs_one_request() {
    let (fault, switch) = broken();
    let server = Running::with(&small(), |_| {}, fault);
    let golden = server.golden();
    let body = |stream: bool| {
        json!({
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": 40, "ignore_eos": true, "temperature": 0, "stream": stream
        })
    };
    for times in 1..=3 {
        switch.store(true, Ordering::SeqCst);
        let error = server.post("/v1/chat/completions", &body(false)).refused(500);
        assert_eq!(error["type"], "server_error");
        server.wait("pilotfish:engine_panics_total", f64::from(2 * times - 1));
        // The engine is loaded anew; until then requests are told to wait.
        while server.get("/health").status == 503 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(server.golden(), golden);
        switch.store(true, Ordering::SeqCst);
        let stream = server.post("/v1/chat/completions", &body(true));
        assert_eq!(stream.status, 200);
        assert!(stream.frames().last().unwrap().contains("server_error"), "{}", stream.body);
        assert!(!stream.body.contains("[DONE]"));
        while server.get("/health").status == 503 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(server.golden(), golden);
    }
}

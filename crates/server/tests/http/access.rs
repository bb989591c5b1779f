//! Who may ask: keys, names, origins.

use pilotfish_server::{Config, Faults, Server};
use serde_json::json;

use crate::harness::{Reply, Running, small};

fn get(server: &Running, path: &str, headers: &str) -> Reply {
    let request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
    server.exchange(request.as_bytes())
}

#[test]
fn keys_guard_all_but_health_and_the_page() {
    let keys = |config: &mut Config| config.api_keys = vec!["first key".to_owned(), "k2".to_owned()];
    let server = Running::with(&small(), keys, Faults::default());
    let host = format!("Host: {}\r\n", server.address);
    for path in ["/", "/health"] {
        assert_eq!(get(&server, path, &host).status, 200, "{path}");
    }
    for path in ["/metrics", "/props", "/v1/models", "/nowhere", "/v1/messages"] {
        assert_eq!(get(&server, path, &host).status, 401, "{path}");
    }
    let long = "x".repeat(8000);
    let wrong = ["", "Bearer ", "Bearer wrong", "Bearer first ke", "Bearer first keyy", "Basic k2", "k2"];
    let bodies: Vec<String> = wrong
        .iter()
        .copied()
        .chain([format!("Bearer {long}").as_str()])
        .map(|value| {
            let reply = get(&server, "/v1/models", &format!("{host}Authorization: {value}\r\n"));
            assert_eq!(reply.refused(401)["code"], "invalid_api_key", "{value}");
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
            reply.body
        })
        .collect();
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
    for right in ["Authorization: Bearer first key", "authorization: bearer k2", "X-Api-Key: k2"] {
        assert_eq!(get(&server, "/v1/models", &format!("{host}{right}\r\n")).status, 200, "{right}");
    }
    let post = server.request("/v1/messages", "x-api-key: k3\r\n", b"{}");
    let error: serde_json::Value = serde_json::from_str(&server.exchange(&post).body).unwrap();
    assert_eq!(
        error,
        json!({"type": "error", "error": {"type": "authentication_error", "message": error["error"]["message"]}})
    );
    let key = "Authorization: Bearer k2\r\n";
    assert!(!get(&server, "/metrics", &format!("{host}{key}")).body.contains("k2"));
}

#[test]
fn only_our_own_names_are_answered() {
    let names = |config: &mut Config| config.allowed_hosts = vec!["Box.local".to_owned()];
    let server = Running::with(&small(), names, Faults::default());
    let port = server.address.port();
    for host in [
        format!("localhost:{port}"),
        "LOCALHOST".into(),
        "127.0.0.1".into(),
        format!("[::1]:{port}"),
        "box.local".into(),
    ] {
        assert_eq!(get(&server, "/health", &format!("Host: {host}\r\n")).status, 200, "{host}");
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "evil.example:127.0.0.1",
        "localhost.",
        "127.1",
        "0x7f.1",
        "2130706433",
        "[::ffff:127.0.0.1]",
        "127.0.0.2",
        "10.0.0.1",
        "localhost:x",
        "",
        "user@localhost",
    ] {
        for path in ["/health", "/", "/v1/models", "/nowhere"] {
            let reply = get(&server, path, &format!("Host: {host}\r\n"));
            assert!(matches!(reply.status, 400 | 403), "{host:?} {path}: {}", reply.status);
        }
    }
    assert_eq!(get(&server, "/health", "").status, 400);
    assert_eq!(get(&server, "/health", "Host: localhost\r\nHost: evil.example\r\n").status, 400);
    assert_eq!(get(&server, "http://evil.example/health", "Host: localhost\r\n").status, 400);
}

#[test]
fn pages_of_other_places_are_refused() {
    let server = Running::new();
    let host = server.address;
    for origin in ["null", "http://evil.example", "https://localhost", "http://localhost:1", ""] {
        let headers = format!("Origin: {origin}\r\n");
        let post = server.exchange(&server.request("/v1/completions", &headers, b"{\"prompt\":\"x\"}"));
        assert_eq!(post.refused(403)["type"], "permission_error", "{origin}");
        assert_eq!(get(&server, "/health", &format!("Host: {host}\r\n{headers}")).status, 403);
    }
    let preflight = format!(
        "OPTIONS /v1/completions HTTP/1.1\r\nHost: {host}\r\nOrigin: http://evil.example\r\n\
         Access-Control-Request-Method: POST\r\nAccess-Control-Request-Private-Network: true\r\n\
         Connection: close\r\n\r\n"
    );
    let reply = server.exchange(preflight.as_bytes());
    assert_eq!(reply.status, 403);
    assert!(!reply.head.to_lowercase().contains("access-control"), "{}", reply.head);
    let own = format!("Origin: http://{host}\r\n");
    let body = json!({"prompt": "x", "max_tokens": 1}).to_string();
    assert_eq!(server.exchange(&server.request("/v1/completions", &own, body.as_bytes())).status, 200);
}

#[test]
fn the_world_needs_a_key() {
    let server = Running::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bind = |config: Config| {
        let engine = server.engine();
        runtime.block_on(Server::bind(config, engine, Box::new(|| unreachable!()), Faults::default()))
    };
    let open = Config { host: [0, 0, 0, 0].into(), port: 0, ..Config::default() };
    assert!(bind(open.clone()).err().unwrap().to_string().contains("needs a key"));
    assert!(bind(Config { api_keys: vec![" ".to_owned()], ..open.clone() }).is_err());
    assert!(bind(Config { api_keys: vec!["k".to_owned()], ..open.clone() }).is_ok());
    assert!(bind(Config { insecure_no_auth: true, ..open }).is_ok());
    let taken = Config { port: server.address.port(), ..Config::default() };
    assert!(bind(taken).err().unwrap().to_string().contains("cannot listen"));
}

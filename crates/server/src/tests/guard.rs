//! Tests of names and addresses in Host.
#![cfg(test)]

use std::net::IpAddr;

use super::{Hosts, without_port};

#[test]
fn ports_are_told_from_names() {
    for (host, name) in [
        ("localhost", Some("localhost")),
        ("localhost:80", Some("localhost")),
        ("localhost:", None),
        ("localhost:99999", None),
        ("[::1]", Some("[::1]")),
        ("[::1]:8080", Some("[::1]")),
        ("[::1]x", Some("[::1]x")),
        ("a:b:80", Some("a:b")),
    ] {
        assert_eq!(without_port(host), name, "{host}");
    }
}

#[test]
fn addresses_are_ours_when_we_listen_on_them() {
    let ours = |bound: &str, host: &str| Hosts::new(bound.parse::<IpAddr>().unwrap(), &[]).is_ours(host);
    assert!(ours("192.168.1.5", "192.168.1.5:8080") && ours("192.168.1.5", "localhost"));
    assert!(!ours("192.168.1.5", "192.168.1.6") && !ours("127.0.0.1", "192.168.1.5"));
    // Listening everywhere, any address of the machine may have been typed; a name still has to be allowed.
    assert!(ours("0.0.0.0", "10.1.2.3") && ours("::", "[fe80::1]:80") && !ours("0.0.0.0", "evil.example"));
    for odd in ["[127.0.0.1]", "[::1", "::1", "127.0.0.1.", "[::1]x"] {
        assert!(!ours("127.0.0.1", odd), "{odd}");
    }
}

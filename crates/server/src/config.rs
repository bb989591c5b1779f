//! What a server is told at its start, with every limit in one place.
//!
//! Invariant: whatever a client sends is bounded by a number of [`Limits`].
//! Not here: flags and environment variables (the command line).

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use pilotfish::{SamplingParams, SpecSampling};

/// How to serve.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address to listen on.
    pub host: IpAddr,
    /// Port; 0 takes a free one.
    pub port: u16,
    /// The model's name for clients; its own name when there is none.
    pub alias: Option<String>,
    /// Keys of which every request must carry one; none leaves the server open.
    pub api_keys: Vec<String>,
    /// Listens beyond this machine without a key.
    pub insecure_no_auth: bool,
    /// Names in `Host` that are accepted besides those of the loopback and of `host`.
    pub allowed_hosts: Vec<String>,
    /// What requests get that do not ask.
    pub defaults: Defaults,
    /// Bounds on clients.
    pub limits: Limits,
}

/// What requests get that do not ask.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Takes another seed for each request that names none; otherwise all have the one of `sampling`.
    pub fresh_seed: bool,
    /// How guesses are judged.
    pub spec_sampling: SpecSampling,
    /// Most tokens of a reply; `None` is until the context is full.
    pub max_tokens: Option<usize>,
}

/// Bounds on clients.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Requests that wait while another one is answered.
    pub max_queue: usize,
    /// Bytes of a request's body.
    pub max_body: usize,
    /// Connections at once; more wait to be accepted.
    pub max_connections: usize,
    /// For a request's headers, and between the requests of a connection.
    pub header_timeout: Duration,
    /// For a request's body.
    pub body_timeout: Duration,
    /// For a whole request, waiting included.
    pub request_timeout: Duration,
    /// For a client to take something of a reply that is ready.
    pub stall_timeout: Duration,
    /// Of silence in a stream, after which it gets a comment.
    pub keep_alive: Duration,
    /// For running replies once the server stops.
    pub grace: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 8080,
            alias: None,
            api_keys: Vec::new(),
            insecure_no_auth: false,
            allowed_hosts: Vec::new(),
            defaults: Defaults::default(),
            limits: Limits::default(),
        }
    }
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            sampling: SamplingParams::greedy(),
            fresh_seed: true,
            spec_sampling: SpecSampling::default(),
            max_tokens: None,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_queue: 64,
            max_body: 8 << 20,
            max_connections: 512,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(3600),
            stall_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(15),
            grace: Duration::from_secs(30),
        }
    }
}

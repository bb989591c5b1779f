//! Serves one loaded model over HTTP to clients of the OpenAI and Anthropic interfaces.
//!
//! ```text
//! connection ─ Host, Origin, key ─▶ API (parse, check, tokenize) ─▶ queue ─▶ engine thread ─▶ updates ─▶ bytes
//! ```
//!
//! One thread owns the engine and answers one request at a time, in the order they came. Everything that can be
//! refused is refused before a request enters the queue, so an error has a status; once a reply streams, an error is a
//! frame of it. A client that goes away takes its request along: out of the queue, or out of the engine at its next
//! pass.
//!
//! Invariant: no request ends the process, and no request changes the answer to another one.
//! Not here: the loop (`pilotfish-engine`), loading models (`pilotfish`), flags (the command line).

mod api;
mod app;
mod ask;
mod auth;
mod body;
mod config;
mod error;
mod facts;
mod guard;
mod listen;
mod metrics;
mod page;
mod parts;
mod queue;
mod report;
mod sse;
mod stream;
mod worker;

pub use config::{Config, Defaults, Limits};
pub use listen::{ServeError, Server};
pub use worker::{Faults, Loader};

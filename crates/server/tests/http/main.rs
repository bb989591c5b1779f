//! The server over real connections, with a tiny model behind it.
//!
//! Invariant: every test starts a server of its own and ends it.
//! Not here: the command line around it (`pilotfish-cli`), parts that need no connection (unit tests).
#![cfg(test)]
#![allow(clippy::unwrap_used, reason = "a panic is the test's failure")]

mod access;
mod answers;
mod ending;
mod faults;
mod harness;
mod leaving;
mod malformed;
mod streams;

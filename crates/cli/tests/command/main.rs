//! Drives the built binary as a user would, with tiny random models in a folder of its own.
//!
//! One test program, so that the binary is linked once; a module a subject.
//!
//! Invariant: nothing outside the test's own folder is read or written, and the network is never used.
//! Not here: real vocabularies and real models.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as expected")]

mod bench;
mod chat;
mod endings;
mod files;
mod harness;
mod inputs;
mod limits;
mod lossless;
#[cfg(unix)]
mod serve;
#[cfg(unix)]
mod signals;
mod speculation;
mod telemetry;
mod usage;

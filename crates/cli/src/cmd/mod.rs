//! One file a command: its flags, and what it does with them.
//!
//! Invariant: a command returns how it ended or one error; it never ends the process itself.
//! Not here: flags shared by commands (`args`).

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod eval;
pub(crate) mod inspect;
pub(crate) mod models;
pub(crate) mod pull;
pub(crate) mod run;
pub(crate) mod serve;

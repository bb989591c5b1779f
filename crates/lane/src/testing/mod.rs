//! Lanes and checks for tests: a scripted lane, and a suite every real lane must pass.
//!
//! Speculation, sampling and sessions are tested against [`ScriptedLane`], whose logits are a pure
//! function of the token prefix, so every outcome is known beforehand and no model is needed.
//! [`agreement`] states in code what the [`Lane`](crate::Lane) trait promises in words.
//!
//! Invariant: nothing here reads the clock or global state; equal inputs give equal runs.
//! Not here: tiny random models (`pilotfish_model::testing`).

pub mod agreement;
mod scripted;
mod scripted_head;
mod taps;

pub use scripted::{Fault, Pass, ScriptedLane, hash_tokens};
pub use scripted_head::ScriptedHead;

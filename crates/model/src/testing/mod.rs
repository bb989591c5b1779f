//! Test support for this crate and the ones above it: tiny random models, legal oddities, damaged files.
//!
//! [`TinySpec`] builds a whole model of any family and block type as GGUF bytes, in a few milliseconds and
//! with nothing to download; [`variants`] writes the same llama model in many legal ways; [`Mutator`] breaks
//! files with some knowledge of their structure; [`TinyHead`] is a random drafter head.
//!
//! Invariant: everything here is a pure function of its arguments, on every machine.
//! Not here: scripted lanes (`pilotfish-lane::testing`).

mod head;
mod mutate;
mod random;
mod tiny;
mod variants;
mod vocabulary;

pub use head::TinyHead;
pub use mutate::Mutator;
pub use random::Random;
pub use tiny::TinySpec;
pub use variants::variants;

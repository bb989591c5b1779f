//! What a model is: its file, its text rules, and its forward pass as a graph. Runs nothing.
//!
//! `files` turns bytes into named, checked views; `text` turns strings into token ids and back;
//! `config` and `families` turn metadata into a checked [`graph::Graph`].
//!
//! Invariant: no input file can cause a panic, a hang, or an allocation its size does not justify.
//! Not here: arithmetic (`pilotfish-tensor`), passes and caches (`pilotfish-lane`).

pub mod config;
mod error;
pub mod families;
pub mod files;
pub mod graph;
pub mod heads;
mod model;
pub mod testing;
pub mod text;

pub use config::{Config, Family};
pub use error::{ModelError, Section};
pub use files::gguf::{Gguf, GgufWriter, Metadata, TensorInfo, Value};
pub use files::safetensors::Safetensors;
pub use heads::DraftHead;
pub use model::{Model, Weight};

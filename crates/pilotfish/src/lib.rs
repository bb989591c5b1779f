//! Loads a model of the catalog and answers prompts, token for token as the model alone would.
//!
//! ```no_run
//! use pilotfish::{Engine, Event, GenerateOptions, LoadOptions, Message};
//!
//! # fn main() -> Result<(), pilotfish::Error> {
//! let mut engine = Engine::load(&LoadOptions::new("smollm2-135m"))?;
//! for event in engine.chat(&[Message::user("Why is the sky blue?")], &GenerateOptions::default())? {
//!     if let Event::Text(text) = event? {
//!         print!("{text}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! An [`Engine`] is a model on a lane with a drafter beside it. A [`Generation`] is an iterator of events that runs
//! as it is read; dropping it, or setting [`GenerateOptions::cancel`], stops it. Keys and values of a prompt that
//! begins like the previous one are reused, so a chat costs only what is new.
//!
//! Invariant: the text depends on model, prompt and sampling options, never on the drafter or on earlier prompts
//! (with [`SpecSampling::Rejection`], which is not the default, its law does).
//! Not here: the loop (`pilotfish-engine`), downloads (`pilotfish-catalog`), printing (the command line).

mod curves;
pub mod drafting;
mod engine;
mod error;
mod generation;
mod history;
pub mod lanes;
mod load;
mod options;
mod round;
mod whole;

pub use engine::{Engine, Prompt};
pub use error::{Error, ErrorKind};
pub use generation::{Event, Generation, Summary};
pub use lanes::{CpuOptions, Device, KvType, MAX_THREADS, Memory, Roofline};
pub use load::{ModelRef, default_model, find_model};
pub use options::{DEFAULT_CONTEXT, DrafterChoice, GenerateOptions, LoadOptions};
pub use round::RoundRecord;

pub use pilotfish_catalog::{Catalog, CatalogError, Env, LocalModel, Progress, Quiet};
pub use pilotfish_engine::sampling::{Logprobs, SamplingParams};
pub use pilotfish_engine::session::{FinishReason, Piece};
pub use pilotfish_engine::speculate::{
    BySource, Costs, PipelineReport, Pipelining, RoundFigures, Source, SourceCount, SpecSampling,
    SpeculationReport, Stats,
};
pub use pilotfish_model::text::Message;

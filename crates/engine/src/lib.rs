//! Turns a lane into text: sessions, sampling, drafters and the one speculation loop.
//!
//! A [`Session`](session::Session) holds the tokens of one reply; a [`Sampler`](sampling::Sampler) says
//! which token follows a logits row; a [`Drafter`](draft::Drafter) guesses ahead; and
//! [`Generation`](speculate::Generation) runs rounds of draft, verify, accept until the session is done.
//! Plain decoding is the same loop with a drafter that proposes nothing.
//!
//! Invariant: the reply's tokens are a function of target, prompt and sampling parameters; the drafter,
//! the draft lengths and the prompt's cuts change only how long it takes.
//! Not here: files, devices and command lines; this crate opens none of them.

mod cached;
mod clock;
pub mod draft;
mod error;
mod pace;
pub mod sampling;
pub mod session;
pub mod speculate;

pub use cached::CachedLane;
pub use clock::{Clock, MonotonicClock};
pub use error::{DraftError, EngineError};

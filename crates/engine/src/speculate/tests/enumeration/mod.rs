//! Proves, for small cases, that sampling by rejection has the law of plain sampling: by trying everything.
//!
//! Every random decision of the loop goes through [`Choice`](crate::sampling::Choice). `replay` answers with
//! each outcome in turn and multiplies probabilities, so the law of the text comes out exactly, not from
//! samples; `settings` runs the production loop that way and computes, by other code, the law it must have.
//!
//! `exact` goes through sampling parameters, ends of replies, chains, trees and drafters; the two laws must
//! agree to 1e-12. `planted` does the same with well-known mistakes, which must all be seen. `sampled` then
//! throws the real dice, since what they give cannot be enumerated.
//!
//! Invariant: no outcome is left out, and no number here is random.
//! Not here: coupled sampling, which never changes a token (`tests/speculation.rs`), but for its law (`coupled`).

mod coupled;
mod drafters;
mod exact;
mod planted;
mod replay;
mod sampled;
mod settings;

//! What a drafter of your own is written with; see `docs/add-a-drafter.md` and the example `own_drafter`.
//!
//! Not here: the drafters that come along ([`DrafterChoice`](crate::DrafterChoice)).

pub use pilotfish_engine::DraftError;
pub use pilotfish_engine::draft::{Drafter, NgramDrafter, SuffixDrafter, Union};
pub use pilotfish_engine::session::Session;
pub use pilotfish_engine::speculate::{Accepted, Guess, Source, TokenTree};
pub use pilotfish_lane::Rows;

//! A trained drafter head on some device: the [`Head`] trait.
//!
//! A head follows its target: for each committed token it is given the taps of that token's row, and when asked it runs
//! one block behind them and says, guess by guess, what may follow. It chooses nothing: each guess depends on the one
//! before, which the caller picks.
//!
//! Invariant: a head cannot reach its target; all it does is guess.
//! Not here: choosing and judging guesses (`pilotfish-engine`), head files (`pilotfish_model::heads`).

use crate::LaneError;

/// A trained drafter head.
pub trait Head: Send {
    /// What it is.
    fn info(&self) -> &HeadInfo;

    /// Positions of its context, those that it skipped included.
    fn len(&self) -> usize;

    /// Whether its context has no position.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the taps of the tokens at position `len()` and behind, `[tokens, taps, hidden]`. They may be worked on
    /// later.
    ///
    /// # Errors
    /// [`LaneError::Device`] when there is no memory.
    ///
    /// # Panics
    /// When they are no whole number of tokens.
    fn append(&mut self, taps: &[f32]) -> Result<(), LaneError>;

    /// Forgets every position from `len` on.
    fn truncate(&mut self, len: usize);

    /// Forgets everything and goes on at position `at`, as if it had seen nothing before.
    ///
    /// # Errors
    /// [`LaneError::Device`] when there is no memory.
    fn restart(&mut self, at: usize) -> Result<(), LaneError>;

    /// Works on what was appended, so that the next block need not.
    ///
    /// # Errors
    /// [`LaneError::Device`] when the engine failed.
    fn settle(&mut self) -> Result<(), LaneError>;

    /// Runs a block behind the context: `anchor` is the token at position `len()`, whose taps are not known yet. Up to
    /// `guesses` guesses can be asked for then.
    ///
    /// # Errors
    /// [`LaneError::BadToken`] for an anchor outside the vocabulary; [`LaneError::Device`] when the engine failed.
    fn block(&mut self, anchor: u32, guesses: usize) -> Result<(), LaneError>;

    /// What may be guess number `at` (from 0) of the last block, where the token before it is `previous`.
    ///
    /// # Panics
    /// When the block was not asked for so many guesses, or there is no such token.
    fn guess(&self, at: usize, previous: u32) -> Slot;
}

/// What a head is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadInfo {
    /// Layers of the target whose residual streams it reads, in this order.
    pub taps: Vec<usize>,
    /// Width of each stream.
    pub hidden: usize,
    /// Most guesses of a block.
    pub guesses: usize,
    /// Tokens of its target.
    pub vocab: usize,
    /// Most positions of context that matter to it.
    pub window: usize,
}

/// What a head thinks of one guess.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slot {
    /// The likeliest tokens of the target's vocabulary and their logits, best first, the lower id first on ties. Empty
    /// where the head computed nothing finite.
    pub candidates: Vec<(u32, f32)>,
    /// How likely the guess is kept, whatever it is, should the one before be right: 0 to 1. `None` where the head does
    /// not say.
    pub confidence: Option<f32>,
}

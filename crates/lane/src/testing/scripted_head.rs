//! A head without weights: it reads its context out of a scripted lane's taps and guesses by a script.
//!
//! The first number of a scripted tap is the row's token, so the head knows the text behind each tap, and can tell
//! whether the others are those of that text.
//!
//! Invariant: taps of another position, layer or row than the next one of the text are a panic.
//! Not here: heads with weights (`cpu`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ScriptedLane;
use crate::head::{Head, HeadInfo, Slot};
use crate::{Lane as _, LaneError};

/// A head that guesses what a scripted lane says.
pub struct ScriptedHead {
    info: HeadInfo,
    target: ScriptedLane,
    guesser: ScriptedLane,
    confident: bool,
    tokens: Vec<Option<u32>>, // of the context; none where it was skipped
    chain: Vec<u32>,          // the anchor, and the likeliest guesses behind it
    fails_at: Option<usize>,
    cost: Option<(Arc<AtomicU64>, u64)>,
    blocks: usize,
}

impl ScriptedHead {
    /// A head for `target` that guesses what `guesser` would say, up to `guesses` a block. With `confident` it has a
    /// confidence in each guess.
    pub fn new(target: &ScriptedLane, guesser: ScriptedLane, guesses: usize, confident: bool) -> Self {
        let info = target.info();
        let info = HeadInfo { taps: vec![0, 3], hidden: info.hidden, guesses, vocab: info.vocab, window: 16 };
        let target = target.twin();
        let (tokens, chain) = (vec![], vec![]);
        Self { info, target, guesser, confident, tokens, chain, fails_at: None, cost: None, blocks: 0 }
    }

    /// Fails at block number `block`, from 0.
    pub fn with_fault(mut self, block: usize) -> Self {
        self.fails_at = Some(block);
        self
    }

    /// Advances `clock` by `us` microseconds in every block.
    pub fn with_cost(mut self, clock: Arc<AtomicU64>, us: u64) -> Self {
        self.cost = Some((clock, us));
        self
    }

    /// The context and the first `n` of the chain; unknown tokens are left out.
    fn prefix(&self, n: usize) -> Vec<u32> {
        self.tokens.iter().flatten().chain(&self.chain[..n]).copied().collect()
    }
}

impl Head for ScriptedHead {
    fn info(&self) -> &HeadInfo {
        &self.info
    }

    fn len(&self) -> usize {
        self.tokens.len()
    }

    fn append(&mut self, taps: &[f32]) -> Result<(), LaneError> {
        let width = self.info.taps.len() * self.info.hidden;
        assert!(taps.len().is_multiple_of(width), "taps of whole tokens");
        for taps in taps.chunks_exact(width) {
            self.tokens.push(Some(taps[0] as u32));
            if self.tokens.iter().all(Option::is_some) {
                let prefix = self.prefix(0);
                let expected = self.info.taps.iter().flat_map(|&layer| self.target.tap(layer, &prefix));
                assert!(expected.eq(taps.iter().copied()), "the taps are not those of {prefix:?}");
            }
        }
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.chain.clear();
    }

    fn restart(&mut self, at: usize) -> Result<(), LaneError> {
        self.chain.clear();
        self.tokens = vec![None; at];
        Ok(())
    }

    fn settle(&mut self) -> Result<(), LaneError> {
        Ok(())
    }

    fn block(&mut self, anchor: u32, guesses: usize) -> Result<(), LaneError> {
        assert!((1..=self.info.guesses).contains(&guesses), "{guesses} guesses");
        self.blocks += 1;
        if let Some((clock, us)) = &self.cost {
            clock.fetch_add(*us, Ordering::Relaxed);
        }
        if self.fails_at == Some(self.blocks - 1) {
            return Err(LaneError::Device {
                lane: "scripted".to_owned(),
                what: "a fault in a block".to_owned(),
            });
        }
        self.chain = vec![anchor];
        for at in 0..guesses {
            let slot = self.guess(at, self.chain[at]);
            self.chain.push(slot.candidates[0].0);
        }
        Ok(())
    }

    fn guess(&self, at: usize, previous: u32) -> Slot {
        let mut prefix = self.prefix(at);
        prefix.push(previous);
        let logits = self.guesser.logits(&prefix);
        let mut candidates: Vec<(u32, f32)> = (0..).zip(logits).collect();
        candidates.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        candidates.truncate(6);
        let confidence = self.confident.then(|| 0.9 / (at + 1) as f32);
        Slot { candidates, confidence }
    }
}

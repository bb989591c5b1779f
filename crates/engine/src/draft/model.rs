//! A second, smaller model as drafter.
//!
//! It decodes a chain with its own lane, choosing each token as the target's sampler would: greedy when
//! that is greedy, else with the same noise of the same positions, so that similar logits mostly give
//! the same token. Where the text is sampled by rejection it draws from its own law, with numbers of its own,
//! and hands the law over. Its cache follows the session by the longest common prefix.
//!
//! Tokens the drafter does not have (a longer target vocabulary) are left out of what it reads; ids the
//! target does not have are never guessed.
//!
//! Invariant: its lane never sees an id outside its own vocabulary. Whether a token is drawn never depends
//! on the token.
//! Not here: whether the two vocabularies fit (`check_vocabulary`, asked once at load).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pilotfish_lane::{Lane, LaneError, Outputs, Rows, Want};

use super::Drafter;
use crate::cached::CachedLane;
use crate::clock::MonotonicClock;
use crate::error::DraftError;
use crate::sampling::{Choice, Law, Sampler, logprobs};
use crate::session::Session;
use crate::speculate::{Guess, Source, TokenTree};

/// New tokens that are read in one pass together with the last.
const CHUNK: usize = 64;

/// Longest draft unless told otherwise; how much of it is worth its time, the budget knows.
const DEFAULT_MAX: usize = 16;

/// How likely a guess is held to be; what was accepted before decides anyway.
const LIKELY: f32 = 0.7;

/// Drafts with a model of its own.
pub struct ModelDrafter {
    lane: CachedLane,
    target_vocab: usize,
    p_min: f32,
    sampler: Option<Sampler>,
    idle: Option<String>,
    limit: usize,
}

impl ModelDrafter {
    /// A drafter for a target with `target_vocab` logits. A guess whose probability under the drafter is
    /// below `p_min` ends the draft; 0 turns that off.
    pub fn new(lane: Box<dyn Lane>, target_vocab: usize, p_min: f32) -> Self {
        Self {
            lane: CachedLane::new(lane),
            target_vocab,
            p_min,
            sampler: None,
            idle: None,
            limit: usize::MAX,
        }
    }

    /// The part of the session its lane can read.
    fn readable(&self, session: &Session) -> Vec<u32> {
        let vocab = self.lane.info().vocab;
        session.tokens().iter().copied().filter(|&token| (token as usize) < vocab).collect()
    }

    /// Reads all of `tokens` but the last, as far as it is not in the cache.
    fn catch_up(&mut self, tokens: &[u32], cancel: &AtomicBool) -> Result<(), DraftError> {
        let before_last = &tokens[..tokens.len() - 1];
        let known = self.lane.sync(before_last);
        // Only widths depend on this clock, so a test has nothing to inject.
        let clock = MonotonicClock::default();
        self.lane.read(&before_last[known..], None, &clock, &mut |_| !cancel.load(Ordering::Relaxed))?;
        Ok(())
    }

    /// Reads what is new and returns the last token's row: one pass in the usual case.
    fn read(&mut self, tokens: &[u32], want: Want) -> Result<Rows, DraftError> {
        let width = CHUNK.min(self.lane.info().max_width);
        let known = self.lane.sync(&tokens[..tokens.len() - 1]);
        if tokens.len() - known > width {
            self.catch_up(tokens, &AtomicBool::new(false))?;
        }
        Ok(self.lane.append(&tokens[self.lane.held().len()..], want)?)
    }

    /// A sampler with the session's settings.
    fn sampler_for(&mut self, session: &Session) -> Sampler {
        match self.sampler.take() {
            Some(sampler) if sampler.same_settings(session.sampler()) => sampler,
            _ => session.sampler().clone(),
        }
    }

    /// The guess behind a row, and the law it was drawn from where the text is sampled by rejection
    /// (`choice`); none where the drafter is too unsure or the target does not have the token.
    fn guess(
        &self,
        row: &Rows,
        history: &[u32],
        sampler: &mut Sampler,
        choice: Option<&mut dyn Choice>,
    ) -> Result<Option<(u32, Option<Law>)>, DraftError> {
        let last = row.width() - 1;
        if *row.get(last) == Outputs::NonFinite {
            return Err(LaneError::NonFinite { position: self.lane.held().len() - 1 }.into());
        }
        let Some(logits) = row.logits(last) else {
            let known = row.argmax(last).filter(|&token| (token as usize) < self.target_vocab);
            return Ok(known.map(|token| (token, None)));
        };
        let shared = &logits[..logits.len().min(self.target_vocab)];
        if let Some(choice) = choice {
            let law = sampler.law(shared, history)?;
            // To give up on an unlikely token would leave the likely ones more than their share.
            let sure = law.largest() >= f64::from(self.p_min);
            return Ok(sure.then(|| (law.draw(choice), Some(law))));
        }
        let token = sampler.sample(shared, history)?;
        let sure = self.p_min <= 0.0 || logprobs(shared, token, 0).logprob >= f64::from(self.p_min).ln();
        Ok(sure.then_some((token, None)))
    }

    fn want(&self, sampler: &Sampler) -> Want {
        if self.p_min > 0.0 { Want::Logits } else { sampler.want() }
    }
}

impl Drafter for ModelDrafter {
    fn name(&self) -> &str {
        "model"
    }

    fn default_max(&self) -> usize {
        DEFAULT_MAX
    }

    fn prepare(&mut self, session: &Session, cancel: &AtomicBool) -> Result<(), DraftError> {
        let tokens = self.readable(session);
        if tokens.is_empty() || tokens.len() > self.lane.info().context {
            return Ok(());
        }
        self.catch_up(&tokens, cancel)
    }

    fn propose(&mut self, session: &Session, limit: usize) -> Result<TokenTree, DraftError> {
        let mut tree = TokenTree::root(session.last());
        let tokens = self.readable(session);
        let context = self.lane.info().context;
        // The last guess is never read, so a draft may be one longer than the room behind the text.
        let room = (context + 1).saturating_sub(tokens.len());
        self.idle = (room == 0).then(|| format!("the drafter's context of {context} is full"));
        let limit = limit.min(room).min(self.limit);
        if limit == 0 || tokens.is_empty() {
            return Ok(tree);
        }
        let mut sampler = self.sampler_for(session);
        let want = self.want(&sampler);
        let mut history = session.tokens().to_vec();
        let mut row = self.read(&tokens, want)?;
        let mut at = 0;
        let dice = session.dice();
        let mut choice = dice.map(|dice| dice.guesses(session.len()));
        loop {
            let choice = choice.as_mut().map(|choice| choice.as_mut() as &mut dyn Choice);
            let Some((token, law)) = self.guess(&row, &history, &mut sampler, choice)? else { break };
            if let Some(law) = law {
                tree.draw_behind(at, Arc::new(law));
            }
            at = tree.push(at, Guess { token, probability: LIKELY, source: Source::Model });
            if tree.drafted() == limit {
                break;
            }
            history.push(token);
            row = self.lane.append(&[token], want)?;
        }
        self.sampler = Some(sampler);
        Ok(tree)
    }

    fn is_costly(&self) -> bool {
        true
    }

    fn limit_costly(&mut self, depth: usize) {
        self.limit = depth;
    }

    fn idle_reason(&self) -> Option<String> {
        self.idle.clone()
    }
}

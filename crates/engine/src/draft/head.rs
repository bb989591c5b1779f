//! A trained head of the target's as drafter.
//!
//! The head is given the taps of every token the target commits, prompt included, and runs one block a proposal. Tokens
//! are chosen as the target's sampler would choose them, one behind another, among the head's candidates; where the text
//! is sampled by rejection they are drawn, and the law is handed over. Runners-up become side branches.
//!
//! Invariant: the head's context is what `held` says, position by position; a text that went another way cuts both.
//! Whether a token is drawn never depends on the token.
//! Not here: the head itself (`pilotfish_lane::Head`), how much of a block is worth verifying (`speculate::budget`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pilotfish_lane::{Head, LaneError, Rows, Slot};

use super::Drafter;
use crate::error::DraftError;
use crate::sampling::{Choice, Law, Sampler};
use crate::session::Session;
use crate::speculate::{Guess, Source, TokenTree, Worth};

/// How likely a drawn guess is held to be: all the same, as nothing may be cut by what was drawn.
const LIKELY: f32 = 0.7;

/// Stands for a token of the context that is not known.
const UNKNOWN: u32 = u32::MAX;

/// Drafts with a head.
pub struct HeadDrafter {
    head: Box<dyn Head>,
    held: Vec<u32>, // tokens of the head's context
    sampler: Option<Sampler>,
    failed: Option<LaneError>,
    idle: Option<String>,
    limit: usize,
}

impl HeadDrafter {
    /// A drafter for the target of `head`.
    pub fn new(mut head: Box<dyn Head>) -> Self {
        head.truncate(0);
        Self { head, held: Vec::new(), sampler: None, failed: None, idle: None, limit: usize::MAX }
    }

    fn truncate(&mut self, len: usize) {
        self.held.truncate(len);
        self.head.truncate(len);
    }

    /// Goes on at the end of `tokens` without having seen them.
    fn restart(&mut self, tokens: Vec<u32>) -> Result<(), LaneError> {
        self.head.restart(tokens.len())?;
        self.held = tokens;
        Ok(())
    }

    fn common(&self, tokens: &[u32]) -> usize {
        self.held.iter().zip(tokens).take_while(|(held, token)| held == token).count()
    }

    fn follow_rows(&mut self, position: usize, tokens: &[u32], taps: &[f32]) -> Result<(), LaneError> {
        if position < self.held.len() {
            self.truncate(position);
        } else if position > self.held.len() {
            self.restart(vec![UNKNOWN; position])?;
        }
        self.head.append(taps)?;
        self.held.extend(tokens);
        Ok(())
    }

    /// A block behind the session's last token as a tree.
    fn draft(
        &self,
        session: &Session,
        sampler: &mut Sampler,
        guesses: usize,
        tree: &mut TokenTree,
    ) -> Result<(), DraftError> {
        let dice = session.dice();
        let mut choice = dice.map(|dice| dice.guesses(session.len()));
        let mut history = session.tokens().to_vec();
        let mut aside = Vec::new();
        let mut at = 0;
        for depth in 0..guesses {
            let slot = self.head.guess(depth, history[history.len() - 1]);
            if slot.candidates.is_empty() {
                break;
            }
            let token;
            if let Some(choice) = &mut choice {
                let law = sampler.law_among(&slot.candidates, &history)?;
                token = law.draw(choice.as_mut() as &mut dyn Choice);
                tree.draw_behind(at, Arc::new(law) as Arc<Law>);
                at = tree.push(at, Guess { token, probability: LIKELY, source: Source::Head });
            } else {
                token = sampler.sample_among(&slot.candidates, &history)?;
                let (probability, other) = chances(&slot, token);
                aside.extend(other.map(|guess| (at, guess)));
                at = tree.push(at, Guess { token, probability, source: Source::Head });
            }
            history.push(token);
        }
        // Where a tree is too wide, what was pushed first stays.
        for (parent, guess) in aside {
            tree.push(parent, guess);
        }
        Ok(())
    }
}

/// How likely `token` is, and the likeliest other candidate. The head's confidence is in its guess, whatever it is; the
/// rest goes to the others by their logits.
fn chances(slot: &Slot, token: u32) -> (f32, Option<Guess>) {
    let best = slot.candidates[0].1;
    let weight = |logit: f32| (logit - best).exp();
    let total: f32 = slot.candidates.iter().map(|candidate| weight(candidate.1)).sum();
    let share = |logit: f32| weight(logit) / total;
    let own = slot.candidates.iter().find(|candidate| candidate.0 == token).map_or(0.0, |c| share(c.1));
    let probability = slot.confidence.unwrap_or(own);
    let other = slot.candidates.iter().find(|candidate| candidate.0 != token).map(|&(token, logit)| {
        let left = share(logit) / (1.0 - own).max(f32::EPSILON);
        Guess { token, probability: (1.0 - probability) * left.min(1.0), source: Source::Head }
    });
    (probability, other)
}

impl Drafter for HeadDrafter {
    fn name(&self) -> &str {
        "head"
    }

    fn default_max(&self) -> usize {
        self.head.info().guesses
    }

    fn taps(&self) -> &[usize] {
        &self.head.info().taps
    }

    fn resume_at(&mut self, prompt: &[u32], held: usize) -> usize {
        let common = self.common(prompt).min(held);
        // What lies before the window of the prompt's end would be read again for nothing.
        let at = common.max(prompt.len().saturating_sub(1 + self.head.info().window)).min(held);
        if at == common {
            self.truncate(at);
        } else if let Err(error) = self.restart(prompt[..at].to_vec()) {
            self.failed = Some(error);
        }
        at
    }

    fn follow(&mut self, position: usize, tokens: &[u32], rows: &Rows, path: &[usize]) {
        let taps: Vec<f32> = path.iter().flat_map(|&row| rows.taps(row)).copied().collect();
        if let Err(error) = self.follow_rows(position, tokens, &taps) {
            self.failed = Some(error);
        }
    }

    fn prepare(&mut self, _: &Session, _: &AtomicBool) -> Result<(), DraftError> {
        Ok(self.head.settle()?)
    }

    fn propose(&mut self, session: &Session, limit: usize) -> Result<TokenTree, DraftError> {
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        let mut tree = TokenTree::root(session.last());
        let before_last = &session.tokens()[..session.len() - 1];
        let common = self.common(before_last);
        self.truncate(common);
        let behind = common < before_last.len();
        self.idle = behind.then(|| "the head has not seen the text before this".to_owned());
        let guesses = limit.min(self.limit).min(self.head.info().guesses);
        if behind || guesses == 0 {
            return Ok(tree);
        }
        self.head.block(session.last(), guesses)?;
        let mut sampler = match self.sampler.take() {
            Some(sampler) if sampler.same_settings(session.sampler()) => sampler,
            _ => session.sampler().clone(),
        };
        self.draft(session, &mut sampler, guesses, &mut tree)?;
        self.sampler = Some(sampler);
        Ok(tree)
    }

    fn is_costly(&self) -> bool {
        true
    }

    fn block(&self) -> Option<usize> {
        Some(self.head.info().guesses)
    }

    fn limit_costly(&mut self, depth: usize, _: &Worth) {
        self.limit = depth;
    }

    fn idle_reason(&self) -> Option<String> {
        self.idle.clone()
    }
}

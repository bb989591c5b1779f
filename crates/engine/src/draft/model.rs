//! A second, smaller model as drafter.
//!
//! It decodes a chain with its own lane, choosing each token as the target's sampler would: greedy when
//! that is greedy, else with the same noise of the same positions, so that similar logits mostly give
//! the same token. Where the text is sampled by rejection it draws from its own law, with numbers of its own,
//! and hands the law over. Its cache follows the session by the longest common prefix.
//!
//! While its guesses are verified it may go on: behind its guess of the bonus token it begins the next chain, which
//! [`Drafter::propose`] takes up, and finishes, if the text became what was expected. The numbers it draws by are
//! named by where the chain begins, so the chain is the same whether it was begun ahead or not.
//!
//! Tokens the drafter does not have (a longer target vocabulary) are left out of what it reads; ids the
//! target does not have are never guessed.
//!
//! Invariant: its lane never sees an id outside its own vocabulary. Whether a token is drawn never depends
//! on the token; neither does how long it works ahead.
//! Not here: whether the two vocabularies fit (`check_vocabulary`, asked once at load).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pilotfish_lane::{Lane, LaneError, Outputs, Rows, Want};
use pilotfish_tensor::math::log_sum_exp;

use super::{Ahead, Drafter};
use crate::cached::CachedLane;
use crate::clock::MonotonicClock;
use crate::error::DraftError;
use crate::sampling::{Choice, Law, Likeliest, Sampler};
use crate::session::Session;
use crate::speculate::{Guess, Source, TokenTree, Worth};

/// New tokens that are read in one pass together with the last.
const CHUNK: usize = 64;

/// Longest draft unless told otherwise; how much of it is worth its time, the budget knows.
const DEFAULT_MAX: usize = 16;

/// How likely a guess is held to be that was drawn: what is drafted must not depend on which token it is.
const LIKELY: f32 = 0.7;

/// A chain in the making.
struct Chain {
    /// What it continues.
    text: Vec<u32>,
    guesses: Vec<Guessed>,
    /// Whether the target does not have what would come next.
    over: bool,
}

struct Guessed {
    token: u32,
    law: Option<Arc<Law>>, // it was drawn from, where the text is sampled by rejection
    probability: f32,
    sure: bool, // as likely as a draft is to be
}

impl Chain {
    fn behind(text: &[u32]) -> Self {
        Self { text: text.to_vec(), guesses: Vec::new(), over: false }
    }

    /// Whether the drafter may go on behind its guesses: it is sure of all, and one more pays. Drawn ones may be any.
    fn goes_on(guesses: &[Guessed], worth: &Worth) -> bool {
        let known = worth.most().is_some() && guesses.iter().all(|guess| guess.law.is_none());
        let pays = !known || worth.one_more(guesses.iter().map(|guess| guess.probability));
        pays && guesses.iter().all(|guess| guess.sure)
    }

    /// Up to the first guess the drafter is not sure of or the one behind which no more pay, `limit` at most: what
    /// would be there, had nothing been made ahead.
    fn to_tree(&self, root: u32, limit: usize, worth: &Worth) -> TokenTree {
        let mut tree = TokenTree::root(root);
        let mut at = 0;
        for (made, guess) in self.guesses.iter().enumerate().take(limit) {
            if !guess.sure || !Self::goes_on(&self.guesses[..made], worth) {
                break;
            }
            if let Some(law) = &guess.law {
                tree.draw_behind(at, Arc::clone(law));
            }
            let Guessed { token, probability, .. } = *guess;
            at = tree.push(at, Guess { token, probability, source: Source::Model });
        }
        tree
    }
}

/// Drafts with a model of its own.
pub struct ModelDrafter {
    lane: CachedLane,
    target_vocab: usize,
    p_min: f32,
    sampler: Option<Sampler>,
    idle: Option<String>,
    limit: usize,
    worth: Worth,
    ahead: Option<Chain>,
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
            worth: Worth::default(),
            ahead: None,
        }
    }

    /// The part of a text its lane can read.
    fn readable(&self, text: &[u32]) -> Vec<u32> {
        let vocab = self.lane.info().vocab;
        text.iter().copied().filter(|&token| (token as usize) < vocab).collect()
    }

    /// Guesses there is room for behind `read` tokens: the last one is never read, so a draft may be one longer than
    /// the room behind the text.
    fn room(&self, read: usize) -> usize {
        (self.lane.info().context + 1).saturating_sub(read)
    }

    /// Deepest draft: as long as a guess pays where guesses are not drawn and it is known what pays, else the limit.
    fn deepest(&self, session: &Session) -> usize {
        let drawn = session.dice().is_some();
        self.worth.most().filter(|_| !drawn && self.limit > 0).unwrap_or(self.limit)
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

    /// The guess behind a row, drawn by `choice` where the text is sampled by rejection; none where the target does
    /// not have the token.
    fn guess(
        &self,
        row: &Rows,
        history: &[u32],
        sampler: &mut Sampler,
        choice: Option<&mut dyn Choice>,
    ) -> Result<Option<Guessed>, DraftError> {
        let last = row.width() - 1;
        if *row.get(last) == Outputs::NonFinite {
            return Err(LaneError::NonFinite { position: self.lane.held().len() - 1 }.into());
        }
        let Some(logits) = row.logits(last) else {
            let known = row.argmax(last).filter(|&token| (token as usize) < self.target_vocab);
            let probability = row.probability(last).unwrap_or(LIKELY);
            let sure = probability >= self.p_min;
            return Ok(known.map(|token| Guessed { token, law: None, probability, sure }));
        };
        let shared = &logits[..logits.len().min(self.target_vocab)];
        let p_min = f64::from(self.p_min);
        Ok(Some(match choice {
            Some(choice) => {
                let law = sampler.law(shared, history)?;
                // To give up on an unlikely token would leave the likely ones more than their share.
                let sure = law.largest() >= p_min;
                Guessed { token: law.draw(choice), law: Some(Arc::new(law)), probability: LIKELY, sure }
            }
            None => {
                let token = sampler.sample(shared, history)?;
                let probability = (f64::from(shared[token as usize]) - log_sum_exp(shared)).exp();
                Guessed { token, law: None, probability: probability as f32, sure: probability >= p_min }
            }
        }))
    }

    /// Adds guesses to a chain, up to `limit` of them, as long as `go_on` says so.
    fn grow(
        &mut self,
        chain: &mut Chain,
        limit: usize,
        session: &Session,
        go_on: &dyn Fn(&Chain) -> bool,
    ) -> Result<(), DraftError> {
        let mut sampler = self.sampler_for(session);
        let want = self.want(&sampler);
        let mut text = chain.text.clone();
        text.extend(chain.guesses.iter().map(|guess| guess.token));
        let mut unread = None;
        while chain.guesses.len() < limit && !chain.over && go_on(chain) {
            let row = match unread {
                None => self.read(&self.readable(&text), want)?,
                Some(token) => self.lane.append(&[token], want)?,
            };
            let made = chain.guesses.len() as u32;
            let mut choice = session.dice().map(|dice| dice.guesses_from(chain.text.len(), made));
            let choice = choice.as_mut().map(|choice| choice.as_mut() as &mut dyn Choice);
            match self.guess(&row, &text, &mut sampler, choice)? {
                None => chain.over = true,
                Some(guess) => {
                    unread = Some(guess.token);
                    text.push(guess.token);
                    chain.guesses.push(guess);
                }
            }
        }
        self.sampler = Some(sampler);
        Ok(())
    }

    /// The bonus token it expects behind `text`: where the text is sampled by rejection the likeliest, which needs no
    /// random number, else what the sampler would choose.
    fn expect_bonus(&mut self, text: &[u32], session: &Session) -> Result<Option<u32>, DraftError> {
        let mut sampler = self.sampler_for(session);
        let row = self.read(&self.readable(text), self.want(&sampler))?;
        let mut likeliest = Likeliest;
        let choice = session.dice().map(|_| &mut likeliest as &mut dyn Choice);
        let bonus = self.guess(&row, text, &mut sampler, choice)?;
        self.sampler = Some(sampler);
        Ok(bonus.map(|guess| guess.token))
    }

    /// The chain behind `path` and the bonus token it expects, as far as it came.
    fn begin_ahead(
        &mut self,
        session: &Session,
        path: &[u32],
        limit: usize,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Chain>, DraftError> {
        let mut text = [session.tokens(), path].concat();
        let read = self.readable(&text).len();
        if read == 0 || self.room(read) == 0 || !go_on() {
            return Ok(None);
        }
        let Some(bonus) = self.expect_bonus(&text, session)? else { return Ok(None) };
        text.push(bonus);
        let mut chain = Chain::behind(&text);
        let limit = limit.min(self.room(read + 1)).min(self.deepest(session));
        // Nor does it end where it is unsure: by rejection that would let the time it takes depend on what it drew.
        self.grow(&mut chain, limit, session, &|_| go_on())?;
        Ok(Some(chain))
    }

    fn want(&self, sampler: &Sampler) -> Want {
        if sampler.want() == Want::Argmax { Want::Likeliest } else { Want::Logits }
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
        // Another reply may have another seed.
        self.ahead = None;
        let tokens = self.readable(session.tokens());
        if tokens.is_empty() || tokens.len() > self.lane.info().context {
            return Ok(());
        }
        self.catch_up(&tokens, cancel)
    }

    fn propose(&mut self, session: &Session, limit: usize) -> Result<TokenTree, DraftError> {
        let ahead = self.ahead.take().filter(|chain| chain.text == session.tokens());
        let read = self.readable(session.tokens()).len();
        let room = self.room(read);
        let context = self.lane.info().context;
        self.idle = (room == 0).then(|| format!("the drafter's context of {context} is full"));
        let limit = limit.min(room).min(self.deepest(session));
        if limit == 0 || read == 0 {
            return Ok(TokenTree::root(session.last()));
        }
        let mut chain = ahead.unwrap_or_else(|| Chain::behind(session.tokens()));
        let worth = std::mem::take(&mut self.worth);
        let grown = self.grow(&mut chain, limit, session, &|chain| Chain::goes_on(&chain.guesses, &worth));
        let tree = chain.to_tree(session.last(), limit, &worth);
        self.worth = worth;
        grown.map(|()| tree)
    }

    fn device(&self) -> Option<&str> {
        Some(&self.lane.info().name)
    }

    fn draft_ahead(
        &mut self,
        session: &Session,
        path: &[u32],
        limit: usize,
        go_on: &dyn Fn() -> bool,
    ) -> Ahead {
        // What fails here fails again in `propose`, or does not matter.
        self.ahead = self.begin_ahead(session, path, limit, go_on).unwrap_or_default();
        self.ahead.as_ref().map_or_else(Ahead::default, |chain| Ahead {
            guesses: 1 + chain.guesses.len(),
            bonus: chain.text.last().copied(),
        })
    }

    fn is_costly(&self) -> bool {
        true
    }

    fn limit_costly(&mut self, depth: usize, worth: &Worth) {
        self.limit = depth;
        self.worth = worth.clone();
    }

    fn finished(&mut self, _: &Session) {
        self.ahead = None;
    }

    fn idle_reason(&self) -> Option<String> {
        self.idle.clone()
    }
}

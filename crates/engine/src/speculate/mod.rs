//! The one loop: draft, verify, accept, keep, commit.
//!
//! [`Generation::next_round`] is the loop's body. Plain decoding is the same body with a draft that is
//! only its root.
//!
//! Invariant: a committed token is the sampler's answer to the target's row behind exactly the committed
//! tokens before it (with [`SpecSampling::Rejection`], a draw from the sampler's law); a rejected guess is
//! never in the cache when a round ends.
//! Not here: what a token sequence means (`session`), who guesses (`draft`).

mod accept;
mod budget;
mod chances;
mod costs;
#[cfg(test)]
#[path = "tests/enumeration/mod.rs"]
mod enumeration;
mod pipeline;
mod reject;
mod sources;
mod stats;
mod telemetry;
mod tree;
mod worth;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use accept::{Accepted, SpecSampling, accept};
pub use costs::Costs;
pub use pipeline::{PipelineReport, Pipelining};
pub use sources::{BySource, SourceCount};
pub use stats::Stats;
pub use telemetry::RoundFigures;
pub use tree::{Guess, Source, TokenTree};
pub use worth::Worth;

use budget::{Budget, RoundCost};
use pilotfish_lane::{Rows, Want};
use pipeline::{Pipeline, Verified, verify_while_drafting};
use reject::accept_by_rejection;
use sources::sources;
use telemetry::Stopwatch;

use crate::cached::CachedLane;
use crate::clock::{Clock, MonotonicClock};
use crate::draft::{Drafter, NoDrafter};
use crate::error::EngineError;
use crate::sampling::{Dice, Logprobs, logprobs};
use crate::session::{Committed, FinishReason, Piece, Session};

/// A drafter and what was learned about it; lives as long as the target it drafts for.
pub struct Speculator {
    drafter: Box<dyn Drafter>,
    budget: Budget,
}

impl Speculator {
    /// Drafts with `drafter`, at most `draft_max` deep (by default as deep as it finds useful), and with
    /// `parking` stops while that loses.
    pub fn new(drafter: Box<dyn Drafter>, draft_max: Option<usize>, parking: bool) -> Self {
        let max = draft_max.unwrap_or(drafter.default_max());
        let budget =
            Budget::new(max, draft_max.is_some(), drafter.is_costly(), parking).with_block(drafter.block());
        Self { drafter, budget }
    }

    /// Lets the drafter work ahead while the target verifies; without this it never does.
    pub fn with_pipeline(mut self, mode: Pipelining) -> Self {
        self.budget.pipeline = Pipeline::new(mode);
        self
    }

    /// Plain decoding.
    pub fn none() -> Self {
        Self::new(Box::new(NoDrafter), None, false)
    }

    /// The drafter's name.
    pub fn name(&self) -> &str {
        self.drafter.name()
    }

    /// Whether [`Speculator::set_costs`] would help: drafts are cut by what passes cost, and nothing is known yet.
    pub fn wants_costs(&self) -> bool {
        self.budget.wants_costs()
    }

    /// Widest pass a round may ask for.
    pub fn most_rows(&self) -> usize {
        self.budget.most_rows()
    }

    /// The target's cost curve, as far as it is known.
    pub fn costs(&self) -> &Costs {
        self.budget.costs()
    }

    /// Takes over the target's cost curve.
    pub fn set_costs(&mut self, costs: Costs) {
        self.budget.set_costs(costs);
    }
}

/// How a generation runs; nothing here but `spec_sampling` changes a token.
#[derive(Clone)]
pub struct Options {
    /// Prompt tokens per pass; `None` takes as many as run in about half a second, so that `cancel` is seen soon.
    pub prefill_chunk: Option<usize>,
    /// Most probable tokens to list for each token of the reply; `None` for no log-probabilities.
    pub logprobs: Option<usize>,
    /// How guesses are judged where the text is sampled.
    pub spec_sampling: SpecSampling,
    /// Set to end the reply at the next pass.
    pub cancel: Arc<AtomicBool>,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefill_chunk: None,
            logprobs: None,
            spec_sampling: SpecSampling::default(),
            cancel: Arc::default(),
            clock: Arc::new(MonotonicClock::default()),
        }
    }
}

/// What one round added to the reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// Its tokens; none when the round was cancelled.
    pub tokens: Vec<u32>,
    /// Who guessed each of them; nobody guessed the bonus.
    pub sources: Vec<Option<Source>>,
    /// Text that became final.
    pub text: String,
    /// The same text by the tokens it belongs to, some perhaps of earlier rounds.
    pub pieces: Vec<Piece>,
    /// One entry per token, when asked for.
    pub logprobs: Vec<Logprobs>,
    /// Counts and times.
    pub figures: RoundFigures,
    /// Set in the last round.
    pub finish: Option<FinishReason>,
}

/// What became of speculation.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeculationReport {
    /// The drafter's name.
    pub drafter: String,
    /// Tokens committed per round.
    pub tau: f64,
    /// Whether drafting is off, for now or for good.
    pub parked: bool,
    /// Why, or why the drafter has nothing to say.
    pub reason: Option<String>,
    /// Whether the drafter works ahead while the target verifies.
    pub pipeline: PipelineReport,
}

/// A reply in the making.
pub struct Generation<'a> {
    target: &'a mut CachedLane,
    drafter: &'a mut dyn Drafter,
    budget: &'a mut Budget,
    session: Session,
    options: Options,
    stats: Stats,
    prefilled: bool,
}

impl<'a> Generation<'a> {
    /// Begins the reply to `session`'s prompt. Nothing runs yet.
    ///
    /// # Errors
    /// [`EngineError::ContextBeyondLane`], [`EngineError::PromptToken`].
    pub fn new(
        target: &'a mut CachedLane,
        speculator: &'a mut Speculator,
        mut session: Session,
        options: Options,
    ) -> Result<Self, EngineError> {
        let (asked, lane, vocab) = (session.limits().context, target.info().context, target.info().vocab);
        if asked > lane {
            return Err(EngineError::ContextBeyondLane { asked, lane });
        }
        if let Some(index) = session.prompt().iter().position(|&token| token as usize >= vocab) {
            let token = session.prompt()[index];
            return Err(EngineError::PromptToken { index, token, vocab });
        }
        let sampled = session.sampler.params().temperature > 0.0;
        let by_rejection = sampled && options.spec_sampling == SpecSampling::Rejection;
        session.dice = by_rejection.then(|| Arc::new(session.sampler.dice()) as Arc<dyn Dice>);
        let stats = Stats { prompt_tokens: session.prompt().len(), ..Stats::default() };
        let Speculator { drafter, budget } = speculator;
        budget.start_reply();
        let drafter = drafter.as_mut();
        target.set_taps(drafter.taps());
        budget.pipeline.meet(target.info(), drafter);
        Ok(Self { target, drafter, budget, session, options, stats, prefilled: false })
    }

    /// Reads the prompt up to its last token, in chunks; `progress` hears how many of how many tokens
    /// are read. What the cache already holds of the prompt is kept. [`Generation::next_round`] does
    /// this by itself where it was not done. Returns early when cancelled.
    ///
    /// # Errors
    /// What the target's lane says.
    pub fn prefill(&mut self, progress: &mut dyn FnMut(usize, usize)) -> Result<(), EngineError> {
        if self.prefilled || self.session.done() {
            return Ok(());
        }
        let start = self.options.clock.now_ms();
        let prompt = self.session.prompt();
        let before_last = &prompt[..prompt.len() - 1];
        let held = self.target.sync(before_last);
        let held = self.drafter.resume_at(prompt, held);
        self.target.truncate(held);
        // Where an earlier call was cancelled, what it read is in the cache now.
        self.stats.reused_tokens = held.saturating_sub(self.stats.read_tokens);
        let Options { prefill_chunk, cancel, clock, .. } = &self.options;
        let mut go_on = |read| {
            progress(held + read, prompt.len());
            !cancel.load(Ordering::Relaxed)
        };
        let drafter = &mut *self.drafter;
        let mut passed = |position, tokens: &[u32], rows: &Rows| {
            drafter.follow(position, tokens, rows, &(0..tokens.len()).collect::<Vec<_>>());
        };
        let (unread, clock) = (&before_last[held..], clock.as_ref());
        let read = self.target.read_and(unread, *prefill_chunk, clock, &mut go_on, &mut passed)?;
        let read_at = self.options.clock.now_ms();
        self.stats.read_tokens += read;
        self.stats.prefill_ms += read_at - start;
        if held + read < before_last.len() {
            return Ok(());
        }
        progress(held + read, prompt.len());
        if self.budget.may_draft() {
            self.prepare_drafter();
            self.stats.draft_prefill_ms = self.options.clock.now_ms() - read_at;
        }
        self.prefilled = true;
        Ok(())
    }

    /// Runs one round; `None` when the reply has ended.
    ///
    /// # Errors
    /// What the target's lane or the sampler says. Tokens of earlier rounds stay valid.
    pub fn next_round(&mut self) -> Result<Option<Round>, EngineError> {
        if self.session.done() {
            return Ok(None);
        }
        self.prefill(&mut |_, _| {})?;
        if self.options.cancel.load(Ordering::Relaxed) {
            let Committed { text, pieces, .. } = self.session.cancel();
            self.drafter.finished(&self.session);
            return Ok(Some(Round { text, pieces, finish: self.session.finish(), ..Round::default() }));
        }
        let mut watch = Stopwatch::start(&self.options.clock);
        let first = self.stats.rounds == 0;
        let proposal = self.propose();
        let (proposed, drafted_ms) = (proposal.drafted(), watch.elapsed_ms());
        let guesses = (1..proposal.width()).filter(|&i| proposal.guess(i).source.is_costly()).count();
        let draft = self.budget.cut(proposal, drafted_ms);
        watch.drafted();
        let Verified { rows, ahead, waited_ms, .. } = self.verify(&draft)?;
        watch.verified(waited_ms);
        let Session { tokens, sampler, dice, .. } = &mut self.session;
        let accepted = match dice {
            None => accept(&draft, &rows, tokens, sampler)?,
            Some(dice) => accept_by_rejection(&draft, &rows, tokens, sampler, dice.as_ref())?,
        };
        self.target.keep(&accepted.rows)?;
        let kept: Vec<u32> = accepted.rows.iter().map(|&row| draft.token(row)).collect();
        self.drafter.follow(self.session.len() - 1, &kept, &rows, &accepted.rows);
        let committed = self.session.commit(&accepted.tokens);
        if self.session.done() {
            // The reply may have ended before the accepted path did.
            self.target.truncate(self.session.len());
        }
        self.drafter.observe(&draft, &accepted, &rows);
        if self.session.done() {
            self.drafter.finished(&self.session);
        }
        let tokens = accepted.tokens[..committed.count].to_vec();
        let logprobs = self.logprobs(&rows, &accepted.rows, &tokens);
        let times = watch.stop();
        let cost = RoundCost {
            draft_ms: times.draft_ms(),
            waited_ms,
            total_ms: times.total_ms(),
            drafted: draft.drafted(),
            guesses,
            ahead: ahead.map(|ahead| ahead.guesses),
        };
        self.budget.observe(cost, &tokens);
        // The prompt's last token is the root of the first draft.
        self.stats.read_tokens += usize::from(first);
        self.stats.count(&draft, &accepted, committed.count, ahead);
        self.stats.time(times);
        Ok(Some(Round {
            sources: sources(&draft, &accepted, committed.count),
            figures: RoundFigures::new(proposed, &draft, &accepted, committed.count, times),
            tokens,
            text: committed.text,
            pieces: committed.pieces,
            logprobs,
            finish: self.session.finish(),
        }))
    }

    /// The session: prompt, reply, how it ended.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Counts and times so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What became of speculation so far.
    pub fn report(&self) -> SpeculationReport {
        SpeculationReport {
            drafter: self.drafter.name().to_owned(),
            tau: self.stats.tau(),
            parked: self.budget.parked(),
            reason: self.budget.reason().or_else(|| self.drafter.idle_reason()),
            pipeline: self.budget.pipeline.report(),
        }
    }

    /// Ends the generation and hands the session back.
    pub fn into_session(self) -> Session {
        self.session
    }

    /// The next draft: within the budget, the limits and what the lane takes. A drafter that fails is
    /// retired, and the reply goes on without it.
    fn propose(&mut self) -> TokenTree {
        let root = TokenTree::root(self.session.last());
        // The bonus token needs room too.
        let room = self.session.room() - 1;
        let allowance = self.budget.next();
        let limit = allowance.depth.min(room);
        if limit == 0 {
            return root;
        }
        if self.budget.begins_try() {
            self.prepare_drafter();
        }
        self.drafter.limit_costly(allowance.costly.min(room), &self.budget.worth());
        match self.drafter.propose(&self.session, limit) {
            Ok(tree) => {
                assert_eq!(tree.token(0), root.token(0), "a draft hangs on the last token");
                let info = self.target.info();
                tree.clip(limit, info.max_width - 1, info.vocab)
            }
            Err(error) => {
                self.budget.retire(error.to_string());
                root
            }
        }
    }

    /// The target's pass over `draft`; with the pipeline on, the drafter begins the next proposal meanwhile, for the
    /// case that all goes well.
    fn verify(&mut self, draft: &TokenTree) -> Result<Verified, EngineError> {
        let batch = draft.to_batch(self.want());
        let path: Vec<u32> = draft.likeliest_path()[1..].iter().map(|&node| draft.token(node)).collect();
        // Behind the path this round's bonus token needs room, and the next one's.
        let room = self.session.room().saturating_sub(path.len() + 2);
        let depth = if room > 0 { self.budget.ahead(draft).min(room) } else { 0 };
        if depth == 0 {
            return Ok(Verified::alone(self.target.forward(&batch)?));
        }
        let Self { target, drafter, session, options, .. } = self;
        let verified = verify_while_drafting(options.clock.as_ref(), target, &batch, &mut |go_on| {
            drafter.draft_ahead(session, &path, depth, go_on)
        })?;
        if let Some(panic) = &verified.panic {
            self.budget.retire(panic.clone());
        }
        Ok(verified)
    }

    /// Lets the drafter read what it has missed.
    fn prepare_drafter(&mut self) {
        if let Err(error) = self.drafter.prepare(&self.session, &self.options.cancel) {
            self.budget.retire(error.to_string());
        }
    }

    /// What the target must return for each node.
    fn want(&self) -> Want {
        if self.options.logprobs.is_some() { Want::Logits } else { self.session.sampler.want() }
    }

    fn logprobs(&self, rows: &Rows, path: &[usize], tokens: &[u32]) -> Vec<Logprobs> {
        let Some(n) = self.options.logprobs else { return Vec::new() };
        let entry = |(&row, &token): (&usize, &u32)| {
            logprobs(rows.logits(row).expect("logits were wanted for log-probabilities"), token, n)
        };
        path.iter().zip(tokens).map(entry).collect()
    }
}

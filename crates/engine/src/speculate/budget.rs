//! How much to draft, and when to stop because it loses.
//!
//! A round with w rows brings 1 + e tokens, e being the sum over its guesses of the chance that the path to them is
//! right, and costs drafting plus a pass of w rows. The budget takes the guesses that make tokens per millisecond
//! highest, likeliest path first, and none where a plain round (one token, a pass of one row) does as well.
//!
//! Costs come from the measured curve, chances from what became of earlier guesses. Lookups are free: while they are
//! parked they go on proposing, unseen, and are judged by the tokens that come. A drafter that costs time rests
//! instead, and is tried again after 16 plain rounds, then 32, 64, …
//!
//! Should drafted rounds lose all the same, because the curve is wrong or the machine busy, the budget asks for more
//! gain before it drafts, and for less again while they win.
//!
//! Invariant: measurements change only what is drafted, never a token.
//! Not here: the curve (`costs`), the chances (`chances`), whether the drafter works ahead (`pipeline`).

use super::chances::Chances;
use super::costs::Costs;
use super::pipeline::{Alone, Pipeline};
use super::{Source, TokenTree, Worth};

/// Gain a draft must promise: less is within the noise of a shared machine.
const LEAST_GAIN: f64 = 1.03;
/// Drafted rounds over which a promise is checked.
const LEDGER: usize = 12;
/// Loss in them that makes the budget more careful, and the gain that makes it less so.
const LOSS: f64 = 0.98;
/// How much more gain it asks for then, and at most.
const CARE: f64 = 1.15;
const MOST_CARE: f64 = 3.0;
/// Plain rounds before a costly drafter is tried again, and the most between two tries.
const FIRST_PAUSE: usize = 16;
const LONGEST_PAUSE: usize = 512;
/// Drafted rounds of a try.
const TRY_ROUNDS: usize = 4;
/// Depth of a try, and of a costly draft whose length nobody gave.
const TRY_DEPTH: usize = 3;
/// Deepest draft a costly drafter is asked for: beyond it no chain of guesses pays, whatever was asked for.
const DEEPEST_COSTLY: usize = 16;
/// Refused proposals in a row after which lookup counts as parked.
const REFUSED: usize = 8;
/// Share of a plain round from which asking in vain has a price.
const DEAR: f64 = 0.02;
/// Plain rounds at the start where no curve was measured.
const LEARN_ROUNDS: usize = 2;

/// What one round cost and brought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RoundCost {
    /// Proposing, and waiting for a drafter that works ahead; part of `total_ms`.
    pub(super) draft_ms: f64,
    /// That waiting alone.
    pub(super) waited_ms: f64,
    /// The whole round.
    pub(super) total_ms: f64,
    /// Guesses verified.
    pub(super) drafted: usize,
    /// Guesses that a costly drafter made.
    pub(super) guesses: usize,
    /// Guesses made ahead for the next round, where the drafter was to.
    pub(super) ahead: Option<usize>,
}

/// How deep the next proposal may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Allowance {
    /// Of whoever is asked.
    pub(super) depth: usize,
    /// Of a drafter that costs time.
    pub(super) costly: usize,
}

/// What a draft promises.
#[derive(Clone, Copy, Debug)]
struct Offer {
    guesses: usize,
    /// Of them right.
    expected: f64,
    /// The round, and a plain one.
    ms: f64,
    plain_ms: f64,
}

impl Offer {
    /// Tokens a millisecond over those of a plain round.
    fn gain(&self) -> f64 {
        (1.0 + self.expected) * self.plain_ms / self.ms
    }

    /// The better of two, the shorter of equals.
    fn or(self, before: Option<Offer>) -> Option<Offer> {
        Some(before.filter(|before| before.gain() >= self.gain()).unwrap_or(self))
    }
}

/// Decides, round by round, what is drafted.
#[derive(Debug)]
pub(super) struct Budget {
    max: usize,
    /// Whether `max` was asked for.
    given: bool,
    parking: bool,
    costs: Costs,
    chances: Chances,
    /// Milliseconds of a costly guess, or of a whole draft where they are made together.
    guess_ms: Option<f64>,
    /// Whether the drafter may cost time at all.
    costly: bool,
    /// Most guesses of a costly drafter that makes them all together.
    block: Option<usize>,
    /// Depth granted to it in this round.
    granted: usize,
    pause: usize,
    /// Plain rounds until a costly drafter is tried again; none when it is at work.
    rests: Option<usize>,
    tries_left: usize,
    care: f64,
    ledger: Vec<(f64, f64)>, // milliseconds, plain milliseconds of as many tokens
    plain_rounds: usize,
    refused: usize,
    /// Rounds since a draft that cost no time was verified.
    since_free: usize,
    /// The last draft that was not made.
    refusal: Option<Offer>,
    retired: Option<String>,
    /// Whether a costly drafter works ahead.
    pub(super) pipeline: Pipeline,
}

impl Budget {
    /// A budget of at most `max` guesses in depth, `given` or the drafter's own; without `parking` it always grants
    /// them. `costly` says whether drafting takes time.
    pub(super) fn new(max: usize, given: bool, costly: bool, parking: bool) -> Self {
        Self {
            max,
            given,
            parking,
            costs: Costs::default(),
            chances: Chances::default(),
            guess_ms: None,
            costly,
            block: None,
            granted: 0,
            pause: FIRST_PAUSE,
            rests: None,
            tries_left: 0,
            care: 1.0,
            ledger: Vec::new(),
            plain_rounds: 0,
            refused: 0,
            since_free: REFUSED,
            refusal: None,
            retired: None,
            pipeline: Pipeline::default(),
        }
    }

    /// The same for a costly drafter whose drafts, of up to so many guesses, take the same time however long they are.
    pub(super) fn with_block(mut self, block: Option<usize>) -> Self {
        self.block = block;
        self
    }

    /// What a costly drafter's guesses are counted as.
    fn source(&self) -> Source {
        if self.block.is_some() { Source::Head } else { Source::Model }
    }

    /// The curve, as far as it is known.
    pub(super) fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Takes over a curve that was measured.
    pub(super) fn set_costs(&mut self, costs: Costs) {
        self.costs = costs;
    }

    /// Starts a new reply: another text may suit the drafter better, so resting ends.
    pub(super) fn start_reply(&mut self) {
        self.chances.start_reply();
        self.pause = FIRST_PAUSE;
        self.rests = self.rests.map(|_| 0);
        self.ledger.clear();
        self.refused = 0;
        self.refusal = None;
    }

    /// Whether anything may ever be drafted again.
    pub(super) fn may_draft(&self) -> bool {
        self.max > 0 && self.retired.is_none()
    }

    /// Widest pass it may ask for.
    pub(super) fn most_rows(&self) -> usize {
        self.max.saturating_add(1)
    }

    /// Whether widths are worth measuring beforehand.
    pub(super) fn wants_costs(&self) -> bool {
        self.may_draft() && self.parking && self.costs.points().is_empty()
    }

    /// Depth granted to the next proposal; 0 makes the round plain.
    pub(super) fn next(&mut self) -> Allowance {
        let allowance = self.allowance();
        self.granted = if self.costly { allowance.costly } else { 0 };
        allowance
    }

    fn allowance(&mut self) -> Allowance {
        if !self.may_draft() {
            return Allowance::default();
        }
        let costly = match self.block {
            Some(block) => self.max.min(block),
            None if self.given => self.max,
            None => self.max.min(TRY_DEPTH),
        };
        if !self.parking {
            return Allowance { depth: self.max, costly };
        }
        if self.costs.ms(1).is_none() || self.plain_rounds < LEARN_ROUNDS && self.costs.points().len() < 2 {
            return Allowance::default();
        }
        Allowance { depth: self.max, costly: if self.costly { self.costly_depth(costly) } else { 0 } }
    }

    /// Depth granted to a drafter that costs time: what pays best, or a try, or nothing.
    fn costly_depth(&mut self, try_depth: usize) -> usize {
        if self.tries_left > 0 {
            return try_depth;
        }
        let best = self.best_costly();
        if best.is_some_and(|best| self.pays(best)) {
            self.rests = None;
            // A whole block costs no more than a part of it, and what of it is worth verifying shows then.
            return best.map_or(0, |best| if self.block.is_some() { try_depth } else { best.guesses });
        }
        self.refusal = best;
        match &mut self.rests {
            None => {
                self.rests = Some(self.pause);
                0
            }
            Some(0) => {
                self.pause = (2 * self.pause).min(LONGEST_PAUSE);
                self.rests = Some(self.pause);
                self.tries_left = TRY_ROUNDS;
                self.chances.doubt(self.source());
                try_depth
            }
            Some(left) => {
                *left -= 1;
                0
            }
        }
    }

    /// The chain of costly guesses that pays best.
    fn best_costly(&self) -> Option<Offer> {
        // Unknown, a guess is held to cost nothing: its first drafts tell.
        let guess_ms = self.guess_ms.unwrap_or(0.0);
        let (mut reached, mut expected, mut best) = (1.0, 0.0, None);
        for depth in 1..=self.max.min(self.block.unwrap_or(DEEPEST_COSTLY)) {
            reached *= self.chances.at(self.source(), depth);
            expected += reached;
            let made = if self.block.is_some() { 1.0 } else { depth as f64 };
            let ms = guess_ms * made + self.ms(depth + 1);
            best = Offer { guesses: depth, expected, ms, plain_ms: self.ms(1) }.or(best);
        }
        best
    }

    /// What one more guess of a costly drafter must promise. Nothing is known of that while it is tried, or drafts
    /// whatever it costs.
    pub(super) fn worth(&self) -> Worth {
        let (Some(guess_ms), Some(best)) = (self.guess_ms, self.best_costly()) else {
            return Worth::default();
        };
        if self.block.is_some() || !self.parking || self.granted == 0 || self.tries_left > 0 {
            return Worth::default();
        }
        let tokens_per_ms = best.gain().max(1.0) / best.plain_ms;
        let floor = |made: usize| {
            let more_ms = guess_ms + (self.ms(made + 2) - self.ms(made + 1)).max(0.0);
            more_ms * tokens_per_ms / self.chances.at(self.source(), made + 1)
        };
        // Whether it drafts at all was decided by the average text.
        let most = self.max.min(DEEPEST_COSTLY);
        let floors = (0..most).map(|made| if made == 0 { 0.0 } else { floor(made) }).collect();
        Worth::new(floors, self.chances.tallies(self.source()).clone(), guess_ms * tokens_per_ms)
    }

    /// Whether a draft promises enough.
    fn pays(&self, offer: Offer) -> bool {
        offer.gain() >= LEAST_GAIN * self.care
    }

    fn ms(&self, width: usize) -> f64 {
        self.costs.ms(width).unwrap_or(1.0)
    }

    /// What of a proposal, made in `draft_ms`, is worth verifying; takes note of all of it.
    pub(super) fn cut(&mut self, tree: TokenTree, draft_ms: f64) -> TokenTree {
        self.chances.propose(&tree);
        if !self.parking || tree.drafted() == 0 {
            return tree;
        }
        let mut reached = vec![1.0; tree.width()];
        for node in 1..tree.width() {
            let parent = tree.parent(node).expect("only the root has no parent");
            reached[node] = reached[parent] * self.chances.of(tree.guess(node));
        }
        // A guess is never likelier than its parent, so this order keeps parents before children.
        let mut order: Vec<usize> = (1..tree.width()).collect();
        order.sort_by(|&a, &b| reached[b].total_cmp(&reached[a]).then(a.cmp(&b)));
        // What drafting took is spent either way.
        let plain_ms = draft_ms + self.ms(1);
        let (mut expected, mut best) = (0.0, None);
        for (i, &node) in order.iter().enumerate() {
            expected += reached[node];
            best = Offer { guesses: i + 1, expected, ms: draft_ms + self.ms(i + 2), plain_ms }.or(best);
        }
        let best = best.expect("the tree has a guess");
        // A block is judged by the tokens that come, like a lookup: it is not verified only to be tried.
        let trying = self.tries_left > 0 && tree.guess(1).source == Source::Model;
        if !self.pays(best) && !trying {
            self.refused += 1;
            self.refusal = Some(best);
            return TokenTree::root(tree.token(0));
        }
        self.refused = 0;
        if best.gain() <= 1.0 {
            return tree; // a try learns from all of it
        }
        let mut keep = vec![false; tree.width()];
        order[..best.guesses].iter().for_each(|&node| keep[node] = true);
        tree.select(|node| keep[node])
    }

    /// How deep a costly drafter works ahead while `draft` is verified; 0 where it does not.
    pub(super) fn ahead(&mut self, draft: &TokenTree) -> usize {
        if draft.drafted() == 0 || self.granted == 0 || !self.may_draft() {
            return 0;
        }
        let hit = (1..=draft.depth() + 1).map(|depth| self.chances.at(Source::Model, depth)).product();
        let width = draft.width();
        let known = self.guess_ms.filter(|_| self.costs.knows(width));
        let alone = known.map(|guess_ms| Alone { pass_ms: self.ms(width), guess_ms });
        if self.pipeline.begins(alone, hit) { self.granted } else { 0 }
    }

    /// Whether a costly drafter is about to begin again after a pause: it may have to catch up first.
    pub(super) fn begins_try(&self) -> bool {
        self.tries_left == TRY_ROUNDS
    }

    /// Learns what the last round cost and which tokens it brought.
    pub(super) fn observe(&mut self, round: RoundCost, tokens: &[u32]) {
        let guesses = round.guesses;
        self.chances.commit(tokens);
        self.since_free =
            if round.drafted > 0 && guesses == 0 { 0 } else { self.since_free.saturating_add(1) };
        let pass_ms = round.total_ms - round.draft_ms;
        // A trial of both lanes at once does not tell what a pass takes.
        if !self.pipeline.observe(round.ahead, pass_ms + round.waited_ms) {
            self.costs.observe(round.drafted + 1, pass_ms);
        }
        // Asking in vain for next to nothing is a plain round; asking in vain for a price is a guess that was wrong.
        let in_vain = self.granted > 0 && guesses == 0 && round.draft_ms > DEAR * self.ms(1);
        if in_vain {
            self.chances.miss(self.source());
        }
        if guesses > 0 || in_vain {
            let ms = round.draft_ms / if self.block.is_some() { 1.0 } else { guesses.max(1) as f64 };
            self.guess_ms = Some(self.guess_ms.map_or(ms, |before| before + 0.2 * (ms - before)));
            self.tries_left = self.tries_left.saturating_sub(1);
        }
        if round.drafted == 0 {
            self.plain_rounds += 1;
            return;
        }
        self.ledger.push((round.total_ms, tokens.len() as f64 * self.ms(1)));
        if self.ledger.len() == LEDGER {
            self.settle();
        }
    }

    /// Compares what drafted rounds took with what plain ones would have.
    fn settle(&mut self) {
        // The dearest round, left out, may be a stall of a shared machine.
        self.ledger.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        self.ledger.pop();
        let (took, plain) =
            self.ledger.drain(..).fold((0.0, 0.0), |sum, entry| (sum.0 + entry.0, sum.1 + entry.1));
        if plain < LOSS * took {
            self.care = (self.care * CARE).min(MOST_CARE);
        } else {
            self.care = (self.care / CARE).max(1.0);
        }
    }

    /// Ends drafting for good.
    pub(super) fn retire(&mut self, reason: String) {
        self.retired = Some(reason);
    }

    /// Whether drafting is off for now, or for good.
    pub(super) fn parked(&self) -> bool {
        let rests = self.rests.is_some() && self.since_free >= REFUSED;
        self.retired.is_some() || rests || self.refused >= REFUSED
    }

    /// Why, when it is.
    pub(super) fn reason(&self) -> Option<String> {
        self.retired.clone().or_else(|| {
            let Offer { guesses, expected, ms, plain_ms } = self.refusal.filter(|_| self.parked())?;
            let drafted_ms = ms / (expected + 1.0);
            Some(format!(
                "{expected:.1} accepted of {guesses} costs {drafted_ms:.1} ms a token, plain {plain_ms:.1} ms"
            ))
        })
    }
}

#[cfg(test)]
#[path = "tests/budget.rs"]
mod tests;

//! How much to draft, and when to stop because it loses.
//!
//! The budget compares milliseconds per token of drafted rounds with those of plain rounds. A reply
//! starts with two plain rounds (unless earlier replies left measurements). Once eight drafted rounds
//! cost more than 2 % over plain, drafting is parked: rounds are plain, and after 16 of them, then 32,
//! 64, … a probe of four drafted rounds may end the parking. What is lost to a losing drafter is thus
//! the first rounds and ever rarer probes.
//!
//! Invariant: measurements change only what is drafted, never a token.
//! Not here: predicted costs; this budget knows only what it measured.

use std::collections::VecDeque;

/// Plain rounds at the start, to know what drafting is compared with.
const LEARN_ROUNDS: usize = 2;
/// Rounds remembered of each kind: enough to average over draft luck, few enough to follow the context.
const WINDOW: usize = 16;
/// Drafted rounds before a verdict.
const VERDICT_ROUNDS: usize = 8;
/// Drafted rounds of a probe.
const PROBE_ROUNDS: usize = 4;
/// A loss below this share is within the noise of a shared machine.
const TOLERATED_LOSS: f64 = 0.02;
/// Plain rounds before the first probe, and the most between two.
const FIRST_PAUSE: usize = 16;
const LONGEST_PAUSE: usize = 512;
/// Drafted rounds after which the plain cost, which grows with the context, is measured again.
const REFRESH_AFTER: usize = 64;

/// What one round cost and brought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RoundCost {
    /// Proposing, part of `total_ms`.
    pub(super) draft_ms: f64,
    /// The whole round.
    pub(super) total_ms: f64,
    /// Guesses verified.
    pub(super) drafted: usize,
    /// Tokens committed.
    pub(super) tokens: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Drafting,
    Parked { rounds_left: usize },
    Probing,
}

/// Decides, round by round, how deep the next draft may be.
#[derive(Debug)]
pub(super) struct Budget {
    max: usize,
    parking: bool,
    state: State,
    pause: usize,
    plain: Window,
    drafted: Window,
    unrefreshed: usize,
    reason: Option<String>,
    retired: Option<String>,
}

impl Budget {
    /// A budget of at most `max` guesses in depth; without `parking` it always grants them.
    pub(super) fn new(max: usize, parking: bool) -> Self {
        Self {
            max,
            parking,
            state: State::Drafting,
            pause: FIRST_PAUSE,
            plain: Window::default(),
            drafted: Window::default(),
            unrefreshed: 0,
            reason: None,
            retired: None,
        }
    }

    /// Starts a new reply: another text may suit the drafter better, so parking ends.
    pub(super) fn start_reply(&mut self) {
        self.state = State::Drafting;
        self.pause = FIRST_PAUSE;
        self.drafted = Window::default();
        self.unrefreshed = 0;
        self.reason = None;
    }

    /// Whether anything may ever be drafted again.
    pub(super) fn may_draft(&self) -> bool {
        self.max > 0 && self.retired.is_none()
    }

    /// Depth granted to the next round; 0 makes it plain.
    pub(super) fn next(&mut self) -> usize {
        if !self.may_draft() {
            return 0;
        }
        if !self.parking {
            return self.max;
        }
        if let State::Parked { rounds_left } = &mut self.state {
            if *rounds_left > 0 {
                *rounds_left -= 1;
                return 0;
            }
            self.state = State::Probing;
            self.drafted = Window::default();
        }
        let must_measure = self.plain.len() < LEARN_ROUNDS || self.unrefreshed >= REFRESH_AFTER;
        if must_measure { 0 } else { self.max }
    }

    /// Whether drafting is about to begin again after a pause: the drafter may have to catch up first.
    pub(super) fn begins_probe(&self) -> bool {
        self.state == State::Probing && self.drafted.len() == 0
    }

    /// Learns what the last round cost.
    pub(super) fn observe(&mut self, round: RoundCost) {
        let plain_ms = self.plain.ms_per_token();
        if round.drafted == 0 {
            self.plain.push(round.total_ms - round.draft_ms, 1);
            self.unrefreshed = 0;
            // Asking in vain for next to nothing is a plain round; asking in vain for a price is a loss.
            if plain_ms.is_none_or(|plain| round.draft_ms <= TOLERATED_LOSS * plain) {
                return;
            }
        } else {
            self.unrefreshed += 1;
        }
        self.drafted.push(round.total_ms, round.tokens);
        if let (true, Some(plain)) = (self.parking, plain_ms) {
            self.judge(plain);
        }
    }

    /// Parks, unparks or waits for more rounds.
    fn judge(&mut self, plain: f64) {
        let Some(drafted) = self.drafted.ms_per_token() else { return };
        let rounds = self.drafted.len();
        let loses = match self.state {
            State::Drafting if rounds >= VERDICT_ROUNDS => drafted > plain * (1.0 + TOLERATED_LOSS),
            State::Probing if rounds >= PROBE_ROUNDS => drafted > plain,
            _ => return,
        };
        if loses {
            if self.state == State::Probing {
                self.pause = (2 * self.pause).min(LONGEST_PAUSE);
            }
            self.state = State::Parked { rounds_left: self.pause };
            self.reason =
                Some(format!("{drafted:.1} ms/token drafted against {plain:.1} plain over {rounds} rounds"));
        } else if self.state == State::Probing {
            self.state = State::Drafting;
            self.pause = FIRST_PAUSE;
            self.reason = None;
        }
    }

    /// Ends drafting for good.
    pub(super) fn retire(&mut self, reason: String) {
        self.retired = Some(reason);
    }

    /// Whether drafting is off for now, or for good.
    pub(super) fn parked(&self) -> bool {
        self.retired.is_some() || self.state != State::Drafting
    }

    /// Why, when it is.
    pub(super) fn reason(&self) -> Option<&str> {
        self.retired.as_deref().or(self.reason.as_deref())
    }
}

/// Cost and yield of the last rounds of one kind.
#[derive(Clone, Debug, Default)]
struct Window {
    rounds: VecDeque<(f64, usize)>, // milliseconds, tokens
}

impl Window {
    fn push(&mut self, ms: f64, tokens: usize) {
        if self.rounds.len() == WINDOW {
            self.rounds.pop_front();
        }
        self.rounds.push_back((ms, tokens));
    }

    fn len(&self) -> usize {
        self.rounds.len()
    }

    /// Mean cost of a token. The dearest round is left out when it took over three times the median, so
    /// that one stall of a shared machine is not taken for a property of the drafter.
    fn ms_per_token(&self) -> Option<f64> {
        let mut sorted: Vec<f64> = self.rounds.iter().map(|round| round.0).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (median, dearest) = (*sorted.get(sorted.len() / 2)?, *sorted.last()?);
        let stall = (dearest > 3.0 * median)
            .then(|| self.rounds.iter().position(|round| round.0 == dearest))
            .flatten();
        let counted = self.rounds.iter().enumerate().filter(|(i, _)| Some(*i) != stall);
        let (ms, tokens) =
            counted.fold((0.0, 0), |(ms, tokens), (_, round)| (ms + round.0, tokens + round.1));
        (tokens > 0).then(|| ms / tokens as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays rounds in which plain costs 10 ms and a drafted round `ms` for `tokens`; returns what was
    /// granted.
    fn play(budget: &mut Budget, rounds: usize, ms: f64, tokens: usize) -> Vec<usize> {
        let round = |budget: &mut Budget| {
            let granted = budget.next();
            budget.observe(if granted == 0 {
                RoundCost { draft_ms: 0.0, total_ms: 10.0, drafted: 0, tokens: 1 }
            } else {
                RoundCost { draft_ms: 2.0, total_ms: ms, drafted: granted, tokens }
            });
            granted
        };
        (0..rounds).map(|_| round(budget)).collect()
    }

    fn drafted(granted: &[usize]) -> usize {
        granted.iter().filter(|&&limit| limit > 0).count()
    }

    #[test]
    fn speculation_budget_learns_plain_first_and_keeps_winning_drafts() {
        let mut budget = Budget::new(4, true);
        let granted = play(&mut budget, 60, 20.0, 3);
        assert_eq!(granted[..3], [0, 0, 4]);
        assert_eq!(drafted(&granted), 58);
        assert!(!budget.parked() && budget.reason().is_none());
    }

    #[test]
    fn speculation_budget_parks_a_loss_and_says_why() {
        let mut budget = Budget::new(4, true);
        let granted = play(&mut budget, 10, 31.0, 2);
        assert_eq!(drafted(&granted), 8);
        assert!(budget.parked());
        assert_eq!(budget.reason(), Some("15.5 ms/token drafted against 10.0 plain over 8 rounds"));
        assert_eq!(drafted(&play(&mut budget, 16, 31.0, 2)), 0);
    }

    #[test]
    fn speculation_budget_probes_ever_more_rarely() {
        let mut budget = Budget::new(4, true);
        let granted = play(&mut budget, 2_000, 31.0, 2);
        // Eight rounds to the verdict; probes after pauses of 16, 32, … 512 and 512 again.
        assert_eq!(drafted(&granted), 8 + 4 * 7);
        assert!(budget.parked());
    }

    #[test]
    fn speculation_budget_comes_back_when_a_probe_wins() {
        let mut budget = Budget::new(4, true);
        play(&mut budget, 10, 31.0, 2);
        let granted = play(&mut budget, 30, 18.0, 2);
        assert_eq!(drafted(&granted), 14);
        assert!(!budget.parked() && budget.reason().is_none());
    }

    #[test]
    fn speculation_budget_forgives_a_small_loss_and_a_stall() {
        let mut budget = Budget::new(4, true);
        play(&mut budget, 12, 20.3, 2);
        assert!(!budget.parked(), "1.5 % is within the noise");
        let mut budget = Budget::new(4, true);
        play(&mut budget, 6, 18.0, 2);
        play(&mut budget, 1, 500.0, 2);
        play(&mut budget, 8, 18.0, 2);
        assert!(!budget.parked(), "one stall is not the drafter's");
    }

    #[test]
    fn speculation_budget_measures_plain_again_after_a_while() {
        let mut budget = Budget::new(4, true);
        let granted = play(&mut budget, 200, 18.0, 2);
        assert_eq!(granted.len() - drafted(&granted), 2 + 3);
    }

    #[test]
    fn speculation_budget_counts_the_price_of_asking_in_vain() {
        let mut budget = Budget::new(4, true);
        for _ in 0..20 {
            let asked = budget.next() > 0;
            let draft_ms = if asked { 3.0 } else { 0.0 };
            budget.observe(RoundCost { draft_ms, total_ms: 10.0 + draft_ms, drafted: 0, tokens: 1 });
        }
        assert_eq!(budget.reason(), Some("13.0 ms/token drafted against 10.0 plain over 8 rounds"));
    }

    #[test]
    fn speculation_budget_without_parking_always_grants() {
        let mut budget = Budget::new(4, false);
        assert_eq!(drafted(&play(&mut budget, 50, 100.0, 1)), 50);
        assert_eq!(drafted(&play(&mut Budget::new(0, true), 50, 100.0, 1)), 0);
    }

    #[test]
    fn speculation_budget_new_reply_tries_again_but_keeps_the_plain_cost() {
        let mut budget = Budget::new(4, true);
        play(&mut budget, 12, 31.0, 2);
        budget.start_reply();
        assert!(!budget.parked());
        assert_eq!(budget.next(), 4);
        budget.retire("the drafter failed".into());
        budget.start_reply();
        assert_eq!(budget.next(), 0);
        assert_eq!((budget.parked(), budget.reason()), (true, Some("the drafter failed")));
    }
}

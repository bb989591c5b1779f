//! What a generation did and how long it took.
//!
//! Invariant: counts are of the target's verdicts; times are wall time by the injected clock.
//! Not here: records and percentiles (`pilotfish_measure`).

use super::telemetry::Times;
use super::{Accepted, BySource, TokenTree};
use crate::draft::Ahead;

/// Counts and milliseconds of one generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of those, how many were in the cache already.
    pub reused_tokens: usize,
    /// And how many were run: all others, unless the reply ended before.
    pub read_tokens: usize,
    /// Reading the prompt up to its last token, by the target.
    pub prefill_ms: f64,
    /// Reading the prompt, by the drafter.
    pub draft_prefill_ms: f64,
    /// Tokens of the reply.
    pub tokens: usize,
    /// Rounds, plain ones included.
    pub rounds: usize,
    /// Rounds that verified at least one guess.
    pub drafted_rounds: usize,
    /// Guesses verified.
    pub drafted: usize,
    /// Guesses that became part of the reply.
    pub accepted: usize,
    /// Rounds in which the drafter worked ahead beside the pass.
    pub ahead_rounds: usize,
    /// Of these, those behind which the text was what it had expected.
    pub ahead_hits: usize,
    /// All rounds.
    pub decode_ms: f64,
    /// Of `decode_ms`: proposing, and waiting for a drafter that works ahead.
    pub draft_ms: f64,
    /// Of `decode_ms`: the target's passes.
    pub verify_ms: f64,
    /// Per depth: rounds that drafted so deep, and rounds in which all guesses up to there were right.
    pub by_position: Vec<(usize, usize)>,
    /// What became of the guesses of each source.
    pub by_source: BySource,
}

impl Stats {
    /// τ: tokens committed per round, bonus included; 0 without a round.
    pub fn tau(&self) -> f64 {
        if self.rounds == 0 { 0.0 } else { self.tokens as f64 / self.rounds as f64 }
    }

    /// For each depth k: of the rounds that drafted at least k + 1 deep, the share in which the first
    /// k + 1 guesses were all right.
    pub fn accepted_by_position(&self) -> Vec<f64> {
        self.by_position.iter().map(|&(drafted, right)| right as f64 / drafted as f64).collect()
    }

    /// Counts a round that committed `tokens` tokens, with what the drafter did ahead meanwhile.
    pub(crate) fn count(
        &mut self,
        draft: &TokenTree,
        accepted: &Accepted,
        tokens: usize,
        ahead: Option<Ahead>,
    ) {
        if let Some(ahead) = ahead {
            let hit =
                accepted.rows == draft.likeliest_path() && accepted.tokens.last() == ahead.bonus.as_ref();
            self.ahead_rounds += 1;
            self.ahead_hits += usize::from(hit);
        }
        self.rounds += 1;
        self.drafted_rounds += usize::from(draft.drafted() > 0);
        self.drafted += draft.drafted();
        // Guesses behind the reply's end were right, but are not part of it.
        self.accepted += accepted.accepted().min(tokens);
        self.tokens += tokens;
        self.by_source += BySource::of_round(draft, accepted, tokens);
        let depth = draft.depth();
        self.by_position.resize(self.by_position.len().max(depth), (0, 0));
        for (k, (drafted, right)) in self.by_position[..depth].iter_mut().enumerate() {
            *drafted += 1;
            *right += usize::from(accepted.accepted() > k);
        }
    }

    /// Adds a round's times.
    pub(super) fn time(&mut self, times: Times) {
        self.decode_ms += times.total_ms();
        self.draft_ms += times.draft_ms();
        self.verify_ms += times.verify_ms();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speculate::Source;

    #[test]
    fn speculation_stats_count_by_position() {
        let mut stats = Stats::default();
        let accepted = |n: usize| Accepted { rows: (0..=n).collect(), tokens: vec![0; n + 1] };
        stats.count(&TokenTree::chain(0, &[1, 2, 3]), &accepted(3), 4, None);
        stats.count(&TokenTree::chain(0, &[1, 2]), &accepted(1), 2, None);
        stats.count(&TokenTree::chain(0, &[1]), &accepted(0), 1, None);
        stats.count(&TokenTree::root(0), &accepted(0), 1, None);
        stats.count(&TokenTree::chain(0, &[1, 2, 3]), &accepted(3), 2, None); // the reply ended inside
        assert_eq!((stats.ahead_rounds, stats.ahead_hits), (0, 0));
        assert_eq!(stats.by_position, [(4, 3), (3, 2), (2, 2)]);
        assert_eq!((stats.rounds, stats.drafted_rounds, stats.tokens), (5, 4, 10));
        assert_eq!((stats.drafted, stats.accepted), (9, 3 + 1 + 2));
        let of_source = stats.by_source.get(Source::Ngram);
        assert_eq!((of_source.rounds, of_source.drafted, of_source.accepted), (4, 9, 6));
        assert_eq!(stats.tau(), 2.0);
        assert_eq!(stats.accepted_by_position(), [0.75, 2.0 / 3.0, 1.0]);
    }
}

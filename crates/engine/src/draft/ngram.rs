//! Guesses that the text goes on as it went on before: n-gram lookup.
//!
//! A hash of every n-gram (n = 3 and 4) leads to its last two end positions; two, because the latest is
//! the end of the text itself. Longest n first; the continuation of the earlier occurrence is the draft.
//! The match is extended backwards to m tokens: from 8 on it is trusted with min(32, 2m) guesses, below
//! that with 6. When the match overlaps the end of the text, its period is repeated.
//!
//! A gate watches the long drafts: two in a row with less than half accepted disable them, and every
//! eighth long match then probes one long draft, which re-enables them when it does well.
//!
//! A guess's probability is that of a continuation of one earlier place (`odds`), so that it grows with m.
//!
//! n and the lengths are those that mlx-dspark settled on for pure lookup; 2-grams hit more often but are
//! mostly wrong, and each wrong draft costs a wide pass.
//!
//! Invariant: the index holds exactly the n-grams of `seen`; a hash hit is believed only after the
//! tokens were compared.
//! Not here: texts of other sessions.

use std::collections::HashMap;

use pilotfish_lane::Rows;

use super::Drafter;
use super::hash::fnv;
use super::odds::odds;
use crate::error::DraftError;
use crate::session::Session;
use crate::speculate::{Accepted, Guess, Source, TokenTree};

const LONGEST: usize = 4;
const SHORTEST: usize = 3;
const SHORT_DRAFT: usize = 6;
const LONG_DRAFT: usize = 32;
/// Backward match from which a long draft is tried.
const TRUSTED_MATCH: usize = 8;
/// Lookups between probes while long drafts are disabled.
const PROBE_EVERY: u32 = 8;

/// Looks the end of the text up in the text itself.
#[derive(Debug, Default)]
pub struct NgramDrafter {
    seen: Vec<u32>,
    ends: HashMap<u64, [usize; 2]>, // n-gram hash to its last two end positions, latest first
    gate: Gate,
}

impl NgramDrafter {
    /// An empty index.
    pub fn new() -> Self {
        Self::default()
    }

    /// Brings the index up to `tokens`. A text that continues the last one is added to; another one is
    /// indexed anew, since positions cannot be taken back.
    fn follow(&mut self, tokens: &[u32]) {
        if !tokens.starts_with(&self.seen) {
            self.seen.clear();
            self.ends.clear();
        }
        for &token in &tokens[self.seen.len()..] {
            self.seen.push(token);
            let end = self.seen.len();
            for n in SHORTEST..=LONGEST.min(end) {
                let ends = self.ends.entry(hash(&self.seen[end - n..])).or_insert([0; 2]);
                *ends = [end, ends[0]];
            }
        }
    }

    /// End of the latest earlier occurrence of the longest known n-gram at the text's end.
    fn lookup(&self) -> Option<usize> {
        let end = self.seen.len();
        (SHORTEST..=LONGEST.min(end)).rev().find_map(|n| {
            let gram = &self.seen[end - n..];
            let earlier = self.ends.get(&hash(gram))?.iter().copied().find(|&at| at < end)?;
            (earlier >= n && self.seen[earlier - n..earlier] == *gram).then_some(earlier)
        })
    }

    /// How many tokens before `earlier` equal those before the text's end, as far as it matters.
    fn match_len(&self, earlier: usize) -> usize {
        let backwards = self.seen[..earlier].iter().rev().zip(self.seen.iter().rev());
        backwards.take(LONG_DRAFT / 2).take_while(|(a, b)| a == b).count()
    }
}

impl Drafter for NgramDrafter {
    fn name(&self) -> &str {
        "ngram"
    }

    fn default_max(&self) -> usize {
        LONG_DRAFT
    }

    fn propose(&mut self, session: &Session, limit: usize) -> Result<TokenTree, DraftError> {
        self.follow(session.tokens());
        let root = session.last();
        let Some(earlier) = self.lookup() else { return Ok(TokenTree::root(root)) };
        let matched = self.match_len(earlier);
        let wanted = if matched >= TRUSTED_MATCH && self.gate.allows_long() {
            LONG_DRAFT.min(2 * matched)
        } else {
            SHORT_DRAFT
        };
        let period = self.seen.len() - earlier;
        let mut tree = TokenTree::root(root);
        for i in 0..wanted.min(limit) {
            let token = self.seen[earlier + i % period];
            // Should the guesses before it be right, the match is longer by those.
            let probability = odds(1, 1, matched + i);
            tree.push(i, Guess { token, probability, source: Source::Ngram });
        }
        Ok(tree)
    }

    fn observe(&mut self, draft: &TokenTree, accepted: &Accepted, _: &Rows) {
        if draft.drafted() > SHORT_DRAFT {
            self.gate.observe_long(2 * accepted.accepted() >= draft.drafted());
        }
    }
}

/// Whether long drafts are worth their wide passes.
#[derive(Debug, Default)]
struct Gate {
    bad_in_a_row: u32,
    lookups_while_closed: u32,
}

impl Gate {
    fn allows_long(&mut self) -> bool {
        if self.bad_in_a_row < 2 {
            return true;
        }
        self.lookups_while_closed += 1;
        self.lookups_while_closed.is_multiple_of(PROBE_EVERY)
    }

    fn observe_long(&mut self, good: bool) {
        if good {
            *self = Self::default();
        } else {
            self.bad_in_a_row += 1;
        }
    }
}

/// Grams of different lengths are kept apart.
fn hash(gram: &[u32]) -> u64 {
    fnv(gram.len() as u64, gram.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::{Sampler, SamplingParams};
    use crate::session::{Limits, NoText};

    fn session(tokens: &[u32]) -> Session {
        let limits = Limits { max_tokens: None, context: 4096, end_tokens: vec![], ignore_eos: false };
        let sampler = Sampler::new(SamplingParams::greedy(), 10_000, 0).unwrap();
        Session::new(tokens.to_vec(), limits, sampler, Box::new(NoText)).unwrap()
    }

    fn guesses(drafter: &mut NgramDrafter, tokens: &[u32], limit: usize) -> Vec<u32> {
        let tree = drafter.propose(&session(tokens), limit).unwrap();
        assert_eq!(tree.token(0), *tokens.last().unwrap());
        (1..tree.width()).map(|i| tree.token(i)).collect()
    }

    #[test]
    fn speculation_ngram_continues_the_latest_earlier_occurrence() {
        let mut drafter = NgramDrafter::new();
        let text = [1, 2, 3, 50, 51, 9, 1, 2, 3, 60, 61, 8, 1, 2, 3];
        assert_eq!(guesses(&mut drafter, &text, 9), [60, 61, 8, 1, 2, 3]);
        assert_eq!(guesses(&mut drafter, &text, 2), [60, 61]);
        assert!(guesses(&mut drafter, &text, 0).is_empty());
    }

    #[test]
    fn speculation_ngram_prefers_the_longer_gram() {
        // The 4-gram 7 1 2 3 occurred once, before the later 3-gram 1 2 3.
        let text = [7, 1, 2, 3, 50, 9, 1, 2, 3, 60, 7, 1, 2, 3];
        assert_eq!(guesses(&mut NgramDrafter::new(), &text, 1), [50]);
    }

    #[test]
    fn speculation_ngram_proposes_nothing_without_a_match() {
        let mut drafter = NgramDrafter::new();
        assert!(guesses(&mut drafter, &[1], 8).is_empty());
        assert!(guesses(&mut drafter, &[1, 2, 3, 4, 2, 3], 8).is_empty(), "a 2-gram is not enough");
    }

    #[test]
    fn speculation_ngram_repeats_the_period_of_an_overlapping_match() {
        assert_eq!(guesses(&mut NgramDrafter::new(), &[5; 6], 6), [5; 6]);
        assert_eq!(guesses(&mut NgramDrafter::new(), &[1, 2, 1, 2, 1, 2], 5), [1, 2, 1, 2, 1]);
    }

    #[test]
    fn speculation_ngram_trusts_long_matches_with_long_drafts() {
        let run: Vec<u32> = (0..60).collect();
        for (matched, expected) in [(5, 6), (7, 6), (8, 16), (12, 24), (16, 32), (30, 32)] {
            let mut text = run.clone();
            text.push(999);
            text.extend(&run[10..10 + matched]);
            assert_eq!(guesses(&mut NgramDrafter::new(), &text, 100).len(), expected, "match of {matched}");
        }
    }

    #[test]
    fn speculation_ngram_is_surer_of_longer_matches() {
        let likely = |matched: u32| {
            let mut text: Vec<u32> = (0..60).collect();
            text.push(999);
            text.extend(10..10 + matched);
            let tree = NgramDrafter::new().propose(&session(&text), 100).unwrap();
            let probability = |node: usize| tree.guess(node).probability;
            assert_eq!(tree.guess(1).source, Source::Ngram);
            assert!(probability(1) < probability(2) && probability(2) < 1.0);
            probability(1)
        };
        assert_eq!(likely(3), odds(1, 1, 3));
        assert!(likely(3) < likely(4) && likely(4) < likely(8) && likely(8) < likely(16));
    }

    #[test]
    fn speculation_ngram_survives_truncation() {
        let mut grown = NgramDrafter::new();
        let text: Vec<u32> = [1, 2, 3, 4, 5, 6].repeat(3);
        for len in [18, 11, 16, 9, 18] {
            let fresh = guesses(&mut NgramDrafter::new(), &text[..len], 8);
            assert_eq!(guesses(&mut grown, &text[..len], 8), fresh, "{len} tokens");
        }
        assert!(guesses(&mut grown, &[9, 9, 1, 2], 8).is_empty(), "nothing of the old text is left");
    }

    #[test]
    fn speculation_ngram_gate_closes_and_is_probed_open() {
        let mut gate = Gate::default();
        gate.observe_long(false);
        assert!(gate.allows_long(), "one bad draft is not enough");
        gate.observe_long(true);
        gate.observe_long(false);
        gate.observe_long(false);
        let asked: Vec<bool> = (0..16).map(|_| gate.allows_long()).collect();
        assert_eq!(asked.iter().filter(|&&allowed| allowed).count(), 2, "one probe in eight");
        assert!(asked[7] && asked[15]);
        gate.observe_long(true);
        assert!(gate.allows_long());
    }
}

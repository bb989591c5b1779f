//! What became of guesses, source by source.
//!
//! Invariant: a guess is counted once, for the source its drafter named.
//! Not here: chances and budgets, which forget (`chances`).

use std::ops::AddAssign;

use super::{Accepted, Source, TokenTree};

/// Counts of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCount {
    /// Rounds in which a guess of it was verified.
    pub rounds: usize,
    /// Its guesses that were verified.
    pub drafted: usize,
    /// Of those, how many became part of the reply.
    pub accepted: usize,
}

/// Counts of every source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BySource([SourceCount; Source::ALL.len()]);

impl BySource {
    /// The counts of a round that committed `tokens` tokens.
    pub(super) fn of_round(draft: &TokenTree, accepted: &Accepted, tokens: usize) -> Self {
        let mut counts = Self::default();
        for node in 1..draft.width() {
            let count = counts.get_mut(draft.guess(node).source);
            count.rounds = 1;
            count.drafted += 1;
        }
        for source in sources(draft, accepted, tokens).into_iter().flatten() {
            counts.get_mut(source).accepted += 1;
        }
        counts
    }

    /// The counts of one source.
    pub fn get(&self, source: Source) -> SourceCount {
        self.0[source as usize]
    }

    /// The sources of which a guess was verified.
    pub fn iter(&self) -> impl Iterator<Item = (Source, SourceCount)> + '_ {
        Source::ALL
            .into_iter()
            .map(|source| (source, self.get(source)))
            .filter(|(_, count)| count.drafted > 0)
    }

    fn get_mut(&mut self, source: Source) -> &mut SourceCount {
        &mut self.0[source as usize]
    }
}

impl AddAssign for BySource {
    fn add_assign(&mut self, other: Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            sum.rounds += count.rounds;
            sum.drafted += count.drafted;
            sum.accepted += count.accepted;
        }
    }
}

/// Who guessed each of a round's `tokens` committed tokens; nobody guessed the bonus.
pub(super) fn sources(draft: &TokenTree, accepted: &Accepted, tokens: usize) -> Vec<Option<Source>> {
    let guessed = accepted.rows[1..].iter().map(|&row| Some(draft.guess(row).source));
    guessed.chain([None]).take(tokens).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speculate::Guess;

    #[test]
    fn speculation_counts_each_guess_for_its_source() {
        let guess = |token, source| Guess { token, probability: 0.5, source };
        let mut draft = TokenTree::root(1);
        let first = draft.push(0, guess(10, Source::Ngram));
        draft.push(0, guess(20, Source::Suffix));
        let second = draft.push(first, guess(11, Source::Suffix));
        draft.push(second, guess(12, Source::Suffix));
        let accepted = Accepted { rows: vec![0, first, second], tokens: vec![10, 11, 13] };
        let all = [Some(Source::Ngram), Some(Source::Suffix), None];
        for tokens in 1..=3 {
            assert_eq!(sources(&draft, &accepted, tokens), all[..tokens], "the reply may end inside");
        }
        let mut sum = BySource::of_round(&draft, &accepted, 3);
        sum += BySource::of_round(&draft, &accepted, 1);
        sum += BySource::of_round(&TokenTree::root(1), &Accepted { rows: vec![0], tokens: vec![5] }, 1);
        let counts: Vec<_> = sum.iter().collect();
        assert_eq!(
            counts,
            [
                (Source::Ngram, SourceCount { rounds: 2, drafted: 2, accepted: 2 }),
                (Source::Suffix, SourceCount { rounds: 2, drafted: 6, accepted: 1 }),
            ]
        );
        assert_eq!(sum.get(Source::Model), SourceCount::default());
    }

    #[test]
    fn every_source_has_a_place_of_its_own() {
        for (i, source) in Source::ALL.into_iter().enumerate() {
            assert_eq!(source as usize, i);
        }
    }
}

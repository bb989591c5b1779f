//! How often guesses turn out right, by source, by how likely their drafter held them, and by depth.
//!
//! A drafter's own probability is where a guess starts: as good as four tries. What happened to guesses like it
//! outweighs that soon. Everything proposed is learned from, verified or not: a guess that was cut off is right or
//! wrong by the tokens that follow anyway, so that lookups which are parked are judged on for nothing.
//!
//! Invariant: chances lie above 0 and below 1.
//! Not here: costs (`costs`), what to draft (`budget`).

use super::{Guess, Source, TokenTree};

/// Tries a drafter's own probability is worth.
const PRIOR_TRIES: f64 = 4.0;
/// Tries remembered: beyond them, old ones count half.
const MEMORY: f64 = 64.0;
/// Tries that still count of a source that is tried anew.
const DOUBTED: f64 = 2.0;
/// Lower ends of all classes of probability but the first; finer where a chain of guesses tells small doubts apart.
const CLASS_ENDS: [f32; 7] = [0.25, 0.5, 0.65, 0.8, 0.9, 0.96, 0.985];
const CLASSES: usize = CLASS_ENDS.len() + 1;
/// Depths told apart; deeper guesses count as the last.
const DEPTHS: usize = 16;
/// Proposals followed at a time.
const FOLLOWED: usize = 4;
/// What a source is held to bring at first.
const UNTRIED: f64 = 0.7;

/// Tries and how many of them were right.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    tries: f64,
    right: f64,
}

impl Tally {
    fn count(&mut self, right: bool) {
        if self.tries >= MEMORY {
            (self.tries, self.right) = (self.tries / 2.0, self.right / 2.0);
        }
        self.tries += 1.0;
        self.right += f64::from(u8::from(right));
    }

    fn doubt(&mut self) {
        let kept = if self.tries > DOUBTED { DOUBTED / self.tries } else { 1.0 };
        (self.tries, self.right) = (self.tries * kept, self.right * kept);
    }

    fn share(self, prior: f64) -> f64 {
        (self.right + PRIOR_TRIES * prior) / (self.tries + PRIOR_TRIES)
    }
}

/// Guesses of one source, by how likely their drafter held them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tallies([Tally; CLASSES]);

impl Tallies {
    /// How likely a guess is right that its drafter holds this likely.
    pub(super) fn chance(&self, probability: f32) -> f64 {
        self.0[class(probability)].share(f64::from(probability).clamp(0.01, 0.99))
    }
}

/// A proposal whose truth is not known to its end, and how far it is.
#[derive(Clone, Debug)]
struct Followed {
    tree: TokenTree,
    at: usize,
}

/// What is known of guesses.
#[derive(Clone, Debug, Default)]
pub(super) struct Chances {
    by_class: [Tallies; Source::ALL.len()],
    by_depth: [[Tally; DEPTHS]; Source::ALL.len()],
    followed: Vec<Followed>,
}

impl Chances {
    /// How likely a guess is right, given that those before it are.
    pub(super) fn of(&self, guess: Guess) -> f64 {
        self.by_class[index(guess.source)].chance(guess.probability)
    }

    /// What became of the guesses of a source.
    pub(super) fn tallies(&self, source: Source) -> &Tallies {
        &self.by_class[index(source)]
    }

    /// How likely the guess at `depth` (from 1) of a chain by `source` is right, given that those before it are.
    pub(super) fn at(&self, source: Source, depth: usize) -> f64 {
        let tallies = &self.by_depth[index(source)];
        // A depth that was never reached is held to be like the one before it.
        let mut chance = UNTRIED;
        for tally in &tallies[..depth.min(DEPTHS)] {
            chance = tally.share(chance);
        }
        chance
    }

    /// Takes note of a proposal behind the last committed token.
    pub(super) fn propose(&mut self, tree: &TokenTree) {
        if tree.drafted() > 0 {
            if self.followed.len() == FOLLOWED {
                self.followed.remove(0);
            }
            self.followed.push(Followed { tree: tree.clone(), at: 0 });
        }
    }

    /// Learns from tokens that were committed.
    pub(super) fn commit(&mut self, tokens: &[u32]) {
        let mut followed = std::mem::take(&mut self.followed);
        followed.retain_mut(|Followed { tree, at }| {
            tokens.iter().all(|&token| {
                let children: Vec<usize> =
                    (*at + 1..tree.width()).filter(|&node| tree.parent(node) == Some(*at)).collect();
                for &child in &children {
                    self.count(tree.guess(child), tree.depth_of(child), tree.token(child) == token);
                }
                let right = children.into_iter().find(|&child| tree.token(child) == token);
                right.map(|child| *at = child).is_some()
            })
        });
        self.followed = followed;
    }

    /// Counts a proposal of a source that had none as a first guess that was wrong.
    pub(super) fn miss(&mut self, source: Source) {
        self.by_depth[index(source)][0].count(false);
    }

    /// Makes what is known of a source weigh little, so that a few tries can change it.
    pub(super) fn doubt(&mut self, source: Source) {
        self.by_class[index(source)].0.iter_mut().for_each(Tally::doubt);
        self.by_depth[index(source)].iter_mut().for_each(Tally::doubt);
    }

    /// Forgets proposals for another text.
    pub(super) fn start_reply(&mut self) {
        self.followed.clear();
    }

    fn count(&mut self, guess: Guess, depth: usize, right: bool) {
        self.by_class[index(guess.source)].0[class(guess.probability)].count(right);
        self.by_depth[index(guess.source)][depth.min(DEPTHS) - 1].count(right);
    }
}

fn index(source: Source) -> usize {
    Source::ALL.iter().position(|&other| other == source).expect("`ALL` holds every source")
}

fn class(probability: f32) -> usize {
    CLASS_ENDS.partition_point(|&end| end <= probability)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(token: u32, probability: f32) -> Guess {
        Guess { token, probability, source: Source::Suffix }
    }

    #[test]
    fn speculation_chances_begin_with_the_drafter_and_end_with_what_happened() {
        let mut chances = Chances::default();
        assert!((chances.of(guess(5, 0.9)) - 0.9).abs() < 1e-6);
        for _ in 0..100 {
            let mut tree = TokenTree::root(1);
            tree.push(0, guess(5, 0.9));
            chances.propose(&tree);
            chances.commit(&[6]);
        }
        assert!(chances.of(guess(5, 0.9)) < 0.2);
        assert!((chances.of(guess(5, 0.2)) - 0.2).abs() < 1e-6, "other classes are as they were");
        let other = Guess { source: Source::Ngram, ..guess(5, 0.9) };
        assert!((chances.of(other) - 0.9).abs() < 1e-6, "so are other sources");
    }

    #[test]
    fn speculation_chances_follow_a_proposal_over_plain_rounds() {
        let mut chances = Chances::default();
        let mut tree = TokenTree::root(1);
        let first = tree.push(0, guess(5, 0.5));
        tree.push(0, guess(9, 0.3));
        tree.push(first, guess(6, 0.5));
        for _ in 0..20 {
            chances.propose(&tree);
            chances.commit(&[5]);
            chances.commit(&[6]);
            chances.commit(&[7]);
        }
        assert!(chances.of(guess(0, 0.5)) > 0.85, "right at both depths");
        assert!(chances.of(guess(0, 0.3)) < 0.15, "the branch never was");
        assert!(chances.at(Source::Suffix, 2) > 0.8);
        assert!(chances.followed.is_empty());
    }

    #[test]
    fn speculation_chances_of_unreached_depths_are_those_before() {
        let mut chances = Chances::default();
        assert!((chances.at(Source::Model, 3) - UNTRIED).abs() < 1e-9);
        for _ in 0..40 {
            let mut tree = TokenTree::root(1);
            tree.push(0, Guess { source: Source::Model, ..guess(5, 0.7) });
            chances.propose(&tree);
            chances.commit(&[6]);
        }
        assert!(chances.at(Source::Model, 1) < 0.15 && chances.at(Source::Model, 8) < 0.15);
    }
}

//! Grows a draft behind one place of a trie, the likeliest guess first.
//!
//! A heap holds the ways on from what was taken so far. The one that is likeliest to be reached is taken
//! next, so side branches appear where the counts say so, until the tree is full or nothing is likely.
//!
//! Where the text itself ends, the match overlaps its own continuation: the text is periodic, and the path
//! taken so far is repeated.
//!
//! Invariant: a guess is taken after the guesses before it and before all that are less likely.
//! Not here: which place to start from (`suffix`).

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::trie::{Point, Trie};
use crate::draft::odds::odds;
use crate::speculate::{Guess, Source, TokenTree};

/// Guesses that are reached less often are not made, as in SuffixDecoding: hardly any pass is so cheap.
const LEAST_LIKELY: f32 = 0.1;

/// Ways on that are looked at, the latest first: of more than this, the others have not come up for long.
const WIDEST: usize = 32;

/// How large a draft may grow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) depth: usize,
    pub(super) guesses: usize,
}

/// What lies ahead of a node of the draft.
#[derive(Clone, Copy, Debug)]
enum Ahead {
    /// What the trie has there.
    Counted(Point),
    /// What came so many guesses before.
    Repeated(usize),
}

/// A guess that may be taken.
#[derive(Debug)]
struct Candidate {
    reached: f32,
    turn: Reverse<usize>, // of equals, the first found is the latest seen
    parent: usize,
    depth: usize,
    token: u32,
    odds: f32,
    ahead: Ahead,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.reached.total_cmp(&other.reached).then(self.turn.cmp(&other.turn))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}

/// A draft behind `root`, whose last `matched` tokens lead to `start`; `source` says whose trie it is.
pub(super) fn grow(
    trie: &Trie,
    (start, matched): (Point, usize),
    root: u32,
    limits: Limits,
    source: Source,
) -> TokenTree {
    let mut growth =
        Growth { trie, matched, source, tree: TokenTree::root(root), heap: BinaryHeap::new(), turn: 0 };
    growth.look(0, 0, 1.0, Ahead::Counted(start));
    while growth.tree.drafted() < limits.guesses
        && let Some(taken) = growth.heap.pop()
    {
        let Candidate { token, odds, .. } = taken;
        let node = growth.tree.push(taken.parent, Guess { token, probability: odds, source });
        if taken.depth < limits.depth {
            growth.look(node, taken.depth, taken.reached, taken.ahead);
        }
    }
    growth.tree
}

struct Growth<'a> {
    trie: &'a Trie,
    matched: usize,
    source: Source,
    tree: TokenTree,
    heap: BinaryHeap<Candidate>,
    turn: usize,
}

impl Growth<'_> {
    /// Puts the ways on from `node`, at `depth`, on the heap.
    fn look(&mut self, node: usize, depth: usize, reached: f32, ahead: Ahead) {
        let trie = self.trie;
        let matched = self.matched + depth;
        match ahead {
            Ahead::Counted(point) => {
                let total = trie.total(point);
                for step in trie.steps(point).take(WIDEST) {
                    let odds = odds(step.count, total, matched);
                    self.offer(node, depth, reached, step.token, odds, Ahead::Counted(step.point));
                }
                // Texts of the past have ended for a reason; the one that is being written has not.
                if total == 0 && depth > 0 && matched < trie.depth() && self.source == Source::Suffix {
                    self.repeat(node, depth, reached, depth);
                }
            }
            Ahead::Repeated(period) => self.repeat(node, depth, reached, period),
        }
    }

    /// Offers the token that came `period` guesses before the one behind `node`.
    fn repeat(&mut self, node: usize, depth: usize, reached: f32, period: usize) {
        let mut earlier = node;
        for _ in 1..period {
            earlier = self.tree.parent(earlier).expect("a period is no longer than the path");
        }
        let odds = odds(1, 1, self.matched + depth);
        self.offer(node, depth, reached, self.tree.token(earlier), odds, Ahead::Repeated(period));
    }

    fn offer(&mut self, parent: usize, depth: usize, reached: f32, token: u32, odds: f32, ahead: Ahead) {
        let reached = reached * odds;
        if reached >= LEAST_LIKELY {
            let turn = Reverse(self.turn);
            self.turn += 1;
            self.heap.push(Candidate { reached, turn, parent, depth: depth + 1, token, odds, ahead });
        }
    }
}

//! Guesses what followed the same tokens before, by counts: SuffixDecoding.
//!
//! Two tries count n-grams of up to 64 tokens: one of the session's text, one of the replies before it,
//! which are forgotten whole, oldest first, once they are more than the drafter may hold. The last m tokens
//! are looked up in both, from long to short: a long match says much about few places, a short one little
//! about many. From each place a tree is grown, and the one with most expected right guesses is proposed.
//!
//! A place found by fewer tokens gives the same tree with lower odds unless it was seen more often, so only
//! those are tried. 64 is the longest match plus the longest draft, and the depth of SuffixDecoding's tree.
//!
//! Invariant: the session's trie holds exactly the tokens of the session last followed.
//! Not here: counting (`trie`), what a tree looks like (`grow`), how much is worth its pass
//! (`speculate::budget`).

mod grow;
mod trie;

use std::sync::atomic::{AtomicBool, Ordering};

use self::grow::{Limits, grow};
use self::trie::{Point, Trie};
use super::Drafter;
use super::odds::expected;
use crate::error::DraftError;
use crate::session::Session;
use crate::speculate::{Source, TokenTree};

/// Longest match looked for: longer ones are hardly surer.
const LONGEST_MATCH: usize = 32;
/// Shortest match: behind a single token two guesses in three are wrong.
const SHORTEST_MATCH: usize = 2;
/// Most guesses of a draft, and the most in depth.
const MOST_GUESSES: usize = 32;
/// Tokens read between two looks at `cancel`: some milliseconds of work.
const CHUNK: usize = 1024;

/// Looks the end of the text up in the text itself and in earlier replies.
#[derive(Debug)]
pub struct SuffixDrafter {
    session: Trie,
    past: Trie,
    past_tokens: usize,
}

impl SuffixDrafter {
    /// Replies it remembers unless told otherwise, in tokens: some hundred replies in at most 12 MiB.
    pub const PAST_TOKENS: usize = 1 << 16;

    /// A drafter that remembers earlier replies of up to `past_tokens` tokens together; with 0 it knows only
    /// the session.
    pub fn new(past_tokens: usize) -> Self {
        let trie = || Trie::new(LONGEST_MATCH + MOST_GUESSES);
        Self { session: trie(), past: trie(), past_tokens }
    }

    /// Remembers a reply; of one longer than all it may remember, the end.
    pub fn learn(&mut self, reply: &[u32]) {
        let kept = &reply[reply.len().saturating_sub(self.past_tokens)..];
        kept.iter().for_each(|&token| self.past.push(token));
        self.past.close();
        while self.past.len() > self.past_tokens {
            self.past.forget_oldest();
        }
    }

    /// Brings the session's trie up to `tokens`. A text that continues the last one is added to; another one
    /// is read anew, since the end of a text cannot be taken back. Stops early on `cancel`.
    fn follow(&mut self, tokens: &[u32], cancel: &AtomicBool) {
        let held = self.session.len();
        if held > tokens.len() || !self.session.open().eq(tokens[..held].iter().copied()) {
            self.session = Trie::new(self.session.depth());
        }
        for chunk in tokens[self.session.len()..].chunks(CHUNK) {
            if cancel.load(Ordering::Relaxed) {
                return;
            }
            chunk.iter().for_each(|&token| self.session.push(token));
        }
    }

    /// Places of the earlier replies that look like the end of `tokens`, by length of the match.
    fn past_ends(&self, tokens: &[u32]) -> Vec<(Point, usize)> {
        let longest = LONGEST_MATCH.min(tokens.len());
        let end = |matched: usize| {
            let last = &tokens[tokens.len() - matched..];
            let point =
                last.iter().try_fold(self.past.root(), |point, &token| self.past.step(point, token))?;
            Some((point, matched))
        };
        // What matches is matched by its own ends too, so the first miss is the last.
        (SHORTEST_MATCH..=longest).map_while(end).collect()
    }
}

impl Default for SuffixDrafter {
    fn default() -> Self {
        Self::new(Self::PAST_TOKENS)
    }
}

impl Drafter for SuffixDrafter {
    fn name(&self) -> &str {
        "suffix"
    }

    fn default_max(&self) -> usize {
        MOST_GUESSES
    }

    fn prepare(&mut self, session: &Session, cancel: &AtomicBool) -> Result<(), DraftError> {
        self.follow(session.tokens(), cancel);
        Ok(())
    }

    fn propose(&mut self, session: &Session, limit: usize) -> Result<TokenTree, DraftError> {
        self.follow(session.tokens(), &AtomicBool::new(false));
        let root = session.last();
        let limits = Limits { depth: limit, guesses: MOST_GUESSES };
        let here = (SHORTEST_MATCH..=LONGEST_MATCH)
            .map_while(|matched| Some((self.session.open_end(matched)?, matched)))
            .collect();
        let drafts = [
            best(&self.session, here, root, limits, Source::Suffix),
            best(&self.past, self.past_ends(session.tokens()), root, limits, Source::History),
        ];
        let [here, past] = drafts;
        // The session's own words are the better guide where both say the same.
        Ok(if expected(&past) > expected(&here) { past } else { here })
    }

    fn finished(&mut self, session: &Session) {
        self.learn(session.reply());
    }
}

/// The best draft behind any of `places`, which come from the shortest match to the longest.
fn best(trie: &Trie, places: Vec<(Point, usize)>, root: u32, limits: Limits, source: Source) -> TokenTree {
    let mut best = TokenTree::root(root);
    if limits.depth == 0 {
        return best;
    }
    let mut seen = 0;
    for (point, matched) in places.into_iter().rev() {
        let total = trie.total(point);
        if total > seen {
            seen = total;
            let tree = grow(trie, (point, matched), root, limits, source);
            if expected(&tree) > expected(&best) {
                best = tree;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests;

//! Several drafters as one: whoever expects most right guesses drafts.
//!
//! ```text
//! ask everyone who is free, and keep the tree with the highest expected number of right guesses
//! ask a costly one only where that number is not above what its drafts have brought so far
//! ```
//!
//! What a costly drafter brings is what was accepted of its drafts, less the tokens that come anyway in the time they
//! take, averaged over the last eight or so; until its first one it is asked always. A member that fails is left out
//! from then on, and the others go on.
//!
//! Invariant: a draft is one member's, and only that member is told what became of it.
//! Not here: whether the union as a whole pays (`speculate::budget`).

use std::sync::atomic::AtomicBool;

use pilotfish_lane::Rows;

use super::odds::expected;
use super::{Ahead, Drafter};
use crate::error::DraftError;
use crate::session::Session;
use crate::speculate::{Accepted, TokenTree, Worth};

/// Share of the last draft in a costly member's average.
const NEWS: f32 = 1.0 / 8.0;

struct Member {
    drafter: Box<dyn Drafter>,
    max: usize,
    brings: Option<f32>,
    failed: Option<String>,
}

impl Member {
    /// Keeps what went right; what went wrong ends the member.
    fn check<T>(&mut self, result: Result<T, DraftError>) -> Option<T> {
        result.map_err(|error| self.failed = Some(format!("{}: {error}", self.drafter.name()))).ok()
    }
}

/// Drafters that share the work.
pub struct Union {
    name: String,
    members: Vec<Member>,
    drafting: Option<usize>,
    costly: usize,
    /// Guesses of the costly member's last draft, and what one costs in tokens.
    made: usize,
    price: f32,
}

impl Union {
    /// A union named after its members, as `ngram+suffix`. Each drafts at most `draft_max` deep, by default as
    /// deep as it finds useful.
    pub fn new(drafters: Vec<Box<dyn Drafter>>, draft_max: Option<usize>) -> Self {
        let member = |drafter: Box<dyn Drafter>| {
            let max = draft_max.unwrap_or(drafter.default_max());
            Member { drafter, max, brings: None, failed: None }
        };
        let mut members: Vec<Member> = drafters.into_iter().map(member).collect();
        let names: Vec<&str> = members.iter().map(|member| member.drafter.name()).collect();
        let name = names.join("+");
        members.sort_by_key(|member| member.drafter.is_costly());
        Self { name, members, drafting: None, costly: usize::MAX, made: 0, price: 0.0 }
    }

    fn working(&mut self) -> impl Iterator<Item = (usize, &mut Member)> {
        self.members.iter_mut().enumerate().filter(|(_, member)| member.failed.is_none())
    }

    /// An error once nobody is left.
    fn check_left(&self) -> Result<(), DraftError> {
        let failures: Vec<&str> = self.members.iter().filter_map(|member| member.failed.as_deref()).collect();
        let left = failures.len() < self.members.len();
        if left { Ok(()) } else { Err(DraftError::Other(failures.join("; "))) }
    }
}

impl Drafter for Union {
    fn name(&self) -> &str {
        &self.name
    }

    fn default_max(&self) -> usize {
        self.members.iter().map(|member| member.max).max().unwrap_or(0)
    }

    fn prepare(&mut self, session: &Session, cancel: &AtomicBool) -> Result<(), DraftError> {
        for (_, member) in self.working() {
            let prepared = member.drafter.prepare(session, cancel);
            member.check(prepared);
        }
        self.check_left()
    }

    fn propose(&mut self, session: &Session, limit: usize) -> Result<TokenTree, DraftError> {
        let (mut best, mut most, mut by) = (TokenTree::root(session.last()), 0.0, None);
        let (costly, mut made) = (self.costly, 0);
        for (i, member) in self.working() {
            // Nothing outdoes nobody, however little a costly one brought: it would never be asked again.
            let outdone = member.brings.is_some_and(|brings| most > brings.max(0.0));
            if member.drafter.is_costly() && (costly == 0 || outdone) {
                continue;
            }
            let proposed = member.drafter.propose(session, limit.min(member.max));
            let Some(tree) = member.check(proposed) else { continue };
            let expected = expected(&tree);
            if member.drafter.is_costly() {
                // The price is that of a guess, or of a whole block.
                let block = member.drafter.block().is_some();
                made = if block { tree.drafted().min(1) } else { tree.drafted() };
            }
            if expected > most {
                (best, most, by) = (tree, expected, Some(i));
            }
        }
        self.drafting = by;
        self.made = made;
        self.check_left()?;
        Ok(best)
    }

    fn device(&self) -> Option<&str> {
        let mut working = self.members.iter().filter(|member| member.failed.is_none());
        working.find_map(|member| member.drafter.device())
    }

    fn draft_ahead(
        &mut self,
        session: &Session,
        path: &[u32],
        limit: usize,
        go_on: &dyn Fn() -> bool,
    ) -> Ahead {
        let mut all = Ahead::default();
        for (_, member) in self.working().filter(|(_, member)| member.drafter.device().is_some()) {
            let ahead = member.drafter.draft_ahead(session, path, limit.min(member.max), go_on);
            all.guesses += ahead.guesses;
            all.bonus = all.bonus.or(ahead.bonus);
        }
        all
    }

    fn limit_costly(&mut self, depth: usize, worth: &Worth) {
        self.costly = depth;
        self.price = worth.price() as f32;
        self.working().for_each(|(_, member)| member.drafter.limit_costly(depth, worth));
    }

    fn observe(&mut self, draft: &TokenTree, accepted: &Accepted, rows: &Rows) {
        // A plain round may follow a proposal that was cut to its root.
        let Some(i) = self.drafting.take().filter(|_| draft.drafted() > 0) else { return };
        let (member, price) = (&mut self.members[i], self.price * self.made as f32);
        if member.drafter.is_costly() {
            let before = member.brings.unwrap_or(expected(draft) - price);
            member.brings = Some(before + NEWS * (accepted.accepted() as f32 - price - before));
        }
        member.drafter.observe(draft, accepted, rows);
    }

    fn finished(&mut self, session: &Session) {
        self.working().for_each(|(_, member)| member.drafter.finished(session));
    }

    fn taps(&self) -> &[usize] {
        let working = self.members.iter().filter(|member| member.failed.is_none());
        working.map(|member| member.drafter.taps()).find(|taps| !taps.is_empty()).unwrap_or_default()
    }

    fn resume_at(&mut self, prompt: &[u32], held: usize) -> usize {
        self.working().map(|(_, member)| member.drafter.resume_at(prompt, held)).min().unwrap_or(held)
    }

    fn follow(&mut self, position: usize, tokens: &[u32], rows: &Rows, path: &[usize]) {
        self.working().for_each(|(_, member)| member.drafter.follow(position, tokens, rows, path));
    }

    fn block(&self) -> Option<usize> {
        self.members.iter().find_map(|member| member.drafter.block())
    }

    fn is_costly(&self) -> bool {
        self.members.iter().any(|member| member.drafter.is_costly())
    }

    fn idle_reason(&self) -> Option<String> {
        let reason = |member: &Member| member.failed.clone().or_else(|| member.drafter.idle_reason());
        let reasons: Vec<String> = self.members.iter().filter_map(reason).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}

#[cfg(test)]
mod tests;

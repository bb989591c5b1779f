//! Who guesses the next tokens.
//!
//! A [`Drafter`] sees the session and proposes a token tree; it is told afterwards what was accepted.
//! It may be wrong, slow or broken: none of that reaches the text.
//!
//! Invariant: a drafter cannot change a session; it can only propose.
//! Not here: how much to draft and when to stop drafting (`speculate::budget`).

mod hash;
mod history;
mod model;
mod ngram;
mod odds;
mod suffix;
mod union;
mod vocabulary;

use std::sync::atomic::AtomicBool;

pub use history::{History, HistoryError};
pub use model::ModelDrafter;
pub use ngram::NgramDrafter;
pub use suffix::SuffixDrafter;
pub use union::Union;
pub use vocabulary::{Vocabulary, VocabularyMismatch, check_vocabulary, fingerprint};

use pilotfish_lane::Rows;

use crate::error::DraftError;
use crate::session::Session;
use crate::speculate::{Accepted, TokenTree, Worth};

/// What a drafter did ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Guesses made, that of the bonus token included.
    pub guesses: usize,
    /// The bonus token it expects.
    pub bonus: Option<u32>,
}

/// Proposes tokens for a target to verify.
pub trait Drafter: Send {
    /// `none`, `ngram`, `model`, ….
    fn name(&self) -> &str;

    /// Longest useful draft, where the caller does not say.
    fn default_max(&self) -> usize;

    /// Work that is not part of any round, such as reading the prompt; stops early on `cancel`.
    ///
    /// # Errors
    /// When the drafter cannot go on; this and later replies are then made without it.
    fn prepare(&mut self, session: &Session, cancel: &AtomicBool) -> Result<(), DraftError> {
        let _ = (session, cancel);
        Ok(())
    }

    /// Guesses behind the session's last token, at most `limit` deep; the root alone is a fine answer.
    ///
    /// # Errors
    /// When the drafter cannot go on; this and later replies are then made without it.
    fn propose(&mut self, session: &Session, limit: usize) -> Result<TokenTree, DraftError>;

    /// The device of its own lane, where it has one: only such a drafter can work ahead.
    fn device(&self) -> Option<&str> {
        None
    }

    /// Works on the next proposal while this round's draft is verified, for the text that follows if all goes well: the
    /// session's, all guesses of `path`, and the drafter's own guess of the bonus token. At most `limit` guesses behind
    /// that are of use; it ends, too, when `go_on` says no, which it should ask before every guess.
    ///
    /// It only saves time. [`Drafter::propose`] must give what it would have given without it: for the text that was
    /// expected, what was prepared; for any other, a proposal made afresh. What goes wrong here shows in `propose`.
    fn draft_ahead(
        &mut self,
        session: &Session,
        path: &[u32],
        limit: usize,
        go_on: &dyn Fn() -> bool,
    ) -> Ahead {
        let _ = (session, path, limit, go_on);
        Ahead::default()
    }

    /// Most guesses in depth of those who cost time ([`Drafter::is_costly`]) in the next proposal; 0 lets them rest. Where
    /// `worth` is known, one that knows how likely its guesses are may go on as long as that says one more pays.
    fn limit_costly(&mut self, depth: usize, worth: &Worth) {
        let _ = (depth, worth);
    }

    /// Learns what became of the last proposal.
    fn observe(&mut self, draft: &TokenTree, accepted: &Accepted, rows: &Rows) {
        let _ = (draft, accepted, rows);
    }

    /// Learns that the reply has ended, however it did; the session is as it will stay.
    fn finished(&mut self, session: &Session) {
        let _ = session;
    }

    /// Whether asking it costs more than looking something up, so that a [`Union`] asks others first.
    fn is_costly(&self) -> bool {
        false
    }

    /// Why it proposes nothing for the time being, if there is a reason worth telling.
    fn idle_reason(&self) -> Option<String> {
        None
    }
}

/// Proposes nothing: plain decoding.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDrafter;

impl Drafter for NoDrafter {
    fn name(&self) -> &str {
        "none"
    }

    fn default_max(&self) -> usize {
        0
    }

    fn propose(&mut self, session: &Session, _: usize) -> Result<TokenTree, DraftError> {
        Ok(TokenTree::root(session.last()))
    }
}

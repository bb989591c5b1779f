//! Drafters of trees: picked guesses, and guesses drawn without replacement.
//!
//! Invariant: what they propose is a function of the session's text and its dice.
//! Not here: drafters that lie about their law (`planted`).

use std::sync::Arc;

use crate::draft::Drafter;
use crate::error::DraftError;
use crate::sampling::{Choice, Law};
use crate::session::Session;
use crate::speculate::{Guess, Source, TokenTree};

/// The law that guesses behind a text are drawn from.
pub(super) type LawBehind = Arc<dyn Fn(&[u32]) -> Law + Send + Sync>;

/// Draws as many siblings at each depth as listed there, of each guess above.
#[derive(Clone)]
pub(super) struct Drawn {
    pub(super) law: LawBehind,
    pub(super) siblings: Vec<usize>,
    /// Whether a guess's children come before its next sibling, and only even guesses have any.
    pub(super) depth_first: bool,
}

impl Drawn {
    fn draw(&self, tree: &mut TokenTree, at: usize, text: &[u32], depth: usize, choice: &mut dyn Choice) {
        let Some(&siblings) = self.siblings.get(depth) else { return };
        let law = (self.law)(text);
        tree.draw_behind(at, Arc::new(law.clone()));
        let mut rest = Some(law);
        let mut drawn = vec![];
        for _ in 0..siblings {
            let Some(law) = rest else { break };
            let token = law.draw(choice);
            rest = law.without(token);
            let child = tree.push(at, guess(token));
            let below = [text, &[token]].concat();
            if !self.depth_first {
                drawn.push((child, below));
            } else if token % 2 == 0 {
                self.draw(tree, child, &below, depth + 1, choice);
            }
        }
        for (child, below) in drawn {
            self.draw(tree, child, &below, depth + 1, choice);
        }
    }
}

impl Drafter for Drawn {
    fn name(&self) -> &str {
        "drawn"
    }

    fn default_max(&self) -> usize {
        self.siblings.len()
    }

    fn propose(&mut self, session: &Session, _: usize) -> Result<TokenTree, DraftError> {
        let mut tree = TokenTree::root(session.last());
        // What is too deep is left to be clipped.
        if let Some(dice) = session.dice() {
            self.draw(&mut tree, 0, session.tokens(), 0, dice.guesses(session.len()).as_mut());
        }
        Ok(tree)
    }
}

/// Picks the tokens that follow each token by these steps, modulo the vocabulary.
#[derive(Clone)]
pub(super) struct Picked {
    pub(super) vocab: u32,
    pub(super) steps: Vec<u32>,
}

impl Picked {
    fn pick(&self, tree: &mut TokenTree, at: usize, limit: usize) {
        if limit > 0 {
            for step in &self.steps {
                let child = tree.push(at, guess((tree.token(at) + step) % self.vocab));
                self.pick(tree, child, limit - 1);
            }
        }
    }
}

impl Drafter for Picked {
    fn name(&self) -> &str {
        "picked"
    }

    fn default_max(&self) -> usize {
        1
    }

    fn propose(&mut self, session: &Session, limit: usize) -> Result<TokenTree, DraftError> {
        let mut tree = TokenTree::root(session.last());
        self.pick(&mut tree, 0, limit);
        Ok(tree)
    }
}

pub(super) fn guess(token: u32) -> Guess {
    Guess { token, probability: 0.5, source: Source::Model }
}

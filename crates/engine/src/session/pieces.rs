//! Which token each part of a reply's text belongs to.
//!
//! Text is held back while a stop string might begin in it, so what becomes final with one token may be the text of
//! earlier ones. A character made of several tokens belongs to the one that completes it.
//!
//! Invariant: the joined pieces are the text that became final, in its order.
//! Not here: decoding and holding back (`text`), who guessed a token (`speculate`).

use std::collections::VecDeque;

/// Text of one token of the reply. A token without text has no piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the token in the reply.
    pub token: usize,
    /// What it says.
    pub text: String,
}

/// Tokens whose text is not final yet, with its bytes.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    owed: VecDeque<(usize, usize)>, // token, bytes
}

impl Pieces {
    /// Reply token `token` brought `bytes` bytes of text, final or not.
    pub(super) fn brought(&mut self, token: usize, bytes: usize) {
        if bytes > 0 {
            self.owed.push_back((token, bytes));
        }
    }

    /// Shares out text that became final.
    ///
    /// # Panics
    /// When no token brought it: a bug in the [`ReplyText`](super::ReplyText).
    pub(super) fn share(&mut self, mut text: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        while !text.is_empty() {
            let (token, bytes) = self.owed.pop_front().expect("text comes from tokens");
            let (own, rest) = text.split_at(bytes.min(text.len()));
            if own.len() < bytes {
                self.owed.push_front((token, bytes - own.len()));
            }
            pieces.push(Piece { token, text: own.to_owned() });
            text = rest;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_held_back_stays_with_its_own_token() {
        let piece = |token, text: &str| Piece { token, text: text.to_owned() };
        let mut pieces = Pieces::default();
        pieces.brought(0, 3);
        assert_eq!(pieces.share("a"), [piece(0, "a")]);
        pieces.brought(1, 0);
        pieces.brought(2, "dé".len());
        assert_eq!(pieces.share(""), []);
        pieces.brought(3, 4);
        assert_eq!(pieces.share("bcdéf"), [piece(0, "bc"), piece(2, "dé"), piece(3, "f")]);
        assert_eq!(pieces.share("gh"), [piece(3, "gh")], "what a stop string cuts off is never asked for");
    }
}

//! Finds tokens that are matched as whole strings before any other rule: control and user-defined tokens.
//!
//! The longest token is placed first, over the whole text, then the next longest in what is left, and so on; equal
//! lengths go by id, then from left to right. That is llama.cpp's order, done one length at a time so that it
//! stays linear in the text.
//!
//! Invariant: the spans returned are in order, do not overlap, and no control token spans a forbidden offset.
//! Not here: encoding the text in between.

use std::collections::HashMap;

use super::TokenKind;
use super::vocabulary::Vocabulary;

/// One stretch of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'t> {
    /// Ordinary text.
    Text(&'t str),
    /// A token matched as a whole.
    Token(u32),
}

/// Tokens of one length in bytes.
#[derive(Debug)]
struct Length {
    bytes: usize,
    /// First bytes that occur, to skip most positions without hashing.
    starts: [bool; 256],
    ids: HashMap<Box<[u8]>, u32>,
}

/// All tokens matched as whole strings.
#[derive(Debug)]
pub(super) struct SpecialTokens {
    /// Tokens matched in any text, longest first.
    user_defined: Vec<Length>,
    /// Tokens matched only where control tokens are wanted, longest first.
    control: Vec<Length>,
    /// Both, longest first.
    all: Vec<Length>,
    /// First and last bytes of control tokens.
    control_starts: [bool; 256],
    control_ends: [bool; 256],
}

impl SpecialTokens {
    pub(super) fn new(vocabulary: &Vocabulary) -> Self {
        let lengths = |kinds: &[TokenKind]| {
            let mut lengths: Vec<Length> = Vec::new();
            let mut by_length: HashMap<usize, usize> = HashMap::new();
            for id in vocabulary.of_kinds(kinds) {
                let text = vocabulary.text(id).unwrap_or_default().as_bytes();
                let Some(&first) = text.first() else { continue };
                let slot = *by_length.entry(text.len()).or_insert_with(|| {
                    lengths.push(Length { bytes: text.len(), starts: [false; 256], ids: HashMap::new() });
                    lengths.len() - 1
                });
                lengths[slot].starts[first as usize] = true;
                lengths[slot].ids.insert(text.into(), id);
            }
            lengths.sort_unstable_by_key(|length| std::cmp::Reverse(length.bytes));
            lengths
        };
        let control = lengths(&[TokenKind::Control, TokenKind::Unknown]);
        let (mut control_starts, mut control_ends) = ([false; 256], [false; 256]);
        for token in control.iter().flat_map(|length| length.ids.keys()) {
            control_starts[token[0] as usize] = true;
            control_ends[token[token.len() - 1] as usize] = true;
        }
        Self {
            user_defined: lengths(&[TokenKind::UserDefined]),
            all: lengths(&[TokenKind::UserDefined, TokenKind::Control, TokenKind::Unknown]),
            control,
            control_starts,
            control_ends,
        }
    }

    /// See [`Tokenizer::control_marks`](super::Tokenizer).
    pub(super) fn control_marks(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        free_standing: bool,
    ) -> Vec<usize> {
        let bytes = text.as_bytes();
        let mut marks = Vec::new();
        let mut longest = 0;
        for length in &self.control {
            longest = longest.max(length.bytes);
            let Some(last) = bytes.len().checked_sub(length.bytes) else { continue };
            for at in (0..=last).filter(|&at| length.starts[bytes[at] as usize]) {
                if length.ids.contains_key(&bytes[at..at + length.bytes]) {
                    marks.push(at + text[at..].chars().next().map_or(0, char::len_utf8));
                }
            }
        }
        let texts = || {
            let ids = self.control.iter().flat_map(|length| length.ids.values());
            ids.filter_map(|&id| vocabulary.text(id))
        };
        let shorter = || 1..longest.min(text.len() + 1);
        let begun = |tail: &str| {
            self.control_starts[tail.as_bytes()[0] as usize]
                && texts().any(|token| token.len() > tail.len() && token.starts_with(tail))
        };
        if shorter().any(|n| text.is_char_boundary(text.len() - n) && begun(&text[text.len() - n..])) {
            marks.push(text.len());
        }
        let ended = |head: &str| {
            self.control_ends[head.as_bytes()[head.len() - 1] as usize]
                && texts().any(|token| token.len() > head.len() && token.ends_with(head))
        };
        let whole = || (1..longest).contains(&text.len()) && texts().any(|token| token.contains(text));
        if free_standing && (shorter().any(|n| text.is_char_boundary(n) && ended(&text[..n])) || whole()) {
            marks.push(0);
        }
        marks.sort_unstable();
        marks.dedup();
        marks
    }

    /// Cuts `text` at its special tokens; control tokens count only if `control`, and then only where they do not
    /// reach across one of the sorted byte offsets `barred`.
    pub(super) fn split<'t>(
        &self,
        vocabulary: &Vocabulary,
        text: &'t str,
        control: bool,
        barred: &[usize],
    ) -> Vec<Piece<'t>> {
        let allowed = |start: usize, end: usize, id: u32| {
            let inside = barred.partition_point(|&offset| offset <= start);
            let crosses = barred.get(inside).is_some_and(|&offset| offset < end);
            !crosses || vocabulary.kind(id) == TokenKind::UserDefined
        };
        let mut taken: Vec<(usize, usize, u32)> = Vec::new();
        for length in if control { &self.all } else { &self.user_defined } {
            let found = length.find(text.as_bytes(), &taken, &allowed);
            if !found.is_empty() {
                taken.extend(found);
                taken.sort_unstable();
            }
        }
        let mut pieces = Vec::with_capacity(2 * taken.len() + 1);
        let mut at = 0;
        for (start, end, id) in taken {
            if at < start {
                pieces.push(Piece::Text(&text[at..start]));
            }
            pieces.push(Piece::Token(id));
            at = end;
        }
        if at < text.len() {
            pieces.push(Piece::Text(&text[at..]));
        }
        pieces
    }
}

impl Length {
    /// Places this length's tokens in the gaps between `taken` spans.
    fn find(
        &self,
        text: &[u8],
        taken: &[(usize, usize, u32)],
        allowed: &impl Fn(usize, usize, u32) -> bool,
    ) -> Vec<(usize, usize, u32)> {
        let mut matches: Vec<(u32, usize)> = Vec::new();
        let gaps = std::iter::once(0).chain(taken.iter().map(|span| span.1));
        let gaps = gaps.zip(taken.iter().map(|span| span.0).chain([text.len()]));
        for (start, end) in gaps {
            let Some(last) = end.checked_sub(self.bytes) else { continue };
            for at in start..=last {
                if !self.starts[text[at] as usize] {
                    continue;
                }
                if let Some(&id) = self.ids.get(&text[at..at + self.bytes])
                    && allowed(at, at + self.bytes, id)
                {
                    matches.push((id, at));
                }
            }
        }
        // Matches of one length can only overlap each other, so a set of starts is enough to keep them apart.
        matches.sort_unstable();
        let mut starts: Vec<usize> = Vec::new();
        let mut placed = std::collections::BTreeSet::new();
        for (_, at) in matches {
            let low = at.saturating_sub(self.bytes - 1);
            if placed.range(low..at + self.bytes).next().is_none() {
                placed.insert(at);
                starts.push(at);
            }
        }
        starts.sort_unstable();
        starts.iter().map(|&at| (at, at + self.bytes, self.ids[&text[at..at + self.bytes]])).collect()
    }
}

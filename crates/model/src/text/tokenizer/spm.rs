//! SentencePiece vocabularies with scores: neighbours are joined while the vocabulary has the result.
//!
//! ```text
//! symbols = characters of the text, spaces written ▁
//! while some neighbours spell a token: join the pair whose token scores highest, the leftmost of equals
//! a symbol that is no token is spelled in byte tokens <0x00> … <0xFF>
//! ```
//!
//! Invariant: ids equal llama.cpp's for the same scores; time is n log n in the text.
//! Not here: merge lists (`bpe`), special tokens (`specials`).

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::TokenKind;
use super::vocabulary::{SpecialIds, Vocabulary, byte_of};
use crate::{Metadata, ModelError};

const SPACE: char = '▁';

/// A SentencePiece encoder.
#[derive(Debug)]
pub(super) struct Spm {
    scores: Vec<f32>,
    /// Token of each byte, where there is one.
    bytes: Vec<Option<u32>>,
    unknown: Option<u32>,
    /// Whether text at the start, or behind a special token, gets a space in front.
    space_prefix: bool,
    longest: usize,
}

impl Spm {
    /// Builds the encoder of a `llama` vocabulary and completes the vocabulary with bytes and special ids.
    pub(super) fn from_gguf(metadata: &Metadata, vocabulary: &mut Vocabulary) -> Result<Self, ModelError> {
        let scores = vocabulary.scores(metadata)?.ok_or_else(|| metadata.missing("tokenizer.ggml.scores"))?;
        vocabulary.set_bytes(bytes_of);
        let defaults =
            SpecialIds { bos: Some(1), eos: Some(2), unk: Some(0), add_bos: true, ..SpecialIds::default() };
        vocabulary.read_special(metadata, defaults)?;
        let byte = |byte: u8| {
            let plain = char::from(byte).to_string();
            vocabulary
                .id(&format!("<0x{byte:02X}>"))
                .or_else(|| if byte.is_ascii() { vocabulary.id(&plain) } else { None })
        };
        Ok(Self {
            // Adding zero turns -0 into 0, which must compare equal.
            scores: scores.into_iter().map(|score| score + 0.0).collect(),
            bytes: (0..=255).map(byte).collect(),
            unknown: vocabulary.special.unk,
            space_prefix: metadata.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true),
            longest: vocabulary.longest(),
        })
    }

    /// Appends the ids of `text`; `first` says that it starts the prompt or follows a special token.
    pub(super) fn encode(&self, vocabulary: &Vocabulary, text: &str, first: bool, ids: &mut Vec<u32>) {
        let mut spelled = String::with_capacity(text.len() + 3);
        if first && self.space_prefix {
            spelled.push(SPACE);
        }
        spelled.extend(text.chars().map(|c| if c == ' ' { SPACE } else { c }));
        let mut joining =
            Joining { spm: self, vocabulary, text: &spelled, symbols: Vec::new(), pairs: BinaryHeap::new() };
        joining.run();
        for symbol in joining.symbols.iter().filter(|symbol| symbol.len > 0) {
            let text = &spelled[symbol.start..symbol.start + symbol.len];
            match vocabulary.id(text) {
                Some(id) => ids.push(id),
                None => {
                    ids.extend(text.bytes().filter_map(|byte| self.bytes[byte as usize].or(self.unknown)))
                }
            }
        }
    }
}

/// A stretch of text that is one character or one token; `len` 0 once it was joined to its left neighbour.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    start: usize,
    len: usize,
    left: Option<usize>,
    right: Option<usize>,
}

/// Two neighbours that spell a token together.
#[derive(Debug)]
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    len: usize,
}

impl Ord for Pair {
    /// The greatest is joined first: the highest score, then the leftmost.
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left)).then(self.len.cmp(&other.len))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

struct Joining<'a> {
    spm: &'a Spm,
    vocabulary: &'a Vocabulary,
    text: &'a str,
    symbols: Vec<Symbol>,
    pairs: BinaryHeap<Pair>,
}

impl Joining<'_> {
    fn run(&mut self) {
        let characters = self.text.char_indices();
        self.symbols = characters
            .enumerate()
            .map(|(index, (start, c))| Symbol {
                start,
                len: c.len_utf8(),
                left: index.checked_sub(1),
                right: Some(index + 1),
            })
            .collect();
        if let Some(last) = self.symbols.last_mut() {
            last.right = None;
        }
        for right in 1..self.symbols.len() {
            self.offer(Some(right - 1), Some(right));
        }
        while let Some(pair) = self.pairs.pop() {
            let (left, right) = (self.symbols[pair.left], self.symbols[pair.right]);
            if left.len == 0 || right.len == 0 || left.len + right.len != pair.len {
                continue;
            }
            self.symbols[pair.left].len = pair.len;
            self.symbols[pair.left].right = right.right;
            self.symbols[pair.right].len = 0;
            if let Some(next) = right.right {
                self.symbols[next].left = Some(pair.left);
            }
            self.offer(left.left, Some(pair.left));
            self.offer(Some(pair.left), right.right);
        }
    }

    /// Queues two neighbours if they spell a token.
    fn offer(&mut self, left: Option<usize>, right: Option<usize>) {
        let (Some(left), Some(right)) = (left, right) else { return };
        let start = self.symbols[left].start;
        let len = self.symbols[left].len + self.symbols[right].len;
        if len > self.spm.longest {
            return;
        }
        if let Some(id) = self.vocabulary.id(&self.text[start..start + len]) {
            self.pairs.push(Pair { score: self.spm.scores[id as usize], left, right, len });
        }
    }
}

/// Bytes a token stands for: ▁ is a space in normal tokens, byte tokens are their byte.
pub(super) fn bytes_of(text: &str, kind: TokenKind, out: &mut Vec<u8>) {
    match kind {
        TokenKind::Byte if byte_of(text).is_some() => out.extend(byte_of(text)),
        TokenKind::Normal | TokenKind::Unused | TokenKind::Byte => {
            out.extend_from_slice(text.replace(SPACE, " ").as_bytes());
        }
        TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined => {
            out.extend_from_slice(text.as_bytes());
        }
    }
}

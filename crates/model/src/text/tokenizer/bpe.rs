//! Byte-level BPE: bytes written as printable characters, merged inside words by a ranked list of pairs.
//!
//! The merging is the `tokenizers` crate's; cutting into words, bytes without a token and the choice of merges
//! are decided here so that ids equal llama.cpp's.
//!
//! A byte the vocabulary has no token for (SmolLM2's lacks 21) is dropped, and nothing merges across the place
//! where it was. A merge whose parts or product are not tokens is ignored; of a repeated merge the first counts.
//!
//! Invariant: encoding cannot fail and only yields ids of the vocabulary.
//! Not here: SentencePiece vocabularies (`spm`), special tokens (`specials`).

use std::collections::HashSet;

use tokenizers::Model;
use tokenizers::models::bpe::{BPE, BpeBuilder, Merges, Vocab};

use super::TokenKind;
use super::pre::{Named, PreTokenizer};
use super::vocabulary::{SpecialIds, Vocabulary, byte_of};
use crate::{Metadata, ModelError};

const MERGES: &str = "tokenizer.ggml.merges";

/// A byte-level BPE encoder.
pub(super) struct Bpe {
    pre: PreTokenizer,
    model: BPE,
    /// Bytes that have a token of their own.
    known: [bool; 256],
}

impl Bpe {
    /// Builds the encoder of a `gpt2` vocabulary and completes the vocabulary with bytes and special ids.
    pub(super) fn from_gguf(metadata: &Metadata, vocabulary: &mut Vocabulary) -> Result<Self, ModelError> {
        let key = "tokenizer.ggml.pre";
        let name = metadata.str(key)?;
        let named = Named::find(name).ok_or_else(|| {
            metadata.unsupported(key, format!("unknown pre-tokenizer; known: {}", Named::known()))
        })?;
        vocabulary.scores(metadata)?;
        let model = model(metadata, vocabulary, named.whole_words)?;
        let alphabet = alphabet();
        vocabulary.set_bytes(bytes_of);
        vocabulary.read_special(metadata, SpecialIds { add_bos: named.add_bos, ..SpecialIds::default() })?;
        let mut letter = [0u8; 4];
        let known = alphabet.map(|c| vocabulary.id(c.encode_utf8(&mut letter)).is_some());
        Ok(Self { pre: named.pre, model, known })
    }

    /// Appends the ids of `text`, in which no special token is looked for.
    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) {
        let alphabet = alphabet();
        let mut letters = String::new();
        self.pre.split(text, &mut |word| {
            letters.clear();
            for byte in word.bytes() {
                if self.known[byte as usize] {
                    letters.push(alphabet[byte as usize]);
                } else {
                    self.merge(&letters, ids);
                    letters.clear();
                }
            }
            self.merge(&letters, ids);
        });
    }

    fn merge(&self, letters: &str, ids: &mut Vec<u32>) {
        let tokens = self.model.tokenize(letters).expect("only an unknown token can fail, and none is set");
        ids.extend(tokens.into_iter().map(|token| token.id));
    }
}

/// Builds the merging model from `tokenizer.ggml.merges`.
fn model(metadata: &Metadata, vocabulary: &Vocabulary, whole_words: bool) -> Result<BPE, ModelError> {
    let merges = merges(metadata)?;
    let build = |merges: Merges| {
        let tokens: Vocab = vocabulary.entries().map(|(text, id)| (text.to_string(), id)).collect();
        BpeBuilder::new().vocab_and_merges(tokens, merges).ignore_merges(whole_words).build()
    };
    let owned = |&(left, right): &(&str, &str)| (left.to_string(), right.to_string());
    // The crate refuses a merge with a part or product that is no token; hardly any file has one, so looking
    // all of them up first would only double the work.
    build(merges.iter().map(owned).collect())
        .or_else(|_| {
            let is_token = |text: &str| vocabulary.id(text).is_some();
            let usable = merges.iter().filter(|(left, right)| {
                is_token(left) && is_token(right) && is_token(&format!("{left}{right}"))
            });
            build(usable.map(owned).collect())
        })
        .map_err(|error| metadata.invalid(MERGES, error.to_string()))
}

/// The two parts of every merge, the first of equals only.
fn merges(metadata: &Metadata) -> Result<Vec<(&str, &str)>, ModelError> {
    let strings = metadata.require_strings(MERGES)?;
    let mut seen = HashSet::with_capacity(strings.len());
    let mut merges = Vec::with_capacity(strings.len());
    for (index, merge) in strings.iter().enumerate() {
        // The separator is the first space behind the first character, which may be a space itself.
        let first = merge.chars().next().map_or(0, char::len_utf8);
        let parts = merge[first..].split_once(' ').filter(|(_, right)| !right.is_empty());
        let Some((left, right)) = parts else {
            return Err(
                metadata.invalid(MERGES, format!("merge {index} is not two parts with a space between"))
            );
        };
        if seen.insert(merge) {
            merges.push((&merge[..first + left.len()], right));
        }
    }
    Ok(merges)
}

/// GPT-2's printable character for each byte: itself where it is printable, else the next one from U+0100 up.
pub(super) fn alphabet() -> [char; 256] {
    let mut next = 0x100u32;
    std::array::from_fn(|byte| match byte as u8 {
        byte @ (b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF) => byte as char,
        _ => {
            next += 1;
            char::from_u32(next - 1).expect("U+0100 to U+0143 are characters")
        }
    })
}

/// Byte of a character of [`alphabet`].
fn byte_of_letter(letter: char) -> Option<u8> {
    let code = u32::from(letter);
    match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => u8::try_from(code).ok(),
        0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        0x121..=0x142 => u8::try_from(code - 0x121 + 0x7F).ok(),
        0x143 => Some(0xAD),
        _ => None,
    }
}

/// Bytes a token stands for: spelled in letters when normal, its own text when special.
pub(super) fn bytes_of(text: &str, kind: TokenKind, out: &mut Vec<u8>) {
    match kind {
        TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined => {
            out.extend_from_slice(text.as_bytes());
        }
        TokenKind::Byte if byte_of(text).is_some() => out.extend(byte_of(text)),
        TokenKind::Normal | TokenKind::Unused | TokenKind::Byte => {
            let mut utf8 = [0; 4];
            for letter in text.chars() {
                match byte_of_letter(letter) {
                    Some(byte) => out.push(byte),
                    // Not a byte letter, so the token was never byte-level; its text is all there is.
                    None => out.extend_from_slice(letter.encode_utf8(&mut utf8).as_bytes()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_bytes_are_inverse() {
        for (byte, letter) in alphabet().into_iter().enumerate() {
            assert_eq!(byte_of_letter(letter), u8::try_from(byte).ok(), "byte {byte}");
        }
        assert_eq!(alphabet()[b' ' as usize], 'Ġ');
        assert_eq!(alphabet()[b'\n' as usize], 'Ċ');
        assert_eq!(byte_of_letter('日'), None);
    }

    #[test]
    fn special_tokens_spell_themselves() {
        let mut out = Vec::new();
        bytes_of("<|é|>", TokenKind::Control, &mut out);
        assert_eq!(out, "<|é|>".as_bytes());
        out.clear();
        bytes_of("Ġé", TokenKind::Normal, &mut out);
        assert_eq!(out, [b' ', 0xE9]);
    }
}

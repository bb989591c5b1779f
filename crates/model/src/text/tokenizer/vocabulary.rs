//! The tokens of a vocabulary: their text, kind and bytes, the special ids, and which ids end an answer.
//!
//! Read from a file it trusts in nothing: counts, element types, lengths, duplicates and ids are checked here, so
//! that the encoders can index without asking again.
//!
//! Invariant: every id this type hands out is below `len`.
//! Not here: splitting text into tokens (`bpe`, `spm`), `tokenizer.json` (`json`).

use std::collections::HashMap;

use super::TokenKind;
use crate::{Metadata, ModelError};

/// More tokens than any known model has (R3), so that a count cannot make us allocate without end.
pub(super) const MAX_TOKENS: usize = 2_000_000;
/// Longest token text (R8).
pub(super) const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// Texts of tokens that end an answer when they are control tokens, as llama.cpp lists them.
const END_TEXTS: [&str; 26] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "</s>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
    // Code models write these where one file ends and another begins.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<reponame>",
    "<|file_sep|>",
    "<|flush|>",
];

/// Ids with a role of their own.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SpecialIds {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) unk: Option<u32>,
    pub(super) pad: Option<u32>,
    /// End of turn and end of message, where a file names them.
    pub(super) turn_ends: [Option<u32>; 2],
    pub(super) add_bos: bool,
    pub(super) add_eos: bool,
}

/// Many byte strings in one allocation.
#[derive(Debug, Default)]
struct Table {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Table {
    fn push(&mut self, entry: &[u8]) {
        self.bytes.extend_from_slice(entry);
        self.ends.push(self.bytes.len());
    }

    fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        self.bytes.get(start..end)
    }
}

/// Every token of a model, by id and by text.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    texts: Table,
    bytes: Table,
    kinds: Vec<TokenKind>,
    ids: HashMap<Box<str>, u32>,
    longest: usize,
    pub(super) special: SpecialIds,
    eog: Vec<u32>,
}

impl Vocabulary {
    /// Reads `tokenizer.ggml.tokens` and `token_type`, leaving bytes, special ids and end tokens to the caller.
    pub(super) fn from_metadata(metadata: &Metadata) -> Result<Self, ModelError> {
        let key = "tokenizer.ggml.tokens";
        let tokens = metadata.require_strings(key)?;
        if tokens.is_empty() {
            return Err(metadata.invalid(key, "the vocabulary is empty"));
        }
        if tokens.len() > MAX_TOKENS {
            let problem = format!("{} tokens, more than the {MAX_TOKENS} allowed", tokens.len());
            return Err(metadata.invalid(key, problem));
        }
        let kinds = kinds(metadata, tokens.len())?;
        let mut vocabulary = Self::default();
        for (token, kind) in tokens.iter().zip(kinds) {
            vocabulary.add(token, kind).map_err(|problem| metadata.invalid(key, problem))?;
        }
        if vocabulary.ids.is_empty() {
            return Err(metadata.invalid(key, "every token is empty"));
        }
        Ok(vocabulary)
    }

    /// Appends the next token; an empty text takes an id but never matches anything.
    pub(super) fn add(&mut self, text: &str, kind: TokenKind) -> Result<(), String> {
        let id = u32::try_from(self.kinds.len()).map_err(|_| "too many tokens".to_string())?;
        if text.len() > MAX_TOKEN_BYTES {
            return Err(format!(
                "token {id} has {} bytes, more than the {MAX_TOKEN_BYTES} allowed",
                text.len()
            ));
        }
        if !text.is_empty()
            && let Some(first) = self.ids.insert(text.into(), id)
        {
            return Err(format!("tokens {first} and {id} have the same text"));
        }
        self.texts.push(text.as_bytes());
        self.kinds.push(kind);
        self.longest = self.longest.max(text.len());
        Ok(())
    }

    /// Reads `tokenizer.ggml.scores`, which only SentencePiece needs but any file may have.
    pub(super) fn scores(&self, metadata: &Metadata) -> Result<Option<Vec<f32>>, ModelError> {
        let key = "tokenizer.ggml.scores";
        let Some(scores) = metadata.f32s(key)? else { return Ok(None) };
        if scores.len() != self.len() {
            return Err(metadata.invalid(key, format!("{} entries for {} tokens", scores.len(), self.len())));
        }
        if let Some(id) = scores.iter().position(|score| score.is_nan()) {
            return Err(metadata.invalid(key, format!("the score of token {id} is not a number")));
        }
        Ok(Some(scores))
    }

    /// Gives every token the bytes it stands for; `bytes` may use the buffer it is handed.
    pub(super) fn set_bytes(&mut self, bytes: impl Fn(&str, TokenKind, &mut Vec<u8>)) {
        let mut buffer = Vec::new();
        let mut table = Table::default();
        for (index, kind) in self.kinds.iter().enumerate() {
            buffer.clear();
            bytes(text_at(&self.texts, index).unwrap_or_default(), *kind, &mut buffer);
            table.push(&buffer);
        }
        self.bytes = table;
    }

    /// Reads the special ids and flags of a GGUF file over `defaults`, then works out the end tokens.
    pub(super) fn read_special(
        &mut self,
        metadata: &Metadata,
        defaults: SpecialIds,
    ) -> Result<(), ModelError> {
        let id = |name: &str, default: Option<u32>| -> Result<Option<u32>, ModelError> {
            let key = format!("tokenizer.ggml.{name}_token_id");
            match metadata.u32(&key)? {
                Some(id) if (id as usize) < self.len() => Ok(Some(id)),
                Some(id) => Err(metadata
                    .invalid(&key, format!("id {id} is not below the vocabulary size {}", self.len()))),
                None => Ok(default.filter(|&id| (id as usize) < self.len())),
            }
        };
        let mut special = SpecialIds {
            bos: id("bos", defaults.bos)?,
            eos: id("eos", defaults.eos)?,
            unk: id("unknown", defaults.unk)?,
            pad: id("padding", defaults.pad)?,
            turn_ends: [id("eot", None)?, id("eom", None)?],
            add_bos: defaults.add_bos,
            add_eos: defaults.add_eos,
        };
        let flag = |name: &str, default: bool, id: Option<u32>| -> Result<bool, ModelError> {
            let key = format!("tokenizer.ggml.add_{name}_token");
            match (metadata.bool(&key)?, id) {
                (Some(true), None) => {
                    Err(metadata.invalid(&key, format!("is true without a {name}_token_id")))
                }
                (Some(wanted), _) => Ok(wanted),
                (None, id) => Ok(default && id.is_some()),
            }
        };
        special.add_bos = flag("bos", special.add_bos, special.bos)?;
        special.add_eos = flag("eos", special.add_eos, special.eos)?;
        self.set_special(special);
        Ok(())
    }

    /// Takes checked special ids and works out which ids end an answer.
    pub(super) fn set_special(&mut self, special: SpecialIds) {
        self.special = special;
        let named = [special.eos, special.turn_ends[0], special.turn_ends[1]];
        let listed = END_TEXTS.iter().filter_map(|text| self.id(text));
        let listed = listed.filter(|&id| self.kind(id) == TokenKind::Control);
        let mut eog: Vec<u32> = named.into_iter().flatten().chain(listed).collect();
        eog.sort_unstable();
        eog.dedup();
        // In the vocabularies that have both, `<|end|>` only ends a part of an answer.
        let has = |text| self.id(text).is_some_and(|id| eog.contains(&id));
        if has("<|return|>") && has("<|call|>") && has("<|end|>") {
            let end = self.id("<|end|>");
            eog.retain(|&id| Some(id) != end);
        }
        self.eog = eog;
    }

    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    pub(super) fn text(&self, id: u32) -> Option<&str> {
        text_at(&self.texts, id as usize)
    }

    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        self.bytes.get(id as usize).unwrap_or_default()
    }

    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    pub(super) fn kind(&self, id: u32) -> TokenKind {
        self.kinds.get(id as usize).copied().unwrap_or(TokenKind::Unknown)
    }

    /// Length in bytes of the longest token text.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    pub(super) fn eog(&self) -> &[u32] {
        &self.eog
    }

    /// All non-empty tokens by text.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, u32)> {
        self.ids.iter().map(|(text, &id)| (&**text, id))
    }

    /// Ids of all tokens of the given kinds, in id order.
    pub(super) fn of_kinds<'a>(&'a self, kinds: &'a [TokenKind]) -> impl Iterator<Item = u32> + 'a {
        let wanted = self.kinds.iter().enumerate().filter(|(_, kind)| kinds.contains(kind));
        wanted.filter_map(|(id, _)| u32::try_from(id).ok())
    }
}

fn text_at(texts: &Table, index: usize) -> Option<&str> {
    texts.get(index).and_then(|bytes| std::str::from_utf8(bytes).ok())
}

/// Kinds of `count` tokens; a file without `token_type` has only normal ones.
fn kinds(metadata: &Metadata, count: usize) -> Result<Vec<TokenKind>, ModelError> {
    let key = "tokenizer.ggml.token_type";
    let Some(types) = metadata.i32s(key)? else { return Ok(vec![TokenKind::Normal; count]) };
    if types.len() != count {
        return Err(metadata.invalid(key, format!("{} entries for {count} tokens", types.len())));
    }
    // Numbers beyond the known six mean nothing to an encoder, so such tokens are ordinary ones.
    let kind = |ty: i32| match ty {
        2 => TokenKind::Unknown,
        3 => TokenKind::Control,
        4 => TokenKind::UserDefined,
        5 => TokenKind::Unused,
        6 => TokenKind::Byte,
        _ => TokenKind::Normal,
    };
    Ok(types.into_iter().map(kind).collect())
}

/// The byte of a token written `<0x0A>`.
pub(super) fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

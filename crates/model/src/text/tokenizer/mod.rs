//! Text to token ids and token ids to bytes, exactly as the model was trained to see them.
//!
//! ```text
//! text → special tokens matched as whole strings → encoder of the vocabulary (bpe | spm | json) → ids
//! ```
//!
//! Invariant: ids equal llama.cpp's for the same file and text; encoding never fails and never panics.
//! Not here: rendering messages (`template`), whole characters out of ids (`stream`).

mod bpe;
mod json;
mod pre;
mod specials;
mod spm;
mod vocabulary;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use self::bpe::Bpe;
use self::json::Json;
use self::specials::{Piece, SpecialTokens};
use self::spm::Spm;
use self::vocabulary::Vocabulary;
use super::stream::take_characters;
use super::{Rendered, TextStream};
use crate::{Metadata, ModelError};

/// What control tokens spelled out in a text mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Specials {
    /// They are text: what a person typed. User-defined tokens are still matched, as in llama.cpp.
    Plain,
    /// They are the control tokens they spell: what a chat template wrote.
    Parse,
}

/// What a token is for; the kinds of GGUF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// Stands for what the vocabulary cannot spell.
    Unknown,
    /// Steers the model; never part of a text.
    Control,
    /// A string that is always one token.
    UserDefined,
    /// Reserved.
    Unused,
    /// One byte, written `<0x0A>`.
    Byte,
}

/// The text rules of one model. Cloning is cheap; all methods may be called from many threads.
#[derive(Clone)]
pub struct Tokenizer(Arc<Parts>);

struct Parts {
    vocabulary: Vocabulary,
    specials: SpecialTokens,
    encoder: Encoder,
}

enum Encoder {
    Bpe(Box<Bpe>),
    Spm(Spm),
    Json(Box<Json>),
}

impl Tokenizer {
    /// Builds the tokenizer of a GGUF file: `tokenizer.ggml.model` `gpt2` (byte-level BPE) or `llama` (SentencePiece).
    ///
    /// # Errors
    /// A missing or mistyped key, an empty vocabulary, a count that differs from the vocabulary's, a repeated or
    /// oversized token, a malformed merge, a special id outside the vocabulary, an unknown model or pre-tokenizer.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self, ModelError> {
        let key = "tokenizer.ggml.model";
        let model = metadata.require_str(key)?;
        if !matches!(model, "gpt2" | "llama") {
            return Err(metadata.unsupported(key, "unknown tokenizer; known: gpt2, llama"));
        }
        let mut vocabulary = Vocabulary::from_metadata(metadata)?;
        let encoder = match model {
            "gpt2" => Encoder::Bpe(Box::new(Bpe::from_gguf(metadata, &mut vocabulary)?)),
            _ => Encoder::Spm(Spm::from_gguf(metadata, &mut vocabulary)?),
        };
        Ok(Self::new(vocabulary, encoder))
    }

    /// Builds a tokenizer from the bytes of `tokenizer.json` and, if there is one, `tokenizer_config.json`,
    /// which names the BOS and EOS tokens.
    ///
    /// # Errors
    /// Bytes that are not such files, an empty vocabulary, a token id beyond two million.
    pub fn from_tokenizer_json(json: &[u8], config: Option<&[u8]>) -> Result<Self, ModelError> {
        let (json, vocabulary) = Json::new(json, config)?;
        Ok(Self::new(vocabulary, Encoder::Json(Box::new(json))))
    }

    fn new(vocabulary: Vocabulary, encoder: Encoder) -> Self {
        let specials = SpecialTokens::new(&vocabulary);
        Self(Arc::new(Parts { vocabulary, specials, encoder }))
    }

    /// Ids of `text` alone, without BOS or EOS.
    pub fn encode(&self, text: &str, specials: Specials) -> Vec<u32> {
        self.encode_barred(text, specials, &[])
    }

    /// Ids of a prompt that is no chat: `text` with BOS and EOS around it if the file wants them.
    pub fn encode_prompt(&self, text: &str, specials: Specials) -> Vec<u32> {
        let mut ids = self.encode(text, specials);
        if let Some(bos) = self.bos().filter(|_| self.add_bos()) {
            ids.insert(0, bos);
        }
        ids.extend(self.eos().filter(|_| self.add_eos()));
        ids
    }

    /// Ids of a rendered chat: the template's control tokens are parsed, those spelled inside a message are text.
    ///
    /// BOS is added where the file wants it and the template did not write it.
    pub fn encode_rendered(&self, rendered: &Rendered) -> Vec<u32> {
        let mut ids = self.encode_barred(rendered.text(), Specials::Parse, rendered.barred());
        if let Some(bos) = self.bos().filter(|bos| self.add_bos() && ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        ids
    }

    fn encode_barred(&self, text: &str, specials: Specials, barred: &[usize]) -> Vec<u32> {
        let Parts { vocabulary, specials: tokens, encoder } = &*self.0;
        let mut ids = Vec::with_capacity(text.len() / 3);
        let mut after_token = true;
        for piece in tokens.split(vocabulary, text, specials == Specials::Parse, barred) {
            match piece {
                Piece::Token(id) => ids.push(id),
                Piece::Text(text) => match encoder {
                    Encoder::Bpe(bpe) => bpe.encode(text, &mut ids),
                    Encoder::Spm(spm) => spm.encode(vocabulary, text, after_token, &mut ids),
                    Encoder::Json(json) => json.encode(text, &mut ids),
                },
            }
            after_token = matches!(piece, Piece::Token(_));
        }
        ids
    }

    /// Text of `ids`: exactly what a [`TextStream`] would have given for them.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut text = String::new();
        take_characters(&self.decode_bytes(ids), &mut text);
        text
    }

    /// Bytes of `ids`, valid UTF-8 or not; control tokens have none.
    pub fn decode_bytes(&self, ids: &[u32]) -> Vec<u8> {
        ids.iter().flat_map(|&id| self.piece(id)).copied().collect()
    }

    /// A stream that turns ids into text one at a time.
    pub fn stream(&self) -> TextStream {
        TextStream::new(self)
    }

    /// Bytes a token stands for, a control token its own text; empty for an id outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.0.vocabulary.bytes(id)
    }

    /// Bytes a token adds to an answer: those of [`token_bytes`](Self::token_bytes), none for control and unknown tokens.
    pub fn piece(&self, id: u32) -> &[u8] {
        match self.kind(id) {
            TokenKind::Control | TokenKind::Unknown => &[],
            _ => self.token_bytes(id),
        }
    }

    /// A token's text as the vocabulary writes it.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.0.vocabulary.text(id)
    }

    /// The token with exactly this text in the vocabulary.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.0.vocabulary.id(text)
    }

    /// What a token is for; [`TokenKind::Unknown`] for an id outside the vocabulary.
    pub fn kind(&self, id: u32) -> TokenKind {
        self.0.vocabulary.kind(id)
    }

    /// Ascending byte offsets of `text` that keep control tokens spelled in it from being matched: one inside each
    /// such token, and one at an end where the text could complete a token together with what stands around it.
    /// The beginning counts only for a `free_standing` text.
    pub(super) fn control_marks(&self, text: &str, free_standing: bool) -> Vec<usize> {
        self.0.specials.control_marks(&self.0.vocabulary, text, free_standing)
    }

    /// Number of tokens; ids run from 0 to one less.
    pub fn vocab_len(&self) -> usize {
        self.0.vocabulary.len()
    }

    /// The beginning-of-sequence token.
    pub fn bos(&self) -> Option<u32> {
        self.0.vocabulary.special.bos
    }

    /// The end-of-sequence token.
    pub fn eos(&self) -> Option<u32> {
        self.0.vocabulary.special.eos
    }

    /// The token for what cannot be spelled.
    pub fn unk(&self) -> Option<u32> {
        self.0.vocabulary.special.unk
    }

    /// The padding token.
    pub fn pad(&self) -> Option<u32> {
        self.0.vocabulary.special.pad
    }

    /// Whether prompts start with BOS.
    pub fn add_bos(&self) -> bool {
        self.0.vocabulary.special.add_bos
    }

    /// Whether plain prompts end with EOS.
    pub fn add_eos(&self) -> bool {
        self.0.vocabulary.special.add_eos
    }

    /// Whether this id ends an answer.
    pub fn is_eog(&self, id: u32) -> bool {
        self.eog().binary_search(&id).is_ok()
    }

    /// All ids that end an answer, ascending.
    pub fn eog(&self) -> &[u32] {
        self.0.vocabulary.eog()
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_len", &self.vocab_len()).finish_non_exhaustive()
    }
}

//! Tokenizers from a `tokenizer.json`, run by the `tokenizers` crate itself.
//!
//! Normalizer, pre-tokenizer and model are the crate's; added tokens are taken out and matched by `specials`, so
//! that control tokens in a user's text can stay text here as in a GGUF.
//! `tokenizer_config.json`, where given, names BOS and EOS. The flags `lstrip`, `rstrip`, `single_word` and
//! `normalized` of added tokens are not honoured: prompts are built by templates, which place them exactly.
//!
//! Invariant: encoding cannot fail; what the model refuses becomes the unknown token, or nothing.
//! Not here: GGUF vocabularies (`bpe`, `spm`).

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use tokenizers::{Model, ModelWrapper, NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

use super::vocabulary::{MAX_TOKENS, SpecialIds, Vocabulary, byte_of};
use super::{TokenKind, bpe, spm};
use crate::{ModelError, Section};

/// The part of the file this engine reads.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    model: ModelWrapper,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    post_processor: Value,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
}

/// Text to ids by the `tokenizers` crate, without its added tokens.
pub(super) struct Json {
    tokenizer: Tokenizer,
    unknown: Option<u32>,
}

impl Json {
    /// Reads `tokenizer.json` and, if given, `tokenizer_config.json`.
    pub(super) fn new(json: &[u8], config: Option<&[u8]>) -> Result<(Self, Vocabulary), ModelError> {
        let invalid = |problem: String| {
            ModelError::malformed("tokenizer.json", Section::Tokenizer, None, None, problem)
        };
        let file: File = serde_json::from_slice(json).map_err(|error| invalid(error.to_string()))?;
        let config: Value = match config {
            Some(bytes) => serde_json::from_slice(bytes).map_err(|error| {
                let problem = error.to_string();
                ModelError::malformed("tokenizer_config.json", Section::Tokenizer, None, None, problem)
            })?,
            None => Value::Null,
        };
        let unknown = unknown_text(&file.model);
        let mut vocabulary =
            vocabulary(&file.model, &file.added_tokens, unknown.as_deref()).map_err(invalid)?;
        let byte_level = names(&file.decoder, "ByteLevel");
        vocabulary.set_bytes(|text, kind, out| match byte_level {
            true => bpe::bytes_of(text, kind, out),
            false => spm::bytes_of(text, kind, out),
        });
        vocabulary.set_special(special(&vocabulary, &config, &file.post_processor, unknown.as_deref()));
        let mut tokenizer = Tokenizer::new(file.model);
        tokenizer.with_normalizer(file.normalizer);
        tokenizer.with_pre_tokenizer(file.pre_tokenizer);
        let unknown = vocabulary.special.unk;
        Ok((Self { tokenizer, unknown }, vocabulary))
    }

    /// Appends the ids of `text`, in which no special token is looked for.
    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) {
        match self.tokenizer.encode_fast(text, false) {
            Ok(encoding) => ids.extend_from_slice(encoding.get_ids()),
            Err(_) => ids.extend(self.unknown),
        }
    }
}

/// All tokens in id order; ids nobody uses become unused tokens without text.
fn vocabulary(
    model: &ModelWrapper,
    added: &[AddedToken],
    unknown: Option<&str>,
) -> Result<Vocabulary, String> {
    let byte_fallback = matches!(model, ModelWrapper::BPE(bpe) if bpe.byte_fallback)
        || matches!(model, ModelWrapper::Unigram(_));
    let kind = |text: &str| match () {
        () if Some(text) == unknown => TokenKind::Unknown,
        () if byte_fallback && byte_of(text).is_some() => TokenKind::Byte,
        () => TokenKind::Normal,
    };
    let mut tokens: HashMap<u32, (String, TokenKind)> = HashMap::new();
    for (text, id) in model.get_vocab() {
        let kind = kind(&text);
        tokens.insert(id, (text, kind));
    }
    for token in added {
        let kind = if token.special { TokenKind::Control } else { TokenKind::UserDefined };
        tokens.insert(token.id, (token.content.clone(), kind));
    }
    let count = tokens.keys().max().map_or(0, |&id| id as usize + 1);
    if count == 0 {
        return Err("the vocabulary is empty".into());
    }
    if count > MAX_TOKENS {
        return Err(format!("a token has id {}, more than the {MAX_TOKENS} ids allowed", count - 1));
    }
    let mut vocabulary = Vocabulary::default();
    for id in 0..count as u32 {
        match tokens.remove(&id) {
            Some((text, kind)) => vocabulary.add(&text, kind)?,
            None => vocabulary.add("", TokenKind::Unused)?,
        }
    }
    Ok(vocabulary)
}

fn unknown_text(model: &ModelWrapper) -> Option<String> {
    match model {
        ModelWrapper::BPE(bpe) => bpe.unk_token.clone(),
        ModelWrapper::WordPiece(pieces) => Some(pieces.unk_token.clone()),
        ModelWrapper::WordLevel(words) => Some(words.unk_token.clone()),
        ModelWrapper::Unigram(_) => None,
    }
}

/// Special ids named by the configuration, or by the post-processor that would add them.
fn special(vocabulary: &Vocabulary, config: &Value, post: &Value, unknown: Option<&str>) -> SpecialIds {
    let named = |key: &str| -> Option<u32> {
        let entry = config.get(key)?;
        vocabulary.id(entry.as_str().or_else(|| entry.get("content")?.as_str())?)
    };
    let (front, back) = added_around(post);
    let id = |text: Option<&str>| text.and_then(|text| vocabulary.id(text));
    let flag = |key: &str, otherwise: bool| config.get(key).and_then(Value::as_bool).unwrap_or(otherwise);
    let bos = named("bos_token").or(id(front));
    let eos = named("eos_token").or(id(back));
    SpecialIds {
        bos,
        eos,
        unk: named("unk_token").or(id(unknown)),
        pad: named("pad_token"),
        turn_ends: [None, None],
        add_bos: flag("add_bos_token", front.is_some()) && bos.is_some(),
        add_eos: flag("add_eos_token", back.is_some()) && eos.is_some(),
    }
}

/// Texts of the tokens a `TemplateProcessing` puts before and behind a single text.
fn added_around(post: &Value) -> (Option<&str>, Option<&str>) {
    if let Some(steps) = post.get("processors").and_then(Value::as_array) {
        let around = steps.iter().map(added_around);
        return around.fold((None, None), |all, one| (all.0.or(one.0), all.1.or(one.1)));
    }
    let Some(single) = post.get("single").and_then(Value::as_array) else { return (None, None) };
    fn token(entry: Option<&Value>) -> Option<&str> {
        entry?.get("SpecialToken")?.get("id")?.as_str()
    }
    (token(single.first()), token(single.last().filter(|_| single.len() > 1)))
}

/// Whether a step of this type occurs in a decoder, directly or inside a sequence.
fn names(step: &Value, wanted: &str) -> bool {
    let inner = step.get("decoders").and_then(Value::as_array);
    step.get("type").and_then(Value::as_str) == Some(wanted)
        || inner.is_some_and(|steps| steps.iter().any(|step| names(step, wanted)))
}

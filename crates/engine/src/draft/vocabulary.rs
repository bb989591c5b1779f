//! Whether a drafter speaks the target's language.
//!
//! Guesses travel as token ids, so the same id must mean the same text on both sides. The rule is
//! llama.cpp's: the same kind of tokenizer, begin and end tokens added alike and equal, sizes at most
//! 128 apart, and equal text for every shared id from 5 on (the first few are control tokens whose
//! spelling varies).
//!
//! Invariant: a mismatch names the check that failed and what was found.
//! Not here: what happens to ids only one side has (`draft::model`).

use pilotfish_model::text::{TokenKind, Tokenizer};

use super::hash::fnv;

/// Vocabularies may be padded differently, but not by more than this.
const MAX_SIZE_DIFFERENCE: usize = 128;

/// Ids below this are control tokens whose text is not compared.
const FIRST_COMPARED: u32 = 5;

/// What the check needs to know of a tokenizer.
pub trait Vocabulary {
    /// Kind of tokenizer, such as `gpt2` (byte-level BPE) or `llama` (SentencePiece).
    fn kind(&self) -> &str;
    /// Number of tokens.
    fn size(&self) -> usize;
    /// The begin token, when the tokenizer puts it in front of a text.
    fn added_bos(&self) -> Option<u32>;
    /// The end token, when the tokenizer puts it behind a text.
    fn added_eos(&self) -> Option<u32>;
    /// Text of a token, as the vocabulary spells it.
    fn text(&self, token: u32) -> Option<&str>;
}

/// Why a drafter is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VocabularyMismatch {
    /// Different kinds of tokenizer.
    #[error("the drafter does not fit: its tokenizer is of kind {draft}, the target's of kind {target}")]
    Kind {
        /// The target's.
        target: String,
        /// The drafter's.
        draft: String,
    },
    /// Begin or end tokens are added differently.
    #[error("the drafter does not fit: the target adds {} as {which} token, the drafter {}", shown(.target), shown(.draft))]
    Added {
        /// `begin` or `end`.
        which: &'static str,
        /// The id the target adds.
        target: Option<u32>,
        /// The id the drafter adds.
        draft: Option<u32>,
    },
    /// Too different in size.
    #[error(
        "the drafter does not fit: its vocabulary has {draft} tokens, the target's {target}; \
         at most {MAX_SIZE_DIFFERENCE} apart are allowed"
    )]
    Size {
        /// Tokens of the target.
        target: usize,
        /// Tokens of the drafter.
        draft: usize,
    },
    /// One id, two texts.
    #[error(
        "the drafter does not fit: token {token} is {draft:?} for the drafter and {target:?} for the target"
    )]
    Text {
        /// First id that differs.
        token: u32,
        /// The target's text.
        target: String,
        /// The drafter's text.
        draft: String,
    },
}

fn shown(token: &Option<u32>) -> String {
    token.map_or("none".to_owned(), |token| token.to_string())
}

/// Tells vocabularies apart, so that token ids kept for one are not taken for another's.
pub fn fingerprint(vocabulary: &dyn Vocabulary) -> u64 {
    let word = |bytes: &[u8]| {
        let words = bytes.iter().map(|&byte| u32::from(byte));
        // No byte: it ends the text.
        words.chain([u32::MAX]).collect::<Vec<_>>()
    };
    let texts =
        (0..vocabulary.size() as u32).flat_map(|id| word(vocabulary.text(id).unwrap_or("").as_bytes()));
    fnv(vocabulary.size() as u64, word(vocabulary.kind().as_bytes()).into_iter().chain(texts))
}

/// Checks that a drafter with vocabulary `draft` may guess for a target with vocabulary `target`.
///
/// # Errors
/// The first check that failed.
pub fn check_vocabulary(target: &dyn Vocabulary, draft: &dyn Vocabulary) -> Result<(), VocabularyMismatch> {
    if target.kind() != draft.kind() {
        let (target, draft) = (target.kind().to_owned(), draft.kind().to_owned());
        return Err(VocabularyMismatch::Kind { target, draft });
    }
    for (which, target, draft) in
        [("begin", target.added_bos(), draft.added_bos()), ("end", target.added_eos(), draft.added_eos())]
    {
        if target != draft {
            return Err(VocabularyMismatch::Added { which, target, draft });
        }
    }
    let (target_size, draft_size) = (target.size(), draft.size());
    if target_size.abs_diff(draft_size) > MAX_SIZE_DIFFERENCE {
        return Err(VocabularyMismatch::Size { target: target_size, draft: draft_size });
    }
    for token in FIRST_COMPARED..target_size.min(draft_size) as u32 {
        let texts = (target.text(token).unwrap_or(""), draft.text(token).unwrap_or(""));
        if texts.0 != texts.1 {
            let (target, draft) = (texts.0.to_owned(), texts.1.to_owned());
            return Err(VocabularyMismatch::Text { token, target, draft });
        }
    }
    Ok(())
}

impl Vocabulary for Tokenizer {
    /// Told by the tokens themselves, so that the same model's GGUF and `tokenizer.json` agree.
    fn kind(&self) -> &str {
        let ids = 0..self.vocab_len() as u32;
        if ids.into_iter().any(|id| Tokenizer::kind(self, id) == TokenKind::Byte) {
            "SentencePiece"
        } else {
            "byte-level BPE"
        }
    }

    fn size(&self) -> usize {
        self.vocab_len()
    }

    fn added_bos(&self) -> Option<u32> {
        self.bos().filter(|_| self.add_bos())
    }

    fn added_eos(&self) -> Option<u32> {
        self.eos().filter(|_| self.add_eos())
    }

    fn text(&self, token: u32) -> Option<&str> {
        self.token_text(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Listed {
        kind: &'static str,
        bos: Option<u32>,
        eos: Option<u32>,
        texts: Vec<String>,
    }

    impl Vocabulary for Listed {
        fn kind(&self) -> &str {
            self.kind
        }
        fn size(&self) -> usize {
            self.texts.len()
        }
        fn added_bos(&self) -> Option<u32> {
            self.bos
        }
        fn added_eos(&self) -> Option<u32> {
            self.eos
        }
        fn text(&self, token: u32) -> Option<&str> {
            self.texts.get(token as usize).map(String::as_str)
        }
    }

    fn listed(size: usize) -> Listed {
        let texts = (0..size).map(|id| format!("t{id}")).collect();
        Listed { kind: "byte-level BPE", bos: None, eos: None, texts }
    }

    fn message(target: &Listed, draft: &Listed) -> String {
        check_vocabulary(target, draft).unwrap_err().to_string()
    }

    #[test]
    fn speculation_vocabulary_up_to_128_apart_fits() {
        check_vocabulary(&listed(300), &listed(300)).unwrap();
        check_vocabulary(&listed(300), &listed(172)).unwrap();
        check_vocabulary(&listed(172), &listed(300)).unwrap();
        assert_eq!(
            message(&listed(301), &listed(172)),
            "the drafter does not fit: its vocabulary has 172 tokens, the target's 301; \
             at most 128 apart are allowed"
        );
    }

    #[test]
    fn speculation_vocabulary_fingerprints_differ_with_any_text() {
        let own = fingerprint(&listed(20));
        assert_eq!(own, fingerprint(&listed(20)));
        assert_ne!(own, fingerprint(&listed(21)));
        assert_ne!(own, fingerprint(&Listed { kind: "SentencePiece", ..listed(20) }));
        let mut moved = listed(20);
        (moved.texts[3], moved.texts[4]) = ("t3t".into(), "4".into());
        assert_ne!(own, fingerprint(&moved), "where a text ends matters");
    }

    #[test]
    fn speculation_vocabulary_control_tokens_may_be_spelled_differently() {
        let mut draft = listed(20);
        draft.texts[4] = "<s>".into();
        check_vocabulary(&listed(20), &draft).unwrap();
        draft.texts[5] = "x".into();
        assert_eq!(
            message(&listed(20), &draft),
            "the drafter does not fit: token 5 is \"x\" for the drafter and \"t5\" for the target"
        );
    }

    #[test]
    fn speculation_vocabulary_names_the_check_that_failed() {
        let spm = Listed { kind: "SentencePiece", ..listed(20) };
        assert_eq!(
            message(&listed(20), &spm),
            "the drafter does not fit: its tokenizer is of kind SentencePiece, the target's of kind \
             byte-level BPE"
        );
        let bos = Listed { bos: Some(1), ..listed(20) };
        assert_eq!(
            message(&listed(20), &bos),
            "the drafter does not fit: the target adds none as begin token, the drafter 1"
        );
        let eos = |id| Listed { eos: Some(id), ..listed(20) };
        assert_eq!(
            message(&eos(2), &eos(3)),
            "the drafter does not fit: the target adds 2 as end token, the drafter 3"
        );
    }
}

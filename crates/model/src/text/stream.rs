//! Text out of token ids, one id at a time, in whole characters.
//!
//! A character may be spread over several tokens. Bytes wait here until they make a character; bytes that can no
//! longer become one are dropped, because a replacement character would be text the model never wrote. What is
//! still unfinished when the answer ends is dropped too.
//!
//! Invariant: the deltas joined equal [`Tokenizer::decode`] of the same ids, and no delta ever contains U+FFFD
//! unless the model spelled that very character.
//! Not here: stop strings (`stops`), the bytes of one token (`tokenizer`).

use super::Tokenizer;

/// Decodes a growing list of ids into text that is safe to show.
#[derive(Debug, Clone)]
pub struct TextStream {
    tokenizer: Tokenizer,
    pending: Vec<u8>,
}

impl TextStream {
    /// A stream at the beginning of an answer.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        Self { tokenizer: tokenizer.clone(), pending: Vec::new() }
    }

    /// Takes the next id and returns the text it completes, often empty in the middle of a character.
    pub fn push(&mut self, id: u32) -> String {
        self.pending.extend_from_slice(self.tokenizer.piece(id));
        let mut text = String::new();
        let used = take_characters(&self.pending, &mut text);
        self.pending.drain(..used);
        text
    }

    /// Bytes of a character that is not complete yet, at most three.
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }
}

/// Appends the whole characters at the front of `bytes` to `text`, skips bytes that belong to none, and returns
/// how many bytes were used; the rest may still become a character.
pub(super) fn take_characters(bytes: &[u8], text: &mut String) -> usize {
    let mut used = 0;
    loop {
        match std::str::from_utf8(&bytes[used..]) {
            Ok(whole) => {
                text.push_str(whole);
                return bytes.len();
            }
            Err(error) => {
                let good = used + error.valid_up_to();
                text.push_str(&String::from_utf8_lossy(&bytes[used..good]));
                match error.error_len() {
                    Some(bad) => used = good + bad,
                    None => return good,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Joined output of feeding `bytes` cut into pieces at `cuts`.
    fn streamed(bytes: &[u8], cuts: &[usize]) -> String {
        let mut borders: Vec<usize> = cuts.iter().map(|&c| c.min(bytes.len())).collect();
        borders.extend([0, bytes.len()]);
        borders.sort_unstable();
        let mut pending = Vec::new();
        let mut text = String::new();
        for piece in borders.windows(2) {
            pending.extend_from_slice(&bytes[piece[0]..piece[1]]);
            let used = take_characters(&pending, &mut text);
            pending.drain(..used);
            assert!(pending.len() < 4, "a character has at most four bytes");
        }
        text
    }

    #[test]
    fn half_a_character_waits() {
        let mut text = String::new();
        assert_eq!(take_characters(&[0xF0, 0x9F], &mut text), 0);
        assert_eq!(take_characters("😀".as_bytes(), &mut text), 4);
        assert_eq!(text, "😀");
    }

    #[test]
    fn bytes_that_cannot_become_a_character_are_dropped() {
        let mut text = String::new();
        assert_eq!(take_characters(b"a\xFFb\xE2\x28c\xE2\x82", &mut text), 6);
        assert_eq!(text, "ab(c");
    }

    #[test]
    fn a_spelled_replacement_character_is_kept() {
        let mut text = String::new();
        take_characters("\u{FFFD}".as_bytes(), &mut text);
        assert_eq!(text, "\u{FFFD}");
    }

    proptest! {
        #[test]
        fn valid_text_survives_any_cut(text in ".{0,40}", cuts in prop::collection::vec(0usize..120, 0..12)) {
            prop_assert_eq!(streamed(text.as_bytes(), &cuts), text);
        }

        #[test]
        fn cuts_do_not_change_what_invalid_bytes_give(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0xE0u8..=0xF4, 0x80u8..=0xBF], 0..40),
            cuts in prop::collection::vec(0usize..40, 0..12),
        ) {
            let whole = streamed(&bytes, &[]);
            prop_assert_eq!(&streamed(&bytes, &cuts), &whole);
            let spelled = bytes.windows(3).any(|w| w == "\u{FFFD}".as_bytes());
            let shown = whole.contains(char::REPLACEMENT_CHARACTER);
            prop_assert!(spelled || !shown);
        }
    }
}

//! Keeps text of messages from becoming control tokens, whatever the template does with it.
//!
//! A control token spelled inside a message gets a mark, a character that occurs nowhere else, behind its first
//! character; so does a text that could complete such a token together with what stands around it. The marked text
//! goes through the template like any other, the marks are taken out of the result, and where they were no
//! control token may be matched. Text without control tokens, which is nearly all, is not touched at all, so
//! templates that trim, split or compare it behave exactly as without this.
//!
//! A template that takes a message apart character by character would lose the marks; none is known to.
//! A control token of one character cannot be marked; no known vocabulary has one.
//!
//! Invariant: the rendered text is the same with and without marks, byte for byte, as far as the template only
//! moves text around.
//! Not here: matching tokens (`tokenizer::specials`).

use serde_json::Value;

use crate::text::Tokenizer;

/// A rendered conversation, ready for [`Tokenizer::encode_rendered`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    text: String,
    barred: Vec<usize>,
}

impl Rendered {
    /// The prompt as text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Ascending byte offsets of the text that no control token may span.
    pub(crate) fn barred(&self) -> &[usize] {
        &self.barred
    }

    /// Takes the marks out of a rendering.
    pub(super) fn unmarked(marked: &str, mark: char) -> Self {
        let mut text = String::with_capacity(marked.len());
        let mut barred = Vec::new();
        for (index, part) in marked.split(mark).enumerate() {
            if index > 0 {
                barred.push(text.len());
            }
            text.push_str(part);
        }
        barred.dedup();
        Self { text, barred }
    }
}

/// A character that occurs in none of `texts`: noncharacters first, then the private planes.
pub(super) fn unused_mark(texts: &[&str]) -> Option<char> {
    let candidates = ('\u{FDD0}'..='\u{FDEF}').chain('\u{F0000}'..='\u{FFFFD}');
    let mut taken: Vec<char> =
        texts.iter().flat_map(|text| text.chars()).filter(|&c| c >= '\u{FDD0}').collect();
    taken.sort_unstable();
    candidates.into_iter().find(|c| taken.binary_search(c).is_err())
}

/// Marks every string of `value`; role and type names are the template's own words and stay.
pub(super) fn protect(value: &mut Value, tokenizer: &Tokenizer, mark: char) {
    match value {
        Value::String(text) => mark_text(text, false, tokenizer, mark),
        Value::Array(items) => items.iter_mut().for_each(|item| protect(item, tokenizer, mark)),
        Value::Object(entries) => {
            for (key, value) in entries.iter_mut() {
                match (key.as_str(), value) {
                    ("role" | "type", Value::String(_)) => {}
                    ("content" | "text" | "reasoning_content", Value::String(text)) => {
                        mark_text(text, true, tokenizer, mark);
                    }
                    (_, value) => protect(value, tokenizer, mark),
                }
            }
            // Keys are copied only when one of them needs a mark, which keeps the order of all others.
            if entries.keys().any(|key| !tokenizer.control_marks(key, false).is_empty()) {
                let renamed = std::mem::take(entries).into_iter().map(|(mut key, value)| {
                    mark_text(&mut key, false, tokenizer, mark);
                    (key, value)
                });
                *entries = renamed.collect();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn mark_text(text: &mut String, free_standing: bool, tokenizer: &Tokenizer, mark: char) {
    let places = tokenizer.control_marks(text, free_standing);
    if places.is_empty() {
        return;
    }
    let mut marked = String::with_capacity(text.len() + places.len() * mark.len_utf8());
    let mut at = 0;
    for place in places {
        marked.push_str(&text[at..place]);
        marked.push(mark);
        at = place;
    }
    marked.push_str(&text[at..]);
    *text = marked;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_offsets() {
        let rendered = Rendered::unmarked("ab|c||d|", '|');
        assert_eq!(rendered.text(), "abcd");
        assert_eq!(rendered.barred(), [2, 3, 4]);
        assert_eq!(Rendered::unmarked("", '|').barred(), [0usize; 0]);
    }

    #[test]
    fn the_mark_is_a_character_nobody_used() {
        assert_eq!(unused_mark(&["plain", "\u{FDD0}"]), Some('\u{FDD1}'));
        let all: String = ('\u{FDD0}'..='\u{FDEF}').collect();
        assert_eq!(unused_mark(&[&all]), Some('\u{F0000}'));
    }
}

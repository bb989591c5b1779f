//! Pre-tokenizers: how a byte-level vocabulary cuts text into words before merging bytes inside each.
//!
//! The published patterns end in `\s+(?!\S)|\s+`, which needs look-ahead and so a backtracking engine. Here
//! one `\s+` takes the run and gives its last character back when a word follows, which is the same cut in
//! time linear in the text.
//!
//! Invariant: the words joined are the text.
//! Not here: bytes and merges (`bpe`).

use std::sync::LazyLock;

use regex::Regex;

/// `'s|'t|…`, in either case, as the newer vocabularies want it.
const CONTRACTIONS: &str = "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]";

static GPT2: LazyLock<Words> =
    LazyLock::new(|| Words::new(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+", false));
static LLAMA3: LazyLock<Words> = LazyLock::new(|| Words::new(&newer(r"\p{N}{1,3}"), true));
static QWEN2: LazyLock<Words> = LazyLock::new(|| Words::new(&newer(r"\p{N}"), true));
static PUNCTUATION: LazyLock<Regex> = LazyLock::new(|| pattern(r"[\p{P}$+<=>^~|]+"));
static NUMBERS: LazyLock<Regex> = LazyLock::new(|| pattern(r"\p{N}+"));
static DIGIT: LazyLock<Regex> = LazyLock::new(|| pattern(r"\p{N}"));
static THREE_DIGITS: LazyLock<Regex> = LazyLock::new(|| pattern("[0-9][0-9][0-9]"));

fn newer(numbers: &str) -> String {
    format!(
        r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+"
    )
}

fn pattern(source: &str) -> Regex {
    Regex::new(source).expect("the pattern is a constant of this file")
}

/// A way to cut text into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreTokenizer {
    /// What llama.cpp does for files that name nothing: punctuation, words, digits in threes.
    Default,
    /// GPT-2's pattern.
    Gpt2,
    /// Every digit alone, then GPT-2's pattern.
    Smollm,
    /// Llama 3's pattern: up to three digits together.
    Llama3,
    /// Qwen2's pattern: Llama 3's with every digit alone.
    Qwen2,
}

/// A pre-tokenizer as a file names it, with what else that name implies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) pre: PreTokenizer,
    /// A word that is a token is that token, whatever the merges say.
    pub(super) whole_words: bool,
    /// Whether prompts start with BOS when the file does not say.
    pub(super) add_bos: bool,
}

const NAMES: [(&str, PreTokenizer); 33] = [
    ("default", PreTokenizer::Default),
    ("gpt-2", PreTokenizer::Gpt2),
    ("phi-2", PreTokenizer::Gpt2),
    ("gigachat", PreTokenizer::Gpt2),
    ("a.x-4.0", PreTokenizer::Gpt2),
    ("mellum", PreTokenizer::Gpt2),
    ("exaone4", PreTokenizer::Gpt2),
    ("mpt", PreTokenizer::Gpt2),
    ("olmo", PreTokenizer::Gpt2),
    ("jais", PreTokenizer::Gpt2),
    ("trillion", PreTokenizer::Gpt2),
    ("smollm", PreTokenizer::Smollm),
    ("starcoder", PreTokenizer::Smollm),
    ("refact", PreTokenizer::Smollm),
    ("command-r", PreTokenizer::Smollm),
    ("codeshell", PreTokenizer::Smollm),
    ("exaone", PreTokenizer::Smollm),
    ("minerva-7b", PreTokenizer::Smollm),
    ("llama-bpe", PreTokenizer::Llama3),
    ("llama3", PreTokenizer::Llama3),
    ("llama-v3", PreTokenizer::Llama3),
    ("falcon3", PreTokenizer::Llama3),
    ("falcon-h1", PreTokenizer::Llama3),
    ("pixtral", PreTokenizer::Llama3),
    ("lfm2", PreTokenizer::Llama3),
    ("dbrx", PreTokenizer::Llama3),
    ("smaug-bpe", PreTokenizer::Llama3),
    ("qwen2", PreTokenizer::Qwen2),
    ("deepseek-r1-qwen", PreTokenizer::Qwen2),
    ("stablelm2", PreTokenizer::Qwen2),
    ("hunyuan", PreTokenizer::Qwen2),
    ("megrez", PreTokenizer::Qwen2),
    ("solar-open", PreTokenizer::Qwen2),
];

impl Named {
    /// Looks up `tokenizer.ggml.pre`; no name at all means `default`, as in llama.cpp.
    pub(super) fn find(name: Option<&str>) -> Option<Self> {
        let name = name.unwrap_or("default");
        let pre = NAMES.iter().find(|(known, _)| *known == name)?.1;
        // These two share Llama 3's pattern but not its other habits.
        let llama3 = pre == PreTokenizer::Llama3 && !matches!(name, "dbrx" | "smaug-bpe");
        Some(Self { pre, whole_words: llama3, add_bos: llama3 })
    }

    /// All known names, for an error message.
    pub(super) fn known() -> String {
        NAMES.map(|(name, _)| name).join(", ")
    }
}

impl PreTokenizer {
    /// Calls `word` with each word of `text` in order.
    pub(super) fn split<'t>(self, text: &'t str, word: &mut impl FnMut(&'t str)) {
        match self {
            Self::Gpt2 => GPT2.split(text, word),
            Self::Llama3 => LLAMA3.split(text, word),
            Self::Qwen2 => QWEN2.split(text, word),
            Self::Smollm => cut(&DIGIT, text, &mut |part, digit| {
                if digit { word(part) } else { GPT2.split(part, word) }
            }),
            Self::Default => cut(&PUNCTUATION, text, &mut |part, _| {
                GPT2.split(part, &mut |part| {
                    cut(&NUMBERS, part, &mut |part, _| cut(&THREE_DIGITS, part, &mut |part, _| word(part)));
                });
            }),
        }
    }
}

/// Calls `part` with every match of `regex` and with every gap between matches, in order.
fn cut<'t>(regex: &Regex, text: &'t str, part: &mut impl FnMut(&'t str, bool)) {
    let mut at = 0;
    for found in regex.find_iter(text) {
        if at < found.start() {
            part(&text[at..found.start()], false);
        }
        part(found.as_str(), true);
        at = found.end();
    }
    if at < text.len() {
        part(&text[at..], false);
    }
}

/// A word pattern that ends in `\s+` and gives back one character of a run of white space.
struct Words {
    regex: Regex,
    /// A run of white space up to a line end is a word of its own and gives nothing back.
    line_ends: bool,
}

impl Words {
    fn new(source: &str, line_ends: bool) -> Self {
        Self { regex: pattern(source), line_ends }
    }

    fn split<'t>(&self, text: &'t str, word: &mut impl FnMut(&'t str)) {
        let mut at = 0;
        while let Some(found) = self.regex.find_at(text, at) {
            if at < found.start() {
                word(&text[at..found.start()]);
            }
            let end = found.end() - self.given_back(found.as_str(), found.end() == text.len());
            word(&text[found.start()..end]);
            at = end;
        }
        if at < text.len() {
            word(&text[at..]);
        }
    }

    /// Bytes of the last character of a white-space run with more than one character and a word behind it.
    fn given_back(&self, run: &str, at_end: bool) -> usize {
        let Some(last) = run.chars().next_back().filter(|c| c.is_whitespace()) else { return 0 };
        let kept = at_end || run.len() == last.len_utf8() || (self.line_ends && matches!(last, '\r' | '\n'));
        if kept || !run.chars().all(char::is_whitespace) { 0 } else { last.len_utf8() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(pre: PreTokenizer, text: &str) -> Vec<&str> {
        let mut words = Vec::new();
        pre.split(text, &mut |word| words.push(word));
        words
    }

    #[test]
    fn gpt2_keeps_the_space_before_a_word_with_it() {
        assert_eq!(
            words(PreTokenizer::Gpt2, "It's  3333+777?\n\n x"),
            ["It", "'s", " ", " 3333", "+", "777", "?", "\n\n", " x"]
        );
        assert_eq!(words(PreTokenizer::Gpt2, "a \n"), ["a", " \n"]);
    }

    #[test]
    fn smollm_isolates_digits() {
        assert_eq!(words(PreTokenizer::Smollm, "is 33+7"), ["is", " ", "3", "3", "+", "7"]);
    }

    #[test]
    fn llama3_takes_three_digits_and_line_ends_with_their_white_space() {
        assert_eq!(
            words(PreTokenizer::Llama3, "I'LL pay 12345!!\n  \n  now"),
            ["I", "'LL", " pay", " ", "123", "45", "!!\n", "  \n", " ", " now"]
        );
        assert_eq!(words(PreTokenizer::Qwen2, "x=12"), ["x", "=", "1", "2"]);
    }

    #[test]
    fn default_splits_punctuation_and_threes() {
        assert_eq!(words(PreTokenizer::Default, "a.b 12345"), ["a", ".", "b", " ", "123", "45"]);
    }

    #[test]
    fn unknown_names_are_unknown_and_no_name_is_default() {
        assert_eq!(Named::find(Some("nope")), None);
        assert_eq!(Named::find(None).map(|n| n.pre), Some(PreTokenizer::Default));
        assert!(Named::find(Some("llama-bpe")).is_some_and(|n| n.whole_words && n.add_bos));
        assert!(Named::find(Some("dbrx")).is_some_and(|n| !n.whole_words && !n.add_bos));
    }

    proptest! {
        #[test]
        fn words_joined_are_the_text(text in "[a-c'1²٣ \t\r\n.,日é\u{301}😀]{0,60}") {
            for pre in [PreTokenizer::Default, PreTokenizer::Gpt2, PreTokenizer::Smollm, PreTokenizer::Llama3, PreTokenizer::Qwen2] {
                prop_assert_eq!(words(pre, &text).concat(), text.clone());
            }
        }
    }

    /// The published pattern with its look-ahead, on the backtracking engine.
    fn published(pattern: &str, text: &str) -> Vec<String> {
        let regex = tokenizers::utils::SysRegex::new(pattern).unwrap();
        regex.find_iter(text).map(|(start, end)| text[start..end].to_string()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn cuts_equal_the_published_patterns(text in "[a-cSTL'12 \t\r\n.,日é\u{301}😀\u{a0}]{0,40}") {
            let gpt2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
            prop_assert_eq!(words(PreTokenizer::Gpt2, &text), published(gpt2, &text));
            let llama3 = newer(r"\p{N}{1,3}").replace(r"|\s+", r"|\s+(?!\S)|\s+");
            prop_assert_eq!(words(PreTokenizer::Llama3, &text), published(&llama3, &text));
        }
    }
}

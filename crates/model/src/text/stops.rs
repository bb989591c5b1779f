//! Stop strings over streamed text, wherever the token borders fall.
//!
//! Text is held back only while it could be the beginning of a stop string. The match that *ends* first wins,
//! and of two that end together the one that starts first, so the result depends on the text alone and never
//! on how it was cut into pieces.
//!
//! Invariant: nothing of a matched stop string is ever emitted, and everything before it always is.
//! Not here: end-of-generation tokens and length limits (`pilotfish-engine`).

/// A stop string of length zero, which would stop every answer before its first character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stop string number {index} is empty")]
pub struct EmptyStop {
    /// Position in the list given, from 0.
    pub index: usize,
}

/// What one piece of text led to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StopStep {
    /// Text that may be shown now.
    pub text: String,
    /// Index of the stop string that matched, if one did; the stream is over then.
    pub stop: Option<usize>,
}

/// Watches streamed text for any of several stop strings.
#[derive(Debug, Clone, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
    stopped: Option<usize>,
}

impl StopStrings {
    /// Watches for `stops`; an empty list lets all text through.
    ///
    /// # Errors
    /// [`EmptyStop`] when one of them is empty.
    pub fn new(stops: Vec<String>) -> Result<Self, EmptyStop> {
        match stops.iter().position(String::is_empty) {
            Some(index) => Err(EmptyStop { index }),
            None => Ok(Self { stops, held: String::new(), stopped: None }),
        }
    }

    /// Whether there is nothing to watch for.
    pub fn is_empty(&self) -> bool {
        self.stops.is_empty()
    }

    /// Takes the next text; after a match it returns the same match again and no text.
    pub fn push(&mut self, text: &str) -> StopStep {
        if self.stopped.is_some() {
            return StopStep { text: String::new(), stop: self.stopped };
        }
        self.held.push_str(text);
        if let Some((start, index)) = self.first_match() {
            self.stopped = Some(index);
            self.held.truncate(start);
            return StopStep { text: std::mem::take(&mut self.held), stop: self.stopped };
        }
        let kept = self.possible_beginning();
        let rest = self.held.split_off(self.held.len() - kept);
        StopStep { text: std::mem::replace(&mut self.held, rest), stop: None }
    }

    /// Ends the stream and releases what was held back, which no stop string can match any more.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Start and index of the match that ends first in the held text; ties go to the longest, then to the first listed.
    fn first_match(&self) -> Option<(usize, usize)> {
        let ends = self.stops.iter().enumerate().filter_map(|(index, stop)| {
            let start = self.held.find(stop.as_str())?;
            Some((start + stop.len(), start, index))
        });
        ends.min().map(|(_, start, index)| (start, index))
    }

    /// Length of the longest tail of the held text that is a proper beginning of some stop string.
    ///
    /// Such a tail starts with a stop string's first byte, so it starts on a character border.
    fn possible_beginning(&self) -> usize {
        let held = self.held.as_bytes();
        let longest = |stop: &String| {
            let stop = stop.as_bytes();
            let most = held.len().min(stop.len() - 1);
            (1..=most).rev().find(|&n| held[held.len() - n..] == stop[..n]).unwrap_or(0)
        };
        self.stops.iter().map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stops(list: &[&str]) -> StopStrings {
        StopStrings::new(list.iter().map(|s| s.to_string()).collect()).unwrap()
    }

    /// Everything emitted for `pieces`, and the stop that ended it.
    fn run(list: &[&str], pieces: &[&str]) -> (String, Option<usize>) {
        let mut watcher = stops(list);
        let mut out = String::new();
        for piece in pieces {
            let step = watcher.push(piece);
            out.push_str(&step.text);
            if step.stop.is_some() {
                return (out, step.stop);
            }
        }
        out.push_str(&watcher.finish());
        (out, None)
    }

    /// The same from the whole text at once, by trying every end in order.
    fn naive(list: &[&str], text: &str) -> (String, Option<usize>) {
        for end in 1..=text.len() {
            let starts =
                list.iter().enumerate().filter(|(_, s)| text.as_bytes()[..end].ends_with(s.as_bytes()));
            if let Some((index, stop)) = starts.max_by_key(|(i, s)| (s.len(), usize::MAX - i)) {
                return (text[..end - stop.len()].to_string(), Some(index));
            }
        }
        (text.to_string(), None)
    }

    #[test]
    fn a_stop_string_across_token_borders_is_never_shown() {
        assert_eq!(run(&["DEFGHIJ"], &["ABC", "DEF", "GH", "I", "J", "K"]), ("ABC".into(), Some(0)));
    }

    #[test]
    fn a_beginning_that_does_not_match_is_released() {
        assert_eq!(run(&["DEFGHIJ"], &["ABC", "DEF", "GH", "X"]), ("ABCDEFGHX".into(), None));
        let mut watcher = stops(&["DEFGHIJ"]);
        assert_eq!(watcher.push("ABCDEF").text, "ABC");
        assert_eq!(watcher.push("GHX").text, "DEFGHX");
    }

    #[test]
    fn an_unfinished_beginning_is_released_at_the_end() {
        assert_eq!(run(&["<end>"], &["hi <", "en"]), ("hi <en".into(), None));
    }

    #[test]
    fn the_match_that_ends_first_wins_and_of_those_the_longest() {
        assert_eq!(run(&["abcd", "bc"], &["xabcd"]), ("xa".into(), Some(1)));
        assert_eq!(run(&["bc", "abc"], &["xa", "bc"]), ("x".into(), Some(1)));
        assert_eq!(run(&["bc", "bc"], &["abc"]), ("a".into(), Some(0)));
    }

    #[test]
    fn a_failed_beginning_that_hides_another_is_not_lost() {
        assert_eq!(run(&["aab"], &["a", "a", "a", "b", "c"]), ("a".into(), Some(0)));
        assert_eq!(run(&["日本語"], &["日日", "本", "語!"]), ("日".into(), Some(0)));
    }

    #[test]
    fn nothing_follows_a_match() {
        let mut watcher = stops(&["x"]);
        assert_eq!(watcher.push("ax"), StopStep { text: "a".into(), stop: Some(0) });
        assert_eq!(watcher.push("more"), StopStep { text: String::new(), stop: Some(0) });
        assert_eq!(watcher.finish(), "");
    }

    #[test]
    fn an_empty_stop_string_is_an_error_naming_its_place() {
        assert_eq!(StopStrings::new(vec!["a".into(), String::new()]).unwrap_err(), EmptyStop { index: 1 });
    }

    #[test]
    fn without_stop_strings_all_text_passes_at_once() {
        let mut watcher = stops(&[]);
        assert!(watcher.is_empty());
        assert_eq!(watcher.push("anything"), StopStep { text: "anything".into(), stop: None });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn cutting_the_text_elsewhere_changes_nothing(
            text in "[abé]{0,24}",
            list in prop::collection::vec("[abé]{1,4}", 0..4),
            cuts in prop::collection::vec(0usize..24, 0..6),
        ) {
            let list: Vec<&str> = list.iter().map(String::as_str).collect();
            let chars: Vec<char> = text.chars().collect();
            let mut borders: Vec<usize> = cuts.into_iter().map(|c| c.min(chars.len())).collect();
            borders.extend([0, chars.len()]);
            borders.sort_unstable();
            let pieces: Vec<String> =
                borders.windows(2).map(|w| chars[w[0]..w[1]].iter().collect()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            prop_assert_eq!(run(&list, &pieces), naive(&list, &text));
        }
    }
}

//! `run --show-drafts`: the answer in colours that tell who guessed each token.
//!
//! Invariant: without its escape codes, what is painted is the answer; a colour ends with the piece that began it.
//! Not here: who guessed what (the engine).

use std::io::IsTerminal;

use pilotfish::{RoundRecord, Source, Stats};

use crate::env;
use crate::output::note;

/// Paints the pieces of one answer.
pub(crate) struct Drafts {
    /// Who guessed each token of the answer so far: text may come later than its token.
    sources: Vec<Option<Source>>,
    colours: bool,
}

impl Drafts {
    /// Colours where stdout is a terminal that may have them; says so where it may not.
    pub(crate) fn new() -> Self {
        let why_not = if env::no_color() {
            Some("NO_COLOR is set")
        } else {
            (!std::io::stdout().is_terminal()).then_some("stdout is no terminal")
        };
        if let Some(why) = why_not {
            note!("note: --show-drafts shows no colours: {why}");
        }
        Self { sources: Vec::new(), colours: why_not.is_none() }
    }

    /// A round's text, painted.
    pub(crate) fn paint(&mut self, round: &RoundRecord) -> String {
        self.sources.extend(&round.sources);
        let pieces = round.pieces.iter();
        pieces
            .map(|piece| self.coloured(&piece.text, self.sources.get(piece.token).copied().flatten()))
            .collect()
    }

    /// Tells what the colours mean, with the counts of the answer.
    pub(crate) fn print_legend(&self, stats: &Stats) {
        // On stderr, which may go elsewhere than the answer.
        let colours = self.colours && std::io::stderr().is_terminal();
        note!("{}", Self { sources: Vec::new(), colours }.legend(stats));
    }

    fn legend(&self, stats: &Stats) -> String {
        let target = stats.tokens - stats.accepted;
        let mut line = format!("tokens by source: {target} by the model itself");
        for (source, count) in stats.by_source.iter() {
            let name = self.coloured(source.name(), Some(source));
            line += &format!(", {name} {} of {} drafted", count.accepted, count.drafted);
        }
        line
    }

    fn coloured(&self, text: &str, source: Option<Source>) -> String {
        match source.filter(|_| self.colours) {
            Some(source) => format!("\x1b[{}m{text}\x1b[0m", colour(source)),
            None => text.to_owned(),
        }
    }
}

/// The colour's number for a terminal: those that can be read on dark and light alike.
fn colour(source: Source) -> u8 {
    match source {
        Source::Ngram => 36,
        Source::Suffix => 32,
        Source::History => 33,
        Source::Model => 35,
        Source::Own => 34,
    }
}

#[cfg(test)]
mod tests {
    use pilotfish::{Engine, Event, GenerateOptions, LoadOptions};
    use pilotfish_model::Family;
    use pilotfish_model::testing::TinySpec;

    use super::*;

    /// The text without its colours, and how many there were.
    fn stripped(painted: &str) -> (String, usize) {
        let mut parts = painted.split("\x1b[");
        let mut text = parts.next().unwrap_or_default().to_owned();
        let mut codes = 0;
        for part in parts {
            let (code, rest) = part.split_once('m').expect("a code ends with m");
            assert!(code.parse::<u8>().is_ok(), "{part}");
            text += rest;
            codes += 1;
        }
        (text, codes)
    }

    #[test]
    fn painted_text_is_the_answer_in_colours() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        std::fs::write(&path, TinySpec::new(Family::Llama).gguf()).unwrap();
        let mut engine = Engine::load(&LoadOptions::new(path.to_str().unwrap())).unwrap();
        let options = GenerateOptions {
            max_tokens: Some(200),
            ignore_eos: true,
            rounds: true,
            stop: vec!["no such text".to_owned()],
            ..GenerateOptions::default()
        };
        for colours in [true, false] {
            let mut drafts = Drafts { sources: Vec::new(), colours };
            let (mut painted, mut text, mut stats) = (String::new(), String::new(), None);
            for event in engine.complete("ab ab ab ab", &options).unwrap() {
                match event.unwrap() {
                    Event::Round(round) => painted += &drafts.paint(&round),
                    Event::Text(piece) => text += &piece,
                    Event::Finished(summary) => stats = Some(summary.stats),
                    _ => {}
                }
            }
            let stats = stats.unwrap();
            let (plain, codes) = stripped(&painted);
            assert_eq!(plain, text);
            assert!(stats.accepted > 0, "{stats:?}");
            assert_eq!(codes > 0, colours, "{painted}");
            let (legend, _) = stripped(&drafts.legend(&stats));
            let own = stats.tokens - stats.accepted;
            assert!(
                legend.starts_with(&format!("tokens by source: {own} by the model itself, ")),
                "{legend}"
            );
            assert!(legend.contains("suffix ") || legend.contains("ngram "), "{legend}");
        }
    }
}

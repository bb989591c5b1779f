//! Drafts with a drafter of the program's own: a phrasebook of texts that answers often quote.
//!
//! The lookups that come along find what the prompt or an earlier reply holds. A program that knows which phrases its
//! users send every day can guess them the first time they are written.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example shows its answer")]

use pilotfish::drafting::{Accepted, DraftError, Drafter, Guess, Rows, Session, Source, TokenTree};
use pilotfish::{Engine, Event, GenerateOptions, LoadOptions, Message, Prompt, Summary};

/// What a help desk sends over and over; the question is about the first.
const TEXTS: [&str; 3] = [
    "Thank you for writing to us. We have received your message and will answer within two working days. Please keep \
     the number of your ticket, so that we can find your message again.",
    "To return an item, put it back into its box, print the label that came with this message, and bring the parcel to \
     any post office within thirty days.",
    "This message is for the person it is addressed to. If you are not that person, please delete it and tell us.",
];

/// Guesses that a text of the book is being quoted, once its words have been met.
struct Phrasebook {
    /// The texts as the target's token ids.
    texts: Vec<Vec<u32>>,
    /// Guesses that came true, and guesses that could: the probability is their ratio.
    right: f32,
    judged: f32,
}

impl Phrasebook {
    /// Fewest tokens that must agree: one or two are found in any text.
    const AGREE: usize = 3;

    fn new(engine: &Engine, texts: &[&str]) -> Result<Self, pilotfish::Error> {
        // `Raw` may put a begin token first. It is never the guess, because guesses come behind tokens that agree.
        let texts = texts.iter().map(|text| engine.tokenize(Prompt::Raw(text))).collect::<Result<_, _>>()?;
        // As if four guesses had been judged, so that the first draft promises something and later ones soon correct it.
        Ok(Self { texts, right: 3.0, judged: 4.0 })
    }

    /// What stands behind the longest stretch of a text that `tokens` end with. It is looked for afresh every time, so
    /// it does not matter how the session changed in between; a larger book would want an index.
    fn rest(&self, tokens: &[u32]) -> &[u32] {
        let ends =
            self.texts.iter().flat_map(|text| (Self::AGREE..text.len()).map(move |end| text.split_at(end)));
        let agree =
            |read: &[u32]| read.iter().rev().zip(tokens.iter().rev()).take_while(|(a, b)| a == b).count();
        let best = ends.map(|(read, rest)| (agree(read), rest)).max_by_key(|(length, _)| *length);
        best.filter(|(length, _)| *length >= Self::AGREE).map_or(&[], |(_, rest)| rest)
    }
}

impl Drafter for Phrasebook {
    fn name(&self) -> &str {
        "phrasebook"
    }

    fn default_max(&self) -> usize {
        16
    }

    fn propose(&mut self, session: &Session, limit: usize) -> Result<TokenTree, DraftError> {
        let probability = self.right / self.judged;
        let mut tree = TokenTree::root(session.last());
        let mut parent = 0;
        for &token in self.rest(session.tokens()).iter().take(limit) {
            parent = tree.push(parent, Guess { token, probability, source: Source::Own });
        }
        Ok(tree)
    }

    fn observe(&mut self, draft: &TokenTree, accepted: &Accepted, _: &Rows) {
        // The first wrong guess counts; those behind it were never tried.
        let right = accepted.accepted();
        self.right += right as f32;
        self.judged += draft.depth().min(right + 1) as f32;
    }
}

/// Asks for the first text, handing each piece of text to `show`.
fn answer(engine: &mut Engine, speculate: bool, show: impl Fn(&str)) -> Result<Summary, pilotfish::Error> {
    let options = GenerateOptions { max_tokens: Some(200), speculate, ..GenerateOptions::default() };
    let question = [Message::user(format!("Repeat this text:\n\n{}", TEXTS[0]))];
    let mut summary = None;
    for event in engine.chat(&question, &options)? {
        match event? {
            Event::Text(text) => show(&text),
            Event::Finished(finished) => summary = Some(*finished),
            _ => {}
        }
    }
    Ok(summary.expect("an answer that did not fail ends with a summary"))
}

fn main() -> Result<(), pilotfish::Error> {
    let model = std::env::args().nth(1).unwrap_or_else(|| "smollm2-135m".to_owned());
    let mut engine = Engine::load(&LoadOptions::new(model))?;
    let book = Phrasebook::new(&engine, &TEXTS)?;
    engine.set_drafter(Box::new(book));

    let drafted = answer(&mut engine, true, |text| print!("{text}"))?;
    println!();
    let plain = answer(&mut engine, false, |_| ())?;
    let count = drafted.stats.by_source.get(Source::Own);
    let verdict = if drafted.tokens == plain.tokens { "equal" } else { "NOT equal" };
    eprintln!(
        "{} guesses verified, {} accepted; ids {verdict} to the plain answer's",
        count.drafted, count.accepted
    );
    Ok(())
}

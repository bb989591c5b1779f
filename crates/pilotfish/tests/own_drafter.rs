//! A drafter that was not there at load: it is asked, and changes no token.
#![allow(clippy::unwrap_used, reason = "a panic is the test's failure")]

use pilotfish::drafting::{DraftError, Drafter, Guess, Session, Source, TokenTree};
use pilotfish::{DrafterChoice, Engine, Event, GenerateOptions, LoadOptions, Prompt, Summary};
use pilotfish_model::Family;
use pilotfish_model::testing::TinySpec;

/// Knows the reply.
struct Oracle(Vec<u32>);

impl Drafter for Oracle {
    fn name(&self) -> &str {
        "oracle"
    }

    fn default_max(&self) -> usize {
        4
    }

    fn propose(&mut self, session: &Session, limit: usize) -> Result<TokenTree, DraftError> {
        let mut tree = TokenTree::root(session.last());
        let mut at = 0;
        for &token in self.0.iter().skip(session.reply().len()).take(limit) {
            at = tree.push(at, Guess { token, probability: 0.9, source: Source::Own });
        }
        Ok(tree)
    }
}

fn answer(engine: &mut Engine) -> Summary {
    let options = GenerateOptions { max_tokens: Some(24), ignore_eos: true, ..GenerateOptions::default() };
    let summary =
        engine.generate(Prompt::Raw("abc"), &options).unwrap().find_map(|event| match event.unwrap() {
            Event::Finished(summary) => Some(*summary),
            _ => None,
        });
    summary.unwrap()
}

#[test]
fn a_drafter_of_ones_own_is_asked_and_changes_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, TinySpec::new(Family::Llama).gguf()).unwrap();
    let mut options = LoadOptions::new(path.to_str().unwrap());
    options.drafter = DrafterChoice::None;
    options.parking = false;
    let mut engine = Engine::load(&options).unwrap();
    let plain = answer(&mut engine);
    assert_eq!(plain.stats.drafted, 0);
    for (oracle, right) in [(plain.tokens.clone(), true), (vec![3; 24], false)] {
        engine.set_drafter(Box::new(Oracle(oracle)));
        let own = answer(&mut engine);
        assert_eq!(engine.drafter(), "oracle");
        assert_eq!(own.tokens, plain.tokens);
        let count = own.stats.by_source.get(Source::Own);
        assert!(count.drafted > 0 && (count.accepted == count.drafted) == right, "{count:?}");
    }
}

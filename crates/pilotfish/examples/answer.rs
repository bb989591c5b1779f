//! Answers one question with a model of the catalog, which is fetched the first time.

use pilotfish::{Engine, Event, GenerateOptions, LoadOptions, Message};

fn main() -> Result<(), pilotfish::Error> {
    let mut engine = Engine::load(&LoadOptions::new("smollm2-135m"))?;
    let question = [Message::user("Explain how a CPU cache works.")];
    for event in engine.chat(&question, &GenerateOptions::default())? {
        match event? {
            Event::Text(text) => eprint!("{text}"),
            Event::Finished(summary) => eprintln!("\n[{} tokens]", summary.tokens.len()),
            _ => {}
        }
    }
    Ok(())
}

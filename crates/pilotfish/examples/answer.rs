//! Answers one question with a model of the catalog, which is fetched the first time.

#![allow(clippy::print_stdout, reason = "an example shows its answer")]

use pilotfish::{Engine, Event, GenerateOptions, LoadOptions, Message};

fn main() -> Result<(), pilotfish::Error> {
    let mut engine = Engine::load(&LoadOptions::new("smollm2-135m"))?;
    let question = [Message::user("Explain how a CPU cache works.")];
    for event in engine.chat(&question, &GenerateOptions::default())? {
        match event? {
            Event::Text(text) => print!("{text}"),
            Event::Finished(summary) => println!("\n[{} tokens]", summary.tokens.len()),
            _ => {}
        }
    }
    Ok(())
}

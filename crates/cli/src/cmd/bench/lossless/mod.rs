//! `bench --lossless`: the promise of the same tokens, tried over drafters, lengths, threads and samplings.
//!
//! Each case is one reply, made plainly on one engine and speculatively on another that is loaded anew for each set of
//! settings. After each set the record is written, so that a run that was stopped goes on where it was.
//!
//! Invariant: every reply that was made is compared whole; a token that differs makes the command fail, now and later.
//! Not here: which cases there are (`cases`), what is kept of them (`record`).

mod cases;
mod record;

use std::collections::HashMap;
use std::path::Path;

use pilotfish::{
    Catalog, DrafterChoice, Engine, Env, Event, GenerateOptions, LoadOptions, Message, Prompt, Summary,
};
use pilotfish_measure::machine::Host;
use pilotfish_measure::record::{Drafter, Model, write_atomic};

use crate::cmd::run::load_engine;
use crate::exit::{Outcome, interrupted};
use crate::interrupt::{self, Listening};
use crate::output::{self, note};
use crate::progress::Downloads;
use cases::{Case, REPLIES, case};
use record::{Lossless, Run};

/// What to compare.
pub(super) struct Asked<'a> {
    /// Goes on until the record holds as many tokens.
    pub(super) tokens: u64,
    /// Most tokens of one reply.
    pub(super) predict: usize,
    pub(super) out: Option<&'a Path>,
    pub(super) json: bool,
    pub(super) verbose: bool,
}

/// Runs cases until the record is full.
///
/// # Errors
/// What the engine says, a record that does not fit or cannot be written, or token ids that differ.
pub(super) fn run(load: &LoadOptions, asked: &Asked<'_>) -> anyhow::Result<Outcome> {
    let load = LoadOptions { past_replies: true, ..load.clone() };
    let plain_load = LoadOptions { drafter: DrafterChoice::None, draft_model: None, ..load.clone() };
    let mut plain = load_engine(&plain_load, asked.verbose)?;
    let threads = plain.lane_info().threads;
    let listening = interrupt::listen();
    let mut record = begin(&plain, &load, asked, &listening)?;
    let mut greedy: HashMap<String, Vec<u32>> = HashMap::new();
    while record.tokens < asked.tokens {
        let Case { setup, .. } = case(record.next_case, threads, load.draft_model.is_some());
        let mut speculating = load.clone();
        speculating.drafter = setup.drafter;
        speculating.draft_max = setup.draft_max;
        speculating.parking = setup.parking;
        speculating.cpu.threads = Some(setup.threads);
        if !matches!(setup.drafter, DrafterChoice::Auto | DrafterChoice::Model) {
            speculating.draft_model = None;
        }
        speculating.pipeline = setup.pipeline;
        let mut engine = load_engine(&speculating, false)?;
        loop {
            let case = case(record.next_case, threads, load.draft_model.is_some());
            compare(&case, (&mut plain, &mut engine), asked.predict, &listening, (&mut record, &mut greedy))?;
            if record.next_case % REPLIES == 0 || record.tokens >= asked.tokens {
                break;
            }
        }
        if let Some(out) = asked.out {
            write(out, &record)?;
        }
        note!("{} of {} tokens, {} differ", record.tokens, asked.tokens, record.differing);
    }
    output::text(&if asked.json { record.to_json()? } else { record.shown() })?;
    if record.differing > 0 {
        anyhow::bail!("{} token ids differ; please report this", record.differing);
    }
    Ok(Outcome::Done)
}

/// The record to add to.
fn begin(
    plain: &Engine,
    load: &LoadOptions,
    asked: &Asked<'_>,
    listening: &Listening,
) -> anyhow::Result<Lossless> {
    let catalog = Catalog::new(Env::from_process()).map_err(pilotfish::Error::from)?;
    let downloads = Downloads::new(listening);
    let sha256 = |path: &Path| catalog.sha256(path, &downloads).map_err(pilotfish::Error::from);
    let file = plain.file();
    let model = Model { name: file.name.clone(), sha256: sha256(&file.path)?, bytes: file.bytes };
    let draft = match &load.draft_model {
        None => None,
        Some(_) => {
            let with_draft =
                load_engine(&LoadOptions { drafter: DrafterChoice::Model, ..load.clone() }, false)?;
            let file = with_draft.draft_file();
            let named = |file: &pilotfish::LocalModel| -> anyhow::Result<Drafter> {
                Ok(Drafter { name: file.name.clone(), sha256: Some(sha256(&file.path)?) })
            };
            file.map(named).transpose()?
        }
    };
    let fresh = Lossless::new(model, draft, &plain.lane_info().numerics_id, asked.predict);
    let mut record = match asked.out {
        Some(out) => fresh.or_continue(out)?,
        None => fresh,
    };
    record.runs.push(Run {
        commit: option_env!("PILOTFISH_COMMIT").map(str::to_owned),
        dirty: option_env!("PILOTFISH_DIRTY").map(|dirty| dirty == "true"),
        cpu: Host::detect().cpu,
        kernels: load.cpu.kernels.name().to_owned(),
        tokens: 0,
    });
    Ok(record)
}

/// Makes one reply both ways and adds it to the record.
fn compare(
    case: &Case,
    (plain, engine): (&mut Engine, &mut Engine),
    predict: usize,
    listening: &Listening,
    (record, greedy): (&mut Lossless, &mut HashMap<String, Vec<u32>>),
) -> anyhow::Result<()> {
    let options = GenerateOptions {
        max_tokens: Some(predict),
        sampling: case.sampling.clone(),
        cancel: listening.flag(),
        rounds: true,
        ..GenerateOptions::default()
    };
    let known = greedy.get(&case.prompt).filter(|_| case.sampling.is_plain_argmax()).cloned();
    let expected = match known {
        Some(tokens) => tokens,
        None => {
            let plainly = GenerateOptions { speculate: false, ..options.clone() };
            answer(plain, &case.prompt, &plainly, &mut |_, _, _| {})?.tokens
        }
    };
    let mut rounds = Vec::new();
    let mut count = |width, depth, accepted| rounds.push((width, depth, accepted));
    let reply = answer(engine, &case.prompt, &options, &mut count)?;
    if listening.stopped() {
        return Err(interrupted());
    }
    for &(_, depth, accepted) in &rounds {
        record.count_round(depth, accepted);
    }
    let trees = rounds.iter().filter(|(width, depth, _)| *width > depth + 1).count() as u64;
    record.add(case, &expected, &reply, trees);
    if case.sampling.is_plain_argmax() {
        greedy.insert(case.prompt.clone(), expected);
    }
    Ok(())
}

/// One reply; `round` hears the width, depth and accepted guesses of each of its rounds.
fn answer(
    engine: &mut Engine,
    prompt: &str,
    options: &GenerateOptions,
    round: &mut dyn FnMut(usize, usize, usize),
) -> anyhow::Result<Summary> {
    let messages = [Message::user(prompt)];
    let prompt = if engine.has_template() { Prompt::Chat(&messages) } else { Prompt::Raw(prompt) };
    for event in engine.generate(prompt, options)? {
        match event? {
            Event::Round(record) => {
                round(record.figures.width, record.figures.depth, record.figures.accepted);
            }
            Event::Finished(summary) => return Ok(*summary),
            _ => {}
        }
    }
    anyhow::bail!("a reply ended without an end; please report this")
}

fn write(out: &Path, record: &Lossless) -> anyhow::Result<()> {
    write_atomic(out, record.to_json()?.as_bytes())
        .map_err(|error| anyhow::anyhow!("cannot write `{}`: {error}", out.display()))
}

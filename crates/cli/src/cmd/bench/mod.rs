//! `bench`: seven prompts, plain and speculative in turns, whether they agree, and what a pass costs.
//!
//! Invariant: a figure that was not measured is null; a speculative run whose ids differ makes the command fail.
//! Not here: the record's fields (`pilotfish_measure::record`), the statistics (`pilotfish_measure::stats`).

mod curve;
mod lossless;
mod pairs;
mod prompts;
mod shown;

use std::path::PathBuf;

use clap::Args;
use pilotfish::{
    Catalog, DrafterChoice, Engine, Env, Event, GenerateOptions, Message, Prompt, SamplingParams,
};
use pilotfish_measure::machine::Host;
use pilotfish_measure::record::{self, Record, SCHEMA};
use pilotfish_measure::stats::geometric_mean;

use crate::args::{DraftArgs, ModelArgs};
use crate::cmd::run::load_engine;
use crate::exit::{Outcome, interrupted, usage};
use crate::interrupt::{self, Listening};
use crate::numbers::whole;
use crate::output;
use crate::output::note;
use crate::progress::Downloads;
use crate::trace::Trace;
use pairs::{Measured, Meter};
use prompts::PROMPTS;

/// Flags of `bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Tokens to write for each prompt, or fewer where the model ends.
    #[arg(short = 'n', long, alias = "n-predict", value_name = "N", default_value_t = 256, value_parser = whole::<usize>, allow_negative_numbers = true)]
    predict: usize,
    /// Pairs of a plain and a speculative run for each prompt.
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = whole::<usize>, allow_negative_numbers = true)]
    repetitions: usize,
    /// Run only these prompts. Repeatable.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Run no prompts: only the cost curve, over more widths and contexts.
    #[arg(long, conflicts_with = "only")]
    curve: bool,
    /// Time nothing: compare speculative with plain replies over all settings until N tokens are compared. With
    /// --out, an earlier record is continued.
    #[arg(long, value_name = "N", value_parser = whole::<u64>, allow_negative_numbers = true, conflicts_with_all = ["only", "curve", "repetitions"])]
    lossless: Option<u64>,
    /// Write the record to a file, whole or not at all.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the record instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    draft: DraftArgs,
}

/// Tokens written before anything is timed, to fill caches and start threads.
const WARM_UP: usize = 8;

/// Runs the command.
///
/// # Errors
/// A wrong flag, what the engine says, token ids that differ, or a record that cannot be written.
pub(crate) fn run(args: &BenchArgs, verbose: bool) -> anyhow::Result<Outcome> {
    let prompts = if args.curve { Vec::new() } else { chosen(&args.only)? };
    if args.predict == 0 || args.repetitions == 0 {
        return Err(usage("-n and -r must be 1 or more"));
    }
    if let Some(out) = &args.out {
        check_folder(out)?;
    }
    let mut load = args.model.load_options()?;
    args.draft.apply_to_load(&mut load)?;
    // Every prompt is answered several times: the first answer would give all others away.
    if load.history.is_some() {
        return Err(usage(
            "--spec-history has no meaning here: bench asks the same again and looks nothing up",
        ));
    }
    if let Some(tokens) = args.lossless {
        if let Some(flag) = args.draft.varied_by_lossless() {
            return Err(usage(format!(
                "{flag} has no meaning with --lossless, which goes through all settings"
            )));
        }
        let (predict, out) = (args.predict, args.out.as_deref());
        return lossless::run(&load, &lossless::Asked { tokens, predict, out, json: args.json, verbose });
    }
    load.past_replies = false;
    if args.curve {
        if args.draft.trace.is_some() {
            return Err(usage("--trace has no meaning with --curve, which answers no prompts"));
        }
        if load.draft_model.is_some() {
            return Err(usage("--curve measures the target alone; drop -md"));
        }
        load.drafter = DrafterChoice::None;
    }
    let mut trace = args.draft.open_trace(args.out.as_deref())?;
    let mut engine = load_engine(&load, verbose)?;
    trace.begin(&engine);
    let listening = interrupt::listen();
    let (record, ratios) = measure(args, &mut engine, &prompts, &listening, load.drafter, &mut trace)?;
    // Minutes of measuring are shown even when they cannot be written, and written even when nobody reads them.
    let written = args.out.as_ref().map_or(Ok(()), |out| record.write(out));
    output::text(&if args.json { record.to_json()? } else { shown::table(&record, &ratios, &prompts) })?;
    written?;
    let differ: Vec<&str> =
        record.prompts.iter().filter(|p| p.lossless == Some(false)).map(|p| p.name.as_str()).collect();
    if !differ.is_empty() {
        anyhow::bail!("token ids differ between runs of: {}; please report this", differ.join(", "));
    }
    Ok(trace.end(Outcome::Done))
}

fn measure(
    args: &BenchArgs,
    engine: &mut Engine,
    prompts: &[(&'static str, &'static str)],
    listening: &Listening,
    drafter: DrafterChoice,
    trace: &mut Trace,
) -> anyhow::Result<(Record, Vec<Option<f64>>)> {
    let options = GenerateOptions {
        max_tokens: Some(args.predict),
        // Greedy text is equal token by token in both modes; a sampled one would be in one of them only.
        sampling: SamplingParams::greedy(),
        spec_sampling: args.draft.spec_sampling(),
        cancel: listening.flag(),
        ..GenerateOptions::default()
    };
    warm_up(engine, PROMPTS[0].1, &options)?;
    let options = GenerateOptions { rounds: trace.is_on(), ..options };
    let mut meter = Meter::new();
    let mut measured: Vec<Measured> = Vec::new();
    for (i, (name, text)) in prompts.iter().enumerate() {
        note!("{name} ({} of {})", i + 1, prompts.len());
        measured.push(pairs::measure(engine, (*name, *text), &options, args.repetitions, &mut meter, trace)?);
    }
    note!("cost curve");
    let text = engine.tokenize(Prompt::Raw(&PROMPTS.map(|(_, text)| text).join("\n")))?;
    let grid = if args.curve { curve::ALONE } else { curve::BESIDE };
    let Some((curve, roofline)) = curve::measure(engine, &text, grid, &|| listening.stopped())? else {
        return Err(interrupted());
    };
    let roofline = record::Roofline {
        bytes_per_second: roofline.bytes_per_second,
        macs_per_second: roofline.macs_per_second,
    };
    let catalog = Catalog::new(Env::from_process()).map_err(pilotfish::Error::from)?;
    let downloads = Downloads::new(listening);
    let sha256 = |path: &std::path::Path| catalog.sha256(path, &downloads).map_err(pilotfish::Error::from);
    let file = engine.file();
    let model = record::Model { name: file.name.clone(), sha256: sha256(&file.path)?, bytes: file.bytes };
    let drafter = match (drafter, engine.draft_file()) {
        (DrafterChoice::None, _) => None,
        (_, Some(file)) => {
            // `model` is a member's name; which model, only the file tells.
            let name = engine.drafter().replace("model", &file.name);
            Some(record::Drafter { name, sha256: Some(sha256(&file.path)?) })
        }
        (_, None) => Some(record::Drafter { name: engine.drafter().to_owned(), sha256: None }),
    };
    let info = engine.lane_info();
    let ratios: Vec<Option<f64>> = measured.iter().map(|m| m.ratio).collect();
    let record = Record {
        schema: SCHEMA.to_owned(),
        command: command(std::env::args_os().skip(1)),
        machine: record::Machine::new(&Host::detect(), info.threads, None),
        commit: option_env!("PILOTFISH_COMMIT").map(str::to_owned),
        dirty: option_env!("PILOTFISH_DIRTY").map(|dirty| dirty == "true"),
        numerics_id: info.numerics_id.clone(),
        model,
        drafter,
        lane: info.name.clone(),
        context: info.context,
        mean: mean(&measured),
        roofline: Some(roofline),
        prompts: measured.into_iter().map(|m| m.entry).collect(),
        curve,
        energy: meter.energy(),
    };
    Ok((record, ratios))
}

/// The command that repeats this run.
fn command(arguments: impl Iterator<Item = std::ffi::OsString>) -> String {
    let words = arguments.map(|word| word.to_string_lossy().into_owned());
    std::iter::once("pilotfish".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

fn warm_up(engine: &mut Engine, text: &str, options: &GenerateOptions) -> anyhow::Result<()> {
    let options = GenerateOptions { max_tokens: Some(WARM_UP), ..options.clone() };
    let messages = [Message::user(text)];
    let prompt = if engine.has_template() { Prompt::Chat(&messages) } else { Prompt::Raw(text) };
    for event in engine.generate(prompt, &options)? {
        if let Event::Finished(_) = event? {
            break;
        }
    }
    Ok(())
}

fn mean(measured: &[Measured]) -> Option<record::Mean> {
    let all = |figure: &dyn Fn(&Measured) -> Option<f64>| -> Option<f64> {
        geometric_mean(&measured.iter().map(figure).collect::<Option<Vec<_>>>()?)
    };
    Some(record::Mean {
        plain_tok_s: all(&|m| Some(m.entry.plain_tok_s))?,
        spec_tok_s: all(&|m| m.entry.spec_tok_s),
        ratio: all(&|m| m.ratio),
        tau: all(&|m| m.entry.tau),
    })
}

fn chosen(only: &[String]) -> anyhow::Result<Vec<(&'static str, &'static str)>> {
    if let Some(unknown) = only.iter().find(|name| PROMPTS.iter().all(|(known, _)| known != name)) {
        let known = PROMPTS.map(|(name, _)| name).join(", ");
        return Err(usage(format!("there is no prompt `{unknown}`; there are {known}")));
    }
    Ok(PROMPTS.into_iter().filter(|(name, _)| only.is_empty() || only.iter().any(|o| o == name)).collect())
}

/// A folder that is not there should be told now, not after the measurement.
fn check_folder(out: &std::path::Path) -> anyhow::Result<()> {
    let folder = out.parent().filter(|p| !p.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => {
            anyhow::bail!("cannot write `{}`: there is no folder `{}`", out.display(), folder.display())
        }
        _ if out.is_dir() => anyhow::bail!("cannot write `{}`: it is a folder", out.display()),
        _ => Ok(Record::check_writable(out)?),
    }
}

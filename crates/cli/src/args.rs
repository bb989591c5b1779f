//! What can be written on the command line.
//!
//! One struct per group of flags, shared by the commands that take them; spelling follows llama.cpp.
//!
//! Invariant: turning a group into options of the library fails only with a usage error that names the flag.
//! Not here: llama.cpp's multi-letter short flags and removed flags (`argv`), doing anything (`cmd`).

use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use pilotfish::{
    CpuOptions, Device, DrafterChoice, FinishReason, GenerateOptions, KvType, LoadOptions, ModelRef,
    Pipelining, SamplingParams, SpecSampling,
};
use pilotfish_engine::sampling::SamplingError;
use pilotfish_tensor::Kernels;

use crate::cmd::{bench, chat, eval, inspect, models, pull, run, serve};
use crate::env;
use crate::exit::usage;
use crate::numbers::{number, threads, whole};
use crate::output::note;
use crate::trace::Trace;

/// Runs large language models with lossless speculative decoding.
#[derive(Debug, Parser)]
#[command(name = "pilotfish", version, arg_required_else_help = true, args_override_self = true, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Say more on stderr.
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 something failed, 2 a wrong flag or value, 130 stopped by Ctrl-C.
Results go to stdout, everything else to stderr. Environment: NO_COLOR, HF_HOME, HF_HUB_OFFLINE,
HF_TOKEN, XDG_CACHE_HOME, PILOTFISH_KERNELS, PILOTFISH_PIP, PILOTFISH_API_KEY.";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer one prompt and stream the answer.
    Run(run::RunArgs),
    /// Talk with a model in the terminal.
    Chat(chat::ChatArgs),
    /// Serve a model over HTTP, as OpenAI's and Anthropic's interfaces do, with a page to chat at /.
    Serve(serve::ServeArgs),
    /// Fetch models into the cache.
    Pull(pull::PullArgs),
    /// List known and fetched models, or remove fetched ones.
    Models(models::ModelsArgs),
    /// Show what a model file holds and what it needs.
    Inspect(inspect::InspectArgs),
    /// Measure seven prompts with and without speculation, and the cost of passes by width.
    Bench(bench::BenchArgs),
    /// Measure a model's quality.
    Eval(eval::EvalArgs),
}

/// The command line as clap knows it, with the help that differs between commands.
pub(crate) fn command() -> clap::Command {
    let ppl = |ppl: clap::Command| {
        ppl.mut_arg("ctx_size", |arg| {
            arg.help("Tokens of a chunk, which is read into an empty context [default: 512]")
        })
    };
    let serve = |serve: clap::Command| {
        let help = "Seed of requests that name none; -1 takes another one for each [default: -1]";
        serve.mut_arg("seed", |arg| arg.default_value("-1").hide_default_value(true).help(help))
    };
    let command = Cli::command().mut_subcommand("serve", serve);
    command.mut_subcommand("eval", |eval| eval.mut_subcommand("ppl", ppl))
}

/// Which model, and where it runs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Catalog name or path of a GGUF file [default: smollm2-135m].
    #[arg(short, long, value_name = "MODEL", conflicts_with = "hf_repo")]
    pub(crate) model: Option<String>,
    /// Model of the Hugging Face hub; also written -hf.
    #[arg(long, value_name = "USER/REPO[:QUANT]")]
    pub(crate) hf_repo: Option<String>,
    /// One file of that repository; also written -hff.
    #[arg(long, value_name = "FILE")]
    pub(crate) hf_file: Option<String>,
    /// Never use the network.
    #[arg(long)]
    pub(crate) offline: bool,
    /// Context in tokens [default: what the model was trained for, at most 8192].
    #[arg(short, long, value_name = "N", value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub(crate) ctx_size: Option<usize>,
    /// Worker threads, 1 to 512 [default: physical cores].
    #[arg(short, long, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub(crate) threads: Option<usize>,
    /// Where to run; also written -dev. Only cpu is built.
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub(crate) device: String,
    #[command(flatten)]
    pub(crate) kv: KvArgs,
    /// Kernel table, for tests and measurements.
    #[arg(long, value_name = "NAME", hide = true)]
    pub(crate) kernels: Option<String>,
}

/// How keys and values are kept.
#[derive(Args, Clone, Debug)]
pub(crate) struct KvArgs {
    /// How keys are kept: f16, or q8_0 in 56 % of its memory at a small loss; also written -ctk. The same as -ctv.
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = str::parse::<KvType>)]
    pub(crate) cache_type_k: KvType,
    /// How values are kept; also written -ctv. The same as -ctk.
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = str::parse::<KvType>)]
    pub(crate) cache_type_v: KvType,
}

impl KvArgs {
    /// How both are kept.
    ///
    /// # Errors
    /// A usage error when they differ.
    pub(crate) fn kv_type(&self) -> anyhow::Result<KvType> {
        let Self { cache_type_k: keys, cache_type_v: values } = *self;
        if keys != values {
            return Err(usage(format!(
                "-ctk is {keys} and -ctv is {values}: keys and values must be kept alike for now, so give both"
            )));
        }
        Ok(keys)
    }
}

/// Who guesses, and how far.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Speculation (never changes the text, but for --spec-sampling rejection)")]
pub(crate) struct DraftArgs {
    /// Whether to speculate [default: auto].
    #[arg(long, value_enum)]
    pub(crate) spec: Option<SpecName>,
    /// Who guesses the next tokens [default: auto].
    #[arg(long, value_enum)]
    pub(crate) drafter: Option<DrafterName>,
    /// Drafting model: catalog name or path; also written -md. It must share the model's vocabulary.
    #[arg(long, value_name = "MODEL", alias = "spec-draft-model")]
    pub(crate) model_draft: Option<String>,
    /// Trained head for the model: a folder with config.json and safetensors. It reads the model's hidden states.
    #[arg(long, value_name = "FILE|FOLDER")]
    pub(crate) head: Option<PathBuf>,
    /// Most guesses a round behind one another, or auto: what pays, by what passes cost here [default: auto].
    #[arg(long, value_name = "N", value_parser = draft_max, allow_negative_numbers = true)]
    pub(crate) spec_draft_n_max: Option<DraftMax>,
    /// The drafting model (-md) stops guessing below this probability [default: 0].
    #[arg(long, value_name = "P", value_parser = number, allow_negative_numbers = true)]
    pub(crate) spec_draft_p_min: Option<f32>,
    /// Keep answers in this file, as token ids, and look them up in later runs; for --drafter auto and suffix.
    #[arg(long, value_name = "FILE")]
    pub(crate) spec_history: Option<PathBuf>,
    /// Whether the drafting model (-md) works ahead while its guesses are verified [default: auto].
    #[arg(long, value_enum)]
    pub(crate) pipeline: Option<PipelineName>,
    /// Write what every round did to this file, one JSON object a line.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// How guesses are judged once --temp is above 0.
    #[arg(long, value_enum, default_value_t = SpecSamplingName::Coupled)]
    pub(crate) spec_sampling: SpecSamplingName,
}

/// Values of `--spec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpecName {
    /// Plain decoding.
    Off,
    /// Guesses are verified where that saves time.
    Auto,
    /// All guesses are verified, even where that loses: for tests and measurements.
    On,
}

/// Values of `--pipeline`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PipelineName {
    /// One after the other.
    Off,
    /// At once where the two do not slow each other: never on one device.
    Auto,
    /// At once, even where that loses: for tests and measurements.
    On,
}

/// Value of `--spec-draft-n-max`; none for `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DraftMax(Option<usize>);

fn draft_max(text: &str) -> Result<DraftMax, String> {
    if text == "auto" {
        return Ok(DraftMax(None));
    }
    whole::<usize>(text).map(|n| DraftMax(Some(n))).map_err(|error| format!("{error}, or auto"))
}

/// Names of `--spec-sampling`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpecSamplingName {
    /// The same text, token for token, with and without guesses.
    Coupled,
    /// A few more guesses of -md are right: another text, of the same law; the same again only with --spec on.
    Rejection,
}

/// Names of `--drafter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DrafterName {
    /// All lookups together; with -md or --head also the model or the head, where these have little to say.
    Auto,
    /// Plain decoding.
    None,
    /// What followed the same tokens last.
    Ngram,
    /// What followed the same tokens how often, in this text and in earlier answers.
    Suffix,
    /// Only the model of -md.
    Model,
    /// Only the head of --head.
    Head,
}

/// How tokens are chosen.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sampling (the filters act once --temp is above 0)")]
pub(crate) struct SamplingArgs {
    /// Temperature; 0 always takes the likeliest token.
    #[arg(
        long,
        alias = "temperature",
        value_name = "T",
        default_value_t = 0.0,
        value_parser = number,
        allow_negative_numbers = true
    )]
    pub(crate) temp: f32,
    /// Keep the K likeliest tokens; 0 keeps all.
    #[arg(long, value_name = "K", default_value_t = 40, value_parser = whole::<i32>, allow_negative_numbers = true)]
    pub(crate) top_k: i32,
    /// Keep the likeliest tokens that make up this probability.
    #[arg(long, value_name = "P", default_value_t = 0.95, value_parser = number, allow_negative_numbers = true)]
    pub(crate) top_p: f32,
    /// Keep tokens with at least this share of the likeliest one's probability.
    #[arg(long, value_name = "P", default_value_t = 0.05, value_parser = number, allow_negative_numbers = true)]
    pub(crate) min_p: f32,
    /// Divide the logits of recent tokens; 1 is off.
    #[arg(long, value_name = "R", default_value_t = 1.0, value_parser = number, allow_negative_numbers = true)]
    pub(crate) repeat_penalty: f32,
    /// Tokens the penalties look back over; -1 is all.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = whole::<i32>, allow_negative_numbers = true)]
    pub(crate) repeat_last_n: i32,
    /// Lower the logits of recent tokens by this much.
    #[arg(long, value_name = "A", default_value_t = 0.0, value_parser = number, allow_negative_numbers = true)]
    pub(crate) presence_penalty: f32,
    /// Lower the logits of recent tokens by this much for each occurrence.
    #[arg(long, value_name = "A", default_value_t = 0.0, value_parser = number, allow_negative_numbers = true)]
    pub(crate) frequency_penalty: f32,
    /// Add to one token's logit: ID+BIAS or ID-BIAS, as 29905-100. Repeatable.
    #[arg(long, value_name = "ID±BIAS")]
    pub(crate) logit_bias: Vec<String>,
    /// Seed of the random numbers; -1 takes one from the clock.
    #[arg(short, long, value_name = "N", default_value = "0", allow_negative_numbers = true)]
    pub(crate) seed: String,
}

/// When an answer ends.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Answer")]
pub(crate) struct ReplyArgs {
    /// Most tokens to write; -1 goes on until the model ends or the context is full [default: 1024].
    #[arg(short = 'n', long, alias = "n-predict", value_name = "N", value_parser = whole::<i64>, allow_negative_numbers = true)]
    pub(crate) predict: Option<i64>,
    /// End before this text. Repeatable.
    #[arg(short = 'r', long, alias = "reverse-prompt", value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) stop: Vec<String>,
    /// Write on past end tokens.
    #[arg(long)]
    pub(crate) ignore_eos: bool,
}

impl ModelArgs {
    /// The model asked for, or the default one.
    pub(crate) fn model_ref(&self) -> ModelRef {
        match (&self.model, &self.hf_repo) {
            (_, Some(repo)) => ModelRef::Hub { repo: repo.clone(), file: self.hf_file.clone() },
            (Some(model), None) => ModelRef::Named(model.clone()),
            (None, None) => ModelRef::Named(pilotfish::default_model().to_owned()),
        }
    }

    /// What to load, with drafting by lookup.
    ///
    /// # Errors
    /// A usage error for a device or kernel table that does not exist, or keys and values that are kept differently.
    pub(crate) fn load_options(&self) -> anyhow::Result<LoadOptions> {
        let kernels = match self.kernels.clone().or_else(env::kernels) {
            None => Kernels::best(),
            Some(name) => Kernels::named(&name).ok_or_else(|| {
                let known: Vec<_> = Kernels::available().iter().map(|kernels| kernels.name()).collect();
                usage(format!("this processor has no kernel table `{name}`; it has {}", known.join(", ")))
            })?,
        };
        // clap would waive this beside -m, which excludes the repository.
        if self.hf_file.is_some() && self.hf_repo.is_none() {
            return Err(usage("-hff names a file of a repository, so it needs --hf-repo (-hf)"));
        }
        Ok(LoadOptions {
            model: self.model_ref(),
            device: self.device.parse::<Device>()?,
            cpu: CpuOptions {
                threads: self.threads,
                context: self.ctx_size,
                kv_type: self.kv.kv_type()?,
                kernels,
                best_of_first: None,
                poison: None,
            },
            offline: self.offline,
            ..LoadOptions::new("")
        })
    }
}

impl DraftArgs {
    /// Adds the drafter to what is loaded.
    ///
    /// # Errors
    /// A usage error for a flag that the drafter would ignore.
    pub(crate) fn apply_to_load(&self, options: &mut LoadOptions) -> anyhow::Result<()> {
        let drafter = self.drafter.unwrap_or(DrafterName::Auto);
        if self.spec == Some(SpecName::Off) {
            if let Some(flag) = self.asked_by() {
                return Err(usage(format!("{flag} has no meaning with --spec off, which guesses nothing")));
            }
            options.drafter = DrafterChoice::None;
            return Ok(());
        }
        if self.spec == Some(SpecName::On) && drafter == DrafterName::None {
            return Err(usage("--spec on has no meaning with --drafter none, which guesses nothing"));
        }
        options.parking = self.spec != Some(SpecName::On);
        if let Some(flag) = self.shaped_by().filter(|_| drafter == DrafterName::None) {
            return Err(usage(format!("{flag} has no meaning with --drafter none, which guesses nothing")));
        }
        if self.spec_draft_p_min.is_some() && self.model_draft.is_none() {
            return Err(usage("--spec-draft-p-min is for a drafting model, so it needs -md"));
        }
        if self.pipeline == Some(PipelineName::On) && self.model_draft.is_none() {
            return Err(usage(
                "--pipeline on is for a drafting model, so it needs -md: lookups take no time",
            ));
        }
        if self.spec_history.is_some() && !matches!(drafter, DrafterName::Auto | DrafterName::Suffix) {
            return Err(usage(
                "--spec-history is for drafters that look at earlier answers: auto and suffix",
            ));
        }
        options.drafter = match drafter {
            DrafterName::Auto => DrafterChoice::Auto,
            DrafterName::None => DrafterChoice::None,
            DrafterName::Ngram => DrafterChoice::Ngram,
            DrafterName::Suffix => DrafterChoice::Suffix,
            DrafterName::Model => DrafterChoice::Model,
            DrafterName::Head => DrafterChoice::Head,
        };
        options.head = self.head.clone();
        options.draft_model = self.model_draft.clone().map(ModelRef::Named);
        options.draft_p_min = self.spec_draft_p_min.unwrap_or(0.0);
        options.draft_max = self.spec_draft_n_max.and_then(|DraftMax(n)| n);
        options.history = self.spec_history.clone();
        options.pipeline = match self.pipeline {
            Some(PipelineName::Off) => Pipelining::Off,
            Some(PipelineName::On) => Pipelining::On,
            None | Some(PipelineName::Auto) => Pipelining::Auto,
        };
        Ok(())
    }

    /// Opens the file of `--trace`, if there is one; `out` is the file of another flag.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub(crate) fn open_trace(&self, out: Option<&Path>) -> anyhow::Result<Trace> {
        let others = [("--spec-history", self.spec_history.as_deref()), ("--out", out)];
        Trace::open(self.trace.as_deref(), &others)
    }

    /// The flag by which somebody asked for guesses, if one was given.
    fn asked_by(&self) -> Option<&'static str> {
        let drafter = self.drafter.filter(|name| *name != DrafterName::None);
        let by_whom = self
            .model_draft
            .as_ref()
            .map(|_| "-md")
            .or(self.head.as_ref().map(|_| "--head"))
            .or(drafter.map(|_| "--drafter"));
        by_whom.or(self.shaped_by())
    }

    /// The flag of which `bench --lossless` tries every value itself, if one was given.
    pub(crate) fn varied_by_lossless(&self) -> Option<&'static str> {
        let flags = [
            ("--spec", self.spec.is_some()),
            ("--drafter", self.drafter.is_some()),
            ("--spec-draft-n-max", self.spec_draft_n_max.is_some()),
            ("--spec-sampling rejection", self.spec_sampling() == SpecSampling::Rejection),
            ("--trace", self.trace.is_some()),
            ("--pipeline", self.pipeline.is_some()),
        ];
        flags.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }

    /// The flag by which somebody said how guesses are made, if one was given.
    fn shaped_by(&self) -> Option<&'static str> {
        let flags = [
            ("--spec-draft-n-max", self.spec_draft_n_max.is_some()),
            ("--spec-draft-p-min", self.spec_draft_p_min.is_some()),
            ("--spec-history", self.spec_history.is_some()),
            ("--pipeline on", self.pipeline == Some(PipelineName::On)),
        ];
        flags.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }

    /// The library's mode.
    pub(crate) fn spec_sampling(&self) -> SpecSampling {
        match self.spec_sampling {
            SpecSamplingName::Coupled => SpecSampling::Coupled,
            SpecSamplingName::Rejection => SpecSampling::Rejection,
        }
    }
}

impl SamplingArgs {
    /// The library's parameters. Only biased ids are not checked: the vocabulary is known once the model is loaded.
    ///
    /// # Errors
    /// A usage error for a value out of range, or a malformed bias or seed.
    pub(crate) fn params(&self) -> anyhow::Result<SamplingParams> {
        let params = SamplingParams {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            repeat_last_n: self.repeat_last_n,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: self.logit_bias.iter().map(|text| logit_bias(text)).collect::<anyhow::Result<_>>()?,
            seed: seed(&self.seed)?,
        };
        params.validate(usize::MAX).map_err(sampling_error)?;
        Ok(params)
    }
}

/// A usage error that names the flag where the library names the parameter.
pub(crate) fn sampling_error(error: SamplingError) -> anyhow::Error {
    const FLAGS: [(&str, &str); 8] = [
        ("temperature", "--temp"),
        ("top_p", "--top-p"),
        ("min_p", "--min-p"),
        ("repeat_penalty", "--repeat-penalty"),
        ("repeat_last_n", "--repeat-last-n"),
        ("presence_penalty", "--presence-penalty"),
        ("frequency_penalty", "--frequency-penalty"),
        ("logit_bias", "--logit-bias"),
    ];
    let message = error.to_string();
    // Every message begins with the parameter's name.
    let named = FLAGS.iter().find_map(|(name, flag)| Some(format!("{flag}{}", message.strip_prefix(name)?)));
    usage(named.unwrap_or(message))
}

/// Tokens of an answer where `-n` does not say. llama.cpp goes on for ever, and small models, read greedily, repeat
/// themselves for as long.
const DEFAULT_PREDICT: usize = 1024;

impl ReplyArgs {
    /// Tells when an answer ended only because nobody said how long it may be.
    pub(crate) fn note_default_end(&self, finish: FinishReason) {
        if self.predict.is_none() && finish == FinishReason::MaxTokens {
            note!("note: stopped after {DEFAULT_PREDICT} tokens; -n -1 goes on until the model ends");
        }
    }

    /// Adds the limits to how a prompt is answered.
    ///
    /// # Errors
    /// A usage error for a count below -1 or an empty stop text.
    pub(crate) fn apply_to(&self, options: &mut GenerateOptions) -> anyhow::Result<()> {
        options.max_tokens = match self.predict {
            None => Some(DEFAULT_PREDICT),
            Some(-1) => None,
            Some(n) => Some(
                usize::try_from(n).map_err(|_| usage(format!("-n cannot be {n}; it is a count, or -1")))?,
            ),
        };
        if self.stop.iter().any(String::is_empty) {
            return Err(usage("--stop cannot be empty: every text holds the empty text"));
        }
        options.stop = self.stop.clone();
        options.ignore_eos = self.ignore_eos;
        Ok(())
    }
}

/// Reads `ID+BIAS` or `ID-BIAS`.
fn logit_bias(text: &str) -> anyhow::Result<(u32, f32)> {
    let malformed =
        || usage(format!("--logit-bias cannot be `{text}`; it is written ID+BIAS or ID-BIAS, as 29905-100"));
    let at = text.find(['+', '-']).ok_or_else(malformed)?;
    let id = text[..at].parse().map_err(|_| malformed())?;
    // A second sign is not part of the form, though a number could carry one.
    let value = &text[at + 1..];
    if value.starts_with(['+', '-']) {
        return Err(malformed());
    }
    let bias: f32 = value.parse().map_err(|_| malformed())?;
    Ok((id, if text.as_bytes()[at] == b'-' { -bias } else { bias }))
}

fn seed(text: &str) -> anyhow::Result<u64> {
    if text == "-1" {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        // Only 53 bits, so that the seed survives a trip through JSON.
        let seed = u64::try_from(now.as_nanos() & ((1 << 53) - 1)).unwrap_or(0);
        note!("seed: {seed}");
        return Ok(seed);
    }
    text.parse().map_err(|_| usage(format!("--seed cannot be `{text}`; it is a whole number from 0, or -1")))
}

/// Where a text comes from: an argument, a file, or stdin.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Prompt")]
pub(crate) struct PromptArgs {
    /// The prompt, or - to read it from stdin [default: stdin where that is no terminal].
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,
    /// The prompt, as llama.cpp spells it.
    #[arg(
        short,
        long = "prompt",
        value_name = "TEXT",
        conflicts_with = "prompt",
        allow_hyphen_values = true
    )]
    pub(crate) p: Option<String>,
    /// Read the prompt from a file; one line break at its end is dropped.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["prompt", "p"])]
    pub(crate) file: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn biases_are_read_in_llama_cpps_form() {
        assert_eq!(logit_bias("15043+1").unwrap(), (15043, 1.0));
        assert_eq!(logit_bias("15043-1.5").unwrap(), (15043, -1.5));
        assert_eq!(logit_bias("0-1e3").unwrap(), (0, -1000.0));
        for text in ["", "5", "+1", "-5+1", "5+", "5--1", "5+x", "x+1", "4294967296+1"] {
            assert!(logit_bias(text).unwrap_err().to_string().contains("ID+BIAS"), "{text}");
        }
    }

    #[test]
    fn seeds_are_whole_numbers() {
        assert_eq!(seed("18446744073709551615").unwrap(), u64::MAX);
        assert!(seed("-1").is_ok());
        for text in ["", "-2", "1.5", "x"] {
            assert!(seed(text).unwrap_err().to_string().contains("--seed"), "{text}");
        }
    }
}

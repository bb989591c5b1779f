//! `inspect`: what a model file holds, what it would need, and whether it can run.
//!
//! A sound file is shown even when its model cannot run here (an unknown architecture, say); then the reason is part
//! of the answer. A damaged file, or one whose model lacks a part, is an error.
//!
//! Invariant: the whole structure was checked before the first line is printed; weights are never read.
//! Not here: the checks (`pilotfish_model`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use pilotfish::{CatalogError, CpuOptions, DEFAULT_CONTEXT, Device, KvType, ModelRef, Quiet, find_model};
use pilotfish_model::text::{ChatTemplate, Tokenizer};
use pilotfish_model::{Gguf, Model, ModelError, Safetensors, Value};
use serde::Serialize;
use serde_json::{Map, json};

use crate::args::KvArgs;
use crate::exit::{Outcome, escape, usage};
use crate::numbers::whole;
use crate::output;
use crate::units::{bytes, count, table};

/// Flags of `inspect`.
#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    /// GGUF or safetensors file, or the catalog name of a fetched model.
    #[arg(value_name = "FILE|NAME")]
    file: String,
    /// Show long values and arrays whole.
    #[arg(long)]
    full: bool,
    /// List every tensor.
    #[arg(long)]
    tensors: bool,
    /// Context for which to work out the memory needed [default: the trained one, at most 8192].
    #[arg(short, long, value_name = "N", value_parser = whole::<usize>, allow_negative_numbers = true)]
    ctx_size: Option<usize>,
    #[command(flatten)]
    kv: KvArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The object of `inspect --json`.
#[derive(Serialize)]
struct Report {
    file: PathBuf,
    format: &'static str,
    version: Option<u32>,
    alignment: Option<u32>,
    bytes: u64,
    metadata: Map<String, serde_json::Value>,
    tensor_count: usize,
    parameters: u64,
    types: Vec<TypeShare>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensors: Option<Vec<Tensor>>,
    runs: Runs,
}

/// Tensors of one type together.
#[derive(Serialize)]
struct TypeShare {
    name: String,
    tensors: usize,
    elements: u64,
    bytes: u64,
}

/// One tensor; `shape` is in the file's order.
#[derive(Serialize)]
struct Tensor {
    name: String,
    shape: Vec<usize>,
    #[serde(rename = "type")]
    kind: String,
    bytes: u64,
}

/// Whether the model can run, and with how much memory.
#[derive(Serialize)]
struct Runs {
    possible: bool,
    reason: Option<String>,
    family: Option<&'static str>,
    trained_context: Option<usize>,
    context: Option<usize>,
    vocabulary: Option<usize>,
    chat_template: Option<bool>,
    /// Weights as they are packed in memory.
    weight_bytes: Option<u64>,
    kv_bytes: Option<u64>,
    /// Rope tables and the buffers of a pass.
    work_bytes: Option<u64>,
    /// The program and its tokenizer, estimated.
    text_bytes: Option<u64>,
    total_bytes: Option<u64>,
    /// The most while loading: pages of the file count until their weight is packed.
    loading_bytes: Option<u64>,
    bytes_per_pass: Option<u64>,
}

/// Runs the command.
///
/// # Errors
/// A model that is not on this machine, or a file that is damaged.
pub(crate) fn run(args: &InspectArgs) -> anyhow::Result<Outcome> {
    let kv_type = args.kv.kv_type()?;
    let path = local_path(&args.file)?;
    let report = if is_safetensors(&path) { safetensors(&path, args)? } else { gguf(&path, args, kv_type)? };
    if args.json {
        output::json(&report)?;
    } else {
        output::text(&shown(&report))?;
    }
    Ok(Outcome::Done)
}

/// Finds the file; looking at a model never fetches it.
fn local_path(name: &str) -> anyhow::Result<PathBuf> {
    match find_model(&ModelRef::Named(name.to_owned()), true, &Quiet) {
        Ok(local) => Ok(local.path),
        Err(pilotfish::Error::Catalog(CatalogError::Offline { name, argument })) => {
            anyhow::bail!("`{name}` is not on this machine; run `pilotfish pull {argument}` first")
        }
        Err(error) => Err(error.into()),
    }
}

fn is_safetensors(path: &Path) -> bool {
    let name = path.to_string_lossy().to_ascii_lowercase();
    name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")
}

fn gguf(path: &Path, args: &InspectArgs, kv_type: KvType) -> anyhow::Result<Report> {
    let file = Gguf::open(path)?;
    let tensors: Vec<Tensor> = file
        .tensors()
        .iter()
        .map(|info| Tensor {
            name: info.name.clone(),
            shape: info.dims.clone(),
            kind: info.block_type.name().to_owned(),
            bytes: info.n_bytes as u64,
        })
        .collect();
    let metadata = file.metadata().iter().map(|(key, value)| (key.to_owned(), json_value(value, args.full)));
    Ok(Report {
        file: path.to_owned(),
        format: "gguf",
        version: Some(file.version()),
        alignment: Some(file.alignment()),
        bytes: file.file_len(),
        metadata: metadata.collect(),
        tensor_count: tensors.len(),
        parameters: tensors.iter().map(Tensor::elements).sum(),
        types: shares(&tensors),
        tensors: args.tensors.then_some(tensors),
        runs: runs(file, args.ctx_size, kv_type)?,
    })
}

fn safetensors(path: &Path, args: &InspectArgs) -> anyhow::Result<Report> {
    let file = Safetensors::open(path)?;
    let tensors: Vec<Tensor> = file
        .tensors()
        .iter()
        .map(|tensor| Tensor {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
            kind: format!("{:?}", tensor.dtype),
            bytes: tensor.n_bytes() as u64,
        })
        .collect();
    let metadata = file.metadata().iter().map(|(key, value)| (key.clone(), json!(cut(value, args.full))));
    Ok(Report {
        file: path.to_owned(),
        format: "safetensors",
        version: None,
        alignment: None,
        bytes: std::fs::metadata(path).map_or(0, |m| m.len()),
        metadata: metadata.collect(),
        tensor_count: tensors.len(),
        parameters: tensors.iter().map(Tensor::elements).sum(),
        types: shares(&tensors),
        tensors: args.tensors.then_some(tensors),
        runs: Runs::impossible("only GGUF models can be run".to_owned()),
    })
}

impl Tensor {
    fn elements(&self) -> u64 {
        self.shape.iter().map(|&dim| dim as u64).product()
    }
}

impl Runs {
    fn impossible(reason: String) -> Self {
        Self {
            possible: false,
            reason: Some(reason),
            family: None,
            trained_context: None,
            context: None,
            vocabulary: None,
            chat_template: None,
            weight_bytes: None,
            kv_bytes: None,
            work_bytes: None,
            text_bytes: None,
            total_bytes: None,
            loading_bytes: None,
            bytes_per_pass: None,
        }
    }
}

fn runs(file: Gguf, context: Option<usize>, kv_type: KvType) -> anyhow::Result<Runs> {
    let checked: Result<(Model, bool), ModelError> = (|| {
        let model = Model::from_gguf(file)?;
        let tokenizer = Tokenizer::from_gguf(model.metadata())?;
        let template = ChatTemplate::from_gguf(model.metadata(), &tokenizer)?;
        Ok((model, template.is_some()))
    })();
    let (model, has_template) = match checked {
        Ok(checked) => checked,
        Err(error @ ModelError::Unsupported { .. }) => return Ok(Runs::impossible(error.to_string())),
        Err(damaged) => return Err(damaged.into()),
    };
    let config = model.config();
    let context = match context {
        None => config.context.min(DEFAULT_CONTEXT),
        Some(asked) if (1..=config.context).contains(&asked) => asked,
        Some(asked) => {
            return Err(usage(format!(
                "-c cannot be {asked}: the model was trained for 1 to {} tokens",
                config.context
            )));
        }
    };
    if let Err(error) = kv_type.check(&model) {
        return Ok(Runs::impossible(error.to_string()));
    }
    let cpu = CpuOptions { context: Some(context), kv_type, ..CpuOptions::default() };
    let memory = pilotfish::lanes::memory(Device::Cpu, &model, &cpu);
    let merges = model.metadata().strings("tokenizer.ggml.merges")?.map_or(0, |merges| merges.len());
    let text_bytes = text_bytes(config.vocab, merges);
    let total_bytes = memory.total().saturating_add(text_bytes);
    Ok(Runs {
        possible: true,
        reason: None,
        family: Some(config.family.name()),
        trained_context: Some(config.context),
        context: Some(context),
        vocabulary: Some(config.vocab),
        chat_template: Some(has_template),
        weight_bytes: Some(memory.weights),
        kv_bytes: Some(memory.kv),
        work_bytes: Some(memory.work),
        text_bytes: Some(text_bytes),
        total_bytes: Some(total_bytes),
        loading_bytes: Some(total_bytes.saturating_add(memory.loading)),
        bytes_per_pass: Some(model.bytes_per_pass()),
    })
}

/// About what the program takes with a tokenizer of so many tokens and merges: a fit to resident sizes measured with
/// vocabularies of 49,152 to 262,144 tokens.
fn text_bytes(tokens: usize, merges: usize) -> u64 {
    6_000_000 + 160 * tokens as u64 + 350 * merges as u64
}

fn shares(tensors: &[Tensor]) -> Vec<TypeShare> {
    let mut by_type: BTreeMap<&str, TypeShare> = BTreeMap::new();
    for tensor in tensors {
        let share = by_type.entry(&tensor.kind).or_insert_with(|| TypeShare {
            name: tensor.kind.clone(),
            tensors: 0,
            elements: 0,
            bytes: 0,
        });
        share.tensors += 1;
        share.elements += tensor.elements();
        share.bytes += tensor.bytes;
    }
    let mut shares: Vec<_> = by_type.into_values().collect();
    shares.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    shares
}

/// Longest text, and longest array, that is shown without `--full`.
const SHORT_TEXT: usize = 100;
const SHORT_ARRAY: usize = 8;

/// A value as JSON; long ones as a description unless `full`.
fn json_value(value: Value<'_>, full: bool) -> serde_json::Value {
    match value {
        Value::U8(v) => json!(v),
        Value::I8(v) => json!(v),
        Value::U16(v) => json!(v),
        Value::I16(v) => json!(v),
        Value::U32(v) => json!(v),
        Value::I32(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::I64(v) => json!(v),
        // As text first: widening 1e-5 would print digits that are not in the file. JSON has no NaN.
        Value::F32(v) => v
            .to_string()
            .parse::<f64>()
            .ok()
            .filter(|v| v.is_finite())
            .map_or_else(|| json!(v.to_string()), |v| json!(v)),
        Value::F64(v) if v.is_finite() => json!(v),
        Value::F64(v) => json!(v.to_string()),
        Value::Bool(v) => json!(v),
        Value::Str(v) => json!(cut(v, full)),
        Value::Array(array) if full || array.len() <= SHORT_ARRAY => {
            array.iter().map(|value| json_value(value, full)).collect()
        }
        Value::Array(_) => json!(value.to_string()),
    }
}

fn cut(text: &str, full: bool) -> String {
    let mut chars = text.chars();
    let mut short: String = chars.by_ref().take(SHORT_TEXT).collect();
    let rest = chars.count();
    if full || rest == 0 {
        return text.to_owned();
    }
    short += &format!("… ({rest} more characters)");
    short
}

fn shown(report: &Report) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out += &text;
        out.push('\n');
    };
    let version = report.version.map_or(String::new(), |v| format!(" v{v}"));
    let alignment = report.alignment.map_or(String::new(), |a| format!(", alignment {a}"));
    line(format!(
        "{}: {}{version}, {}{alignment}",
        report.file.display(),
        report.format,
        bytes(report.bytes)
    ));
    line(String::new());
    line(format!("metadata ({})", count(report.metadata.len(), "key")));
    for (key, value) in &report.metadata {
        let value = match value {
            serde_json::Value::String(text) => escape(text),
            other => other.to_string(),
        };
        line(format!("  {} = {value}", escape(key)));
    }
    line(String::new());
    line(format!("tensors ({}, {} parameters)", report.tensor_count, report.parameters));
    let rows: Vec<[String; 4]> = report
        .types
        .iter()
        .map(|t| [format!("  {}", t.name), t.tensors.to_string(), t.elements.to_string(), bytes(t.bytes)])
        .collect();
    line(table(&["  TYPE", "TENSORS", "ELEMENTS", "BYTES"].map(str::to_owned), &rows).trim_end().to_owned());
    if let Some(tensors) = &report.tensors {
        line(String::new());
        let rows: Vec<[String; 4]> = tensors
            .iter()
            .map(|t| {
                [format!("  {}", escape(&t.name)), t.kind.clone(), format!("{:?}", t.shape), bytes(t.bytes)]
            })
            .collect();
        line(table(&["  TENSOR", "TYPE", "SHAPE", "BYTES"].map(str::to_owned), &rows).trim_end().to_owned());
    }
    line(String::new());
    line(runs_line(&report.runs));
    out
}

fn runs_line(runs: &Runs) -> String {
    shown_runs(runs)
        .unwrap_or_else(|| format!("cannot run: {}", escape(runs.reason.as_deref().unwrap_or("unknown"))))
}

/// The lines for a model that can run; `None` for one that cannot.
fn shown_runs(runs: &Runs) -> Option<String> {
    let (family, trained, context) = (runs.family?, runs.trained_context?, runs.context?);
    let (total, loading) = (runs.total_bytes?, runs.loading_bytes?);
    let template = if runs.chat_template == Some(true) { "with" } else { "without" };
    let while_loading = if loading > total {
        format!("\nwhile loading up to {}, mapped pages of the file included", bytes(loading))
    } else {
        String::new()
    };
    Some(format!(
        "runs: family {family}, trained for {}, {template} chat template\n\
         memory at a context of {context}: weights {} + keys and values {} + buffers {} + program and tokenizer {} \
         = {}{while_loading}",
        count(trained, "token"),
        bytes(runs.weight_bytes?),
        bytes(runs.kv_bytes?),
        bytes(runs.work_bytes?),
        bytes(runs.text_bytes?),
        bytes(total)
    ))
}

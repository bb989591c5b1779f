//! The interfaces, one file each, and the pieces of JSON they share.
//!
//! Invariant: a reply's JSON is made here and nowhere else; parts that several interfaces have look alike in all.
//! Not here: waiting for replies (`stream`), errors (`error`).

pub(crate) mod anthropic;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod conversation;
pub(crate) mod input;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod responses;
pub(crate) mod tools;

use pilotfish::{FinishReason, Logprobs, RoundRecord, Source, SpeculationReport, Stats, Summary};
use pilotfish_model::text::Tokenizer;
use serde_json::{Map, Value, json};

use crate::ask::random;

/// Parameters whose meaning this server does not have, in any interface.
pub(crate) const UNSUPPORTED: &[(&str, &str)] = &[
    ("grammar", CONSTRAINED),
    ("json_schema", CONSTRAINED),
    ("guided_json", CONSTRAINED),
    ("guided_regex", CONSTRAINED),
    ("guided_choice", CONSTRAINED),
    ("guided_grammar", CONSTRAINED),
    ("structured_outputs", CONSTRAINED),
    ("functions", "it is not taken any more; use tools"),
    ("function_call", "it is not taken any more; use tool_choice"),
    ("audio", "this server works with text only"),
    ("web_search_options", "this server asks no other one"),
    ("lora", "adapters are not supported"),
    ("mirostat", SAMPLERS),
    ("dry_multiplier", SAMPLERS),
    ("xtc_probability", SAMPLERS),
    ("dynatemp_range", SAMPLERS),
    ("min_tokens", "a reply has no least length; use ignore_eos"),
];

pub(crate) const CONSTRAINED: &str = "constrained output is not built yet";
const SAMPLERS: &str = "this sampler does not exist here";

/// A name for a reply, or a part of one.
pub(crate) fn new_id(prefix: &str) -> String {
    format!("{prefix}{:016x}{:08x}", random(), random() as u32)
}

/// `usage` of OpenAI's interface.
pub(crate) fn usage(summaries: &[&Summary]) -> Value {
    let sum = |count: fn(&Stats) -> usize| summaries.iter().map(|s| count(&s.stats)).sum::<usize>();
    let prompt = summaries.first().map_or(0, |summary| summary.stats.prompt_tokens);
    let cached = summaries.first().map_or(0, |summary| summary.stats.reused_tokens);
    let completion = summaries.iter().map(|summary| summary.tokens.len()).sum::<usize>();
    let (drafted, accepted) = (sum(|stats| stats.drafted), sum(|stats| stats.accepted));
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": drafted - accepted,
        },
    })
}

/// `timings`, by llama.cpp's names, over all choices.
pub(crate) fn timings(summaries: &[&Summary]) -> Value {
    let (mut read, mut written, mut reused, mut drafted, mut accepted) = (0, 0, 0, 0, 0);
    let (mut prompt_ms, mut predicted_ms) = (0.0, 0.0);
    for Summary { stats, .. } in summaries {
        read += stats.read_tokens;
        reused += stats.reused_tokens;
        written += stats.tokens;
        drafted += stats.drafted;
        accepted += stats.accepted;
        prompt_ms += stats.prefill_ms;
        predicted_ms += stats.decode_ms;
    }
    let per = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
    json!({
        "cache_n": reused,
        "prompt_n": read,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": per(prompt_ms, read as f64),
        "prompt_per_second": per(read as f64 * 1e3, prompt_ms),
        "predicted_n": written,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": per(predicted_ms, written as f64),
        "predicted_per_second": per(written as f64 * 1e3, predicted_ms),
        "draft_n": drafted,
        "draft_n_accepted": accepted,
    })
}

/// How speculation went.
pub(crate) fn speculation(report: &SpeculationReport) -> Value {
    json!({
        "drafter": report.drafter,
        "tau": report.tau,
        "parked": report.parked,
        "reason": report.reason,
    })
}

/// The name of how a reply ended.
pub(crate) fn finish_reason(finish: FinishReason, called: bool) -> &'static str {
    match finish {
        FinishReason::EndToken | FinishReason::StopString if called => "tool_calls",
        finish => finish.as_str(),
    }
}

/// Log-probabilities in the form of chat replies.
pub(crate) fn chat_logprobs(tokenizer: &Tokenizer, entries: &[Logprobs]) -> Value {
    let scored = |id: u32, logprob: f64| {
        let bytes = tokenizer.token_bytes(id);
        let mut object = Map::new();
        object.insert("token".to_owned(), String::from_utf8_lossy(bytes).into());
        object.insert("logprob".to_owned(), logprob.into());
        object.insert("bytes".to_owned(), bytes.into());
        object
    };
    let entry = |entry: &Logprobs| {
        let mut object = scored(entry.token, entry.logprob);
        let top: Vec<_> = entry.top.iter().map(|&(id, logprob)| scored(id, logprob)).collect();
        object.insert("top_logprobs".to_owned(), top.into());
        object
    };
    let content: Vec<_> = entries.iter().map(entry).collect();
    json!({ "content": content })
}

/// Who guessed the tokens of a reply, as its rounds tell.
#[derive(Default)]
pub(crate) struct Sources(Vec<Option<Source>>);

impl Sources {
    /// What a round did, for those who asked for it.
    pub(crate) fn round(&mut self, record: &RoundRecord) -> Value {
        self.0.extend(&record.sources);
        let source = |token: usize| self.0.get(token).copied().flatten().map(Source::name);
        let pieces: Vec<Value> = record
            .pieces
            .iter()
            .map(|piece| json!({"text": piece.text, "source": source(piece.token)}))
            .collect();
        let figures = &record.figures;
        json!({
            "round": record.round,
            "width": figures.width,
            "proposed": figures.proposed,
            "drafted": figures.drafted,
            "accepted": figures.accepted,
            "committed": figures.committed,
            "draft_ms": figures.draft_us as f64 / 1e3,
            "verify_ms": figures.verify_us as f64 / 1e3,
            "total_ms": figures.total_us() as f64 / 1e3,
            "parked": record.parked,
            "reason": record.reason,
            "pieces": pieces,
        })
    }
}

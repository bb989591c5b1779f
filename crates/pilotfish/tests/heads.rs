//! Random heads on tiny models: they guess badly, and change nothing.
//!
//! Invariant: every comparison is exact.
//! Not here: what a head computes (`pilotfish-lane`), heads that were trained.
#![allow(clippy::unwrap_used, reason = "a panic is the test's failure")]

use std::path::PathBuf;

use pilotfish::{
    CpuOptions, DrafterChoice, Engine, Error, ErrorKind, Event, GenerateOptions, LoadOptions, Message,
    SamplingParams, SpecSampling, Summary,
};
use pilotfish_model::Family;
use pilotfish_model::heads::HeadFormat;
use pilotfish_model::testing::{TinyHead, TinySpec};

const FORMATS: [HeadFormat; 3] = [HeadFormat::Speculators, HeadFormat::DeepSpec, HeadFormat::Dflash];

struct Folder(tempfile::TempDir);

impl Folder {
    /// A model, and a head for it in a folder of its own.
    fn new(spec: &TinySpec, format: HeadFormat) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        std::fs::write(folder.path("model.gguf"), spec.gguf()).unwrap();
        let head = TinyHead::new(spec, format, 11);
        std::fs::create_dir(folder.path("head")).unwrap();
        std::fs::write(folder.path("head/config.json"), head.config_bytes()).unwrap();
        std::fs::write(folder.path("head/model.safetensors"), head.safetensors()).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn load(&self, drafter: DrafterChoice) -> LoadOptions {
        let with_head = matches!(drafter, DrafterChoice::Auto | DrafterChoice::Head);
        LoadOptions {
            drafter,
            head: with_head.then(|| self.path("head")),
            parking: false,
            cpu: CpuOptions { threads: Some(2), ..CpuOptions::default() },
            ..LoadOptions::new(self.path("model.gguf").to_str().unwrap())
        }
    }
}

fn spec(family: Family) -> TinySpec {
    TinySpec { layers: 4, ..TinySpec::new(family) }
}

fn options(sampled: bool) -> GenerateOptions {
    let sampling = SamplingParams { seed: 3, ..SamplingParams::default() };
    let sampling = if sampled { sampling } else { SamplingParams::greedy() };
    GenerateOptions { max_tokens: Some(30), ignore_eos: true, sampling, ..GenerateOptions::default() }
}

fn finished(events: impl Iterator<Item = Result<Event, Error>>) -> Summary {
    let last = events.map(Result::unwrap).last();
    match last {
        Some(Event::Finished(summary)) => *summary,
        other => panic!("{other:?} is no end"),
    }
}

#[test]
fn heads_of_every_format_change_no_token_of_a_conversation() {
    for (family, format) in [Family::Llama, Family::Qwen3, Family::Gemma3].into_iter().zip(FORMATS) {
        let folder = Folder::new(&spec(family), format);
        for sampled in [false, true] {
            let mut plain = Engine::load(&folder.load(DrafterChoice::None)).unwrap();
            for drafter in [DrafterChoice::Head, DrafterChoice::Auto] {
                let mut engine = Engine::load(&folder.load(drafter)).unwrap();
                let mut text = "ab cd ".repeat(8);
                for turn in 0..5 {
                    let what = format!("{family:?} {format:?} {drafter:?}, sampled {sampled}, turn {turn}");
                    // Turn 2 does without the head, which misses it.
                    let options = GenerateOptions { speculate: turn != 2, ..options(sampled) };
                    let expected = finished(plain.complete(&text, &options).unwrap());
                    let got = finished(engine.complete(&text, &options).unwrap());
                    assert_eq!(got.tokens, expected.tokens, "{what}");
                    assert_eq!(got.stats.drafted > 0, turn != 2, "{what}");
                    text += if turn == 3 { "x" } else { " and then" };
                }
            }
        }
    }
}

#[test]
fn a_context_is_filled_exactly_with_a_head() {
    let folder = Folder::new(&TinySpec { context: 40, ..spec(Family::Llama) }, HeadFormat::Speculators);
    let tokens = |drafter| {
        let mut engine = Engine::load(&folder.load(drafter)).unwrap();
        let options = GenerateOptions { max_tokens: None, ..options(false) };
        finished(engine.complete("abcdefgh", &options).unwrap()).tokens
    };
    let plain = tokens(DrafterChoice::None);
    assert!(plain.len() >= 30, "{} tokens", plain.len());
    assert_eq!(tokens(DrafterChoice::Head), plain);
}

#[test]
fn rejection_with_a_head_is_repeatable_per_seed() {
    let folder = Folder::new(&spec(Family::Llama), HeadFormat::Speculators);
    let run = || {
        let mut engine = Engine::load(&folder.load(DrafterChoice::Head)).unwrap();
        let options = GenerateOptions { spec_sampling: SpecSampling::Rejection, ..options(true) };
        let summary = finished(engine.complete("ab ab ab", &options).unwrap());
        assert!(summary.stats.drafted > 0);
        summary.tokens
    };
    assert_eq!(run(), run());
}

#[test]
fn a_head_is_named_in_reports_and_refused_where_it_has_no_place() {
    let folder = Folder::new(&spec(Family::Llama), HeadFormat::Speculators);
    let engine = Engine::load(&folder.load(DrafterChoice::Auto)).unwrap();
    assert_eq!(engine.drafter(), "ngram+suffix+head");
    let file = engine.draft_file().unwrap();
    assert_eq!((file.name.as_str(), &file.path), ("head", &folder.path("head/model.safetensors")));
    for drafter in [DrafterChoice::None, DrafterChoice::Ngram, DrafterChoice::Model] {
        let load = LoadOptions { head: Some(folder.path("head")), ..folder.load(drafter) };
        let error = Engine::load(&load).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
    }
    let other = Folder::new(&TinySpec { hidden: 128, ..spec(Family::Llama) }, HeadFormat::Speculators);
    let load = LoadOptions { head: Some(other.path("head")), ..folder.load(DrafterChoice::Auto) };
    let error = Engine::load(&load).err().unwrap();
    assert!(error.to_string().contains("width of 128"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Failure);
}

#[test]
fn messages_work_with_a_head() {
    let folder = Folder::new(&spec(Family::Llama), HeadFormat::Speculators);
    let messages = [Message::user("hello")];
    let tokens = |drafter| {
        let mut engine = Engine::load(&folder.load(drafter)).unwrap();
        finished(engine.chat(&messages, &options(false)).unwrap()).tokens
    };
    assert_eq!(tokens(DrafterChoice::Head), tokens(DrafterChoice::None));
}

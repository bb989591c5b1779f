//! The library as a program would use it, on tiny random models.
//!
//! Invariant: nothing is fetched; every model is written by the test.
//! Not here: real models (`golden`), the command around it.
#![allow(clippy::unwrap_used, reason = "a panic is the test's failure")]

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use pilotfish::{
    CpuOptions, DEFAULT_CONTEXT, DrafterChoice, Engine, Error, ErrorKind, Event, FinishReason,
    GenerateOptions, Generation, KvType, LoadOptions, MAX_THREADS, Message, ModelRef, Prompt, RoundRecord,
    SamplingParams, SpecSampling, Summary,
};
use pilotfish_model::Family;
use pilotfish_model::testing::TinySpec;

/// A folder with `model.gguf`, removed at the end.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(spec: &TinySpec) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.add("model.gguf", spec);
        folder
    }

    fn add(&self, name: &str, spec: &TinySpec) {
        std::fs::write(self.path(name), spec.gguf()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn options(&self) -> LoadOptions {
        LoadOptions {
            cpu: CpuOptions { threads: Some(1), ..CpuOptions::default() },
            ..LoadOptions::new(self.path("model.gguf").to_str().unwrap())
        }
    }

    fn engine(&self) -> Engine {
        Engine::load(&self.options()).unwrap()
    }
}

fn llama() -> TinySpec {
    TinySpec { layers: 1, ..TinySpec::new(Family::Llama) }
}

fn few(n: usize) -> GenerateOptions {
    GenerateOptions { max_tokens: Some(n), ignore_eos: true, ..GenerateOptions::default() }
}

/// The text and the summary; nothing may follow it.
fn read(generation: Generation<'_>) -> (String, Summary) {
    let mut text = String::new();
    let mut end = None;
    for event in generation {
        assert!(end.is_none(), "an event after the last");
        match event.unwrap() {
            Event::Text(piece) => {
                assert!(!piece.is_empty());
                text += &piece;
            }
            Event::Finished(summary) => end = Some(*summary),
            other => panic!("{other:?}"),
        }
    }
    (text, end.expect("a summary ends it"))
}

#[test]
fn events_are_the_answer_and_then_its_numbers() {
    let mut engine = Folder::new(&llama()).engine();
    let messages = [Message::system("be brief"), Message::user("hello")];
    let prompt = engine.tokenize(Prompt::Chat(&messages)).unwrap();
    let (text, summary) = read(engine.chat(&messages, &few(20)).unwrap());
    assert_eq!(summary.prompt, prompt);
    assert_eq!((summary.tokens.len(), summary.finish), (20, FinishReason::MaxTokens));
    assert_eq!(text, engine.tokenizer().decode(&summary.tokens));
    assert_eq!((summary.stats.tokens, summary.speculation.drafter.as_str()), (20, "ngram+suffix"));
}

#[test]
fn drafters_change_no_token() {
    let folder = Folder::new(&llama());
    folder.add("other.gguf", &llama().with_seed(5));
    let named = |name: &str| Some(ModelRef::Named(folder.path(name).to_str().unwrap().to_owned()));
    let sampled = SamplingParams { seed: 3, ..SamplingParams::default() };
    for sampling in [SamplingParams::greedy(), sampled] {
        let options = GenerateOptions { sampling, ..few(40) };
        let run = |load: LoadOptions| {
            let mut engine = Engine::load(&load).unwrap();
            let tokens = read(engine.complete("ab ab ab", &options).unwrap()).1.tokens;
            let again = read(engine.complete("ab ab ab", &options).unwrap()).1;
            assert_eq!(again.tokens, tokens, "the second answer is the first");
            assert!(again.stats.reused_tokens > 0);
            tokens
        };
        let plain = run(LoadOptions { drafter: DrafterChoice::None, ..folder.options() });
        assert_eq!(run(folder.options()), plain);
        for drafter in [DrafterChoice::Ngram, DrafterChoice::Suffix] {
            assert_eq!(run(LoadOptions { drafter, ..folder.options() }), plain);
        }
        for draft_model in [named("model.gguf"), named("other.gguf")] {
            for drafter in [DrafterChoice::Auto, DrafterChoice::Model] {
                let draft_model = draft_model.clone();
                assert_eq!(run(LoadOptions { drafter, draft_model, ..folder.options() }), plain);
            }
        }
        let mut engine = folder.engine();
        let off = GenerateOptions { speculate: false, ..options.clone() };
        let (_, summary) = read(engine.complete("ab ab ab", &off).unwrap());
        assert_eq!((summary.tokens, summary.stats.drafted), (plain, 0));
    }
}

#[test]
fn earlier_answers_help_unless_they_are_not_to() {
    let folder = Folder::new(&llama());
    let sampling = SamplingParams { seed: 3, ..SamplingParams::default() };
    let options = GenerateOptions { sampling, ..few(60) };
    let rounds = |past_replies, history| {
        let load = LoadOptions {
            drafter: DrafterChoice::Suffix,
            parking: false,
            past_replies,
            history,
            ..folder.options()
        };
        let mut engine = Engine::load(&load).unwrap();
        [0, 1].map(|_| {
            let summary = read(engine.complete("ab ab ab", &options).unwrap()).1;
            assert_eq!(summary.history_error, None);
            summary.stats.rounds
        })
    };
    let alone = rounds(false, None);
    assert_eq!(alone[0], alone[1]);
    let remembering = rounds(true, None);
    assert!(remembering[0] == alone[0] && 2 * remembering[1] < alone[1], "{remembering:?} {alone:?}");
    let file = || Some(folder.path("past"));
    assert_eq!(rounds(true, file()), remembering);
    assert!(2 * rounds(true, file())[0] < alone[0], "the file is read at load");
}

#[test]
fn drafters_change_no_token_over_quantized_keys_and_values() {
    let folder = Folder::new(&llama());
    folder.add("other.gguf", &llama().with_seed(5));
    let cpu = CpuOptions { threads: Some(1), kv_type: KvType::Q8_0, ..CpuOptions::default() };
    let options = LoadOptions { cpu, ..folder.options() };
    let run = |load: LoadOptions| {
        let mut engine = Engine::load(&load).unwrap();
        assert!(engine.lane_info().numerics_id.ends_with("/kv-q8_0"));
        let prompt = "ab cd ".repeat(20);
        let summary = read(engine.complete(&prompt, &few(80)).unwrap()).1;
        (summary.tokens, summary.stats.drafted)
    };
    let (plain, drafted) = run(LoadOptions { drafter: DrafterChoice::None, ..options.clone() });
    assert_eq!((plain.len(), drafted), (80, 0));
    for draft_model in [None, Some("model.gguf"), Some("other.gguf")] {
        let draft_model =
            draft_model.map(|name| ModelRef::Named(folder.path(name).to_str().unwrap().to_owned()));
        let (tokens, drafted) =
            run(LoadOptions { draft_model: draft_model.clone(), parking: false, ..options.clone() });
        assert_eq!(tokens, plain, "{draft_model:?}");
        assert!(drafted > 0, "{draft_model:?}");
    }
}

#[test]
fn a_conversation_reads_only_what_is_new() {
    let mut engine = Folder::new(&llama()).engine();
    let mut messages = vec![Message::user("hello")];
    let (reply, first) = read(engine.chat(&messages, &few(6)).unwrap());
    messages.extend([Message::assistant(&reply), Message::user("and then?")]);
    let (_, second) = read(engine.chat(&messages, &few(6)).unwrap());
    assert!(second.stats.reused_tokens >= first.prompt.len(), "{:?}", second.stats);
    let mut fresh = Folder::new(&llama()).engine();
    assert_eq!(read(fresh.chat(&messages, &few(6)).unwrap()).1.tokens, second.tokens);
}

#[test]
fn an_answer_can_be_stopped_or_dropped() {
    let mut engine = Folder::new(&llama()).engine();
    let whole = read(engine.complete("the", &few(30)).unwrap()).1.tokens;
    let options = few(30);
    let mut generation = engine.complete("the", &options).unwrap();
    generation.next().unwrap().unwrap();
    options.cancel.store(true, Ordering::SeqCst);
    let (_, summary) = read(generation);
    assert_eq!(summary.finish, FinishReason::Cancelled);
    assert!(summary.tokens.len() < 30 && whole.starts_with(&summary.tokens));

    let mut dropped = engine.complete("the", &few(30)).unwrap();
    dropped.next().unwrap().unwrap();
    drop(dropped);
    assert_eq!(read(engine.complete("the", &few(30)).unwrap()).1.tokens, whole);
}

#[test]
fn log_probabilities_are_of_the_tokens_and_the_same_with_guesses() {
    let folder = Folder::new(&llama());
    folder.add("other.gguf", &llama().with_seed(5));
    let named = |name: &str| Some(ModelRef::Named(folder.path(name).to_str().unwrap().to_owned()));
    let sampled = SamplingParams { seed: 3, ..SamplingParams::default() };
    for sampling in [SamplingParams::greedy(), sampled] {
        let options = GenerateOptions { logprobs: Some(2), sampling, ..few(30) };
        let run = |load: LoadOptions| {
            let mut engine = Engine::load(&LoadOptions { parking: false, ..load }).unwrap();
            read(engine.complete("ab ab ab", &options).unwrap()).1
        };
        let plain = run(LoadOptions { drafter: DrafterChoice::None, ..folder.options() });
        let chosen: Vec<u32> = plain.logprobs.iter().map(|entry| entry.token).collect();
        assert_eq!((chosen, plain.stats.drafted), (plain.tokens.clone(), 0));
        assert!(plain.logprobs.iter().all(|entry| entry.top.len() == 2 && entry.logprob < 0.0));
        for draft_model in [None, named("model.gguf"), named("other.gguf")] {
            let guessed = run(LoadOptions { draft_model: draft_model.clone(), ..folder.options() });
            assert!(guessed.stats.drafted > 0, "{draft_model:?}");
            assert_eq!((guessed.tokens, guessed.logprobs), (plain.tokens.clone(), plain.logprobs.clone()));
        }
    }
}

#[test]
fn sampling_by_rejection_is_greedy_where_greedy_and_repeats_itself() {
    let folder = Folder::new(&llama());
    folder.add("other.gguf", &llama().with_seed(5));
    let other = Some(ModelRef::Named(folder.path("other.gguf").to_str().unwrap().to_owned()));
    let run = |draft_model: &Option<ModelRef>, sampling: SamplingParams, spec_sampling| {
        let load = LoadOptions { draft_model: draft_model.clone(), parking: false, ..folder.options() };
        let mut engine = Engine::load(&load).unwrap();
        let options = GenerateOptions { sampling, spec_sampling, ..few(40) };
        let summary = read(engine.complete("ab ab ab", &options).unwrap()).1;
        assert!(summary.stats.drafted > 0);
        summary.tokens
    };
    let sampled = |seed| SamplingParams { temperature: 1.0, seed, ..SamplingParams::default() };
    for draft_model in [None, other] {
        let greedy = |mode| run(&draft_model, SamplingParams::greedy(), mode);
        assert_eq!(greedy(SpecSampling::Rejection), greedy(SpecSampling::Coupled));
        let rejection = |seed| run(&draft_model, sampled(seed), SpecSampling::Rejection);
        assert_eq!(rejection(1), rejection(1));
        assert_ne!(rejection(1), rejection(2));
        assert_ne!(rejection(1), run(&draft_model, sampled(1), SpecSampling::Coupled));
    }
}

#[test]
fn the_context_has_a_default_and_a_limit() {
    let long = Folder::new(&TinySpec { context: 20_000, ..llama() });
    assert_eq!(long.engine().lane_info().context, DEFAULT_CONTEXT);
    let with = |folder: &Folder, context| {
        let cpu = CpuOptions { context: Some(context), threads: Some(1), ..CpuOptions::default() };
        Engine::load(&LoadOptions { cpu, ..folder.options() })
    };
    assert_eq!(with(&long, 20_000).unwrap().lane_info().context, 20_000);
    let short = Folder::new(&llama());
    assert_eq!(short.engine().lane_info().context, 512);
    for context in [0, 513] {
        let error = with(&short, context).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains("512"), "{error}");
    }
}

#[test]
fn errors_say_whose_fault_it_is() {
    let folder = Folder::new(&llama());
    folder.add("gemma.gguf", &TinySpec { layers: 1, ..TinySpec::new(Family::Gemma3) });
    let load = |change: &dyn Fn(&mut LoadOptions)| {
        let mut options = folder.options();
        change(&mut options);
        Engine::load(&options).err().unwrap()
    };
    let gemma = ModelRef::Named(folder.path("gemma.gguf").to_str().unwrap().to_owned());
    let missing = load(&|o| o.model = ModelRef::Named("nowhere.gguf".to_owned()));
    assert!(matches!((&missing, missing.kind()), (Error::Catalog(_), ErrorKind::Failure)), "{missing}");
    let other = load(&|o| o.draft_model = Some(gemma.clone()));
    assert!(matches!((&other, other.kind()), (Error::Vocabulary { .. }, ErrorKind::Failure)), "{other}");
    let contradiction = load(&|o| {
        o.drafter = DrafterChoice::None;
        o.draft_model = Some(gemma.clone());
    });
    assert_eq!(contradiction.kind(), ErrorKind::Usage, "{contradiction}");
    let beside_a_model = load(&|o| {
        o.drafter = DrafterChoice::Suffix;
        o.draft_model = Some(gemma.clone());
    });
    assert_eq!(beside_a_model.kind(), ErrorKind::Usage, "{beside_a_model}");
    assert_eq!(load(&|o| o.drafter = DrafterChoice::Model).kind(), ErrorKind::Usage);
    let ignored: [fn(&mut LoadOptions); 3] = [
        |o| o.drafter = DrafterChoice::None,
        |o| o.drafter = DrafterChoice::Ngram,
        |o| o.past_replies = false,
    ];
    for ignores in ignored {
        let error = load(&|o| {
            o.history = Some(folder.path("past"));
            ignores(o);
        });
        assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
        assert!(error.to_string().contains("--spec-history"), "{error}");
    }
    assert_eq!(load(&|o| o.draft_p_min = f32::NAN).kind(), ErrorKind::Usage);

    let mut engine = folder.engine();
    let mut refused =
        |prompt: Prompt<'_>, options: GenerateOptions| engine.generate(prompt, &options).err().unwrap();
    let long = refused(Prompt::Tokens(&[65; 600]), few(1));
    assert!(long.is_context_overflow() && long.kind() == ErrorKind::Failure, "{long}");
    assert!(!refused(Prompt::Tokens(&[]), few(1)).is_context_overflow());
    let outside = refused(Prompt::Tokens(&[65, 320]), few(1));
    assert!(outside.to_string().contains("320"), "{outside}");
    let hot = SamplingParams { temperature: -1.0, ..SamplingParams::default() };
    assert_eq!(
        refused(Prompt::Raw("x"), GenerateOptions { sampling: hot, ..few(1) }).kind(),
        ErrorKind::Usage
    );
    let endless = GenerateOptions { stop: vec![String::new()], ..few(1) };
    assert_eq!(refused(Prompt::Raw("x"), endless).kind(), ErrorKind::Usage);
}

#[test]
fn threads_have_a_most_that_is_named() {
    let folder = Folder::new(&llama());
    for threads in [0, MAX_THREADS + 1, 20_000] {
        let cpu = CpuOptions { threads: Some(threads), ..CpuOptions::default() };
        let error = Engine::load(&LoadOptions { cpu, ..folder.options() }).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert_eq!(error.to_string(), format!("-t cannot be `{threads}`: it must be 1 to 512"));
    }
}

#[test]
fn rounds_are_told_to_those_who_ask() {
    let mut engine = Folder::new(&llama()).engine();
    let (text, summary) = read(engine.complete("ab ab ab", &few(60)).unwrap());
    let options = GenerateOptions { rounds: true, ..few(60) };
    let mut rounds: Vec<RoundRecord> = Vec::new();
    let (mut pieces, mut last_text, mut end) = (String::new(), String::new(), None);
    for event in engine.complete("ab ab ab", &options).unwrap() {
        match event.unwrap() {
            Event::Round(round) => {
                last_text = round.pieces.iter().map(|piece| piece.text.as_str()).collect();
                pieces += &last_text;
                rounds.push(*round);
            }
            Event::Text(piece) => assert_eq!(piece, last_text, "a round's text follows it"),
            Event::Finished(summary) => end = Some(*summary),
            other => panic!("{other:?}"),
        }
    }
    let end = end.expect("a summary ends it");
    assert_eq!((pieces, &end.tokens), (text, &summary.tokens));
    assert!(rounds.iter().map(|round| round.round).eq(0..end.stats.rounds));
    let sum = |figure: fn(&RoundRecord) -> usize| rounds.iter().map(figure).sum::<usize>();
    assert_eq!(sum(|round| round.figures.drafted), end.stats.drafted);
    assert_eq!(sum(|round| round.figures.accepted), end.stats.accepted);
    assert_eq!(sum(|round| round.sources.len()), end.tokens.len());
    let last = rounds.last().unwrap();
    assert_eq!((last.parked, &last.reason), (end.speculation.parked, &end.speculation.reason));
}

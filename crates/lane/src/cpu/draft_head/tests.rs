//! Heads against an independent implementation in PyTorch, and their bookkeeping.
//!
//! The folders under `tests/data/heads` hold tiny random heads and what the trainer's own model, which is compared with
//! the `speculators` library, makes of them: `python -m pilotfish_training.fixture FOLDER`.
//!
//! Invariant: expected numbers come from those files, never from this crate.
#![cfg(test)]

use std::path::PathBuf;
use std::sync::Arc;

use pilotfish_model::heads::HeadFormat;
use pilotfish_model::testing::{TinyHead, TinySpec};
use pilotfish_model::{DraftHead, Family, Gguf, GgufWriter, Model, Safetensors};
use pilotfish_tensor::BlockType;

use super::*;
use crate::cpu::CpuOptions;
use crate::{Batch, Want};

const HEADS: [&str; 3] = ["reduced", "full", "gated"];

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/heads").join(name)
}

/// A model that only lends its token table and its output matrix.
fn lender(tensors: &Safetensors) -> Arc<Model> {
    let (vocab, hidden, layers, ffn) = (160, 64, 5, 32);
    let mut w = GgufWriter::new();
    w.str("general.architecture", "llama");
    for (key, value) in [
        ("block_count", layers),
        ("context_length", 64),
        ("embedding_length", hidden),
        ("feed_forward_length", ffn),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("rope.dimension_count", hidden / 2),
        ("vocab_size", vocab),
    ] {
        w.u32(&format!("llama.{key}"), value as u32);
    }
    w.f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
    let mut add = |name: &str, dims: &[usize], numbers: Vec<f32>| {
        let mut bytes = Vec::new();
        BlockType::F32.encode(&numbers, &mut bytes);
        w.tensor(name, dims, BlockType::F32, bytes);
    };
    add("token_embd.weight", &[hidden, vocab], tensors.f32s("embed").unwrap());
    add("output.weight", &[hidden, vocab], tensors.f32s("output").unwrap());
    add("output_norm.weight", &[hidden], vec![1.0; hidden]);
    for layer in 0..layers {
        for norm in ["attn_norm", "ffn_norm"] {
            add(&format!("blk.{layer}.{norm}.weight"), &[hidden], vec![1.0; hidden]);
        }
        for (name, k, rows) in [
            ("attn_q", hidden, hidden),
            ("attn_k", hidden, hidden / 2),
            ("attn_v", hidden, hidden / 2),
            ("attn_output", hidden, hidden),
            ("ffn_gate", hidden, ffn),
            ("ffn_up", hidden, ffn),
            ("ffn_down", ffn, hidden),
        ] {
            add(&format!("blk.{layer}.{name}.weight"), &[k, rows], vec![0.0; k * rows]);
        }
    }
    Arc::new(Model::from_gguf(Gguf::parse(w.finish()).unwrap()).unwrap())
}

fn cpu_head(name: &str, options: &HeadOptions, threads: usize) -> CpuHead {
    let target = lender(&Safetensors::open(&folder(name).join("target.safetensors")).unwrap());
    let options_of_lane = CpuOptions { threads: Some(threads), ..CpuOptions::default() };
    let lane = CpuLane::new(target, &options_of_lane).unwrap();
    lane.head(DraftHead::open(&folder(name)).unwrap(), options).unwrap()
}

/// All candidates, in floats.
fn exact() -> HeadOptions {
    HeadOptions { weights: BlockType::F32, candidates: usize::MAX, ..HeadOptions::default() }
}

struct Expected(Safetensors);

impl Expected {
    fn open(name: &str) -> Self {
        Self(Safetensors::open(&folder(name).join("expected.safetensors")).unwrap())
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        self.0.f32s(name).unwrap()
    }

    fn ids(&self, name: &str) -> Vec<usize> {
        let bytes = self.0.bytes(name).unwrap();
        bytes.as_chunks::<8>().0.iter().map(|id| usize::try_from(i64::from_le_bytes(*id)).unwrap()).collect()
    }
}

/// The largest difference, as a share of the expected numbers' root mean square.
fn apart(got: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(got.len(), expected.len());
    let scale = (expected.iter().map(|x| x * x).sum::<f32>() / expected.len() as f32).sqrt();
    got.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / scale
}

/// Runs the block of every anchor; `check` sees the anchor's number, the head behind its block, and its chain.
fn each_anchor(name: &str, head: &mut CpuHead, mut check: impl FnMut(usize, &CpuHead, &[u32])) {
    let expected = Expected::open(name);
    let (tokens, taps) = (expected.ids("tokens"), expected.floats("taps"));
    let chain = expected.ids("chain");
    let block = head.info().guesses;
    for (number, at) in expected.ids("anchors").into_iter().enumerate() {
        head.truncate(0);
        head.append(&taps).unwrap();
        head.settle().unwrap();
        head.truncate(at);
        head.block(tokens[at] as u32, block).unwrap();
        let chain = &chain[number * block..][..block];
        let previous: Vec<u32> = [&tokens[at]].into_iter().chain(chain).map(|id| *id as u32).collect();
        check(number, head, &previous);
    }
}

/// The logits of draft tokens in order of id.
fn by_draft_id(head: &CpuHead, pairs: impl Iterator<Item = (u32, f32)>) -> Vec<f32> {
    let mut logits = vec![f32::NAN; head.weights.output.n_out()];
    for (id, logit) in pairs {
        let draft = head.head.draft_ids().map_or(id as usize, |ids| ids.binary_search(&id).unwrap());
        logits[draft] = logit;
    }
    logits
}

#[test]
fn heads_compute_what_pytorch_computes() {
    // Keys and values are halves, everything else is floats.
    const CLOSE: f32 = 0.003;
    for name in HEADS {
        let expected = Expected::open(name);
        let [hidden, base, logits, confidences] =
            ["hidden", "base_logits", "logits", "confidences"].map(|name| expected.floats(name));
        let mut worst = [0f32; 4];
        let mut head = cpu_head(name, &exact(), 2);
        each_anchor(name, &mut head, |number, head, previous| {
            let guesses = head.info().guesses;
            let of = |all: &[f32]| {
                let each = all.len() / confidences.len() * guesses;
                all[number * each..][..each].to_vec()
            };
            worst[0] = worst[0].max(apart(&head.hidden, &of(&hidden)));
            let (base, logits, confidences) = (of(&base), of(&logits), of(&confidences));
            for at in 0..guesses {
                let n = base.len() / guesses;
                let mut got = vec![0.0; n];
                head.best[at].iter().for_each(|best| got[best.token] = best.logit);
                worst[1] = worst[1].max(apart(&got, &base[at * n..][..n]));
                let slot = head.guess(at, previous[at]);
                let got = by_draft_id(head, slot.candidates.iter().copied());
                worst[2] = worst[2].max(apart(&got, &logits[at * n..][..n]));
                let confidence = slot.confidence.expect("the head has a confidence head");
                worst[3] = worst[3].max((confidence - confidences[at]).abs());
                assert_eq!(slot.candidates[0].0, previous[at + 1], "{name}: anchor {number}, guess {at}");
            }
        });
        println!("{name}: hidden, base logits, logits, confidences apart by {worst:?}");
        assert!(worst.iter().all(|apart| *apart < CLOSE), "{name}: {worst:?}");
    }
}

#[test]
fn a_window_hides_what_lies_before_it() {
    for name in HEADS {
        let expected = Expected::open(name).floats("hidden_window_4");
        for settle_late in [false, true] {
            let mut head = cpu_head(name, &HeadOptions { window: 4, ..exact() }, 1);
            let (tokens, taps) = (Expected::open(name).ids("tokens"), Expected::open(name).floats("taps"));
            for (number, at) in Expected::open(name).ids("anchors").into_iter().enumerate() {
                head.truncate(0);
                let width = head.tap_width();
                // Given one by one and worked on at once, or all together and worked on by the block.
                for tap in taps[..at * width].chunks(if settle_late { taps.len() } else { width }) {
                    head.append(tap).unwrap();
                    if !settle_late {
                        head.settle().unwrap();
                    }
                }
                assert_eq!(head.len(), at);
                head.block(tokens[at] as u32, 5).unwrap();
                let each = head.hidden.len();
                let apart = apart(&head.hidden, &expected[number * each..][..each]);
                assert!(apart < 0.01, "{name}: anchor {number} is {apart} apart");
            }
        }
    }
}

#[test]
fn eight_bits_guess_nearly_the_same() {
    let (mut same, mut all) = (0, 0);
    for name in HEADS {
        let hidden = Expected::open(name).floats("hidden");
        let mut head = cpu_head(name, &HeadOptions::default(), 2);
        each_anchor(name, &mut head, |number, head, previous| {
            let each = head.hidden.len();
            let apart = apart(&head.hidden, &hidden[number * each..][..each]);
            assert!(apart < 0.2, "{name}: anchor {number} is {apart} apart");
            for at in 0..head.info().guesses {
                same += usize::from(head.guess(at, previous[at]).candidates[0].0 == previous[at + 1]);
                all += 1;
            }
        });
    }
    println!("{same} of {all} guesses are the same");
    assert!(same * 10 >= all * 9, "{same} of {all}");
}

#[test]
fn threads_and_cuts_of_the_context_change_nothing() {
    let blocks = |threads: usize, cut: usize| {
        let expected = Expected::open("reduced");
        let (tokens, taps) = (expected.ids("tokens"), expected.floats("taps"));
        let mut head = cpu_head("reduced", &HeadOptions::default(), threads);
        for piece in taps.chunks(cut * head.tap_width()) {
            head.append(piece).unwrap();
            head.settle().unwrap();
        }
        head.block(tokens[0] as u32, 5).unwrap();
        (head.hidden.clone(), head.guess(2, 7))
    };
    let first = blocks(1, 1);
    for (threads, cut) in [(1, 5), (2, 1), (3, 100)] {
        assert_eq!(blocks(threads, cut), first, "{threads} threads, {cut} at a time");
    }
}

#[test]
fn blocks_leave_no_trace_and_restarts_forget() {
    let spec = TinySpec { layers: 4, ..TinySpec::new(Family::Qwen3) };
    let target = Arc::new(Model::from_gguf(Gguf::parse(spec.gguf()).unwrap()).unwrap());
    for format in [HeadFormat::Speculators, HeadFormat::DeepSpec, HeadFormat::Dflash] {
        let tiny = TinyHead::new(&spec, format, 3);
        let mut lane = CpuLane::new(Arc::clone(&target), &CpuOptions::default()).unwrap();
        let parsed = DraftHead::parse(&tiny.config_bytes(), tiny.safetensors()).unwrap();
        let mut head = lane.head(parsed, &HeadOptions::default()).unwrap();
        let tokens: Vec<u32> = (0..30).map(|i| i * 7 % 200).collect();
        let rows = lane.forward(&Batch::chain(&tokens, Want::Nothing).with_taps(&head.info().taps)).unwrap();
        let taps =
            |range: std::ops::Range<usize>| range.flat_map(|row| rows.taps(row).to_vec()).collect::<Vec<_>>();
        head.append(&taps(0..10)).unwrap();
        let block = |head: &mut CpuHead| {
            head.block(9, 9).unwrap();
            (0..head.info().guesses).map(|at| head.guess(at, 5)).collect::<Vec<_>>()
        };
        let guesses = block(&mut head);
        assert_eq!(guesses.len(), if format == HeadFormat::Dflash { 4 } else { 5 });
        assert!(guesses.iter().all(|slot| slot.confidence.is_some() == (format != HeadFormat::Dflash)));
        assert_eq!(block(&mut head), guesses, "blocks leave no trace");
        head.append(&taps(10..30)).unwrap();
        assert_ne!(block(&mut head), guesses, "a longer context is another");
        head.truncate(10);
        assert_eq!(block(&mut head), guesses, "truncated");
        head.truncate(0);
        head.append(&taps(0..10)).unwrap();
        assert_eq!(block(&mut head), guesses, "said again");
        head.restart(10).unwrap();
        assert_eq!(head.len(), 10);
        assert_ne!(block(&mut head), guesses, "restarted without context");
        assert!(matches!(head.block(spec.vocab as u32, 1), Err(LaneError::BadToken { .. })));
    }
}

#[test]
fn damaged_taps_guess_nothing_and_pass() {
    let mut head = cpu_head("reduced", &HeadOptions::default(), 1);
    let width = head.tap_width();
    head.append(&vec![1.0; 2 * width]).unwrap();
    head.append(&vec![f32::NAN; width]).unwrap();
    head.block(4, 5).unwrap();
    assert_eq!(head.guess(0, 4), Slot::default());
    head.truncate(2);
    head.block(4, 5).unwrap();
    assert_eq!(head.guess(0, 4).candidates.len(), 32);
}

#[test]
fn a_head_for_another_target_is_refused() {
    let spec = TinySpec { layers: 4, ..TinySpec::new(Family::Llama) };
    let target = Arc::new(Model::from_gguf(Gguf::parse(spec.gguf()).unwrap()).unwrap());
    let lane = CpuLane::new(target, &CpuOptions::default()).unwrap();
    let error = lane.head(DraftHead::open(&folder("full")).unwrap(), &HeadOptions::default()).err().unwrap();
    assert!(matches!(error, LaneError::Load(_)) && error.to_string().contains("width of 64"), "{error}");
}

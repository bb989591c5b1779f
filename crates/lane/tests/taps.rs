//! Taps of the CPU lane are the residual streams their layers leave behind.
//!
//! Invariant: the last tap is compared with the logits through the model's own last norm and output matrix, computed
//! here in f64; an inner one with the last tap of a model that ends there.
//! Not here: independence of a row from everything but its prefix (`agreement`).
#![allow(clippy::unwrap_used, reason = "a panic is the test's failure")]

use std::sync::Arc;

use pilotfish_lane::cpu::{CpuLane, CpuOptions};
use pilotfish_lane::{Batch, Lane, Want};
use pilotfish_model::testing::TinySpec;
use pilotfish_model::{Family, Gguf, Model};
use pilotfish_tensor::BlockType;

const TOKENS: [u32; 9] = [5, 99, 4, 270, 31, 31, 7, 200, 18];

fn model(spec: &TinySpec) -> Arc<Model> {
    Arc::new(Model::from_gguf(Gguf::parse(spec.gguf()).unwrap()).unwrap())
}

/// The taps asked for and the logits of the last token.
fn last_row(spec: &TinySpec, asked: &[usize]) -> (Vec<f32>, Vec<f32>) {
    let options = CpuOptions { threads: Some(2), poison: Some(f32::NAN), ..CpuOptions::default() };
    let mut lane = CpuLane::new(model(spec), &options).unwrap();
    let rows = lane.forward(&Batch::chain(&TOKENS, Want::Logits).with_taps(asked)).unwrap();
    let last = TOKENS.len() - 1;
    (rows.taps(last).to_vec(), rows.logits(last).unwrap().to_vec())
}

#[test]
fn the_last_tap_gives_the_logits() {
    for family in Family::ALL {
        // Floats keep the comparison free of rounding of activations.
        let spec = TinySpec::new(family).with_type(BlockType::F32);
        let (tap, logits) = last_row(&spec, &[spec.layers - 1]);
        let model = model(&spec);
        let find = |name: &str| {
            let id = model.graph().weight_ids().find(|id| model.graph().weight(*id).name == name)?;
            Some(model.vector(id))
        };
        let norm = find("output_norm.weight").unwrap();
        let head = find("output.weight").or_else(|| find("token_embd.weight")).unwrap();
        let mean = tap.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / tap.len() as f64;
        let eps = f64::from(model.config().eps);
        let normed: Vec<f64> =
            tap.iter().zip(&norm).map(|(x, w)| f64::from(*x) / (mean + eps).sqrt() * f64::from(*w)).collect();
        for (id, row) in head.chunks_exact(tap.len()).enumerate() {
            let expected: f64 = row.iter().zip(&normed).map(|(w, x)| f64::from(*w) * x).sum();
            let got = f64::from(logits[id]);
            assert!((got - expected).abs() < 1e-3, "{family:?} logit {id}: {got} instead of {expected}");
        }
    }
}

#[test]
fn an_inner_tap_is_the_last_one_of_a_model_that_ends_there() {
    // A seed gives the same first layers whatever follows them.
    for family in [Family::Llama, Family::Qwen3] {
        let whole = TinySpec { layers: 4, ..TinySpec::new(family) };
        let (taps, _) = last_row(&whole, &[0, 1, 2, 3]);
        for (layer, tap) in taps.chunks_exact(whole.hidden).enumerate() {
            let shorter = TinySpec { layers: layer + 1, ..TinySpec::new(family) };
            assert_eq!(last_row(&shorter, &[layer]).0, tap, "{family:?} after layer {layer}");
        }
    }
}

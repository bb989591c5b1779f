//! Forms of keys and values: what each gives, and what cannot be kept so.
//!
//! Invariant: every form is told apart by the `numerics_id`.
//! Not here: independence of a row from everything but its prefix (`invariance`), rounding (`pilotfish-tensor`).
#![allow(clippy::unwrap_used, reason = "a panic is the test's failure")]

use std::sync::Arc;

use pilotfish_lane::cpu::{CpuLane, CpuOptions, KvType};
use pilotfish_lane::{Batch, Lane, LaneError, Want};
use pilotfish_model::testing::TinySpec;
use pilotfish_model::{Family, Gguf, Model};

fn lane(spec: &TinySpec, kv_type: KvType) -> Result<CpuLane, LaneError> {
    let model = Model::from_gguf(Gguf::parse(spec.gguf()).unwrap()).unwrap();
    CpuLane::new(Arc::new(model), &CpuOptions { threads: Some(1), kv_type, ..CpuOptions::default() })
}

/// Logits of the last of 80 tokens.
fn logits(lane: &mut CpuLane) -> Vec<f32> {
    let tokens: Vec<u32> = (0..80).map(|i| i * 37 % 100).collect();
    lane.forward(&Batch::chain(&tokens, Want::Logits)).unwrap().logits(79).unwrap().to_vec()
}

#[test]
fn forms_give_almost_the_same_and_say_which_they_are() {
    for family in Family::ALL {
        let mut lanes = KvType::ALL.map(|kv_type| lane(&TinySpec::new(family), kv_type).unwrap());
        for (lane, kv_type) in lanes.iter().zip(KvType::ALL) {
            let id = &lane.info().numerics_id;
            assert!(id.ends_with(&format!("/kv-{kv_type}")), "{id}");
        }
        let [halves, quants] = lanes.each_mut().map(logits);
        assert_ne!(halves, quants, "{family:?}");
        let mean = halves.iter().sum::<f32>() / halves.len() as f32;
        let spread: f32 = halves.iter().map(|x| (x - mean).powi(2)).sum();
        let apart: f32 = halves.iter().zip(&quants).map(|(a, b)| (a - b).powi(2)).sum();
        println!("{family:?}: {} of the spread", (apart / spread).sqrt());
        assert!((apart / spread).sqrt() < 0.05, "{family:?}: {apart} of {spread}");
    }
}

#[test]
fn heads_that_are_no_whole_groups_are_refused_with_their_width() {
    let narrow = TinySpec { head_dim: 48, ..TinySpec::new(Family::Qwen3) };
    assert!(lane(&narrow, KvType::F16).is_ok());
    let error = lane(&narrow, KvType::Q8_0).err().unwrap();
    assert!(matches!(error, LaneError::Load(_)), "{error}");
    assert!(error.to_string().contains("have 48; f16"), "{error}");
}

//! A lane that looks for the best token among the first ids only, as drafting models do.
#![allow(clippy::unwrap_used, reason = "a panic is the test's failure")]

use std::sync::Arc;

use pilotfish_lane::cpu::{CpuLane, CpuOptions};
use pilotfish_lane::{Batch, Lane, Want};
use pilotfish_model::testing::TinySpec;
use pilotfish_model::{Family, Gguf, Model};

#[test]
fn the_best_token_may_be_looked_for_among_the_first_ids_only() {
    let gguf = Gguf::parse(TinySpec::new(Family::ALL[0]).gguf()).unwrap();
    let model = Arc::new(Model::from_gguf(gguf).unwrap());
    let lane = |best_of_first| {
        CpuLane::new(Arc::clone(&model), &CpuOptions { best_of_first, ..CpuOptions::default() }).unwrap()
    };
    let best = |row: &[f32]| (0..row.len()).reduce(|a, b| if row[b] > row[a] { b } else { a }).unwrap();
    let tokens = [1, 2, 3, 4];
    let logits = lane(None).forward(&Batch::chain(&tokens, Want::Logits)).unwrap();
    let logits = logits.logits(3).unwrap();
    for first in [1, 7, 100, logits.len(), usize::MAX] {
        let rows = lane(Some(first)).forward(&Batch::chain(&tokens, Want::Argmax)).unwrap();
        assert_eq!(rows.argmax(3), Some(best(&logits[..first.min(logits.len())]) as u32), "{first}");
        let rows = lane(Some(first)).forward(&Batch::chain(&tokens, Want::Likeliest)).unwrap();
        let among = &logits[..first.min(logits.len())];
        assert_eq!(rows.argmax(3), Some(best(among) as u32), "{first}");
        let mass: f32 = among.iter().map(|logit| (logit - among[best(among)]).exp()).sum();
        assert!((rows.probability(3).unwrap() * mass - 1.0).abs() < 1e-3, "{first}");
        let whole = lane(Some(first)).forward(&Batch::chain(&tokens, Want::Logits)).unwrap();
        assert_eq!(whole.logits(3), Some(logits));
    }
}

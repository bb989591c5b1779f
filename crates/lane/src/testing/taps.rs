//! What every lane must do with taps, as part of the agreement suite.
//!
//! Invariant: comparisons are by bits, without tolerance; the oracle is the lane fed one token at a time.
//! Not here: whether a tap is the right layer's (tests of the lane).

use super::agreement::{Make, append_all, random_tree, same_bits, step};
use crate::{Batch, Lane, LaneError, Want};

/// A row's taps depend on its token prefix alone, asking for them changes no logit, and a layer that cannot be tapped
/// is an error that leaves no trace.
///
/// # Panics
/// When any of this is not so.
pub(super) fn taps_follow_their_rows(make: &mut Make<'_>, tokens: &[u32]) {
    let layers = make().info().layers;
    let outside = Batch::chain(&tokens[..1], Want::Nothing).with_taps(&[layers]);
    let mut lane = make();
    let error = lane.forward(&outside).expect_err("no such layer");
    assert!(matches!(error, LaneError::BadTap { layer, .. } if layer == layers), "no such layer: {error}");
    same_bits(&step(&mut *lane, tokens[0]), &step(&mut *make(), tokens[0]), "after a bad tap");
    if layers == 0 {
        return;
    }
    // Out of order and twice, so that places in the row are told from layers.
    let asked = [layers - 1, 0, layers - 1];
    for seed in 0..4 {
        let mut lane = make();
        append_all(&mut *lane, &tokens[..5]);
        let batch = random_tree(&*lane, lane.info().max_width.min(11), 300 + seed);
        let plain = lane.forward(&batch).expect("a tree runs");
        let rows = lane.forward(&batch.clone().with_taps(&asked)).expect("a tree runs");
        for i in 0..batch.width() {
            let what = format!("tree {seed} row {i}");
            assert!(plain.taps(i).is_empty(), "{what}: no taps were asked for");
            same_bits(rows.logits(i).expect("wanted"), plain.logits(i).expect("wanted"), &what);
            let mut prefix = tokens[..5].to_vec();
            prefix.extend(batch.path(i).into_iter().map(|row| batch.rows()[row].token));
            same_bits(
                rows.taps(i),
                &taps_one_by_one(&mut *make(), &prefix, &asked),
                &format!("taps of {what}"),
            );
        }
    }
}

/// The last row's taps, from passes of one row each.
fn taps_one_by_one(lane: &mut dyn Lane, tokens: &[u32], asked: &[usize]) -> Vec<f32> {
    let (last, before) = tokens.split_last().expect("there are tokens");
    for token in before {
        lane.forward(&Batch::chain(&[*token], Want::Nothing)).expect("a row runs");
        lane.keep(&[0]).expect("a row can be kept");
    }
    let rows = lane.forward(&Batch::chain(&[*last], Want::Nothing).with_taps(asked)).expect("a row runs");
    let width = lane.info().hidden;
    assert_eq!(rows.taps(0).len(), asked.len() * width, "one stream a layer asked for");
    for (at, layer) in asked.iter().enumerate() {
        let alone =
            lane.forward(&Batch::chain(&[*last], Want::Logits).with_taps(&[*layer])).expect("a row runs");
        same_bits(alone.taps(0), &rows.taps(0)[at * width..][..width], "a layer asked for alone");
    }
    rows.taps(0).to_vec()
}

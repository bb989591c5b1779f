//! What every lane must do, as checks that panic with the difference.
//!
//! Each check takes a factory that makes fresh lanes with the same model. The oracle is the lane
//! itself fed one token at a time; whatever the widths, trees and cuts, each row must return the
//! oracle's bits for that row's token prefix. [`all`] runs everything.
//!
//! Invariant: comparisons are by bits, without tolerance.
//! Not here: whether the logits are the right ones for the model (golden and reference tests).

use crate::{Batch, Lane, LaneError, Outputs, Row, Want};

use super::hash_tokens;

/// Makes a fresh lane; every call must give the same model.
pub type Make<'a> = dyn FnMut() -> Box<dyn Lane> + 'a;

/// Runs every check of this module.
///
/// The lane needs a context of at least 40 positions and passes of at least 8 rows.
///
/// # Panics
/// When the lane breaks one of the trait's promises.
pub fn all(make: &mut Make<'_>) {
    let tokens = some_tokens(&*make(), 24, 1);
    chain_equals_one_by_one(make, &tokens);
    cuts_do_not_matter(make, &tokens);
    for seed in 0..6 {
        tree_rows_equal_chain_rows(make, &tokens[..6], seed);
    }
    wants_do_not_matter(make, &tokens[..8]);
    kept_path_continues_like_a_chain(make, &tokens);
    dropped_rows_leave_no_trace(make, &tokens);
    truncated_lane_equals_a_fresh_one(make, &tokens);
    errors_are_named_and_harmless(make);
}

/// `count` token ids inside the lane's vocabulary, fixed by `seed`.
pub fn some_tokens(lane: &dyn Lane, count: usize, seed: u64) -> Vec<u32> {
    let vocab = lane.info().vocab as u64;
    (0..count).map(|i| (hash_tokens(seed, &[i as u32]) % vocab) as u32).collect()
}

/// Logits behind every prefix of `tokens`, from passes of one row each: the oracle.
///
/// # Panics
/// When the lane fails.
pub fn one_by_one(lane: &mut dyn Lane, tokens: &[u32]) -> Vec<Vec<f32>> {
    tokens.iter().map(|&token| step(lane, token)).collect()
}

/// A chain in one pass returns the bits of the same tokens one by one, row by row.
///
/// # Panics
/// When it does not.
pub fn chain_equals_one_by_one(make: &mut Make<'_>, tokens: &[u32]) {
    let mut lane = make();
    let width = tokens.len().min(lane.info().max_width);
    let expected = one_by_one(&mut *make(), &tokens[..width]);
    let rows = lane.forward(&chain_of(&tokens[..width], Want::Logits)).expect("a chain runs");
    assert_eq!(rows.width(), width, "one output per row");
    for (i, logits) in expected.iter().enumerate() {
        same_bits(rows.logits(i).expect("logits were wanted"), logits, &format!("chain row {i}"));
    }
}

/// However a prompt is cut into passes, the next row's bits are the same.
///
/// # Panics
/// When they are not.
pub fn cuts_do_not_matter(make: &mut Make<'_>, tokens: &[u32]) {
    let expected = one_by_one(&mut *make(), tokens);
    let last = tokens.len() - 1;
    for cut in [1, 2, 3, 5, 7, 8, 16, last] {
        let mut lane = make();
        for chunk in tokens[..last].chunks(cut.min(lane.info().max_width)) {
            append(&mut *lane, chunk);
        }
        assert_eq!(lane.len(), last, "kept rows are committed");
        same_bits(&step(&mut *lane, tokens[last]), &expected[last], &format!("behind chunks of {cut}"));
    }
}

/// In a random tree behind `prefix`, each row returns the bits of its own path as a chain.
///
/// # Panics
/// When it does not.
pub fn tree_rows_equal_chain_rows(make: &mut Make<'_>, prefix: &[u32], seed: u64) {
    let mut lane = make();
    append_all(&mut *lane, prefix);
    let batch = random_tree(&*lane, lane.info().max_width.min(13), seed);
    let rows = lane.forward(&batch).expect("a tree runs");
    for i in 0..batch.width() {
        let mut path = prefix.to_vec();
        path.extend(batch.path(i).into_iter().map(|row| batch.rows()[row].token));
        let expected = one_by_one(&mut *make(), &path).pop().expect("a path has rows");
        same_bits(rows.logits(i).expect("logits were wanted"), &expected, &format!("tree {seed} row {i}"));
    }
}

/// What the other rows ask for changes nothing, the argmax is the logits' argmax, and its probability is that of their
/// softmax.
///
/// # Panics
/// When it does.
pub fn wants_do_not_matter(make: &mut Make<'_>, tokens: &[u32]) {
    let tokens = &tokens[..tokens.len().min(make().info().max_width)];
    let expected = one_by_one(&mut *make(), tokens);
    for shift in 0..4 {
        let mut lane = make();
        let mut batch = Batch::new();
        for (i, &token) in tokens.iter().enumerate() {
            let want = [Want::Nothing, Want::Argmax, Want::Likeliest, Want::Logits][(i + shift) % 4];
            batch.push(Row { token, parent: i.checked_sub(1), want });
        }
        let rows = lane.forward(&batch).expect("a chain runs");
        for (i, logits) in expected.iter().enumerate() {
            match (batch.rows()[i].want, rows.get(i)) {
                (Want::Nothing, Outputs::Nothing) => {}
                (Want::Argmax, Outputs::Argmax(id)) => {
                    assert_eq!(*id, lowest_argmax(logits), "argmax of row {i}");
                }
                (Want::Likeliest, Outputs::Likeliest(id, probability)) => {
                    assert_eq!(*id, lowest_argmax(logits), "likeliest of row {i}");
                    likely(logits, *probability, i);
                }
                (Want::Logits, Outputs::Logits(got)) => same_bits(got, logits, &format!("mixed row {i}")),
                (want, got) => panic!("row {i} wanted {want:?} and got {got:?}"),
            }
        }
    }
}

/// Whether a probability is the softmax's of the largest of `logits`, to a thousandth.
fn likely(logits: &[f32], probability: f32, row: usize) {
    let largest = f64::from(logits[lowest_argmax(logits) as usize]);
    let mass: f64 = logits.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum();
    assert!((f64::from(probability) * mass - 1.0).abs() < 1e-3, "probability of row {row}: {probability}");
}

/// Keeping a branch of a tree leaves the lane as if that branch had been fed as a chain.
///
/// # Panics
/// When it does not.
pub fn kept_path_continues_like_a_chain(make: &mut Make<'_>, tokens: &[u32]) {
    for seed in 0..4 {
        let mut lane = make();
        append_all(&mut *lane, &tokens[..5]);
        let batch = random_tree(&*lane, lane.info().max_width.min(12), 100 + seed);
        for end in [batch.width() - 1, batch.width() / 2] {
            lane.truncate(5);
            lane.forward(&batch).expect("a tree runs");
            let path = batch.path(end);
            lane.keep(&path).expect("a path can be kept");
            assert_eq!(lane.len(), 5 + path.len(), "kept rows are committed");

            let mut straight = tokens[..5].to_vec();
            straight.extend(path.iter().map(|&row| batch.rows()[row].token));
            straight.push(tokens[6]);
            let expected = one_by_one(&mut *make(), &straight).pop().expect("there are rows");
            same_bits(&step(&mut *lane, tokens[6]), &expected, &format!("behind kept path {path:?}"));
        }
    }
}

/// Speculative rows that are not kept have no effect on anything later.
///
/// # Panics
/// When they have.
pub fn dropped_rows_leave_no_trace(make: &mut Make<'_>, tokens: &[u32]) {
    let expected = one_by_one(&mut *make(), &tokens[..8]);
    let mut lane = make();
    for (i, logits) in expected.iter().enumerate() {
        let tree = random_tree(&*lane, lane.info().max_width.min(9), 200 + i as u64);
        lane.forward(&tree).expect("a tree runs");
        assert_eq!(lane.len(), i, "speculative rows are not committed");
        match i % 3 {
            0 => lane.keep(&[]).expect("nothing can be kept"),
            1 => lane.truncate(i),
            _ => {}
        }
        same_bits(&step(&mut *lane, tokens[i]), logits, &format!("row {i} behind dropped rows"));
    }
}

/// Going back to a shorter prefix is as if nothing had followed it.
///
/// # Panics
/// When it is not.
pub fn truncated_lane_equals_a_fresh_one(make: &mut Make<'_>, tokens: &[u32]) {
    let expected = one_by_one(&mut *make(), tokens);
    let mut lane = make();
    append_all(&mut *lane, tokens);
    for len in [tokens.len() / 2, 3, 0] {
        lane.truncate(len);
        assert_eq!(lane.len(), len, "truncate sets the length");
        assert_eq!(lane.is_empty(), len == 0, "only an empty lane is empty");
        // Other tokens first, so that stale entries behind `len` would show.
        let other: Vec<u32> = tokens[len..].iter().rev().copied().collect();
        append_all(&mut *lane, &other);
        lane.truncate(len);
        same_bits(&step(&mut *lane, tokens[len]), &expected[len], &format!("after truncate({len})"));
        append_all(&mut *lane, &tokens[len + 1..]);
    }
    let len = lane.len();
    lane.truncate(len + 10);
    assert_eq!(lane.len(), len, "truncate never lengthens");
}

/// Each misuse has its own error, and the lane goes on as if it had not happened.
///
/// # Panics
/// When the error is another one, or leaves a trace.
pub fn errors_are_named_and_harmless(make: &mut Make<'_>) {
    let mut lane = make();
    let info = lane.info().clone();
    let tokens = some_tokens(&*lane, 3, 9);
    let expected = one_by_one(&mut *make(), &tokens);
    append_all(&mut *lane, &tokens[..2]);

    let error = lane.forward(&Batch::new()).expect_err("an empty batch");
    assert!(matches!(error, LaneError::BadWidth { width: 0, .. }), "an empty batch: {error}");

    let outside = info.vocab as u32;
    let error = lane.forward(&Batch::chain(&[outside], Want::Logits)).expect_err("a bad token");
    assert!(
        matches!(error, LaneError::BadToken { token, vocab } if token == outside && vocab == info.vocab),
        "a bad token: {error}"
    );

    if info.max_width < info.context {
        let wide = vec![tokens[0]; info.max_width + 1];
        let error = lane.forward(&Batch::chain(&wide, Want::Nothing)).expect_err("too wide");
        assert!(matches!(error, LaneError::BadWidth { .. }), "too wide: {error}");
    }

    lane.forward(&Batch::chain(&tokens[..2], Want::Nothing)).expect("a chain runs");
    for rows in [&[1][..], &[0, 0], &[1, 0], &[0, 1, 2]] {
        let error = lane.keep(rows).expect_err("not a path");
        assert!(matches!(error, LaneError::NotAPath { .. }), "{rows:?}: {error}");
    }

    lane.truncate(2);
    same_bits(&step(&mut *lane, tokens[2]), &expected[2], "after errors");
    context_ends_with_an_error(&mut *lane, tokens[0]);
}

/// Fills the context to its last position; one more is an error with both counts.
fn context_ends_with_an_error(lane: &mut dyn Lane, token: u32) {
    let context = lane.info().context;
    while lane.len() < context {
        let width = (context - lane.len()).min(lane.info().max_width);
        append(lane, &vec![token; width]);
    }
    let error = lane.forward(&Batch::chain(&[token], Want::Nothing)).expect_err("the context is full");
    assert!(
        matches!(error, LaneError::ContextFull { needed, context: c } if needed == context + 1 && c == context),
        "the context is full: {error}"
    );
    assert_eq!(lane.len(), context, "a refused pass commits nothing");
    // Siblings share a position, so they fit where a chain of the same width does not.
    lane.truncate(context - 1);
    let mut siblings = Batch::new();
    for _ in 0..lane.info().max_width.min(4) {
        siblings.push(Row { token, parent: None, want: Want::Nothing });
    }
    lane.forward(&siblings).expect("siblings need one position");
}

/// Feeds one token, keeps it and returns its logits.
fn step(lane: &mut dyn Lane, token: u32) -> Vec<f32> {
    let rows = lane.forward(&Batch::chain(&[token], Want::Logits)).expect("one row runs");
    lane.keep(&[0]).expect("one row can be kept");
    let logits = rows.logits(0).expect("logits were wanted").to_vec();
    assert_eq!(logits.len(), lane.info().vocab, "one logit per token");
    logits
}

/// Feeds `tokens` in one pass and keeps them.
fn append(lane: &mut dyn Lane, tokens: &[u32]) {
    lane.forward(&Batch::chain(tokens, Want::Nothing)).expect("a chain runs");
    lane.keep(&(0..tokens.len()).collect::<Vec<_>>()).expect("a chain can be kept");
}

/// Feeds `tokens` in as many passes as the lane's width asks for.
fn append_all(lane: &mut dyn Lane, tokens: &[u32]) {
    let width = lane.info().max_width;
    for chunk in tokens.chunks(width) {
        append(lane, chunk);
    }
}

/// A chain in which every row wants the same.
fn chain_of(tokens: &[u32], want: Want) -> Batch {
    let mut batch = Batch::new();
    for (i, &token) in tokens.iter().enumerate() {
        batch.push(Row { token, parent: i.checked_sub(1), want });
    }
    batch
}

/// A tree of `width` rows with forks and several roots; every row wants logits.
fn random_tree(lane: &dyn Lane, width: usize, seed: u64) -> Batch {
    let vocab = lane.info().vocab as u64;
    let mut batch = Batch::new();
    for i in 0..width {
        let hash = hash_tokens(seed, &[i as u32, 77]);
        // Parent 0 of i + 1 choices stands for "no parent".
        let parent = ((hash >> 32) as usize % (i + 1)).checked_sub(1);
        batch.push(Row { token: (hash % vocab) as u32, parent, want: Want::Logits });
    }
    batch
}

fn lowest_argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = id;
        }
    }
    best as u32
}

fn same_bits(got: &[f32], expected: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: number of logits");
    for (id, (a, b)) in got.iter().zip(expected).enumerate() {
        assert_eq!(a.to_bits(), b.to_bits(), "{what}: logit {id} is {a} instead of {b}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::ScriptedLane;
    use super::*;
    use crate::{LaneInfo, Rows};

    /// A lane with one planted mistake: the suite must notice each of them.
    #[derive(Clone, Copy, PartialEq)]
    enum Mistake {
        WidthChangesBits,
        KeepsTheFirstRowsInstead,
        TruncateForgetsNothing,
        SiblingsLeak,
        ForwardCommits,
    }

    struct Flawed {
        inner: ScriptedLane,
        mistake: Mistake,
    }

    impl Lane for Flawed {
        fn info(&self) -> &LaneInfo {
            self.inner.info()
        }

        fn len(&self) -> usize {
            self.inner.len()
        }

        fn forward(&mut self, batch: &Batch) -> Result<Rows, LaneError> {
            let rows = self.inner.forward(batch)?;
            let nudged = match self.mistake {
                Mistake::WidthChangesBits => batch.width() > 5,
                Mistake::SiblingsLeak => batch.height() < batch.width(),
                _ => false,
            };
            if self.mistake == Mistake::ForwardCommits {
                self.inner.keep(&[0])?;
            }
            let nudge = |logits: &[f32]| {
                logits.iter().map(|x| if nudged { x + x.abs() * f32::EPSILON } else { *x }).collect()
            };
            let outputs = (0..rows.width()).map(|i| match rows.get(i) {
                Outputs::Logits(logits) => Outputs::Logits(nudge(logits)),
                other => other.clone(),
            });
            Ok(Rows::new(outputs.collect()))
        }

        fn keep(&mut self, rows: &[usize]) -> Result<(), LaneError> {
            if self.mistake != Mistake::KeepsTheFirstRowsInstead {
                return self.inner.keep(rows);
            }
            let first: Vec<usize> = (0..rows.len()).collect();
            self.inner.keep(&first).or_else(|_| self.inner.keep(rows))
        }

        fn truncate(&mut self, len: usize) {
            if self.mistake != Mistake::TruncateForgetsNothing {
                self.inner.truncate(len);
            }
        }
    }

    fn suite_with(mistake: Mistake) {
        all(&mut || Box::new(Flawed { inner: ScriptedLane::hashed(11, 64, 7, 4.0), mistake }));
    }

    #[test]
    fn every_planted_mistake_is_noticed() {
        for mistake in [
            Mistake::WidthChangesBits,
            Mistake::KeepsTheFirstRowsInstead,
            Mistake::TruncateForgetsNothing,
            Mistake::SiblingsLeak,
            Mistake::ForwardCommits,
        ] {
            let outcome = std::panic::catch_unwind(|| suite_with(mistake));
            assert!(outcome.is_err(), "mistake {} went unnoticed", mistake as usize);
        }
    }

    #[test]
    fn a_narrow_lane_passes() {
        all(&mut || Box::new(ScriptedLane::hashed(7, 40, 3, 2.0).with_max_width(8)));
    }
}

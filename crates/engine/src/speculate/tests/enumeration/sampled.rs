//! The law under the real dice, by counting.
//!
//! Enumeration cannot see what is wrong with the random numbers: one used twice, one that is never 0. Here
//! replies of two tokens are made under one seed after another and counted. With probability 1 - δ the counts
//! of n replies over k cells are nearer to their law than √((k ln 2 + ln 1/δ) / 2n) in total variation, so
//! the sum of that and the distance to the target's law bounds what is wrong.
//!
//! `PILOTFISH_LAW_SAMPLES` sets n; `cargo xtask full` asks for a hundred million.
//!
//! Invariant: seeds are fixed, so a failure repeats. Replies are independent: each has a seed of its own.
//! Not here: mistakes that enumeration sees (`planted`).

use std::sync::Arc;

use pilotfish_lane::{Outputs, Rows};

use super::drafters::guess;
use crate::sampling::tests::total_variation_bound;
use crate::sampling::{Choice, Dice, Law, Sampler, SamplingParams, SeededDice};
use crate::speculate::reject::accept_by_rejection;
use crate::speculate::{TokenTree, accept};

const VOCAB: usize = 3;
const CELLS: usize = VOCAB * VOCAB;

/// The target's logits behind the prompt, and behind each token after that.
const LOGITS: [[f32; VOCAB]; VOCAB + 1] =
    [[0.3, -0.4, 1.1], [1.0, 0.0, -1.0], [-0.5, 0.25, 0.5], [0.0, 2.0, 0.1]];

/// Weights that the first token's guesses are drawn from.
const GUESSED: [f64; VOCAB] = [0.5, 0.3, 0.2];

const PROMPT: [u32; 1] = [0];

fn samples() -> usize {
    match std::env::var("PILOTFISH_LAW_SAMPLES") {
        Ok(text) => text.parse().expect("PILOTFISH_LAW_SAMPLES is a whole number"),
        Err(_) => 2_000_000,
    }
}

fn params(seed: u64) -> SamplingParams {
    SamplingParams { temperature: 1.0, seed, ..SamplingParams::greedy() }
}

fn row(i: usize) -> Outputs {
    Outputs::Logits(LOGITS[i].to_vec())
}

/// Probability of each cell.
fn law() -> [f64; CELLS] {
    let softmax = |i: usize, token: usize| {
        let weight = |logit: f32| f64::from(logit).exp();
        weight(LOGITS[i][token]) / LOGITS[i].iter().map(|&logit| weight(logit)).sum::<f64>()
    };
    std::array::from_fn(|cell| {
        let (first, second) = (cell / VOCAB, cell % VOCAB);
        softmax(0, first) * softmax(first + 1, second)
    })
}

/// Total variation between the counts of `n` replies and the law.
fn distance(n: usize, mut reply: impl FnMut(u64) -> [u32; 2]) -> f64 {
    let mut counts = [0_usize; CELLS];
    for seed in 0..n as u64 {
        let [first, second] = reply(seed);
        counts[first as usize * VOCAB + second as usize] += 1;
    }
    counts.iter().zip(law()).map(|(&count, p)| (count as f64 / n as f64 - p).abs()).sum::<f64>() / 2.0
}

/// Makes replies by rejection: two guesses drawn for the first token, none for the second.
struct Rejection {
    guessed: Arc<Law>,
    rows: [Rows; CELLS], // by the two guesses
    plain: [Rows; VOCAB],
    sampler: Sampler,
}

impl Rejection {
    fn new() -> Self {
        Self {
            guessed: Arc::new(Law::new((0..).zip(GUESSED)).unwrap()),
            rows: std::array::from_fn(|i| Rows::new(vec![row(0), row(1 + i / VOCAB), row(1 + i % VOCAB)])),
            plain: std::array::from_fn(|i| Rows::new(vec![row(1 + i)])),
            sampler: Sampler::new(params(0), VOCAB, 0).unwrap(),
        }
    }

    fn reply(&mut self, dice: &dyn Dice) -> [u32; 2] {
        let mut tree = TokenTree::root(PROMPT[0]);
        tree.draw_behind(0, Arc::clone(&self.guessed));
        let mut guesses = dice.guesses(1);
        let first = self.guessed.draw(guesses.as_mut());
        let second = self.guessed.without(first).unwrap().draw(guesses.as_mut());
        tree.push(0, guess(first));
        tree.push(0, guess(second));
        let rows = &self.rows[first as usize * VOCAB + second as usize];
        match accept_by_rejection(&tree, rows, &PROMPT, &mut self.sampler, dice).unwrap().tokens[..] {
            [first, second] => [first, second],
            [first] => {
                let (root, rows) = (TokenTree::root(first), &self.plain[first as usize]);
                let history = [PROMPT[0], first];
                let accepted = accept_by_rejection(&root, rows, &history, &mut self.sampler, dice).unwrap();
                [first, accepted.tokens[0]]
            }
            _ => panic!("at most one guess can be kept"),
        }
    }
}

fn report(what: &str, n: usize, distance: f64) {
    let bound = total_variation_bound(CELLS, n);
    println!(
        "{what}: {n} replies over {CELLS} cells: observed TV {distance:.2e}, bound {bound:.2e}, TV <= {:.2e}",
        distance + bound
    );
    assert!(distance < bound, "{what}: {distance} is not below {bound}");
}

#[test]
fn enumeration_agrees_with_real_dice() {
    let n = samples();
    let mut rejection = Rejection::new();
    report("rejection", n, distance(n, |seed| rejection.reply(&SeededDice::new(seed, 0))));
}

#[test]
fn enumeration_agrees_with_coupled_noise() {
    let n = samples();
    let rows: [Rows; VOCAB + 1] = std::array::from_fn(|i| Rows::new(vec![row(i)]));
    let coupled = |seed| {
        let mut sampler = Sampler::new(params(seed), VOCAB, 0).unwrap();
        let mut next = |rows: &Rows, history: &[u32]| {
            let root = TokenTree::root(history[history.len() - 1]);
            accept(&root, rows, history, &mut sampler).unwrap().tokens[0]
        };
        let first = next(&rows[0], &PROMPT);
        [first, next(&rows[1 + first as usize], &[PROMPT[0], first])]
    };
    report("coupled", n, distance(n, coupled));
}

/// Dice that give the same number whatever it is for.
struct OneNumber(SeededDice);

impl Dice for OneNumber {
    fn verdict(&self, position: usize) -> Box<dyn Choice + '_> {
        self.0.guesses(position)
    }

    fn guesses_from(&self, position: usize, made: u32) -> Box<dyn Choice + '_> {
        self.0.guesses_from(position, made)
    }
}

#[test]
fn enumeration_by_counting_notices_a_number_used_twice() {
    let n = 100_000;
    let mut rejection = Rejection::new();
    let distance = distance(n, |seed| rejection.reply(&OneNumber(SeededDice::new(seed, 0))));
    assert!(distance > 2.0 * total_variation_bound(CELLS, n), "{distance}");
}

//! Every outcome of a program that decides by chance, with its probability.
//!
//! The program runs again and again. Its decisions form a tree, which is walked depth first: each run
//! repeats the decisions of the one before up to the last that has an outcome left, and takes that.
//!
//! Invariant: the program decides nothing but by the dice it is given, so equal answers give equal questions.
//! Not here: real random numbers (`sampling::SeededDice`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::sampling::{Choice, Dice};

/// The law of what `run` returns.
pub(super) fn law_of<T: Ord>(run: &mut dyn FnMut(Arc<dyn Dice>) -> T) -> BTreeMap<T, f64> {
    let path = Arc::new(Mutex::new(Path::default()));
    let mut law = BTreeMap::new();
    loop {
        let outcome = run(Arc::new(Replay(Arc::clone(&path))));
        let mut path = path.lock().unwrap();
        *law.entry(outcome).or_insert(0.0) += path.probability();
        if !path.advance() {
            return law;
        }
    }
}

/// The decisions of one run.
#[derive(Default)]
struct Path {
    steps: Vec<Step>,
    at: usize,
}

struct Step {
    outcomes: Vec<(usize, f64)>, // with a probability above 0
    taken: usize,
}

impl Path {
    fn decide(&mut self, weights: &[f64]) -> usize {
        if self.at == self.steps.len() {
            let sum: f64 = weights.iter().sum();
            let possible = weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0);
            let outcomes: Vec<_> = possible.map(|(i, weight)| (i, weight / sum)).collect();
            assert!(!outcomes.is_empty(), "a decision has an outcome");
            self.steps.push(Step { outcomes, taken: 0 });
        }
        let step = &self.steps[self.at];
        self.at += 1;
        step.outcomes[step.taken].0
    }

    fn probability(&self) -> f64 {
        self.steps.iter().map(|step| step.outcomes[step.taken].1).product()
    }

    /// Goes to the next path; false when all were taken.
    fn advance(&mut self) -> bool {
        assert_eq!(self.at, self.steps.len(), "a run repeats the decisions of the one before");
        self.at = 0;
        while let Some(step) = self.steps.last_mut() {
            step.taken += 1;
            if step.taken < step.outcomes.len() {
                return true;
            }
            self.steps.pop();
        }
        false
    }
}

struct Replay(Arc<Mutex<Path>>);

impl Dice for Replay {
    fn verdict(&self, _: usize) -> Box<dyn Choice + '_> {
        Box::new(Replay(Arc::clone(&self.0)))
    }

    fn guesses_from(&self, position: usize, _: u32) -> Box<dyn Choice + '_> {
        self.verdict(position)
    }
}

impl Choice for Replay {
    fn categorical(&mut self, weights: &[f64]) -> usize {
        self.0.lock().unwrap().decide(weights)
    }

    fn bernoulli(&mut self, p: f64) -> bool {
        self.0.lock().unwrap().decide(&[1.0 - p, p]) == 1
    }
}

#[test]
fn enumeration_takes_every_outcome_once() {
    let mut runs = 0;
    let law = law_of(&mut |dice| {
        runs += 1;
        let mut choice = dice.verdict(0);
        let first = choice.categorical(&[1.0, 0.0, 3.0]);
        // How many decisions follow depends on the ones before.
        if first == 2 && choice.bernoulli(0.25) { 10 + choice.categorical(&[1.0, 1.0]) } else { first }
    });
    assert_eq!(law, BTreeMap::from([(0, 0.25), (2, 0.5625), (10, 0.09375), (11, 0.09375)]));
    assert_eq!(runs, 4);
}

//! The settings a lossless run goes through, numbered so that it can go on where it stopped.
//!
//! Invariant: a case is a function of its number and of whether there is a drafting model; any consecutive cases are
//! spread over all settings.
//! Not here: running them.

use pilotfish::{DrafterChoice, Pipelining, SamplingParams};

use super::super::prompts::PROMPTS;

/// Replies made with one loaded engine.
pub(super) const REPLIES: u64 = 8;

/// How the speculating engine is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) drafter: DrafterChoice,
    /// Most guesses; `None` leaves it to the budget.
    pub(super) draft_max: Option<usize>,
    /// `--spec auto` rather than `on`.
    pub(super) parking: bool,
    pub(super) threads: usize,
    pub(super) pipeline: Pipelining,
}

/// One reply, made twice.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) setup: Setup,
    pub(super) prompt: String,
    /// What is told of `sampling`.
    pub(super) sampling_name: &'static str,
    pub(super) sampling: SamplingParams,
}

const DEPTHS: [Option<usize>; 9] =
    [None, Some(1), Some(2), Some(3), Some(4), Some(6), Some(8), Some(12), Some(16)];

const TOPICS: [&str; 10] = [
    "how a CPU cache works",
    "the water cycle",
    "why the sky is blue",
    "how to bake bread",
    "what a prime number is",
    "the rules of chess",
    "how vaccines work",
    "what inflation means",
    "how bees make honey",
    "the phases of the moon",
];

const TASKS: [&str; 5] = [
    "Explain {} in simple words.",
    "Write a short list of ten facts about {}.",
    "Write a dialogue between a teacher and a pupil about {}.",
    "Repeat this sentence five times, then explain it: I want to learn about {}.",
    "Write a Python dictionary with eight entries about {}.",
];

/// The case of a number, where `threads` are the machine's own and there is a drafting model or none.
pub(super) fn case(number: u64, threads: usize, draft_model: bool) -> Case {
    Case { setup: setup(number / REPLIES, threads, draft_model), ..reply(number) }
}

fn setup(number: u64, threads: usize, draft_model: bool) -> Setup {
    let drafters: &[DrafterChoice] = if draft_model {
        &[DrafterChoice::Auto, DrafterChoice::Ngram, DrafterChoice::Suffix, DrafterChoice::Model]
    } else {
        &[DrafterChoice::Auto, DrafterChoice::Ngram, DrafterChoice::Suffix]
    };
    let counts = [threads, 1, threads + 1];
    let all = (drafters.len() * DEPTHS.len() * 2 * counts.len() * 2) as u64;
    // 37 has no factor in common with the number of settings, so all are met, and neighbours differ in all of them.
    let mut rest = usize::try_from(number % all * 37 % all).unwrap_or(0);
    let mut digit = |base: usize| {
        let digit = rest % base;
        rest /= base;
        digit
    };
    let drafter = drafters[digit(drafters.len())];
    let by_model = draft_model && matches!(drafter, DrafterChoice::Auto | DrafterChoice::Model);
    Setup {
        drafter,
        draft_max: DEPTHS[digit(DEPTHS.len())],
        // Parked, nothing is tried: most cases guess on.
        parking: digit(2) == 1,
        threads: counts[digit(counts.len())],
        // Only a drafting model can work ahead.
        pipeline: if digit(2) == 1 && by_model { Pipelining::On } else { Pipelining::Off },
    }
}

/// The prompt and sampling of a number; the setup in it has no meaning.
fn reply(number: u64) -> Case {
    let greedy = SamplingParams { seed: number, ..SamplingParams::greedy() };
    let sampled = SamplingParams { seed: number, ..SamplingParams::default() };
    let (sampling_name, sampling) = match number % REPLIES {
        0 | 2 | 4 => ("greedy", greedy),
        1 => ("temperature 0.8", SamplingParams { temperature: 0.8, ..sampled }),
        3 => ("temperature 1, top-k 20", SamplingParams { temperature: 1.0, top_k: 20, ..sampled }),
        5 => ("temperature 1.3, min-p 0.1", SamplingParams { temperature: 1.3, min_p: 0.1, ..sampled }),
        6 => ("temperature 0.3, top-p 0.7", SamplingParams { temperature: 0.3, top_p: 0.7, ..sampled }),
        _ => (
            "temperature 0.7, penalties",
            SamplingParams {
                temperature: 0.7,
                repeat_penalty: 1.1,
                presence_penalty: 0.3,
                frequency_penalty: 0.2,
                ..sampled
            },
        ),
    };
    // Another step than that of the settings, so that prompts and settings do not go in step.
    let count = PROMPTS.len() + TASKS.len() * TOPICS.len();
    let index = usize::try_from(number * 10 % count as u64).unwrap_or(0);
    let prompt = match PROMPTS.get(index) {
        Some((_, text)) => (*text).to_owned(),
        None => {
            let index = index - PROMPTS.len();
            TASKS[index / TOPICS.len()].replace("{}", TOPICS[index % TOPICS.len()])
        }
    };
    let setup = Setup {
        drafter: DrafterChoice::None,
        draft_max: None,
        parking: false,
        threads: 0,
        pipeline: Pipelining::Off,
    };
    Case { setup, prompt, sampling_name, sampling }
}

impl Setup {
    /// One word pair for each setting, to count by.
    pub(super) fn words(&self) -> [String; 5] {
        let drafter = match self.drafter {
            DrafterChoice::Auto => "auto",
            DrafterChoice::None => "none",
            DrafterChoice::Ngram => "ngram",
            DrafterChoice::Suffix => "suffix",
            DrafterChoice::Model => "model",
        };
        let depth = self.draft_max.map_or("auto".to_owned(), |depth| depth.to_string());
        [
            format!("drafter {drafter}"),
            format!("spec-draft-n-max {depth}"),
            format!("spec {}", if self.parking { "auto" } else { "on" }),
            format!("threads {}", self.threads),
            format!("pipeline {}", if self.pipeline == Pipelining::On { "on" } else { "off" }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_setting_is_met_once_in_a_turn_and_all_values_soon() {
        for (draft_model, drafters, by_model) in [(false, 3, 0), (true, 4, 2)] {
            let of_one = DEPTHS.len() as u64 * 2 * 3;
            let turn = drafters * of_one * 2;
            let setups: BTreeSet<[String; 5]> = (0..turn).map(|i| setup(i, 4, draft_model).words()).collect();
            assert_eq!(setups.len() as u64, (drafters + by_model) * of_one);
            let soon: BTreeSet<String> = (0..40).flat_map(|i| setup(i, 4, draft_model).words()).collect();
            assert_eq!(soon.len() as u64, drafters + DEPTHS.len() as u64 + 2 + 3 + 1 + by_model / 2);
        }
    }

    #[test]
    fn every_prompt_is_met_greedily_and_sampled() {
        let met = |greedy: bool| -> BTreeSet<String> {
            let cases = (0..500).map(reply).filter(|case| (case.sampling_name == "greedy") == greedy);
            cases.map(|case| case.prompt).collect()
        };
        assert_eq!(met(true).len(), 57);
        assert_eq!(met(false).len(), 57);
    }
}

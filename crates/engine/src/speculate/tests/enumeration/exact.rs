//! The laws agree: parameters, ends, chains, trees and drafters, each against plain sampling.
//!
//! Invariant: every comparison is over all replies, and allows only rounding.
//! Not here: mistakes that must be seen (`planted`).

use std::sync::Arc;

use super::drafters::{Drawn, LawBehind, Picked};
use super::settings::{EXACT, MakeDrafter, Script, Setting, dyadic, largest_difference, model};
use crate::draft::{Ahead, Drafter};
use crate::error::DraftError;
use crate::sampling::{Law, SamplingParams};
use crate::session::Session;
use crate::speculate::TokenTree;

fn check(setting: &Setting, what: &str) {
    let error = setting.error();
    assert!(error <= EXACT, "{what}: a reply's probability is off by {error:e}");
}

fn at(temperature: f32) -> SamplingParams {
    SamplingParams { temperature, ..SamplingParams::greedy() }
}

/// Filters that cut through ties, and a bias.
fn filters() -> Vec<SamplingParams> {
    let base = at(1.0);
    vec![
        SamplingParams { top_k: 2, ..base.clone() },
        SamplingParams { top_p: 0.5, ..base.clone() },
        SamplingParams { top_p: 0.8, ..base.clone() },
        SamplingParams { min_p: 0.4, ..base.clone() },
        SamplingParams { top_k: 3, top_p: 0.9, min_p: 0.1, temperature: 0.3, ..base.clone() },
        SamplingParams { logit_bias: vec![(0, 1.5), (1, -30.0)], ..base },
    ]
}

/// Penalties that look back over the prompt, the reply and the guesses.
fn penalties() -> Vec<SamplingParams> {
    let all = SamplingParams { repeat_last_n: -1, ..at(1.0) };
    vec![
        SamplingParams { repeat_penalty: 1.7, ..all.clone() },
        SamplingParams { presence_penalty: 0.8, ..all.clone() },
        SamplingParams { frequency_penalty: 0.6, min_p: 0.2, ..all.clone() },
        SamplingParams { repeat_penalty: 1.3, presence_penalty: -0.4, repeat_last_n: 2, top_k: 2, ..all },
    ]
}

/// Guesses drawn from the softmax of `script`, as many siblings at each depth as listed.
fn drawn(script: Script, siblings: &[usize]) -> Drawn {
    let law: LawBehind = Arc::new(move |text| {
        let weight = |(id, logit): (u32, f32)| (id, f64::from(logit).exp());
        Law::new((0..).zip(script(text)).map(weight)).unwrap()
    });
    Drawn { law, siblings: siblings.to_vec(), depth_first: false }
}

fn make(drafter: impl Drafter + Clone + Sync + 'static) -> MakeDrafter {
    Arc::new(move || Box::new(drafter.clone()))
}

fn picked(vocab: usize, steps: &[u32]) -> MakeDrafter {
    make(Picked { vocab: vocab as u32, steps: steps.to_vec() })
}

#[test]
fn enumeration_of_chains() {
    for vocab in 2..=6 {
        for depth in 0..=4 {
            for temperature in [0.0, 0.3, 1.0, 2.0] {
                // The largest cases have thousands of times more replies, and one temperature.
                if vocab + depth < 8 || temperature == 1.0 {
                    let setting = Setting { params: at(temperature), ..Setting::new(vocab, depth) };
                    check(&setting, &format!("{vocab} tokens, {depth} guesses, temperature {temperature}"));
                }
            }
        }
    }
}

#[test]
fn enumeration_of_filters() {
    for params in filters() {
        for depth in 1..=3 {
            let what = format!("{depth} guesses, {params:?}");
            let setting = Setting { params: params.clone(), ..Setting::new(4, depth) };
            check(&setting, &what);
            let tree = drawn(dyadic(4, 5), &[2, 1][..depth.min(2)]);
            check(&Setting { drafter: make(tree), ..setting.clone() }, &format!("drawn tree, {what}"));
            check(&Setting { drafter: picked(4, &[1, 2]), ..setting }, &format!("picked tree, {what}"));
        }
    }
}

#[test]
fn enumeration_of_penalties() {
    for params in penalties() {
        let what = format!("{params:?}");
        let setting = Setting { params, memory: None, length: 5, ..Setting::new(3, 2) };
        check(&setting, &what);
        let tree = drawn(dyadic(3, 5), &[2, 2]);
        check(&Setting { drafter: make(tree), ..setting.clone() }, &format!("drawn tree, {what}"));
        check(&Setting { drafter: picked(3, &[1, 2]), ..setting }, &format!("picked tree, {what}"));
    }
}

#[test]
fn enumeration_of_ends_inside_a_draft() {
    for depth in 1..=3 {
        for end_tokens in [vec![0], vec![2], vec![1, 3]] {
            let what = format!("{depth} guesses, ends {end_tokens:?}");
            let setting = Setting { end_tokens, ..Setting::new(4, depth) };
            check(&setting, &what);
            check(&Setting { drafter: picked(4, &[1, 3]), ..setting }, &what);
        }
        // The reply's limit cuts drafts of every length, and some replies are shorter than one draft.
        for length in 1..=depth + 1 {
            check(
                &Setting { length, ..Setting::new(4, depth) },
                &format!("{depth} guesses, {length} tokens"),
            );
        }
    }
}

#[test]
fn enumeration_of_drawn_trees() {
    for (vocab, siblings) in [
        (2, &[2, 2][..]),
        (3, &[2, 2]),
        (3, &[1, 3]),
        (4, &[4]),
        (3, &[3, 2]),
        (4, &[2, 2]),
        (3, &[2, 1, 1]),
        (5, &[2, 1]),
        (6, &[4]),
        // More siblings than tokens.
        (3, &[5, 1]),
    ] {
        for temperature in [0.3, 1.0, 2.0] {
            let drafter = make(drawn(dyadic(vocab, 5), siblings));
            let depth = siblings.len();
            let base = Setting::new(vocab, depth);
            let setting = Setting { params: at(temperature), drafter, length: depth + 2, ..base };
            check(&setting, &format!("{vocab} tokens, siblings {siblings:?}, temperature {temperature}"));
        }
    }
}

#[test]
fn enumeration_of_picked_trees() {
    for (vocab, steps) in [(2, &[1][..]), (3, &[1, 2]), (4, &[3, 1]), (4, &[0, 1, 2, 3]), (6, &[5, 2, 1])] {
        for depth in 1..=3 {
            for temperature in [0.0, 0.3, 1.0, 2.0] {
                let drafter = picked(vocab, steps);
                let length = depth + 2;
                let setting =
                    Setting { params: at(temperature), drafter, length, ..Setting::new(vocab, depth) };
                check(&setting, &format!("{vocab} tokens, steps {steps:?}, {depth} deep, {temperature}"));
            }
        }
    }
}

#[test]
fn enumeration_of_cut_trees() {
    // The lane's width cuts through siblings; what is cut depends on earlier guesses, in depth-first
    // order on which tokens they are.
    for depth_first in [false, true] {
        for max_width in 1..=6 {
            let drafter = make(Drawn { depth_first, ..drawn(dyadic(3, 5), &[3, 2]) });
            let setting = Setting { drafter, max_width, length: 4, ..Setting::new(3, 2) };
            check(&setting, &format!("width {max_width}, depth first: {depth_first}"));
        }
    }
    for max_width in 1..=3 {
        let setting = Setting { max_width, ..Setting::new(3, 3) };
        check(&setting, &format!("a chain in width {max_width}"));
    }
}

#[test]
fn enumeration_of_drafts_the_target_would_not_write() {
    let weights =
        |weights: [f64; 4]| -> LawBehind { Arc::new(move |_: &[u32]| Law::new((0..).zip(weights)).unwrap()) };
    let target = SamplingParams { top_k: 2, ..at(1.0) };
    for (what, law) in [
        ("less than the target's tokens", weights([0.0, 1.0, 0.0, 0.0])),
        ("others", weights([1.0, 0.0, 3.0, 4.0])),
        ("all", weights([1.0, 1.0, 1.0, 1.0])),
        ("nearly one", weights([1e-9, 1e-12, 1.0, 1e-300])),
        ("the target's own law", {
            let setting = Setting { params: target.clone(), ..Setting::new(4, 0) };
            Arc::new(move |text| setting.sampler().law(&(setting.target)(text), text).unwrap())
        }),
    ] {
        for siblings in [&[1, 1][..], &[2, 1], &[4]] {
            let drafter =
                make(Drawn { law: Arc::clone(&law), siblings: siblings.to_vec(), depth_first: false });
            let depth = siblings.len();
            let setting = Setting { params: target.clone(), drafter, ..Setting::new(4, depth) };
            check(&setting, &format!("drawn from {what}, siblings {siblings:?}"));
            check(&Setting { params: at(2.0), ..setting }, &format!("drawn from {what}, no filter"));
        }
    }
}

#[test]
fn enumeration_of_other_vocabularies() {
    for draft_vocab in [2, 3, 4, 5] {
        for depth in 1..=2 {
            let drafter = model(4, draft_vocab, dyadic(draft_vocab, 23), 0.0);
            let setting = Setting { drafter, ..Setting::new(4, depth) };
            check(&setting, &format!("a drafting model of {draft_vocab} tokens for a target of 4"));
        }
    }
    // A law that reaches outside the target's vocabulary is not used, whatever was drawn from it.
    let drafter = make(drawn(dyadic(5, 5), &[2, 1]));
    check(&Setting { drafter, ..Setting::new(4, 2) }, "drawn from 5 tokens for a target of 4");
}

#[test]
fn enumeration_of_drafts_that_end_where_the_model_is_unsure() {
    for p_min in [0.3, 0.45, 0.6] {
        let drafter = model(4, 4, dyadic(4, 23), p_min);
        check(&Setting { drafter, ..Setting::new(4, 3) }, &format!("p-min {p_min}"));
    }
}

#[test]
fn enumeration_of_whole_replies() {
    let penalty = SamplingParams { presence_penalty: 0.8, repeat_last_n: -1, ..at(1.0) };
    for (vocab, depth, length, params) in
        [(2, 1, 4, at(1.0)), (2, 2, 4, at(0.3)), (3, 1, 3, at(2.0)), (2, 3, 5, at(1.0)), (2, 2, 4, penalty)]
    {
        let setting = Setting { length, params, end_tokens: vec![1], ..Setting::new(vocab, depth) };
        let error = largest_difference(&setting.text_law_in_one_go(), &setting.target_law());
        assert!(error <= EXACT, "{vocab} tokens, {depth} guesses: off by {error:e}");
    }
}

/// Replies whose drafter works ahead, and long enough that it is of use.
fn ahead(vocab: usize, depth: usize, length: usize) -> Setting {
    Setting { ahead: true, length, ..Setting::new(vocab, depth) }
}

#[test]
fn enumeration_of_work_ahead() {
    let penalty = SamplingParams { presence_penalty: 0.8, repeat_last_n: -1, ..at(1.0) };
    for (vocab, depth, length, params) in [
        (2, 1, 5, at(1.0)),
        (2, 1, 6, at(0.3)),
        (2, 2, 5, at(2.0)),
        (2, 2, 6, at(1.0)),
        (3, 1, 4, at(1.0)),
        (2, 1, 5, penalty),
    ] {
        let what = format!("{vocab} tokens, {depth} guesses, {length} long, {params:?}");
        let setting = Setting { params, ..ahead(vocab, depth, length) };
        let law = setting.text_law_in_one_go();
        let error = largest_difference(&law, &setting.target_law());
        assert!(error <= EXACT, "{what}: off by {error:e}");
        let ends = Setting { end_tokens: vec![1], ..setting };
        let error = largest_difference(&ends.text_law_in_one_go(), &ends.target_law());
        assert!(error <= EXACT, "{what}, with ends: off by {error:e}");
    }
    // Cut short where the drafter is unsure.
    let drafter = model(2, 2, dyadic(2, 23), 0.6);
    let setting = Setting { drafter, ..ahead(2, 2, 6) };
    let error = largest_difference(&setting.text_law_in_one_go(), &setting.target_law());
    assert!(error <= EXACT, "off by {error:e}");
}

/// Drops what was prepared when it dislikes its first guess: what is verified then depends on what was drawn.
struct Fussy(Box<dyn Drafter>);

impl Drafter for Fussy {
    fn name(&self) -> &str {
        "fussy"
    }

    fn default_max(&self) -> usize {
        1
    }

    fn device(&self) -> Option<&str> {
        self.0.device()
    }

    fn draft_ahead(
        &mut self,
        session: &Session,
        path: &[u32],
        limit: usize,
        go_on: &dyn Fn() -> bool,
    ) -> Ahead {
        self.0.draft_ahead(session, path, limit, go_on)
    }

    fn propose(&mut self, session: &Session, limit: usize) -> Result<TokenTree, DraftError> {
        let tree = self.0.propose(session, limit)?;
        Ok(if tree.drafted() > 0 && tree.token(1) == 0 { self.0.propose(session, limit)? } else { tree })
    }
}

#[test]
fn enumeration_sees_prepared_guesses_dropped_once_known() {
    let honest = ahead(2, 1, 5);
    let drafter = Arc::clone(&honest.drafter);
    let setting = Setting { drafter: Arc::new(move || Box::new(Fussy(drafter()))), ..honest };
    let error = largest_difference(&setting.text_law_in_one_go(), &setting.target_law());
    assert!(error >= 1e-6, "{error:e}");
}

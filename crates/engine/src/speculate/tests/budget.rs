//! The budget against machines and texts whose costs and truths are known.

use super::*;
use crate::speculate::Guess;

/// A pass of w rows takes `10 + row_ms * (w - 1)` ms.
fn budget(row_ms: f64, costly: bool) -> Budget {
    let mut budget = Budget::new(16, false, costly, true);
    budget.set_costs(Costs::new([1, 2, 4, 8, 16, 33].map(|w| (w, 10.0 + row_ms * (w as f64 - 1.0)))));
    budget
}

fn round(draft_ms: f64, total_ms: f64, drafted: usize, guesses: usize) -> RoundCost {
    RoundCost { draft_ms, waited_ms: 0.0, total_ms, drafted, guesses, ahead: None }
}

fn chain(guesses: usize, probability: f32, source: Source) -> TokenTree {
    let mut tree = TokenTree::root(0);
    let mut at = 0;
    for i in 0..guesses {
        at = tree.push(at, Guess { token: i as u32 + 1, probability, source });
    }
    tree
}

/// Plays rounds in which the first `right` guesses of each chain are right; returns how many were verified in each.
fn play(
    budget: &mut Budget,
    rounds: usize,
    right: usize,
    proposal: &TokenTree,
    row_ms: f64,
    guess_ms: f64,
) -> Vec<usize> {
    (0..rounds)
        .map(|_| {
            let allowance = budget.next();
            let model = proposal.guess(1).source == Source::Model;
            let depth = if model { allowance.costly } else { allowance.depth };
            let proposed = proposal.clip(depth, 64, 1000);
            let (guesses, draft_ms) =
                if model { (proposed.drafted(), guess_ms * proposed.drafted() as f64) } else { (0, 0.0) };
            let draft = budget.cut(proposed, draft_ms);
            let accepted = right.min(draft.drafted());
            let mut tokens: Vec<u32> = (1..=accepted as u32).collect();
            tokens.push(if accepted < right { accepted as u32 + 1 } else { 999 });
            let total_ms = 10.0 + row_ms * draft.drafted() as f64 + draft_ms;
            let cost = round(draft_ms, total_ms, draft.drafted(), guesses);
            budget.observe(cost, &tokens);
            draft.drafted()
        })
        .collect()
}

#[test]
fn speculation_budget_takes_what_pays() {
    // Flat costs: everything that may be right. Steep costs: only what is likely.
    let tree = chain(8, 0.8, Source::Suffix);
    assert_eq!(budget(0.1, false).cut(tree.clone(), 0.0).drafted(), 8);
    let steep = budget(4.0, false).cut(tree.clone(), 0.0).drafted();
    assert!((1..8).contains(&steep), "{steep}");
    assert_eq!(budget(9.0, false).cut(tree, 0.0).drafted(), 0);
}

#[test]
fn speculation_budget_prefers_a_likely_branch_to_an_unlikely_depth() {
    let guess = |token, probability| Guess { token, probability, source: Source::Suffix };
    let mut tree = TokenTree::root(0);
    let first = tree.push(0, guess(1, 0.6));
    tree.push(first, guess(2, 0.2));
    tree.push(0, guess(3, 0.4));
    let cut = budget(1.5, false).cut(tree, 0.0);
    assert_eq!((cut.drafted(), cut.depth()), (2, 1));
    assert_eq!((cut.token(1), cut.token(2)), (1, 3));
}

#[test]
fn speculation_budget_learns_that_guesses_are_wrong_without_verifying_them_for_long() {
    let (mut budget, tree) = (budget(2.0, false), chain(6, 0.7, Source::Suffix));
    let verified = play(&mut budget, 100, 0, &tree, 2.0, 0.0);
    assert!(verified.iter().filter(|&&n| n > 0).count() < 12, "{verified:?}");
    assert!(budget.parked());
    let reason = budget.reason().unwrap();
    assert!(reason.contains("accepted of") && reason.contains("plain 10.0 ms"), "{reason}");
    // And comes back for nothing: parked guesses are judged by the tokens that come.
    let verified = play(&mut budget, 60, 6, &tree, 2.0, 0.0);
    assert!(verified[59] > 3, "{verified:?}");
    assert!(!budget.parked());
}

#[test]
fn speculation_budget_finds_the_length_that_pays() {
    // Three of a chain are right; a guess takes 2 ms and a row 1 ms.
    let (mut budget, tree) = (budget(1.0, true), chain(16, 0.7, Source::Model));
    let verified = play(&mut budget, 200, 3, &tree, 1.0, 2.0);
    assert!(verified[150..].iter().all(|&n| n == 3), "{verified:?}");
    assert!(!budget.parked());
}

#[test]
fn speculation_budget_rests_a_costly_drafter_and_tries_it_ever_more_rarely() {
    let (mut budget, tree) = (budget(1.0, true), chain(16, 0.7, Source::Model));
    let verified = play(&mut budget, 2_000, 0, &tree, 1.0, 6.0);
    let tries = verified.iter().filter(|&&n| n > 0).count();
    assert!(tries < 50, "{tries}");
    assert!(budget.parked() && budget.reason().is_some());
    let verified = play(&mut budget, 600, 9, &tree, 1.0, 1.0);
    assert!(verified[599] > 3 && !budget.parked(), "a try finds that it pays: {:?}", &verified[590..]);
}

#[test]
fn speculation_budget_grows_careful_when_its_curve_is_wrong() {
    // Told that rows cost nothing, on a machine where each costs 5 ms, and guesses are right half the time.
    let (mut budget, tree) = (budget(0.0, false), chain(4, 0.6, Source::Suffix));
    let verified = play(&mut budget, 200, 1, &tree, 5.0, 0.0);
    let late = verified[150..].iter().filter(|&&n| n > 1).count();
    assert_eq!(late, 0, "{verified:?}");
}

#[test]
fn speculation_budget_without_parking_always_grants() {
    let mut budget = Budget::new(4, true, true, false);
    assert_eq!(budget.next(), Allowance { depth: 4, costly: 4 });
    assert_eq!(budget.cut(chain(4, 0.01, Source::Ngram), 0.0).drafted(), 4);
    budget.retire("the drafter failed".into());
    assert_eq!(budget.next(), Allowance::default());
    budget.start_reply();
    assert_eq!((budget.parked(), budget.reason().as_deref()), (true, Some("the drafter failed")));
}

#[test]
fn speculation_budget_begins_with_plain_rounds_where_nothing_was_measured() {
    let mut budget = Budget::new(4, false, false, true);
    let verified = play(&mut budget, 6, 4, &chain(4, 0.9, Source::Suffix), 1.0, 0.0);
    assert_eq!(&verified[..2], [0, 0]);
    assert!(verified[2] > 0, "{verified:?}");
}

#[test]
fn speculation_budget_counts_the_price_of_asking_in_vain() {
    let mut budget = budget(1.0, true);
    let mut asked = 0;
    for _ in 0..500 {
        let vain = budget.next().costly > 0;
        asked += usize::from(vain);
        let draft_ms = if vain { 3.0 } else { 0.0 };
        let cost = round(draft_ms, 10.0 + draft_ms, 0, 0);
        budget.observe(cost, &[7]);
    }
    assert!(asked < 60 && budget.parked(), "{asked}");
}

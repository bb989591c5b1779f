//! What the suffix drafter proposes for a given text.
//!
//! Invariant: every proposal hangs on the text's last token and stays within its limits.
//! Not here: counting (`trie::tests`), whether drafts change a reply (they cannot: `tests/speculation.rs`).

use super::*;
use crate::sampling::{Sampler, SamplingParams};
use crate::session::{Limits as SessionLimits, NoText};

fn session(tokens: &[u32]) -> Session {
    let limits = SessionLimits { max_tokens: None, context: 200_000, end_tokens: vec![], ignore_eos: false };
    let sampler = Sampler::new(SamplingParams::greedy(), 10_000, 0).unwrap();
    Session::new(tokens.to_vec(), limits, sampler, Box::new(NoText)).unwrap()
}

fn draft(drafter: &mut SuffixDrafter, tokens: &[u32], limit: usize) -> TokenTree {
    let tree = drafter.propose(&session(tokens), limit).unwrap();
    assert_eq!(tree.token(0), *tokens.last().unwrap());
    assert!(tree.depth() <= limit && tree.drafted() <= MOST_GUESSES);
    tree
}

/// Tokens of the path of first children.
fn path(tree: &TokenTree) -> Vec<u32> {
    let mut tokens = vec![];
    let mut at = 0;
    while let Some(child) = (1..tree.width()).find(|&node| tree.parent(node) == Some(at)) {
        tokens.push(tree.token(child));
        at = child;
    }
    tokens
}

fn fresh(tokens: &[u32], limit: usize) -> TokenTree {
    draft(&mut SuffixDrafter::new(0), tokens, limit)
}

#[test]
fn speculation_suffix_continues_what_came_before() {
    let text = [1, 2, 3, 50, 51, 52, 9, 1, 2, 3];
    let tree = fresh(&text, 8);
    assert_eq!(path(&tree)[..4], [50, 51, 52, 9]);
    assert_eq!(tree.guess(1).source, Source::Suffix);
    assert_eq!(fresh(&text, 2).drafted(), 2);
    assert_eq!(fresh(&text, 0), TokenTree::root(3));
}

#[test]
fn speculation_suffix_proposes_nothing_without_a_match() {
    for text in [&[1][..], &[1, 2, 3, 4], &[1, 2, 7, 2]] {
        assert_eq!(fresh(text, 8).drafted(), 0, "{text:?}");
    }
}

#[test]
fn speculation_suffix_branches_where_the_counts_do() {
    // Behind 1 2 came 5 three times and 6 twice, and the latest was neither.
    let mut text = vec![];
    for next in [5, 6, 5, 6, 5] {
        text.extend([1, 2, next, 90 + text.len() as u32]);
    }
    text.extend([1, 2]);
    let tree = fresh(&text, 1);
    let guesses: Vec<u32> = (1..tree.width()).map(|node| tree.token(node)).collect();
    assert_eq!(guesses, [5, 6]);
    let [first, second] = [1, 2].map(|node| tree.guess(node).probability);
    assert!(first > second && (first / second - 1.5).abs() < 1e-5, "three to two: {first} {second}");
    assert!(first + second < 1.0);
}

#[test]
fn speculation_suffix_takes_the_latest_of_equals_first() {
    let text = [1, 2, 5, 90, 1, 2, 6, 91, 1, 2];
    assert_eq!(path(&fresh(&text, 1)), [6]);
}

#[test]
fn speculation_suffix_is_surer_of_longer_matches_and_more_places() {
    let run: Vec<u32> = (100..160).collect();
    let first = |matched: usize, times: usize| {
        let mut text = vec![];
        for i in 0..times {
            text.extend(&run);
            text.push(i as u32);
        }
        text.extend(&run[20..20 + matched]);
        let tree = fresh(&text, 32);
        assert_eq!(tree.token(1), run[20 + matched]);
        tree.guess(1).probability
    };
    assert_eq!(first(2, 1), 0.5);
    assert!(first(2, 1) < first(4, 1) && first(4, 1) < first(16, 1) && first(16, 1) < 1.0);
    assert!(first(2, 1) < first(2, 2) && first(2, 2) < first(2, 5));
    assert_eq!(first(32, 1), first(39, 1), "longer ones are not looked for");
}

#[test]
fn speculation_suffix_drafts_as_far_as_it_is_likely() {
    let run: Vec<u32> = (100..200).collect();
    let drafted = |matched: usize| {
        let mut text = run.clone();
        text.push(1);
        text.extend(&run[10..10 + matched]);
        fresh(&text, 100).drafted()
    };
    assert_eq!([2, 4, 8, 16, 32].map(drafted), [5, 9, 18, 32, 32]);
}

#[test]
fn speculation_suffix_repeats_the_period_of_an_overlapping_match() {
    assert_eq!(path(&fresh(&[5; 40], 32)), [5; 32]);
    for period in 1..=7_u32 {
        let text: Vec<u32> = (0..40).map(|i| i % period).collect();
        let next: Vec<u32> = (40..72).map(|i| i % period).collect();
        let tree = fresh(&text, 32);
        assert_eq!(path(&tree), next, "period {period}");
        assert_eq!(tree.drafted(), 32, "no branch is wasted on a periodic text");
    }
    let short = [1, 2, 1, 2, 1, 2];
    assert_eq!(path(&fresh(&short, 5))[..5], [1, 2, 1, 2, 1]);
}

#[test]
fn speculation_suffix_survives_truncation_and_replacement() {
    let mut grown = SuffixDrafter::new(0);
    let text: Vec<u32> = [1, 2, 3, 4, 5, 6].repeat(3);
    for len in [18, 11, 16, 9, 18] {
        assert_eq!(draft(&mut grown, &text[..len], 8), fresh(&text[..len], 8), "{len} tokens");
    }
    let other = [9, 9, 1, 2, 3, 7, 1, 2, 3];
    assert_eq!(draft(&mut grown, &other, 8), fresh(&other, 8), "nothing of the old text is left");
    assert_eq!(grown.session.len(), other.len());
}

#[test]
fn speculation_suffix_drafts_from_earlier_replies() {
    let mut drafter = SuffixDrafter::new(1000);
    drafter.learn(&[10, 11, 12, 13, 14]);
    let tree = draft(&mut drafter, &[1, 2, 10, 11], 8);
    assert_eq!(path(&tree), [12, 13, 14], "a reply that ended is not repeated");
    assert_eq!(tree.guess(1).source, Source::History);
    // What the session itself says often enough is believed before that.
    let tree = draft(&mut drafter, &[10, 11, 20, 21, 10, 11, 20, 22, 10, 11], 8);
    assert_eq!((tree.token(1), tree.guess(1).source), (20, Source::Suffix));
    // A match does not run from one reply into the next.
    drafter.learn(&[15, 16]);
    assert_eq!(draft(&mut drafter, &[14, 15], 8).drafted(), 0);
}

#[test]
fn speculation_suffix_learns_a_reply_when_it_has_ended() {
    let mut drafter = SuffixDrafter::new(1000);
    let mut ended = session(&[1, 2, 3]);
    ended.commit(&[10, 11, 12]);
    ended.cancel();
    drafter.finished(&ended);
    assert_eq!(path(&draft(&mut drafter, &[7, 10, 11], 8)), [12]);
    assert_eq!(draft(&mut drafter, &[7, 1, 2], 8).drafted(), 0, "prompts are not remembered");
    let mut forgetful = SuffixDrafter::new(0);
    forgetful.finished(&ended);
    assert_eq!(draft(&mut forgetful, &[7, 10, 11], 8).drafted(), 0);
}

#[test]
fn speculation_suffix_forgets_the_oldest_replies() {
    let mut drafter = SuffixDrafter::new(10);
    drafter.learn(&[10, 11, 12, 13]);
    drafter.learn(&[20, 21, 22, 23]);
    assert_eq!(path(&draft(&mut drafter, &[1, 10, 11], 8)), [12, 13]);
    drafter.learn(&[30, 31, 32, 33]);
    assert_eq!(draft(&mut drafter, &[1, 10, 11], 8).drafted(), 0);
    assert_eq!(path(&draft(&mut drafter, &[1, 20, 21], 8)), [22, 23]);
    drafter.learn(&(40..60).collect::<Vec<_>>());
    assert_eq!(drafter.past.len(), 10);
    assert_eq!(path(&draft(&mut drafter, &[1, 55, 56], 8)), [57, 58, 59]);
    assert_eq!(draft(&mut drafter, &[1, 48, 49], 8).drafted(), 0);
}

#[test]
fn speculation_suffix_reads_a_prompt_until_it_is_told_to_stop() {
    let text: Vec<u32> = (0..100_000).map(|i| i % 1_000).collect();
    let mut drafter = SuffixDrafter::new(0);
    drafter.prepare(&session(&text), &AtomicBool::new(true)).unwrap();
    assert_eq!(drafter.session.len(), 0);
    drafter.prepare(&session(&text), &AtomicBool::new(false)).unwrap();
    assert_eq!(drafter.session.len(), text.len());
}

//! The trie against counting by hand.
//!
//! Invariant: texts are pseudo-random, of few different tokens, so that every kind of border occurs.
//! Not here: proposals (`suffix`).

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Every n-gram of up to `depth` tokens with its count and the number of texts' ends right behind it.
fn by_hand(texts: &[Vec<u32>], depth: usize) -> HashMap<Vec<u32>, (u32, u32)> {
    let mut counts = HashMap::new();
    for text in texts {
        for start in 0..text.len() {
            for end in start + 1..=text.len().min(start + depth) {
                let (count, ends): &mut (u32, u32) = counts.entry(text[start..end].to_vec()).or_default();
                *count += 1;
                *ends += u32::from(end == text.len() || end == start + depth);
            }
        }
    }
    counts
}

/// The same, read from the trie, with the shape checked on the way.
fn read(trie: &Trie) -> HashMap<Vec<u32>, (u32, u32)> {
    let mut counts = HashMap::new();
    let mut waiting = vec![(trie.root(), Vec::new())];
    let mut nodes = 1;
    while let Some((point, gram)) = waiting.pop() {
        let node = &trie.nodes[point.node as usize];
        let steps: Vec<Step> = trie.steps(point).collect();
        if point.taken == node.len {
            if point.node != ROOT {
                assert!(steps.len() > 1 || node.ends > 0, "nothing keeps {gram:?} from its child");
            }
            nodes += steps.len();
        }
        let total: u32 = steps.iter().map(|step| step.count).sum();
        assert_eq!(total, trie.total(point), "{gram:?}");
        for step in steps {
            assert_eq!(trie.step(point, step.token), Some(step.point));
            let gram = [&gram[..], &[step.token]].concat();
            counts.insert(gram.clone(), (step.count, step.count - trie.total(step.point)));
            waiting.push((step.point, gram));
        }
    }
    assert_eq!(nodes, trie.nodes.len() - trie.free.len(), "every node is reached or free");
    assert_eq!(trie.children.len(), nodes - 1, "every node but the root has one name");
    counts
}

fn of(texts: &[Vec<u32>], depth: usize) -> Trie {
    let mut trie = Trie::new(depth);
    for text in texts {
        text.iter().for_each(|&token| trie.push(token));
        trie.close();
    }
    trie
}

/// Texts of a few tokens, often periodic.
fn texts() -> impl Strategy<Value = Vec<Vec<u32>>> {
    let random = |most| prop::collection::vec(0..3_u32, 0..most);
    let periodic = (random(5), 1..9_usize).prop_map(|(text, times)| text.repeat(times));
    prop::collection::vec(prop_oneof![random(40), periodic], 0..7)
}

proptest! {
    #[test]
    fn speculation_trie_counts_what_a_count_by_hand_gives(texts in texts(), depth in 1..12_usize) {
        prop_assert_eq!(read(&of(&texts, depth)), by_hand(&texts, depth));
    }

    #[test]
    fn speculation_trie_counts_an_open_text_after_every_token(text in prop::collection::vec(0..3_u32, 0..60)) {
        let mut trie = Trie::new(6);
        for len in 0..text.len() {
            prop_assert_eq!(read(&trie), by_hand(&[text[..len].to_vec()], 6));
            prop_assert!(trie.open().eq(text[..len].iter().copied()));
            for n in 1..=6 {
                let walked = text[len.saturating_sub(n)..len].iter()
                    .try_fold(trie.root(), |point, &token| trie.step(point, token));
                prop_assert_eq!(trie.open_end(n), walked.filter(|_| n <= len));
            }
            trie.push(text[len]);
        }
    }

    #[test]
    fn speculation_trie_without_its_oldest_text_is_one_that_never_had_it(texts in texts(), depth in 1..12_usize) {
        let mut trie = of(&texts, depth);
        let kept: Vec<Vec<u32>> = texts.into_iter().filter(|text| !text.is_empty()).collect();
        for gone in 1..=kept.len() {
            trie.forget_oldest();
            prop_assert_eq!(read(&trie), by_hand(&kept[gone..], depth));
            prop_assert_eq!(trie.len(), kept[gone..].iter().map(Vec::len).sum::<usize>());
        }
        prop_assert_eq!(trie.nodes.len() - trie.free.len(), 1);
    }

    #[test]
    fn speculation_trie_stays_right_while_texts_come_and_go(texts in texts(), depth in 1..8_usize) {
        let mut trie = Trie::new(depth);
        let mut held: Vec<Vec<u32>> = Vec::new();
        for text in texts.iter().cycle().take(3 * texts.len()).filter(|text| !text.is_empty()) {
            text.iter().for_each(|&token| trie.push(token));
            trie.close();
            held.push(text.clone());
            if held.len() > 2 {
                trie.forget_oldest();
                held.remove(0);
            }
            prop_assert_eq!(read(&trie), by_hand(&held, depth));
        }
    }
}

/// A pseudo-random text over `vocab` tokens.
fn text(len: u64, vocab: u64) -> impl Iterator<Item = u32> + Clone {
    (0..len).map(move |i| ((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u32 % vocab as u32)
}

#[test]
fn speculation_trie_has_two_nodes_a_token_at_most() {
    // All different; hardly ever the same twice; of few tokens; the same again and again; one token only.
    let n = 100_000;
    let tokens: [Vec<u32>; 5] = [
        (0..n as u32).collect(),
        text(n, 50_000).collect(),
        text(n, 4).collect(),
        text(1_000, 500).cycle().take(n as usize).collect(),
        vec![7; n as usize],
    ];
    for tokens in tokens {
        let mut trie = Trie::new(64);
        let mut moved = 0;
        for token in tokens {
            trie.push(token);
            moved += trie.active.len();
        }
        assert!(trie.nodes.len() <= 2 * n as usize + 64, "{} nodes", trie.nodes.len());
        assert!(moved <= 64 * n as usize, "one step for each depth and token");
    }
    assert_eq!(size_of::<Node>(), 32);
}

#[test]
fn speculation_trie_uses_the_room_of_forgotten_texts_again() {
    let mut trie = Trie::new(64);
    let mut most = 0;
    for i in 0..200 {
        text(500, 90).for_each(|token| trie.push((token * (i + 1)) % 997));
        trie.close();
        if i >= 10 {
            trie.forget_oldest();
        }
        most = most.max(trie.nodes.len());
    }
    assert!(trie.len() == 10 * 500 && most <= 2 * 11 * 500 + 64 * 11, "{most} nodes");
}

#[test]
fn speculation_trie_positions_may_wrap_around() {
    let texts = [vec![1, 2, 1, 2, 3], vec![2, 1, 2, 1], vec![1, 2, 3]];
    let mut trie = Trie::new(4);
    trie.first = u32::MAX - 6;
    for (i, text) in texts.iter().enumerate() {
        text.iter().for_each(|&token| trie.push(token));
        trie.close();
        assert_eq!(read(&trie), by_hand(&texts[..=i], 4));
    }
    trie.forget_oldest();
    assert_eq!(read(&trie), by_hand(&texts[1..], 4));
    trie.forget_oldest();
    assert_eq!(read(&trie), by_hand(&texts[2..], 4));
}

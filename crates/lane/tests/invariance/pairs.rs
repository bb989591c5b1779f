//! Chooses rows of settings so that every pair of values of any two factors occurs together.
//!
//! Greedy: take a pair that is still missing, then give every other factor the value that covers
//! the most missing pairs with those already set, the lowest on ties. Value 0 of the last factors is
//! therefore the most common one, which lets the slow kernel table be rare.

use std::collections::BTreeSet;

/// Rows with one value per factor; factor `f` takes values `0..sizes[f]`.
pub(crate) fn covering(sizes: &[usize]) -> Vec<Vec<usize>> {
    let mut missing = BTreeSet::new();
    for (f, &n) in sizes.iter().enumerate() {
        for (g, &m) in sizes.iter().enumerate().skip(f + 1) {
            missing.extend((0..n).flat_map(|a| (0..m).map(move |b| (f, a, g, b))));
        }
    }
    let mut rows = Vec::new();
    while let Some(&(f, a, g, b)) = missing.first() {
        let mut row = vec![None; sizes.len()];
        (row[f], row[g]) = (Some(a), Some(b));
        for factor in 0..sizes.len() {
            if row[factor].is_none() {
                row[factor] = Some(best_value(factor, sizes[factor], &row, &missing));
            }
        }
        let row: Vec<usize> = row.into_iter().flatten().collect();
        for f in 0..row.len() {
            for g in f + 1..row.len() {
                missing.remove(&(f, row[f], g, row[g]));
            }
        }
        rows.push(row);
    }
    rows
}

fn best_value(
    factor: usize,
    size: usize,
    row: &[Option<usize>],
    missing: &BTreeSet<(usize, usize, usize, usize)>,
) -> usize {
    let covers = |value: usize| {
        let set = row.iter().enumerate().filter_map(|(other, v)| v.map(|v| (other, v)));
        let pairs =
            set.map(
                |(other, v)| {
                    if other < factor { (other, v, factor, value) } else { (factor, value, other, v) }
                },
            );
        pairs.filter(|pair| missing.contains(pair)).count()
    };
    (0..size).rev().max_by_key(|&value| covers(value)).expect("factors have values")
}

#[test]
fn every_pair_is_covered() {
    let sizes = [4, 3, 7, 2];
    let rows = covering(&sizes);
    assert!(rows.len() >= 28 && rows.len() < 80, "{} rows", rows.len());
    for f in 0..4 {
        for g in f + 1..4 {
            let seen: BTreeSet<_> = rows.iter().map(|row| (row[f], row[g])).collect();
            assert_eq!(seen.len(), sizes[f] * sizes[g]);
        }
    }
}

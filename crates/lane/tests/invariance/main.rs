//! The promise everything else stands on: a logits row is a function of its token prefix, bit for bit.
//!
//! Tiny random models of every family and block type are run under every kernel table, form of keys
//! and values, number of threads, prompt chunking, draft shape and pass width, beside rows poisoned
//! with NaN and huge numbers, and over buffers poisoned with NaN. Each row is compared with the same prefix fed one
//! token at a time on one thread.
//!
//! By default all *pairs* of settings are covered under a fixed seed; `PILOTFISH_INVARIANCE=full`
//! runs the product, and `sample` every 16th case, for CPUs that are emulated. With the feature `broken-numerics` the suite runs on arithmetic that is wrong
//! on purpose and must fail.

mod case;
mod pairs;

use case::{Bench, Case, Draft, settings};

/// Whether `PILOTFISH_INVARIANCE` asks for this.
fn asked_for(extent: &str) -> bool {
    std::env::var("PILOTFISH_INVARIANCE").is_ok_and(|value| value == extent)
}

/// Runs cases and reports every row whose bits differ.
fn check(cases: &[Case]) {
    let mut bench = Bench::default();
    let step = if asked_for("sample") { 16 } else { 1 };
    for case in cases.iter().step_by(step) {
        let failures = bench.run(case);
        // One case's failures tell enough; the rest would only repeat them.
        assert!(failures.is_empty(), "bits differ in {} rows, first: {}", failures.len(), failures[0]);
    }
    assert!(bench.rows > 0, "no row was compared");
    let run = cases.len().div_ceil(step);
    eprintln!("{run} of {} cases, {} logits rows compared bitwise, 0 differ", cases.len(), bench.rows);
}

/// Varies one thing over all families under the fastest table, forms of keys and values in turns, the rest plain.
fn vary(values: usize, set: impl Fn(&mut Case, usize)) {
    let n = settings();
    let mut cases = Vec::new();
    for family in 0..n.families {
        for value in 0..values {
            let mut case = Case::plain(family, (3 * family + value) % n.block_types);
            case.kv_type = (family + value) % n.kv_types;
            set(&mut case, value);
            cases.push(case);
        }
    }
    check(&cases);
}

#[test]
fn invariance_threads() {
    vary(settings().threads, |case, i| {
        (case.threads, case.chunk, case.width) = (i, 4, 5);
    });
}

#[test]
fn invariance_chunks() {
    vary(settings().chunks, |case, i| case.chunk = i);
}

#[test]
fn invariance_widths() {
    vary(settings().widths, |case, i| case.width = i);
}

#[test]
fn invariance_neighbours() {
    vary(8, |case, i| {
        (case.width, case.seed) = (settings().widths - 1, i as u64);
    });
}

#[test]
fn invariance_drafts() {
    vary(settings().drafts * settings().lengths, |case, i| {
        case.draft = i % settings().drafts;
        case.length = i / settings().drafts;
    });
}

#[test]
fn invariance_pairs() {
    let n = settings();
    let cases =
        if asked_for("full") { case::product() } else { case::from_rows(&pairs::covering(&n.sizes())) };
    // A covering of all pairs cannot be smaller than the product of the two largest factors.
    assert!(cases.len() >= n.widths * n.block_types, "only {} cases", cases.len());
    check(&cases);
}

#[test]
fn invariance_control() {
    let mut bench = Bench::default();
    let case = Case::plain(0, 3);
    bench.spoil(&case);
    assert_eq!(bench.run(&case).len(), 1, "one wrong bit must be seen once");
}

#[test]
fn the_suite_compares_every_kind_of_draft() {
    let kinds = [Draft::Exact, Draft::Partial, Draft::Wrong, Draft::Tree];
    assert_eq!(settings().drafts, kinds.len());
    assert_eq!((settings().families, settings().block_types, settings().widths), (4, 14, 33));
}

//! The sampler against the dumbest possible code, and against the law it must follow.
//!
//! Invariant: seeds are fixed, so a failure here repeats.
//! Not here: sampling inside speculation (`tests/speculation.rs`).

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

/// The kept candidates, computed with sorts and maps and no shortcuts, as (token, logit), by id.
pub(crate) fn naive_kept(params: &SamplingParams, logits: &[f32], history: &[u32]) -> Vec<(u32, f64)> {
    let mut all: Vec<(u32, f64)> = (0..).zip(logits.iter().map(|&x| f64::from(x))).collect();
    for &(token, bias) in &params.logit_bias {
        all[token as usize].1 += f64::from(bias);
    }
    let window = if params.repeat_last_n < 0 { history.len() } else { params.repeat_last_n as usize };
    let recent = &history[history.len() - window.min(history.len())..];
    for (token, logit) in &mut all {
        let count = recent.iter().filter(|seen| *seen == token).count();
        if count > 0 && params.has_penalties() {
            let repeat = f64::from(params.repeat_penalty);
            *logit = if *logit <= 0.0 { *logit * repeat } else { *logit / repeat };
            *logit -= count as f64 * f64::from(params.frequency_penalty) + f64::from(params.presence_penalty);
        }
    }
    if params.top_k > 0 {
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.truncate(params.top_k as usize);
    }
    // Sums in the order the filters document: sorted after top-k, by id otherwise.
    let largest = all.iter().map(|c| c.1).fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = all.iter().map(|c| elementary::exp(c.1 - largest)).sum();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if params.top_p < 1.0 {
        let mut reached = 0.0;
        let mut keep = 0;
        for candidate in &all {
            keep += 1;
            reached += elementary::exp(candidate.1 - largest);
            if reached >= f64::from(params.top_p) * total {
                break;
            }
        }
        all.truncate(keep);
    }
    if params.min_p > 0.0 {
        let border = elementary::ln(f64::from(params.min_p));
        all.retain(|c| c.1 >= largest + border);
    }
    all.sort_by_key(|c| c.0);
    all
}

fn sampler(params: SamplingParams) -> Sampler {
    Sampler::new(params, 1 << 20, 0).unwrap()
}

fn kept(sampler: &mut Sampler, logits: &[f32], history: &[u32]) -> Vec<(u32, f64)> {
    sampler.adjust(logits, history).unwrap();
    sampler.filter();
    let mut kept: Vec<_> = sampler.candidates.iter().map(|c| (c.token, c.logit)).collect();
    kept.sort_by_key(|c| c.0);
    kept
}

/// Logits on a coarse grid, so that ties are common.
fn any_logits() -> impl Strategy<Value = Vec<f32>> {
    let grid = prop::collection::vec((-40_i32..40).prop_map(|x| x as f32 / 4.0), 1..40);
    let wide = prop::collection::vec(-30.0_f32..30.0, 200..900);
    prop_oneof![4 => grid, 1 => wide]
}

fn any_params() -> impl Strategy<Value = SamplingParams> {
    let share = || prop_oneof![Just(0.0_f32), Just(1.0), 0.0_f32..1.0];
    let penalty = || prop_oneof![Just(0.0_f32), -2.0_f32..2.0];
    (
        prop_oneof![Just(-1), Just(0), Just(i32::MAX), 1..50],
        share(),
        share(),
        prop_oneof![Just(1.0_f32), 0.5_f32..2.0],
        prop_oneof![Just(-1), Just(0), Just(64), 1..10],
        (penalty(), penalty()),
        any::<u64>(),
        prop_oneof![Just(1e-9_f32), Just(1e9), 0.1_f32..3.0],
    )
        .prop_map(
            |(top_k, top_p, min_p, repeat_penalty, repeat_last_n, penalties, seed, temperature)| {
                SamplingParams {
                    temperature,
                    top_k,
                    top_p,
                    min_p,
                    repeat_penalty,
                    repeat_last_n,
                    presence_penalty: penalties.0,
                    frequency_penalty: penalties.1,
                    logit_bias: vec![],
                    seed,
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        rng_seed: RngSeed::Fixed(2_024),
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn sampling_filters_equal_naive_code(
        logits in any_logits(), mut params in any_params(), bias in -100.0_f32..100.0,
        history in prop::collection::vec(0_u32..40, 0..90),
    ) {
        params.logit_bias = vec![(0, bias), (logits.len() as u32 - 1, -bias)];
        let mut sampler = sampler(params.clone());
        let kept = kept(&mut sampler, &logits, &history);
        prop_assert_eq!(&kept, &naive_kept(&params, &logits, &history));
        prop_assert!(!kept.is_empty(), "at least one candidate is kept");
        prop_assert!(sampler.counts.iter().all(|&count| count == 0), "the scratch is clean again");
    }

    #[test]
    fn sampling_draw_equals_naive_gumbel_argmax(
        logits in any_logits(), params in any_params(), history in prop::collection::vec(0_u32..40, 0..20),
    ) {
        let noise = Noise::new(params.seed, 0, history.len(), Purpose::Token);
        let kept = naive_kept(&params, &logits, &history);
        let largest = kept.iter().map(|c| c.1).fold(f64::NEG_INFINITY, f64::max);
        let mut expected = (f64::NEG_INFINITY, 0);
        for (token, logit) in kept {
            let gumbel = Noise::gumbel(noise.bits(token));
            let score = (logit - largest) / f64::from(params.temperature) + gumbel;
            if score > expected.0 {
                expected = (score, token);
            }
        }
        prop_assert_eq!(sampler(params).sample(&logits, &history), Ok(expected.1));
    }

    #[test]
    fn sampling_among_all_tokens_is_sampling(
        logits in any_logits(), params in any_params(), history in prop::collection::vec(0_u32..40, 0..20),
        greedy in any::<bool>(),
    ) {
        let params = SamplingParams { temperature: if greedy { 0.0 } else { params.temperature }, ..params };
        let mut sampler = sampler(params);
        // In an order of their own, as a head gives them.
        let mut all: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        prop_assert_eq!(sampler.sample_among(&all, &history), sampler.sample(&logits, &history));
        prop_assert_eq!(sampler.law_among(&all, &history), sampler.law(&logits, &history));
        // Without one of them, it is as if that could not be.
        if let Some(&(gone, _)) = all.get(1) {
            all.remove(1);
            let mut without = logits.clone();
            without[gone as usize] = -1e30;
            let token = sampler.sample_among(&all, &history).unwrap();
            prop_assert_ne!(token, gone);
            if greedy {
                prop_assert_eq!(Ok(token), sampler.sample(&without, &history));
            }
        }
    }

    #[test]
    fn sampling_greedy_is_the_best_adjusted_logit(
        logits in any_logits(), mut params in any_params(), history in prop::collection::vec(0_u32..40, 0..20),
    ) {
        params.temperature = 0.0;
        let unfiltered = SamplingParams { top_k: 0, top_p: 1.0, min_p: 0.0, ..params.clone() };
        let all = naive_kept(&unfiltered, &logits, &history);
        let best = all.iter().fold(all[0], |best, &c| if c.1 > best.1 { c } else { best });
        prop_assert_eq!(sampler(params).sample(&logits, &history), Ok(best.0));
    }
}

/// With probability 1 - 1e-9 the empirical law of `n` draws over `k` outcomes is nearer than this.
pub(crate) fn total_variation_bound(k: usize, n: usize) -> f64 {
    ((k as f64 * std::f64::consts::LN_2 + 1e9_f64.ln()) / (2.0 * n as f64)).sqrt()
}

/// Distance between the law of many coupled draws from `logits` and the softmax of what the filters
/// keep of `law_logits`.
fn distance_to_law(params: &SamplingParams, logits: &[f32], law_logits: &[f32], draws: usize) -> f64 {
    let mut counts = vec![0_usize; logits.len()];
    let history = vec![1_u32; 400];
    for i in 0..draws {
        // Seeds, choices and positions all vary: each must give independent numbers.
        let params = SamplingParams { seed: (i / 40) as u64, ..params.clone() };
        let mut sampler = Sampler::new(params, logits.len(), (i % 4) as u32).unwrap();
        let token = sampler.sample(logits, &history[..(i / 4) % 10 * 7]).unwrap();
        counts[token as usize] += 1;
    }
    let kept = naive_kept(params, law_logits, &[]);
    let scaled = |logit: f64| (logit / f64::from(params.temperature)).exp();
    let total: f64 = kept.iter().map(|c| scaled(c.1)).sum();
    let mut law = vec![0.0; logits.len()];
    for (token, logit) in kept {
        law[token as usize] = scaled(logit) / total;
    }
    counts.iter().zip(law).map(|(&n, p)| (n as f64 / draws as f64 - p).abs()).sum::<f64>() / 2.0
}

#[test]
fn sampling_follows_the_softmax_law() {
    let logits = [1.0, -0.5, 2.0, 0.0, 0.3, -3.0, 1.9, 0.9];
    let draws = 400_000;
    let bound = total_variation_bound(logits.len(), draws);
    assert!(bound < 0.006);
    for temperature in [0.3, 1.0, 2.0] {
        let params = SamplingParams { temperature, ..SamplingParams::greedy() };
        let distance = distance_to_law(&params, &logits, &logits, draws);
        assert!(distance < bound, "temperature {temperature}: {distance} is not below {bound}");
    }
}

#[test]
fn sampling_follows_the_law_of_the_kept_candidates() {
    let logits = [1.0, -0.5, 2.0, 0.0, 0.3, -3.0, 1.9, 0.9];
    let draws = 200_000;
    let bound = total_variation_bound(logits.len(), draws);
    let base = SamplingParams { temperature: 0.8, ..SamplingParams::greedy() };
    let cases = [
        SamplingParams { top_k: 3, ..base.clone() },
        SamplingParams { top_p: 0.7, ..base.clone() },
        SamplingParams { min_p: 0.3, ..base.clone() },
        SamplingParams { top_k: 6, top_p: 0.9, min_p: 0.1, ..base },
    ];
    for params in cases {
        let distance = distance_to_law(&params, &logits, &logits, draws);
        assert!(distance < bound, "{params:?}: {distance} is not below {bound}");
    }
}

#[test]
fn sampling_law_check_notices_a_small_error() {
    // The same check against a law in which one logit is off by 0.06: it must fail, or it proves nothing.
    let logits = [1.0, -0.5, 2.0, 0.0, 0.3, -3.0, 1.9, 0.9];
    let mut wrong = logits;
    wrong[2] += 0.06;
    let draws = 400_000;
    let params = SamplingParams { temperature: 1.0, ..SamplingParams::greedy() };
    let distance = distance_to_law(&params, &logits, &wrong, draws);
    assert!(distance > total_variation_bound(logits.len(), draws), "{distance}");
}

#[test]
fn sampling_neighbouring_positions_are_independent() {
    // Joint law of two neighbouring positions under one seed, over many seeds.
    let logits = [0.0, 0.5, 1.0];
    let draws = 200_000;
    let mut counts = [0_usize; 9];
    for seed in 0..draws as u64 {
        let params = SamplingParams { temperature: 1.0, seed, ..SamplingParams::greedy() };
        let mut sampler = Sampler::new(params, 3, 0).unwrap();
        let a = sampler.sample(&logits, &[0; 5]).unwrap();
        let b = sampler.sample(&logits, &[0; 6]).unwrap();
        counts[(3 * a + b) as usize] += 1;
    }
    let total: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
    let p = |i: usize| f64::from(logits[i]).exp() / total;
    let distance: f64 =
        (0..9).map(|i| (counts[i] as f64 / draws as f64 - p(i / 3) * p(i % 3)).abs()).sum::<f64>() / 2.0;
    assert!(distance < total_variation_bound(9, draws), "{distance}");
}

#[test]
fn sampling_extremes_keep_a_candidate() {
    let logits: Vec<f32> = (0..1_000).map(|i| (i * 7919 % 1_000) as f32 / 100.0).collect();
    let argmax = logits.iter().position(|&x| x == 9.99).unwrap() as u32;
    let everything = SamplingParams {
        temperature: 1e-9,
        top_k: 1_000_000_000,
        top_p: 0.0,
        min_p: 1.0,
        repeat_penalty: 1.5,
        repeat_last_n: -1,
        presence_penalty: 0.5,
        frequency_penalty: 0.5,
        logit_bias: (0..1_000).map(|id| (id, -100.0)).collect(),
        seed: 5,
    };
    // The penalized tokens have negative logits after the bias, so the argmax stays the best.
    assert_eq!(sampler(everything).sample(&logits, &[3, 4, 5]), Ok(argmax));
    let one = SamplingParams { temperature: 1e9, top_p: 0.0, ..SamplingParams::greedy() };
    assert_eq!(sampler(one).sample(&logits, &[]), Ok(argmax));
    let equal = SamplingParams { temperature: 1.0, top_k: 1, ..SamplingParams::greedy() };
    assert_eq!(sampler(equal).sample(&[2.0, 2.0, 2.0], &[]), Ok(0), "ties go to the lowest id");
    let huge = SamplingParams { temperature: f32::MIN_POSITIVE, ..SamplingParams::greedy() };
    assert_eq!(sampler(huge).sample(&[f32::MIN, f32::MAX, 0.0], &[]), Ok(1));
}

#[test]
fn sampling_non_finite_logits_are_an_error() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for params in [SamplingParams::greedy(), SamplingParams::default()] {
            let error = sampler(params).sample(&[0.0, value, 1.0], &[7, 8]).unwrap_err();
            assert!(matches!(error, SamplingError::NonFinite { position: 2, token: 1, .. }), "{error}");
        }
    }
}

#[test]
fn sampling_is_the_same_for_a_clone_and_in_any_order() {
    let params = SamplingParams { repeat_penalty: 1.3, repeat_last_n: -1, ..SamplingParams::default() };
    let rows: Vec<Vec<f32>> =
        (0..20).map(|r| (0..64).map(|i| ((i * 37 + r * 11) % 64) as f32 / 8.0).collect()).collect();
    let history: Vec<u32> = (0..20).collect();
    let mut forward = sampler(params.clone());
    let there: Vec<_> = (0..20).map(|r| forward.sample(&rows[r], &history[..r]).unwrap()).collect();
    let mut backward = forward.clone();
    let mut back: Vec<_> = (0..20).rev().map(|r| backward.sample(&rows[r], &history[..r]).unwrap()).collect();
    back.reverse();
    assert_eq!(there, back);
    let other_choice = Sampler::new(params, 64, 1).unwrap();
    let other: Vec<_> =
        (0..20).map(|r| other_choice.clone().sample(&rows[r], &history[..r]).unwrap()).collect();
    assert_ne!(there, other, "another choice has numbers of its own");
}

#[test]
fn sampling_logprobs_are_a_log_softmax() {
    let logits = [0.5_f32, 3.0, -2.0, 3.0, 1.0];
    let total: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
    let all = logprobs(&logits, 4, 5);
    assert_eq!(all.top.iter().map(|entry| entry.0).collect::<Vec<_>>(), [1, 3, 4, 0, 2]);
    for &(token, logprob) in &all.top {
        let expected = f64::from(logits[token as usize]) - total.ln();
        assert!((logprob - expected).abs() < 1e-14, "token {token}");
    }
    assert_eq!(all.top[2], (4, all.logprob), "the chosen token's entry is its own value");
    assert_eq!(logprobs(&logits, 4, 2).top, all.top[..2]);
    assert!(logprobs(&logits, 0, 0).top.is_empty());
    assert_eq!(logprobs(&logits, 0, 99).top.len(), 5);
}

//! Every family against Hugging Face transformers, on tiny random models committed with its logits.
//!
//! Each model runs the recorded 768 tokens in one pass on every kernel table this processor has, and
//! on the fastest also one by one and in sevens, which must give the same bits. At the recorded
//! positions the logits must be transformers'. The cache rounds keys and values to f16, which
//! transformers does not, so there are two comparisons: with its plain logits, loosely, and with the
//! logits it gives when it rounds the same, tightly.
//!
//! Invariant: the comparison is known to fail, because models with one thing wrong are refused.
//! Not here: making the models and logits (`data/make_reference.py`).

#![allow(clippy::unwrap_used, reason = "what cannot be read is a failed test")]
#![allow(clippy::print_stdout, reason = "`--nocapture` shows how close each case is")]

use std::path::PathBuf;
use std::slice;
use std::sync::Arc;

use pilotfish_lane::cpu::{CpuLane, CpuOptions};
use pilotfish_lane::{Batch, Lane, Row, Want};
use pilotfish_model::{Gguf, GgufWriter, Model};
use pilotfish_tensor::kernels::Kernels;

/// Mean difference from transformers' plain logits, whose spread is 2.5. The f16 cache alone causes
/// 0.5 to 1.7 thousandths, as `make_reference.py` prints.
const PLAIN_MEAN: f64 = 2.5e-3;
/// Most any single logit may differ from the plain ones; the cache alone causes up to 1.3 hundredths.
const PLAIN_MAX: f64 = 3e-2;
/// Mean difference once transformers rounds keys and values too. Where one lies on the border of two
/// f16 values, the order of a sum decides: transformers in single precision differs from itself in
/// double by up to 0.25 thousandths for that reason.
const ROUNDED_MEAN: f64 = 4e-4;
/// Mean difference of the best position, where nothing lies on a border. What remains is f32 itself,
/// about half a millionth; a slightly wrong norm or activation moves every position by more.
const ROUNDED_BEST: f64 = 3e-6;

/// One case as transformers saw it.
struct Reference {
    tokens: Vec<u32>,
    positions: Vec<usize>,
    /// `[positions, vocab]`.
    plain: Vec<Vec<f32>>,
    /// The same with keys and values rounded to f16.
    rounded: Vec<Vec<f32>>,
}

impl Reference {
    fn load(case: &str) -> Self {
        let file = Gguf::open(&path(&format!("{case}.logits"))).unwrap();
        let rows = |name: &str| -> Vec<Vec<f32>> {
            let info = file.require_tensor(name).unwrap();
            let mut out = vec![0.0; info.n_elements()];
            info.block_type.decode(file.tensor_bytes(name).unwrap(), &mut out);
            out.chunks(info.row_len()).map(<[f32]>::to_vec).collect()
        };
        let numbers = |key: &str| file.metadata().u32s(key).unwrap().unwrap();
        let plain = rows("reference.logits");
        let effect = rows("reference.cache_effect");
        let rounded = plain
            .iter()
            .zip(&effect)
            .map(|(row, effect)| row.iter().zip(effect).map(|(logit, effect)| logit + effect).collect());
        Self {
            tokens: numbers("reference.tokens"),
            positions: numbers("reference.positions").into_iter().map(|p| p as usize).collect(),
            rounded: rounded.collect(),
            plain,
        }
    }

    /// How far the lane's logits, one row a token, are from transformers'.
    fn deviation(&self, logits: &[Vec<f32>]) -> Deviation {
        let ours: Vec<&[f32]> = self.positions.iter().map(|&p| logits[p].as_slice()).collect();
        let (plain_mean, plain_max) = difference(&ours, &self.plain);
        let (rounded_mean, _) = difference(&ours, &self.rounded);
        let each =
            ours.iter().zip(&self.rounded).map(|(ours, row)| difference(&[ours], slice::from_ref(row)).0);
        let rounded_best = each.fold(f64::INFINITY, f64::min);
        let wrong_top = (0..ours.len())
            .filter(|&i| margin(&self.plain[i]) > 2.0 * PLAIN_MAX && top(ours[i]) != top(&self.plain[i]))
            .map(|i| self.positions[i])
            .collect();
        Deviation { plain_mean, plain_max, rounded_mean, rounded_best, wrong_top }
    }
}

/// What a comparison found.
#[derive(Debug)]
struct Deviation {
    plain_mean: f64,
    plain_max: f64,
    rounded_mean: f64,
    rounded_best: f64,
    /// Positions where another token leads although transformers' margin is clear.
    wrong_top: Vec<usize>,
}

impl Deviation {
    fn is_acceptable(&self) -> bool {
        self.plain_mean < PLAIN_MEAN
            && self.plain_max < PLAIN_MAX
            && self.rounded_mean < ROUNDED_MEAN
            && self.rounded_best < ROUNDED_BEST
            && self.wrong_top.is_empty()
    }
}

/// Mean and largest absolute difference; a NaN anywhere makes both NaN, which no bound accepts.
fn difference(ours: &[&[f32]], theirs: &[Vec<f32>]) -> (f64, f64) {
    assert_eq!(ours.len(), theirs.len(), "one row for each recorded position");
    let (mut sum, mut max, mut count) = (0.0, 0.0_f64, 0);
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert_eq!(ours.len(), theirs.len(), "the vocabularies have the same size");
        for (a, b) in ours.iter().zip(theirs) {
            let delta = (f64::from(*a) - f64::from(*b)).abs();
            sum += delta;
            max = if delta > max || delta.is_nan() { delta } else { max };
            count += 1;
        }
    }
    (sum / f64::from(count), max)
}

fn top(logits: &[f32]) -> Option<usize> {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
}

/// How far the best logit leads the second.
fn margin(logits: &[f32]) -> f64 {
    let mut sorted = logits.to_vec();
    sorted.sort_by(f32::total_cmp);
    f64::from(sorted[sorted.len() - 1] - sorted[sorted.len() - 2])
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.gguf"))
}

/// Logits behind every token, from passes of `width` rows (or as many as the lane takes).
fn logits(
    gguf: Gguf,
    tokens: &[u32],
    width: usize,
    threads: usize,
    kernels: &'static Kernels,
) -> Vec<Vec<f32>> {
    let model = Arc::new(Model::from_gguf(gguf).unwrap());
    let options = CpuOptions {
        context: Some(tokens.len()),
        threads: Some(threads),
        kernels,
        best_of_first: None,
        poison: Some(f32::NAN),
        ..CpuOptions::default()
    };
    let mut lane = CpuLane::new(model, &options).unwrap();
    let width = width.min(lane.info().max_width);
    let mut out = Vec::new();
    for chunk in tokens.chunks(width) {
        let mut batch = Batch::new();
        for (i, &token) in chunk.iter().enumerate() {
            batch.push(Row { token, parent: i.checked_sub(1), want: Want::Logits });
        }
        let rows = lane.forward(&batch).unwrap();
        out.extend((0..chunk.len()).map(|i| rows.logits(i).unwrap().to_vec()));
        lane.keep(&(0..chunk.len()).collect::<Vec<_>>()).unwrap();
    }
    assert_eq!(lane.len(), tokens.len(), "every token is committed");
    out
}

fn assert_same_bits(a: &[Vec<f32>], b: &[Vec<f32>], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (position, (a, b)) in a.iter().zip(b).enumerate() {
        let same = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{what}: other bits at position {position}");
    }
}

fn agrees_with_transformers(case: &str) {
    let reference = Reference::load(case);
    let run = |width, threads, kernels| {
        logits(Gguf::open(&path(case)).unwrap(), &reference.tokens, width, threads, kernels)
    };
    for kernels in Kernels::available() {
        let whole = run(usize::MAX, 2, kernels);
        let deviation = reference.deviation(&whole);
        println!("{case} on {}: {deviation:?}", kernels.name());
        assert!(deviation.is_acceptable(), "{case} on {}: {deviation:?}", kernels.name());
        // Narrow passes on one table only, to stay quick.
        let widths: &[usize] = if kernels.name() == Kernels::best().name() { &[1, 7] } else { &[] };
        for &width in widths {
            let what = format!("{case} on {} in passes of {width}", kernels.name());
            assert_same_bits(&whole, &run(width, 1, kernels), &what);
        }
    }
}

#[test]
fn llama() {
    agrees_with_transformers("llama");
}

#[test]
fn llama_3_rope_scaling() {
    agrees_with_transformers("llama-3-rope");
}

#[test]
fn qwen2_with_the_token_table_as_head() {
    agrees_with_transformers("qwen2-tied");
}

#[test]
fn qwen2_with_its_own_head() {
    agrees_with_transformers("qwen2-untied");
}

#[test]
fn qwen3() {
    agrees_with_transformers("qwen3");
}

#[test]
fn qwen3_with_yarn() {
    agrees_with_transformers("qwen3-yarn");
}

#[test]
fn gemma3() {
    agrees_with_transformers("gemma3");
}

#[test]
fn gemma3_with_linear_rope_on_full_layers() {
    agrees_with_transformers("gemma3-linear-rope");
}

/// A copy of the case's model with its metadata changed by `metadata` and its tensors by `tensor`,
/// which gets a name and the bytes and returns other bytes, or nothing to leave the tensor out.
fn altered(
    case: &str,
    metadata: impl Fn(&mut GgufWriter),
    tensor: impl Fn(&str, Vec<u8>) -> Option<Vec<u8>>,
) -> Gguf {
    let file = Gguf::open(&path(case)).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in file.metadata().iter() {
        writer.value(key, value);
    }
    metadata(&mut writer);
    for info in file.tensors() {
        let bytes = file.tensor_bytes(&info.name).unwrap().to_vec();
        if let Some(bytes) = tensor(&info.name, bytes) {
            writer.tensor(&info.name, &info.dims, info.block_type, bytes);
        }
    }
    Gguf::parse(writer.finish()).unwrap()
}

fn deviation_of(case: &str, gguf: Gguf) -> Deviation {
    let reference = Reference::load(case);
    reference.deviation(&logits(gguf, &reference.tokens, usize::MAX, 1, Kernels::best()))
}

fn assert_refused(case: &str, what: &str, gguf: Gguf) {
    let deviation = deviation_of(case, gguf);
    println!("{case} with {what}: {deviation:?}");
    assert!(!deviation.is_acceptable(), "{case} with {what} was accepted: {deviation:?}");
    let clear = deviation.rounded_mean > 4.0 * ROUNDED_MEAN || deviation.rounded_best > 4.0 * ROUNDED_BEST;
    assert!(clear, "{case} with {what} is too close: {deviation:?}");
}

fn unchanged(_: &str, bytes: Vec<u8>) -> Option<Vec<u8>> {
    Some(bytes)
}

/// Undoes the converter's reordering of one head's rows: even rows first, then odd ones.
fn half_split(bytes: &[u8], n_heads: usize) -> Vec<u8> {
    const HEAD_DIM: usize = 16;
    let row_bytes = bytes.len() / (n_heads * HEAD_DIM);
    let rows: Vec<&[u8]> = bytes.chunks(row_bytes).collect();
    let order = (0..HEAD_DIM).step_by(2).chain((1..HEAD_DIM).step_by(2));
    rows.chunks(HEAD_DIM).flat_map(|head| order.clone().flat_map(|row| head[row].iter().copied())).collect()
}

#[test]
fn a_rewritten_model_is_the_same_model() {
    let deviation = deviation_of("gemma3", altered("gemma3", |_| {}, unchanged));
    assert!(deviation.is_acceptable(), "{deviation:?}");
}

#[test]
fn wrong_pairs_of_rotated_elements_are_refused() {
    let wrong = altered(
        "llama",
        |_| {},
        |name, bytes| {
            if name.ends_with("attn_q.weight") {
                Some(half_split(&bytes, 4))
            } else if name.ends_with("attn_k.weight") {
                Some(half_split(&bytes, 2))
            } else {
                Some(bytes)
            }
        },
    );
    assert_refused("llama", "half-split rows", wrong);
}

#[test]
fn wrong_ropes_are_refused() {
    let plain = altered("llama-3-rope", |_| {}, |name, bytes| (name != "rope_freqs.weight").then_some(bytes));
    assert_refused("llama-3-rope", "unscaled frequencies", plain);
    let base = altered("qwen2-tied", |w| _ = w.f32("qwen2.rope.freq_base", 11_000.0), unchanged);
    assert_refused("qwen2-tied", "another rope base", base);
    let linear = altered("qwen3-yarn", |w| _ = w.str("qwen3.rope.scaling.type", "linear"), unchanged);
    assert_refused("qwen3-yarn", "every frequency interpolated", linear);
    let unscaled =
        altered("gemma3-linear-rope", |w| _ = w.str("gemma3.rope.scaling.type", "none"), unchanged);
    assert_refused("gemma3-linear-rope", "full layers unscaled", unscaled);
}

#[test]
fn wrong_windows_are_refused() {
    for window in [15, 17] {
        let wrong = altered("gemma3", |w| _ = w.u32("gemma3.attention.sliding_window", window), unchanged);
        assert_refused("gemma3", &format!("a window of {window}"), wrong);
    }
    // The last layer would see everything too, and the sixth would not.
    let pattern = altered("gemma3", |w| _ = w.u32("gemma3.attention.sliding_window_pattern", 7), unchanged);
    assert_refused("gemma3", "a full layer too late", pattern);
    let base = altered("gemma3", |w| _ = w.f32("gemma3.rope.freq_base_swa", 1e6), unchanged);
    assert_refused("gemma3", "one rope for all layers", base);
}

#[test]
fn missing_parts_are_refused() {
    let tied = altered("qwen2-untied", |_| {}, |name, bytes| (name != "output.weight").then_some(bytes));
    assert_refused("qwen2-untied", "the token table as head", tied);
    let unbiased = altered(
        "qwen2-tied",
        |_| {},
        |name, bytes| Some(if name == "blk.1.attn_k.bias" { vec![0; bytes.len()] } else { bytes }),
    );
    assert_refused("qwen2-tied", "no bias on the last keys", unbiased);
    let epsilon = altered("qwen3", |w| _ = w.f32("qwen3.attention.layer_norm_rms_epsilon", 1e-4), unchanged);
    assert_refused("qwen3", "another epsilon", epsilon);
}

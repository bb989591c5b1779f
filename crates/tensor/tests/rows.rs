//! Loops over rows and attention: every table against the portable one, and against double precision.
//!
//! Invariant: the shared test helpers decide equality: same bits, any NaN equal to any other.
//! Not here: matmul (`kernels.rs`).

mod rng;

use pilotfish_tensor::kernels::{KEY_BLOCK, KV_GROUP, KvNumbers, KvPair, key_at};
use pilotfish_tensor::{
    Attend, AttendScratch, Columns, Kernels, KvRows, RopeStyle, f16_to_f32, f32_to_f16, math,
};
use rng::Rng;

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

fn portable() -> &'static Kernels {
    Kernels::named("portable").expect("portable runs anywhere")
}

/// Random numbers of many sizes, with a few that are special.
fn numbers(n: usize, rng: &mut Rng) -> Vec<f32> {
    let special = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-42, 88.8, -104.0, 3e38];
    let mut number = || match rng.byte() {
        0..=4 => special[usize::from(rng.byte()) % special.len()],
        5..=50 => rng.signed() * 90.0,
        51..=100 => rng.signed() * 0.01,
        _ => rng.signed() * 4.0,
    };
    (0..n).map(|_| number()).collect()
}

/// Runs `op` with every table on rows of all lengths up to 70 and some longer ones.
fn agree(what: &str, op: impl Fn(&Kernels, &[f32], &[f32], &mut [f32])) {
    let mut rng = Rng::new(11);
    for n in (1..=70).chain([128, 576, 1001, 1536]) {
        for _ in 0..4 {
            let (a, b) = (numbers(n, &mut rng), numbers(n, &mut rng));
            let mut expected = a.clone();
            op(portable(), &a, &b, &mut expected);
            for table in Kernels::available() {
                let mut out = a.clone();
                op(table, &a, &b, &mut out);
                assert_eq!(bits(&out), bits(&expected), "{what} {} {n}", table.name());
            }
        }
    }
}

#[test]
fn row_loops_agree_with_portable() {
    agree("rms_norm", |table, a, b, out| table.rms_norm(a, b, 1e-6, out));
    agree("rms_norm_in_place", |table, _, b, out| table.rms_norm_in_place(out, b, 1e-5));
    agree("silu_mul", |table, a, b, out| table.silu_mul(a, b, out));
    agree("gelu_tanh_mul", |table, a, b, out| table.gelu_tanh_mul(a, b, out));
    agree("add", |table, a, b, out| table.add(a, b, out));
    agree("add_to", |table, _, b, out| table.add_to(out, b));
    agree("scale", |table, _, b, out| table.scale(out, b[0]));
    agree("softcap", |table, _, _, out| table.softcap(out, 30.0));
    agree("argmax", |table, a, _, out| out[0] = table.argmax(a) as f32);
    agree("all_finite", |table, a, _, out| out[0] = f32::from(u8::from(table.all_finite(a))));
    agree("to_halves", |table, a, _, out| {
        let mut halves = vec![0; a.len()];
        table.to_halves(a, &mut halves);
        out.iter_mut().zip(halves).for_each(|(out, half)| *out = f16_to_f32(half));
    });
    for style in [RopeStyle::Neox, RopeStyle::Interleaved] {
        agree("rope", |table, a, b, out| {
            let head_dim = [a.len(), a.len() / 2].into_iter().find(|d| *d > 0 && a.len() % d == 0).unwrap();
            let rot_dim = head_dim.min(b.len()) / 2 * 2;
            table.rope(out, head_dim, rot_dim, &b[..rot_dim], style);
        });
    }
}

#[test]
fn row_loops_compute_what_they_say() {
    let mut rng = Rng::new(12);
    let table = Kernels::best();
    let row = |rng: &mut Rng| -> Vec<f32> { (0..100).map(|_| rng.signed() * 3.0).collect() };
    let (a, b) = (row(&mut rng), row(&mut rng));
    let mut out = vec![0.0; 100];
    let close = |ours: f32, exact: f64| (f64::from(ours) - exact).abs() <= exact.abs() * 2e-6 + 1e-6;

    table.rms_norm(&a, &b, 1e-5, &mut out);
    let mean = a.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / 100.0;
    for i in 0..100 {
        assert!(close(out[i], f64::from(a[i]) / (mean + 1e-5).sqrt() * f64::from(b[i])), "rms_norm {i}");
    }
    table.silu_mul(&a, &b, &mut out);
    for i in 0..100 {
        let g = f64::from(a[i]);
        assert!(close(out[i], g / (1.0 + (-g).exp()) * f64::from(b[i])), "silu {i}");
    }
    table.gelu_tanh_mul(&a, &b, &mut out);
    for i in 0..100 {
        let g = f64::from(a[i]);
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g.powi(3));
        assert!(close(out[i], 0.5 * g * (1.0 + inner.tanh()) * f64::from(b[i])), "gelu {i}");
    }
    table.softcap(&mut out, 2.0);
    assert!(out.iter().all(|x| x.abs() <= 2.0));

    // A rotation by an angle, and numbers beyond `rot_dim` left alone.
    let (cos, sin) = (0.6, 0.8);
    let mut x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    table.rope(&mut x, 6, 4, &[cos, 1.0, sin, 0.0], RopeStyle::Neox);
    assert!(close(x[0], 0.6 - 0.8 * 3.0) && close(x[2], 0.8 + 0.6 * 3.0));
    assert_eq!((x[1], x[3], x[4], x[5]), (2.0, 4.0, 5.0, 6.0));
    let mut x = [1.0, 2.0, 3.0, 4.0];
    table.rope(&mut x, 4, 4, &[1.0, cos, 0.0, sin], RopeStyle::Interleaved);
    assert!(close(x[2], 0.6 * 3.0 - 0.8 * 4.0) && close(x[3], 0.8 * 3.0 + 0.6 * 4.0));
    assert_eq!((x[0], x[1]), (1.0, 2.0));
}

#[test]
fn the_norm_of_huge_finite_rows_is_not_zero() {
    for table in Kernels::available() {
        let mut out = [0.0; 64];
        table.rms_norm(&[1e30; 64], &[1.0; 64], 1e-6, &mut out);
        assert!(out.iter().all(|x| (x - 1.0).abs() < 1e-5), "{}", table.name());
    }
}

#[test]
fn argmax_takes_the_lowest_of_equals_and_never_a_nan() {
    for table in Kernels::available() {
        let mut x = vec![1.0; 300];
        assert_eq!(table.argmax(&x), 0);
        (x[77], x[78], x[200]) = (2.0, 2.0, 2.0);
        assert_eq!(table.argmax(&x), 77);
        x[3] = f32::NAN;
        x[299] = f32::NAN;
        assert_eq!(table.argmax(&x), 77);
        assert_eq!(table.argmax(&[f32::NAN; 20]), 0);
        assert_eq!(table.argmax(&[f32::NAN, f32::NEG_INFINITY, f32::NEG_INFINITY]), 1);
        assert_eq!(table.argmax(&[-1.0, -0.0, 0.0]), 1);
        assert!(table.all_finite(&[1.0; 20]) && !table.all_finite(&x));
    }
}

/// What a row attends to, but for its path.
#[derive(Clone, Copy)]
struct Spec {
    first: usize,
    last: usize,
    scale: f32,
    softcap: Option<f32>,
}

impl Spec {
    fn with(self, path: &[u32]) -> Attend<'_> {
        let Spec { first, last, scale, softcap } = self;
        Attend { first, last, path, scale, softcap }
    }
}

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    F16,
    Q8,
}

impl Form {
    const ALL: [Form; 2] = [Form::F16, Form::Q8];

    /// What is left of numbers once they were kept.
    fn kept(self, x: &[f32], head_dim: usize) -> Vec<f32> {
        match self {
            Form::F16 => x.iter().map(|&x| f16_to_f32(f32_to_f16(x))).collect(),
            Form::Q8 => {
                let (quants, scales) = quantized(x, head_dim);
                let scale = |i: usize| scales[i / KV_GROUP];
                quants.iter().enumerate().map(|(i, &quant)| f32::from(quant) * scale(i)).collect()
            }
        }
    }
}

fn quantized(x: &[f32], head_dim: usize) -> (Vec<i8>, Vec<f32>) {
    let (mut quants, mut scales) = (vec![99; x.len()], vec![9.0; x.len() / KV_GROUP]);
    portable().to_quants(x, head_dim, &mut quants, &mut scales);
    (quants, scales)
}

/// Keys and values of one head, by position.
struct Cache {
    form: Form,
    head_dim: usize,
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// Keys and values as they lie in a cache, with two other heads around.
struct Laid {
    halves: [Vec<u16>; 2],
    quants: [Vec<i8>; 2],
    scales: [Vec<f32>; 2],
}

impl Cache {
    /// Numbers that the form keeps as they are.
    fn random(form: Form, positions: usize, head_dim: usize, rng: &mut Rng) -> Cache {
        let mut numbers = |scale: f32| -> Vec<f32> {
            let numbers: Vec<f32> = (0..positions * head_dim).map(|_| rng.signed() * scale).collect();
            form.kept(&numbers, head_dim)
        };
        Cache { form, head_dim, keys: numbers(2.0), values: numbers(1.0) }
    }

    /// Lays it out with every slot that no position uses, and the heads around, poisoned.
    fn lay_out(&self, committed: usize, path: &[u32]) -> Laid {
        let halves = |x: &[f32]| -> Vec<u16> { x.iter().map(|&x| f32_to_f16(x)).collect() };
        let mut laid = Laid { halves: [vec![], vec![]], quants: [vec![], vec![]], scales: [vec![], vec![]] };
        for (side, numbers) in [&self.keys, &self.values].into_iter().enumerate() {
            match self.form {
                Form::F16 => laid.halves[side] = self.place(side, &halves(numbers), 0x7e00, committed, path),
                Form::Q8 => {
                    let (quants, scales) = quantized(numbers, self.head_dim);
                    laid.quants[side] = self.place(side, &quants, 77, committed, path);
                    laid.scales[side] = self.place(side, &scales, f32::NAN, committed, path);
                }
            }
        }
        laid
    }

    /// Puts entries of every position, keys for side 0 and values for side 1, into slots of three heads.
    fn place<T: Copy>(&self, side: usize, x: &[T], poison: T, committed: usize, path: &[u32]) -> Vec<T> {
        let entries = x.len() / (self.keys.len() / self.head_dim);
        let slots = path.iter().map(|&slot| slot as usize + 1).max().unwrap_or(0).max(committed);
        let width = entries * 3;
        let mut placed = vec![poison; slots.next_multiple_of(KEY_BLOCK) * width];
        for position in 0..committed + path.len() {
            let slot = position.checked_sub(committed).map_or(position, |beyond| path[beyond] as usize);
            for (number, &x) in x[position * entries..(position + 1) * entries].iter().enumerate() {
                let at = [key_at(width, slot, entries + number), slot * width + entries + number];
                placed[at[side]] = x;
            }
        }
        placed
    }

    fn attend(&self, table: &Kernels, q: &[f32], spec: &Spec, committed: usize, path: &[u32]) -> Vec<f32> {
        self.attend_rows(table, q, &[spec.with(path)], committed)
    }

    /// Rows with paths of their own, which share the slots they have in common.
    fn attend_rows(&self, table: &Kernels, q: &[f32], rows: &[Attend<'_>], committed: usize) -> Vec<f32> {
        fn middle<T>([keys, values]: &[Vec<T>; 2], entries: usize) -> KvPair<'_, T> {
            KvPair { keys: &keys[entries * KEY_BLOCK..], values: &values[entries..] }
        }
        let longest =
            rows.iter().map(|row| row.path).max_by_key(|path| path.len()).expect("at least one row");
        let laid = self.lay_out(committed, longest);
        let numbers = match self.form {
            Form::F16 => KvNumbers::F16(middle(&laid.halves, self.head_dim)),
            Form::Q8 => KvNumbers::Q8_0 {
                quants: middle(&laid.quants, self.head_dim),
                scales: middle(&laid.scales, self.head_dim / KV_GROUP),
            },
        };
        let kv = KvRows { numbers, width: self.head_dim * 3, head_dim: self.head_dim, committed };
        let mut out = vec![f32::NAN; q.len()];
        let block = Columns::new(&mut out, rows.len(), q.len() / rows.len()).whole();
        table.attend(q, rows, &kv, &mut AttendScratch::new(), block);
        out
    }

    /// Softmax attention in double precision.
    fn exact(&self, q: &[f32], spec: &Spec) -> Vec<f64> {
        let dim = self.head_dim;
        let dot =
            |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
        let mut out = Vec::new();
        for q in q.chunks(dim) {
            let positions = spec.first..=spec.last;
            let scores: Vec<f64> = positions
                .clone()
                .map(|p| dot(q, &self.keys[p * dim..(p + 1) * dim]) * f64::from(spec.scale))
                .map(|score| {
                    spec.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
                })
                .collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|score| (score - top).exp()).sum();
            for d in 0..dim {
                let weighted = positions
                    .clone()
                    .zip(&scores)
                    .map(|(p, score)| (score - top).exp() * f64::from(self.values[p * dim + d]));
                out.push(weighted.sum::<f64>() / sum);
            }
        }
        out
    }
}

/// A path of `n` slots from `start` on, distinct and out of order.
fn scattered(start: usize, n: usize) -> Vec<u32> {
    assert!(n <= 41, "slots repeat");
    (0..n).map(|i| (start + (i * 7 + 3) % 41 * 3) as u32).collect()
}

#[test]
fn attention_depends_on_positions_alone_and_is_right() {
    for form in Form::ALL {
        let mut rng = Rng::new(13);
        let lengths = (1..=300).chain(1023..=1025).chain(4095..=4097);
        for (i, length) in lengths.enumerate() {
            let dims = if form == Form::F16 { [64, 16, 128, 12, 256] } else { [64, 32, 128, 96, 256] };
            let head_dim = dims[i % 5].min(if length > 300 { 64 } else { 256 });
            let n_rep = [1, 2, 3, 7][i % 4];
            let cache = Cache::random(form, length, head_dim, &mut rng);
            let q: Vec<f32> = (0..n_rep * head_dim).map(|_| rng.signed() * 2.0).collect();
            let window = [length, 1, 33, 64, 100, 512][i % 6].min(length);
            let spec = Spec {
                first: length - window,
                last: length - 1,
                scale: 1.0 / (head_dim as f32).sqrt(),
                softcap: (i % 3 == 0).then_some(20.0),
            };
            let expected = cache.attend(portable(), &q, &spec, length, &[]);
            let exact = cache.exact(&q, &spec);
            for (ours, exact) in expected.iter().zip(&exact) {
                assert!((f64::from(*ours) - exact).abs() < 2e-5, "{form:?} length {length}: {ours} {exact}");
            }
            for table in Kernels::available() {
                for beyond in [0, 1, 5, 16, 40] {
                    let beyond = beyond.min(length);
                    let path = scattered(length, beyond);
                    let out = cache.attend(table, &q, &spec, length - beyond, &path);
                    let what = format!("{form:?} {} length {length} path {beyond}", table.name());
                    assert_eq!(bits(&out), bits(&expected), "{what}");
                }
                // One query head at a time gives what all together give.
                for (q, expected) in q.chunks(head_dim).zip(expected.chunks(head_dim)) {
                    assert_eq!(bits(&cache.attend(table, q, &spec, length, &[])), bits(expected));
                }
            }
        }
    }
}

#[test]
fn attention_over_quants_is_near_attention_over_floats() {
    let mut rng = Rng::new(18);
    let (head_dim, length) = (64, 500);
    let mut random = |n: usize, scale: f32| -> Vec<f32> { (0..n).map(|_| rng.signed() * scale).collect() };
    let (keys, values) = (random(length * head_dim, 2.0), random(length * head_dim, 1.0));
    let q = random(3 * head_dim, 2.0);
    let spec = Spec { first: 0, last: length - 1, scale: 0.125, softcap: None };
    let kept = |form: Form| Cache {
        form,
        head_dim,
        keys: form.kept(&keys, head_dim),
        values: form.kept(&values, head_dim),
    };
    let floats = Cache { keys: keys.clone(), values: values.clone(), ..kept(Form::F16) };
    let exact = floats.exact(&q, &spec);
    // Half a step of a key or a value is 1/254 of the largest number of its group. A score adds 64 of a key's errors,
    // which mostly cancel; an output is a mean of values. A tenth of a step of a value is what is left of both.
    for (form, bound) in [(Form::F16, 1e-4), (Form::Q8, 1.0 / 1270.0)] {
        let ours = kept(form).attend(Kernels::best(), &q, &spec, length, &[]);
        let squares: f64 = ours.iter().zip(&exact).map(|(&a, b)| (f64::from(a) - b).powi(2)).sum();
        let rms = (squares / exact.len() as f64).sqrt();
        println!("{form:?}: {rms}");
        assert!(rms < bound, "{form:?}: {rms}");
    }
}

#[test]
fn rows_that_attend_together_get_what_each_gets_alone() {
    for (form, head_dim) in [(Form::F16, 24), (Form::Q8, 96)] {
        let mut rng = Rng::new(17);
        let (n_rep, committed) = (3, 190);
        let cache = Cache::random(form, committed + 12, head_dim, &mut rng);
        let path = scattered(committed, 12);
        let spec = |row: usize| Spec {
            first: [0, 130, 150][row % 3],
            last: committed + row - 1,
            scale: 0.2,
            softcap: row.is_multiple_of(2).then_some(9.0),
        };
        let q: Vec<f32> = (0..12 * n_rep * head_dim).map(|_| rng.signed() * 2.0).collect();
        for table in Kernels::available() {
            let rows: Vec<Attend<'_>> = (1..=12).map(|row| spec(row).with(&path[..row])).collect();
            let together = cache.attend_rows(table, &q, &rows, committed);
            for ((row, q), together) in
                rows.iter().zip(q.chunks(n_rep * head_dim)).zip(together.chunks(n_rep * head_dim))
            {
                let alone = cache.attend_rows(portable(), q, std::slice::from_ref(row), committed);
                assert_eq!(bits(together), bits(&alone), "{form:?} {}", table.name());
            }
        }
    }
}

#[test]
fn a_nan_key_shows_only_where_it_is_seen() {
    for form in Form::ALL {
        let mut rng = Rng::new(14);
        let mut cache = Cache::random(form, 200, 64, &mut rng);
        let q: Vec<f32> = (0..128).map(|_| rng.signed()).collect();
        let spec = |first, last| Spec { first, last, scale: 0.2, softcap: None };
        let clean = cache.attend(portable(), &q, &spec(101, 199), 200, &[]);
        cache.keys[100 * 64 + 5] = f32::NAN;
        for table in Kernels::available() {
            assert_eq!(bits(&cache.attend(table, &q, &spec(101, 199), 200, &[])), bits(&clean));
            assert!(cache.attend(table, &q, &spec(100, 199), 200, &[]).iter().all(|x| x.is_nan()));
            assert!(cache.attend(table, &q, &spec(0, 150), 200, &[]).iter().all(|x| x.is_nan()));
        }
    }
}

#[test]
fn a_quantized_value_that_is_not_finite_shows_only_where_it_is_seen() {
    let mut rng = Rng::new(19);
    let q: Vec<f32> = (0..128).map(|_| rng.signed()).collect();
    let spec = |first, last| Spec { first, last, scale: 0.2, softcap: None };
    for bad in [f32::NAN, f32::INFINITY] {
        let mut cache = Cache::random(Form::Q8, 200, 64, &mut rng);
        let clean = cache.attend(portable(), &q, &spec(101, 199), 200, &[]);
        cache.values[100 * 64 + 5] = bad;
        for table in Kernels::available() {
            assert_eq!(bits(&cache.attend(table, &q, &spec(101, 199), 200, &[])), bits(&clean));
            assert!(cache.attend(table, &q, &spec(100, 199), 200, &[]).iter().all(|x| x.is_nan()));
            assert!(cache.attend(table, &q, &spec(0, 150), 200, &[]).iter().all(|x| x.is_nan()));
        }
    }
}

#[test]
fn quants_are_the_nearest_and_heads_know_nothing_of_each_other() {
    let mut rng = Rng::new(20);
    for head_dim in [32, 64, 96] {
        let heads: Vec<Vec<f32>> = (0..40)
            .map(|i| if i % 2 == 0 { numbers(head_dim, &mut rng) } else { vec![rng.signed(); head_dim] })
            .collect();
        let all = heads.concat();
        let (quants, scales) = quantized(&all, head_dim);
        let scale_bits = bits(&scales);
        for table in Kernels::available() {
            let (mut again, mut scales) = (vec![99; all.len()], vec![9.0; all.len() / KV_GROUP]);
            table.to_quants(&all, head_dim, &mut again, &mut scales);
            assert_eq!((again, bits(&scales)), (quants.clone(), scale_bits.clone()), "{}", table.name());
        }
        for (i, x) in heads.iter().enumerate() {
            let at = i * head_dim..(i + 1) * head_dim;
            let (alone, own) = quantized(x, head_dim);
            let shared = &scales[at.start / KV_GROUP..at.end / KV_GROUP];
            assert_eq!((&alone[..], bits(&own)), (&quants[at], bits(shared)));
            let finite = x.iter().all(|x| x.is_finite());
            assert_eq!((own.iter().all(|s| s.is_nan()), own.iter().any(|s| s.is_nan())), (!finite, !finite));
            for (j, &x) in x.iter().enumerate().filter(|_| finite) {
                let scale = own[j / KV_GROUP];
                let error = (f32::from(alone[j]) * scale - x).abs();
                assert!(error <= scale * 0.5001 + 4e-37, "{x} became {} of {scale}", alone[j]);
            }
        }
    }
}

#[test]
fn huge_scores_do_not_overflow() {
    for form in Form::ALL {
        let mut rng = Rng::new(15);
        let cache = Cache::random(form, 150, 32, &mut rng);
        let q: Vec<f32> = (0..32).map(|_| rng.signed() * 1e4).collect();
        let spec = Spec { first: 0, last: 149, scale: 1.0, softcap: None };
        let expected = cache.attend(portable(), &q, &spec, 150, &[]);
        assert!(expected.iter().all(|x| x.is_finite()));
        for table in Kernels::available() {
            assert_eq!(bits(&cache.attend(table, &q, &spec, 150, &[])), bits(&expected));
        }
    }
}

#[test]
#[should_panic(expected = "no position")]
fn attending_to_nothing_is_refused() {
    let cache = Cache::random(Form::F16, 4, 16, &mut Rng::new(16));
    let spec = Spec { first: 3, last: 2, scale: 1.0, softcap: None };
    cache.attend(Kernels::best(), &[0.0; 16], &spec, 4, &[]);
}

#[test]
fn the_public_exponential_is_the_one_in_the_loops() {
    for table in Kernels::available() {
        let gate = [0.3f32, -2.0, 17.0];
        let mut out = [0.0; 3];
        table.silu_mul(&gate, &[1.0; 3], &mut out);
        assert_eq!(bits(&out), bits(&gate.map(|g| g / (1.0 + math::exp(-g)))));
    }
}

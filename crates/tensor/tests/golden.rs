//! Recorded hashes of what the kernels compute: the bits behind the numerics id.
//!
//! A failure here means that results changed. If that was meant, change the numerics id and the hash together.
//!
//! Invariant: every table gives the recorded hash, in debug and release builds.
//! Not here: whether the results are right (`kernels.rs`, `rows.rs`).

mod rng;

use pilotfish_tensor::kernels::{KV_GROUP, KvNumbers, KvPair};
use pilotfish_tensor::{
    Activations, Attend, AttendScratch, BlockType, Columns, Kernels, KvRows, RopeStyle, f16_to_f32,
    f32_to_f16,
};
use rng::Rng;

/// FNV-1a over the bits of finite floats.
struct Hash(u64);

impl Hash {
    fn add(&mut self, numbers: &[f32]) {
        for number in numbers {
            assert!(number.is_finite(), "hashes are over finite numbers");
            self.0 = (self.0 ^ u64::from(number.to_bits())).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

fn numbers(n: usize, rng: &mut Rng) -> Vec<f32> {
    (0..n).map(|_| rng.signed() * if rng.byte() == 0 { 30.0 } else { 3.0 }).collect()
}

fn matmul_hash(table: &Kernels, block_type: BlockType) -> u64 {
    let (mut rng, mut hash) = (Rng::new(21), Hash(0xcbf2_9ce4_8422_2325));
    let (rows, n_out, k) = (3, 20, 768);
    let mut bytes = Vec::new();
    block_type.encode(&numbers(n_out * k, &mut rng), &mut bytes);
    let weight = table.pack(block_type, &bytes, n_out, k);
    let mut acts = Activations::new();
    table.quantize(&numbers(rows * k, &mut rng), rows, k, weight.scheme(), &mut acts);
    let mut y = vec![0.0; rows * n_out];
    table.matmul(&weight, &acts, &mut Columns::new(&mut y, rows, n_out).whole());
    hash.add(&y);
    hash.0
}

fn rows_hash(table: &Kernels) -> u64 {
    let (mut rng, mut hash) = (Rng::new(22), Hash(0xcbf2_9ce4_8422_2325));
    let n = 1003;
    let (a, b) = (numbers(n, &mut rng), numbers(n, &mut rng));
    let mut out = vec![0.0; n];
    table.rms_norm(&a, &b, 1e-5, &mut out);
    hash.add(&out);
    table.silu_mul(&a, &b, &mut out);
    hash.add(&out);
    table.gelu_tanh_mul(&a, &b, &mut out);
    hash.add(&out);
    table.softcap(&mut out, 5.0);
    hash.add(&out);
    for style in [RopeStyle::Neox, RopeStyle::Interleaved] {
        table.rope(&mut out[..1000], 100, 64, &b[..64], style);
        hash.add(&out);
    }
    let (head_dim, positions) = (40, 304);
    let mut keys = vec![0; positions * head_dim];
    table.to_halves(&numbers(positions * head_dim, &mut rng), &mut keys);
    assert!(keys.iter().all(|&half| f32_to_f16(f16_to_f32(half)) == half));
    let numbers = KvNumbers::F16(KvPair { keys: &keys, values: &keys });
    let kv = KvRows { numbers, width: head_dim, head_dim, committed: positions };
    for softcap in [None, Some(8.0)] {
        let row = Attend { first: 30, last: positions - 1, path: &[], scale: 0.1, softcap };
        let block = Columns::new(&mut out[..80], 1, 80).whole();
        table.attend(&a[..80], &[row], &kv, &mut AttendScratch::new(), block);
        hash.add(&out[..80]);
    }
    hash.0
}

/// Quants, scales and attention over them.
fn q8_hash(table: &Kernels) -> u64 {
    let (mut rng, mut hash) = (Rng::new(23), Hash(0xcbf2_9ce4_8422_2325));
    let (head_dim, positions) = (96, 304);
    let (mut quants, mut scales) =
        (vec![0; positions * head_dim], vec![0.0; positions * head_dim / KV_GROUP]);
    table.to_quants(&numbers(positions * head_dim, &mut rng), head_dim, &mut quants, &mut scales);
    hash.add(&quants.iter().map(|&quant| f32::from(quant)).collect::<Vec<_>>());
    hash.add(&scales);
    let numbers_of = KvNumbers::Q8_0 {
        quants: KvPair { keys: &quants, values: &quants },
        scales: KvPair { keys: &scales, values: &scales },
    };
    let kv = KvRows { numbers: numbers_of, width: head_dim, head_dim, committed: positions };
    let (q, mut out) = (numbers(2 * head_dim, &mut rng), vec![0.0; 2 * head_dim]);
    for softcap in [None, Some(8.0)] {
        let row = Attend { first: 30, last: positions - 1, path: &[], scale: 0.1, softcap };
        let block = Columns::new(&mut out, 1, 2 * head_dim).whole();
        table.attend(&q, &[row], &kv, &mut AttendScratch::new(), block);
        hash.add(&out);
    }
    hash.0
}

#[test]
fn results_match_the_recorded_hashes() {
    for table in Kernels::available() {
        assert_eq!(table.numerics_id(), "cpu-2");
        let mut hashes: Vec<(&str, u64)> = BlockType::ALL
            .into_iter()
            .map(|block_type| (block_type.name(), matmul_hash(table, block_type)))
            .collect();
        hashes.push(("rows", rows_hash(table)));
        hashes.push(("kv q8_0", q8_hash(table)));
        assert_eq!(hashes, GOLDEN, "{}: {hashes:#018x?}", table.name());
    }
}

const GOLDEN: [(&str, u64); 16] = [
    ("F32", 0x23d8_990d_74f5_d530),
    ("F16", 0x66d4_ccd4_894f_0366),
    ("BF16", 0x8710_7c93_3019_4bc0),
    ("Q4_0", 0x3d8a_e989_bcf0_cb9e),
    ("Q4_1", 0x3cbc_d947_e072_6baf),
    ("Q5_0", 0xea31_4f9b_52dc_2039),
    ("Q5_1", 0xc0f2_4864_e03d_dcf0),
    ("Q8_0", 0xa227_5a2d_ea9e_edb5),
    ("Q2_K", 0x847c_bf56_fd93_7e6e),
    ("Q3_K", 0xecaf_cafb_1d93_35c2),
    ("Q4_K", 0x4fb4_22ef_00d6_e176),
    ("Q5_K", 0xd202_8e14_6238_9095),
    ("Q6_K", 0xa37e_1989_9846_043c),
    ("IQ4_NL", 0xe1e5_e486_4c6b_db5c),
    ("rows", 0x248f_66b2_0eb4_4c27),
    ("kv q8_0", 0x37c9_e2bb_0344_f411),
];

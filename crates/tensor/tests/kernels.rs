//! Every table against the portable one, bit for bit, and the invariances the promises rest on.
//!
//! Invariant: every table is among those tested wherever the CPU can run it.
//! Not here: accuracy of single functions (unit tests), or whole models (the lane's tests).

mod rng;

use pilotfish_tensor::{ActScheme, Activations, Arena, BlockType, Columns, Kernels, Matrix};
use rng::Rng;

/// Random blocks: any quants, moderate scales.
fn random_weights(block_type: BlockType, n_out: usize, k: usize, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    match block_type {
        BlockType::F32 | BlockType::F16 | BlockType::BF16 => {
            let numbers: Vec<f32> = (0..n_out * k).map(|_| rng.signed()).collect();
            block_type.encode(&numbers, &mut bytes);
        }
        _ => {
            bytes.extend((0..n_out * block_type.row_bytes(k).expect("whole blocks")).map(|_| rng.byte()));
            for block in bytes.chunks_exact_mut(block_type.block_bytes()) {
                set_scales(block_type, block, rng.signed() * 0.02, rng.signed() * 0.02);
            }
        }
    }
    bytes
}

/// Sets the half-precision scale, and the minimum (or its scale) where there is one.
fn set_scales(block_type: BlockType, block: &mut [u8], scale: f32, min: f32) {
    let (scale_at, min_at) = match block_type {
        BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4K | BlockType::Q5K => (0, Some(2)),
        BlockType::Q2K => (80, Some(82)),
        BlockType::Q3K => (108, None),
        BlockType::Q6K => (208, None),
        _ => (0, None),
    };
    block[scale_at..scale_at + 2].copy_from_slice(&pilotfish_tensor::f32_to_f16(scale).to_le_bytes());
    if let Some(at) = min_at {
        block[at..at + 2].copy_from_slice(&pilotfish_tensor::f32_to_f16(min).to_le_bytes());
    }
}

fn random_rows(rows: usize, k: usize, rng: &mut Rng) -> Vec<f32> {
    (0..rows * k).map(|_| rng.signed() * if rng.byte() == 0 { 30.0 } else { 1.0 }).collect()
}

fn matmul(table: &Kernels, weight: &Matrix, x: &[f32], rows: usize, parts: usize) -> Vec<f32> {
    let mut acts = Activations::new();
    table.quantize(x, rows, weight.k(), weight.scheme(), &mut acts);
    let mut y = vec![f32::NAN; rows * weight.n_out()];
    for mut block in Columns::new(&mut y, rows, weight.n_out()).split(parts, weight.column_tile()) {
        table.matmul(weight, &acts, &mut block);
    }
    y
}

/// Same bits; any NaN equals any other.
fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

fn portable() -> &'static Kernels {
    Kernels::named("portable").expect("portable runs anywhere")
}

#[test]
fn every_table_this_cpu_can_run_is_tested() {
    #[cfg(target_arch = "x86_64")]
    for (name, can) in [
        ("x86-avx2", is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")),
        ("x86-avxvnni", is_x86_feature_detected!("avxvnni")),
        ("x86-avx512vnni", is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512bw")),
        ("x86-amx", std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|cpu| cpu.contains(" amx_int8"))),
    ] {
        assert_eq!(Kernels::named(name).is_some(), can, "{name}");
    }
    #[cfg(target_arch = "aarch64")]
    for (name, can) in [
        ("aarch64-neon", std::arch::is_aarch64_feature_detected!("neon")),
        ("aarch64-dotprod", std::arch::is_aarch64_feature_detected!("dotprod")),
    ] {
        assert_eq!(Kernels::named(name).is_some(), can, "{name}");
    }
    // Compared by `cargo xtask aarch64` with what the CPU should have.
    let names: Vec<&str> = Kernels::available().iter().map(|table| table.name()).collect();
    println!("tables under test: {}", names.join(" "));
    assert_eq!(Kernels::available().last().unwrap().name(), "portable");
    assert!(Kernels::available().iter().all(|table| table.numerics_id() == "cpu-2"));
    assert!(Kernels::named("broken").is_none());
}

#[test]
fn tables_agree_with_portable() {
    let mut rng = Rng::new(1);
    let row_counts: Vec<usize> = (1..=33).chain(63..=65).chain([127, 128, 130]).collect();
    for block_type in BlockType::ALL {
        for (i, &rows) in row_counts.iter().enumerate() {
            let block = ActScheme::of(block_type).block_len().max(16);
            let k = block * [1, 2, 3, 5, 8, 9][i % 6].min(1536 / block).max(1);
            let n_out = [1, 7, 16, 17, 31, 32, 40][i % 7];
            check_matmul(block_type, rows, n_out, k, &mut rng);
        }
        // A tail that is no multiple of the eight lanes, and the longest rows.
        if block_type.block_len() == 1 {
            (1..20).for_each(|k| check_matmul(block_type, 5, 3, k, &mut rng));
        }
        for (rows, k) in [(1, 8192), (5, 8192), (3, 4096 + 256)] {
            check_matmul(block_type, rows, 18, k, &mut rng);
        }
    }
}

fn check_matmul(block_type: BlockType, rows: usize, n_out: usize, k: usize, rng: &mut Rng) {
    let bytes = random_weights(block_type, n_out, k, rng);
    let x = random_rows(rows, k, rng);
    let expected = matmul(portable(), &portable().pack(block_type, &bytes, n_out, k), &x, rows, 1);
    for table in Kernels::available() {
        let weight = table.pack(block_type, &bytes, n_out, k);
        for parts in 1..=3 {
            let y = matmul(table, &weight, &x, rows, parts);
            let what = format!("{} {} [{rows}, {n_out}, {k}]", table.name(), block_type.name());
            assert_eq!(bits(&y), bits(&expected), "{what}");
        }
    }
    check_accuracy(block_type, &bytes, &x, &expected, rows, n_out, k);
}

/// Against decoded weights in double precision: the only loss is that of quantized activations.
fn check_accuracy(
    block_type: BlockType,
    bytes: &[u8],
    x: &[f32],
    y: &[f32],
    rows: usize,
    n_out: usize,
    k: usize,
) {
    let mut weights = vec![0f32; n_out * k];
    block_type.decode(bytes, &mut weights);
    let block = ActScheme::of(block_type).block_len();
    for row in 0..rows {
        let x = &x[row * k..(row + 1) * k];
        for n in 0..n_out {
            let w = &weights[n * k..(n + 1) * k];
            let (mut exact, mut size, mut rounding) = (0f64, 0f64, 0f64);
            for (x, w) in x.chunks(block).zip(w.chunks(block)) {
                let amax = x.iter().fold(0f32, |a, x| a.max(x.abs()));
                let step = if block == 1 { 0.0 } else { f64::from(amax) / 127.0 };
                for (&x, &w) in x.iter().zip(w) {
                    exact += f64::from(x) * f64::from(w);
                    size += (f64::from(x) * f64::from(w)).abs();
                    rounding += f64::from(w).abs() * 0.5001 * step;
                }
            }
            let error = (f64::from(y[row * n_out + n]) - exact).abs();
            let allowed = rounding + (size + rounding) * 3e-6 + 1e-6;
            assert!(error <= allowed, "{} [{row}, {n}] of k {k}: {error} > {allowed}", block_type.name());
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_neighbours() {
    let mut rng = Rng::new(2);
    let poisons = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -3e38, 0.0, 1e-40];
    for block_type in BlockType::ALL {
        let (n_out, k) = (35, 512);
        let bytes = random_weights(block_type, n_out, k, &mut rng);
        for table in Kernels::available() {
            let weight = table.pack(block_type, &bytes, n_out, k);
            let row = random_rows(1, k, &mut rng);
            let alone = bits(&matmul(table, &weight, &row, 1, 1));
            for rows in [2, 3, 4, 5, 8, 9, 13, 17, 33, 66] {
                for at in [0, rows / 2, rows - 1] {
                    let mut x: Vec<f32> =
                        (0..rows * k).map(|i| poisons[(i / k + i % 3) % poisons.len()]).collect();
                    x[at * k..(at + 1) * k].copy_from_slice(&row);
                    let y = matmul(table, &weight, &x, rows, 2);
                    let what = format!("{} {} row {at} of {rows}", table.name(), block_type.name());
                    assert_eq!(bits(&y[at * n_out..(at + 1) * n_out]), alone, "{what}");
                }
            }
        }
    }
}

#[test]
fn numbers_that_are_not_finite_show_in_every_output_of_their_row() {
    let mut rng = Rng::new(3);
    for block_type in BlockType::ALL {
        let (n_out, k) = (20, 512);
        let bytes = random_weights(block_type, n_out, k, &mut rng);
        for table in Kernels::available() {
            let weight = table.pack(block_type, &bytes, n_out, k);
            for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in [0, 255, 300, 511] {
                    let mut x = random_rows(3, k, &mut rng);
                    x[k + at] = poison;
                    let y = matmul(table, &weight, &x, 3, 1);
                    let finite = y.chunks(n_out).map(|row| row.iter().filter(|y| y.is_finite()).count());
                    let what = format!("{} {} {poison} at {at}", table.name(), block_type.name());
                    assert_eq!(finite.collect::<Vec<_>>(), [n_out, 0, n_out], "{what}");
                }
            }
        }
    }
}

/// All bits set, all clear, alternating: the largest weights and scales of every type, against activations that
/// all quantize to 127 or -127.
#[test]
fn extremes_do_not_overflow() {
    let (n_out, k) = (17, 1024);
    for block_type in BlockType::ALL {
        for pattern in [0x00u8, 0xff, 0x80, 0x7f, 0x0f, 0xf0, 0x88, 0x55] {
            let mut bytes = vec![pattern; n_out * block_type.row_bytes(k).unwrap()];
            if block_type.block_len() == 1 {
                bytes.clear();
                block_type.encode(&vec![f32::from(pattern as i8); n_out * k], &mut bytes);
            } else {
                let blocks = bytes.chunks_exact_mut(block_type.block_bytes());
                blocks.for_each(|block| set_scales(block_type, block, 1.0, 1.0));
            }
            let mut x = vec![1.0; k];
            x.extend(vec![-1.0; k]);
            x.extend((0..k).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }));
            x.extend(vec![1.0; k]);
            x.extend(vec![-1.0; k]);
            for rows in [1, 5] {
                let x = &x[..rows * k];
                let weight = portable().pack(block_type, &bytes, n_out, k);
                let expected = matmul(portable(), &weight, x, rows, 1);
                check_accuracy(block_type, &bytes, x, &expected, rows, n_out, k);
                for table in Kernels::available() {
                    let y = matmul(table, &table.pack(block_type, &bytes, n_out, k), x, rows, 1);
                    let what = format!("{} {} {pattern:#x}", table.name(), block_type.name());
                    assert_eq!(bits(&y), bits(&expected), "{what}");
                }
            }
        }
    }
}

#[test]
fn packing_in_parts_gives_the_same_matrix() {
    let mut rng = Rng::new(4);
    for block_type in BlockType::ALL {
        let (n_out, k) = (83, 256);
        let bytes = random_weights(block_type, n_out, k, &mut rng);
        let x = random_rows(2, k, &mut rng);
        for table in Kernels::available() {
            let whole = table.pack(block_type, &bytes, n_out, k);
            // All in one arena, as the weights of a model are.
            let mut arena = Arena::new(4 * table.packed_bytes(block_type, n_out, k)).unwrap();
            for parts in [2, 3, 6, 50] {
                let mut packing = table.packing(block_type, &bytes, n_out, k, &mut arena);
                std::thread::scope(|scope| {
                    for part in packing.parts(parts) {
                        scope.spawn(move || part.run());
                    }
                });
                let weight = packing.finish();
                assert_eq!(weight.bytes(), whole.bytes());
                assert_eq!(bits(&matmul(table, &weight, &x, 2, 1)), bits(&matmul(table, &whole, &x, 2, 1)));
            }
        }
    }
}

#[test]
#[should_panic(expected = "tiles were not packed")]
fn an_unfinished_matrix_is_refused() {
    let bytes = vec![0; 64 * 34];
    let mut arena = Arena::new(64 * 34).unwrap();
    let mut packing = Kernels::best().packing(BlockType::Q8_0, &bytes, 64, 32, &mut arena);
    packing.parts(2).pop().unwrap().run();
    packing.finish();
}

#[test]
#[should_panic(expected = "cut a tile")]
fn blocks_that_cut_a_tile_are_refused() {
    let table = Kernels::best();
    let weight = table.pack(BlockType::Q8_0, &[0; 64 * 34], 64, 32);
    let mut acts = Activations::new();
    table.quantize(&[0.0; 32], 1, 32, weight.scheme(), &mut acts);
    let mut y = [0.0; 64];
    let mut block = Columns::new(&mut y, 1, 64).split(2, 8).remove(0);
    assert_eq!(block.columns(), 0..32);
    table.matmul(&weight, &acts, &mut block);
    let mut block = Columns::new(&mut y, 1, 64).split(8, 8).remove(1);
    table.matmul(&weight, &acts, &mut block);
}

#[test]
fn a_buffer_of_activations_can_be_reused() {
    let mut rng = Rng::new(5);
    for table in Kernels::available() {
        let mut acts = Activations::new();
        for (block_type, rows, k) in [
            (BlockType::Q4K, 9, 512),
            (BlockType::Q8_0, 2, 96),
            (BlockType::F16, 3, 40),
            (BlockType::Q6K, 1, 256),
            (BlockType::Q4_1, 20, 64),
        ] {
            let weight = table.pack(block_type, &random_weights(block_type, 5, k, &mut rng), 5, k);
            let x = random_rows(rows, k, &mut rng);
            table.quantize(&x, rows, k, weight.scheme(), &mut acts);
            let mut y = vec![f32::NAN; rows * 5];
            table.matmul(&weight, &acts, &mut Columns::new(&mut y, rows, 5).whole());
            assert_eq!(bits(&y), bits(&matmul(table, &weight, &x, rows, 1)));
        }
    }
}

#[cfg(feature = "broken-numerics")]
#[test]
fn the_broken_table_breaks_the_invariance() {
    let mut rng = Rng::new(6);
    let broken = Kernels::broken_numerics();
    for block_type in BlockType::ALL {
        // One block is enough.
        for k in [ActScheme::of(block_type).block_len().max(8), 1024] {
            let bytes = random_weights(block_type, 16, k, &mut rng);
            let weight = broken.pack(block_type, &bytes, 16, k);
            let x = random_rows(2, k, &mut rng);
            let (alone, both) = (matmul(broken, &weight, &x[..k], 1, 1), matmul(broken, &weight, &x, 2, 1));
            assert_ne!(bits(&alone), bits(&both[..16]), "{} {k}", block_type.name());
        }
    }
}

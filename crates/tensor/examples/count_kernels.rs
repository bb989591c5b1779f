//! Calls one kernel a given number of times, for `cargo xtask counts` to count its instructions.
//!
//! ```sh
//! count_kernels TABLE              # the names of the cases, one a line
//! count_kernels TABLE CASE CALLS   # one call to warm up, then CALLS calls that are to be counted
//! ```
//!
//! Shapes are those of a small model, cut down to what a simulator runs in an instant.
//!
//! Invariant: everything but the calls lies outside [`only_this_is_counted`]; numbers are the same on every run.
//! Not here: counting, and what counts are right (`xtask`); time (`pilotfish bench`).
#![allow(clippy::print_stdout, reason = "a command line tool reports on stdout")]

use std::hint::black_box;
use std::process::ExitCode;

use pilotfish_tensor::kernels::{KvNumbers, KvPair, key_at};
use pilotfish_tensor::{
    ActScheme, Activations, Attend, AttendScratch, BlockType, Columns, Kernels, KvRows, Matrix, f32_to_f16,
};

/// Output columns of a matmul: four tiles, so that what is done once a call stays small beside them.
const N_OUT: usize = 64;
const HEAD_DIM: usize = 64;
const QUERY_HEADS: usize = 3;
const POSITIONS: usize = 512;
const WIDTH: usize = 576;
const HIDDEN: usize = 1536;
const VOCABULARY: usize = 49152;

/// One kernel at one shape.
#[derive(Clone, Copy)]
enum Case {
    Matmul(BlockType, usize),
    Quantize(ActScheme, usize),
    Attend(usize),
    RmsNorm,
    SiluMul,
    Argmax,
}

impl Case {
    fn all() -> Vec<Case> {
        let types = [
            BlockType::Q4K,
            BlockType::Q6K,
            BlockType::Q4_1,
            BlockType::Q5_0,
            BlockType::Q8_0,
            BlockType::Q4_0,
        ];
        let matmuls = types.into_iter().flat_map(|t| [1, 4, 8, 32].map(|rows| Case::Matmul(t, rows)));
        let others = [
            Case::Quantize(ActScheme::Q8Block256, 8),
            Case::Quantize(ActScheme::Q8Block32, 8),
            Case::Attend(1),
            Case::Attend(8),
            Case::RmsNorm,
            Case::SiluMul,
            Case::Argmax,
        ];
        matmuls.chain(others).collect()
    }

    fn name(self) -> String {
        match self {
            Case::Matmul(block_type, rows) => format!("matmul-{}-{rows}", block_type.name().to_lowercase()),
            Case::Quantize(scheme, rows) => format!("quantize-{}-{rows}", scheme.block_len()),
            Case::Attend(rows) => format!("attend-{rows}"),
            Case::RmsNorm => "rms_norm".to_owned(),
            Case::SiluMul => "silu_mul".to_owned(),
            Case::Argmax => "argmax".to_owned(),
        }
    }

    /// Makes the inputs; what is returned makes one call.
    fn prepare(self, table: &'static Kernels) -> Box<dyn FnMut()> {
        match self {
            Case::Matmul(block_type, rows) => matmul(table, block_type, rows),
            Case::Quantize(scheme, rows) => {
                let block_type =
                    if scheme == ActScheme::Q8Block256 { BlockType::Q4K } else { BlockType::Q8_0 };
                let (weight, x) = (weight(table, block_type), numbers(rows * row_len(scheme)));
                let mut acts = Activations::new();
                Box::new(move || table.quantize(&x, rows, weight.k(), weight.scheme(), &mut acts))
            }
            Case::Attend(rows) => attend(table, rows),
            Case::RmsNorm => {
                let (x, weight, mut out) = (numbers(WIDTH), numbers(WIDTH), vec![0.0; WIDTH]);
                Box::new(move || table.rms_norm(&x, &weight, 1e-5, &mut out))
            }
            Case::SiluMul => {
                let (gate, up, mut out) = (numbers(HIDDEN), numbers(HIDDEN), vec![0.0; HIDDEN]);
                Box::new(move || table.silu_mul(&gate, &up, &mut out))
            }
            Case::Argmax => {
                let mut x = numbers(VOCABULARY);
                x.push(2.0); // the largest lies last, so that no search for it ends early
                Box::new(move || {
                    black_box(table.argmax(&x));
                })
            }
        }
    }
}

/// Numbers in a row, so that every type has several blocks of it.
fn row_len(scheme: ActScheme) -> usize {
    match scheme {
        ActScheme::Q8Block256 => HIDDEN,
        ActScheme::Q8Block32 | ActScheme::F32 => WIDTH,
    }
}

/// Uneven numbers between -1 and 1.
fn numbers(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i * 7919 % 2003) as f32 / 1001.5 - 1.0).collect()
}

fn weight(table: &Kernels, block_type: BlockType) -> Matrix {
    let k = row_len(ActScheme::of(block_type));
    let mut bytes = Vec::new();
    block_type.encode(&numbers(N_OUT * k), &mut bytes);
    table.pack(block_type, &bytes, N_OUT, k)
}

fn matmul(table: &'static Kernels, block_type: BlockType, rows: usize) -> Box<dyn FnMut()> {
    let weight = weight(table, block_type);
    let (k, mut acts) = (weight.k(), Activations::new());
    table.quantize(&numbers(rows * k), rows, k, weight.scheme(), &mut acts);
    let mut y = vec![0.0; rows * N_OUT];
    Box::new(move || table.matmul(&weight, &acts, &mut Columns::new(&mut y, rows, N_OUT).whole()))
}

/// The last rows of a chain of `POSITIONS`; none of them is committed yet.
fn attend(table: &'static Kernels, rows: usize) -> Box<dyn FnMut()> {
    let committed = POSITIONS - rows;
    let n_out = QUERY_HEADS * HEAD_DIM;
    let halves: Vec<u16> = numbers(POSITIONS * HEAD_DIM).into_iter().map(f32_to_f16).collect();
    let mut keys = vec![0; POSITIONS * HEAD_DIM];
    for (slot, key) in halves.chunks_exact(HEAD_DIM).enumerate() {
        for (number, &half) in key.iter().enumerate() {
            keys[key_at(HEAD_DIM, slot, number)] = half;
        }
    }
    let path: Vec<u32> = (committed as u32..POSITIONS as u32).collect();
    let (q, mut out) = (numbers(rows * n_out), vec![0.0; rows * n_out]);
    let mut scratch = AttendScratch::new();
    Box::new(move || {
        let numbers = KvNumbers::F16(KvPair { keys: &keys, values: &halves });
        let kv = KvRows { numbers, width: HEAD_DIM, head_dim: HEAD_DIM, committed };
        let seen: [Attend<'_>; 8] = std::array::from_fn(|row| {
            let row = row.min(rows - 1);
            Attend { first: 0, last: committed + row, path: &path[..=row], scale: 0.125, softcap: None }
        });
        let block = Columns::new(&mut out, rows, n_out).whole();
        table.attend(&q, &seen[..rows], &kv, &mut scratch, block);
    })
}

/// The counter is on in this function, and off everywhere else. Found by its name, so it must stay a function.
#[inline(never)]
fn only_this_is_counted(call: &mut dyn FnMut(), calls: usize) {
    for _ in 0..calls {
        call();
    }
}

fn run(args: &[String]) -> Result<(), String> {
    let (table, rest) = args.split_first().ok_or("usage: count_kernels TABLE [CASE CALLS]")?;
    let table = Kernels::named(table).ok_or_else(|| format!("this CPU cannot run the table {table}"))?;
    match rest {
        [] => Case::all().into_iter().for_each(|case| println!("{}", case.name())),
        [name, calls] => {
            let case = Case::all().into_iter().find(|case| case.name() == *name);
            let case = case.ok_or_else(|| format!("there is no case {name:?}"))?;
            let calls = calls.parse().map_err(|_| format!("{calls:?} is no number of calls"))?;
            let mut call = case.prepare(table);
            call(); // buffers grow now
            only_this_is_counted(&mut *call, calls);
        }
        _ => return Err("usage: count_kernels TABLE [CASE CALLS]".to_owned()),
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

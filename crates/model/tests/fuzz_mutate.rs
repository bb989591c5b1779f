//! Thousands of damaged files: no panic, no hang, no memory beyond what the file can justify.
//!
//! The number of files is fixed for everyday runs. `PILOTFISH_FUZZ_SECONDS=600 cargo test --release -p
//! pilotfish-model --test fuzz_mutate -- --nocapture` goes on for ten minutes with seeds of its own.

#![allow(unsafe_code, reason = "an allocator that counts has to be one; it only forwards to the system's")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

use pilotfish_model::files::safetensors::Safetensors;
use pilotfish_model::testing::{Mutator, TinySpec};
use pilotfish_model::{Family, Gguf, Model};

/// Files per kind in an everyday run.
const FILES: u64 = 100_000;
/// Allowed on top of the file's own size; a graph of the most layers accepted takes about 1 MiB.
const ALLOWANCE: usize = 8 << 20;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(bytes: isize) {
    // A thread that is ending has no counters any more; its last frees do not matter here.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every method forwards to the system allocator with the arguments it got; counting touches only
// thread-local numbers and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as isize - layout.size() as isize);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// Most memory that `work` held at once, over what was held before.
fn peak_of(work: impl FnOnce()) -> usize {
    let before = LIVE.get();
    PEAK.set(before);
    work();
    (PEAK.get() - before).max(0) as usize
}

/// What came of the damaged files.
#[derive(Default)]
struct Tally {
    files: u64,
    refused: u64,
    peak: usize,
    slowest: Duration,
}

fn fuzz(what: &str, seeds: &[(Vec<u8>, usize)], parse: impl Fn(Vec<u8>) -> bool) {
    let seconds =
        std::env::var("PILOTFISH_FUZZ_SECONDS").ok().map(|s| s.parse().expect("a number of seconds"));
    let deadline = seconds.map(|s| Instant::now() + Duration::from_secs(s));
    let seed = if deadline.is_some() {
        Instant::now().elapsed().as_nanos() as u64 ^ std::process::id() as u64
    } else {
        7
    };
    let mut mutators: Vec<Mutator> = seeds.iter().map(|(_, head)| Mutator::new(seed, *head)).collect();
    let mut tally = Tally::default();
    loop {
        let done = match deadline {
            Some(deadline) => Instant::now() >= deadline,
            None => tally.files >= FILES,
        };
        if done {
            break;
        }
        let pick = (tally.files % seeds.len() as u64) as usize;
        let bytes = mutators[pick].mutate(&seeds[pick].0);
        let (len, start) = (bytes.len(), Instant::now());
        let kept = bytes.clone();
        let mut accepted = None;
        let peak = peak_of(|| accepted = panic::catch_unwind(AssertUnwindSafe(|| parse(bytes))).ok());
        let took = start.elapsed();
        let Some(accepted) = accepted else {
            let path = std::env::temp_dir().join(format!("pilotfish-fuzz-{what}-{seed}-{}", tally.files));
            std::fs::write(&path, kept).expect("the file that broke the parser can be kept");
            panic!("{what} file {} of seed {seed} panicked; it is kept as {}", tally.files, path.display());
        };
        assert!(
            peak <= len + ALLOWANCE,
            "{what} file {} of seed {seed}: {peak} bytes for a file of {len}",
            tally.files
        );
        assert!(took < Duration::from_secs(1), "{what} file {} of seed {seed} took {took:?}", tally.files);
        tally.files += 1;
        tally.refused += u64::from(!accepted);
        tally.peak = tally.peak.max(peak);
        tally.slowest = tally.slowest.max(took);
    }
    let Tally { files, refused, peak, slowest } = tally;
    eprintln!("{what}: {files} files, {refused} refused, at most {peak} bytes and {slowest:?}; seed {seed}");
    // Damage that never or always matters would mean that the mutator does not do its work.
    assert!(refused * 10 > files && refused < files, "{refused} of {files} refused");
}

#[test]
fn damaged_gguf_files_are_errors_and_nothing_worse() {
    let seeds: Vec<(Vec<u8>, usize)> = Family::ALL
        .iter()
        .map(|family| {
            let spec = TinySpec {
                layers: 1,
                hidden: 32,
                heads: 2,
                head_dim: 16,
                kv_heads: 1,
                ffn: 32,
                vocab: 263,
                ..TinySpec::new(*family)
            };
            let bytes = spec.gguf();
            let gguf = Gguf::parse(bytes.clone()).unwrap();
            let data: usize = gguf.tensors().iter().map(|tensor| tensor.n_bytes).sum();
            let head = bytes.len() - data;
            (bytes, head)
        })
        .collect();
    fuzz("gguf", &seeds, |bytes| {
        let Ok(gguf) = Gguf::parse(bytes) else { return false };
        // What was accepted must be safe to look at in every way.
        for (_, value) in gguf.metadata().iter() {
            assert!(!value.to_string().is_empty());
        }
        for tensor in gguf.tensors() {
            assert_eq!(gguf.tensor_bytes(&tensor.name).unwrap().len(), tensor.n_bytes);
        }
        Model::from_gguf(gguf).is_ok()
    });
}

#[test]
fn damaged_safetensors_are_errors_and_nothing_worse() {
    let header = r#"{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[4,4],"data_offsets":[0,64]},"h":{"dtype":"F16","shape":[2,3],"data_offsets":[64,76]},"b":{"dtype":"BF16","shape":[2],"data_offsets":[76,80]},"empty":{"dtype":"I64","shape":[0],"data_offsets":[80,80]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 80]].concat();
    Safetensors::parse(bytes.clone()).unwrap();
    fuzz("safetensors", &[(bytes, 8 + header.len())], |bytes| {
        let Ok(model) = Safetensors::parse(bytes) else { return false };
        for tensor in model.tensors() {
            assert_eq!(model.bytes(&tensor.name).unwrap().len(), tensor.n_bytes());
            let _ = model.f32s(&tensor.name);
        }
        true
    });
}

#[test]
fn the_allocator_does_count() {
    let peak = peak_of(|| drop(std::hint::black_box(vec![0u8; 1 << 20])));
    assert!((1 << 20..1 << 21).contains(&peak), "{peak}");
}

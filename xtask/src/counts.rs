//! Counts the instructions of the main kernels under callgrind, and compares them with the record.
//!
//! Time on a shared machine moves by more than most mistakes cost; the number of instructions does not move at all.
//! It is no measure of speed, but a change of it that nobody meant is a loop that was compiled to something else.
//!
//! Invariant: every case of the program is counted and compared; what cannot be counted is an error.
//! Not here: the cases (`count_kernels`, an example of the tensor crate).

mod callgrind;
mod record;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::limited::Scratch;
use record::{Counts, Record};

/// The only table that is counted: valgrind knows no AVX-512.
const TABLE: &str = "x86-avx2";
const PACKAGE: &str = "pilotfish-tensor";
const PROGRAM: &str = "count_kernels";
const SIDE_BY_SIDE: usize = 2;

/// Counts, then compares with the record, or writes it anew.
pub(crate) fn run(root: &Path, write: bool) -> Result<()> {
    let start = Instant::now();
    callgrind::is_installed()?;
    let rustc = rustc_version(root)?;
    let path = format!("bench/counts/{TABLE}.json");
    let file = root.join(&path);
    let old = match read(&file) {
        Ok(old) => Some(old),
        // What is to be written anew may be missing or half merged.
        Err(_) if write => None,
        Err(error) => return Err(error).context(path),
    };
    if let (Some(old), false) = (&old, write) {
        old.holds_for(&rustc).with_context(|| path.clone())?;
    }

    let program = build(root)?;
    let new = count_all(&program, &cases(&program)?)?;
    let differences = old.as_ref().map(|old| record::differences(&old.counts, &new));
    for difference in differences.iter().flatten() {
        println!("{} {difference}", if write { "changed" } else { "FAILED" });
    }
    let failed = differences.map_or(0, |differences| differences.len());
    println!(
        "counts: {} cases, {failed} not as recorded, in {:.0} s",
        new.len(),
        start.elapsed().as_secs_f64()
    );
    if write {
        fs::write(&file, Record { rustc, counts: new }.text()).with_context(|| path.clone())?;
        println!("wrote {path}");
        return Ok(());
    }
    if failed > 0 {
        bail!(
            "{failed} instruction counts are not those of {path}, to {} %; \
             if the change is meant, for better or worse, run `cargo xtask counts --write`",
            record::TOLERANCE_PERCENT
        );
    }
    Ok(())
}

fn read(file: &Path) -> Result<Record> {
    let text = fs::read_to_string(file).context("no record; `cargo xtask counts --write` makes one")?;
    Record::read(&text)
}

/// What `rustc --version` says of the compiler that cargo would use.
fn rustc_version(root: &Path) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output =
        Command::new(rustc).arg("--version").current_dir(root).output().context("rustc could not be run")?;
    ensure!(output.status.success(), "rustc --version: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Builds the program with the release profile as it is written, and returns where it lies.
fn build(root: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--release", "--message-format", "json-render-diagnostics"])
        .args(["--package", PACKAGE, "--example", PROGRAM])
        .env("CARGO_INCREMENTAL", "0")
        .current_dir(root)
        .stderr(Stdio::inherit());
    // Other flags would make another program, whose counts say nothing about the one that is shipped.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PROFILE_") || text.ends_with("RUSTFLAGS") {
            command.env_remove(&name);
        }
    }
    let output = command.output().context("cargo could not be started")?;
    ensure!(output.status.success(), "{PROGRAM} did not build: {}", output.status);
    let messages = String::from_utf8_lossy(&output.stdout);
    executable(&messages).with_context(|| format!("cargo did not say where {PROGRAM} lies"))
}

/// The program, among cargo's messages.
fn executable(messages: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut ours = messages.filter(|message| message["target"]["name"] == PROGRAM);
    ours.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// The names of the cases. That the CPU has the features of the table is found out here.
fn cases(program: &Path) -> Result<Vec<String>> {
    let output = Command::new(program).arg(TABLE).output().with_context(|| program.display().to_string())?;
    let problem = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "instructions can be counted only on x86-64 with AVX2: {}",
        problem.trim().trim_start_matches("error: ")
    );
    let names = String::from_utf8(output.stdout).context("names of cases")?;
    let names: Vec<String> = names.lines().map(str::to_owned).collect();
    ensure!(!names.is_empty(), "{PROGRAM} has no case");
    Ok(names)
}

/// Counts every case, some side by side: it is time that would suffer, not the counts.
fn count_all(program: &Path, names: &[String]) -> Result<Counts> {
    let scratch = Scratch::new("counts")?;
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            let count = callgrind::count(program, TABLE, name, &scratch.0.join(name));
            done.push((name.clone(), count.with_context(|| name.clone())?));
        }
        Ok(done)
    };
    let done: Result<Vec<Vec<(String, u64)>>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..SIDE_BY_SIDE).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    let mut counts: Counts = done?.into_iter().flatten().collect();
    counts.sort_by_key(|(name, _)| names.iter().position(|other| other == name));
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_among_messages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"half\"},\"executable\":\"/a\"}\n\
             not json\n\
             {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"count_kernels\"},\"executable\":\"/b c\"}\n";
        assert_eq!(executable(messages), Some(PathBuf::from("/b c")));
        assert_eq!(executable(&messages.replace("count_kernels", "other")), None);
        assert_eq!(executable(&messages.replace("\"/b c\"", "null")), None);
    }
}

//! Runs the model crate's mutation fuzzer for a chosen time.
//!
//! The fuzzer is an ordinary test that mutates valid files for as long as `PILOTFISH_FUZZ_SECONDS` says; the gate runs
//! it for a moment, this runs it for as long as one likes.
//!
//! Invariant: a run in which no fuzz test ran is a failure.
//! Not here: the mutations (`crates/model`).

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

pub(crate) fn run(root: &Path, seconds: u64) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut child = Command::new(cargo)
        .args(["test", "--release", "-p", "pilotfish-model", "--test", "fuzz_mutate", "--", "--nocapture"])
        .env("PILOTFISH_FUZZ_SECONDS", seconds.to_string())
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo could not be started")?;
    let stdout = child.stdout.take().context("the child's output was asked for")?;
    let mut passed = 0;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        passed += passed_in(&line);
        println!("{line}");
    }
    let status = child.wait()?;
    ensure!(status.success(), "the fuzzer found something, or did not build: {status}");
    ensure!(passed > 0, "the fuzzer ran no test");
    println!("fuzz: {passed} passed, 0 failed after {seconds} s");
    Ok(())
}

/// Tests that passed, from a summary line of the test harness.
fn passed_in(line: &str) -> u64 {
    let count = line.strip_prefix("test result: ok. ").and_then(|rest| rest.split(' ').next());
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_summary_lines_count() {
        assert_eq!(
            passed_in("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out"),
            3
        );
        assert_eq!(passed_in("test result: FAILED. 3 passed; 1 failed; 0 ignored"), 0);
        assert_eq!(passed_in("test fuzz_gguf ... ok"), 0);
    }
}

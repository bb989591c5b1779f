//! Runs the heavy matrices, which take hours and are not for every change.
//!
//! The gate runs the same tests on a part of their settings; the variables below ask them for all.
//!
//! Invariant: all runs are made, then the failures are told.
//! Not here: anything the gate does not also do in small.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

struct Heavy {
    name: &'static str,
    variables: &'static [(&'static str, &'static str)],
    args: &'static [&'static str],
}

const RUNS: [Heavy; 5] = [
    Heavy {
        name: "every setting of the invariance matrix",
        variables: &[("PILOTFISH_INVARIANCE", "full")],
        args: &["test", "--release", "-p", "pilotfish-lane", "--test", "invariance"],
    },
    Heavy {
        name: "a hundred million sampled replies",
        variables: &[("PILOTFISH_LAW_SAMPLES", "100000000")],
        args: &[
            "test",
            "--release",
            "-p",
            "pilotfish-engine",
            "--lib",
            "enumeration_agrees_with",
            "--",
            "--nocapture",
        ],
    },
    Heavy {
        name: "every test, with all real models",
        variables: &[("PILOTFISH_TEST_MODELS", "all")],
        args: &["test", "--release", "--workspace"],
    },
    Heavy {
        name: "ten minutes of mutated files",
        variables: &[],
        args: &["xtask", "fuzz", "--seconds", "600"],
    },
    Heavy { name: "the malformed-file corpus", variables: &[], args: &["xtask", "corpus"] },
];

pub(crate) fn run(root: &Path) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut failed = Vec::new();
    // The corpus needs the binary, and a build that fails is better known before hours of tests.
    for heavy in [Heavy { name: "build", variables: &[], args: &["build", "--release", "--workspace"] }]
        .iter()
        .chain(&RUNS)
    {
        let start = Instant::now();
        let variables = heavy.variables.iter().copied();
        let status = Command::new(&cargo).args(heavy.args).envs(variables).current_dir(root).status()?;
        println!(
            "{} {} in {:.0} s",
            if status.success() { "ok    " } else { "FAILED" },
            heavy.name,
            start.elapsed().as_secs_f64()
        );
        if !status.success() {
            failed.push(heavy.name);
        }
    }
    println!("{} passed, {} failed", RUNS.len() + 1 - failed.len(), failed.len());
    if !failed.is_empty() {
        bail!("failed: {}", failed.join("; "));
    }
    Ok(())
}

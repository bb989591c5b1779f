//! Runs one case under callgrind and reads how many instructions a call took.
//!
//! The counter is switched on by entering one function of the program, which makes the calls, and off by leaving it.
//! So setup is never counted, and the count is the same number on every run. The difference between runs of N and 2N
//! calls agrees with it, but takes two runs and keeps the noise of process start, which reads its own memory map.
//!
//! Invariant: a run that did not enter the function is an error, not a count of 0.
//! Not here: judging a count (`record`).

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::limited::{self, Limits};

/// Calls in one run: the few instructions around a call are counted once a call, those around all calls once.
const CALLS: u64 = 8;
/// Mangled or not, whatever the mangling.
const COUNTED: &str = "*count_kernels*only_this_is_counted*";
/// A string instruction is counted once a byte, so that clearing a buffer would outweigh the kernel beside it. Without
/// this feature, glibc clears and copies in vectors.
const TUNABLES: &str = "GLIBC_TUNABLES=glibc.cpu.hwcaps=-ERMS";
/// A case takes about a second.
const LIMITS: Limits = Limits { time: Duration::from_secs(120), memory_kib: 8 << 20 };

/// An error that names the package, where valgrind is missing.
pub(super) fn is_installed() -> Result<()> {
    let output = match Command::new("valgrind").arg("--version").output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("valgrind is missing; install the package `valgrind`")
        }
        other => other.context("valgrind could not be run")?,
    };
    ensure!(output.status.success(), "valgrind --version: {}", output.status);
    Ok(())
}

/// Instructions of one call. `scratch` is a directory for this call alone.
pub(super) fn count(program: &Path, table: &str, case: &str, scratch: &Path) -> Result<u64> {
    let out = scratch.join("callgrind.out");
    let args = [
        TUNABLES.to_owned(),
        "valgrind".to_owned(),
        "--tool=callgrind".to_owned(),
        format!("--toggle-collect={COUNTED}"),
        format!("--callgrind-out-file={}", out.display()),
        program.display().to_string(),
        table.to_owned(),
        case.to_owned(),
        CALLS.to_string(),
    ];
    let ended = limited::run(Path::new("env"), &args, LIMITS, scratch)?;
    ensure!(!ended.timed_out, "not counted after {} s", LIMITS.time.as_secs());
    ensure!(ended.code == Some(0), "valgrind failed:\n{}", ended.stderr.trim());
    let profile = fs::read_to_string(&out).context("callgrind wrote no profile")?;
    let total = total(&profile)?;
    ensure!(total > 0, "nothing was counted: callgrind did not find {COUNTED}");
    Ok((total + CALLS / 2) / CALLS)
}

/// The sum of a profile, which must be one of instructions.
fn total(profile: &str) -> Result<u64> {
    let value = |key: &str| profile.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    ensure!(value("events:") == Some("Ir"), "callgrind counted something else: {:?}", value("events:"));
    let totals = value("totals:").context("callgrind's profile has no total")?;
    totals.parse().with_context(|| format!("callgrind's total is {totals:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_profile_of_instructions_has_a_total() {
        let profile = "# callgrind format\nevents: Ir\nsummary: 5\n\nfn=(1) f\n3 5\ntotals: 5\n";
        assert_eq!(total(profile).unwrap(), 5);
        for broken in [
            profile.replace("totals: 5\n", ""),
            profile.replace("totals: 5", "totals: five"),
            profile.replace("events: Ir", "events: Ir Dr"),
            String::new(),
        ] {
            total(&broken).unwrap_err();
        }
    }
}

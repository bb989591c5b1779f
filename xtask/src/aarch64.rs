//! Lints the kernels for 64-bit Arm, and runs their tests under emulation on every kind of such CPU.
//!
//! Emulation says whether results are right, and that a table uses no instruction its CPU lacks; it says nothing about
//! time. So the tests that compare tables are all run, and those of the lane above are cut down to a sample.
//!
//! Invariant: each CPU's output names the tables that were tested, and they are compared with what it should have.
//! Not here: where the compiler comes from (`toolchain`, `debian`).

mod debian;
mod toolchain;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use toolchain::Toolchain;

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// The build profile: what is run often is optimised, what is only linked is not.
const PROFILE: &str = "emulated";

/// A CPU as the emulator knows it.
struct Cpu {
    model: &'static str,
    /// What `Kernels::available` must list on it.
    tables: &'static str,
    /// The test programs it runs, with a filter each; all of them when empty.
    only: &'static [(&'static str, &'static str)],
}

const CPUS: [Cpu; 3] = [
    Cpu { model: "cortex-a72", tables: "aarch64-neon portable", only: &[] },
    Cpu { model: "neoverse-n1", tables: "aarch64-dotprod aarch64-neon portable", only: &[] },
    // Everything the emulator knows, and the same tables as the one before: what matters is that they are chosen.
    Cpu {
        model: "max",
        tables: "aarch64-dotprod aarch64-neon portable",
        only: &[
            ("pilotfish_tensor", ""),
            ("golden", ""),
            ("kernels", "every_table_this_cpu_can_run_is_tested"),
        ],
    },
];

/// Prefix of the line in which a test says what it saw.
const TABLES: &str = "tables under test: ";

/// A test program.
struct Suite {
    name: String,
    program: PathBuf,
    folder: PathBuf,
}

/// Prepares a toolchain, then builds, lints and tests.
pub(crate) fn run(root: &Path) -> Result<()> {
    let start = Instant::now();
    let toolchain = Toolchain::find_or_unpack(root)?;
    toolchain.lint(root, &["--package", "pilotfish-tensor", "--all-targets"])?;
    println!("ok     toolchain and lints for {TARGET} in {:.0} s", start.elapsed().as_secs_f64());
    let suites = build(&toolchain, root)?;
    println!("ok     {} test programs built after {:.0} s", suites.len(), start.elapsed().as_secs_f64());

    let outcomes: Vec<(&Cpu, Result<String>)> = std::thread::scope(|scope| {
        let (toolchain, suites) = (&toolchain, &suites);
        let running = CPUS.each_ref().map(|cpu| (cpu, scope.spawn(move || test(toolchain, cpu, suites))));
        running.map(|(cpu, thread)| (cpu, thread.join().expect("a runner does not panic"))).into()
    });
    let mut failed = Vec::new();
    for (cpu, outcome) in outcomes {
        match outcome {
            Ok(summary) => println!("ok     {}: {summary}", cpu.model),
            Err(error) => {
                println!("FAILED {}: {error:#}", cpu.model);
                failed.push(cpu.model);
            }
        }
    }
    println!("aarch64: {} CPUs in {:.0} s", CPUS.len(), start.elapsed().as_secs_f64());
    if !failed.is_empty() {
        bail!("tests failed on {}", failed.join(", "));
    }
    Ok(())
}

/// Builds all tests of the tensor crate, and the lane's invariance suite.
fn build(toolchain: &Toolchain, root: &Path) -> Result<Vec<Suite>> {
    let tensor = build_package(toolchain, root, &["--package", "pilotfish-tensor", "--lib", "--tests"])?;
    let lane = build_package(toolchain, root, &["--package", "pilotfish-lane", "--test", "invariance"])?;
    let suites: Vec<Suite> = tensor.into_iter().chain(lane).collect();
    for cpu in &CPUS {
        for (name, _) in cpu.only {
            ensure!(suites.iter().any(|suite| suite.name == *name), "there is no test program {name}");
        }
    }
    Ok(suites)
}

fn build_package(toolchain: &Toolchain, root: &Path, args: &[&str]) -> Result<Vec<Suite>> {
    let output = toolchain
        .cargo(root)
        .args(["test", "--no-run", "--locked", "--target", TARGET, "--profile", PROFILE])
        .args(["--message-format", "json-render-diagnostics"])
        .args(args)
        .stderr(Stdio::inherit())
        .output()
        .context("cargo could not be started")?;
    ensure!(output.status.success(), "the tests did not build: {}", output.status);
    let suites = suites(&String::from_utf8_lossy(&output.stdout));
    ensure!(!suites.is_empty(), "cargo did not say where the test programs lie");
    Ok(suites)
}

/// The test programs among cargo's messages.
fn suites(messages: &str) -> Vec<Suite> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let tests = messages.filter(|message| message["profile"]["test"] == true);
    tests
        .filter_map(|message| {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            Some(Suite {
                name: text(&message["target"]["name"])?,
                program: text(&message["executable"])?.into(),
                folder: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
            })
        })
        .collect()
}

/// Runs the suites on one CPU, and says how many tests passed.
fn test(toolchain: &Toolchain, cpu: &Cpu, suites: &[Suite]) -> Result<String> {
    let start = Instant::now();
    let mut output = String::new();
    for suite in suites {
        let filter = match cpu.only.iter().find(|(name, _)| suite.name == *name) {
            Some((_, filter)) => *filter,
            None if cpu.only.is_empty() => "",
            None => continue,
        };
        let ended = toolchain
            .emulate(cpu.model, &suite.program)
            .args(["--show-output", filter])
            .current_dir(&suite.folder)
            .env("PILOTFISH_INVARIANCE", "sample")
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("{} could not be started", suite.name))?;
        let text = String::from_utf8_lossy(&ended.stdout);
        if !ended.status.success() {
            print!("{text}{}", String::from_utf8_lossy(&ended.stderr));
            bail!("{} ended with {}", suite.name, ended.status);
        }
        ensure!(passed(&text) > 0, "{} ran no test", suite.name);
        output.push_str(&text);
    }
    same_tables(&output, cpu.tables)?;
    let only: Vec<&str> = cpu.only.iter().map(|(name, _)| *name).collect();
    Ok(format!(
        "{} tests passed in {:.0} s; {TABLES}{}{}",
        passed(&output),
        start.elapsed().as_secs_f64(),
        cpu.tables,
        if only.is_empty() { String::new() } else { format!("; only of {}", only.join(", ")) }
    ))
}

/// Tests that passed, by the last lines of the suites.
fn passed(output: &str) -> usize {
    let ends = output.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    ends.filter_map(|end| end.split(' ').next()?.parse::<usize>().ok()).sum()
}

/// Fails unless the tests said once that these tables were tested.
fn same_tables(output: &str, expected: &str) -> Result<()> {
    let seen: Vec<&str> = output.lines().filter_map(|line| line.strip_prefix(TABLES)).collect();
    ensure!(seen == [expected], "the tests named the tables {seen:?}, not [{expected:?}]");
    Ok(())
}

/// Where a program lies that is installed.
fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Runs a command to its end and returns what it printed.
fn output_of(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{name} could not be run"))?;
    let problem = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}\n{}", output.status, problem.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_tests_other_tables_is_told() {
        let output = "\ntables under test: aarch64-neon portable\n\ntest result: ok. 3 passed; 0 failed\n";
        assert!(same_tables(output, "aarch64-neon portable").is_ok());
        assert!(same_tables(output, "aarch64-dotprod aarch64-neon portable").is_err());
        assert!(same_tables("test result: ok. 3 passed; 0 failed\n", "portable").is_err());
        assert!(same_tables(&output.repeat(2), "aarch64-neon portable").is_err());
    }

    #[test]
    fn passed_tests_are_added_up() {
        let output =
            "test result: ok. 12 passed; 0 failed\ntest a ... ok\ntest result: ok. 3 passed; 0 failed\n";
        assert_eq!(passed(output), 15);
        assert_eq!(passed("test result: FAILED. 12 passed; 1 failed\n"), 0);
    }

    #[test]
    fn test_programs_are_found_among_messages() {
        let message = |test: bool, executable: &str| {
            format!(
                "{{\"manifest_path\":\"/w/tensor/Cargo.toml\",\"target\":{{\"name\":\"rows\"}},\
                 \"profile\":{{\"test\":{test}}},\"executable\":{executable}}}\n"
            )
        };
        let messages =
            [message(false, "null"), message(true, "\"/t/rows-1\""), "no json\n".to_owned()].concat();
        let found = suites(&messages);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].folder.as_path()), ("rows", Path::new("/w/tensor")));
        assert_eq!(found[0].program, Path::new("/t/rows-1"));
    }
}

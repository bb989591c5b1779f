//! Tells the binary which commit it was built from, so that bench records can name it.
//!
//! Invariant: without git, or outside a clone, the build works and the commit is unknown.

use std::process::Command;

fn main() {
    for path in
        ["../../.git/HEAD", "../../.git/index", "../../crates", "../../bench/prompts", "../../Cargo.lock"]
    {
        println!("cargo:rerun-if-changed={path}");
    }
    let Some(commit) = git(&["rev-parse", "HEAD"]) else { return };
    println!("cargo:rustc-env=PILOTFISH_COMMIT={commit}");
    if let Some(changes) = git(&["status", "--porcelain", "--untracked-files=no"]) {
        println!("cargo:rustc-env=PILOTFISH_DIRTY={}", !changes.is_empty());
    }
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

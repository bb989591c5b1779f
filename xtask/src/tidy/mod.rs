//! Checks what the compiler does not: the walls between crates, headers, lengths, words, hashes and invariants.
//!
//! Each check is a function from the [`Tree`] to findings. All of them run before anything is reported.
//!
//! Invariant: every check has a test that makes it fail.
//! Not here: formatting and lints (`cargo fmt`, `cargo clippy`).

mod dependencies;
mod invariants;
mod lanes;
mod prompts;
mod sources;
mod words;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

use crate::tree::Tree;

/// Something a check has to say about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    line: Option<usize>, // one-based
    message: String,
    is_warning: bool,
}

impl Finding {
    fn error(path: &str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: None, message: message.into(), is_warning: false }
    }

    fn warning(path: &str, message: impl Into<String>) -> Self {
        Self { is_warning: true, ..Self::error(path, message) }
    }

    /// The same finding at a zero-based line.
    fn at(self, line_idx: usize) -> Self {
        Self { line: Some(line_idx + 1), ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", if self.is_warning { "warning: " } else { "error: " })?;
        write!(f, "{}", self.path)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)
    }
}

type Check = fn(&Tree) -> Vec<Finding>;

const CHECKS: [(&str, Check); 8] = [
    ("crates use only what the table allows", dependencies::check),
    ("only the façade knows the lanes", lanes::check),
    ("sources open with a header", sources::headers),
    ("sources are short", sources::lengths),
    ("unsafe stays in its list", sources::unsafe_list),
    ("no machine's or registry's names, nothing unfinished", words::check),
    ("bench prompts have their hashes", prompts::check),
    ("invariants name their tests", invariants::check),
];

/// Runs every check on the repository at `root` and fails when one found an error.
pub(crate) fn run(root: &Path) -> Result<()> {
    let tree = Tree::load(root)?;
    let mut errors = 0;
    for (name, check) in CHECKS {
        let findings = check(&tree);
        let failed = findings.iter().filter(|finding| !finding.is_warning).count();
        println!("{} {name}", if failed == 0 { "ok    " } else { "FAILED" });
        for finding in findings {
            println!("  {finding}");
        }
        errors += failed;
    }
    if errors > 0 {
        bail!("tidy found {errors} error(s)");
    }
    Ok(())
}

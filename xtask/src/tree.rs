//! The repository's files in memory, so that a check is a function from texts to findings.
//!
//! Tests build a small tree by hand and show that each check can fail.
//!
//! Invariant: paths are relative to the root, with `/` between their parts, in ascending order.
//! Not here: ignored files; git decides what belongs to the repository.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Files by path.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, Vec<u8>>,
}

impl Tree {
    /// Reads every file that git tracks or would track.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("git could not be run; tidy reads its list of files")?;
        ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
        let list = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
        let mut files = BTreeMap::new();
        for path in list.split('\0').filter(|path| !path.is_empty()) {
            let full = root.join(path);
            // A tracked file that was just deleted is still listed; links are not followed.
            if full.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
                files.insert(
                    path.to_owned(),
                    std::fs::read(&full).with_context(|| full.display().to_string())?,
                );
            }
        }
        Ok(Self { files })
    }

    /// A tree of the given texts.
    #[cfg(test)]
    pub(crate) fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        Self {
            files: files
                .into_iter()
                .map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))
                .collect(),
        }
    }

    /// Bytes of one file.
    pub(crate) fn bytes(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(Vec::as_slice)
    }

    /// Text of one file; `None` when it is absent or not UTF-8.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        std::str::from_utf8(self.bytes(path)?).ok()
    }

    /// Every file that is UTF-8 text.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, bytes)| Some((path.as_str(), std::str::from_utf8(bytes).ok()?)))
    }

    /// Every Rust source of a crate or of xtask.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| {
            path.ends_with(".rs") && (path.starts_with("crates/") || path.starts_with("xtask/"))
        })
    }

    /// Every path.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }
}

//! Finds words that must not be in the repository: paths of one machine, package registries, and unfinished code.
//!
//! A clone must build anywhere and say nothing of where it was written; unfinished code and silenced tests hide what
//! does not work.
//!
//! Invariant: the needles are joined from pieces, so this file does not find itself.
//! Not here: words that clippy finds in code alone (`dbg!`).

use super::Finding;
use crate::tree::Tree;

/// Directories of a machine, found only where an absolute path begins.
const PATHS: [&str; 6] = [
    concat!("/wo", "rk/"),
    concat!("/t", "mp/"),
    concat!("/fa", "rm"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
];

/// Package indexes and the settings that point at one; a clone uses whatever its user has set up.
const REGISTRIES: [&str; 7] = [
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("static.crates", ".io"),
    concat!("index.crates", ".io"),
    concat!("index", "-url"),
    concat!("find", "-links"),
    concat!("replace", "-with"),
];

/// Code that is not there, and tests that do not run.
const UNFINISHED: [&str; 3] =
    [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("#[ig", "nore")];

/// Written by cargo, full of its registry's name.
const EXEMPT: [&str; 1] = ["Cargo.lock"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| !EXEMPT.contains(path)) {
        for (line_idx, line) in text.lines().enumerate() {
            let mut found = |what: &str, word: &str| {
                findings.push(Finding::error(path, format!("{what}: {word:?}")).at(line_idx));
            };
            PATHS
                .iter()
                .filter(|word| has_absolute(line, word))
                .for_each(|word| found("a machine's path", word));
            REGISTRIES.iter().filter(|word| line.contains(**word)).for_each(|word| found("a registry", word));
            UNFINISHED.iter().filter(|word| line.contains(**word)).for_each(|word| found("unfinished", word));
        }
    }
    findings
}

/// Whether `path` occurs in `line` as the start of an absolute path rather than inside a relative one.
fn has_absolute(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || "_-.}~/*)".contains(c)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_found_with_its_line() {
        for word in PATHS.iter().chain(&REGISTRIES).chain(&UNFINISHED) {
            let text = format!("fine\nlet x = \"{word}\";\n");
            for path in ["crates/a/src/lib.rs", "README.md", ".ci/run", "docs/x.md"] {
                let findings = check(&Tree::of([(path, &text)]));
                assert_eq!(findings.len(), 1, "{word} in {path}");
                assert_eq!(findings[0].line, Some(2));
            }
        }
    }

    #[test]
    fn relative_paths_and_the_lock_file_are_fine() {
        let relative = PATHS.map(|path| format!("a target{path} $HERE{path} {{}}{path}\n")).concat();
        assert_eq!(check(&Tree::of([("README.md", &relative), ("Cargo.lock", REGISTRIES[2])])), []);
    }
}

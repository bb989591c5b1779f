//! Checks each Rust file's first line, its length, and that unsafe code stays where it is expected.
//!
//! Invariant: the list of files that may hold unsafe code is here and nowhere else.
//! Not here: what the rest of a header says; readers judge that.

use super::Finding;
use crate::tree::Tree;

/// Lines above which a file is worth splitting, and above which it must be.
const LONG: usize = 500;
const TOO_LONG: usize = 800;

/// Files and folders whose sources may lift the workspace's ban on unsafe code.
const MAY_BE_UNSAFE: [&str; 4] = [
    "crates/tensor/src/kernels",
    "crates/model/src/files/mmap.rs",
    "crates/lane/src/cpu/threads.rs",
    // A test whose allocator counts, to prove what a bad file makes the reader allocate.
    "crates/model/tests/fuzz_mutate.rs",
];

/// Every source begins with `//! ` and one sentence on that line.
pub(super) fn headers(tree: &Tree) -> Vec<Finding> {
    let bad = |text: &str| {
        let first = text.lines().next().unwrap_or_default();
        match first.strip_prefix("//! ") {
            None => Some("must begin with a `//! ` line that says in one sentence what the file is"),
            Some(sentence) if !sentence.trim_end().ends_with(['.', '?', ':']) => {
                Some("the header's first line must be one whole sentence, ended by a full stop")
            }
            Some(sentence) if sentence.split_whitespace().count() < 3 => {
                Some("the header's first line says too little")
            }
            Some(_) => None,
        }
    };
    tree.rust().filter_map(|(path, text)| Some(Finding::error(path, bad(text)?).at(0))).collect()
}

/// Warns over 500 lines, fails over 800.
pub(super) fn lengths(tree: &Tree) -> Vec<Finding> {
    let judge = |path: &str, text: &str| match text.lines().count() {
        lines if lines > TOO_LONG => {
            Some(Finding::error(path, format!("{lines} lines; the limit is {TOO_LONG}")))
        }
        lines if lines > LONG => {
            Some(Finding::warning(path, format!("{lines} lines; split it before {TOO_LONG}")))
        }
        _ => None,
    };
    tree.rust().filter_map(|(path, text)| judge(path, text)).collect()
}

/// The ban on unsafe code is lifted only in the listed files.
pub(super) fn unsafe_list(tree: &Tree) -> Vec<Finding> {
    let lint = concat!("unsafe", "_code");
    let mut findings = Vec::new();
    for (path, text) in tree.rust() {
        if MAY_BE_UNSAFE.iter().any(|allowed| is_within(path, allowed)) {
            continue;
        }
        for (line_idx, line) in text.lines().enumerate().filter(|(_, line)| line.contains(lint)) {
            let tightens = ["deny", "forbid"].iter().any(|level| line.contains(&format!("{level}({lint}")));
            if !tightens {
                let message =
                    "lifts the ban on unsafe code, but is not in the list of xtask/src/tidy/sources.rs";
                findings.push(Finding::error(path, message).at(line_idx));
            }
        }
    }
    findings
}

/// Whether `path` is the allowed file, or lies in the allowed folder or its `folder.rs`.
fn is_within(path: &str, allowed: &str) -> bool {
    path.strip_prefix(allowed).is_some_and(|rest| rest.is_empty() || rest == ".rs" || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_without_a_one_sentence_header_is_found() {
        let findings = headers(&Tree::of([
            ("crates/a/src/good.rs", "//! Reads model files.\n"),
            ("crates/a/src/none.rs", "use std::fs;\n"),
            ("crates/a/src/late.rs", "\n//! Reads model files.\n"),
            ("crates/a/src/open.rs", "//! Reads model files and then\n//! some.\n"),
            ("crates/a/src/short.rs", "//! Placeholder.\n"),
            ("crates/a/src/empty.rs", ""),
            ("crates/a/tests/none.rs", "fn f() {}\n"),
            ("xtask/src/none.rs", "fn f() {}\n"),
            ("elsewhere/none.rs", "fn f() {}\n"),
        ]));
        let paths: Vec<&str> = findings.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "crates/a/src/empty.rs",
                "crates/a/src/late.rs",
                "crates/a/src/none.rs",
                "crates/a/src/open.rs",
                "crates/a/src/short.rs",
                "crates/a/tests/none.rs",
                "xtask/src/none.rs"
            ]
        );
    }

    #[test]
    fn length_warns_then_fails() {
        let findings = lengths(&Tree::of([
            ("crates/a/src/a.rs", &"\n".repeat(500)),
            ("crates/a/src/b.rs", &"\n".repeat(501)),
            ("crates/a/src/c.rs", &"\n".repeat(800)),
            ("crates/a/src/d.rs", &"\n".repeat(801)),
        ]));
        let seen: Vec<(&str, bool)> = findings.iter().map(|f| (f.path.as_str(), f.is_warning)).collect();
        assert_eq!(
            seen,
            [("crates/a/src/b.rs", true), ("crates/a/src/c.rs", true), ("crates/a/src/d.rs", false)]
        );
    }

    #[test]
    fn unsafe_outside_the_list_is_found() {
        let lifted = concat!("#![allow(unsafe", "_code, reason = \"x\")]\n");
        let split = concat!("#![expect(\n    unsafe", "_code,\n)]\n");
        let tightened = concat!("#![forbid(unsafe", "_code)]\n");
        let findings = unsafe_list(&Tree::of([
            ("crates/engine/src/lib.rs", lifted),
            ("crates/engine/src/split.rs", split),
            ("crates/engine/src/tight.rs", tightened),
            ("crates/model/src/files/mmap.rs", lifted),
            ("crates/model/src/files/mmap.rs.rs", lifted),
            ("crates/tensor/src/kernels.rs", lifted),
            ("crates/tensor/src/kernels/x86/avx2.rs", split),
            ("crates/tensor/src/kernels_more.rs", lifted),
        ]));
        let seen: Vec<(&str, Option<usize>)> = findings.iter().map(|f| (f.path.as_str(), f.line)).collect();
        assert_eq!(
            seen,
            [
                ("crates/engine/src/lib.rs", Some(1)),
                ("crates/engine/src/split.rs", Some(2)),
                ("crates/tensor/src/kernels_more.rs", Some(1)),
            ]
        );
    }
}

//! Checks the bench prompts against their committed hashes.
//!
//! Figures measured on a prompt mean something only while the prompt stays the same, byte for byte.
//!
//! Invariant: the list and the folder hold the same files.
//! Not here: what a prompt asks.

use std::collections::BTreeMap;
use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::Finding;
use crate::tree::Tree;

const FOLDER: &str = "bench/prompts/";
const LIST: &str = "bench/prompts/SHA256SUMS";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(list) = tree.text(LIST) else {
        return vec![Finding::error(LIST, "is missing")];
    };
    let mut findings = Vec::new();
    let mut listed = BTreeMap::new();
    for (line_idx, line) in list.lines().enumerate() {
        match line.split_once("  ") {
            Some((hash, name)) if hash.len() == 64 => drop(listed.insert(name, hash)),
            _ => findings.push(Finding::error(LIST, "a line is not `hash, two spaces, name`").at(line_idx)),
        }
    }
    for path in tree.paths().filter(|path| path.ends_with(".txt")) {
        let Some(name) = path.strip_prefix(FOLDER) else { continue };
        let actual = hex(&Sha256::digest(tree.bytes(path).unwrap_or_default()));
        match listed.remove(name) {
            Some(hash) if hash == actual => {}
            Some(_) => findings.push(Finding::error(path, format!("changed: its hash is now {actual}"))),
            None => findings.push(Finding::error(path, format!("is not in {LIST}"))),
        }
    }
    findings
        .extend(listed.keys().map(|name| Finding::error(LIST, format!("lists {name}, which is not there"))));
    findings
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string can always grow");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // SHA-256 of "abc", from FIPS 180-2.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn equal_files_pass_and_any_difference_is_found() {
        let list = format!("{ABC}  a.txt\n");
        assert_eq!(check(&Tree::of([(LIST, &list), ("bench/prompts/a.txt", "abc")])), []);
        let cases: [(&str, Vec<Finding>); 5] = [
            ("changed", check(&Tree::of([(LIST, &list), ("bench/prompts/a.txt", "abd")]))),
            ("is missing", check(&Tree::of([("bench/prompts/a.txt", "abc")]))),
            ("is not in", check(&Tree::of([(LIST, ""), ("bench/prompts/a.txt", "abc")]))),
            ("which is not there", check(&Tree::of([(LIST, &list)]))),
            ("a line is not", check(&Tree::of([(LIST, "abc\n")]))),
        ];
        for (message, findings) in cases {
            assert_eq!(findings.len(), 1, "{message}: {findings:?}");
            assert!(findings[0].message.contains(message), "{findings:?}");
        }
    }
}

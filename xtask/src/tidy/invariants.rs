//! Checks that every invariant of ARCHITECTURE.md names a test that exists.
//!
//! The invariants are the rows of the table under `## Invariants`; the last cell of a row holds the guarding tests in
//! backquotes. Test files may be named beside them; words with a dot or a slash are not taken for tests.
//!
//! Invariant: a row is satisfied only when all the tests it names exist.
//! Not here: whether the test is a good guard.

use std::collections::BTreeSet;

use super::Finding;
use crate::tree::Tree;

const PAGE: &str = "ARCHITECTURE.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let page = tree.text(PAGE).unwrap_or_default();
    let tests: BTreeSet<&str> = tree.rust().flat_map(|(_, text)| test_names(text)).collect();
    let mut findings = Vec::new();
    let mut in_section = false;
    let mut rows_found = 0;
    for (line_idx, line) in page.lines().enumerate() {
        if line.starts_with('#') {
            in_section = line.trim() == "## Invariants";
            rows_found = if in_section { 0 } else { rows_found };
        }
        if !in_section || !line.starts_with('|') {
            continue;
        }
        rows_found += 1;
        if rows_found <= 2 {
            continue; // the table's head and its rule
        }
        let named: Vec<&str> = guards(line).collect();
        if named.is_empty() {
            findings.push(Finding::error(PAGE, "an invariant names no test").at(line_idx));
        }
        for name in named.into_iter().filter(|name| !tests.contains(name)) {
            findings.push(Finding::error(PAGE, format!("there is no test `{name}`")).at(line_idx));
        }
    }
    if rows_found <= 2 {
        findings.push(Finding::error(PAGE, "has no table of invariants under `## Invariants`"));
    }
    findings
}

/// Identifiers in backquotes in the row's last cell.
fn guards(row: &str) -> impl Iterator<Item = &str> {
    let last = row.trim_end().trim_end_matches('|').rsplit('|').next().unwrap_or_default();
    last.split('`').skip(1).step_by(2).filter(|word| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    })
}

/// Names of functions that carry `#[test]`.
fn test_names(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line == "#[test]" {
            is_test = true;
        } else if let Some(rest) = line.strip_prefix("fn ").filter(|_| is_test) {
            names.extend(rest.split('(').next());
            is_test = false;
        } else if !(line.starts_with("#[") || line.starts_with("//")) {
            is_test = false;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: (&str, &str) =
        ("crates/a/tests/t.rs", "#[test]\n#[should_panic]\nfn rows_are_alone() {}\n\nfn not_a_test() {}\n");

    fn with_row(row: &str) -> Vec<Finding> {
        let page = format!("# Map\n\n## Invariants\n\n| invariant | test |\n|---|---|\n{row}\n\n## Words\n");
        check(&Tree::of([("ARCHITECTURE.md", &page), TEST]))
    }

    #[test]
    fn a_row_that_names_a_test_passes() {
        assert_eq!(with_row("| `rows` do not meet. | `rows_are_alone` in `crates/a/tests/t.rs` |"), []);
    }

    #[test]
    fn a_row_without_a_test_or_with_a_name_that_is_none_is_found() {
        for (row, message) in [
            ("| Rows do not meet. | by care |", "names no test"),
            ("| `rows_are_alone` | `t.rs` |", "names no test"),
            ("| Rows do not meet. | `rows_are_together` |", "there is no test `rows_are_together`"),
            ("| Rows do not meet. | `rows_are_alone`, `not_a_test` |", "there is no test `not_a_test`"),
            ("", "has no table"),
        ] {
            let findings = with_row(row);
            assert_eq!(findings.len(), 1, "{row}: {findings:?}");
            assert!(findings[0].message.contains(message), "{findings:?}");
        }
    }

    #[test]
    fn a_page_without_the_section_is_found() {
        assert_eq!(
            check(&Tree::of([("ARCHITECTURE.md", "# Map\n| a | b |\n|--|--|\n| c | `d` |\n")])).len(),
            1
        );
        assert_eq!(check(&Tree::of([TEST])).len(), 1);
    }
}

//! Checks that only the façade's `lanes.rs` knows which lanes exist.
//!
//! A lane is found by its `impl Lane for Name` in a lane crate; no other crate's library or binary code may say
//! `Name`. Adding a lane then touches one file above the lane crates, and no `cfg` spreads.
//!
//! Invariant: tests may name any lane.
//! Not here: which crates may depend on a lane crate (`dependencies`).

use super::Finding;
use crate::tree::Tree;

const REGISTRY: &str = "crates/pilotfish/src/lanes.rs";
const LANE_CRATES: [&str; 4] = ["crates/lane/", "crates/lane-gpu/", "crates/lane-apple/", "crates/coreml/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let in_lane_crate = |path: &str| LANE_CRATES.iter().any(|folder| path.starts_with(folder));
    let mut lanes: Vec<&str> = tree
        .rust()
        .filter(|(path, _)| in_lane_crate(path) && path.contains("/src/"))
        .flat_map(|(_, text)| lane_names(without_tests(text)))
        .collect();
    lanes.sort_unstable();
    lanes.dedup();
    let mut findings = Vec::new();
    for (path, text) in tree.rust() {
        if in_lane_crate(path) || path == REGISTRY || !path.starts_with("crates/") || !path.contains("/src/")
        {
            continue;
        }
        if path.ends_with("/tests.rs") || path.contains("/tests/") {
            continue;
        }
        for (line_idx, line) in without_tests(text).lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for lane in lanes.iter().filter(|lane| words(code).any(|word| word == **lane)) {
                findings
                    .push(Finding::error(path, format!("names `{lane}`; only {REGISTRY} may")).at(line_idx));
            }
        }
    }
    findings
}

fn lane_names(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| line.trim_start().starts_with("impl")).filter_map(|line| {
        let (_, rest) = line.split_once(" Lane for ")?;
        words(rest).next()
    })
}

/// The part of a source before its unit tests, which house style puts last.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or_default()
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: (&str, &str) =
        ("crates/lane/src/cpu/mod.rs", "pub struct CpuLane;\nimpl Lane for CpuLane {\n}\n");

    #[test]
    fn a_lane_named_outside_the_registry_is_found() {
        let findings =
            check(&Tree::of([LANE, ("crates/engine/src/session.rs", "//! Header.\nuse x::CpuLane;\n")]));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, Some(2));
        assert!(findings[0].message.contains("`CpuLane`"));
    }

    #[test]
    fn the_registry_tests_comments_and_lane_crates_may_name_it() {
        let findings = check(&Tree::of([
            LANE,
            ("crates/pilotfish/src/lanes.rs", "use x::CpuLane;\n"),
            (
                "crates/engine/src/session.rs",
                "// CpuLane does\nfn f() {}\n#[cfg(test)]\nmod tests { use x::CpuLane; }\n",
            ),
            ("crates/engine/tests/speculation.rs", "use x::CpuLane;\n"),
            ("crates/lane/src/testing.rs", "use x::CpuLane;\n"),
            ("crates/cli/src/main.rs", "struct MyCpuLaneTable;\n"),
        ]));
        assert_eq!(findings, []);
    }

    #[test]
    fn generic_implementations_count_as_lanes() {
        let names: Vec<&str> = lane_names(
            "impl<'a> Lane for GpuLane<'a> {\nimpl fmt::Debug for X {}\nimpl crate::Lane for Y {}\n",
        )
        .collect();
        assert_eq!(names, ["GpuLane"]);
    }
}

//! Compares every crate's manifest with the dependency table of ARCHITECTURE.md.
//!
//! The table is the one place that says which crate may use which; this reads it, so the page cannot drift from the
//! code. Dev- and build-dependencies follow the same table, except that a crate's tests may depend on the crate itself.
//!
//! Invariant: a crate without a row, or a row without a crate, is an error.
//! Not here: dependencies from outside the workspace.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::tree::Tree;

const PAGE: &str = "ARCHITECTURE.md";

/// What a crate may use.
#[derive(Debug, PartialEq, Eq)]
enum Allowed {
    Anything,
    Only(BTreeSet<String>),
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.text(PAGE) else {
        return vec![Finding::error(PAGE, "is missing; it holds the dependency table")];
    };
    let table = match read_table(page) {
        Ok(table) => table,
        Err(finding) => return vec![finding],
    };
    let mut findings = Vec::new();
    let manifests: BTreeMap<String, &str> =
        tree.paths().filter_map(|path| Some((folder_of(path)?, path))).collect();
    for folder in table.keys().filter(|folder| !manifests.contains_key(*folder)) {
        findings.push(Finding::error(PAGE, format!("the table has a row for `{folder}`, which is no crate")));
    }
    for (folder, path) in manifests {
        let Some(text) = tree.text(path) else { continue };
        let Some(allowed) = table.get(&folder) else {
            findings.push(Finding::error(
                path,
                format!("`{folder}` has no row in the dependency table of {PAGE}"),
            ));
            continue;
        };
        findings.extend(check_manifest(path, text, &folder, allowed));
    }
    if !tree.text("Cargo.toml").is_some_and(|text| text.contains(concat!("unsafe", "_code = \"deny\""))) {
        findings.push(Finding::error("Cargo.toml", "the workspace lints no longer deny unsafe code"));
    }
    findings
}

/// `model` for `crates/model/Cargo.toml`, `xtask` for xtask's.
fn folder_of(path: &str) -> Option<String> {
    let folder = path.strip_suffix("/Cargo.toml")?;
    let name = folder.strip_prefix("crates/").or((folder == "xtask").then_some("xtask"))?;
    (!name.contains('/')).then(|| name.to_owned())
}

fn package_of(folder: &str) -> String {
    match folder {
        "pilotfish" | "xtask" => folder.to_owned(),
        _ => format!("pilotfish-{folder}"),
    }
}

fn read_table(page: &str) -> Result<BTreeMap<String, Allowed>, Finding> {
    let mut lines = page.lines().skip_while(|line| cells(line) != ["crate", "may use"]);
    if lines.next().is_none() {
        return Err(Finding::error(PAGE, "has no table that starts with `| crate | may use |`"));
    }
    let mut table = BTreeMap::new();
    for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
        let [crates, may_use] = cells(line)[..] else {
            return Err(Finding::error(PAGE, format!("dependency table: {line:?} has not two cells")));
        };
        for folder in names(crates) {
            let allowed = match may_use {
                "anything" => Allowed::Anything,
                "nothing of ours" => Allowed::Only(BTreeSet::new()),
                list => Allowed::Only(names(list).map(package_of).collect()),
            };
            if table.insert(folder.to_owned(), allowed).is_some() {
                return Err(Finding::error(PAGE, format!("dependency table: `{folder}` has two rows")));
            }
        }
    }
    Ok(table)
}

fn cells(line: &str) -> Vec<&str> {
    let Some(inner) = line.trim().strip_prefix('|').and_then(|rest| rest.strip_suffix('|')) else {
        return Vec::new();
    };
    inner.split('|').map(str::trim).collect()
}

fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split(',').map(|name| name.trim().trim_matches('`')).filter(|name| !name.is_empty())
}

fn check_manifest(path: &str, text: &str, folder: &str, allowed: &Allowed) -> Vec<Finding> {
    let package = package_of(folder);
    let mut findings = Vec::new();
    let mut section = "";
    let mut has_lints = false;
    let mut has_name = false;
    for (line_idx, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']').trim_start_matches('[');
        }
        has_lints |= section == "lints" && line.replace(' ', "") == "workspace=true";
        has_name |= section == "package" && line.replace(' ', "") == format!("name=\"{package}\"");
        let Some(kind) = dependency_kind(section) else { continue };
        for used in ours(line) {
            let is_own_test = used == package && kind == "dev-dependencies";
            let is_allowed = match allowed {
                Allowed::Anything => true,
                Allowed::Only(list) => list.contains(used),
            };
            if !is_allowed && !is_own_test {
                let message = format!("`{folder}` may not use `{used}` ({kind}); see the table in {PAGE}");
                findings.push(Finding::error(path, message).at(line_idx));
            }
        }
    }
    if !has_name {
        findings.push(Finding::error(path, format!("the package of this folder must be named {package:?}")));
    }
    if !has_lints {
        findings
            .push(Finding::error(path, "must take the workspace's lints: `[lints]` with `workspace = true`"));
    }
    findings
}

/// The kind of a manifest section that lists dependencies, target-specific ones included.
fn dependency_kind(section: &str) -> Option<&'static str> {
    let kinds = ["dev-dependencies", "build-dependencies", "dependencies"];
    kinds.into_iter().find(|kind| section.split('.').any(|part| part == *kind))
}

/// Packages of this workspace that a manifest line names, as a key, a section or a renamed `package`.
fn ours(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'))
        .filter(|word| *word == "pilotfish" || word.starts_with("pilotfish-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "text\n\n| crate | may use |\n|---|---|\n| tensor | nothing of ours |\n| `model` | tensor |\n\
        | pilotfish | model |\n| xtask | anything |\n\nmore\n";
    const ROOT: &str = concat!("[workspace.lints.rust]\nunsafe", "_code = \"deny\"\n");

    fn manifest(package: &str, rest: &str) -> String {
        format!("[package]\nname = \"{package}\"\n\n[lints]\nworkspace = true\n\n{rest}")
    }

    fn with_model(table: &str, model: &str) -> Vec<Finding> {
        check(&Tree::of([
            ("ARCHITECTURE.md", table),
            ("Cargo.toml", ROOT),
            ("crates/tensor/Cargo.toml", &manifest("pilotfish-tensor", "")),
            ("crates/model/Cargo.toml", model),
            (
                "crates/pilotfish/Cargo.toml",
                &manifest("pilotfish", "[dependencies]\npilotfish-model.workspace = true\n"),
            ),
            ("xtask/Cargo.toml", &manifest("xtask", "[dependencies]\npilotfish.workspace = true\n")),
        ]))
    }

    fn messages(findings: &[Finding]) -> String {
        findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_tree_that_follows_the_table_passes() {
        let model = manifest(
            "pilotfish-model",
            "[dependencies]\npilotfish-tensor.workspace = true # not pilotfish\nserde = \"1\"\n\n\
             [dev-dependencies]\npilotfish-model = { path = \".\", features = [\"testing\"] }\n",
        );
        assert_eq!(with_model(TABLE, &model), []);
    }

    #[test]
    fn an_arrow_that_points_up_is_found_in_every_spelling() {
        for rest in [
            "[dependencies]\npilotfish.workspace = true\n",
            "[dependencies]\nother = { package = \"pilotfish\", path = \"../pilotfish\" }\n",
            "[dev-dependencies]\npilotfish = { path = \"../pilotfish\" }\n",
            "[build-dependencies]\npilotfish.workspace = true\n",
            "[dependencies.pilotfish]\nworkspace = true\n",
            "[target.'cfg(unix)'.dependencies]\npilotfish.workspace = true\n",
            "[dependencies]\npilotfish-model.workspace = true\n",
        ] {
            let found = messages(&with_model(TABLE, &manifest("pilotfish-model", rest)));
            assert!(found.contains("`model` may not use `pilotfish"), "{rest}: {found}");
        }
    }

    #[test]
    fn rows_and_crates_must_match() {
        let model = manifest("pilotfish-model", "");
        let found = messages(&with_model(&TABLE.replace("| `model` | tensor |\n", ""), &model));
        assert!(found.contains("`model` has no row"), "{found}");
        let extra = TABLE.replace("| xtask |", "| ghost | tensor |\n| xtask |");
        let found = messages(&with_model(&extra, &model));
        assert!(found.contains("row for `ghost`"), "{found}");
        let twice = TABLE.replace("| xtask |", "| model | tensor |\n| xtask |");
        assert!(messages(&with_model(&twice, &model)).contains("two rows"));
        assert!(messages(&with_model("no table", &model)).contains("has no table"));
        assert!(messages(&check(&Tree::of([("Cargo.toml", ROOT)]))).contains("ARCHITECTURE.md: is missing"));
    }

    #[test]
    fn a_manifest_outside_the_lints_or_with_another_name_is_found() {
        let found = messages(&with_model(TABLE, "[package]\nname = \"pilotfish-modell\"\n"));
        assert!(found.contains("must be named \"pilotfish-model\""), "{found}");
        assert!(found.contains("must take the workspace's lints"), "{found}");
    }

    #[test]
    fn the_workspace_must_deny_unsafe() {
        let tree = Tree::of([
            ("ARCHITECTURE.md", "| crate | may use |\n|---|---|\n"),
            ("Cargo.toml", "[workspace]\n"),
        ]);
        assert!(messages(&check(&tree)).contains("no longer deny unsafe"));
    }
}

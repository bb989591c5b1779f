//! The record of lossless runs: what was compared, under which settings, and what differed.
//!
//! Invariant: a record grows case by case and is never edited; it goes on only with the same model and arithmetic.
//! Not here: the comparison itself.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use pilotfish::Summary;
use pilotfish_measure::record::{Drafter, Model};
use serde::{Deserialize, Serialize};

use super::cases::Case;

const SCHEMA: &str = "pilotfish-lossless/1";

/// Everything compared so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Lossless {
    schema: String,
    model: Model,
    draft_model: Option<Drafter>,
    numerics_id: String,
    /// Tokens each reply may have.
    predict: usize,
    /// The case to go on with.
    pub(super) next_case: u64,
    /// Tokens of speculative replies that were compared with plain ones.
    pub(super) tokens: u64,
    /// Of those, how many differed, missing and surplus ones included.
    pub(super) differing: u64,
    /// Rounds of the speculative replies.
    rounds: u64,
    /// Rounds whose draft had side branches.
    tree_rounds: u64,
    /// `[depth][n]`: rounds that drafted `depth` deep and accepted `n` guesses.
    accepted: BTreeMap<usize, Vec<u64>>,
    /// Guesses verified and accepted, by source.
    sources: BTreeMap<String, [u64; 2]>,
    /// Tokens compared under each setting.
    settings: BTreeMap<String, u64>,
    /// What differed.
    differences: Vec<Difference>,
    /// Which builds compared how much, and where.
    pub(super) runs: Vec<Run>,
}

/// A reply that was not the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Difference {
    case: u64,
    settings: Vec<String>,
    plain: Vec<u32>,
    speculative: Vec<u32>,
}

/// One run of the command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) commit: Option<String>,
    pub(super) dirty: Option<bool>,
    pub(super) cpu: String,
    pub(super) kernels: String,
    pub(super) tokens: u64,
}

impl Lossless {
    /// Nothing compared yet.
    pub(super) fn new(model: Model, draft_model: Option<Drafter>, numerics_id: &str, predict: usize) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            model,
            draft_model,
            numerics_id: numerics_id.to_owned(),
            predict,
            next_case: 0,
            tokens: 0,
            differing: 0,
            rounds: 0,
            tree_rounds: 0,
            accepted: BTreeMap::new(),
            sources: BTreeMap::new(),
            settings: BTreeMap::new(),
            differences: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// Goes on with the record in `path`, or with `self` where there is none.
    ///
    /// # Errors
    /// A file that is no such record, or one of another model, arithmetic or reply length.
    pub(super) fn or_continue(self, path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(self),
            Err(error) => return Err(error).with_context(|| format!("cannot read `{shown}`")),
        };
        let old: Self =
            serde_json::from_str(&text).with_context(|| format!("`{shown}` is no record of --lossless"))?;
        let same = [
            ("schema", old.schema == self.schema),
            ("model", old.model.sha256 == self.model.sha256),
            (
                "drafting model",
                old.draft_model.as_ref().map(|d| &d.sha256) == self.draft_model.as_ref().map(|d| &d.sha256),
            ),
            ("numerics_id", old.numerics_id == self.numerics_id),
            ("-n", old.predict == self.predict),
        ];
        if let Some((what, _)) = same.into_iter().find(|(_, same)| !same) {
            bail!("`{shown}` was made with another {what}; give another --out");
        }
        Ok(old)
    }

    /// Adds one case: its plain tokens and its speculative reply.
    pub(super) fn add(&mut self, case: &Case, plain: &[u32], reply: &Summary, trees: u64) {
        let tokens = reply.tokens.len() as u64;
        let differing = differing(plain, &reply.tokens);
        let settings: Vec<String> =
            case.setup.words().into_iter().chain([case.sampling_name.to_owned()]).collect();
        for setting in &settings {
            *self.settings.entry(setting.clone()).or_default() += tokens;
        }
        if differing > 0 {
            self.differences.push(Difference {
                case: self.next_case,
                settings,
                plain: plain.to_vec(),
                speculative: reply.tokens.clone(),
            });
        }
        self.tree_rounds += trees;
        self.rounds += reply.stats.rounds as u64;
        for (source, count) in reply.stats.by_source.iter() {
            let sum = self.sources.entry(source.name().to_owned()).or_default();
            sum[0] += count.drafted as u64;
            sum[1] += count.accepted as u64;
        }
        self.tokens += tokens;
        self.differing += differing;
        self.next_case += 1;
        if let Some(run) = self.runs.last_mut() {
            run.tokens += tokens;
        }
    }

    /// Counts a round that drafted `depth` deep and accepted `accepted`.
    pub(super) fn count_round(&mut self, depth: usize, accepted: usize) {
        let counts = self.accepted.entry(depth).or_insert_with(|| vec![0; depth + 1]);
        counts[accepted.min(depth)] += 1;
    }

    /// The record as JSON, a line for each field's entry.
    ///
    /// # Errors
    /// Never in practice: every field can be written as JSON.
    pub(super) fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The summary for people.
    pub(super) fn shown(&self) -> String {
        let mut text = format!(
            "{} ({}), numerics {}\n{} tokens compared in {} replies and {} rounds, {} of them trees: {} differ\n",
            self.model.name,
            self.model.sha256.get(..12).unwrap_or(&self.model.sha256),
            self.numerics_id,
            self.tokens,
            self.next_case,
            self.rounds,
            self.tree_rounds,
            self.differing,
        );
        for (source, [drafted, accepted]) in &self.sources {
            text += &format!("{source}: {accepted} of {drafted} guesses accepted\n");
        }
        text
    }
}

/// Positions at which two replies are not the same, missing ones included.
fn differing(a: &[u32], b: &[u32]) -> u64 {
    let same = a.iter().zip(b).filter(|(a, b)| a == b).count();
    (a.len().max(b.len()) - same) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_surplus_tokens_differ() {
        assert_eq!(differing(&[1, 2, 3], &[1, 2, 3]), 0);
        assert_eq!(differing(&[1, 2, 3], &[1, 5, 3]), 1);
        assert_eq!(differing(&[1, 2, 3], &[1, 2]), 1);
        assert_eq!(differing(&[1], &[2, 2, 3]), 3);
        assert_eq!(differing(&[], &[]), 0);
    }

    #[test]
    fn a_record_goes_on_only_where_it_belongs() {
        let model = |sha256: &str| Model { name: "m".to_owned(), sha256: sha256.to_owned(), bytes: 1 };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("record.json");
        let fresh = Lossless::new(model("aa"), None, "cpu-2/kv-f16", 96);
        assert_eq!(fresh.clone().or_continue(&path).expect("no file yet"), fresh);
        let mut old = fresh.clone();
        old.next_case = 7;
        old.count_round(3, 2);
        std::fs::write(&path, old.to_json().expect("json")).expect("written");
        assert_eq!(fresh.clone().or_continue(&path).expect("the same model"), old);
        for (other, named) in [
            (Lossless::new(model("bb"), None, "cpu-2/kv-f16", 96), "another model"),
            (Lossless::new(model("aa"), None, "cpu-3/kv-f16", 96), "another numerics_id"),
            (Lossless::new(model("aa"), None, "cpu-2/kv-f16", 64), "another -n"),
        ] {
            let error = other.or_continue(&path).expect_err("refused").to_string();
            assert!(error.contains(named), "{error}");
        }
        std::fs::write(&path, "{}").expect("written");
        assert!(fresh.or_continue(&path).expect_err("refused").to_string().contains("no record"));
    }
}

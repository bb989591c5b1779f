//! The recorded counts: a file of cases, and what differs from it.
//!
//! Fewer instructions than recorded are a difference too, or the file would stop to be true and hide the next loss.
//!
//! Invariant: a case on one side only is a difference; a record of another compiler is never compared.
//! Not here: counting.

use std::fmt;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

/// Part of the old count by which a new one may differ, either way.
pub(super) const TOLERANCE_PERCENT: u64 = 2;

/// Instructions of one call, by case.
pub(super) type Counts = Vec<(String, u64)>;

/// A file of counts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// What `rustc --version` said; another compiler makes other instructions.
    pub(super) rustc: String,
    pub(super) counts: Counts,
}

impl Record {
    pub(super) fn read(text: &str) -> Result<Record> {
        let file: Value = serde_json::from_str(text)?;
        let rustc = file["rustc"].as_str().context("has no `rustc`")?.to_owned();
        let counts = file["instructions_per_call"].as_object().context("has no `instructions_per_call`")?;
        let counts = counts.iter().map(|(name, count)| {
            Ok((name.clone(), count.as_u64().with_context(|| format!("{name}: {count} is no count"))?))
        });
        Ok(Record { rustc, counts: counts.collect::<Result<_>>()? })
    }

    pub(super) fn text(&self) -> String {
        let counts: Map<String, Value> =
            self.counts.iter().map(|(name, count)| (name.clone(), json!(count))).collect();
        format!("{:#}\n", json!({ "rustc": self.rustc, "instructions_per_call": counts }))
    }

    /// Whether counts of programs by this compiler can be compared.
    pub(super) fn holds_for(&self, rustc: &str) -> Result<()> {
        ensure!(
            self.rustc == rustc,
            "counted with {:?}, but the compiler is {rustc:?}; use that compiler, or record the counts of this one \
             with `cargo xtask counts --write`",
            self.rustc
        );
        Ok(())
    }
}

/// One case whose count is not the recorded one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    case: String,
    old: Option<u64>,
    new: Option<u64>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let case = &self.case;
        match (self.old, self.new) {
            (Some(old), Some(new)) => {
                write!(
                    f,
                    "{case}: {old} instructions a call are now {new}, {:.3} times",
                    new as f64 / old as f64
                )
            }
            (Some(old), None) => {
                write!(f, "{case}: {old} instructions a call are recorded, but there is no such case")
            }
            (None, Some(new)) => write!(f, "{case}: {new} instructions a call, of which there is no record"),
            (None, None) => write!(f, "{case}: neither counted nor recorded"),
        }
    }
}

/// Everything by which `new` is not `old`, to the tolerance.
pub(super) fn differences(old: &Counts, new: &Counts) -> Vec<Difference> {
    let of = |counts: &Counts, name: &str| counts.iter().find(|(other, _)| other == name).map(|&(_, n)| n);
    let gone = old.iter().filter(|(name, _)| of(new, name).is_none());
    let names = new.iter().chain(gone).map(|(name, _)| name);
    names
        .map(|case| Difference { case: case.clone(), old: of(old, case), new: of(new, case) })
        .filter(|difference| match (difference.old, difference.new) {
            (Some(old), Some(new)) => {
                u128::from(new.abs_diff(old)) * 100 > u128::from(old) * u128::from(TOLERANCE_PERCENT)
            }
            _ => true,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, u64)]) -> Counts {
        pairs.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
    }

    fn told(old: &[(&str, u64)], new: &[(&str, u64)]) -> Vec<String> {
        differences(&counts(old), &counts(new)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn counts_within_two_percent_either_way_are_equal() {
        for new in [980, 999, 1000, 1001, 1020] {
            assert_eq!(told(&[("a", 1000)], &[("a", new)]), [""; 0], "{new}");
        }
        assert_eq!(told(&[], &[]), [""; 0]);
    }

    #[test]
    fn more_and_fewer_are_both_told_with_both_counts_and_the_ratio() {
        let old = [("a", 1000), ("b", 1000), ("c", 1000)];
        assert_eq!(
            told(&old, &[("a", 1021), ("b", 1000), ("c", 979)]),
            [
                "a: 1000 instructions a call are now 1021, 1.021 times",
                "c: 1000 instructions a call are now 979, 0.979 times"
            ]
        );
        // From nothing, everything is a change.
        assert_eq!(told(&[("a", 0)], &[("a", 1)]).len(), 1);
    }

    #[test]
    fn a_case_on_one_side_only_is_told() {
        assert_eq!(
            told(&[("a", 1), ("gone", 5)], &[("new", 7), ("a", 1)]),
            [
                "new: 7 instructions a call, of which there is no record",
                "gone: 5 instructions a call are recorded, but there is no such case"
            ]
        );
    }

    #[test]
    fn a_record_of_another_compiler_is_refused() {
        let record = Record { rustc: "rustc 1.95.0 (a 2026-01-01)".to_owned(), counts: Vec::new() };
        record.holds_for("rustc 1.95.0 (a 2026-01-01)").unwrap();
        let refused = record.holds_for("rustc 1.96.0 (b 2026-02-02)").unwrap_err().to_string();
        assert!(refused.contains("1.95.0") && refused.contains("1.96.0") && refused.contains("--write"));
    }

    #[test]
    fn a_record_is_read_as_written() {
        let record = Record { rustc: "rustc 1".to_owned(), counts: counts(&[("b", 2), ("a", 1)]) };
        let text = record.text();
        assert_eq!(Record::read(&text).unwrap(), record);
        // One case a line.
        assert!(text.contains("\n    \"b\": 2,\n"), "{text}");
        for broken in [
            text.replace("rustc\"", "r\""),
            text.replace("instructions_per_call", "i"),
            text.replace(": 2", ": -2"),
            text.replace('}', ""),
        ] {
            Record::read(&broken).unwrap_err();
        }
    }
}

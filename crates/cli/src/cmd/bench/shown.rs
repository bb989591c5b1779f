//! A record as tables for people.
//!
//! Invariant: shows only what the record holds; a missing figure is `-`.

use pilotfish_measure::record::{Record, SourceCount};

use super::prompts::hash;
use crate::units::table as columns;

/// The record, the ratios of its prompts, and the prompts they came from.
pub(crate) fn table(record: &Record, ratios: &[Option<f64>], prompts: &[(&str, &str)]) -> String {
    let mut out = format!(
        "{} ({}), {} lane, {} threads, context {}, numerics {}\n{}, {}, {}\ncommit {}{}, drafter {}\n\n",
        record.model.name,
        &record.model.sha256.get(..12).unwrap_or(&record.model.sha256),
        record.lane,
        record.machine.threads,
        record.context,
        record.numerics_id,
        record.machine.cpu,
        record.machine.isa,
        record.machine.os,
        record.commit.as_deref().map_or("unknown", |commit| commit.get(..12).unwrap_or(commit)),
        if record.dirty == Some(true) { " with changes" } else { "" },
        record.drafter.as_ref().map_or("none", |drafter| drafter.name.as_str()),
    );
    if !record.prompts.is_empty() {
        out += &prompts_table(record, ratios, prompts);
        out.push('\n');
    }
    if record.prompts.iter().any(|prompt| !prompt.by_source.is_empty()) {
        out += &sources_table(record);
        out.push('\n');
    }
    out += &curve_table(record);
    if let Some(roofline) = &record.roofline {
        let (bytes, macs) = (roofline.bytes_per_second / 1e9, roofline.macs_per_second / 1e9);
        out += &format!(
            "\nthis machine, at best: {bytes:.1} GB/s read, {macs:.0} billion products of bytes a second\n"
        );
    }
    let energy = &record.energy;
    out += &match energy.joules_per_token {
        Some(joules) => format!("\nenergy: {joules:.3} J a token ({})\n", energy.source),
        None => format!("\nenergy: {}\n", energy.source),
    };
    out
}

fn prompts_table(record: &Record, ratios: &[Option<f64>], prompts: &[(&str, &str)]) -> String {
    let header = [
        "PROMPT",
        "SHA256",
        "TOKENS",
        "PLAIN tok/s",
        "SPEC tok/s",
        "RATIO",
        "95 %",
        "TAU",
        "ACCEPTED",
        "SAME",
        "PARKED",
    ];
    let mut rows: Vec<[String; 11]> = Vec::new();
    for (prompt, ratio) in record.prompts.iter().zip(ratios) {
        let text = prompts.iter().find(|(name, _)| *name == prompt.name).map_or("", |(_, text)| text);
        let shares: Vec<String> =
            prompt.accepted_by_position.iter().take(4).map(|share| format!("{:.0}", share * 100.0)).collect();
        rows.push([
            prompt.name.clone(),
            hash(text)[..8].to_owned(),
            prompt.tokens.to_string(),
            number(Some(prompt.plain_tok_s), 1),
            number(prompt.spec_tok_s, 1),
            number(*ratio, 2),
            prompt.ratio_ci95.map_or_else(dash, |[low, high]| format!("{low:.2}-{high:.2}")),
            number(prompt.tau, 2),
            if shares.is_empty() { dash() } else { format!("{} %", shares.join(" ")) },
            prompt.lossless.map_or_else(dash, |same| if same { "yes" } else { "NO" }.to_owned()),
            prompt.reason.clone().unwrap_or_else(|| if prompt.parked { "yes" } else { "no" }.to_owned()),
        ]);
    }
    let Some(mean) = &record.mean else { return columns(&header.map(str::to_owned), &rows) };
    let mut last: [String; 11] = std::array::from_fn(|_| String::new());
    last[0] = "mean".to_owned();
    last[3] = number(Some(mean.plain_tok_s), 1);
    last[4] = number(mean.spec_tok_s, 1);
    last[5] = number(mean.ratio, 2);
    last[7] = number(mean.tau, 2);
    rows.push(last);
    columns(&header.map(str::to_owned), &rows)
}

/// Guesses by source, over all prompts.
fn sources_table(record: &Record) -> String {
    let mut sums: Vec<SourceCount> = Vec::new();
    for count in record.prompts.iter().flat_map(|prompt| &prompt.by_source) {
        match sums.iter_mut().find(|sum| sum.source == count.source) {
            None => sums.push(count.clone()),
            Some(sum) => {
                sum.rounds += count.rounds;
                sum.drafted += count.drafted;
                sum.accepted += count.accepted;
            }
        }
    }
    let rows: Vec<[String; 5]> = sums
        .into_iter()
        .map(|sum| {
            let share = 100.0 * sum.accepted as f64 / sum.drafted as f64;
            let counts = [sum.rounds, sum.drafted, sum.accepted].map(|count| count.to_string());
            let [rounds, drafted, accepted] = counts;
            [sum.source, rounds, drafted, accepted, format!("{share:.0} %")]
        })
        .collect();
    columns(&["SOURCE", "ROUNDS", "DRAFTED", "ACCEPTED", "SHARE"].map(str::to_owned), &rows)
}

fn curve_table(record: &Record) -> String {
    let header = ["WIDTH", "CONTEXT", "ms p50", "ms min", "ms max", "ms a row", "floor ms", "of floor"];
    let rows: Vec<[String; 8]> = record
        .curve
        .iter()
        .map(|point| {
            [
                point.width.to_string(),
                point.context.to_string(),
                number(Some(point.ms_p50), 2),
                number(Some(point.ms_min), 2),
                number(Some(point.ms_max), 2),
                number(Some(point.ms_p50 / point.width as f64), 2),
                number(point.floor_ms, 2),
                number(point.floor_ms.map(|floor| point.ms_p50 / floor), 2),
            ]
        })
        .collect();
    columns(&header.map(str::to_owned), &rows)
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(dash, |value| format!("{value:.digits$}"))
}

fn dash() -> String {
    "-".to_owned()
}

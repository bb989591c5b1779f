//! What a server says of itself when it starts.
//!
//! Invariant: five lines, of which none holds a key.
//! Not here: printing them (the command line).

use std::net::SocketAddr;

use pilotfish::Engine;

use crate::config::Config;

/// Model, lane, limits, drafter and address.
pub(crate) fn lines(engine: &Engine, config: &Config, address: SocketAddr) -> [String; 5] {
    let (file, info, limits) = (engine.file(), engine.lane_info(), &config.limits);
    let name = config.alias.as_ref().map_or(String::new(), |alias| format!("{alias}, "));
    let template = if engine.has_template() { "" } else { ", no chat template" };
    let key = if config.api_keys.is_empty() { "no key needed" } else { "key needed" };
    [
        format!(
            "model: {name}{}, {}, {:.0} MB{template}",
            file.name,
            engine.model().config().family.name(),
            file.bytes as f64 / 1e6
        ),
        format!(
            "lane: {}, {} thread{}, numerics {}",
            info.name,
            info.threads,
            if info.threads == 1 { "" } else { "s" },
            info.numerics_id
        ),
        format!(
            "limits: context {}, {} waiting requests, bodies of {} KiB, {} s a request",
            info.context,
            limits.max_queue,
            limits.max_body >> 10,
            limits.request_timeout.as_secs()
        ),
        format!("drafter: {}, {}", engine.drafter(), curve(engine)),
        format!("listening on http://{address} ({key})"),
    ]
}

/// What passes cost, by which drafts are cut.
fn curve(engine: &Engine) -> String {
    let points = engine.costs().points();
    let shown: Vec<String> = points.iter().map(|(width, ms)| format!("{width}: {ms:.1}")).collect();
    match shown.is_empty() {
        true => "no cost curve".to_owned(),
        false => format!("ms of a pass by rows {}", shown.join(", ")),
    }
}

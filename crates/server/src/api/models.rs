//! `/v1/models` and `/props`: what is served.
//!
//! Invariant: no path of this machine is told.
//! Not here: what passes cost and how full the queue is (`metrics`).

use pilotfish::SpecSampling;
use serde_json::{Value, json};

use crate::app::App;
use crate::facts::Facts;

/// The one model.
pub(crate) fn one(facts: &Facts) -> Value {
    json!({
        "id": facts.id,
        "object": "model",
        "created": facts.created,
        "owned_by": "pilotfish",
        "meta": {"n_ctx": facts.context, "n_vocab": facts.vocab, "family": facts.family},
    })
}

/// The list of it.
pub(crate) fn list(facts: &Facts) -> Value {
    json!({"object": "list", "data": [one(facts)]})
}

/// How it is served.
pub(crate) fn props(app: &App) -> Value {
    let (facts, defaults, limits) = (&app.facts, &app.config.defaults, &app.config.limits);
    let sampling = &defaults.sampling;
    json!({
        "model_alias": facts.id,
        "total_slots": 1,
        "chat_template": facts.template.as_ref().map(|template| template.source()),
        "build_info": format!("pilotfish {}", env!("CARGO_PKG_VERSION")),
        "default_generation_settings": {
            "n_ctx": facts.context,
            "params": {
                "temperature": sampling.temperature,
                "top_k": sampling.top_k,
                "top_p": sampling.top_p,
                "min_p": sampling.min_p,
                "repeat_penalty": sampling.repeat_penalty,
                "repeat_last_n": sampling.repeat_last_n,
                "presence_penalty": sampling.presence_penalty,
                "frequency_penalty": sampling.frequency_penalty,
                "seed": if defaults.fresh_seed { None } else { Some(sampling.seed) },
                "n_predict": defaults.max_tokens,
            },
        },
        "pilotfish": {
            "lane": facts.lane,
            "threads": facts.threads,
            "numerics_id": facts.numerics_id,
            "drafter": facts.drafter,
            "tools": facts.takes_tools,
            "reasoning": facts.thinks,
            // Guesses come from earlier replies too, and only that mode lets guesses decide what follows.
            "answers_depend_on_other_requests": defaults.spec_sampling == SpecSampling::Rejection,
            "limits": {
                "max_queue": limits.max_queue,
                "max_body_bytes": limits.max_body,
                "max_json_depth": crate::body::MAX_DEPTH,
                "max_connections": limits.max_connections,
                "request_timeout_seconds": limits.request_timeout.as_secs(),
            },
        },
    })
}

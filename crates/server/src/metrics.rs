//! Counts for Prometheus.
//!
//! What llama.cpp's server counts too has llama.cpp's name, so that its dashboards work; the rest is `pilotfish:`.
//!
//! Invariant: a counter never falls.
//! Not here: `/health` (`app`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pilotfish::{RoundRecord, Summary};

/// Upper bounds of the buckets of times, in seconds.
const BOUNDS: [f64; 9] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0];
/// Depths of drafts that are told apart.
const POSITIONS: usize = 16;

/// The counts of one server.
#[derive(Default)]
pub(crate) struct Metrics(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    prompt_tokens: usize,
    prompt_seconds: f64,
    predicted_tokens: usize,
    predicted_seconds: f64,
    rounds: usize,
    drafted_rounds: usize,
    drafted: usize,
    accepted: usize,
    accepted_at: [usize; POSITIONS],
    most_tokens: usize,
    parked: bool,
    replies: u64,
    cancelled: u64,
    panics: u64,
    responses: BTreeMap<u16, u64>,
    waited: Times,
    first_token: Times,
    between_rounds: Times,
}

#[derive(Default)]
struct Times {
    buckets: [u64; BOUNDS.len()],
    count: u64,
    sum: f64,
}

impl Times {
    fn add(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.count += 1;
        self.sum += seconds;
        for (bucket, bound) in self.buckets.iter_mut().zip(BOUNDS) {
            *bucket += u64::from(seconds <= bound);
        }
    }
}

impl Metrics {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request left the queue.
    pub(crate) fn started(&self, waited: Duration) {
        self.counts().waited.add(waited);
    }

    /// Its first round is over.
    pub(crate) fn first_token(&self, since_it_came: Duration) {
        self.counts().first_token.add(since_it_came);
    }

    /// A round is over.
    pub(crate) fn round(&self, record: &RoundRecord, since_last: Duration) {
        let mut counts = self.counts();
        let figures = &record.figures;
        counts.rounds += usize::from(figures.width > 0);
        counts.drafted_rounds += usize::from(figures.drafted > 0);
        counts.drafted += figures.drafted;
        counts.accepted += figures.accepted;
        for place in counts.accepted_at.iter_mut().take(figures.accepted) {
            *place += 1;
        }
        counts.parked = record.parked;
        counts.between_rounds.add(since_last);
    }

    /// A choice is complete, or as complete as it gets.
    pub(crate) fn finished(&self, summary: &Summary) {
        let mut counts = self.counts();
        let stats = &summary.stats;
        counts.prompt_tokens += stats.read_tokens;
        counts.prompt_seconds += stats.prefill_ms / 1e3;
        counts.predicted_tokens += stats.tokens;
        counts.predicted_seconds += stats.decode_ms / 1e3;
        counts.most_tokens = counts.most_tokens.max(stats.prompt_tokens + stats.tokens);
        counts.replies += 1;
    }

    /// A client went away.
    pub(crate) fn cancelled(&self) {
        self.counts().cancelled += 1;
    }

    /// The engine panicked.
    pub(crate) fn panicked(&self) {
        self.counts().panics += 1;
    }

    /// A request was answered with this status.
    pub(crate) fn responded(&self, status: u16) {
        *self.counts().responses.entry(status).or_default() += 1;
    }

    /// Seconds a reply took so far, on average; 1 before there was one.
    pub(crate) fn mean_reply_seconds(&self) -> f64 {
        let counts = self.counts();
        let seconds = counts.prompt_seconds + counts.predicted_seconds;
        if counts.replies == 0 { 1.0 } else { seconds / counts.replies as f64 }
    }

    /// The page Prometheus reads; `waiting` and `running` are the queue's.
    pub(crate) fn page(&self, waiting: usize, running: bool) -> String {
        let c = self.counts();
        let mut page = Page(String::new());
        let rate = |n: usize, seconds: f64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        let llama = |name: &str| format!("llamacpp:{name}");
        let own = |name: &str| format!("pilotfish:{name}");
        page.one(&llama("prompt_tokens_total"), "counter", "Prompt tokens read.", c.prompt_tokens as f64);
        page.one(&llama("prompt_seconds_total"), "counter", "Time of reading prompts.", c.prompt_seconds);
        page.one(&llama("tokens_predicted_total"), "counter", "Tokens written.", c.predicted_tokens as f64);
        page.one(
            &llama("tokens_predicted_seconds_total"),
            "counter",
            "Time of writing.",
            c.predicted_seconds,
        );
        page.one(
            &llama("prompt_tokens_seconds"),
            "gauge",
            "Prompt tokens a second.",
            rate(c.prompt_tokens, c.prompt_seconds),
        );
        page.one(
            &llama("predicted_tokens_seconds"),
            "gauge",
            "Tokens written a second.",
            rate(c.predicted_tokens, c.predicted_seconds),
        );
        page.one(
            &llama("requests_processing"),
            "gauge",
            "Requests being answered.",
            f64::from(u8::from(running)),
        );
        page.one(&llama("requests_deferred"), "gauge", "Requests waiting.", waiting as f64);
        page.one(&llama("n_decode_total"), "counter", "Rounds.", c.rounds as f64);
        page.one(
            &llama("n_tokens_max"),
            "counter",
            "Most tokens of a prompt and its reply.",
            c.most_tokens as f64,
        );
        page.one(
            &llama("spec_decode_num_drafts_total"),
            "counter",
            "Rounds that verified guesses.",
            c.drafted_rounds as f64,
        );
        page.one(
            &llama("spec_decode_num_draft_tokens_total"),
            "counter",
            "Guesses verified.",
            c.drafted as f64,
        );
        page.one(
            &llama("spec_decode_num_accepted_tokens_total"),
            "counter",
            "Guesses kept.",
            c.accepted as f64,
        );
        let name = llama("spec_decode_num_accepted_tokens_per_pos_total");
        page.head(&name, "counter", "Guesses kept, by their place in the draft.");
        for (position, n) in c.accepted_at.iter().enumerate() {
            page.value(&name, &format!("{{position=\"{position}\"}}"), *n as f64);
        }
        page.one(
            &own("speculation_parked"),
            "gauge",
            "Whether drafting is off because it loses.",
            f64::from(u8::from(c.parked)),
        );
        page.one(&own("replies_total"), "counter", "Replies ended.", c.replies as f64);
        page.one(&own("cancelled_total"), "counter", "Replies whose clients went away.", c.cancelled as f64);
        page.one(&own("engine_panics_total"), "counter", "Times the engine failed.", c.panics as f64);
        let name = own("http_responses_total");
        page.head(&name, "counter", "Answers by status.");
        for (status, n) in &c.responses {
            page.value(&name, &format!("{{status=\"{status}\"}}"), *n as f64);
        }
        page.times(&own("queue_seconds"), "Time requests waited.", &c.waited);
        page.times(&own("time_to_first_token_seconds"), "Time to the first token.", &c.first_token);
        page.times(&own("round_seconds"), "Time from round to round.", &c.between_rounds);
        page.0
    }
}

struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.head(name, kind, help);
        self.value(name, "", value);
    }

    fn times(&mut self, name: &str, help: &str, times: &Times) {
        self.head(name, "histogram", help);
        for (bucket, bound) in times.buckets.iter().zip(BOUNDS) {
            self.value(&format!("{name}_bucket"), &format!("{{le=\"{bound}\"}}"), *bucket as f64);
        }
        self.value(&format!("{name}_bucket"), "{le=\"+Inf\"}", times.count as f64);
        self.value(&format!("{name}_sum"), "", times.sum);
        self.value(&format!("{name}_count"), "", times.count as f64);
    }
}

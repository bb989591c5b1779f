//! The thread that owns the engine and answers one request after another.
//!
//! Rounds become [`Update`]s in the request's channel, which is never waited for: a client so slow that its channel is
//! full loses its request. A panic costs the request during which it happened; since the engine's state is then
//! unknown, it is loaded anew before the next one.
//!
//! Invariant: every request that is taken gets its last update, or its channel closed.
//! Not here: the queue's order (`queue`), what clients see (`api`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Instant;

use pilotfish::{Engine, Error, Event, FinishReason, Prompt, RoundRecord, Summary};
use tokio::sync::mpsc::error::TrySendError;

use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::queue::{Job, Queue};

/// Loads the engine again after it failed.
pub type Loader = Box<dyn Fn() -> Result<Engine, Error> + Send>;

/// A hook for tests: called before each round of each reply with the round's number; it may panic or wait.
#[derive(Clone, Default)]
pub struct Faults(pub Option<Arc<dyn Fn(usize) + Send + Sync>>);

/// Updates that a channel holds. A reply seldom has more, and one never read takes a few megabytes at most.
pub(crate) const UNREAD_UPDATES: usize = 4096;

/// What happened to a request.
#[derive(Debug)]
pub(crate) enum Update {
    /// A round of a choice is over. Its text follows, if it has any.
    Round(u32, Box<RoundRecord>),
    /// Text of a choice.
    Text(u32, String),
    /// A choice is complete.
    Choice(u32, Box<Summary>),
    /// All choices are.
    Done,
    /// There will be no more.
    Failed(ApiError),
}

/// Whether there is an engine.
pub(crate) struct EngineState {
    state: AtomicU8,
    why: RwLock<String>,
}

const READY: u8 = 0;
const LOADING: u8 = 1;
const FAILED: u8 = 2;

impl EngineState {
    /// An engine that is ready.
    pub(crate) fn new() -> Self {
        Self { state: AtomicU8::new(READY), why: RwLock::default() }
    }

    /// Nothing where the engine is ready; otherwise why it is not.
    pub(crate) fn trouble(&self) -> Option<ApiError> {
        match self.state.load(Ordering::Acquire) {
            READY => None,
            LOADING => Some(ApiError::unavailable("the model is being loaded again")),
            _ => {
                let why = self.why.read().unwrap_or_else(PoisonError::into_inner);
                Some(ApiError::server(format!("the model could not be loaded again: {why}")))
            }
        }
    }

    fn set(&self, state: u8, why: String) {
        *self.why.write().unwrap_or_else(PoisonError::into_inner) = why;
        self.state.store(state, Ordering::Release);
    }
}

/// Everything the thread works with.
pub(crate) struct Worker {
    pub(crate) engine: Engine,
    pub(crate) load: Loader,
    pub(crate) queue: Arc<Queue>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) state: Arc<EngineState>,
    pub(crate) faults: Faults,
}

impl Worker {
    /// Starts the thread; it ends when the queue is closed.
    ///
    /// # Errors
    /// When the system has no thread.
    pub(crate) fn start(self) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("engine".to_owned()).spawn(|| self.work())
    }

    fn work(self) {
        let Self { engine, load, queue, metrics, state, faults } = self;
        let mut engine = Some(engine);
        while let Some(job) = queue.take() {
            if let Some(ready) = &mut engine {
                let answer = || answer(ready, &job, &queue, &metrics, &faults);
                match catch_unwind(AssertUnwindSafe(answer)) {
                    Ok(last) => {
                        // First, so that a client that has its reply finds the engine free.
                        queue.done();
                        if let Some(last) = last {
                            send(&job, last);
                        }
                    }
                    Err(_) => {
                        metrics.panicked();
                        state.set(LOADING, String::new());
                        send(&job, Update::Failed(ApiError::server("the engine failed in this request")));
                        engine = reload(engine.take(), &load, &state);
                        queue.done();
                    }
                }
            } else {
                queue.done();
                if let Some(error) = state.trouble() {
                    send(&job, Update::Failed(error));
                }
            }
        }
    }
}

/// Gives up an engine in an unknown state and loads it again.
fn reload(broken: Option<Engine>, load: &Loader, state: &EngineState) -> Option<Engine> {
    // Dropping it may panic again.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(broken)));
    let why = match catch_unwind(AssertUnwindSafe(load)) {
        Ok(Ok(engine)) => {
            state.set(READY, String::new());
            return Some(engine);
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "loading failed".to_owned(),
    };
    state.set(FAILED, why);
    None
}

/// Tells a request something; false when nobody listens, or not fast enough.
fn send(job: &Job, update: Update) -> bool {
    match job.updates.try_send(update) {
        Ok(()) => true,
        Err(TrySendError::Full(_) | TrySendError::Closed(_)) => {
            job.cancel.store(true, Ordering::Relaxed);
            false
        }
    }
}

/// Answers a request; returns its last update, where somebody still listens.
fn answer(
    engine: &mut Engine,
    job: &Job,
    queue: &Queue,
    metrics: &Metrics,
    faults: &Faults,
) -> Option<Update> {
    metrics.started(job.since.elapsed());
    for choice in 0..job.ask.choices {
        match one_choice(engine, job, choice, metrics, faults) {
            Ok(Some(summary)) if summary.finish != FinishReason::Cancelled => {
                if !send(job, Update::Choice(choice, summary)) {
                    return None;
                }
            }
            Ok(_) => {
                metrics.cancelled();
                let stopping = || Update::Failed(ApiError::unavailable("the server is stopping"));
                return queue.is_closed().then(stopping);
            }
            Err(error) => return Some(Update::Failed(ApiError::library("prompt", &error))),
        }
    }
    Some(Update::Done)
}

/// Writes one choice; nothing where the client is gone.
fn one_choice(
    engine: &mut Engine,
    job: &Job,
    choice: u32,
    metrics: &Metrics,
    faults: &Faults,
) -> Result<Option<Box<Summary>>, Error> {
    let mut options = job.ask.options.clone();
    options.choice = choice;
    let mut rounds = 0;
    let before = |round| faults.0.iter().for_each(|fault| fault(round));
    before(rounds);
    let mut last = Instant::now();
    for event in engine.generate(Prompt::Tokens(&job.ask.prompt), &options)? {
        let heard = match event? {
            Event::Round(record) => {
                if rounds == 0 && choice == 0 {
                    metrics.first_token(job.since.elapsed());
                }
                metrics.round(&record, last.elapsed());
                last = Instant::now();
                rounds += 1;
                let heard = send(job, Update::Round(choice, record));
                before(rounds);
                heard
            }
            Event::Text(text) => send(job, Update::Text(choice, text)),
            Event::Finished(summary) => {
                metrics.finished(&summary);
                return Ok(Some(summary));
            }
            _ => true,
        };
        if !heard {
            return Ok(None);
        }
    }
    Ok(None)
}

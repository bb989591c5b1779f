//! Requests that wait for the engine, first come, first served.
//!
//! A request stands in the queue by its [`Ticket`], which its HTTP side holds. Dropping the ticket takes the request
//! out again, or stops it where it runs already.
//!
//! Invariant: a ticket touches its own request only; at most `max` requests wait.
//! Not here: answering (`worker`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::mpsc;

use crate::ask::Ask;
use crate::worker::Update;

/// A request for the engine.
pub(crate) struct Job {
    id: u64,
    pub(crate) ask: Ask,
    pub(crate) updates: mpsc::Sender<Update>,
    pub(crate) cancel: Arc<AtomicBool>,
    pub(crate) since: Instant,
}

/// Why a request cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// So many wait already.
    Full(usize),
    /// The server is stopping.
    Closed,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    running: Option<Arc<AtomicBool>>,
    closed: bool,
    next_id: u64,
}

/// The queue.
pub(crate) struct Queue {
    max: usize,
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    /// An empty one in which `max` requests may wait.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, state: Mutex::default(), changed: Condvar::new() })
    }

    // Nothing that can panic runs under the lock, so a poisoned state is still whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more request could wait now.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        self.check_state(&self.state())
    }

    fn check_state(&self, state: &State) -> Result<(), Refusal> {
        let (waiting, idle) = (state.waiting.len(), state.running.is_none() && state.waiting.is_empty());
        if state.closed {
            Err(Refusal::Closed)
        } else if waiting >= self.max && !idle {
            Err(Refusal::Full(waiting))
        } else {
            Ok(())
        }
    }

    /// Adds a request, whose updates go into `updates`.
    ///
    /// # Errors
    /// Why it cannot wait.
    pub(crate) fn push(self: &Arc<Self>, ask: Ask, updates: mpsc::Sender<Update>) -> Result<Ticket, Refusal> {
        let mut state = self.state();
        self.check_state(&state)?;
        let id = state.next_id;
        state.next_id += 1;
        let cancel = Arc::clone(&ask.options.cancel);
        let since = Instant::now();
        state.waiting.push_back(Job { id, ask, updates, cancel: Arc::clone(&cancel), since });
        self.changed.notify_one();
        Ok(Ticket { queue: Arc::clone(self), id, cancel })
    }

    /// Takes the next request, waiting for one; `None` once the queue is closed. It counts as running until
    /// [`Queue::done`].
    pub(crate) fn take(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.waiting.pop_front() {
                state.running = Some(Arc::clone(&job.cancel));
                return Some(job);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The request taken last is answered.
    pub(crate) fn done(&self) {
        self.state().running = None;
    }

    /// How many wait, and whether one is being answered.
    pub(crate) fn load(&self) -> (usize, bool) {
        let state = self.state();
        (state.waiting.len(), state.running.is_some())
    }

    /// Refuses requests from now on, and drops those that wait.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        self.changed.notify_all();
        drop(state);
        drop(waiting); // their receivers see the end
    }

    /// Whether the queue was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Stops the request that runs.
    pub(crate) fn stop_running(&self) {
        if let Some(cancel) = &self.state().running {
            cancel.store(true, Ordering::Relaxed);
        }
    }
}

/// A request's place in the queue, or in the engine.
pub(crate) struct Ticket {
    queue: Arc<Queue>,
    id: u64,
    cancel: Arc<AtomicBool>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.cancel.store(true, Ordering::Relaxed);
        let mut state = self.queue.state();
        let at = state.waiting.iter().position(|job| job.id == self.id);
        let left = at.and_then(|at| state.waiting.remove(at));
        drop(state);
        drop(left);
    }
}

#[cfg(test)]
#[path = "tests/queue.rs"]
mod tests;

//! One pool of worker threads that run the same function with different indices.
//!
//! A job is published by raising an epoch; workers spin on it for a moment after each job, then
//! sleep, so a pass pays no wake-ups between its hundreds of jobs and an idle pool costs nothing.
//! The caller is worker 0. Which worker takes which index is fixed, and every result has one
//! writer, so the number of threads cannot change a bit of any result.
//!
//! Invariant: `run` returns only after every worker has left the job, so a job may borrow.
//! Not here: deciding how work is cut (`run`).
#![allow(
    unsafe_code,
    reason = "hands a borrowed closure to other threads, which scoped threads cannot do cheaply"
)]

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Spins before a worker sleeps: some tens of microseconds, longer than the gaps inside a pass.
/// With more threads than processors a spinning one only keeps a working one from running.
fn spins(threads: usize) -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if threads <= processors { 20_000 } else { 0 }
}

type Job = *const (dyn Fn(usize) + Sync);

struct Shared {
    epoch: AtomicU64,
    job: UnsafeCell<Option<Job>>,
    running: AtomicUsize,
    sleepers: AtomicUsize,
    gate: Mutex<()>,
    wake: Condvar,
    stop: AtomicBool,
    panicked: AtomicBool,
    spins: u32,
}

// SAFETY: `job` is written only by the pool's owner while no worker runs (`running` is 0), and
// read by workers only after the release store of `epoch` that follows the write.
unsafe impl Sync for Shared {}
// SAFETY: the raw closure pointer is only dereferenced while `run` keeps the closure alive.
unsafe impl Send for Shared {}

/// A fixed set of threads.
pub(super) struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Threads {
    /// A pool of `n` threads, the caller's included. `n` of 0 counts as 1.
    pub(super) fn new(n: usize) -> Self {
        let shared = Arc::new(Shared {
            epoch: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            running: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            gate: Mutex::new(()),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            spins: spins(n),
        });
        let workers = (1..n)
            .map_while(|index| {
                let shared = Arc::clone(&shared);
                let name = format!("pilotfish-{index}");
                // Fewer threads than asked still give the same results, so a refusal is no error.
                std::thread::Builder::new().name(name).spawn(move || work(&shared, index)).ok()
            })
            .collect();
        Self { shared, workers }
    }

    /// Threads of the pool, the caller's included.
    pub(super) fn n(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `job(0)`, …, `job(n - 1)`, each on its own thread, and waits for all.
    ///
    /// # Panics
    /// When the job panicked on any thread.
    pub(super) fn run(&mut self, job: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() {
            return job(0);
        }
        let shared = &*self.shared;
        // SAFETY: only the lifetime is erased. No worker outlives this call with the pointer: the
        // wait below ends only when all have left the job.
        let erased: Job = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), Job>(job) };
        // SAFETY: no worker runs, so nobody reads the cell.
        unsafe { *shared.job.get() = Some(erased) };
        shared.running.store(self.workers.len(), Ordering::Relaxed);
        // Sequentially consistent with the sleepers' own check, so that either we see a sleeper
        // or it sees the new epoch.
        shared.epoch.fetch_add(1, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            let _gate = shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
            shared.wake.notify_all();
        }
        let own = catch_unwind(AssertUnwindSafe(|| job(0)));
        let mut spins = 0;
        while shared.running.load(Ordering::Acquire) > 0 {
            spins += 1;
            if spins < shared.spins { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        if let Err(panic) = own {
            std::panic::resume_unwind(panic);
        }
        assert!(!shared.panicked.swap(false, Ordering::Relaxed), "a worker thread panicked");
    }

    /// Calls `f` once for each item; item `i` goes to thread `i mod n`.
    pub(super) fn for_each<T: Send>(&mut self, items: Vec<T>, f: impl Fn(T) + Sync) {
        if self.workers.is_empty() || items.len() < 2 {
            return items.into_iter().for_each(f);
        }
        let n = self.n();
        let slots: Vec<Mutex<Option<T>>> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
        self.run(&|index| {
            for slot in slots.iter().skip(index).step_by(n) {
                let item = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(item) = item {
                    f(item);
                }
            }
        });
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        {
            let _gate = self.shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
            self.shared.wake.notify_all();
        }
        for worker in self.workers.drain(..) {
            // A worker catches its job's panics, so it cannot have died of one.
            let _ended = worker.join();
        }
    }
}

fn work(shared: &Shared, index: usize) {
    let mut seen = 0;
    loop {
        seen = wait_for_epoch(shared, seen);
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        // SAFETY: the epoch rose after the job was written, and the owner does not write it again
        // before this worker has counted itself out below.
        let job = unsafe { *shared.job.get() };
        if let Some(job) = job {
            // SAFETY: `run` keeps the closure alive until `running` reaches 0.
            let job = unsafe { &*job };
            if catch_unwind(AssertUnwindSafe(|| job(index))).is_err() {
                shared.panicked.store(true, Ordering::Relaxed);
            }
        }
        shared.running.fetch_sub(1, Ordering::Release);
    }
}

fn wait_for_epoch(shared: &Shared, seen: u64) -> u64 {
    for _ in 0..shared.spins {
        let now = shared.epoch.load(Ordering::Acquire);
        if now != seen {
            return now;
        }
        std::hint::spin_loop();
    }
    let mut gate = shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
    shared.sleepers.fetch_add(1, Ordering::SeqCst);
    let now = loop {
        let now = shared.epoch.load(Ordering::SeqCst);
        if now != seen {
            break now;
        }
        gate = shared.wake.wait(gate).unwrap_or_else(PoisonError::into_inner);
    };
    shared.sleepers.fetch_sub(1, Ordering::SeqCst);
    now
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_index_runs_once_per_job() {
        for n in [1, 2, 3, 8] {
            let mut threads = Threads::new(n);
            let counts: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
            for _ in 0..500 {
                threads.run(&|i| {
                    counts[i].fetch_add(1, Ordering::Relaxed);
                });
            }
            assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 500), "{n} threads");
        }
    }

    #[test]
    fn items_are_each_taken_once() {
        let mut threads = Threads::new(3);
        let mut out = vec![0u64; 100];
        let items: Vec<(usize, &mut u64)> = out.iter_mut().enumerate().collect();
        threads.for_each(items, |(i, slot)| *slot += i as u64 * 2);
        assert!(out.iter().enumerate().all(|(i, &x)| x == i as u64 * 2));
    }

    #[test]
    fn sleeping_workers_wake_again() {
        let mut threads = Threads::new(4);
        let ran = AtomicUsize::new(0);
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(20));
            threads.run(&|_| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(ran.load(Ordering::Relaxed), 20);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        let mut threads = Threads::new(2);
        for bad in [0, 1] {
            let outcome = catch_unwind(AssertUnwindSafe(|| threads.run(&|i| assert_ne!(i, bad))));
            assert!(outcome.is_err());
        }
        let ran = AtomicUsize::new(0);
        threads.run(&|_| {
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    }
}

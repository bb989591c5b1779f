//! One pool of worker threads that share out the items of a job.
//!
//! A job is published by opening a new epoch; workers spin on it for a moment after each job, then
//! sleep, so a pass pays no wake-ups between its hundreds of jobs and an idle pool costs nothing.
//! Items are claimed one by one, and the caller claims too: on a busy machine a worker that is
//! late finds its items done instead of holding everybody up. Every item has one writer, so who
//! takes it, and how many threads there are, cannot change a bit of any result.
//!
//! Invariant: `run` returns only when no worker is inside the job and none can enter it any more,
//! so a job may borrow.
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

type Job = *const (dyn Fn() + Sync);

/// Set in the state while workers may enter the job.
const OPEN: u64 = 1 << 16;
/// One epoch in the state; the bits below `OPEN` count the workers inside.
const EPOCH: u64 = 1 << 17;

struct Shared {
    /// Epoch, `OPEN`, and the number of workers inside the job.
    state: AtomicU64,
    job: UnsafeCell<Option<Job>>,
    sleepers: AtomicUsize,
    gate: Mutex<()>,
    wake: Condvar,
    stop: AtomicBool,
    panicked: AtomicBool,
    spins: u32,
}

// SAFETY: `job` is written only by the pool's owner while the state is closed and nobody is inside,
// and read by workers only after they entered an open state, which is stored after the write.
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
        // The state counts the workers inside in 16 bits.
        let n = n.min(usize::from(u16::MAX));
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(None),
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
                std::thread::Builder::new().name(name).spawn(move || work(&shared)).ok()
            })
            .collect();
        Self { shared, workers }
    }

    /// Threads of the pool, the caller's included.
    pub(super) fn n(&self) -> usize {
        self.workers.len() + 1
    }

    /// Into how many parts to cut work of some nanoseconds for each of so many numbers: all threads, or one where
    /// handing over would take longer.
    pub(super) fn share(&self, numbers: usize) -> usize {
        const WORTH_SHARING: usize = 4096;
        if numbers < WORTH_SHARING { 1 } else { self.n() }
    }

    /// Into how many pieces to cut long work: some for each thread, so that one that is late, or shares a core, takes fewer
    /// and nobody waits long. One thread has nobody to wait for.
    pub(super) fn pieces(&self) -> usize {
        const EACH: usize = 3;
        if self.n() == 1 { 1 } else { EACH * self.n() }
    }

    /// Calls `f` once for each item, on whichever thread is free.
    ///
    /// # Panics
    /// When `f` panicked on any thread.
    pub(super) fn for_each<T: Send>(&mut self, items: Vec<T>, f: impl Fn(T) + Sync) {
        if self.workers.is_empty() || items.len() < 2 {
            return items.into_iter().for_each(f);
        }
        let slots: Vec<Mutex<Option<T>>> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
        let next = AtomicUsize::new(0);
        self.run(&|| {
            while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
                let item = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(item) = item {
                    f(item);
                }
            }
        });
    }

    /// Calls `job` here and on every worker that is in time, and waits until all have left it.
    fn run(&mut self, job: &(dyn Fn() + Sync)) {
        let shared = &*self.shared;
        // SAFETY: only the lifetime is erased. No worker keeps the pointer beyond this call: the
        // wait below ends when the job is closed and nobody is inside.
        let erased: Job = unsafe { std::mem::transmute::<*const (dyn Fn() + Sync + '_), Job>(job) };
        // SAFETY: the state is closed and nobody is inside, so nobody reads the cell.
        unsafe { *shared.job.get() = Some(erased) };
        // Sequentially consistent with the sleepers' own check, so that either we see a sleeper
        // or it sees the new epoch.
        shared.state.fetch_add(EPOCH + OPEN, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            let _gate = shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
            shared.wake.notify_all();
        }
        let own = catch_unwind(AssertUnwindSafe(job));
        let mut inside = shared.state.fetch_and(!OPEN, Ordering::AcqRel) % OPEN;
        let mut spins = 0;
        while inside > 0 {
            spins += 1;
            if spins < shared.spins {
                std::hint::spin_loop()
            } else {
                std::thread::yield_now()
            }
            inside = shared.state.load(Ordering::Acquire) % OPEN;
        }
        let worker_panicked = shared.panicked.swap(false, Ordering::Relaxed);
        if let Err(panic) = own {
            std::panic::resume_unwind(panic);
        }
        assert!(!worker_panicked, "a worker thread panicked");
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.state.fetch_add(EPOCH, Ordering::SeqCst);
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

fn work(shared: &Shared) {
    let mut seen = 0;
    loop {
        seen = wait_for_epoch(shared, seen);
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        if !enter(shared) {
            continue;
        }
        // SAFETY: this worker is inside: the job was written before the state was opened, and is
        // not written again before this worker has left.
        let job = unsafe { *shared.job.get() };
        if let Some(job) = job {
            // SAFETY: `run` keeps the closure alive until nobody is inside.
            let job = unsafe { &*job };
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                shared.panicked.store(true, Ordering::Relaxed);
            }
        }
        shared.state.fetch_sub(1, Ordering::Release);
    }
}

/// Counts this worker in, unless the job is closed already.
fn enter(shared: &Shared) -> bool {
    let open = |state: u64| (state & OPEN != 0).then_some(state + 1);
    shared.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, open).is_ok()
}

/// Waits until the epoch is another than `seen` and returns it.
fn wait_for_epoch(shared: &Shared, seen: u64) -> u64 {
    for _ in 0..shared.spins {
        let now = shared.state.load(Ordering::Acquire) / EPOCH;
        if now != seen {
            return now;
        }
        std::hint::spin_loop();
    }
    let mut gate = shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
    shared.sleepers.fetch_add(1, Ordering::SeqCst);
    let now = loop {
        let now = shared.state.load(Ordering::SeqCst) / EPOCH;
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
    fn items_are_each_taken_once_for_any_number_of_threads() {
        for n in [1, 2, 3, 8] {
            let mut threads = Threads::new(n);
            let mut out = vec![0u64; 100];
            for _ in 0..500 {
                let items: Vec<(usize, &mut u64)> = out.iter_mut().enumerate().collect();
                threads.for_each(items, |(i, slot)| *slot += i as u64);
            }
            assert!(out.iter().enumerate().all(|(i, &x)| x == i as u64 * 500), "{n} threads");
        }
    }

    #[test]
    fn sleeping_workers_wake_again() {
        let mut threads = Threads::new(2);
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(20));
            // Each item waits for the other, so both threads must take part.
            let met = AtomicUsize::new(0);
            threads.for_each(vec![(), ()], |()| {
                met.fetch_add(1, Ordering::SeqCst);
                while met.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
            });
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        let mut threads = Threads::new(2);
        for bad in [0, 1] {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                threads.for_each(vec![0, 1], |item| assert_ne!(item, bad));
            }));
            assert!(outcome.is_err());
        }
        let ran = AtomicUsize::new(0);
        threads.for_each(vec![(), (), ()], |()| {
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ran.load(Ordering::Relaxed), 3);
    }
}

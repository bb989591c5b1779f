//! Measures and records: clocks, exact percentiles, paired ratios, the machine, energy, and record files.
//!
//! The crate times anything that can be called, ours or a peer's, because it knows nothing of the engine: it sees
//! durations, counts and names, and turns them into figures whose rules are written beside them.
//!
//! Invariant: no figure is invented. What could not be measured is `None` (JSON `null`) with its reason.
//! Not here: running models (`pilotfish`), deciding what a bench runs (the `bench` command).

pub mod clock;
pub mod energy;
pub mod machine;
pub mod percentile;
pub mod record;
pub mod stats;

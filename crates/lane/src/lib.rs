//! Runs forward passes over token trees: the [`Lane`] trait and the CPU lane.
//!
//! A lane is one engine with one model loaded and one key-value cache. A pass appends speculative
//! rows behind the committed ones; [`Lane::keep`] commits a path of them and drops the rest.
//!
//! Invariant: a row's outputs depend on its own token prefix only, bit for bit: never on other
//! rows, the number of rows, how the prompt was cut into passes, or the number of threads.
//! Not here: what to draft, how to sample, when to stop (`pilotfish-engine`).

pub mod batch;
pub mod cpu;
mod error;
pub mod head;
mod rows;
pub mod testing;

pub use batch::{Batch, Row, Want};
pub use error::LaneError;
pub use head::{Head, HeadInfo, Slot};
pub use rows::{Outputs, Rows};

/// One engine that can run forward passes of one model.
///
/// The trait blocks; overlap comes from giving each lane a thread.
pub trait Lane: Send {
    /// What this lane is and what it can do.
    fn info(&self) -> &LaneInfo;

    /// Committed positions in the key-value cache.
    fn len(&self) -> usize;

    /// Whether nothing is committed.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs the rows of `batch` behind the committed positions and leaves them speculative.
    ///
    /// Speculative rows of an earlier pass that were not kept are dropped first. Row `i` sees
    /// every committed position, its ancestors and itself; its position is `len() + depth(i)`.
    ///
    /// # Errors
    /// [`LaneError::ContextFull`] when the deepest row would not fit the context,
    /// [`LaneError::BadToken`] for an id outside the vocabulary, [`LaneError::BadWidth`] for a batch
    /// that is empty or too wide, [`LaneError::BadTap`] for a layer whose stream it cannot return, [`LaneError::Device`] when the engine failed. Logits that are not
    /// finite are no error here but [`Outputs::NonFinite`] of their row.
    fn forward(&mut self, batch: &Batch) -> Result<Rows, LaneError>;

    /// Commits the speculative rows `rows` (indices into the last batch, a path from a root
    /// downwards) and drops all others.
    ///
    /// # Errors
    /// [`LaneError::NotAPath`] when `rows` is not such a path.
    fn keep(&mut self, rows: &[usize]) -> Result<(), LaneError>;

    /// Forgets every committed position from `len` on, and every speculative row.
    fn truncate(&mut self, len: usize);
}

/// What a lane is and what it can do.
#[derive(Clone, Debug)]
pub struct LaneInfo {
    /// `cpu`, `gpu:0`, ….
    pub name: String,
    /// Name and version of the arithmetic: bits are promised within one id.
    pub numerics_id: String,
    /// Most positions the cache can hold.
    pub context: usize,
    /// Rows of the vocabulary matrix: logits per row.
    pub vocab: usize,
    /// Widest batch one pass takes.
    pub max_width: usize,
    /// Worker threads, where the lane has them.
    pub threads: usize,
    /// Layers whose residual stream a batch may ask for: 0 up to this one; 0 for a lane that returns none.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
}

impl LaneInfo {
    /// Whether the lane can return the taps of `batch`.
    ///
    /// # Errors
    /// [`LaneError::BadTap`] naming the first that it cannot.
    pub fn check_taps(&self, batch: &Batch) -> Result<(), LaneError> {
        match batch.taps().iter().find(|layer| **layer >= self.layers) {
            Some(&layer) => Err(LaneError::BadTap { layer, layers: self.layers }),
            None => Ok(()),
        }
    }
}

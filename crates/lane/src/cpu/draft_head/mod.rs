//! A drafter head on the processor, with the threads and the token table of its target's lane.
//!
//! For each token of the context the target's taps are fused into one vector, from which every layer makes a key and a
//! value. A block is the last token and mask tokens behind it; its rows see the context and each other, and what they
//! leave in the cache is forgotten when the next block begins.
//!
//! Invariant: nothing here is ever written to by a target's pass, nor read by one.
//! Not here: head files and their checks (`pilotfish_model::heads`), choosing guesses (`pilotfish-engine`).

mod best;
mod load;
mod run;
mod sequential;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};

use pilotfish_model::{DraftHead, Model};
use pilotfish_tensor::BlockType;
use pilotfish_tensor::kernels::{Activations, Kernels};

use super::CpuLane;
use super::kv::{KvCache, KvType};
use super::rope::RopeTable;
use super::threads::Threads;
use crate::head::{Head, HeadInfo, Slot};
use crate::{Lane as _, LaneError};
use best::Best;
use load::Weights;

/// How a head is set up.
#[derive(Clone, Debug)]
pub struct HeadOptions {
    /// How its matrices are kept, where their rows are whole blocks; else as F32.
    pub weights: BlockType,
    /// Tokens of a guess whose logits are corrected by the token before. A correction over the whole vocabulary costs a
    /// matrix product a guess and finds nearly the same (drafters' own measurements: τ 3.118 with 16).
    pub candidates: usize,
    /// Most positions of context that a block sees. Heads are trained on short texts, and a long context costs them
    /// acceptance as well as time.
    pub window: usize,
}

impl Default for HeadOptions {
    fn default() -> Self {
        Self { weights: BlockType::Q8_0, candidates: 32, window: 512 }
    }
}

/// A head on the processor.
pub struct CpuHead {
    head: DraftHead,
    target: Arc<Model>,
    info: HeadInfo,
    options: HeadOptions,
    kernels: &'static Kernels,
    threads: Arc<Mutex<Threads>>,
    weights: Weights,
    rope: RopeTable,
    kv: KvCache,
    /// First position whose keys and values are there.
    known_from: usize,
    /// Taps of the positions behind those in the cache, `[positions, taps, hidden]`.
    pending: Vec<f32>,
    /// What the last block's guessing rows came out as, `[guesses, hidden]`.
    hidden: Vec<f32>,
    /// The likeliest draft tokens of each of them, without the Markov head's share.
    best: Vec<Vec<Best>>,
    quantized: Activations,
}

impl CpuLane {
    /// Puts a head beside this lane, to draft for it with its threads.
    ///
    /// # Errors
    /// [`LaneError::Load`] when the head is not for this lane's model, or there is no memory for its weights.
    pub fn head(&self, head: DraftHead, options: &HeadOptions) -> Result<CpuHead, LaneError> {
        head.check_target(&self.model).map_err(|error| LaneError::Load(error.to_string()))?;
        let threads = Arc::clone(&self.threads);
        let weights = {
            let mut threads = super::lock(&threads);
            Weights::new(&head, &self.model, self.kernels, &mut threads, options.weights)?
        };
        let config = head.config();
        let width = config.n_kv_heads * config.head_dim;
        let info = HeadInfo {
            taps: config.taps.clone(),
            hidden: config.hidden,
            guesses: config.guesses(),
            vocab: self.info().vocab,
            window: options.window,
        };
        Ok(CpuHead {
            info,
            target: Arc::clone(&self.model),
            options: options.clone(),
            kernels: self.kernels,
            threads,
            weights,
            rope: load::rope(config, &self.model),
            kv: KvCache::new(KvType::F16, std::iter::repeat_n(width, config.layers.len())),
            known_from: 0,
            pending: Vec::new(),
            hidden: Vec::new(),
            best: Vec::new(),
            quantized: Activations::new(),
            head,
        })
    }
}

impl CpuHead {
    /// Numbers of one token's taps.
    fn tap_width(&self) -> usize {
        self.info.taps.len() * self.info.hidden
    }

    /// Goes past positions without knowing anything of them.
    fn skip(&mut self, positions: usize) -> Result<(), LaneError> {
        self.kv.reserve(positions)?;
        self.kv.keep(&(0..positions).collect::<Vec<_>>());
        self.known_from = self.kv.len();
        Ok(())
    }
}

impl Head for CpuHead {
    fn info(&self) -> &HeadInfo {
        &self.info
    }

    fn len(&self) -> usize {
        self.kv.len() + self.pending.len() / self.tap_width()
    }

    fn append(&mut self, taps: &[f32]) -> Result<(), LaneError> {
        let width = self.tap_width();
        assert!(taps.len().is_multiple_of(width), "taps of whole tokens");
        self.pending.extend_from_slice(taps);
        // What the next block cannot see is not worth working on.
        let positions = self.pending.len() / width;
        let hidden_from_view = positions.saturating_sub(self.options.window);
        if hidden_from_view > 0 {
            self.pending.drain(..hidden_from_view * width);
            self.skip(hidden_from_view)?;
        }
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        let pending = len.saturating_sub(self.kv.len());
        self.pending.truncate(pending * self.tap_width());
        self.kv.truncate(len);
        self.known_from = self.known_from.min(len);
    }

    fn restart(&mut self, at: usize) -> Result<(), LaneError> {
        self.truncate(0);
        self.skip(at)
    }

    fn settle(&mut self) -> Result<(), LaneError> {
        let pending = std::mem::take(&mut self.pending);
        let chunk = run::CONTEXT_ROWS * self.tap_width();
        pending.chunks(chunk).try_for_each(|taps| self.extend_context(taps))
    }

    fn block(&mut self, anchor: u32, guesses: usize) -> Result<(), LaneError> {
        let vocab = self.info.vocab;
        if anchor as usize >= vocab {
            return Err(LaneError::BadToken { token: anchor, vocab });
        }
        self.settle()?;
        self.run_block(anchor, guesses.min(self.info.guesses))
    }

    fn guess(&self, at: usize, previous: u32) -> Slot {
        self.slot(at, previous)
    }
}

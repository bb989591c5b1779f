//! How much memory a model takes on this lane, worked out before it is loaded.
//!
//! Invariant: sizes come from the same functions that size the real thing, but for the work buffers, which are
//! rounded up, and nothing is allocated.
//! Not here: the program and the tokenizer around the lane; allocating (`plan`, `kv`, `rope`, `run`).

use pilotfish_model::graph::Op;
use pilotfish_model::{Model, Weight};

use super::CpuOptions;
use super::plan::{Role, assign_buffers, roles};

/// Rows of the widest pass a prompt is read in.
const ROWS: usize = 512;

/// Bytes a quantized activation takes at most: its quant, the same again in tiles, and shares of scale and sum.
const QUANTIZED: usize = 4;

/// Bytes a model takes, by what they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Packed matrices and decoded vectors.
    pub weights: u64,
    /// Keys and values of a full context.
    pub kv: u64,
    /// Rope tables of a full context, and the buffers of a pass.
    pub work: u64,
    /// Most of the file that is mapped at once beside what is packed, above what the finished lane takes: the system
    /// may take these pages back whenever it likes.
    pub loading: u64,
}

impl Memory {
    /// What `model` takes with these options.
    pub fn of(model: &Model, options: &CpuOptions) -> Self {
        let graph = model.graph();
        let context = options.context.unwrap_or(model.config().context);
        let roles = roles(graph);
        let (mut weights, mut peak) = (0_u64, 0_u64);
        for id in graph.weight_ids() {
            let Weight { block_type, n_out, k, bytes } = model.weight(id);
            let kept = match roles[id.index()] {
                Role::Multiplied => options.kernels.packed_bytes(block_type, n_out, k),
                Role::LookedUp => 0,
                Role::Vector => n_out * k * size_of::<f32>(),
            };
            weights += kept as u64;
            if roles[id.index()] == Role::Multiplied {
                peak = peak.max(weights + bytes.len() as u64);
            }
        }
        let ropes: usize = graph.ropes().iter().map(|rope| rope.dims * size_of::<f32>()).sum();
        let work = ropes as u64 * context as u64 + work(model, context.min(ROWS)) as u64;
        let kv = options.kv_type.bytes_per_position(model).saturating_mul(context as u64);
        Self { weights, kv, work, loading: peak.saturating_sub(weights + kv + work) }
    }

    /// What a loaded model takes once its context is full.
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.kv).saturating_add(self.work)
    }
}

/// Buffers of a pass of `rows` rows.
fn work(model: &Model, rows: usize) -> usize {
    let graph = model.graph();
    let (buffers, n_buffers) = assign_buffers(graph);
    let mut widths = vec![0; n_buffers];
    let mut ffn = 0;
    for op in graph.ops() {
        if let Some(value) = op.output() {
            let width = &mut widths[buffers[value.index()]];
            *width = graph.width(value).max(*width);
        }
        if let Op::GatedMlp { gate, .. } = *op {
            ffn = graph.weight(gate).n_out.max(ffn);
        }
    }
    let widest = widths.iter().copied().max().unwrap_or(0);
    let floats: usize = widths.iter().sum::<usize>() + 2 * ffn;
    // One row of logits for the sampler beside those of the pass.
    rows * (floats * size_of::<f32>() + (widest + ffn) * QUANTIZED) + graph.vocab() * size_of::<f32>()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pilotfish_model::testing::TinySpec;
    use pilotfish_model::{Family, Gguf};

    use super::*;
    use crate::cpu::{CpuLane, KvType};
    use crate::{Batch, Lane, Want};

    #[test]
    fn what_is_worked_out_is_what_a_lane_takes() {
        for family in Family::ALL {
            let model = Model::from_gguf(Gguf::parse(TinySpec::new(family).gguf()).unwrap()).unwrap();
            let model = Arc::new(model);
            for kv_type in KvType::ALL {
                let options =
                    CpuOptions { context: Some(256), threads: Some(1), kv_type, ..CpuOptions::default() };
                let memory = Memory::of(&model, &options);
                let mut lane = CpuLane::new(Arc::clone(&model), &options).unwrap();
                lane.forward(&Batch::chain(&[1; 256], Want::Argmax)).unwrap();
                assert_eq!(memory.weights, lane.plan.bytes(), "{family:?}");
                assert_eq!(memory.kv, lane.kv.bytes(), "{family:?} {kv_type}");
                let ropes: u64 = lane.ropes.iter().map(|rope| size_of_val(rope.row(0)) as u64 * 256).sum();
                let (work, real) = (memory.work - ropes, lane.workspace.bytes());
                assert!(real <= work && work < 2 * real, "{family:?} {work} {real}");
            }
        }
    }
}

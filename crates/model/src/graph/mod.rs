//! A model's forward pass as a short list of coarse operations, read by every lane and exporter.
//!
//! Values are activations `[rows, width]`; each is assigned once. Weights, values and rope tables
//! are named by typed handles into the graph's arenas.
//!
//! Invariant: a [`Graph`] exists only after [`check`](mod@check) passed, so no reader may panic on one.
//! Not here: how a lane orders, fuses or stores anything.

mod build;
pub mod check;
mod ops;

pub use build::{GraphBuilder, Heads};
pub use check::GraphError;
pub use ops::{Activation, Op, Rope, RopeId, RopeScaling, RopeStyle, ValueId, WeightId, WeightSpec};

/// A checked forward pass.
#[derive(Clone, Debug)]
pub struct Graph {
    ops: Vec<Op>,
    weights: Vec<WeightSpec>,
    ropes: Vec<Rope>,
    widths: Vec<usize>,
    n_layers: usize,
    kv_widths: Vec<usize>,
    vocab: usize,
}

impl Graph {
    /// The operations in execution order; the last one is the head.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Every weight the operations name, with the shape it must have.
    pub fn weights(&self) -> &[WeightSpec] {
        &self.weights
    }

    /// The handles of all weights, in the order of [`Graph::weights`].
    pub fn weight_ids(&self) -> impl Iterator<Item = WeightId> + use<> {
        (0..self.weights.len()).map(WeightId)
    }

    /// One weight's name and shape.
    pub fn weight(&self, id: WeightId) -> &WeightSpec {
        &self.weights[id.0]
    }

    /// One rope's parameters.
    pub fn rope(&self, id: RopeId) -> &Rope {
        &self.ropes[id.0]
    }

    /// All ropes; [`RopeId`]s index them in this order.
    pub fn ropes(&self) -> &[Rope] {
        &self.ropes
    }

    /// Width of a value: it is `[rows, width]`.
    pub fn width(&self, id: ValueId) -> usize {
        self.widths[id.0]
    }

    /// Number of values.
    pub fn n_values(&self) -> usize {
        self.widths.len()
    }

    /// Attention layers, each with a key-value cache of its own.
    pub fn n_layers(&self) -> usize {
        self.n_layers
    }

    /// Width of one cached key (and of one cached value) of `layer`: `n_kv_heads * head_dim`.
    pub fn kv_width(&self, layer: usize) -> usize {
        self.kv_widths[layer]
    }

    /// Logits per row.
    pub fn vocab(&self) -> usize {
        self.vocab
    }
}

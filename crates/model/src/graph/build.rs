//! Builds a graph operation by operation, tracking the width of every value.
//!
//! The methods read like the model: each takes its inputs and returns the value it assigns.
//! Not here: checking, which `finish` leaves to [`check`](super::check).

use super::{Activation, Graph, GraphError, Op, Rope, RopeId, ValueId, WeightId, WeightSpec, check};

/// A graph under construction.
#[derive(Debug, Default)]
pub struct GraphBuilder {
    ops: Vec<Op>,
    weights: Vec<WeightSpec>,
    ropes: Vec<Rope>,
    widths: Vec<usize>,
}

/// The head geometry of one attention layer.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Most positions a row sees.
    pub window: Option<usize>,
    /// Multiplier of the scores.
    pub scale: f32,
}

impl GraphBuilder {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names a matrix `[n_out, k]`; naming it twice gives the same handle.
    pub fn matrix(&mut self, name: impl Into<String>, n_out: usize, k: usize) -> WeightId {
        let spec = WeightSpec { name: name.into(), n_out, k };
        if let Some(at) = self.weights.iter().position(|known| *known == spec) {
            return WeightId(at);
        }
        self.weights.push(spec);
        WeightId(self.weights.len() - 1)
    }

    /// Names a vector `[n]`.
    pub fn vector(&mut self, name: impl Into<String>, n: usize) -> WeightId {
        self.matrix(name, 1, n)
    }

    /// Adds a rope.
    pub fn rope_table(&mut self, rope: Rope) -> RopeId {
        self.ropes.push(rope);
        RopeId(self.ropes.len() - 1)
    }

    /// Token embeddings `[rows, hidden]`.
    pub fn embed(&mut self, weight: WeightId, scale: f32) -> ValueId {
        let out = self.value(self.weights[weight.0].k);
        self.ops.push(Op::Embed { weight, scale, out });
        out
    }

    /// Norm of the whole row.
    pub fn norm(&mut self, x: ValueId, weight: WeightId, eps: f32) -> ValueId {
        self.norm_groups(x, weight, eps, self.widths[x.0])
    }

    /// Norm of each group of `group` elements.
    pub fn norm_groups(&mut self, x: ValueId, weight: WeightId, eps: f32, group: usize) -> ValueId {
        let out = self.value(self.widths[x.0]);
        self.ops.push(Op::RmsNorm { x, weight, eps, group, out });
        out
    }

    /// Matrix product.
    pub fn linear(&mut self, x: ValueId, weight: WeightId, bias: Option<WeightId>) -> ValueId {
        let out = self.value(self.weights[weight.0].n_out);
        self.ops.push(Op::Linear { x, weight, bias, out });
        out
    }

    /// Rotary embedding.
    pub fn rope(&mut self, x: ValueId, rope: RopeId, head_dim: usize) -> ValueId {
        let out = self.value(self.widths[x.0]);
        self.ops.push(Op::Rope { x, rope, head_dim, out });
        out
    }

    /// Attention of `layer`.
    pub fn attention(&mut self, [q, k, v]: [ValueId; 3], layer: usize, heads: Heads) -> ValueId {
        let Heads { n_heads, n_kv_heads, head_dim, window, scale } = heads;
        let out = self.value(self.widths[q.0]);
        self.ops.push(Op::Attention { q, k, v, layer, n_heads, n_kv_heads, head_dim, window, scale, out });
        out
    }

    /// Gated MLP over the weights `[gate, up, down]`.
    pub fn gated_mlp(
        &mut self,
        x: ValueId,
        [gate, up, down]: [WeightId; 3],
        activation: Activation,
    ) -> ValueId {
        let out = self.value(self.weights[down.0].n_out);
        self.ops.push(Op::GatedMlp { x, gate, up, down, activation, out });
        out
    }

    /// Sum.
    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let out = self.value(self.widths[a.0]);
        self.ops.push(Op::Add { a, b, out });
        out
    }

    /// Names the residual stream after `layer`.
    pub fn tap(&mut self, x: ValueId, layer: usize) {
        self.ops.push(Op::Tap { x, layer });
    }

    /// Ends the graph with the vocabulary projection and checks it.
    ///
    /// # Errors
    /// What [`check`](mod@check) finds.
    pub fn finish(mut self, x: ValueId, weight: WeightId) -> Result<Graph, GraphError> {
        self.ops.push(Op::Head { x, weight });
        check::check(self.ops, self.weights, self.ropes, self.widths)
    }

    fn value(&mut self, width: usize) -> ValueId {
        self.widths.push(width);
        ValueId(self.widths.len() - 1)
    }
}

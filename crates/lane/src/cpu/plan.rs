//! Prepares a graph for the CPU: packed weights, and a buffer for every value.
//!
//! Values live in numbered buffers that are reused once their last reader ran, so a pass needs a
//! handful of them whatever the depth of the model.
//!
//! Invariant: while an operation runs, the buffer of its output holds no value that is read later.
//! Not here: running the operations (`run`).

use pilotfish_model::graph::{Graph, Op, ValueId, WeightId};
use pilotfish_model::{Model, Weight};
use pilotfish_tensor::kernels::{Kernels, Matrix};

use super::threads::Threads;

/// A weight in the form its operations read.
pub(super) enum Prepared {
    /// Packed for matrix products.
    Matrix(Matrix),
    /// Decoded to f32.
    Vector(Vec<f32>),
    /// Read from the file row by row (a token table that is only looked up).
    File,
}

/// Everything about a model that stays the same from pass to pass.
pub(super) struct Plan {
    weights: Vec<Prepared>,
    buffers: Vec<usize>,
    n_buffers: usize,
}

impl Plan {
    /// Packs the weights of `model` and assigns its buffers.
    pub(super) fn new(model: &Model, kernels: &'static Kernels, threads: &mut Threads) -> Self {
        let graph = model.graph();
        let (buffers, n_buffers) = assign_buffers(graph);
        Self { weights: prepare(model, kernels, threads), buffers, n_buffers }
    }

    /// The buffer a value lives in.
    pub(super) fn buffer(&self, value: ValueId) -> usize {
        self.buffers[value.index()]
    }

    /// Number of buffers.
    pub(super) fn n_buffers(&self) -> usize {
        self.n_buffers
    }

    /// A weight that is multiplied with.
    pub(super) fn matrix(&self, id: WeightId) -> &Matrix {
        match &self.weights[id.index()] {
            Prepared::Matrix(matrix) => matrix,
            _ => unreachable!("prepared as a matrix because an operation multiplies with it"),
        }
    }

    /// A weight that is a vector.
    pub(super) fn vector(&self, id: WeightId) -> &[f32] {
        match &self.weights[id.index()] {
            Prepared::Vector(vector) => vector,
            _ => unreachable!("prepared as a vector because no operation multiplies with it"),
        }
    }
}

fn prepare(model: &Model, kernels: &'static Kernels, threads: &mut Threads) -> Vec<Prepared> {
    let graph = model.graph();
    let mut multiplied = vec![false; graph.weights().len()];
    let mut looked_up = vec![false; graph.weights().len()];
    for op in graph.ops() {
        match *op {
            Op::Embed { weight, .. } => looked_up[weight.index()] = true,
            Op::Linear { weight, .. } | Op::Head { weight, .. } => multiplied[weight.index()] = true,
            Op::GatedMlp { gate, up, down, .. } => {
                for weight in [gate, up, down] {
                    multiplied[weight.index()] = true;
                }
            }
            _ => {}
        }
    }
    let mut prepared: Vec<Prepared> = graph.weights().iter().map(|_| Prepared::File).collect();
    let items: Vec<(usize, &mut Prepared)> = prepared.iter_mut().enumerate().collect();
    let ids: Vec<WeightId> = graph.weight_ids().collect();
    threads.for_each(items, |(i, slot)| {
        let Weight { block_type, n_out, k, bytes } = model.weight(ids[i]);
        if multiplied[i] {
            *slot = Prepared::Matrix(kernels.pack(block_type, bytes, n_out, k));
        } else if !looked_up[i] {
            *slot = Prepared::Vector(model.vector(ids[i]));
        }
    });
    prepared
}

/// Gives every value a buffer; returns the buffer of each value and how many there are.
fn assign_buffers(graph: &Graph) -> (Vec<usize>, usize) {
    let ops = graph.ops();
    let mut last_use = vec![0; graph.n_values()];
    for (at, op) in ops.iter().enumerate() {
        for value in op.inputs().into_iter().chain(op.output()) {
            last_use[value.index()] = at;
        }
    }
    let mut buffers = vec![usize::MAX; graph.n_values()];
    let mut free = Vec::new();
    let mut n_buffers = 0;
    for (at, op) in ops.iter().enumerate() {
        // The output is placed before inputs are released: no operation works in place.
        if let Some(out) = op.output() {
            buffers[out.index()] = free.pop().unwrap_or_else(|| {
                n_buffers += 1;
                n_buffers - 1
            });
        }
        let mut ended: Vec<ValueId> = op.inputs().into_iter().chain(op.output()).collect();
        ended.retain(|value| last_use[value.index()] == at);
        ended.sort_unstable();
        ended.dedup();
        free.extend(ended.into_iter().map(|value| buffers[value.index()]));
    }
    (buffers, n_buffers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::graph::GraphBuilder;

    #[test]
    fn buffers_are_reused_but_never_while_alive() {
        let mut g = GraphBuilder::new();
        let table = g.matrix("table", 10, 4);
        let norm = g.vector("norm", 4);
        let mut x = g.embed(table, 1.0);
        for _ in 0..20 {
            let h = g.norm(x, norm, 0.0);
            x = g.add(x, h);
        }
        let graph = g.finish(x, table).unwrap();
        let (buffers, n) = assign_buffers(&graph);
        assert_eq!(n, 3);
        for op in graph.ops() {
            for input in op.inputs() {
                assert_ne!(op.output().map(|out| buffers[out.index()]), Some(buffers[input.index()]));
            }
        }
    }
}

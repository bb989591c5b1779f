//! Prepares a graph for the CPU: packed weights, and a buffer for every value.
//!
//! Values live in numbered buffers that are reused once their last reader ran, so a pass needs a
//! handful of them whatever the depth of the model.
//!
//! Invariant: while an operation runs, the buffer of its output holds no value that is read later.
//! Not here: running the operations (`run`).

use pilotfish_model::graph::{Graph, Op, ValueId, WeightId};
use pilotfish_model::{Model, Weight};
use pilotfish_tensor::kernels::{Arena, Kernels, Matrix, PackPart};

use super::threads::Threads;
use crate::LaneError;

/// A weight in the form its operations read.
pub(super) enum Prepared {
    /// Packed for matrix products.
    Matrix(Matrix),
    /// Decoded to f32.
    Vector(Vec<f32>),
    /// Read from the file row by row (a token table that is only looked up).
    File,
}

/// What a weight is needed for, which decides its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Products; perhaps looked up too.
    Multiplied,
    /// Looked up only.
    LookedUp,
    /// Neither.
    Vector,
}

/// Everything about a model that stays the same from pass to pass.
pub(super) struct Plan {
    weights: Vec<Prepared>,
    buffers: Vec<usize>,
    n_buffers: usize,
}

impl Plan {
    /// Packs the weights of `model` and assigns its buffers.
    ///
    /// # Errors
    /// [`LaneError::Load`] when there is no memory for the packed weights.
    pub(super) fn new(
        model: &Model,
        kernels: &'static Kernels,
        threads: &mut Threads,
    ) -> Result<Self, LaneError> {
        let (buffers, n_buffers) = assign_buffers(model.graph());
        Ok(Self { weights: prepare(model, kernels, threads)?, buffers, n_buffers })
    }

    /// The buffer a value lives in.
    pub(super) fn buffer(&self, value: ValueId) -> usize {
        self.buffers[value.index()]
    }

    /// Number of buffers.
    pub(super) fn n_buffers(&self) -> usize {
        self.n_buffers
    }

    /// Bytes of the weights in memory.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        let of = |weight: &Prepared| match weight {
            Prepared::Matrix(matrix) => matrix.bytes().next_multiple_of(64),
            Prepared::Vector(vector) => size_of_val(vector.as_slice()),
            Prepared::File => 0,
        };
        self.weights.iter().map(of).sum::<usize>() as u64
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

fn prepare(
    model: &Model,
    kernels: &'static Kernels,
    threads: &mut Threads,
) -> Result<Vec<Prepared>, LaneError> {
    let graph = model.graph();
    let roles = roles(graph);
    let multiplied = |id: WeightId| roles[id.index()] == Role::Multiplied;
    let ids: Vec<WeightId> = graph.weight_ids().collect();
    let packed_bytes = |&id: &WeightId| {
        let Weight { block_type, n_out, k, .. } = model.weight(id);
        kernels.packed_bytes(block_type, n_out, k)
    };
    let total = ids.iter().filter(|id| multiplied(**id)).map(packed_bytes).sum();
    let no_memory = |e| LaneError::Load(format!("no memory for {total} bytes of packed weights: {e}"));
    let mut arena = Arena::new(total).map_err(no_memory)?;
    let mut prepare = |&id: &WeightId| {
        if multiplied(id) {
            let Weight { block_type, n_out, k, bytes } = model.weight(id);
            let mut packing = kernels.packing(block_type, bytes, n_out, k, &mut arena);
            threads.for_each(packing.parts(threads.pieces()), PackPart::run);
            let matrix = packing.finish();
            // Packed weights are read from now on; both copies in memory would be one too many.
            model.release(id);
            Prepared::Matrix(matrix)
        } else if roles[id.index()] == Role::LookedUp {
            Prepared::File
        } else {
            Prepared::Vector(model.vector(id))
        }
    };
    Ok(ids.iter().map(&mut prepare).collect())
}

/// The role of each weight.
pub(super) fn roles(graph: &Graph) -> Vec<Role> {
    let mut roles = vec![Role::Vector; graph.weights().len()];
    for op in graph.ops() {
        match *op {
            // A table that also serves as the output matrix is packed for that.
            Op::Embed { weight, .. } if roles[weight.index()] == Role::Vector => {
                roles[weight.index()] = Role::LookedUp;
            }
            Op::Linear { weight, .. } | Op::Head { weight, .. } => roles[weight.index()] = Role::Multiplied,
            Op::GatedMlp { gate, up, down, .. } => {
                for weight in [gate, up, down] {
                    roles[weight.index()] = Role::Multiplied;
                }
            }
            _ => {}
        }
    }
    roles
}

/// Gives every value a buffer; returns the buffer of each value and how many there are.
pub(super) fn assign_buffers(graph: &Graph) -> (Vec<usize>, usize) {
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

//! Matrix products: one input with all weights that read it, in one job for all threads.
//!
//! Products are cut by output columns, so that each thread streams weights of its own; what follows a product number by
//! number (a bias, a gate) is done where its columns are made or read next, without a job of its own.
//!
//! Invariant: every number has one writer, and no sum crosses a thread.
//! Not here: the loops (`kernels`), keeping what is quantized (`quantized`).

use std::cell::RefCell;

use pilotfish_model::graph::{Activation, ValueId, WeightId};
use pilotfish_tensor::kernels::{ActScheme, Activations, Columns};

use super::quantized::{Source, fill};
use super::run::Pass;
use super::threads::Threads;
use super::workspace::Workspace;

thread_local! {
    /// One row of a gated MLP's product, or a piece of it.
    static GATED: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// One product of several with the same input.
pub(super) struct Product<'a> {
    pub(super) weight: WeightId,
    pub(super) bias: Option<&'a [f32]>,
    /// `[rows, n_out]`.
    pub(super) y: &'a mut [f32],
}

impl Pass<'_> {
    /// `y = x weightᵀ + bias` for each of `products`.
    pub(super) fn multiply(
        &self,
        threads: &mut Threads,
        workspace: &Workspace,
        of: Source,
        products: Vec<Product<'_>>,
    ) {
        let mut items = Vec::new();
        for Product { weight, bias, y } in products {
            let matrix = self.plan.matrix(weight);
            let x = workspace.quantized.get(of, matrix.scheme());
            let y = Columns::new(y, x.rows(), matrix.n_out());
            let blocks = y.split(threads.pieces(), matrix.column_tile());
            items.extend(blocks.into_iter().map(|block| (matrix, x, bias, block)));
        }
        threads.for_each(items, |(matrix, x, bias, mut block)| {
            self.kernels.matmul(matrix, x, &mut block);
            if let Some(bias) = bias {
                let bias = &bias[block.columns()];
                (0..block.rows()).for_each(|row| self.kernels.add_to(block.row_mut(row), bias));
            }
        });
    }

    /// Quantizes a value the way `weight` needs it, unless an earlier product did.
    pub(super) fn quantize(
        &self,
        threads: &mut Threads,
        workspace: &mut Workspace,
        x: ValueId,
        weight: WeightId,
    ) {
        let k = self.model.graph().width(x);
        let Workspace { buffers, quantized, .. } = workspace;
        let x_buffer = &buffers[self.plan.buffer(x)];
        let scheme = self.plan.matrix(weight).scheme();
        if let Some(room) = quantized.room(Source::Value(x), scheme, x_buffer.len() / k, k) {
            self.quantize_rows(threads, x_buffer, room);
        }
    }

    /// Quantizes rows that are no value, `[rows, k]`.
    pub(super) fn quantize_inner(
        &self,
        threads: &mut Threads,
        workspace: &mut Workspace,
        scheme: ActScheme,
        x: &[f32],
        k: usize,
    ) {
        if let Some(room) = workspace.quantized.room(Source::Inner, scheme, x.len() / k, k) {
            self.quantize_rows(threads, x, room);
        }
    }

    fn quantize_rows(&self, threads: &mut Threads, x: &[f32], to: &mut Activations) {
        let k = to.k();
        fill(threads, to, |mut part| {
            for row in part.rows() {
                let numbers = &x[row * k..][part.columns()];
                self.kernels.quantize_row(&mut part, row, numbers);
            }
        });
    }

    /// `y = (activation(x gateᵀ) * (x upᵀ)) downᵀ`.
    pub(super) fn gated_mlp(
        &self,
        threads: &mut Threads,
        workspace: &mut Workspace,
        x: ValueId,
        [gate, up, down]: [WeightId; 3],
        activation: Activation,
        y: &mut [f32],
    ) {
        let ffn = self.plan.matrix(gate).n_out();
        let rows = self.batch.width();
        let mut inner = workspace.take_inner(rows * ffn);
        for weight in [gate, up] {
            self.quantize(threads, workspace, x, weight);
        }
        let [gated, upped] = &mut inner;
        let products = vec![
            Product { weight: gate, bias: None, y: gated },
            Product { weight: up, bias: None, y: upped },
        ];
        self.multiply(threads, workspace, Source::Value(x), products);
        let scheme = self.plan.matrix(down).scheme();
        if let Some(room) = workspace.quantized.room(Source::Inner, scheme, rows, ffn) {
            fill(threads, room, |mut part| {
                GATED.with_borrow_mut(|out| {
                    out.resize(part.columns().len(), 0.0);
                    for row in part.rows() {
                        let [gate, up] = [&*gated, &*upped].map(|all| &all[row * ffn..][part.columns()]);
                        match activation {
                            Activation::Silu => self.kernels.silu_mul(gate, up, out),
                            Activation::GeluTanh => self.kernels.gelu_tanh_mul(gate, up, out),
                        }
                        self.kernels.quantize_row(&mut part, row, out);
                    }
                });
            });
        }
        self.multiply(threads, workspace, Source::Inner, vec![Product { weight: down, bias: None, y }]);
        workspace.inner = inner;
    }
}

//! A head's two passes: taps into keys and values, and a block of tokens into hidden states.
//!
//! ```text
//! context: c = norm(fuse(taps))              layer i keeps k = rope(norm(K_i c)), v = V_i c
//! block:   x = embed(anchor, mask, ...)      layer i: h = norm(x); every row sees the context and the whole block
//!          x += O attend(q(h), k(h), v(h));  x += mlp(norm(x))
//! ```
//!
//! Invariant: rows of a block are written behind the context and never kept.
//! Not here: which tokens follow from the hidden states (`best`, `sequential`).

use std::cell::RefCell;
use std::sync::Arc;

use pilotfish_model::graph::Op;
use pilotfish_tensor::kernels::{Activations, Attend, AttendScratch, Columns, Kernels, KvRows, RopeStyle};

use super::super::kv::{KvCache, KvType, NewRow};
use super::super::quantized::fill;
use super::super::rope::RopeTable;
use super::super::run::each_row;
use super::super::threads::Threads;
use super::load::Linear;
use super::{CpuHead, best};
use crate::LaneError;

/// Context rows worked on at a time.
pub(super) const CONTEXT_ROWS: usize = 128;

thread_local! {
    static SCRATCH: RefCell<AttendScratch> = RefCell::new(AttendScratch::new());
}

/// What every product needs.
struct Tools<'a> {
    kernels: &'static Kernels,
    threads: &'a mut Threads,
    quantized: &'a mut Activations,
}

impl Tools<'_> {
    /// `x weightᵀ + bias` for each of `linears`, which share a width and so a form of activations.
    fn products<const N: usize>(&mut self, x: &[f32], linears: [&Linear; N]) -> [Vec<f32>; N] {
        let (k, scheme) = (linears[0].matrix.k(), linears[0].matrix.scheme());
        let rows = x.len() / k;
        self.quantize(x, rows, linears[0]);
        let mut outputs = linears.map(|linear| vec![0.0; rows * linear.matrix.n_out()]);
        let mut items = Vec::new();
        for (linear, y) in linears.into_iter().zip(&mut outputs) {
            assert!(linear.matrix.scheme() == scheme && linear.matrix.k() == k, "one input for all");
            let y = Columns::new(y, rows, linear.matrix.n_out());
            let blocks = y.split(self.threads.pieces(), linear.matrix.column_tile());
            items.extend(blocks.into_iter().map(|block| (linear, block)));
        }
        let (kernels, quantized) = (self.kernels, &*self.quantized);
        self.threads.for_each(items, |(linear, mut block)| {
            kernels.matmul(&linear.matrix, quantized, &mut block);
            if let Some(bias) = &linear.bias {
                let bias = &bias[block.columns()];
                (0..block.rows()).for_each(|row| kernels.add_to(block.row_mut(row), bias));
            }
        });
        outputs
    }

    fn quantize(&mut self, x: &[f32], rows: usize, linear: &Linear) {
        let k = linear.matrix.k();
        self.quantized.reshape(rows, k, linear.matrix.scheme());
        let kernels = self.kernels;
        fill(self.threads, self.quantized, |mut part| {
            for row in part.rows() {
                let numbers = &x[row * k..][part.columns()];
                kernels.quantize_row(&mut part, row, numbers);
            }
        });
    }

    /// Every row, or head, normed.
    fn normed(&self, x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
        let mut y = vec![0.0; x.len()];
        for (x, y) in x.chunks_exact(weight.len()).zip(y.chunks_exact_mut(weight.len())) {
            self.kernels.rms_norm(x, weight, eps, y);
        }
        y
    }

    /// Norms the heads of `x`, `[rows, heads, head_dim]`, and turns them by the positions from `first` on.
    fn turn(&self, x: &mut [f32], width: usize, norm: &[f32], eps: f32, (rope, first): (&RopeTable, usize)) {
        let head_dim = norm.len();
        for (row, x) in x.chunks_exact_mut(width).enumerate() {
            x.chunks_exact_mut(head_dim).for_each(|head| self.kernels.rms_norm_in_place(head, norm, eps));
            self.kernels.rope(x, head_dim, head_dim, rope.row(first + row), RopeStyle::Neox);
        }
    }

    /// Writes keys and values behind what is kept.
    fn write(&self, kv: &mut KvCache, layer: usize, width: usize, k: &[f32], v: &[f32]) {
        let [mut key, mut value] = [const { KvType::F16 }; 2].map(|kind| NewRow::new(kind, width));
        for (row, (k, v)) in k.chunks_exact(width).zip(v.chunks_exact(width)).enumerate() {
            for (new, x) in [(&mut key, k), (&mut value, v)] {
                let NewRow::F16(halves) = new else { unreachable!("made as halves") };
                self.kernels.to_halves(x, halves);
            }
            kv.write(layer, row, &key, &value);
        }
    }
}

impl CpuHead {
    /// Makes keys and values of the taps of the positions behind the cache.
    pub(super) fn extend_context(&mut self, taps: &[f32]) -> Result<(), LaneError> {
        let rows = taps.len() / self.tap_width();
        let Self { head, kernels, threads, weights, rope, kv, quantized, .. } = self;
        let (config, first) = (head.config(), kv.len());
        let width = config.n_kv_heads * config.head_dim;
        kv.reserve(rows)?;
        rope.extend(first + rows);
        let mut threads = super::super::lock(threads);
        let mut tools = Tools { kernels, threads: &mut threads, quantized };
        let [fused] = tools.products(taps, [&weights.fuse]);
        let fused = tools.normed(&fused, &weights.fuse_norm, config.eps);
        for (at, layer) in weights.layers.iter().enumerate() {
            let [mut k, v] = tools.products(&fused, [&layer.k, &layer.v]);
            tools.turn(&mut k, width, &layer.k_norm, config.eps, (rope, first));
            tools.write(kv, at, width, &k, &v);
        }
        kv.keep(&(0..rows).collect::<Vec<_>>());
        Ok(())
    }

    /// Runs a block and notes what its first `guesses` guessing rows came out as, and their likeliest tokens.
    pub(super) fn run_block(&mut self, anchor: u32, guesses: usize) -> Result<(), LaneError> {
        let mut x = self.embed(anchor);
        let Self { head, kernels, threads, weights, rope, kv, quantized, .. } = self;
        let (config, first) = (head.config(), kv.len());
        let (rows, eps, hidden) = (config.block, config.eps, config.hidden);
        let [q_width, kv_width] = [config.n_heads, config.n_kv_heads].map(|heads| heads * config.head_dim);
        kv.reserve(rows)?;
        rope.extend(first + rows);
        let slots: Vec<u32> = (first..first + rows).map(|slot| slot as u32).collect();
        let mut threads = super::super::lock(threads);
        let mut tools = Tools { kernels, threads: &mut threads, quantized };
        for (at, (layer, window)) in weights.layers.iter().zip(&config.layers).enumerate() {
            let h = tools.normed(&x, &layer.input_norm, eps);
            let [mut q, mut k, v] = tools.products(&h, [&layer.q, &layer.k, &layer.v]);
            tools.turn(&mut q, q_width, &layer.q_norm, eps, (rope, first));
            tools.turn(&mut k, kv_width, &layer.k_norm, eps, (rope, first));
            tools.write(kv, at, kv_width, &k, &v);
            let size = window.size.map_or(self.options.window, |size| size.min(self.options.window));
            let seen = |row| Attend {
                first: first.saturating_sub(size).max(self.known_from),
                last: if window.causal { first + row } else { first + rows - 1 },
                path: &slots,
                scale: 1.0 / (config.head_dim as f32).sqrt(),
                softcap: None,
            };
            let seen: Vec<Attend<'_>> = (0..rows).map(seen).collect();
            let mut y = vec![0.0; rows * q_width];
            let each = q_width / config.n_kv_heads;
            let blocks = Columns::new(&mut y, rows, q_width).split(config.n_kv_heads, each);
            tools.threads.for_each(blocks, |block| {
                let numbers = kv.head(at, block.columns().start / each, config.head_dim);
                let kv = KvRows { numbers, width: kv_width, head_dim: config.head_dim, committed: first };
                SCRATCH.with_borrow_mut(|scratch| kernels.attend(&q, &seen, &kv, scratch, block));
            });
            let [y] = tools.products(&y, [&layer.o]);
            kernels.add_to(&mut x, &y);
            let h = tools.normed(&x, &layer.mlp_norm, eps);
            let [gate, up] = tools.products(&h, [&layer.gate, &layer.up]);
            let mut inner = vec![0.0; gate.len()];
            each_row(tools.threads, &mut inner, config.ffn, |row, y| {
                let at = row * config.ffn..(row + 1) * config.ffn;
                kernels.silu_mul(&gate[at.clone()], &up[at], y);
            });
            let [y] = tools.products(&inner, [&layer.down]);
            kernels.add_to(&mut x, &y);
        }
        let guessing = &x[config.first_slot * hidden..][..guesses * hidden];
        self.hidden = tools.normed(guessing, &weights.norm, eps);
        let output = &weights.output;
        tools.quantized.reshape(guesses, hidden, output.scheme());
        kernels.quantize(&self.hidden, guesses, hidden, output.scheme(), tools.quantized);
        self.best = best::find(kernels, tools.threads, output, tools.quantized, self.options.candidates);
        Ok(())
    }

    /// The block's tokens as rows, `[block, hidden]`.
    fn embed(&self, anchor: u32) -> Vec<f32> {
        let config = self.head.config();
        let mut x = self.embedding(anchor);
        let mask = self.embedding(config.mask_token);
        (1..config.block).for_each(|_| x.extend_from_slice(&mask));
        x
    }

    /// A row of the head's own token table, or of the target's.
    fn embedding(&self, token: u32) -> Vec<f32> {
        let mut row = Vec::new();
        const OWN: &str = "embed_tokens.weight";
        if self.head.tensors().tensor(OWN).is_some() {
            self.head.tensors().row_f32s(OWN, token as usize, &mut row).expect("checked by `DraftHead`");
            return row;
        }
        let target = Arc::clone(&self.target);
        let table = target.graph().ops().iter().find_map(|op| match *op {
            Op::Embed { weight, .. } => Some(target.weight(weight)),
            _ => None,
        });
        let table = table.expect("every graph begins with embeddings");
        let each = table.bytes.len() / table.n_out;
        row.resize(table.k, 0.0);
        table.block_type.decode(&table.bytes[token as usize * each..][..each], &mut row);
        row
    }
}

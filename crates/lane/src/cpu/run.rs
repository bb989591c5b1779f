//! One forward pass: the graph's operations over the buffers of the plan.
//!
//! Matrix products are cut by output columns, everything else by rows, so that every number has
//! one writer and no sum crosses a thread.
//!
//! Invariant: nothing here looks at more than one row of a value at a time.
//! Not here: which buffer a value lives in (`plan`), the loops themselves (`kernels`).

use std::cell::RefCell;

use pilotfish_model::Model;
use pilotfish_model::graph::{Op, RopeStyle, ValueId, WeightId};
use pilotfish_tensor::kernels::{self, Attend, AttendScratch, Columns, Kernels, KvRows};

use super::head;
use super::kv::{KvCache, NewRow};
use super::paths::Paths;
use super::plan::Plan;
use super::products::Product;
use super::quantized::Source;
use super::rope::RopeTable;
use super::threads::Threads;
use super::workspace::Workspace;
use crate::{Batch, Outputs, Rows, Want};

thread_local! {
    static SCRATCH: RefCell<AttendScratch> = RefCell::new(AttendScratch::new());
}

/// One pass over a batch.
pub(super) struct Pass<'a> {
    pub(super) model: &'a Model,
    pub(super) kernels: &'static Kernels,
    pub(super) plan: &'a Plan,
    pub(super) ropes: &'a [RopeTable],
    pub(super) batch: &'a Batch,
    pub(super) paths: &'a Paths,
    /// Tokens among which the best is looked for.
    pub(super) best_of_first: usize,
}

impl Pass<'_> {
    /// Runs every operation and returns what the rows asked for.
    pub(super) fn run(&self, threads: &mut Threads, kv: &mut KvCache, workspace: &mut Workspace) -> Rows {
        workspace.quantized.forget();
        let mut rows = Rows::default();
        let mut ops = self.model.graph().ops();
        while let [op, rest @ ..] = ops {
            ops = match *op {
                Op::Linear { x, .. } => {
                    let same = |op: &&Op| matches!(**op, Op::Linear { x: other, .. } if other == x);
                    let (linears, rest) = ops.split_at(ops.iter().take_while(same).count());
                    self.linears(threads, workspace, x, linears);
                    rest
                }
                _ => {
                    self.op(op, threads, kv, workspace, &mut rows);
                    rest
                }
            };
        }
        rows
    }

    /// Neighbouring linear operations that read the same value.
    fn linears(&self, threads: &mut Threads, workspace: &mut Workspace, x: ValueId, linears: &[Op]) {
        let n_rows = self.batch.width();
        let mut outputs = Vec::new();
        for op in linears {
            let Op::Linear { weight, bias, out, .. } = *op else { unreachable!("all are linear") };
            self.quantize(threads, workspace, x, weight);
            let buffer = self.plan.buffer(out);
            let y = workspace.take(buffer, n_rows * self.model.graph().width(out));
            outputs.push((weight, bias.map(|bias| self.plan.vector(bias)), buffer, y));
        }
        let products = outputs
            .iter_mut()
            .map(|(weight, bias, _, y)| Product { weight: *weight, bias: *bias, y })
            .collect();
        self.multiply(threads, workspace, Source::Value(x), products);
        for (.., buffer, y) in outputs {
            workspace.buffers[buffer] = y;
        }
    }

    fn op(
        &self,
        op: &Op,
        threads: &mut Threads,
        kv: &mut KvCache,
        workspace: &mut Workspace,
        rows: &mut Rows,
    ) {
        let graph = self.model.graph();
        let n_rows = self.batch.width();
        let out = op.output();
        let out_width = out.map_or(0, |value| graph.width(value));
        // Taken out of the workspace while it is written, so that inputs can be borrowed beside it.
        let mut y =
            out.map_or_else(Vec::new, |value| workspace.take(self.plan.buffer(value), n_rows * out_width));
        match *op {
            Op::Embed { weight, scale, .. } => self.embed(weight, scale, &mut y),
            Op::RmsNorm { x, weight, eps, group, .. } => {
                let (x, weight) = (self.value(workspace, x), self.plan.vector(weight));
                each_row(threads, &mut y, out_width, |row, y| {
                    let x = &x[row * out_width..][..out_width];
                    for (x, y) in x.chunks_exact(group).zip(y.chunks_exact_mut(group)) {
                        self.kernels.rms_norm(x, weight, eps, y);
                    }
                });
            }
            Op::Linear { .. } => unreachable!("done with its neighbours"),
            Op::Rope { x, rope, head_dim, .. } => {
                let x = self.value(workspace, x);
                let (table, params) = (&self.ropes[rope.index()], graph.rope(rope));
                let style = match params.style {
                    RopeStyle::Neox => kernels::RopeStyle::Neox,
                    RopeStyle::Interleaved => kernels::RopeStyle::Interleaved,
                };
                each_row(threads, &mut y, out_width, |row, y| {
                    y.copy_from_slice(&x[row * out_width..][..out_width]);
                    let angles = table.row(self.paths.position(row));
                    self.kernels.rope(y, head_dim, params.dims, angles, style);
                });
            }
            Op::Attention { q, k, v, layer, n_heads, n_kv_heads, head_dim, window, scale, .. } => {
                let heads = HeadShape { n_rep: n_heads / n_kv_heads, n_kv_heads, head_dim, window, scale };
                self.append(kv, layer, head_dim, self.value(workspace, k), self.value(workspace, v));
                self.attend(threads, kv, layer, heads, self.value(workspace, q), &mut y);
            }
            Op::GatedMlp { x, gate, up, down, activation, .. } => {
                self.gated_mlp(threads, workspace, x, [gate, up, down], activation, &mut y);
            }
            Op::Add { a, b, .. } => {
                let (a, b) = (self.value(workspace, a), self.value(workspace, b));
                each_row(threads, &mut y, out_width, |row, y| {
                    let at = row * out_width..(row + 1) * out_width;
                    self.kernels.add(&a[at.clone()], &b[at], y);
                });
            }
            // A name for readers of hidden states; nothing on this lane reads them yet.
            Op::Tap { .. } => {}
            Op::Head { x, weight } => *rows = self.head(threads, workspace, x, weight),
        }
        if let Some(value) = out {
            workspace.buffers[self.plan.buffer(value)] = y;
        }
    }

    pub(super) fn value<'w>(&self, workspace: &'w Workspace, value: ValueId) -> &'w [f32] {
        &workspace.buffers[self.plan.buffer(value)]
    }

    /// Looks tokens up in the file's own blocks: a pass needs a few rows of a table that may be
    /// the largest tensor of the file.
    fn embed(&self, weight: WeightId, scale: f32, y: &mut [f32]) {
        let table = self.model.weight(weight);
        let row_bytes = table.bytes.len() / table.n_out;
        for (row, y) in self.batch.rows().iter().zip(y.chunks_exact_mut(table.k)) {
            let at = row.token as usize * row_bytes;
            table.block_type.decode(&table.bytes[at..at + row_bytes], y);
            y.iter_mut().for_each(|x| *x *= scale);
        }
    }

    /// Writes the rows' keys and values behind the committed positions.
    fn append(&self, kv: &mut KvCache, layer: usize, head_dim: usize, k: &[f32], v: &[f32]) {
        let width = self.model.graph().kv_width(layer);
        let [mut key, mut value] = [NewRow::new(kv.kind(), width), NewRow::new(kv.kind(), width)];
        for (row, (k, v)) in k.chunks_exact(width).zip(v.chunks_exact(width)).enumerate() {
            for (new, x) in [(&mut key, k), (&mut value, v)] {
                match new {
                    NewRow::F16(halves) => self.kernels.to_halves(x, halves),
                    NewRow::Q8_0 { quants, scales } => self.kernels.to_quants(x, head_dim, quants, scales),
                }
            }
            kv.write(layer, row, &key, &value);
        }
    }

    fn attend(
        &self,
        threads: &mut Threads,
        kv: &KvCache,
        layer: usize,
        heads: HeadShape,
        q: &[f32],
        y: &mut [f32],
    ) {
        let HeadShape { n_rep, n_kv_heads, head_dim, window, scale } = heads;
        let seen: Vec<Attend<'_>> = (0..self.batch.width())
            .map(|row| {
                let last = self.paths.position(row);
                let first = window.map_or(0, |window| (last + 1).saturating_sub(window));
                Attend { first, last, path: self.paths.of(row), scale, softcap: None }
            })
            .collect();
        let (rows, parts) = pieces(seen.len(), n_kv_heads, n_rep, threads.n());
        let n_out = n_kv_heads * n_rep * head_dim;
        let mut items = Vec::new();
        for (at, y) in (0..seen.len()).step_by(rows).zip(y.chunks_mut(rows * n_out)) {
            let seen = &seen[at..seen.len().min(at + rows)];
            let q = &q[at * n_out..][..y.len()];
            let blocks =
                Columns::new(y, seen.len(), n_out).split(n_kv_heads * parts, n_rep / parts * head_dim);
            items.extend(blocks.into_iter().map(|block| (seen, q, block)));
        }
        threads.for_each(items, |(seen, q, block)| {
            let head = block.columns().start / (n_rep * head_dim);
            let rows = KvRows {
                numbers: kv.head(layer, head, head_dim),
                width: n_kv_heads * head_dim,
                head_dim,
                committed: self.paths.committed(),
            };
            SCRATCH.with_borrow_mut(|scratch| self.kernels.attend(q, seen, &rows, scratch, block));
        });
    }

    /// Multiplies only the rows that want something with the vocabulary matrix.
    fn head(&self, threads: &mut Threads, workspace: &mut Workspace, x: ValueId, weight: WeightId) -> Rows {
        let k = self.model.graph().width(x);
        let wants: Vec<Want> = self.batch.rows().iter().map(|row| row.want).collect();
        let mut gathered = Vec::new();
        let hidden = self.value(workspace, x);
        for (row, _) in wants.iter().enumerate().filter(|(_, want)| **want != Want::Nothing) {
            gathered.extend_from_slice(&hidden[row * k..(row + 1) * k]);
        }
        if gathered.is_empty() {
            return Rows::new(vec![Outputs::Nothing; wants.len()]);
        }
        let matrix = self.plan.matrix(weight);
        self.quantize_inner(threads, workspace, matrix.scheme(), &gathered, k);
        let mut outputs = if wants.contains(&Want::Logits) {
            let mut logits = vec![0.0; gathered.len() / k * matrix.n_out()];
            let products = vec![Product { weight, bias: None, y: &mut logits }];
            self.multiply(threads, workspace, Source::Inner, products);
            head::outputs(
                self.kernels,
                &logits,
                matrix.n_out(),
                self.best_of_first,
                wants.iter().copied().filter(|w| *w != Want::Nothing),
            )
        } else {
            head::argmax(
                self.kernels,
                threads,
                matrix,
                workspace.quantized.get(Source::Inner, matrix.scheme()),
                self.best_of_first,
                wants.contains(&Want::Likeliest),
            )
        }
        .into_iter();
        let output = |want| match want {
            Want::Nothing => Outputs::Nothing,
            Want::Argmax | Want::Likeliest | Want::Logits => {
                outputs.next().expect("one output per wanting row")
            }
        };
        Rows::new(wants.into_iter().map(output).collect())
    }
}

#[derive(Clone, Copy)]
struct HeadShape {
    n_rep: usize,
    n_kv_heads: usize,
    head_dim: usize,
    window: Option<usize>,
    scale: f32,
}

/// How attention is cut for `threads`: rows of a piece, and parts of the query heads that share keys.
///
/// Rows of a piece share every read of keys and values, so pieces are as tall as leaves work for all threads. Where
/// few rows and few key/value heads would leave threads idle, the heads that share keys are cut too.
fn pieces(rows: usize, n_kv_heads: usize, n_rep: usize, threads: usize) -> (usize, usize) {
    /// Rows whose queries and results stay in a near cache together.
    const MOST_ROWS: usize = 16;
    let tall = (rows * n_kv_heads).div_ceil(2 * threads).clamp(1, MOST_ROWS);
    let pieces = rows.div_ceil(tall) * n_kv_heads;
    // Threads take pieces one by one; the last round of pieces should not leave a quarter of the time idle.
    let even = |parts: &usize| {
        let items = pieces * parts;
        n_rep.is_multiple_of(*parts) && 4 * items.next_multiple_of(threads) <= 5 * items
    };
    (tall, (1..=n_rep).find(even).unwrap_or(n_rep))
}

/// Calls `f(row, y_row)` for every row of `y`, `[rows, width]`, in one run of rows a thread where there is enough to do.
fn each_row(threads: &mut Threads, y: &mut [f32], width: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    let n_rows = y.len() / width;
    let run = n_rows.div_ceil(threads.share(y.len()));
    let runs: Vec<(usize, &mut [f32])> = y.chunks_mut(run * width).enumerate().collect();
    threads.for_each(runs, |(part, rows)| {
        for (i, row) in rows.chunks_exact_mut(width).enumerate() {
            f(part * run + i, row);
        }
    });
}

//! A head's weights in the form the loops read.
//!
//! Matrices are encoded to one block type and packed side by side. The output matrix holds the rows of the draft
//! vocabulary only: the file's own, or the target's in the target's blocks, which costs no second rounding.
//!
//! Invariant: every tensor was checked by `DraftHead`, so nothing here can be missing.
//! Not here: the Markov head, whose few rows are read from the file as they are needed (`sequential`).

use pilotfish_model::graph::{Op, Rope, RopeScaling, RopeStyle};
use pilotfish_model::heads::HeadConfig;
use pilotfish_model::{DraftHead, Model};
use pilotfish_tensor::BlockType;
use pilotfish_tensor::kernels::{Arena, Kernels, Matrix, PackPart};

use super::super::rope::RopeTable;
use super::super::threads::Threads;
use crate::LaneError;

/// A matrix and its bias.
pub(super) struct Linear {
    pub(super) matrix: Matrix,
    pub(super) bias: Option<Vec<f32>>,
}

/// The weights of one layer.
pub(super) struct Layer {
    pub(super) input_norm: Vec<f32>,
    pub(super) q: Linear,
    pub(super) k: Linear,
    pub(super) v: Linear,
    pub(super) o: Linear,
    pub(super) q_norm: Vec<f32>,
    pub(super) k_norm: Vec<f32>,
    pub(super) mlp_norm: Vec<f32>,
    pub(super) gate: Linear,
    pub(super) up: Linear,
    pub(super) down: Linear,
}

/// All weights that are kept in memory.
pub(super) struct Weights {
    pub(super) fuse: Linear,
    pub(super) fuse_norm: Vec<f32>,
    pub(super) layers: Vec<Layer>,
    pub(super) norm: Vec<f32>,
    /// `[draft vocabulary, hidden]`.
    pub(super) output: Matrix,
    /// Weights, `[rank, hidden + rank]`, and bias of the Markov head's gate.
    pub(super) gate: Option<(Vec<f32>, Vec<f32>)>,
    /// Weights and bias of the confidence head.
    pub(super) confidence: Option<(Vec<f32>, f32)>,
}

impl Weights {
    /// Encodes and packs the weights of `head`.
    ///
    /// # Errors
    /// [`LaneError::Load`] when there is no memory for them.
    pub(super) fn new(
        head: &DraftHead,
        target: &Model,
        kernels: &'static Kernels,
        threads: &mut Threads,
        block_type: BlockType,
    ) -> Result<Self, LaneError> {
        let config = head.config();
        let of_type = |k: usize| if block_type.row_bytes(k).is_some() { block_type } else { BlockType::F32 };
        let matrices = head.tensors().tensors().iter().filter(|t| is_packed(&t.name));
        let packed = matrices.map(|t| kernels.packed_bytes(of_type(t.shape[1]), t.shape[0], t.shape[1]));
        let bound = head.tensors().tensor(OUTPUT).is_none().then(|| bound_output(head, target));
        let bound_bytes =
            bound.as_ref().map_or(0, |rows| kernels.packed_bytes(rows.block_type, rows.n_out, rows.k));
        let total = packed.sum::<usize>() + bound_bytes;
        let no_memory =
            |e| LaneError::Load(format!("no memory for {total} bytes of the head's weights: {e}"));
        let arena = Arena::new(total).map_err(no_memory)?;
        let mut packer = Packer { head, kernels, threads, arena, of_type: &of_type };
        let layers = (0..config.layers.len()).map(|layer| packer.layer(layer)).collect();
        let confidence = config.confidence.map(|_| {
            let bias = packer.vector("confidence_head.proj.bias")[0];
            (packer.vector("confidence_head.proj.weight"), bias)
        });
        let gate = config.markov_gated.then(|| {
            let part = |part: &str| packer.vector(&format!("markov_head.gate_proj.{part}"));
            (part("weight"), part("bias"))
        });
        Ok(Self {
            fuse: packer.linear("fc"),
            fuse_norm: packer.vector("hidden_norm.weight"),
            layers,
            norm: packer.vector("norm.weight"),
            output: match bound {
                Some(rows) => packer.pack(rows),
                None => packer.linear("lm_head").matrix,
            },
            gate,
            confidence,
        })
    }
}

const OUTPUT: &str = "lm_head.weight";

/// Whether a tensor is a matrix that is multiplied with.
fn is_packed(name: &str) -> bool {
    name == "fc.weight" || name == OUTPUT || (name.starts_with("layers.") && name.ends_with("_proj.weight"))
}

/// Rows of blocks that are to be packed.
struct Rows {
    block_type: BlockType,
    n_out: usize,
    k: usize,
    bytes: Vec<u8>,
}

/// The rows of the target's output matrix that the head can guess.
fn bound_output(head: &DraftHead, target: &Model) -> Rows {
    let output = target.graph().ops().iter().find_map(|op| match *op {
        Op::Head { weight, .. } => Some(target.weight(weight)),
        _ => None,
    });
    let output = output.expect("every graph ends in a head");
    let each = output.bytes.len() / output.n_out;
    let row = |id: usize| &output.bytes[id * each..][..each];
    let (n_out, bytes) = match head.draft_ids() {
        Some(ids) => (ids.len(), ids.iter().flat_map(|id| row(*id as usize)).copied().collect()),
        None => (output.n_out, output.bytes.to_vec()),
    };
    Rows { block_type: output.block_type, n_out, k: output.k, bytes }
}

struct Packer<'a> {
    head: &'a DraftHead,
    kernels: &'static Kernels,
    threads: &'a mut Threads,
    arena: Arena,
    of_type: &'a dyn Fn(usize) -> BlockType,
}

impl Packer<'_> {
    fn layer(&mut self, layer: usize) -> Layer {
        let name = |tensor: &str| format!("layers.{layer}.{tensor}");
        Layer {
            input_norm: self.vector(&name("input_layernorm.weight")),
            q: self.linear(&name("self_attn.q_proj")),
            k: self.linear(&name("self_attn.k_proj")),
            v: self.linear(&name("self_attn.v_proj")),
            o: self.linear(&name("self_attn.o_proj")),
            q_norm: self.vector(&name("self_attn.q_norm.weight")),
            k_norm: self.vector(&name("self_attn.k_norm.weight")),
            mlp_norm: self.vector(&name("post_attention_layernorm.weight")),
            gate: self.linear(&name("mlp.gate_proj")),
            up: self.linear(&name("mlp.up_proj")),
            down: self.linear(&name("mlp.down_proj")),
        }
    }

    fn vector(&self, name: &str) -> Vec<f32> {
        self.head.tensors().f32s(name).expect("checked by `DraftHead`")
    }

    fn linear(&mut self, name: &str) -> Linear {
        let weight = format!("{name}.weight");
        let shape = &self.head.tensors().tensor(&weight).expect("checked by `DraftHead`").shape;
        let (n_out, k) = (shape[0], shape[1]);
        let block_type = (self.of_type)(k);
        let numbers = self.vector(&weight);
        // In runs of rows, so that all threads encode.
        let rows = n_out.div_ceil(self.threads.pieces()).max(1);
        let mut runs: Vec<(&[f32], Vec<u8>)> =
            numbers.chunks(rows * k).map(|run| (run, Vec::new())).collect();
        let items: Vec<_> = runs.iter_mut().collect();
        self.threads.for_each(items, |(numbers, bytes)| block_type.encode(numbers, bytes));
        let bytes = runs.into_iter().flat_map(|(_, bytes)| bytes).collect();
        let bias = format!("{name}.bias");
        let bias = self.head.tensors().tensor(&bias).map(|tensor| self.vector(&tensor.name));
        Linear { matrix: self.pack(Rows { block_type, n_out, k, bytes }), bias }
    }

    fn pack(&mut self, rows: Rows) -> Matrix {
        let Rows { block_type, n_out, k, bytes } = rows;
        let mut packing = self.kernels.packing(block_type, &bytes, n_out, k, &mut self.arena);
        self.threads.for_each(packing.parts(self.threads.pieces()), PackPart::run);
        packing.finish()
    }
}

/// The rope of all layers.
pub(super) fn rope(config: &HeadConfig, target: &Model) -> RopeTable {
    let rope = Rope {
        style: RopeStyle::Neox,
        dims: config.head_dim,
        base: config.rope_base,
        scaling: RopeScaling::None,
    };
    RopeTable::new(&rope, target)
}

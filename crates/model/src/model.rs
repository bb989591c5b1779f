//! A loaded model file: configuration, graph, and weights whose shapes were checked against it.
//!
//! Invariant: every weight the graph names exists in the file with exactly the shape the graph
//! gives it, so lanes may index without asking again.
//! Not here: text (`text`), running it (`pilotfish-lane`).

use std::path::Path;

use pilotfish_tensor::BlockType;

use crate::config::Config;
use crate::families;
use crate::files::gguf::{Gguf, Metadata};
use crate::graph::{Graph, WeightId};
use crate::{ModelError, Section};

/// A model whose file passed every check.
#[derive(Clone, Debug)]
pub struct Model {
    gguf: Gguf,
    config: Config,
    graph: Graph,
}

/// The bytes of one weight, still in the file's blocks.
#[derive(Clone, Copy, Debug)]
pub struct Weight<'a> {
    /// Block type.
    pub block_type: BlockType,
    /// Output rows.
    pub n_out: usize,
    /// Contiguous inputs of one output row.
    pub k: usize,
    /// `n_out` rows of `k` elements.
    pub bytes: &'a [u8],
}

impl Model {
    /// Maps and checks a GGUF file.
    ///
    /// # Errors
    /// [`ModelError`] naming the file and the header field, key or tensor at fault.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        Self::from_gguf(Gguf::open(path)?)
    }

    /// Checks a parsed GGUF file against its family's graph.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn from_gguf(gguf: Gguf) -> Result<Self, ModelError> {
        let config = Config::from_gguf(&gguf)?;
        let graph = families::build(&config)
            .map_err(|e| ModelError::malformed(gguf.file(), Section::Graph, None, None, e.to_string()))?;
        for spec in graph.weights() {
            let info = gguf.require_tensor(&spec.name)?;
            let expected: &[usize] = if spec.n_out == 1 { &[spec.k] } else { &[spec.k, spec.n_out] };
            // Trailing ones are how some writers pad the shape.
            let fits = info.dims.starts_with(expected) && info.dims[expected.len()..].iter().all(|&d| d == 1);
            if !fits {
                return Err(gguf.invalid_tensor(
                    &spec.name,
                    format!("has shape {:?}; the architecture needs {expected:?}", info.dims),
                ));
            }
        }
        let metadata = gguf.metadata();
        let tokens = "tokenizer.ggml.tokens";
        if let Some(n) = metadata.strings(tokens)?.map(|strings| strings.len())
            && n != config.vocab
        {
            let rows = config.vocab;
            return Err(metadata.invalid(tokens, format!("has {n} tokens for {rows} embedding rows")));
        }
        Ok(Self { gguf, config, graph })
    }

    /// Hyperparameters.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The forward pass.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The file's metadata.
    pub fn metadata(&self) -> &Metadata {
        self.gguf.metadata()
    }

    /// The file itself.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// The bytes of a weight of this model's graph.
    ///
    /// # Panics
    /// When `id` belongs to another graph: a bug in the caller.
    pub fn weight(&self, id: WeightId) -> Weight<'_> {
        let spec = self.graph.weight(id);
        let info = self.gguf.tensor(&spec.name).expect("checked at load");
        let bytes = self.gguf.tensor_bytes(&spec.name).expect("checked at load");
        Weight { block_type: info.block_type, n_out: spec.n_out, k: spec.k, bytes }
    }

    /// Says that the bytes of a weight are not needed soon: their memory is let go, where it is the file's.
    ///
    /// # Panics
    /// As [`Model::weight`].
    pub fn release(&self, id: WeightId) {
        self.gguf.release_tensor(&self.graph.weight(id).name).expect("checked at load");
    }

    /// A vector weight as f32.
    ///
    /// # Panics
    /// As [`Model::weight`].
    pub fn vector(&self, id: WeightId) -> Vec<f32> {
        let weight = self.weight(id);
        let mut out = vec![0.0; weight.n_out * weight.k];
        weight.block_type.decode(weight.bytes, &mut out);
        out
    }

    /// Products of a weight and an activation that one row of a pass adds, attention aside.
    pub fn macs_per_row(&self) -> u64 {
        let tied = !self.config.has_output;
        let matrices = self.graph.weights().iter().filter(|spec| spec.n_out > 1);
        let read = matrices.filter(|spec| tied || spec.name != "token_embd.weight");
        read.map(|spec| spec.n_out as u64 * spec.k as u64).sum()
    }

    /// Whether the file still is what was loaded: token tables are read from it while the model runs.
    ///
    /// # Errors
    /// [`ModelError`] when it was written to.
    pub fn check_unchanged(&self) -> Result<(), ModelError> {
        self.gguf.check_unchanged()
    }

    /// Bytes of weights one pass reads: every matrix and vector once, but the token table only
    /// where it also serves as the output matrix.
    pub fn bytes_per_pass(&self) -> u64 {
        let skip = self.config.has_output.then_some("token_embd.weight");
        let read = self.graph.weights().iter().filter(|spec| Some(spec.name.as_str()) != skip);
        read.filter_map(|spec| self.gguf.tensor(&spec.name)).map(|info| info.n_bytes as u64).sum()
    }
}

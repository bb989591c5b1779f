//! The tensor table of a GGUF file: names, shapes, types, and where each tensor's bytes lie.
//!
//! After [`read`] every tensor has a type this engine knows, rows of whole blocks, and its own bytes inside
//! the file: no two tensors share any. A reader may then slice without checking again.
//!
//! Invariant: `offset + n_bytes` lies inside the data section, and the ranges are disjoint.
//! Not here: which tensors a model needs and in which shape (`families`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use pilotfish_tensor::BlockType;

use super::reader::Reader;
use crate::error::{ModelError, Section};

/// Most tensors a file may have.
pub const MAX_TENSORS: u64 = 65_536;
/// Longest tensor name, as in GGML.
pub const MAX_NAME_BYTES: u64 = 64;
/// Most dimensions of a tensor, as in GGML.
pub const MAX_DIMS: u32 = 4;

/// Smallest entry: name length, one byte of name, dimension count, one dimension, type, offset.
const MIN_ENTRY_BYTES: u64 = 33;

/// One tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Unique name.
    pub name: String,
    /// 1 to 4 dimensions in GGML order, each at least 1: `dims[0]` is the row length, `dims[1]` the rows.
    pub dims: Vec<usize>,
    /// How a row is stored.
    pub block_type: BlockType,
    /// First byte, counted from the start of the data section.
    pub offset: u64,
    /// Length in bytes.
    pub n_bytes: usize,
}

impl TensorInfo {
    /// Numbers in a row: `dims[0]`.
    #[must_use]
    pub fn row_len(&self) -> usize {
        self.dims.first().copied().unwrap_or(0)
    }

    /// Rows: the product of the other dimensions.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        // Cannot overflow: the table was read only if even the product of all dimensions fits.
        self.dims.iter().skip(1).fold(1, |n, dim| n.saturating_mul(*dim))
    }

    /// Numbers in all.
    #[must_use]
    pub fn n_elements(&self) -> usize {
        self.row_len().saturating_mul(self.n_rows())
    }
}

/// Tensors in file order and by name.
#[derive(Debug)]
pub(super) struct TensorTable {
    pub(super) tensors: Vec<TensorInfo>,
    pub(super) by_name: HashMap<String, usize>,
}

/// Bound for the header's count of tensors: each takes at least this many bytes.
pub(super) fn read_count(r: &Reader<'_>, at: usize, n_tensors: u64) -> Result<usize, ModelError> {
    r.check_count(at, n_tensors, MIN_ENTRY_BYTES, MAX_TENSORS, "the number of tensors")
}

/// Reads `n_tensors` entries and leaves the reader behind them. Their bytes are not checked yet.
pub(super) fn read(r: &mut Reader<'_>, n_tensors: usize, alignment: u32) -> Result<TensorTable, ModelError> {
    r.section = Section::TensorTable;
    let mut tensors = Vec::with_capacity(n_tensors);
    let mut by_name = HashMap::with_capacity(n_tensors);
    for index in 0..n_tensors {
        r.name = None;
        let at = r.position();
        let tensor = read_entry(r, index, alignment)?;
        match by_name.entry(tensor.name.clone()) {
            Entry::Occupied(_) => return Err(r.error(at, "the tensor stands in the file twice")),
            Entry::Vacant(slot) => slot.insert(index),
        };
        tensors.push(tensor);
    }
    r.name = None;
    Ok(TensorTable { tensors, by_name })
}

fn read_entry(r: &mut Reader<'_>, index: usize, alignment: u32) -> Result<TensorInfo, ModelError> {
    let at = r.position();
    let name = r.string(MAX_NAME_BYTES, "tensor name")?;
    if name.is_empty() {
        return Err(r.error(at, format!("the name of tensor {index} is empty")));
    }
    r.name = Some(name);

    let at = r.position();
    let n_dims = r.u32("number of dimensions")?;
    if !(1..=MAX_DIMS).contains(&n_dims) {
        return Err(r.error(at, format!("must have 1 to {MAX_DIMS} dimensions, has {n_dims}")));
    }
    let at = r.position();
    let mut dims = Vec::new();
    for _ in 0..n_dims {
        let dim = r.u64("dimension")?;
        match usize::try_from(dim) {
            Ok(dim) if dim >= 1 => dims.push(dim),
            _ => return Err(r.error(at, format!("dimension {dim} is not a possible size"))),
        }
    }
    let elements = dims.iter().try_fold(1usize, |n, dim| n.checked_mul(*dim));

    let type_at = r.position();
    let type_id = r.u32("tensor type")?;
    let Some(block_type) = BlockType::from_ggml_id(type_id) else {
        return Err(unknown_type(r, type_id));
    };
    let (row_len, block_len) = (dims.first().copied().unwrap_or(0), block_type.block_len());
    if !row_len.is_multiple_of(block_len) {
        let problem = format!(
            "row length {row_len} is not a multiple of {block_len}, as type {} needs",
            block_type.name()
        );
        return Err(r.error(type_at, problem));
    }
    let n_bytes = elements.and_then(|n| n.checked_div(block_len)?.checked_mul(block_type.block_bytes()));
    let Some(n_bytes) = n_bytes else {
        return Err(r.error(at, "the product of the dimensions is too large for any file"));
    };

    let at = r.position();
    let offset = r.u64("tensor offset")?;
    if !offset.is_multiple_of(u64::from(alignment)) {
        return Err(r.error(at, format!("offset {offset} is not a multiple of the alignment {alignment}")));
    }
    Ok(TensorInfo { name: name.to_owned(), dims, block_type, offset, n_bytes })
}

/// Checks that every tensor's bytes lie in the data section of `data_len` bytes, and that none overlap.
pub(super) fn check_ranges(r: &Reader<'_>, table: &TensorTable, data_len: usize) -> Result<(), ModelError> {
    let wrong = |tensor: &TensorInfo, problem: String| {
        Err(ModelError::malformed(r.file, Section::TensorData, Some(&tensor.name), None, problem))
    };
    for tensor in &table.tensors {
        let TensorInfo { offset, n_bytes, .. } = tensor;
        let end = usize::try_from(*offset).ok().and_then(|offset| offset.checked_add(*n_bytes));
        if end.is_none_or(|end| end > data_len) {
            let problem = format!(
                "needs {n_bytes} bytes from offset {offset}, but the file has only {data_len} bytes of tensor data; \
                 it may be cut short"
            );
            return wrong(tensor, problem);
        }
    }
    let mut by_offset: Vec<&TensorInfo> = table.tensors.iter().collect();
    by_offset.sort_by_key(|tensor| tensor.offset);
    for pair in by_offset.windows(2) {
        if let [first, second] = pair
            && first.offset.saturating_add(first.n_bytes as u64) > second.offset
        {
            return wrong(
                second,
                format!("shares bytes with tensor `{}`", crate::error::printable(&first.name)),
            );
        }
    }
    Ok(())
}

fn unknown_type(r: &Reader<'_>, id: u32) -> ModelError {
    let known: Vec<&str> = BlockType::ALL.iter().map(|block_type| block_type.name()).collect();
    let problem = match ggml_name(id) {
        Some(name) => format!("type {name} (id {id}) is not supported; supported are {}", known.join(", ")),
        None => format!("type id {id} is not a known tensor type; supported are {}", known.join(", ")),
    };
    ModelError::unsupported(r.file, r.section, r.name, problem)
}

/// Names of GGML types that exist but that this engine cannot compute with.
fn ggml_name(id: u32) -> Option<&'static str> {
    Some(match id {
        9 => "Q8_1",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        _ => return None,
    })
}

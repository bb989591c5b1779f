//! Safetensors: one file, or a folder of shards with an index.
//!
//! The header is JSON, read with the types of the `safetensors` crate. The rules of the format (tensors cover the
//! data without holes or overlaps) are checked here rather than there, to name the tensor at fault, to refuse
//! double names, and because its sum of offsets and header length may wrap. Shard names in an index are plain
//! file names.
//!
//! Invariant: every tensor's bytes lie inside its file; slicing cannot fail.
//! Not here: what the tensors mean.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use pilotfish_tensor::BlockType;
use safetensors::tensor::TensorInfo as HeaderTensor;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

pub use safetensors::Dtype;

use super::FileBytes;
use super::mmap::MappedFile;
use crate::error::{ModelError, Section, printable};

/// Longest header accepted; 100,000 tensors take about 7 MiB.
pub const MAX_HEADER_BYTES: usize = 16 << 20;
/// Longest index of shards accepted.
pub const MAX_INDEX_BYTES: usize = 16 << 20;
/// Most dimensions of a tensor.
pub const MAX_DIMS: usize = 8;

/// Name an index has in a folder.
const INDEX_NAME: &str = "model.safetensors.index.json";
/// Name a single file has in a folder.
const SINGLE_NAME: &str = "model.safetensors";
const FIRST_HEADER_BYTE: usize = 8;

/// The tensors of a model in safetensors form, from one file or several.
#[derive(Debug, Clone)]
pub struct Safetensors {
    file: String,
    shards: Vec<FileBytes>,
    tensors: Vec<StTensor>,
    by_name: HashMap<String, usize>,
    metadata: BTreeMap<String, String>,
}

/// One tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StTensor {
    /// Unique name.
    pub name: String,
    /// Type of an element.
    pub dtype: Dtype,
    /// Dimensions in the order of the file: the last is contiguous. Zero dimensions are a scalar.
    pub shape: Vec<usize>,
    shard: usize,
    start: usize,
    n_bytes: usize,
}

impl StTensor {
    /// Length in bytes.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        self.n_bytes
    }
}

impl Safetensors {
    /// Maps and checks what `path` leads to: a `.safetensors` file, an index (`….json`), or a folder that has
    /// one of them under its usual name.
    ///
    /// # Errors
    /// A file that cannot be mapped or breaks the format; an index that names anything but plain files beside
    /// it, or whose tensors are not where it says.
    pub fn open(path: &Path) -> Result<Safetensors, ModelError> {
        let path = if path.is_dir() { find_in_folder(path)? } else { path.to_owned() };
        let label = path.display().to_string();
        if path.extension().is_some_and(|extension| extension == "json") {
            return open_index(&path, &label);
        }
        let mut model = Safetensors::empty(&label);
        model.add_shard(&label, MappedFile::open(&path)?.into(), None)?;
        Ok(model)
    }

    /// Checks one file that is already in memory. Messages call it `<memory>`.
    ///
    /// # Errors
    /// The bytes break the format.
    pub fn parse(bytes: Vec<u8>) -> Result<Safetensors, ModelError> {
        let mut model = Safetensors::empty("<memory>");
        model.add_shard("<memory>", bytes.into(), None)?;
        Ok(model)
    }

    /// Label of the file or index, for messages.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// All tensors, by shard and position in it.
    #[must_use]
    pub fn tensors(&self) -> &[StTensor] {
        &self.tensors
    }

    /// One tensor.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&StTensor> {
        self.tensors.get(*self.by_name.get(name)?)
    }

    /// One tensor that must be there.
    ///
    /// # Errors
    /// [`ModelError::Missing`] with the name.
    pub fn require_tensor(&self, name: &str) -> Result<&StTensor, ModelError> {
        self.tensor(name).ok_or_else(|| ModelError::missing(&self.file, Section::TensorTable, name))
    }

    /// The bytes of one tensor, little-endian.
    ///
    /// # Errors
    /// [`ModelError::Missing`] with the name.
    pub fn bytes(&self, name: &str) -> Result<&[u8], ModelError> {
        let tensor = self.require_tensor(name)?;
        let end = tensor.start.saturating_add(tensor.n_bytes);
        let bytes = self.shards.get(tensor.shard).and_then(|shard| shard.get(tensor.start..end));
        Ok(bytes.expect("every range was checked when the file was read"))
    }

    /// The numbers of a tensor of F32, F16 or BF16.
    ///
    /// # Errors
    /// The tensor is missing or has another type.
    pub fn f32s(&self, name: &str) -> Result<Vec<f32>, ModelError> {
        let (block_type, bytes) = self.floats(name)?;
        let mut out = vec![0.0; bytes.len().checked_div(block_type.block_bytes()).unwrap_or(0)];
        block_type.decode(bytes, &mut out);
        Ok(out)
    }

    /// The numbers of one entry of the first dimension of such a tensor, in place of what `out` held.
    ///
    /// # Errors
    /// As [`Safetensors::f32s`].
    ///
    /// # Panics
    /// When the tensor has no such row.
    pub fn row_f32s(&self, name: &str, row: usize, out: &mut Vec<f32>) -> Result<(), ModelError> {
        let (block_type, bytes) = self.floats(name)?;
        let rows = self.require_tensor(name)?.shape.first().copied().unwrap_or(1);
        let each = bytes.len().checked_div(rows).unwrap_or(0);
        let bytes = bytes.chunks_exact(each.max(1)).nth(row).unwrap_or_else(|| panic!("row {row} of {rows}"));
        out.resize(bytes.len().checked_div(block_type.block_bytes()).unwrap_or(0), 0.0);
        block_type.decode(bytes, out);
        Ok(())
    }

    fn floats(&self, name: &str) -> Result<(BlockType, &[u8]), ModelError> {
        let block_type = match self.require_tensor(name)?.dtype {
            Dtype::F32 => BlockType::F32,
            Dtype::F16 => BlockType::F16,
            Dtype::BF16 => BlockType::BF16,
            other => {
                let problem = format!("has type {other}; F32, F16 or BF16 is needed");
                return Err(ModelError::unsupported(&self.file, Section::TensorTable, Some(name), problem));
            }
        };
        Ok((block_type, self.bytes(name)?))
    }

    /// The free-form strings of all shards.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    fn empty(file: &str) -> Safetensors {
        Safetensors {
            file: file.to_owned(),
            shards: Vec::new(),
            tensors: Vec::new(),
            by_name: HashMap::new(),
            metadata: BTreeMap::new(),
        }
    }

    /// Adds the tensors of one file. With `wanted`, exactly those names must be in it.
    fn add_shard(
        &mut self,
        label: &str,
        bytes: FileBytes,
        wanted: Option<&HashSet<&str>>,
    ) -> Result<(), ModelError> {
        let in_table = |name: &str, problem: String| {
            ModelError::malformed(label, Section::TensorTable, Some(name), None, problem)
        };
        let (header, data_start) = read_header(label, &bytes)?;
        let shard = self.shards.len();
        let found = header.tensors;
        if let Some(wanted) = wanted {
            let has: HashSet<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
            if let Some(name) = wanted.iter().find(|name| !has.contains(**name)) {
                return Err(in_table(name, "is listed in the index, but is not in this file".to_owned()));
            }
            if let Some((name, _)) = found.iter().find(|(name, _)| !wanted.contains(name.as_str())) {
                return Err(in_table(
                    name,
                    "is in this file, but the index does not list it here".to_owned(),
                ));
            }
        }
        for (name, tensor) in found {
            let (start, end) = tensor.data_offsets;
            let new = StTensor {
                name: name.clone(),
                dtype: tensor.dtype,
                shape: tensor.shape,
                shard,
                start: data_start.saturating_add(start),
                n_bytes: end.saturating_sub(start),
            };
            if let Some(before) = self.by_name.insert(name.clone(), self.tensors.len()) {
                let same = self.tensors.get(before).is_some_and(|tensor| tensor.shard == shard);
                let problem = if same { "stands in the header twice" } else { "is in two shards" };
                return Err(in_table(&name, problem.to_owned()));
            }
            self.tensors.push(new);
        }
        self.metadata.extend(header.metadata.into_iter().flatten());
        self.shards.push(bytes);
        Ok(())
    }
}

/// Checks the header against the file; returns it and where the data starts.
fn read_header(label: &str, bytes: &[u8]) -> Result<(Header, usize), ModelError> {
    let wrong = |problem: String| ModelError::malformed(label, Section::Header, None, None, problem);
    let Some((header_len, rest)) = bytes.split_first_chunk::<FIRST_HEADER_BYTE>() else {
        return Err(wrong(format!("is not a safetensors file: it has only {} bytes", bytes.len())));
    };
    let header_len = u64::from_le_bytes(*header_len);
    let n = usize::try_from(header_len).unwrap_or(usize::MAX);
    if n > MAX_HEADER_BYTES {
        return Err(wrong(format!("the header has {header_len} bytes, the limit is {MAX_HEADER_BYTES}")));
    }
    let Some((json, data)) = rest.split_at_checked(n) else {
        return Err(wrong(format!("the header needs {n} bytes, but the file has only {}", rest.len())));
    };
    if json.first() != Some(&b'{') {
        return Err(wrong("the header must start with {".to_owned()));
    }
    let mut header: Header = serde_json::from_slice(json).map_err(|e| wrong(json_problem(&e)))?;
    let tensors = &mut header.tensors;
    tensors.sort_by(|(a, left), (b, right)| (left.data_offsets, a).cmp(&(right.data_offsets, b)));
    let mut covered = 0;
    for (name, tensor) in tensors {
        let problem = match check_tensor(tensor, covered) {
            Ok(end) => {
                covered = end;
                continue;
            }
            Err(problem) => problem,
        };
        return Err(ModelError::malformed(label, Section::TensorTable, Some(name), None, problem));
    }
    if covered != data.len() {
        return Err(wrong(format!(
            "the tensors cover {covered} bytes, but the file has {} of data",
            data.len()
        )));
    }
    Ok((header, n.saturating_add(FIRST_HEADER_BYTE)))
}

/// Checks that a tensor starts where the one before it ended and has as many bytes as its shape; returns its end.
fn check_tensor(tensor: &HeaderTensor, covered: usize) -> Result<usize, String> {
    let (start, end) = tensor.data_offsets;
    if tensor.shape.len() > MAX_DIMS {
        return Err(format!("has {} dimensions, the limit is {MAX_DIMS}", tensor.shape.len()));
    }
    if start != covered || end < start {
        return Err(format!(
            "has bytes {start} to {end}; they must follow byte {covered} without hole or overlap"
        ));
    }
    let elements = tensor.shape.iter().try_fold(1usize, |n, dim| n.checked_mul(*dim));
    match elements.and_then(|n| n.checked_mul(tensor.dtype.bitsize())) {
        None => Err("the product of the dimensions is too large for any file".to_owned()),
        Some(bits) if bits.checked_div(8) == end.checked_sub(start) && bits.is_multiple_of(8) => Ok(end),
        Some(bits) => Err(format!("its shape needs {bits} bits, but it has bytes {start} to {end}")),
    }
}

/// The tensors of one file; sorted by position after [`read_header`].
struct Header {
    metadata: Option<HashMap<String, String>>,
    tensors: Vec<(String, HeaderTensor)>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut raw = Header { metadata: None, tensors: Vec::new() };
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                if raw.metadata.replace(map.next_value()?).is_some() {
                    return Err(A::Error::custom("__metadata__ stands in the header twice"));
                }
                continue;
            }
            raw.tensors.push((name, map.next_value()?));
        }
        Ok(raw)
    }
}

/// The file or index a folder holds under its usual name.
fn find_in_folder(folder: &Path) -> Result<PathBuf, ModelError> {
    [INDEX_NAME, SINGLE_NAME].into_iter().map(|name| folder.join(name)).find(|path| path.exists()).ok_or_else(
        || ModelError::not_a_model(folder, format!("the folder has neither {INDEX_NAME} nor {SINGLE_NAME}")),
    )
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

fn open_index(path: &Path, label: &str) -> Result<Safetensors, ModelError> {
    let bytes = MappedFile::open(path)?;
    if bytes.len() > MAX_INDEX_BYTES {
        let problem = format!("has {} bytes, the limit is {MAX_INDEX_BYTES}", bytes.len());
        return Err(ModelError::malformed(label, Section::Index, None, None, problem));
    }
    let index: Index = serde_json::from_slice(&bytes)
        .map_err(|e| ModelError::malformed(label, Section::Index, None, None, json_problem(&e)))?;
    let mut by_shard: BTreeMap<&str, HashSet<&str>> = BTreeMap::new();
    for (tensor, shard) in &index.weight_map {
        if !is_plain_name(shard) {
            let problem = format!("`{}` is not the plain name of a .safetensors file", printable(shard));
            return Err(ModelError::malformed(label, Section::Index, Some(tensor), None, problem));
        }
        by_shard.entry(shard).or_default().insert(tensor);
    }
    if by_shard.is_empty() {
        return Err(ModelError::missing(label, Section::Index, "weight_map"));
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut model = Safetensors::empty(label);
    for (shard, wanted) in by_shard {
        let path = folder.join(shard);
        model.add_shard(&path.display().to_string(), MappedFile::open(&path)?.into(), Some(&wanted))?;
    }
    Ok(model)
}

/// A file name that stays in its folder on every platform: no separators, drives, devices or hidden files.
fn is_plain_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.len() <= 255 && !name.starts_with('.') && name.ends_with(".safetensors") && name.chars().all(plain)
}

/// What is wrong with some JSON, and where. The library's message may repeat a word of the file, so it is bounded
/// and loses control characters.
fn json_problem(e: &serde_json::Error) -> String {
    const MAX: usize = 200;
    let message = format!("is not the JSON it must be: {e}");
    let escaped: String = message.chars().take(MAX).filter(|c| !c.is_control()).collect();
    if message.chars().nth(MAX).is_some() { format!("{escaped}…") } else { escaped }
}

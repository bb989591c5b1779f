//! GGUF files, versions 2 and 3, little-endian: reading and writing.
//!
//! ```text
//! "GGUF" version n_tensors n_keys | key type value … | name dims type offset … | padding | tensor data
//! ```
//!
//! The format is that of the GGUF specification in the ggml repository, read strictly: where common readers
//! differ or guess (nested arrays, odd alignments, overlapping tensors), this one refuses.
//!
//! Invariant: a [`Gguf`] that exists has passed every check of the format; slicing a tensor cannot fail.
//! Not here: what a model needs (`families`), other formats (`super::safetensors`).

mod metadata;
mod reader;
mod tensors;
mod value;
mod writer;

use std::path::Path;
use std::sync::Arc;

pub use metadata::{MAX_KEY_BYTES, MAX_KEYS, MAX_METADATA_BYTES, MAX_STRING_BYTES, MAX_STRINGS, Metadata};
pub use tensors::{MAX_DIMS, MAX_NAME_BYTES, MAX_TENSORS, TensorInfo};
pub use value::{Array, Strings, Value, ValueType};
pub use writer::GgufWriter;

use self::reader::Reader;
use self::tensors::TensorTable;
use super::FileBytes;
use super::mmap::MappedFile;
use crate::error::{ModelError, Section};

/// First four bytes of every GGUF file.
pub const MAGIC: [u8; 4] = *b"GGUF";
/// Alignment of tensor data when the file does not say.
pub const DEFAULT_ALIGNMENT: u32 = 32;
/// Largest alignment accepted; the smallest is 8.
pub const MAX_ALIGNMENT: u32 = 65_536;

const ALIGNMENT_KEY: &str = "general.alignment";
const SPLIT_COUNT_KEY: &str = "split.count";

/// A checked GGUF file; cheap to clone, and every clone shares the same bytes.
#[derive(Debug, Clone)]
pub struct Gguf {
    file: Arc<str>,
    bytes: FileBytes,
    version: u32,
    alignment: u32,
    metadata: Metadata,
    table: Arc<TensorTable>,
    data_start: usize,
}

impl Gguf {
    /// Maps and checks the file at `path`.
    ///
    /// # Errors
    /// The file cannot be mapped, is no GGUF, breaks the format, or uses something unsupported.
    pub fn open(path: &Path) -> Result<Gguf, ModelError> {
        let bytes = FileBytes::from(MappedFile::open(path)?);
        Self::read(path.display().to_string().into(), bytes)
    }

    /// Checks a file that is already in memory. Messages call it `<memory>`.
    ///
    /// # Errors
    /// As [`Gguf::open`], without the mapping.
    pub fn parse(bytes: Vec<u8>) -> Result<Gguf, ModelError> {
        Self::parse_named("<memory>", bytes)
    }

    /// [`Gguf::parse`] with another label for messages.
    ///
    /// # Errors
    /// As [`Gguf::parse`].
    pub fn parse_named(file: &str, bytes: Vec<u8>) -> Result<Gguf, ModelError> {
        Self::read(file.into(), bytes.into())
    }

    fn read(file: Arc<str>, bytes: FileBytes) -> Result<Gguf, ModelError> {
        let mut r = Reader::new(&file, &bytes);
        let version = read_version(&mut r)?;
        let counts_at = r.position();
        let (n_tensors, n_keys) = (r.u64("the number of tensors")?, r.u64("the number of metadata keys")?);
        // Both counts are bounded here, before either drives an allocation.
        let n_tensors = tensors::read_count(&r, counts_at, n_tensors)?;
        let n_keys = metadata::read_count(&r, counts_at.saturating_add(8), n_keys)?;

        let metadata = metadata::read(&mut r, n_keys, &file, &bytes)?;
        check_not_split(&metadata)?;
        let alignment = read_alignment(&metadata)?;
        let table = tensors::read(&mut r, n_tensors, alignment)?;

        // A file without tensors may end before the padding.
        let data_start =
            r.position().checked_next_multiple_of(usize::try_from(alignment).unwrap_or(usize::MAX));
        let data_start = data_start.unwrap_or(usize::MAX).min(bytes.len());
        tensors::check_ranges(&r, &table, bytes.len().saturating_sub(data_start))?;
        Ok(Gguf {
            file: file.clone(),
            bytes: bytes.clone(),
            version,
            alignment,
            metadata,
            table: Arc::new(table),
            data_start,
        })
    }

    /// Label of the file, for messages: its path as given to [`Gguf::open`].
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// All bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> &FileBytes {
        &self.bytes
    }

    /// Bytes in the file.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Version of the format: 2 or 3.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Alignment of tensor data in bytes.
    #[must_use]
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// The key-value pairs.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in the order of the file's table.
    #[must_use]
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.table.tensors
    }

    /// One tensor.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.table.tensors.get(*self.table.by_name.get(name)?)
    }

    /// One tensor that must be there.
    ///
    /// # Errors
    /// [`ModelError::Missing`] with the name.
    pub fn require_tensor(&self, name: &str) -> Result<&TensorInfo, ModelError> {
        self.tensor(name).ok_or_else(|| ModelError::missing(&self.file, Section::TensorTable, name))
    }

    /// The bytes of one tensor, as stored: [`TensorInfo::n_bytes`] of them.
    ///
    /// # Errors
    /// [`ModelError::Missing`] with the name.
    pub fn tensor_bytes(&self, name: &str) -> Result<&[u8], ModelError> {
        Ok(self.bytes.get(self.tensor_range(name)?).expect("every range was checked when the file was read"))
    }

    /// Lets go of the memory behind a tensor's bytes, where they are mapped; reading them brings it back.
    ///
    /// # Errors
    /// As [`Gguf::tensor_bytes`].
    pub fn release_tensor(&self, name: &str) -> Result<(), ModelError> {
        let range = self.tensor_range(name)?;
        if let Some(file) = self.bytes.mapped() {
            file.release(range);
        }
        Ok(())
    }

    /// Whether the file still is what was read.
    ///
    /// # Errors
    /// It was written to; never for bytes that were handed over in memory.
    pub fn check_unchanged(&self) -> Result<(), ModelError> {
        self.bytes.mapped().map_or(Ok(()), MappedFile::check_unchanged)
    }

    fn tensor_range(&self, name: &str) -> Result<std::ops::Range<usize>, ModelError> {
        let tensor = self.require_tensor(name)?;
        let start =
            usize::try_from(tensor.offset).ok().and_then(|offset| self.data_start.checked_add(offset));
        let range = start.and_then(|start| Some(start..start.checked_add(tensor.n_bytes)?));
        Ok(range.expect("every range was checked when the file was read"))
    }

    /// The error for a tensor that breaks a rule of the model, such as its shape.
    #[must_use]
    pub fn invalid_tensor(&self, name: &str, problem: impl Into<String>) -> ModelError {
        ModelError::malformed(&self.file, Section::TensorTable, Some(name), None, problem)
    }
}

fn read_version(r: &mut Reader<'_>) -> Result<u32, ModelError> {
    if r.take(4, "the magic number").ok() != Some(&MAGIC) {
        return Err(r.error(0, "is not a GGUF file: it does not start with the letters GGUF"));
    }
    let at = r.position();
    let version = r.u32("version")?;
    match version {
        2 | 3 => Ok(version),
        1 => Err(r.error(at, "GGUF version 1 is not supported; convert the file again")),
        v if matches!(v.swap_bytes(), 1..=3) => Err(r.error(at, "big-endian GGUF is not supported")),
        v => Err(r.error(at, format!("GGUF version {v} is not supported; 2 and 3 are"))),
    }
}

fn read_alignment(metadata: &Metadata) -> Result<u32, ModelError> {
    match metadata.get(ALIGNMENT_KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        // Exactly this type: readers that take others disagree about where the data starts.
        Some(Value::U32(a)) if a.is_power_of_two() && (8..=MAX_ALIGNMENT).contains(&a) => Ok(a),
        Some(Value::U32(a)) => {
            let problem = format!("must be a power of two from 8 to {MAX_ALIGNMENT}, is {a}");
            Err(metadata.invalid(ALIGNMENT_KEY, problem))
        }
        Some(other) => {
            Err(metadata.invalid(ALIGNMENT_KEY, format!("must be a UINT32, is {}", other.value_type())))
        }
    }
}

fn check_not_split(metadata: &Metadata) -> Result<(), ModelError> {
    match metadata.u64(SPLIT_COUNT_KEY)? {
        None | Some(0 | 1) => Ok(()),
        Some(n) => {
            let problem = format!(
                "the model is split over {n} files, which is not supported; join them with gguf-split"
            );
            Err(metadata.unsupported(SPLIT_COUNT_KEY, problem))
        }
    }
}

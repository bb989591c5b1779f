//! Writes GGUF files.
//!
//! Keys stand in the order they were first set, tensors in the order they were added. What is written is
//! always readable by [`super::Gguf`]; the switches for odd layouts exist so that tests can prove that odd
//! but legal files are read as well.
//!
//! Invariant: the same calls give the same bytes.
//! Not here: choosing types and scales (the quantizer).

#![allow(
    clippy::arithmetic_side_effects,
    reason = "sizes of data this program made itself, already in memory"
)]

use std::io::{self, Write};

use pilotfish_tensor::BlockType;

use super::value::{Value, ValueType};
use super::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC};

/// Builds one GGUF file in memory.
#[derive(Debug, Clone)]
pub struct GgufWriter {
    version: u32,
    alignment: u32,
    pairs: Vec<(String, Vec<u8>)>,
    tensors: Vec<Tensor>,
    reversed_data: bool,
    gap: usize,
}

#[derive(Debug, Clone)]
struct Tensor {
    name: String,
    dims: Vec<usize>,
    block_type: BlockType,
    bytes: Vec<u8>,
}

impl Default for GgufWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl GgufWriter {
    /// An empty file of version 3 with the default alignment.
    #[must_use]
    pub fn new() -> GgufWriter {
        GgufWriter {
            version: 3,
            alignment: DEFAULT_ALIGNMENT,
            pairs: Vec::new(),
            tensors: Vec::new(),
            reversed_data: false,
            gap: 0,
        }
    }

    /// Version 2 or 3.
    pub fn version(&mut self, version: u32) -> &mut Self {
        self.version = version;
        self
    }

    /// Alignment of tensor data; also sets `general.alignment`.
    ///
    /// # Panics
    /// When it is zero.
    pub fn alignment(&mut self, alignment: u32) -> &mut Self {
        assert!(alignment > 0, "alignment must not be zero");
        self.alignment = alignment;
        self.u32(ALIGNMENT_KEY, alignment)
    }

    /// Lays the tensors' bytes in the opposite order of the table. Legal, and rare.
    pub fn reversed_data(&mut self) -> &mut Self {
        self.reversed_data = true;
        self
    }

    /// Leaves this many units of alignment unused before each tensor. Legal, and rare.
    pub fn gap(&mut self, units: usize) -> &mut Self {
        self.gap = units;
        self
    }

    /// Sets a UINT32.
    pub fn u32(&mut self, key: &str, value: u32) -> &mut Self {
        self.value(key, Value::U32(value))
    }

    /// Sets a FLOAT32.
    pub fn f32(&mut self, key: &str, value: f32) -> &mut Self {
        self.value(key, Value::F32(value))
    }

    /// Sets a BOOL.
    pub fn bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.value(key, Value::Bool(value))
    }

    /// Sets a STRING.
    pub fn str(&mut self, key: &str, value: &str) -> &mut Self {
        self.value(key, Value::Str(value))
    }

    /// Sets an array of STRING.
    pub fn strings<S: AsRef<str>>(&mut self, key: &str, values: &[S]) -> &mut Self {
        let mut out = array_head(ValueType::Str, values.len());
        values.iter().for_each(|value| put_str(&mut out, value.as_ref()));
        self.set(key, out)
    }

    /// Sets an array of INT32.
    pub fn i32s(&mut self, key: &str, values: &[i32]) -> &mut Self {
        let mut out = array_head(ValueType::I32, values.len());
        values.iter().for_each(|value| out.extend(value.to_le_bytes()));
        self.set(key, out)
    }

    /// Sets an array of FLOAT32.
    pub fn f32s(&mut self, key: &str, values: &[f32]) -> &mut Self {
        let mut out = array_head(ValueType::F32, values.len());
        values.iter().for_each(|value| out.extend(value.to_le_bytes()));
        self.set(key, out)
    }

    /// Sets an array of any type but STRING, all elements of `element`.
    ///
    /// # Panics
    /// When an element has another type.
    pub fn array(&mut self, key: &str, element: ValueType, values: &[Value<'_>]) -> &mut Self {
        let mut out = array_head(element, values.len());
        for value in values {
            assert_eq!(value.value_type(), element, "element of array `{key}`");
            put_value(&mut out, value);
        }
        self.set(key, out)
    }

    /// Sets any value, for instance one read from another file.
    pub fn value(&mut self, key: &str, value: Value<'_>) -> &mut Self {
        let mut out = value.value_type().id().to_le_bytes().to_vec();
        put_value(&mut out, &value);
        self.set(key, out)
    }

    /// Removes a key, if it is there.
    pub fn remove(&mut self, key: &str) -> &mut Self {
        self.pairs.retain(|(k, _)| k != key);
        self
    }

    /// Puts the keys in another order: `sort` gets them by name.
    pub fn reorder_keys(&mut self, sort: impl FnOnce(&mut Vec<&str>)) -> &mut Self {
        let pairs = self.pairs.clone();
        let mut keys: Vec<&str> = pairs.iter().map(|(key, _)| key.as_str()).collect();
        sort(&mut keys);
        self.pairs.sort_by_key(|(key, _)| keys.iter().position(|k| k == key));
        self
    }

    /// Adds a tensor: `dims` in GGML order, `bytes` as stored.
    ///
    /// # Panics
    /// When `bytes` has not the length that the shape and the type need.
    pub fn tensor(&mut self, name: &str, dims: &[usize], block_type: BlockType, bytes: Vec<u8>) -> &mut Self {
        let (row, rows) = dims.split_first().expect("a tensor has at least one dimension");
        let row_bytes = block_type.row_bytes(*row).expect("rows are whole blocks");
        assert_eq!(row_bytes * rows.iter().product::<usize>(), bytes.len(), "bytes of tensor `{name}`");
        self.tensors.push(Tensor { name: name.to_owned(), dims: dims.to_vec(), block_type, bytes });
        self
    }

    /// Reverses the order of the tensor table; the data follows it unless [`GgufWriter::reversed_data`].
    pub fn reverse_tensors(&mut self) -> &mut Self {
        self.tensors.reverse();
        self
    }

    /// The whole file.
    #[must_use]
    pub fn finish(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_to(&mut out).expect("writing to memory cannot fail");
        out
    }

    /// Writes the whole file.
    ///
    /// # Errors
    /// Whatever the writer reports.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let alignment = self.alignment as usize;
        let mut order: Vec<usize> = (0..self.tensors.len()).collect();
        if self.reversed_data {
            order.reverse();
        }
        let mut offsets = vec![0; self.tensors.len()];
        let mut end = 0;
        for &index in &order {
            let start = (end + self.gap * alignment).next_multiple_of(alignment);
            if let (Some(offset), Some(tensor)) = (offsets.get_mut(index), self.tensors.get(index)) {
                *offset = start;
                end = start + tensor.bytes.len();
            }
        }

        let mut head = MAGIC.to_vec();
        head.extend(self.version.to_le_bytes());
        head.extend((self.tensors.len() as u64).to_le_bytes());
        head.extend((self.pairs.len() as u64).to_le_bytes());
        for (key, value) in &self.pairs {
            put_str(&mut head, key);
            head.extend(value);
        }
        for (tensor, offset) in self.tensors.iter().zip(&offsets) {
            put_str(&mut head, &tensor.name);
            head.extend(u32::try_from(tensor.dims.len()).unwrap_or(u32::MAX).to_le_bytes());
            tensor.dims.iter().for_each(|dim| head.extend((*dim as u64).to_le_bytes()));
            head.extend(tensor.block_type.ggml_id().to_le_bytes());
            head.extend((*offset as u64).to_le_bytes());
        }
        head.resize(head.len().next_multiple_of(alignment), 0);
        out.write_all(&head)?;

        let mut written = 0;
        for index in order {
            if let (Some(offset), Some(tensor)) = (offsets.get(index), self.tensors.get(index)) {
                out.write_all(&vec![0; offset - written])?;
                out.write_all(&tensor.bytes)?;
                written = offset + tensor.bytes.len();
            }
        }
        Ok(())
    }

    fn set(&mut self, key: &str, encoded: Vec<u8>) -> &mut Self {
        match self.pairs.iter_mut().find(|(k, _)| k == key) {
            Some((_, value)) => *value = encoded,
            None => self.pairs.push((key.to_owned(), encoded)),
        }
        self
    }
}

fn array_head(element: ValueType, len: usize) -> Vec<u8> {
    let mut out = ValueType::Array.id().to_le_bytes().to_vec();
    out.extend(element.id().to_le_bytes());
    out.extend((len as u64).to_le_bytes());
    out
}

fn put_str(out: &mut Vec<u8>, value: &str) {
    out.extend((value.len() as u64).to_le_bytes());
    out.extend(value.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::U8(v) => out.push(*v),
        Value::I8(v) => out.extend(v.to_le_bytes()),
        Value::U16(v) => out.extend(v.to_le_bytes()),
        Value::I16(v) => out.extend(v.to_le_bytes()),
        Value::U32(v) => out.extend(v.to_le_bytes()),
        Value::I32(v) => out.extend(v.to_le_bytes()),
        Value::F32(v) => out.extend(v.to_le_bytes()),
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::Str(v) => put_str(out, v),
        Value::U64(v) => out.extend(v.to_le_bytes()),
        Value::I64(v) => out.extend(v.to_le_bytes()),
        Value::F64(v) => out.extend(v.to_le_bytes()),
        Value::Array(array) => {
            out.extend(array.element_type().id().to_le_bytes());
            out.extend((array.len() as u64).to_le_bytes());
            array.iter().for_each(|element| put_value(out, &element));
        }
    }
}

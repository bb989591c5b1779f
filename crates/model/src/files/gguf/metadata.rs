//! The key-value pairs of a GGUF file, with typed access.
//!
//! Numbers are copied, strings and arrays stay where they are in the file and are handed out as views; a
//! vocabulary of half a million tokens costs one table of 4-byte positions, not half a million allocations.
//! Accessors are strict: a key with the wrong type is an error, never a conversion that may surprise.
//!
//! Invariant: every key is unique, non-empty UTF-8; every string was valid UTF-8 when the file was read.
//! Not here: what a key means for a model (`families`, `text`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::reader::Reader;
use super::value::{Array, Strings, Value, ValueType};
use crate::error::{ModelError, Section};
use crate::files::FileBytes;

/// Most key-value pairs a file may have.
pub const MAX_KEYS: u64 = 65_536;
/// Longest key, as in the GGUF specification.
pub const MAX_KEY_BYTES: u64 = 65_535;
/// Longest string value.
pub const MAX_STRING_BYTES: u64 = 16 << 20;
/// Most strings in one array; the largest vocabularies in use have a quarter of a million.
pub const MAX_STRINGS: u64 = 4 << 20;
/// Most bytes of header and key-value pairs together. It also keeps string positions in 32 bits.
pub const MAX_METADATA_BYTES: usize = 256 << 20;

/// Smallest key-value pair: length, one byte of key, type, one byte of value.
const MIN_PAIR_BYTES: u64 = 14;

/// Key-value pairs of one file, in file order; cheap to clone.
#[derive(Debug, Clone)]
pub struct Metadata(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: Arc<str>,
    bytes: FileBytes,
    pairs: Vec<(Arc<str>, Stored)>,
    by_key: HashMap<Arc<str>, usize>,
}

/// A value as it is kept: numbers by value, the rest as positions in the file.
#[derive(Debug)]
enum Stored {
    Number(Value<'static>),
    Str { start: usize, len: usize },
    Array(StoredArray),
}

#[derive(Debug)]
struct StoredArray {
    element: ValueType,
    len: usize,
    start: usize,
    n_bytes: usize,
    /// For strings only: position of each length field, counted from `start`.
    starts: Box<[u32]>,
}

impl Metadata {
    /// Label of the file, for messages.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.0.file
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.pairs.len()
    }

    /// True when the file has no keys at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.pairs.is_empty()
    }

    /// Keys and values in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.0.pairs.iter().map(|(key, stored)| (&**key, self.view(stored)))
    }

    /// True when the key is present, with whatever type.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.0.by_key.contains_key(key)
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        let index = *self.0.by_key.get(key)?;
        self.0.pairs.get(index).map(|(_, stored)| self.view(stored))
    }

    fn view<'a>(&'a self, stored: &'a Stored) -> Value<'a> {
        let piece = |start: usize, len: usize| {
            let end = start.saturating_add(len);
            self.0.bytes.get(start..end).unwrap_or_default()
        };
        match stored {
            Stored::Number(value) => *value,
            // Checked when the file was read; a file rewritten since may read as empty, but never panics.
            Stored::Str { start, len } => {
                Value::Str(std::str::from_utf8(piece(*start, *len)).unwrap_or_default())
            }
            Stored::Array(a) => {
                Value::Array(Array::new(a.element, a.len, piece(a.start, a.n_bytes), &a.starts))
            }
        }
    }
}

/// Typed access. `Ok(None)` means that the key is absent; the `require_` forms make that an error.
///
/// # Errors
/// Every accessor fails, naming the key, when the value has another type or does not fit.
impl Metadata {
    /// An integer of any width from 0 to 2³²-1.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, ModelError> {
        match self.u64(key)? {
            None => Ok(None),
            Some(value) => match u32::try_from(value) {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(self.invalid(key, "must be below 2^32")),
            },
        }
    }

    /// A non-negative integer of any width.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, ModelError> {
        let signed = |value: i64| {
            u64::try_from(value).map_err(|_| self.invalid(key, "must not be negative")).map(Some)
        };
        match self.get(key) {
            None => Ok(None),
            Some(Value::U8(value)) => Ok(Some(value.into())),
            Some(Value::U16(value)) => Ok(Some(value.into())),
            Some(Value::U32(value)) => Ok(Some(value.into())),
            Some(Value::U64(value)) => Ok(Some(value)),
            Some(Value::I8(value)) => signed(value.into()),
            Some(Value::I16(value)) => signed(value.into()),
            Some(Value::I32(value)) => signed(value.into()),
            Some(Value::I64(value)) => signed(value),
            Some(other) => Err(self.mistyped(key, "an integer", other)),
        }
    }

    /// A FLOAT32, finite or not.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, ModelError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::F32(value)) => Ok(Some(value)),
            Some(other) => Err(self.mistyped(key, "a FLOAT32", other)),
        }
    }

    /// A BOOL.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, ModelError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(other) => Err(self.mistyped(key, "a BOOL", other)),
        }
    }

    /// A STRING.
    pub fn str(&self, key: &str) -> Result<Option<&str>, ModelError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Str(value)) => Ok(Some(value)),
            Some(other) => Err(self.mistyped(key, "a STRING", other)),
        }
    }

    /// An array of STRING.
    pub fn strings(&self, key: &str) -> Result<Option<Strings<'_>>, ModelError> {
        self.array(key, "STRING", |array| array.strings())
    }

    /// An array of FLOAT32.
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>, ModelError> {
        self.array(key, "FLOAT32", |array| array.f32s())
    }

    /// An array of INT32, or of UINT32 below 2³¹.
    pub fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>, ModelError> {
        self.array(key, "INT32", |array| array.i32s())
    }

    /// An array of UINT32, or of INT32 that are not negative.
    pub fn u32s(&self, key: &str) -> Result<Option<Vec<u32>>, ModelError> {
        self.array(key, "UINT32", |array| array.u32s())
    }

    fn array<'a, T>(
        &'a self,
        key: &str,
        element: &str,
        read: impl Fn(Array<'a>) -> Option<T>,
    ) -> Result<Option<T>, ModelError> {
        let wanted = format!("an array of {element}");
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(array)) => match read(array) {
                Some(out) => Ok(Some(out)),
                None if matches!(array.element_type(), ValueType::I32 | ValueType::U32) => {
                    Err(self.invalid(key, format!("must be {wanted}, and every element must fit")))
                }
                None => {
                    let (n, found) = (array.len(), array.element_type());
                    Err(self.invalid(key, format!("must be {wanted}, is an array of {n} {found}")))
                }
            },
            Some(other) => Err(self.mistyped(key, &wanted, other)),
        }
    }

    /// [`Metadata::u32`] of a key that must be there.
    pub fn require_u32(&self, key: &str) -> Result<u32, ModelError> {
        self.u32(key)?.ok_or_else(|| self.missing(key))
    }

    /// [`Metadata::u64`] of a key that must be there.
    pub fn require_u64(&self, key: &str) -> Result<u64, ModelError> {
        self.u64(key)?.ok_or_else(|| self.missing(key))
    }

    /// [`Metadata::f32`] of a key that must be there.
    pub fn require_f32(&self, key: &str) -> Result<f32, ModelError> {
        self.f32(key)?.ok_or_else(|| self.missing(key))
    }

    /// [`Metadata::bool`] of a key that must be there.
    pub fn require_bool(&self, key: &str) -> Result<bool, ModelError> {
        self.bool(key)?.ok_or_else(|| self.missing(key))
    }

    /// [`Metadata::str`] of a key that must be there.
    pub fn require_str(&self, key: &str) -> Result<&str, ModelError> {
        self.str(key)?.ok_or_else(|| self.missing(key))
    }

    /// [`Metadata::strings`] of a key that must be there.
    pub fn require_strings(&self, key: &str) -> Result<Strings<'_>, ModelError> {
        self.strings(key)?.ok_or_else(|| self.missing(key))
    }

    /// [`Metadata::f32s`] of a key that must be there.
    pub fn require_f32s(&self, key: &str) -> Result<Vec<f32>, ModelError> {
        self.f32s(key)?.ok_or_else(|| self.missing(key))
    }

    /// [`Metadata::i32s`] of a key that must be there.
    pub fn require_i32s(&self, key: &str) -> Result<Vec<i32>, ModelError> {
        self.i32s(key)?.ok_or_else(|| self.missing(key))
    }

    /// The error for a key that must be there and is not.
    #[must_use]
    pub fn missing(&self, key: &str) -> ModelError {
        ModelError::missing(self.file(), Section::Metadata, key)
    }

    /// The error for a key whose value breaks a rule.
    #[must_use]
    pub fn invalid(&self, key: &str, problem: impl Into<String>) -> ModelError {
        ModelError::malformed(self.file(), Section::Metadata, Some(key), None, problem)
    }

    /// The error for a key whose value is beyond this engine.
    #[must_use]
    pub fn unsupported(&self, key: &str, problem: impl Into<String>) -> ModelError {
        ModelError::unsupported(self.file(), Section::Metadata, Some(key), problem)
    }

    fn mistyped(&self, key: &str, wanted: &str, found: Value<'_>) -> ModelError {
        self.invalid(key, format!("must be {wanted}, is {}", found.value_type()))
    }
}

/// Reads `n_pairs` pairs and leaves the reader behind them.
pub(super) fn read(
    r: &mut Reader<'_>,
    n_pairs: usize,
    file: &Arc<str>,
    bytes: &FileBytes,
) -> Result<Metadata, ModelError> {
    r.section = Section::Metadata;
    let mut pairs = Vec::with_capacity(n_pairs);
    let mut by_key = HashMap::with_capacity(n_pairs);
    for index in 0..n_pairs {
        r.name = None;
        let at = r.position();
        let key = r.string(MAX_KEY_BYTES, "key")?;
        if key.is_empty() {
            return Err(r.error(at, format!("key {index} is empty")));
        }
        r.name = Some(key);
        let stored = read_value(r)?;
        if r.position() > MAX_METADATA_BYTES {
            let problem = format!("the metadata is larger than the limit of {MAX_METADATA_BYTES} bytes");
            return Err(r.error(at, problem));
        }
        let shared: Arc<str> = key.into();
        match by_key.entry(shared.clone()) {
            Entry::Occupied(_) => return Err(r.error(at, "the key stands in the file twice")),
            Entry::Vacant(slot) => slot.insert(index),
        };
        pairs.push((shared, stored));
    }
    r.name = None;
    Ok(Metadata(Arc::new(Inner { file: file.clone(), bytes: bytes.clone(), pairs, by_key })))
}

/// Bound for the header's count of pairs: each takes at least this many bytes.
pub(super) fn read_count(r: &Reader<'_>, at: usize, n_pairs: u64) -> Result<usize, ModelError> {
    r.check_count(at, n_pairs, MIN_PAIR_BYTES, MAX_KEYS, "the number of metadata keys")
}

fn read_value(r: &mut Reader<'_>) -> Result<Stored, ModelError> {
    let value_type = read_type(r, "value type")?;
    Ok(match value_type {
        ValueType::Str => {
            let len = r.string(MAX_STRING_BYTES, "string value")?.len();
            Stored::Str { start: r.position().saturating_sub(len), len }
        }
        ValueType::Array => Stored::Array(read_array(r)?),
        ValueType::U8 => Stored::Number(Value::U8(r.u8("value")?)),
        ValueType::I8 => Stored::Number(Value::I8(r.u8("value")?.cast_signed())),
        ValueType::U16 => Stored::Number(Value::U16(r.u16("value")?)),
        ValueType::I16 => Stored::Number(Value::I16(r.u16("value")?.cast_signed())),
        ValueType::U32 => Stored::Number(Value::U32(r.u32("value")?)),
        ValueType::I32 => Stored::Number(Value::I32(r.u32("value")?.cast_signed())),
        ValueType::U64 => Stored::Number(Value::U64(r.u64("value")?)),
        ValueType::I64 => Stored::Number(Value::I64(r.u64("value")?.cast_signed())),
        ValueType::F32 => Stored::Number(Value::F32(f32::from_bits(r.u32("value")?))),
        ValueType::F64 => Stored::Number(Value::F64(f64::from_bits(r.u64("value")?))),
        ValueType::Bool => {
            let at = r.position();
            match r.u8("value")? {
                0 => Stored::Number(Value::Bool(false)),
                1 => Stored::Number(Value::Bool(true)),
                other => return Err(r.error(at, format!("a BOOL must be 0 or 1, is {other}"))),
            }
        }
    })
}

fn read_type(r: &mut Reader<'_>, what: &str) -> Result<ValueType, ModelError> {
    let at = r.position();
    let id = r.u32(what)?;
    ValueType::from_id(id).ok_or_else(|| r.error(at, format!("{what} {id} is not a GGUF value type")))
}

fn read_array(r: &mut Reader<'_>) -> Result<StoredArray, ModelError> {
    let at = r.position();
    let element = read_type(r, "array element type")?;
    let (min_bytes, limit) = match element {
        // Refused rather than followed: no model needs them, and depth is an attack on the stack.
        ValueType::Array => return Err(r.error(at, "arrays of arrays are not supported")),
        ValueType::Str => (8, MAX_STRINGS),
        number => (number.size() as u64, u64::MAX),
    };
    let len = r.count(min_bytes, limit, "array length")?;
    let start = r.position();
    if element != ValueType::Str {
        let n_bytes = (len as u64).saturating_mul(min_bytes);
        let bytes = r.take(n_bytes, "array")?;
        if element == ValueType::Bool && bytes.iter().any(|b| *b > 1) {
            return Err(r.error(start, "a BOOL in the array is neither 0 nor 1"));
        }
        return Ok(StoredArray { element, len, start, n_bytes: bytes.len(), starts: Box::default() });
    }
    let mut starts = Vec::with_capacity(len);
    for _ in 0..len {
        let at = r.position();
        match u32::try_from(at.saturating_sub(start)) {
            Ok(offset) if at <= MAX_METADATA_BYTES => starts.push(offset),
            _ => return Err(r.error(at, "the array makes the metadata larger than its limit")),
        }
        r.string(MAX_STRING_BYTES, "string in an array")?;
    }
    let n_bytes = r.position().saturating_sub(start);
    Ok(StoredArray { element, len, start, n_bytes, starts: starts.into() })
}

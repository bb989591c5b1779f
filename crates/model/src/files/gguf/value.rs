//! One metadata value, as a small view that borrows strings and arrays from the file.
//!
//! Invariant: views are `Copy`, and no accessor panics for any index or any file content.
//! Not here: keys and typed access with errors (`metadata`).

use std::fmt;

/// Type of a metadata value or of the elements of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// 8 bits, unsigned.
    U8,
    /// 8 bits, signed.
    I8,
    /// 16 bits, unsigned.
    U16,
    /// 16 bits, signed.
    I16,
    /// 32 bits, unsigned.
    U32,
    /// 32 bits, signed.
    I32,
    /// IEEE single.
    F32,
    /// One byte, 0 or 1.
    Bool,
    /// UTF-8 with a 64-bit length in front.
    Str,
    /// Element type, 64-bit count, elements.
    Array,
    /// 64 bits, unsigned.
    U64,
    /// 64 bits, signed.
    I64,
    /// IEEE double.
    F64,
}

impl ValueType {
    /// In the order of their ids in the file, from 0.
    pub const ALL: [ValueType; 13] = [
        ValueType::U8,
        ValueType::I8,
        ValueType::U16,
        ValueType::I16,
        ValueType::U32,
        ValueType::I32,
        ValueType::F32,
        ValueType::Bool,
        ValueType::Str,
        ValueType::Array,
        ValueType::U64,
        ValueType::I64,
        ValueType::F64,
    ];

    /// The type with this id in the file.
    #[must_use]
    pub fn from_id(id: u32) -> Option<ValueType> {
        Self::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// The id in the file.
    #[must_use]
    pub fn id(self) -> u32 {
        self as u32
    }

    /// Bytes of one number of this type; 0 for strings and arrays, which have no fixed size.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => 1,
            ValueType::U16 | ValueType::I16 => 2,
            ValueType::U32 | ValueType::I32 | ValueType::F32 => 4,
            ValueType::U64 | ValueType::I64 | ValueType::F64 => 8,
            ValueType::Str | ValueType::Array => 0,
        }
    }

    /// Name as in the GGUF specification.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ValueType::U8 => "UINT8",
            ValueType::I8 => "INT8",
            ValueType::U16 => "UINT16",
            ValueType::I16 => "INT16",
            ValueType::U32 => "UINT32",
            ValueType::I32 => "INT32",
            ValueType::F32 => "FLOAT32",
            ValueType::Bool => "BOOL",
            ValueType::Str => "STRING",
            ValueType::Array => "ARRAY",
            ValueType::U64 => "UINT64",
            ValueType::I64 => "INT64",
            ValueType::F64 => "FLOAT64",
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A metadata value; strings and arrays borrow from the file.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "each variant is the type of its name")]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(&'a str),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value<'_> {
    /// Type of this value.
    #[must_use]
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::Str(_) => ValueType::Str,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }
}

/// One line: numbers as they are, strings quoted and escaped, arrays as type and length.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U8(v) => write!(f, "{v}"),
            Value::I8(v) => write!(f, "{v}"),
            Value::U16(v) => write!(f, "{v}"),
            Value::I16(v) => write!(f, "{v}"),
            Value::U32(v) => write!(f, "{v}"),
            Value::I32(v) => write!(f, "{v}"),
            Value::F32(v) => write!(f, "{v}"),
            Value::Bool(v) => write!(f, "{v}"),
            Value::Str(v) => write!(f, "\"{}\"", v.escape_debug()),
            Value::Array(v) => write!(f, "[{}; {}]", v.element_type(), v.len()),
            Value::U64(v) => write!(f, "{v}"),
            Value::I64(v) => write!(f, "{v}"),
            Value::F64(v) => write!(f, "{v}"),
        }
    }
}

/// An array value: numbers or strings where they lie in the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Array<'a> {
    element: ValueType,
    len: usize,
    bytes: &'a [u8],
    starts: &'a [u32],
}

impl<'a> Array<'a> {
    /// `starts` has one position in `bytes` for each string and is empty for numbers.
    pub(super) fn new(element: ValueType, len: usize, bytes: &'a [u8], starts: &'a [u32]) -> Self {
        Array { element, len, bytes, starts }
    }

    /// Type of the elements.
    #[must_use]
    pub fn element_type(&self) -> ValueType {
        self.element
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One element.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        if self.element == ValueType::Str {
            return self.strings()?.get(index).map(Value::Str);
        }
        let size = self.element.size();
        let start = index.checked_mul(size)?;
        let bytes = self.bytes.get(start..start.checked_add(size)?)?;
        let bits = bytes.iter().rev().fold(0, |bits, b| (bits << 8) | u64::from(*b));
        number(self.element, bits)
    }

    /// All elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let array = *self;
        (0..array.len).filter_map(move |index| array.get(index))
    }

    /// The elements as strings; `None` when they are something else.
    #[must_use]
    pub fn strings(&self) -> Option<Strings<'a>> {
        (self.element == ValueType::Str).then_some(Strings { bytes: self.bytes, starts: self.starts })
    }

    /// The elements as FLOAT32; `None` when they are something else.
    #[must_use]
    pub fn f32s(&self) -> Option<Vec<f32>> {
        (self.element == ValueType::F32).then(|| self.words().map(f32::from_bits).collect())
    }

    /// INT32, or UINT32 below 2³¹; `None` when they are something else.
    #[must_use]
    pub fn i32s(&self) -> Option<Vec<i32>> {
        match self.element {
            ValueType::I32 => Some(self.words().map(u32::cast_signed).collect()),
            ValueType::U32 => self.words().map(|v| i32::try_from(v).ok()).collect(),
            _ => None,
        }
    }

    /// UINT32, or INT32 that are not negative; `None` when they are something else.
    #[must_use]
    pub fn u32s(&self) -> Option<Vec<u32>> {
        match self.element {
            ValueType::U32 => Some(self.words().collect()),
            ValueType::I32 => self.words().map(|v| u32::try_from(v.cast_signed()).ok()).collect(),
            _ => None,
        }
    }

    fn words(&self) -> impl Iterator<Item = u32> {
        let (words, _) = self.bytes.as_chunks::<4>();
        words.iter().map(|word| u32::from_le_bytes(*word))
    }
}

/// Turns little-endian bits of the right width into a number; `None` for strings and arrays.
#[allow(clippy::cast_possible_truncation, reason = "`bits` was read from exactly the bytes of the type")]
fn number(value_type: ValueType, bits: u64) -> Option<Value<'static>> {
    Some(match value_type {
        ValueType::U8 => Value::U8(bits as u8),
        ValueType::I8 => Value::I8(bits as i8),
        ValueType::U16 => Value::U16(bits as u16),
        ValueType::I16 => Value::I16(bits as i16),
        ValueType::U32 => Value::U32(bits as u32),
        ValueType::I32 => Value::I32(bits as i32),
        ValueType::F32 => Value::F32(f32::from_bits(bits as u32)),
        ValueType::Bool => Value::Bool(bits != 0),
        ValueType::U64 => Value::U64(bits),
        ValueType::I64 => Value::I64(bits as i64),
        ValueType::F64 => Value::F64(f64::from_bits(bits)),
        ValueType::Str | ValueType::Array => return None,
    })
}

/// An array of strings, with constant-time access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strings<'a> {
    bytes: &'a [u8],
    starts: &'a [u32],
}

impl<'a> Strings<'a> {
    /// Number of strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// One string.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&'a str> {
        let start = usize::try_from(*self.starts.get(index)?).ok()?;
        let (len, text) = self.bytes.get(start..)?.split_first_chunk::<8>()?;
        let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
        std::str::from_utf8(text.get(..len)?).ok()
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a str> + use<'a> {
        let strings = *self;
        // They were checked when the file was read; one rewritten since may read as empty.
        (0..strings.len()).map(move |index| strings.get(index).unwrap_or_default())
    }
}

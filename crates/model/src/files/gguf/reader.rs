//! A bounds-checked cursor over the bytes of a GGUF file.
//!
//! Every length and count passes through here, is compared with the bytes that are left, and only then used.
//!
//! Invariant: the position never passes the end; a failed read leaves an error that names where and in what.
//! Not here: what is read (`metadata`, `tensors`).

use crate::error::{ModelError, Section};

/// Cursor with the words for its error messages: file, section, and the key or tensor being read.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub(super) file: &'a str,
    pub(super) section: Section,
    pub(super) name: Option<&'a str>,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a str, bytes: &'a [u8]) -> Self {
        Reader { file, section: Section::Header, name: None, bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// An error about what starts at byte `at`.
    pub(super) fn error(&self, at: usize, problem: impl Into<String>) -> ModelError {
        ModelError::malformed(self.file, self.section, self.name, u64::try_from(at).ok(), problem)
    }

    /// The next `n` bytes, for `what`.
    pub(super) fn take(&mut self, n: u64, what: &str) -> Result<&'a [u8], ModelError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let piece = usize::try_from(n).ok().and_then(|n| rest.get(..n));
        let Some(piece) = piece else {
            let problem = format!("{what} needs {n} bytes, but only {} are left in the file", rest.len());
            return Err(self.error(self.at, problem));
        };
        self.at = self.at.saturating_add(piece.len());
        Ok(piece)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], ModelError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, what)?);
        Ok(out)
    }

    pub(super) fn u8(&mut self, what: &str) -> Result<u8, ModelError> {
        self.array(what).map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self, what: &str) -> Result<u16, ModelError> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, ModelError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, ModelError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A count of things that take at least `min_bytes` each, at most `limit` of them.
    pub(super) fn count(&mut self, min_bytes: u64, limit: u64, what: &str) -> Result<usize, ModelError> {
        let at = self.at;
        let n = self.u64(what)?;
        self.check_count(at, n, min_bytes, limit, what)
    }

    /// The check behind [`Reader::count`], for a count that stands before other fields.
    pub(super) fn check_count(
        &self,
        at: usize,
        n: u64,
        min_bytes: u64,
        limit: u64,
        what: &str,
    ) -> Result<usize, ModelError> {
        if n > limit {
            return Err(self.error(at, format!("{what} is {n}, the limit is {limit}")));
        }
        let left = self.bytes.len().saturating_sub(self.at);
        let needed = n.checked_mul(min_bytes).and_then(|needed| usize::try_from(needed).ok());
        match (needed, usize::try_from(n)) {
            (Some(needed), Ok(n)) if needed <= left => Ok(n),
            _ => Err(self.error(at, format!("{what} is {n}, which cannot fit in the {left} bytes left"))),
        }
    }

    /// A length-prefixed UTF-8 string of at most `limit` bytes.
    pub(super) fn string(&mut self, limit: u64, what: &str) -> Result<&'a str, ModelError> {
        let at = self.at;
        let n = self.u64(what)?;
        if n > limit {
            return Err(self.error(at, format!("{what} has {n} bytes, the limit is {limit}")));
        }
        let start = self.at;
        let bytes = self.take(n, what)?;
        std::str::from_utf8(bytes).map_err(|e| {
            self.error(start.saturating_add(e.valid_up_to()), format!("{what} is not valid UTF-8"))
        })
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a failing test may panic")]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_counts_are_checked_before_use() {
        let mut bytes = u64::MAX.to_le_bytes().to_vec();
        bytes.extend(3u64.to_le_bytes());
        bytes.extend(b"ab");
        let mut r = Reader::new("f", &bytes);
        let e = r.string(u64::MAX, "a name").unwrap_err().to_string();
        assert_eq!(
            e,
            format!("f: header (byte 8): a name needs {} bytes, but only 10 are left in the file", u64::MAX)
        );
        let e = r.string(100, "a name").unwrap_err().to_string();
        assert_eq!(e, "f: header (byte 16): a name needs 3 bytes, but only 2 are left in the file");

        let mut r = Reader::new("f", &bytes);
        assert!(
            r.count(8, u64::MAX, "n").unwrap_err().to_string().contains("cannot fit in the 10 bytes left")
        );
        assert!(r.count(1, 2, "n").unwrap_err().to_string().contains("the limit is 2"));
        let mut r = Reader::new("f", &bytes[8..]);
        assert!(r.count(1, 3, "n").unwrap_err().to_string().contains("cannot fit"));
    }

    #[test]
    fn a_bad_string_names_the_bad_byte() {
        let mut bytes = 4u64.to_le_bytes().to_vec();
        bytes.extend(b"ab\xff!");
        let e = Reader::new("f", &bytes).string(10, "value").unwrap_err().to_string();
        assert_eq!(e, "f: header (byte 10): value is not valid UTF-8");
    }
}

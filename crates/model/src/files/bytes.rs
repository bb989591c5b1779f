//! Bytes of one model file, mapped or owned, shared by everything that was read from them.
//!
//! Invariant: the bytes never move while a clone is alive, so views may be stored as ranges.
//! Not here: opening (`mmap`), meaning (`gguf`, `safetensors`).

use std::ops::Deref;
use std::sync::Arc;

use super::mmap::MappedFile;

/// Cheaply cloned, read-only file content.
#[derive(Debug, Clone)]
pub struct FileBytes(Arc<Content>);

#[derive(Debug)]
enum Content {
    Mapped(MappedFile),
    Owned(Vec<u8>),
}

impl From<MappedFile> for FileBytes {
    fn from(file: MappedFile) -> Self {
        FileBytes(Arc::new(Content::Mapped(file)))
    }
}

impl From<Vec<u8>> for FileBytes {
    fn from(bytes: Vec<u8>) -> Self {
        FileBytes(Arc::new(Content::Owned(bytes)))
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &*self.0 {
            Content::Mapped(file) => file,
            Content::Owned(bytes) => bytes,
        }
    }
}

impl FileBytes {
    /// The map behind these bytes; `None` for bytes that were handed over in memory.
    #[must_use]
    pub fn mapped(&self) -> Option<&MappedFile> {
        match &*self.0 {
            Content::Mapped(file) => Some(file),
            Content::Owned(_) => None,
        }
    }
}

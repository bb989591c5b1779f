//! A regular file mapped read-only into memory.
//!
//! Weights are read where they lie, so a model costs no copy and pages that are not used can be dropped. The
//! price: whoever truncates the file while it is mapped ends this process with a bus error, loudly, and no
//! handler hides that. Size and time are recorded at opening so that [`MappedFile::check_unchanged`] can tell when
//! it was rewritten in place; a file that was deleted or replaced by another stays whole here.
//!
//! Invariant: only regular, non-empty files are mapped, and nothing here writes.
//! Not here: what the bytes mean (`gguf`, `safetensors`).

#![allow(
    unsafe_code,
    reason = "mapping a file is unsafe by nature; this is the only such place in the crate"
)]

use std::fs::{self, File};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use memmap2::Mmap;

use crate::error::ModelError;

/// A mapped file with the identity it had when it was opened.
#[derive(Debug)]
pub struct MappedFile {
    map: Mmap,
    file: File,
    path: PathBuf,
    modified: Option<SystemTime>,
}

impl MappedFile {
    /// Maps `path`. Links are followed, because model caches are made of them; what they lead to must be a
    /// regular file.
    ///
    /// # Errors
    /// Missing or unreadable file, directory or device, empty file, or no room in the address space.
    pub fn open(path: &Path) -> Result<MappedFile, ModelError> {
        // Looked at before opening, because merely opening a named pipe would wait for a writer.
        check_regular(path, &fs::metadata(path).map_err(|e| ModelError::io(path, e))?)?;
        let file = File::open(path).map_err(|e| ModelError::io(path, e))?;
        // And again on the handle, which is the thing that gets mapped.
        let seen = file.metadata().map_err(|e| ModelError::io(path, e))?;
        check_regular(path, &seen)?;
        // SAFETY: the map is private to this value and only ever read; a concurrent truncation ends the
        // process (documented above) and a concurrent write can change weights but no parsed length or range,
        // because those were copied out of the map and are checked against its fixed length.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| ModelError::io(path, e))?;
        Ok(MappedFile { map, file, path: path.to_owned(), modified: seen.modified().ok() })
    }

    /// Path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Time of the last change before opening, where the platform knows it.
    #[must_use]
    pub fn modified(&self) -> Option<SystemTime> {
        self.modified
    }

    /// Lets go of the memory of `range`, which was read and is not needed soon; reading it again brings it back.
    pub fn release(&self, range: std::ops::Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.map.len(), "{range:?} is outside the file");
        // SAFETY: the mapping is shared and never written, so dropped pages come back with the file's bytes.
        #[cfg(unix)]
        let _kept = unsafe {
            self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len())
        };
    }

    /// Compares size and time of the mapped file with those at opening.
    ///
    /// # Errors
    /// The file was written to or cut since.
    pub fn check_unchanged(&self) -> Result<(), ModelError> {
        let now = self.file.metadata().map_err(|e| ModelError::io(&self.path, e))?;
        let same_size = usize::try_from(now.len()).is_ok_and(|len| len == self.map.len());
        if same_size && now.modified().ok() == self.modified {
            return Ok(());
        }
        Err(ModelError::not_a_model(&self.path, "was written to while it was in use"))
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

fn check_regular(path: &Path, metadata: &fs::Metadata) -> Result<(), ModelError> {
    let problem = if metadata.is_dir() {
        "is a directory, not a model file"
    } else if !metadata.is_file() {
        "is not a regular file"
    } else if metadata.len() == 0 {
        "is empty"
    } else {
        return Ok(());
    };
    Err(ModelError::not_a_model(path, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(path: &Path) -> String {
        MappedFile::open(path).unwrap_err().to_string()
    }

    #[test]
    fn only_regular_files_with_content_are_mapped() {
        let folder = tempfile::tempdir().unwrap();
        assert!(problem(folder.path()).contains("is a directory"));
        assert!(problem(&folder.path().join("none.gguf")).contains("none.gguf"));
        let empty = folder.path().join("empty.gguf");
        fs::write(&empty, b"").unwrap();
        assert!(problem(&empty).ends_with("is empty"));
        #[cfg(unix)]
        assert!(problem(Path::new("/dev/zero")).ends_with("is not a regular file"));
    }

    #[test]
    fn a_changed_file_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        fs::write(&path, b"abc").unwrap();
        let map = MappedFile::open(&path).unwrap();
        assert_eq!(&map[..], b"abc");
        map.check_unchanged().unwrap();
        // Replaced by another file, the old one stays whole.
        let other = folder.path().join("b.bin");
        fs::write(&other, b"abcd").unwrap();
        fs::rename(&other, &path).unwrap();
        map.check_unchanged().unwrap();
        assert_eq!(&map[..], b"abc");
        // Written in place, it is another model.
        let map = MappedFile::open(&path).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert!(map.check_unchanged().unwrap_err().to_string().contains("was written to"));
    }
}

//! Files that are either not there or whole, whenever the process dies.
//!
//! [`Partial`] is the `.incomplete` file a model grows in. It is hashed as it grows; what an earlier run left
//! is hashed first, so the final hash covers every byte on disk that this process did not write itself.
//!
//! ```text
//! open: length kept = min(what is there, what the caller trusts); hash it; append ...; finish: compare, fsync, rename
//! ```
//!
//! Invariant: a rename into a visible name happens only after the hash compared equal and the data was synced.
//! Not here: which bytes to fetch (`download`, `packages`).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::CatalogError;
use crate::progress::Progress;

/// Large enough that system calls cost nothing, small enough to look at `cancelled` often.
pub(crate) const CHUNK: usize = 256 * 1024;

/// A growing file with its running hash.
#[derive(Debug)]
pub(crate) struct Partial {
    file: File,
    path: PathBuf,
    len: u64,
    hasher: Sha256,
}

impl Partial {
    /// Opens or creates the file, keeping at most its first `keep` bytes.
    pub(crate) fn open(path: &Path, keep: u64, progress: &dyn Progress) -> Result<Self, CatalogError> {
        make_parent(path)?;
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = open.map_err(CatalogError::io("open", path))?;
        let there = file.metadata().map_err(CatalogError::io("read", path))?.len();
        let len = there.min(keep);
        if len < there {
            file.set_len(len).map_err(CatalogError::io("write", path))?;
        }
        let mut hasher = Sha256::new();
        hash_into(&mut hasher, &mut (&mut file).take(len), path, progress)?;
        file.seek(SeekFrom::Start(len)).map_err(CatalogError::io("read", path))?;
        Ok(Self { file, path: path.to_owned(), len, hasher })
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Appends bytes. A full disk is reported as `StorageFull` or `QuotaExceeded` inside `Io`; see [`disk_full`].
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), CatalogError> {
        self.file.write_all(bytes).map_err(CatalogError::io("write", &self.path))?;
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Throws everything away and begins again.
    pub(crate) fn rewind(&mut self) -> Result<(), CatalogError> {
        self.file.set_len(0).map_err(CatalogError::io("write", &self.path))?;
        self.file.seek(SeekFrom::Start(0)).map_err(CatalogError::io("write", &self.path))?;
        self.len = 0;
        self.hasher = Sha256::new();
        Ok(())
    }

    /// Brings the data to disk.
    pub(crate) fn sync(&self) -> Result<(), CatalogError> {
        self.file.sync_all().map_err(CatalogError::io("write", &self.path))
    }

    /// The hash of everything so far.
    pub(crate) fn sha256(&self) -> String {
        hex(self.hasher.clone())
    }

    /// Moves the file to its visible name. The caller has compared [`Partial::sha256`].
    pub(crate) fn publish(self, to: &Path) -> Result<(), CatalogError> {
        self.sync()?;
        let Self { file, path, .. } = self;
        // Windows does not rename an open file.
        drop(file);
        make_parent(to)?;
        fs::rename(&path, to).map_err(CatalogError::io("write", to))?;
        sync_parent(to);
        Ok(())
    }

    /// Deletes the file.
    pub(crate) fn discard(self) -> Result<(), CatalogError> {
        let Self { file, path, .. } = self;
        drop(file);
        fs::remove_file(&path).map_err(CatalogError::io("delete", &path))
    }
}

/// Turns "no space left" while writing into `DiskFull`; every other error passes through.
pub(crate) fn disk_full(error: CatalogError, dir: &Path, needs: u64, has: u64) -> CatalogError {
    match error {
        CatalogError::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
        {
            CatalogError::DiskFull { dir: dir.to_owned(), needs, has }
        }
        other => other,
    }
}

/// Writes a small file in one step: readers see the old content or the new.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> Result<(), CatalogError> {
    make_parent(path)?;
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(CatalogError::io("write", path))?;
    file.write_all(content).map_err(CatalogError::io("write", path))?;
    file.as_file().sync_all().map_err(CatalogError::io("write", path))?;
    file.persist(path).map_err(|error| CatalogError::io("write", path)(error.error))?;
    Ok(())
}

/// sha256 of a file in lower-case hexadecimal.
pub(crate) fn hash_file(path: &Path, progress: &dyn Progress) -> Result<String, CatalogError> {
    let mut file = File::open(path).map_err(CatalogError::io("read", path))?;
    let mut hasher = Sha256::new();
    hash_into(&mut hasher, &mut file, path, progress)?;
    Ok(hex(hasher))
}

/// Makes the folder a file is to be in.
pub(crate) fn make_parent(path: &Path) -> Result<(), CatalogError> {
    match path.parent() {
        Some(dir) => fs::create_dir_all(dir).map_err(CatalogError::io("make the folder", dir)),
        None => Ok(()),
    }
}

/// Deletes a file; one that is not there is fine.
pub(crate) fn remove_if_there(path: &Path) -> Result<(), CatalogError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CatalogError::io("delete", path)(error)),
        _ => Ok(()),
    }
}

/// Lower-case hexadecimal of a finished hash.
pub(crate) fn hex(hasher: Sha256) -> String {
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes a rename survive a power cut. Not every file system can; then the rename is merely not yet on disk.
fn sync_parent(path: &Path) {
    if cfg!(unix)
        && let Some(dir) = path.parent()
        && let Ok(dir) = File::open(dir)
    {
        // Some file systems refuse to sync folders; the file itself is synced already.
        let _ = dir.sync_all();
    }
}

fn hash_into(
    hasher: &mut Sha256,
    reader: &mut dyn Read,
    path: &Path,
    progress: &dyn Progress,
) -> Result<(), CatalogError> {
    let mut buffer = vec![0; CHUNK];
    loop {
        if progress.cancelled() {
            return Err(CatalogError::Cancelled);
        }
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CatalogError::io("read", path)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Quiet;

    #[test]
    fn a_partial_file_goes_on_where_it_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/x.incomplete");
        let mut partial = Partial::open(&path, u64::MAX, &Quiet).unwrap();
        partial.append(b"hello ").unwrap();
        partial.append(b"garbage").unwrap();
        drop(partial);
        let mut partial = Partial::open(&path, 6, &Quiet).unwrap();
        assert_eq!(partial.len(), 6);
        partial.append(b"world").unwrap();
        assert_eq!(partial.sha256(), "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9");
        let to = dir.path().join("x");
        partial.publish(&to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"hello world");
        assert!(!path.exists());
        assert_eq!(
            hash_file(&to, &Quiet).unwrap(),
            "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"
        );
    }

    #[test]
    fn rewinding_forgets_the_old_hash() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mut partial = Partial::open(&path, u64::MAX, &Quiet).unwrap();
        partial.append(b"old").unwrap();
        partial.rewind().unwrap();
        partial.append(b"hello world").unwrap();
        assert_eq!(partial.sha256(), "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9");
        assert_eq!(fs::read(&path).unwrap(), b"hello world");
    }

    #[test]
    fn no_space_left_becomes_disk_full() {
        let full = CatalogError::io("write", Path::new("x"))(io::ErrorKind::StorageFull.into());
        let error = disk_full(full, Path::new("d"), 10, 3);
        assert!(matches!(error, CatalogError::DiskFull { needs: 10, has: 3, .. }), "{error}");
        let other = CatalogError::io("write", Path::new("x"))(io::ErrorKind::PermissionDenied.into());
        assert!(matches!(disk_full(other, Path::new("d"), 10, 3), CatalogError::Io { .. }));
    }

    #[test]
    fn small_files_are_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b.json");
        write_whole(&path, b"one").unwrap();
        write_whole(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}

//! Replaces small files in one step.
//!
//! Invariant: at no instant does the file hold part of what is written.
//! Not here: the models' files (`pilotfish_catalog`).

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use tempfile::NamedTempFile;

/// Writes `bytes` beside `path`, flushes them to the disk and renames the file. Only its owner can read it; should
/// anything fail, it is gone again. The folder must be there.
///
/// # Errors
/// What the system says.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    // Not every system can open a folder as a file; the file itself is whole either way.
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}

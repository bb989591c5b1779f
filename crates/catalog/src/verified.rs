//! Remembers which files were hashed, and which hash a model had when it was first seen.
//!
//! Hashing a gigabyte at every start would cost seconds, so the result is kept with the file's size and time of
//! change; when either differs, the file is hashed again.
//!
//! Invariant: a marker only saves work. A missing, unreadable or foreign one means hashing again, never an error.
//! Invariant: a pin is only ever written, not changed; accepting another file means deleting the pin by hand.
//! Not here: hashes of the table (`table`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::durable::{hash_file, hex, write_whole};
use crate::error::CatalogError;
use crate::places::Places;
use crate::progress::Progress;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Marker {
    path: PathBuf,
    size: u64,
    modified_ns: u64,
    sha256: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Pin {
    sha256: String,
}

/// The remembered sha256 of a file, if it has not changed since.
pub(crate) fn remembered(places: &Places, path: &Path) -> Option<String> {
    let (real, size, modified_ns) = identity(path)?;
    let text = fs::read(marker_path(places, &real)).ok()?;
    let marker: Marker = serde_json::from_slice(&text).ok()?;
    let same = marker.path == real && marker.size == size && marker.modified_ns == modified_ns;
    same.then_some(marker.sha256)
}

/// The sha256 of a file: remembered, or computed and then remembered.
pub(crate) fn sha256(places: &Places, path: &Path, progress: &dyn Progress) -> Result<String, CatalogError> {
    if let Some(sha256) = remembered(places, path) {
        return Ok(sha256);
    }
    let before = identity(path);
    let sha256 = hash_file(path, progress)?;
    // A file that changed while it was read must not be remembered with this hash.
    if before == identity(path) {
        remember(places, path, &sha256);
    }
    Ok(sha256)
}

/// Remembers the sha256 of a file that has just been hashed.
pub(crate) fn remember(places: &Places, path: &Path, sha256: &str) {
    let Some((real, size, modified_ns)) = identity(path) else { return };
    let to = marker_path(places, &real);
    let marker = Marker { path: real, size, modified_ns, sha256: sha256.to_owned() };
    if let Ok(text) = serde_json::to_vec_pretty(&marker) {
        // A cache that cannot be written costs a hash at the next start and nothing else.
        let _ = write_whole(&to, &text);
    }
}

/// Forgets a file that is about to be deleted.
pub(crate) fn forget(places: &Places, path: &Path) {
    if let Some((real, _, _)) = identity(path) {
        // An orphaned marker is harmless.
        let _ = fs::remove_file(marker_path(places, &real));
    }
}

/// The hash a model of the catalog was first seen with.
pub(crate) fn pinned(places: &Places, name: &str) -> Option<String> {
    let text = fs::read(places.pin(name)).ok()?;
    let pin: Pin = serde_json::from_slice(&text).ok()?;
    Some(pin.sha256)
}

/// Pins a hash, unless the model is pinned already.
pub(crate) fn pin(places: &Places, name: &str, sha256: &str) -> Result<(), CatalogError> {
    if pinned(places, name).is_some() {
        return Ok(());
    }
    let text = format!("{{\"sha256\": \"{sha256}\"}}\n");
    write_whole(&places.pin(name), text.as_bytes())
}

/// Real path, size and time of change.
fn identity(path: &Path) -> Option<(PathBuf, u64, u64)> {
    let real = fs::canonicalize(path).ok()?;
    let metadata = fs::metadata(&real).ok()?;
    let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some((real, metadata.len(), u64::try_from(modified.as_nanos()).ok()?))
}

fn marker_path(places: &Places, real: &Path) -> PathBuf {
    let stem: String = real
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default()
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(40)
        .collect();
    // The readable part is for people; the hash keeps two files of one name apart.
    let key = hex(Sha256::new_with_prefix(real.as_os_str().as_encoded_bytes()));
    places.verified().join(format!("{stem}-{}.json", &key[..16]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Env;
    use crate::progress::Quiet;
    use std::cell::Cell;

    fn scene() -> (tempfile::TempDir, Places, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let places = Places::new(&Env::empty().with("XDG_CACHE_HOME", dir.path().to_str().unwrap())).unwrap();
        let file = dir.path().join("m.gguf");
        fs::write(&file, b"hello world").unwrap();
        (dir, places, file)
    }

    #[test]
    fn an_unchanged_file_is_not_hashed_again() {
        struct NoReading(Cell<bool>);
        impl Progress for NoReading {
            fn start(&self, _: Option<u64>) {}
            fn advance(&self, _: u64) {}
            fn message(&self, _: &str) {}
            fn finish(&self) {}
            fn cancelled(&self) -> bool {
                self.0.set(true);
                true
            }
        }
        let (_dir, places, file) = scene();
        let first = sha256(&places, &file, &Quiet).unwrap();
        let watch = NoReading(Cell::new(false));
        assert_eq!(sha256(&places, &file, &watch).unwrap(), first);
        assert!(!watch.0.get(), "the file was read again");
    }

    #[test]
    fn a_changed_file_is_hashed_again() {
        let (_dir, places, file) = scene();
        let first = sha256(&places, &file, &Quiet).unwrap();
        fs::write(&file, b"hello w0rld!").unwrap();
        assert_eq!(remembered(&places, &file), None);
        assert_ne!(sha256(&places, &file, &Quiet).unwrap(), first);
        // Same size, other time.
        fs::write(&file, b"HELLO w0rld!").unwrap();
        let handle = fs::File::options().write(true).open(&file).unwrap();
        handle.set_modified(UNIX_EPOCH + std::time::Duration::from_secs(5)).unwrap();
        assert_eq!(remembered(&places, &file), None);
    }

    #[test]
    fn a_broken_marker_is_ignored() {
        let (_dir, places, file) = scene();
        let first = sha256(&places, &file, &Quiet).unwrap();
        let marker = fs::read_dir(places.verified()).unwrap().next().unwrap().unwrap().path();
        fs::write(marker, b"{").unwrap();
        assert_eq!(remembered(&places, &file), None);
        assert_eq!(sha256(&places, &file, &Quiet).unwrap(), first);
    }

    #[test]
    fn the_first_pin_stays() {
        let (_dir, places, _) = scene();
        assert_eq!(pinned(&places, "m"), None);
        pin(&places, "m", "aa").unwrap();
        pin(&places, "m", "bb").unwrap();
        assert_eq!(pinned(&places, "m").as_deref(), Some("aa"));
    }
}

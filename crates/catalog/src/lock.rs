//! One writer per model, across threads and processes.
//!
//! The lock is the system's own on a file that is never deleted (deleting it would let two processes hold two
//! files of one name). It ends with the process, so a killed one leaves nothing to clean up.
//!
//! Invariant: who waited looks again for the finished file before fetching anything.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::durable::make_parent;
use crate::error::CatalogError;
use crate::progress::Progress;

/// Held until dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, saying so once if another process has it. Errors: `Io`, `Cancelled`.
    pub(crate) fn take(path: &Path, name: &str, progress: &dyn Progress) -> Result<Self, CatalogError> {
        make_parent(path)?;
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = open.map_err(CatalogError::io("open", path))?;
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) => {
                    if progress.cancelled() {
                        return Err(CatalogError::Cancelled);
                    }
                    if !told {
                        progress.message(&format!("waiting for another process that is fetching {name}"));
                        told = true;
                    }
                    // A person does not notice this delay, and a download takes far longer.
                    thread::sleep(Duration::from_millis(50));
                }
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                    // Some network file systems have no locks. Two writers would spoil each other's growing
                    // file, which its hash then tells; the model itself stays safe.
                    progress.message("this file system has no locks; fetch one model at a time");
                    return Ok(Self { _file: file });
                }
                Err(TryLockError::Error(error)) => return Err(CatalogError::io("lock", path)(error)),
            }
        }
    }
}

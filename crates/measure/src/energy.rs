//! Energy of the CPU package from the counters Linux exposes under `/sys/class/powercap`.
//!
//! The counters (RAPL) cover whole processor packages, so they include everything else that ran; on most systems only
//! root may read them, and virtual machines have none. Where they cannot be read the answer is an error that says why,
//! and a record carries that reason with a null figure. Wrap-around was tested with fixtures, real counters were not.
//!
//! Invariant: joules only grow, across counter wrap-around too, if [`PackageEnergy::sample`] is called at least once
//! per wrap (over ten minutes even at 400 W, for the usual 262 kJ range).
//! Not here: memory and GPU rails, Apple's counters.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::record::Energy;

/// Why energy cannot be measured here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnergyError {
    /// No package counter exists.
    NoCounter,
    /// A counter exists but could not be read.
    Unreadable {
        /// The counter's file.
        path: PathBuf,
        /// The system's reason.
        reason: String,
    },
}

impl fmt::Display for EnergyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCounter => f.write_str("no package energy counter under /sys/class/powercap"),
            Self::Unreadable { path, reason } => {
                write!(f, "energy counter {} is unreadable: {reason}", path.display())
            }
        }
    }
}

impl std::error::Error for EnergyError {}

/// Joules used by all processor packages since it was opened.
#[derive(Debug)]
pub struct PackageEnergy {
    packages: Vec<Package>,
    microjoules: u64,
}

#[derive(Debug)]
struct Package {
    counter: PathBuf,
    range: u64, // the counter counts 0..=range microjoules, then starts again
    last: u64,
}

impl PackageEnergy {
    /// Opens the counters of every package.
    ///
    /// # Errors
    /// When there is no counter or one cannot be read.
    pub fn open() -> Result<Self, EnergyError> {
        Self::open_at(Path::new("/sys/class/powercap"))
    }

    fn open_at(powercap: &Path) -> Result<Self, EnergyError> {
        let mut packages = Vec::new();
        let entries = fs::read_dir(powercap).map_err(|_| EnergyError::NoCounter)?;
        let mut zones: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        zones.sort();
        for zone in zones {
            // Sub-zones (core, dram, psys) overlap the packages; only zones that call themselves a package are summed.
            let name = fs::read_to_string(zone.join("name")).unwrap_or_default();
            if name.trim().starts_with("package") {
                let counter = zone.join("energy_uj");
                let last = read_count(&counter)?;
                let range = read_count(&zone.join("max_energy_range_uj"))?;
                packages.push(Package { counter, range, last });
            }
        }
        if packages.is_empty() { Err(EnergyError::NoCounter) } else { Ok(Self { packages, microjoules: 0 }) }
    }

    /// Reads the counters and returns the joules since opening.
    ///
    /// # Errors
    /// When a counter can no longer be read.
    pub fn sample(&mut self) -> Result<f64, EnergyError> {
        for package in &mut self.packages {
            let now = read_count(&package.counter)?;
            let used = if now >= package.last {
                now - package.last
            } else {
                package.range.saturating_sub(package.last).saturating_add(now)
            };
            package.last = now;
            self.microjoules = self.microjoules.saturating_add(used);
        }
        Ok(self.microjoules as f64 / 1e6)
    }
}

fn read_count(path: &Path) -> Result<u64, EnergyError> {
    let unreadable = |reason: String| EnergyError::Unreadable { path: path.to_owned(), reason };
    let text = fs::read_to_string(path).map_err(|e| unreadable(e.to_string()))?;
    text.trim().parse().map_err(|_| unreadable("not a count".to_owned()))
}

/// The energy entry of a record: joules per token, or the reason there is none.
pub fn energy_per_token(joules: Result<f64, EnergyError>, tokens: u64) -> Energy {
    match joules {
        Ok(joules) if tokens > 0 => {
            let source = "RAPL package counters, whole machine".to_owned();
            Energy { joules_per_token: Some(joules / tokens as f64), source }
        }
        Ok(_) => Energy { joules_per_token: None, source: "unmeasured: no tokens were generated".to_owned() },
        Err(error) => Energy { joules_per_token: None, source: format!("unmeasured: {error}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Zones(PathBuf);

    impl Zones {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("pilotfish-energy-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(&dir).expect("the temporary directory is writable");
            Self(dir)
        }

        fn zone(&self, zone: &str, name: &str, count: &str) {
            let dir = self.0.join(zone);
            fs::create_dir_all(&dir).expect("writable");
            for (file, text) in [("name", name), ("energy_uj", count), ("max_energy_range_uj", "1000000\n")] {
                fs::write(dir.join(file), text).expect("writable");
            }
        }
    }

    impl Drop for Zones {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn packages_are_summed_and_wrap_around_is_followed() {
        let zones = Zones::new("sum");
        zones.zone("intel-rapl:0", "package-0\n", "900000\n");
        zones.zone("intel-rapl:0:0", "core\n", "5\n");
        zones.zone("intel-rapl:1", "package-1\n", "100\n");
        let mut energy = PackageEnergy::open_at(&zones.0).expect("two packages");
        assert_eq!(energy.sample(), Ok(0.0));
        zones.zone("intel-rapl:0", "package-0\n", "100000\n"); // 100,000 to the end, then 100,000 more
        zones.zone("intel-rapl:0:0", "core\n", "999999\n");
        zones.zone("intel-rapl:1", "package-1\n", "300100\n");
        assert_eq!(energy.sample(), Ok(0.5));
        assert_eq!(energy.sample(), Ok(0.5));
    }

    #[test]
    fn a_missing_or_broken_counter_gives_its_reason() {
        let zones = Zones::new("bad");
        assert_eq!(PackageEnergy::open_at(&zones.0).err(), Some(EnergyError::NoCounter));
        assert_eq!(PackageEnergy::open_at(&zones.0.join("absent")).err(), Some(EnergyError::NoCounter));
        zones.zone("intel-rapl:0", "package-0\n", "much\n");
        let error = PackageEnergy::open_at(&zones.0).expect_err("the count is no number");
        assert!(error.to_string().contains("energy_uj is unreadable: not a count"), "{error}");
    }

    #[test]
    fn the_record_never_carries_a_figure_without_a_source() {
        let entry = energy_per_token(Err(EnergyError::NoCounter), 10);
        assert_eq!(entry.joules_per_token, None);
        assert_eq!(entry.source, "unmeasured: no package energy counter under /sys/class/powercap");
        assert_eq!(energy_per_token(Ok(5.0), 0).joules_per_token, None);
        assert_eq!(energy_per_token(Ok(5.0), 10).joules_per_token, Some(0.5));
    }
}

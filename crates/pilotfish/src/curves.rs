//! Cost curves that outlive the process: measured once for a machine, a model, its lane and threads.
//!
//! ```text
//! CACHE/pilotfish/curves/HASH.curve:   pilotfish-curve 1
//!                                      KEY
//!                                      WIDTH MILLISECONDS      one line a point
//! ```
//!
//! A curve decides how much is drafted, never a token, so a file that cannot be read or written costs seconds of
//! measuring and nothing else.
//!
//! Invariant: a curve is used only under the key it was measured for.
//! Not here: measuring (`pilotfish_engine::speculate::Costs`).

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::PathBuf;

use pilotfish_catalog::{Catalog, Env};
use pilotfish_engine::speculate::Costs;
use pilotfish_lane::LaneInfo;
use pilotfish_model::Model;
use tempfile::NamedTempFile;

const FIRST_LINE: &str = "pilotfish-curve 1";
/// Bytes of a file that is read: a curve takes a few hundred.
const MOST_BYTES: u64 = 16 << 10;

/// Where the curve of one key is kept.
#[derive(Debug)]
pub(crate) struct CurveFile {
    path: PathBuf,
    key: String,
}

impl CurveFile {
    /// The place of this model's curve; none where there is no cache folder.
    pub(crate) fn of(model: &Model, lane: &LaneInfo, kernels: &str) -> Option<Self> {
        let folder = Catalog::new(Env::from_process()).ok()?.own_folder().join("curves");
        // What a pass costs depends on shapes and block types, not on the numbers.
        let key = format!(
            "{} {} {} {kernels} {} threads, {} bytes {} products {} logits, {}",
            lane.name,
            lane.numerics_id,
            env!("CARGO_PKG_VERSION"),
            lane.threads,
            model.bytes_per_pass(),
            model.macs_per_row(),
            lane.vocab,
            processor(),
        );
        Some(Self::new(folder, key))
    }

    fn new(folder: PathBuf, key: String) -> Self {
        let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Self { path: folder.join(format!("{hash:016x}.curve")), key }
    }

    /// The curve, if a whole one is there for this very key.
    pub(crate) fn load(&self) -> Option<Costs> {
        let mut text = String::new();
        File::open(&self.path).ok()?.take(MOST_BYTES).read_to_string(&mut text).ok()?;
        let mut lines = text.strip_suffix('\n')?.lines();
        if lines.next() != Some(FIRST_LINE) || lines.next() != Some(&*self.key) {
            return None;
        }
        let point = |line: &str| {
            let (width, ms) = line.split_once(' ')?;
            Some((width.parse().ok()?, ms.parse().ok()?))
        };
        let costs = Costs::new(lines.map(point).collect::<Option<Vec<_>>>()?);
        (costs.points().len() > 1).then_some(costs)
    }

    /// Keeps a curve, whole or not at all.
    pub(crate) fn keep(&self, costs: &Costs) -> io::Result<()> {
        let folder = self.path.parent().expect("a file in a folder");
        fs::create_dir_all(folder)?;
        let mut file = NamedTempFile::new_in(folder)?;
        writeln!(file, "{FIRST_LINE}\n{}", self.key)?;
        for (width, ms) in costs.points() {
            writeln!(file, "{width} {ms:.4}")?;
        }
        file.as_file().sync_all()?;
        file.persist(&self.path)?;
        Ok(())
    }
}

/// The processor's name where the system tells it: a home folder may be shared by several machines.
fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or(std::env::consts::ARCH, |(_, name)| name.trim()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_come_back_under_their_own_key_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = |key: &str| CurveFile::new(folder.path().join("curves"), key.to_owned());
        assert_eq!(file("a").load(), None);
        let costs = Costs::new([(1, 10.0), (8, 22.5)]);
        file("a").keep(&costs).unwrap();
        assert_eq!(file("a").load(), Some(costs));
        assert_eq!(file("b").load(), None);
        fs::copy(file("a").path, file("b").path).unwrap();
        assert_eq!(file("b").load(), None, "another key at the same place");
    }

    #[test]
    fn curves_that_are_damaged_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = CurveFile::new(folder.path().to_owned(), "key".to_owned());
        file.keep(&Costs::new([(1, 10.0), (8, 22.5)])).unwrap();
        let whole = fs::read(&file.path).unwrap();
        for len in 0..whole.len() {
            fs::write(&file.path, &whole[..len]).unwrap();
            assert!(file.load().is_none_or(|costs| costs.points().len() == 2), "cut to {len}");
        }
        for bytes in
            ["pilotfish-curve 1\nkey\n1 x\n2 3\n", "pilotfish-curve 1\nkey\n1 -1\n2 NaN\n", "\u{0}\n"]
        {
            fs::write(&file.path, bytes).unwrap();
            assert_eq!(file.load(), None);
        }
    }
}

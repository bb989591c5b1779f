//! The lanes that exist and how to open one; nothing else in the workspace names them.
//!
//! Invariant: a device that is not built is an error that says so, never another device.
//! Not here: running a lane (`pilotfish-lane` and the engine).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use pilotfish_lane::cpu::{CpuLane, HeadOptions};
use pilotfish_lane::{Head, Lane, LaneError};
use pilotfish_model::{DraftHead, Model};

pub use pilotfish_lane::cpu::{CpuOptions, KvType, MAX_THREADS, Memory, Roofline};

use crate::Error;

/// Where a model runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// The processor.
    #[default]
    Cpu,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
        })
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse =
            |why: &str| Error::Option { option: "-dev", value: text.to_owned(), why: why.to_owned() };
        match text.split(':').next().unwrap_or_default() {
            "cpu" if text == "cpu" => Ok(Self::Cpu),
            "gpu" | "coreml" | "coreai" | "interpret" => Err(refuse("this lane is not built yet; cpu is")),
            _ => Err(refuse("no such device; cpu is the only one")),
        }
    }
}

/// Puts a model on a device.
///
/// # Errors
/// [`Error::Lane`] when the lane refuses the model.
pub(crate) fn open(device: Device, model: Arc<Model>, cpu: &CpuOptions) -> Result<Box<dyn Lane>, Error> {
    match device {
        Device::Cpu => Ok(Box::new(CpuLane::new(model, cpu)?)),
    }
}

/// A target and the head that drafts for it.
pub(crate) type LaneAndHead = (Box<dyn Lane>, Box<dyn Head>);

/// Puts a model and a head for it on a device, where they take turns.
///
/// # Errors
/// As [`open`]; and [`Error::Lane`] when the head is for another model.
pub(crate) fn open_with_head(
    device: Device,
    model: Arc<Model>,
    cpu: &CpuOptions,
    head: DraftHead,
) -> Result<LaneAndHead, Error> {
    match device {
        Device::Cpu => {
            let lane = CpuLane::new(model, cpu)?;
            let head = lane.head(head, &HeadOptions::default())?;
            Ok((Box::new(lane), Box::new(head)))
        }
    }
}

/// What a model takes on a device, worked out without loading it.
pub fn memory(device: Device, model: &Model, cpu: &CpuOptions) -> Memory {
    match device {
        Device::Cpu => Memory::of(model, cpu),
    }
}

/// Bytes of the keys and values of one position of a model on a device.
pub(crate) fn kv_bytes_per_position(device: Device, model: &Model, cpu: &CpuOptions) -> u64 {
    match device {
        Device::Cpu => cpu.kv_type.bytes_per_position(model),
    }
}

/// Measures what a device could do at best, with these options.
///
/// # Errors
/// [`Error::Lane`] when there is no memory to measure with.
pub(crate) fn roofline(device: Device, threads: usize, cpu: &CpuOptions) -> Result<Roofline, Error> {
    match device {
        Device::Cpu => Roofline::measure(cpu.kernels, threads)
            .map_err(|e| Error::Lane(LaneError::Load(format!("no memory to measure with: {e}")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_are_not_built_say_so() {
        assert_eq!("cpu".parse::<Device>().unwrap(), Device::Cpu);
        for (text, part) in [
            ("gpu", "not built"),
            ("gpu:1", "not built"),
            ("coreml", "not built"),
            ("cpu:0", "no such"),
            ("", "no such"),
        ] {
            let error = text.parse::<Device>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

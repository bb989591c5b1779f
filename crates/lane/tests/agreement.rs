//! The CPU lane passes the agreement suite every lane must pass, for each family, kernel table and form of keys and values.
#![allow(clippy::unwrap_used, reason = "a panic is the test's failure")]

use std::sync::Arc;

use pilotfish_lane::Lane;
use pilotfish_lane::cpu::{CpuLane, CpuOptions, KvType};
use pilotfish_lane::testing::agreement;
use pilotfish_model::testing::TinySpec;
use pilotfish_model::{Family, Gguf, Model};
use pilotfish_tensor::kernels::Kernels;

#[test]
fn the_cpu_lane_keeps_every_promise_of_the_trait() {
    for family in Family::ALL {
        let gguf = Gguf::parse(TinySpec::new(family).gguf()).unwrap();
        let model = Arc::new(Model::from_gguf(gguf).unwrap());
        for kernels in Kernels::available() {
            for kv_type in KvType::ALL {
                let options = CpuOptions { threads: Some(2), kernels, kv_type, ..CpuOptions::default() };
                agreement::all(&mut || -> Box<dyn Lane> {
                    Box::new(CpuLane::new(Arc::clone(&model), &options).unwrap())
                });
            }
        }
    }
}

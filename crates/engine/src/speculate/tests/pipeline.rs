//! Both lanes at once: what the clock runs, what is learned from it, and who may fail.

#![cfg(test)]

use std::sync::mpsc::channel;
use std::time::Duration;

use pilotfish_lane::Want;
use pilotfish_lane::testing::{Fault, ScriptedLane};

use super::*;
use crate::MonotonicClock;
use crate::draft::{ModelDrafter, NgramDrafter};

const ALONE: Alone = Alone { pass_ms: 144.4, guess_ms: 19.12 };

fn model(device: &str) -> ModelDrafter {
    ModelDrafter::new(Box::new(ScriptedLane::hashed(9, 32, 1, 1.0).with_name(device)), 9, 0.0)
}

fn target() -> CachedLane {
    CachedLane::new(Box::new(ScriptedLane::hashed(9, 32, 1, 1.0).with_name("gpu")))
}

/// A pipeline of two devices after rounds of five guesses ahead that took so long.
fn after(took_ms: &[f64]) -> Pipeline {
    let mut pipeline = Pipeline::new(Pipelining::Auto);
    pipeline.meet(target().info(), &model("npu"));
    for &ms in took_ms {
        assert!(pipeline.begins(Some(ALONE), 0.0), "a trial needs no luck");
        assert!(pipeline.observe(Some(5), ms));
    }
    pipeline
}

#[test]
fn speculation_pipeline_needs_lanes_that_do_not_slow_each_other() {
    // 95.6 ms of drafting beside 144.4 ms of verifying: hidden, hidden but for a fifth of a fifth, not at all.
    for (took_ms, on) in
        [(144.4, true), (144.4 + 0.04 * 95.6, true), (144.4 + 0.25 * 95.6, false), (240.0, false)]
    {
        let mut pipeline = after(&[took_ms; TRIALS]);
        assert_eq!(pipeline.begins(Some(ALONE), 0.5), on, "{took_ms}");
        assert!(!pipeline.observe(Some(5), took_ms), "no longer a trial");
        let report = pipeline.report();
        assert_eq!((report.on, report.reason.is_none()), (on, on));
    }
    let reason = after(&[240.0; TRIALS]).report().reason.unwrap();
    let expected = "the lanes slow each other: 0 % hidden of 95.6 ms of drafting beside a pass of 144.4 ms";
    assert_eq!(reason, expected);
    // One round without a stall is enough.
    assert!(after(&[900.0, 144.4, 500.0]).report().on);
    // What is left over is paid by hits: a tenth of the time is not hidden, so a hit in ten does not pay.
    let mut pipeline = after(&[144.4 + 9.56; TRIALS]);
    assert!(pipeline.begins(Some(ALONE), 0.12) && !pipeline.begins(Some(ALONE), 0.08));
    assert!(pipeline.report().on);
}

#[test]
fn speculation_pipeline_measures_against_lanes_by_themselves() {
    let mut pipeline = after(&[]);
    assert!(!pipeline.begins(None, 1.0), "nothing is known yet");
    assert!(!pipeline.report().on && pipeline.report().reason.unwrap().contains("not yet measured"));
    assert!(pipeline.begins(Some(ALONE), 1.0));
    assert!(pipeline.observe(Some(5), 240.0));
    // Prepared guesses seem free; they are not taken for the drafter's own time.
    for _ in 1..TRIALS {
        assert!(pipeline.begins(Some(Alone { guess_ms: 0.01, ..ALONE }), 1.0));
        assert!(pipeline.observe(Some(5), 240.0));
    }
    assert!(!pipeline.report().on, "{pipeline:?}");
    assert!(after(&[144.4]).hidden() > 0.999_999);
    let mut idle = after(&[]);
    assert!(idle.begins(Some(ALONE), 1.0) && idle.observe(Some(0), 144.4));
    assert_eq!(idle.hidden(), 0.0, "nothing done, nothing hidden");
}

#[test]
fn speculation_pipeline_says_why_it_cannot_be() {
    for (mode, drafter, part) in [
        (Pipelining::Off, &model("npu") as &dyn Drafter, Some("switched off")),
        (Pipelining::Auto, &NgramDrafter::new(), Some("lane of its own")),
        (Pipelining::On, &NgramDrafter::new(), Some("lane of its own")),
        (Pipelining::Auto, &model("gpu"), Some("share one device, gpu")),
        (Pipelining::On, &model("gpu"), None),
        (Pipelining::On, &model("npu"), None),
    ] {
        let mut pipeline = Pipeline::new(mode);
        pipeline.meet(target().info(), drafter);
        assert_eq!(pipeline.begins(Some(ALONE), 1.0), part.is_none(), "{mode:?} {part:?}");
        assert!(!pipeline.observe(Some(5), 240.0), "no trial is needed");
        let reason = pipeline.report().reason.unwrap_or_default();
        assert!(reason.contains(part.unwrap_or_default()), "{reason}");
        assert_eq!(pipeline.report().on, part.is_none());
    }
}

#[test]
fn speculation_pipeline_runs_both_at_once() {
    // Each waits for the other, so one after the other would not end well.
    let (to_here, from_aside) = channel();
    let (to_aside, from_here) = channel();
    let soon = Duration::from_secs(60);
    let (mut aside_met, mut here_met) = (false, false);
    let met = &mut aside_met;
    let mut aside = move || {
        to_here.send(()).unwrap();
        *met = from_here.recv_timeout(soon).is_ok();
    };
    MonotonicClock::default().both(&mut aside, &mut || {
        to_aside.send(()).unwrap();
        here_met = from_aside.recv_timeout(soon).is_ok();
    });
    assert!(aside_met && here_met);
}

#[test]
fn speculation_pipeline_stops_the_drafter_once_the_pass_has_ended() {
    let clock = MonotonicClock::default();
    let batch = Batch::chain(&[1, 2], Want::Argmax);
    let mut target = target();
    let mut drafts = |drafter: &mut dyn FnMut(&dyn Fn() -> bool) -> Ahead| {
        verify_while_drafting(&clock, &mut target, &batch, drafter)
    };
    let verified = drafts(&mut |go_on| {
        let mut guesses = 0;
        while go_on() {
            guesses += 1;
        }
        Ahead { guesses, bonus: None }
    })
    .unwrap();
    assert!(verified.ahead.is_some() && verified.waited_ms >= 0.0 && verified.panic.is_none());
    let rows = verified.rows;
    // A panic is the drafter's end, not the reply's.
    for (text, panic) in
        [("static", (|| panic!("static")) as fn() -> Ahead), ("made 7", || panic!("made {}", 7))]
    {
        let verified = drafts(&mut |_| panic()).unwrap();
        assert_eq!(verified.rows.argmax(1), rows.argmax(1));
        assert_eq!(verified.panic.unwrap(), format!("the drafter panicked: {text}"));
    }
    let lane = ScriptedLane::hashed(9, 32, 1, 1.0).with_fault(0, Fault::Device);
    let mut broken = CachedLane::new(Box::new(lane));
    let failed = verify_while_drafting(&clock, &mut broken, &batch, &mut |_| Ahead::default());
    assert!(matches!(failed.err(), Some(LaneError::Device { .. })));
}

//! Tests of the record schema and of its atomic writing.

use super::*;

fn sample() -> Record {
    Record {
        schema: SCHEMA.to_owned(),
        command: "pilotfish bench -n 64".to_owned(),
        machine: Machine {
            cpu: "Fast CPU 3000".to_owned(),
            isa: "x86_64 avx2".to_owned(),
            threads: 2,
            memory_bytes: Some(1 << 34),
            os: "Linux 6.1".to_owned(),
            gpu: None,
            apple_chip: None,
            power_source: Some("mains".to_owned()),
        },
        commit: Some("0123abc".to_owned()),
        dirty: Some(false),
        numerics_id: "cpu-1".to_owned(),
        model: Model { name: "tiny".to_owned(), sha256: "00ff".to_owned(), bytes: 42 },
        drafter: Some(Drafter { name: "ngram".to_owned(), sha256: None }),
        lane: "cpu".to_owned(),
        context: 2048,
        prompts: vec![Prompt {
            name: "edit".to_owned(),
            tokens: 256,
            plain_tok_s: 50.0,
            spec_tok_s: Some(100.0),
            ratio_ci95: Some([1.9, 2.1]),
            tau: Some(3.5),
            accepted_by_position: vec![0.75, 0.5],
            by_source: vec![SourceCount {
                source: "ngram".to_owned(),
                rounds: 20,
                drafted: 40,
                accepted: 30,
            }],
            lossless: Some(true),
            parked: false,
            reason: None,
        }],
        mean: Some(Mean { plain_tok_s: 50.0, spec_tok_s: Some(100.0), ratio: Some(2.0), tau: Some(3.5) }),
        roofline: Some(Roofline { bytes_per_second: 1.8e10, macs_per_second: 2.0e11 }),
        curve: vec![CurvePoint {
            width: 4,
            context: 128,
            ms_p50: 20.0,
            ms_min: 19.5,
            ms_max: 30.0,
            bytes: 1000,
            floor_ms: Some(10.0),
        }],
        energy: Energy { joules_per_token: None, source: "unmeasured: no counter".to_owned() },
    }
}

/// Every field name, written down once more by hand: they are a promise to readers of old records.
const AS_JSON: &str = r#"{
  "schema": "pilotfish-bench/1",
  "command": "pilotfish bench -n 64",
  "machine": {
    "cpu": "Fast CPU 3000",
    "isa": "x86_64 avx2",
    "threads": 2,
    "memory_bytes": 17179869184,
    "os": "Linux 6.1",
    "gpu": null,
    "apple_chip": null,
    "power_source": "mains"
  },
  "commit": "0123abc",
  "dirty": false,
  "numerics_id": "cpu-1",
  "model": {
    "name": "tiny",
    "sha256": "00ff",
    "bytes": 42
  },
  "drafter": {
    "name": "ngram",
    "sha256": null
  },
  "lane": "cpu",
  "context": 2048,
  "prompts": [
    {
      "name": "edit",
      "tokens": 256,
      "plain_tok_s": 50.0,
      "spec_tok_s": 100.0,
      "ratio_ci95": [
        1.9,
        2.1
      ],
      "tau": 3.5,
      "accepted_by_position": [
        0.75,
        0.5
      ],
      "by_source": [
        {
          "source": "ngram",
          "rounds": 20,
          "drafted": 40,
          "accepted": 30
        }
      ],
      "lossless": true,
      "parked": false,
      "reason": null
    }
  ],
  "mean": {
    "plain_tok_s": 50.0,
    "spec_tok_s": 100.0,
    "ratio": 2.0,
    "tau": 3.5
  },
  "roofline": {
    "bytes_per_second": 18000000000.0,
    "macs_per_second": 200000000000.0
  },
  "curve": [
    {
      "width": 4,
      "context": 128,
      "ms_p50": 20.0,
      "ms_min": 19.5,
      "ms_max": 30.0,
      "bytes": 1000,
      "floor_ms": 10.0
    }
  ],
  "energy": {
    "joules_per_token": null,
    "source": "unmeasured: no counter"
  }
}
"#;

#[test]
fn the_schema_is_the_published_one() {
    assert_eq!(sample().to_json().expect("a valid record"), AS_JSON);
    let back: Record = serde_json::from_str(AS_JSON).expect("its own JSON");
    assert_eq!(back, sample());
}

#[test]
fn unknown_fields_of_a_later_version_are_ignored() {
    let more = AS_JSON.replace("\"dirty\": false,", "\"dirty\": false, \"later\": [1],");
    assert_eq!(serde_json::from_str::<Record>(&more).expect("still a record"), sample());
}

#[test]
fn records_from_before_sources_were_counted_are_read() {
    let start = AS_JSON.find("      \"by_source\"").expect("the field is there");
    let end = AS_JSON.find("      \"lossless\"").expect("the next field too");
    let old = format!("{}{}", &AS_JSON[..start], &AS_JSON[end..]);
    let mut expected = sample();
    expected.prompts[0].by_source.clear();
    assert_eq!(serde_json::from_str::<Record>(&old).expect("still a record"), expected);
}

#[test]
fn a_figure_that_json_cannot_carry_is_refused_by_name() {
    type Spoil = fn(&mut Record);
    let cases: [(&str, Spoil); 7] = [
        ("prompts[0].plain_tok_s", |r| r.prompts[0].plain_tok_s = f64::NAN),
        ("prompts[0].ratio_ci95[1]", |r| r.prompts[0].ratio_ci95 = Some([1.0, f64::INFINITY])),
        ("prompts[0].accepted_by_position[1]", |r| r.prompts[0].accepted_by_position[1] = -0.5),
        ("curve[0].floor_ms", |r| r.curve[0].floor_ms = Some(f64::NAN)),
        ("mean.ratio", |r| r.mean.as_mut().unwrap().ratio = Some(f64::NAN)),
        ("roofline.macs_per_second", |r| r.roofline.as_mut().unwrap().macs_per_second = f64::NAN),
        ("energy.joules_per_token", |r| r.energy.joules_per_token = Some(f64::NEG_INFINITY)),
    ];
    for (field, spoil) in cases {
        let mut record = sample();
        spoil(&mut record);
        let error = record.to_json().expect_err(field).to_string();
        assert!(error.contains(field), "{error} should name {field}");
    }
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("pilotfish-record-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("the temporary directory is writable");
        Self(dir)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.0)
            .expect("the scratch directory exists")
            .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_written_record_reads_back_and_leaves_nothing_beside_it() {
    let dir = Scratch::new("round-trip");
    let path = dir.0.join("bench.json");
    fs::write(&path, "old").expect("writable");
    sample().write(&path).expect("writable");
    assert_eq!(Record::read(&path).expect("just written"), sample());
    assert_eq!(dir.names(), ["bench.json"]);
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_devices_are_never_replaced() {
    use std::os::unix::fs::{FileTypeExt, symlink};

    let dir = Scratch::new("special");
    fs::write(dir.0.join("real.json"), "old").expect("writable");
    symlink("real.json", dir.0.join("link.json")).expect("links are possible");
    sample().write(&dir.0.join("link.json")).expect("writable");
    assert!(fs::symlink_metadata(dir.0.join("link.json")).expect("there").is_symlink());
    assert_eq!(Record::read(&dir.0.join("real.json")).expect("just written"), sample());
    assert_eq!(dir.names(), ["link.json", "real.json"]);

    // Through links of our own, so that a regression cannot harm the machine's devices.
    for (device, works) in [("/dev/null", true), ("/dev/full", cfg!(not(target_os = "linux")))] {
        if !std::path::Path::new(device).exists() {
            continue;
        }
        let path = dir.0.join("device");
        symlink(device, &path).expect("links are possible");
        assert_eq!(sample().write(&path).is_ok(), works, "{device}");
        assert!(fs::metadata(device).expect("there").file_type().is_char_device());
        fs::remove_file(&path).expect("ours");
    }
}

#[test]
fn a_place_that_cannot_be_written_is_known_beforehand() {
    let dir = Scratch::new("probe");
    Record::check_writable(&dir.0.join("new.json")).expect("writable");
    assert!(dir.names().is_empty(), "nothing is left behind");
    Record::check_writable(&dir.0.join("no/new.json")).expect_err("no such folder");
}

#[test]
fn a_failed_write_keeps_the_old_file_and_no_temporary_one() {
    let dir = Scratch::new("failed");
    // A directory at the target path makes the final rename fail after the temporary file was written.
    fs::create_dir_all(dir.0.join("bench.json/inside")).expect("writable");
    let error = sample().write(&dir.0.join("bench.json")).expect_err("the target is a directory");
    assert!(matches!(error, RecordError::Io { .. }), "{error}");
    assert_eq!(dir.names(), ["bench.json"]);

    let mut bad = sample();
    bad.mean.as_mut().unwrap().plain_tok_s = f64::NAN;
    let path = dir.0.join("kept.json");
    fs::write(&path, "old").expect("writable");
    bad.write(&path).expect_err("the record is not valid");
    assert_eq!(fs::read_to_string(&path).expect("kept"), "old");
}

#[test]
fn readers_never_see_half_a_record() {
    let dir = Scratch::new("concurrent");
    let path = dir.0.join("bench.json");
    sample().write(&path).expect("writable");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..20).for_each(|_| sample().write(&path).expect("writable")));
        }
        for _ in 0..200 {
            assert_eq!(Record::read(&path).expect("always whole"), sample());
        }
    });
    assert_eq!(dir.names(), ["bench.json"]);
}

#[test]
fn a_file_that_is_not_a_record_is_named_in_the_error() {
    let dir = Scratch::new("bad");
    let path = dir.0.join("bad.json");
    let missing = Record::read(&path).expect_err("no such file").to_string();
    assert!(missing.contains("bad.json"), "{missing}");
    fs::write(&path, &AS_JSON[..AS_JSON.len() / 2]).expect("writable");
    let cut = Record::read(&path).expect_err("half a record").to_string();
    assert!(cut.contains("not a bench record"), "{cut}");
    fs::write(&path, AS_JSON.replace("bench/1", "bench/9")).expect("writable");
    let other = Record::read(&path).expect_err("another schema").to_string();
    assert!(other.contains("pilotfish-bench/9"), "{other}");
}

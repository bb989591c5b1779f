//! Fetches one model of the catalog, or one of the hub, and prints where it is.
//!
//! `cargo run -p pilotfish-catalog --example pull -- smollm2-135m`, or `-- -hf user/repo:QUANT`; without words it
//! lists the catalog and what is installed.
#![allow(clippy::print_stdout, reason = "an example's result belongs on stdout")]

use std::cell::Cell;

use pilotfish_catalog::{Catalog, CatalogError, Env, ModelSpec, Offline, Progress};

/// One line per tenth of the file.
#[derive(Default)]
struct Lines {
    total: Cell<u64>,
    seen: Cell<u64>,
}

impl Progress for Lines {
    fn start(&self, total: Option<u64>) {
        self.total.set(total.unwrap_or(0));
        self.seen.set(0);
    }
    fn advance(&self, bytes: u64) {
        let tenth = (self.total.get() / 10).max(1);
        let (before, after) = (self.seen.get(), self.seen.get() + bytes);
        self.seen.set(after);
        if before / tenth != after / tenth {
            eprintln!("{after} of {} bytes", self.total.get());
        }
    }
    fn message(&self, text: &str) {
        eprintln!("{text}");
    }
    fn finish(&self) {}
}

fn main() -> Result<(), CatalogError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let catalog = Catalog::new(Env::from_process())?;
    let spec = match &words[..] {
        [] => {
            for entry in catalog.entries() {
                println!("{:28} {:8} {}", entry.name, entry.quant, entry.description);
            }
            for model in catalog.installed() {
                println!("installed: {} ({} bytes) at {}", model.name, model.bytes, model.path.display());
            }
            return Ok(());
        }
        [flag, repo] if flag == "-hf" => ModelSpec::from_hub(repo, None)?,
        [name, ..] => catalog.parse(name)?,
    };
    let model =
        catalog.pull(&spec, Offline::No, &Lines::default()).inspect_err(|error| eprintln!("{error}"))?;
    println!("{} {}", model.path.display(), model.sha256.unwrap_or_default());
    Ok(())
}

//! `pull`: fetches models, so that later commands need no network.
//!
//! Invariant: a model that was fetched completely stays, also when a later one of the list fails.
//! Not here: sources, resuming, hashes (`pilotfish_catalog`).

use clap::Args;
use pilotfish::{Catalog, Env, LocalModel, ModelRef};
use serde_json::json;

use crate::exit::{Outcome, usage};
use crate::progress::Downloads;
use crate::{interrupt, output};

/// Flags of `pull`.
#[derive(Args, Debug)]
pub(crate) struct PullArgs {
    /// Catalog names.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// A model of the Hugging Face hub; also written -hf. Repeatable.
    #[arg(long, value_name = "USER/REPO[:QUANT]")]
    hf_repo: Vec<String>,
    /// One file of that repository; also written -hff.
    #[arg(long, value_name = "FILE", requires = "hf_repo")]
    hf_file: Option<String>,
    /// Only look into the caches.
    #[arg(long)]
    offline: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// The first model that could not be fetched.
pub(crate) fn run(args: &PullArgs) -> anyhow::Result<Outcome> {
    if args.names.is_empty() && args.hf_repo.is_empty() {
        return Err(usage("name a model to pull; `pilotfish models` lists them"));
    }
    if args.hf_file.is_some() && args.hf_repo.len() > 1 {
        return Err(usage("-hff names a file of one repository, so give -hf once"));
    }
    let named = args.names.iter().map(|name| ModelRef::Named(name.clone()));
    let hub =
        args.hf_repo.iter().map(|repo| ModelRef::Hub { repo: repo.clone(), file: args.hf_file.clone() });
    // All names are read first: a typing error should not surface after an hour of downloads.
    let specs = named.chain(hub).map(|model| model.spec()).collect::<Result<Vec<_>, _>>()?;
    let catalog = Catalog::new(Env::from_process()).map_err(pilotfish::Error::from)?;
    let listening = interrupt::listen();
    let downloads = Downloads::new(&listening);
    let mut fetched: Vec<LocalModel> = Vec::new();
    for spec in &specs {
        let local = catalog.pull(spec, args.offline.into(), &downloads).map_err(pilotfish::Error::from)?;
        if !args.json {
            output::line(&format!("{}  {}", local.name, local.path.display()))?;
        }
        fetched.push(local);
    }
    if args.json {
        let models: Vec<_> = fetched
            .iter()
            .map(|m| json!({ "name": m.name, "path": m.path, "bytes": m.bytes, "sha256": m.sha256 }))
            .collect();
        output::json(&json!({ "models": models }))?;
    }
    Ok(Outcome::Done)
}

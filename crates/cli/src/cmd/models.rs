//! `models`: what the catalog knows and what the caches hold; `models rm` deletes from them.
//!
//! Invariant: listing reads no model file and uses no network.
//! Not here: the table itself (`pilotfish_catalog::table`).

use clap::{Args, Subcommand};
use pilotfish::{Catalog, Env, ModelRef};
use pilotfish_catalog::{InstalledFrom, Quiet, Source};
use serde::Serialize;
use serde_json::json;

use crate::exit::{Outcome, usage};
use crate::output;
use crate::output::note;
use crate::units::bytes;

/// Flags of `models`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ModelsArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Delete fetched models from the caches.
    Rm {
        /// Catalog names.
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// A model of the hub; also written -hf. Repeatable.
        #[arg(long, value_name = "USER/REPO[:QUANT]")]
        hf_repo: Vec<String>,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// One line of the list.
#[derive(Serialize)]
struct Row {
    name: String,
    description: Option<&'static str>,
    bytes: Option<u64>,
    family: Option<&'static str>,
    quant: Option<&'static str>,
    licence: Option<&'static str>,
    tried: bool,
    installed: bool,
    path: Option<std::path::PathBuf>,
    source: String,
}

/// Runs the command.
///
/// # Errors
/// When no cache folder is known, or a model to delete is not there.
pub(crate) fn run(args: &ModelsArgs) -> anyhow::Result<Outcome> {
    let catalog = Catalog::new(Env::from_process()).map_err(pilotfish::Error::from)?;
    match &args.action {
        None => list(&catalog, args.json)?,
        Some(Action::Rm { names, hf_repo, json }) => remove(&catalog, names, hf_repo, *json)?,
    }
    Ok(Outcome::Done)
}

fn list(catalog: &Catalog, json: bool) -> anyhow::Result<()> {
    let rows = rows(catalog);
    if json {
        return output::json(&json!({ "default": catalog.default_name(), "models": rows }));
    }
    let yes_no = |yes| if yes { "yes" } else { "no" }.to_owned();
    let cells: Vec<[String; 7]> = rows
        .iter()
        .map(|row| {
            [
                row.name.clone(),
                row.bytes.map_or_else(|| "?".to_owned(), bytes),
                [row.family, row.quant].into_iter().flatten().collect::<Vec<_>>().join(" "),
                row.licence.unwrap_or("?").to_owned(),
                yes_no(row.installed),
                yes_no(row.tried),
                row.source.clone(),
            ]
        })
        .collect();
    let header = ["NAME", "SIZE", "KIND", "LICENCE", "HERE", "TRIED", "FROM"].map(str::to_owned);
    output::text(&crate::units::table(&header, &cells))?;
    note!(
        "the default is {}; models that were not tried are fetched from the hub only",
        catalog.default_name()
    );
    Ok(())
}

fn rows(catalog: &Catalog) -> Vec<Row> {
    let mut installed = catalog.installed();
    let mut rows: Vec<Row> = catalog
        .entries()
        .iter()
        .map(|entry| {
            let here = installed.iter().position(|i| i.name == entry.name).map(|at| installed.remove(at));
            let sources: Vec<&str> = entry.sources.iter().map(source).collect();
            Row {
                name: entry.name.to_owned(),
                description: Some(entry.description),
                bytes: entry.bytes.or(here.as_ref().map(|here| here.bytes)),
                family: Some(entry.family),
                quant: Some(entry.quant),
                licence: Some(entry.licence),
                tried: entry.tried(),
                installed: here.is_some(),
                path: here.map(|here| here.path),
                source: sources.join(", "),
            }
        })
        .collect();
    rows.extend(installed.into_iter().map(|here| {
        Row {
            name: here.name,
            description: None,
            bytes: Some(here.bytes),
            family: None,
            quant: None,
            licence: None,
            tried: false,
            installed: true,
            path: Some(here.path),
            source: match here.source {
                InstalledFrom::Hub => "hub",
                InstalledFrom::Packages => "packages",
            }
            .to_owned(),
        }
    }));
    rows
}

fn source(source: &Source) -> &'static str {
    match source {
        Source::Hub(_) => "hub",
        Source::Packages(_) => "packages",
    }
}

fn remove(catalog: &Catalog, names: &[String], hub: &[String], json: bool) -> anyhow::Result<()> {
    if names.is_empty() && hub.is_empty() {
        return Err(usage("name a model to delete; `pilotfish models` lists them"));
    }
    let named = names.iter().map(|name| ModelRef::Named(name.clone()));
    let hub = hub.iter().map(|repo| ModelRef::Hub { repo: repo.clone(), file: None });
    let specs = named.chain(hub).map(|model| model.spec()).collect::<Result<Vec<_>, _>>()?;
    let mut removed = Vec::new();
    for spec in &specs {
        let freed = catalog.remove(spec, &Quiet).map_err(pilotfish::Error::from)?.bytes;
        if !json {
            output::line(&format!("deleted {}, {} freed", spec.argument(), bytes(freed)))?;
        }
        removed.push(json!({ "name": spec.argument(), "bytes": freed }));
    }
    if json { output::json(&json!({ "removed": removed })) } else { Ok(()) }
}

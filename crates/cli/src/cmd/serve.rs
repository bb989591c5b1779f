//! `serve`: a model over HTTP.
//!
//! Invariant: a first Ctrl-C or SIGTERM ends it well, with exit code 0; a second one ends it at once.
//! Not here: the server (`pilotfish-server`).

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use pilotfish::{Engine, LoadOptions};
use pilotfish_server::{Config, Defaults, Faults, Limits, ServeError, Server};

use crate::args::{DraftArgs, ModelArgs, SamplingArgs, sampling_error};
use crate::cmd::run::load_engine;
use crate::env;
use crate::exit::{INTERRUPTED, Outcome, interrupted, usage};
use crate::interrupt::{self, Listening};
use crate::numbers::whole;
use crate::output::note;

/// Flags of `serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Address to listen on; one beyond this machine needs a key.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port to listen on; 0 takes a free one.
    #[arg(long, value_name = "N", default_value_t = 8080, value_parser = whole::<u16>, allow_negative_numbers = true)]
    port: u16,
    /// Name of the model for clients [default: its own].
    #[arg(short, long, value_name = "NAME")]
    alias: Option<String>,
    /// Key that requests must carry. Repeatable; PILOTFISH_API_KEY keeps it out of the list of processes.
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,
    /// File of keys, one a line.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Listen beyond this machine without a key.
    #[arg(long)]
    insecure_no_auth: bool,
    /// Another name this server goes by, as requests have it in Host. Repeatable.
    #[arg(long, value_name = "NAME")]
    allowed_host: Vec<String>,
    /// Requests that may wait while one is answered; more are refused.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = whole::<usize>, allow_negative_numbers = true)]
    max_queue: usize,
    /// Seconds a request may take, waiting included.
    #[arg(long, value_name = "S", default_value_t = 3600, value_parser = seconds, allow_negative_numbers = true)]
    timeout: u64,
    /// Seconds a running reply may go on once the server is stopped.
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = whole::<u64>, allow_negative_numbers = true)]
    grace: u64,
    /// Most tokens of a reply whose request does not say; -1 goes on until the context is full.
    #[arg(short = 'n', long, alias = "n-predict", value_name = "N", default_value_t = -1, value_parser = whole::<i64>, allow_negative_numbers = true)]
    predict: i64,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    draft: DraftArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
}

/// A count of seconds above 0 that a clock can add.
fn seconds(text: &str) -> Result<u64, String> {
    let n = whole::<u64>(text)?;
    if (1..=31_536_000).contains(&n) { Ok(n) } else { Err(format!("`{text}` is not 1 to 31536000")) }
}

/// Runs the command.
///
/// # Errors
/// A usage error for a wrong flag; otherwise why it cannot serve.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<Outcome> {
    let mut load = args.model.load_options()?;
    args.draft.apply_to_load(&mut load)?;
    let config = args.config()?;
    let mut engine = load_engine(&load, false)?;
    config.defaults.sampling.validate(engine.lane_info().vocab).map_err(sampling_error)?;
    let listening = interrupt::listen();
    if engine.wants_curve() {
        engine.measure_curve(&listening.flag())?;
    }
    if listening.stopped() {
        return Err(interrupted());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(8)
        .enable_all()
        .build()?;
    runtime.block_on(serve(config, engine, load, &listening))?;
    // What is left are connections that nobody reads.
    runtime.shutdown_background();
    Ok(Outcome::Done)
}

async fn serve(
    config: Config,
    engine: Engine,
    load: LoadOptions,
    listening: &Listening,
) -> anyhow::Result<()> {
    let again = Box::new(move || Engine::load(&LoadOptions { offline: true, ..load.clone() }));
    let server =
        Server::bind(config, engine, again, Faults::default()).await.map_err(|error| match error {
            ServeError::NeedsKey(_) => usage(format!("{error}: give --api-key, or --insecure-no-auth")),
            ServeError::EmptyKey => usage(format!("--api-key: {error}")),
            error => error.into(),
        })?;
    for line in server.report() {
        note!("{line}");
    }
    server.run(stopped(listening)).await;
    Ok(())
}

/// Done at the first Ctrl-C or SIGTERM. A second SIGTERM then ends the process, as a second Ctrl-C does.
async fn stopped(listening: &Listening) {
    let asked = async {
        while !listening.stopped() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut signals) = signal(SignalKind::terminate()) {
            tokio::select! {
                () = asked => {}
                _ = signals.recv() => {}
            }
            tokio::spawn(async move {
                signals.recv().await;
                std::process::exit(i32::from(INTERRUPTED));
            });
            note!("stopping: no more requests are taken");
            return;
        }
    }
    asked.await;
}

impl ServeArgs {
    fn config(&self) -> anyhow::Result<Config> {
        let fresh_seed = self.sampling.seed == "-1";
        let mut sampling = self.sampling.clone();
        if fresh_seed {
            sampling.seed = "0".to_owned();
        }
        let max_tokens = match self.predict {
            -1 => None,
            n => Some(
                usize::try_from(n)
                    .ok()
                    .filter(|n| *n > 0)
                    .ok_or_else(|| usage(format!("-n cannot be {n}; it is a count above 0, or -1")))?,
            ),
        };
        Ok(Config {
            host: self.host,
            port: self.port,
            alias: self.alias.clone(),
            api_keys: self.keys()?,
            insecure_no_auth: self.insecure_no_auth,
            allowed_hosts: self.allowed_host.clone(),
            defaults: Defaults {
                sampling: sampling.params()?,
                fresh_seed,
                spec_sampling: self.draft.spec_sampling(),
                max_tokens,
            },
            limits: Limits {
                max_queue: self.max_queue,
                request_timeout: Duration::from_secs(self.timeout),
                grace: Duration::from_secs(self.grace),
                ..Limits::default()
            },
        })
    }

    fn keys(&self) -> anyhow::Result<Vec<String>> {
        let mut keys = self.api_key.clone();
        keys.extend(env::api_key());
        if let Some(path) = &self.api_key_file {
            let text = std::fs::read_to_string(path)
                .map_err(|error| anyhow::anyhow!("cannot read the keys of {}: {error}", path.display()))?;
            let before = keys.len();
            keys.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
            if keys.len() == before {
                return Err(anyhow::anyhow!("{} holds no key", path.display()));
            }
        }
        Ok(keys)
    }
}

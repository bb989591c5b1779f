//! Connections: accepting them, bounding them, and ending well.
//!
//! When the server stops, it accepts nothing more, refuses what waits, and lets the running reply go on for a grace
//! time; after that the reply ends with an error frame.
//!
//! Invariant: a client that sends or takes nothing holds a connection for a bounded time only.
//! Not here: signals (the command line), requests (`app`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use pilotfish::Engine;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;

use crate::app::{App, router};
use crate::auth::Keys;
use crate::config::{Config, Limits};
use crate::facts::Facts;
use crate::guard::Hosts;
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::report;
use crate::worker::{EngineState, Faults, Loader, Worker};

/// Headers of a request: their number, and the bytes they take together with the request line.
const MAX_HEADERS: (usize, usize) = (64, 32 << 10);
/// For the last frames, once the grace time is over.
const LAST_FRAMES: Duration = Duration::from_secs(2);

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The server would be open to others without a key.
    #[error("listening on {0}, beyond this machine, needs a key")]
    NeedsKey(IpAddr),
    /// A key that is none.
    #[error("an API key cannot be empty")]
    EmptyKey,
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The system has no thread for the engine.
    #[error("cannot start the engine's thread: {0}")]
    Thread(io::Error),
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    router: Router,
    worker: std::thread::JoinHandle<()>,
    report: [String; 5],
}

impl Server {
    /// Listens, with `engine` to answer and `load` to load another one should it fail.
    ///
    /// # Errors
    /// [`ServeError`].
    pub async fn bind(
        config: Config,
        engine: Engine,
        load: Loader,
        faults: Faults,
    ) -> Result<Self, ServeError> {
        if config.api_keys.iter().any(|key| key.trim().is_empty()) {
            return Err(ServeError::EmptyKey);
        }
        if !config.host.is_loopback() && config.api_keys.is_empty() && !config.insecure_no_auth {
            return Err(ServeError::NeedsKey(config.host));
        }
        let address = SocketAddr::new(config.host, config.port);
        let failed = |error| ServeError::Bind { address, error };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let report = report::lines(&engine, &config, address);
        let queue = Queue::new(config.limits.max_queue);
        let app = Arc::new(App {
            facts: Arc::new(Facts::new(&engine, &config)),
            queue: Arc::clone(&queue),
            metrics: Arc::default(),
            state: Arc::new(EngineState::new()),
            keys: Keys::new(&config.api_keys),
            hosts: Hosts::new(config.host, &config.allowed_hosts),
            config,
        });
        let (metrics, state): (Arc<Metrics>, _) = (Arc::clone(&app.metrics), Arc::clone(&app.state));
        let worker = Worker { engine, load, queue, metrics, state, faults };
        let worker = worker.start().map_err(ServeError::Thread)?;
        let router = router(&app);
        Ok(Self { listener, address, app, router, worker, report })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What is served, in five lines: model, lane, limits, drafter, address.
    pub fn report(&self) -> &[String; 5] {
        &self.report
    }

    /// Serves until `stop` is done, then ends well.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listener, app, router, worker, .. } = self;
        let limits = app.config.limits.clone();
        let connections = GracefulShutdown::new();
        let places = Arc::new(Semaphore::new(limits.max_connections));
        let accepting = async {
            loop {
                let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
                match listener.accept().await {
                    Ok((stream, _)) => serve(stream, place, &router, &limits, &connections),
                    // Out of descriptors, most likely: others may be closed meanwhile.
                    Err(_) => sleep(Duration::from_millis(50)).await,
                }
            }
        };
        tokio::select! {
            () = accepting => {}
            () = stop => {}
        }
        drop(listener);
        app.queue.close();
        let ended = connections.shutdown();
        tokio::pin!(ended);
        if timeout(limits.grace, &mut ended).await.is_err() {
            app.queue.stop_running();
            let _ = timeout(LAST_FRAMES, &mut ended).await;
        }
        // Whoever is still connected is not reading.
        app.queue.stop_running();
        let _ = timeout(LAST_FRAMES, tokio::task::spawn_blocking(move || worker.join())).await;
    }
}

/// Serves one connection.
fn serve(
    stream: TcpStream,
    place: OwnedSemaphorePermit,
    router: &Router,
    limits: &Limits,
    connections: &GracefulShutdown,
) {
    // Tokens are small packets that must not wait for one another.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.stall_timeout));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_headers(MAX_HEADERS.0)
        .max_buf_size(MAX_HEADERS.1)
        .serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router.clone()));
    let connection = connections.watch(connection);
    tokio::spawn(async move {
        // An error here is the client's: it left, or sent what is no HTTP.
        let _ = connection.await;
        drop(place);
    });
}

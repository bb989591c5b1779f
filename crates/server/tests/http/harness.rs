//! A server in a thread, and a client that shows every byte.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pilotfish::{CpuOptions, DrafterChoice, Engine, LoadOptions};
use pilotfish_model::Family;
use pilotfish_model::testing::TinySpec;
use pilotfish_server::{Config, Faults, Server};
use serde_json::Value;
use tokio::sync::oneshot;

/// A running server and the folder of its model.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) report: [String; 5],
    load: LoadOptions,
    _folder: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A reply with its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// A small model that is fast enough for hundreds of tokens.
pub(crate) fn small() -> TinySpec {
    TinySpec { layers: 1, context: 2048, ..TinySpec::new(Family::Llama) }
}

/// Calls `each` before every round.
pub(crate) fn before_rounds(each: impl Fn(usize) + Send + Sync + 'static) -> Faults {
    Faults(Some(Arc::new(each)))
}

/// Rounds that take a while, so that a reply surely still runs.
pub(crate) fn slow() -> Faults {
    before_rounds(|_| std::thread::sleep(Duration::from_millis(20)))
}

impl Running {
    /// A server with defaults.
    pub(crate) fn new() -> Self {
        Self::with(&small(), |_| {}, Faults::default())
    }

    pub(crate) fn with(spec: &TinySpec, change: impl FnOnce(&mut Config), faults: Faults) -> Self {
        Self::start(&spec.gguf(), (DrafterChoice::Auto, spec.context), change, faults)
    }

    pub(crate) fn with_file(file: &[u8], change: impl FnOnce(&mut Config), faults: Faults) -> Self {
        Self::start(file, (DrafterChoice::Auto, small().context), change, faults)
    }

    /// One whose rounds are always of one token.
    pub(crate) fn plain() -> Self {
        Self::start(&small().gguf(), (DrafterChoice::None, small().context), |_| {}, Faults::default())
    }

    fn start(
        file: &[u8],
        (drafter, context): (DrafterChoice, usize),
        change: impl FnOnce(&mut Config),
        faults: Faults,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("model.gguf"), file).unwrap();
        let mut config = Config { port: 0, ..Config::default() };
        change(&mut config);
        let load = LoadOptions {
            drafter,
            cpu: CpuOptions { threads: Some(1), context: Some(context), ..CpuOptions::default() },
            ..LoadOptions::new(folder.path().join("model.gguf").to_str().unwrap())
        };
        let own = load.clone();
        let (tell, hear) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let engine = Engine::load(&load).unwrap();
                let again = Box::new(move || Engine::load(&load));
                let server = Server::bind(config, engine, again, faults).await.unwrap();
                tell.send((server.address(), server.report().clone())).unwrap();
                server.run(async { drop(stopped.await) }).await;
            });
            runtime.shutdown_background();
        };
        let thread = std::thread::spawn(serve);
        let (address, report) = hear.recv().unwrap();
        Self { address, report, load: own, _folder: folder, stop: Some(stop), thread: Some(thread) }
    }

    /// An engine of its own on the same model.
    pub(crate) fn engine(&self) -> Engine {
        Engine::load(&self.load).unwrap()
    }

    /// Tells the server to stop.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until it has stopped.
    pub(crate) fn ended(&mut self) {
        self.stop();
        self.thread.take().unwrap().join().unwrap();
    }

    /// Sends the bytes of a request as they are.
    pub(crate) fn connect(&self, request: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(request).unwrap();
        stream
    }

    /// Sends bytes and reads everything that comes back.
    pub(crate) fn exchange(&self, request: &[u8]) -> Reply {
        Reply::read(self.connect(request))
    }

    /// The bytes of a POST with these headers besides the usual.
    pub(crate) fn request(&self, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
        let host = self.address;
        let length = body.len();
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             {headers}Content-Length: {length}\r\n\r\n"
        )
        .into_bytes();
        request.extend_from_slice(body);
        request
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.exchange(&self.request(path, "", body.to_string().as_bytes()))
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        let host = self.address;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        self.exchange(request.as_bytes())
    }

    /// A number of `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").body;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is not in {page}")).parse().unwrap()
    }

    /// Waits until a number of `/metrics` is as wanted, but not for ever.
    #[track_caller]
    pub(crate) fn wait(&self, name: &str, wanted: f64) {
        let start = Instant::now();
        while self.metric(name) != wanted {
            assert!(start.elapsed() < Duration::from_secs(20), "{name} stays {}", self.metric(name));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A short request whose answer is known to be right if `expected` is the first one.
    pub(crate) fn golden(&self) -> Value {
        let body = serde_json::json!({
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": 5, "ignore_eos": true, "temperature": 0
        });
        self.post("/v1/chat/completions", &body).json()["choices"].clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            // A second panic would hide the first.
            if !std::thread::panicking() {
                ended.unwrap();
            }
        }
    }
}

impl Reply {
    /// Reads a reply to the end of its connection.
    pub(crate) fn read(mut stream: TcpStream) -> Self {
        let mut bytes = Vec::new();
        // The other side may close a connection with bytes of ours unread, which is a reset.
        while stream.read(&mut [0; 0]).is_ok() {
            let mut some = [0; 4096];
            match stream.read(&mut some) {
                Ok(0) | Err(_) => break,
                Ok(n) => bytes.extend_from_slice(&some[..n]),
            }
        }
        Self::of(&bytes)
    }

    fn of(bytes: &[u8]) -> Self {
        let at = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let at = at.unwrap_or_else(|| panic!("no head in {:?}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let rest = &bytes[at + 4..];
        let chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        let body = if chunked { unchunked(rest) } else { rest.to_vec() };
        Self { status, head, body: String::from_utf8(body).unwrap() }
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        serde_json::from_str(&self.body).unwrap()
    }

    /// Asserts a refusal in OpenAI's form; returns its `error`.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        let value: Value = serde_json::from_str(&self.body).unwrap();
        assert!(value["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{value}");
        value["error"].clone()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// The data of every frame that has some.
    pub(crate) fn frames(&self) -> Vec<&str> {
        self.body.split("\n\n").filter_map(|frame| frame.split("data: ").nth(1)).collect()
    }

    /// The same, as JSON, without the last word of OpenAI's streams.
    pub(crate) fn chunks(&self) -> Vec<Value> {
        let frames = self.frames();
        let json = frames.iter().filter(|frame| **frame != "[DONE]");
        json.map(|frame| serde_json::from_str(frame).unwrap()).collect()
    }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(at) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..at]).unwrap(), 16).unwrap();
        let chunk = &rest[at + 2..];
        // A stream that was cut has no last chunk.
        body.extend_from_slice(&chunk[..size.min(chunk.len())]);
        if size == 0 || chunk.len() < size + 2 {
            break;
        }
        rest = &chunk[size + 2..];
    }
    body
}

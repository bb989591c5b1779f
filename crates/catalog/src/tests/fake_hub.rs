//! A hub on the loopback interface, with faults on demand.
//!
//! Not here: anything a real hub does that no test needs.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{COMMIT, FILE, REPO, sha256};

/// What was asked.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// First byte of the range asked for.
    pub(super) fn from(&self) -> usize {
        let range = self.header("range").and_then(|range| range.strip_prefix("bytes="));
        range.and_then(|range| range.strip_suffix('-')).map_or(0, |from| from.parse().unwrap())
    }
}

/// What is answered.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// Closes the connection after this many bytes of the body.
    pub(super) cut: Option<usize>,
    /// Leaves out `Content-Length`.
    pub(super) unsized_body: bool,
    /// Pause after every 4 KiB.
    pub(super) slow: Duration,
}

impl Reply {
    pub(super) fn status(status: u16) -> Self {
        let (headers, body) = (Vec::new(), Vec::new());
        Self { status, headers, body, cut: None, unsized_body: false, slow: Duration::ZERO }
    }

    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }
}

/// A server that ends with the test.
pub(super) struct FakeHub {
    port: u16,
    log: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FakeHub {
    /// Answers each request with what `answer` makes of it; requests are numbered per method from 0.
    pub(super) fn start(answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let log: Arc<Mutex<Vec<Request>>> = Arc::default();
        let stop: Arc<AtomicBool> = Arc::default();
        let answer = Arc::new(answer);
        let thread = thread::spawn({
            let (log, stop) = (Arc::clone(&log), Arc::clone(&stop));
            move || {
                for stream in listener.incoming().flatten() {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                    thread::spawn(move || serve(stream, &log, &*answer));
                }
            }
        });
        Self { port, log, stop, thread: Some(thread) }
    }

    /// One file that is served as the real hub would.
    pub(super) fn hosting(content: &[u8]) -> Self {
        let content = content.to_vec();
        Self::start(move |request, _| host(request, &content))
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The same server under another host name.
    pub(super) fn other_url(port: u16) -> String {
        format!("http://localhost:{port}")
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.log.lock().unwrap().clone()
    }

    pub(super) fn gets(&self) -> Vec<Request> {
        self.requests().into_iter().filter(|request| request.method == "GET").collect()
    }
}

impl Drop for FakeHub {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for a connection.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// The answer of a hub that has `content` as its one file.
pub(super) fn host(request: &Request, content: &[u8]) -> Reply {
    if request.path == format!("/api/models/{REPO}/tree/main?recursive=true") {
        let list = format!(
            r#"[{{"type":"directory","path":"x"}},{{"type":"file","path":"{FILE}","size":{}}},
                {{"type":"file","path":"README.md","size":3}},{{"type":"file","path":"../evil.gguf","size":3}}]"#,
            content.len()
        );
        return Reply::status(200).body(list.as_bytes());
    }
    let known = ["main", COMMIT].map(|revision| format!("/{REPO}/resolve/{revision}/{FILE}"));
    if !known.contains(&request.path) {
        return Reply::status(404).with("X-Error-Code", "EntryNotFound");
    }
    let described = |reply: Reply| {
        reply
            .with("X-Repo-Commit", COMMIT)
            .with("X-Linked-Etag", &format!("\"{}\"", sha256(content)))
            .with("X-Linked-Size", &content.len().to_string())
            .with("ETag", "\"of-the-redirect\"")
    };
    if request.method == "HEAD" {
        return described(Reply::status(200));
    }
    described(bytes(request, content))
}

/// The bytes asked for, as a range if one was.
pub(super) fn bytes(request: &Request, content: &[u8]) -> Reply {
    let from = request.from();
    if request.header("range").is_none() {
        return Reply::status(200).body(content);
    }
    if from >= content.len() {
        return Reply::status(416);
    }
    let range = format!("bytes {from}-{}/{}", content.len() - 1, content.len());
    Reply::status(206).with("Content-Range", &range).body(&content[from..])
}

fn serve(
    mut stream: TcpStream,
    log: &Mutex<Vec<Request>>,
    answer: &(dyn Fn(&Request, usize) -> Reply + Send + Sync),
) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(first)) = lines.next() else { return };
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
    let headers = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            line.split_once(": ").map(|(key, value)| (key.to_ascii_lowercase(), value.to_owned()))
        })
        .collect();
    let request = Request { method, path, headers };
    let number = {
        let mut log = log.lock().unwrap();
        log.push(request.clone());
        log.iter().filter(|other| other.method == request.method).count() - 1
    };
    let reply = answer(&request, number);
    let mut head = format!("HTTP/1.1 {} Status\r\nConnection: close\r\n", reply.status);
    if !reply.unsized_body {
        head += &format!("Content-Length: {}\r\n", reply.body.len());
    }
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    let body: &[u8] = if request.method == "HEAD" { &[] } else { &reply.body };
    let body = &body[..reply.cut.unwrap_or(body.len()).min(body.len())];
    // The client may be gone, which is its right.
    if stream.write_all(head.as_bytes()).is_err() {
        return;
    }
    for piece in body.chunks(4096) {
        if stream.write_all(piece).is_err() {
            return;
        }
        thread::sleep(reply.slow);
    }
}

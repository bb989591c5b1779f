//! Talks to the Hugging Face hub, or a mirror that speaks like it.
//!
//! ```text
//! HEAD /REPO/resolve/REVISION/FILE    X-Repo-Commit, X-Linked-Etag (the sha256), X-Linked-Size
//! GET  /REPO/resolve/COMMIT/FILE      the bytes, usually after a redirect to another host
//! GET  /api/models/REPO/tree/REVISION?recursive=true    the list of files
//! ```
//!
//! Invariant: the token goes to the hub and to no host it redirects to.
//! Invariant: nothing the server sends becomes part of a path unless it passed the checks of `hub_cache`.
//! Not here: writing files (`download`), the cache's layout (`hub_cache`).

use std::io;
use std::time::Duration;

use serde::Deserialize;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{Response, StatusCode, header};
use ureq::{Agent, Body};

use crate::env::Env;
use crate::error::CatalogError;
use crate::hub_cache::{is_plain_name, is_plain_path};
use crate::progress::Progress;
use crate::tuning::{Tuning, sleep};

/// A list of ten thousand files is about 2 MB; more than this is not a list of model files.
const MAX_LIST: u64 = 16 << 20;

/// A file as the hub describes it.
#[derive(Clone, Debug)]
pub(crate) struct RemoteFile {
    /// `user/repo`.
    pub(crate) repo: String,
    /// Path inside the repository.
    pub(crate) file: String,
    /// The commit it was looked up at.
    pub(crate) commit: String,
    /// Name of its blob.
    pub(crate) etag: String,
    /// The hub's own sha256, which it has for every file kept as a large one.
    pub(crate) sha256: Option<String>,
    /// Size in bytes.
    pub(crate) bytes: Option<u64>,
    /// Address of the bytes at that commit.
    pub(crate) url: String,
}

/// Why one request failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The host cannot be found or connected to.
    Unreachable(String),
    /// Worth repeating, after the given pause if the server asked for one.
    Transient(String, Option<Duration>),
    /// Not worth repeating.
    Final(CatalogError),
}

/// A connection to the hub.
#[derive(Debug)]
pub(crate) struct Hub {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    tuning: Tuning,
}

impl Hub {
    /// Prepares a connection. Errors: `BadVariable` for an endpoint or proxy that cannot be used.
    pub(crate) fn new(env: &Env, tuning: &Tuning) -> Result<Self, CatalogError> {
        let endpoint = env.endpoint()?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects_will_error(false)
            .redirect_auth_headers(RedirectAuthHeaders::Never)
            .user_agent(concat!("pilotfish/", env!("CARGO_PKG_VERSION")))
            // The hash is of the bytes as stored, so no encoding on the way.
            .accept_encoding("identity")
            .proxy(proxy(env, &endpoint)?)
            .timeout_resolve(Some(tuning.connect))
            .timeout_connect(Some(tuning.connect))
            .timeout_send_request(Some(tuning.silence))
            .timeout_recv_response(Some(tuning.silence))
            .timeout_per_read(Some(tuning.silence))
            .build();
        Ok(Self { agent: config.into(), endpoint, token: env.token(), tuning: tuning.clone() })
    }

    /// Address of the hub.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Looks a file up. Errors: `Unreachable`, `Gated`, `NotOnHub`, `Status`, `NotAHub`, `Cancelled`.
    pub(crate) fn describe(
        &self,
        repo: &str,
        file: &str,
        revision: &str,
        progress: &dyn Progress,
    ) -> Result<RemoteFile, CatalogError> {
        let url = self.file_url(repo, file, revision);
        let what = format!("{repo}/{file}");
        let response = self.repeat(progress, || self.head(&url, repo, &what))?;
        let not_a_hub = |why| CatalogError::NotAHub { url: url.clone(), why };
        let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let commit = text("x-repo-commit").unwrap_or_default().to_owned();
        if !is_plain_name(&commit) {
            return Err(not_a_hub("no X-Repo-Commit"));
        }
        let etag = text("x-linked-etag").or_else(|| text("etag")).unwrap_or_default();
        let etag = etag.trim_start_matches("W/").trim_matches('"').to_owned();
        if !is_plain_name(&etag) {
            return Err(not_a_hub("no usable ETag"));
        }
        let is_sha256 = etag.len() == 64 && etag.bytes().all(|byte| byte.is_ascii_hexdigit());
        let sha256 = is_sha256.then(|| etag.to_ascii_lowercase());
        // The length of a redirect's own body says nothing about the file.
        let length = if response.status().is_redirection() { None } else { text("content-length") };
        let bytes = text("x-linked-size").or(length).and_then(|size| size.parse().ok());
        let url = self.file_url(repo, file, &commit);
        Ok(RemoteFile { repo: repo.to_owned(), file: file.to_owned(), commit, etag, sha256, bytes, url })
    }

    /// Paths of a repository's files. Errors: as [`Hub::describe`].
    pub(crate) fn list(
        &self,
        repo: &str,
        revision: &str,
        progress: &dyn Progress,
    ) -> Result<Vec<String>, CatalogError> {
        #[derive(Deserialize)]
        struct Listed {
            #[serde(rename = "type")]
            kind: String,
            path: String,
        }
        let url = format!("{}/api/models/{repo}/tree/{revision}?recursive=true", self.endpoint);
        let text = self.repeat(progress, || {
            let response = self.request(&url, None)?;
            let response = self.check(response, &url, repo, repo)?;
            let mut body = response.into_body();
            body.with_config().limit(MAX_LIST).read_to_vec().map_err(|error| self.failure(&error))
        })?;
        let listed: Vec<Listed> = serde_json::from_slice(&text).map_err(|_| CatalogError::NotAHub {
            url,
            why: "the list of files is not the JSON it should be",
        })?;
        Ok(listed
            .into_iter()
            .filter(|file| file.kind == "file" && is_plain_path(&file.path))
            .map(|file| file.path)
            .collect())
    }

    /// Asks for the bytes of a file from position `from` on, following redirects. Any status may come back.
    pub(crate) fn bytes(&self, url: &str, from: u64) -> Result<Response<Body>, Failure> {
        self.request(url, Some(from))
    }

    /// Turns a refusal into the right kind of failure; success passes through.
    pub(crate) fn check(
        &self,
        response: Response<Body>,
        url: &str,
        repo: &str,
        what: &str,
    ) -> Result<Response<Body>, Failure> {
        let status = response.status();
        if status.is_success() || status.is_redirection() {
            return Ok(response);
        }
        let code = response.headers().get("x-error-code").and_then(|code| code.to_str().ok()).unwrap_or("");
        let gated = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if gated && code != "RepoNotFound" || code == "GatedRepo" {
            let page = format!("{}/{repo}", self.endpoint);
            return Err(Failure::Final(CatalogError::Gated {
                repo: repo.to_owned(),
                status: status.as_u16(),
                page,
            }));
        }
        if status == StatusCode::NOT_FOUND || code == "RepoNotFound" {
            return Err(Failure::Final(CatalogError::NotOnHub { what: what.to_owned() }));
        }
        let repeatable = status.is_server_error()
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        if repeatable {
            let after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
            let after = after.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
            return Err(Failure::Transient(format!("status {}", status.as_u16()), after));
        }
        Err(Failure::Final(CatalogError::Status { url: url.to_owned(), status: status.as_u16() }))
    }

    /// Sorts what the connection said.
    pub(crate) fn failure(&self, error: &ureq::Error) -> Failure {
        use ureq::Timeout;
        match error {
            ureq::Error::HostNotFound => Failure::Unreachable("the host is not known".to_owned()),
            ureq::Error::ConnectionFailed => Failure::Unreachable("no connection".to_owned()),
            ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
                Failure::Unreachable(format!("no answer within {} s", self.tuning.connect.as_secs_f32()))
            }
            ureq::Error::Io(io) if is_unreachable(io) => Failure::Unreachable(io.to_string()),
            ureq::Error::Timeout(_) => Failure::Transient("the transfer stalled".to_owned(), None),
            ureq::Error::Io(io) => Failure::Transient(io.to_string(), None),
            // A proxy, certificate or protocol that is wrong now is wrong in a second too.
            other => Failure::Unreachable(one_line(&other.to_string())),
        }
    }

    /// Repeats a small request while its failures are transient.
    fn repeat<T>(
        &self,
        progress: &dyn Progress,
        request: impl Fn() -> Result<T, Failure>,
    ) -> Result<T, CatalogError> {
        let mut attempt = 1;
        loop {
            if progress.cancelled() {
                return Err(CatalogError::Cancelled);
            }
            match request() {
                Ok(value) => return Ok(value),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Unreachable(cause)) => return Err(self.unreachable(cause)),
                Err(Failure::Transient(cause, after)) => {
                    attempt += 1;
                    if attempt > self.tuning.attempts {
                        return Err(self.unreachable(format!("{cause}, {} times", attempt - 1)));
                    }
                    sleep(self.pause(attempt, after), progress)?;
                }
            }
        }
    }

    /// The pause before a try: what the server asked for within reason, otherwise our own.
    pub(crate) fn pause(&self, attempt: u32, asked: Option<Duration>) -> Duration {
        asked.map_or_else(|| self.tuning.pause(attempt), |time| time.min(Duration::from_secs(30)))
    }

    pub(crate) fn unreachable(&self, cause: String) -> CatalogError {
        CatalogError::Unreachable { endpoint: self.endpoint.clone(), cause }
    }

    /// HEAD, following only the redirects that stay on the hub (a renamed repository): the answer of the hub
    /// itself carries the headers, the host that has the bytes does not.
    fn head(&self, url: &str, repo: &str, what: &str) -> Result<Response<Body>, Failure> {
        let mut url = url.to_owned();
        for _ in 0..5 {
            let mut request = self.agent.head(&url);
            if let Some(token) = &self.token {
                request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
            }
            let response =
                request.config().max_redirects(0).build().call().map_err(|error| self.failure(&error))?;
            let response = self.check(response, &url, repo, what)?;
            let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
            match location {
                Some(path)
                    if response.status().is_redirection()
                        && path.starts_with('/')
                        && !path.starts_with("//") =>
                {
                    url = format!("{}{path}", origin(&self.endpoint));
                }
                _ => return Ok(response),
            }
        }
        Err(Failure::Final(CatalogError::NotAHub { url, why: "it redirects in a circle" }))
    }

    fn request(&self, url: &str, from: Option<u64>) -> Result<Response<Body>, Failure> {
        let mut request = self.agent.get(url);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(from) = from.filter(|from| *from > 0) {
            request = request.header(header::RANGE, format!("bytes={from}-"));
        }
        request.call().map_err(|error| self.failure(&error))
    }

    fn file_url(&self, repo: &str, file: &str, revision: &str) -> String {
        format!("{}/{repo}/resolve/{}/{}", self.endpoint, encode(revision), encode(file))
    }
}

/// Chooses the file of a repository for a quantization. `names` are paths inside it.
///
/// Without a quantization it is `Q4_K_M`, `Q4_0` or `Q8_0`, whichever is there first, or the only file.
/// Errors: `NoMatchingFile`, `SplitFile`.
pub(crate) fn choose(repo: &str, names: &[String], quant: Option<&str>) -> Result<String, CatalogError> {
    let mut models: Vec<&String> = names.iter().filter(|name| is_model(name)).collect();
    // The shortest name is the plain variant; the rest of the order only has to be fixed.
    models.sort_by_key(|name| (name.len(), name.as_str()));
    let (split, whole): (Vec<&String>, Vec<&String>) = models.into_iter().partition(|name| is_split(name));
    let wanted: &[&str] = match &quant {
        Some(quant) => &[*quant],
        None => &["Q4_K_M", "Q4_0", "Q8_0"],
    };
    for quant in wanted {
        if let Some(name) = whole.iter().find(|name| has_word(name, quant)) {
            return Ok((*name).clone());
        }
    }
    if quant.is_none() && whole.len() == 1 {
        return Ok(whole[0].clone());
    }
    if let Some(name) = split.iter().find(|name| wanted.iter().any(|quant| has_word(name, quant))) {
        return Err(CatalogError::SplitFile { repo: repo.to_owned(), file: (*name).clone() });
    }
    Err(CatalogError::NoMatchingFile {
        repo: repo.to_owned(),
        wanted: quant.unwrap_or("Q4_K_M").to_owned(),
        available: whole.into_iter().take(40).cloned().collect(),
    })
}

/// GGUF files that are models of their own, not vision towers or calibration data.
pub(crate) fn is_model(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.ends_with(".gguf") && !lower.contains("mmproj") && !lower.contains("imatrix")
}

/// Whether the name is `...-00001-of-00003.gguf`.
pub(crate) fn is_split(name: &str) -> bool {
    let stem = name.get(..name.len().saturating_sub(5)).unwrap_or_default();
    stem.rsplit_once("-of-").is_some_and(|(front, count)| {
        let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        digits(count) && front.rsplit('-').next().is_some_and(digits)
    })
}

/// Whether `word` stands in `text` with nothing of a word before or after it, in any case.
fn has_word(text: &str, word: &str) -> bool {
    let (text, word) = (text.to_ascii_lowercase(), word.to_ascii_lowercase());
    let part_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(&word).any(|(at, _)| {
        !text[..at].ends_with(part_of_word) && !text[at + word.len()..].starts_with(part_of_word)
    })
}

fn proxy(env: &Env, endpoint: &str) -> Result<Option<ureq::Proxy>, CatalogError> {
    let Some((name, value)) = env.proxy_for(endpoint) else { return Ok(None) };
    let bad =
        |_| CatalogError::BadVariable { name, value: value.to_owned(), why: "it is not a proxy address" };
    let plain = ureq::Proxy::new(value).map_err(bad)?;
    let Some(no_proxy) = env.no_proxy() else { return Ok(Some(plain)) };
    let mut builder = ureq::Proxy::builder(plain.protocol()).host(plain.host()).port(plain.port());
    if let Some(user) = plain.username() {
        builder = builder.username(user);
    }
    if let Some(password) = plain.password() {
        builder = builder.password(password);
    }
    for host in no_proxy.split(',').map(str::trim).filter(|host| !host.is_empty()) {
        builder = builder.no_proxy(host);
    }
    builder.build().map(Some).map_err(bad)
}

fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    // A name that is not found has no kind of its own, only the system's words or, on Windows, its number.
    error.to_string().contains("failed to lookup address")
        || error.raw_os_error() == Some(11001)
        || matches!(
            error.kind(),
            Kind::ConnectionRefused | Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::NetworkDown
        )
}

/// Scheme, host and port of an address.
fn origin(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    url[start..].find('/').map_or(url, |at| &url[..start + at])
}

/// Percent-encodes everything but unreserved characters and slashes.
fn encode(path: &str) -> String {
    use std::fmt::Write;
    path.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_quantization_is_a_whole_word() {
        let files = names(&["m-Q4_K_M.gguf", "m-Q4_K.gguf", "m-IQ4_K.gguf", "README.md", "mmproj-Q4_K.gguf"]);
        assert_eq!(choose("a/b", &files, Some("q4_k")).unwrap(), "m-Q4_K.gguf");
        assert_eq!(choose("a/b", &files, Some("Q4_K_M")).unwrap(), "m-Q4_K_M.gguf");
        assert_eq!(choose("a/b", &files, None).unwrap(), "m-Q4_K_M.gguf");
        let error = choose("a/b", &files, Some("Q5_K_M")).unwrap_err().to_string();
        assert!(error.contains("m-Q4_K_M.gguf") && !error.contains("mmproj"), "{error}");
    }

    #[test]
    fn without_a_quantization_the_only_file_will_do_but_not_any_of_several() {
        assert_eq!(choose("a/b", &names(&["sub/only-F16.gguf"]), None).unwrap(), "sub/only-F16.gguf");
        assert_eq!(choose("a/b", &names(&["x.Q8_0.gguf", "x.F16.gguf"]), None).unwrap(), "x.Q8_0.gguf");
        let error = choose("a/b", &names(&["x.F32.gguf", "x.F16.gguf"]), None).unwrap_err();
        assert!(matches!(error, CatalogError::NoMatchingFile { .. }), "{error}");
        let error = choose("a/b", &names(&["README.md"]), None).unwrap_err().to_string();
        assert!(error.ends_with("it has: none"), "{error}");
    }

    #[test]
    fn split_files_are_named_as_such() {
        let files = names(&["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf", "m-Q4_0.gguf"]);
        let error = choose("a/b", &files, Some("Q8_0")).unwrap_err();
        assert!(matches!(error, CatalogError::SplitFile { .. }), "{error}");
        assert_eq!(choose("a/b", &files, None).unwrap(), "m-Q4_0.gguf");
        assert!(!is_split("best-of-breed.gguf") && !is_split("") && !is_split("é.gguf"));
    }

    #[test]
    fn addresses() {
        assert_eq!(encode("Q4/ä b.gguf"), "Q4/%C3%A4%20b.gguf");
        assert_eq!(origin("https://hub.example:8/mirror"), "https://hub.example:8");
        assert_eq!(origin("https://hub.example"), "https://hub.example");
    }

    #[test]
    fn a_proxy_that_is_none_is_reported() {
        let env = Env::empty().with("HTTPS_PROXY", "ftp://x:1");
        let error = Hub::new(&env, &Tuning::default()).unwrap_err().to_string();
        assert!(error.starts_with("HTTPS_PROXY=`ftp://x:1`"), "{error}");
        let env =
            Env::empty().with("HTTPS_PROXY", "http://user:pw@proxy:3128").with("NO_PROXY", "a.example, .b");
        let proxy = proxy(&env, "https://huggingface.co").unwrap().unwrap();
        assert_eq!((proxy.host(), proxy.port(), proxy.username()), ("proxy", 3128, Some("user")));
        assert!(proxy.is_no_proxy(&"https://a.example/x".parse().unwrap()));
        assert!(!proxy.is_no_proxy(&"https://huggingface.co/x".parse().unwrap()));
    }
}

//! From a checked request to its reply: whole, or as a stream of frames.
//!
//! A reply is read through [`Replies`], which holds the request's ticket. When the connection ends, the server drops
//! whatever reads the reply, and with it the ticket.
//!
//! Invariant: a stream that began ends with its interface's last frame or with an error frame, unless the client left.
//! Not here: what frames say (`api`), the queue's rules (`queue`).

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use pilotfish::{Logprobs, Summary};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use crate::app::App;
use crate::ask::Ask;
use crate::error::ApiError;
use crate::facts::Facts;
use crate::parts::{Part, Rules, Splitter, ToolCall};
use crate::queue::{Refusal, Ticket};
use crate::sse;
use crate::worker::{UNREAD_UPDATES, Update};

/// An interface's way to tell of a reply in a stream. Each method gives frames, or nothing.
pub(crate) trait Voice: Send + 'static {
    /// Before the first token.
    fn start(&mut self) -> String;
    /// After something happened; [`Update::Failed`] never comes here.
    fn update(&mut self, update: Update) -> String;
    /// When there will be no more.
    fn fail(&mut self, error: &ApiError) -> String;
}

/// Does the part of a request that takes a processor, where other requests do not wait for it.
///
/// # Errors
/// Those of `work`; and why no request could be answered now, before any work.
pub(crate) async fn prepare<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&Facts) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    app.state.trouble().map_or(Ok(()), Err)?;
    app.queue.check().map_err(|refusal| refused(app, refusal))?;
    let facts = Arc::clone(&app.facts);
    let done = tokio::task::spawn_blocking(move || work(&facts)).await;
    done.map_err(|_| ApiError::server("preparing the prompt failed"))?
}

fn refused(app: &App, refusal: Refusal) -> ApiError {
    match refusal {
        Refusal::Closed => ApiError::unavailable("the server is stopping"),
        Refusal::Full(waiting) => {
            let seconds = app.metrics.mean_reply_seconds() * (waiting + 1) as f64;
            ApiError::busy(waiting, seconds.clamp(1.0, 60.0) as u32)
        }
    }
}

/// The updates of a request that waits or runs. Dropping it stops the request.
pub(crate) struct Replies {
    app: Arc<App>,
    updates: mpsc::Receiver<Update>,
    deadline: Instant,
    _ticket: Ticket,
}

impl Replies {
    /// Puts a request into the queue.
    ///
    /// # Errors
    /// Where the queue is full or closed.
    pub(crate) fn of(app: &Arc<App>, ask: Ask) -> Result<Self, ApiError> {
        let (sender, updates) = mpsc::channel(UNREAD_UPDATES);
        let ticket = app.queue.push(ask, sender).map_err(|refusal| refused(app, refusal))?;
        let deadline = Instant::now() + app.config.limits.request_timeout;
        Ok(Self { app: Arc::clone(app), updates, deadline, _ticket: ticket })
    }

    /// The next update.
    ///
    /// # Errors
    /// Why there will be no more.
    async fn next(&mut self) -> Result<Update, ApiError> {
        match timeout_at(self.deadline, self.updates.recv()).await {
            Ok(Some(Update::Failed(error))) => Err(error),
            Ok(Some(update)) => Ok(update),
            Ok(None) if self.app.queue.is_closed() => Err(ApiError::unavailable("the server is stopping")),
            Ok(None) => Err(ApiError::server("the reply was not read fast enough")),
            Err(_) => Err(ApiError::timed_out(self.app.config.limits.request_timeout.as_secs())),
        }
    }

    /// The reply as a stream.
    pub(crate) fn stream(self, voice: impl Voice) -> Response<Body> {
        let frames = unfold(Stage::Fresh(self, voice), |mut stage| async move {
            loop {
                let (frames, next) = stage.go_on().await?;
                if !frames.is_empty() {
                    return Some((Ok::<_, Infallible>(Bytes::from(frames)), next));
                }
                stage = next;
            }
        });
        sse::response(Body::from_stream(frames))
    }

    /// The whole reply, choice by choice.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn whole(mut self, rules: Rules) -> Result<Vec<Reply>, ApiError> {
        let mut replies: Vec<Reply> = Vec::new();
        loop {
            match self.next().await? {
                Update::Round(choice, record) => {
                    choice_of(&mut replies, choice, &rules).logprobs.extend(record.logprobs);
                }
                Update::Text(choice, text) => choice_of(&mut replies, choice, &rules).push(&text),
                Update::Choice(choice, summary) => choice_of(&mut replies, choice, &rules).end(summary),
                Update::Done | Update::Failed(_) => return Ok(replies),
            }
        }
    }
}

enum Stage<V> {
    Fresh(Replies, V),
    Running(Replies, V),
    Over,
}

impl<V: Voice> Stage<V> {
    async fn go_on(self) -> Option<(String, Self)> {
        match self {
            Self::Fresh(replies, mut voice) => Some((voice.start(), Self::Running(replies, voice))),
            Self::Running(mut replies, mut voice) => {
                let silence = replies.app.config.limits.keep_alive;
                match timeout(silence, replies.next()).await {
                    Err(_) => Some((sse::KEEP_ALIVE.to_owned(), Self::Running(replies, voice))),
                    Ok(Ok(Update::Done)) => Some((voice.update(Update::Done), Self::Over)),
                    Ok(Ok(update)) => Some((voice.update(update), Self::Running(replies, voice))),
                    Ok(Err(error)) => Some((voice.fail(&error), Self::Over)),
                }
            }
            Self::Over => None,
        }
    }
}

/// One whole choice.
pub(crate) struct Reply {
    splitter: Splitter,
    /// Bytes that were written, marks included.
    pub(crate) written: usize,
    pub(crate) text: String,
    pub(crate) thought: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) logprobs: Vec<Logprobs>,
    pub(crate) summary: Option<Box<Summary>>,
}

fn choice_of<'a>(replies: &'a mut Vec<Reply>, choice: u32, rules: &Rules) -> &'a mut Reply {
    let at = choice as usize;
    while replies.len() <= at {
        replies.push(Reply::new(rules.clone()));
    }
    &mut replies[at]
}

impl Reply {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            splitter: Splitter::new(rules),
            written: 0,
            text: String::new(),
            thought: String::new(),
            calls: Vec::new(),
            logprobs: Vec::new(),
            summary: None,
        }
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.written += text.len();
        let parts = self.splitter.push(text);
        self.take(parts);
    }

    pub(crate) fn end(&mut self, summary: Box<Summary>) {
        let parts = self.splitter.finish();
        self.take(parts);
        self.summary = Some(summary);
    }

    fn take(&mut self, parts: Vec<Part>) {
        for part in parts {
            match part {
                Part::Text(text) => self.text += &text,
                Part::Thought(text) => self.thought += &text,
                Part::Call(call) => self.calls.push(call),
            }
        }
    }
}

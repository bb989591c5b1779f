//! What lies where, and what every request passes on its way there.
//!
//! ```text
//! panic net → Host and Origin → key → handler
//! ```
//!
//! Invariant: only `/` and `/health` are answered without a key.
//! Not here: connections (`listen`), what handlers do (`api`).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::{get, post};
use futures_util::FutureExt;
use serde_json::{Value, json};

use crate::api::{chat, completions, messages, models, responses};
use crate::auth::Keys;
use crate::config::Config;
use crate::error::{ApiError, Dialect};
use crate::facts::Facts;
use crate::guard::Hosts;
use crate::metrics::Metrics;
use crate::page;
use crate::queue::Queue;
use crate::worker::EngineState;

/// What all requests share.
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) facts: Arc<Facts>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) state: Arc<EngineState>,
    pub(crate) keys: Keys,
    pub(crate) hosts: Hosts,
}

type Shared = State<Arc<App>>;
type Answer = Result<Response<Body>, ApiError>;

/// All places.
pub(crate) fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route("/", get(|| async { page::response() }))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/props", get(props))
        .route("/v1/models", get(models_list))
        .route("/v1/models/{*id}", get(model))
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/completions", post(text_completions))
        .route("/v1/responses", post(openai_responses))
        .route("/v1/messages", post(anthropic_messages))
        .route("/v1/messages/count_tokens", post(anthropic_count))
        .route("/v1/embeddings", post(embeddings))
        .fallback(nowhere)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(app), gate))
        .with_state(Arc::clone(app))
}

/// Checks a request, and lets no panic of a handler out.
async fn gate(State(app): Shared, request: Request, next: Next) -> Response<Body> {
    let path = request.uri().path();
    let dialect = Dialect::of_path(path);
    let open = matches!(path, "/" | "/health") && request.method() == Method::GET;
    let admitted = app.hosts.check(request.headers(), request.uri()).and_then(|()| {
        if open || app.keys.admit(request.headers()) { Ok(()) } else { Err(ApiError::unauthorized()) }
    });
    let mut response = match admitted {
        Err(error) => error.response(dialect),
        Ok(()) => AssertUnwindSafe(next.run(request))
            .catch_unwind()
            .await
            .unwrap_or_else(|_| ApiError::server("this request failed").response(dialect)),
    };
    app.metrics.responded(response.status().as_u16());
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    let request_id = HeaderValue::from_str(&crate::api::new_id("req_")).expect("letters and digits");
    response.headers_mut().insert(HeaderName::from_static("x-request-id"), request_id);
    response
}

fn reply(dialect: Dialect, answer: Answer) -> Response<Body> {
    answer.unwrap_or_else(|error| error.response(dialect))
}

/// A JSON reply.
pub(crate) fn json_response(value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

async fn health(State(app): Shared) -> Response<Body> {
    let stopping = app.queue.is_closed().then(|| ApiError::unavailable("the server is stopping"));
    match app.state.trouble().or(stopping) {
        None => json_response(&json!({"status": "ok"})),
        Some(mut error) => {
            error.status = StatusCode::SERVICE_UNAVAILABLE;
            error.response(Dialect::OpenAi)
        }
    }
}

async fn metrics(State(app): Shared) -> Response<Body> {
    let (waiting, running) = app.queue.load();
    let mut response = Response::new(Body::from(app.metrics.page(waiting, running)));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

async fn props(State(app): Shared) -> Response<Body> {
    json_response(&models::props(&app))
}

async fn models_list(State(app): Shared) -> Response<Body> {
    json_response(&models::list(&app.facts))
}

async fn model(State(app): Shared, request: Request) -> Response<Body> {
    let asked = request.uri().path().trim_start_matches("/v1/models/");
    let known = asked == app.facts.id || asked == app.facts.name;
    let answer = if known {
        Ok(json_response(&models::one(&app.facts)))
    } else {
        Err(ApiError::unknown_model(asked, &app.facts.id))
    };
    reply(Dialect::OpenAi, answer)
}

async fn chat_completions(State(app): Shared, request: Request) -> Response<Body> {
    reply(Dialect::OpenAi, chat::answer(&app, request).await)
}

async fn text_completions(State(app): Shared, request: Request) -> Response<Body> {
    reply(Dialect::OpenAi, completions::answer(&app, request).await)
}

async fn openai_responses(State(app): Shared, request: Request) -> Response<Body> {
    reply(Dialect::OpenAi, responses::answer(&app, request).await)
}

async fn anthropic_messages(State(app): Shared, request: Request) -> Response<Body> {
    reply(Dialect::Anthropic, messages::answer(&app, request).await)
}

async fn anthropic_count(State(app): Shared, request: Request) -> Response<Body> {
    reply(Dialect::Anthropic, messages::count(&app, request).await)
}

async fn embeddings() -> Response<Body> {
    ApiError::not_supported("embeddings are not built yet").response(Dialect::OpenAi)
}

async fn nowhere(request: Request) -> Response<Body> {
    let path: String = request.uri().path().chars().take(100).collect();
    ApiError::not_found(format!("there is nothing at {path:?}"))
        .response(Dialect::of_path(request.uri().path()))
}

async fn wrong_method(request: Request) -> Response<Body> {
    let why = format!("{} has no meaning here", request.method());
    ApiError::refused(StatusCode::METHOD_NOT_ALLOWED, why).response(Dialect::of_path(request.uri().path()))
}

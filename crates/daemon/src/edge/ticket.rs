//! Handlers of player requests.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use matchmaker_core::{
    CancelError, ReissueError, ResumeKey, SubmitError, TicketId, TicketRequest, TicketState,
};
use tokio::sync::oneshot;
use tokio::time::timeout;
use wire::{ClientId, SourceKey};

use super::body::{self, CreatedTicket, Status, Ticket, TicketBody};
use super::proxy::Proxies;
use super::{EdgeConfig, Limiter};
use crate::http::connections::{Activity, Connections};
use crate::http::count::Counter;
use crate::http::error_response::{ErrorCode, ErrorResponse, FieldError};
use crate::http::request::{BodyLimits, bearer_token, has_media_type, normalized, read_body};
use crate::matchmaking::{
    Answer, MatchmakerRequest, MatchmakerRequests, TicketAccess, UnknownTicket,
};

pub(super) struct Shared {
    pub(super) config: EdgeConfig,
    pub(super) limiter: Limiter,
    pub(super) connections: Connections,
    pub(super) proxies: Proxies,
    pub(super) counter: Counter,
    requests: MatchmakerRequests,
}

impl Shared {
    pub(super) fn new(config: EdgeConfig, requests: MatchmakerRequests) -> Self {
        Self {
            limiter: Limiter::new(&config),
            connections: Connections::new(
                config.connections_max,
                config.connections_per_source_max,
            ),
            proxies: Proxies::new(&config.trusted_proxies, config.proxy_header),
            counter: Counter::default(),
            config,
            requests,
        }
    }

    async fn call<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> MatchmakerRequest,
    ) -> Result<T, ErrorResponse> {
        let (answer, answered) = oneshot::channel();
        self.requests
            .send(request(answer))
            .map_err(|_| ErrorResponse::unavailable())?;
        match timeout(ANSWER_TIMEOUT, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(ErrorResponse::unavailable()),
        }
    }
}

pub(super) fn routes(shared: &Arc<Shared>) -> Router {
    let routes = Router::new()
        .route("/v1/tickets", post(submit))
        .route("/v1/tickets/{id}", get(get_ticket).delete(cancel))
        .route("/v1/tickets/{id}/token", post(reissue))
        .route("/v1/status", get(status))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(DefaultBodyLimit::max(shared.config.body_bytes_max))
        .with_state(Arc::clone(shared));
    let guard = middleware::from_fn_with_state(Arc::clone(shared), guard);
    normalized(routes).layer(guard)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

/// Applies the rate limit, counts the request, and forbids caching of the response.
async fn guard(
    State(shared): State<Arc<Shared>>,
    Extension(Peer(peer)): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let guard = shared.counter.request();
    let source = shared.proxies.source(peer, request.headers());
    request.extensions_mut().insert(source);
    let mut response = match shared.limiter.request(source) {
        Ok(()) => next.run(request).await,
        Err(wait) => ErrorResponse::later(
            "too_many_requests",
            "too many requests from this source",
            wait,
        )
        .into_response(),
    };
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let code = response.extensions().get::<ErrorCode>().map(|code| code.0);
    // A response of the router itself has no error code.
    let is_done = response.status().is_success();
    guard.end(code.or_else(|| (!is_done).then_some("other")));
    response
}

async fn submit(
    State(shared): State<Arc<Shared>>,
    Extension(activity): Extension<Activity>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, ErrorResponse> {
    let ticket_body = read_ticket_body(&shared, &activity, request).await?;
    let mut ticket_request =
        TicketRequest::new(ClientId(ticket_body.client_id)).with_user(ticket_body.user);
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    if let Some(value) = keys.next() {
        let key = value.to_str().ok().and_then(body::idempotency_key);
        let key = key.filter(|_| keys.next().is_none());
        ticket_request = ticket_request.with_idempotency(key.ok_or_else(|| {
            ErrorResponse::bad(
                "bad_idempotency_key",
                "Idempotency-Key must be 32 hexadecimal digits, given once",
            )
        })?);
    }
    let submitted = shared
        .call(|answer| MatchmakerRequest::Submit(ticket_request, answer))
        .await??;
    let created = CreatedTicket {
        resume_key: &submitted.receipt.resume_key.to_text(),
        ticket: Ticket::new(submitted.receipt.ticket, &submitted.state),
    };
    Ok((StatusCode::CREATED, Json(created)).into_response())
}

async fn read_ticket_body(
    shared: &Shared,
    activity: &Activity,
    request: Request,
) -> Result<TicketBody, ErrorResponse> {
    if !has_media_type(request.headers(), "application/json") {
        return Err(ErrorResponse::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not_json",
            "the body of this request is application/json",
        ));
    }
    let limits = BodyLimits {
        bytes_max: shared.config.body_bytes_max,
        timeout: shared.config.read_timeout,
    };
    let body = read_body(request, limits, activity).await?;
    TicketBody::read(&body)
}

async fn get_ticket(
    State(shared): State<Arc<Shared>>,
    Extension(source): Extension<SourceKey>,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ErrorResponse> {
    let call = ticket_access(id, &headers)?;
    let wait = read_wait(&uri, shared.config.wait_max)?;
    let id = call.ticket;
    if wait > Duration::ZERO {
        let _place = shared.limiter.wait(source).ok_or_else(|| {
            ErrorResponse::later(
                "too_many_waits",
                "too many long polls; retry without wait",
                Duration::from_secs(1),
            )
        })?;
        let (answer, answered) = oneshot::channel();
        let request = MatchmakerRequest::Wait(call.clone(), answer);
        shared
            .requests
            .send(request)
            .map_err(|_| ErrorResponse::unavailable())?;
        match timeout(wait, answered).await {
            Ok(Ok(state)) => return ticket_response(id, state),
            Ok(Err(_)) => return Err(ErrorResponse::unavailable()),
            Err(_) => {}
        }
    }
    let state = shared
        .call(|answer| MatchmakerRequest::Get(call, answer))
        .await?;
    ticket_response(id, state)
}

async fn cancel(
    State(shared): State<Arc<Shared>>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ErrorResponse> {
    change_ticket(&shared, id, &headers, MatchmakerRequest::Cancel).await
}

async fn reissue(
    State(shared): State<Arc<Shared>>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ErrorResponse> {
    change_ticket(&shared, id, &headers, MatchmakerRequest::Reissue).await
}

async fn change_ticket<E>(
    shared: &Shared,
    id: Result<Path<String>, PathRejection>,
    headers: &HeaderMap,
    request: impl FnOnce(TicketAccess, Answer<TicketState, E>) -> MatchmakerRequest,
) -> Result<Response, ErrorResponse>
where
    ErrorResponse: From<E>,
{
    let access = ticket_access(id, headers)?;
    let id = access.ticket;
    let state = shared.call(|answer| request(access, answer)).await??;
    ticket_response(id, Ok(state))
}

async fn status(State(shared): State<Arc<Shared>>) -> Result<Response, ErrorResponse> {
    let load = shared.call(MatchmakerRequest::Load).await?;
    Ok(Json(Status::new(load, shared.counter.counts())).into_response())
}

async fn unknown_path() -> ErrorResponse {
    ErrorResponse::new(
        StatusCode::NOT_FOUND,
        "no_route",
        "no such path; docs/edge.md lists all",
    )
}

async fn unknown_method() -> ErrorResponse {
    ErrorResponse::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "no_method",
        "the method is not allowed at this path",
    )
}

fn ticket_response(
    id: TicketId,
    state: Result<TicketState, UnknownTicket>,
) -> Result<Response, ErrorResponse> {
    let state = state.map_err(|UnknownTicket| ErrorResponse::unknown_ticket())?;
    Ok(Json(Ticket::new(id, &state)).into_response())
}

fn ticket_access(
    id: Result<Path<String>, PathRejection>,
    headers: &HeaderMap,
) -> Result<TicketAccess, ErrorResponse> {
    let ticket = id
        .ok()
        .and_then(|Path(id)| id.parse().ok())
        .ok_or_else(|| {
            ErrorResponse::bad("bad_ticket_id", "a ticket id has 16 hexadecimal digits")
        })?;
    let truncated = bearer_token(headers).ok_or_else(|| {
        ErrorResponse::new(
            StatusCode::UNAUTHORIZED,
            "no_resume_key",
            "the ticket's resume key is required: Authorization: Bearer KEY",
        )
    })?;
    // A malformed key belongs to no ticket.
    let resume_key = ResumeKey::from_text(truncated).ok_or_else(ErrorResponse::unknown_ticket)?;
    Ok(TicketAccess { ticket, resume_key })
}

/// Parses `wait=SECONDS`, with or without an `s`; zero if absent.
fn read_wait(uri: &Uri, max: Duration) -> Result<Duration, ErrorResponse> {
    let fault = |field: &str, found| {
        let fault = FieldError {
            field: body::truncated(field),
            found,
            expected: WAIT,
        };
        Err(ErrorResponse::bad_field("bad_wait", fault))
    };
    // Invalid UTF-8 is replaced, and then matches nothing.
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri).map(|Query(pairs)| pairs);
    let mut wait = None;
    for (name, value) in pairs.unwrap_or_default() {
        if name != "wait" {
            return fault(&name, "a parameter of this name".to_owned());
        }
        let seconds = body::decimal(value.strip_suffix('s').unwrap_or(&value));
        let span = seconds.map(Duration::from_secs);
        let Some(span) = span.filter(|span| *span <= max) else {
            let most = max.as_secs();
            return fault(
                &name,
                format!("{:?}, the most is {most}", body::truncated(&value)),
            );
        };
        if wait.replace(span).is_some() {
            return fault(&name, "two of this name".to_owned());
        }
    }
    Ok(wait.unwrap_or_default())
}

const WAIT: &str = "wait=SECONDS, whole seconds, such as wait=10";

/// draft-ietf-httpapi-idempotency-key-header.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The matchmaker answers within one turn of its loop.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

impl ErrorResponse {
    pub(super) fn unavailable() -> Self {
        let detail = "the matchmaker is overloaded or has ended";
        Self::unavailable_for(Duration::from_secs(1), "unavailable", detail)
    }

    fn unavailable_for(wait: Duration, code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, detail).retry_after(wait)
    }

    /// No such ticket, or the key is wrong: the response does not tell which.
    pub(super) fn unknown_ticket() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "unknown_ticket",
            "no such ticket, or the resume key is wrong",
        )
    }
}

impl From<SubmitError> for ErrorResponse {
    fn from(error: SubmitError) -> Self {
        let detail = error.to_string();
        match error {
            SubmitError::Duplicate(_) => Self::new(StatusCode::CONFLICT, "duplicate", detail),
            SubmitError::TooSoon(wait) => Self::later("too_soon", detail, wait),
            SubmitError::Full => {
                Self::unavailable_for(Duration::from_secs(5), "queue_full", detail)
            }
            SubmitError::NoClock | SubmitError::NoEntropy | _ => {
                Self::unavailable_for(Duration::from_secs(1), "unavailable", detail)
            }
        }
    }
}

impl From<CancelError> for ErrorResponse {
    fn from(error: CancelError) -> Self {
        let detail = error.to_string();
        match error {
            CancelError::Assigned => Self::new(StatusCode::CONFLICT, "assigned", detail),
            CancelError::Ended => Self::new(StatusCode::CONFLICT, "ended", detail),
            CancelError::Unknown | _ => Self::unknown_ticket(),
        }
    }
}

impl From<ReissueError> for ErrorResponse {
    fn from(error: ReissueError) -> Self {
        let detail = error.to_string();
        match error {
            ReissueError::Unknown => Self::unknown_ticket(),
            ReissueError::NotAssigned => Self::new(StatusCode::CONFLICT, "not_assigned", detail),
            ReissueError::TooSoon(wait) => Self::later("too_soon", detail, wait),
            ReissueError::NoClock | ReissueError::NoEntropy | _ => {
                Self::unavailable_for(Duration::from_secs(1), "unavailable", detail)
            }
        }
    }
}

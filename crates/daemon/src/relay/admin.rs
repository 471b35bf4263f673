//! The admin interface of a node: HTTP on a loopback address, with a bearer token.
//!
//! `docs/operations.md` describes its requests and responses.

mod render;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router, middleware};
use crypto::Secret32;
use relay_mesh::signed_config::{BUNDLE_LEN_MAX, Offered, Refused};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use wire::{Instant, NodeId};

use render::{Counts, Format, RouteAnswer};

use super::machine::{NodeClient, NodeMachine};
use super::store::DocumentStore;
use crate::exit::Failure;
use crate::http::connections::{Activity, ConnectionSlot, Connections};
use crate::http::error_response::ErrorResponse;
use crate::http::request::{bearer_token, has_media_type, normalized};
use crate::http::{BoundPort, Limits, Server, serve_connection};

/// Settings of the admin interface.
#[derive(Debug)]
pub struct AdminSetup {
    /// Its address.
    pub listen: SocketAddr,
    /// The token that authorizes every request.
    pub token: Secret32,
}

pub(super) struct BoundAdmin {
    port: BoundPort,
    token: Secret32,
}

struct Shared {
    token: Secret32,
    client: NodeClient,
    store: Option<Arc<DocumentStore>>,
}

pub(super) fn bind(setup: AdminSetup) -> Result<BoundAdmin, Failure> {
    if !setup.listen.ip().is_loopback() {
        return Err(Failure::usage(format_args!(
            "the admin interface has no TLS, so it requires a loopback address; {} is not one",
            setup.listen
        )));
    }
    Ok(BoundAdmin {
        port: BoundPort::bind(setup.listen)?,
        token: setup.token,
    })
}

impl BoundAdmin {
    pub(super) fn start(
        self,
        client: NodeClient,
        store: Option<Arc<DocumentStore>>,
    ) -> Result<Server, Failure> {
        let shared = Arc::new(Shared {
            token: self.token,
            client,
            store,
        });
        // A connection beyond the limit is closed at once. All are from this host.
        let connections = Connections::new(CONNECTIONS_MAX, CONNECTIONS_MAX);
        let on_accept = move |stream, _| {
            if let Some(slot) = connections.admit(None) {
                let shared = Arc::clone(&shared);
                drop(tokio::spawn(handle_connection(stream, slot, shared)));
            }
        };
        let server = self.port.serve("http admin", on_accept);
        server.map_err(|error| {
            Failure::refused(format_args!("the admin interface cannot start: {error}"))
        })
    }
}

async fn handle_connection(stream: TcpStream, mut slot: ConnectionSlot, shared: Arc<Shared>) {
    drop(serve_connection(stream, routes(shared), LIMITS, &mut slot).await);
}

const CONNECTIONS_MAX: usize = 64;

const LIMITS: Limits = Limits {
    head_bytes_max: 16 << 10,
    read_timeout: Duration::from_secs(10),
    write_timeout: Duration::from_secs(10),
    life: Duration::from_secs(300),
};

/// Returns whether the request has the bearer token (RFC 6750), in constant time.
fn is_authorized(token: &Secret32, headers: &HeaderMap) -> bool {
    // A token is written like a node id.
    let found: Option<NodeId> = bearer_token(headers).and_then(|found| found.parse().ok());
    found.is_some_and(|found| crypto::equal(&found.0, token.expose()))
}

impl Shared {
    async fn call<T: Send + 'static>(
        &self,
        query: impl FnOnce(Instant, &mut NodeMachine) -> T + Send + 'static,
    ) -> Result<T, ErrorResponse> {
        let reply = self.client.call(CALL_TIMEOUT, query).await;
        reply.ok_or_else(|| {
            let detail = "the node does not answer";
            ErrorResponse::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
        })
    }
}

impl ErrorResponse {
    fn no_token() -> Self {
        let detail = "expected \"Authorization: Bearer TOKEN\" with the token of this node's token file; \
                      found none, or another token";
        Self::new(StatusCode::UNAUTHORIZED, "no_token", detail)
    }

    fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }
}

/// The routes; all but `/health` require the token.
fn routes(shared: Arc<Shared>) -> Router {
    let routes = Router::new()
        .route("/v1/config", get(config).put(put_config))
        .route("/v1/config/signed", get(signed_config))
        .route("/v1/graph", get(graph))
        .route("/v1/route", get(route))
        .route("/v1/drain", get(draining).post(drain).delete(undrain))
        .route("/metrics", get(metrics))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), guard))
        .route("/health", get(health))
        .fallback(async || ErrorResponse::not_found("no such path"))
        .method_not_allowed_fallback(async || {
            let detail = "the method is not allowed at this path";
            ErrorResponse::new(StatusCode::METHOD_NOT_ALLOWED, "no_method", detail)
        })
        .with_state(shared);
    normalized(routes)
}

async fn guard(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    if is_authorized(&shared.token, request.headers()) {
        next.run(request).await
    } else {
        ErrorResponse::no_token().into_response()
    }
}

async fn health(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, ErrorResponse> {
    let query = |_, node: &mut NodeMachine| (node.links().count(), node.draining().is_some());
    let (links, is_draining) = shared.call(query).await?;
    let status = if is_draining { "draining" } else { "up" };
    Ok(Json(json!({"status": status, "links": links})))
}

async fn config(State(shared): State<Arc<Shared>>) -> Result<Response, ErrorResponse> {
    document(&shared, "application/json", |node| node.document_text()).await
}

/// The document in force with its signatures, as other nodes accept it.
async fn signed_config(State(shared): State<Arc<Shared>>) -> Result<Response, ErrorResponse> {
    document(&shared, BYTES, |node| node.config_bundle()).await
}

async fn document(
    shared: &Shared,
    media_type: &'static str,
    query: impl FnOnce(&NodeMachine) -> Option<&[u8]> + Send + 'static,
) -> Result<Response, ErrorResponse> {
    let bytes = shared.call(move |_, node| query(node).map(<[u8]>::to_vec));
    let none = || ErrorResponse::not_found("no signed document is in force here");
    let bytes = bytes.await?.ok_or_else(none)?;
    Ok(([(header::CONTENT_TYPE, media_type)], bytes).into_response())
}

/// Offers a signed document; responds when it is in force and on disk.
async fn put_config(
    State(shared): State<Arc<Shared>>,
    Extension(activity): Extension<Activity>,
    request: Request,
) -> Result<Json<Value>, ErrorResponse> {
    if !has_media_type(request.headers(), BYTES) {
        return Err(ErrorResponse::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not_signed",
            "a node takes signed documents alone, as application/octet-stream; tickwire admin put \
             signs and sends one",
        ));
    }
    let body = read_body(request.into_body()).await?;
    activity.busy();
    let reply = shared.call(move |now, node| {
        let offered = node.offer_config(now, &body);
        let version = node.document().map_or(0, |document| document.version);
        let number = node.config_stats().map_or(0, |stats| stats.accepted);
        (offered, version, number)
    });
    let (offered, version, number) = reply.await?;
    let offered = offered.ok_or_else(|| {
        let detail = "this node uses no signed documents, or does not know the time yet";
        ErrorResponse::new(StatusCode::CONFLICT, "not_signed_here", detail)
    })?;
    let is_new = match offered {
        Offered::Accepted(_) => true,
        Offered::Known => false,
        Offered::Refused(why) => return Err(refused(&why)),
    };
    if is_new && let Some(store) = shared.store.clone() {
        let wait = move || store.wait(number, STORE_TIMEOUT);
        let stored = tokio::task::spawn_blocking(wait).await;
        if let Ok(Err(why)) = stored {
            return Err(ErrorResponse::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "not_stored",
                format!("version {version} is in force, and not on disk yet: {why}"),
            ));
        }
    }
    Ok(Json(json!({"version": version, "is_new": is_new})))
}

async fn read_body(body: Body) -> Result<Bytes, ErrorResponse> {
    let too_large = || {
        let detail = format!("a signed document has at most {BUNDLE_LEN_MAX} bytes");
        ErrorResponse::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
    };
    // A body that declares too large a length is not read.
    let declared_len = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if declared_len > BUNDLE_LEN_MAX {
        return Err(too_large());
    }
    match timeout(BODY_TIMEOUT, to_bytes(body, BUNDLE_LEN_MAX)).await {
        Ok(read) => read.map_err(|_| too_large()),
        Err(_) => Err(ErrorResponse::new(
            StatusCode::REQUEST_TIMEOUT,
            "too_slow",
            "the document was not received in time",
        )),
    }
}

fn refused(why: &Refused) -> ErrorResponse {
    let status = match why {
        Refused::OldVersion { .. }
        | Refused::SameVersionOtherBytes(_)
        | Refused::BelowMinimum { .. }
        | Refused::WithoutMinimum(_) => StatusCode::CONFLICT,
        Refused::UnknownKey
        | Refused::RetiredKey { .. }
        | Refused::TooFewSignatures { .. }
        | Refused::BadSignature => StatusCode::FORBIDDEN,
        Refused::TooLarge
        | Refused::Malformed(_)
        | Refused::Document(_)
        | Refused::OtherNetwork
        | Refused::NotYetValid
        | Refused::Expired
        | _ => StatusCode::UNPROCESSABLE_ENTITY,
    };
    ErrorResponse::new(status, "refused", why.to_string())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphQuery {
    #[serde(default)]
    format: Format,
}

async fn graph(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<GraphQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, ErrorResponse> {
    let Query(query) =
        query.map_err(|error| ErrorResponse::bad("bad_request", error.body_text()))?;
    let mesh = shared.call(|_, node| node.mesh()).await?;
    Ok(match query.format {
        Format::Json => Json(render::json(&mesh)).into_response(),
        Format::Text => render::text(&mesh).into_response(),
        Format::Mermaid => render::mermaid(&mesh, None).into_response(),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteQuery {
    from: String,
    /// A node's id or name, or a game's name.
    to: String,
    #[serde(default)]
    format: Format,
}

async fn route(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<RouteQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, ErrorResponse> {
    let Query(query) =
        query.map_err(|error| ErrorResponse::bad("bad_request", error.body_text()))?;
    let format = query.format;
    let reply = shared.call(move |_, node| {
        let mesh = node.mesh();
        let find = |text: &str| {
            text.parse::<NodeId>().ok().or_else(|| {
                let named = mesh.nodes.iter().find(|of| of.name == text);
                named.map(|of| of.node)
            })
        };
        let Some(from) = find(&query.from) else {
            return Err(ErrorResponse::not_found(format!(
                "no node is named {:?}",
                query.from
            )));
        };
        let route = match find(&query.to) {
            Some(to) => node.route_between(&from, &to),
            None => node.route_to_game(&from, &query.to),
        };
        let route = route.ok_or_else(|| {
            let is_known = find(&query.to).is_some() || node.carries_game(&query.to);
            if !is_known {
                return ErrorResponse::not_found(format!(
                    "no node or game is named {:?}",
                    query.to
                ));
            }
            let detail = format!("there is no path to {:?} now", query.to);
            ErrorResponse::new(StatusCode::NOT_FOUND, "unreachable", detail)
        })?;
        let in_use = (from == node.id()).then(|| {
            let to = find(&query.to);
            let is_end = |remote: &NodeId| {
                let mut exits = mesh.games.iter().filter(|of| of.game == query.to);
                let is_exit =
                    || *remote == route.path.destination || exits.any(|of| of.exit == *remote);
                to.map_or_else(is_exit, |to| *remote == to)
            };
            node.routes().filter(|of| is_end(&of.remote_end)).collect()
        });
        Ok((mesh, from, route, in_use))
    });
    let (mesh, from, route, in_use) = reply.await??;
    let answer = RouteAnswer {
        from,
        route: &route,
        in_use,
    };
    Ok(match format {
        Format::Json => Json(render::route_json(&mesh, &answer)).into_response(),
        Format::Text => render::route_text(&mesh, &answer).into_response(),
        Format::Mermaid => render::mermaid(&mesh, Some(&answer)).into_response(),
    })
}

async fn draining(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, ErrorResponse> {
    let left = shared.call(|_, node| node.draining()).await?;
    Ok(Json(left.map_or_else(
        || json!({"draining": false}),
        |left| {
            json!({"draining": true, "flows": left.flows, "labels": left.labels,
                "done": left.is_done()})
        },
    )))
}

async fn drain(state: State<Arc<Shared>>) -> Result<Json<Value>, ErrorResponse> {
    state.call(|now, node| node.drain(now)).await?;
    draining(state).await
}

async fn undrain(state: State<Arc<Shared>>) -> Result<Json<Value>, ErrorResponse> {
    state.call(|now, node| node.undrain(now)).await?;
    draining(state).await
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Result<Response, ErrorResponse> {
    let client = shared.client.clone();
    let counts = shared
        .call(move |_, node| Counts::of(node, &client))
        .await?;
    let kind = "text/plain; version=0.0.4";
    Ok(([(header::CONTENT_TYPE, kind)], render::metrics(&counts)).into_response())
}

const CALL_TIMEOUT: Duration = Duration::from_secs(2);
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
const BYTES: &str = "application/octet-stream";

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, header};

    use super::*;

    #[test]
    fn pgx12_only_the_token_authorizes() {
        let token = Secret32::new([0xab; 32]);
        let admits = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            }
            is_authorized(&token, &headers)
        };
        let right = format!("Bearer {}", "ab".repeat(32));
        assert!(admits(&[&right]));
        assert!(admits(&[&right.replace("Bearer", "bearer")]));
        let twice = admits(&[&right, &right]);
        assert!(!twice, "two headers are ambiguous");
        for wrong in [
            String::new(),
            "Bearer".to_owned(),
            "Bearer ".to_owned(),
            right.replace("Bearer", "Basic"),
            right.replace("Bearer ", ""),
            right.replacen("ab", "ac", 1),
            format!("{right}ab"),
            right.replacen("ab", "", 1),
        ] {
            assert!(!admits(&[&wrong]), "{wrong}");
        }
        assert!(!admits(&[]));
    }
}

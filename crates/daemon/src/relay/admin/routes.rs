//! Handlers of the admin interface.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use relay_mesh::signed_config::{BUNDLE_LEN_MAX, Offered, Refused};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;
use wire::NodeId;

use super::Shared;
use super::metrics::{self, Counts};
use super::render::{self, Format, RouteAnswer};
use crate::http::connections::Activity;
use crate::http::error_response::ErrorResponse;
use crate::http::field::has_media_type;
use crate::http::target::normalized;
use crate::relay::client::NodeCounters;

/// The routes; all but `/health` require the token.
pub(super) fn routes(shared: Arc<Shared>) -> Router {
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
    if shared.access.admits(request.headers()) {
        next.run(request).await
    } else {
        ErrorResponse::no_token().into_response()
    }
}

/// Whether the node's thread answers.
async fn health(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, ErrorResponse> {
    let reply = shared.client.call(CALL_TIMEOUT, |_, node| {
        (node.links().count(), node.draining().is_some())
    });
    let (links, is_draining) = reply.await.ok_or_else(ErrorResponse::busy)?;
    let status = if is_draining { "draining" } else { "up" };
    Ok(Json(json!({"status": status, "links": links})))
}

async fn config(State(shared): State<Arc<Shared>>) -> Result<Response, ErrorResponse> {
    let reply = shared.client.call(CALL_TIMEOUT, |_, node| {
        node.document_text().map(<[u8]>::to_vec)
    });
    let text = reply.await.ok_or_else(ErrorResponse::busy)?;
    let text =
        text.ok_or_else(|| ErrorResponse::not_found("no signed document is in force here"))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// The document in force with its signatures, as other nodes accept it.
async fn signed_config(State(shared): State<Arc<Shared>>) -> Result<Response, ErrorResponse> {
    let reply = shared.client.call(CALL_TIMEOUT, |_, node| {
        node.config_bundle().map(<[u8]>::to_vec)
    });
    let bytes = reply.await.ok_or_else(ErrorResponse::busy)?;
    let bytes =
        bytes.ok_or_else(|| ErrorResponse::not_found("no signed document is in force here"))?;
    Ok(([(header::CONTENT_TYPE, BYTES)], bytes).into_response())
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
    let reply = shared.client.call(CALL_TIMEOUT, move |now, node| {
        let offered = node.offer_config(now, &body);
        let version = node.document().map_or(0, |document| document.version);
        let number = node.config_stats().map_or(0, |stats| stats.accepted);
        (offered, version, number)
    });
    let (offered, version, number) = reply.await.ok_or_else(ErrorResponse::busy)?;
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
    let reply = shared.client.call(CALL_TIMEOUT, |_, node| node.mesh());
    let mesh = reply.await.ok_or_else(ErrorResponse::busy)?;
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
    let reply = shared.client.call(CALL_TIMEOUT, move |_, node| {
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
            let is_end = |far: &NodeId| {
                let mut exits = mesh.games.iter().filter(|of| of.game == query.to);
                let is_exit = || *far == route.path.destination || exits.any(|of| of.exit == *far);
                to.map_or_else(is_exit, |to| *far == to)
            };
            node.routes().filter(|of| is_end(&of.far_end)).collect()
        });
        Ok((mesh, from, route, in_use))
    });
    let (mesh, from, route, in_use) = reply.await.ok_or_else(ErrorResponse::busy)??;
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
    let reply = shared.client.call(CALL_TIMEOUT, |_, node| node.draining());
    let left = reply.await.ok_or_else(ErrorResponse::busy)?;
    Ok(Json(left.map_or_else(
        || json!({"draining": false}),
        |left| {
            json!({"draining": true, "flows": left.flows, "labels": left.labels,
                "done": left.is_done()})
        },
    )))
}

async fn drain(state: State<Arc<Shared>>) -> Result<Json<Value>, ErrorResponse> {
    let reply = state.client.call(CALL_TIMEOUT, |now, node| node.drain(now));
    reply.await.ok_or_else(ErrorResponse::busy)?;
    draining(state).await
}

async fn undrain(state: State<Arc<Shared>>) -> Result<Json<Value>, ErrorResponse> {
    let reply = state
        .client
        .call(CALL_TIMEOUT, |now, node| node.undrain(now));
    reply.await.ok_or_else(ErrorResponse::busy)?;
    draining(state).await
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Result<Response, ErrorResponse> {
    let reply = shared.client.call(CALL_TIMEOUT, |_, node| {
        let links = node.links().collect();
        let (routes, games) = (node.routes().collect(), node.game_edges().collect());
        let version = node.document().map_or(0, |document| document.version);
        let views = (links, routes, games);
        (NodeCounters::of(node), views, (version, node.draining()))
    });
    let (counted, (links, routes, games), (config_version, draining)) =
        reply.await.ok_or_else(ErrorResponse::busy)?;
    let counts = Counts {
        stats: counted.with(&shared.client.counters(), shared.client.strays()),
        shards: shared.client.shards(),
        links,
        routes,
        games,
        config_version,
        is_draining: draining.is_some(),
    };
    let kind = "text/plain; version=0.0.4";
    Ok(([(header::CONTENT_TYPE, kind)], metrics::text(&counts)).into_response())
}

const CALL_TIMEOUT: Duration = Duration::from_secs(2);
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
const BYTES: &str = "application/octet-stream";

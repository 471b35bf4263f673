//! The operations of the API: method, path, role and handler of each.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post, put};
use axum::{Extension, Json, Router};
use hub::record::BODY_BYTES_MAX;
use serde_json::{Value, json};

use super::key::Access;
use super::shared::{Peer, Shared};
use super::{kv, lease, mailbox, message, metrics, other_shard, person, sender, statistics, watch};
use crate::http::error_response::{ErrorCode, ErrorResponse};
use crate::http::request::normalized;

/// An operation of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Health,
    Description,
    Metrics,
    SendMail,
    ReadMail,
    ClearMail,
    AckMail,
    CountSent,
    PurgeSent,
    Presence,
    Watch,
    Kick,
    Forward,
    Cast,
    Drain,
    ListKeys,
    GetKey,
    PutKey,
    DeleteKey,
    GrantLease,
    RenewLease,
    EndLease,
    ListStatistics,
    QueryStatistics,
    ExportPerson,
    DeletePerson,
}

impl Operation {
    pub(super) const ALL: [Self; 26] = [
        Self::Health,
        Self::Description,
        Self::Metrics,
        Self::SendMail,
        Self::ReadMail,
        Self::ClearMail,
        Self::AckMail,
        Self::CountSent,
        Self::PurgeSent,
        Self::Presence,
        Self::Watch,
        Self::Kick,
        Self::Forward,
        Self::Cast,
        Self::Drain,
        Self::ListKeys,
        Self::GetKey,
        Self::PutKey,
        Self::DeleteKey,
        Self::GrantLease,
        Self::RenewLease,
        Self::EndLease,
        Self::ListStatistics,
        Self::QueryStatistics,
        Self::ExportPerson,
        Self::DeletePerson,
    ];

    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Health => "/v1/health",
            Self::Description => "/v1/openapi.json",
            Self::Metrics => "/metrics",
            Self::SendMail | Self::ReadMail | Self::ClearMail => "/v1/mail/{player}",
            Self::AckMail => "/v1/mail/{player}/ack",
            Self::CountSent | Self::PurgeSent => "/v1/senders/{node}/mail",
            Self::Presence => "/v1/presence",
            Self::Watch => "/v1/watch",
            Self::Kick => "/v1/players/{player}/kick",
            Self::Forward => "/v1/forward/{player}",
            Self::Cast => "/v1/cast/{topic}",
            Self::Drain => "/v1/drain",
            Self::ListKeys => "/v1/kv",
            Self::GetKey | Self::PutKey | Self::DeleteKey => "/v1/kv/{key}",
            Self::GrantLease => "/v1/leases",
            Self::RenewLease => "/v1/leases/{lease}/renew",
            Self::EndLease => "/v1/leases/{lease}",
            Self::ListStatistics => "/v1/stats",
            Self::QueryStatistics => "/v1/stats/{name}",
            Self::ExportPerson | Self::DeletePerson => "/v1/players/{player}/data",
        }
    }

    /// The path as the router reads it: a key may have slashes.
    fn route(self) -> String {
        self.path().replace("{key}", "{*key}")
    }

    /// The role that it needs; `None` for no key.
    const fn access(self) -> Option<Access> {
        match self {
            Self::Health | Self::Description => None,
            Self::Metrics => Some(Access::Metrics),
            Self::ReadMail
            | Self::CountSent
            | Self::Presence
            | Self::Watch
            | Self::ListKeys
            | Self::GetKey
            | Self::ListStatistics
            | Self::QueryStatistics => Some(Access::Read),
            Self::SendMail
            | Self::ClearMail
            | Self::AckMail
            | Self::Forward
            | Self::Cast
            | Self::PutKey
            | Self::DeleteKey
            | Self::GrantLease
            | Self::RenewLease
            | Self::EndLease => Some(Access::Write),
            Self::Kick
            | Self::Drain
            | Self::PurgeSent
            | Self::ExportPerson
            | Self::DeletePerson => Some(Access::Admin),
        }
    }

    fn handler(self) -> MethodRouter<Arc<Shared>> {
        match self {
            Self::Health => get(health),
            Self::Description => get(description),
            Self::Metrics => get(metrics::metrics),
            Self::SendMail => post(mailbox::send),
            Self::ReadMail => get(mailbox::read),
            Self::ClearMail => delete(mailbox::clear),
            Self::AckMail => post(mailbox::acknowledge),
            Self::CountSent => get(sender::count),
            Self::PurgeSent => delete(sender::purge),
            Self::Presence => get(message::presence),
            Self::Watch => get(watch::watch),
            Self::Kick => post(message::kick),
            Self::Forward => post(message::forward),
            Self::Cast => post(message::cast),
            Self::Drain => post(drain),
            Self::ListKeys => get(kv::list),
            Self::GetKey => get(kv::get),
            Self::PutKey => put(kv::put),
            Self::DeleteKey => delete(kv::delete),
            Self::GrantLease => post(lease::grant),
            Self::RenewLease => post(lease::renew),
            Self::EndLease => delete(lease::end),
            Self::ListStatistics => get(statistics::names),
            Self::QueryStatistics => get(statistics::query),
            Self::ExportPerson => get(person::export),
            Self::DeletePerson => delete(person::delete),
        }
    }
}

pub(super) fn routes(shared: &Arc<Shared>) -> Router {
    let mut routes = Router::new();
    for operation in Operation::ALL {
        let mut handler = operation.handler();
        if let Some(access) = operation.access() {
            let state = (Arc::clone(shared), operation);
            let check = middleware::from_fn_with_state(state, other_shard::check);
            handler = handler.route_layer(check);
            let state = (Arc::clone(shared), access);
            handler = handler.route_layer(middleware::from_fn_with_state(state, authorize));
        }
        routes = routes.route(&operation.route(), handler);
    }
    let routes = routes
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Arc::clone(shared));
    let count = middleware::from_fn_with_state(Arc::clone(shared), count);
    normalized(routes).layer(count)
}

/// Counts the request, and forbids caching of the response.
async fn count(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let guard = shared.counter.request();
    let mut response = next.run(request).await;
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let code = response.extensions().get::<ErrorCode>().map(|code| code.0);
    let is_done =
        response.status().is_success() || response.status() == StatusCode::SWITCHING_PROTOCOLS;
    guard.end(code.or_else(|| (!is_done).then_some("other")));
    response
}

async fn authorize(
    State((shared, access)): State<(Arc<Shared>, Access)>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    match shared.authorize(peer, &request, access) {
        Ok(bearer) => {
            request.extensions_mut().insert(bearer);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

async fn health(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, ErrorResponse> {
    let status = shared.recent_status().await?;
    Ok(Json(json!({
        "status": if shared.presence.is_loaded() { "up" } else { "starting" },
        "health": status.health.to_string(),
        "nodes": status.nodes,
        "players": status.players,
    })))
}

/// The description of this API, `OpenAPI` 3.1.
const DESCRIPTION: &str = include_str!("openapi.json");

async fn description() -> Response {
    let media_type = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, media_type)], DESCRIPTION).into_response()
}

async fn drain(State(shared): State<Arc<Shared>>) -> Response {
    tracing::info!("the API requests a drain");
    shared.hub.drain();
    (StatusCode::ACCEPTED, Json(json!({"status": "draining"}))).into_response()
}

async fn unknown_path() -> ErrorResponse {
    ErrorResponse::new(
        StatusCode::NOT_FOUND,
        "no_route",
        "no such path; GET /v1/openapi.json lists all",
    )
}

async fn unknown_method() -> ErrorResponse {
    ErrorResponse::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "no_method",
        "the method is not allowed at this path",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    impl Operation {
        const fn method(self) -> &'static str {
            match self {
                Self::Health
                | Self::Description
                | Self::Metrics
                | Self::ReadMail
                | Self::CountSent
                | Self::Presence
                | Self::Watch
                | Self::ListKeys
                | Self::GetKey
                | Self::ListStatistics
                | Self::QueryStatistics
                | Self::ExportPerson => "get",
                Self::ClearMail
                | Self::PurgeSent
                | Self::DeleteKey
                | Self::EndLease
                | Self::DeletePerson => "delete",
                Self::PutKey => "put",
                Self::SendMail
                | Self::AckMail
                | Self::Kick
                | Self::Forward
                | Self::Cast
                | Self::GrantLease
                | Self::RenewLease
                | Self::Drain => "post",
            }
        }
    }

    #[test]
    fn the_description_names_every_operation_with_its_role_and_no_other() {
        let description: Value = serde_json::from_str(DESCRIPTION).unwrap();
        let mut described = BTreeSet::new();
        for (path, item) in description["paths"].as_object().unwrap() {
            let methods = item.as_object().unwrap().iter();
            for (method, operation) in methods.filter(|(method, _)| *method != "parameters") {
                let role = operation["x-role"].as_str();
                let is_open = operation["security"].as_array().is_some_and(Vec::is_empty);
                assert_eq!(role.is_none(), is_open, "{path} {method}");
                described.insert((path.as_str(), method.as_str(), role));
            }
        }
        let operations = Operation::ALL.into_iter().map(|operation| {
            let role = operation.access().map(Access::name);
            (operation.path(), operation.method(), role)
        });
        let all: BTreeSet<_> = operations.collect();
        assert_eq!(described, all);
        assert_eq!(description["openapi"], "3.1.0");
    }
}

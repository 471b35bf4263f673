//! Leases: granted for a time, renewed, ended.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use serde_json::{Value, json};

use super::lease_table::{LeaseFault, LeaseId};
use super::link::{Lease, LeaseCall, LinkRequest, SendFault};
use super::parameter::Parameters;
use super::shared::Shared;
use crate::http::error_response::{ErrorResponse, FieldError};

type LeasePath = Result<Path<String>, PathRejection>;

/// Length of a lease, seconds.
const TTL_SECS: std::ops::RangeInclusive<u64> = 1..=86_400;

const TTL_DEFAULT_SECS: u64 = 30;

/// Grants a lease.
pub(super) async fn grant(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
) -> Result<(StatusCode, Json<Value>), ErrorResponse> {
    let parameters = Parameters::read(&uri, &["ttl"])?;
    let expected = "seconds from 1 to 86400";
    let ttl: Option<u64> = parameters.parsed("ttl", expected)?;
    let ttl = ttl.unwrap_or(TTL_DEFAULT_SECS);
    if !TTL_SECS.contains(&ttl) {
        let fault = FieldError {
            field: "ttl".to_owned(),
            found: ttl.to_string(),
            expected,
        };
        return Err(ErrorResponse::bad_field("bad_query", fault));
    }
    let granted = call(&shared, LeaseCall::Grant(Duration::from_secs(ttl))).await?;
    Ok((StatusCode::CREATED, Json(lease_json(granted))))
}

/// Starts the time of a lease again.
pub(super) async fn renew(
    State(shared): State<Arc<Shared>>,
    lease: LeasePath,
) -> Result<Json<Value>, ErrorResponse> {
    let renewed = call(&shared, LeaseCall::Renew(read_lease(lease)?)).await?;
    Ok(Json(lease_json(renewed)))
}

/// Ends a lease, and deletes its keys.
pub(super) async fn end(
    State(shared): State<Arc<Shared>>,
    lease: LeasePath,
) -> Result<Json<Value>, ErrorResponse> {
    let ended = call(&shared, LeaseCall::End(read_lease(lease)?)).await?;
    Ok(Json(lease_json(ended)))
}

async fn call(shared: &Shared, call: LeaseCall) -> Result<Lease, ErrorResponse> {
    shared.send(|answer| LinkRequest::Lease(call, answer)).await
}

fn lease_json(lease: Lease) -> Value {
    json!({"lease": lease.id.to_string(), "ttl": lease.ttl.as_secs()})
}

fn read_lease(part: LeasePath) -> Result<LeaseId, ErrorResponse> {
    let text = part.map(|Path(text)| text).unwrap_or_default();
    let fault = SendFault::Lease(LeaseFault::Ended);
    text.parse().map_err(|()| fault.into())
}

//! Stored mail by sender: count and delete.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use hub::{Completed, SenderUsage, StoreOp};
use serde_json::{Value, json};

use super::parameter;
use super::shared::Shared;
use crate::http::error_response::ErrorResponse;
use crate::hub_client::HubFault;

type NodePath = Result<Path<String>, PathRejection>;

/// Returns how much stored mail a node has sent.
pub(super) async fn count(
    State(shared): State<Arc<Shared>>,
    node: NodePath,
) -> Result<Json<Value>, ErrorResponse> {
    let from = parameter::node(node)?;
    let Completed::Sent(usage) = shared.store(StoreOp::Sent { from }).await? else {
        return Err(HubFault::Down.into());
    };
    Ok(usage_json(usage))
}

/// Deletes all stored mail of a node; answers once that is on disk.
pub(super) async fn purge(
    State(shared): State<Arc<Shared>>,
    node: NodePath,
) -> Result<Json<Value>, ErrorResponse> {
    let from = parameter::node(node)?;
    let Completed::Purged(usage) = shared.store(StoreOp::Purge { from }).await? else {
        return Err(HubFault::Down.into());
    };
    let mails = usage.mails;
    tracing::warn!(%from, mails, "the API has deleted all stored mail of a node");
    Ok(usage_json(usage))
}

fn usage_json(usage: SenderUsage) -> Json<Value> {
    Json(json!({"mails": usage.mails, "bytes": usage.bytes}))
}

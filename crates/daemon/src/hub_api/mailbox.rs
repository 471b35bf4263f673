//! Mailboxes: send, read, acknowledge, clear.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base64ct::{Base64, Encoding as _};
use hub::record::BODY_BYTES_MAX;
use hub::store::Mail;
use hub::{Completed, MailSeq, StoreOp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::link::LinkRequest;
use super::parameter::{self, Parameters};
use super::shared::Shared;
use crate::http::connections::Activity;
use crate::http::error_response::ErrorResponse;
use crate::http::request::{BodyLimits, read_body};
use crate::hub_client::HubFault;

type PlayerPath = Result<Path<String>, PathRejection>;

/// Longest mail bodies of one page, bytes.
const PAGE_BYTES_MAX: usize = 256 << 10;

pub(super) async fn body(
    shared: &Shared,
    activity: &Activity,
    request: Request,
) -> Result<axum::body::Bytes, ErrorResponse> {
    let limits = BodyLimits {
        bytes_max: BODY_BYTES_MAX,
        timeout: shared.config.read_timeout,
    };
    read_body(request, limits, activity).await
}

/// Stores the body as a mail; answers once it is on the hub's disk.
pub(super) async fn send(
    State(shared): State<Arc<Shared>>,
    Extension(activity): Extension<Activity>,
    player: PlayerPath,
    uri: Uri,
    request: Request,
) -> Result<Response, ErrorResponse> {
    let player = parameter::player(player)?;
    let parameters = Parameters::read(&uri, &["ttl"])?;
    let ttl: Option<u32> = parameters.parsed("ttl", "seconds, a whole number of 32 bits")?;
    let ttl = Duration::from_secs(ttl.unwrap_or_default().into());
    let body = body(&shared, &activity, request).await?;
    let mail = |answer| LinkRequest::Mail {
        player,
        body,
        ttl,
        answer,
    };
    shared.send(mail).await?;
    Ok((StatusCode::CREATED, Json(json!({"stored": true}))).into_response())
}

/// Reads a page of a mailbox, oldest first; deletes nothing.
pub(super) async fn read(
    State(shared): State<Arc<Shared>>,
    player: PlayerPath,
    uri: Uri,
) -> Result<Json<Value>, ErrorResponse> {
    let player = parameter::player(player)?;
    let parameters = Parameters::read(&uri, &["from", "max"])?;
    let from: Option<u64> = parameters.parsed("from", "the number of a mail")?;
    let max = parameters.count("max", shared.config.page_max)?;
    let read = StoreOp::Read {
        player,
        after: MailSeq(from.unwrap_or_default().saturating_sub(1)),
        bytes_max: PAGE_BYTES_MAX,
        now: shared.unix_time(),
    };
    let Completed::Mails { mails, more } = shared.store(read).await? else {
        return Err(HubFault::Down.into());
    };
    let more = more || mails.len() > max;
    let mails: Vec<Value> = mails.iter().take(max).map(mail_json).collect();
    Ok(Json(json!({"mails": mails, "more": more})))
}

fn mail_json(mail: &Mail) -> Value {
    json!({
        "seq": mail.seq.0,
        "from": mail.node.to_string(),
        "body": Base64::encode_string(&mail.body.0),
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ack {
    upto: u64,
}

/// Deletes the mails of a mailbox up to a number; answers once that is on disk.
pub(super) async fn acknowledge(
    State(shared): State<Arc<Shared>>,
    Extension(activity): Extension<Activity>,
    player: PlayerPath,
    request: Request,
) -> Result<Json<Value>, ErrorResponse> {
    let player = parameter::player(player)?;
    let body = body(&shared, &activity, request).await?;
    let ack: Ack = serde_json::from_slice(&body).map_err(|error| {
        let detail = format!("expected {{\"upto\": NUMBER}}: {error}");
        ErrorResponse::bad("malformed_json", detail)
    })?;
    let upto = MailSeq(ack.upto);
    shared.store(StoreOp::Ack { player, upto }).await?;
    Ok(Json(json!({"upto": upto.0})))
}

/// Deletes all mails of a mailbox; answers once that is on disk.
pub(super) async fn clear(
    State(shared): State<Arc<Shared>>,
    player: PlayerPath,
) -> Result<Json<Value>, ErrorResponse> {
    let player = parameter::player(player)?;
    let Completed::Cleared { count } = shared.store(StoreOp::Clear { player }).await? else {
        return Err(HubFault::Down.into());
    };
    Ok(Json(json!({"deleted": count})))
}

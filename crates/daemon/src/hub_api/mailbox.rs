//! Mailboxes: send, read, acknowledge, clear.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base64ct::{Base64, Encoding as _};
use crypto::{Provider as _, Ring};
use hub::record::BODY_BYTES_MAX;
use hub::store::Mail;
use hub::{Completed, MailSeq, StoreOp};
use serde::Deserialize;
use serde_json::{Value, json};
use wire::ClientId;

use super::link::{LinkRequest, MailRequest};
use super::mail_keys::MailKey;
use super::parameter::{self, Parameters};
use super::shared::{Bearer, Shared};
use crate::http::connections::Activity;
use crate::http::error_response::ErrorResponse;
use crate::http::request::{BodyLimits, read_body};
use crate::hub_client::HubFault;

type PlayerPath = Result<Path<String>, PathRejection>;

/// Longest mail bodies of one page, bytes.
pub(super) const PAGE_BYTES_MAX: usize = 256 << 10;

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
    Extension(bearer): Extension<Bearer>,
    player: PlayerPath,
    request: Request,
) -> Result<Response, ErrorResponse> {
    let player = parameter::player(player)?;
    let parameters = Parameters::read(request.uri(), &["ttl"])?;
    let ttl: Option<u32> = parameters.parsed("ttl", "seconds, a whole number of 32 bits")?;
    let ttl = Duration::from_secs(ttl.unwrap_or_default().into());
    let repeated = idempotency_key(request.headers())?;
    let body = body(&shared, &activity, request).await?;
    let key = repeated.map(|key| mail_key(&bearer, &key, (player, ttl, &body)));
    let mail = MailRequest {
        player,
        body,
        ttl,
        key,
    };
    shared
        .send(|answer| LinkRequest::Mail(mail, answer))
        .await?;
    Ok((StatusCode::CREATED, Json(json!({"stored": true}))).into_response())
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Longest `Idempotency-Key`, bytes.
const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

fn idempotency_key(headers: &HeaderMap) -> Result<Option<Vec<u8>>, ErrorResponse> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let (Some(value), next) = (values.next(), values.next()) else {
        return Ok(None);
    };
    let bytes = value.as_bytes();
    let is_valid = (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&bytes.len())
        && bytes.iter().all(u8::is_ascii_graphic)
        && next.is_none();
    if is_valid {
        return Ok(Some(bytes.to_vec()));
    }
    let found = String::from_utf8_lossy(bytes);
    let found = if next.is_some() {
        "two of them".into()
    } else {
        format!("{found:?}")
    };
    let detail =
        format!("found {found}, expected one Idempotency-Key of 1 to 255 visible characters");
    Err(ErrorResponse::bad("bad_idempotency_key", detail))
}

fn mail_key(
    bearer: &Bearer,
    key: &[u8],
    (player, ttl, body): (ClientId, Duration, &[u8]),
) -> MailKey {
    let ring = Ring::new();
    let numbers = [player.0.to_be_bytes(), ttl.as_secs().to_be_bytes()];
    MailKey {
        owner: bearer.name,
        // A token has 64 characters, so no two pairs have the same bytes.
        id: ring.sha256(&[bearer.token.as_bytes(), key]),
        mail: ring.sha256(&[numbers.as_flattened(), body]),
    }
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

pub(super) fn mail_json(mail: &Mail) -> Value {
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
    let last = shared.hub.last_mail();
    if upto > last {
        let detail = format!(
            "no mail has the number {} yet: the last mail of this hub has {}, so nothing was deleted",
            upto.0, last.0
        );
        return Err(ErrorResponse::new(
            StatusCode::CONFLICT,
            "past_the_end",
            detail,
        ));
    }
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

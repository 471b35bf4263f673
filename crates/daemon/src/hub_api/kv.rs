//! Keys of the hub's key-value store: set, read, delete, list.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::{Extension, Json};
use base64ct::{Base64, Encoding as _};
use hub::KvAnswer;
use hub::kv::{Durability, KvEntry, KvError, KvKey, KvPrefix, KvPut, KvRange, Revision};
use serde_json::{Value, json};

use super::link::{KvCall, LinkRequest, SendFault};
use super::mailbox::body;
use super::parameter::{Parameters, truncated};
use super::shared::Shared;
use crate::http::connections::Activity;
use crate::http::error_response::ErrorResponse;
use crate::hub_client::HubFault;

type KeyPath = Result<Path<String>, PathRejection>;

/// Entries of one page, at most; the store's own limit.
const PAGE_MAX: usize = 1_024;

/// Sets a key to the body.
pub(super) async fn put(
    State(shared): State<Arc<Shared>>,
    Extension(activity): Extension<Activity>,
    key: KeyPath,
    request: Request,
) -> Result<Json<Value>, ErrorResponse> {
    let key = read_key(key)?;
    let parameters = Parameters::read(request.uri(), &["durability", "lease"])?;
    let durability: Option<Class> = parameters.parsed("durability", "disk or memory")?;
    let lease = parameters.parsed("lease", "a lease of this API")?;
    let expected = expected(request.headers())?;
    let value = body(&shared, &activity, request).await?;
    let mut put = KvPut::new(key, value);
    put.expected = expected;
    if let Some(Class(durability)) = durability {
        put.durability = durability;
    }
    written(&call(&shared, KvCall::Put(put, lease)).await?)
}

/// Deletes a key.
pub(super) async fn delete(
    State(shared): State<Arc<Shared>>,
    key: KeyPath,
    headers: HeaderMap,
) -> Result<Json<Value>, ErrorResponse> {
    let key = read_key(key)?;
    let delete = KvCall::Delete(key, expected(&headers)?);
    written(&call(&shared, delete).await?)
}

/// Reads a key.
pub(super) async fn get(
    State(shared): State<Arc<Shared>>,
    key: KeyPath,
) -> Result<Json<Value>, ErrorResponse> {
    let key = read_key(key)?;
    let KvAnswer::Entry(entry) = call(&shared, KvCall::Get(key)).await? else {
        return Err(HubFault::Down.into());
    };
    let entry = entry.ok_or(KvError::NotFound)?;
    Ok(Json(entry_json(&entry)))
}

/// Lists the keys with a prefix.
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
) -> Result<Json<Value>, ErrorResponse> {
    let parameters = Parameters::read(&uri, &["prefix", "after", "max"])?;
    let key_fault =
        |error: &dyn std::fmt::Display| ErrorResponse::bad("bad_key", error.to_string());
    let prefix = KvPrefix::new(parameters.text("prefix").unwrap_or_default());
    let mut range = KvRange::prefix(&prefix.map_err(|error| key_fault(&error))?);
    if let Some(after) = parameters.text("after") {
        range = range.after(&KvKey::new(after).map_err(|error| key_fault(&error))?);
    }
    let max = parameters.count("max", shared.config.page_max.min(PAGE_MAX))?;
    let limit = u16::try_from(max).unwrap_or(u16::MAX);
    let KvAnswer::Page { entries, more } = call(&shared, KvCall::Range(range, limit)).await? else {
        return Err(HubFault::Down.into());
    };
    let entries: Vec<Value> = entries.iter().map(entry_json).collect();
    Ok(Json(json!({"entries": entries, "more": more})))
}

pub(super) async fn call(shared: &Shared, call: KvCall) -> Result<KvAnswer, ErrorResponse> {
    let answered = shared.send(|answer| LinkRequest::Kv(call, answer)).await?;
    Ok(answered?)
}

fn written(answer: &KvAnswer) -> Result<Json<Value>, ErrorResponse> {
    let KvAnswer::Written { revision, .. } = answer else {
        return Err(HubFault::Down.into());
    };
    Ok(Json(json!({"revision": revision.0.to_string()})))
}

pub(super) fn entry_json(entry: &KvEntry) -> Value {
    json!({
        "key": entry.key.as_str(),
        "revision": entry.revision.0.to_string(),
        "value": Base64::encode_string(&entry.value.0),
    })
}

fn read_key(part: KeyPath) -> Result<KvKey, ErrorResponse> {
    let text = part.map(|Path(text)| text).unwrap_or_default();
    KvKey::new(&text).map_err(|error| {
        let found = truncated(&text);
        ErrorResponse::bad("bad_key", format!("found {found:?}: {error}"))
    })
}

/// Reads the revision that the key must have: `If-Match: REVISION`, or `If-None-Match: *` if it must
/// not exist.
fn expected(headers: &HeaderMap) -> Result<Option<Revision>, ErrorResponse> {
    let single = |name| {
        let mut values = headers.get_all(name).iter();
        let first = values.next();
        (first, values.next().is_some())
    };
    let fault = || {
        let conditions = [header::IF_MATCH, header::IF_NONE_MATCH];
        let found = conditions.iter().flat_map(|name| {
            let values = headers.get_all(name).iter();
            values
                .map(move |value| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
        });
        let found = found.collect::<Vec<_>>().join(", ");
        let found = truncated(&found);
        let detail =
            format!("found {found:?}, expected one If-Match with a revision, or If-None-Match: *");
        ErrorResponse::bad("bad_revision", detail)
    };
    match (single(header::IF_MATCH), single(header::IF_NONE_MATCH)) {
        ((None, _), (None, _)) => Ok(None),
        ((None, _), (Some(value), false)) if value == "*" => Ok(Some(Revision::NONE)),
        ((Some(value), false), (None, _)) => {
            let text = value.to_str().map_err(|_| fault())?.trim();
            // An entity tag is in quotes (RFC 9110, section 8.8.3).
            let quoted = text
                .strip_prefix('"')
                .and_then(|text| text.strip_suffix('"'));
            let number = quoted.unwrap_or(text).parse().map_err(|_| fault())?;
            Ok(Some(Revision(number)))
        }
        _ => Err(fault()),
    }
}

struct Class(Durability);

impl std::str::FromStr for Class {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "disk" => Ok(Self(Durability::Disk)),
            "memory" => Ok(Self(Durability::Memory)),
            _ => Err(()),
        }
    }
}

impl From<KvError> for ErrorResponse {
    fn from(error: KvError) -> Self {
        let detail = error.to_string();
        match error {
            KvError::Conflict { current } => Self::new(
                StatusCode::PRECONDITION_FAILED,
                "conflict",
                format!("{detail}; its revision is {}", current.0),
            ),
            KvError::NotFound => Self::new(StatusCode::NOT_FOUND, "no_key_there", detail),
            KvError::TooLarge => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail),
            KvError::OtherDurability => Self::new(StatusCode::CONFLICT, "other_durability", detail),
            KvError::Busy => SendFault::Full.into(),
            KvError::HubDown => SendFault::HubDown.into(),
            KvError::Unknown => HubFault::TimedOut.into(),
            KvError::OverShare => Self::new(StatusCode::INSUFFICIENT_STORAGE, "over_share", detail),
            KvError::Full | _ => Self::new(StatusCode::INSUFFICIENT_STORAGE, "store_full", detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn read(fields: &[(&'static str, &'static str)]) -> Result<Option<Revision>, ErrorResponse> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        expected(&headers)
    }

    #[test]
    fn a_condition_is_one_revision_or_that_there_is_no_key() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("if-match", "\"7\"")]), Ok(Some(Revision(7))));
        assert_eq!(read(&[("if-match", "7")]), Ok(Some(Revision(7))));
        assert_eq!(read(&[("if-none-match", "*")]), Ok(Some(Revision::NONE)));
        for fields in [
            &[("if-match", "*")][..],
            &[("if-match", "1"), ("if-match", "2")],
            &[("if-match", "1"), ("if-none-match", "*")],
            &[("if-none-match", "\"7\"")],
        ] {
            assert!(read(fields).is_err(), "{fields:?}");
        }
    }
}

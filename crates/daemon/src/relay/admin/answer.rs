//! Answers that are no success, and their form.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Why a request is not done: a status, a word for programs and a sentence for people.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    word: &'static str,
    detail: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, word: &'static str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self {
            status,
            word,
            detail,
        }
    }

    pub(super) fn no_token() -> Self {
        let detail = "say Authorization: Bearer and the token of this node's token file";
        Self::new(StatusCode::UNAUTHORIZED, "no_token", detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    /// The node's thread does not answer.
    pub(super) fn busy() -> Self {
        let detail = "the node does not answer";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({"error": self.word, "detail": self.detail});
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = axum::http::HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

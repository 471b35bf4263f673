//! Answers that are no success.

use axum::http::StatusCode;

use crate::http::refusal::Refusal;

impl Refusal {
    pub(super) fn no_token() -> Self {
        let detail = "expected \"Authorization: Bearer TOKEN\" with the token of this node's token file; \
                      found none, or another token";
        Self::new(StatusCode::UNAUTHORIZED, "no_token", detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// The node's thread does not answer.
    pub(super) fn busy() -> Self {
        let detail = "the node does not answer";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
    }
}

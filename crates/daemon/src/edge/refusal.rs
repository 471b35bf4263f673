//! What the edge answers where it does not do what was asked.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use matchmaker_core::{CancelError, ReissueError, SubmitError};
use serde::Serialize;

/// A status, a word for programs, a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    error: &'static str,
    detail: String,
    retry_after: Option<Duration>,
}

/// The word of a refusal, beside the answer that says it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word(pub(super) &'static str);

#[derive(Serialize)]
struct Shape<'a> {
    error: &'a str,
    detail: &'a str,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, error: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            error,
            detail: detail.into(),
            retry_after: None,
        }
    }

    /// The request is not understood.
    pub(super) fn bad(error: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error, detail)
    }

    /// It may be asked again after `wait`.
    pub(super) fn later(error: &'static str, detail: impl Into<String>, wait: Duration) -> Self {
        Self {
            retry_after: Some(wait),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, error, detail)
        }
    }

    /// The matchmaker cannot be asked.
    pub(super) fn unavailable() -> Self {
        Self {
            retry_after: Some(Duration::from_secs(1)),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable",
                "the matchmaker is behind, or has ended",
            )
        }
    }

    /// There is no such ticket, or it is not the asker's: nobody learns which.
    pub(super) fn unknown_ticket() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "unknown_ticket",
            "there is no such ticket, or the resume key is not its own",
        )
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let shape = Shape {
            error: self.error,
            detail: &self.detail,
        };
        let mut response = (self.status, Json(shape)).into_response();
        response.extensions_mut().insert(Word(self.error));
        if let Some(wait) = self.retry_after {
            // Whole seconds (RFC 9110, section 10.2.3), and not too early.
            let seconds = wait.as_millis().div_ceil(1_000).max(1);
            if let Ok(value) = HeaderValue::from_str(&seconds.to_string()) {
                response.headers_mut().insert(header::RETRY_AFTER, value);
            }
        }
        response
    }
}

impl From<SubmitError> for Refusal {
    fn from(error: SubmitError) -> Self {
        let detail = error.to_string();
        let retry = |wait| {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            Self {
                retry_after: Some(wait),
                ..Self::new(status, "unavailable", detail.clone())
            }
        };
        match error {
            SubmitError::Duplicate(_) => Self::new(StatusCode::CONFLICT, "duplicate", detail),
            SubmitError::TooSoon(wait) => Self::later("too_soon", detail, wait),
            SubmitError::Full => Self {
                error: "queue_full",
                ..retry(Duration::from_secs(5))
            },
            SubmitError::NoClock | SubmitError::NoEntropy | _ => retry(Duration::from_secs(1)),
        }
    }
}

impl From<CancelError> for Refusal {
    fn from(error: CancelError) -> Self {
        let detail = error.to_string();
        match error {
            CancelError::Assigned => Self::new(StatusCode::CONFLICT, "assigned", detail),
            CancelError::Ended => Self::new(StatusCode::CONFLICT, "ended", detail),
            CancelError::Unknown | _ => Self::unknown_ticket(),
        }
    }
}

impl From<ReissueError> for Refusal {
    fn from(error: ReissueError) -> Self {
        let detail = error.to_string();
        match error {
            ReissueError::Unknown => Self::unknown_ticket(),
            ReissueError::NotAssigned => Self::new(StatusCode::CONFLICT, "not_assigned", detail),
            ReissueError::TooSoon(wait) => Self::later("too_soon", detail, wait),
            ReissueError::NoClock | ReissueError::NoEntropy | _ => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
            }
        }
    }
}

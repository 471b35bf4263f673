//! Error responses in the JSON format of all HTTP servers here.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorResponse {
    status: StatusCode,
    error: &'static str,
    detail: String,
    field: Option<Box<FieldError>>,
    retry_after: Option<Duration>,
}

/// An invalid field of a body or parameter of a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FieldError {
    pub(crate) field: String,
    pub(crate) found: String,
    pub(crate) expected: &'static str,
}

/// The error code, as an extension of the response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorCode(pub(crate) &'static str);

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: &'a str,
    detail: &'a str,
    #[serde(flatten)]
    field: Option<&'a FieldError>,
}

impl ErrorResponse {
    pub(crate) fn new(status: StatusCode, error: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            error,
            detail: detail.into(),
            field: None,
            retry_after: None,
        }
    }

    pub(crate) fn bad(error: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error, detail)
    }

    pub(crate) fn bad_field(error: &'static str, fault: FieldError) -> Self {
        let FieldError {
            field,
            found,
            expected,
        } = &fault;
        let detail = format!("{field}: found {found}, expected {expected}");
        Self {
            field: Some(Box::new(fault)),
            ..Self::bad(error, detail)
        }
    }

    pub(crate) const fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    pub(crate) fn later(error: &'static str, detail: impl Into<String>, wait: Duration) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, error, detail).retry_after(wait)
    }
}

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        let body = ErrorBody {
            error: self.error,
            detail: &self.detail,
            field: self.field.as_deref(),
        };
        let mut response = (self.status, Json(body)).into_response();
        response.extensions_mut().insert(ErrorCode(self.error));
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after {
            // Whole seconds (RFC 9110, section 10.2.3), rounded up.
            let seconds = wait.as_millis().div_ceil(1_000).max(1);
            if let Ok(value) = HeaderValue::from_str(&seconds.to_string()) {
                headers.insert(header::RETRY_AFTER, value);
            }
        }
        match self.status {
            // RFC 9110, section 11.6.1: a 401 names the scheme.
            StatusCode::UNAUTHORIZED => {
                let scheme = HeaderValue::from_static("Bearer");
                headers.insert(header::WWW_AUTHENTICATE, scheme);
            }
            // RFC 9110, section 15.5.9, and RFC 9112, section 6.1: the rest of the request may
            // still arrive.
            StatusCode::REQUEST_TIMEOUT | StatusCode::NOT_IMPLEMENTED => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

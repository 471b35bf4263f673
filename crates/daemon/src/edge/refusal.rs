//! What the edge answers where it does not do what was asked.

use std::time::Duration;

use axum::http::StatusCode;
use matchmaker_core::{CancelError, ReissueError, SubmitError};

use crate::http::refusal::Refusal;

impl Refusal {
    /// The matchmaker cannot be asked.
    pub(super) fn unavailable() -> Self {
        let detail = "the matchmaker is behind, or has ended";
        Self::unavailable_for(Duration::from_secs(1), "unavailable", detail)
    }

    fn unavailable_for(wait: Duration, word: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, word, detail).retry_after(wait)
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

impl From<SubmitError> for Refusal {
    fn from(error: SubmitError) -> Self {
        let detail = error.to_string();
        match error {
            SubmitError::Duplicate(_) => Self::new(StatusCode::CONFLICT, "duplicate", detail),
            SubmitError::TooSoon(wait) => Self::later("too_soon", detail, wait),
            SubmitError::Full => {
                Self::unavailable_for(Duration::from_secs(5), "queue_full", detail)
            }
            SubmitError::NoClock | SubmitError::NoEntropy | _ => {
                Self::unavailable_for(Duration::from_secs(1), "unavailable", detail)
            }
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
                Self::unavailable_for(Duration::from_secs(1), "unavailable", detail)
            }
        }
    }
}

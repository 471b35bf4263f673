//! Counters of an HTTP server: every connection and request once, by outcome.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use tickwire::stats::Page;

use crate::http::ConnectionOutcome;

/// Counters since the start, as in `GET /v1/status`.
///
/// `connections` is the sum of `open`, `closed`, `bad_http`, `too_slow`, `cut` and `evicted`;
/// `requests` is the sum of `asked`, `answered`, `dropped` and all of `refused`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    connections: u64,
    /// Connections closed at once because of a limit.
    connections_refused: u64,
    open: u64,
    closed: u64,
    /// Closed because of malformed TLS or HTTP, or too large a head.
    bad_http: u64,
    /// Closed because the client was too slow in its handshake, to send a head or to read a response.
    too_slow: u64,
    /// Broken within a request or response.
    cut: u64,
    evicted: u64,
    /// Requests with a valid head.
    requests: u64,
    asked: u64,
    answered: u64,
    /// Requests that lost their connection before the response.
    dropped: u64,
    refused: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    Closed,
    BadHttp,
    TooSlow,
    Cut,
    Evicted,
}

impl ConnectionEnd {
    pub(crate) fn of(served: &ConnectionOutcome) -> Self {
        match served {
            ConnectionOutcome::Evicted => Self::Evicted,
            ConnectionOutcome::Ended(Ok(())) => Self::Closed,
            ConnectionOutcome::Ended(Err(error)) if error.is_parse() => Self::BadHttp,
            ConnectionOutcome::Ended(Err(error))
                if error.is_timeout() || is_write_timeout(error) =>
            {
                Self::TooSlow
            }
            ConnectionOutcome::Ended(Err(_)) => Self::Cut,
        }
    }
}

impl ConnectionEnd {
    /// The end of a connection with a failed TLS handshake.
    pub(crate) fn of_handshake(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::TimedOut {
            Self::TooSlow
        } else if error.kind() == io::ErrorKind::InvalidData {
            Self::BadHttp
        } else {
            Self::Cut
        }
    }
}

fn is_write_timeout(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    cause.is_some_and(|cause: &io::Error| cause.kind() == io::ErrorKind::TimedOut)
}

/// The counters, which clones share; never locked across an await.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter(Arc<Mutex<Counts>>);

impl Counter {
    pub(crate) fn counts(&self) -> Counts {
        self.change(|counts| counts.clone())
    }

    /// Adds them to a page of metrics.
    pub(crate) fn write(&self, page: &mut Page, prefix: &str) {
        let counts = self.counts();
        page.gauge(&format!("{prefix}connections_open"), &counts.open);
        page.gauge(&format!("{prefix}requests_open"), &counts.asked);
        for (name, value) in [
            ("connections", counts.connections),
            ("connections_refused", counts.connections_refused),
            ("connections_closed", counts.closed),
            ("connections_bad_http", counts.bad_http),
            ("connections_too_slow", counts.too_slow),
            ("connections_cut", counts.cut),
            ("connections_evicted", counts.evicted),
            ("requests", counts.requests),
            ("requests_answered", counts.answered),
            ("requests_dropped", counts.dropped),
        ] {
            page.counter(&format!("{prefix}{name}_total"), &value);
        }
        let refused = counts.refused.iter();
        let rows = refused.map(|(code, count)| (format!("code=\"{code}\""), count.to_string()));
        page.labelled(
            (&format!("{prefix}requests_refused_total"), "counter"),
            rows,
        );
    }

    pub(crate) fn connection_refused(&self) {
        self.change(|counts| add(&mut counts.connections_refused));
    }

    pub(crate) fn connection_opened(&self) {
        self.change(|counts| {
            add(&mut counts.connections);
            add(&mut counts.open);
        });
    }

    pub(crate) fn connection_ended(&self, end: ConnectionEnd) {
        self.change(|counts| {
            counts.open = counts.open.saturating_sub(1);
            add(match end {
                ConnectionEnd::Closed => &mut counts.closed,
                ConnectionEnd::BadHttp => &mut counts.bad_http,
                ConnectionEnd::TooSlow => &mut counts.too_slow,
                ConnectionEnd::Cut => &mut counts.cut,
                ConnectionEnd::Evicted => &mut counts.evicted,
            });
        });
    }

    /// Counts a request until the guard is dropped or ended.
    pub(crate) fn request(&self) -> RequestGuard<'_> {
        self.change(|counts| {
            add(&mut counts.requests);
            add(&mut counts.asked);
        });
        RequestGuard {
            counter: self,
            outcome: RequestOutcome::Dropped,
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        // The counters stay valid after a panic.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug)]
pub(crate) struct RequestGuard<'a> {
    counter: &'a Counter,
    outcome: RequestOutcome,
}

#[derive(Debug)]
enum RequestOutcome {
    Dropped,
    Answered,
    Refused(&'static str),
}

impl RequestGuard<'_> {
    pub(crate) fn end(mut self, refused: Option<&'static str>) {
        self.outcome = refused.map_or(RequestOutcome::Answered, RequestOutcome::Refused);
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        self.counter.change(|counts| {
            counts.asked = counts.asked.saturating_sub(1);
            add(match self.outcome {
                RequestOutcome::Dropped => &mut counts.dropped,
                RequestOutcome::Answered => &mut counts.answered,
                // Codes are constants of the program, so there are few.
                RequestOutcome::Refused(code) => counts.refused.entry(code).or_default(),
            });
        });
    }
}

const fn add(count: &mut u64) {
    *count = count.saturating_add(1);
}

//! What the edge has counted: every connection and every request once, by how it ended.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::http::ConnectionOutcome;

/// Counts since the start, as `GET /v1/status` tells them.
///
/// `connections` is the sum of `open`, `closed`, `bad_http`, `too_slow`, `cut` and `evicted`; `requests` is the
/// sum of `asked`, `answered`, `dropped` and all of `refused`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    /// Connections that were let in.
    connections: u64,
    /// Connections over a limit, closed as they were made.
    connections_refused: u64,
    /// Connections that are there now.
    open: u64,
    /// That ended as HTTP has it.
    closed: u64,
    /// That said what is no HTTP, or had too large a head.
    bad_http: u64,
    /// Whose head did not come in time, or that did not take an answer in time.
    too_slow: u64,
    /// That broke off in the middle of a request or an answer.
    cut: u64,
    /// That were idle, and closed for new ones.
    evicted: u64,
    /// Requests whose head was understood.
    requests: u64,
    /// Requests that wait for their answer now.
    asked: u64,
    /// Requests that were done.
    answered: u64,
    /// Requests whose connection was gone before the answer was ready.
    dropped: u64,
    /// Requests that were not done, by the word that was answered.
    refused: BTreeMap<&'static str, u64>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    Closed,
    BadHttp,
    TooSlow,
    Cut,
    Evicted,
}

impl ConnectionEnd {
    /// Reads how a connection was served.
    pub(super) fn of(served: &ConnectionOutcome) -> Self {
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

/// Whether a stream gave up its other end.
fn is_write_timeout(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    cause.is_some_and(|cause: &io::Error| cause.kind() == io::ErrorKind::TimedOut)
}

/// Counts, shared by all connections; no lock is held across a wait.
#[derive(Debug, Default)]
pub(super) struct Counter(Mutex<Counts>);

impl Counter {
    /// Returns what was counted so far, all at one moment.
    pub(super) fn counts(&self) -> Counts {
        self.change(|counts| counts.clone())
    }

    pub(super) fn connection_refused(&self) {
        self.change(|counts| add(&mut counts.connections_refused));
    }

    pub(super) fn connection_opened(&self) {
        self.change(|counts| {
            add(&mut counts.connections);
            add(&mut counts.open);
        });
    }

    pub(super) fn connection_ended(&self, end: ConnectionEnd) {
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

    /// Counts a request until its end; one that is dropped before has no asker any more.
    pub(super) fn request(&self) -> RequestGuard<'_> {
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
        // A count is right after a panic too.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct RequestGuard<'a> {
    counter: &'a Counter,
    outcome: RequestOutcome,
}

/// What has become of a request.
#[derive(Debug)]
enum RequestOutcome {
    /// Nobody has answered it.
    Dropped,
    Answered,
    /// By this word.
    Refused(&'static str),
}

impl RequestGuard<'_> {
    /// It was done, or refused by this word.
    pub(super) fn end(mut self, refused: Option<&'static str>) {
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
                // Words are the edge's own, so they are few.
                RequestOutcome::Refused(code) => counts.refused.entry(code).or_default(),
            });
        });
    }
}

const fn add(count: &mut u64) {
    *count = count.saturating_add(1);
}

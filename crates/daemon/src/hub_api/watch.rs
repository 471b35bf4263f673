//! `GET /v1/watch`: presence or keys as a `WebSocket`, with resume by revision.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::watch::Receiver;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::key_watch::KeyWatch;
use super::message::{Kinds, state_json};
use super::parameter::Parameters;
use super::presence::{Cursor, Key, Page, Presence, Revision, State as PresenceState};
use super::shared::{Bearer, Shared, loading, too_many_watches};
use crate::http::error_response::ErrorResponse;
use crate::http::websocket::{self, CloseCode, FrameError, Incoming, WebSocket};

/// `WebSocket`s by the way they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct WatchCounts {
    opened: u64,
    /// Closed by the client.
    closed: u64,
    /// Broken.
    cut: u64,
    /// Closed since the client read too slowly, or sent nothing for three intervals of pings.
    too_slow: u64,
    /// Closed since the client broke the protocol or a limit.
    malformed: u64,
    /// Closed since the key was removed.
    revoked: u64,
    /// Closed since the hub did not answer a read of keys.
    unavailable: u64,
    /// Messages sent.
    messages: u64,
}

#[derive(Debug, Default)]
pub(super) struct WatchCounter(Mutex<WatchCounts>);

impl WatchCounter {
    pub(super) fn get(&self) -> WatchCounts {
        // The counters stay valid after a panic.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut WatchCounts)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Why a `WebSocket` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchEnd {
    Closed,
    Cut,
    /// It fell behind the changes that are kept.
    Behind,
    /// It did not read or answer for too long.
    Silent,
    Malformed(FrameError),
    Revoked,
    /// The hub did not answer.
    Unavailable,
}

/// States of one page, at most.
const PAGE: usize = 256;

pub(super) async fn watch(
    State(shared): State<Arc<Shared>>,
    Extension(bearer): Extension<Bearer>,
    mut request: Request,
) -> Result<Response, ErrorResponse> {
    let parameters = Parameters::read(request.uri(), &["from", "kind", "prefix"])?;
    let response = websocket::accept(request.headers())?;
    let source = if parameters.text("kind") == Some("keys") {
        Source::Keys(KeyWatch::begin(&shared, &parameters).await?)
    } else {
        Source::Presence(PresenceWatch::begin(&shared, &parameters)?)
    };
    let permit = Arc::clone(&shared.watches)
        .try_acquire_owned()
        .map_err(|_| too_many_watches())?;
    let upgrade = hyper::upgrade::on(&mut request);
    let watcher = Watcher {
        shared,
        bearer,
        source,
        _permit: permit,
    };
    drop(tokio::spawn(watcher.run(upgrade)));
    Ok(response)
}

/// What a `WebSocket` shows.
enum Source {
    Presence(PresenceWatch),
    Keys(KeyWatch),
}

impl Source {
    /// Returns the next messages; none if there is nothing new.
    async fn next(&mut self) -> Result<(Vec<String>, Backlog), WatchEnd> {
        match self {
            Self::Presence(presence) => presence.next(),
            Self::Keys(keys) => keys.next().await,
        }
    }

    /// Returns the receiver that is notified of more messages.
    const fn changes(&mut self) -> &mut Receiver<u64> {
        match self {
            Self::Presence(presence) => &mut presence.changes,
            Self::Keys(keys) => keys.changes(),
        }
    }
}

struct PresenceWatch {
    presence: Presence,
    kinds: Kinds,
    cursor: Cursor,
    changes: Receiver<u64>,
    /// The messages begin with a reset that is not sent.
    is_new: bool,
}

impl PresenceWatch {
    fn begin(shared: &Shared, parameters: &Parameters) -> Result<Self, ErrorResponse> {
        let from: Option<Revision> = parameters.parsed("from", "a revision of this API")?;
        let kinds = Kinds::read(parameters)?;
        parameters.without("prefix", "none except with kind=keys")?;
        let presence = shared.presence.clone();
        if !presence.is_loaded() {
            return Err(loading());
        }
        let cursor = presence.cursor(from);
        Ok(Self {
            changes: presence.changes(),
            is_new: matches!(cursor, Cursor::Snapshot(..)),
            presence,
            kinds,
            cursor,
        })
    }

    fn next(&mut self) -> Result<(Vec<String>, Backlog), WatchEnd> {
        self.changes.borrow_and_update();
        if std::mem::take(&mut self.is_new) {
            return Ok((vec![reset_text()], Backlog::More));
        }
        let (states, end) = match self.presence.page(&mut self.cursor, PAGE) {
            Page::TooSlow => return Err(WatchEnd::Behind),
            Page::States(states) => (states, None),
            Page::SnapshotEnd(states, revision) => (states, Some(revision)),
        };
        if states.is_empty() && end.is_none() {
            return Ok((Vec::new(), Backlog::None));
        }
        let is_snapshot = matches!(self.cursor, Cursor::Snapshot(..)) || end.is_some();
        let wanted = states
            .iter()
            .filter(|(_, state)| self.kinds.admits(key(state)));
        // A snapshot has one revision, which its end names: a part of it cannot be resumed from.
        let texts = wanted.map(|(revision, state)| {
            let revision = (!is_snapshot).then(|| revision.to_string());
            text(state, revision)
        });
        let mut texts: Vec<String> = texts.collect();
        texts.extend(end.map(|revision| complete_text(&revision.to_string())));
        Ok((texts, Backlog::More))
    }
}

/// What follows replaces all that was reported.
pub(super) fn reset_text() -> String {
    json!({"event": "reset"}).to_string()
}

/// All changes up to `revision` were reported.
pub(super) fn complete_text(revision: &str) -> String {
    json!({"event": "complete", "revision": revision}).to_string()
}

struct Watcher {
    shared: Arc<Shared>,
    bearer: Bearer,
    source: Source,
    _permit: OwnedSemaphorePermit,
}

impl Watcher {
    async fn run(mut self, upgrade: OnUpgrade) {
        self.shared
            .watch_counter
            .change(|counts| add(&mut counts.opened));
        let end = match upgrade.await {
            Ok(stream) => {
                let mut socket = WebSocket::new(TokioIo::new(stream));
                let end = self.serve(&mut socket).await;
                if let Some((code, reason)) = end.close() {
                    // A peer that reads nothing is cut off by the timeout of the write.
                    drop(socket.close(code, reason).await);
                }
                end
            }
            Err(_) => WatchEnd::Cut,
        };
        self.shared.watch_counter.change(|counts| {
            add(match end {
                WatchEnd::Closed => &mut counts.closed,
                WatchEnd::Cut => &mut counts.cut,
                WatchEnd::Behind | WatchEnd::Silent => &mut counts.too_slow,
                WatchEnd::Malformed(_) => &mut counts.malformed,
                WatchEnd::Revoked => &mut counts.revoked,
                WatchEnd::Unavailable => &mut counts.unavailable,
            });
        });
        let name = self.bearer.name;
        tracing::debug!(%name, ?end, "a WebSocket has ended");
    }

    async fn serve(&mut self, socket: &mut WebSocket<TokioIo<Upgraded>>) -> WatchEnd {
        let mut pings = pings(&self.shared);
        let mut silent_pings = 0_u32;
        loop {
            let backlog = match self.send_page(socket).await {
                Ok(backlog) => backlog,
                Err(end) => return end,
            };
            let changes = self.source.changes();
            match next_turn(socket, &mut pings, changes, backlog).await {
                Turn::Page => {}
                Turn::Ended => return WatchEnd::Cut,
                Turn::Received(received) => {
                    silent_pings = 0;
                    if let Err(end) = answer(socket, received).await {
                        return end;
                    }
                }
                Turn::Check => {
                    if self.shared.keys.find(&self.bearer.token).is_none() {
                        return WatchEnd::Revoked;
                    }
                    silent_pings = silent_pings.saturating_add(1);
                    if silent_pings > SILENT_PINGS_MAX {
                        return WatchEnd::Silent;
                    }
                    if let Err(error) = socket.ping().await {
                        return WatchEnd::of(&error);
                    }
                }
            }
        }
    }

    /// Sends the next messages.
    async fn send_page(
        &mut self,
        socket: &mut WebSocket<TokioIo<Upgraded>>,
    ) -> Result<Backlog, WatchEnd> {
        let (texts, backlog) = self.source.next().await?;
        if texts.is_empty() {
            return Ok(backlog);
        }
        let sent = u64::try_from(texts.len()).unwrap_or(u64::MAX);
        socket
            .send(&texts)
            .await
            .map_err(|error| WatchEnd::of(&error))?;
        let counter = &self.shared.watch_counter;
        counter.change(|counts| counts.messages = counts.messages.saturating_add(sent));
        Ok(backlog)
    }
}

/// Whether there may be messages that were not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backlog {
    More,
    None,
}

/// What a watcher does next.
#[derive(Debug)]
enum Turn {
    /// Checks the key and the silence of the client, and pings.
    Check,
    Received(io::Result<Result<Incoming, FrameError>>),
    Page,
    /// The API ends.
    Ended,
}

/// Returns the next turn. Checks that are due and frames come before pages, so that a watcher which
/// always has more to send still notices them.
async fn next_turn<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocket<S>,
    pings: &mut Interval,
    changes: &mut Receiver<u64>,
    backlog: Backlog,
) -> Turn {
    let has_more = backlog == Backlog::More;
    if has_more {
        // Other tasks of the thread run between pages.
        tokio::task::yield_now().await;
    }
    tokio::select! {
        biased;
        _ = pings.tick() => Turn::Check,
        received = socket.receive() => Turn::Received(received),
        () = std::future::ready(()), if has_more => Turn::Page,
        changed = changes.changed() => {
            if changed.is_ok() { Turn::Page } else { Turn::Ended }
        }
    }
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocket<S>,
    received: io::Result<Result<Incoming, FrameError>>,
) -> Result<(), WatchEnd> {
    let answered = match received {
        Ok(Ok(Incoming::Ping(payload))) => socket.pong(&payload).await,
        Ok(Ok(Incoming::Other)) => Ok(()),
        Ok(Ok(Incoming::Close)) => return Err(WatchEnd::Closed),
        Ok(Err(error)) => return Err(WatchEnd::Malformed(error)),
        Err(error) => Err(error),
    };
    answered.map_err(|error| WatchEnd::of(&error))
}

const fn key(state: &PresenceState) -> Key {
    match state {
        PresenceState::Node(node, _) => Key::Node(*node),
        PresenceState::Player(player, _) => Key::Player(*player),
    }
}

fn text(state: &PresenceState, revision: Option<String>) -> String {
    let mut value = state_json(state);
    if let Value::Object(fields) = &mut value {
        let event = match state {
            PresenceState::Node(..) => "node",
            PresenceState::Player(..) => "player",
        };
        fields.insert("event".to_owned(), event.into());
        if let Some(revision) = revision {
            fields.insert("revision".to_owned(), revision.into());
        }
    }
    value.to_string()
}

/// Pings without any frame of the client, at most.
const SILENT_PINGS_MAX: u32 = 3;

fn pings(shared: &Shared) -> Interval {
    let mut pings = interval(shared.config.ping_interval);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings
}

impl WatchEnd {
    fn of(error: &io::Error) -> Self {
        if error.kind() == ErrorKind::TimedOut {
            Self::Silent
        } else {
            Self::Cut
        }
    }

    /// The answer to the client, if there can be one.
    const fn close(self) -> Option<(CloseCode, &'static str)> {
        match self {
            Self::Cut => None,
            Self::Closed => Some((CloseCode::GoingAway, "")),
            Self::Behind => Some((
                CloseCode::TryAgain,
                "too slow: the changes after your revision are forgotten; connect again",
            )),
            Self::Silent => Some((CloseCode::Policy, "no frame was received for too long")),
            Self::Malformed(FrameError::Malformed) => {
                Some((CloseCode::Protocol, "a frame breaks the protocol"))
            }
            Self::Malformed(FrameError::TooLong) => {
                Some((CloseCode::TooLong, "a frame is over 4096 bytes"))
            }
            Self::Revoked => Some((CloseCode::Policy, "the key is no longer valid")),
            Self::Unavailable => Some((
                CloseCode::TryAgain,
                "the hub does not answer; connect again",
            )),
        }
    }
}

const fn add(count: &mut u64) {
    *count = count.saturating_add(1);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[test]
    fn ha3_a_watcher_with_more_pages_still_checks_its_key_and_reads_frames() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (mut client, server) = tokio::io::duplex(64);
            let mut socket = WebSocket::new(server);
            // The first tick is due at once, the next never.
            let mut pings = interval(Duration::from_secs(86_400));
            let (sender, mut changes) = tokio::sync::watch::channel(0);
            // A timer is exact to a millisecond.
            tokio::time::sleep(Duration::from_millis(5)).await;
            // A masked ping without a payload.
            client.write_all(&[0x89, 0x80, 0, 0, 0, 0]).await.unwrap();
            let mut next =
                async || next_turn(&mut socket, &mut pings, &mut changes, Backlog::More).await;
            assert!(matches!(next().await, Turn::Check));
            assert!(matches!(
                next().await,
                Turn::Received(Ok(Ok(Incoming::Ping(_))))
            ));
            assert!(matches!(next().await, Turn::Page));
            drop(sender);
            assert!(matches!(next().await, Turn::Page));
        });
    }
}

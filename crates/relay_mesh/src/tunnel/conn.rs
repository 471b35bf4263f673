//! One player's connection within a tunnel.

use core::cmp::Reverse;
use core::time::Duration;

use bytes::Bytes;
use quinn_proto::StreamId;
use wire::{Instant, SourceKey};

use super::Tunnel;
use super::event::ConnEnd;
use super::open_record::{OpenReader, RESET};

/// State of a connection at one end.
#[derive(Debug)]
pub(super) struct Conn {
    /// Its stream; `None` at an entry until QUIC allows one.
    pub(super) stream: Option<StreamId>,
    pub(super) stage: TunnelConnState,
    /// Timeout of the current stage; `None` once the connection is open.
    pub(super) deadline: Option<Instant>,
    /// The source it counts for; `None` at an exit until the open record is read.
    pub(super) source: Option<SourceKey>,
    /// The rest of our first bytes that the stream has not taken: open record or answer.
    pub(super) first: Vec<u8>,
    /// Bytes read from the stream and not yet by the driver; at most [`CHUNK_MAX`].
    pub(super) chunk: Bytes,
    pub(super) uptake: Uptake,
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
    /// Events that the driver waits for.
    pub(super) wants: Wants,
}

#[derive(Debug)]
pub(super) enum TunnelConnState {
    /// Entry: waits for the exit's answer.
    Asking,
    /// Exit: reads the open record.
    Reading(OpenReader),
    /// Exit: waits for the driver's answer.
    Dialling,
    /// Passes bytes.
    Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inbound {
    Open,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outbound {
    Open,
    /// The driver has finished; the stream has not.
    Ending,
    /// The stream is finished.
    Ended,
    /// The remote end has acknowledged all bytes.
    Delivered,
}

/// Events that are due to the driver.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wants {
    /// No bytes were readable at its last call.
    pub(super) read: bool,
    /// Not all bytes were taken at its last write.
    pub(super) write: bool,
}

impl Conn {
    pub(super) fn new(stage: TunnelConnState, deadline: Instant) -> Self {
        Self {
            stream: None,
            stage,
            deadline: Some(deadline),
            source: None,
            first: Vec::new(),
            chunk: Bytes::new(),
            uptake: Uptake::default(),
            inbound: Inbound::Open,
            outbound: Outbound::Open,
            wants: Wants {
                read: true,
                write: false,
            },
        }
    }

    /// Whether the driver's bytes may follow our first ones: at an exit, after it has accepted.
    pub(super) const fn may_write(&self) -> bool {
        matches!(self.stage, TunnelConnState::Asking | TunnelConnState::Open)
    }

    pub(super) fn is_done(&self) -> bool {
        self.inbound == Inbound::Ended && self.outbound == Outbound::Delivered
    }
}

/// Bytes read from a stream at a time.
pub(super) const CHUNK_MAX: usize = 16 << 10;

/// How fast a driver consumes the remote end's bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uptake {
    /// Bytes since the last check.
    taken: usize,
    /// Consecutive checks that found bytes waiting and few consumed.
    slow_checks: u32,
}

impl Uptake {
    pub(super) const fn on_consumed(&mut self, len: usize) {
        self.taken = self.taken.saturating_add(len);
    }

    /// Checks a connection with `waiting` unread bytes.
    fn check(&mut self, waiting: usize) {
        let is_slow = core::mem::take(&mut self.taken) < TAKEN_MIN;
        self.slow_checks = if waiting > 0 && is_slow {
            self.slow_checks.saturating_add(1)
        } else {
            0
        };
    }

    const fn is_stalled(self) -> bool {
        self.slow_checks >= SLOW_CHECKS_MAX
    }
}

impl Tunnel {
    /// Schedules the next check if there are connections.
    pub(super) fn plan_stall_check(&mut self, now: Instant) {
        if self.conns.is_empty() {
            self.stall_check_at = None;
        } else if self.stall_check_at.is_none() {
            self.stall_check_at = Some(now + STALL_CHECK_INTERVAL);
        }
    }

    /// Resets the longest stalled connections above [`STALLED_MAX`].
    pub(super) fn reset_stalled(&mut self, now: Instant) {
        if self.stall_check_at.is_none_or(|at| now < at) {
            return;
        }
        self.stall_check_at = None;
        let mut stalled = Vec::new();
        for (number, conn) in &mut self.conns {
            conn.uptake.check(conn.chunk.len());
            if conn.uptake.is_stalled() {
                stalled.push((Reverse(conn.uptake.slow_checks), *number));
            }
        }
        let over = stalled.len().saturating_sub(STALLED_MAX);
        stalled.sort_unstable();
        for (_, number) in stalled.into_iter().take(over) {
            if let Some(stream) = self.conns.get(&number).and_then(|conn| conn.stream) {
                self.quic.reset(stream, RESET);
            }
            self.stats.stalled = self.stats.stalled.saturating_add(1);
            self.end(number, ConnEnd::Reset);
        }
    }
}

/// Interval of the checks.
const STALL_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Bytes that a driver must consume within it: 32 kbit/s.
const TAKEN_MIN: usize = 8 << 10;
/// Consecutive checks after which a connection counts as stalled: 4 to 6 s.
const SLOW_CHECKS_MAX: u32 = 3;
/// Stalled connections per tunnel: they hold at most 66 MiB.
const STALLED_MAX: usize = 128;

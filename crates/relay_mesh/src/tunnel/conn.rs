//! One player's connection within a tunnel.

use core::cmp::Reverse;
use core::time::Duration;

use bytes::Bytes;
use quinn_proto::StreamId;
use wire::{Instant, SourceKey};

use super::Tunnel;
use super::event::ConnEnd;
use super::open_record::{OpenReader, RESET};

/// What one end knows of a connection.
#[derive(Debug)]
pub(super) struct Conn {
    /// Its stream; `None` at an entry that has not been granted one yet.
    pub(super) stream: Option<StreamId>,
    pub(super) stage: Stage,
    /// By when it must have got further; `None` once it is open.
    pub(super) deadline: Option<Instant>,
    /// Whose place it has; `None` at an exit that has not read it yet.
    pub(super) source: Option<SourceKey>,
    /// Our own first bytes, as far as the stream has not taken them: the open record or the answer.
    pub(super) first: Vec<u8>,
    /// Bytes taken from the stream and not yet by the driver; at most [`CHUNK_MAX`].
    pub(super) chunk: Bytes,
    /// How far the driver takes them.
    pub(super) uptake: Uptake,
    /// Whether the far end has sent all, and the driver knows.
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
    /// What the driver waits for.
    pub(super) wants: Wants,
}

/// How far a connection is.
#[derive(Debug)]
pub(super) enum Stage {
    /// Entry: the exit has not answered.
    Asking,
    /// Exit: the open record is not whole.
    Reading(OpenReader),
    /// Exit: the driver has not answered.
    Dialling,
    /// Bytes pass.
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
    /// The driver has no more; the stream does not know yet.
    Ending,
    /// The stream knows.
    Ended,
    /// The far end has all of it.
    Delivered,
}

/// News that the driver is owed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wants {
    /// There were no bytes when it last asked.
    pub(super) read: bool,
    /// Not all bytes were taken when it last wrote.
    pub(super) write: bool,
}

impl Conn {
    /// One that waits for an answer until `deadline`.
    pub(super) fn new(stage: Stage, deadline: Instant) -> Self {
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

    /// Whether the driver's bytes may follow our own: at an exit they do once it has accepted.
    pub(super) const fn may_write(&self) -> bool {
        matches!(self.stage, Stage::Asking | Stage::Open)
    }

    /// Whether nothing more is to pass in either direction.
    pub(super) fn is_done(&self) -> bool {
        self.inbound == Inbound::Ended && self.outbound == Outbound::Delivered
    }
}

/// Bytes taken from a stream at a time.
pub(super) const CHUNK_MAX: usize = 16 << 10;

/// How far a connection's driver takes what the far end sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uptake {
    /// Bytes since the last look.
    taken: usize,
    /// Looks in a row that found bytes waiting and few taken.
    looks: u32,
}

impl Uptake {
    /// Takes note of bytes that the driver consumed.
    pub(super) const fn on_consumed(&mut self, len: usize) {
        self.taken = self.taken.saturating_add(len);
    }

    /// Looks at a connection of which `waiting` bytes wait for the driver.
    fn look(&mut self, waiting: usize) {
        let is_slow = core::mem::take(&mut self.taken) < TAKEN_MIN;
        self.looks = if waiting > 0 && is_slow {
            self.looks.saturating_add(1)
        } else {
            0
        };
    }

    const fn is_stalled(self) -> bool {
        self.looks >= LOOKS
    }
}

impl Tunnel {
    /// Sets the time of the next look, if there are connections.
    pub(super) fn plan_look(&mut self, now: Instant) {
        if self.conns.is_empty() {
            self.look_at = None;
        } else if self.look_at.is_none() {
            self.look_at = Some(now + LOOK_GAP);
        }
    }

    /// Resets the longest stalled connections beyond [`STALLED_MAX`].
    pub(super) fn reset_stalled(&mut self, now: Instant) {
        if self.look_at.is_none_or(|at| now < at) {
            return;
        }
        self.look_at = None;
        let mut stalled = Vec::new();
        for (number, conn) in &mut self.conns {
            conn.uptake.look(conn.chunk.len());
            if conn.uptake.is_stalled() {
                stalled.push((Reverse(conn.uptake.looks), *number));
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

/// Time between two looks.
const LOOK_GAP: Duration = Duration::from_secs(2);
/// Bytes that a driver takes within it at least: 32 kbit/s.
const TAKEN_MIN: usize = 8 << 10;
/// A connection is stalled after so many looks in a row: 4 to 6 s.
const LOOKS: u32 = 3;
/// Stalled connections of one tunnel: they hold 66 MiB at most, each [`WINDOW`](super::WINDOW) and a chunk.
const STALLED_MAX: usize = 128;

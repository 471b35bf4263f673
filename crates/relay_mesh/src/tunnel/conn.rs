//! One player's connection within a tunnel.

use bytes::Bytes;
use quinn_proto::StreamId;
use wire::{Instant, SourceKey};

use super::open_record::OpenReader;
use super::stalled::Uptake;

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

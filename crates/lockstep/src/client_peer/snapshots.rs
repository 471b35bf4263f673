//! Snapshots on their way to us, and from us.

use wire::Instant;

use super::session::Session;
use crate::config::{ClientConfig, snapshot_bytes_max};
use crate::event::{ClientEvent, SnapshotError};
use crate::message::{Chunk, ChunkAck, Direction};
use crate::snapshot;
use crate::tick::Tick;
use crate::transfer::{Incoming, Outgoing};

/// What is being transferred.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// What comes; made when the first piece does.
    incoming: Option<Box<Incoming>>,
    /// A state that came, until the application takes it.
    state: Option<Vec<u8>>,
    /// What goes.
    outgoing: Option<Box<Outgoing>>,
    /// The transfer in which our state is wanted, until the application gives it.
    asked: Option<u8>,
    /// The one that was wanted last.
    last_asked: Option<u8>,
}

impl Exchange {
    /// Forgets what is under way: in a new session it begins anew, and another server numbers its
    /// transfers by itself. A state that came stays, as what it is of is final.
    pub(super) fn restart(&mut self) {
        let state = self.state.take();
        *self = Self {
            state,
            ..Self::default()
        };
    }

    /// Takes a piece of a snapshot; returns the event where it was the last.
    pub(super) fn on_chunk(
        &mut self,
        now: Instant,
        chunk: &Chunk<'_>,
        session: &mut Session,
        config: &ClientConfig,
    ) -> Option<ClientEvent> {
        let incoming = self.incoming.get_or_insert_with(|| {
            let len_max = snapshot_bytes_max(config.snapshot_len_max, session.shape());
            Box::new(Incoming::new(Direction::Down, len_max))
        });
        incoming.on_chunk(now, chunk);
        let mut bytes = incoming.take()?;
        let (head, state) = snapshot::read(&bytes, session.shape(), session.neutral())?;
        let head_len = bytes.len().saturating_sub(state.len());
        let next = head.next;
        session.resume_from(&head, chunk.id);
        bytes.drain(..head_len);
        self.state = Some(bytes);
        Some(ClientEvent::Snapshot { next })
    }

    /// Takes the server's answer to our pieces.
    pub(super) fn on_ack(&mut self, now: Instant, ack: &ChunkAck<'_>) {
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.on_ack(now, ack);
            if outgoing.is_done() {
                self.outgoing = None;
            }
        }
    }

    /// Takes the server's question; returns the event where it is a new one.
    pub(super) fn on_asked(&mut self, id: u8) -> Option<ClientEvent> {
        if self.last_asked == Some(id) {
            return None;
        }
        self.last_asked = Some(id);
        self.asked = Some(id);
        self.outgoing = None;
        Some(ClientEvent::SnapshotWanted)
    }

    /// Begins to send a state, the one with this number; where `None`, that which the turns up to
    /// the one returned last led to.
    pub(super) fn offer(
        &mut self,
        now: Instant,
        (next, state): (Option<Tick>, &[u8]),
        session: &Session,
        config: &ClientConfig,
    ) -> Result<(), SnapshotError> {
        let id = self.asked.ok_or(SnapshotError::NotWanted)?;
        if u32::try_from(state.len()).is_ok_and(|len| len > config.snapshot_len_max) {
            return Err(SnapshotError::TooLong);
        }
        let bytes = session.write_snapshot(next, state);
        let bytes = bytes.ok_or(SnapshotError::NotCurrent)?;
        let outgoing = Outgoing::new(Direction::Up, id, bytes.into(), &config.transfer, now);
        self.outgoing = Some(Box::new(outgoing.ok_or(SnapshotError::TooLong)?));
        self.asked = None;
        Ok(())
    }

    /// Writes what is due.
    pub(super) fn transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let is_ack = self
            .incoming
            .as_mut()
            .is_some_and(|incoming| incoming.poll_ack(now, out));
        is_ack
            || self
                .outgoing
                .as_mut()
                .is_some_and(|outgoing| outgoing.poll(now, out))
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let ack = self
            .incoming
            .as_ref()
            .and_then(|incoming| incoming.poll_timeout());
        let chunk = self
            .outgoing
            .as_ref()
            .and_then(|outgoing| outgoing.poll_timeout());
        ack.into_iter().chain(chunk).min()
    }

    /// Takes the state that came, once.
    pub(super) const fn take(&mut self) -> Option<Vec<u8>> {
        self.state.take()
    }

    /// Whether turns wait for the state to be taken.
    pub(super) const fn is_waiting(&self) -> bool {
        self.state.is_some()
    }

    /// Bytes that it holds, but for a snapshot that comes in.
    pub(super) fn memory_len(&self) -> usize {
        self.state.as_ref().map_or(0, Vec::capacity)
    }
}

//! Snapshots to and from a client.

use wire::Instant;

use super::session::Session;
use crate::chain::read_snapshot;
use crate::config::{ClientConfig, snapshot_bytes_max};
use crate::event::{ClientEvent, SnapshotError};
use crate::message::{Chunk, ChunkAck, Direction};
use crate::tick::Tick;
use crate::transfer::{Incoming, Outgoing};

#[derive(Debug, Default)]
pub(super) struct SnapshotExchange {
    /// Incoming; allocated with the first chunk.
    incoming: Option<Box<Incoming>>,
    state: Option<Vec<u8>>,
    outgoing: Option<Box<Outgoing>>,
    /// Id of the transfer for which our state is requested, until the application gives it.
    asked: Option<u8>,
    last_asked: Option<u8>,
}

impl SnapshotExchange {
    /// Drops transfers in progress: a new session restarts them, and another server numbers its
    /// own. A complete state is kept, since it is final.
    pub(super) fn restart(&mut self) {
        let state = self.state.take();
        *self = Self {
            state,
            ..Self::default()
        };
    }

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
        let (head, state) = read_snapshot(&bytes, session.shape(), &session.neutral)?;
        let head_len = bytes.len().saturating_sub(state.len());
        let next = head.next;
        session.resume_from(&head, chunk.id);
        bytes.drain(..head_len);
        self.state = Some(bytes);
        Some(ClientEvent::Snapshot { next })
    }

    pub(super) fn on_ack(&mut self, now: Instant, ack: &ChunkAck<'_>) {
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.on_ack(now, ack);
            if outgoing.is_done() {
                self.outgoing = None;
            }
        }
    }

    pub(super) fn on_asked(&mut self, id: u8) -> Option<ClientEvent> {
        if self.last_asked == Some(id) {
            return None;
        }
        self.last_asked = Some(id);
        self.asked = Some(id);
        self.outgoing = None;
        Some(ClientEvent::SnapshotWanted)
    }

    /// Begins to send a state: number `next`, or that after the turn returned last if `None`.
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

    pub(super) const fn take(&mut self) -> Option<Vec<u8>> {
        self.state.take()
    }

    /// Whether turns wait for the state to be taken.
    pub(super) const fn is_waiting(&self) -> bool {
        self.state.is_some()
    }

    pub(super) fn memory_len(&self) -> usize {
        self.state.as_ref().map_or(0, Vec::capacity)
    }
}

//! The stream machine and application that the links call.

use wire::{CloseCause, CommandId, ConnectionId, Instant, NodeId, PeerIdentity, StreamMachine};

use crate::tcp::application::{DialError, StreamApplication};

/// A stream machine and its application.
#[derive(Debug)]
pub(super) struct Upper<M, A> {
    pub(super) machine: M,
    pub(super) application: A,
}

impl<M: StreamMachine, A: StreamApplication<M>> Upper<M, A> {
    pub(super) fn opened(
        &mut self,
        now: Instant,
        id: ConnectionId,
        peer: &PeerIdentity,
        credit: usize,
    ) {
        self.machine.handle_opened(now, id, peer);
        self.machine.handle_credit(now, id, credit);
    }

    pub(super) fn frame(&mut self, now: Instant, id: ConnectionId, record: &[u8]) {
        self.machine.handle_frame(now, id, record);
    }

    pub(super) fn credit(&mut self, now: Instant, id: ConnectionId, bytes: usize) {
        self.machine.handle_credit(now, id, bytes);
    }

    pub(super) fn closed(&mut self, now: Instant, id: ConnectionId, cause: CloseCause) {
        self.machine.handle_closed(now, id, cause);
    }

    pub(super) fn dialled(
        &mut self,
        now: Instant,
        command: CommandId,
        result: Result<ConnectionId, DialError>,
    ) {
        self.application
            .on_dialled(now, &mut self.machine, command, result);
    }

    pub(super) fn stranger(&mut self, now: Instant, claimed: NodeId) {
        self.application
            .on_stranger(now, &mut self.machine, claimed);
    }

    pub(super) fn may_receive(&self, id: ConnectionId) -> bool {
        self.application.may_receive(&self.machine, id)
    }
}

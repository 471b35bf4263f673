//! Adapts the application of a machine to the shard that wraps the machine.

use std::ops::ControlFlow;

use wire::{CommandId, Instant, Machine};

use super::Shard;
use crate::driver::{Application, PeerAddress, SocketIndex, SocketOrder, SocketOutcome};

/// The application of a machine, as the application of its shard.
#[derive(Debug)]
pub(super) struct Lifted<A>(pub(super) A);

impl<M, A: Application<M>> Application<Shard<M, A::Request>> for Lifted<A>
where
    M: Machine<Peer: PeerAddress>,
{
    type Request = A::Request;

    fn apply_request(
        &mut self,
        now: Instant,
        shard: &mut Shard<M, A::Request>,
        request: A::Request,
    ) -> ControlFlow<()> {
        self.0.apply_request(now, &mut shard.machine, request)
    }

    fn on_event(&mut self, now: Instant, shard: &mut Shard<M, A::Request>, event: M::Event) {
        self.0.on_event(now, &mut shard.machine, event);
    }

    fn on_command(
        &mut self,
        now: Instant,
        shard: &mut Shard<M, A::Request>,
        id: CommandId,
        command: M::Command,
    ) {
        self.0.on_command(now, &mut shard.machine, id, command);
    }

    fn socket_order(&self, command: &M::Command) -> Option<SocketOrder> {
        self.0.socket_order(command)
    }

    fn on_socket(
        &mut self,
        now: Instant,
        shard: &mut Shard<M, A::Request>,
        id: CommandId,
        outcome: SocketOutcome,
    ) {
        self.0.on_socket(now, &mut shard.machine, id, outcome);
    }

    fn on_receive_drops(
        &mut self,
        now: Instant,
        shard: &mut Shard<M, A::Request>,
        socket: SocketIndex,
        count: u64,
    ) {
        self.0
            .on_receive_drops(now, &mut shard.machine, socket, count);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, shard: &mut Shard<M, A::Request>) {
        self.0.handle_timeout(now, &mut shard.machine);
    }

    fn begin_shutdown(
        &mut self,
        now: Instant,
        shard: &mut Shard<M, A::Request>,
        deadline: Instant,
    ) {
        self.0.begin_shutdown(now, &mut shard.machine, deadline);
    }

    fn is_drained(&self, shard: &Shard<M, A::Request>) -> bool {
        self.0.is_drained(&shard.machine)
    }
}

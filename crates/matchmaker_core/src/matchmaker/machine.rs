//! The matchmaker as a [`wire::Machine`]: for the simulator and the contract test.

use crypto::Provider;
use wire::{Arrival, CommandId, Instant, Machine, Transmit, UnixTime};

use super::{Caller, Matchmaker};
use crate::command::{Command, Outcome};
use crate::event::Event;

/// A datagram is the body of a server's call, and what is sent to a [`Caller`] is the reply to that
/// call. A driver that has the caller at hand uses
/// [`handle_call`](Matchmaker::handle_call) instead.
impl<P: Provider> Machine for Matchmaker<P> {
    type Peer = Caller;
    type Event = Event;
    type Command = Command;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<Caller>, datagram: &mut [u8]) {
        let mut reply = Vec::new();
        self.handle_call(now, arrival.peer.link, datagram, &mut reply);
        if !self
            .outbox
            .reply(arrival.peer, reply, self.config.replies_max)
        {
            self.stats.replies_dropped = self.stats.replies_dropped.saturating_add(1);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        Self::handle_timeout(self, now);
    }

    fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: Outcome) {
        Self::handle_completed(self, now, id, outcome);
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        Self::set_unix_time(self, now, unix);
    }

    fn poll_transmit(&mut self, _now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<Caller>> {
        let (caller, reply) = self.outbox.poll_reply()?;
        buf.extend_from_slice(&reply);
        Some(Transmit::to(caller))
    }

    fn poll_command(&mut self) -> Option<(CommandId, Command)> {
        Self::poll_command(self)
    }

    fn poll_event(&mut self) -> Option<Event> {
        Self::poll_event(self)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Self::poll_timeout(self)
    }
}

//! Implementation of [`Machine`], for generic drivers.

use crypto::Provider;
use wire::{Arrival, CommandId, Instant, Machine, Transmit, UnixTime};

use super::Node;
use crate::event::{Command, Event, Outcome};
use crate::leg::Leg;

impl<P: Provider> Machine for Node<P> {
    type Peer = Leg;
    type Event = Event;
    type Command = Command;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<Leg>, datagram: &mut [u8]) {
        self.handle_datagram(now, arrival, datagram);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeout(now);
    }

    fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: Outcome) {
        self.handle_completed(now, id, outcome);
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        self.set_unix_time(now, unix);
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<Leg>> {
        self.poll_transmit(now, buf)
    }

    fn poll_command(&mut self) -> Option<(CommandId, Command)> {
        self.poll_command()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }
}

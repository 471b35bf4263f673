//! Addresses for machines that identify peers otherwise.

use core::net::SocketAddr;

use wire::{Arrival, CommandId, Effect, Instant, Machine, Transmit, UnixTime};

/// A machine that identifies peers by numbers or names, with the address of each.
///
/// It lets such a machine run in a [`Host`](super::Host). Datagrams from an unknown address, or to
/// a peer without an address, are dropped and counted.
#[derive(Clone, Debug)]
pub struct Directory<M: Machine> {
    /// The machine.
    pub machine: M,
    /// Entries in insertion order, which is the search order.
    entries: Vec<(M::Peer, SocketAddr)>,
    dropped: u64,
}

impl<M: Machine<Peer: PartialEq>> Directory<M> {
    /// Creates an empty directory for `machine`.
    #[must_use]
    pub const fn new(machine: M) -> Self {
        Self {
            machine,
            entries: Vec::new(),
            dropped: 0,
        }
    }

    /// Adds the address of `peer`.
    #[must_use]
    pub fn with(mut self, peer: M::Peer, address: SocketAddr) -> Self {
        self.entries.push((peer, address));
        self
    }

    /// Returns how many datagrams were dropped for lack of an entry.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl<M: Machine<Peer: PartialEq>> Machine for Directory<M> {
    type Peer = SocketAddr;
    type Event = M::Event;
    type Command = M::Command;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<SocketAddr>, datagram: &mut [u8]) {
        let mut entries = self.entries.iter();
        let Some(&(peer, _)) = entries.find(|(_, address)| *address == arrival.peer) else {
            self.dropped += 1;
            return;
        };
        let arrival = Arrival {
            peer,
            real_source: arrival.real_source,
            local: arrival.local,
            ecn: arrival.ecn,
        };
        self.machine.handle_datagram(now, arrival, datagram);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.machine.handle_timeout(now);
    }

    fn handle_completed(
        &mut self,
        now: Instant,
        id: CommandId,
        outcome: <M::Command as Effect>::Outcome,
    ) {
        self.machine.handle_completed(now, id, outcome);
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        self.machine.set_unix_time(now, unix);
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        let start = buf.len();
        loop {
            let transmit = self.machine.poll_transmit(now, buf)?;
            let mut entries = self.entries.iter();
            let found = entries.find(|(peer, _)| *peer == transmit.destination);
            let Some(&(_, destination)) = found else {
                self.dropped += 1;
                buf.truncate(start);
                continue;
            };
            return Some(Transmit {
                destination,
                source: transmit.source,
                segment_len: transmit.segment_len,
                ecn: transmit.ecn,
            });
        }
    }

    fn poll_command(&mut self) -> Option<(CommandId, M::Command)> {
        self.machine.poll_command()
    }

    fn poll_event(&mut self) -> Option<M::Event> {
        self.machine.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }
}

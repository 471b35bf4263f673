//! Addresses for machines whose peers are not addresses.

use core::net::SocketAddr;

use wire::{Arrival, CommandId, Effect, Instant, Machine, Transmit, UnixTime};

/// A machine whose peers have numbers or names, and the address of each.
///
/// With it such a machine lives in a [`Host`](super::Host). What comes from an address that no
/// peer has, or goes to a peer without one, is dropped and counted.
#[derive(Clone, Debug)]
pub struct Directory<M: Machine> {
    /// The machine.
    pub machine: M,
    /// In the order of their adding, which is that of the search.
    entries: Vec<(M::Peer, SocketAddr)>,
    dropped: u64,
}

impl<M: Machine<Peer: PartialEq>> Directory<M> {
    /// Makes an empty directory around `machine`.
    #[must_use]
    pub const fn new(machine: M) -> Self {
        Self {
            machine,
            entries: Vec::new(),
            dropped: 0,
        }
    }

    /// Adds where `peer` is.
    #[must_use]
    pub fn with(mut self, peer: M::Peer, address: SocketAddr) -> Self {
        self.entries.push((peer, address));
        self
    }

    /// Returns how many datagrams were of nobody or for nobody.
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

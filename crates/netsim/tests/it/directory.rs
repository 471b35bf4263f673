//! Machines that address peers by number.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use netsim::{Datagram, Directory, Host, Journal, World};
use wire::{Arrival, CommandId, Ecn, Instant, Machine, Seed, Transmit};

#[test]
fn peers_are_identified_by_number_and_unknown_senders_ignored() {
    let mut world = World::new(Seed::from_number(1));
    let [a, b] = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 7_000)));
    let one = world.add(a, |_| {
        let directory = Directory::new(Numbered::default()).with(7, b);
        Host::new(directory, Journal::default())
    });
    let other = world.add(b, |_| {
        let directory = Directory::new(Numbered::default()).with(3, a);
        Host::new(directory, Journal::default())
    });
    world.apply(one, |node, _| node.machine.machine.outbox.extend([9, 7]));
    world.inject(
        Duration::ZERO,
        Datagram::new(SocketAddr::from(([10, 0, 0, 9], 9)), b, vec![1]),
    );
    world.run_for(Duration::from_secs(1));
    let incoming: Vec<(u8, usize)> = world[other]
        .app
        .events
        .iter()
        .map(|(_, event)| *event)
        .collect();
    assert_eq!(incoming, [(3, 4), (3, 1)], "a burst of two datagrams");
    assert_eq!(world[one].machine.dropped(), 1, "nobody is number 9");
    assert_eq!(world[other].machine.dropped(), 1, "the stranger");
}

/// Sends five bytes in two datagrams to each peer in its outbox, and reports bytes per peer.
#[derive(Default)]
struct Numbered {
    outbox: VecDeque<u8>,
    events: VecDeque<(u8, usize)>,
}

impl Machine for Numbered {
    type Peer = u8;
    type Event = (u8, usize);
    type Command = Infallible;

    fn handle_datagram(&mut self, _now: Instant, arrival: Arrival<u8>, datagram: &mut [u8]) {
        assert_eq!(arrival.ecn, Some(Ecn::Ect0), "the mark is carried");
        self.events.push_back((arrival.peer, datagram.len()));
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn handle_completed(&mut self, _now: Instant, _id: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_transmit(&mut self, _now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<u8>> {
        let destination = self.outbox.pop_front()?;
        buf.extend_from_slice(&[destination; 5]);
        Some(Transmit {
            segment_len: NonZeroU16::new(4),
            ecn: Some(Ecn::Ect0),
            ..Transmit::to(destination)
        })
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }

    fn poll_event(&mut self) -> Option<(u8, usize)> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

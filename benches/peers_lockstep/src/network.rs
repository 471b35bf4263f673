//! The simulated network for every stack's datagrams.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;

use netsim::Link;
use wire::{Generator, Instant, Seed};

use crate::conditions::NetworkConditions;

/// Datagrams in a reused buffer, each with its source or destination node.
#[derive(Debug, Default)]
pub struct Mailbox {
    /// Concatenated datagrams.
    pub bytes: Vec<u8>,
    /// Node and end offset of each datagram, which starts at the end of the last one.
    pub ends: Vec<(u32, usize)>,
}

impl Mailbox {
    /// Appends a datagram.
    pub fn put(&mut self, node: u32, datagram: &[u8]) {
        self.bytes.extend_from_slice(datagram);
        self.close(node);
    }

    /// Ends a datagram: the bytes appended to `bytes` since the last one.
    pub fn close(&mut self, node: u32) {
        self.ends.push((node, self.bytes.len()));
    }

    /// Passes each datagram with its node to `take` and empties the mailbox.
    pub fn drain(&mut self, mut take: impl FnMut(u32, &mut [u8])) {
        let mut start = 0;
        for (node, end) in self.ends.drain(..) {
            if let Some(datagram) = self.bytes.get_mut(start..end) {
                take(node, datagram);
            }
            start = end;
        }
        self.bytes.clear();
    }
}

/// Traffic of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Datagrams sent, including lost ones.
    pub up_datagrams: u64,
    /// Bytes in them.
    pub up_bytes: u64,
    /// Datagrams received.
    pub down_datagrams: u64,
    /// Bytes in them.
    pub down_bytes: u64,
    /// Longest datagram sent or received.
    pub longest: u64,
}

/// Links between all nodes, and datagrams in flight.
#[derive(Debug)]
pub struct Network {
    /// From each node to each other, row by row.
    links: Vec<Link>,
    nodes: usize,
    /// Start of each player's periodic gaps.
    gaps: Vec<Duration>,
    conditions: NetworkConditions,
    /// A player with an outage, and its start and end.
    outage: Option<(u32, [Duration; 2])>,
    in_flight: BinaryHeap<Reverse<Flight>>,
    sent: u64,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
    traffic: Vec<Traffic>,
}

/// A datagram in flight, ordered by arrival and then by age.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at: Instant,
    number: u64,
    to: u32,
    from: u32,
    bytes: Vec<u8>,
}

impl Network {
    /// Creates a network of `nodes`, seeded by `seed`. The first `players` have gaps.
    #[must_use]
    pub fn new(nodes: usize, players: usize, conditions: NetworkConditions, seed: Seed) -> Self {
        let generators = (0..nodes * nodes).map(|number| generator(seed, number));
        let mut phases = generator(seed, nodes * nodes);
        let every = u64::try_from(conditions.gap_every.as_nanos()).unwrap_or(u64::MAX);
        Self {
            links: generators
                .map(|generator| Link::new(conditions.link(), generator))
                .collect(),
            nodes,
            gaps: (0..players)
                .map(|_| Duration::from_nanos(phases.below(every.max(1))))
                .collect(),
            conditions,
            outage: None,
            in_flight: BinaryHeap::new(),
            sent: 0,
            spare: Vec::new(),
            traffic: vec![Traffic::default(); nodes],
        }
    }

    /// Cuts `node` off during `span`.
    pub const fn cut(&mut self, node: u32, span: [Duration; 2]) {
        self.outage = Some((node, span));
    }

    /// Takes all datagrams that `from` sends.
    pub fn send(&mut self, now: Duration, from: u32, outbox: &mut Mailbox) {
        outbox.drain(|to, datagram| {
            let len = datagram.len();
            if let Some(traffic) = self.traffic.get_mut(place(from)) {
                traffic.up_datagrams += 1;
                traffic.up_bytes += len as u64;
                traffic.longest = traffic.longest.max(len as u64);
            }
            let link = place(from) * self.nodes + place(to);
            let deliveries = self.links[link].send(instant(now), len);
            for delivery in deliveries {
                if self.is_out(from, now) || self.is_out(to, now) {
                    continue;
                }
                let mut bytes = self.spare.pop().unwrap_or_default();
                bytes.clear();
                bytes.extend_from_slice(datagram);
                self.sent += 1;
                self.in_flight.push(Reverse(Flight {
                    at: delivery.at,
                    number: self.sent,
                    to,
                    from,
                    bytes,
                }));
            }
        });
    }

    /// Moves datagrams that have arrived by `now` to their receivers' inboxes.
    pub fn deliver(&mut self, now: Duration, inboxes: &mut [Mailbox]) {
        while let Some(flight) = self.in_flight.peek_mut() {
            if flight.0.at > instant(now) {
                return;
            }
            let Reverse(flight) = std::collections::binary_heap::PeekMut::pop(flight);
            if let Some(traffic) = self.traffic.get_mut(place(flight.to)) {
                traffic.down_datagrams += 1;
                traffic.down_bytes += flight.bytes.len() as u64;
                traffic.longest = traffic.longest.max(flight.bytes.len() as u64);
            }
            if let Some(inbox) = inboxes.get_mut(place(flight.to)) {
                inbox.put(flight.from, &flight.bytes);
            }
            self.spare.push(flight.bytes);
        }
    }

    /// Returns the traffic of each node so far.
    #[must_use]
    pub fn traffic(&self) -> &[Traffic] {
        &self.traffic
    }

    /// Returns whether `node` is cut off now.
    fn is_out(&self, node: u32, now: Duration) -> bool {
        let is_cut = self
            .outage
            .is_some_and(|(who, [from, to])| who == node && from <= now && now < to);
        let Some(phase) = self.gaps.get(place(node)) else {
            return is_cut;
        };
        let every = self.conditions.gap_every.as_nanos().max(1);
        let since = (now + self.conditions.gap_every).saturating_sub(*phase);
        is_cut || since.as_nanos() % every < self.conditions.gap.as_nanos()
    }
}

fn generator(seed: Seed, number: usize) -> Generator {
    seed.generator(number as u64)
}

fn place(node: u32) -> usize {
    node as usize
}

fn instant(now: Duration) -> Instant {
    Instant::ZERO + now
}

#[cfg(test)]
mod tests {
    use super::*;
    use netsim::Chance;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn run(network: &mut Network, times: core::ops::Range<u64>) -> Vec<u64> {
        let mut inboxes = [Mailbox::default(), Mailbox::default()];
        let mut came = Vec::new();
        for at in times {
            let mut outbox = Mailbox::default();
            outbox.put(1, &at.to_be_bytes());
            network.send(millis(at), 0, &mut outbox);
            network.deliver(millis(at), &mut inboxes);
            inboxes[1].drain(|from, datagram| {
                assert_eq!(from, 0);
                came.push(u64::from_be_bytes(datagram.try_into().unwrap()));
            });
        }
        came
    }

    #[test]
    fn what_is_sent_arrives_after_its_delay_unless_lost() {
        let seed = Seed::from_number(1);
        let conditions = NetworkConditions::steady(millis(50), Chance::percent(20));
        let mut network = Network::new(2, 2, conditions, seed);
        let came = run(&mut network, 0..1_050);
        assert!((750..850).contains(&came.len()), "{}", came.len());
        assert!(came.iter().all(|at| *at < 1_000));
        let [sender, receiver] = network.traffic() else {
            panic!()
        };
        assert_eq!(sender.up_datagrams, 1_050);
        assert_eq!(receiver.down_bytes, 8 * came.len() as u64);
    }

    #[test]
    fn nothing_is_delivered_in_gaps_and_outages() {
        let seed = Seed::from_number(2);
        let mut conditions = NetworkConditions::steady(millis(0), Chance::NEVER);
        let mut network = Network::new(2, 2, conditions, seed);
        network.cut(1, [millis(100), millis(200)]);
        assert_eq!(run(&mut network, 0..1_000).len(), 900);
        conditions.gap = millis(30);
        conditions.gap_every = millis(1_000);
        let mut network = Network::new(2, 1, conditions, seed);
        assert_eq!(run(&mut network, 0..10_000).len(), 9_700);
    }
}

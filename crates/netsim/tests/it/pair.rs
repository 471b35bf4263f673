//! Two pingers and the link between them.

use std::net::SocketAddr;
use std::time::Duration;

use netsim::{Handle, Host, Journal, LinkConfig, NodeConfig, World};
use wire::{Instant, Seed};

use crate::pinger::{Event, Pinger};

pub(crate) type Peer = Host<Pinger, Journal<Event>>;

pub(crate) const A: &str = "10.0.0.1:7000";
pub(crate) const B: &str = "10.0.0.2:7000";
pub(crate) const LATENCY: Duration = Duration::from_millis(30);

pub(crate) fn ping(world: &mut World, from: Handle<Peer>, to: &str) -> bool {
    world.apply(from, |node, now| node.machine.ping(now, address(to)))
}

pub(crate) fn answered(world: &World, node: Handle<Peer>) -> usize {
    let answers = |(_, event): &&(Instant, Event)| matches!(event, Event::Answered(..));
    world[node].app.events.iter().filter(answers).count()
}

pub(crate) fn pair(number: u64) -> (World, [Handle<Peer>; 2]) {
    pair_of(Seed::from_number(number))
}

pub(crate) fn pair_of(seed: Seed) -> (World, [Handle<Peer>; 2]) {
    pair_with(seed, NodeConfig::at(address(A)))
}

pub(crate) fn pair_with(seed: Seed, first: NodeConfig) -> (World, [Handle<Peer>; 2]) {
    let mut world = World::new(seed);
    world.set_default_link(LinkConfig::default().with_delay(LATENCY));
    let a = world.add(first, |now| peer(1, now));
    let b = world.add(address(B), |now| peer(2, now));
    (world, [a, b])
}

pub(crate) fn peer(number: u64, now: Instant) -> Peer {
    Host::new(
        Pinger::new(Seed::from_number(number), now),
        Journal::default(),
    )
}

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

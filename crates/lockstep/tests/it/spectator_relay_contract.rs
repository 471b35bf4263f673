//! The machine contract of `wire::machine`, for relays with a server, a player and spectators.

use core::convert::Infallible;

use lockstep::{
    ClientConfig, ClientPeer, LeaveReason, MatchServer, PeerId, Phase, SpectatorRelay,
    SpectatorRelayConfig, StartPolicy,
};
use netsim::contract::{ContractSubject, Limits, Reached, check_contract};
use wire::{Arrival, CommandId, Generator, Instant, Machine, Seat, Seed, Transmit};

use crate::world::{MATCH, config};

#[derive(Debug)]
enum Role {
    Server(Box<MatchServer<u16>>),
    Client(Box<ClientPeer<u16>>),
    Relay(Box<SpectatorRelay>),
}

/// Calls the same method of any role.
macro_rules! any {
    ($role:expr, $machine:ident => $call:expr) => {
        match $role {
            Role::Server($machine) => $call,
            Role::Client($machine) => $call,
            Role::Relay($machine) => $call,
        }
    };
}

impl Machine for Role {
    type Peer = PeerId;
    type Event = String;
    type Command = Infallible;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<PeerId>, datagram: &mut [u8]) {
        any!(self, machine => machine.handle_datagram(now, arrival, datagram));
    }

    fn handle_timeout(&mut self, now: Instant) {
        any!(self, machine => machine.handle_timeout(now));
    }

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<PeerId>> {
        any!(self, machine => machine.poll_transmit(now, buf))
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        any!(self, machine => Machine::poll_command(&mut **machine))
    }

    fn poll_event(&mut self) -> Option<String> {
        any!(self, machine => machine.poll_event().map(|event| format!("{event:?}")))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        any!(self, machine => machine.poll_timeout())
    }
}

/// The peer id is the index in the group: 0 the server, 1 a player, 2 a relay, 3 a relay below it,
/// 4 a spectator of the server, 5 one of the lower relay.
struct Branches;

/// Each node's parent.
const PARENTS: [usize; 6] = [0, 0, 0, 2, 0, 3];

impl ContractSubject for Branches {
    type Machine = Role;

    fn build(&self, seed: Seed, now: Instant) -> Vec<Role> {
        let mut seeds = seed.generator(41);
        let mut config = config(1);
        config.start = StartPolicy::ByHand;
        config.spectator_delay = 10;
        let mut server = MatchServer::new(config, MATCH, seeds.seed(), now).unwrap();
        server.join(now, PeerId(1), Seat(0)).unwrap();
        server.watch_as_relay(now, PeerId(2)).unwrap();
        server.watch(now, PeerId(4)).unwrap();
        server.start(now).unwrap();
        let mut group = vec![Role::Server(Box::new(server))];
        for (place, parent) in PARENTS.into_iter().enumerate().skip(1) {
            let (seed, up) = (seeds.seed(), peer(parent));
            group.push(if matches!(place, 2 | 3) {
                let mut relay = SpectatorRelay::new(SpectatorRelayConfig::default(), up, seed, now);
                if place == 2 {
                    relay.watch_as_relay(now, PeerId(3)).unwrap();
                } else {
                    relay.watch(now, PeerId(5)).unwrap();
                }
                Role::Relay(Box::new(relay))
            } else {
                let config = ClientConfig::default();
                Role::Client(Box::new(ClientPeer::new(config, up, seed, now)))
            });
        }
        group
    }

    fn route(&self, sender: usize, destination: PeerId) -> Option<(usize, PeerId)> {
        let receiver = usize::try_from(destination.0).ok()?;
        let is_branch = |lower: usize, upper: usize| {
            lower > 0 && PARENTS.get(lower).is_some_and(|parent| *parent == upper)
        };
        let is_ours = is_branch(sender, receiver) || is_branch(receiver, sender);
        is_ours.then(|| (receiver, peer(sender)))
    }

    fn poke(&self, _: usize, machine: &mut Role, now: Instant, generator: &mut Generator) {
        let number = generator.below(400);
        match machine {
            Role::Server(server) => {
                while let Some(turn) = server.poll_turn() {
                    let tick = turn.tick();
                    server.report(tick, 7).unwrap();
                }
                match number {
                    0 => server.leave(now, PeerId(4)),
                    1 => {
                        server.watch(now, PeerId(4)).ok();
                    }
                    2 => server.close(now),
                    _ => {}
                }
            }
            Role::Client(client) => {
                client.submit(now, &3).ok();
                while let Some(turn) = client.poll_turn(now) {
                    let tick = turn.tick();
                    client.report(tick, 7).unwrap();
                }
                if number == 0 {
                    client.leave(now, LeaveReason::Quit);
                }
            }
            Role::Relay(relay) => match number {
                0 => relay.leave(now, PeerId(5)),
                1..=10 => {
                    relay.watch(now, PeerId(77)).ok();
                }
                11..=20 => {
                    relay.watch_as_relay(now, PeerId(77)).ok();
                }
                21 => relay.close(now),
                _ => {}
            },
        }
    }

    fn unknown_peer(&self, _: usize, generator: &mut Generator) -> PeerId {
        PeerId(generator.next_u32() % 8)
    }

    fn hostile(&self, _: usize, generator: &mut Generator) -> Option<Vec<u8>> {
        let low = generator.next_u32().to_be_bytes();
        let kinds: [&[u8]; 5] = [
            &[0x82, 0, 0, 0x80, 0, low[0] % 16, 0x20, 0x20],
            &[0x02, 0, low[0] % 32, 0x70],
            &[0x01, 2, 0, 0, low[0] % 8, low[1]],
            &[0x0b],
            &[0x02, 0, low[0] % 32, 0x60, 0x41, 0xc0, 0x82],
        ];
        let kind = usize::try_from(generator.below(5)).unwrap();
        let mut datagram = kinds[kind].to_vec();
        let last = datagram.len() - 1;
        datagram[last] ^= if generator.chance(300_000) { low[3] } else { 0 };
        Some(datagram)
    }

    fn memory(&self, machine: &Role) -> usize {
        any!(machine, machine => machine.memory_len())
    }

    fn limits(&self) -> Limits {
        // A server's chain, logs and hashes; a relay's chain, tick times, and prepared datagrams.
        Limits::new(160 << 10)
    }

    fn observe(&self, machines: &[Role], reached: &mut Reached) {
        for machine in machines {
            match machine {
                Role::Server(server) => {
                    let stats = server.stats().spectators;
                    reached.note("spectators get turns", stats.turns_sent);
                    reached.note("a spectator's input is dropped", stats.dropped_inputs);
                    reached.note("a spectator's ack is dropped", stats.dropped_ack);
                }
                Role::Client(client) => {
                    let turns = client.stats().turns;
                    let watched = if client.is_spectator() { turns } else { 0 };
                    reached.note("a spectator sees turns", watched);
                }
                Role::Relay(relay) => {
                    let stats = relay.stats();
                    let is_closed = u64::from(relay.phase() == Phase::Closed);
                    for (point, count) in [
                        ("a relay passes ticks on", stats.ticks),
                        ("a relay's child gets turns", stats.children.turns_sent),
                        ("a relay has bundles twice", stats.bundles_repeated),
                        ("a relay drops malformed", stats.dropped_malformed),
                        (
                            "a relay drops an unknown peer's",
                            stats.dropped_unknown_peer,
                        ),
                        ("a child's input is dropped", stats.children.dropped_inputs),
                        ("a relay leaves", is_closed),
                    ] {
                        reached.note(point, count);
                    }
                }
            }
        }
    }
}

fn peer(place: usize) -> PeerId {
    PeerId(u32::try_from(place).unwrap())
}

#[test]
fn sim_contract_spectator_relay() {
    check_contract(&netsim::test_site!(), 100, &Branches);
}

//! The machine contract of `wire::machine`, for a scout and the beacon that it asks.

use std::convert::Infallible;
use std::net::SocketAddr;

use netsim::contract::{ContractSubject, Limits, Reached, check_contract};
use wire::{Arrival, CommandId, Generator, Instant, Machine, Seed, Transmit};

use crate::game_protocol::{BEACON_ASK, BEACON_LEN};
use crate::role::game_server::beacon::Beacon;
use crate::role::players::route_prober::RouteProber;

/// Either, so that they make one group.
#[derive(Debug)]
enum Role {
    RouteProber(RouteProber),
    Beacon(Beacon),
}

/// Calls the same method of either.
macro_rules! either {
    ($role:expr, $machine:ident => $call:expr) => {
        match $role {
            Role::RouteProber($machine) => $call,
            Role::Beacon($machine) => $call,
        }
    };
}

impl Machine for Role {
    type Peer = SocketAddr;
    type Event = String;
    type Command = Infallible;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<SocketAddr>, datagram: &mut [u8]) {
        either!(self, machine => machine.handle_datagram(now, arrival, datagram));
    }

    fn handle_timeout(&mut self, now: Instant) {
        either!(self, machine => machine.handle_timeout(now));
    }

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        either!(self, machine => machine.poll_transmit(now, buf))
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        either!(self, machine => machine.poll_command())
    }

    fn poll_event(&mut self) -> Option<String> {
        either!(self, machine => machine.poll_event().map(|event| format!("{event:?}")))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        either!(self, machine => machine.poll_timeout())
    }
}

/// A scout that asks a beacon, and a way by which nobody answers.
struct Pair;

const SCOUT: ([u8; 4], u16) = ([127, 0, 0, 1], 1);
const BEACON: ([u8; 4], u16) = ([127, 0, 0, 1], 2);
const NO_PEER: ([u8; 4], u16) = ([127, 0, 0, 1], 3);

impl ContractSubject for Pair {
    type Machine = Role;

    fn build(&self, _: Seed, now: Instant) -> Vec<Role> {
        let routes = [SocketAddr::from(BEACON), SocketAddr::from(NO_PEER)];
        vec![
            Role::RouteProber(RouteProber::new(&routes, now)),
            Role::Beacon(Beacon::default()),
        ]
    }

    fn route(&self, sender: usize, destination: SocketAddr) -> Option<(usize, SocketAddr)> {
        match (sender, destination.port()) {
            (0, 2) => Some((1, SocketAddr::from(SCOUT))),
            (1, 1) => Some((0, SocketAddr::from(BEACON))),
            _ => None,
        }
    }

    fn poke(&self, _: usize, _: &mut Role, _: Instant, _: &mut Generator) {}

    fn unknown_peer(&self, _: usize, generator: &mut Generator) -> SocketAddr {
        let port = u16::try_from(generator.below(5)).unwrap();
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn hostile(&self, index: usize, generator: &mut Generator) -> Option<Vec<u8>> {
        let mut datagram = vec![0; BEACON_LEN];
        generator.fill(&mut datagram);
        // A question to the beacon, an answer of any time to the scout.
        datagram[0] = BEACON_ASK + u8::from(index == 0);
        Some(datagram)
    }

    fn memory(&self, machine: &Role) -> usize {
        either!(machine, machine => machine.memory_len())
    }

    fn limits(&self) -> Limits {
        // What waits at the beacon is 1,024 answers, each with its address.
        Limits::new(1_024 * (size_of::<SocketAddr>() + BEACON_LEN) + 2_048)
    }

    fn observe(&self, machines: &[Role], reached: &mut Reached) {
        for machine in machines {
            match machine {
                Role::RouteProber(route_prober) => {
                    let is_done = route_prober.poll_timeout().is_none();
                    reached.note("the scout has found out", is_done.into());
                }
                Role::Beacon(beacon) => {
                    let stats = format!("{beacon:?}");
                    let was_answered = !stats.contains("answered: 0,");
                    reached.note("the beacon answers", was_answered.into());
                }
            }
        }
    }
}

#[test]
fn sim_contract() {
    check_contract(&netsim::test_site!(), 200, &Pair);
}

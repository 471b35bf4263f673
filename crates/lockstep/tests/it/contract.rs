//! The machine contract of `wire::machine`, for both roles.

use core::convert::Infallible;

use lockstep::{
    ClientConfig, ClientPeer, ClientStats, LeaveReason, MatchServer, PeerId, Phase, ServerStats,
    StateHasher, Step,
};
use netsim::contract::{ContractSubject, Limits, Reached, check_contract};
use wire::{Arrival, CommandId, Generator, Instant, Machine, Seat, Seed, Transmit};

use crate::world::{Link, MATCH, World, config, pad};

/// Either role, so that a server and its clients form one group.
#[derive(Debug)]
enum Role {
    Server(Box<MatchServer<u16>>),
    Client(Box<ClientPeer<u16>>),
}

/// Calls the same method of either role.
macro_rules! either {
    ($role:expr, $machine:ident => $call:expr) => {
        match $role {
            Role::Server($machine) => $call,
            Role::Client($machine) => $call,
        }
    };
}

impl Machine for Role {
    type Peer = PeerId;
    type Event = String;
    type Command = Infallible;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<PeerId>, datagram: &mut [u8]) {
        either!(self, machine => machine.handle_datagram(now, arrival, datagram));
    }

    fn handle_timeout(&mut self, now: Instant) {
        either!(self, machine => machine.handle_timeout(now));
    }

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<PeerId>> {
        either!(self, machine => machine.poll_transmit(now, buf))
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        either!(self, machine => Machine::poll_command(&mut **machine))
    }

    fn poll_event(&mut self) -> Option<String> {
        either!(self, machine => machine.poll_event().map(|event| format!("{event:?}")))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        either!(self, machine => machine.poll_timeout())
    }
}

/// A state of two sections; the second depends on `number`.
fn state(number: u32) -> StateHasher {
    let mut hasher = StateHasher::new(MATCH);
    hasher.section("one");
    hasher.section("two");
    hasher.u32(number);
    hasher
}

/// A server and two clients. For clients the server is peer 0; for the server they are 1 and 2.
struct Match;

const CLIENTS: u16 = 2;

impl ContractSubject for Match {
    type Machine = Role;

    fn build(&self, seed: Seed, now: Instant) -> Vec<Role> {
        let mut seeds = seed.generator(40);
        let mut config = config(CLIENTS);
        config.forward_inputs = true;
        let mut server = MatchServer::new(config, MATCH, seeds.seed(), now).unwrap();
        let mut group = Vec::new();
        for client in 0..CLIENTS {
            let peer = PeerId(u32::from(client) + 1);
            server.join(now, peer, Seat(client)).unwrap();
            let mut config = ClientConfig::default();
            // The second one predicts.
            config.window = u8::try_from(client * 8).unwrap();
            let machine = ClientPeer::new(config, PeerId(0), seeds.seed(), now);
            group.push(Role::Client(Box::new(machine)));
        }
        group.insert(0, Role::Server(Box::new(server)));
        group
    }

    fn route(&self, sender: usize, destination: PeerId) -> Option<(usize, PeerId)> {
        let receiver = usize::try_from(destination.0).ok()?;
        let is_ours = receiver <= usize::from(CLIENTS) && (sender == 0) != (receiver == 0);
        is_ours.then(|| (receiver, PeerId(u32::try_from(sender).unwrap())))
    }

    fn poke(&self, _: usize, machine: &mut Role, now: Instant, generator: &mut Generator) {
        let number = generator.below(200);
        match machine {
            Role::Server(server) => {
                while let Some(turn) = server.poll_turn() {
                    let tick = turn.tick();
                    server.report_state(tick, &state(0)).unwrap();
                }
                if number == 0 {
                    server.leave(now, PeerId(1));
                }
            }
            Role::Client(client) => {
                let input = u16::try_from(generator.below(65_536)).unwrap();
                client.submit(now, &input).ok();
                loop {
                    let tick = match client.next_step(now) {
                        Step::Wait { .. } => break,
                        Step::Advance { turn, is_last } if is_last => turn.tick(),
                        Step::Settled(tick) => tick,
                        Step::Advance { .. } | Step::Save(_) | Step::Load(_) => continue,
                    };
                    // Sometimes a game diverges.
                    let state = state(u32::from(number == 1));
                    client.report_state(tick, &state).unwrap();
                }
                if number == 0 {
                    client.leave(now, LeaveReason::Quit);
                }
            }
        }
    }

    fn unknown_peer(&self, _: usize, generator: &mut Generator) -> PeerId {
        PeerId(generator.next_u32() % 5)
    }

    fn hostile(&self, index: usize, generator: &mut Generator) -> Option<Vec<u8>> {
        // A random report with 64 inputs; turns of two unchanged ticks.
        let low = generator.next_u32().to_be_bytes();
        let mut datagram = if index == 0 {
            vec![0x02, low[0], low[1], 0x60, 0x20, 0xc0, 0x81, 0x00]
        } else {
            vec![0x82, low[0], low[1], low[2], 0, low[3], 0x20, 0x20]
        };
        if index > 0 && generator.chance(300_000) {
            // Early inputs in front: seat 0 presses a button in some tick.
            let (tick, button) = (low[2], 0xe0 | low[3] & 0x0f);
            datagram.splice(0..0, [0x85, 0, tick, button, 0x20]);
        }
        let last = datagram.len() - 1;
        datagram[last] ^= if generator.chance(500_000) { low[3] } else { 0 };
        Some(datagram)
    }

    fn memory(&self, machine: &Role) -> usize {
        either!(machine, machine => machine.memory_len())
    }

    fn limits(&self) -> Limits {
        // 1,024 bundles, three times as many hashes, as many ticks of two sections, two logs of 320
        // inputs, and queues. The rows of a predicting client take less than a server's hashes.
        Limits::new(1_024 * (6 + 6 + 8 + 3 * 8 + 16 + 2 * 4) + 2 * 320 * 6 + 8_192)
    }

    fn observe(&self, machines: &[Role], reached: &mut Reached) {
        for machine in machines {
            match machine {
                Role::Server(server) => note_server(server.stats(), reached),
                Role::Client(client) => {
                    note_client(client.stats(), reached);
                    let is_closed = client.phase() == Phase::Closed;
                    reached.note("a client leaves or is left", is_closed.into());
                }
            }
        }
    }
}

fn note_server(stats: &ServerStats, reached: &mut Reached) {
    for (point, count) in [
        ("ticks close", stats.ticks_closed),
        ("an input is substituted", stats.inputs_substituted),
        ("an input comes late", stats.inputs_late),
        ("hashes are compared", stats.hashes_compared),
        ("hashes are missing", stats.hashes_missing),
        ("hashes are refused", stats.hashes_refused),
        ("a client catches up", stats.catch_up_datagrams),
        ("a search asks", stats.bisect_questions),
        ("a search is answered", stats.bisect_answers),
        ("an answer comes twice", stats.bisect_refused),
        ("inputs are told early", stats.inputs_forwarded),
        ("the server drops malformed", stats.dropped_malformed),
        (
            "the server drops an unknown peer's",
            stats.dropped_unknown_peer,
        ),
        ("the server drops a false ack", stats.dropped_ack),
    ] {
        reached.note(point, count);
    }
}

fn note_client(stats: &ClientStats, reached: &mut Reached) {
    for (point, count) in [
        ("turns are played", stats.turns),
        ("a client's input is substituted", stats.substituted),
        ("a client answers", stats.bisect_answers),
        ("a game goes back", stats.loads),
        ("bundles come twice", stats.bundles_repeated),
        ("bundles come early", stats.bundles_early),
        ("a client drops malformed", stats.dropped_malformed),
        (
            "a client drops an unknown peer's",
            stats.dropped_unknown_peer,
        ),
        ("a client drops what is far off", stats.dropped_window),
    ] {
        reached.note(point, count);
    }
}

#[test]
fn sim_contract() {
    check_contract(&netsim::test_site!(), 200, &Match);
}

#[test]
fn ls_17_equal_seeds_give_equal_runs_byte_for_byte() {
    let transcript = |seed| {
        let mut world = World::new(seed, config(4), Link::lossy(5), pad);
        world.run(300);
        let stats = format!("{:?}", world.server.stats());
        let players = world.players.iter();
        let logs: Vec<_> = players
            .map(|p| (p.turned_at.clone(), p.logs.clone()))
            .collect();
        (stats, logs, format!("{:?}", world.server_events))
    };
    assert_eq!(transcript(1), transcript(1));
    assert_ne!(transcript(1).1, transcript(2).1);
}

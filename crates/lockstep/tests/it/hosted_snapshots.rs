//! Snapshots in a hosted match: players give them to guests and to each other.

use std::collections::BTreeMap;

use core::time::Duration;

use lockstep::{
    ClientConfig, ClientEvent, ClientPeer, CloseReason, HostedConfig, HostedEvent, JoinError,
    LeaveReason, Origin, PeerId, Recovery, StateHasher, Steps, Tick,
};
use wire::{Arrival, Seat, Seed};

use crate::hosted_world::{HostedWorld, hosted};
use crate::mesh_world::peer;
use crate::world::{Link, MATCH, pad};

/// The host's id for a peer that is no player.
const SPECTATOR: PeerId = PeerId(700);

/// A match whose players offer and load snapshots, optionally with a guest of its host.
struct Harness {
    world: HostedWorld<u16>,
    /// Number of events handled, by player.
    events_seen: Vec<usize>,
    /// Whether each player must offer its state.
    owed: Vec<bool>,
    /// First tick that a player simulated after each state that it loaded.
    loads: Vec<Vec<usize>>,
    spectator: Option<LateSpectator>,
}

/// A peer that is no player, connected to `host` only.
struct LateSpectator {
    client: ClientPeer<u16>,
    host: usize,
    state: u64,
    /// State after each tick that it simulated.
    states: BTreeMap<usize, u64>,
    /// The input of seat 2 in the last turn.
    last: Option<(u16, Origin)>,
    events: Vec<ClientEvent>,
}

impl LateSpectator {
    fn new(world: &HostedWorld<u16>, host: usize) -> Self {
        let now = world.local(host);
        let seed = Seed::from_number(30);
        Self {
            client: ClientPeer::new(ClientConfig::default(), PeerId(0), seed, now),
            host,
            state: 0,
            states: BTreeMap::new(),
            last: None,
            events: Vec::new(),
        }
    }

    /// Handles the datagrams sent to it, and sends its own.
    fn step(&mut self, world: &mut HostedWorld<u16>) {
        let now = world.local(self.host);
        for mut datagram in world.strays.drain(..) {
            let arrival = Arrival::from(PeerId(0));
            self.client.handle_datagram(now, arrival, &mut datagram);
        }
        self.client.handle_timeout(now);
        self.client.submit(now, &7).ok();
        let mut buf = Vec::new();
        while self.client.poll_transmit(now, &mut buf).is_some() {
            let machine = &mut world.players[self.host].machine;
            machine.handle_datagram(now, Arrival::from(SPECTATOR), &mut buf);
            buf.clear();
        }
        self.events
            .extend(core::iter::from_fn(|| self.client.poll_event()));
        if let Some(bytes) = self.client.take_snapshot() {
            self.state = u64::from_be_bytes(bytes.try_into().unwrap());
            assert!(self.states.is_empty());
        }
        while let Some(turn) = self.client.poll_turn(now) {
            let mut hasher = StateHasher::new(MATCH);
            hasher.u64(self.state);
            for (seat, _, origin) in turn.inputs() {
                hasher.u8(origin.code());
                hasher.bytes(turn.bits(seat));
            }
            let tick = turn.tick();
            self.last = turn.input(Seat(2));
            self.state = hasher.finish();
            self.states
                .insert(usize::try_from(tick.0).unwrap(), self.state);
            self.client.report(tick, self.state).unwrap();
        }
    }

    /// It simulated at least `count` ticks, with the right states.
    fn assert_saw(&self, count: usize, truth: &[u64]) {
        assert!(self.states.len() >= count, "{:?}", self.events);
        for (tick, state) in &self.states {
            assert!(truth.get(*tick).is_none_or(|known| known == state));
        }
    }
}

impl Harness {
    fn new(config: &HostedConfig) -> Self {
        let world = HostedWorld::new(Seed::from_number(31), config, Link::lossy(2), pad);
        let count = world.players.len();
        Self {
            world,
            events_seen: vec![0; count],
            owed: vec![false; count],
            loads: vec![Vec::new(); count],
            spectator: None,
        }
    }

    fn run_for(&mut self, span: Duration) {
        let end = self.world.now + span;
        while self.world.now < end {
            self.world.step();
            (0..self.events_seen.len()).for_each(|index| self.handle_events(index));
            if let Some(spectator) = &mut self.spectator {
                spectator.step(&mut self.world);
            }
        }
    }

    fn handle_events(&mut self, index: usize) {
        let events = &self.world.players[index].events;
        let mut next = None;
        for event in events.iter().skip(self.events_seen[index]) {
            if let HostedEvent::Client(ClientEvent::Snapshot { next: first }) = event {
                next = Some(*first);
            }
            self.owed[index] |= *event == HostedEvent::Client(ClientEvent::SnapshotWanted);
        }
        self.events_seen[index] = events.len();
        if let Some(next) = next {
            self.load(index, next);
        }
        if self.owed[index] {
            self.owed[index] = false;
            self.give(index);
        }
    }

    /// Offers the newest final state.
    fn give(&mut self, index: usize) {
        let now = self.world.local(index);
        let player = &mut self.world.players[index];
        let bytes = player.states.last().unwrap().to_be_bytes();
        let given = if Steps::window(&player.machine) == 0 {
            player.machine.offer_snapshot(now, &bytes)
        } else {
            let next = Tick(u32::try_from(player.states.len()).unwrap());
            player.machine.offer_save(now, next, &bytes)
        };
        assert_eq!(given, Ok(()));
    }

    /// Loads another player's state.
    fn load(&mut self, index: usize, next: Tick) {
        let player = &mut self.world.players[index];
        let bytes = player.machine.take_snapshot().unwrap();
        player.state = u64::from_be_bytes(bytes.try_into().unwrap());
        let first = usize::try_from(next.0).unwrap();
        assert!(player.states.len() >= first, "it played meanwhile");
        player.states.truncate(first);
        player.turns.truncate(first);
        player.turned_at.truncate(first);
        player.states[first - 1] = player.state;
        let reported = player.machine.report(next.minus(1), player.state);
        assert_eq!(reported, Ok(()));
        self.loads[index].push(first);
    }
}

#[test]
fn ls_16_a_late_spectator_gets_a_players_snapshot() {
    for (window, is_watching) in [(0, false), (9, false), (0, true), (9, true)] {
        let mut config = hosted(3, 0);
        config.client.window = window;
        let mut harness = Harness::new(&config);
        harness.run_for(Duration::from_secs(1));
        let now = harness.world.local(2);
        harness.world.players[2]
            .machine
            .leave(now, LeaveReason::Quit);
        harness.run_for(Duration::from_secs(19));
        assert!(harness.world.players[0].states.len() > 1_100);
        harness.spectator = Some(LateSpectator::new(&harness.world, 0));
        let now = harness.world.local(0);
        let machine = &mut harness.world.players[0].machine;
        let let_in = if is_watching {
            machine.watch(now, SPECTATOR)
        } else {
            machine.join(now, SPECTATOR, Seat(2))
        };
        assert_eq!(let_in, Ok(()));
        harness.run_for(Duration::from_secs(4));
        let spectator = harness.spectator.as_ref().unwrap();
        spectator.assert_saw(150, &harness.world.players[0].states);
        let first = spectator.states.first_key_value().unwrap().0;
        assert!(*first > 1_000, "{first}");
        let last = if is_watching {
            (0, Origin::Absent)
        } else {
            (7, Origin::Confirmed)
        };
        assert_eq!(spectator.last, Some(last));
        harness.world.assert_progress(&[0, 1]);
    }
}

#[test]
fn ls_16_a_spectator_is_evicted_and_no_player_admitted_as_one() {
    let mut harness = Harness::new(&hosted(4, 0));
    harness.run_for(Duration::from_secs(1));
    let now = harness.world.local(2);
    harness.world.players[2]
        .machine
        .leave(now, LeaveReason::Quit);
    harness.run_for(Duration::from_secs(1));
    let now = harness.world.local(0);
    let machine = &mut harness.world.players[0].machine;
    // A player, a removed player, and the host's own id.
    for known in [peer(1), peer(2), PeerId(u32::MAX)] {
        let refused = Err(JoinError::PeerTaken);
        assert_eq!(machine.join(now, known, Seat(2)), refused);
        assert_eq!(machine.watch(now, known), refused);
        machine.kick(now, known);
    }
    assert_eq!(machine.join(now, SPECTATOR, Seat(2)), Ok(()));
    harness.spectator = Some(LateSpectator::new(&harness.world, 0));
    harness.run_for(Duration::from_secs(2));
    let spectator = harness.spectator.as_ref().unwrap();
    assert_eq!(spectator.last, Some((7, Origin::Confirmed)));
    let now = harness.world.local(0);
    harness.world.players[0].machine.kick(now, SPECTATOR);
    harness.run_for(Duration::from_secs(1));
    let closed = ClientEvent::Closed(CloseReason::Removed);
    let spectator = harness.spectator.as_ref().unwrap();
    assert_eq!(spectator.events.last(), Some(&closed));
    harness.world.assert_progress(&[0, 1, 3]);
    let (_, origin) = harness.world.players[0].turns.last().unwrap()[2];
    assert_eq!(origin, Origin::Absent);
    // Other peers may join, and a spectator may be removed.
    let now = harness.world.local(0);
    let machine = &mut harness.world.players[0].machine;
    assert_eq!(machine.watch(now, SPECTATOR), Ok(()));
    machine.kick(now, SPECTATOR);
    assert_eq!(machine.join(now, SPECTATOR, Seat(2)), Ok(()));
}

#[test]
fn ls_16_only_a_spectator_relay_may_request_snapshots() {
    for is_relay in [false, true] {
        let mut harness = Harness::new(&hosted(3, 0));
        harness.run_for(Duration::from_secs(1));
        let now = harness.world.local(0);
        let machine = &mut harness.world.players[0].machine;
        let let_in = if is_relay {
            machine.watch_as_relay(now, SPECTATOR)
        } else {
            machine.watch(now, SPECTATOR)
        };
        assert_eq!(let_in, Ok(()));
        harness.spectator = Some(LateSpectator::new(&harness.world, 0));
        harness.run_for(Duration::from_secs(1));
        // It keeps a snapshot only for peers that it serves.
        harness.spectator = None;
        let now = harness.world.local(0);
        let machine = &mut harness.world.players[0].machine;
        machine.handle_datagram(now, Arrival::from(SPECTATOR), &mut [0x0b]);
        harness.run_for(Duration::from_secs(1));
        let wanted = HostedEvent::Client(ClientEvent::SnapshotWanted);
        let mut players = harness.world.players.iter();
        assert_eq!(
            players.any(|player| player.events.contains(&wanted)),
            is_relay
        );
    }
}

#[test]
fn ls_16_a_new_host_does_not_continue_the_old_hosts_snapshots() {
    let mut config = hosted(4, 1);
    config.server.recovery = Recovery::Reload;
    let mut harness = Harness::new(&config);
    let assert_repaired = |harness: &Harness, loads: usize| {
        let [other, wrong] = [2, 3].map(|index| &harness.world.players[index].states);
        let begun = harness.loads[3].get(loads - 1);
        let begun = *begun.expect("it loaded a state");
        let len = other.len().min(wrong.len());
        assert!(len > begun + 100 && other[begun..len] == wrong[begun..len]);
        assert_eq!(harness.loads[3].len(), loads);
    };
    harness.run_for(Duration::from_secs(2));
    harness.world.players[3].state ^= 1;
    harness.run_for(Duration::from_secs(4));
    assert_repaired(&harness, 1);
    // The host asks the lowest seat first.
    harness.world.players[1].is_paused = true;
    harness.run_for(Duration::from_secs(3));
    assert_eq!(harness.world.players[3].machine.host(), Seat(0));
    harness.world.players[3].state ^= 1;
    harness.run_for(Duration::from_secs(5));
    assert_repaired(&harness, 2);
}

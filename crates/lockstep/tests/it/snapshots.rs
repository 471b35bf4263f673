//! Late joins that need a snapshot, and replacement of diverged states.

use core::time::Duration;

use lockstep::{
    ClientEvent, CloseReason, Config, Recovery, ServerEvent, SnapshotError, SnapshotSource,
    StartPolicy, StateHasher, Tick,
};
use netsim::{for_each_seed, test_site};
use wire::{Instant, Seat, Seed};

use crate::world::{Link, MATCH, World, config, pad};

/// At this tick the chain no longer holds the first tick.
pub(crate) const LATE: u32 = 1_100;

/// Longest accepted state.
const LEN_MAX: u32 = 1 << 20;

/// A match with snapshots from the players, and optionally from the server.
pub(crate) struct Harness {
    pub(crate) world: World<u16>,
    /// The server's own game, if it simulates.
    state: Option<u64>,
    /// Size of a snapshot without the state, bytes.
    pub(crate) padding_len: usize,
    /// Number of server events handled.
    seen: usize,
    /// Number of events handled, by player.
    events_seen: Vec<usize>,
    /// Whether the server, and each player, must offer its state after its next turn.
    owed: (bool, Vec<bool>),
    /// Seats that offer wrong snapshots.
    pub(crate) liars: Vec<usize>,
    /// A seat that offers no snapshot when it is asked.
    pub(crate) withholding_seat: Option<usize>,
    /// Whether the server offers no snapshots.
    pub(crate) withholds_snapshots: bool,
    /// When the server's offers were refused.
    pub(crate) refused: Vec<Instant>,
    /// First tick that each player simulated.
    pub(crate) begun: Vec<usize>,
}

impl Harness {
    fn new(seed: Seed, source: SnapshotSource, recovery: Recovery, link: Link) -> Self {
        let mut config = config(4);
        config.snapshots = source;
        config.recovery = recovery;
        config.snapshot_len_max = LEN_MAX;
        Self::with_config(seed, config, link)
    }

    /// A match of four; the last is absent.
    pub(crate) fn with_config(seed: Seed, mut config: Config, link: Link) -> Self {
        let source = config.snapshots;
        config.start = StartPolicy::ByHand;
        let mut world = World::seeded(seed, config, link, pad);
        world.keep_out(3);
        world.run_for(Duration::from_millis(300));
        world.server.start(world.now).unwrap();
        Self {
            world,
            state: (source == SnapshotSource::Server).then_some(0),
            padding_len: 20_000,
            seen: 0,
            events_seen: vec![0; 4],
            owed: (false, vec![false; 4]),
            liars: Vec::new(),
            withholding_seat: None,
            withholds_snapshots: false,
            refused: Vec::new(),
            begun: vec![0; 4],
        }
    }

    pub(crate) fn run(&mut self, ticks: u32) {
        while self.world.server.ticks_closed() < ticks {
            self.step();
        }
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        let end = self.world.now + span;
        while self.world.now < end {
            self.step();
        }
    }

    pub(crate) fn step(&mut self) {
        self.world.step();
        self.simulate();
        while let Some(event) = self.world.server_events.get(self.seen) {
            self.owed.0 |= *event == ServerEvent::SnapshotWanted;
            self.seen += 1;
        }
        for player in 0..4 {
            while let Some(event) = self.world.players[player]
                .events
                .get(self.events_seen[player])
            {
                self.events_seen[player] += 1;
                if *event == ClientEvent::SnapshotWanted {
                    self.owed.1[player] = true;
                } else if let ClientEvent::Snapshot { next } = *event {
                    self.load(player, next);
                }
            }
            self.give(player);
        }
    }

    /// Simulates on the server, and offers its state if one is wanted.
    fn simulate(&mut self) {
        let Some(state) = &mut self.state else {
            return;
        };
        while let Some(turn) = self.world.server.poll_turn() {
            let tick = turn.tick();
            let mut hasher = StateHasher::new(MATCH);
            hasher.u64(*state);
            for (seat, _, origin) in turn.inputs() {
                hasher.u8(origin.code());
                hasher.bytes(turn.bits(seat));
            }
            *state = hasher.finish();
            self.world.server.report(tick, *state).unwrap();
        }
        if core::mem::take(&mut self.owed.0) && !self.withholds_snapshots {
            let bytes = snapshot(*state, self.padding_len);
            let now = self.world.now;
            if self.world.server.offer_snapshot(now, &bytes).is_err() {
                self.refused.push(now);
            }
        }
    }

    fn give(&mut self, player: usize) {
        let machine = &mut self.world.players[player];
        if machine.states.is_empty()
            || self.withholding_seat == Some(player)
            || !core::mem::take(&mut self.owed.1[player])
        {
            return;
        }
        let lie = u64::from(self.liars.contains(&player));
        let bytes = snapshot(machine.state ^ lie, self.padding_len);
        let now = self.world.now;
        machine.machine.offer_snapshot(now, &bytes).unwrap();
    }

    /// Loads a received snapshot. Earlier ticks count as simulated.
    fn load(&mut self, index: usize, next: Tick) {
        let first = usize::try_from(next.0).unwrap();
        let others = self.world.players[(index + 1) % 3].states.clone();
        let player = &mut self.world.players[index];
        let bytes = player.machine.take_snapshot().unwrap();
        assert_eq!(bytes.len(), self.padding_len + 8);
        player.state = u64::from_be_bytes(bytes[..8].try_into().unwrap());
        let was = player.states.len();
        player.states.truncate(first);
        player.states.resize(first, 0);
        player.logs.resize(first, 0);
        player.turned_at.resize(first, self.world.now);
        let absent = (0, lockstep::Origin::Absent);
        player.own.resize(first, absent);
        player.diverges_at = None;
        player.states[first - 1] = player.state;
        let report = player.machine.report(Tick(next.0 - 1), player.state);
        assert_eq!(report, Ok(()));
        if self.liars.is_empty() && others.len() >= first {
            assert_eq!(player.state, others[first - 1], "{was}");
        }
        self.begun[index] = first;
    }

    pub(crate) fn assert_agreement(&self) {
        assert_eq!(self.refused, []);
        let longest = self.world.players[..3]
            .iter()
            .max_by_key(|p| p.states.len());
        let longest = &longest.unwrap().states;
        for (player, begun) in self.world.players.iter().zip(&self.begun) {
            let own = player.states.len();
            assert_eq!(player.states[*begun..], longest[*begun..own]);
        }
    }

    pub(crate) fn count(&self, is_it: impl Fn(&ServerEvent) -> bool) -> usize {
        self.world
            .server_events
            .iter()
            .filter(|event| is_it(event))
            .count()
    }

    pub(crate) fn entered(&self) -> Option<Tick> {
        self.world.server_events.iter().find_map(|event| {
            if let ServerEvent::Entered {
                seat: Seat(3),
                tick,
            } = event
            {
                Some(*tick)
            } else {
                None
            }
        })
    }
}

fn snapshot(state: u64, padding_len: usize) -> Vec<u8> {
    let mut bytes = state.to_be_bytes().to_vec();
    bytes.resize(padding_len + 8, 0x5a);
    bytes
}

pub(crate) fn is_desync(event: &ServerEvent) -> bool {
    matches!(event, ServerEvent::Desync { .. })
}

#[test]
fn sim_ls_14_joining_past_the_chain_loads_a_snapshot() {
    for_each_seed(&test_site!(), 8, |seed| {
        let mut generator = seed.generator(41);
        let percent = u32::try_from(generator.below(11)).unwrap();
        let source = if generator.chance(500_000) {
            SnapshotSource::Server
        } else {
            SnapshotSource::Players
        };
        let mut harness = Harness::new(seed, source, Recovery::Report, Link::lossy(percent));
        harness.run(LATE + u32::try_from(generator.below(500)).unwrap());
        harness.world.rejoin(3);
        let joined = harness.world.server.ticks_closed();
        harness.run(joined + 400);
        let tick = harness.entered().unwrap();
        assert!(tick.since(Tick(joined)) < 180, "{joined} {tick}");
        harness.assert_agreement();
        assert!(harness.begun[3] >= usize::try_from(LATE).unwrap());
        assert_eq!(harness.count(is_desync), 0);
        // The new player's hashes are compared from then on.
        harness.world.players[3].diverges_at = Some(Tick(joined + 450));
        harness.run(joined + 550);
        assert_eq!(harness.count(is_desync), 1);
    });
}

#[test]
fn ls_g14_a_mebibyte_at_10_mbit_is_in_step_in_1_4_s_and_stalls_no_player() {
    let mut link = Link::perfect();
    link.latency = Duration::from_millis(50);
    let mut waits = Vec::new();
    for seed in 0..5 {
        let seed = Seed::from_number(seed);
        let mut harness = Harness::new(seed, SnapshotSource::Server, Recovery::Report, link);
        harness.padding_len = (1 << 20) - 8;
        harness.run(LATE);
        let from = harness.world.players[0].turned_at.len();
        let joined = harness.world.now;
        harness.world.rejoin(3);
        while harness.entered().is_none() {
            harness.step();
        }
        waits.push(harness.world.now.saturating_since(joined));
        harness.run_for(Duration::from_secs(1));
        harness.assert_agreement();
        for player in &harness.world.players[..3] {
            let mut pairs = player.turned_at[from..].windows(2);
            let period = Duration::from_nanos(16_666_667);
            assert!(pairs.all(|pair| pair[1].saturating_since(pair[0]) <= period));
        }
    }
    eprintln!("in step after {waits:?}");
    assert!(
        waits
            .iter()
            .all(|wait| *wait <= Duration::from_millis(1_400)),
        "{waits:?}"
    );
}

#[test]
fn sim_ls_12_a_diverged_state_is_replaced() {
    for_each_seed(&test_site!(), 8, |seed| {
        let mut generator = seed.generator(43);
        let source = if generator.chance(500_000) {
            SnapshotSource::Server
        } else {
            SnapshotSource::Players
        };
        let mut harness = Harness::new(seed, source, Recovery::Reload, Link::lossy(3));
        harness.run(200);
        let wrong = usize::try_from(generator.below(3)).unwrap();
        harness.world.players[wrong].diverges_at = Some(Tick(250));
        harness.run(700);
        let desyncs: Vec<_> = harness
            .world
            .server_events
            .iter()
            .filter(|e| is_desync(e))
            .collect();
        assert_eq!(
            harness.count(is_desync),
            1,
            "{desyncs:?} {:?}",
            harness.begun
        );
        assert!(harness.begun[wrong] > 250, "it loaded a state");
        let reference = (wrong + 1) % 3;
        let own = &harness.world.players[wrong].states;
        let others = &harness.world.players[reference].states;
        let len = own.len().min(others.len());
        assert_eq!(
            own[harness.begun[wrong]..len],
            others[harness.begun[wrong]..len]
        );
        assert!(len > 650);
        // Its inputs counted during the replacement.
        let substituted = harness.world.players[wrong].own[300..].iter();
        let substituted =
            substituted.filter(|(_, origin)| *origin == lockstep::Origin::Substituted);
        assert!(substituted.count() < 60);
        // Its hashes are compared again.
        let again = harness.world.server.ticks_closed() + 20;
        harness.world.players[wrong].diverges_at = Some(Tick(again));
        harness.run(again + 100);
        let desyncs = harness
            .world
            .server_events
            .iter()
            .filter(|event| is_desync(event));
        assert_eq!(
            harness.count(is_desync),
            2,
            "{again} {:?}",
            desyncs.collect::<Vec<_>>()
        );
    });
}

#[test]
fn sim_ls_14_a_donor_of_a_wrong_state_is_detected_and_skipped() {
    for_each_seed(&test_site!(), 4, |seed| {
        let mut harness = Harness::new(
            seed,
            SnapshotSource::Players,
            Recovery::Report,
            Link::lossy(2),
        );
        harness.run(LATE);
        // Seat 0 is the first donor, because no player has pending turns.
        harness.liars = vec![0];
        harness.world.rejoin(3);
        let joined = harness.world.server.ticks_closed();
        harness.run(joined + 400);
        let refuted = ServerEvent::SnapshotRefuted {
            donor: Seat(0),
            seat: Seat(3),
        };
        let lied = harness.count(|event| *event == refuted);
        assert!(lied <= 1);
        assert_eq!(harness.count(is_desync), 0, "nobody is called wrong for it");
        let player = &harness.world.players[3];
        let others = &harness.world.players[1].states;
        let own = player.states.len().min(others.len());
        assert_eq!(player.states[own - 50..own], others[own - 50..own]);
        assert!(lied == 1 || harness.begun[3] > 0);
    });
}

#[test]
fn sim_ls_14_a_wrong_state_is_detected_though_first_hashes_are_lost() {
    for_each_seed(&test_site!(), 30, |seed| {
        let (source, link) = (SnapshotSource::Players, Link::lossy(2));
        let mut harness = Harness::new(seed, source, Recovery::Report, link);
        harness.run(LATE);
        harness.liars = vec![0];
        harness.world.links[3].loss = 400_000;
        harness.world.rejoin(3);
        let joined = harness.world.server.ticks_closed();
        harness.run(joined + 500);
        assert_eq!(harness.count(is_desync), 0, "nobody is called wrong for it");
    });
}

#[test]
fn a_process_pause_does_not_count_against_snapshot_deadlines() {
    let seed = Seed::from_number(8);
    let (source, link) = (SnapshotSource::Server, Link::lossy(1));
    let mut harness = Harness::new(seed, source, Recovery::Report, link);
    harness.run(LATE);
    harness.world.rejoin(3);
    while !harness
        .world
        .server_events
        .contains(&ServerEvent::SnapshotWanted)
    {
        harness.world.step();
    }
    harness.world.now += Duration::from_secs(30);
    harness.run_for(Duration::from_secs(5));
    assert!(harness.begun[3] > 0);
    let left = |event: &ServerEvent| matches!(event, ServerEvent::Left { seat: Seat(3), .. });
    let asked = harness.count(|event| *event == ServerEvent::SnapshotWanted);
    // It left once, before the match began.
    assert_eq!((harness.count(left), asked), (1, 1));
}

#[test]
fn a_new_player_without_a_donor_is_notified() {
    let seed = Seed::from_number(6);
    let mut harness = Harness::new(
        seed,
        SnapshotSource::Players,
        Recovery::Report,
        Link::lossy(1),
    );
    harness.run(LATE);
    harness.world.rejoin(3);
    // No donor answers: three are asked for 10 s each.
    let end = harness.world.now + Duration::from_millis(30_300);
    while harness.world.now < end {
        harness.world.step();
    }
    let closed = ClientEvent::Closed(CloseReason::Behind);
    assert_eq!(harness.world.players[3].events.last(), Some(&closed));
    assert!(
        harness.world.players[0].states.len() > 2_800,
        "the others play on"
    );
}

#[test]
fn a_snapshot_is_accepted_if_requested_and_within_bounds() {
    let seed = Seed::from_number(7);
    let mut harness = Harness::new(
        seed,
        SnapshotSource::Server,
        Recovery::Report,
        Link::perfect(),
    );
    let now = harness.world.now;
    assert_eq!(
        harness.world.server.offer_snapshot(now, &[]),
        Err(SnapshotError::NotCurrent)
    );
    harness.run(100);
    let now = harness.world.now;
    let client = &mut harness.world.players[0].machine;
    assert_eq!(
        client.offer_snapshot(now, &[]),
        Err(SnapshotError::NotWanted)
    );
    assert_eq!(client.take_snapshot(), None);
    let long = vec![0; (1 << 20) + 1];
    assert_eq!(
        harness.world.server.offer_snapshot(now, &long),
        Err(SnapshotError::TooLong)
    );
    assert_eq!(harness.world.server.offer_snapshot(now, &long[1..]), Ok(()));
}

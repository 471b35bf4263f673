//! Spectators of a match.

use core::time::Duration;

use lockstep::{
    ClientEvent, CloseReason, Config, JoinError, LeaveReason, MatchServer, PeerId, ServerEvent,
    SubmitError,
};
use netsim::{for_each_seed, test_site};
use wire::{Arrival, Instant, Seat, Seed};

use crate::alloc::{allocations, held};
use crate::tree::{SERVER, Tree, peer};
use crate::world::{Link, MATCH, config};

/// At this tick the chain no longer holds the first tick.
const LATE: u32 = 1_100;

fn watched(seats: u16, delay: u16) -> Config {
    let mut config = config(seats);
    config.spectator_delay = delay;
    config
}

fn left(tree: &Tree) -> Vec<(PeerId, LeaveReason)> {
    let events = tree.events.iter();
    let left = events.filter_map(|event| {
        if let ServerEvent::SpectatorLeft { peer, reason } = event {
            Some((*peer, *reason))
        } else {
            None
        }
    });
    left.collect()
}

#[test]
fn sim_ls_1_spectators_see_the_players_match_at_any_join_time() {
    for_each_seed(&test_site!(), 10, |seed| {
        let mut choices = seed.generator(50);
        let delay = u16::try_from(choices.below(2) * choices.below(120)).unwrap();
        let loss = u32::try_from(choices.below(12)).unwrap();
        let mut tree = Tree::new(seed, watched(3, delay), Link::lossy(loss));
        tree.watch(SERVER);
        let mut comes = 0;
        for _ in 0..4 {
            comes += u32::try_from(choices.below(400)).unwrap();
            tree.run(comes);
            tree.watch(SERVER);
        }
        // Past the chain, a snapshot is needed.
        tree.run(LATE + u32::from(delay) + comes);
        tree.watch(SERVER);
        let goal = tree.server.ticks_closed() + 400 + u32::from(delay);
        tree.run(goal);
        tree.assert_all_saw(40 + u32::from(delay));
        assert_eq!(tree.server.spectator_count(), 6);
        assert!(tree.server.stats().spectators.snapshots_begun >= 1);
        let is_desync = |event: &ServerEvent| matches!(event, ServerEvent::Desync { .. });
        assert!(!tree.events.iter().any(is_desync));
        assert_eq!(left(&tree), []);
    });
}

#[test]
fn ls_14_spectators_change_nothing_for_players() {
    let players = |spectators: usize| {
        let mut tree = Tree::new(Seed::from_number(1), config(2), Link::perfect());
        (0..spectators).for_each(|_| {
            tree.watch(SERVER);
        });
        tree.run(300);
        (tree.truth.clone(), tree.server.stats().bundles_encoded)
    };
    let (alone, encoded) = players(0);
    let (watched, encoded_for_all) = players(40);
    assert_eq!(alone.len(), watched.len());
    assert_eq!(encoded, encoded_for_all, "one encoding a tick");
}

#[test]
fn a_delay_holds_and_also_applies_to_the_end() {
    // The world checks each sent datagram against the delay.
    let mut tree = Tree::new(Seed::from_number(2), watched(2, 300), Link::lossy(5));
    let early = tree.watch(SERVER);
    tree.run(290);
    tree.run_for(Duration::from_millis(100));
    assert!(tree.viewer(early).states.is_empty());
    tree.run(600);
    let late = tree.watch(SERVER);
    tree.run(1_000);
    let seen = tree.viewer(early).states.len();
    assert!((680..=700).contains(&seen), "{seen}");
    tree.server.close(tree.now);
    let end = tree.server.ticks_closed();
    assert_eq!(tree.server.spectator_count(), 2);
    tree.run_for(Duration::from_secs(4));
    assert!(tree.viewer(early).states.len() < 960, "in its time");
    tree.run_for(Duration::from_secs(4));
    tree.assert_saw(early, end);
    tree.assert_saw(late, end);
    let ended = ClientEvent::Closed(CloseReason::Ended);
    assert_eq!(tree.viewer(early).events.last(), Some(&ended));
    assert_eq!(tree.server.spectator_count(), 0);
    assert_eq!(tree.server.poll_timeout(), None);
}

#[test]
fn a_delay_longer_than_the_chain_costs_a_bundle_a_tick() {
    let mut tree = Tree::new(Seed::from_number(3), watched(2, 1_500), Link::lossy(2));
    let node = tree.watch(SERVER);
    tree.run(1_800);
    tree.assert_saw(node, 280);
    let memory = |delay| {
        let now = Instant::from_millis(1);
        let config = watched(2, delay);
        let server = MatchServer::<u16>::new(config, MATCH, Seed::from_number(1), now).unwrap();
        server.memory_len()
    };
    // The longest bundle of two pads is 6 bytes, and its slot takes as many.
    assert!(memory(1_500) - memory(0) <= 1_500 * 12);
}

#[test]
fn inputs_of_a_spectator_count_for_no_seat() {
    let mut tree = Tree::new(Seed::from_number(4), config(2), Link::perfect());
    let node = tree.watch(SERVER);
    tree.run(60);
    let now = tree.now;
    let machine = &mut tree.viewer(node).machine;
    assert_eq!(machine.submit(now, &1), Err(SubmitError::Spectator));
    assert_eq!((machine.seat(), machine.is_spectator()), (None, true));
    let watching = ClientEvent::Watching {
        seats: 2,
        match_id: MATCH,
    };
    assert_eq!(tree.viewer(node).events, [watching]);
    // A report with 64 inputs.
    let low = tree.server.ticks_closed().to_be_bytes();
    let mut with_inputs = [0x02, low[2], low[3], 0x60, 0x41, 0xc0, 0x82];
    let before = *tree.server.stats();
    let arrival = Arrival::from(peer(node));
    tree.server.handle_datagram(now, arrival, &mut with_inputs);
    assert_eq!(tree.server.stats().spectators.dropped_inputs, 1);
    // A repeated ready, an offered state, and a leave reason that only a server may give.
    for mut said in [vec![0x01, 2, 0, 0, 0, 0], vec![0x0a, 1], vec![0x03, 2]] {
        tree.server.handle_datagram(now, arrival, &mut said);
    }
    assert_eq!(tree.server.stats().inputs_late, before.inputs_late);
    assert_eq!(tree.server.stats().inputs_early, before.inputs_early);
    assert_eq!(tree.server.stats().spectators.dropped_malformed, 2);
    let is_ready = |event: &&ServerEvent| matches!(event, ServerEvent::Ready { .. });
    tree.run(200);
    assert_eq!(tree.events.iter().filter(is_ready).count(), 2, "two seats");
    tree.assert_all_saw(10);
    // An acknowledgement of ticks outside the range is dropped.
    let refused = tree.server.stats().spectators.dropped_ack;
    let low = (tree.server.ticks_closed() + 9).to_be_bytes();
    let mut early = [0x02, low[2], low[3], 0x70];
    tree.server.handle_datagram(tree.now, arrival, &mut early);
    assert_eq!(tree.server.stats().spectators.dropped_ack, refused + 1);
}

#[test]
fn a_silent_spectator_is_evicted_and_delays_no_other() {
    let mut tree = Tree::new(Seed::from_number(5), config(2), Link::lossy(1));
    let (silent, other) = (tree.watch(SERVER), tree.watch(SERVER));
    tree.run(100);
    tree.nodes[silent].is_paused = true;
    let closed = tree.server.ticks_closed();
    while left(&tree).is_empty() {
        tree.step();
    }
    let ticks = tree.server.ticks_closed() - closed;
    assert!((1_010..=1_100).contains(&ticks), "{ticks}");
    assert_eq!(left(&tree), [(peer(silent), LeaveReason::Behind)]);
    tree.assert_saw(other, tree.server.ticks_closed() - 20);
    tree.nodes[silent].is_paused = false;
    tree.run_for(Duration::from_secs(1));
    let closed = ClientEvent::Closed(CloseReason::Behind);
    assert_eq!(tree.viewer(silent).events.last(), Some(&closed));
    assert_eq!(tree.server.stats().ticks_delayed, 0);
}

#[test]
fn ls_6_a_spectator_recovers_from_an_outage() {
    let mut tree = Tree::new(Seed::from_number(6), config(8), Link::lossy(2));
    let node = tree.watch(SERVER);
    tree.run(100);
    let back = tree.now + Duration::from_secs(3);
    tree.outages.push((node, tree.now, back));
    tree.run_for(Duration::from_millis(3_600));
    tree.assert_saw(node, tree.server.ticks_closed() - 20);
    assert!(tree.server.stats().spectators.catch_up_datagrams > 0);
}

#[test]
fn spectators_are_limited_and_rejections_reported() {
    let now = Instant::from_millis(1);
    let mut config = config(2);
    config.spectators_max = 2;
    config.start_timeout = Duration::from_secs(5);
    let mut server = MatchServer::<u16>::new(config, MATCH, Seed::from_number(1), now).unwrap();
    server.join(now, PeerId(0), Seat(0)).unwrap();
    assert_eq!(server.watch(now, PeerId(0)), Err(JoinError::PeerTaken));
    for peer in [5, 6] {
        assert_eq!(server.watch(now, PeerId(peer)), Ok(()));
    }
    let taken = Err(JoinError::PeerTaken);
    assert_eq!(server.watch(now, PeerId(6)), taken);
    assert_eq!(server.join(now, PeerId(6), Seat(1)), taken);
    assert_eq!(server.watch(now, PeerId(7)), Err(JoinError::Full));
    server.leave(now, PeerId(6));
    let gone = |peer, reason| {
        let peer = PeerId(peer);
        Some(ServerEvent::SpectatorLeft { peer, reason })
    };
    assert_eq!(server.poll_event(), gone(6, LeaveReason::Removed));
    let mut bye = Vec::new();
    let to = server.poll_transmit(now, &mut bye).unwrap().destination;
    assert_eq!((to, bye.as_slice()), (PeerId(6), &[0x84, 1][..]));
    // Its slot is free, also for a player.
    assert_eq!(server.join(now, PeerId(6), Seat(1)), Ok(()));
    assert_eq!(server.watch(now, PeerId(7)), Ok(()));
    // A spectator that never answers is removed.
    server.handle_timeout(Instant::from_millis(4_999));
    assert_eq!(server.poll_event(), None);
    server.handle_timeout(Instant::from_millis(5_001));
    let mut out = [server.poll_event(), server.poll_event()];
    out.sort_by_key(|event| format!("{event:?}"));
    let never = LeaveReason::NotReady;
    assert_eq!(out, [gone(5, never), gone(7, never)]);
    server.close(Instant::from_millis(5_002));
    let later = Instant::from_millis(5_003);
    assert_eq!(server.watch(later, PeerId(8)), Err(JoinError::Closed));
}

#[test]
fn without_a_snapshot_a_player_that_left_cannot_watch_later() {
    let mut tree = Tree::new(Seed::from_number(7), config(2), Link::lossy(3));
    let node = tree.watch(SERVER);
    tree.run(100);
    let now = tree.now;
    tree.viewer(node).machine.leave(now, LeaveReason::Quit);
    tree.run(150);
    assert_eq!(left(&tree), [(peer(node), LeaveReason::Quit)]);
    // Without a snapshot the late spectator waits, and the others continue.
    tree.withholds_snapshots = true;
    tree.run(LATE);
    let late = tree.watch(SERVER);
    tree.run(LATE + 200);
    assert!(tree.viewer(late).states.is_empty());
    let is_wanted = |event: &&ServerEvent| **event == ServerEvent::SnapshotWanted;
    assert_eq!(tree.events.iter().filter(is_wanted).count(), 1, "once");
    tree.withholds_snapshots = false;
    tree.run(LATE + 500);
    tree.assert_saw(late, LATE + 460);
}

#[test]
fn ls_14_late_spectators_are_evicted_if_the_server_gives_no_snapshot() {
    let mut tree = Tree::new(Seed::from_number(10), config(2), Link::lossy(1));
    tree.withholds_snapshots = true;
    let early = tree.watch(SERVER);
    tree.run(LATE);
    let late = tree.watch(SERVER);
    tree.run_for(Duration::from_secs(19));
    let later = tree.watch(SERVER);
    tree.run_for(Duration::from_millis(900));
    assert_eq!(left(&tree), []);
    tree.run_for(Duration::from_secs(1));
    assert_eq!(left(&tree), [(peer(late), LeaveReason::Behind)]);
    let closed = ClientEvent::Closed(CloseReason::Behind);
    assert_eq!(tree.viewer(late).events.last(), Some(&closed));
    // The second late spectator has its own 20 s.
    tree.run_for(Duration::from_secs(18));
    assert_eq!(left(&tree).len(), 1);
    tree.run_for(Duration::from_secs(1));
    assert_eq!(left(&tree)[1..], [(peer(later), LeaveReason::Behind)]);
    tree.assert_saw(early, tree.server.ticks_closed() - 40);
}

type LetIn = fn(&mut MatchServer<u16>, Instant, PeerId) -> Result<(), JoinError>;

/// A server without players, and `count` spectators that send prepared datagrams.
struct ManySpectators {
    server: MatchServer<u16>,
    now: Instant,
    count: u32,
    buf: Vec<u8>,
}

impl ManySpectators {
    fn new(count: u32) -> Self {
        Self::with(count, MatchServer::watch)
    }

    /// Admits `count` peers with `let_in`.
    fn with(count: u32, let_in: LetIn) -> Self {
        let now = Instant::from_millis(1);
        let mut config = config(8);
        config.spectators_max = count;
        config.start = lockstep::StartPolicy::ByHand;
        let mut server = MatchServer::new(config, MATCH, Seed::from_number(1), now).unwrap();
        server.start(now).unwrap();
        for peer in 0..count {
            let_in(&mut server, now, PeerId(100 + peer)).unwrap();
            let arrival = Arrival::from(PeerId(100 + peer));
            server.handle_datagram(now, arrival, &mut [0x01, 2, 0, 0, 0, 0]);
        }
        let buf = Vec::with_capacity(2_000);
        Self {
            server,
            now,
            count,
            buf,
        }
    }

    /// Closes ticks; each spectator acknowledges every fourth.
    fn run(&mut self, ticks: u32) {
        for _ in 0..ticks {
            self.now += Duration::from_nanos(16_666_667);
            self.server.handle_timeout(self.now);
            while self.server.poll_transmit(self.now, &mut self.buf).is_some() {
                self.buf.clear();
            }
            while self.server.poll_event().is_some() {}
            while self.server.poll_turn().is_some() {}
            let closed = self.server.ticks_closed();
            for peer in (closed % 4..self.count).step_by(4) {
                let low = closed.to_be_bytes();
                let mut report = [0x02, low[2], low[3], 0x70];
                let arrival = Arrival::from(PeerId(100 + peer));
                self.server.handle_datagram(self.now, arrival, &mut report);
            }
        }
    }
}

#[test]
fn ls_9_nothing_is_allocated_for_spectators() {
    let mut spectators = ManySpectators::new(200);
    spectators.run(1_000);
    let (before, bytes) = (allocations(), held());
    let turns = spectators.server.stats().spectators.turns_sent;
    spectators.run(3_000);
    assert_eq!((allocations() - before, held() - bytes), (0, 0));
    let turns = spectators.server.stats().spectators.turns_sent - turns;
    assert_eq!(turns, 3_000 * 200, "a datagram a tick each");
    assert_eq!(spectators.server.stats().spectators.dropped_malformed, 0);
    assert_eq!(spectators.server.stats().spectators.dropped_ack, 0);
}

#[test]
fn ls_9_a_spectator_costs_some_200_bytes() {
    let (few, many) = (ManySpectators::new(100), ManySpectators::new(4_196));
    let cost = (many.server.memory_len() - few.server.memory_len()) / 4_096;
    assert!(cost <= 400, "{cost}");
    let before = held();
    let spectators = ManySpectators::new(2_000);
    let (bytes, counted) = (held() - before, spectators.server.memory_len());
    let counted = i64::try_from(counted).unwrap();
    assert!(counted.abs_diff(bytes) < 200_000, "{counted} {bytes}");
}

#[test]
fn ls_10_hostile_spectators_cost_bounded_memory_and_eight_transfers() {
    let mut spectators = ManySpectators::with(64, MatchServer::watch_as_relay);
    spectators.run(LATE);
    let now = spectators.now;
    // All claim to have restarted, and request a snapshot as often as they can.
    spectators
        .server
        .offer_snapshot(now, &vec![7; 100_000])
        .unwrap();
    let before = held();
    for _ in 0..50 {
        for peer in 0..64 {
            let arrival = Arrival::from(PeerId(100 + peer));
            spectators.server.handle_datagram(now, arrival, &mut [0x0b]);
            let mut ready = [0x01, 2, 0, 0, 0, 0];
            spectators.server.handle_datagram(now, arrival, &mut ready);
        }
    }
    assert_eq!(spectators.server.stats().spectators.snapshots_begun, 8);
    let bytes = held() - before;
    assert!(bytes < 8 * 70_000 + 20_000, "{bytes}");
    let mut generator = Seed::from_number(3).generator(0);
    for _ in 0..20_000 {
        let len = usize::try_from(generator.below(24)).unwrap();
        let mut datagram: Vec<_> = (0..len)
            .map(|_| u8::try_from(generator.below(256)).unwrap())
            .collect();
        if let Some(kind) = datagram.first_mut() {
            *kind %= 12;
        }
        let peer = PeerId(100 + u32::try_from(generator.below(64)).unwrap());
        spectators
            .server
            .handle_datagram(now, Arrival::from(peer), &mut datagram);
    }
    while spectators.server.poll_event().is_some() {}
    let bytes = held() - before;
    assert!(bytes < 8 * 70_000 + 20_000, "{bytes}");
}

#[test]
fn ls_10_a_spectator_that_needs_no_snapshot_gets_none() {
    let mut config = config(2);
    config.snapshots = lockstep::SnapshotSource::Players;
    let mut tree = Tree::new(Seed::from_number(8), config, Link::perfect());
    let node = tree.watch(SERVER);
    tree.run(300);
    // Requests a snapshot each second, as a relay does.
    let arrival = Arrival::from(peer(node));
    for second in 1..=12 {
        tree.server.handle_datagram(tree.now, arrival, &mut [0x0b]);
        tree.run(300 + 60 * second);
    }
    let wanted = ClientEvent::SnapshotWanted;
    for player in 1..=2 {
        assert!(!tree.viewer(player).events.contains(&wanted), "{player}");
    }
    let stats = tree.server.stats().spectators;
    assert_eq!((stats.snapshots_begun, stats.dropped_malformed), (0, 12));
    tree.assert_saw(node, 1_000);
}

#[test]
fn ls_14_eight_spectators_with_stalled_transfers_do_not_block_a_ninth() {
    let mut tree = Tree::new(Seed::from_number(9), config(2), Link::perfect());
    tree.padding_len = 500_000;
    tree.run(LATE);
    let silent: Vec<_> = (0..8).map(|_| tree.watch(SERVER)).collect();
    while tree.server.stats().spectators.snapshots_begun < 8 {
        tree.step();
    }
    tree.run_for(Duration::from_millis(200));
    for node in &silent {
        tree.nodes[*node].is_paused = true;
    }
    let other = tree.watch(SERVER);
    // 5 s of silence, and the transfer.
    tree.run_for(Duration::from_millis(6_500));
    tree.assert_saw(other, tree.server.ticks_closed() - 20);
    let mut gone = left(&tree);
    gone.sort_by_key(|(peer, _)| peer.0);
    let behind = silent.iter().map(|node| (peer(*node), LeaveReason::Behind));
    assert_eq!(gone, behind.collect::<Vec<_>>());
}

//! Spectator relays.

use core::time::Duration;

use lockstep::{
    ClientEvent, CloseReason, JoinError, LeaveReason, PeerId, Phase, Refusal, SnapshotSource,
    SpectatorRelay, SpectatorRelayConfig, SpectatorRelayEvent,
};
use netsim::{for_each_seed, test_site};
use wire::{Arrival, Instant, Seed};

use crate::alloc::{allocations, held};
use crate::tree::{Role, SERVER, Tree, UP, peer};
use crate::world::{Link, MATCH, config};

/// At this tick the chain no longer holds the first tick.
const LATE: u32 = 1_100;

fn relay_events(tree: &Tree, node: usize) -> &[SpectatorRelayEvent] {
    match &tree.nodes[node].role {
        Role::Relay(_, events) => events,
        Role::Client(_) => panic!("no relay"),
    }
}

#[test]
fn sim_ls_1_two_levels_of_relays_show_the_players_match() {
    for_each_seed(&test_site!(), 6, |seed| {
        let mut choices = seed.generator(51);
        let mut config = config(3);
        config.spectator_delay = u16::try_from(choices.below(2) * 60).unwrap();
        let delay = u32::from(config.spectator_delay);
        let loss = u32::try_from(choices.below(8)).unwrap();
        let mut tree = Tree::new(seed, config, Link::lossy(loss));
        let root = tree.relay(SERVER, SpectatorRelayConfig::default());
        tree.run(u32::try_from(choices.below(100)).unwrap());
        let branches: Vec<_> = (0..3)
            .map(|_| tree.relay(root, SpectatorRelayConfig::default()))
            .collect();
        for branch in &branches {
            (0..3).for_each(|_| {
                tree.watch(*branch);
            });
            tree.run(tree.server.ticks_closed() + 150);
        }
        // Late spectators within the chain of every relay.
        tree.watch(branches[0]);
        tree.watch(root);
        // Past the chain, the root requests a snapshot, and a branch requests it from the root.
        tree.run(LATE + delay);
        let late = [tree.watch(branches[1]), tree.watch(root)];
        let newer = tree.relay(branches[2], SpectatorRelayConfig::default());
        let last = tree.watch(newer);
        tree.run(tree.server.ticks_closed() + 600 + delay);
        tree.assert_all_saw(70 + delay);
        for node in late.into_iter().chain([last]) {
            let first = *tree.viewer(node).states.first_key_value().unwrap().0;
            assert!(first > 700, "by snapshot: {first}");
        }
        assert_eq!(tree.server.spectator_count(), 1, "the root alone");
        let (root_sent, server_sent) = (tree.sent_bytes[&root], tree.sent_bytes[&SERVER]);
        assert!(root_sent > server_sent / 4, "{root_sent} {server_sent}");
        assert_eq!(tree.as_relay(root).stats().children.dropped_malformed, 0);
    });
}

#[test]
fn a_relay_forwards_bundles_unchanged_and_reports_for_its_children() {
    let mut tree = Tree::new(Seed::from_number(1), config(2), Link::perfect());
    let root = tree.relay(SERVER, SpectatorRelayConfig::default());
    let node = tree.watch(root);
    tree.run(300);
    tree.assert_saw(node, 295);
    // The server receives one spectator's reports: one per four ticks, not one per child.
    let log = tree.viewer(node).machine.log_hash();
    assert!(log.is_some(), "bundles are hashed as they are");
    let watching = SpectatorRelayEvent::Watching {
        seats: 2,
        match_id: MATCH,
    };
    assert_eq!(relay_events(&tree, root), [watching]);
    let relay = tree.as_relay(root);
    assert_eq!((relay.phase(), relay.child_count()), (Phase::Running, 1));
    let up = relay.stats().datagrams_sent - relay.stats().children.turns_sent;
    assert!(up < 300 / 4 + 10, "{up}");
}

#[test]
fn a_silent_child_is_evicted_and_delays_no_other() {
    let mut tree = Tree::new(Seed::from_number(2), config(2), Link::lossy(1));
    let root = tree.relay(SERVER, SpectatorRelayConfig::default());
    let (silent, other) = (tree.watch(root), tree.watch(root));
    tree.run(100);
    tree.nodes[silent].is_paused = true;
    let gone = SpectatorRelayEvent::ChildLeft {
        peer: peer(silent),
        reason: LeaveReason::Behind,
    };
    tree.run(1_250);
    assert!(relay_events(&tree, root).contains(&gone));
    tree.assert_saw(other, 1_220);
    tree.nodes[silent].is_paused = false;
    tree.run_for(Duration::from_secs(1));
    let closed = ClientEvent::Closed(CloseReason::Behind);
    assert_eq!(tree.viewer(silent).events.last(), Some(&closed));
    assert_eq!(tree.as_relay(root).child_count(), 1);
}

#[test]
fn an_outage_above_a_relay_is_repaired_for_all_below() {
    let mut tree = Tree::new(Seed::from_number(3), config(2), Link::lossy(2));
    let root = tree.relay(SERVER, SpectatorRelayConfig::default());
    let node = tree.watch(root);
    tree.run(100);
    let back = tree.now + Duration::from_secs(2);
    tree.outages.push((root, tree.now, back));
    tree.run_for(Duration::from_secs(3));
    tree.assert_saw(node, tree.server.ticks_closed() - 30);
}

#[test]
fn a_relay_cut_off_for_long_resumes_by_snapshot_with_its_children() {
    let mut tree = Tree::new(Seed::from_number(4), config(2), Link::lossy(2));
    let root = tree.relay(SERVER, SpectatorRelayConfig::default());
    let node = tree.watch(root);
    tree.run(100);
    let back = tree.now + Duration::from_secs(31);
    tree.outages.push((root, tree.now, back));
    tree.server.leave(tree.now, peer(root));
    tree.run(1_900);
    tree.let_watch(SERVER, root);
    let now = tree.now;
    tree.as_relay(root).reconnect(now, UP);
    tree.run(2_200);
    tree.assert_saw(node, 2_150);
    let first = *tree.viewer(node).states.first_key_value().unwrap().0;
    assert!(first > 1_500, "{first}");
}

#[test]
fn ls_14_a_spectator_that_changes_relays_keeps_its_snapshots() {
    let mut tree = Tree::new(Seed::from_number(6), config(2), Link::lossy(2));
    let roots = [(); 2].map(|()| tree.relay(SERVER, SpectatorRelayConfig::default()));
    tree.run(LATE);
    // Both join late, and each root numbers its snapshots from 1 on.
    let branch = tree.relay(roots[0], SpectatorRelayConfig::default());
    let below = tree.watch(branch);
    tree.run(LATE + 300);
    let node = tree.watch(roots[1]);
    tree.run(LATE + 600);
    tree.assert_saw(below, LATE + 550);
    tree.assert_saw(node, LATE + 550);
    let back = tree.now + Duration::from_secs(31);
    for (moved, from, to) in [(branch, 0, 1), (node, 1, 0)] {
        tree.outages.push((moved, tree.now, back));
        let now = tree.now;
        tree.as_relay(roots[from]).leave(now, peer(moved));
        tree.nodes[moved].parent = roots[to];
    }
    tree.run(LATE + 2_500);
    tree.let_watch(roots[1], branch);
    tree.let_watch(roots[0], node);
    let now = tree.now;
    tree.as_relay(branch).reconnect(now, UP);
    tree.viewer(node).machine.reconnect(now, UP);
    tree.run(LATE + 3_000);
    for late in [below, node] {
        tree.assert_saw(late, LATE + 2_950);
        let first = *tree.viewer(late).states.first_key_value().unwrap().0;
        assert!(first > LATE + 1_800, "{first}");
    }
}

#[test]
fn late_children_are_evicted_if_no_snapshot_arrives() {
    let mut tree = Tree::new(Seed::from_number(5), config(2), Link::lossy(1));
    tree.withholds_snapshots = true;
    let root = tree.relay(SERVER, SpectatorRelayConfig::default());
    tree.run(LATE);
    let late = tree.watch(root);
    tree.run_for(Duration::from_secs(22));
    let closed = ClientEvent::Closed(CloseReason::Behind);
    assert_eq!(tree.viewer(late).events.last(), Some(&closed));
    assert_eq!(tree.as_relay(root).child_count(), 0);
}

#[test]
fn ls_14_late_snapshots_at_a_spectator_relay_block_no_other() {
    let mut tree = Tree::new(Seed::from_number(9), config(2), Link::perfect());
    tree.padding_len = 100_000;
    let mut config = SpectatorRelayConfig::default();
    // A snapshot takes 20 s; by then the following ticks are no longer in the chain.
    config.transfer.rate_bytes_per_s = 5_000;
    let root = tree.relay(SERVER, config);
    tree.run(LATE);
    let late = tree.watch(root);
    tree.run_for(Duration::from_secs(19));
    assert_eq!(tree.as_relay(root).child_count(), 1);
    tree.run_for(Duration::from_secs(2));
    let closed = ClientEvent::Closed(CloseReason::Behind);
    assert_eq!(tree.viewer(late).events.last(), Some(&closed));
    let snapshots = tree.as_relay(root).stats().snapshots;
    assert!((1..=5).contains(&snapshots), "{snapshots}");
    tree.run_for(Duration::from_secs(10));
    assert_eq!(tree.as_relay(root).stats().snapshots, snapshots, "no more");
}

#[test]
fn ls_10_a_child_that_needs_no_snapshot_causes_no_request() {
    let mut config = config(2);
    config.snapshots = SnapshotSource::Players;
    let mut tree = Tree::new(Seed::from_number(8), config, Link::perfect());
    let root = tree.relay(SERVER, SpectatorRelayConfig::default());
    let (child, branch) = (
        tree.watch(root),
        tree.relay(root, SpectatorRelayConfig::default()),
    );
    let was_asked = |tree: &mut Tree| {
        let wanted = ClientEvent::SnapshotWanted;
        (1..=2).any(|player| tree.viewer(player).events.contains(&wanted))
    };
    tree.run(300);
    // It requests a snapshot each second, as a relay does.
    for second in 1..=12 {
        let now = tree.now;
        let arrival = Arrival::from(peer(child));
        tree.as_relay(root)
            .handle_datagram(now, arrival, &mut [0x0b]);
        tree.run(300 + 60 * second);
    }
    assert!(!was_asked(&mut tree));
    let stats = tree.as_relay(root).stats().children;
    assert_eq!((stats.snapshots_begun, stats.dropped_malformed), (0, 12));
    tree.assert_saw(child, 1_000);
    // A peer admitted as a relay may request one.
    let now = tree.now;
    let arrival = Arrival::from(peer(branch));
    tree.as_relay(root)
        .handle_datagram(now, arrival, &mut [0x0b]);
    tree.run(1_080);
    assert!(was_asked(&mut tree));
}

#[test]
fn the_end_of_the_match_ends_all_relays_and_spectators() {
    let mut tree = Tree::new(Seed::from_number(6), config(2), Link::lossy(5));
    let root = tree.relay(SERVER, SpectatorRelayConfig::default());
    let node = tree.watch(root);
    tree.run(100);
    tree.server.close(tree.now);
    tree.run_for(Duration::from_secs(1));
    let ended = ClientEvent::Closed(CloseReason::Ended);
    assert_eq!(tree.viewer(node).events.last(), Some(&ended));
    let ended = SpectatorRelayEvent::Closed(CloseReason::Ended);
    assert_eq!(relay_events(&tree, root).last(), Some(&ended));
    let now = tree.now;
    let relay = tree.as_relay(root);
    assert_eq!((relay.phase(), relay.poll_timeout()), (Phase::Closed, None));
    assert_eq!(relay.watch(now, PeerId(7)), Err(JoinError::Closed));
}

#[test]
fn a_leaving_spectator_relay_notifies_both_sides() {
    let mut tree = Tree::new(Seed::from_number(7), config(2), Link::lossy(5));
    let root = tree.relay(SERVER, SpectatorRelayConfig::default());
    let node = tree.watch(root);
    tree.run(100);
    let now = tree.now;
    tree.as_relay(root).close(now);
    tree.run_for(Duration::from_secs(1));
    assert_eq!(tree.server.spectator_count(), 0);
    let removed = ClientEvent::Closed(CloseReason::Removed);
    assert_eq!(tree.viewer(node).events.last(), Some(&removed));
    assert_eq!(tree.as_relay(root).poll_timeout(), None);
}

/// A welcome for a spectator of a match of `seats` pads.
fn welcome(seats: u8, own: [u8; 2]) -> Vec<u8> {
    let mut out = vec![0x81, 2, 0, 0, seats, own[0], own[1], 0, 16];
    out.extend_from_slice(&16_666_666_u32.to_be_bytes());
    out.extend_from_slice(&[6, 6, 4, 1]);
    out.extend_from_slice(&MATCH.0);
    out
}

fn give(relay: &mut SpectatorRelay, now: Instant, from: PeerId, datagram: &[u8]) {
    relay.handle_datagram(now, Arrival::from(from), &mut datagram.to_vec());
}

#[test]
fn a_spectator_relay_holds_no_more_than_configured() {
    let now = Instant::from_millis(1);
    let relay = |config| SpectatorRelay::new(config, UP, Seed::from_number(1), now);
    let refusal = |seats: u8, change: fn(&mut SpectatorRelayConfig)| {
        let mut config = SpectatorRelayConfig::default();
        change(&mut config);
        let mut relay = relay(config);
        give(&mut relay, now, UP, &welcome(seats, [0xff; 2]));
        let is_refused = matches!(relay.poll_event(), Some(SpectatorRelayEvent::Refused(_)));
        assert!(relay.memory_len() < 1_280 * 400 + 10_000);
        is_refused
    };
    assert!(!refusal(64, |_| {}));
    assert!(refusal(65, |_| {}));
    assert!(refusal(3, |config| config.seats_max = 2));
    assert!(refusal(8, |config| config.bundle_len_max = 20));
    assert!(refusal(8, |config| config.datagram_len_max = 20));
    let too_large = SpectatorRelayEvent::Refused(Refusal::TooLarge { seats: 65 });
    let mut whole = relay(SpectatorRelayConfig::default());
    give(&mut whole, now, UP, &welcome(65, [0xff; 2]));
    assert_eq!(whole.poll_event(), Some(too_large));
    // The welcome gives a seat.
    let mut seated = relay(SpectatorRelayConfig::default());
    give(&mut seated, now, UP, &welcome(2, [0, 1]));
    assert_eq!(
        (seated.poll_event(), seated.stats().dropped_malformed),
        (None, 1)
    );
    let mut config = SpectatorRelayConfig::default();
    config.children_max = 1;
    config.ready_timeout = Duration::from_secs(2);
    let mut relay = relay(config);
    assert_eq!(relay.watch(now, UP), Err(JoinError::PeerTaken));
    assert_eq!(relay.watch(now, PeerId(1)), Ok(()));
    assert_eq!(relay.watch(now, PeerId(2)), Err(JoinError::Full));
    relay.handle_timeout(Instant::from_millis(2_001));
    let (peer, reason) = (PeerId(1), LeaveReason::NotReady);
    assert_eq!(
        relay.poll_event(),
        Some(SpectatorRelayEvent::ChildLeft { peer, reason })
    );
}

#[test]
fn ls_10_a_hostile_server_costs_a_relay_one_chain_and_one_snapshot() {
    let now = Instant::from_millis(1);
    let mut config = SpectatorRelayConfig::default();
    config.snapshot_len_max = 10_000;
    config.transfer.datagram_len_max = 1_100;
    config.catch_up_rate = 1_000;
    config.catch_up_burst = 2_000;
    let mut relay = SpectatorRelay::new(config, UP, Seed::from_number(1), now);
    give(&mut relay, now, UP, &welcome(2, [0xff; 2]));
    relay.watch(now, PeerId(1)).unwrap();
    give(&mut relay, now, PeerId(1), &[0x01, 2, 0, 0, 0, 0]);
    let mut generator = Seed::from_number(9).generator(0);
    let mut buf = Vec::with_capacity(2_000);
    let (mut at, mut bytes) = (now, held());
    for round in 0..40_000_u64 {
        at = Instant::from_millis(1 + round);
        let len = usize::try_from(generator.below(40)).unwrap();
        let mut datagram: Vec<_> = (0..len)
            .map(|_| u8::try_from(generator.below(256)).unwrap())
            .collect();
        let kinds = [0x82, 0x83, 0x87, 0x81, 0x8b, 0x01, 0x02, 0x05, 0x0b];
        let kind = kinds[usize::try_from(generator.below(9)).unwrap()];
        if let Some(first) = datagram.first_mut() {
            *first = kind;
        }
        if kind == 0x82 && datagram.len() > 6 {
            // Ticks near the first, in which nothing changes.
            datagram[4] = 0;
            datagram[6..].fill(0x30);
        }
        let from = if kind < 0x80 { PeerId(1) } else { UP };
        give(&mut relay, at, from, &datagram);
        relay.handle_timeout(at);
        while relay.poll_transmit(at, &mut buf).is_some() {
            assert!(buf.len() <= 1_100);
            buf.clear();
        }
        while relay.poll_event().is_some() {}
        if round == 20_000 {
            bytes = held();
        }
    }
    assert!(held() - bytes < 60_000, "{}", held() - bytes);
    assert!(relay.stats().bundles_early > 0 && relay.stats().dropped_malformed > 1_000);
    let unknown = relay.stats().dropped_unknown_peer;
    give(&mut relay, at, PeerId(55), &[0x02, 0, 0]);
    assert_eq!(relay.stats().dropped_unknown_peer, unknown + 1);
}

#[test]
fn ls_9_a_relay_allocates_nothing() {
    let now = Instant::from_millis(1);
    let mut relay = SpectatorRelay::new(
        SpectatorRelayConfig::default(),
        UP,
        Seed::from_number(1),
        now,
    );
    give(&mut relay, now, UP, &welcome(2, [0xff; 2]));
    for child in 0..30 {
        relay.watch(now, PeerId(child)).unwrap();
        give(&mut relay, now, PeerId(child), &[0x01, 2, 0, 0, 0, 0]);
    }
    let mut buf = Vec::with_capacity(2_000);
    let mut turns = vec![0x82, 0, 0, 0x80, 0, 0, 0x30, 0x30, 0x30, 0x30];
    let (mut allocated, mut sent) = (0, 0);
    for tick in 0..3_000_u32 {
        let at = Instant::from_millis(17 * u64::from(tick) + 20);
        let low = tick.to_be_bytes();
        turns[4..6].copy_from_slice(&low[2..]);
        let before = allocations();
        let arrival = Arrival::from(UP);
        relay.handle_datagram(at, arrival, &mut turns);
        relay.handle_timeout(at);
        while relay.poll_transmit(at, &mut buf).is_some() {
            sent += 1;
            buf.clear();
        }
        let low = (tick + 4).to_be_bytes();
        for child in (tick % 4..30).step_by(4) {
            let mut report = [0x02, low[2], low[3], 0x70];
            relay.handle_datagram(at, Arrival::from(PeerId(child)), &mut report);
        }
        while relay.poll_event().is_some() {}
        if tick > 1_000 {
            allocated += allocations() - before;
        }
    }
    assert_eq!(allocated, 0);
    assert!(sent > 30 * 2_990, "{sent}");
    assert_eq!(relay.stats().children.dropped_ack, 0);
}

//! Invalid set-ups: relays in a loop, clocks with a large error, contradicting snapshots, and a
//! lying relay.

use core::time::Duration;

use lockstep::{
    CloseReason, InputDelay, Origin, PeerId, Recovery, ServerEvent, SnapshotSource, SpectatorRelay,
    SpectatorRelayConfig,
};
use wire::{Arrival, Instant, Seat, Seed};

use crate::snapshots::{Harness, LATE, is_desync};
use crate::tree::{SERVER, Tree};
use crate::world::{Link, MATCH, World, config, pad};

/// Two relays, each of which is the other's parent.
struct Ring {
    relays: [SpectatorRelay; 2],
    now: Instant,
    /// Datagrams between the two relays.
    sent: u32,
    /// Datagrams to a spectator of the first relay.
    shown: Vec<Vec<u8>>,
}

/// Each relay's id for the other, as parent and as child.
const ABOVE: PeerId = PeerId(0);
const BELOW: PeerId = PeerId(1);
/// A spectator of the first relay.
const CHILD: PeerId = PeerId(2);

impl Ring {
    /// Each has received `ticks` before they are connected in a loop.
    fn new(ticks: [u32; 2]) -> Self {
        let now = Instant::from_millis(1);
        let mut welcome = vec![0x81, 2, 0, 0, 2, 0xff, 0xff, 0, 16];
        welcome.extend_from_slice(&16_666_666_u32.to_be_bytes());
        welcome.extend_from_slice(&[6, 6, 4, 1]);
        welcome.extend_from_slice(&MATCH.0);
        let relays = ticks.map(|ticks| {
            let config = SpectatorRelayConfig::default();
            let mut relay = SpectatorRelay::new(config, ABOVE, Seed::from_number(1), now);
            relay.handle_datagram(now, Arrival::from(ABOVE), &mut welcome.clone());
            for tick in 0..ticks {
                let [.., high, low] = tick.to_be_bytes();
                // A tick in which no seat changes.
                let mut turns = [0x82, 0, 0, 0x80, high, low, 0x30];
                relay.handle_datagram(now, Arrival::from(ABOVE), &mut turns);
            }
            assert_eq!(relay.ticks_confirmed(), ticks);
            relay.reconnect(now, ABOVE);
            relay.watch_as_relay(now, BELOW).unwrap();
            relay
        });
        Self {
            relays,
            now,
            sent: 0,
            shown: Vec::new(),
        }
    }

    fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now += Duration::from_millis(5);
            for index in 0..2 {
                self.relays[index].handle_timeout(self.now);
                let mut buf = Vec::new();
                while let Some(to) = self.relays[index].poll_transmit(self.now, &mut buf) {
                    let from = if to.destination == ABOVE {
                        BELOW
                    } else {
                        ABOVE
                    };
                    if to.destination == CHILD {
                        self.shown.push(buf.clone());
                    } else {
                        self.sent += 1;
                        let other = &mut self.relays[1 - index];
                        other.handle_datagram(self.now, Arrival::from(from), &mut buf);
                    }
                    buf.clear();
                }
            }
        }
    }
}

/// Datagrams that two relays send per second if there is nothing to forward.
const REPORTS: u32 = 30;

#[test]
fn ls_10_relays_in_a_loop_send_no_more_than_others() {
    for ticks in [[100, 100], [100, 60], [0, 100], [1_000, 10], [2_000, 2_000]] {
        let mut ring = Ring::new(ticks);
        ring.run_for(Duration::from_secs(60));
        let sent = ring.sent;
        ring.run_for(Duration::from_secs(60));
        let steady = ring.sent - sent;
        assert!(steady <= 60 * REPORTS, "{ticks:?}: {sent}, {steady}");
        assert!(sent <= 3 * 60 * REPORTS, "{ticks:?}: {sent}");
        for relay in &ring.relays {
            let most = ticks[0].max(ticks[1]);
            assert!(relay.ticks_confirmed() <= most, "nothing is made up");
        }
    }
}

#[test]
fn ls_10_a_snapshot_requested_in_a_loop_blocks_no_other() {
    let mut ring = Ring::new([2_000, 2_000]);
    let now = ring.now;
    ring.relays[0].watch(now, CHILD).unwrap();
    let ready = &mut [0x01, 2, 0, 0, 0, 0];
    ring.relays[0].handle_datagram(now, Arrival::from(CHILD), ready);
    ring.run_for(Duration::from_secs(22));
    let bye = [0x84, CloseReason::Behind.code()];
    assert!(ring.shown.iter().any(|datagram| datagram == &bye));
    // The relays keep requesting a snapshot from each other.
    let sent = ring.sent;
    ring.run_for(Duration::from_secs(60));
    let said = ring.sent - sent;
    assert!(said <= 60 * (REPORTS + 4), "{said}");
    let memory = ring.relays[0].memory_len();
    ring.run_for(Duration::from_secs(60));
    assert_eq!(ring.relays[0].memory_len(), memory);
}

#[test]
fn ls_6_a_client_with_a_clock_10_percent_off_affects_itself_only() {
    for drift_ppm in [-100_000, 100_000] {
        let mut config = config(3);
        config.input_delay = InputDelay::adaptive(4, 40).unwrap();
        let mut world = World::<u16>::new(70, config, Link::lossy(0), pad);
        world.players[2].drift_ppm = drift_ppm;
        world.run_for(Duration::from_secs(40));
        let closed = world.server.ticks_closed();
        assert!((2_380..=2_400).contains(&closed), "{closed}");
        for player in &world.players[..2] {
            let late = player.own[600..]
                .iter()
                .filter(|(_, origin)| *origin == Origin::Substituted);
            assert_eq!(late.count(), 0);
            assert_eq!(player.machine.stats().clock_jumps, 0);
        }
        // It sees the same match, and some of its inputs count: its clock follows at 2 %, and
        // jumps.
        let (one, odd) = (&world.players[0], &world.players[2]);
        let len = one.states.len().min(odd.states.len());
        assert!(len > 2_350 && one.states[..len] == odd.states[..len]);
        let counted = odd.own[1_200..]
            .iter()
            .filter(|(_, origin)| *origin == Origin::Confirmed);
        let counted = counted.count() * 100 / (odd.own.len() - 1_200);
        eprintln!("{drift_ppm} ppm: {counted} % of its inputs count");
        assert!(counted >= 30, "{drift_ppm}: {counted} %");
    }
}

#[test]
fn ls_14_two_contradicting_donors_are_both_detected() {
    let config = {
        let mut config = config(4);
        config.snapshots = SnapshotSource::Players;
        config.recovery = Recovery::Reload;
        config
    };
    let mut harness = Harness::with_config(Seed::from_number(71), config, Link::lossy(1));
    harness.run(LATE);
    harness.liars = vec![0, 1];
    harness.world.rejoin(3);
    harness.run(LATE + 600);
    let refuted = |donor| {
        harness.count(|event| {
            *event
                == ServerEvent::SnapshotRefuted {
                    donor: Seat(donor),
                    seat: Seat(3),
                }
        })
    };
    assert_eq!((refuted(0), refuted(1), refuted(2)), (1, 1, 0));
    assert_eq!(harness.count(is_desync), 0);
    let (own, others) = (
        &harness.world.players[3].states,
        &harness.world.players[2].states,
    );
    let len = own.len().min(others.len());
    assert!(len > places(LATE + 550) && own[len - 100..len] == others[len - 100..len]);
}

fn places(tick: u32) -> usize {
    usize::try_from(tick).unwrap()
}

#[test]
fn ls_1_a_lying_relay_affects_only_its_own_subtree() {
    let mut tree = Tree::new(Seed::from_number(72), config(2), Link::lossy(2));
    let mut levels = vec![tree.relay(SERVER, SpectatorRelayConfig::default())];
    for _ in 0..4 {
        let parent = *levels.last().unwrap();
        levels.push(tree.relay(parent, SpectatorRelayConfig::default()));
    }
    let early: Vec<_> = levels.iter().map(|relay| tree.watch(*relay)).collect();
    tree.run(LATE);
    // With a snapshot that all levels forward.
    let late = tree.watch(levels[4]);
    tree.run(LATE + 500);
    for node in early.iter().chain([&late]) {
        tree.assert_saw(*node, LATE + 420);
    }
    tree.byzantine = Some(levels[2]);
    let begun = LATE + 500;
    tree.run(LATE + 1_000);
    for node in &early[..2] {
        tree.assert_saw(*node, LATE + 930);
    }
    // Its children see a different match from then on, or nothing.
    for node in early[2..].iter().chain([&late]) {
        let truth = tree.truth.clone();
        let states = &tree.viewer(*node).states;
        let is_true = |tick: u32| states.get(&tick) == truth.get(places(tick));
        assert!((LATE + 300..begun - 80).all(is_true), "{node}");
        assert!(!(begun..LATE + 930).any(is_true), "{node}");
    }
    // A child that restarts with another relay sees the true match.
    for node in early[2..].iter().chain([&late]) {
        tree.nodes[*node].is_paused = true;
    }
    let anew = [tree.watch(levels[1]), tree.watch(levels[0])];
    tree.run(LATE + 1_400);
    for node in early[..2].iter().chain(&anew) {
        tree.assert_saw(*node, LATE + 1_330);
    }
    assert_eq!(tree.server.spectator_count(), 1);
    let is_bad = |event: &ServerEvent| matches!(event, ServerEvent::Desync { .. });
    assert!(!tree.events.iter().any(is_bad));
}

//! Traffic: bytes per second, copies, and the bound after an outage.

use core::time::Duration;

use lockstep::{InputDelay, Phase, ServerEvent};

use crate::world::{Link, World, config, pad, stick};

/// Payload bytes per second that a client sends and receives, over 30 s.
fn rates<I>(world: &mut World<I>) -> (u64, u64)
where
    I: lockstep::Input + Clone + PartialEq + core::fmt::Debug,
{
    world.run(300);
    let sent = |world: &World<I>| {
        let up: u64 = world
            .players
            .iter()
            .map(|p| p.machine.stats().bytes_sent)
            .sum();
        (up, world.server.stats().bytes_sent)
    };
    let before = sent(world);
    world.run_for(Duration::from_secs(30));
    let after = sent(world);
    let players = u64::try_from(world.players.len()).unwrap();
    (
        (after.0 - before.0) / 30 / players,
        (after.1 - before.1) / 30 / players,
    )
}

fn link(millis: u64, loss_percent: u32) -> Link {
    Link {
        latency: Duration::from_millis(millis),
        jitter: Duration::from_millis(1),
        loss: loss_percent * 10_000,
        duplicate: 0,
        corrupt: 0,
    }
}

#[test]
fn ls_g10_a_pad_of_eight_players_is_0_7_kb_up_and_1_6_kb_down() {
    let mut world = World::new(10, config(8), link(50, 2), pad);
    let (up, down) = rates(&mut world);
    assert!(up <= 700, "{up} B/s up, state hashes included");
    assert!(down <= 1_600, "{down} B/s down");
}

#[test]
fn ls_g11_a_stick_of_eight_players_is_2_kb_up_and_9_kb_down() {
    let mut config = config(8);
    config.input_delay = InputDelay::fixed(14).unwrap();
    let mut world = World::new(11, config, link(100, 2), stick);
    let (up, down) = rates(&mut world);
    assert!(up <= 2_000, "{up} B/s up");
    assert!(down <= 9_000, "{down} B/s down");
}

#[test]
fn ls_g12_64_players_fit_one_datagram_a_tick() {
    let mut world = World::new(12, config(64), link(50, 2), pad);
    let (_, down) = rates(&mut world);
    assert!(down <= 10_000, "{down} B/s down");
    assert!(world.longest <= 1_100, "{}", world.longest);
}

#[test]
fn ls_8_repair_is_bounded_under_any_loss() {
    let mut config = config(8);
    config.catch_up_rate = 12_000;
    config.catch_up_burst = 4_000;
    let mut world = World::new(13, config, link(50, 2), stick);
    world.run(200);
    let len_max = 8 + 4 * 45;
    // Half of the datagrams to player 0 are lost from now on, and at times all of them.
    world.links[0].loss = 500_000;
    for second in 0..10 {
        let start = world.now + Duration::from_millis(second * 1_000);
        world
            .outages
            .push((0, start, start + Duration::from_millis(400)));
    }
    let before = world.server.stats().bytes_sent;
    let ticks = world.server.ticks_closed();
    world.run_for(Duration::from_secs(10));
    let ticks = u64::from(world.server.ticks_closed() - ticks);
    let bytes = world.server.stats().bytes_sent - before;
    // Each player's share, plus the burst and 10 s of the rate for the one behind.
    let bound = ticks * 8 * len_max + 4_000 + 10 * 12_000;
    assert!(bytes <= bound, "{bytes} of {bound}");
    assert!(world.server.stats().catch_up_datagrams > 20);
    assert_eq!(
        world.server.stats().bundles_encoded,
        world.server.stats().ticks_closed,
        "once a tick, whatever the acknowledgements"
    );
    world.links[0].loss = 0;
    world.outages.clear();
    world.run_for(Duration::from_secs(2));
    let [hurt, other] = [0, 1].map(|index| world.players[index].states.len());
    assert!(hurt + 10 > other, "{hurt} {other}");
    let is_desync = |event: &ServerEvent| matches!(event, ServerEvent::Desync { .. });
    assert!(!world.server_events.iter().any(is_desync));
}

#[test]
fn ls_7_every_input_that_arrives_counts() {
    // Most round trips are lost: every tick that arrived once is used.
    let mut world = World::new(14, config(2), Link::lossy(40), pad);
    world.run(600);
    for player in &world.players {
        assert!(player.states.len() > 580, "{}", player.states.len());
        assert_eq!(player.machine.stats().bundles_early, 0);
        assert_eq!(player.machine.stats().dropped_window, 0);
    }
    assert_eq!(
        world.server.stats().dropped_reference,
        0,
        "no dead reference"
    );
    assert_eq!(world.server.stats().dropped_ack, 0);
}

#[test]
fn a_client_requests_a_gap_before_the_server_detects_it() {
    // The first ticks are lost, so no round trip is measured: by age alone it would take 433 ms.
    let mut link = Link::perfect();
    link.latency = Duration::from_millis(10);
    let mut world = World::new(15, config(2), link, pad);
    while world.server.phase() != Phase::Running {
        world.step();
    }
    let end = world.now + Duration::from_millis(120);
    world.outages.push((0, world.now, end));
    world.run(60);
    let healed = world.players[0].turned_at[0].saturating_since(end);
    // Turns, the report of the gap, and the lost ticks: three latencies and three waits for a tick.
    let bound = 3 * link.latency + Duration::from_nanos(3 * 16_666_667);
    assert!(healed <= bound, "{healed:?}");
}

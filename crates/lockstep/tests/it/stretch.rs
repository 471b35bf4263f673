//! Ticks are stretched for a player with a slow simulation.

use core::time::Duration;

use lockstep::{
    ClosePolicy, CloseReason, Config, InputDelay, LeaveReason, Origin, ServerEvent, SlowPolicy,
};
use netsim::{for_each_seed, test_site};
use wire::{Seat, Seed};

use crate::world::{Link, World, config, pad, peer, stick};

/// Four players; ticks may be longer by up to `percent_max` %, for up to `hold`.
fn stretching(percent_max: u8, hold: Duration) -> Config {
    let mut config = config(4);
    config.input_delay = InputDelay::adaptive(4, 30).unwrap();
    config.slow = SlowPolicy::Stretch { percent_max, hold };
    config
}

/// Runs for `span`. Returns the ticks closed in it, and the longest time between two turns of
/// player 0.
fn pace(world: &mut World<u16>, span: Duration) -> (u32, Duration) {
    let (closed, from) = (
        world.server.ticks_closed(),
        world.players[0].turned_at.len(),
    );
    world.run_for(span);
    let pairs = world.players[0].turned_at[from..].windows(2);
    let gaps = pairs.map(|pair| pair[1].saturating_since(pair[0]));
    (
        world.server.ticks_closed() - closed,
        gaps.max().unwrap_or_default(),
    )
}

/// The longer of the next two ticks, as player 0 sees them.
fn longest_tick(world: &mut World<u16>) -> Duration {
    let from = world.players[0].turned_at.len();
    while world.players[0].turned_at.len() < from + 3 {
        world.step();
    }
    let pairs = world.players[0].turned_at[from..].windows(2);
    let gaps = pairs.map(|pair| pair[1].saturating_since(pair[0]));
    gaps.max().unwrap()
}

fn substituted(world: &World<u16>, player: usize, from: usize) -> usize {
    let own = world.players[player].own[from..].iter();
    own.filter(|(_, origin)| *origin == Origin::Substituted)
        .count()
}

fn is_left(event: &ServerEvent) -> bool {
    matches!(event, ServerEvent::Left { .. })
}

#[test]
fn sim_ls_5_ticks_stretch_while_a_player_is_slow_and_all_stay_in_step() {
    for_each_seed(&test_site!(), 4, |seed| {
        let mut choices = seed.generator(60);
        let mut config = stretching(40, Duration::from_mins(5));
        let mut link = Link::lossy(1);
        if choices.chance(500_000) {
            let cap = Duration::from_millis(300);
            config.close = ClosePolicy::WaitAll { cap };
            link.loss = 0;
        }
        config.forward_inputs = choices.chance(500_000);
        let mut world = World::seeded(seed, config, link, pad);
        world.run_for(Duration::from_secs(10));
        assert_eq!(world.server.stats().ticks_stretched, 0);
        let usual = world.players.iter().map(|player| player.own.len()).min();
        let usual = usual.unwrap();
        // A step takes a fifth longer than a tick: the player manages 50 ticks per second.
        world.players[3].step.0 = Duration::from_millis(20);
        world.run_for(Duration::from_secs(30));
        let (closed, gap) = pace(&mut world, Duration::from_secs(20));
        assert!((980..=1_020).contains(&closed), "{closed}");
        // Two ticks and those in the next datagram, or five if four in a row are lost.
        let most = if link.loss == 0 { 60 } else { 120 };
        assert!(gap < Duration::from_millis(most), "{gap:?}");
        let lens = world.players.iter().map(|player| player.states.len());
        let (least, most) = (lens.clone().min().unwrap(), lens.max().unwrap());
        assert!(most - least < 60, "{least} {most}");
        // It is as fast as the others again.
        world.players[3].step.0 = Duration::ZERO;
        world.run_for(Duration::from_secs(40));
        let (closed, _) = pace(&mut world, Duration::from_secs(10));
        assert!((597..=602).contains(&closed), "{closed}");
        let longest = &world.players[0].states;
        for (index, player) in world.players.iter().enumerate() {
            let len = player.states.len().min(longest.len());
            assert!(player.states[..len] == longest[..len]);
            assert_eq!(player.machine.stats().clock_jumps, 0, "{index}");
            let late = substituted(&world, index, usual);
            assert!(late <= 12, "{index}: {late}");
        }
        assert!(!world.server_events.iter().any(is_left));
    });
}

#[test]
fn ls_10_no_player_delays_the_others_more_than_configured() {
    // A player with a stopped game, and one that falls further and further behind.
    for step in [Duration::from_secs(1_000), Duration::from_millis(40)] {
        let hold = Duration::from_secs(10);
        let mut world = World::new(61, stretching(25, hold), Link::lossy(0), pad);
        world.run_for(Duration::from_secs(5));
        world.players[3].step.0 = step;
        let (closed, _) = pace(&mut world, Duration::from_secs(9));
        assert!((450..=530).contains(&closed), "{closed}");
        assert!(!world.server_events.iter().any(is_left));
        world.run_for(Duration::from_secs(6));
        let left: Vec<_> = world.server_events.iter().filter(|e| is_left(e)).collect();
        let [ServerEvent::Left { seat, reason, .. }] = left[..] else {
            panic!("{left:?}");
        };
        assert_eq!((*seat, *reason), (Seat(3), LeaveReason::Slow));
        assert_eq!(world.server.spectator_count(), 1);
        // The tick length is normal again after 25 s, and no other player counts as slow.
        world.run_for(Duration::from_secs(26));
        let (closed, _) = pace(&mut world, Duration::from_secs(10));
        assert!((599..=601).contains(&closed), "{closed}");
        for player in &world.players[..3] {
            assert_eq!(player.machine.stats().clock_jumps, 0);
        }
        assert_eq!(world.server_events.iter().filter(|e| is_left(e)).count(), 1);
    }
}

#[test]
fn a_slow_player_in_a_match_without_spectators_is_removed() {
    let mut config = stretching(25, Duration::from_secs(3));
    config.spectators_max = 0;
    let mut world = World::new(62, config, Link::perfect(), pad);
    world.run_for(Duration::from_secs(2));
    world.players[1].is_frozen = true;
    world.run_for(Duration::from_secs(8));
    world.players[1].is_frozen = false;
    world.run_for(Duration::from_secs(1));
    let closed = lockstep::ClientEvent::Closed(CloseReason::Slow);
    assert_eq!(world.players[1].events.last(), Some(&closed));
}

#[test]
fn ls_10_a_silent_player_delays_no_other() {
    let hold = Duration::from_secs(60);
    let mut world = World::<u16>::new(67, stretching(40, hold), Link::perfect(), pad);
    world.run_for(Duration::from_secs(5));
    world.players[3].is_frozen = true;
    world.run_for(Duration::from_millis(1_500));
    // Its last report says that some turns wait.
    world.players[3].is_paused = true;
    world.run_for(Duration::from_millis(2_500));
    let before = longest_tick(&mut world);
    assert!(before > Duration::from_millis(17), "{before:?}");
    for _ in 0..4 {
        world.run_for(Duration::from_millis(2_500));
        let after = longest_tick(&mut world);
        assert!(after < before, "{before:?} {after:?}");
    }
    assert!(!world.server_events.iter().any(is_left));
}

#[test]
fn ls_10_a_player_that_left_while_lagging_stretches_no_tick() {
    let hold = Duration::from_secs(60);
    let mut world = World::<u16>::new(68, stretching(100, hold), Link::perfect(), pad);
    world.run_for(Duration::from_secs(5));
    world.players[3].is_frozen = true;
    world.run_for(Duration::from_millis(6_500));
    let before = longest_tick(&mut world);
    assert!(before > Duration::from_millis(19), "{before:?}");
    world.server.leave(world.now, peer(3));
    world.run_for(Duration::from_millis(1_500));
    let after = longest_tick(&mut world);
    assert!(after < before, "{before:?} {after:?}");
    world.run_for(Duration::from_secs(40));
    let (closed, _) = pace(&mut world, Duration::from_secs(10));
    assert!((599..=601).contains(&closed), "{closed}");
}

#[test]
fn ls_8_no_datagram_with_a_tick_length_exceeds_the_limit() {
    // Unused bytes of the fullest datagram.
    let mut room = u16::MAX;
    for (len_max, forwards) in (260..=310)
        .step_by(10)
        .zip([false, true].into_iter().cycle())
    {
        let mut config = stretching(40, Duration::from_mins(5));
        config.seats = 12;
        config.forward_inputs = forwards;
        config.datagram_len_max = len_max;
        let mut world = World::<u32>::new(70, config, Link::lossy(1), stick);
        world.run_for(Duration::from_secs(5));
        world.players[3].step.0 = Duration::from_millis(20);
        world.run_for(Duration::from_secs(10));
        let stretched = world.server.stats().ticks_stretched;
        assert!(stretched > 300, "{stretched}");
        // After the outage, the missing ticks fill datagrams.
        let back = world.now + Duration::from_secs(2);
        world.outages.push((0, world.now, back));
        world.longest = 0;
        world.run_for(Duration::from_secs(5));
        assert!(world.server.stats().ticks_stretched > stretched + 200);
        let longest = u16::try_from(world.longest).unwrap();
        assert!(longest <= len_max, "{longest} of {len_max}");
        room = room.min(len_max - longest);
    }
    // The stretch takes three bytes.
    assert!(room < 3, "{room}");
}

#[test]
fn ls_10_a_removed_player_stretches_no_tick() {
    let hold = Duration::from_secs(5);
    let mut world = World::<u16>::new(69, stretching(100, hold), Link::perfect(), pad);
    world.run_for(Duration::from_secs(5));
    world.players[3].is_frozen = true;
    let mut before = Duration::ZERO;
    while !world.server_events.iter().any(is_left) {
        before = longest_tick(&mut world);
    }
    for _ in 0..20 {
        let after = longest_tick(&mut world);
        assert!(after <= before, "{before:?} {after:?}");
    }
}

#[test]
fn a_short_pause_stretches_no_tick() {
    let config = stretching(40, Duration::from_secs(60));
    let mut world = World::<u16>::seeded(Seed::from_number(63), config, Link::lossy(1), pad);
    for _ in 0..5 {
        world.run_for(Duration::from_secs(2));
        world.players[2].is_frozen = true;
        world.run_for(Duration::from_millis(400));
        world.players[2].is_frozen = false;
    }
    assert_eq!(world.server.stats().ticks_stretched, 0);
}

/// Player 3 is behind for `behind` seconds, and keeps up for `through` seconds.
fn simulate_slowly(world: &mut World<u16>, behind: u64, through: u64) {
    world.players[3].is_frozen = true;
    world.run_for(Duration::from_secs(behind));
    world.players[3].is_frozen = false;
    world.run_for(Duration::from_secs(through));
}

#[test]
fn ls_10_an_occasionally_slow_player_delays_no_longer_than_a_slow_one() {
    let hold = Duration::from_secs(20);
    for (behind, through) in [(8, 40), (2, 4)] {
        let mut world = World::<u16>::new(64, stretching(40, hold), Link::lossy(1), pad);
        world.run_for(Duration::from_secs(5));
        for _ in 0..150 / (behind + through) {
            simulate_slowly(&mut world, behind, through);
        }
        world.run_for(Duration::from_secs(50));
        let left = world.server_events.iter().filter(|event| is_left(event));
        assert_eq!(left.count(), 1, "{behind} {through}");
        // The longest permitted time, and the time to return to normal.
        let stretched = world.server.stats().ticks_stretched;
        assert!(
            stretched <= 60 * (20 + 40),
            "{behind} {through}: {stretched}"
        );
    }
}

#[test]
fn ls_10_a_new_player_on_a_slow_players_seat_is_not_removed() {
    let hold = Duration::from_secs(8);
    let mut world = World::<u16>::new(65, stretching(40, hold), Link::lossy(1), pad);
    world.run_for(Duration::from_secs(5));
    simulate_slowly(&mut world, 8, 0);
    assert!(!world.server_events.iter().any(is_left));
    world.server.leave(world.now, peer(3));
    world.rejoin(3);
    world.run_for(Duration::from_secs(40));
    assert!(world.server.stats().ticks_stretched > 600);
    let left = world.server_events.iter().filter_map(|event| {
        if let ServerEvent::Left { reason, .. } = event {
            Some(*reason)
        } else {
            None
        }
    });
    let reasons: Vec<_> = left.collect();
    assert_eq!(reasons, [LeaveReason::Removed]);
    assert!(world.players[3].states.len() > 2_000);
}

#[test]
fn a_pause_in_a_stretched_match_speeds_up_no_player() {
    for pause in [Duration::from_secs(1), Duration::from_hours(1)] {
        let mut config = stretching(40, Duration::from_mins(5));
        let cap = Duration::from_millis(200);
        config.close = ClosePolicy::Quorum { seats: 3, cap };
        let mut world = World::<u16>::new(66, config, Link::lossy(1), pad);
        world.run_for(Duration::from_secs(5));
        world.players[3].step.0 = Duration::from_millis(20);
        world.run_for(Duration::from_secs(20));
        world.now += pause;
        let (closed, _) = pace(&mut world, Duration::from_secs(10));
        assert!((470..=560).contains(&closed), "{closed}");
        world.players[3].step.0 = Duration::ZERO;
        world.run_for(Duration::from_secs(5));
        let longest = &world.players[0].states;
        for player in &world.players {
            let len = player.states.len().min(longest.len());
            assert!(len + 60 > longest.len() && player.states[..len] == longest[..len]);
        }
        assert!(!world.server_events.iter().any(is_left));
    }
}

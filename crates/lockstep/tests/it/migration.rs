//! The host is killed, paused, leaves or is cut off; the others continue the match.

use core::time::Duration;

use lockstep::{
    ClientConfig, ClientPeer, CloseReason, HostedClose, HostedEvent, JoinError, LeaveReason,
    Origin, PeerId, Phase,
};
use netsim::{for_each_seed, test_site};
use wire::{Arrival, Generator, Seat, Seed};

use crate::hosted_world::{HostedWorld, hosted, others};
use crate::world::{Link, pad, seat};

/// A random link, up to a bad one.
fn any_link(generator: &mut Generator) -> Link {
    Link {
        latency: Duration::from_millis(generator.below(60)),
        jitter: Duration::from_millis(generator.below(30)),
        loss: u32::try_from(generator.below(100_000)).unwrap(),
        duplicate: 20_000,
        corrupt: 0,
    }
}

/// A match of `seats` with any first host, in lockstep or with rollback, over any links and clocks.
pub(crate) fn any_world(seed: Seed, generator: &mut Generator, seats: u64) -> HostedWorld<u16> {
    let mut config = hosted(
        u16::try_from(seats).unwrap(),
        u16::try_from(generator.below(seats)).unwrap(),
    );
    config.client.window = u8::try_from(generator.below(2) * 9).unwrap();
    let mut world = HostedWorld::new(seed, &config, Link::perfect(), pad);
    for row in &mut world.links {
        for link in row {
            *link = any_link(generator);
        }
    }
    for player in &mut world.players {
        player.drift_ppm = i64::try_from(generator.below(401)).unwrap() - 200;
    }
    world
}

/// Whether `side` may continue without the others: more than half, or half with seat 0.
pub(crate) fn is_enough(side: &[usize], count: usize) -> bool {
    side.len() * 2 > count || (side.len() * 2 == count && side.contains(&0))
}

fn millis(generator: &mut Generator, low: u64, high: u64) -> Duration {
    Duration::from_millis(generator.between(low, high))
}

#[test]
fn sim_ls_16_killing_the_host_at_any_tick_keeps_agreement_and_finality() {
    for_each_seed(&test_site!(), 60, |seed| {
        let mut generator = seed.generator(30);
        let count = usize::try_from(generator.between(2, 6)).unwrap();
        let mut world = any_world(seed, &mut generator, count as u64);
        world.run_for(millis(&mut generator, 0, 4_000));
        let host = world.host();
        world.players[host].is_paused = true;
        let left = others(count, host);
        let before: Vec<_> = left
            .iter()
            .map(|index| world.players[*index].states.clone())
            .collect();
        let ticks = before.iter().map(Vec::len).max().unwrap();
        if !is_enough(&left, count) {
            // One of two cannot tell which is cut off: the lower seat continues.
            world.run_for(Duration::from_secs(21));
            assert_eq!(world.players[left[0]].closed(), Some(HostedClose::TooFew));
            return;
        }
        // A player that never received the first host waits for 10 s.
        world.run_until(&left, ticks + 120, Duration::from_secs(16));
        for (index, before) in left.iter().zip(&before) {
            let player = &world.players[*index];
            assert!(
                player.states.len() >= ticks + 120,
                "{}",
                player.states.len()
            );
            assert!(player.states[..before.len()] == before[..], "finality");
            assert_eq!(player.hosts().len(), 1);
            assert_eq!(player.hosts()[0].0, seat(left[0]));
            assert_eq!(player.machine.epoch(), 1);
            // The removed player's seat is absent, and all others play again.
            for (seat, (_, origin)) in player.turns.last().unwrap().iter().enumerate() {
                assert_eq!(*origin == Origin::Absent, seat == host, "{seat}");
            }
        }
        world.assert_progress(&left);
    });
}

#[test]
fn sim_ls_16_the_next_host_is_killed_too_at_once_or_later() {
    for_each_seed(&test_site!(), 40, |seed| {
        let mut generator = seed.generator(31);
        let count = usize::try_from(generator.between(5, 7)).unwrap();
        let mut world = any_world(seed, &mut generator, count as u64);
        world.run_for(millis(&mut generator, 300, 2_500));
        let host = world.host();
        world.players[host].is_paused = true;
        let next = others(count, host)[0];
        // The timeout is 1 s: the second loss is immediate, during the election, during takeover,
        // or later.
        if generator.chance(700_000) {
            world.run_for(millis(&mut generator, 0, 2_500));
        }
        world.players[next].is_paused = true;
        world.run_for(Duration::from_secs(6));
        let left: Vec<_> = (0..count)
            .filter(|index| ![host, next].contains(index))
            .collect();
        world.assert_progress(&left);
        let player = &world.players[left[0]];
        assert_eq!(player.hosts().last().unwrap().0, seat(left[0]));
    });
}

#[test]
fn sim_ls_16_a_paused_or_partitioned_host_learns_of_its_removal() {
    for_each_seed(&test_site!(), 40, |seed| {
        let mut generator = seed.generator(32);
        let count = usize::try_from(generator.between(3, 6)).unwrap();
        let mut world = any_world(seed, &mut generator, count as u64);
        world.run_for(millis(&mut generator, 500, 2_500));
        let host = world.host();
        let left = others(count, host);
        let away = millis(&mut generator, 2_500, 6_000);
        if generator.chance(500_000) {
            world.players[host].is_paused = true;
            world.run_for(away);
            world.players[host].is_paused = false;
        } else {
            world.part(&[host], &left, away);
            // It closes ticks until its timeout, when it detects the silence.
            let ticks = world.players[host].states.len();
            world.run_for(away);
            let alone = world.players[host].states.len() - ticks;
            assert!(alone <= 60 + 12, "{alone} ticks");
        }
        world.run_for(Duration::from_secs(3));
        let closed = world.players[host].closed();
        let Some(HostedClose::Excluded { tick }) = closed else {
            panic!("{closed:?}");
        };
        // The others' first tick with another host is no earlier.
        assert!(tick <= world.players[left[0]].hosts()[0].1);
        world.assert_progress(&left);
    });
}

#[test]
fn sim_ls_16_a_short_pause_of_the_host_changes_nothing() {
    for_each_seed(&test_site!(), 20, |seed| {
        let mut generator = seed.generator(33);
        let count = usize::try_from(generator.between(2, 6)).unwrap();
        let mut world = any_world(seed, &mut generator, count as u64);
        world.run_for(Duration::from_secs(2));
        let host = world.host();
        world.players[host].is_paused = true;
        world.run_for(millis(&mut generator, 100, 800));
        world.players[host].is_paused = false;
        world.run_for(Duration::from_secs(2));
        let all: Vec<_> = (0..count).collect();
        world.assert_progress(&all);
        assert_eq!(world.players[host].machine.epoch(), 0);
    });
}

#[test]
fn sim_ls_16_one_way_outages_and_pauses_never_make_two_matches() {
    let (mut seeds, mut survived) = (0, 0);
    for_each_seed(&test_site!(), 60, |seed| {
        let mut generator = seed.generator(36);
        let count = usize::try_from(generator.between(3, 6)).unwrap();
        let mut world = any_world(seed, &mut generator, count as u64);
        world.run_for(Duration::from_secs(1));
        for _ in 0..generator.between(2, 14) {
            let mut any = || usize::try_from(generator.below(count as u64)).unwrap();
            let (from, to) = (any(), any());
            let start = world.now + Duration::from_millis(generator.below(5_000));
            let end = start + Duration::from_millis(generator.between(500, 9_000));
            world.outages.push((from, to, start, end));
            if generator.chance(500_000) {
                world.outages.push((to, from, start, end));
            }
        }
        for _ in 0..generator.below(3) {
            world.run_for(millis(&mut generator, 100, 2_000));
            let index = usize::try_from(generator.below(count as u64)).unwrap();
            world.players[index].is_paused = true;
            world.run_for(millis(&mut generator, 100, 4_000));
            world.players[index].is_paused = false;
        }
        if generator.chance(300_000) {
            let index = usize::try_from(generator.below(count as u64)).unwrap();
            let now = world.local(index);
            world.players[index].machine.leave(now, LeaveReason::Quit);
        }
        world.run_for(Duration::from_secs(30));
        seeds += 1;
        if world.assert_one_match() > 0 {
            survived += 1;
            let on = world.on();
            world.assert_progress(&on);
        }
    });
    eprintln!("of {seeds} matches {survived} went on");
    assert!(survived * 2 >= seeds || seeds < 20, "{survived} of {seeds}");
}

#[test]
fn ls_16_a_host_that_leaves_is_replaced_at_once() {
    for seats in 2..=6 {
        let mut world =
            HostedWorld::new(Seed::from_number(6), &hosted(seats, 0), Link::lossy(2), pad);
        world.run_for(Duration::from_secs(3));
        let now = world.local(0);
        world.players[0].machine.leave(now, LeaveReason::Quit);
        let before = world.players[1].states.len();
        world.run_for(Duration::from_secs(1));
        // A leave, a statement, a decision, a presence and a turn take 50 to 60 ms each.
        let made = world.players[1].states.len() - before;
        assert!(made >= 28, "{seats} players: {made} ticks");
        assert_eq!(world.players[0].machine.phase(), Phase::Closed);
        let left = others(seats.into(), 0);
        world.assert_progress(&left);
        let quit = HostedEvent::Left {
            seat: Seat(0),
            reason: LeaveReason::Quit,
        };
        for index in left {
            assert!(world.players[index].events.contains(&quit));
        }
    }
}

#[test]
fn ls_16_a_migration_takes_the_host_timeout_and_three_round_trips() {
    for (latency, loss) in [(10, 0), (50, 0), (50, 2), (100, 2)] {
        let mut gaps = Vec::new();
        for seed in 0..20 {
            let mut link = Link::lossy(loss);
            link.latency = Duration::from_millis(latency);
            let mut config = hosted(6, 0);
            config.server.input_delay = lockstep::InputDelay::fixed(15).unwrap();
            let mut world = HostedWorld::new(Seed::from_number(seed), &config, link, pad);
            world.run_for(Duration::from_millis(2_000 + seed * 7));
            world.players[0].is_paused = true;
            let killed_at = world.now;
            world.run_for(Duration::from_secs(4));
            for player in &world.players[1..] {
                let (_, tick) = player.hosts()[0];
                let first = player.turned_at[usize::try_from(tick.0).unwrap()];
                gaps.push(first.saturating_since(killed_at));
            }
        }
        gaps.sort();
        let (median, worst) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
        eprintln!("{latency} ms, {loss} %: median {median:?}, worst {worst:?}");
        // Suspicion, statement, presence and turn take four latencies; plus the host's last
        // datagram, and losses.
        let round_trip = Duration::from_millis(2 * (latency + 10));
        let least = Duration::from_secs(1) + Duration::from_millis(60);
        assert!(median <= least + round_trip * 3, "{median:?}");
        assert!(worst <= least + round_trip * 5, "{worst:?}");
    }
}

#[test]
fn ls_16_a_player_returns_after_its_own_link_was_down() {
    let mut world = HostedWorld::new(Seed::from_number(8), &hosted(4, 0), Link::lossy(2), pad);
    world.run_for(Duration::from_secs(2));
    world.part(&[2], &[0, 1, 3], Duration::from_secs(5));
    let before = world.players[1].states.len();
    world.run_for(Duration::from_secs(7));
    assert!(world.players[1].states.len() - before >= 400, "no stall");
    world.assert_progress(&[0, 1, 2, 3]);
    assert_eq!(world.players[1].machine.epoch(), 0);
}

#[test]
fn ls_16_a_removed_player_does_not_count_for_the_majority() {
    let mut world = HostedWorld::new(Seed::from_number(9), &hosted(5, 0), Link::lossy(2), pad);
    world.run_for(Duration::from_secs(2));
    for index in [3, 4] {
        world.players[index].is_paused = true;
    }
    // Two of five would be too few; after `player_timeout` they are two of three.
    world.run_for(Duration::from_secs(11));
    let members: Vec<_> = world.players[2].machine.members().collect();
    assert_eq!(members, [Seat(0), Seat(1), Seat(2)]);
    assert_eq!(world.players[2].hosts(), []);
    world.players[0].is_paused = true;
    world.run_for(Duration::from_secs(3));
    world.assert_progress(&[1, 2]);
    // A returning peer is notified.
    for index in [0, 3] {
        world.players[index].is_paused = false;
    }
    world.run_for(Duration::from_secs(2));
    for index in [0, 3] {
        let closed = world.players[index].closed();
        assert!(
            matches!(closed, Some(HostedClose::Excluded { .. })),
            "{index} {closed:?}"
        );
    }
    world.assert_progress(&[1, 2]);
}

#[test]
fn ls_16_the_next_host_fetches_what_it_lacks() {
    let mut world = HostedWorld::new(Seed::from_number(10), &hosted(4, 0), Link::lossy(5), pad);
    world.run_for(Duration::from_secs(2));
    // It receives nothing from the host for 8 s, and then the host stops.
    let (from, to) = (world.now, world.now + Duration::from_secs(60));
    world.outages.push((0, 1, from, to));
    world.run_for(Duration::from_secs(8));
    let lacks = world.players[2].states.len() - world.players[1].states.len();
    assert!(lacks > 400, "{lacks}");
    world.players[0].is_paused = true;
    world.run_for(Duration::from_secs(3));
    world.assert_progress(&[1, 2, 3]);
    let forwards: u64 = world.players[2..]
        .iter()
        .map(|player| player.machine.stats().forwards_sent)
        .sum();
    assert!((2..40).contains(&forwards), "{forwards}");
}

#[test]
fn ls_16_the_match_ends_for_all_when_its_host_ends_it() {
    let mut world = HostedWorld::new(Seed::from_number(11), &hosted(4, 2), Link::lossy(5), pad);
    world.run_for(Duration::from_secs(2));
    let now = world.local(2);
    world.players[2].machine.finish(now);
    world.run_for(Duration::from_secs(3));
    for player in &world.players {
        let ended = Some(HostedClose::Out(CloseReason::Ended));
        assert_eq!(player.closed(), ended);
        assert_eq!(player.hosts(), []);
        assert_eq!(player.machine.phase(), Phase::Closed);
        assert_eq!(player.machine.poll_timeout(), None);
    }
}

#[test]
fn ls_16_after_a_removal_the_others_continue() {
    let mut world = HostedWorld::new(Seed::from_number(12), &hosted(4, 0), Link::lossy(1), pad);
    world.run_for(Duration::from_secs(2));
    let now = world.local(0);
    world.players[0].machine.remove(now, Seat(3));
    world.run_for(Duration::from_secs(2));
    assert!(world.players[3].closed().is_some());
    world.assert_progress(&[0, 1, 2]);
    assert_eq!(world.players[1].hosts(), [], "the host stays");
}

#[test]
fn ls_16_a_new_player_takes_the_seat_of_a_lost_host() {
    let mut world = HostedWorld::new(Seed::from_number(13), &hosted(3, 0), Link::lossy(1), pad);
    world.run_for(Duration::from_secs(2));
    let new_player = PeerId(700);
    let now = world.local(1);
    let refused = world.players[1].machine.join(now, new_player, Seat(0));
    assert_eq!(refused, Err(JoinError::NotHost));
    world.players[0].is_paused = true;
    world.run_for(Duration::from_secs(3));
    let now = world.local(1);
    world.players[1]
        .machine
        .join(now, new_player, Seat(0))
        .unwrap();
    let seed = Seed::from_number(14);
    let mut client = ClientPeer::<u16>::new(ClientConfig::default(), PeerId(0), seed, now);
    let (mut turns, mut buf) = (Vec::new(), Vec::new());
    let end = world.now + Duration::from_secs(3);
    while world.now < end {
        world.step();
        let now = world.local(1);
        for mut datagram in world.strays.drain(..) {
            client.handle_datagram(now, Arrival::from(PeerId(0)), &mut datagram);
        }
        client.handle_timeout(now);
        client.submit(now, &7).ok();
        while client.poll_transmit(now, &mut buf).is_some() {
            let machine = &mut world.players[1].machine;
            machine.handle_datagram(now, Arrival::from(new_player), &mut buf);
            buf.clear();
        }
        while let Some(turn) = client.poll_turn(now) {
            let inputs = turn.inputs().map(|(_, input, origin)| (input, origin));
            turns.push(inputs.collect::<Vec<_>>());
        }
    }
    let theirs = &world.players[1].turns;
    let shared = turns.len().min(theirs.len());
    assert!(shared > 300 && turns[..shared] == theirs[..shared]);
    assert_eq!(turns[shared - 1][0], (7, Origin::Confirmed));
}

//! Worlds of pingers.

use std::time::Duration;

use netsim::trace::Step;
use netsim::{
    App, Chance, Handle, Host, Jitter, LinkConfig, Loss, NodeConfig, WallClock, World,
    for_each_seed, test_site,
};
use wire::{Instant, Machine, Seed, UnixTime};

use crate::pair::{A, B, LATENCY, Peer, address, answered, pair, pair_of, pair_with, peer, ping};
use crate::pinger::{Event, HEARTBEAT, Lookup, PATIENCE, Pinger};

#[test]
fn an_answer_takes_one_round_trip() {
    let (mut world, [a, _]) = pair(1);
    assert!(ping(&mut world, a, B));
    world
        .wait_for(PATIENCE, |world| !world[a].app.events.is_empty())
        .unwrap();
    assert_eq!(world.now(), Instant::ZERO + 2 * LATENCY);
    assert!(matches!(world[a].app.events[..], [(at, Event::Answered(..))] if at == world.now()));
}

#[test]
fn answers_that_are_late_are_overdue() {
    let (mut world, [a, b]) = pair(1);
    world.kill(b);
    ping(&mut world, a, B);
    let waited = world.wait_for(PATIENCE / 2, |world| !world[a].app.events.is_empty());
    assert_eq!(waited.unwrap_err().at, Instant::ZERO + PATIENCE / 2);
    world.run_for(PATIENCE / 2);
    assert!(matches!(
        world[a].app.events[..],
        [(_, Event::Unanswered(..))]
    ));
}

#[test]
fn equal_seeds_give_equal_traces_and_others_differ() {
    let run = |number| {
        let (mut world, peers) = pair(number);
        world.set_default_link(hostile_link());
        chat(&mut world, peers, 50);
        (world.trace().hash(), world.trace().count())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}

#[test]
fn the_trace_of_a_run_is_frozen() {
    // Equal on every platform. Changes with the link model, the pinger, or the order of events.
    let (mut world, peers) = pair(1);
    world.set_default_link(hostile_link());
    chat(&mut world, peers, 50);
    assert_eq!(format!("{:016x}", world.trace().hash()), "f939c26442055e8f");
}

#[test]
fn sim_no_question_is_answered_twice_on_a_bad_link() {
    for_each_seed(&test_site!(), 50, |seed| {
        let (mut world, peers) = pair_of(seed);
        world.set_default_link(hostile_link());
        let asked = chat(&mut world, peers, 30);
        world.run_for(PATIENCE);
        for peer in peers {
            let journal = &world[peer].app.events;
            let mut nonces: Vec<u64> = journal
                .iter()
                .filter_map(|(_, event)| nonce(event))
                .collect();
            nonces.sort_unstable();
            nonces.dedup();
            assert_eq!(nonces.len(), journal.len(), "one end for each question");
            assert_eq!(world[peer].machine.pending_len(), 0);
        }
        let ends: usize = peers.iter().map(|peer| world[*peer].app.events.len()).sum();
        assert_eq!(ends, asked);
    });
}

#[test]
fn a_stalled_node_handles_datagrams_before_timers() {
    let (mut world, [a, _]) = pair(1);
    ping(&mut world, a, B);
    world.run_for(LATENCY);
    world.stall(a, 5 * PATIENCE);
    world.run_for(4 * PATIENCE);
    assert!(world[a].app.events.is_empty(), "it does not run");
    world.run_for(2 * PATIENCE);
    let resumed = Instant::ZERO + LATENCY + 5 * PATIENCE;
    assert!(matches!(
        world[a].app.events[..],
        [(at, Event::Answered(..))] if at == resumed
    ));
}

#[test]
fn a_turn_takes_a_bounded_batch_before_the_timers() {
    let (mut world, [a, _]) = pair_with(
        Seed::from_number(1),
        NodeConfig::at(address(A)).with_batch(1),
    );
    ping(&mut world, a, B);
    ping(&mut world, a, B);
    world.run_for(LATENCY);
    world.stall(a, 5 * PATIENCE);
    world.run_for(6 * PATIENCE);
    let ends: Vec<bool> = world[a]
        .app
        .events
        .iter()
        .map(|(_, event)| matches!(event, Event::Answered(..)))
        .collect();
    assert_eq!(
        ends,
        [true, false],
        "the second answer came after the first batch's timers"
    );
}

#[test]
fn a_socket_buffer_is_bounded() {
    let config = NodeConfig::at(address(B)).with_socket_bytes(5 * 17);
    let mut world = World::new(Seed::from_number(1));
    let a = world.add(address(A), |now| peer(1, now));
    let b = world.add(config, |now| peer(2, now));
    world.stall(b, PATIENCE);
    for _ in 0..8 {
        ping(&mut world, a, B);
    }
    world.run_for(2 * PATIENCE);
    assert_eq!(world.socket_drops(b), 3);
    assert_eq!(
        answered(&world, a),
        0,
        "the answers came after the questions had expired"
    );
    assert_eq!(world.link_stats(b, a).delivered, 5);
}

#[test]
fn a_partition_cuts_both_directions_until_it_ends() {
    let (mut world, [a, b]) = pair(1);
    let delay = world.link(a, b).delay;
    world.partition(&[a.index()], &[b.index()]);
    ping(&mut world, a, B);
    ping(&mut world, b, A);
    world.run_for(2 * PATIENCE);
    assert_eq!((answered(&world, a), answered(&world, b)), (0, 0));
    assert_eq!(world.link_stats(a, b).partitioned, 1);
    world.heal(&[a.index()], &[b.index()]);
    ping(&mut world, a, B);
    world.run_for(PATIENCE);
    assert_eq!(answered(&world, a), 1);
    assert_eq!(world.link(a, b).delay, delay, "the rest of the link stayed");
}

#[test]
fn configured_links_do_not_follow_the_default() {
    let (mut world, [a, b]) = pair(1);
    let own = LinkConfig::default().with_delay(Duration::from_millis(1));
    world.set_link(a, b, own);
    world.set_default_link(LinkConfig::default().with_delay(Duration::from_millis(200)));
    ping(&mut world, a, B);
    world
        .wait_for(PATIENCE, |world| answered(world, a) == 1)
        .unwrap();
    assert_eq!(world.now(), Instant::from_millis(201));
}

#[test]
fn clocks_have_different_offsets_and_rates() {
    let offset = Duration::from_secs(1_000);
    let config = NodeConfig::at(address(A)).with_clock(offset, 50_000);
    let (mut world, [a, b]) = pair_with(Seed::from_number(1), config);
    ping(&mut world, a, B);
    world.kill(b);
    // The ping times out after a second of the node's own clock, which gains 5 %.
    let end = world.wait_for(PATIENCE, |world| !world[a].app.events.is_empty());
    assert_eq!(end.unwrap().as_nanos(), 952_380_953);
    assert_eq!(world[a].app.events[0].0, Instant::ZERO + offset + PATIENCE);

    world.run_until(Instant::from_millis(100_000));
    assert_eq!(world.local_now(a), Instant::from_millis(1_105_000));
    world.set_clock_drift(a, -50_000);
    world.run_until(Instant::from_millis(200_000));
    assert_eq!(world.local_now(a), Instant::from_millis(1_200_000));
    assert_eq!(world.local_now(b), world.now());
}

#[test]
fn wall_clocks_have_the_configured_error_and_advance() {
    let hour = Duration::from_secs(3_600);
    let (mut world, [a, b]) = pair_with(
        Seed::from_number(1),
        NodeConfig::at(address(A)).with_wall_clock(WallClock::Missing),
    );
    world.run_for(hour);
    assert_eq!(world[a].machine.unix(), None);
    world.set_wall_clock(a, WallClock::Ahead(hour));
    world.set_wall_clock(b, WallClock::Exact);
    world.step();
    world.step();
    assert_eq!(world[a].machine.unix(), Some(world.unix_now() + hour));
    assert_eq!(world[b].machine.unix(), Some(world.unix_now()));
    assert_eq!(world.unix_now(), UnixTime::from_secs(1_735_689_600 + 3_600));
}

#[test]
fn a_killed_node_loses_its_state_and_a_restarted_one_keeps_its_address() {
    let (mut world, [a, b]) = pair(1);
    assert!(world.kill(b));
    assert!(!world.kill(b));
    assert!(world.get(b).is_none());
    ping(&mut world, a, B);
    world.run_for(2 * PATIENCE);
    assert_eq!(answered(&world, a), 0);
    world.restart(b, |now| peer(3, now));
    ping(&mut world, a, B);
    world.run_for(PATIENCE);
    assert_eq!(answered(&world, a), 1);
    assert!(world[b].app.events.is_empty());
}

#[test]
fn a_node_has_several_addresses_and_moves() {
    let (second, third) = (address("10.0.1.2:7000"), address("10.0.2.2:7000"));
    let mut world = World::new(Seed::from_number(1));
    let a = world.add(address(A), |now| peer(1, now));
    let config = NodeConfig::at(address(B)).with_address(second);
    let b = world.add(config, |now| peer(2, now));
    ping(&mut world, a, "10.0.1.2:7000");
    world.run_for(PATIENCE);
    // The pinger leaves the source address to the system, which takes the first one.
    assert_eq!(answered(&world, a), 0);
    world.unbind_address(address(B));
    ping(&mut world, a, "10.0.1.2:7000");
    world.run_for(PATIENCE);
    assert_eq!(answered(&world, a), 1);
    world.unbind_address(second);
    world.bind_address(b, third);
    ping(&mut world, a, "10.0.1.2:7000");
    ping(&mut world, a, "10.0.2.2:7000");
    world.run_for(PATIENCE);
    assert_eq!(answered(&world, a), 2);
    assert!(
        world
            .trace()
            .lines()
            .any(|line| line.step == Step::Unroutable)
    );
}

#[test]
#[should_panic(expected = "10.0.0.1:7000 of NodeIndex(1) belongs to NodeIndex(0)")]
fn an_address_belongs_to_one_node() {
    let mut world = World::new(Seed::from_number(1));
    world.add(address(A), |now| peer(1, now));
    world.add(address(A), |now| peer(2, now));
}

#[test]
fn the_test_s_own_bytes_are_part_of_the_hash() {
    let (mut world, _) = pair(1);
    let before = world.trace().hash();
    world.trace_mut().mix(b"seen");
    assert_ne!(world.trace().hash(), before);
}

#[test]
fn the_log_keeps_the_newest_lines() {
    let (mut world, [a, _]) = pair(1);
    world.trace_mut().set_capacity(3);
    ping(&mut world, a, B);
    world.run_for(PATIENCE);
    let steps: Vec<Step> = world.trace().lines().map(|line| line.step).collect();
    assert_eq!(steps, [Step::Arrived, Step::Sent, Step::Arrived]);
    let line = world.trace().lines().last().unwrap().to_string();
    assert!(
        line.starts_with("60ms Arrived 10.0.0.2:7000 > 10.0.0.1:7000 17 B 02"),
        "{line}"
    );
}

#[test]
#[should_panic(expected = "its timers are due again")]
fn a_busy_timer_is_detected() {
    let mut world = World::new(Seed::from_number(1));
    let a = world.add(address(A), |now| {
        let machine = Pinger::new(Seed::from_number(1), now);
        Host::new(machine.with_fault(crate::pinger::Fault::BusyLoop), ())
    });
    world.apply(a, |node, now| node.machine.ping(now, address(B)));
    world.run_for(2 * HEARTBEAT);
}

#[test]
fn an_application_acts_on_events_commands_and_time() {
    let (mut world, [_, b]) = pair(1);
    let address_c = address("10.0.0.3:7000");
    let c = world.add(address_c, |now| {
        let machine = Pinger::new(Seed::from_number(3), now);
        Host::new(
            machine,
            Ticker {
                next: now,
                ticks: 0,
                found: 0,
            },
        )
    });
    world.run_until(Instant::from_millis(1_000));
    let ticker = &world[c].app;
    assert_eq!((ticker.ticks, ticker.found), (11, 11));
    assert_eq!(
        world.link_stats(c, b).sent,
        11,
        "asked for in the turn of its look-up"
    );
}

/// Looks up a name ten times per second, and pings the peer it found.
struct Ticker {
    next: Instant,
    ticks: u32,
    found: u32,
}

impl App<Pinger> for Ticker {
    fn on_event(&mut self, now: Instant, machine: &mut Pinger, event: Event) {
        if let Event::Found(_) = event {
            self.found += 1;
            machine.ping(now, address(B));
        }
    }

    fn on_command(
        &mut self,
        now: Instant,
        machine: &mut Pinger,
        id: wire::CommandId,
        _command: Lookup,
    ) {
        machine.handle_completed(now, id, 7);
    }

    fn on_timeout(&mut self, now: Instant, machine: &mut Pinger) {
        self.ticks += 1;
        self.next = now + Duration::from_millis(100);
        machine.look_up(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.next)
    }
}

/// Sends pings in both directions for a while, and returns their number.
fn chat(world: &mut World, [a, b]: [Handle<Peer>; 2], rounds: u32) -> usize {
    let mut asked = 0;
    for _ in 0..rounds {
        asked += usize::from(ping(world, a, B)) + usize::from(ping(world, b, A));
        world.run_for(Duration::from_millis(77));
    }
    asked
}

fn nonce(event: &Event) -> Option<u64> {
    match event {
        Event::Answered(_, nonce) | Event::Unanswered(_, nonce) => Some(*nonce),
        Event::Found(_) => None,
    }
}

fn hostile_link() -> LinkConfig {
    LinkConfig::default()
        .with_delay(LATENCY)
        .with_jitter(Jitter::Bell(Duration::from_millis(20)))
        .with_loss(Loss::Bernoulli(Chance::percent(20)))
        .with_reorder(Chance::percent(10), Duration::from_millis(60))
        .with_duplicate(Chance::percent(20))
        .with_corrupt(Chance::percent(10))
        .with_truncate(Chance::percent(5))
}

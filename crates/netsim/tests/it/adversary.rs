//! Adversaries that drop, change, replay and forge datagrams of a link.

use std::time::Duration;

use netsim::trace::{Line, Step};
use netsim::{Adversary, LinkConfig, Mutation, Verdict, for_each_seed, test_site};

use crate::pair::{A, B, LATENCY, address, answered, pair, pair_of, ping};
use crate::pinger::{PATIENCE, PING};

#[test]
fn an_interceptor_drops_delays_and_rewrites() {
    let (mut world, [a, b]) = pair(1);
    let mut count = 0;
    world.intercept(a, b, move |_now, datagram| {
        count += 1;
        match count {
            1 => Verdict::Drop,
            2 => Verdict::Delay(PATIENCE / 2),
            _ => {
                datagram.bytes.clear();
                Verdict::Pass
            }
        }
    });
    for _ in 0..3 {
        ping(&mut world, a, B);
    }
    world.run_for(PATIENCE / 2);
    assert_eq!(answered(&world, a), 0);
    world.run_for(PATIENCE / 4);
    assert_eq!(answered(&world, a), 1);
    assert_eq!(world[b].machine.stats.dropped, 1, "the empty one");
    world.release(a, b);
    ping(&mut world, a, B);
    world.run_for(PATIENCE);
    assert_eq!(answered(&world, a), 2);
}

#[test]
fn an_adversary_sees_what_a_link_carries_and_replays_it() {
    let (mut world, [a, b]) = pair(1);
    let tap = world.tap(a, b, 2);
    let mut adversary = Adversary::new(tap, world.generator(1));
    assert!(
        !adversary.replay(&mut world, Duration::ZERO),
        "nothing was seen"
    );
    for _ in 0..3 {
        ping(&mut world, a, B);
        world.run_for(PATIENCE);
    }
    let kinds: Vec<u8> = world
        .captured(tap)
        .iter()
        .map(|seen| seen.datagram.bytes[0])
        .collect();
    assert_eq!(kinds, [PING, PING], "the newest two, and no answers");

    let before = world.link_stats(b, a).sent;
    assert!(adversary.replay(&mut world, LATENCY));
    assert!(adversary.damage(&mut world, Mutation::Truncate, LATENCY));
    world.run_for(PATIENCE);
    assert_eq!(
        world.link_stats(b, a).sent,
        before + 1,
        "one whole question, one in part"
    );

    let victim = address("10.9.9.9:9");
    adversary.replay_from(&mut world, victim, LATENCY);
    world.run_for(PATIENCE);
    let answered_victim = |line: &Line| (line.destination, line.step) == (victim, Step::Unroutable);
    assert!(world.trace().lines().any(answered_victim));
}

#[test]
fn sim_no_forgery_is_accepted_as_an_answer() {
    for_each_seed(&test_site!(), 20, |seed| {
        let (mut world, [a, b]) = pair_of(seed);
        let tap = world.tap_all(64);
        let mut adversary = Adversary::new(tap, world.generator(1));
        world.set_link(a, b, LinkConfig::default().with_down());
        for _ in 0..200 {
            ping(&mut world, a, B);
            adversary.forge(&mut world, address(B), address(A), LATENCY);
            adversary.strike(&mut world);
            world.run_for(Duration::from_millis(10));
        }
        // B receives only replays, and answers those.
        assert_eq!(world.link_stats(a, b).delivered, 0);
        assert!(world.link_stats(b, a).sent > 0);
        assert!(answered(&world, a) <= usize::try_from(world.link_stats(b, a).sent).unwrap());
    });
}

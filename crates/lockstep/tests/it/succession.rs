//! What players keep, drop and request when another host takes over.

use core::time::Duration;

use lockstep::bits::{BitReader, BitWriter};
use lockstep::{HostedClose, HostedEvent, Input, Width};
use wire::{Generator, Seat, Seed};

use crate::hosted_world::{HostedWorld, hosted};
use crate::world::{Link, pad};

/// Commands of a strategy game: 32 bytes that change in each tick.
#[derive(Clone, Debug, Default, PartialEq)]
struct Commands([u64; 4]);

impl Input for Commands {
    const WIDTH: Width = Width::bits::<256>();

    fn write(&self, out: &mut BitWriter<'_>) {
        self.0.iter().for_each(|word| out.bits(*word, 64));
    }

    fn read(bits: &mut BitReader<'_>) -> Option<Self> {
        let mut words = [0; 4];
        for word in &mut words {
            *word = bits.bits(64).ok()?;
        }
        Some(Self(words))
    }
}

fn commands(generator: &mut Generator, _: &Commands) -> Commands {
    Commands(core::array::from_fn(|_| generator.next_u64()))
}

/// Steps that the last two of three players repeat: in the 4 s after the host stops, which include
/// one second of silence, and in the 3 s before.
fn made_again(seed: u64, window: u8) -> (u64, u64) {
    let mut config = hosted(3, 0);
    config.client.window = window;
    config.server.forward_inputs = true;
    // The inputs of other players arrive before their tick.
    let link = Link {
        latency: Duration::from_millis(5),
        ..Link::perfect()
    };
    let mut world = HostedWorld::new(Seed::from_number(seed), &config, link, |g, _| {
        u16::try_from(g.below(1 << 12)).unwrap()
    });
    world.run_for(Duration::from_secs(3));
    let count = |world: &HostedWorld<u16>| -> u64 {
        let again = world.players[1..].iter().map(|player| {
            let ticks = u64::try_from(player.states.len()).unwrap();
            player.machine.client().stats().steps - ticks
        });
        again.sum()
    };
    let first = count(&world);
    world.run_for(Duration::from_secs(3));
    let before = count(&world);
    world.players[0].is_paused = true;
    world.run_for(Duration::from_secs(4));
    let after = count(&world);
    world.assert_progress(&[1, 2]);
    (after - before, before - first)
}

#[test]
fn ls_16_predictions_from_a_former_hosts_ticks_are_dropped() {
    for window in [4, 9] {
        for seed in 0..4 {
            let (after, before) = made_again(seed, window);
            eprintln!("window {window}, seed {seed}: {before} steps made again, then {after}");
            // Each step simulated when the host stopped is repeated once. If predictions for the
            // old host's ticks were kept, hundreds more would be.
            assert!(after <= before + 2 * 2 * u64::from(window), "{after}");
        }
    }
}

#[test]
fn ls_16_a_next_host_that_fetches_for_long_is_not_replaced() {
    let mut link = Link::lossy(2);
    link.latency = Duration::from_millis(100);
    let mut world = HostedWorld::new(Seed::from_number(22), &hosted(4, 0), link, commands);
    world.run_for(Duration::from_secs(2));
    // It receives nothing from the host for 8 s, and then the host stops.
    let (from, to) = (world.now, world.now + Duration::from_secs(60));
    world.outages.push((0, 1, from, to));
    world.run_for(Duration::from_secs(8));
    let lacks = world.players[2].states.len() - world.players[1].states.len();
    assert!(lacks > 400, "{lacks}");
    world.players[0].is_paused = true;
    world.run_for(Duration::from_secs(3));
    assert_eq!(world.players[1].hosts().len(), 1, "it takes over");
    let since = world.now;
    while world.players[1].machine.server().is_none() && world.players[1].is_on() {
        world.step();
    }
    let took = world.now.saturating_since(since);
    eprintln!("{lacks} ticks in more than {took:?}");
    world.run_for(Duration::from_secs(3));
    world.assert_progress(&[1, 2, 3]);
    let forwards: u64 = world.players[2..]
        .iter()
        .map(|player| player.machine.stats().forwards_sent)
        .sum();
    eprintln!("{lacks} ticks in {forwards} datagrams");
    // One per eight ticks, and one per 40 ms for about 15 s.
    assert!(forwards < 500, "{forwards}");
}

/// Five players. The host, player 0, stops; player 4 reports it, and is paused for `span` before it
/// learns the outcome. Afterwards it has 3 s.
fn asleep_in_an_election(span: Duration) -> HostedWorld<u16> {
    let mut link = Link::perfect();
    link.latency = Duration::from_millis(20);
    let mut world = HostedWorld::new(Seed::from_number(23), &hosted(5, 0), link, pad);
    world.run_for(Duration::from_secs(2));
    world.players[0].is_paused = true;
    let lost = HostedEvent::HostLost { host: Seat(0) };
    while !world.players[4].events.contains(&lost) {
        world.step();
    }
    // Longer than the timeout for an answer, including datagrams in flight.
    world.part(&[4], &[1, 2, 3], Duration::from_millis(450));
    world.players[4].is_paused = true;
    world.run_for(Duration::from_millis(50));
    world.players[4].is_paused = false;
    world.run_for(Duration::from_millis(400));
    assert_eq!(world.players[4].hosts(), [], "it has heard of nothing");
    assert_eq!(world.players[1].hosts().len(), 1, "the others decided");
    world.players[4].is_paused = true;
    world.run_for(span);
    world.players[4].is_paused = false;
    world.run_for(Duration::from_secs(3));
    world
}

#[test]
fn ls_16_a_player_paused_during_an_election_rejoins() {
    let mut world = asleep_in_an_election(Duration::from_secs(4));
    world.assert_progress(&[1, 2, 3, 4]);
    assert_eq!(world.players[4].machine.epoch(), 1);
}

#[test]
fn ls_16_a_player_paused_during_an_election_is_notified_of_its_removal() {
    let mut world = asleep_in_an_election(Duration::from_secs(14));
    world.assert_progress(&[1, 2, 3]);
    let closed = world.players[4].closed();
    let next = world.players[1].hosts()[0].1;
    assert_eq!(closed, Some(HostedClose::Excluded { tick: next }));
}

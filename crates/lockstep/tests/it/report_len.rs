//! No datagram exceeds the documented length, for any input width and path latency.

use core::time::Duration;

use lockstep::bits::{BitReader, BitWriter};
use lockstep::{ClientConfig, Config, Input, InputDelay, Origin, ServerEvent, Width};
use netsim::{for_each_seed, test_site};
use wire::{Generator, Seed};

use super::world::{Link, World, config};

/// Longest datagram with the default configurations; docs/lockstep-protocol.md, Bounds.
const DATAGRAM_LEN_MAX: usize = 1_100;

#[derive(Clone, Debug, PartialEq)]
struct Wide<const BYTES: usize>([u8; BYTES]);

impl<const BYTES: usize> Default for Wide<BYTES> {
    fn default() -> Self {
        Self([0; BYTES])
    }
}

impl<const BYTES: usize> Input for Wide<BYTES> {
    #[expect(clippy::cast_possible_truncation, reason = "at most 2,048 bits")]
    const WIDTH: Width = match Width::new((BYTES * 8) as u16) {
        Some(width) => width,
        None => panic!("an input has up to 256 bytes"),
    };

    fn write(&self, out: &mut BitWriter<'_>) {
        for byte in self.0 {
            out.bits(byte.into(), 8);
        }
    }

    fn read(bits: &mut BitReader<'_>) -> Option<Self> {
        let mut bytes = [0; BYTES];
        for byte in &mut bytes {
            *byte = u8::try_from(bits.bits(8).ok()?).ok()?;
        }
        Some(Self(bytes))
    }
}

/// All bits change in every frame.
fn busy<const BYTES: usize>(generator: &mut Generator, _: &Wide<BYTES>) -> Wide<BYTES> {
    Wide(core::array::from_fn(|_| {
        u8::try_from(generator.below(256)).unwrap()
    }))
}

/// Some bytes change in one frame of two.
fn mixed<const BYTES: usize>(generator: &mut Generator, held: &Wide<BYTES>) -> Wide<BYTES> {
    let mut next = held.clone();
    if generator.chance(500_000) {
        for byte in &mut next.0 {
            if generator.chance(300_000) {
                *byte = u8::try_from(generator.below(256)).unwrap();
            }
        }
    }
    next
}

/// A delay that covers `latency` in both directions, and jitter.
fn delay_for(latency: u64) -> InputDelay {
    let ticks = (2 * latency).div_ceil(16) + 6;
    InputDelay::adaptive(2, u8::try_from(ticks.min(60)).unwrap()).unwrap()
}

fn link(latency: u64, loss: u32) -> Link {
    Link {
        latency: Duration::from_millis(latency),
        loss,
        ..Link::lossy(0)
    }
}

/// A match in which the last player has a one-way latency of `latency`.
fn play<const BYTES: usize>(
    seed: Seed,
    config: Config,
    latency: u64,
    client: &ClientConfig,
) -> World<Wide<BYTES>> {
    let mut generator = seed.generator(9);
    let inputs = if generator.chance(500_000) {
        busy::<BYTES>
    } else {
        mixed::<BYTES>
    };
    let mut world = World::seeded(seed, config, link(20, 20_000), inputs);
    world.set_client_config(client);
    *world.links.last_mut().unwrap() = link(latency, 20_000);
    world.run(240);
    world
}

#[test]
fn sim_no_datagram_is_longer_than_promised() {
    for_each_seed(&test_site!(), 24, |seed| {
        let mut generator = seed.generator(3);
        let latency = 5 + generator.below(400);
        let mut client = ClientConfig::default();
        client.window = u8::try_from(generator.below(3) * 8).unwrap();
        let most = [8, 6, 4, 3, 2];
        let width = usize::try_from(generator.below(5)).unwrap();
        let seats = 2 + u16::try_from(generator.below(most[width] - 1)).unwrap();
        let mut config = config(seats);
        config.input_delay = delay_for(latency);
        config.forward_inputs = generator.chance(500_000);
        let longest = match width {
            0 => play::<2>(seed, config, latency, &client).longest,
            1 => play::<16>(seed, config, latency, &client).longest,
            2 => play::<64>(seed, config, latency, &client).longest,
            3 => play::<128>(seed, config, latency, &client).longest,
            _ => play::<256>(seed, config, latency, &client).longest,
        };
        assert!(
            longest <= DATAGRAM_LEN_MAX,
            "{longest} bytes, width {width}, {latency} ms"
        );
    });
}

#[test]
fn a_client_keeps_to_an_announced_shorter_length() {
    for len_max in [0, 400, 700] {
        let mut client = ClientConfig::default();
        client.datagram_len_max = len_max;
        let mut config = config(2);
        config.input_delay = InputDelay::fixed(50).unwrap();
        config.datagram_len_max = 700;
        let world = play::<64>(Seed::from_number(5), config, 250, &client);
        assert!(world.longest <= 700, "{} bytes", world.longest);
        // The server's turns and the clients' reports fill their limits.
        let longest = world.longest_reports;
        let expected = usize::from(len_max.max(400));
        assert!(
            (expected * 2 / 3..=expected).contains(&longest),
            "{longest} bytes of {expected}"
        );
    }
}

/// On a path that carries no datagram longer than documented, the player with the long path stays
/// in the match, and its inputs count.
fn stays_in<const BYTES: usize>(input_delay: InputDelay, latency: u64, loss: u32) {
    for_each_seed(&test_site!(), 4, |seed| {
        let mut config = config(2);
        config.input_delay = input_delay;
        let mut world = World::seeded(seed, config, link(20, 0), busy::<BYTES>);
        world.mtu = DATAGRAM_LEN_MAX;
        *world.links.last_mut().unwrap() = link(latency, loss);
        world.run(600);
        assert!(world.longest <= DATAGRAM_LEN_MAX, "{}", world.longest);
        let left = |event: &&ServerEvent| matches!(event, ServerEvent::Left { .. });
        assert_eq!(world.server_events.iter().find(left), None);
        // The first ticks have no inputs, until the delay is adapted.
        let own = &world.players[1].own[120..];
        let confirmed = own
            .iter()
            .filter(|(_, origin)| *origin == Origin::Confirmed)
            .count();
        assert!(
            confirmed * 100 >= own.len() * 98,
            "{confirmed} of {} inputs count",
            own.len()
        );
    });
}

#[test]
fn sim_a_player_on_a_long_path_stays_in_a_match_of_512_bits() {
    // All inputs of the delay that the server has not acknowledged: over a hundred bytes more than
    // a datagram.
    stays_in::<64>(InputDelay::fixed(60).unwrap(), 250, 20_000);
}

#[test]
fn sim_a_player_on_a_long_path_stays_in_a_match_of_2048_bits() {
    // A turn with two such inputs fills a datagram, so each lost one is a gap to fill while new
    // turns arrive.
    stays_in::<256>(delay_for(250), 250, 20_000);
}

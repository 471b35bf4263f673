//! Datagrams that no honest peer sends.

use core::time::Duration;

use lockstep::bundle::{self, Shape};
use lockstep::message::{Answer, Down, INPUTS_MAX, Up, decode_down, decode_up};
use lockstep::{
    ClientConfig, ClientPeer, Config, Input, MatchServer, Origin, PeerId, StateHasher, Step, Width,
};
use proptest::prelude::*;
use wire::{Arrival, Generator, Instant, Seat, Seed};

use crate::alloc::{allocations, held};
use crate::world::{Link, MATCH, World, config, pad};

/// Writes bits of forged datagrams.
pub(crate) struct Forge(pub(crate) Vec<u8>, u32);

impl Forge {
    pub(crate) fn new(kind: u8) -> Self {
        Self(vec![kind], 0)
    }

    pub(crate) fn bits(mut self, value: u64, count: u32) -> Self {
        for index in (0..count).rev() {
            if self.1.is_multiple_of(8) {
                self.0.push(0);
            }
            let bit = u8::try_from(value >> index & 1).unwrap();
            *self.0.last_mut().unwrap() |= bit << (7 - self.1 % 8);
            self.1 += 1;
        }
        self
    }

    pub(crate) fn gamma(self, value: u32) -> Self {
        let shifted = u64::from(value) + 1;
        let len = shifted.ilog2();
        self.bits(0, len).bits(shifted, len + 1)
    }

    /// A report up to its inputs, which acknowledges all ticks before `next`.
    fn report(next: u16) -> Self {
        Self::new(2)
            .bits(next.into(), 16)
            .bits(0, 1)
            .gamma(0)
            .gamma(0)
    }
}

/// A running match of two: seat 0 is hostile, seat 1 honest.
fn world() -> World<u16> {
    let mut world = World::new(1, config(2), Link::perfect(), pad);
    world.run(100);
    world
}

fn inject(world: &mut World<u16>, peer: u32, mut datagram: Vec<u8>) {
    let arrival = Arrival::from(PeerId(peer));
    world
        .server
        .handle_datagram(world.now, arrival, &mut datagram);
}

fn low(tick: u32) -> u16 {
    u16::try_from(tick & 0xffff).unwrap()
}

#[test]
fn l8_the_longest_run_is_64_inputs_of_256_bytes_and_needs_no_memory() {
    // A 14-byte report that expands to the maximum of 64 inputs of 256 bytes each.
    #[derive(Default)]
    struct Big;
    impl Input for Big {
        const WIDTH: Width = Width::MAX;
        fn write(&self, _: &mut lockstep::bits::BitWriter<'_>) {}
        fn read(_: &mut lockstep::bits::BitReader<'_>) -> Option<Self> {
            Some(Self)
        }
    }
    let forged = Forge::report(0)
        .gamma(INPUTS_MAX)
        .gamma(0)
        .bits(1, 1)
        .gamma(INPUTS_MAX);
    assert!(forged.0.len() <= 8);
    let Ok(Up::Report(report)) = decode_up(&forged.0, Width::MAX) else {
        panic!("well formed");
    };
    let (mut input, mut unpacked) = ([0; 256], 0);
    let before = allocations();
    report.inputs.unwrap().unpack(&mut input, |_, bits| {
        assert_eq!(bits.len(), 256);
        unpacked += 1;
    });
    assert_eq!((unpacked, allocations() - before), (INPUTS_MAX, 0));

    let now = Instant::from_millis(1);
    let mut config = config(1);
    config.start = lockstep::StartPolicy::ByHand;
    let mut server = MatchServer::<Big>::new(config, MATCH, Seed::from_number(1), now).unwrap();
    server.join(now, PeerId(0), Seat(0)).unwrap();
    server.start(now).unwrap();
    while server.poll_event().is_some() {}
    let mut datagram = forged.0;
    server.handle_datagram(now, Arrival::from(PeerId(0)), &mut datagram);
    while server.poll_event().is_some() {}
    let (before, bytes) = (allocations(), held());
    for _ in 0..10_000 {
        server.handle_datagram(now, Arrival::from(PeerId(0)), &mut datagram);
    }
    assert_eq!((allocations() - before, held() - bytes), (0, 0));
}

#[test]
fn ls_11_no_player_plays_another_seat() {
    let mut world = world();
    let next = low(world.server.ticks_closed());
    // Seat 0 presses everything for the next 64 ticks; so does an unknown peer.
    let all = Forge::report(next).gamma(64).gamma(0).bits(1, 1);
    let all = all.gamma(0).bits(1, 1).bits(0xffff, 16).gamma(63).0;
    inject(&mut world, 0, all.clone());
    inject(&mut world, 77, all);
    assert_eq!(world.server.stats().dropped_unknown_peer, 1);
    let from = usize::from(next) + 9;
    world.run_for(Duration::from_millis(500));
    let own = |index: usize| &world.players[index].own[from..];
    assert!(own(0).iter().take(10).all(|(input, _)| *input == 0xffff));
    for (tick, (input, origin)) in (next.into()..)
        .map(lockstep::Tick)
        .zip(&world.players[1].own[usize::from(next)..])
    {
        assert_eq!(*origin, Origin::Confirmed);
        assert_eq!(Some(input), world.players[1].submitted.get(&tick), "{tick}");
    }
}

#[test]
fn numbers_outside_every_window_are_counted_and_dropped() {
    let mut world = world();
    let end = world.server.ticks_closed();
    let before = *world.server.stats();
    // An acknowledgement of future ticks, which the server takes for old ones.
    inject(&mut world, 0, Forge::report(low(end + 1)).gamma(0).0);
    assert_eq!(world.server.stats().dropped_ack, before.dropped_ack + 1);
    // Inputs encoded relative to one that never arrived.
    let unreferenced = Forge::report(low(end))
        .gamma(1)
        .gamma(62)
        .bits(0, 1)
        .gamma(1);
    inject(&mut world, 0, unreferenced.0);
    let reference = before.dropped_reference + 1;
    assert_eq!(world.server.stats().dropped_reference, reference);
    // The last tick in the window, 63 past it, and the furthest that numbers allow.
    let claim = |ahead| {
        Forge::report(low(end))
            .gamma(64)
            .gamma(ahead)
            .bits(1, 1)
            .gamma(64)
            .0
    };
    inject(&mut world, 0, claim(63));
    assert_eq!(world.server.stats().inputs_early, before.inputs_early + 63);
    inject(&mut world, 0, claim(u32::MAX));
    assert_eq!(world.server.stats().inputs_early, before.inputs_early + 127);
    // Hashes from before the first tick, and past the acknowledgement.
    let hashes = |back: u32, count: u32| {
        let mut forged = Forge::new(2).bits(low(end).into(), 16).bits(0, 1);
        forged = forged.gamma(0).gamma(count).gamma(back);
        forged = (0..count).fold(forged, |forged, _| forged.bits(7, 32));
        forged.gamma(0).0
    };
    let refused = before.hashes_refused;
    inject(&mut world, 0, hashes(u32::MAX, 1));
    inject(&mut world, 0, hashes(0, 2));
    inject(&mut world, 0, hashes(14, 16));
    assert_eq!(world.server.stats().hashes_refused, refused + 3);
    assert_eq!(
        world.server.stats().dropped_malformed,
        before.dropped_malformed
    );
    world.run_for(Duration::from_secs(1));
    assert!(world.players[1].own.len() > 150, "the match goes on");
}

#[test]
fn a_lying_client_cannot_blame_another() {
    // Wrong hashes for every tick: only their sender is reported.
    let mut world = World::new(3, config(4), Link::perfect(), pad);
    world.players[2].diverges_at = Some(lockstep::Tick(0));
    world.run(100);
    let named: Vec<_> = world
        .server_events
        .iter()
        .filter_map(|event| {
            if let lockstep::ServerEvent::Desync { seats, .. } = event {
                Some(seats.clone())
            } else {
                None
            }
        })
        .collect();
    assert_eq!(named, [[Seat(2)]]);
}

fn state(number: u32) -> StateHasher {
    let mut hasher = StateHasher::new(MATCH);
    hasher.section("random");
    hasher.section("units");
    hasher.u32(number);
    hasher
}

/// One seat, whose inputs are forwarded early.
fn forwarding() -> Config {
    let mut config = config(1);
    config.forward_inputs = true;
    config
}

/// Datagrams of a real match, both ways.
fn samples(seed: u64) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let now = Instant::from_millis(1);
    let mut server =
        MatchServer::<u16>::new(forwarding(), MATCH, Seed::from_number(seed), now).unwrap();
    server.join(now, PeerId(0), Seat(0)).unwrap();
    let mut client = ClientPeer::<u16>::new(
        ClientConfig::default(),
        PeerId(0),
        Seed::from_number(seed),
        now,
    );
    let (mut ups, mut downs) = (Vec::new(), Vec::new());
    let mut generator = Seed::from_number(seed).generator(0);
    for millis in (1..400).step_by(4) {
        let now = Instant::from_millis(millis);
        server.handle_timeout(now);
        let mut buf = Vec::new();
        while server.poll_transmit(now, &mut buf).is_some() {
            downs.push(buf.clone());
            client.handle_datagram(now, Arrival::from(PeerId(0)), &mut buf);
            buf.clear();
        }
        let input = u16::try_from(generator.below(65_536)).unwrap();
        client.submit(now, &input).ok();
        client.handle_timeout(now);
        while let Some(turn) = client.poll_turn(now) {
            let tick = turn.tick();
            client.report_state(tick, &state(tick.0)).unwrap();
        }
        while let Some(turn) = server.poll_turn() {
            // The states differ from the eleventh tick on.
            let tick = turn.tick();
            server.report_state(tick, &state(tick.0.min(10))).unwrap();
        }
        while client.poll_transmit(now, &mut buf).is_some() {
            ups.push(buf.clone());
            server.handle_datagram(now, Arrival::from(PeerId(0)), &mut buf);
            buf.clear();
        }
    }
    let has = |all: &[Vec<u8>], kind| all.iter().any(|datagram| datagram[0] == kind);
    assert!(has(&ups, 6) && has(&downs, 0x88), "the search included");
    // The same turns as sent when ticks are stretched.
    let turns = downs
        .iter()
        .filter(|it| [0x82, 0x83, 0x85].contains(&it[0]));
    let stretched = turns.map(|turns| [&[0x8d, 0, 50], &turns[..]].concat());
    let stretched: Vec<_> = stretched.collect();
    downs.extend(stretched);
    (ups, downs)
}

pub(crate) fn mutate(generator: &mut Generator, datagram: &mut Vec<u8>) {
    for _ in 0..=generator.below(4) {
        let at = usize::try_from(generator.below(datagram.len().max(1) as u64)).unwrap();
        match generator.below(4) {
            0 => datagram.truncate(at),
            1 => datagram.push(u8::try_from(generator.below(256)).unwrap()),
            _ => {
                if let Some(byte) = datagram.get_mut(at) {
                    *byte ^= 1 << generator.below(8);
                }
            }
        }
    }
}

#[test]
fn l8_ls_10_mutated_datagrams_never_panic_or_grow_a_machine() {
    let (ups, downs) = samples(1);
    let now = Instant::from_millis(1);
    let seed = Seed::from_number(1);
    let mut server = MatchServer::<u16>::new(forwarding(), MATCH, seed, now).unwrap();
    server.join(now, PeerId(0), Seat(0)).unwrap();
    let mut config = ClientConfig::default();
    config.window = 8;
    let mut client = ClientPeer::<u16>::new(config, PeerId(0), seed, now);
    client.handle_datagram(now, Arrival::from(PeerId(0)), &mut downs[0].clone());
    server.handle_datagram(now, Arrival::from(PeerId(0)), &mut ups[0].clone());
    let mut generator = Seed::from_number(2).generator(0);
    let mut datagram = Vec::with_capacity(2_000);
    let mut out = Vec::with_capacity(2_000);
    let mut bytes = held();
    for round in 0..60_000_u64 {
        let now = Instant::from_millis(2 + round / 8);
        let from = if round % 2 == 0 { &ups } else { &downs };
        let pick = usize::try_from(generator.below(from.len() as u64)).unwrap();
        datagram.clone_from(&from[pick]);
        mutate(&mut generator, &mut datagram);
        // A leave, a bye or another match's welcome would end the run; the transport drops
        // unauthenticated datagrams.
        if matches!(datagram.first(), Some(0x03 | 0x84)) {
            continue;
        }
        if round % 2 == 0 {
            server.handle_datagram(now, Arrival::from(PeerId(0)), &mut datagram);
        } else {
            client.handle_datagram(now, Arrival::from(PeerId(0)), &mut datagram);
        }
        server.handle_timeout(now);
        client.handle_timeout(now);
        while server.poll_transmit(now, &mut out).is_some() {
            assert!(out.len() <= 1_100);
            out.clear();
        }
        while client.poll_transmit(now, &mut out).is_some() {
            assert!(out.len() <= 1_100);
            out.clear();
        }
        while !matches!(client.next_step(now), Step::Wait { .. }) {}
        while server.poll_event().is_some() || client.poll_event().is_some() {}
        if round == 10_000 {
            bytes = held();
        }
    }
    assert!(held() <= bytes, "{} more", held() - bytes);
    assert!(server.stats().dropped_malformed > 1_000);
    assert!(client.stats().dropped_malformed > 1_000);
    assert!(client.stats().loads > 0, "{:?}", client.stats());
}

/// All datagram kinds of a client and a server, except chunks.
const KINDS: [u8; 14] = [
    1, 2, 3, 6, 9, 0x0b, 0x81, 0x82, 0x83, 0x84, 0x85, 0x88, 0x8b, 0x8d,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn l8_ls_10_any_bytes_decode_or_do_not(kind in prop::sample::select(KINDS.to_vec()), tail: Vec<u8>, bits in 1_u16..300, seats in 1_u16..40) {
        let mut datagram = vec![kind];
        datagram.extend(tail);
        let width = Width::new(bits).unwrap();
        let shape = Shape { seats, width };
        let before = allocations();
        let up = decode_up(&datagram, width);
        let down = decode_down(&datagram, Some(shape));
        if let Ok(Down::Turns(turns)) = down {
            let mut len = 0;
            for bundle in turns.bundles.iter() {
                assert!(!bundle.is_empty() && bundle.len() <= shape.bundle_len_max());
                assert!(bundle::check(bundle, shape) == Ok(bundle.len()));
                len += bundle.len();
            }
            assert!(len < datagram.len());
        }
        if let Ok(Down::Early(early, _)) = down {
            let (mut input, neutral, mut count) = ([0; 38], [0; 38], 0);
            let len = width.byte_len();
            early.unpack(&mut input[..len], &neutral[..len], |_, _, _| count += 1);
            assert!(count <= u32::from(seats) * 64);
        }
        if let Ok(Up::Report(report)) = up
            && let Some(inputs) = report.inputs
        {
            let mut input = [0; 38];
            let mut count = 0;
            inputs.unpack(&mut input[..width.byte_len()], |_, _| count += 1);
            assert!(count == inputs.count && count <= INPUTS_MAX);
        }
        if let Ok(Up::Answer(answer)) = up {
            let count = match answer {
                Answer::Ticks(ticks) => ticks.iter().count(),
                Answer::Sections { known, .. } => known.map_or(0, |known| known.iter().count() * 4),
                Answer::Acknowledged { .. } => 0,
            };
            // 255 ticks, or 64 sections of about 4 bytes and a name.
            assert!(count <= 256 && count <= 8 * datagram.len());
        }
        prop_assert_eq!(allocations() - before, 0);
    }
}

//! State channel over a simulated link, in virtual time.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep::state_channel::{
    FRAGMENTS_MAX, PushError, StateLimits, StateReceiver, StateSender, decode_state_ack,
    decode_state_part,
};
use netsim::{Chance, Jitter, Link, LinkConfig, Loss, Order, for_each_seed, test_site};
use wire::{Generator, Instant, Seed};

const START: Instant = Instant::from_millis(1_000);

const TICK: Duration = Duration::from_nanos(16_666_667);

const LEN_MAX: u32 = 300_000;

/// A sender and a receiver, and a link in each direction.
struct Pair {
    now: Instant,
    limits: StateLimits,
    sender: StateSender,
    receiver: StateReceiver,
    /// For states, and for acknowledgements.
    links: [Link; 2],
    /// Period in which both links drop everything.
    outage: Option<(Instant, Instant)>,
    in_flight: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    order: u64,
    /// Send time of each datagram, and its length.
    sent: Vec<(Instant, usize)>,
    acks: u64,
    /// Every state that the sender accepted, by number.
    pushed: BTreeMap<u32, Arc<[u8]>>,
    /// When each state was returned, and its number.
    returned: Vec<(Instant, u32)>,
}

impl Pair {
    fn new(seed: Seed, limits: StateLimits, link: &LinkConfig) -> Self {
        Self {
            now: START,
            limits,
            sender: StateSender::new(&limits, START),
            receiver: StateReceiver::new(LEN_MAX),
            links: [0, 1].map(|way| Link::new(*link, seed.generator(way))),
            outage: None,
            in_flight: BTreeMap::new(),
            order: 0,
            sent: Vec::new(),
            acks: 0,
            pushed: BTreeMap::new(),
            returned: Vec::new(),
        }
    }

    /// Pushes a state of `len` random bytes; returns its number.
    fn push(&mut self, draw: &mut Generator, len: usize) -> u32 {
        let mut bytes = vec![0; len];
        draw.fill(&mut bytes);
        let state: Arc<[u8]> = bytes.into();
        let number = self.sender.push(self.now, Arc::clone(&state)).unwrap();
        self.pushed.insert(number, state);
        number
    }

    /// Runs up to `end`, or until nothing is left to do.
    fn run(&mut self, end: Instant) {
        loop {
            self.turn();
            let arrival = self.in_flight.first_key_value().map(|((at, _), _)| *at);
            let timers = [
                arrival,
                self.sender.poll_timeout(),
                self.receiver.poll_timeout(),
            ];
            let next = timers.into_iter().flatten().min().unwrap_or(end);
            assert!(next > self.now || next >= end, "a turn has left something");
            self.now = next.clamp(self.now, end);
            if next >= end {
                return;
            }
        }
    }

    fn turn(&mut self) {
        let now = self.now;
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (way, datagram) = entry.remove();
            if way == 1 {
                self.sender.handle_datagram(now, &datagram);
                continue;
            }
            self.receiver.handle_datagram(now, &datagram);
            if let Some((number, bytes)) = self.receiver.poll_state() {
                assert!(bytes == &*self.pushed[&number], "state {number}");
                let last = self.returned.last();
                assert!(last.is_none_or(|(_, last)| *last < number), "{number}");
                self.returned.push((now, number));
            }
        }
        let mut datagram = Vec::new();
        while self.sender.poll(now, &mut datagram) {
            self.sent.push((now, datagram.len()));
            self.carry(0, &datagram);
            datagram.clear();
        }
        while self.receiver.poll_ack(now, &mut datagram) {
            self.acks += 1;
            self.carry(1, &datagram);
            datagram.clear();
        }
    }

    fn carry(&mut self, way: usize, datagram: &[u8]) {
        let outage = self.outage;
        if outage.is_some_and(|(begins, ends)| (begins..ends).contains(&self.now)) {
            return;
        }
        for delivery in self.links[way].send(self.now, datagram.len()) {
            self.order += 1;
            let key = (delivery.at, self.order);
            self.in_flight.insert(key, (way, datagram.to_vec()));
        }
    }

    /// No datagram was too long, and no period saw more bytes than the rate and one burst allow.
    fn check_rate(&self) {
        let longest = self.sent.iter().map(|(_, len)| *len).max();
        assert!(longest <= Some(self.limits.datagram_len_max.into()));
        let mut level = i128::from(self.limits.burst_bytes) * 1_000_000_000;
        let full = level;
        let mut before = START;
        for &(at, len) in &self.sent {
            let nanos = i128::try_from(at.saturating_since(before).as_nanos()).unwrap();
            level = full.min(level + nanos * i128::from(self.limits.rate_bytes_per_s));
            level -= i128::try_from(len).unwrap() * 1_000_000_000;
            before = at;
            assert!(level >= 0);
        }
    }

    fn last_returned(&self) -> Option<u32> {
        self.returned.last().map(|(_, number)| *number)
    }
}

fn percent(loss: u32) -> Chance {
    Chance::per_million(loss * 10_000)
}

/// 50 ms, and `loss` % lost.
fn link(loss: u32) -> LinkConfig {
    LinkConfig::default()
        .with_delay(Duration::from_millis(50))
        .with_loss(Loss::Bernoulli(percent(loss)))
}

#[test]
fn sim_l6_each_state_is_newer_than_the_one_before_and_the_last_arrives() {
    for_each_seed(&test_site!(), 60, |seed| {
        let mut draw = seed.generator(3);
        let loss = u32::try_from(draw.below(31)).unwrap();
        let mut limits = StateLimits::default();
        limits.rate_bytes_per_s = u32::try_from(draw.between(50_000, 1_000_000)).unwrap();
        limits.datagram_len_max = u16::try_from(draw.between(100, 1_400)).unwrap();
        limits.burst_bytes = u32::try_from(draw.between(1_400, 20_000)).unwrap();
        let jitter = Duration::from_millis(draw.below(41));
        let config = link(loss)
            .with_delay(Duration::from_millis(draw.between(1, 150)))
            .with_jitter(Jitter::Uniform(jitter))
            .with_order(Order::ByDelay)
            .with_reorder(percent(2), Duration::from_millis(draw.below(60)))
            .with_duplicate(percent(5));
        let mut pair = Pair::new(seed, limits, &config);
        let len_max = draw.between(10, 10_000);
        let mut last = 0;
        for _ in 0..120 {
            let len = usize::try_from(draw.below(len_max)).unwrap();
            last = pair.push(&mut draw, len);
            pair.run(pair.now + TICK);
        }
        pair.run(pair.now + Duration::from_secs(60));
        assert_eq!(pair.last_returned(), Some(last));
        assert_eq!(pair.sender.acknowledged(), Some(last));
        assert_eq!(pair.sender.poll_timeout(), None, "it is at rest");
        assert_eq!(pair.sender.stats().refused, 0);
        assert_eq!(pair.receiver.stats().malformed, 0);
        pair.check_rate();
    });
}

#[test]
fn sim_l6_states_of_40_datagrams_complete_at_10_percent_loss() {
    for_each_seed(&test_site!(), 20, |seed| {
        let mut limits = StateLimits::default();
        limits.rate_bytes_per_s = 4_000_000;
        let mut pair = Pair::new(seed, limits, &link(10));
        let mut draw = seed.generator(3);
        for _ in 0..600 {
            pair.push(&mut draw, 43_000);
            pair.run(pair.now + TICK);
        }
        // Without retransmission only one state in 68 would arrive complete.
        let mut times: Vec<_> = pair.returned.iter().map(|(at, _)| *at).collect();
        times.insert(0, START);
        let gaps = times.windows(2).map(|two| two[1].saturating_since(two[0]));
        let mut gaps: Vec<_> = gaps.collect();
        gaps.sort();
        // The gap plus two or three round trips of repair; up to ten if one part is lost
        // repeatedly.
        let usual = gaps[gaps.len() / 2];
        assert!(usual < Duration::from_millis(800), "{usual:?}");
        let longest = gaps[gaps.len() - 1];
        assert!(longest < Duration::from_millis(2_500), "{longest:?}");
        assert!(pair.returned.len() > 15, "{}", pair.returned.len());
        // The channel keeps up: the last returned state is recent.
        let newest = *pair.pushed.last_key_value().unwrap().0;
        assert!(pair.last_returned() > Some(newest - 150));
        pair.check_rate();
    });
}

#[test]
fn sim_l6_after_an_outage_the_newest_arrives_within_a_second() {
    for_each_seed(&test_site!(), 20, |seed| {
        let mut draw = seed.generator(3);
        let mut pair = Pair::new(seed, StateLimits::default(), &link(0));
        let ends = START + Duration::from_millis(draw.between(2_000, 20_000));
        pair.outage = Some((START + Duration::from_millis(500), ends));
        let mut last = 0;
        for _ in 0..60 {
            last = pair.push(&mut draw, 500);
            pair.run(pair.now + TICK);
        }
        let sent_before = pair.sent.len();
        pair.run(ends);
        // Without acknowledgements the sender nearly stops.
        let tried = pair.sent.len() - sent_before;
        assert!(tried <= 26, "{tried}");
        pair.run(ends + Duration::from_millis(1_100));
        assert_eq!(pair.last_returned(), Some(last));
    });
}

#[test]
fn l6_a_newer_state_replaces_one_that_was_not_begun() {
    let mut limits = StateLimits::default();
    // One datagram at once, then one per 100 ms.
    (limits.burst_bytes, limits.rate_bytes_per_s) = (1_000, 10_000);
    limits.datagram_len_max = 1_000;
    let mut pair = Pair::new(Seed::from_number(1), limits, &link(0));
    let mut draw = Seed::from_number(1).generator(3);
    for _ in 0..10 {
        pair.push(&mut draw, 995);
    }
    pair.run(START + Duration::from_millis(99));
    assert_eq!(
        pair.returned.iter().map(|it| it.1).collect::<Vec<_>>(),
        [10]
    );
    assert_eq!(pair.sender.stats().replaced, 9);
    // A state whose first part was sent is completed; otherwise none would ever be.
    pair.run(START + Duration::from_millis(200));
    let half = pair.push(&mut draw, 1_900);
    pair.turn();
    assert_eq!(pair.sent.len(), 2, "one of its parts");
    let newest = (0..9).map(|_| pair.push(&mut draw, 995)).last().unwrap();
    pair.run(START + Duration::from_secs(2));
    let numbers: Vec<_> = pair.returned.iter().map(|it| it.1).collect();
    assert_eq!(numbers, [10, half, newest]);
    assert_eq!(pair.sent.len(), 4, "nothing was sent twice");
}

#[test]
fn l6_at_60_hz_a_small_state_costs_a_datagram_and_an_ack_in_20_ms() {
    let mut pair = Pair::new(Seed::from_number(1), StateLimits::default(), &link(0));
    let mut draw = Seed::from_number(1).generator(3);
    for _ in 0..600 {
        pair.push(&mut draw, 300);
        pair.run(pair.now + TICK);
    }
    pair.run(pair.now + Duration::from_secs(1));
    assert_eq!(pair.returned.len(), 600);
    assert_eq!(pair.sent.len(), 600);
    assert!(pair.sent.iter().all(|(_, len)| *len == 305));
    assert!(pair.acks <= 510, "{}", pair.acks);
    assert_eq!(pair.sender.stats().repeated, 0);
}

#[test]
fn l6_a_blocked_state_delays_newer_ones_for_32_intervals_at_most() {
    let mut limits = StateLimits::default();
    limits.gap_max = Duration::from_millis(100);
    let mut pair = Pair::new(Seed::from_number(1), limits, &link(0));
    pair.receiver = StateReceiver::new(2_000);
    let mut draw = Seed::from_number(1).generator(3);
    pair.push(&mut draw, 2_001);
    pair.run(START + Duration::from_millis(200));
    let short = pair.push(&mut draw, 2_000);
    pair.run(START + Duration::from_millis(3_150));
    assert_eq!(pair.receiver.newest(), None);
    pair.run(START + Duration::from_millis(4_200));
    assert_eq!(pair.receiver.newest(), Some(short));
    assert!(pair.receiver.stats().oversize > 0);
}

/// The replaced system kept one newest state for all clients, so only one of them received it.
#[test]
fn gnet_g6_each_client_gets_its_own_newest_state() {
    let mut draw = Seed::from_number(1).generator(3);
    let seeds = (0..8).map(Seed::from_number);
    let mut pairs: Vec<_> = seeds
        .map(|seed| Pair::new(seed, StateLimits::default(), &link(5)))
        .collect();
    // All clients but the last two get the same state.
    let shared: Arc<[u8]> = vec![7; 3_000].into();
    for pair in &mut pairs[..6] {
        let number = pair.sender.push(START, Arc::clone(&shared)).unwrap();
        pair.pushed.insert(number, Arc::clone(&shared));
    }
    for pair in &mut pairs[6..] {
        pair.push(&mut draw, 3_000);
    }
    for pair in &mut pairs {
        pair.run(START + Duration::from_secs(10));
        assert_eq!(
            pair.last_returned(),
            Some(1),
            "and its bytes are the right ones"
        );
    }
    assert_eq!(
        Arc::strong_count(&shared),
        1 + 6,
        "only the tests hold it still"
    );
}

#[test]
fn states_of_any_length_arrive_up_to_the_longest() {
    let mut limits = StateLimits::default();
    limits.datagram_len_max = 80;
    let len_max = StateSender::new(&limits, START).len_max();
    assert_eq!(len_max, usize::from(FRAGMENTS_MAX) * 69);
    for len in [
        0,
        1,
        69,
        70,
        75,
        76,
        138,
        139,
        255 * 69,
        255 * 69 + 1,
        len_max,
    ] {
        let seed = Seed::from_number(u64::try_from(len).unwrap());
        let mut pair = Pair::new(seed, limits, &link(10));
        pair.push(&mut seed.generator(3), len);
        pair.run(START + Duration::from_secs(30));
        assert_eq!(pair.last_returned(), Some(1), "{len}");
        pair.check_rate();
    }
    let mut sender = StateSender::new(&limits, START);
    let state: Arc<[u8]> = vec![0; len_max + 1].into();
    assert_eq!(sender.push(START, state), Err(PushError::TooLong));
    assert_eq!(sender.poll_timeout(), None);
}

#[test]
fn nothing_is_sent_at_rate_0() {
    let mut limits = StateLimits::default();
    (limits.rate_bytes_per_s, limits.burst_bytes) = (0, 0);
    limits.datagram_len_max = 0;
    let mut sender = StateSender::new(&limits, START);
    sender.push(START, vec![0; 100].into()).unwrap();
    let mut out = Vec::new();
    assert!(sender.poll(START, &mut out), "one datagram always may");
    assert_eq!(out.len(), 61, "half of the state and a head");
    assert!(!sender.poll(START + Duration::from_secs(9), &mut out));
    assert_eq!(sender.poll_timeout(), None);
}

/// Reads `name = hex` lines.
fn vector(name: &str) -> Vec<u8> {
    let file = include_str!("../../testdata/state.hex");
    let line = file.lines().filter_map(|line| line.split_once(" = "));
    let (_, hex) = line.into_iter().find(|(key, _)| *key == name).unwrap();
    let digits: Vec<_> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    let pairs = digits.chunks(2);
    pairs
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap())
        .collect()
}

#[test]
fn state_vectors_are_unchanged() {
    let mut sender = StateSender::new(&StateLimits::default(), START);
    sender.push(START, b"hi".as_slice().into()).unwrap();
    let mut sent = Vec::new();
    assert!(sender.poll(START, &mut sent));
    assert_eq!(sent, vector("whole"));
    let empty = vector("whole_empty");
    let empty = decode_state_part(&empty).unwrap();
    assert_eq!(
        (empty.number, empty.count, empty.bytes.len()),
        (u32::MAX, 1, 0)
    );

    let datagram = vector("fragment");
    let part = decode_state_part(&datagram).unwrap();
    assert_eq!((part.number, part.total), (0x102, 8));
    assert_eq!((part.count, part.index, part.bytes), (3, 2, &[5, 6, 7][..]));
    let mut receiver = StateReceiver::new(8);
    let mut said = Vec::new();
    assert!(!receiver.poll_ack(START, &mut said));
    receiver.handle_datagram(START, &datagram);
    assert!(receiver.poll_ack(START, &mut said));
    let ack = decode_state_ack(&said).unwrap();
    assert_eq!((ack.whole, ack.partial), (0, 0x102));
    assert!(ack.arrived().eq([2]));

    let acks = [
        ("ack_none", (0, 0), vec![]),
        ("ack", (0x101, 0x102), vec![0, 2]),
        ("ack_ninth", (0x101, 0x102), vec![8]),
    ];
    for (name, numbers, arrived) in acks {
        let datagram = vector(name);
        let ack = decode_state_ack(&datagram).unwrap();
        assert_eq!((ack.whole, ack.partial), numbers);
        assert!(ack.arrived().eq(arrived));
    }
}

#[test]
fn state_vectors_truncated_extended_or_changed_are_refused() {
    let (part, ack) = (vector("fragment"), vector("ack"));
    let good = |len: &usize| decode_state_part(&part[..*len]).is_ok();
    assert_eq!(
        (0..=part.len()).filter(good).collect::<Vec<_>>(),
        [part.len()]
    );
    assert!(decode_state_part(&[&part[..], &[0]].concat()).is_err());
    let good = |len: &usize| decode_state_ack(&ack[..*len]).is_ok();
    assert_eq!((0..=ack.len()).filter(good).collect::<Vec<_>>(), [5, 10]);
    assert!(decode_state_ack(&[&ack[..], &[0]].concat()).is_err());
    let longest = [&ack[..9], &[1; 32]].concat();
    assert!(decode_state_ack(&longest).is_ok());
    assert!(decode_state_ack(&[&longest[..], &[1]].concat()).is_err());
    // Wrong kind; number 0; fragments of length 0; a single fragment; an index past the last.
    for (at, value) in [(0, 0xc2), (5, 1), (8, 2), (9, 0), (10, 3)] {
        let mut datagram = part.clone();
        datagram[at] = value;
        assert!(decode_state_part(&datagram).is_err(), "{at} {value}");
    }
    let mut none = part.clone();
    none[1..5].fill(0);
    assert!(decode_state_part(&none).is_err());
    // Wrong kind; a partial state that is no newer.
    for (at, value) in [(0, 0xc1), (4, 2), (8, 1)] {
        let mut datagram = ack.clone();
        datagram[at] = value;
        assert!(decode_state_ack(&datagram).is_err(), "{at} {value}");
    }
}

//! Snapshot transfer over a simulated link, in virtual time.

use core::num::NonZeroU64;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep::message::{CHUNK_HEAD_LEN, Direction, chunk_count, decode_chunk, decode_chunk_ack};
use lockstep::transfer::{Incoming, Outgoing, TAIL_MAX, TransferLimits};
use netsim::{Chance, Jitter, Link, LinkConfig, Loss, Order, Rate, for_each_seed, test_site};
use wire::{Generator, Instant, Seed};

const START: Instant = Instant::from_millis(1_000);

const MEBIBYTE: usize = 1 << 20;

/// Chunks that a transfer may send in addition to retransmissions for loss.
const SPARE: usize = TAIL_MAX as usize + 100;

/// Longest snapshot that the receivers accept.
const LEN_MAX: u32 = 4 << 20;

/// A sender and a receiver, and a link in each direction.
struct Pair {
    now: Instant,
    outgoing: Outgoing,
    incoming: Incoming,
    /// For chunks, and for acknowledgements.
    links: [Link; 2],
    in_flight: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    order: u64,
    /// Send time of each chunk, and its datagram length.
    sent: Vec<(Instant, usize)>,
    /// Periods in which both links drop everything.
    outages: Vec<(Instant, Instant)>,
    acks: u64,
    /// When the snapshot was complete, and its bytes.
    whole: Option<(Instant, Vec<u8>)>,
}

impl Pair {
    fn new(seed: Seed, bytes: &Arc<[u8]>, limits: &TransferLimits, link: &LinkConfig) -> Self {
        let outgoing = Outgoing::new(Direction::Down, 7, Arc::clone(bytes), limits, START);
        Self {
            now: START,
            outgoing: outgoing.unwrap(),
            incoming: Incoming::new(Direction::Down, LEN_MAX),
            links: [0, 1].map(|way| Link::new(*link, seed.generator(way))),
            in_flight: BTreeMap::new(),
            order: 0,
            sent: Vec::new(),
            outages: Vec::new(),
            acks: 0,
            whole: None,
        }
    }

    /// Runs until the sender knows that everything arrived, or `limit` from the start.
    fn run(&mut self, limit: Duration) {
        while self.now < START + limit {
            self.turn();
            if self.outgoing.is_done() {
                return;
            }
            let arrival = self.in_flight.first_key_value().map(|((at, _), _)| *at);
            let next = [
                arrival,
                self.outgoing.poll_timeout(),
                self.incoming.poll_timeout(),
            ];
            let Some(next) = next.into_iter().flatten().min() else {
                panic!("nothing is to come, and the transfer is not done");
            };
            assert!(next > self.now, "a turn has left nothing to do");
            self.now = next.min(START + limit);
        }
    }

    fn turn(&mut self) {
        let now = self.now;
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (way, datagram) = entry.remove();
            if way == 0 {
                let chunk = decode_chunk(&datagram, Direction::Down).unwrap();
                self.incoming.on_chunk(now, &chunk);
                if let Some(bytes) = self.incoming.take() {
                    assert!(self.whole.is_none(), "a snapshot is returned once");
                    self.whole = Some((now, bytes));
                }
            } else {
                let ack = decode_chunk_ack(&datagram, Direction::Up).unwrap();
                self.outgoing.on_ack(now, &ack);
            }
        }
        let mut datagram = Vec::new();
        while self.outgoing.poll(now, &mut datagram) {
            self.sent.push((now, datagram.len()));
            self.carry(0, &datagram);
            datagram.clear();
        }
        while self.incoming.poll_ack(now, &mut datagram) {
            self.acks += 1;
            self.carry(1, &datagram);
            datagram.clear();
        }
    }

    fn carry(&mut self, way: usize, datagram: &[u8]) {
        let mut outages = self.outages.iter();
        if outages.any(|(begins, end)| (*begins..*end).contains(&self.now)) {
            return;
        }
        for delivery in self.links[way].send(self.now, datagram.len()) {
            self.order += 1;
            let key = (delivery.at, self.order);
            self.in_flight.insert(key, (way, datagram.to_vec()));
        }
    }

    fn sent(&self) -> (usize, usize) {
        (self.sent.iter().map(|(_, len)| len).sum(), self.sent.len())
    }

    fn took(&self) -> Duration {
        self.whole.as_ref().unwrap().0.saturating_since(START)
    }

    /// Everything arrived in order. The sender sent no more than the loss requires, and no faster
    /// than allowed.
    ///
    /// At a loss of p a chunk is sent 1 / (1 - p) times, which is at most 1 + 2p for p up to one
    /// half. In addition there are one copy of each tail chunk, a copy of each chunk lost after
    /// those and of each probe, and spurious retransmissions until the path's reordering is known.
    fn check(&self, bytes: &[u8], limits: &TransferLimits, loss: u32) {
        let (_, arrived) = self.whole.as_ref().unwrap();
        assert!(arrived == bytes);
        let stride = usize::from(limits.datagram_len_max) - CHUNK_HEAD_LEN;
        let total = u32::try_from(bytes.len()).unwrap();
        let count = chunk_count(total, u16::try_from(stride).unwrap()) as usize;
        let net = bytes.len() + count * CHUNK_HEAD_LEN;
        let most = net + net * 2 * loss as usize / 100;
        let spare = usize::from(limits.datagram_len_max) * SPARE;
        let (sent, chunks) = self.sent();
        assert!(sent <= most + spare, "{chunks} for {count} at {loss} %");
        assert!(self.is_within(limits));
    }

    /// Whether no period saw more bytes than the rate and one burst allow.
    fn is_within(&self, limits: &TransferLimits) -> bool {
        let mut level = i128::from(limits.burst_bytes) * 1_000_000_000;
        let full = level;
        let mut before = START;
        self.sent.iter().all(|&(at, len)| {
            let nanos = i128::try_from(at.saturating_since(before).as_nanos()).unwrap();
            level = full.min(level + nanos * i128::from(limits.rate_bytes_per_s));
            level -= i128::try_from(len).unwrap() * 1_000_000_000;
            before = at;
            level >= 0
        })
    }
}

fn snapshot(generator: &mut Generator, len: usize) -> Arc<[u8]> {
    let mut bytes = vec![0; len];
    generator.fill(&mut bytes);
    bytes.into()
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
fn ls_g14_a_mebibyte_arrives_in_840_ms_and_one_and_a_half_round_trips() {
    let limits = TransferLimits::default();
    let mut times = Vec::new();
    for number in 0..100 {
        let seed = Seed::from_number(number);
        let bytes = snapshot(&mut seed.generator(2), MEBIBYTE);
        let mut pair = Pair::new(seed, &bytes, &limits, &link(2));
        pair.run(Duration::from_secs(5));
        pair.check(&bytes, &limits, 2);
        // Acknowledgements share the opposite direction with inputs: one per 16 chunks.
        assert!(pair.acks < 80, "{}", pair.acks);
        times.push(pair.took());
    }
    times.sort();
    eprintln!(
        "median {:?}, 97th {:?}, last {:?}",
        times[50], times[97], times[99]
    );
    assert!(times[97] <= Duration::from_millis(840 + 150), "{times:?}");
    // If a tail chunk and its copy are both lost, one more round trip.
    assert!(times[99] <= Duration::from_millis(840 + 250), "{times:?}");
}

#[test]
fn sim_ls_14_a_transfer_completes_under_any_link_faults() {
    for_each_seed(&test_site!(), 60, |seed| {
        let mut draw = seed.generator(3);
        let loss = u32::try_from(draw.below(31)).unwrap();
        let len = usize::try_from(draw.below(1 << 19)).unwrap();
        let bytes = snapshot(&mut draw, len);
        let mut limits = TransferLimits::default();
        limits.rate_bytes_per_s = u32::try_from(draw.between(50_000, 2_500_000)).unwrap();
        limits.datagram_len_max = u16::try_from(draw.between(500, 1_400)).unwrap();
        limits.burst_bytes = u32::try_from(draw.between(1_400, 20_000)).unwrap();
        let jitter = Duration::from_millis(draw.below(21));
        let config = LinkConfig::default()
            .with_delay(Duration::from_millis(draw.between(5, 150)))
            .with_jitter(Jitter::Uniform(jitter))
            .with_order(Order::ByDelay)
            .with_reorder(percent(2), Duration::from_millis(draw.below(40)))
            .with_duplicate(percent(2))
            .with_loss(Loss::Bernoulli(percent(loss)));
        let mut pair = Pair::new(seed, &bytes, &limits, &config);
        pair.run(Duration::from_secs(120));
        pair.check(&bytes, &limits, loss);
    });
}

#[test]
fn sim_ls_14_transfer_resumes_after_outages() {
    for_each_seed(&test_site!(), 20, |seed| {
        let mut draw = seed.generator(3);
        let bytes = snapshot(&mut draw, MEBIBYTE / 2);
        let limits = TransferLimits::default();
        let mut pair = Pair::new(seed, &bytes, &limits, &link(1));
        let mut end = START;
        for _ in 0..3 {
            let begins = end + Duration::from_millis(draw.between(60, 300));
            end = begins + Duration::from_millis(draw.between(300, 3_000));
            pair.outages.push((begins, end));
        }
        pair.run(Duration::from_secs(30));
        let (whole, arrived) = pair.whole.as_ref().unwrap();
        assert_eq!(arrived[..], bytes[..]);
        // After the last outage up to a second until the next probe, and the rest; longer if the
        // probe is lost.
        assert!(
            *whole <= end + Duration::from_millis(3_500),
            "{whole:?} {end:?}"
        );
        // Cost of an outage: what is sent until the probe timeout, then two chunks per wait.
        let wasted = 3 * (1_250_000 / 2);
        assert!(pair.sent().0 < bytes.len() * 11 / 10 + wasted);
    });
}

#[test]
fn ls_14_a_transfer_delays_an_input_by_at_most_its_burst() {
    // A 12 Mbit/s link with 60 Hz inputs and a snapshot at 10 Mbit/s.
    let rate = Rate {
        bytes_per_second: NonZeroU64::new(1_500_000).unwrap(),
        queue_bytes: 1 << 20,
    };
    let config = link(0).with_rate(rate);
    let limits = TransferLimits::default();
    let bytes = snapshot(&mut Seed::from_number(1).generator(2), MEBIBYTE);
    let mut pair = Pair::new(Seed::from_number(1), &bytes, &limits, &config);
    let mut worst = Duration::ZERO;
    for millis in (0..800).step_by(16) {
        pair.run(Duration::from_millis(millis));
        let now = START + Duration::from_millis(millis);
        let arrival = pair.links[0].send(now, 60).next().unwrap().at;
        worst = worst.max(arrival.saturating_since(now + Duration::from_millis(50)));
    }
    assert!(pair.sent().0 > 800_000, "the snapshot was on its way");
    // 8,800 bytes and the input itself.
    assert!(worst <= Duration::from_micros(5_910), "{worst:?}");
}

#[test]
fn snapshots_of_any_length_arrive() {
    let limits = TransferLimits::default();
    let stride = usize::from(limits.datagram_len_max) - CHUNK_HEAD_LEN;
    for len in [0, 1, stride - 1, stride, stride + 1, 20 * stride] {
        let seed = Seed::from_number(len as u64);
        let bytes = snapshot(&mut seed.generator(2), len);
        let mut pair = Pair::new(seed, &bytes, &limits, &link(10));
        pair.run(Duration::from_secs(20));
        pair.check(&bytes, &limits, 10);
    }
}

#[test]
fn nothing_is_sent_at_rate_0() {
    let mut limits = TransferLimits::default();
    limits.rate_bytes_per_s = 0;
    limits.burst_bytes = 0;
    limits.datagram_len_max = 0;
    let bytes = snapshot(&mut Seed::from_number(1).generator(2), 200);
    let mut outgoing = Outgoing::new(Direction::Up, 0, bytes, &limits, START).unwrap();
    let mut out = Vec::new();
    assert!(outgoing.poll(START, &mut out), "one datagram always may");
    assert_eq!(out.len(), 80, "and this is the least one");
    assert!(!outgoing.poll(START + Duration::from_secs(9), &mut out));
    assert_eq!(outgoing.poll_timeout(), None);
}

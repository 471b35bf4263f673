//! Snapshots in pieces over a simulated link, in virtual time.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep::message::{CHUNK_HEAD_LEN, Direction, chunk_count, decode_chunk, decode_chunk_ack};
use lockstep::transfer::{Incoming, Outgoing, TAIL_MAX, TransferLimits};
use netsim::{Chance, Jitter, Link, LinkConfig, Loss, Order, for_each_seed, test_site};
use wire::{Generator, Instant, Seed};

const START: Instant = Instant::from_millis(1_000);

const MEBIBYTE: usize = 1 << 20;

/// Longest snapshot that the receivers take.
const LEN_MAX: u32 = 4 << 20;

/// A sender and a receiver, and a link each way.
struct Pair {
    now: Instant,
    outgoing: Outgoing,
    incoming: Incoming,
    /// For chunks, and for acknowledgements.
    links: [Link; 2],
    in_flight: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    order: u64,
    /// When each chunk was sent, and its length as a datagram.
    sent: Vec<(Instant, usize)>,
    acks: u64,
    /// When the snapshot was whole, and what it is.
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
            acks: 0,
            whole: None,
        }
    }

    /// Runs until the sender knows that all has arrived, or `limit` from the start.
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
            self.now = next;
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
        for delivery in self.links[way].send(self.now, datagram.len()) {
            self.order += 1;
            let key = (delivery.at, self.order);
            self.in_flight.insert(key, (way, datagram.to_vec()));
        }
    }

    /// Bytes sent, and chunks.
    fn sent(&self) -> (usize, usize) {
        (self.sent.iter().map(|(_, len)| len).sum(), self.sent.len())
    }

    /// How long the snapshot took.
    fn took(&self) -> Duration {
        self.whole.as_ref().unwrap().0.saturating_since(START)
    }

    /// Whether any stretch of time saw more bytes than the rate and one burst allow.
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

/// 50 ms, and this many per cent lost.
fn link(loss: u32) -> LinkConfig {
    LinkConfig::default()
        .with_delay(Duration::from_millis(50))
        .with_loss(Loss::Bernoulli(percent(loss)))
}

#[test]
fn ls_g14_a_mebibyte_arrives_in_840_ms_and_one_and_a_half_round_trips() {
    let mut times = Vec::new();
    for seed in 0..200 {
        let seed = Seed::from_number(seed);
        let bytes = snapshot(&mut seed.generator(2), MEBIBYTE);
        let limits = TransferLimits::default();
        let mut pair = Pair::new(seed, &bytes, &limits, &link(2));
        pair.run(Duration::from_secs(5));
        assert!(pair.is_within(&limits));
        times.push((pair.took(), pair.sent(), pair.acks));
    }
    times.sort();
    println!(
        "{:?} {:?} {:?} {:?}",
        times[0], times[100], times[190], times[199]
    );
    let late = times
        .iter()
        .filter(|t| t.0 > Duration::from_millis(990))
        .count();
    println!("late {late}");
}

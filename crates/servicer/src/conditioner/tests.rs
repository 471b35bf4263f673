//! The heap and the rules, with scripted models.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use wire::Seed;

use super::*;
use crate::socket::SocketIndex;

#[test]
fn datagrams_without_a_rule_are_not_held() {
    let rules = Rules::new();
    let conditioner = Conditioner::new(rules.clone());
    assert!(!conditioner.has_rule(&to("127.0.0.1:5")));
    rules.set(address("127.0.0.1:6"), Delay(Duration::ZERO));
    assert!(!conditioner.has_rule(&to("127.0.0.1:5")));
    assert!(conditioner.has_rule(&to("127.0.0.1:6")));
    assert!(rules.remove(address("127.0.0.1:6")));
    assert!(!conditioner.has_rule(&to("127.0.0.1:6")));
}

#[test]
fn the_most_specific_rule_counts() {
    let rules = Rules::new();
    let host: IpAddr = "127.0.0.1".parse().unwrap();
    let ours: IpAddr = "127.0.0.9".parse().unwrap();
    let delays = [
        (Ends::from(Remote::Any), 1),
        (Ends::from(host), 2),
        (Ends::from(address("127.0.0.1:5")), 3),
        (
            Ends {
                local: Some(ours),
                remote: Remote::Any,
            },
            4,
        ),
    ];
    let mut conditioner = Conditioner::new(rules.clone());
    let mut from_local = to("127.0.0.1:5");
    for (place, (ends, delay)) in delays.into_iter().enumerate() {
        rules.set(ends, Delay(Duration::from_millis(delay)));
        assert_eq!(rules.len(), place + 1);
        from_local.local = Some(ours);
        assert_eq!(arrival(&mut conditioner, from_local), delay);
    }
    assert_eq!(arrival(&mut conditioner, to("127.0.0.1:5")), 3);
    assert_eq!(arrival(&mut conditioner, to("127.0.0.1:6")), 2);
    assert_eq!(arrival(&mut conditioner, to("127.0.0.2:5")), 1);
}

#[test]
fn the_earliest_arrives_first_and_equal_times_keep_their_order() {
    let mut conditioner = ruled(Script(vec![vec![20], vec![10], vec![10, 30]]));
    let ledger = Ledger::default();
    for number in 0..3 {
        conditioner.take(Instant::ZERO, to(PEER), &[number], &ledger);
    }
    assert_eq!(
        conditioner.pop_due(Instant::from_millis(9)).map(first),
        None
    );
    assert_eq!(conditioner.poll_timeout(), Some(Instant::from_millis(10)));
    let order: Vec<u8> = std::iter::from_fn(|| conditioner.pop_due(Instant::from_millis(99)))
        .map(first)
        .collect();
    assert_eq!(order, [1, 2, 0, 2]);
    assert_eq!(conditioner.poll_timeout(), None);
    assert_eq!(conditioner.held_bytes, 0);
}

#[test]
fn agrees_with_a_sorted_list() {
    for seed in 0..200 {
        let mut generator = Seed::from_number(seed).generator(0);
        let delays: Vec<Vec<u64>> = (0..60)
            .map(|_| {
                let copies = generator.below(3);
                (0..copies).map(|_| generator.below(50)).collect()
            })
            .collect();
        let mut conditioner = ruled(Script(delays.clone())).with_limits(Limits {
            datagrams_max: 20,
            bytes_max: usize::MAX,
        });
        let ledger = Ledger::default();
        let mut model: Vec<(u64, u8)> = Vec::new();
        let mut refused = 0;
        for (number, arrivals) in (0_u8..).zip(&delays) {
            conditioner.take(Instant::ZERO, to(PEER), &[number], &ledger);
            for &at in arrivals {
                if model.len() < 20 {
                    model.push((at, number));
                } else {
                    refused += 1;
                }
            }
            // A stable sort, so equal times keep their order.
            model.sort_by_key(|&(at, _)| at);
            let now = generator.below(20);
            while let Some((_, bytes)) = conditioner.pop_due(Instant::from_millis(now)) {
                let (at, expected) = model.remove(0);
                assert!(at <= now, "seed {seed}");
                assert_eq!(bytes, [expected], "seed {seed}");
            }
            assert!(model.first().is_none_or(|&(at, _)| at > now), "seed {seed}");
        }
        assert_eq!(ledger.snapshot().conditioned_full, refused, "seed {seed}");
    }
}

#[test]
fn a_lost_datagram_is_counted_and_copies_are_not() {
    let mut conditioner = ruled(Script(vec![vec![], vec![5, 5]]));
    let ledger = Ledger::default();
    conditioner.take(Instant::ZERO, to(PEER), &[1], &ledger);
    assert_eq!(conditioner.poll_timeout(), None);
    conditioner.take(Instant::ZERO, to(PEER), &[2], &ledger);
    assert_eq!(conditioner.held.len(), 2);
    assert_eq!(ledger.snapshot().conditioned_lost, 1);
}

#[test]
fn holds_no_more_datagrams_and_bytes_than_its_limits() {
    let limits = Limits {
        datagrams_max: 3,
        bytes_max: 10,
    };
    let ledger = Ledger::default();
    let mut conditioner = ruled(Delay(Duration::from_secs(1))).with_limits(limits);
    for _ in 0..5 {
        conditioner.take(Instant::ZERO, to(PEER), &[0], &ledger);
    }
    assert_eq!(conditioner.held.len(), 3);
    assert_eq!(ledger.snapshot().conditioned_full, 2);

    let mut conditioner = ruled(Delay(Duration::from_secs(1))).with_limits(limits);
    conditioner.take(Instant::ZERO, to(PEER), &[0; 8], &ledger);
    conditioner.take(Instant::ZERO, to(PEER), &[0; 3], &ledger);
    conditioner.take(Instant::ZERO, to(PEER), &[0; 2], &ledger);
    assert_eq!(conditioner.held_bytes, 10);
    assert_eq!(ledger.snapshot().conditioned_full, 3);
    assert!(conditioner.pop_due(Instant::from_millis(1_000)).is_some());
    assert_eq!(conditioner.held_bytes, 2, "what left makes room");
}

#[test]
fn datagrams_arrive_as_the_model_changed_them() {
    let mut conditioner = ruled(Halve);
    conditioner.take(Instant::ZERO, to(PEER), &[1, 2, 3, 4], &Ledger::default());
    let (_, bytes) = conditioner.pop_due(Instant::ZERO).unwrap();
    assert_eq!(bytes, [1, 2]);
    assert_eq!(conditioner.held_bytes, 0);
}

#[test]
fn a_datagram_whose_rule_was_removed_arrives_at_once() {
    let mut conditioner = Conditioner::new(Rules::new());
    let now = Instant::from_millis(7);
    conditioner.take(now, to(PEER), &[1], &Ledger::default());
    assert!(conditioner.pop_due(now).is_some());
}

/// Delays every datagram.
struct Delay(Duration);

impl LinkModel for Delay {
    fn send(&mut self, now: Instant, datagram: &[u8], deliveries: &mut Vec<Delivery>) {
        deliveries.push(Delivery {
            at: now + self.0,
            bytes: datagram.to_vec(),
        });
    }
}

/// Delivers copies of each datagram after the listed milliseconds.
struct Script(Vec<Vec<u64>>);

impl LinkModel for Script {
    fn send(&mut self, _: Instant, datagram: &[u8], deliveries: &mut Vec<Delivery>) {
        deliveries.extend(self.0.remove(0).into_iter().map(|millis| Delivery {
            at: Instant::from_millis(millis),
            bytes: datagram.to_vec(),
        }));
    }
}

/// Truncates each datagram to half.
struct Halve;

impl LinkModel for Halve {
    fn send(&mut self, at: Instant, datagram: &[u8], deliveries: &mut Vec<Delivery>) {
        let bytes = datagram[..datagram.len() / 2].to_vec();
        deliveries.push(Delivery { at, bytes });
    }
}

fn ruled(link: impl LinkModel + 'static) -> Conditioner {
    let rules = Rules::new();
    rules.set(Remote::Any, link);
    Conditioner::new(rules)
}

/// Returns the delay of a datagram, ms.
fn arrival(conditioner: &mut Conditioner, envelope: Envelope) -> u64 {
    conditioner.take(Instant::ZERO, envelope, &[0], &Ledger::default());
    let at = conditioner.poll_timeout().unwrap();
    conditioner.pop_due(at).unwrap();
    at.as_millis()
}

fn first((_, bytes): (Envelope, Vec<u8>)) -> u8 {
    bytes[0]
}

fn to(remote: &str) -> Envelope {
    Envelope {
        socket: SocketIndex(0),
        remote: address(remote),
        local: None,
        ecn: None,
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

const PEER: &str = "127.0.0.1:5";

#[test]
fn a_link_delays_copies_and_damages_what_is_sent() {
    use netsim::{Chance, LinkConfig};

    let config = LinkConfig::default()
        .with_delay(Duration::from_millis(7))
        .with_duplicate(Chance::percent(100))
        .with_corrupt(Chance::percent(100));
    let mut link = Link::new(config, Seed::from_number(1).generator(0));
    let mut deliveries = Vec::new();
    LinkModel::send(&mut link, Instant::ZERO, b"datagram", &mut deliveries);
    assert_eq!(deliveries.len(), 2);
    for delivery in deliveries {
        assert_eq!(delivery.at, Instant::from_millis(7));
        assert_eq!(delivery.bytes.len(), 8);
        assert_ne!(delivery.bytes, b"datagram");
    }
}

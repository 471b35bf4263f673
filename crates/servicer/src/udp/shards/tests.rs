use std::convert::Infallible;
use std::net::SocketAddr;

use super::*;

/// Knows no session, so every datagram is a stray.
#[derive(Debug)]
struct Newcomer;

impl Machine for Newcomer {
    type Peer = SocketAddr;
    type Event = Infallible;
    type Command = Infallible;

    fn handle_datagram(&mut self, _: Instant, _: Arrival<SocketAddr>, _: &mut [u8]) {}

    fn is_stray(&self, _: &[u8]) -> bool {
        true
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_transmit(&mut self, _: Instant, _: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        None
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// A shard with no other shard to forward to.
fn newcomer(forwarded: &Arc<ForwardCounters>) -> Shard<Newcomer, ()> {
    let (_, strays) = crossbeam_channel::bounded(0);
    Shard {
        machine: Newcomer,
        place: 0,
        strays,
        others: Arc::default(),
        forwarded: Arc::clone(forwarded),
        limiter: ForwardLimiter::default(),
    }
}

/// Gives `shard` a datagram from each of `sources`. Returns how many it forwarded.
fn send(
    shard: &mut Shard<Newcomer, ()>,
    at: Instant,
    sources: impl Iterator<Item = SocketAddr>,
) -> u64 {
    let mut passed_on = 0;
    for source in sources {
        let refused = || shard.forwarded.refused.load(Ordering::Relaxed);
        let before = refused();
        shard.handle_datagram(at, Arrival::from(source), &mut [7; 32]);
        let after = shard.forwarded.refused.load(Ordering::Relaxed);
        passed_on += 1 - (after - before);
    }
    passed_on
}

/// Sources in many prefixes.
fn everywhere(count: u32) -> impl Iterator<Item = SocketAddr> {
    (0..count).map(|number| {
        let [_, _, high, low] = number.to_be_bytes();
        SocketAddr::from(([10, high, low, 1], 7_777))
    })
}

/// A source in one /24, 65,536 of them.
fn neighbour(number: u16) -> SocketAddr {
    let [high, low] = number.to_be_bytes();
    SocketAddr::from(([203, 0, 113, low], 1_000 + u16::from(high)))
}

/// A source in one /56, 65,536 of them.
fn neighbour_of_ipv6(number: u16) -> SocketAddr {
    let network = 0xff00 | (number % 256);
    SocketAddr::from(([0x2001, 0xdb8, 0, network, number, 1, 2, 3], 5_000))
}

#[test]
fn forwarding_for_unknown_peers_is_rate_limited() {
    let passed = Arc::<ForwardCounters>::default();
    let mut shard = newcomer(&passed);
    let mut flood = |at: Instant, count: u32| send(&mut shard, at, everywhere(count));
    // One burst, after however long an idle time.
    let start = Instant::ZERO + Duration::from_secs(100);
    assert_eq!(flood(start, 5_000), u64::from(FORWARD_BURST));
    assert_eq!(flood(start, 5_000), 0);
    // Then at the rate.
    let mut in_a_second = 0;
    for milli in 1..=1_000 {
        in_a_second += flood(start + Duration::from_millis(milli), 100);
    }
    assert!(
        in_a_second.abs_diff(FORWARDED_PER_SECOND.into()) <= 1,
        "{in_a_second}"
    );
    assert_eq!(
        flood(start + Duration::from_secs(3_600), 5_000),
        u64::from(FORWARD_BURST)
    );
    // No tokens while the clock does not advance.
    assert_eq!(flood(start + Duration::from_secs(3_600), 1), 0);
}

#[test]
fn a_flood_from_one_prefix_blocks_no_other_migration() {
    let player = SocketAddr::from(([192, 0, 2, 7], 4_000));
    for source in [neighbour, neighbour_of_ipv6] {
        let mut shard = newcomer(&Arc::default());
        // Two prefixes with the same bucket share its limit; 1 in 1,024 pairs does.
        let place =
            |shard: &Shard<_, _>, source: SocketAddr| shard.limiter.bucket_index(source.ip());
        while place(&shard, player) == place(&shard, source(0)) {
            shard.limiter = ForwardLimiter::default();
        }
        let start = Instant::ZERO + Duration::from_secs(100);
        let (mut strangers, mut players) = (0, 0);
        // 100,000 per second from all addresses and ports of the prefix, and 60 per second of a
        // migrated client.
        for milli in 0..1_000_u64 {
            let at = start + Duration::from_millis(milli);
            strangers += send(&mut shard, at, (0..100).map(|number| source(number * 655)));
            if milli.is_multiple_of(16) {
                players += send(&mut shard, at, [player].into_iter());
            }
        }
        assert_eq!(players, 63, "each is passed on");
        let most = u64::from(PREFIX_BURST + PREFIX_PER_SECOND);
        assert!(
            (most - 2..=most).contains(&strangers),
            "{strangers} of {most}"
        );
    }
}

#[test]
fn mapped_and_plain_ipv4_addresses_have_the_same_prefix() {
    let limiter = ForwardLimiter::default();
    let place = |address: &str| limiter.bucket_index(address.parse().unwrap());
    assert_eq!(place("203.0.113.9"), place("::ffff:203.0.113.200"));
}

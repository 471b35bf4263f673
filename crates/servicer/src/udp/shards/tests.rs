use std::convert::Infallible;

use super::*;

/// Knows no session, so that all is a stray's.
#[derive(Debug)]
struct Newcomer;

impl Machine for Newcomer {
    type Peer = u32;
    type Event = Infallible;
    type Command = Infallible;

    fn handle_datagram(&mut self, _: Instant, _: Arrival<u32>, _: &mut [u8]) {}

    fn is_stray(&self, _: &[u8]) -> bool {
        true
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_transmit(&mut self, _: Instant, _: &mut Vec<u8>) -> Option<Transmit<u32>> {
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

#[test]
fn what_a_stranger_can_have_passed_on_is_bounded_by_time() {
    let passed = Arc::<Passed>::default();
    let (_, strays) = crossbeam_channel::bounded(0);
    let mut shard = Shard::<_, ()> {
        machine: Newcomer,
        place: 0,
        strays,
        others: Arc::default(),
        passed: Arc::clone(&passed),
        allowance: Allowance::default(),
    };
    let mut flood = |at: Instant, count: u32| {
        let before = passed.refused.load(Ordering::Relaxed);
        for source in 0..count {
            shard.handle_datagram(at, Arrival::from(source), &mut [7; 32]);
        }
        u64::from(count) - (passed.refused.load(Ordering::Relaxed) - before)
    };
    // A burst, however long nothing came before.
    let start = Instant::ZERO + Duration::from_secs(100);
    assert_eq!(flood(start, 5_000), allowance::BURST);
    assert_eq!(flood(start, 5_000), 0);
    // Then at the rate, however much comes.
    let mut in_a_second = 0;
    for milli in 1..=1_000 {
        in_a_second += flood(start + Duration::from_millis(milli), 100);
    }
    assert!(
        in_a_second.abs_diff(allowance::PER_SECOND) <= 1,
        "{in_a_second}"
    );
    assert_eq!(
        flood(start + Duration::from_secs(3_600), 5_000),
        allowance::BURST
    );
    // A clock that stands still brings nothing.
    assert_eq!(flood(start + Duration::from_secs(3_600), 1), 0);
}

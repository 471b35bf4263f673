#![expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]

use super::*;

fn pushed(steps: Range<u32>) -> UnsentHashes {
    let mut hashes = UnsentHashes::new();
    for step in steps {
        hashes.push(step, step * 3).unwrap();
    }
    hashes
}

/// The steps of a run; checks that each has its own hash.
fn steps(hashes: &mut UnsentHashes) -> Vec<u32> {
    let newest = hashes.reported.end - 1;
    let run = hashes.take(newest);
    let first = newest - run.back;
    let steps: Vec<_> = (first..first + run.count).collect();
    for (step, hash) in steps.iter().zip(run.values) {
        assert_eq!(hash, step * 3);
    }
    steps
}

#[test]
fn each_is_sent_once_and_again_on_request() {
    let mut hashes = pushed(0..20);
    assert_eq!(steps(&mut hashes), (0..16).collect::<Vec<_>>());
    assert_eq!(steps(&mut hashes), [16, 17, 18, 19]);
    assert_eq!(steps(&mut hashes), []);
    hashes.on_wanted(17);
    assert_eq!(steps(&mut hashes), [17]);
    hashes.on_wanted(18);
    assert_eq!(steps(&mut hashes), [18, 19]);
    assert_eq!(steps(&mut hashes), []);
    hashes.on_wanted(20);
    assert_eq!(steps(&mut hashes), [], "it was never sent");
    assert_eq!(hashes.push(19, 0), Err(ReportError::OutOfOrder));
}

#[test]
fn omitted_hashes_are_never_sent() {
    // Fill the ring first, so that a gap could be mistaken for old hashes.
    let mut hashes = pushed(0..1_100);
    while !steps(&mut hashes).is_empty() {}
    for step in (1_110..1_115).chain(1_120..1_122) {
        hashes.push(step, step * 3).unwrap();
    }
    assert_eq!(steps(&mut hashes), (1_110..1_115).collect::<Vec<_>>());
    assert_eq!(steps(&mut hashes), [1_120, 1_121]);
    hashes.on_wanted(1_100);
    assert_eq!(steps(&mut hashes), [1_110]);
    hashes.on_wanted(1_111);
    assert_eq!(steps(&mut hashes), (1_111..1_115).collect::<Vec<_>>());
    hashes.on_wanted(1_116);
    assert_eq!(steps(&mut hashes), [1_120, 1_121]);
    hashes.on_wanted(1_098);
    assert_eq!(steps(&mut hashes), [1_098]);
    hashes.on_wanted(1_099);
    assert_eq!(steps(&mut hashes), [1_099], "and not what was left out");
    assert_eq!(steps(&mut hashes), []);
    // Longer than the ring: all older hashes are gone.
    hashes.push(5_000, 15_000).unwrap();
    assert_eq!(steps(&mut hashes), [5_000]);
    hashes.on_wanted(low(3_990));
    assert_eq!(steps(&mut hashes), [5_000]);
}

#[test]
fn one_missing_hash_is_retransmitted_unless_many_are() {
    let mut hashes = pushed(0..100);
    while !steps(&mut hashes).is_empty() {}
    for (wanted, sent) in [
        (50, 50..51),
        // The same step again, or one soon after it: a burst.
        (50, 50..66),
        (69, 69..85),
        (89, 89..90),
        (20, 20..21),
        (24, 24..40),
    ] {
        hashes.on_wanted(wanted);
        assert_eq!(steps(&mut hashes), sent.collect::<Vec<_>>());
    }
}

fn low(step: u32) -> u16 {
    Tick(step).low()
}

#[test]
fn a_burst_longer_than_the_ring_sends_no_wrong_hash() {
    let mut hashes = pushed(0..5);
    hashes.on_wanted(0);
    for step in 5..3_000 {
        hashes.push(step, step * 3).unwrap();
    }
    let first = 3_000 - 1_024;
    assert_eq!(steps(&mut hashes), (first..first + 16).collect::<Vec<_>>());
    hashes.on_wanted(3);
    assert_eq!(steps(&mut hashes).first(), Some(&(first + 16)));
}

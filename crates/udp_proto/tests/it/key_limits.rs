//! Each limit of [`KeyLimits`], reached exactly.

use core::time::Duration;

use udp_proto::{CloseCode, CloseReason, Config, KeyLimits, SessionId};

use crate::direct::{Line, config};
use crate::harness::UNRELIABLE;
use crate::key_update::{KEY_PHASE, every, phases};

fn limited(change: impl FnOnce(KeyLimits) -> KeyLimits) -> Config {
    config(|config| config.key_limits = change(config.key_limits))
}

fn joined(config: Config) -> (Line, (SessionId, SessionId)) {
    let mut line = Line::with(7, config, |listen| listen);
    let ends = line.join(1);
    line.run(600);
    (line, ends)
}

/// A packet of the client that the server answers.
fn tick(line: &mut Line, session: SessionId) {
    line.client
        .machine
        .send(line.now, session, UNRELIABLE, b"tick")
        .unwrap();
    line.run(10);
}

#[test]
fn phase_packets_bounds_the_packets_of_a_phase() {
    let (mut line, ends) = joined(every(100));
    for _ in 0..450 {
        tick(&mut line, ends.0);
    }
    for is_client in [true, false] {
        let packets = line.record.iter().filter(|(from, _)| *from == is_client);
        let bits: Vec<u8> = packets
            .map(|(_, bytes)| bytes[0])
            .filter(|first| first & 0xC0 == 0x40)
            .map(|first| first & KEY_PHASE)
            .collect();
        let runs: Vec<usize> = bits.chunk_by(|a, b| a == b).map(<[u8]>::len).collect();
        assert!(runs.len() >= 4, "{runs:?}");
        if is_client {
            // The end that sends more reaches the limit first, and the other follows.
            assert!(runs[..4].iter().all(|run| *run == 100), "{runs:?}");
        }
        assert!(runs.iter().all(|run| *run <= 100), "{runs:?}");
    }
}

#[test]
fn phase_span_bounds_the_duration_of_a_phase() {
    let span = Duration::from_secs(30);
    let (mut line, ends) = joined(limited(|limits| limits.with_phase_span(span)));
    line.run(28_000);
    assert_eq!(phases(&line, ends), [0; 4], "28.6 s");
    line.run(2_500);
    assert_eq!(
        phases(&line, ends),
        [1; 4],
        "with the first keepalive behind 30 s"
    );
    line.run(300_000);
    let phases = phases(&line, ends);
    assert!(
        phases.iter().all(|count| (9..=11).contains(count)),
        "{phases:?}"
    );
}

#[test]
fn seals_max_closes_with_64_seals_left_for_close() {
    let mut settings = limited(|limits| limits.with_seals_max(300).with_phase_packets(1_000));
    settings.linger = Duration::ZERO;
    let (mut line, ends) = joined(settings);
    let sealed = |line: &Line| {
        let packets = line.record.iter();
        packets
            .filter(|(is_client, bytes)| *is_client && bytes[0] & 0xC0 == 0x40)
            .count()
    };
    while line.client.closes().is_empty() {
        assert!(sealed(&line) < 300 - 64, "it would have sealed more");
        tick(&mut line, ends.0);
    }
    assert_eq!(
        line.client.closes(),
        [CloseReason::Local(CloseCode::AeadLimit)]
    );
    assert_eq!(
        line.server.closes(),
        [CloseReason::Peer(CloseCode::AeadLimit)]
    );
    assert_eq!(sealed(&line), 300 - 64 + 1, "and the CLOSE");
}

/// If key updates are possible in time, no key reaches its limit.
#[test]
fn seals_max_is_not_reached_if_keys_are_updated() {
    let (mut line, ends) = joined(limited(|limits| {
        limits.with_seals_max(300).with_phase_packets(200)
    }));
    for _ in 0..2_000 {
        tick(&mut line, ends.0);
    }
    line.run(200);
    assert_eq!(line.client.closes(), []);
    assert_eq!(phases(&line, ends), [10; 4]);
}

#[test]
fn failed_opens_max_closes_at_exactly_that_many_forged_packets() {
    let (mut line, ends) = joined(limited(|limits| limits.with_failed_opens_max(500)));
    let genuine = line.record.iter().rev().find(|(is_client, _)| *is_client);
    let genuine = genuine.unwrap().1.clone();
    let mut forged = genuine.clone();
    *forged.last_mut().unwrap() ^= 1;
    // Above all received numbers, alternating between the phases.
    forged[5] = 0x10;
    for number in 0..499 {
        forged[0] ^= KEY_PHASE * u8::from(number % 3 == 0);
        line.server.take(line.now, line.client.at, &forged);
        // A replay is not opened and does not count.
        line.server.take(line.now, line.client.at, &genuine);
    }
    line.settle();
    let unopened = |line: &Line| {
        let stats = line.server.machine.session_stats(ends.1);
        stats.unwrap().packets_unopened
    };
    assert_eq!((unopened(&line), line.server.closes()), (499, vec![]));
    line.server.take(line.now, line.client.at, &forged);
    assert_eq!(unopened(&line), 500);
    line.settle();
    assert_eq!(
        line.server.closes(),
        [CloseReason::Local(CloseCode::AeadLimit)]
    );
    assert_eq!(
        line.client.closes(),
        [CloseReason::Peer(CloseCode::AeadLimit)]
    );
}

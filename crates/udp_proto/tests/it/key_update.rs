//! Key updates between two honest ends.

use core::time::Duration;

use crypto::Provider;
use netsim::provider::{NonceLog, Recording, SimProvider};
use udp_proto::{Config, KeyLimits, NoSession, SessionId};
use wire::{Generator, Seed};

use crate::direct::{Line, Sent};
use crate::harness::{RELIABLE, UNRELIABLE};

/// Key phase bit in the first byte.
pub(crate) const KEY_PHASE: u8 = 0x20;

/// Keys are updated as often as allowed.
pub(crate) fn every(packets: u64) -> Config {
    let mut config = Config::default();
    config.key_limits = KeyLimits::default().with_phase_packets(packets);
    config
}

/// Each end's own key updates and those it saw from its peer: the client's two counts, then the
/// server's.
pub(crate) fn phases<P: Provider>(line: &Line<P>, ends: (SessionId, SessionId)) -> [u64; 4] {
    let client = line.client.machine.session_stats(ends.0).unwrap();
    let server = line.server.machine.session_stats(ends.1).unwrap();
    [
        client.key_phase_sent,
        client.key_phase_received,
        server.key_phase_sent,
        server.key_phase_received,
    ]
}

fn joined(config: Config) -> (Line, (SessionId, SessionId)) {
    let mut line = Line::with(1, config, |listen| listen);
    let ends = line.join(1);
    line.run(1_000);
    (line, ends)
}

fn send_plaintext<P: Provider>(line: &mut Line<P>, session: SessionId, message: &[u8]) {
    let (now, machine) = (line.now, &mut line.client.machine);
    machine.send(now, session, RELIABLE, message).unwrap();
}

#[test]
fn a_key_update_at_one_end_changes_the_keys_of_both_once() {
    let (mut line, ends) = joined(Config::default());
    assert_eq!(phases(&line, ends), [0; 4]);
    for round in 1..=5 {
        let before = line.record.len();
        let (machine, session) = match round % 2 {
            0 => (&mut line.client.machine, ends.0),
            _ => (&mut line.server.machine, ends.1),
        };
        // Requested twice, done once.
        machine.update_keys(line.now, session).unwrap();
        machine.update_keys(line.now, session).unwrap();
        line.settle();
        assert_eq!(
            phases(&line, ends)[2 * (round % 2)],
            round as u64,
            "at once"
        );
        line.run(200);
        assert_eq!(phases(&line, ends), [round as u64; 4]);
        let bits: Vec<u8> = line.record[before..]
            .iter()
            .map(|(_, bytes)| bytes[0] & KEY_PHASE)
            .collect();
        let bit = if round % 2 == 0 { 0 } else { KEY_PHASE };
        assert!(bits.iter().all(|it| *it == bit), "{bits:?}");
        send_plaintext(&mut line, ends.0, b"under new keys");
        let (now, machine) = (line.now, &mut line.server.machine);
        machine.send(now, ends.1, RELIABLE, b"and back").unwrap();
        line.run(1_000);
        assert_eq!(line.server.messages.len(), round);
    }
    assert_eq!(phases(&line, ends), [5; 4], "nobody changed them unasked");
    line.server.machine.shutdown(line.now);
    assert_eq!(
        line.server.machine.update_keys(line.now, ends.1),
        Err(NoSession)
    );
}

#[test]
fn simultaneous_key_updates_change_keys_once() {
    let (mut line, ends) = joined(Config::default());
    for round in 1..=4 {
        line.client.machine.update_keys(line.now, ends.0).unwrap();
        line.server.machine.update_keys(line.now, ends.1).unwrap();
        line.run(1_000);
        assert_eq!(phases(&line, ends), [round; 4]);
    }
}

/// An update that waits for its acknowledgement and for three probe timeouts is done later without
/// another call.
#[test]
fn an_update_waits_for_an_acknowledgement_and_three_probe_timeouts() {
    let (mut line, ends) = joined(Config::default());
    line.client.machine.update_keys(line.now, ends.0).unwrap();
    // Its PING is lost, so nothing of phase 1 is acknowledged.
    assert_eq!(line.client.drain(line.now).len(), 1);
    line.client.machine.update_keys(line.now, ends.0).unwrap();
    for _ in 0..40 {
        line.now += Duration::from_millis(50);
        line.client.wake(line.now);
        for Sent { bytes, .. } in line.client.drain(line.now) {
            assert_eq!(bytes[0] & KEY_PHASE, KEY_PHASE, "still phase 1");
        }
    }
    line.run(2_000);
    assert_eq!(phases(&line, ends), [2; 4]);
    // Acknowledged at once and requested again: 3 probe timeouts of 25 ms, and a margin.
    line.client.machine.update_keys(line.now, ends.0).unwrap();
    line.settle();
    let start = line.now;
    line.client.machine.update_keys(line.now, ends.0).unwrap();
    while phases(&line, ends)[0] < 4 {
        send_plaintext(&mut line, ends.0, b"tick");
        line.run(1);
        assert!(line.now < start + Duration::from_millis(500));
    }
    let pto = line.now.saturating_since(start) / 3;
    assert!(pto >= Duration::from_millis(25), "{pto:?}");
}

/// Packets sealed before the update that arrive after it are accepted for three probe timeouts.
#[test]
fn packets_of_the_last_phase_are_accepted_for_three_probe_timeouts() {
    for (wait, is_taken) in [(0, true), (60, true), (150, false)] {
        let (mut line, ends) = joined(Config::default());
        line.run(3_000);
        let idle = line.server.machine.memory();
        let mut overtaken = Vec::new();
        for number in 0..3 {
            send_plaintext(&mut line, ends.0, &[number; 30]);
            overtaken.extend(line.client.drain(line.now));
        }
        line.client.machine.update_keys(line.now, ends.0).unwrap();
        let after = line.client.drain(line.now);
        assert_eq!((overtaken.len(), after.len()), (3, 1));
        line.server.take(line.now, line.client.at, &after[0].bytes);
        let held = line.server.machine.memory();
        line.now += Duration::from_millis(wait);
        line.server.wake(line.now);
        for Sent { bytes, .. } in overtaken {
            assert_eq!(bytes[0] & KEY_PHASE, 0);
            line.server.take(line.now, line.client.at, &bytes);
        }
        line.server.drain(line.now);
        let count = if is_taken { 3 } else { 0 };
        assert_eq!(line.server.messages.len(), count, "{wait} ms later");
        // The old key is expanded once and dropped at its deadline.
        if is_taken {
            assert!(line.server.machine.memory() > held);
        }
        line.run(3_000);
        assert!(line.server.machine.memory() < idle + 500, "{wait}");
        assert_eq!(line.server.messages.len(), 3, "sent again, where need be");
        let stats = line.server.machine.session_stats(ends.1).unwrap();
        assert_eq!(stats.packets_unopened, 0);
    }
}

/// Packets that the peer sealed before its response to the update but that arrive later are no
/// violation.
#[test]
fn packets_overtaken_by_the_peers_response_are_accepted() {
    let (mut line, ends) = joined(Config::default());
    line.run(3_000);
    let (now, server) = (line.now, &mut line.server.machine);
    server.send(now, ends.1, RELIABLE, b"late").unwrap();
    let late = line.server.drain(line.now);
    line.client.machine.update_keys(line.now, ends.0).unwrap();
    let first = line.client.drain(line.now);
    assert_eq!((late.len(), first.len()), (1, 1));
    line.server.take(line.now, line.client.at, &first[0].bytes);
    line.now += Duration::from_millis(30);
    line.server.wake(line.now);
    // It acknowledges only the first packet of our phase.
    let answers = line.server.drain(line.now);
    assert!(!answers.is_empty());
    for Sent { bytes, .. } in answers {
        assert_eq!(bytes[0] & KEY_PHASE, KEY_PHASE);
        line.client.take(line.now, line.server.at, &bytes);
    }
    assert_eq!(phases(&line, ends), [1; 4]);
    assert!(line.client.messages.is_empty());
    line.client.take(line.now, line.server.at, &late[0].bytes);
    line.client.drain(line.now);
    assert_eq!(line.client.messages, [(RELIABLE, b"late".to_vec())]);
    assert_eq!(line.client.closes(), []);
}

/// The secret of the previous phase is dropped before the next keepalive.
#[test]
fn an_old_phase_is_removed_at_its_deadline() {
    let (mut line, ends) = joined(Config::default());
    line.client.machine.update_keys(line.now, ends.0).unwrap();
    line.run(60);
    assert_eq!(phases(&line, ends), [1; 4]);
    // Both sent less than 60 ms ago, so keepalives are 700 ms away.
    for machine in [&line.client.machine, &line.server.machine] {
        let next = machine.poll_timeout().unwrap();
        assert!(next < line.now + Duration::from_millis(400), "{next:?}");
    }
}

/// Two ends update keys as often as allowed, by count, by call and both, over a line with loss,
/// duplication and delay; every seal is recorded.
#[test]
fn twp_k1_no_two_seals_share_key_and_nonce_over_thousands_of_key_phases() {
    let log = NonceLog::default();
    let seed = Seed::from_number(2);
    let provider = |number| Recording::new(SimProvider::new(seed.generator(number).seed()), &log);
    let ends = (provider(1), provider(2));
    let mut line = Line::between(seed, every(64), |listen| listen, ends);
    let ends = line.join(1);
    let mut generator = seed.generator(3);
    let mut late: Vec<(u64, bool, Vec<u8>)> = Vec::new();
    for turn in 0..120_000_u64 {
        line.now += Duration::from_millis(1);
        if turn % 500 == 0 {
            line.client.machine.update_keys(line.now, ends.0).unwrap();
            line.server.machine.update_keys(line.now, ends.1).unwrap();
        }
        let (client, server) = (&mut line.client.machine, &mut line.server.machine);
        client.send(line.now, ends.0, UNRELIABLE, &[1; 20]).unwrap();
        server.send(line.now, ends.1, UNRELIABLE, &[2; 20]).unwrap();
        line.client.wake(line.now);
        line.server.wake(line.now);
        for (is_up, sent) in [
            (true, line.client.drain(line.now)),
            (false, line.server.drain(line.now)),
        ] {
            for Sent { bytes, .. } in sent {
                for _ in 0..copies(&mut generator) {
                    let delay = 5 + generator.below(20);
                    late.push((turn + delay, is_up, bytes.clone()));
                }
            }
        }
        for (_, is_up, bytes) in late.extract_if(.., |(due, ..)| *due <= turn) {
            if is_up {
                line.server.take(line.now, line.client.at, &bytes);
            } else {
                line.client.take(line.now, line.server.at, &bytes);
            }
        }
        line.client.messages.clear();
        line.server.messages.clear();
    }
    assert_eq!(
        (line.client.closes(), line.server.closes()),
        (vec![], vec![])
    );
    let phases = phases(&line, ends);
    assert!(phases.iter().all(|count| *count > 500), "{phases:?}");
    assert!(log.sealed() > 230_000, "{} seals", log.sealed());
    assert!(log.keys() > 1_000, "{} keys", log.keys());
    assert_eq!(log.reuses(), []);
}

/// None, one or two.
pub(crate) fn copies(generator: &mut Generator) -> u64 {
    match generator.below(20) {
        0 => 0,
        1 => 2,
        _ => 1,
    }
}

/// R2: every packet sent is replayed later, in any phase.
#[test]
fn twp_r2_a_replay_of_any_phase_is_delivered_in_none() {
    let mut line = Line::with(3, every(64), |listen| listen);
    let ends = line.join(1);
    let mut generator = Seed::from_number(3).generator(1);
    let mut replayed = 0;
    for turn in 0..20_000_u32 {
        line.now += Duration::from_millis(2);
        line.client.wake(line.now);
        line.server.wake(line.now);
        let channel = if turn % 2 == 0 { UNRELIABLE } else { RELIABLE };
        line.client
            .machine
            .send(line.now, ends.0, channel, &turn.to_be_bytes())
            .unwrap();
        line.settle();
        let count = u64::try_from(line.record.len()).unwrap();
        for reach in [count, 300, 40] {
            let back = usize::try_from(generator.below(reach.min(count))).unwrap();
            let (is_up, bytes) = line.record[line.record.len() - 1 - back].clone();
            let (endpoint, from) = if is_up {
                (&mut line.server, line.client.at)
            } else {
                (&mut line.client, line.server.at)
            };
            let taken = endpoint.machine.stats().packets;
            endpoint.take(line.now, from, &bytes);
            assert_eq!(endpoint.machine.stats().packets, taken);
            replayed += 1;
        }
    }
    let numbers: Vec<u32> = line
        .server
        .messages
        .iter()
        .map(|(_, message)| u32::from_be_bytes(message[..].try_into().unwrap()))
        .collect();
    assert_eq!(numbers, (0..20_000).collect::<Vec<_>>());
    let phases = phases(&line, ends);
    assert!(replayed == 60_000 && phases[0] > 200, "{phases:?}");
}

/// Keys of other phases are held for three probe timeouts only, and an orderly update needs no
/// extra memory.
#[test]
fn a_key_update_leaves_memory_unchanged() {
    for number in 0..20 {
        let mut line = Line::with(number, Config::for_server(), |listen| listen);
        let ends = line.join(1);
        // The memory for keepalives varies.
        let held = |line: &mut Line| {
            let mut least = [usize::MAX; 2];
            for _ in 0..100 {
                line.run(50);
                let ends = [&line.client.machine, &line.server.machine];
                for (least, end) in least.iter_mut().zip(ends) {
                    *least = end.memory().min(*least);
                }
            }
            least
        };
        // By then each end has sent first at some time, which its jitter decides, and freed its
        // handshake state.
        line.run(30_000);
        let before = held(&mut line);
        line.client.machine.update_keys(line.now, ends.0).unwrap();
        line.run(100);
        assert_eq!(phases(&line, ends), [1; 4]);
        line.run(30_000);
        // Except for the record of a packet or two that elicited no ACK.
        for (after, before) in held(&mut line).into_iter().zip(before) {
            assert!(after <= before + 2 * 48, "{number}: {after} {before}");
        }
    }
}

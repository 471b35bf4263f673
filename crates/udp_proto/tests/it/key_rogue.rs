//! Attacks on the key phase bit, with and without the keys.

use core::time::Duration;

use netsim::provider::{CallCounts, Counting, Counts, SimProvider};
use udp_proto::{CloseCode, CloseReason, Config};
use wire::Seed;

use crate::authenticated::Scenario;
use crate::direct::Line;
use crate::harness::UNRELIABLE;
use crate::key_update::{KEY_PHASE, phases};

const PING: [u8; 1] = [0x01];
const PADDING: [u8; 1] = [0x00];

const KEY_UPDATE: Option<CloseReason> = Some(CloseReason::Local(CloseCode::KeyUpdate));

#[test]
fn a_key_update_is_answered_in_the_next_packet() {
    let mut scenario = Scenario::open_with(1, Config::default());
    scenario.send_plaintext(&PING);
    scenario.session.update();
    let packet = scenario.session.packet(&PING);
    let now = scenario.line.now + Duration::from_millis(100);
    let from = scenario.line.client.at;
    scenario.line.server.take(now, from, &packet);
    scenario.line.server.wake(now + Duration::from_millis(26));
    let answers = scenario.line.server.drain(now + Duration::from_millis(26));
    let [answer] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(answer.bytes[0] & KEY_PHASE, KEY_PHASE);
    let plain = scenario.session.open(&answer.bytes).expect("under phase 1");
    assert_eq!(plain[0], 0x02, "an ACK");
    assert_eq!(scenario.end(), None);
}

/// A peer may update again only after it knows that we have its new key.
#[test]
fn two_new_keys_without_an_acknowledgement_between_them_end_the_session() {
    for is_acknowledged in [true, false] {
        let mut scenario = Scenario::open_with(2, Config::default());
        scenario.send_plaintext(&PING);
        for _ in 0..2 {
            scenario.session.update();
            scenario.send_plaintext(if is_acknowledged { &PING } else { &PADDING });
            scenario.line.now += Duration::from_millis(if is_acknowledged { 500 } else { 1 });
            scenario.line.server.wake(scenario.line.now);
            let now = scenario.line.now;
            scenario.line.server.drain(now);
        }
        let expected = if is_acknowledged { None } else { KEY_UPDATE };
        assert_eq!(scenario.end(), expected);
    }
}

/// A peer that acknowledges our new key under its old one has not followed the update.
#[test]
fn an_acknowledgement_of_a_new_key_under_the_old_one_ends_the_session() {
    for is_answered in [true, false] {
        let mut scenario = Scenario::open_with(3, Config::default());
        let theirs = scenario.server().sessions()[0];
        scenario.line.now += Duration::from_secs(2);
        let (now, from) = (scenario.line.now, scenario.line.client.at);
        scenario.line.server.wake(now);
        let newest = |sent: &[crate::direct::Sent]| sent.last().unwrap().bytes[5..7].to_vec();
        let ack = |number: &[u8]| [&[0x02][..], number, &[0xFF, 0xFF, 0, 0]].concat();
        let sent = scenario.line.server.drain(now);
        scenario.send_plaintext(&ack(&newest(&sent)));
        scenario
            .line
            .server
            .machine
            .update_keys(now, theirs)
            .unwrap();
        let sent = scenario.line.server.drain(now);
        assert_eq!(sent.last().unwrap().bytes[0] & KEY_PHASE, KEY_PHASE);
        if is_answered {
            scenario.session.update();
        }
        let packet = scenario.session.packet(&ack(&newest(&sent)));
        scenario.line.server.take(now, from, &packet);
        scenario.line.server.drain(now);
        let expected = if is_answered { None } else { KEY_UPDATE };
        assert_eq!(scenario.end(), expected);
    }
}

/// The first packet must have the first phase.
#[test]
fn a_first_packet_of_a_later_phase_is_dropped() {
    let mut line = Line::new(4);
    let credentials = line.token(1);
    line.client.dial(line.now, &line.keys, credentials);
    let hello = line.client.drain(line.now).remove(0).bytes;
    line.server.take(line.now, line.client.at, &hello);
    let accept = line.server.drain(line.now).remove(0).bytes;
    line.client.take(line.now, line.server.at, &accept);
    let first = line.client.drain(line.now).remove(0).bytes;
    let mut flipped = first.clone();
    flipped[0] ^= KEY_PHASE;
    line.server.take(line.now, line.client.at, &flipped);
    line.server.drain(line.now);
    assert!(line.server.sessions().is_empty());
    assert_eq!(line.server.machine.stats().dropped_forged, 1);
    line.server.take(line.now, line.client.at, &first);
    line.server.drain(line.now);
    assert_eq!(line.server.sessions().len(), 1);
}

/// R4: forged phase bits cost one key expansion per second and the memory of one key, and delay no
/// valid packet.
#[test]
fn twp_r4_a_forged_key_phase_costs_one_expansion_a_second() {
    let quiet = Flood::run(0);
    let flooded = Flood::run(20);
    assert!(
        flooded.spent.open > quiet.spent.open + 30_000,
        "{flooded:?}"
    );
    // It was idle and starts with one key per direction.
    assert!(quiet.spent.aead <= 2, "{quiet:?}");
    let expanded = flooded.spent.aead - quiet.spent.aead;
    assert!((10..=20).contains(&expanded), "{flooded:?}");
    // The secret, the key and the IV.
    assert_eq!(flooded.spent.hmac - quiet.spent.hmac, 3 * expanded);
    assert!(flooded.memory > quiet.memory, "{flooded:?} {quiet:?}");
    assert!(
        flooded.memory <= quiet.memory + 2_000,
        "{flooded:?} {quiet:?}"
    );
}

/// An idle session holds no expanded keys. Messages expand them again; many PINGs do so at most
/// twice per keepalive.
#[test]
fn keys_of_an_idle_session_are_not_expanded_for_each_ping() {
    let (seed, counts) = (Seed::from_number(6), Counts::default());
    let provider = |number, counts: &Counts| {
        Counting::new(SimProvider::new(seed.generator(number).seed()), counts)
    };
    let ends = (provider(1, &Counts::default()), provider(2, &counts));
    let mut line = Line::between(seed, Config::default(), |listen| listen, ends);
    let ends = line.join(1);
    let busy = line.server.machine.memory();
    line.run(20_000);
    assert!(line.server.machine.memory() + 100 < busy);
    // One exchange per keepalive, one key per direction.
    let before = counts.now();
    line.run(20_000);
    let rested = (counts.now() - before).aead;
    assert!((2..=100).contains(&rested), "{rested}");
    let before = counts.now();
    for _ in 0..200 {
        let (now, client) = (line.now, &mut line.client.machine);
        client.send(now, ends.0, UNRELIABLE, b"played").unwrap();
        line.run(100);
    }
    assert_eq!(line.server.messages.len(), 200);
    assert!((counts.now() - before).aead <= 2, "once for all of them");
}

/// A server's costs for 20 s of traffic.
#[derive(Debug)]
struct Flood {
    spent: CallCounts,
    /// Peak memory.
    memory: usize,
}

impl Flood {
    /// With `forgeries` packets of a forged phase every 10 ms.
    fn run(forgeries: u32) -> Self {
        let (seed, counts) = (Seed::from_number(5), Counts::default());
        let provider = |number, counts: &Counts| {
            Counting::new(SimProvider::new(seed.generator(number).seed()), counts)
        };
        let ends = (provider(1, &counts), provider(2, &Counts::default()));
        let mut line = Line::between(seed, Config::default(), |listen| listen, ends);
        let ends = line.join(1);
        line.run(1_000);
        let newest = line.record.iter().rev().find(|(is_client, _)| *is_client);
        let mut forged = newest.unwrap().1.clone();
        forged[0] ^= KEY_PHASE;
        let mut generator = seed.generator(9);
        let before = counts.now();
        let mut memory = 0;
        for turn in 0..2_000 {
            line.run(10);
            for _ in 0..forgeries {
                // Random numbers: most above all that opened, some below.
                let number = u16::try_from(generator.below(0x4000)).unwrap();
                forged[5..7].copy_from_slice(&number.to_be_bytes());
                line.server.take(line.now, line.client.at, &forged);
            }
            memory = memory.max(line.server.machine.memory());
            if turn % 10 == 0 {
                let (now, machine) = (line.now, &mut line.client.machine);
                machine.send(now, ends.0, UNRELIABLE, b"genuine").unwrap();
            }
        }
        let spent = counts.now() - before;
        assert_eq!(phases(&line, ends), [0; 4]);
        assert_eq!(line.server.messages.len(), 200);
        let closes = [line.client.closes(), line.server.closes()];
        assert_eq!(closes, [vec![], vec![]]);
        // A valid update succeeds between forged ones.
        line.server.take(line.now, line.client.at, &forged);
        line.client.machine.update_keys(line.now, ends.0).unwrap();
        line.run(100);
        assert_eq!(phases(&line, ends), [1; 4]);
        Self { spent, memory }
    }
}

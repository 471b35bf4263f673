//! Version negotiation, and that no attacker between the ends can influence it.

use udp_proto::handshake::Mode;
use udp_proto::{
    CloseCode, Config, ConnectFailure, Credentials, Listen, SessionId, SpokenVersions, VERSION_1,
    VERSION_TRIAL,
};

use crate::direct::{Line, Sent, config, failures};
use crate::rogue::Rogue;

/// A server in open and token mode; client and server support these versions.
fn line(number: u64, client: SpokenVersions, server: SpokenVersions) -> Line {
    let of = |versions| config(|config: &mut Config| config.versions = versions);
    let mut line = Line::with(number, of(server), Listen::with_open_mode);
    let other = Line::with(number + 1_000, of(client), |listen| listen);
    line.client = other.client;
    line
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Version and highest version of each sent HELLO, without repeats.
fn hellos(line: &Line) -> Vec<(u32, u32)> {
    let hello = |(from_client, bytes): &(bool, Vec<u8>)| {
        (*from_client && bytes[0] == 0xC1).then(|| (number(bytes, 1), number(bytes, 5)))
    };
    let mut hellos: Vec<_> = line.record.iter().filter_map(hello).collect();
    hellos.dedup();
    hellos
}

fn dial(line: &mut Line, mode: Mode) -> SessionId {
    let credentials = if mode == Mode::Open {
        Credentials::Open
    } else {
        line.token(1)
    };
    line.client.dial(line.now, &line.keys, credentials)
}

/// Delivers datagrams, each passed to `change`, for the duration of a dial.
fn tamper(line: &mut Line, mut change: impl FnMut(bool, &mut Vec<u8>)) {
    for _ in 0..60 {
        for _ in 0..4 {
            for Sent { mut bytes, .. } in line.client.drain(line.now) {
                change(true, &mut bytes);
                line.server.take(line.now, line.client.at, &bytes);
            }
            for Sent { mut bytes, .. } in line.server.drain(line.now) {
                change(false, &mut bytes);
                line.client.take(line.now, line.server.at, &bytes);
            }
        }
        line.now += core::time::Duration::from_millis(200);
        line.client.wake(line.now);
        line.server.wake(line.now);
    }
}

/// A VERSION answer to `hello` that names `versions`.
fn offer(hello: &[u8], versions: &[u32]) -> Vec<u8> {
    let mut offer = vec![0xC5];
    offer.extend_from_slice(&hello[17..25]);
    offer.push(u8::try_from(versions.len()).unwrap());
    for version in versions {
        offer.extend_from_slice(&version.to_be_bytes());
    }
    offer
}

#[test]
fn twp_k9_both_ends_use_the_highest_common_version() {
    let (one, both) = (SpokenVersions::One, SpokenVersions::WithTrial);
    for (client, server, expected) in [
        (one, one, vec![(VERSION_1, VERSION_1)]),
        (one, both, vec![(VERSION_1, VERSION_1)]),
        (both, both, vec![(VERSION_TRIAL, VERSION_TRIAL)]),
        // The client restarts once and states its highest version.
        (
            both,
            one,
            vec![(VERSION_TRIAL, VERSION_TRIAL), (VERSION_1, VERSION_TRIAL)],
        ),
    ] {
        for mode in [Mode::Token, Mode::Open] {
            let mut line = line(1, client, server);
            let session = dial(&mut line, mode);
            line.settle();
            assert_eq!(line.client.sessions(), [session]);
            assert_eq!(line.server.sessions().len(), 1);
            assert_eq!(hellos(&line), expected, "{mode:?}");
            let accept = line.record.iter().find(|(_, bytes)| bytes[0] == 0xC3);
            let spoken = number(&accept.unwrap().1, 1);
            assert_eq!(spoken, expected.last().unwrap().0);
        }
    }
}

/// A forged VERSION makes the client offer a lower version, which the server rejects.
#[test]
fn twp_k9_a_forged_version_ends_in_a_refusal_and_no_session() {
    let both = SpokenVersions::WithTrial;
    for mode in [Mode::Token, Mode::Open] {
        let mut line = line(2, both, both);
        dial(&mut line, mode);
        let hello = line.client.drain(line.now).remove(0).bytes;
        let forged = offer(&hello, &[VERSION_1]);
        line.client.take(line.now, line.server.at, &forged);
        line.run(11_000);
        assert!(hellos(&line).contains(&(VERSION_1, VERSION_TRIAL)));
        let refused = match mode {
            Mode::Open => ConnectFailure::RefusedUnproved(CloseCode::Downgrade),
            _ => ConnectFailure::Refused(CloseCode::Downgrade),
        };
        assert_eq!(failures(&line.client), [refused], "{mode:?}");
        assert!(line.server.sessions().is_empty());
        assert_eq!(line.server.machine.stats().accepted, 0);
    }
}

/// The same, with the highest version lowered too: then the PSK's MAC or the transcript is wrong.
#[test]
fn twp_k9_an_attacker_cannot_lower_the_highest_version() {
    let both = SpokenVersions::WithTrial;
    for mode in [Mode::Token, Mode::Open] {
        let mut line = line(3, both, both);
        dial(&mut line, mode);
        let hello = line.client.drain(line.now).remove(0).bytes;
        let forged = offer(&hello, &[VERSION_1]);
        line.client.take(line.now, line.server.at, &forged);
        let mut changed = 0;
        tamper(&mut line, |is_client, bytes| {
            if is_client && bytes[0] == 0xC1 && number(bytes, 5) == VERSION_TRIAL {
                bytes[5..9].copy_from_slice(&VERSION_1.to_be_bytes());
                changed += 1;
            }
        });
        assert!(changed > 0 && line.client.sessions().is_empty());
        assert!(line.server.sessions().is_empty());
        assert_eq!(failures(&line.client).len(), 1);
        assert_eq!(line.server.machine.stats().accepted > 0, mode == Mode::Open);
        assert_eq!(
            line.server.machine.stats().dropped_psk > 0,
            mode == Mode::Token
        );
    }
}

/// A HELLO of the higher version is rewritten to the lower one, and its answers back.
#[test]
fn twp_k9_an_attacker_cannot_translate_between_versions() {
    let both = SpokenVersions::WithTrial;
    for (mode, max) in [
        (Mode::Token, VERSION_1),
        (Mode::Open, VERSION_1),
        (Mode::Open, VERSION_TRIAL),
    ] {
        let mut line = line(4, both, both);
        dial(&mut line, mode);
        tamper(&mut line, |is_client, bytes| {
            let (from, to) = if is_client {
                (VERSION_TRIAL, VERSION_1)
            } else {
                (VERSION_1, VERSION_TRIAL)
            };
            if matches!(bytes[0], 0xC1..=0xC4) && number(bytes, 1) == from {
                bytes[1..5].copy_from_slice(&to.to_be_bytes());
                if is_client {
                    bytes[5..9].copy_from_slice(&max.to_be_bytes());
                }
            }
        });
        assert!(line.client.sessions().is_empty() && line.server.sessions().is_empty());
        assert_eq!(failures(&line.client).len(), 1);
    }
}

/// An attacker removes suites from the HELLO to force a weaker one.
#[test]
fn twp_k9_an_attacker_cannot_choose_the_suite() {
    for mode in [Mode::Token, Mode::Open] {
        let one = SpokenVersions::One;
        let mut line = line(5, one, one);
        dial(&mut line, mode);
        tamper(&mut line, |is_client, bytes| {
            if is_client && bytes[0] == 0xC1 {
                assert_eq!(bytes[25..27], [0, 7]);
                bytes[26] = 1;
            }
        });
        assert!(line.client.sessions().is_empty() && line.server.sessions().is_empty());
        assert_eq!(failures(&line.client).len(), 1);
    }
}

/// For any number of VERSIONs the client restarts once; contradictory ones or those from other
/// sources change nothing.
#[test]
fn twp_k9_a_client_restarts_once_and_ignores_other_sources() {
    let mut line = line(6, SpokenVersions::WithTrial, SpokenVersions::One);
    dial(&mut line, Mode::Open);
    let first = line.client.drain(line.now).remove(0).bytes;
    let (now, server) = (line.now, line.server.at);
    let client = &mut line.client;
    client.take(now, crate::direct::network(1), &offer(&first, &[VERSION_1]));
    client.take(now, server, &offer(&first, &[VERSION_1, VERSION_TRIAL]));
    client.take(now, server, &offer(&[9; 1_200], &[VERSION_1]));
    assert!(client.drain(now).is_empty());
    assert_eq!(client.machine.stats().dropped_reply, 3);
    client.take(now, server, &offer(&first, &[7, VERSION_1]));
    let second = client.drain(now).remove(0).bytes;
    assert_ne!(first[17..25], second[17..25], "a hello id of its own");
    assert_ne!(first[36..101], second[36..101], "and a key");
    for versions in [&[VERSION_TRIAL][..], &[7]] {
        client.take(now, server, &offer(&second, versions));
        client.take(now, server, &offer(&first, versions));
    }
    assert!(client.drain(now).is_empty());
    line.server.take(now, line.client.at, &second);
    line.run(100);
    assert_eq!(line.client.sessions().len(), 1);
}

#[test]
fn a_dial_without_a_common_version_fails_with_version() {
    let mut line = line(7, SpokenVersions::WithTrial, SpokenVersions::One);
    dial(&mut line, Mode::Token);
    let hello = line.client.drain(line.now).remove(0).bytes;
    line.client
        .take(line.now, line.server.at, &offer(&hello, &[7, 8]));
    assert!(failures(&line.client).is_empty(), "it may be forged");
    line.now += core::time::Duration::from_secs(11);
    line.client.wake(line.now);
    line.client.drain(line.now);
    assert_eq!(failures(&line.client), [ConnectFailure::Version]);
}

/// VERSION creates no state, and counts against the budget for answers: 256 per second for one
/// prefix.
#[test]
fn twp_k9_k6_versions_are_few_short_and_without_state() {
    let one = SpokenVersions::One;
    let mut line = line(8, one, one);
    let memory = line.server.machine.memory();
    let (mut received, mut sent) = (0, 0);
    for count in 0..2_000 {
        let rogue = Rogue::with(count, &Credentials::Open, |hello| {
            (hello.version, hello.version_max) = (VERSION_TRIAL, VERSION_TRIAL);
        });
        received += rogue.hello.len();
        line.server.take(line.now, line.client.at, &rogue.hello);
        for answer in line.server.drain(line.now) {
            assert_eq!(answer.bytes, offer(&rogue.hello, &[VERSION_1]));
            sent += answer.bytes.len();
        }
    }
    let stats = line.server.machine.stats();
    assert_eq!(
        (stats.version_offered, stats.dropped_answer_budget),
        (256, 1_744)
    );
    assert!(sent * 80 < received);
    assert_eq!(line.server.machine.session_count(), 0);
    assert_eq!(line.server.machine.memory(), memory);
}

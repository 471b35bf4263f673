//! Handshakes with an attacker on the path that modifies, swaps and forges messages.

use core::time::Duration;

use crypto::{Identity, Secret32};
use netsim::provider::SimProvider;
use udp_proto::{
    CloseCode, Config, Credentials, Listen, Network, RetryPolicy, ServerIdentity, SessionId, Target,
};
use wire::{InstanceId, NodeId, Seed};

use crate::certificate;
use crate::direct::{Line, Party, START, Sent};
use crate::harness::{SERVER, address};
use crate::hostile::unknown_address;

/// Bytes of a HELLO that hold the cookie; the others are HELLO0.
const COOKIE: core::ops::Range<usize> = 101..134;

/// Runs one dial with each datagram passed to `change`; returns whether the client connected.
fn tamper(line: &mut Line, session: SessionId, mut change: impl FnMut(bool, &mut Vec<u8>)) -> bool {
    let before = line.client.sessions().len();
    for _ in 0..8 {
        let sent = line.client.drain(line.now);
        for Sent { mut bytes, .. } in sent {
            change(true, &mut bytes);
            line.server.take(line.now, line.client.at, &bytes);
        }
        for Sent { mut bytes, .. } in line.server.drain(line.now) {
            change(false, &mut bytes);
            line.client.take(line.now, line.server.at, &bytes);
        }
    }
    let is_connected = line.client.sessions().len() > before;
    if !is_connected {
        line.client
            .machine
            .close(line.now, session, CloseCode::App, b"")
            .unwrap();
    }
    line.now += Duration::from_millis(200);
    line.server.wake(line.now);
    line.settle();
    is_connected
}

#[test]
fn twp_k3_no_byte_of_a_token_hello_may_change() {
    let mut line = Line::new(1);
    for index in (0..1_200).filter(|index| !COOKIE.contains(index)) {
        for flip in [0x01, 0x80] {
            let credentials = line.token(1);
            let session = line.client.dial(line.now, &line.keys, credentials);
            let is_connected = tamper(&mut line, session, |is_hello, bytes| {
                if is_hello {
                    bytes[index] ^= flip;
                }
            });
            assert!(!is_connected, "byte {index} by {flip:#x}");
        }
    }
    assert_eq!(line.server.machine.stats().accepted, 0);
    assert!(line.client.sessions().is_empty() && line.server.events.is_empty());
    // Without tampering the next one connects.
    let credentials = line.token(1);
    let session = line.client.dial(line.now, &line.keys, credentials);
    assert!(tamper(&mut line, session, |_, _| ()));
}

/// The attacker gets cookies for his own HELLO, so only the transcript stops him.
#[test]
fn twp_k3_no_byte_of_an_open_hello_may_change() {
    let mut line = Line::with(2, Config::default(), Listen::with_open_mode);
    for index in (0..1_200).filter(|index| !COOKIE.contains(index)) {
        for flip in [0x01, 0x80] {
            let session = line.client.dial(line.now, &line.keys, Credentials::Open);
            let is_connected = tamper(&mut line, session, |is_client, bytes| {
                if is_client {
                    bytes[index] ^= flip;
                }
            });
            assert!(!is_connected, "byte {index} by {flip:#x}");
        }
    }
    let stats = *line.server.machine.stats();
    assert!(stats.accepted > 10, "the meddler got through to the curve");
    assert_eq!(stats.sessions_opened, 0);
    let session = line.client.dial(line.now, &line.keys, Credentials::Open);
    assert!(tamper(&mut line, session, |_, _| ()), "left alone");
}

#[test]
fn twp_k3_a_changed_cookie_costs_at_most_a_retry_or_a_resend() {
    for (number, retry) in [(3, RetryPolicy::WhenNeeded), (4, RetryPolicy::Always)] {
        let mut config = Config::default();
        config.retry = retry;
        config.sessions_per_source_max = 64;
        let mut line = Line::with(number, config, |listen| listen);
        for index in COOKIE {
            let credentials = line.token(index.try_into().unwrap());
            line.client.dial(line.now, &line.keys, credentials);
            let before = line.client.sessions().len();
            // The first HELLO is changed, and the first with a cookie if there is one.
            for _ in 0..2 {
                for Sent { mut bytes, .. } in line.client.drain(line.now) {
                    if bytes[0] == 0xC1 {
                        bytes[index] ^= 0x20;
                    }
                    line.server.take(line.now, line.client.at, &bytes);
                }
                for Sent { bytes, .. } in line.server.drain(line.now) {
                    line.client.take(line.now, line.server.at, &bytes);
                }
            }
            line.run(1_500);
            assert_eq!(line.client.sessions().len(), before + 1, "byte {index}");
            let session = *line.client.sessions().last().unwrap();
            let theirs = *line.server.sessions().last().unwrap();
            assert_same_keys(&line, session, theirs);
        }
    }
}

fn assert_same_keys(line: &Line, ours: SessionId, theirs: SessionId) {
    let key = |endpoint: &Party, session| {
        let exporter = endpoint.machine.exporter(session).unwrap();
        exporter.expand(endpoint.machine.provider(), crypto::Label::new("t"), b"")
    };
    assert!(key(&line.client, ours) == key(&line.server, theirs));
}

/// Two nodes on a line; the client end dials.
fn nodes(number: u64) -> (Line, NodeId) {
    let mut line = Line::with(number, Config::default(), |listen| {
        listen.with_network(network())
    });
    let identity = Identity::generate(&mut SimProvider::new(Seed::from_number(number))).unwrap();
    let listen = Listen::new(identity, InstanceId(9)).with_network(network());
    line.client.machine.listen(START, listen).unwrap();
    let node = line.server.machine.public_key().unwrap().node_id();
    (line, node)
}

fn network() -> Network {
    Network {
        secret: Secret32::new([7; 32]),
        previous: None,
    }
}

fn dial_node(line: &mut Line, node: NodeId) -> SessionId {
    let target = Target {
        addresses: vec![address(SERVER)],
        server: ServerIdentity::Node(node),
        credentials: Credentials::Peer,
    };
    line.client.machine.connect(line.now, target).unwrap()
}

/// Two changes for each byte of ACCEPT, 15 of them before the real one, which still connects.
fn change_every_byte_of_accept(
    line: &mut Line,
    len: usize,
    mut dial: impl FnMut(&mut Line) -> SessionId,
) {
    let changes: Vec<(usize, u8)> = (0..len)
        .flat_map(|index| [(index, 0x01), (index, 0x80)])
        .collect();
    for batch in changes.chunks(15) {
        dial(line);
        let before = line.client.sessions().len();
        let mut accept = Vec::new();
        while accept.first() != Some(&0xC3) {
            for Sent { bytes, .. } in line.client.drain(line.now) {
                line.server.take(line.now, line.client.at, &bytes);
            }
            for Sent { bytes, .. } in line.server.drain(line.now) {
                if bytes[0] == 0xC3 {
                    accept = bytes;
                } else {
                    line.client.take(line.now, line.server.at, &bytes);
                }
            }
        }
        assert_eq!(accept.len(), len);
        for &(index, flip) in batch {
            let mut changed = accept.clone();
            changed[index] ^= flip;
            line.client.take(line.now, line.server.at, &changed);
            line.client.drain(line.now);
            assert_eq!(line.client.sessions().len(), before, "byte {index}");
        }
        line.client.take(line.now, line.server.at, &accept);
        line.settle();
        assert_eq!(line.client.sessions().len(), before + 1, "{batch:?}");
        line.run(100);
    }
}

#[test]
fn twp_k3_k4_no_byte_of_accept_may_change_and_15_invalid_are_harmless() {
    let mut line = Line::new(5);
    let mut player = 0;
    change_every_byte_of_accept(&mut line, 211, |line| {
        player += 1;
        let credentials = line.token(player);
        line.client.dial(line.now, &line.keys, credentials)
    });
}

#[test]
fn twp_k3_k4_the_same_for_the_form_with_a_key() {
    let (mut line, node) = nodes(6);
    change_every_byte_of_accept(&mut line, 276, |line| dial_node(line, node));
}

#[test]
fn twp_k3_k4_the_same_for_the_form_with_a_certificate() {
    let mut line = certificate::line(17, |key| certificate::certificate(90, key));
    let mut player = 0;
    change_every_byte_of_accept(&mut line, 356, |line| {
        player += 1;
        let target = Target {
            addresses: vec![address(SERVER)],
            server: certificate::roots(&[90]),
            credentials: line.token(player),
        };
        line.client.machine.connect(line.now, target).unwrap()
    });
}

#[test]
fn twp_k4_an_accept_of_another_session_or_key_is_rejected() {
    let mut line = Line::new(7);
    line.join(1);
    let recorded = line.record.iter().find(|(_, bytes)| bytes[0] == 0xC3);
    let recorded = recorded.unwrap().1.clone();
    // The client pins a key that is not the server's.
    let credentials = line.token(2);
    let other = Identity::generate(&mut SimProvider::new(Seed::from_number(1))).unwrap();
    let target = Target {
        addresses: vec![address(SERVER)],
        server: ServerIdentity::Keys(vec![*other.public_key()]),
        credentials,
    };
    line.client.machine.connect(line.now, target).unwrap();
    let hello = line.client.drain(line.now).remove(0).bytes;
    // The recorded ACCEPT, unchanged and with the new attempt's id.
    let mut forged = recorded.clone();
    forged[5..13].copy_from_slice(&hello[17..25]);
    for accept in [&recorded, &forged] {
        line.client.take(line.now, line.server.at, accept);
    }
    line.server.take(line.now, line.client.at, &hello);
    line.run(11_000);
    assert_eq!(line.client.sessions().len(), 1, "the first one only");
    assert!(line.client.events.iter().any(|event| matches!(
        event,
        udp_proto::Event::ConnectFailed {
            failure: udp_proto::ConnectFailure::NotTheServer { rejected: 2.. },
            ..
        }
    )));
    assert_eq!(line.server.sessions().len(), 1);
}

#[test]
fn a_refuse_ends_an_attempt_only_with_a_mac() {
    let mut line = Line::new(15);
    let credentials = line.token(1);
    let session = line.client.dial(line.now, &line.keys, credentials);
    let hello = line.client.drain(line.now).remove(0).bytes;
    let mut refuse = vec![0xC4];
    refuse.extend_from_slice(&0x5457_0001_u32.to_be_bytes());
    refuse.extend_from_slice(&hello[17..25]);
    refuse.extend_from_slice(&16_u16.to_be_bytes());
    refuse.resize(31, 0);
    line.client.take(line.now, line.server.at, &refuse);
    // Five forged RETRYs: three are followed, and the attempt continues.
    let mut retry = vec![0xC2];
    retry.extend_from_slice(&0x5457_0001_u32.to_be_bytes());
    retry.extend_from_slice(&hello[17..25]);
    retry.resize(45, 9);
    for _ in 0..5 {
        line.client.take(line.now, line.server.at, &retry);
    }
    assert!(line.client.machine.stats().dropped_reply >= 2);
    line.run(2_000);
    assert_eq!(line.client.sessions(), [session]);
}

/// An attacker whose copy of an ACCEPT arrives first does not become the server's address.
#[test]
fn an_accept_from_another_address_is_ignored() {
    let mut line = Line::new(16);
    let credentials = line.token(1);
    let session = line.client.dial(line.now, &line.keys, credentials);
    let hello = line.client.drain(line.now).remove(0).bytes;
    line.server.take(line.now, line.client.at, &hello);
    let accept = line.server.drain(line.now).remove(0).bytes;
    line.client.take(line.now, unknown_address(1), &accept);
    assert!(line.client.drain(line.now).is_empty());
    assert!(line.client.sessions().is_empty());
    line.client.take(line.now, line.server.at, &accept);
    line.settle();
    assert_eq!(line.client.sessions(), [session]);
    let at = line.client.machine.peer_address(session);
    assert_eq!(at, Some(line.server.at));
}

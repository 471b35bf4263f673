//! Forged source addresses: how much an unvalidated address is sent, and what validates it.

use core::net::SocketAddr;
use core::time::Duration;

use udp_proto::{CloseCode, Credentials, Listen, SessionId};
use wire::Seed;

use crate::direct::{Line, Sent};
use crate::harness::RELIABLE;
use crate::hostile::unknown_address;
use crate::rogue::Rogue;

/// An address that is never validated gets, at any moment, less than 0.35 of the bytes sent from it
/// and at most as many datagrams.
#[test]
fn twp_k6_an_unvalidated_address_gets_at_most_a_third_of_its_bytes() {
    for number in 0..8 {
        let mut line = Line::with(
            100 + number,
            crate::direct::without_rate_limits(),
            Listen::with_open_mode,
        );
        let mut generator = Seed::from_number(number).generator(5);
        let (session, _) = line.join(1);
        line.client
            .machine
            .send(line.now, session, RELIABLE, &[3; 5_000])
            .unwrap();
        line.run(500);
        let unused = line.token(2);
        let mut store: Vec<Vec<u8>> = line.record.iter().map(|(_, b)| b.clone()).collect();
        store.extend((0..10).map(|n| Rogue::new(n, &unused).hello));
        store.extend((10..20).map(|n| Rogue::new(n, &Credentials::Open).hello));
        store.push(Rogue::with(20, &unused, |hello| hello.version = 7).hello);
        let victim = unknown_address(7);
        let (mut got, mut gave) = ((0, 0), (0, 0));
        for step in 0..2_000 {
            if step == 500 {
                // From here on, the session's packets reach a closing session.
                let theirs = line.server.sessions()[0];
                line.server
                    .machine
                    .close(line.now, theirs, CloseCode::App, b"a long farewell")
                    .unwrap();
            }
            line.now += Duration::from_micros(generator.below(20_000));
            line.server.wake(line.now);
            let index = generator.below(u64::try_from(store.len()).unwrap());
            let bytes = store[usize::try_from(index).unwrap()].clone();
            gave = (gave.0 + 1, gave.1 + bytes.len());
            line.server.take(line.now, victim, &bytes);
            for Sent { to, bytes } in line.server.drain(line.now) {
                if to != victim {
                    continue;
                }
                got = (got.0 + 1, got.1 + bytes.len());
                // The client answers a cookie with its HELLO.
                if bytes[0] == 0xC2 {
                    let hello = store.iter_mut().find(|hello| {
                        hello.len() == 1_200 && hello[0] == 0xC1 && hello[17..25] == bytes[5..13]
                    });
                    if let Some(hello) = hello {
                        udp_proto::handshake::hello::set_cookie(
                            hello,
                            bytes[13..45].try_into().unwrap(),
                        );
                    }
                }
            }
            assert!(got.0 <= gave.0, "datagrams: {got:?} for {gave:?}");
            assert!(got.1 * 100 <= gave.1 * 35, "bytes: {got:?} for {gave:?}");
        }
        assert!(got.0 > 50, "some were answered: {got:?}");
    }
}

/// Opens a session with a copy of the first packet from a forged source; returns the original
/// packet.
pub(crate) fn open_by_a_copy(line: &mut Line, victim: SocketAddr) -> (SessionId, Vec<u8>) {
    let credentials = line.token(1);
    let session = line.client.dial(line.now, &line.keys, credentials);
    let hello = line.client.drain(line.now).remove(0).bytes;
    line.server.take(line.now, line.client.at, &hello);
    let accept = line.server.drain(line.now).remove(0).bytes;
    line.client.take(line.now, line.server.at, &accept);
    let first = line.client.drain(line.now).remove(0).bytes;
    line.server.take(line.now, victim, &first);
    (session, first)
}

/// Returns the bytes that the server sends to `victim`; the rest goes to the client.
fn drain_server(line: &mut Line, victim: SocketAddr) -> usize {
    let mut sum = 0;
    for Sent { to, bytes } in line.server.drain(line.now) {
        if to == victim {
            sum += bytes.len();
        } else {
            assert_eq!(to, line.client.at);
            line.client.take(line.now, line.server.at, &bytes);
        }
    }
    sum
}

#[test]
fn twp_k6_a_copied_first_packet_amplifies_by_at_most_one_datagram() {
    let mut line = Line::new(17);
    let victim = unknown_address(3);
    let (session, first) = open_by_a_copy(&mut line, victim);
    let theirs = line.server.machine.sessions().next().unwrap();
    // The server has much to send, and its probes repeat it.
    for _ in 0..20 {
        line.server
            .machine
            .send(line.now, theirs, RELIABLE, &[9; 2_000])
            .unwrap();
    }
    let mut got = 0;
    for _ in 0..200 {
        got += drain_server(&mut line, victim);
        line.now += Duration::from_millis(10);
        line.server.wake(line.now);
    }
    assert!(got > 0, "the copy did open the session");
    assert!(got <= first.len() + 1_200, "{got} for {}", first.len());
    // The original packet is now a replay. The client's next packet moves the session to the
    // client.
    line.server.take(line.now, line.client.at, &first);
    let mut after = 0;
    for _ in 0..300 {
        line.now += Duration::from_millis(10);
        line.client.wake(line.now);
        line.server.wake(line.now);
        for Sent { bytes, .. } in line.client.drain(line.now) {
            line.server.take(line.now, line.client.at, &bytes);
        }
        after += drain_server(&mut line, victim);
    }
    assert_eq!(after, 0);
    assert_eq!(
        line.server.machine.peer_address(theirs),
        Some(line.client.at)
    );
    assert_eq!(line.client.sessions(), [session]);
    assert_eq!(line.client.messages.len(), 20, "and everything arrived");
}

/// An attacker who wins some races moves the session's address, but not permanently. A copied
/// acknowledgement does not validate his address.
#[test]
fn twp_k6_a_copied_acknowledgement_validates_no_address() {
    let mut line = Line::new(18);
    let victim = unknown_address(3);
    let (_, first) = open_by_a_copy(&mut line, victim);
    let theirs = line.server.machine.sessions().next().unwrap();
    line.server
        .machine
        .send(line.now, theirs, RELIABLE, &vec![9; 60_000])
        .unwrap();
    let (mut got, mut gave) = (0, first.len());
    for turn in 0..400 {
        line.now += Duration::from_millis(10);
        line.client.wake(line.now);
        line.server.wake(line.now);
        for (index, Sent { bytes, .. }) in line.client.drain(line.now).into_iter().enumerate() {
            if turn < 100 && (turn + index) % 2 == 0 {
                line.server.take(line.now, victim, &bytes);
                gave += bytes.len();
            }
            line.server.take(line.now, line.client.at, &bytes);
        }
        got += drain_server(&mut line, victim);
    }
    assert!(got <= gave + 9 * 1_200, "{got} for {gave}");
    assert_eq!(
        line.server.machine.peer_address(theirs),
        Some(line.client.at)
    );
    assert_eq!(line.client.messages.len(), 1);
}

/// Delivers what both have to send, once; what the server sends to `relay` also reaches the client.
fn pass_on(line: &mut Line, relay: SocketAddr) {
    for Sent { bytes, .. } in line.client.drain(line.now) {
        line.server.take(line.now, line.client.at, &bytes);
    }
    for Sent { to, bytes } in line.server.drain(line.now) {
        if to == relay || to == line.client.at {
            line.client.take(line.now, line.server.at, &bytes);
        }
    }
}

/// Queues a large message for the client at the server; returns the bytes sent at once to `to`.
fn flood(line: &mut Line, to: SocketAddr) -> usize {
    let theirs = line.server.machine.sessions().next().unwrap();
    let message = vec![9; 20_000];
    line.server
        .machine
        .send(line.now, theirs, RELIABLE, &message)
        .unwrap();
    let sent = line.server.drain(line.now);
    let to_it = sent.iter().filter(|sent| sent.to == to);
    to_it.map(|sent| sent.bytes.len()).sum()
}

/// The ACCEPT was sent to one address only, so keys in a first packet from there validate it.
#[test]
fn a_token_session_has_no_limit_at_the_address_of_its_accept() {
    let mut line = Line::new(20);
    line.join(1);
    let at = line.client.at;
    let sent = flood(&mut line, at);
    assert!(sent > 20_000, "{sent}");
}

/// An attacker sends a copied HELLO first, with the source of a victim whose traffic he reads; the
/// client's own follows. His copy of the first packet is first, too. The victim's address is still
/// not validated by an ACCEPT that the client received at another address.
#[test]
fn twp_k6_a_copied_hello_and_first_packet_validate_no_address() {
    let mut line = Line::new(21);
    let victim = unknown_address(3);
    let credentials = line.token(1);
    line.client.dial(line.now, &line.keys, credentials);
    let hello = line.client.drain(line.now).remove(0).bytes;
    line.server.take(line.now, victim, &hello);
    let accept = line.server.drain(line.now).remove(0);
    assert_eq!(accept.to, victim);
    // The client's own HELLO is from another address than the first, so the server asks for a
    // cookie, and the client returns it.
    line.server.take(line.now, line.client.at, &hello);
    let at = line.client.at;
    for _ in 0..2 {
        pass_on(&mut line, at);
    }
    let first = line.client.drain(line.now).remove(0).bytes;
    line.server.take(line.now, victim, &first);
    let sent = flood(&mut line, victim);
    let gave = hello.len() + first.len();
    assert!(accept.bytes.len() + sent <= gave + 1_200, "{sent}");
    // The client's address is validated: it returned the cookie.
    let next = {
        line.now += Duration::from_millis(500);
        line.client.wake(line.now);
        line.client.drain(line.now).remove(0).bytes
    };
    line.server.take(line.now, at, &next);
    let sent = flood(&mut line, at);
    assert!(sent > 20_000, "{sent}");
}

/// An attacker relays the only HELLO and its ACCEPT from his own address. He has no keys, so the
/// session belongs to the client with its first packet.
#[test]
fn an_attacker_that_forwards_the_hello_gets_no_session() {
    let mut line = Line::new(22);
    let copier = unknown_address(4);
    let credentials = line.token(1);
    line.client.dial(line.now, &line.keys, credentials);
    let hello = line.client.drain(line.now).remove(0).bytes;
    line.server.take(line.now, copier, &hello);
    let accept = line.server.drain(line.now).remove(0);
    assert_eq!(accept.to, copier);
    line.client.take(line.now, line.server.at, &accept.bytes);
    pass_on(&mut line, copier);
    let theirs = line.server.machine.sessions().next().unwrap();
    let at = line.server.machine.peer_address(theirs);
    assert_eq!(at, Some(line.client.at));
    // The limit for an unvalidated address still applies there.
    assert!(flood(&mut line, copier) == 0);
    line.run(1_000);
    assert_eq!(line.client.messages.len(), 1);
    let at = line.server.machine.peer_address(theirs);
    assert_eq!(at, Some(line.client.at));
}

#[test]
fn an_address_validated_by_cookie_has_no_limit() {
    let mut line = Line::with(
        19,
        crate::direct::without_rate_limits(),
        Listen::with_open_mode,
    );
    line.client.dial(line.now, &line.keys, Credentials::Open);
    while line.server.sessions().is_empty() {
        for Sent { bytes, .. } in line.client.drain(line.now) {
            line.server.take(line.now, line.client.at, &bytes);
        }
        if line.server.machine.stats().sessions_opened > 0 {
            break;
        }
        drain_server(&mut line, unknown_address(1));
    }
    let theirs = line.server.machine.sessions().next().unwrap();
    line.server
        .machine
        .send(line.now, theirs, RELIABLE, &vec![9; 20_000])
        .unwrap();
    let sent: usize = line
        .server
        .drain(line.now)
        .iter()
        .map(|sent| sent.bytes.len())
        .sum();
    assert!(sent > 20_000, "{sent}");
}

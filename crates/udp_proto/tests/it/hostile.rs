//! Datagrams of those who have no keys: changed, replayed, forged and random ones.

use core::net::SocketAddr;
use core::time::Duration;

use crypto::{Identity, Secret32};
use netsim::provider::{Counting, Counts, SimProvider};
use udp_proto::{
    CloseCode, Config, Credentials, DuplicatePolicy, Listen, Network, RetryPolicy, ServerIdentity,
    SessionId, Target,
};
use wire::{Generator, InstanceId, Instant, NodeId, Seed, UnixTime};

use crate::direct::{CLIENT, Line, Party, START, Sent, UNIX, again};
use crate::harness::{Keys, RELIABLE, SERVER, UNRELIABLE, address};
use crate::rogue::{Rogue, confirm, no_point};

/// Bytes of a HELLO that hold the cookie; all others are HELLO0.
const COOKIE: core::ops::Range<usize> = 101..134;

pub(crate) fn stranger(number: u32) -> SocketAddr {
    let [_, a, b, c] = number.to_be_bytes();
    SocketAddr::from(([100, a, b, c], 9_000))
}

/// Runs one dial over a line on which `change` meddles; returns whether the client connected.
fn meddle(line: &mut Line, session: SessionId, mut change: impl FnMut(bool, &mut Vec<u8>)) -> bool {
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
            let is_connected = meddle(&mut line, session, |is_hello, bytes| {
                if is_hello {
                    bytes[index] ^= flip;
                }
            });
            assert!(!is_connected, "byte {index} by {flip:#x}");
        }
    }
    assert_eq!(line.server.machine.stats().accepted, 0);
    assert!(line.client.sessions().is_empty() && line.server.events.is_empty());
}

/// Here the meddler gets cookies for his own HELLO, and only the transcript is in his way.
#[test]
fn twp_k3_no_byte_of_an_open_hello_may_change() {
    let mut line = Line::with(2, Config::default(), Listen::with_open_mode);
    for index in (0..1_200).filter(|index| !COOKIE.contains(index)) {
        for flip in [0x01, 0x80] {
            let session = line.client.dial(line.now, &line.keys, Credentials::Open);
            let is_connected = meddle(&mut line, session, |is_client, bytes| {
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
            // The first HELLO, and where there is one the first with a cookie, are changed.
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
    let key = |party: &Party, session| {
        let exporter = party.machine.exporter(session).unwrap();
        exporter.expand(party.machine.provider(), crypto::Label::new("t"), b"")
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

/// For each byte of ACCEPT two changes, 15 of them before the genuine one, which still connects.
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
fn twp_k3_k4_no_byte_of_accept_may_change_and_15_bad_ones_do_no_harm() {
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
fn twp_k4_an_accept_of_another_session_or_key_connects_nobody() {
    let mut line = Line::new(7);
    line.join(1);
    let recorded = line.record.iter().find(|(_, bytes)| bytes[0] == 0xC3);
    let recorded = recorded.unwrap().1.clone();
    // The client pins a key that the server does not have.
    let credentials = line.token(2);
    let other = Identity::generate(&mut SimProvider::new(Seed::from_number(1))).unwrap();
    let target = Target {
        addresses: vec![address(SERVER)],
        server: ServerIdentity::Keys(vec![*other.public_key()]),
        credentials,
    };
    line.client.machine.connect(line.now, target).unwrap();
    let hello = line.client.drain(line.now).remove(0).bytes;
    // The recorded ACCEPT, as it was and with the new attempt's id.
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

/// A session with packets of several kinds that the server has not seen yet.
fn unseen_packets(line: &mut Line, count: usize) -> Vec<Vec<u8>> {
    let (session, _) = line.join(1);
    line.run(100);
    let mut packets = Vec::new();
    while packets.len() < count {
        let (channel, len) = match packets.len() % 3 {
            0 => (UNRELIABLE, 3),
            1 => (RELIABLE, 20),
            _ => (UNRELIABLE, 70),
        };
        line.client
            .machine
            .send(line.now, session, channel, &vec![5; len])
            .unwrap();
        let sent = line.client.drain(line.now);
        packets.extend(sent.into_iter().map(|sent| sent.bytes));
        line.now += Duration::from_millis(1);
    }
    packets
}

/// All that can be seen of a session's state from outside; counters of the endpoint excepted.
fn view(party: &Party, session: SessionId) -> String {
    let machine = &party.machine;
    format!(
        "{:?} {:?} {} {:?} {:?}",
        machine.session_stats(session),
        machine.poll_timeout(),
        machine.memory(),
        machine.peer_address(session),
        machine.proof(session),
    )
}

#[test]
fn twp_k2_r4_no_packet_opens_with_a_bit_flipped_and_none_changes_anything() {
    let mut line = Line::new(8);
    let packets = unseen_packets(&mut line, 90);
    let theirs = line.server.sessions()[0];
    line.server.drain(line.now);
    let before = *line.server.machine.stats();
    let state = view(&line.server, theirs);
    let mut flips = 0;
    for packet in &packets {
        for bit in 0..packet.len() * 8 {
            let mut changed = packet.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            line.server.take(line.now, line.client.at, &changed);
            flips += 1;
        }
    }
    let stats = *line.server.machine.stats();
    assert_eq!(stats.taken(), before.taken(), "of {flips}");
    assert_eq!(stats.dropped() - before.dropped(), flips);
    // Any drop may be by the first byte, the header, the connection id, the window or the tag.
    let by_reason = stats.dropped_first_byte - before.dropped_first_byte
        + (stats.dropped_header - before.dropped_header)
        + (stats.dropped_malformed - before.dropped_malformed)
        + (stats.dropped_reply - before.dropped_reply)
        + (stats.dropped_unknown_session - before.dropped_unknown_session)
        + (stats.dropped_replayed - before.dropped_replayed)
        + (stats.dropped_forged - before.dropped_forged);
    assert_eq!(by_reason, flips);
    assert!(stats.dropped_forged - before.dropped_forged > flips / 2);
    assert_eq!(view(&line.server, theirs), state);
    assert!(line.server.drain(line.now).is_empty());
    // The genuine ones open afterwards, all of them.
    for packet in &packets {
        line.server.take(line.now, line.client.at, packet);
    }
    let taken = line.server.machine.stats().taken() - before.taken();
    assert_eq!(taken, u64::try_from(packets.len()).unwrap());
}

#[test]
fn twp_r4_r5_forged_packets_cause_no_event_close_block_or_byte() {
    let mut line = Line::new(9);
    let (session, theirs) = line.join(1);
    line.run(500);
    let mut generator = Seed::from_number(9).generator(1);
    let samples: Vec<Vec<u8>> = [true, false]
        .map(|is_client| {
            let last = line
                .record
                .iter()
                .rev()
                .find(|(from, _)| *from == is_client);
            last.unwrap().1.clone()
        })
        .into();
    let states = (view(&line.server, theirs), view(&line.client, session));
    let events = (line.server.events.len(), line.client.events.len());
    for _ in 0..10_000 {
        for (sample, is_to_server) in samples.iter().zip([true, false]) {
            // The header of a true packet, with any number, and noise behind it.
            let mut forged = sample[..5].to_vec();
            forged[0] |= [0x00, 0x10, 0x20, 0x30][usize::try_from(generator.below(4)).unwrap()];
            let len = usize::try_from(generator.between(17, 200)).unwrap();
            let mut noise = vec![0; len];
            generator.fill(&mut noise);
            forged.extend_from_slice(&noise);
            let (party, from) = if is_to_server {
                (&mut line.server, CLIENT)
            } else {
                (&mut line.client, SERVER)
            };
            party.take(line.now, address(from), &forged);
        }
    }
    for party in [&mut line.server, &mut line.client] {
        assert!(party.drain(line.now).is_empty());
        assert!(party.machine.blocked().is_empty());
        assert!(party.machine.stats().dropped_forged > 9_000);
    }
    assert_eq!(
        (view(&line.server, theirs), view(&line.client, session)),
        states
    );
    let after = (line.server.events.len(), line.client.events.len());
    assert_eq!(after, events);
}

/// A server whose calls are counted, and a hand-written client's HELLO for it.
fn counted(number: u64, config: Config) -> (Party<Counting<SimProvider>>, Keys, Counts) {
    let seed = Seed::from_number(number);
    let (keys, counts) = (Keys::new(seed), Counts::default());
    let provider = Counting::new(SimProvider::new(seed), &counts);
    let server = Party::server(config, &keys, provider, Listen::with_open_mode);
    (server, keys, counts)
}

fn answer<P: crypto::Provider>(
    server: &mut Party<P>,
    now: Instant,
    from: SocketAddr,
    bytes: &[u8],
) -> Option<Vec<u8>> {
    server.take(now, from, bytes);
    let mut sent = server.drain(now);
    assert!(sent.len() <= 1, "one reply for each datagram");
    let sent = sent.pop()?;
    assert_eq!(sent.to, from);
    Some(sent.bytes)
}

#[test]
fn twp_k8_a_repeated_hello_gets_the_same_accept_for_no_further_work() {
    let (mut server, mut keys, counts) = counted(10, Config::default());
    let mut rogue = Rogue::new(1, &keys.token(UNIX, 1, address(SERVER)));
    let before = counts.now();
    let accept = answer(&mut server, START, address(CLIENT), &rogue.hello).unwrap();
    assert_eq!(accept[0], 0xC3);
    for _ in 0..5 {
        let again = answer(&mut server, START, address(CLIENT), &rogue.hello).unwrap();
        assert_eq!(again, accept);
    }
    // From elsewhere a cookie is needed, and then the answer is the same.
    let retry = answer(&mut server, START, stranger(1), &rogue.hello).unwrap();
    assert_eq!((retry[0], retry.len()), (0xC2, 45));
    rogue.follow(&retry);
    for _ in 0..2 {
        let again = answer(&mut server, START, stranger(1), &rogue.hello).unwrap();
        assert_eq!(again, accept);
    }
    let calls = counts.now() - before;
    assert_eq!((calls.ephemeral, calls.agree, calls.sign), (1, 1, 1));
    assert_eq!(calls.elliptic_curve(), 3);
    assert_eq!(server.machine.session_count(), 1);
}

#[test]
fn twp_k5_what_fails_a_check_reaches_no_curve_and_no_slot() {
    let (mut server, mut keys, counts) = counted(11, Config::default());
    let token = keys.token(UNIX, 1, address(SERVER));
    let Credentials::Token { token: sealed, psk } = again(&token) else {
        panic!("a token");
    };
    let mut no_tag = sealed.clone();
    *no_tag.last_mut().unwrap() ^= 1;
    let with = |token: &[u8], psk: &Secret32| Credentials::Token {
        token: token.to_vec(),
        psk: psk.clone(),
    };
    let mut old = Rogue::new(4, &Credentials::Open);
    let retry = answer(&mut server, START, address(CLIENT), &old.hello).unwrap();
    old.follow(&retry);
    let mut wrong_cookie = Rogue::new(5, &Credentials::Open);
    wrong_cookie.follow(&retry);
    let hellos = [
        Rogue::new(1, &with(&no_tag, &psk)).hello,
        Rogue::new(2, &with(&sealed, &Secret32::new([1; 32]))).hello,
        Rogue::new(3, &Credentials::Open).hello,
        wrong_cookie.hello,
        old.hello,
    ];
    let before = counts.now();
    // The cookie is 11 s old by now.
    let now = START + Duration::from_secs(11);
    for hello in &hellos {
        for source in 0..50 {
            answer(&mut server, now, stranger(source << 8), hello);
        }
    }
    assert_eq!((counts.now() - before).elliptic_curve(), 0);
    assert_eq!(server.machine.session_count(), 0);
    assert_eq!(server.machine.stats().dropped_token, 50);
    assert_eq!(server.machine.stats().dropped_psk, 50);
}

/// A token has four attempts at a time. Whoever begins a fifth, tenth, thirtieth has spent nothing
/// that others need: his network's eighth of the budget is 12 at once.
#[test]
fn twp_k5_an_attempt_that_may_not_begin_spends_no_budget() {
    let (mut server, mut keys, counts) = counted(26, Config::default());
    let greedy = keys.token(UNIX, 1, address(SERVER));
    let accepted = (0..40).filter(|number| {
        let rogue = Rogue::new(*number, &greedy);
        answer(&mut server, START, address(CLIENT), &rogue.hello).is_some()
    });
    assert_eq!(accepted.count(), 4);
    assert_eq!(server.machine.stats().dropped_token_used, 36);
    assert_eq!(counts.now().sign, 4);
    let neighbour = Rogue::new(100, &keys.token(UNIX, 2, address(SERVER)));
    let accept = answer(&mut server, START, address(CLIENT), &neighbour.hello);
    assert_eq!(accept.map(|bytes| bytes[0]), Some(0xC3));
    assert_eq!(server.machine.stats().dropped_accept_budget, 0);
}

#[test]
fn twp_k5_a_replayed_hello_adds_nothing_and_its_owner_connects() {
    let mut line = Line::new(12);
    let credentials = line.token(1);
    let session = line.client.dial(line.now, &line.keys, credentials);
    let hello = line.client.drain(line.now).remove(0).bytes;
    // The copier is first, from one address, and then comes from a hundred more.
    for source in 0..100 {
        line.server.take(line.now, stranger(source << 8), &hello);
    }
    line.server.drain(line.now);
    assert_eq!(line.server.machine.session_count(), 1);
    assert_eq!(line.server.machine.stats().accepted, 1);
    // The owner is asked for a cookie, once, and is in.
    line.server.take(line.now, line.client.at, &hello);
    line.settle();
    assert_eq!(line.client.sessions(), [session]);
    assert_eq!(line.server.machine.stats().accepted, 1);
    // And ever after the token opens nothing.
    for source in 0..100 {
        line.server.take(line.now, stranger(source << 8), &hello);
    }
    line.server.take(line.now, line.client.at, &hello);
    assert_eq!(line.server.machine.stats().dropped_token_used, 101);
    assert_eq!(line.server.machine.session_count(), 1);
}

#[test]
fn a_key_that_is_no_point_costs_one_try_and_no_slot() {
    let (mut server, mut keys, _) = counted(13, Config::default());
    let token = keys.token(UNIX, 1, address(SERVER));
    for number in 0..6 {
        let rogue = Rogue::with(number, &token, |hello| hello.client_ephemeral = no_point());
        assert_eq!(
            answer(&mut server, START, address(CLIENT), &rogue.hello),
            None
        );
    }
    assert_eq!(server.machine.stats().dropped_bad_point, 6);
    assert_eq!(server.machine.session_count(), 0);
    // The token's four attempts were given back.
    let good = Rogue::new(9, &token);
    assert!(answer(&mut server, START, address(CLIENT), &good.hello).is_some());
}

/// Whatever comes from an address that never proves itself, it gets less than 0.35 of its bytes
/// and no more datagrams than it sent, at any moment.
#[test]
fn twp_k6_nobody_is_sent_more_than_a_third_of_what_came_from_his_address() {
    for number in 0..8 {
        let mut line = Line::with(100 + number, Config::default(), Listen::with_open_mode);
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
        let victim = stranger(7);
        let (mut got, mut gave) = ((0, 0), (0, 0));
        for step in 0..2_000 {
            if step == 500 {
                // From here on the packets of the session meet one that is closing.
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
                // A cookie is answered by the HELLO that it is for.
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

/// A HELLO-sized datagram for `generator`'s mood: noise, a cut capture, or one with bits flipped.
fn junk(kind: usize, captures: &[Vec<u8>], generator: &mut Generator) -> Vec<u8> {
    let index = generator.below(u64::try_from(captures.len()).unwrap());
    let mut bytes = captures[usize::try_from(index).unwrap()].clone();
    let mut below = |bound: usize| usize::try_from(generator.below(bound.try_into().unwrap()));
    match kind {
        0 => {
            let len = below(1_600).unwrap();
            bytes = vec![0; len];
            generator.fill(&mut bytes);
        }
        1 => bytes.truncate(below(bytes.len()).unwrap()),
        _ => {
            for _ in 0..=below(4).unwrap() {
                let bit = below(bytes.len() * 8).unwrap();
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
    bytes
}

#[test]
fn junk_at_every_port_is_counted_by_reason_and_does_nothing() {
    let mut line = Line::with(14, Config::default(), Listen::with_open_mode);
    let (session, theirs) = line.join(1);
    line.client
        .machine
        .send(line.now, session, RELIABLE, &[3; 3_000])
        .unwrap();
    line.run(1_000);
    let captures: Vec<Vec<u8>> = line.record.iter().map(|(_, b)| b.clone()).collect();
    let mut generator = Seed::from_number(14).generator(6);
    let events = (line.client.events.clone(), line.server.events.clone());
    for (is_server, kind) in [true, false]
        .into_iter()
        .flat_map(|side| (0..3).map(move |kind| (side, kind)))
    {
        let party = if is_server {
            &mut line.server
        } else {
            &mut line.client
        };
        let before = *party.machine.stats();
        for _ in 0..10_000 {
            let bytes = junk(kind, &captures, &mut generator);
            let from = if generator.chance(500_000) {
                stranger(generator.next_u32() >> 8)
            } else if is_server {
                address(CLIENT)
            } else {
                address(SERVER)
            };
            party.take(line.now, from, &bytes);
            party.drain(line.now);
        }
        let stats = *party.machine.stats();
        let received = stats.datagrams_received() - before.datagrams_received();
        assert_eq!(received, 10_000, "{stats:?}");
        assert_eq!(stats.packets, before.packets, "none opened");
        assert_eq!(stats.accepted, before.accepted);
    }
    assert_eq!(
        (line.client.events.clone(), line.server.events.clone()),
        events
    );
    // The session never noticed.
    let messages = line.server.messages.len();
    line.client
        .machine
        .send(line.now, session, RELIABLE, b"still here")
        .unwrap();
    line.run(100);
    assert_eq!(line.server.messages.len(), messages + 1);
    assert!(line.server.machine.session_stats(theirs).is_some());
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
    // Five forged RETRYs: three are followed, and the attempt lives on.
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

/// Who copies an ACCEPT and is quicker than the server does not become the server's address.
#[test]
fn an_accept_from_another_address_is_not_taken() {
    let mut line = Line::new(16);
    let credentials = line.token(1);
    let session = line.client.dial(line.now, &line.keys, credentials);
    let hello = line.client.drain(line.now).remove(0).bytes;
    line.server.take(line.now, line.client.at, &hello);
    let accept = line.server.drain(line.now).remove(0).bytes;
    line.client.take(line.now, stranger(1), &accept);
    assert!(line.client.drain(line.now).is_empty());
    assert!(line.client.sessions().is_empty());
    line.client.take(line.now, line.server.at, &accept);
    line.settle();
    assert_eq!(line.client.sessions(), [session]);
    let at = line.client.machine.peer_address(session);
    assert_eq!(at, Some(line.server.at));
}

/// Opens a session by a copy of the first packet from a forged source; returns its packet.
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

/// Sums what the server sends to `victim`, bytes; the client gets the rest.
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
fn twp_k6_a_copy_of_the_first_packet_gives_a_victim_no_more_than_it_cost_and_a_datagram() {
    let mut line = Line::new(17);
    let victim = stranger(3);
    let (session, first) = open_by_a_copy(&mut line, victim);
    let theirs = line.server.machine.sessions().next().unwrap();
    // The server has much to say, and its probes repeat it.
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
    // The genuine packet is a replay; the client's next one moves the session to the client.
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

/// A copier who wins some of the races gets the session's address to move, but never to stay, nor
/// a copy of an acknowledgement to prove it.
#[test]
fn twp_k6_a_copied_acknowledgement_proves_no_address() {
    let mut line = Line::new(18);
    let victim = stranger(3);
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

#[test]
fn an_address_that_showed_a_cookie_is_sent_all_at_once() {
    let mut line = Line::with(19, Config::default(), Listen::with_open_mode);
    line.client.dial(line.now, &line.keys, Credentials::Open);
    while line.server.sessions().is_empty() {
        for Sent { bytes, .. } in line.client.drain(line.now) {
            line.server.take(line.now, line.client.at, &bytes);
        }
        if line.server.machine.stats().sessions_opened > 0 {
            break;
        }
        drain_server(&mut line, stranger(1));
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

/// Two attempts of one player, both accepted before either opens, the newer token's first;
/// returns the first packets.
fn two_attempts(config: &Config, number: u64) -> (Party, [Vec<u8>; 2]) {
    let seed = Seed::from_number(number);
    let mut keys = Keys::new(seed);
    let mut server = Party::server(config.clone(), &keys, SimProvider::new(seed), |listen| {
        listen
    });
    let packets = [5, 0].map(|age| {
        let issued = UnixTime::from_secs(1_735_689_595 + age);
        let token = keys.token(issued, 1, address(SERVER));
        let mut rogue = Rogue::new(age, &token);
        let from = stranger(u32::try_from(age).unwrap());
        let accept = answer(&mut server, START, from, &rogue.hello).unwrap();
        rogue.accept(&accept).packet(&confirm(config))
    });
    (server, packets)
}

#[test]
fn two_half_open_attempts_of_a_player_do_not_both_open() {
    for policy in [DuplicatePolicy::Replace, DuplicatePolicy::Reject] {
        let mut config = Config::default();
        config.duplicate = policy;
        let (mut server, [newer, older]) = two_attempts(&config, 20);
        server.take(START, stranger(5), &newer);
        server.take(START, stranger(0), &older);
        server.drain(START);
        assert_eq!(server.sessions().len(), 1);
        assert!(server.closes().is_empty(), "the newer one stays");
    }
    // The other way round the newer token decides, unless the first comer stays.
    for (policy, sessions) in [(DuplicatePolicy::Replace, 2), (DuplicatePolicy::Reject, 1)] {
        let mut config = Config::default();
        config.duplicate = policy;
        let (mut server, [newer, older]) = two_attempts(&config, 21);
        server.take(START, stranger(0), &older);
        server.take(START, stranger(5), &newer);
        server.drain(START);
        assert_eq!(server.sessions().len(), sessions);
        assert_eq!(server.closes().len(), sessions - 1);
    }
}

#[test]
fn a_shut_down_endpoint_lets_nobody_in() {
    let (mut server, [newer, _]) = two_attempts(&Config::default(), 22);
    assert_eq!(server.machine.session_count(), 2);
    server.machine.shutdown(START);
    assert_eq!(server.machine.session_count(), 0);
    server.take(START, stranger(5), &newer);
    let mut keys = Keys::new(Seed::from_number(22));
    let hello = Rogue::new(7, &keys.token(UNIX, 9, address(SERVER))).hello;
    assert_eq!(answer(&mut server, START, stranger(9), &hello), None);
    assert_eq!(server.machine.stats().dropped_mode, 1);
    assert!(server.sessions().is_empty());
}

#[test]
fn twp_k7_a_used_token_opens_nothing_after_the_wall_clock_went_forth_and_back() {
    let mut line = Line::new(23);
    let credentials = line.token(1);
    let session = line.client.dial(line.now, &line.keys, again(&credentials));
    line.settle();
    line.client
        .machine
        .close(line.now, session, CloseCode::App, b"")
        .unwrap();
    line.run(1_000);
    line.server
        .machine
        .set_unix_time(line.now, UNIX + Duration::from_secs(3_600));
    line.server.machine.set_unix_time(line.now, UNIX);
    line.client.dial(line.now, &line.keys, credentials);
    line.run(1_000);
    assert_eq!(line.server.sessions().len(), 1);
}

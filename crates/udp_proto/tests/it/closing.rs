//! Ends of sessions: immediate or orderly, by either side, reported once.

use core::time::Duration;
use std::collections::BTreeMap;

use udp_proto::{CloseCode, CloseReason, Event, NoSession, SendError, SessionId};
use wire::{Generator, Instant, Seed};

use crate::authenticated::Scenario;
use crate::direct::{Line, Party, Sent};
use crate::harness::SERVER;
use crate::harness::{RELIABLE, UNRELIABLE, address};

/// The text of the only `Closed` event of `endpoint`.
fn text(endpoint: &Party) -> Vec<u8> {
    let texts = endpoint.events.iter().filter_map(|event| match event {
        Event::Closed { text, .. } => Some(text.to_vec()),
        _ => None,
    });
    let texts: Vec<Vec<u8>> = texts.collect();
    assert_eq!(texts.len(), 1);
    texts.concat()
}

#[test]
fn u15_a_kick_ends_a_session_at_once_and_sends_only_its_reason() {
    let mut line = Line::new(1);
    let (session, theirs) = line.join(1);
    line.run(200);
    let (now, server) = (line.now, &mut line.server.machine);
    for _ in 0..8 {
        server.send(now, theirs, RELIABLE, &[1; 4_000]).unwrap();
    }
    server.kick(now, theirs, b"you were rude").unwrap();
    assert_eq!(
        server.send(now, theirs, RELIABLE, b"x"),
        Err(SendError::Closed)
    );
    let sent = line.server.drain(now);
    assert_eq!(sent.len(), 1, "the CLOSE");
    let local = CloseReason::Local(CloseCode::Kicked);
    assert_eq!(
        (line.server.closes(), text(&line.server)),
        (vec![local], vec![])
    );
    line.client.take(now, line.server.at, &sent[0].bytes);
    line.run(5_000);
    assert_eq!(line.client.closes(), [CloseReason::Peer(CloseCode::Kicked)]);
    assert_eq!(text(&line.client), b"you were rude");
    assert!(line.client.messages.is_empty());
    for (machine, id) in [
        (&mut line.server.machine, theirs),
        (&mut line.client.machine, session),
    ] {
        assert_eq!(machine.kick(line.now, id, b""), Err(NoSession));
        assert_eq!(machine.session_count(), 0);
    }
}

#[test]
fn u15_a_kick_does_not_wait_for_a_close_that_waits() {
    let mut line = Line::new(2);
    let (_, theirs) = line.join(1);
    line.run(200);
    let (now, server) = (line.now, &mut line.server.machine);
    server
        .send(now, theirs, RELIABLE, b"never acknowledged")
        .unwrap();
    server.close(now, theirs, CloseCode::NoError, b"").unwrap();
    line.server.drain(now);
    assert_eq!(line.server.closes(), [], "it waits for the message");
    line.server.machine.kick(now, theirs, b"").unwrap();
    line.server.drain(now);
    assert_eq!(
        line.server.closes(),
        [CloseReason::Local(CloseCode::Kicked)]
    );
    line.server.machine.kick(now, theirs, b"").unwrap();
    line.server.drain(now);
    assert_eq!(line.server.closes().len(), 1, "told once");
}

#[test]
fn u15_kicking_a_dial_is_like_closing_it() {
    let mut line = Line::new(3);
    let credentials = line.token(1);
    let dial = line.client.dial(line.now, &line.keys, credentials);
    line.client.machine.kick(line.now, dial, b"").unwrap();
    line.settle();
    assert!(matches!(
        line.client.events[..],
        [Event::ConnectFailed { .. }]
    ));
    assert_eq!(line.client.machine.session_count(), 0);
}

/// The text is cut at 128 bytes, and codes for local causes are never sent.
#[test]
fn u15_close_text_is_truncated_and_local_codes_are_not_sent() {
    for (number, code, incoming) in [
        (4, CloseCode::App, CloseCode::App),
        (5, CloseCode::Idle, CloseCode::NoError),
        (6, CloseCode::TokenUsed, CloseCode::NoError),
        (7, CloseCode::Unknown(700), CloseCode::Unknown(700)),
    ] {
        let mut line = Line::new(number);
        let (_, theirs) = line.join(1);
        line.run(200);
        let long = [b'r'; 200];
        line.server
            .machine
            .close(line.now, theirs, code, &long)
            .unwrap();
        line.settle();
        assert_eq!(line.client.closes(), [CloseReason::Peer(incoming)]);
        assert_eq!(text(&line.client), [b'r'; 128]);
        assert_eq!(line.server.closes(), [CloseReason::Local(code)]);
    }
    let mut line = Line::new(8);
    let (_, theirs) = line.join(1);
    line.server
        .machine
        .kick(line.now, theirs, &[b'k'; 129])
        .unwrap();
    line.settle();
    assert_eq!(text(&line.client).len(), 128);
}

/// If the peer did not receive CLOSE, it is repeated, without the text, for the peer's 1st, 2nd,
/// 4th ... packet.
#[test]
fn u15_close_answers_the_first_second_fourth_and_so_on_packet() {
    let mut scenario = Scenario::open_with(9, udp_proto::Config::default());
    let theirs = scenario.server().sessions()[0];
    let now = scenario.line.now;
    scenario
        .line
        .server
        .machine
        .kick(now, theirs, b"reason")
        .unwrap();
    let first = scenario.line.server.drain(now).remove(0).bytes;
    let close = [&[0x04, 0, 13, 6][..], b"reason"].concat();
    assert_eq!(scenario.session.open(&first), Some(close));
    let mut answered = Vec::new();
    for count in 1..=40 {
        let answers = scenario.send_plaintext(&[0x01]);
        assert!(answers.len() <= 1);
        for answer in answers {
            assert_eq!(answer, [0x04, 0, 13, 0], "no text");
            answered.push(count);
        }
    }
    assert_eq!(answered, [1, 2, 4, 8, 16, 32]);
}

/// Events of each session at both ends, in order.
type Lives = BTreeMap<(bool, SessionId), Vec<&'static str>>;

/// Drains what a party has to send and records its events, `Readable` included.
fn drain(endpoint: &mut Party, now: Instant, lives: &mut Lives) -> Vec<Sent> {
    let is_client = endpoint.at != address(SERVER);
    let mut sent = Vec::new();
    let mut buffer = Vec::new();
    while let Some(transmit) = endpoint.machine.poll_transmit(now, &mut buffer) {
        let to = transmit.destination;
        let bytes = core::mem::take(&mut buffer);
        sent.push(Sent { to, bytes });
    }
    while let Some(event) = endpoint.machine.poll_event() {
        let (session, name) = match event {
            Event::Connected { session, .. } => (session, "connected"),
            Event::Closed { session, .. } => (session, "closed"),
            Event::ConnectFailed { session, .. } => (session, "failed"),
            Event::Readable { session } => {
                let mut message = Vec::new();
                while endpoint
                    .machine
                    .receive(now, session, &mut message)
                    .is_some()
                {}
                (session, "readable")
            }
            Event::AddressChanged { session, .. }
            | Event::MtuChecked { session, .. }
            | Event::RateChanged { session, .. }
            | Event::Settled { session, .. } => (session, "other"),
            other => panic!("{other:?}"),
        };
        lives.entry((is_client, session)).or_default().push(name);
    }
    sent
}

/// A random action of an application.
fn act(line: &mut Line, generator: &mut Generator) {
    let sides = [&mut line.client, &mut line.server];
    let [client, server] = sides;
    let is_client = generator.below(2) == 0;
    let machine = if is_client {
        &mut client.machine
    } else {
        &mut server.machine
    };
    let sessions: Vec<SessionId> = machine.sessions().collect();
    let Some(session) = sessions.first().copied() else {
        return;
    };
    let now = line.now;
    match generator.below(12) {
        0 => machine.close(now, session, CloseCode::App, b"bye").unwrap(),
        1 => machine.kick(now, session, b"out").unwrap(),
        2..=5 => {
            machine.send(now, session, UNRELIABLE, &[1; 40]).ok();
        }
        _ => {
            machine.send(now, session, RELIABLE, &[2; 1_500]).ok();
        }
    }
}

fn storm(number: u64) -> Lives {
    let mut generator = Seed::from_number(number).generator(3);
    let mut line = Line::new(number);
    let mut lives = Lives::new();
    // Datagrams in flight: arrival time, and whether they go to the client.
    let mut queue: Vec<(Instant, bool, Vec<u8>)> = Vec::new();
    for step in 0..600 {
        line.now += Duration::from_millis(20);
        let now = line.now;
        if step % 25 == 0 && step < 400 {
            let player = generator.between(1, 2);
            let credentials = line.token(player);
            line.client.dial(now, &line.keys, credentials);
        }
        if step < 400 {
            act(&mut line, &mut generator);
        }
        if step == 420 {
            line.server.machine.shutdown(now);
        }
        let (due, later) = queue.into_iter().partition(|(at, ..)| *at <= now);
        queue = later;
        let due: Vec<(Instant, bool, Vec<u8>)> = due;
        for (_, to_client, bytes) in due {
            let (endpoint, from) = if to_client {
                (&mut line.client, address(SERVER))
            } else {
                (&mut line.server, address(crate::direct::CLIENT))
            };
            endpoint.take(now, from, &bytes);
        }
        for is_client in [true, false] {
            let endpoint = if is_client {
                &mut line.client
            } else {
                &mut line.server
            };
            endpoint.wake(now);
            for Sent { bytes, .. } in drain(endpoint, now, &mut lives) {
                for _ in 0..[0, 1, 1, 1, 2][usize::try_from(generator.below(5)).unwrap()] {
                    let delay = Duration::from_millis(generator.below(150));
                    queue.push((now + delay, !is_client, bytes.clone()));
                }
            }
        }
    }
    // Sessions without a received CLOSE time out.
    for _ in 0..60 {
        line.now += Duration::from_secs(1);
        for is_client in [true, false] {
            let endpoint = if is_client {
                &mut line.client
            } else {
                &mut line.server
            };
            endpoint.wake(line.now);
            drain(endpoint, line.now, &mut lives);
        }
    }
    lives
}

#[test]
fn sim_twp_t6_connected_and_closed_are_raised_once_each() {
    let mut ends = [0, 0];
    for number in 0..60 {
        for ((is_client, session), events) in storm(number) {
            let life = format!("seed {number}, client {is_client}, {session:?}: {events:?}");
            if events == ["failed"] {
                assert!(is_client, "{life}");
                continue;
            }
            assert_eq!(events.first(), Some(&"connected"), "{life}");
            assert_eq!(events.last(), Some(&"closed"), "{life}");
            let count = |name| events.iter().filter(|event| **event == name).count();
            assert_eq!((count("connected"), count("closed")), (1, 1), "{life}");
            ends[usize::from(is_client)] += 1;
        }
    }
    assert!(ends.iter().all(|ends| *ends > 300), "{ends:?}");
}

/// After any end, earlier messages and the counters stay readable until the next event is polled.
#[test]
fn u15_messages_before_a_timeout_stay_readable() {
    let mut line = Line::new(31);
    let (session, theirs) = line.join(1);
    line.run(200);
    let now = line.now;
    line.client
        .machine
        .send(now, session, RELIABLE, b"last words")
        .unwrap();
    for Sent { bytes, .. } in line.client.drain(now) {
        line.server.take(now, line.client.at, &bytes);
    }
    // The application polls no event, and nothing else arrives.
    let (machine, mut buffer) = (&mut line.server.machine, Vec::new());
    for millis in 0..12_000 {
        let now = now + Duration::from_millis(millis);
        machine.handle_timeout(now);
        while machine.poll_transmit(now, &mut buffer).is_some() {
            buffer.clear();
        }
    }
    let now = now + Duration::from_secs(12);
    let end = core::iter::from_fn(|| machine.poll_event())
        .find(|event| matches!(event, Event::Closed { .. }));
    let Some(Event::Closed { reason, .. }) = end else {
        panic!("it has not ended");
    };
    assert_eq!(reason, CloseReason::Timeout);
    assert_eq!(
        machine.send(now, theirs, RELIABLE, b"x"),
        Err(SendError::Closed)
    );
    let stats = machine.session_stats(theirs).unwrap();
    assert!(stats.packets_received > 0, "{stats:?}");
    assert_eq!(machine.receive(now, theirs, &mut buffer), Some(RELIABLE));
    assert_eq!(buffer, b"last words");
    assert_eq!(machine.session_count(), 1);
    assert_eq!(machine.poll_event(), None);
    assert_eq!(machine.session_count(), 0);
    assert_eq!(machine.session_stats(theirs), None);
}

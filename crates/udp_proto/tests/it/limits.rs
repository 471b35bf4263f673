//! Each limit of [`Config`] is reached and enforced.

use core::net::SocketAddr;
use core::time::Duration;

use netsim::provider::SimProvider;
use udp_proto::{CloseCode, CloseReason, Config, ConnectError, ConnectFailure, Listen, SendError};
use wire::{Arrival, Instant, Seed};

use crate::direct::{CLIENT, Line, Party, START, Sent, UNIX, config, failures, network, target};
use crate::harness::{Keys, RELIABLE, SERVER, UNRELIABLE, address};
use crate::rogue::{Rogue, confirm};

/// A server without clients, in token and open mode.
fn server(number: u64, config: Config) -> (Party, Keys) {
    let seed = Seed::from_number(number);
    let keys = Keys::new(seed);
    let provider = SimProvider::new(seed);
    let endpoint = Party::server(config, &keys, provider, Listen::with_open_mode);
    (endpoint, keys)
}

/// Sends a HELLO and follows a RETRY; returns the last answer.
fn send_hello(
    server: &mut Party,
    now: Instant,
    from: SocketAddr,
    rogue: &mut Rogue,
) -> Option<Vec<u8>> {
    for _ in 0..2 {
        server.take(now, from, &rogue.hello);
        let answer = server.drain(now).pop()?.bytes;
        if answer[0] != 0xC2 {
            return Some(answer);
        }
        rogue.follow(&answer);
    }
    None
}

#[test]
fn sessions_max_refuses_by_name_and_stops_dials() {
    let mut line = Line::with(1, config(|config| config.sessions_max = 3), |listen| listen);
    for player in 1..=3 {
        line.join(player);
    }
    let credentials = line.token(4);
    let fourth = target(&line, credentials);
    assert_eq!(
        line.client.machine.connect(line.now, fourth),
        Err(ConnectError::Full)
    );
    let provider = SimProvider::new(Seed::from_number(9));
    let mut other = Party::new("203.0.113.77:1", Config::default(), provider);
    let credentials = line.token(5);
    other.dial(line.now, &line.keys, credentials);
    for Sent { bytes, .. } in other.drain(line.now) {
        line.server.take(line.now, other.at, &bytes);
    }
    for Sent { bytes, .. } in line.server.drain(line.now) {
        other.take(line.now, address(SERVER), &bytes);
    }
    other.drain(line.now);
    assert_eq!(failures(&other), [ConnectFailure::Refused(CloseCode::Full)]);
    assert_eq!(line.server.machine.session_count(), 3);
}

/// A player reconnects after a crash: its old session, which will be replaced, does not count.
#[test]
fn a_player_reconnects_despite_full_server_and_source_limits() {
    type Limit = (fn(&mut Config), CloseCode);
    let limits: [Limit; 2] = [
        (|config| config.sessions_max = 3, CloseCode::Full),
        (
            |config| config.sessions_per_source_max = 3,
            CloseCode::SourceFull,
        ),
    ];
    for (number, (limit, code)) in (30..).zip(limits) {
        let mut line = Line::with(number, config(limit), |listen| listen);
        for player in 1..=3 {
            line.join(player);
            line.now += Duration::from_millis(10);
        }
        // Three of one address; the second reconnects a moment later without a CLOSE.
        let provider = SimProvider::new(Seed::from_number(number + 10));
        line.client = Party::new(CLIENT, Config::default(), provider);
        let (session, theirs) = line.join(2);
        assert_eq!(line.client.sessions(), [session]);
        assert_eq!(line.server.sessions().len(), 4);
        line.run(3_000);
        assert_eq!(
            line.server.closes(),
            [CloseReason::Local(CloseCode::Replaced)]
        );
        assert_eq!(line.server.machine.session_count(), 3);
        assert!(line.server.machine.session_stats(theirs).is_some());
        // There is no additional room for another player.
        let credentials = line.token(4);
        line.client.dial(line.now, &line.keys, credentials);
        line.run(100);
        let refused = ConnectFailure::Refused(code);
        assert_eq!(failures(&line.client), [refused]);
    }
}

/// The slots that returning players get beyond `sessions_max` are bounded, too.
#[test]
fn half_open_max_bounds_the_slots_beyond_sessions_max() {
    let small = config(|config| {
        config.sessions_max = 1;
        config.half_open_max = 16;
    });
    let (mut server, mut keys) = server(33, small);
    let mut join = |server: &mut Party, number: u64| {
        let token = keys.token(UNIX + Duration::from_millis(number), 1, address(SERVER));
        let mut rogue = Rogue::new(number, &token);
        let from = network(u16::try_from(number).unwrap());
        let accept = send_hello(server, START, from, &mut rogue)?;
        (accept[0] == 0xC3).then(|| (from, rogue.accept(&accept)))
    };
    let (from, mut first) = join(&mut server, 1).unwrap();
    server.take(START, from, &first.packet(&confirm(&Config::default())));
    server.drain(START);
    assert_eq!(server.sessions().len(), 1);
    let more = (2..60).filter(|number| join(&mut server, *number).is_some());
    assert_eq!(more.count(), 16);
    assert_eq!(server.machine.session_count(), 17);
}

#[test]
fn sessions_per_source_max_exempts_loopback_and_trusted_exits() {
    let exit: SocketAddr = address("192.0.2.200:9");
    let (mut server, mut keys) = server(
        2,
        config(|config| {
            config.sessions_per_source_max = 2;
            config.trusted_exits = vec![exit.ip()];
        }),
    );
    let mut number = 0;
    let mut answers = |peer: SocketAddr, real_source: Option<SocketAddr>| {
        number += 1;
        let mut rogue = Rogue::new(number, &keys.token(UNIX, number, address(SERVER)));
        let arrival = Arrival {
            real_source,
            ..Arrival::from(peer)
        };
        server
            .machine
            .handle_datagram(START, arrival, &mut rogue.hello);
        server.drain(START).pop().map(|sent| sent.bytes[0])
    };
    let (accept, refuse) = (Some(0xC3), Some(0xC4));
    let kinds = |answers: [Option<u8>; 3]| answers;
    let mut thrice = |peer: SocketAddr, source| [0, 1, 2].map(|_| answers(peer, source));
    assert_eq!(thrice(network(1), None), kinds([accept, accept, refuse]));
    assert_eq!(thrice(network(2), None), kinds([accept, accept, refuse]));
    assert_eq!(thrice(address("127.0.0.1:1"), None), kinds([accept; 3]));
    assert_eq!(thrice(exit, None), kinds([accept; 3]));
    // The exit reports the player's address, so the player's own limit applies.
    let reported = Some(network(3));
    assert_eq!(thrice(exit, reported), kinds([accept, accept, refuse]));
    assert_eq!(thrice(network(1), None), kinds([refuse; 3]));
}

#[test]
fn half_open_slots_are_freed_after_5_s() {
    let (mut server, mut keys) = server(3, config(|config| config.half_open_max = 16));
    let mut send_hello_as = |server: &mut Party, now, number, from| {
        let token = keys.token(UNIX, number, address(SERVER));
        send_hello(server, now, from, &mut Rogue::new(number, &token))
    };
    let kind = |answer: Option<Vec<u8>>| answer.map(|bytes| bytes[0]);
    // Two of 16 for one network.
    for (number, expected) in [(1, Some(0xC3)), (2, Some(0xC3)), (3, None)] {
        let answer = send_hello_as(&mut server, START, number, network(1));
        assert_eq!(kind(answer), expected);
    }
    for number in 4..18 {
        let from = network(u16::try_from(number).unwrap());
        assert_eq!(
            kind(send_hello_as(&mut server, START, number, from)),
            Some(0xC3)
        );
    }
    assert_eq!(
        kind(send_hello_as(&mut server, START, 18, network(90))),
        None
    );
    assert_eq!(server.machine.stats().dropped_half_open, 2);
    assert!(
        server.machine.stats().retried > 10,
        "over a quarter: cookies"
    );
    assert_eq!(server.machine.session_count(), 16);
    // A slot, its ACCEPT and the token's user data.
    assert!(server.machine.memory() <= 16 * (640 + 600));
    let later = START + Duration::from_millis(5_001);
    server.wake(later);
    assert_eq!(server.machine.session_count(), 0);
    assert_eq!(
        kind(send_hello_as(&mut server, later, 19, network(1))),
        Some(0xC3)
    );
}

#[test]
fn events_max_stops_taking_datagrams() {
    let (mut server, mut keys) = server(4, config(|config| config.events_max = 4));
    let mut clients = Vec::new();
    for number in 0..6 {
        let at = network(number).to_string();
        let provider = SimProvider::new(Seed::from_number(number.into()));
        let mut client = Party::new(&at, Config::default(), provider);
        let token = keys.token(UNIX, number.into(), address(SERVER));
        client.dial(START, &keys, token);
        clients.push(client);
    }
    // The server's events are not drained.
    let mut buffer = Vec::new();
    for client in &mut clients {
        for _ in 0..3 {
            for Sent { bytes, .. } in client.drain(START) {
                server.take(START, client.at, &bytes);
            }
            while let Some(transmit) = server.machine.poll_transmit(START, &mut buffer) {
                if transmit.destination == client.at {
                    client.take(START, server.at, &buffer);
                }
                buffer.clear();
            }
        }
    }
    let stats = *server.machine.stats();
    assert_eq!(stats.sessions_opened, 4);
    assert!(stats.dropped_overload > 0);
    server.drain(START);
    assert_eq!(server.events.len(), 4);
}

#[test]
fn token_cache_max_refuses_new_tokens_until_old_ones_expire() {
    let (mut server, mut keys) = server(5, config(|config| config.token_cache_max = 2));
    let mut send_hello_as = |server: &mut Party, now, unix, number| {
        let token = keys.token(unix, number, address(SERVER));
        let from = network(u16::try_from(number).unwrap());
        send_hello(server, now, from, &mut Rogue::new(number, &token)).is_some()
    };
    assert!(send_hello_as(&mut server, START, UNIX, 1));
    assert!(send_hello_as(&mut server, START, UNIX, 2));
    assert!(!send_hello_as(&mut server, START, UNIX, 3));
    assert_eq!(server.machine.stats().dropped_overload, 1);
    // 60 s lifetime and 5 s clock skew.
    let span = Duration::from_secs(66);
    server.wake(START + span);
    server.machine.set_unix_time(START + span, UNIX + span);
    assert!(send_hello_as(&mut server, START + span, UNIX + span, 4));
}

/// 100 at once, and then the configured number per second; each class has its own budget.
#[test]
fn accept_rate_and_accept_rate_unvalidated_limit_curve_operations() {
    let (mut server, mut keys) = server(
        8,
        config(|config| {
            config.accept_rate = 10;
            config.accept_rate_unvalidated = 20;
        }),
    );
    let mut number = 0;
    let mut next = |server: &mut Party, now: Instant, with_cookie: bool| {
        number += 1;
        let token = keys.token(UNIX, number, address(SERVER));
        let mut rogue = Rogue::new(number, &token);
        let from = network(u16::try_from(number).unwrap());
        let answer = if with_cookie {
            send_hello(server, now, from, &mut rogue)
        } else {
            server.take(now, from, &rogue.hello);
            server.drain(now).pop().map(|sent| sent.bytes)
        };
        answer.map(|bytes| bytes[0])
    };
    // Half of the unvalidated budget goes to HELLOs without a cookie; then a cookie is required.
    for _ in 0..51 {
        assert_eq!(next(&mut server, START, false), Some(0xC3));
    }
    assert_eq!(next(&mut server, START, false), Some(0xC2));
    for _ in 0..100 {
        assert_eq!(next(&mut server, START, true), Some(0xC3));
    }
    assert_eq!(next(&mut server, START, true), None);
    assert_eq!(server.machine.stats().dropped_accept_budget, 1);
    // After one second, 10 more with a cookie and one without: 49 + 20 - 50 are above a half.
    let later = START + Duration::from_secs(1);
    for _ in 0..20 {
        assert_eq!(next(&mut server, later, true), Some(0xC3));
    }
    for _ in 0..10 {
        assert_eq!(next(&mut server, later, true), Some(0xC3));
    }
    assert_eq!(next(&mut server, later, true), None);
}

/// M7: an application that never reads holds at most its window and stops the sender; reading
/// resumes it.
#[test]
fn twp_m7_receive_window_bounds_unread_data() {
    let small = config(|config| config.receive_window = 100_000);
    let mut line = Line::with(11, small, |listen| listen);
    let (session, theirs) = line.join(1);
    line.run(100);
    let idle = line.server.machine.memory();
    let (mut sent, mut largest) = (0_u32, 0);
    for round in 0..2_000 {
        let is_taken = line
            .client
            .machine
            .send(line.now, session, RELIABLE, &[3; 1_000]);
        match is_taken {
            Ok(()) => sent += 1,
            Err(error) => assert_eq!(error, SendError::Full),
        }
        line.now += Duration::from_millis(1);
        // Driven by hand: the server's application reads nothing in the first half.
        line.client.wake(line.now);
        line.server.wake(line.now);
        for Sent { bytes, .. } in line.client.drain(line.now) {
            line.server.take(line.now, line.client.at, &bytes);
        }
        let mut buffer = Vec::new();
        while line
            .server
            .machine
            .poll_transmit(line.now, &mut buffer)
            .is_some()
        {
            line.client.take(line.now, line.server.at, &buffer);
            buffer.clear();
        }
        largest = largest.max(line.server.machine.memory() - idle);
        if round == 1_000 {
            assert!(sent < 200, "{sent} were taken while nobody read");
            assert!(largest >= 90_000, "the window was filled: {largest}");
            assert!(largest <= 100_000 * 3 / 2, "{largest}");
        }
        if round >= 1_000 {
            let mut message = Vec::new();
            while line
                .server
                .machine
                .receive(line.now, theirs, &mut message)
                .is_some()
            {
                message.clear();
            }
        }
    }
    assert!(sent > 900, "{sent}: it went on when the application read");
}

/// Both ends hold much, then nothing; one keepalive later they have freed it.
#[test]
fn idle_and_ended_sessions_free_their_memory() {
    let mut line = Line::new(25);
    let (session, theirs) = line.join(1);
    line.run(3_000);
    let memory = |line: &Line| [line.client.machine.memory(), line.server.machine.memory()];
    let idle = memory(&line);
    for round in 0..2 {
        let mut packets = Vec::new();
        for _ in 0..60 {
            let (now, message) = (line.now, vec![1; 1_000]);
            for channel in [RELIABLE, UNRELIABLE] {
                line.client
                    .machine
                    .send(now, session, channel, &message)
                    .unwrap();
                line.server
                    .machine
                    .send(now, theirs, channel, &message)
                    .unwrap();
            }
            // Nothing is delivered, so everything counts as in flight.
            packets.push((line.client.drain(now), line.server.drain(now)));
        }
        let busy = memory(&line);
        for (busy, idle) in busy.into_iter().zip(idle) {
            assert!(
                busy > idle + 70_000,
                "{busy} of {idle}: the sent ring counts, too"
            );
        }
        if round == 0 {
            line.run(8_000);
            assert_eq!(line.server.messages.len(), 60);
            for (after, idle) in memory(&line).into_iter().zip(idle) {
                assert!(after <= idle + 2_000, "{after} of {idle}");
            }
        }
    }
    // The peer ends the session: only received data is kept, until the slot is freed.
    line.server.machine.shutdown(line.now);
    line.now += Duration::from_millis(501);
    line.server.wake(line.now);
    line.server.drain(line.now);
    assert_eq!(line.server.machine.session_count(), 1);
    let [_, closing] = memory(&line);
    assert!(closing <= idle[1] + 2_000, "{closing} of {}", idle[1]);
}

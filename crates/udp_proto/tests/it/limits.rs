//! Every field of [`Config`], each at the limit that it sets.

use core::net::SocketAddr;
use core::time::Duration;

use crypto::{PublicKey, Suite};
use netsim::provider::SimProvider;
use udp_proto::{
    ChannelConfig, ChannelId, ChannelTable, CidLen, CloseCode, CloseReason, Config, ConnectError,
    ConnectFailure, Credentials, DuplicatePolicy, Event, IdleTimeout, Keepalive, Listen, Mtu,
    Proof, RetryPolicy, SendError, ServerIdentity, Target,
};
use wire::{Arrival, Instant, Seed};

use crate::direct::{CLIENT, Line, Party, START, Sent, UNIX};
use crate::harness::{Keys, RELIABLE, SERVER, UNRELIABLE, address};
use crate::rogue::{Rogue, confirm};

fn config(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config::default();
    change(&mut config);
    config
}

/// A server alone, with tokens and open mode.
fn server(number: u64, config: Config) -> (Party, Keys) {
    let seed = Seed::from_number(number);
    let keys = Keys::new(seed);
    let provider = SimProvider::new(seed);
    let party = Party::server(config, &keys, provider, Listen::with_open_mode);
    (party, keys)
}

/// Address `number` of a /24 of its own.
fn network(number: u16) -> SocketAddr {
    let [a, b] = number.to_be_bytes();
    SocketAddr::from(([100, a, b, 1], 5_000))
}

/// Sends a HELLO and follows a RETRY; returns the last answer.
fn knock(server: &mut Party, now: Instant, from: SocketAddr, rogue: &mut Rogue) -> Option<Vec<u8>> {
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

fn failures(party: &Party) -> Vec<ConnectFailure> {
    let failure = |event: &Event| match event {
        Event::ConnectFailed { failure, .. } => Some(*failure),
        _ => None,
    };
    party.events.iter().filter_map(failure).collect()
}

fn target(line: &Line, credentials: Credentials) -> Target {
    Target {
        addresses: vec![address(SERVER)],
        server: ServerIdentity::Keys(vec![line.keys.public()]),
        credentials,
    }
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

/// A crashed player returns: its old session, which is about to go, does not count against it.
#[test]
fn a_full_server_and_a_crowded_source_let_a_player_return() {
    let limits: [fn(&mut Config); 2] = [
        |config| config.sessions_max = 3,
        |config| config.sessions_per_source_max = 3,
    ];
    for (number, limit) in (30..).zip(limits) {
        let mut line = Line::with(number, config(limit), |listen| listen);
        for player in 1..=3 {
            line.join(player);
            line.now += Duration::from_millis(10);
        }
        // Three of one address; the second starts anew, a moment later and without a word.
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
        // For another there is no more room than before.
        let credentials = line.token(4);
        line.client.dial(line.now, &line.keys, credentials);
        line.run(100);
        let refused = ConnectFailure::Refused(CloseCode::Full);
        assert_eq!(failures(&line.client), [refused]);
    }
}

/// What returning players get beyond `sessions_max` is bounded, too.
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
        let accept = knock(server, START, from, &mut rogue)?;
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
fn sessions_per_source_max_counts_by_address_and_spares_loopback_and_trusted_exits() {
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
    // The exit tells whom it speaks for: the player's own limit holds.
    let told = Some(network(3));
    assert_eq!(thrice(exit, told), kinds([accept, accept, refuse]));
    assert_eq!(thrice(network(1), None), kinds([refuse; 3]));
}

#[test]
fn half_open_max_and_its_eighth_free_themselves_after_5_s() {
    let (mut server, mut keys) = server(3, config(|config| config.half_open_max = 16));
    let mut knock_as = |server: &mut Party, now, number, from| {
        let token = keys.token(UNIX, number, address(SERVER));
        knock(server, now, from, &mut Rogue::new(number, &token))
    };
    let kind = |answer: Option<Vec<u8>>| answer.map(|bytes| bytes[0]);
    // Two of 16 for one network.
    for (number, expected) in [(1, Some(0xC3)), (2, Some(0xC3)), (3, None)] {
        let answer = knock_as(&mut server, START, number, network(1));
        assert_eq!(kind(answer), expected);
    }
    for number in 4..18 {
        let from = network(u16::try_from(number).unwrap());
        assert_eq!(kind(knock_as(&mut server, START, number, from)), Some(0xC3));
    }
    assert_eq!(kind(knock_as(&mut server, START, 18, network(90))), None);
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
        kind(knock_as(&mut server, later, 19, network(1))),
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
    // The server's events are left where they are.
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
    let mut knock_as = |server: &mut Party, now, unix, number| {
        let token = keys.token(unix, number, address(SERVER));
        let from = network(u16::try_from(number).unwrap());
        knock(server, now, from, &mut Rogue::new(number, &token)).is_some()
    };
    assert!(knock_as(&mut server, START, UNIX, 1));
    assert!(knock_as(&mut server, START, UNIX, 2));
    assert!(!knock_as(&mut server, START, UNIX, 3));
    assert_eq!(server.machine.stats().dropped_overload, 1);
    // 60 s of life, and 5 s of skew.
    let span = Duration::from_secs(66);
    server.wake(START + span);
    server.machine.set_unix_time(START + span, UNIX + span);
    assert!(knock_as(&mut server, START + span, UNIX + span, 4));
}

#[test]
fn retry_always_asks_tokens_for_a_cookie_too() {
    let always = config(|config| config.retry = RetryPolicy::Always);
    let mut line = Line::with(6, always, |listen| listen);
    line.join(1);
    let stats = *line.server.machine.stats();
    assert_eq!((stats.retried, stats.accepted), (1, 1));
}

#[test]
fn duplicate_reject_keeps_the_session_that_is_there() {
    let reject = config(|config| config.duplicate = DuplicatePolicy::Reject);
    let mut line = Line::with(7, reject, |listen| listen);
    let (session, _) = line.join(1);
    line.run(1_000);
    let credentials = line.token(1);
    line.client.dial(line.now, &line.keys, credentials);
    line.run(500);
    assert_eq!(
        failures(&line.client),
        [ConnectFailure::Refused(CloseCode::Replaced)]
    );
    assert!(line.client.machine.session_stats(session).is_some());
}

/// 100 at once, and then as many a second as configured; each class has its own.
#[test]
fn accept_rate_and_accept_rate_unvalidated_ration_the_curve() {
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
            knock(server, now, from, &mut rogue)
        } else {
            server.take(now, from, &rogue.hello);
            server.drain(now).pop().map(|sent| sent.bytes)
        };
        answer.map(|bytes| bytes[0])
    };
    // Half of the unvalidated budget is spent on the quick; then a cookie is asked for.
    for _ in 0..51 {
        assert_eq!(next(&mut server, START, false), Some(0xC3));
    }
    assert_eq!(next(&mut server, START, false), Some(0xC2));
    for _ in 0..100 {
        assert_eq!(next(&mut server, START, true), Some(0xC3));
    }
    assert_eq!(next(&mut server, START, true), None);
    assert_eq!(server.machine.stats().dropped_accept_budget, 1);
    // 10 more with a cookie after one second, and one without: 49 + 20 - 50 are above a half.
    let later = START + Duration::from_secs(1);
    for _ in 0..20 {
        assert_eq!(next(&mut server, later, true), Some(0xC3));
    }
    for _ in 0..10 {
        assert_eq!(next(&mut server, later, true), Some(0xC3));
    }
    assert_eq!(next(&mut server, later, true), None);
}

#[test]
fn linger_ends_a_close_that_nobody_answers() {
    let brief = config(|config| config.linger = Duration::from_millis(300));
    let mut line = Line::with(9, brief, |listen| listen);
    let (session, _) = line.join(1);
    line.run(100);
    let begin = line.now;
    line.client
        .machine
        .send(begin, session, RELIABLE, b"never acknowledged")
        .unwrap();
    line.client
        .machine
        .close(begin, session, CloseCode::App, b"")
        .unwrap();
    let mut ended_at = None;
    for millis in 0..1_000 {
        let now = begin + Duration::from_millis(millis);
        line.client.wake(now);
        line.client.drain(now);
        if ended_at.is_none() && !line.client.closes().is_empty() {
            ended_at = Some(millis);
        }
    }
    assert_eq!(ended_at, Some(300));
    assert_eq!(line.client.closes(), [CloseReason::Local(CloseCode::App)]);
}

#[test]
fn connect_timeout_ends_a_dial_on_time() {
    let brief = config(|config| config.connect_timeout = Duration::from_secs(3));
    let mut line = Line::with(10, brief, |listen| listen);
    let credentials = line.token(1);
    line.client.dial(START, &line.keys, credentials);
    let mut hellos = 0;
    for millis in 0..=3_000 {
        let now = START + Duration::from_millis(millis);
        line.client.wake(now);
        hellos += line.client.drain(now).len();
        assert_eq!(failures(&line.client).is_empty(), millis < 3_000);
    }
    assert!((4..=8).contains(&hellos), "{hellos}");
    assert_eq!(failures(&line.client), [ConnectFailure::Timeout]);
    assert_eq!(line.client.machine.session_count(), 0);
}

/// M7: who never reads holds no more than its window and stops the sender; reading resumes it.
#[test]
fn twp_m7_receive_window_bounds_what_an_application_leaves_unread() {
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
        // By hand: the server's application reads nothing in the first half.
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

#[test]
fn keepalive_says_how_often_an_idle_session_speaks() {
    let quick = config(|config| {
        config.keepalive = Keepalive::new(Duration::from_millis(300)).unwrap();
    });
    let mut line = Line::with(12, quick, |listen| listen);
    let (session, _) = line.join(1);
    line.run(1_000);
    let sent = |line: &Line| {
        let stats = line.client.machine.session_stats(session);
        stats.unwrap().packets_sent
    };
    let before = sent(&line);
    line.run(3_000);
    let count = sent(&line) - before;
    // 3 s in steps of 240 to 300 ms, and at most as many answers.
    assert!((10..=26).contains(&count), "{count}");
}

/// Both ends hold a lot, then nothing, and a keepalive later they have given it back.
#[test]
fn an_idle_session_gives_its_memory_back_and_so_does_one_that_ends() {
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
            // Nothing arrives, so that all of it is held as in flight.
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
    // An end by the peer: only what came is kept, until the slot goes.
    line.server.machine.shutdown(line.now);
    line.now += Duration::from_millis(501);
    line.server.wake(line.now);
    line.server.drain(line.now);
    assert_eq!(line.server.machine.session_count(), 1);
    let [_, closing] = memory(&line);
    assert!(closing <= idle[1] + 2_000, "{closing} of {}", idle[1]);
}

#[test]
fn keepalive_is_cut_to_a_third_of_the_idle_timeout_that_holds() {
    // One end is impatient, and neither says so often enough by itself.
    let of = |idle, keepalive| {
        config(|config| {
            config.idle_timeout = IdleTimeout::new(Duration::from_secs(idle)).unwrap();
            config.keepalive = Keepalive::new(Duration::from_secs(keepalive)).unwrap();
        })
    };
    let mut line = Line::with(19, of(120, 20), |listen| listen);
    line.client = Party::new(CLIENT, of(2, 20), SimProvider::new(Seed::from_number(20)));
    let (session, theirs) = line.join(1);
    line.run(60_000);
    assert!(line.client.closes().is_empty() && line.server.closes().is_empty());
    let packets = |party: &Party, session| {
        let stats = party.machine.session_stats(session);
        stats.unwrap().packets_sent
    };
    // Every 667 ms or up to a fifth sooner, and an acknowledgement for each of the other's.
    for count in [
        packets(&line.client, session),
        packets(&line.server, theirs),
    ] {
        assert!((90..=230).contains(&count), "{count}");
    }
}

#[test]
fn up_to_four_server_keys_are_believed_and_other_lists_refused() {
    let mut line = Line::new(24);
    let others: Vec<_> = (0..4)
        .map(|number| Keys::new(Seed::from_number(500 + number)).public())
        .collect();
    let right = line.keys.public();
    let mut connect = |keys: &[PublicKey]| {
        let credentials = line.token(1);
        let target = Target {
            server: ServerIdentity::Keys(keys.to_vec()),
            ..target(&line, credentials)
        };
        let result = line.client.machine.connect(line.now, target);
        line.run(100);
        result.map(|session| line.client.machine.proof(session).cloned())
    };
    for place in 0..4 {
        let mut keys = others.clone();
        keys[place] = right;
        assert_eq!(connect(&keys), Ok(Some(Proof::Server(right))), "{place}");
    }
    assert_eq!(connect(&others), Ok(None));
    assert_eq!(connect(&[]), Err(ConnectError::ServerKeys(0)));
    let five = [&others[..], &[right]].concat();
    assert_eq!(connect(&five), Err(ConnectError::ServerKeys(5)));
    let twice = [right, others[0], right];
    assert_eq!(connect(&twice), Err(ConnectError::ServerKeyRepeated));
}

#[test]
fn idle_timeout_is_the_smaller_of_both_ends() {
    let quick = config(|config| {
        config.idle_timeout = IdleTimeout::new(Duration::from_secs(2)).unwrap();
    });
    let seed = Seed::from_number(13);
    let mut line = Line::with(13, Config::default(), |listen| listen);
    line.client = Party::new(CLIENT, quick, SimProvider::new(seed));
    line.join(1);
    line.run(500);
    let silent_since = line.now;
    for millis in 0..=2_100 {
        let now = silent_since + Duration::from_millis(millis);
        line.server.wake(now);
        line.server.drain(now);
        // A keepalive of the client's may have come up to a second ago.
        assert!(
            millis >= 1_000 || line.server.closes().is_empty(),
            "{millis}"
        );
    }
    assert_eq!(line.server.closes(), [CloseReason::Timeout]);
}

#[test]
fn suite_is_taken_where_it_is_offered() {
    for (number, suite) in [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::ChaCha20Poly1305]
        .into_iter()
        .enumerate()
    {
        let number = 14 + u64::try_from(number).unwrap();
        let mut line = Line::with(number, config(|config| config.suite = suite), |listen| {
            listen
        });
        let (session, _) = line.join(1);
        let accept = line.record.iter().find(|(_, bytes)| bytes[0] == 0xC3);
        assert_eq!(accept.unwrap().1[13], suite.code());
        line.client
            .machine
            .send(line.now, session, RELIABLE, b"sealed")
            .unwrap();
        line.run(100);
        assert_eq!(line.server.messages, [(RELIABLE, b"sealed".to_vec())]);
        // Who offers the first only gets the first.
        let token = line.token(2);
        let rogue = Rogue::new(1, &token);
        line.server.take(line.now, network(1), &rogue.hello);
        assert_eq!(line.server.drain(line.now)[0].bytes[13], 1);
    }
}

#[test]
fn cid_len_is_what_packets_bear() {
    for (number, cid_len) in [CidLen::Zero, CidLen::Four, CidLen::Eight]
        .into_iter()
        .enumerate()
    {
        let number = 17 + u64::try_from(number).unwrap();
        let mut line = Line::with(number, Config::default(), |listen| listen);
        let client = config(|config| config.cid_len = cid_len);
        line.client = Party::new(CLIENT, client, SimProvider::new(Seed::from_number(number)));
        let (session, theirs) = line.join(1);
        line.run(100);
        line.server
            .machine
            .send(line.now, theirs, UNRELIABLE, &[1; 50])
            .unwrap();
        line.run(10);
        let longest = line
            .record
            .iter()
            .filter(|(is_client, bytes)| !is_client && bytes[0] & 0xC0 == 0x40)
            .map(|(_, bytes)| bytes.len())
            .max();
        // Flags, connection id, number, type of the message, data, tag; all was acknowledged.
        let expected = 1 + cid_len.bytes() + 2 + 1 + 50 + 16;
        assert_eq!(longest, Some(expected));
        assert_eq!(line.client.messages, [(UNRELIABLE, vec![1; 50])]);
        let credentials = line.token(2);
        let second = target(&line, credentials);
        let again = line.client.machine.connect(line.now, second);
        if cid_len == CidLen::Zero {
            assert_eq!(again, Err(ConnectError::AddressTaken));
        } else {
            assert!(again.is_ok());
        }
        assert!(line.client.machine.session_stats(session).is_some());
    }
}

#[test]
fn mtu_and_mtu_check_bound_what_leaves() {
    let large = config(|config| {
        config.mtu = Mtu::MIN;
        config.mtu_check = Some(Mtu::MAX);
    });
    let mut line = Line::with(20, large, |listen| listen);
    let (session, _) = line.join(1);
    line.run(1_000);
    let is_checked =
        |event: &Event| matches!(event, Event::MtuChecked { mtu, .. } if *mtu == Some(Mtu::MAX));
    assert!(line.client.events.iter().any(is_checked));
    let before = line.record.len();
    for _ in 0..60 {
        line.client
            .machine
            .send(line.now, session, UNRELIABLE, &[1; 100])
            .unwrap();
    }
    line.run(100);
    let longest = line.record[before..].iter().map(|(_, b)| b.len()).max();
    assert!(
        longest > Some(1_300) && longest <= Some(1_452),
        "{longest:?}"
    );
}

#[test]
fn channels_must_be_the_same_at_both_ends() {
    let three = ChannelTable::new(&[
        ChannelConfig::unreliable(),
        ChannelConfig::reliable_ordered(),
        ChannelConfig::reliable_ordered(),
    ])
    .unwrap();
    let mut line = Line::with(21, config(|config| config.channels = three), |listen| {
        listen
    });
    let (session, _) = line.join(1);
    let third = ChannelId(2);
    line.client
        .machine
        .send(line.now, session, third, b"third")
        .unwrap();
    line.run(100);
    assert_eq!(line.server.messages, [(third, b"third".to_vec())]);
    assert_eq!(
        line.client
            .machine
            .send(line.now, session, ChannelId(3), b"x"),
        Err(SendError::UnknownChannel(ChannelId(3)))
    );
    // A client with the usual two is told why it may not stay.
    let provider = SimProvider::new(Seed::from_number(22));
    line.client = Party::new("203.0.113.10:4000", Config::default(), provider);
    let credentials = line.token(2);
    line.client.dial(line.now, &line.keys, credentials);
    line.run(500);
    assert_eq!(
        line.client.closes(),
        [CloseReason::Peer(CloseCode::ChannelConfig)]
    );
    assert_eq!(line.server.sessions().len(), 1);
}

/// Without connection ids packets are told apart by address, so one address has one session.
#[test]
fn cid_len_zero_takes_an_address_once_also_while_dialling() {
    let none = config(|config| config.cid_len = CidLen::Zero);
    let mut line = Line::with(23, Config::default(), |listen| listen);
    line.client = Party::new(CLIENT, none, SimProvider::new(Seed::from_number(23)));
    let credentials = line.token(1);
    let session = line.client.dial(line.now, &line.keys, credentials);
    let credentials = line.token(2);
    let second = target(&line, credentials);
    let again = line.client.machine.connect(line.now, second);
    assert_eq!(again, Err(ConnectError::AddressTaken));
    line.settle();
    assert_eq!(line.client.sessions(), [session]);
}

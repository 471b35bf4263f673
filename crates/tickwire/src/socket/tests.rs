use core::cell::RefCell;

use udp_proto::{
    ChannelConfig, CloseCode, CloseReason, Credentials, IdleTimeout, Keepalive, Listen, Message,
    MessageOutcome, ServerIdentity, Target,
};

use super::*;
use crate::shared::{EVENT_BYTES_MAX, OfferError};
use crate::{Client, RELIABLE, Server};

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Connects to `target`, and returns the client's address as the server sees it.
fn connect_and_see(server: &mut Server, target: SocketAddr) -> Option<SocketAddr> {
    let mut client = Client::connect(target, AppId(5), server.key()).unwrap();
    for _ in 0..2_000 {
        server.socket.turn();
        for event in client.wait_tick(NonZeroU8::MAX).unwrap() {
            assert!(
                matches!(event, Event::Connected { .. }),
                "{target}: {event:?}"
            );
        }
        let sessions: Vec<_> = server.socket.driver.application().sessions().collect();
        if let [session] = sessions[..] {
            let seen = server.socket.endpoint().peer_address(session);
            client.disconnect().unwrap();
            for _ in 0..2_000 {
                server.poll();
                if !server.socket.has_sessions() {
                    return seen;
                }
                client.poll();
            }
        }
    }
    None
}

#[test]
fn u1_a_server_on_all_addresses_serves_ipv4_ipv6_and_mapped_addresses() {
    let mut server = Server::bind(address("[::]:0"), AppId(5)).unwrap();
    let port = server.address().port();
    for (target, seen) in [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
    ] {
        let target = SocketAddr::new(target.parse().unwrap(), port);
        let peer = connect_and_see(&mut server, target).unwrap();
        // Limits, block lists and logs use the plain IPv4 address of an IPv4 peer.
        assert_eq!(peer.ip(), seen.parse::<IpAddr>().unwrap(), "{target}");
    }
}

#[test]
fn u1_a_server_on_a_mapped_address_is_a_server_on_the_ipv4_address() {
    let mut server = Server::bind(address("[::ffff:127.0.0.1]:0"), AppId(5)).unwrap();
    let own = server.address();
    assert_eq!(own.ip(), IpAddr::from(Ipv4Addr::LOCALHOST));
    let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
    for target in [own, SocketAddr::new(mapped.into(), own.port())] {
        let peer = connect_and_see(&mut server, target).unwrap();
        assert_eq!(peer.ip(), IpAddr::from(Ipv4Addr::LOCALHOST));
    }
}

#[test]
fn u1_a_target_that_cannot_answer_is_refused_with_address_and_reason() {
    let server = Server::bind(address("127.0.0.1:0"), AppId(5)).unwrap();
    for (target, reason) in [
        ("127.0.0.1:0", "port 0"),
        ("0.0.0.0:7777", "a server binds this address"),
        ("[::]:7777", "a server binds this address"),
        ("[::ffff:0.0.0.0]:7777", "a server binds this address"),
        ("255.255.255.255:7777", "broadcast"),
        ("224.0.0.1:7777", "multicast"),
        ("[ff02::1%1]:7777", "multicast"),
        ("[fe80::1]:7777", "number of its interface"),
    ] {
        let refused = Client::connect(address(target), AppId(5), server.key()).err();
        let text = refused.unwrap().to_string();
        assert!(text.contains(target) && text.contains(reason), "{text}");
    }
}

#[test]
fn u1_unusable_targets_are_skipped_if_others_are_usable() {
    let mut server = Server::bind(address("127.0.0.1:0"), AppId(5)).unwrap();
    let target = Target {
        addresses: vec![address("[::]:1"), address("127.0.0.1:0"), server.address()],
        server: ServerIdentity::Keys(vec![server.key().to_string().parse().unwrap()]),
        credentials: Credentials::Open,
    };
    let mut client = Client::connect_to(target, AppId(5), Config::default()).unwrap();
    // The client sends its first datagram to the first remaining address.
    for _ in 0..60 {
        server.socket.turn();
        let events = client.wait_tick(NonZeroU8::MAX).unwrap();
        if let [Event::Connected { .. }] = events[..] {
            return;
        }
        assert!(events.is_empty(), "{events:?}");
    }
    panic!("not connected within 60 turns");
}

#[test]
fn u17_a_new_session_is_rejected_without_an_event_if_too_many_wait() {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut server = Server::bind(local, AppId(5)).unwrap();
    server.socket.driver.act(|_, _, host| host.events_max = 1);
    let join = |server: &mut Server| {
        let mut client = Client::connect(server.address(), AppId(5), server.key()).unwrap();
        for _ in 0..20_000 {
            server.socket.turn();
            for event in client.wait_tick(NonZeroU8::MAX).unwrap() {
                match event {
                    Event::Connected { .. } => client.send(RELIABLE, b"here").unwrap(),
                    Event::Disconnected { reason, .. } => return (client, Some(reason)),
                    other @ (Event::Message { .. }
                    | Event::Unreachable { .. }
                    | Event::Settled { .. }) => {
                        panic!("{other:?}")
                    }
                }
            }
            if !server.socket.driver.application().readable.is_empty() {
                return (client, None);
            }
        }
        panic!("nothing came of it");
    };
    let (first, reason) = join(&mut server);
    assert_eq!(reason, None);
    // The first client's message is not yet an event, but `Connected` is. From here on, a waiting
    // message is the first client's.
    let session = server
        .socket
        .driver
        .act(|_, _, host| host.readable.pop_front());
    for _ in 0..2 {
        let (_, reason) = join(&mut server);
        assert_eq!(reason, Some(CloseReason::Peer(CloseCode::Full)));
    }
    server
        .socket
        .driver
        .act(|_, _, host| host.readable.extend(session));
    let events = server.socket.poll();
    assert!(
        matches!(events[..], [Event::Connected { .. }, Event::Message { .. }]),
        "{events:?}"
    );
    drop(first);
}

/// A game on another thread with a queue that is never full.
#[derive(Default)]
struct Game(RefCell<Vec<Event>>);

impl EventSink for Game {
    fn offer(&self, event: Event) -> Result<(), OfferError> {
        self.0.borrow_mut().push(event);
        Ok(())
    }
}

impl Game {
    /// Total bytes of received messages.
    fn bytes(&self) -> usize {
        let events = self.0.borrow();
        let bytes = events.iter().map(|event| {
            if let Event::Message { bytes, .. } = event {
                bytes.len()
            } else {
                0
            }
        });
        bytes.sum()
    }
}

/// A game on another thread with a queue that is always full.
#[derive(Debug)]
struct Asleep;

impl EventSink for Asleep {
    fn offer(&self, event: Event) -> Result<(), OfferError> {
        Err(OfferError::Full(event))
    }
}

/// A server without limits on input, and a client with the same settings.
fn pair(config: &Config) -> (Server, Client) {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let identity = crypto::Identity::generate(&mut Ring::new()).unwrap();
    let server = Server::bind_with(local, AppId(5), config.clone(), |instance| {
        Listen::new(identity, instance).with_open_mode()
    })
    .unwrap();
    let target = Target {
        addresses: vec![server.address()],
        server: ServerIdentity::Keys(vec![server.key().0]),
        credentials: Credentials::Open,
    };
    let client = Client::connect_to(target, AppId(5), config.clone()).unwrap();
    (server, client)
}

fn without_rate_limits() -> Config {
    let mut config = Config::default();
    config.inbound.packets = u32::MAX;
    config.inbound.packets_burst = u32::MAX;
    config.inbound.bytes = u32::MAX;
    config
}

/// Runs the server until it would wait.
fn serve(server: &mut Server, game: &Game) {
    let signals = server.socket.share().signals;
    while server.socket.step(&signals, game) == Step::Again {}
}

#[test]
fn u17_credit_for_what_was_read_is_sent_before_waiting() {
    let mut config = without_rate_limits();
    config.receive_window = 256 << 10;
    let mut rows = [
        ChannelConfig::unreliable(),
        ChannelConfig::reliable_ordered(),
    ];
    rows[1].message_bytes_max = 190_000;
    rows[1].queue_bytes_max = 1 << 20;
    config.channels = ChannelTable::new(&rows).unwrap();
    let (mut server, mut client) = pair(&config);
    let game = Game::default();
    let mut held_back = Vec::<usize>::new();
    for _ in 0..20_000 {
        client.wait_tick(NonZeroU8::MAX).unwrap();
        // Refused until the session is open, and while the queue is full.
        client.send(RELIABLE, &vec![7; 190_000]).ok();
        client.poll();
        serve(&mut server, &game);
        let waiting = server.socket.act(|now, endpoint| {
            let mut packet = Vec::new();
            endpoint
                .poll_transmit(now, &mut packet)
                .map(|_| packet.len())
        });
        held_back.extend(waiting);
        if game.bytes() >= 20 * 190_000 {
            break;
        }
    }
    assert!(game.bytes() >= 20 * 190_000, "{}", game.bytes());
    assert!(
        held_back.is_empty(),
        "{held_back:?} wait for something to come"
    );
}

#[test]
fn u17_waiting_events_are_bounded_in_bytes_and_continue_when_taken() {
    let (mut server, mut client) = pair(&without_rate_limits());
    let shared = server.socket.share();
    let game = Game::default();
    let (mut sent, mut idle) = (0, 0);
    // Until the client has found no room for a while, although no packet is lost any more.
    while idle < 100 || game.bytes() < EVENT_BYTES_MAX - 60_000 {
        idle += 1;
        assert!(idle < 20_000, "{}", game.bytes());
        client.wait_tick(NonZeroU8::MAX).unwrap();
        while client.send(RELIABLE, &vec![7; 60_000]).is_ok() {
            (sent, idle) = (sent + 1, 0);
        }
        client.poll();
        serve(&mut server, &game);
        assert!(game.bytes() < EVENT_BYTES_MAX + 60_000, "{}", game.bytes());
    }
    // The client holds the rest: the server gives credit only for its window.
    let unread = sent * 60_000 - game.bytes();
    assert!(unread < 2 << 20, "{unread}");
    for event in game.0.take() {
        shared.on_taken(event);
    }
    for _ in 0..20_000 {
        if game.bytes() >= unread {
            break;
        }
        client.wait_tick(NonZeroU8::MAX).unwrap();
        serve(&mut server, &game);
    }
    assert_eq!(game.bytes(), unread);
}

#[test]
fn a_players_last_messages_before_its_silence_precede_its_end() {
    let mut config = without_rate_limits();
    config.idle_timeout = IdleTimeout::new(Duration::from_secs(2)).unwrap();
    config.keepalive = Keepalive::new(Duration::from_millis(200)).unwrap();
    let (mut server, mut client) = pair(&config);
    let mut is_sent = false;
    let mut acknowledged = 0;
    while server.socket.driver.application().readable.is_empty() || acknowledged == 0 {
        client.wait_tick(NonZeroU8::MAX).unwrap();
        let stats = server.sessions().next().and_then(|it| server.stats(it));
        acknowledged = stats.map_or(0, |stats| stats.packets_acknowledged);
        if !is_sent {
            is_sent = client.send(RELIABLE, b"last words").is_ok();
        }
        client.poll();
        server.socket.turn();
    }
    drop(client);
    // The game takes no events meanwhile.
    while server.socket.has_sessions() {
        server.socket.driver.wait().unwrap();
        server.socket.turn();
    }
    let events = server.poll();
    let [
        Event::Connected { .. },
        Event::Message { bytes, .. },
        Event::Disconnected { reason, .. },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(
        (&bytes[..], *reason),
        (&b"last words"[..], CloseReason::Timeout)
    );
    // Its last packets are counted too.
    let traffic = server.report().traffic;
    assert!(traffic.packets_acknowledged >= acknowledged, "{traffic:?}");
}

/// The game's queue had no room: outcomes known when the thread ended are reported all the same.
#[test]
fn u17_a_delivered_message_is_not_reported_dropped_if_the_thread_ends() {
    let (mut server, mut client) = pair(&without_rate_limits());
    let shared = server.socket.share();
    let mut arrived = Vec::new();
    let mut sent = Vec::new();
    let mut rounds_after = 0;
    while rounds_after < 50 {
        rounds_after += u32::from(arrived.len() == 3);
        for event in client.wait_tick(NonZeroU8::MAX).unwrap() {
            if let Event::Message { bytes, .. } = event {
                arrived.push(bytes);
            }
        }
        let signals = server.socket.share().signals;
        while server.socket.step(&signals, &Asleep) == Step::Again {}
        if sent.is_empty()
            && let Some(session) = server.sessions().next()
        {
            let message = Message::new(RELIABLE, b"known");
            sent.extend((0..3).map(|_| shared.send_tracked(session, &message).unwrap()));
        }
    }
    let session = server.sessions().next().unwrap();
    drop(client);
    let message = Message::new(RELIABLE, b"never");
    let lost = shared.send_tracked(session, &message).unwrap();
    shared.stop(Duration::ZERO);
    server.socket.serve(&shared, &Asleep);
    let answers = core::iter::from_fn(|| shared.last_event()).map(|event| {
        let Event::Settled {
            message, outcome, ..
        } = event
        else {
            panic!("{event:?}");
        };
        (message, outcome)
    });
    let mut expected: Vec<_> = sent
        .into_iter()
        .map(|message| (message, MessageOutcome::Delivered))
        .collect();
    expected.push((lost, MessageOutcome::Dropped));
    assert_eq!(answers.collect::<Vec<_>>(), expected);
}

/// Nobody has polled for the session's end when the socket moves to its thread.
#[test]
fn u15_a_session_that_ended_before_the_thread_began_can_be_muted() {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut server = Server::bind(local, AppId(5)).unwrap();
    let mut client = Client::connect(server.address(), AppId(5), server.key()).unwrap();
    let mut come = None;
    for _ in 0..20_000 {
        server.socket.turn();
        let events = client.wait_tick(NonZeroU8::MAX).unwrap();
        if matches!(events[..], [Event::Connected { .. }, ..]) {
            client.send(RELIABLE, b"last words").unwrap();
            client.disconnect().unwrap();
        }
        come = come.or_else(|| server.sessions().next());
        if come.is_some() && !server.socket.has_sessions() {
            break;
        }
    }
    let mut server = server.in_background().unwrap();
    server.kick(come.unwrap(), b"").unwrap();
    let mut answers = core::iter::from_fn(|| server.wait_event(Duration::from_secs(20)));
    assert!(matches!(answers.next(), Some(Event::Connected { .. })));
    let end = answers.next();
    assert!(matches!(end, Some(Event::Disconnected { .. })), "{end:?}");
}

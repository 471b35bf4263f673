//! One thread polls both ends in turn; nothing waits on a clock.

use core::net::SocketAddr;
use core::num::{NonZeroU8, NonZeroU32};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::thread;

use tickwire::servicer::Clock;
use tickwire::udp_proto::{ChannelTable, Credentials, ServerIdentity, Target};
use tickwire::{
    AppId, ChannelId, Client, Config, ConnectFailure, Event, Message, MessageOutcome, RELIABLE,
    SendError, Server, UNRELIABLE,
};

pub(crate) const APP: AppId = AppId(77);
const FAST: NonZeroU8 = NonZeroU8::MAX;

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Polls both until the client has received `count` messages or its session ends.
fn run(server: &mut Server, client: &mut Client, count: usize) -> Vec<Event> {
    let mut seen = Vec::new();
    for _ in 0..20_000 {
        for event in server.poll() {
            if let Event::Message {
                session,
                channel,
                bytes,
            } = event
            {
                server.send(session, channel, &bytes).unwrap();
            }
        }
        for event in client.wait_tick(FAST).unwrap() {
            if matches!(event, Event::Connected { .. }) {
                client.send(RELIABLE, b"surely").unwrap();
                client.send(UNRELIABLE, b"soon").unwrap();
            }
            seen.push(event);
        }
        let messages = seen
            .iter()
            .filter(|event| matches!(event, Event::Message { .. }))
            .count();
        let is_over = seen.iter().any(|event| {
            matches!(
                event,
                Event::Unreachable { .. } | Event::Disconnected { .. }
            )
        });
        if messages >= count || is_over {
            return seen;
        }
    }
    panic!("nothing came: {seen:?}");
}

#[test]
fn u1_echoes_over_ipv4_and_ipv6() {
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let mut server = Server::bind(address(at), APP).unwrap();
        let mut client = Client::connect(server.address(), APP, server.key()).unwrap();
        let seen = run(&mut server, &mut client, 2);
        let mut messages: Vec<_> = seen
            .iter()
            .filter_map(|event| {
                if let Event::Message { bytes, .. } = event {
                    Some(bytes.as_slice())
                } else {
                    None
                }
            })
            .collect();
        messages.sort_unstable();
        assert_eq!(messages, [&b"soon"[..], b"surely"]);
        client.disconnect().unwrap();
    }
}

#[test]
fn u9_each_tracked_message_has_one_outcome() {
    let mut server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let mut client = Client::connect(server.address(), APP, server.key()).unwrap();
    let mut sent = Vec::new();
    let mut reported = Vec::new();
    for _ in 0..20_000 {
        server.poll();
        for event in client.wait_tick(FAST).unwrap() {
            if let Event::Settled {
                channel,
                message,
                outcome,
                ..
            } = event
            {
                assert_eq!(outcome, MessageOutcome::Delivered);
                reported.push((channel, message));
                continue;
            }
            assert!(matches!(event, Event::Connected { .. }), "{event:?}");
            for channel in [RELIABLE, UNRELIABLE] {
                let message = Message::new(channel, b"heard?");
                sent.push((channel, client.send_tracked(&message).unwrap()));
            }
        }
        if reported.len() == 2 {
            break;
        }
    }
    reported.sort_unstable_by_key(|(channel, _)| core::cmp::Reverse(*channel));
    assert_eq!(reported, sent);
}

#[test]
fn a_server_with_another_key_is_rejected() {
    let mut server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let other = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let mut config = Config::default();
    config.connect_timeout = Duration::from_millis(600);
    let target = Target {
        addresses: vec![server.address()],
        server: ServerIdentity::Keys(vec![other.key().to_string().parse().unwrap()]),
        credentials: Credentials::Open,
    };
    let mut client = Client::connect_to(target, APP, config).unwrap();
    let seen = run(&mut server, &mut client, 1);
    assert!(
        matches!(
            seen[..],
            [Event::Unreachable {
                failure: ConnectFailure::NotTheServer { .. }
            }]
        ),
        "{seen:?}"
    );
}

/// One address answers; the earlier one, of the other family, does not.
#[test]
fn a_client_reaches_a_server_by_the_family_that_answers() {
    for (silent, at) in [("127.0.0.1:0", "[::1]:0"), ("[::1]:0", "127.0.0.1:0")] {
        let mut server = Server::bind(address(at), APP).unwrap();
        let silent = std::net::UdpSocket::bind(address(silent)).unwrap();
        let target = Target {
            addresses: vec![silent.local_addr().unwrap(), server.address()],
            server: ServerIdentity::Keys(vec![server.key().to_string().parse().unwrap()]),
            credentials: Credentials::Open,
        };
        let mut client = Client::connect_to(target, APP, Config::default()).unwrap();
        let seen = run(&mut server, &mut client, 2);
        assert!(matches!(seen[0], Event::Connected { .. }), "{seen:?}");
        assert_eq!(seen.len(), 3);
    }
}

#[test]
fn a_busy_port_is_one_sentence() {
    let first = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let error = Server::bind(first.address(), APP).unwrap_err().to_string();
    assert!(error.contains(&first.address().to_string()), "{error}");
    assert!(!error.contains('\n'));
}

#[test]
fn the_tick_count_is_exact() {
    const HZ: NonZeroU8 = NonZeroU8::MIN.saturating_add(99);
    let mut server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let clock = Clock::new();
    let start = clock.now();
    for number in 0..20 {
        server.wait_tick(HZ).unwrap();
        if number == 9 {
            // The game takes three and a half ticks for this one.
            let (_never, waits) = std::sync::mpsc::channel::<()>();
            waits.recv_timeout(Duration::from_millis(35)).ok();
        }
    }
    // No tick is early. Each period of 10 ms starts a tick or is counted as missed, except a part
    // of one if a tick was late. The first may be late, too.
    let spans = clock.now().saturating_since(start).as_millis() / 10;
    let load = server.report().load;
    let reported = u128::from(load.ticks + load.ticks_missed);
    assert_eq!(load.ticks, 20);
    assert!(load.ticks_missed >= 2, "{load:?}");
    assert!(
        (spans / 2..=spans + 2).contains(&reported),
        "{load:?} in {spans}"
    );
}

/// An echo server like the README's; returns the errors of `send`.
fn serve(server: &mut Server) -> Vec<SendError> {
    let mut refused = Vec::new();
    for event in server.poll() {
        if let Event::Message {
            session,
            channel,
            bytes,
        } = event
            && let Err(error) = server.send(session, channel, &bytes)
        {
            refused.push(error);
            server.disconnect(session).ok();
        }
    }
    refused
}

/// Runs `rude` against a server, which must then serve the next client; returns the errors of the
/// server's `send`.
fn outlive(rude: impl Fn(&mut Client)) -> Vec<SendError> {
    let mut server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    // The rude client has a longer queue than the server; the ends may differ in that.
    let mut rows = Config::default().channels.rows().to_vec();
    rows[1].queue_bytes_max = 1 << 20;
    let mut config = Config::default();
    config.channels = ChannelTable::new(&rows).unwrap();
    // It has no rate limit either.
    config.realtime_rate = NonZeroU32::MAX;
    config.realtime_burst = u32::MAX;
    let target = Target {
        addresses: vec![server.address()],
        server: ServerIdentity::Keys(vec![server.key().to_string().parse().unwrap()]),
        credentials: Credentials::Open,
    };
    let mut client = Client::connect_to(target, APP, config).unwrap();
    let mut refused = Vec::new();
    let mut is_connected = false;
    for _ in 0..1_000 {
        refused.append(&mut serve(&mut server));
        let mut events = client.wait_tick(FAST).unwrap();
        if events
            .iter()
            .any(|event| matches!(event, Event::Connected { .. }))
        {
            is_connected = true;
            rude(&mut client);
            // All of it is in the server's socket before the server polls.
            events.append(&mut client.poll());
        }
        let is_over = events
            .iter()
            .any(|event| matches!(event, Event::Disconnected { .. }));
        if is_over {
            // The client's last message reaches the server.
            for _ in 0..20 {
                refused.append(&mut serve(&mut server));
            }
            break;
        }
    }
    assert!(is_connected);
    let mut next = Client::connect(server.address(), APP, server.key()).unwrap();
    let seen = run(&mut server, &mut next, 2);
    assert!(
        seen.iter()
            .any(|event| matches!(event, Event::Message { .. })),
        "{seen:?}"
    );
    refused
}

#[test]
fn a_client_that_sends_and_leaves_does_not_end_the_server() {
    let refused = outlive(|client| {
        client.send(UNRELIABLE, b"and gone").unwrap();
        client.disconnect().unwrap();
    });
    assert_eq!(refused, [SendError::Closed]);
}

#[test]
fn a_client_that_floods_does_not_end_the_server() {
    let refused = outlive(|client| {
        for _ in 0..100 {
            client.send(RELIABLE, &[7; 1_024]).unwrap();
        }
    });
    assert!(refused.contains(&SendError::Full), "{refused:?}");
}

/// Several times the messages that a server buffers for one client.
const FLOOD: usize = 30_000;

/// Messages per poll of a server that polls once a second, until a client has sent [`FLOOD`]
/// one-byte messages on `channel`.
fn handed_out_once_a_second(channel: ChannelId) -> Vec<usize> {
    let mut server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let (at, key) = (server.address(), server.key());
    let text = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Client::connect(at, APP, key).unwrap();
            while text.load(Ordering::Relaxed) < FLOOD {
                client.wait_tick(FAST).unwrap();
                // Until the channel is full; more would overflow the socket.
                let taken = (0..500).take_while(|_| client.send(channel, &[7]).is_ok());
                text.fetch_add(taken.count(), Ordering::Relaxed);
            }
        });
        let mut counts = Vec::new();
        // However long a loaded machine takes.
        while text.load(Ordering::Relaxed) < FLOOD {
            assert!(counts.len() < 100, "{text:?} are no flood: {counts:?}");
            let events = server.wait_tick(NonZeroU8::MIN).unwrap();
            let is_message = |event: &&Event| matches!(event, Event::Message { .. });
            counts.push(events.iter().filter(is_message).count());
        }
        counts
    })
}

#[test]
fn the_memory_for_one_player_within_a_tick_is_bounded() {
    // At most 64 KiB of unreliable messages are buffered, with a record of some 30 bytes each.
    let unreliable = handed_out_once_a_second(UNRELIABLE);
    assert!(
        unreliable.iter().all(|count| *count <= 4_096),
        "{unreliable:?}"
    );
    assert!(unreliable.iter().any(|count| *count > 0), "{unreliable:?}");
    // The window is 1 MiB, and each reliable message uses 96 bytes; credit is granted by the tick
    // that reads.
    let reliable = handed_out_once_a_second(RELIABLE);
    assert!(
        reliable.iter().all(|count| *count <= (1 << 20) / 96 + 1),
        "{reliable:?}"
    );
    assert!(
        reliable.iter().filter(|count| **count > 0).count() > 1,
        "{reliable:?}"
    );
}

#[test]
fn a_players_last_messages_precede_its_end_however_long_the_tick() {
    let mut server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let (at, key) = (server.address(), server.key());
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Client::connect(at, APP, key).unwrap();
            loop {
                for event in client.wait_tick(FAST).unwrap() {
                    match event {
                        Event::Connected { .. } => {
                            for word in [b"first", b"later"] {
                                client.send(RELIABLE, word).unwrap();
                            }
                            client.disconnect().unwrap();
                        }
                        Event::Disconnected { .. } => return,
                        other @ (Event::Message { .. } | Event::Unreachable { .. } | _) => {
                            panic!("{other:?}")
                        }
                    }
                }
            }
        });
        let mut seen = Vec::new();
        while !matches!(seen.last(), Some(Event::Disconnected { .. })) {
            seen.append(&mut server.wait_tick(NonZeroU8::MIN).unwrap());
        }
        let text: Vec<_> = seen
            .iter()
            .filter_map(|event| {
                if let Event::Message { bytes, .. } = event {
                    Some(bytes.as_slice())
                } else {
                    None
                }
            })
            .collect();
        assert_eq!(text, [b"first", b"later"]);
    });
}

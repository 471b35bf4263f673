//! Servers and clients on background threads.

use core::time::Duration;

use tickwire::servicer::Clock;
use tickwire::udp_proto::{CloseCode, Message, MessageId, MessageOutcome};
use tickwire::{
    BackgroundClient, BackgroundServer, ChannelId, Client, CloseReason, Config, Event, RELIABLE,
    SendError, Server, SessionId, UNRELIABLE,
};

use crate::exchange::{APP, address};

/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(20);

fn pair() -> (BackgroundServer, BackgroundClient) {
    let server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let client = Client::connect(server.address(), APP, server.key()).unwrap();
    let key = server.key();
    let server = server.in_background().unwrap();
    assert_eq!(server.key(), key);
    (server, client.in_background().unwrap())
}

/// A connected pair, and the server's session.
fn connected() -> (BackgroundServer, BackgroundClient, SessionId) {
    let (mut server, mut client) = pair();
    assert!(matches!(
        client.wait_event(LONG),
        Some(Event::Connected { .. })
    ));
    let Some(Event::Connected { session, .. }) = server.wait_event(LONG) else {
        panic!("nobody came");
    };
    (server, client, session)
}

fn message(event: Option<Event>) -> (ChannelId, Vec<u8>) {
    match event {
        Some(Event::Message { channel, bytes, .. }) => (channel, bytes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn u17_messages_pass_while_the_game_thread_is_busy() {
    let (mut server, mut client, session) = connected();
    for channel in [RELIABLE, UNRELIABLE] {
        client.send(channel, b"up").unwrap();
        assert_eq!(message(server.wait_event(LONG)), (channel, b"up".to_vec()));
        server.send(session, channel, b"down").unwrap();
        assert_eq!(
            message(client.wait_event(LONG)),
            (channel, b"down".to_vec())
        );
    }
    assert_eq!(client.next_event(), None);
    client.send(RELIABLE, b"last").unwrap();
    client.disconnect().unwrap();
    assert_eq!(message(server.wait_event(LONG)).1, b"last");
    assert!(matches!(
        server.wait_event(LONG),
        Some(Event::Disconnected {
            reason: CloseReason::Peer(CloseCode::NoError),
            ..
        })
    ));
    assert!(client.shutdown(LONG));
    assert!(server.shutdown(LONG));
}

#[test]
fn u17_messages_beyond_a_channels_queue_wait_and_arrive_in_order() {
    let (mut server, client, _) = connected();
    // A channel queues 64 KiB; this is 2 MiB, submitted at once.
    for number in 0..1_000_u32 {
        let mut bytes = [0; 1_024];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        client.send(RELIABLE, &bytes).unwrap();
    }
    for number in 0..1_000_u32 {
        let (_, bytes) = message(server.wait_event(LONG));
        assert_eq!(bytes[..4], number.to_be_bytes());
    }
    assert!(client.shutdown(LONG));
}

#[test]
fn u17_without_room_a_message_is_refused_at_once() {
    let (mut server, client, _) = connected();
    let mut taken = 0_u32;
    // The other side's game takes no events, so this ends: 4 MiB and what is in flight.
    let error = loop {
        match client.send(RELIABLE, &vec![7; 60_000]) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 10_000, "it never ends");
    };
    assert_eq!(error, SendError::Full);
    assert!(taken >= 60, "{taken}");
    // The game takes events again, and everything arrives.
    for _ in 0..taken {
        assert_eq!(message(server.wait_event(LONG)).1.len(), 60_000);
    }
    assert_eq!(
        client.send(ChannelId(9), b""),
        Err(SendError::UnknownChannel(ChannelId(9)))
    );
    assert!(matches!(
        client.send(UNRELIABLE, &vec![0; 1 << 20]),
        Err(SendError::TooLarge { .. })
    ));
}

#[test]
fn u17_unread_events_wait_in_bounded_queues() {
    let (mut server, mut client, session) = connected();
    // Far more than the event queue holds.
    let count = 12_000_u32;
    let mut sent = 0_u32;
    let mut idle = 0;
    while sent < count && idle < 200 {
        match server.send(session, RELIABLE, &sent.to_be_bytes()) {
            Ok(()) => {
                sent += 1;
                idle = 0;
            }
            Err(error) => {
                assert_eq!(error, SendError::Full);
                idle += 1;
                // Gives the threads time; no event arrives here.
                assert_eq!(server.wait_event(Duration::from_millis(2)), None);
            }
        }
    }
    // The client's queue of 4,096 is full, and unread messages give no credit.
    assert!(sent > 4_096, "{sent}");
    for number in 0..sent {
        assert_eq!(message(client.wait_event(LONG)).1, number.to_be_bytes());
    }
}

#[test]
fn u17_a_background_server_that_shuts_down_notifies_all() {
    let (server, mut client, _) = connected();
    assert!(server.is_running());
    assert!(server.shutdown(LONG));
    assert!(matches!(
        client.wait_event(LONG),
        Some(Event::Disconnected {
            reason: CloseReason::Peer(CloseCode::Shutdown),
            ..
        })
    ));
    // When dropped, its thread ends by itself, even without a close.
    drop(client);
}

#[test]
fn u17_a_dropped_client_leaves() {
    let (mut server, client, _) = connected();
    drop(client);
    assert!(matches!(
        server.wait_event(LONG),
        Some(Event::Disconnected {
            reason: CloseReason::Peer(CloseCode::Shutdown),
            ..
        })
    ));
}

fn number(number: u32) -> [u8; 1_024] {
    let mut bytes = [0; 1_024];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

#[test]
fn u17_messages_that_wait_on_the_thread_arrive_before_a_disconnect() {
    let (mut server, mut client, _) = connected();
    // A channel queues 64 KiB; this is far more, submitted at once.
    for index in 0..500 {
        client.send(RELIABLE, &number(index)).unwrap();
    }
    client.disconnect().unwrap();
    client.send(RELIABLE, b"too late").unwrap();
    for index in 0..500_u32 {
        let (_, bytes) = message(server.wait_event(LONG));
        assert_eq!(bytes[..4], index.to_be_bytes());
    }
    assert!(matches!(
        server.wait_event(LONG),
        Some(Event::Disconnected {
            reason: CloseReason::Peer(CloseCode::NoError),
            ..
        })
    ));
    assert!(matches!(
        client.wait_event(LONG),
        Some(Event::Disconnected { .. })
    ));
}

#[test]
fn u17_messages_that_wait_on_the_thread_arrive_before_a_shutdown() {
    let (server, mut client, session) = connected();
    for index in 0..300 {
        server.send(session, RELIABLE, &number(index)).unwrap();
    }
    assert!(server.shutdown(LONG));
    for index in 0..300_u32 {
        let (_, bytes) = message(client.wait_event(LONG));
        assert_eq!(bytes[..4], index.to_be_bytes());
    }
    assert!(matches!(
        client.wait_event(LONG),
        Some(Event::Disconnected {
            reason: CloseReason::Peer(CloseCode::Shutdown),
            ..
        })
    ));
}

/// A server with a session whose client does not read, and one whose client does.
fn with_a_blocked_client() -> (
    BackgroundServer,
    Client,
    SessionId,
    BackgroundClient,
    SessionId,
) {
    let server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let (at, key) = (server.address(), server.key());
    let mut server = server.in_background().unwrap();
    let mut join = |is_open: &mut dyn FnMut() -> bool| {
        while !is_open() {}
        match server.wait_event(LONG) {
            Some(Event::Connected { session, .. }) => session,
            other => panic!("{other:?}"),
        }
    };
    let is_connected = |event: &Event| matches!(event, Event::Connected { .. });
    let mut blocked = Client::connect(at, APP, key).unwrap();
    let asleep = join(&mut || {
        blocked
            .wait_tick(core::num::NonZeroU8::MAX)
            .unwrap()
            .iter()
            .any(is_connected)
    });
    // Its CONFIRM is acknowledged, and it sends nothing from here on.
    let mut other = Client::connect(at, APP, key)
        .unwrap()
        .in_background()
        .unwrap();
    let awake = join(&mut || other.wait_event(LONG).as_ref().is_some_and(is_connected));
    (server, blocked, asleep, other, awake)
}

#[test]
fn u17_an_unresponsive_peer_blocks_no_other() {
    let (server, _sleeper, asleep, mut other, awake) = with_a_blocked_client();
    let mut taken = 0;
    while server.send(asleep, RELIABLE, &[7; 10_000]).is_ok() {
        taken += 1;
        assert!(taken < 1_000, "it never ends");
    }
    assert!(taken > 50, "{taken}");
    for index in 0..300 {
        server.send(awake, RELIABLE, &number(index)).unwrap();
    }
    for index in 0..300_u32 {
        let (_, bytes) = message(other.wait_event(LONG));
        assert_eq!(bytes[..4], index.to_be_bytes());
    }
    // It can be disconnected, which frees its queued messages.
    server.disconnect(asleep).unwrap();
    server.shutdown(LONG);
}

#[test]
fn u17_an_unresponsive_peer_delays_an_end_by_the_linger_time() {
    let (mut server, _sleeper, asleep, _other, _) = with_a_blocked_client();
    for index in 0..300 {
        server.send(asleep, RELIABLE, &number(index)).unwrap();
    }
    let clock = Clock::new();
    let began = clock.now();
    server.disconnect(asleep).unwrap();
    // A silent session times out after 10 s.
    let Some(Event::Disconnected {
        session, reason, ..
    }) = server.wait_event(LONG)
    else {
        panic!("it did not end");
    };
    assert_eq!(session, asleep);
    assert_eq!(reason, CloseReason::Local(CloseCode::Kicked));
    assert!(clock.now().saturating_since(began) >= Config::default().linger);
}

/// The outcome of each message that a client reports until its session ends, its own close
/// included.
fn outcomes_until_the_end(client: &mut BackgroundClient) -> Vec<(MessageId, MessageOutcome)> {
    let mut outcomes = Vec::new();
    loop {
        match client.wait_event(LONG) {
            Some(Event::Settled {
                message, outcome, ..
            }) => outcomes.push((message, outcome)),
            Some(Event::Disconnected { .. }) => return outcomes,
            Some(Event::Message { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn u17_the_outcome_of_a_tracked_message_is_reported() {
    let (mut server, mut client, session) = connected();
    let here = client.session();
    let sent = [RELIABLE, UNRELIABLE].map(|channel| {
        let message = Message::new(channel, b"up");
        (client.send_tracked(&message).unwrap(), channel)
    });
    let mut reported = [0; 2].map(|_| match client.wait_event(LONG) {
        Some(Event::Settled {
            session,
            channel,
            message,
            outcome,
        }) => {
            assert_eq!((session, outcome), (here, MessageOutcome::Delivered));
            (message, channel)
        }
        other => panic!("{other:?}"),
    });
    reported.sort();
    assert_eq!(reported, sent);
    let mut received = sent.map(|_| message(server.wait_event(LONG)));
    received.sort();
    let expected = [UNRELIABLE, RELIABLE].map(|channel| (channel, b"up".to_vec()));
    assert_eq!(received, expected, "each channel for itself");
    let unknown = Message::new(ChannelId(9), b"");
    assert_eq!(
        server.send_tracked(session, &unknown),
        Err(SendError::UnknownChannel(ChannelId(9)))
    );
}

/// 400 KB are more than a channel's queue takes: some is delivered, some is in the queue, and some
/// waits on the thread when the session ends.
#[test]
fn u17_each_tracked_message_is_reported_once_and_before_an_end() {
    let (server, mut client, session) = connected();
    let bytes = [7; 1_000];
    let message = Message::new(RELIABLE, &bytes);
    let sent: Vec<MessageId> = (0..400)
        .map(|_| client.send_tracked(&message).unwrap())
        .collect();
    server.disconnect(session).unwrap();
    let outcomes = outcomes_until_the_end(&mut client);
    let mut reported: Vec<MessageId> = outcomes.iter().map(|(number, _)| *number).collect();
    reported.sort();
    assert_eq!(reported, sent, "each once");
    // A message sent afterwards gets an outcome, too, and no error.
    let late = client.send_tracked(&message).unwrap();
    let reported = client.wait_event(LONG);
    assert!(
        matches!(reported, Some(Event::Settled { message, outcome: MessageOutcome::Dropped, .. })
            if message == late),
        "{reported:?}"
    );
}

#[test]
fn u17_a_thread_returns_a_report_when_busy_and_when_idle() {
    let (server, client, _session) = connected();
    let report = server.report(LONG).unwrap();
    assert_eq!(report.sessions, 1);
    assert!(report.driver.datagrams_in > 0 && report.driver.send_calls > 0);
    let later = client.report(LONG).unwrap();
    assert_eq!(later.sessions, 1);
    assert!(client.report(LONG).unwrap().uptime_ms >= later.uptime_ms);
}

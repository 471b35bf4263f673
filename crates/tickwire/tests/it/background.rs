//! Servers and clients on threads of their own.

use core::time::Duration;

use tickwire::udp_proto::CloseCode;
use tickwire::{
    BackgroundClient, BackgroundServer, ChannelId, Client, CloseReason, Event, RELIABLE, SendError,
    Server, SessionId, UNRELIABLE,
};

use crate::exchange::{APP, address};

/// Longer than any of it takes on a loaded machine.
const LONG: Duration = Duration::from_secs(20);

fn pair() -> (BackgroundServer, BackgroundClient) {
    let server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let client = Client::connect(server.address(), APP, server.key()).unwrap();
    let key = server.key();
    let server = server.in_background().unwrap();
    assert_eq!(server.key(), key);
    (server, client.in_background().unwrap())
}

/// A pair that is connected, and the server's session.
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
fn u17_two_threads_talk_while_the_game_does_something_else() {
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
fn u17_more_than_a_channel_queues_waits_on_the_thread_and_comes_in_order() {
    let (mut server, client, _) = connected();
    // 64 KiB are queued by a channel; this is 2 MiB, and all is given at once.
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
fn u17_what_finds_no_room_is_refused_and_not_waited_for() {
    let (mut server, client, _) = connected();
    let mut taken = 0_u32;
    // Nobody reads on the other side's game, so this ends; 4 MiB and what the wire holds.
    let error = loop {
        match client.send(RELIABLE, &vec![7; 60_000]) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 10_000, "it never ends");
    };
    assert_eq!(error, SendError::Full);
    assert!(taken >= 60, "{taken}");
    // The game takes events again, and all of it comes.
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
fn u17_events_that_nobody_takes_wait_in_bounded_queues_and_come_later() {
    let (mut server, mut client, session) = connected();
    // Far more than the event queue has room for.
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
                // A moment for the threads; nothing comes here.
                assert_eq!(server.wait_event(Duration::from_millis(2)), None);
            }
        }
    }
    // The client's queue of 4,096 is full, and what it does not read gives no credit.
    assert!(sent > 4_096, "{sent}");
    for number in 0..sent {
        assert_eq!(message(client.wait_event(LONG)).1, number.to_be_bytes());
    }
}

#[test]
fn u17_a_server_in_the_background_that_shuts_down_tells_all() {
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
    // Dropped, its thread ends by itself; and so where the handle is gone without a word.
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

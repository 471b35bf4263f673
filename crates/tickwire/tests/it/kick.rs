//! Players kicked by a background server.

use core::num::NonZeroU8;
use core::time::Duration;

use tickwire::crypto::{Identity, Ring};
use tickwire::udp_proto::{CloseCode, Listen, MessageOutcome};
use tickwire::{
    BackgroundClient, BackgroundServer, Client, CloseReason, Config, Event, Message, RELIABLE,
    Server, SessionId,
};

use crate::exchange::{APP, address};

/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(20);

/// A server that waits up to an hour for a player that does not read.
fn patient() -> Server {
    let identity = Identity::generate(&mut Ring::new()).unwrap();
    let mut config = Config::default();
    config.linger = Duration::from_secs(3_600);
    Server::bind_with(address("127.0.0.1:0"), APP, config, |instance| {
        Listen::new(identity, instance).with_open_mode()
    })
    .unwrap()
}

/// Such a server, and a client that has joined it.
fn joined() -> (BackgroundServer, BackgroundClient, SessionId) {
    let server = patient();
    let client = Client::connect(server.address(), APP, server.key()).unwrap();
    let mut server = server.in_background().unwrap();
    let client = client.in_background().unwrap();
    match server.wait_event(LONG) {
        Some(Event::Connected { session, .. }) => (server, client, session),
        other => panic!("{other:?}"),
    }
}

/// As [`joined`], but the player connected before the server moved to a thread.
fn joined_while_polled() -> (BackgroundServer, BackgroundClient, SessionId) {
    let mut server = patient();
    let client = Client::connect(server.address(), APP, server.key()).unwrap();
    let client = client.in_background().unwrap();
    let session = until_connected(&mut server);
    (server.in_background().unwrap(), client, session)
}

/// Polls a server until a player has connected.
pub(crate) fn until_connected(server: &mut Server) -> SessionId {
    loop {
        for event in server.wait_tick(NonZeroU8::MAX).unwrap() {
            if let Event::Connected { session, .. } = event {
                return session;
            }
        }
    }
}

/// Events of a session until it ended, and the close reason.
fn until_the_end(server: &mut BackgroundServer) -> (Vec<Event>, CloseReason) {
    let mut events = Vec::new();
    loop {
        match server.wait_event(LONG) {
            Some(Event::Disconnected { reason, .. }) => return (events, reason),
            Some(event) => events.push(event),
            None => panic!("it does not end: {events:?}"),
        }
    }
}

#[test]
fn u15_a_kick_does_not_wait_for_a_blocked_peer() {
    let server = patient();
    let mut blocked = Client::connect(server.address(), APP, server.key()).unwrap();
    let mut server = server.in_background().unwrap();
    let mut is_connected = false;
    while !is_connected {
        let events = blocked.wait_tick(NonZeroU8::MAX).unwrap();
        is_connected = events
            .iter()
            .any(|it| matches!(it, Event::Connected { .. }));
    }
    let Some(Event::Connected { session, .. }) = server.wait_event(LONG) else {
        panic!("nobody came");
    };
    // More than its channel queues: some waits on the thread.
    let bytes = [7; 1_000];
    let message = Message::new(RELIABLE, &bytes);
    let sent: Vec<_> = (0..300)
        .map(|_| server.send_tracked(session, &message).unwrap())
        .collect();
    let reason = [b'x'; 1_000];
    server.kick(session, &reason).unwrap();
    let (events, why) = until_the_end(&mut server);
    assert_eq!(why, CloseReason::Local(CloseCode::Kicked));
    let mut reported: Vec<_> = events
        .iter()
        .filter_map(|event| {
            let Event::Settled {
                message, outcome, ..
            } = event
            else {
                return None;
            };
            (*outcome != MessageOutcome::Delivered).then_some(*message)
        })
        .collect();
    reported.sort();
    assert_eq!(reported, sent, "each is told of, and before the end");
    // The player gets the text when he reads.
    let text = loop {
        let events = blocked.wait_tick(NonZeroU8::MAX).unwrap();
        let mut events = events.into_iter();
        if let Some(Event::Disconnected { text, .. }) = events.next_back() {
            break text;
        }
    };
    assert_eq!(*text, reason[..128]);
    assert!(server.shutdown(LONG));
}

#[test]
fn u15_a_disconnected_session_delivers_nothing_more() {
    for (is_kicked, join) in [
        (false, joined as fn() -> _),
        (true, joined),
        (false, joined_while_polled),
        (true, joined_while_polled),
    ] {
        let (mut server, client, session) = join();
        for _ in 0..50 {
            client.send(RELIABLE, b"input").unwrap();
        }
        assert!(matches!(
            server.wait_event(LONG),
            Some(Event::Message { .. })
        ));
        // Longer than the rest needs to arrive.
        assert!(server.report(LONG).is_some());
        if is_kicked {
            server.kick(session, b"").unwrap();
        } else {
            server.disconnect(session).unwrap();
        }
        // The session continues.
        for _ in 0..50 {
            client.send(RELIABLE, b"input").ok();
        }
        let (events, why) = until_the_end(&mut server);
        assert_eq!(why, CloseReason::Local(CloseCode::Kicked));
        assert_eq!(events, []);
    }
}

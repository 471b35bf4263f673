//! One message to all sessions of a server.

use core::time::Duration;

use tickwire::{Client, Event, HZ_128, RELIABLE, SendError, Server};

use crate::exchange::{APP, address};

#[test]
fn a_broadcast_reaches_each_session_and_names_those_that_refuse_it() {
    let mut server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let connect = || Client::connect(server.address(), APP, server.key()).unwrap();
    let mut clients = [connect(), connect()];
    let (mut sessions, mut received) = (Vec::new(), [0, 0]);
    // 20 s at most.
    for _ in 0..2_560 {
        for event in server.wait_tick(HZ_128).unwrap() {
            if let Event::Connected { session, .. } = event {
                sessions.push(session);
                if sessions.len() == 2 {
                    assert_eq!(server.broadcast(RELIABLE, b"begin"), []);
                }
            }
        }
        for (client, received) in clients.iter_mut().zip(&mut received) {
            for event in client.poll() {
                if let Event::Message { bytes, .. } = event {
                    assert_eq!(bytes, b"begin");
                    *received += 1;
                }
            }
        }
        if received == [1, 1] {
            break;
        }
    }
    assert_eq!(received, [1, 1]);
    let too_long = vec![0; 1 << 24];
    let failed = server.broadcast(RELIABLE, &too_long);
    let refused: Vec<_> = failed.into_iter().map(|(session, _)| session).collect();
    assert_eq!(refused.len(), 2);
    assert!(sessions.iter().all(|session| refused.contains(session)));
}

#[test]
fn a_background_broadcast_reaches_each_session_that_was_not_ended() {
    const LONG: Duration = Duration::from_secs(20);
    let server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let clients = [(); 3].map(|()| Client::connect(server.address(), APP, server.key()).unwrap());
    let mut clients = clients.map(|client| client.in_background().unwrap());
    let mut server = server.in_background().unwrap();
    assert_eq!(server.broadcast(RELIABLE, b"nobody is connected"), []);
    let sessions = [(); 3].map(|()| match server.wait_event(LONG) {
        Some(Event::Connected { session, .. }) => session,
        other => panic!("{other:?}"),
    });
    let (kicked, rest) = sessions.split_first().unwrap();
    server.kick(*kicked, b"").unwrap();
    assert_eq!(server.broadcast(RELIABLE, b"begin"), []);
    let mut received = 0;
    for client in &mut clients {
        loop {
            match client.wait_event(LONG) {
                Some(Event::Connected { .. }) => {}
                Some(Event::Disconnected { .. }) => break,
                Some(Event::Message { bytes, .. }) => {
                    assert_eq!(bytes, b"begin");
                    received += 1;
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(received, 2);
    let refused = server.broadcast(RELIABLE, &vec![0; 1 << 24]);
    let is_too_large = |error: &SendError| matches!(error, SendError::TooLarge { .. });
    assert!(refused.iter().all(|(_, error)| is_too_large(error)));
    let refused: Vec<_> = refused.into_iter().map(|(session, _)| session).collect();
    let mut rest = rest.to_vec();
    rest.sort();
    assert_eq!(refused, rest);
}

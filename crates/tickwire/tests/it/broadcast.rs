//! One message to all sessions of a server.

use tickwire::{Client, Event, HZ_128, RELIABLE, Server};

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

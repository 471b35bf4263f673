//! Asynchronous servers and clients.

use core::time::Duration;

use tickwire::{AsyncServer, Client, Event, Message, RELIABLE, SendError, Server, UNRELIABLE};
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::exchange::{APP, address};
use crate::kick::until_connected;

const LONG: Duration = Duration::from_secs(20);

/// Echoes messages until its sessions end.
async fn echo(mut server: AsyncServer) -> usize {
    let mut count = 0;
    while let Some(event) = server.next_event().await {
        match event {
            Event::Message {
                session,
                channel,
                bytes,
            } => {
                count += 1;
                server.send(session, channel, &bytes).await.unwrap();
            }
            Event::Disconnected { .. } => server.shutdown(LONG),
            Event::Connected { .. } | Event::Unreachable { .. } | Event::Settled { .. } | _ => {}
        }
    }
    count
}

#[test]
fn u17_a_task_waits_for_room_to_send() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let client = Client::connect(server.address(), APP, server.key()).unwrap();
    let server = server.in_tasks().unwrap();
    let mut client = client.in_tasks().unwrap();
    let play = async {
        assert!(matches!(
            client.next_event().await,
            Some(Event::Connected { .. })
        ));
        client.send(UNRELIABLE, b"soon").await.unwrap();
        let Some(Event::Message { bytes, .. }) = client.next_event().await else {
            panic!("nothing came back");
        };
        assert_eq!(bytes, b"soon");
        // 6 MB, with room for 4 MiB: sending waits while the answers are not taken.
        for number in 0..100_u32 {
            let mut bytes = vec![0; 60_000];
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            client.send(RELIABLE, &bytes).await.unwrap();
        }
        for number in 0..100_u32 {
            let Some(Event::Message { bytes, .. }) = client.next_event().await else {
                panic!("{number} did not come");
            };
            assert_eq!(bytes[..4], number.to_be_bytes());
        }
        client.disconnect().unwrap();
        while !matches!(client.next_event().await, Some(Event::Disconnected { .. })) {}
        client.shutdown(LONG);
        while client.next_event().await.is_some() {}
        assert_eq!(client.send(RELIABLE, b"late").await, Err(SendError::Closed));
    };
    let both = async {
        let server = echo(server);
        tokio::join!(server, play).0
    };
    let count = runtime.block_on(async { timeout(LONG * 3, both).await });
    assert_eq!(count, Ok(101));
}

#[test]
fn u15_a_task_gets_only_the_end_of_a_kicked_player() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let client = Client::connect(server.address(), APP, server.key()).unwrap();
    let mut server = server.in_tasks().unwrap();
    let mut client = client.in_tasks().unwrap();
    let play = async {
        let Some(Event::Connected { session, .. }) = server.next_event().await else {
            panic!("nobody came");
        };
        for _ in 0..50 {
            client.send(RELIABLE, b"input").await.unwrap();
        }
        assert!(matches!(
            server.next_event().await,
            Some(Event::Message { .. })
        ));
        server.kick(session, b"cheating").unwrap();
        assert!(matches!(
            server.next_event().await,
            Some(Event::Disconnected { .. })
        ));
        let reported = loop {
            match client.next_event().await {
                Some(Event::Disconnected { text, .. }) => break text,
                Some(_) => {}
                None => panic!("he is not told"),
            }
        };
        assert_eq!(*reported, *b"cheating");
    };
    assert_eq!(
        runtime.block_on(async { timeout(LONG * 3, play).await }),
        Ok(())
    );
}

/// Holds for messages queued when the thread ends, too.
#[test]
fn u17_each_tracked_message_is_reported_once_if_the_thread_has_ended() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
    let client = Client::connect(server.address(), APP, server.key()).unwrap();
    let server = server.in_tasks().unwrap();
    let mut client = client.in_tasks().unwrap();
    let play = async {
        assert!(matches!(
            client.next_event().await,
            Some(Event::Connected { .. })
        ));
        assert_eq!(client.report().await.unwrap().sessions, 1);
        let bytes = [7; 1_000];
        let message = Message::new(RELIABLE, &bytes);
        let mut sent = Vec::new();
        for number in 0..600 {
            if number == 300 {
                client.shutdown(Duration::ZERO);
            }
            match client.send_tracked(&message).await {
                Ok(number) => sent.push(number),
                // It has ended by now and returns this error.
                Err(error) => assert_eq!(error, SendError::Closed),
            }
        }
        assert!(sent.len() >= 300);
        let mut reported = Vec::new();
        while let Some(event) = client.next_event().await {
            if let Event::Settled { message, .. } = event {
                reported.push(message);
            }
        }
        reported.sort();
        assert_eq!(reported, sent);
        assert!(client.report().await.is_none());
        drop(server);
    };
    assert_eq!(
        runtime.block_on(async { timeout(LONG * 3, play).await }),
        Ok(())
    );
}

#[test]
fn u15_a_task_gets_no_more_messages_of_a_session_that_it_ended() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    for is_kicked in [false, true] {
        let mut server = Server::bind(address("127.0.0.1:0"), APP).unwrap();
        let client = Client::connect(server.address(), APP, server.key()).unwrap();
        let client = client.in_background().unwrap();
        let session = until_connected(&mut server);
        let mut server = server.in_tasks().unwrap();
        for _ in 0..50 {
            client.send(RELIABLE, b"input").unwrap();
        }
        let play = async {
            assert!(matches!(
                server.next_event().await,
                Some(Event::Message { .. })
            ));
            // Longer than the rest needs to arrive.
            assert!(server.report().await.is_some());
            if is_kicked {
                server.kick(session, b"").unwrap();
            } else {
                server.disconnect(session).unwrap();
            }
            server.next_event().await
        };
        let next = runtime.block_on(async { timeout(LONG, play).await });
        assert!(
            matches!(next, Ok(Some(Event::Disconnected { .. }))),
            "{next:?}"
        );
    }
}

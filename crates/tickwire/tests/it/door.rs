//! Who is made to leave a server, and who is not heard by it.

use core::net::SocketAddr;
use core::num::NonZeroU8;
use core::time::Duration;

use tickwire::udp_proto::{CloseCode, CloseReason, Prefix};
use tickwire::{AppId, Client, Event, Server};

const APP: AppId = AppId(78);

fn server() -> Server {
    let at: SocketAddr = "127.0.0.1:0".parse().unwrap();
    Server::bind(at, APP).unwrap()
}

/// Polls both until the client has seen an event, a thousand times at the most.
fn first_event(server: &mut Server, client: &mut Client) -> Option<Event> {
    (0..1_000).find_map(|_| {
        server.poll();
        client.wait_tick(NonZeroU8::MAX).unwrap().into_iter().next()
    })
}

#[test]
fn u15_a_server_kicks_a_player_and_tells_him_why() {
    let mut server = server();
    let mut client = Client::connect(server.address(), APP, server.key()).unwrap();
    let connected = first_event(&mut server, &mut client);
    assert!(matches!(connected, Some(Event::Connected { .. })));
    // The client is sure first.
    let session = (0..1_000).find_map(|_| {
        client.wait_tick(NonZeroU8::MAX).unwrap();
        server.poll();
        server.sessions().next()
    });
    let session = session.unwrap();
    server.kick(session, b"cheating").unwrap();
    let Some(Event::Disconnected { reason, text, .. }) = first_event(&mut server, &mut client)
    else {
        panic!("it goes on");
    };
    assert_eq!(reason, CloseReason::Peer(CloseCode::Kicked));
    assert_eq!(*text, *b"cheating");
}

#[test]
fn u13_a_server_blocks_and_unblocks_a_prefix_while_it_runs() {
    let mut server = server();
    let loopback: Prefix = "127.0.0.0/8".parse().unwrap();
    server
        .block(loopback, Some(Duration::from_secs(60)))
        .unwrap();
    assert_eq!(server.blocked().collect::<Vec<_>>(), [loopback]);
    let mut client = Client::connect(server.address(), APP, server.key()).unwrap();
    for _ in 0..80 {
        server.poll();
        assert_eq!(client.wait_tick(NonZeroU8::MAX).unwrap(), []);
    }
    assert!(server.unblock(&loopback));
    let event = first_event(&mut server, &mut client);
    assert!(matches!(event, Some(Event::Connected { .. })), "{event:?}");
}

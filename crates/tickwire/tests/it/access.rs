//! Kicked players and blocked addresses.

use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU8;
use core::time::Duration;
use std::net::UdpSocket;

use tickwire::crypto::{Identity, Ring};
use tickwire::udp_proto::{CloseCode, CloseReason, Listen, Prefix};
use tickwire::{AppId, Client, Config, Event, Server};

const APP: AppId = AppId(78);

fn server() -> Server {
    let at: SocketAddr = "127.0.0.1:0".parse().unwrap();
    Server::bind(at, APP).unwrap()
}

/// Polls both until the client has an event, at most a thousand times.
fn first_event(server: &mut Server, client: &mut Client) -> Option<Event> {
    (0..1_000).find_map(|_| {
        server.poll();
        client.wait_tick(NonZeroU8::MAX).unwrap().into_iter().next()
    })
}

#[test]
fn u15_a_kicked_player_gets_the_reason() {
    let mut server = server();
    let mut client = Client::connect(server.address(), APP, server.key()).unwrap();
    let connected = first_event(&mut server, &mut client);
    assert!(matches!(connected, Some(Event::Connected { .. })));
    // The client connects first.
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

/// An exit on loopback adds its header to a client's datagrams. Returns the client address that the
/// server uses: the player's, or the exit's if the exit is not trusted.
fn play_behind_an_exit(trusted: Vec<IpAddr>) -> Option<SocketAddr> {
    let identity = Identity::generate(&mut Ring::new()).unwrap();
    let mut config = Config::for_server();
    config.trusted_exits = trusted;
    let mut server = Server::bind_with("127.0.0.1:0".parse().unwrap(), APP, config, |instance| {
        Listen::new(identity, instance).with_open_mode()
    })
    .unwrap();
    let [outside, inside] = [(); 2].map(|()| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    });
    let exit = outside.local_addr().unwrap();
    let mut client = Client::connect(exit, APP, server.key()).unwrap();
    let header = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0C\xCB\0\x71\x09\x7F\0\0\x01\x0F\xA0\0\x09";
    let mut player = None;
    let mut buffer = [0; 1_500];
    for _ in 0..300 {
        client.wait_tick(NonZeroU8::MAX).unwrap();
        while let Ok((len, from)) = outside.recv_from(&mut buffer) {
            player = Some(from);
            // Before each HELLO until the server answers; packets have no header.
            let is_hello = buffer[0] == 0xC1;
            let wrapped = [if is_hello { &header[..] } else { &[] }, &buffer[..len]].concat();
            inside.send_to(&wrapped, server.address()).unwrap();
        }
        let mut events = server.poll().into_iter();
        let connected = events.find_map(|event| {
            if let Event::Connected { peer, .. } = event {
                Some(peer.address)
            } else {
                None
            }
        });
        if connected.is_some() {
            return connected;
        }
        while let Ok((len, _)) = inside.recv_from(&mut buffer) {
            outside.send_to(&buffer[..len], player.unwrap()).unwrap();
        }
    }
    None
}

#[test]
fn u13_behind_a_trusted_exit_a_server_sees_the_player() {
    let seen = play_behind_an_exit(vec!["127.0.0.1".parse().unwrap()]);
    assert_eq!(seen, Some("203.0.113.9:4000".parse().unwrap()));
}

/// A datagram with a header is no valid HELLO, so its sender cannot connect.
#[test]
fn u13_headers_of_an_untrusted_exit_are_ignored() {
    let seen = play_behind_an_exit(vec!["127.0.0.2".parse().unwrap()]);
    assert_eq!(seen, None);
}

#[test]
fn c4_a_client_connects_to_a_host_name_or_reports_what_it_expects() {
    let mut server = server();
    let name = format!("localhost:{}", server.address().port());
    let mut client = Client::connect(name, APP, server.key()).unwrap();
    let connected = first_event(&mut server, &mut client);
    assert!(
        matches!(connected, Some(Event::Connected { .. })),
        "{connected:?}"
    );
    for wrong in ["127.0.0.1", "a name:x", ""] {
        let error = Client::connect(wrong, APP, server.key()).err().unwrap();
        let text = error.to_string();
        assert!(
            text.starts_with("the server's address cannot be resolved: "),
            "{text}"
        );
        assert!(text.contains("play.example.net:7777"), "{text}");
    }
}

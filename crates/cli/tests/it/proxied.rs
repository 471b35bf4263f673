//! A game server behind an exit that sends PROXY headers.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use daemon::relay::sandbox::{NodeProcess, Sandbox};
use daemon::relay::{FileGame, FileRole, Mode, ProcessEvent, Protocol};
use relay_mesh::signed_config::ProxyRule;

use crate::mesh_node::{PATIENCE, tickwire_relay};

/// Signature, version and command, UDP over IPv4, 12 bytes.
const HEADER: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0C";

fn header(player: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let mut header = HEADER.to_vec();
    for end in [player, server] {
        let SocketAddr::V4(end) = end else {
            panic!("loopback is IPv4")
        };
        header.extend_from_slice(&end.ip().octets());
    }
    header.extend_from_slice(&player.port().to_be_bytes());
    header.extend_from_slice(&server.port().to_be_bytes());
    header
}

/// Starts an entry, and an exit with PROXY headers, and waits for their link.
fn mesh(sandbox: &mut Sandbox, entry: SocketAddr, server: SocketAddr) -> [NodeProcess; 2] {
    let game = FileGame {
        name: "game".to_owned(),
        protocol: Protocol::Udp,
        mode: Mode::Single,
        listen: Vec::new(),
        exits: Vec::new(),
        server: None,
        entries: None,
        proxy_header: Some(ProxyRule::default()),
    };
    let exit = sandbox.id(1).unwrap();
    sandbox.config_mut(0).unwrap().games = vec![FileGame {
        listen: vec![entry],
        exits: vec![exit],
        ..game.clone()
    }];
    sandbox.config_mut(1).unwrap().games = vec![FileGame {
        server: Some(server),
        ..game
    }];
    let nodes = [0, 1].map(|node| sandbox.start(node, tickwire_relay()).unwrap());
    let met = nodes[0].wait_for(PATIENCE, |news| {
        matches!(news, ProcessEvent::LinkUp { .. }).then_some(())
    });
    assert!(met.is_some());
    nodes
}

#[test]
fn u13_an_exit_sends_headers_until_the_server_has_answered() {
    let mut sandbox = Sandbox::new(&[("in", FileRole::Entry), ("out", FileRole::Exit)]).unwrap();
    let server = UdpSocket::bind((sandbox.host(9), 0)).unwrap();
    let address = server.local_addr().unwrap();
    let entry = SocketAddr::new(sandbox.host(1), 4_600);
    let _nodes = mesh(&mut sandbox, entry, address);

    let player = UdpSocket::bind((sandbox.host(10), 0)).unwrap();
    let pause = Duration::from_millis(100);
    player.set_read_timeout(Some(pause)).unwrap();
    let wrapped = [&*header(player.local_addr().unwrap(), address), b"hello"].concat();
    server.set_read_timeout(Some(pause)).unwrap();
    let (mut incoming, mut buffer) = (0, [0; 2_000]);
    // Datagrams before the first route are lost; the server does not answer the first three.
    let mut from = None;
    for _ in 0..300 {
        player.send_to(b"hello", entry).unwrap();
        if let Ok((len, exit)) = server.recv_from(&mut buffer) {
            assert_eq!(buffer[..len], wrapped, "each of them");
            incoming += 1;
            from = Some(exit);
        }
        if incoming >= 3 {
            break;
        }
    }
    let from = from.expect("nothing came");
    let is_welcome = (0..300).any(|_| {
        server.send_to(b"welcome", from).unwrap();
        player.recv(&mut buffer).is_ok_and(|len| len == 7)
    });
    assert!(is_welcome);
    // Datagrams in flight may still have the header; later ones do not.
    let is_bare = (0..50).any(|_| {
        player.send_to(b"again", entry).unwrap();
        server
            .recv_from(&mut buffer)
            .is_ok_and(|(len, _)| buffer[..len] == *b"again")
    });
    assert!(is_bare);
    // A header that a player forges follows the real one.
    let forged = [
        &*header("203.0.113.77:1".parse().unwrap(), address),
        b"hello",
    ]
    .concat();
    let true_header = header(player.local_addr().unwrap(), address);
    server.send_to(b"state", from).unwrap();
    let came = (0..50).find_map(|_| {
        player.send_to(&forged, entry).unwrap();
        let (len, _) = server.recv_from(&mut buffer).ok()?;
        Some(buffer[..len].to_vec()).filter(|bytes| *bytes != b"again")
    });
    assert_eq!(came.unwrap(), [&*true_header, &*forged].concat());
}

//! A mesh, its players and its game servers over IPv6.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use daemon::relay::sandbox::Sandbox;
use daemon::relay::{FileGame, FileRole, Mode, Protocol, Relay};

use crate::net::until;

const ENTRY: usize = 0;
const EXIT: usize = 1;

/// `None` if this host has no IPv6.
fn free_port() -> Option<SocketAddr> {
    let free = UdpSocket::bind("[::1]:0").ok()?;
    Some(free.local_addr().unwrap())
}

fn game(name: &str, protocol: Protocol) -> FileGame {
    FileGame {
        name: name.to_owned(),
        protocol,
        mode: Mode::Shadow,
        listen: Vec::new(),
        exits: Vec::new(),
        server: None,
        entries: None,
        proxy_header: None,
    }
}

#[test]
fn pg8_pg9_players_over_ipv6_reach_servers_over_ipv6() {
    let Some(addresses) = (0..4).map(|_| free_port()).collect::<Option<Vec<_>>>() else {
        eprintln!("not available here: this host does not speak IPv6");
        return;
    };
    let udp_server = UdpSocket::bind("[::1]:0").unwrap();
    let tcp_server = TcpListener::bind("[::1]:0").unwrap();
    let roles = [("lisbon", FileRole::Entry), ("oslo", FileRole::Exit)];
    let mut sandbox = Sandbox::new(&roles).unwrap();
    let exit = sandbox.id(EXIT).unwrap();
    for node in [ENTRY, EXIT] {
        let config = sandbox.config_mut(node).unwrap();
        config.listen = addresses[node];
        for (known, address) in config.bootstrap.iter_mut().zip(&addresses) {
            known.address = *address;
        }
        let games = [
            ("datagrams", Protocol::Udp, udp_server.local_addr()),
            ("bytes", Protocol::Tcp, tcp_server.local_addr()),
        ];
        for ((name, protocol, server), listen) in games.into_iter().zip(&addresses[2..]) {
            let mut game = game(name, protocol);
            if node == ENTRY {
                (game.listen, game.exits) = (vec![*listen], vec![exit]);
            } else {
                game.server = Some(server.unwrap());
            }
            config.games.push(game);
        }
    }
    thread::spawn(move || {
        let mut room = [0; 2_000];
        while let Ok((len, from)) = udp_server.recv_from(&mut room) {
            assert!(from.is_ipv6());
            udp_server.send_to(&room[..len], from).unwrap();
        }
    });
    thread::spawn(move || {
        while let Ok((mut stream, from)) = tcp_server.accept() {
            assert!(from.is_ipv6());
            let mut said = Vec::new();
            stream.read_to_end(&mut said).unwrap();
            stream.write_all(&said).unwrap();
        }
    });
    let directory = sandbox.directory().to_owned();
    let _nodes = [ENTRY, EXIT].map(|node| {
        let setup = sandbox.config(node).unwrap().setup(&directory).unwrap();
        Relay::start(setup, |_| {}).unwrap()
    });
    let player = UdpSocket::bind("[::1]:0").unwrap();
    player
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let mut room = [0; 2_000];
    until("a datagram goes there and back", || {
        player.send_to(b"how long is a river?", addresses[2]).ok()?;
        let (len, from) = player.recv_from(&mut room).ok()?;
        (from == addresses[2] && room[..len] == *b"how long is a river?").then_some(())
    });
    let words: Vec<u8> = (0..300_000_u32).flat_map(u32::to_be_bytes).collect();
    let mut stream = TcpStream::connect(addresses[3]).unwrap();
    let mut hears = stream.try_clone().unwrap();
    let incoming = thread::spawn(move || {
        let mut incoming = Vec::new();
        hears.read_to_end(&mut incoming).map(|_| incoming)
    });
    stream.write_all(&words).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(incoming.join().unwrap().unwrap() == words);
}

//! TCP games of signed documents.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use serde_json::{Value, json};

use super::{ENTRY, Testbed, in_force, text};
use crate::mesh_node::PATIENCE;
use crate::net::until;

fn game(name: &str, port: u16, server: &TcpListener) -> Value {
    json!({
        "name": name,
        "protocol": "tcp",
        "server": server.local_addr().unwrap(),
        "listen_ports": [port],
        "entry": {"type": "all"},
        "exit": {"type": "all"},
    })
}

impl Testbed {
    fn tcp_server(&self) -> TcpListener {
        TcpListener::bind((self.sandbox.host(9), 0)).unwrap()
    }

    /// Connects through the mesh, retrying until it succeeds.
    fn connect(&self, port: u16, server: &TcpListener) -> (TcpStream, TcpStream) {
        server.set_nonblocking(true).unwrap();
        let address = SocketAddr::new(self.sandbox.host(1), port);
        let mut player = None;
        let (server, player) = until("a connection has passed", || {
            player = player.take().or_else(|| TcpStream::connect(address).ok());
            if let Ok((server, _)) = server.accept() {
                return Some((server, player.take()?));
            }
            // If the connection was reset, it never arrives.
            let stream = player.as_mut()?;
            stream.set_nonblocking(true).unwrap();
            let waits = stream
                .read(&mut [0])
                .is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            if !waits {
                player = None;
            }
            None
        });
        for stream in [&player, &server] {
            stream.set_nonblocking(false).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        (player, server)
    }
}

#[test]
fn pg13_adding_and_removing_tcp_games_keeps_other_connections() {
    let testbed = Testbed::new();
    let nodes = testbed.start_all();
    let servers = [(); 3].map(|()| testbed.tcp_server());
    let [stay, go, new] = &servers;
    let old = [game("stay", 4_701, stay), game("go", 4_702, go)];
    text(&testbed.put(ENTRY, &testbed.document(1, &old), "admin"));
    for node in &nodes {
        in_force(node, 1);
    }
    let (mut staying, mut stayed) = testbed.connect(4_701, stay);
    let (mut going, mut gone) = testbed.connect(4_702, go);
    let metrics = text(&testbed.admin(ENTRY, "metrics", &[]));
    assert!(
        metrics.contains("tickwire_relay_tcp_connections 2"),
        "{metrics}"
    );
    assert!(metrics.contains("tickwire_relay_tcp_ports 2"), "{metrics}");
    // Early attempts of a player are counted too.
    let opened = metrics
        .lines()
        .find_map(|line| line.strip_prefix("tickwire_mesh_tunnel_opened_total "));
    assert!(opened.unwrap().parse::<u64>().unwrap() >= 2, "{metrics}");

    let other = [game("stay", 4_701, stay), game("new", 4_703, new)];
    text(&testbed.put(ENTRY, &testbed.document(2, &other), "admin"));
    for node in &nodes {
        in_force(node, 2);
    }
    for end in [&mut going, &mut gone] {
        let ended = end.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(ended, Err(ErrorKind::ConnectionReset));
    }
    let address = SocketAddr::new(testbed.sandbox.host(1), 4_702);
    let refused = TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    testbed.connect(4_703, new);
    staying.write_all(b"as if nothing happened").unwrap();
    let mut got = [0; 22];
    stayed.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"as if nothing happened");
}

#[test]
fn pgx12_ports_closed_by_a_drain_are_reopened() {
    let testbed = Testbed::new();
    let nodes = testbed.start_all();
    let server = testbed.tcp_server();
    let document = testbed.document(1, &[game("stay", 4_701, &server)]);
    text(&testbed.put(ENTRY, &document, "admin"));
    for node in &nodes {
        in_force(node, 1);
    }
    let (mut staying, mut stayed) = testbed.connect(4_701, &server);
    text(&testbed.admin(ENTRY, "drain", &[]));
    let address = SocketAddr::new(testbed.sandbox.host(1), 4_701);
    until("the port is shut", || TcpStream::connect(address).err());
    text(&testbed.admin(ENTRY, "undrain", &[]));
    testbed.connect(4_701, &server);
    staying.write_all(b"all the while").unwrap();
    let mut got = [0; 13];
    stayed.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"all the while");
}

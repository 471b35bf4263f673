//! Probes of game servers, and a node that is entry and exit.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use daemon::relay::sandbox::{NodeProcess, Sandbox};
use daemon::relay::{FileConfig, FileGame, FileProbe, FileRole, Mode, ProcessEvent, Protocol};
use socket2::{Domain, Socket, Type};

use crate::mesh_node::{PATIENCE, tickwire_relay};
use crate::net::until;

/// One node with all roles.
fn lone(change: impl Fn(&mut FileConfig, &Sandbox)) -> (Sandbox, NodeProcess) {
    let mut sandbox = Sandbox::new(&[("lone", FileRole::Exit)]).unwrap();
    let mut config = sandbox.config(0).unwrap().clone();
    config.roles.extend([FileRole::Entry, FileRole::Relay]);
    config.members = None;
    change(&mut config, &sandbox);
    *sandbox.config_mut(0).unwrap() = config;
    let node = sandbox.start(0, tickwire_relay()).unwrap();
    (sandbox, node)
}

fn served(name: &str, protocol: Protocol, server: SocketAddr) -> FileGame {
    FileGame {
        name: name.to_owned(),
        protocol,
        mode: Mode::Shadow,
        listen: Vec::new(),
        exits: Vec::new(),
        server: Some(server),
        entries: None,
        proxy_header: None,
    }
}

/// Waits for probe events of `count` servers.
fn judged(node: &NodeProcess, count: usize) -> Vec<(String, Protocol, &'static str)> {
    let mut judged = Vec::new();
    node.wait_for(PATIENCE, |news| {
        if let ProcessEvent::ServerReached { game, protocol } = news {
            judged.push((game, protocol, "reached"));
        } else if let ProcessEvent::ServerLost { game, protocol } = news {
            judged.push((game, protocol, "lost"));
        } else if let ProcessEvent::ProbeNotPermitted { game, protocol } = news {
            judged.push((game, protocol, "not permitted"));
        }
        (judged.len() == count).then_some(())
    })
    .expect("news of each");
    judged.sort();
    judged
}

/// Echoes datagrams until the test ends.
fn echo(socket: &UdpSocket) {
    let socket = socket.try_clone().unwrap();
    thread::spawn(move || {
        let mut room = [0; 2_000];
        while let Ok((len, from)) = socket.recv_from(&mut room) {
            socket.send_to(&room[..len], from).unwrap();
        }
    });
}

#[test]
fn pg5_servers_are_probed_and_missing_ones_are_reported_lost() {
    let bind = |host| UdpSocket::bind((host, 0)).unwrap();
    let query = || FileProbe::Query {
        hex: "ffffffff676574696e666f".to_owned(),
    };
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let (doom, silent, closed) = (bind("127.0.0.1"), bind("127.0.0.1"), bind("127.0.0.1"));
    let closed_address = closed.local_addr().unwrap();
    drop(closed);
    echo(&doom);
    let (_sandbox, node) = lone(|config, _| {
        let udp = Protocol::Udp;
        config.games = vec![
            served("web", Protocol::Tcp, web.local_addr().unwrap()),
            served("gone", Protocol::Tcp, closed_address),
            served("doom", udp, doom.local_addr().unwrap()),
            served("closed", udp, closed_address),
            served("silent", udp, silent.local_addr().unwrap()),
            served("beside", udp, silent.local_addr().unwrap()),
            served("unmeasured", udp, silent.local_addr().unwrap()),
        ];
        let port = web.local_addr().unwrap().port();
        config.probes = [
            ("doom", query()),
            ("closed", query()),
            ("silent", query()),
            ("beside", FileProbe::Connect { port }),
            ("web", FileProbe::Connect { port }),
            (
                "gone",
                FileProbe::Connect {
                    port: closed_address.port(),
                },
            ),
        ]
        .map(|(game, probe)| (game.to_owned(), probe))
        .into();
    });
    let of = |name: &str, protocol, what| (name.to_owned(), protocol, what);
    let expected = [
        of("beside", Protocol::Udp, "reached"),
        of("closed", Protocol::Udp, "lost"),
        of("doom", Protocol::Udp, "reached"),
        of("gone", Protocol::Tcp, "lost"),
        of("silent", Protocol::Udp, "lost"),
        of("web", Protocol::Tcp, "reached"),
    ];
    assert_eq!(judged(&node, 6), expected);
    let mut room = [0; 100];
    let asked = silent.recv(&mut room).unwrap();
    assert_eq!(&room[..asked], b"\xff\xff\xff\xffgetinfo");
}

/// Whether this process may open ping sockets.
fn may_ping() -> bool {
    let protocol = Some(socket2::Protocol::ICMPV4);
    Socket::new(Domain::IPV4, Type::DGRAM, protocol).is_ok()
}

fn ping(config: &mut FileConfig) {
    let server = "127.0.0.1:9".parse().unwrap();
    config.games = vec![served("doom", Protocol::Udp, server)];
    config.probes = [("doom".to_owned(), FileProbe::Icmp)].into();
}

#[test]
fn pg5_icmp_probes_run_or_are_reported_as_not_permitted() {
    let (_sandbox, node) = lone(|config, _| ping(config));
    let expected = if may_ping() {
        "reached"
    } else {
        "not permitted"
    };
    let doom = ("doom".to_owned(), Protocol::Udp, expected);
    assert_eq!(judged(&node, 1), [doom]);
}

#[cfg(target_os = "linux")]
#[test]
fn pg5_icmp_probes_run_on_a_host_that_permits_them() {
    let Some(network) = crate::hosts::network::Network::new(1) else {
        return;
    };
    let mut permit = network.command(0);
    let line = "echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range";
    let permitted = permit.args(["sh", "-c", line]).output().unwrap();
    if !permitted.status.success() {
        let why = String::from_utf8_lossy(&permitted.stderr);
        eprintln!("not available here: it takes the right to set ping_group_range: {why}");
        return;
    }
    let mut sandbox = Sandbox::new(&[("lone", FileRole::Exit)]).unwrap();
    ping(sandbox.config_mut(0).unwrap());
    let mut command = network.command(0);
    command.arg(env!("CARGO_BIN_EXE_tickwire"));
    command.args(["relay", "--end-with-stdin", "--config"]);
    let node = sandbox.start(0, command).unwrap();
    let doom = ("doom".to_owned(), Protocol::Udp, "reached");
    assert_eq!(judged(&node, 1), [doom]);
}

#[test]
fn pg7_a_single_node_carries_udp_and_tcp() {
    let doom = UdpSocket::bind("127.0.0.1:0").unwrap();
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    echo(&doom);
    let servers = (doom.local_addr().unwrap(), web.local_addr().unwrap());
    thread::spawn(move || {
        for stream in web.incoming().map_while(Result::ok) {
            let mut said = Vec::new();
            (&stream).read_to_end(&mut said).ok();
            (&stream).write_all(&said).ok();
        }
    });
    let (sandbox, node) = lone(|config, sandbox| {
        let here = |game: FileGame, port| FileGame {
            listen: vec![SocketAddr::new(sandbox.host(1), port)],
            exits: sandbox.id(0).into_iter().collect(),
            ..game
        };
        config.games = vec![
            here(served("doom", Protocol::Udp, servers.0), 5_029),
            here(served("web", Protocol::Tcp, servers.1), 4_443),
        ];
    });
    let mut ports = 0;
    node.wait_for(PATIENCE, |news| {
        ports += u8::from(matches!(news, ProcessEvent::Listening { .. }));
        (ports == 2).then_some(())
    })
    .expect("both ports are open");
    let player = UdpSocket::bind("127.0.0.1:0").unwrap();
    let pause = Duration::from_millis(200);
    player.set_read_timeout(Some(pause)).unwrap();
    let doom_port = SocketAddr::new(sandbox.host(1), 5_029);
    until("an answer has come", || {
        player.send_to(b"hello", doom_port).unwrap();
        let mut room = [0; 10];
        let (len, from) = player.recv_from(&mut room).ok()?;
        assert_eq!((&room[..len], from), (&b"hello"[..], doom_port));
        Some(())
    });
    let words: Vec<u8> = (0..500_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    let mut player = TcpStream::connect((sandbox.host(1), 4_443)).unwrap();
    player.set_read_timeout(Some(PATIENCE)).unwrap();
    player.write_all(&words).unwrap();
    player.shutdown(std::net::Shutdown::Write).unwrap();
    let mut got = Vec::new();
    player.read_to_end(&mut got).unwrap();
    assert!(got == words);
}

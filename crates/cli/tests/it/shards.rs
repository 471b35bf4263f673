//! Nodes with several forwarding threads.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use daemon::exit::Failure;
use daemon::relay::sandbox::Sandbox;
use daemon::relay::{FileGame, FileRole, Mode, Protocol, Relay};
use relay_mesh::NewError;

use crate::net::{PATIENCE, until};

const ENTRY: usize = 0;
const RELAY: usize = 1;
const EXIT: usize = 2;

/// An entry, a relay and an exit with these numbers of shards in this process, and a game's port.
fn mesh(shards: [u8; 3], server: SocketAddr) -> (Sandbox, Vec<Relay>, SocketAddr) {
    let roles = [
        ("lisbon", FileRole::Entry),
        ("paris", FileRole::Relay),
        ("oslo", FileRole::Exit),
    ];
    let mut sandbox = Sandbox::new(&roles).unwrap();
    sandbox.link(ENTRY, EXIT, 100);
    let port = UdpSocket::bind((sandbox.host(9), 0)).unwrap();
    let entry = port.local_addr().unwrap();
    let game = FileGame {
        name: "echo".to_owned(),
        protocol: Protocol::Udp,
        mode: Mode::Single,
        listen: Vec::new(),
        exits: Vec::new(),
        server: None,
        entries: None,
        proxy_header: None,
    };
    let exit = sandbox.id(EXIT).unwrap();
    sandbox.config_mut(ENTRY).unwrap().games = vec![FileGame {
        listen: vec![entry],
        exits: vec![exit],
        ..game.clone()
    }];
    sandbox.config_mut(EXIT).unwrap().games = vec![FileGame {
        server: Some(server),
        ..game
    }];
    drop(port);
    let directory = sandbox.directory().to_owned();
    let start = |(node, shards)| {
        let config = sandbox.config_mut(node).unwrap();
        config.shards = shards;
        let setup = config.setup(&directory).unwrap();
        Relay::start(setup, |_| {}).unwrap()
    };
    let nodes = (0..).zip(shards).map(start).collect();
    (sandbox, nodes, entry)
}

#[test]
fn frames_are_forwarded_by_shard_threads_without_strays() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    thread::spawn(move || {
        let mut room = [0; 2_000];
        while let Ok((len, from)) = server.recv_from(&mut room) {
            server.send_to(&room[..len], from).unwrap();
        }
    });
    let (_sandbox, nodes, entry) = mesh([2, 4, 8], address);
    let counts: Vec<usize> = nodes.iter().map(|node| node.shards().len()).collect();
    assert_eq!(counts, [2, 4, 8]);
    let player = UdpSocket::bind("127.0.0.1:0").unwrap();
    player
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let mut room = [0; 2_000];
    let mut play = |number: u32| {
        player.send_to(&number.to_be_bytes(), entry).unwrap();
        player.recv(&mut room).is_ok()
    };
    until("the game goes over the relay", || {
        play(0).then_some(())?;
        let stats = nodes[RELAY].stats(PATIENCE)?;
        (stats.frames.sealed > 20).then_some(())
    });
    let of_shards = || -> Vec<u64> {
        let shards = nodes[RELAY].shards();
        shards.iter().map(|driver| driver.datagrams_in).collect()
    };
    let before = of_shards();
    let answers = (0..500).filter(|number| play(*number)).count();
    assert!(answers > 450, "{answers}");
    // Labels rotate over the shards and each direction has one, so another shard forwards at least
    // one direction.
    let passed = of_shards();
    let passed = passed.iter().zip(before).map(|(now, before)| now - before);
    let beside: u64 = passed.skip(1).sum();
    assert!(beside >= 400, "{beside}");
    for node in &nodes {
        let stats = node.stats(PATIENCE).unwrap();
        // Datagrams that arrived before the socket filter was attached.
        assert!(stats.strays.handed < 10, "{:?}", stats.strays);
        assert_eq!(stats.strays.dropped, 0);
        assert!(stats.driver.datagrams_in >= 400, "of all threads");
    }
}

#[test]
fn a_node_has_from_one_to_eight_shards() {
    let mut sandbox = Sandbox::new(&[("one", FileRole::Relay)]).unwrap();
    let directory = sandbox.directory().to_owned();
    for shards in [0, 9, 255] {
        sandbox.config_mut(0).unwrap().shards = shards;
        let why = sandbox.config(0).unwrap().setup(&directory).unwrap_err();
        let sentence = format!("shards: found {shards}; expected 1 to 8");
        assert!(why.to_string().contains(&sentence), "{why}");
        // The node also checks a configuration made in code.
        sandbox.config_mut(0).unwrap().shards = 1;
        let mut setup = sandbox.config(0).unwrap().setup(&directory).unwrap();
        setup.node.shards = shards;
        let why = Relay::start(setup, |_| {}).unwrap_err();
        assert_eq!(why, Failure::usage(NewError::Shards));
        assert_eq!(why.to_string(), "a node has from 1 to 8 shards");
    }
}

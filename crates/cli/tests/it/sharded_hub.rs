//! Several hubs as processes: a kill of one, and standbys on NATS.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use bytes::Bytes;
use crypto::{Identity, Ring, identity_file};
use daemon::trust;
use hub::join_file::Grant;
use hub::{NodeEvent, Role, Shard};
use wire::ClientId;

use crate::net::{Net, Program, tickwire};
use crate::node::{NodeRequest, Talker};

/// Players of either shard, in turns.
const PLAYERS: u64 = 8;

/// Lists a second hub in the join file of `net`, each with these addresses.
fn add_hub(net: &Net, addresses: [&[SocketAddr]; 2]) {
    let identity = Identity::generate(&mut Ring::new()).unwrap();
    identity_file::write_new(&net.key("hub-b"), &identity).unwrap();
    let mut file = net.join_file();
    let hub = file.grants.iter().position(|grant| grant.role == Role::Hub);
    let first = Grant::new(Role::Hub, file.grants[hub.unwrap()].node);
    let second = Grant::new(Role::Hub, identity.node_id());
    file.grants.retain(|grant| grant.role != Role::Hub);
    for (mut grant, addresses) in [first, second].into_iter().zip(addresses) {
        grant.addresses = addresses.iter().map(SocketAddr::to_string).collect();
        file.grants.push(grant);
    }
    std::fs::remove_file(net.join_path()).unwrap();
    trust::write_new_join_file(&net.join_path(), &file).unwrap();
}

/// A port of this test's own host.
fn port(net: &Net) -> TcpListener {
    TcpListener::bind((net.hub_address.ip(), 0)).unwrap()
}

fn hub_command(net: &Net, key: &str, folder: &str) -> Command {
    let mut command = tickwire();
    command
        .args(["hub", "run", "--identity"])
        .arg(net.key(key))
        .arg("--join-file")
        .arg(net.join_path())
        .arg("--data")
        .arg(net.path(folder));
    command
}

fn hub(net: &Net, key: &str) -> Program {
    let log = net.path(&format!("{key}.log"));
    Program::start(&mut hub_command(net, key, key), &log)
}

fn shard_of(player: ClientId) -> u8 {
    Shard::of_player(player, 2)
}

/// Waits until the node has joined both hubs.
fn wait_joined(node: &Talker) {
    let (mut first, mut second) = (false, false);
    while !(first && second) {
        let event = node.next();
        first |= matches!(event, NodeEvent::Joined { .. });
        second |= matches!(event, NodeEvent::ShardJoined { shard: 1, .. });
    }
}

/// Sends `count` numbered mails to each player.
fn send(node: &Talker, count: u32) {
    for number in 0..count {
        for player in (0..PLAYERS).map(ClientId) {
            let body = Bytes::copy_from_slice(&number.to_be_bytes());
            node.tell(NodeRequest::Mail(player, body));
        }
    }
}

/// Waits until `count` more mails are stored.
fn wait_stored(node: &Talker, count: u32) {
    let mut stored = 0;
    while stored < count {
        if let NodeEvent::MailStored(_) = node.next() {
            stored += 1;
        }
    }
}

#[test]
fn hub_9_one_of_two_hubs_is_killed_and_the_other_goes_on() {
    let mut net = Net::new();
    let second = port(&net);
    add_hub(&net, [&[net.hub_address], &[second.local_addr().unwrap()]]);
    drop(second);
    net.free_hub_port();
    let _first = hub(&net, "hub");
    let second = hub(&net, "hub-b");
    let nodes: Vec<_> = ["server-0", "server-1", "server-2"]
        .map(|name| Talker::start(&net, name))
        .into();
    nodes.iter().for_each(wait_joined);
    let players = || (0..PLAYERS).map(ClientId);
    let of_first = players().filter(|player| shard_of(*player) == 0).count();
    let of_first = u32::try_from(of_first).unwrap();
    assert!((2..7).contains(&of_first), "both hubs have players");

    let count = 40;
    send(&nodes[0], count);
    wait_stored(&nodes[0], 20);
    second.kill();
    while !matches!(nodes[1].next(), NodeEvent::ShardDown { shard: 1 }) {}
    // Those of the first hub do not wait for the second.
    send(&nodes[1], count);
    wait_stored(&nodes[1], of_first * count);
    let to = net.identity("server-2").node_id();
    nodes[1].tell(NodeRequest::Call(to, Bytes::from_static(b"hello")));
    let reply = loop {
        if let NodeEvent::Reply { result, .. } = nodes[1].next() {
            break result;
        }
    };
    assert_eq!(reply.unwrap().0, "hello");

    let _second = hub(&net, "hub-b");
    let others = u32::try_from(PLAYERS).unwrap() - of_first;
    wait_stored(&nodes[1], others * count);
    let waits = u32::try_from(PLAYERS).unwrap() * count - 20;
    wait_stored(&nodes[0], waits);
    receive_two(&nodes[2], count);
}

/// Claims all players, and returns once each has `count` mails of each of two senders, in order.
fn receive_two(node: &Talker, count: u32) {
    for player in (0..PLAYERS).map(ClientId) {
        node.tell(NodeRequest::Claim(player));
    }
    let mut seen = BTreeMap::new();
    let total = usize::try_from(PLAYERS * 2).unwrap();
    let is_done =
        |seen: &BTreeMap<_, u32>| seen.len() == total && seen.values().all(|next| *next == count);
    while !is_done(&seen) {
        if let NodeEvent::Mail {
            claim,
            seq,
            from,
            body,
        } = node.next()
        {
            let number = u32::from_be_bytes(body.as_ref().try_into().unwrap());
            let next = seen.entry((claim.player(), from)).or_default();
            assert_eq!(number, *next, "each once, in the order of its sender");
            *next += 1;
            node.tell(NodeRequest::Acknowledge(claim, seq));
        }
    }
}

#[test]
fn hub_9_a_hub_with_the_folder_of_another_shard_ends_with_its_reason() {
    let net = Net::new();
    let (first, second) = (port(&net), port(&net));
    let addresses = [&first, &second].map(|port| port.local_addr().unwrap());
    add_hub(&net, [&addresses[..1], &addresses[1..]]);
    drop((first, second));
    hub(&net, "hub-b").kill();
    let output = hub_command(&net, "hub", "hub-b").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    let expected = "the log is that of shard 1 of 2 (from 0), but the hubs in the join file make this \
                    hub shard 0 of 2";
    assert!(error.contains(expected), "{error}");
    // A tool reads the log of any shard.
    let check = tickwire()
        .args(["hub", "check", "--data"])
        .arg(net.path("hub-b"))
        .output()
        .unwrap();
    assert!(check.status.success(), "{check:?}");
}

#[cfg(feature = "nats")]
mod nats {
    use std::collections::BTreeMap;
    use std::fs::OpenOptions;
    use std::net::SocketAddr;
    use std::process::{Child, Command, Stdio};

    use hub::NodeEvent;
    use wire::ClientId;

    use super::{PLAYERS, add_hub, port, send, wait_joined, wait_stored};
    use crate::net::{Net, Program, tickwire, until};
    use crate::node::{NodeRequest, Talker};

    /// A process that may print nothing: a standby, or a server.
    struct Background(Child);

    impl Background {
        fn start(command: &mut Command, log: &std::path::Path) -> Self {
            let log = OpenOptions::new().create(true).append(true).open(log);
            let child = command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log.unwrap())
                .spawn();
            Self(child.expect("the program is on PATH"))
        }
    }

    impl Drop for Background {
        fn drop(&mut self) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }

    /// Claims all players, and returns once each has `count` mails, each once and in order.
    fn receive(node: &Talker, count: u32) {
        for player in (0..PLAYERS).map(ClientId) {
            node.tell(NodeRequest::Claim(player));
        }
        let mut seen: BTreeMap<ClientId, u32> = BTreeMap::new();
        while (0..PLAYERS).any(|player| seen.get(&ClientId(player)) != Some(&count)) {
            if let NodeEvent::Mail {
                claim, seq, body, ..
            } = node.next()
            {
                let number = u32::from_be_bytes(body.as_ref().try_into().unwrap());
                let next = seen.entry(claim.player()).or_default();
                assert_eq!(number, *next, "mail to {:?}", claim.player());
                *next += 1;
                node.tell(NodeRequest::Acknowledge(claim, seq));
            }
        }
    }

    /// Starts a server with JetStream; returns its URL once it listens.
    fn start_server(net: &Net) -> (Background, String) {
        let port = port(net);
        let address = port.local_addr().unwrap();
        let store = net.path("nats");
        let config = net.path("nats.conf");
        let text = format!(
            "listen: \"{address}\"\njetstream {{ store_dir: \"{}\" }}\n",
            store.display()
        );
        std::fs::write(&config, text).unwrap();
        drop(port);
        let mut command = Command::new("nats-server");
        let server = Background::start(command.arg("-c").arg(&config), &net.path("nats.log"));
        until("the server listens", || {
            std::net::TcpStream::connect(address).ok()
        });
        (server, format!("nats://{address}"))
    }

    fn hub_command(net: &Net, key: &str, listen: SocketAddr, url: &str) -> Command {
        let mut command = tickwire();
        command
            .args(["hub", "run", "--identity"])
            .arg(net.key(key))
            .arg("--join-file")
            .arg(net.join_path())
            .args(["--nats", url, "--nats-name", "test", "--listen"])
            .arg(listen.to_string());
        // The folder of its statistics.
        let folder = format!("{key}-{}", listen.port());
        command.arg("--data").arg(net.path(&folder));
        command
    }

    #[test]
    #[ignore = "needs nats-server"]
    fn hub_9_a_killed_hub_on_nats_continues_with_all_its_mail() {
        let mut net = Net::new();
        let (_server, url) = start_server(&net);
        net.free_hub_port();
        let mut command = hub_command(&net, "hub", net.hub_address, &url);
        let log = net.path("hub.log");
        let hub = Program::start(&mut command, &log);
        let node = Talker::start(&net, "server-0");
        node.wait_joined();
        send(&node, 20);
        wait_stored(&node, 100);
        hub.kill();
        let hub = Program::start(&mut command, &log);
        wait_stored(&node, 60);
        let receiver = Talker::start(&net, "server-1");
        receive(&receiver, 20);
        let log = std::fs::read_to_string(log).unwrap();
        assert!(log.contains("mail is kept on NATS"), "{log}");
        assert!(log.contains("synced every 2 min by the server"), "{log}");
        hub.signal("-TERM");
        assert_eq!(hub.wait_end(), Some(0));
    }

    #[test]
    #[ignore = "needs nats-server"]
    fn hub_9_standbys_of_two_shards_take_over_without_a_lost_mail() {
        let mut net = Net::new();
        let (_server, url) = start_server(&net);
        let ports: Vec<_> = (0..3).map(|_| port(&net)).collect();
        let mut addresses = vec![net.hub_address];
        addresses.extend(ports.iter().map(|port| port.local_addr().unwrap()));
        add_hub(&net, [&addresses[..2], &addresses[2..]]);
        drop(ports);
        net.free_hub_port();
        let start = |key: &str, at: usize| {
            let mut command = hub_command(&net, key, addresses[at], &url);
            Program::start(&mut command, &net.path(&format!("{key}-{at}.log")))
        };
        let standby = |key: &str, at: usize| {
            let mut command = hub_command(&net, key, addresses[at], &url);
            Background::start(&mut command, &net.path(&format!("{key}-{at}.log")))
        };
        let _first = start("hub", 0);
        let second = start("hub-b", 2);
        let _standbys = (standby("hub", 1), standby("hub-b", 3));
        let node = Talker::start(&net, "server-0");
        wait_joined(&node);
        let count = 100;
        send(&node, count);
        wait_stored(&node, 50);
        second.kill();
        let total = u32::try_from(PLAYERS).unwrap() * count;
        wait_stored(&node, total - 50);
        let receiver = Talker::start(&net, "server-1");
        receive(&receiver, count);
        let is_down = |event: &NodeEvent| matches!(event, NodeEvent::HubDown);
        let soon = std::time::Duration::from_millis(10);
        while let Some(event) = node.soon(soon) {
            assert!(!is_down(&event), "the first hub did not notice");
        }
    }
}

//! Nodes of one network, each with an identity.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeSet;

use crypto::{Identity, Secret32};
use netsim::provider::SimProvider;
use netsim::{Chance, Datagram, Handle, Host, LinkConfig, Loss, Verdict, World};
use udp_proto::{
    CidLen, CloseCode, CloseReason, Config, Credentials, Event, Listen, Mtu, Network, Proof,
    ServerIdentity, SessionId, Target,
};
use wire::{InstanceId, Instant, NodeId, Seed};

use crate::harness::{Log, Peer, RELIABLE, endpoint};

struct Node {
    handle: Handle<Peer>,
    id: NodeId,
    at: SocketAddr,
}

fn node(world: &mut World, number: u8, secret: u8) -> Node {
    let at = SocketAddr::from(([198, 51, 100, number], 9_000));
    let id = identity(number).node_id();
    let handle = world.add(at, |now| peer((number, secret), (Resets::Off, 0), now));
    Node { handle, id, at }
}

/// Whether a node sends resets for lost sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resets {
    On,
    Off,
}

fn identity(number: u8) -> Identity {
    let seed = Seed::from_number(500 + u64::from(number));
    Identity::generate(&mut SimProvider::new(seed.generator(1).seed())).unwrap()
}

/// One process (`life`) of a node.
fn peer((number, secret): (u8, u8), (resets, life): (Resets, u64), now: Instant) -> Peer {
    let mut config = Config::default();
    config.mtu_check = Some(Mtu::MESH);
    if resets == Resets::On {
        config.cid_len = CidLen::Eight;
    }
    let seed = Seed::from_number(500 + u64::from(number) + 1_000 * life);
    let mut machine = endpoint(seed, config, now);
    let network = Network {
        secret: Secret32::new([secret; 32]),
        previous: None,
    };
    let instance = InstanceId(u64::from(number) + 1_000 * life);
    let mut listen = Listen::new(identity(number), instance).with_network(network);
    if resets == Resets::On {
        listen = listen.with_resets(Secret32::new([number; 32]));
    }
    machine.listen(now, listen).unwrap();
    Host::new(machine, Log::default())
}

fn dial(world: &mut World, from: &Node, to: &Node) -> SessionId {
    let target = Target {
        addresses: vec![to.at],
        server: ServerIdentity::Node(to.id),
        credentials: Credentials::Peer,
    };
    world
        .apply(from.handle, |host, now| host.machine.connect(now, target))
        .unwrap()
}

fn log<'a>(world: &'a World, node: &Node) -> &'a Log {
    &world.get(node.handle).unwrap().app
}

fn reasons(log: &Log) -> Vec<CloseReason> {
    log.closes().into_iter().map(|(_, reason)| reason).collect()
}

fn proofs(log: &Log) -> Vec<&Proof> {
    log.events
        .iter()
        .filter_map(|event| match event {
            Event::Connected { peer, .. } => Some(&peer.proof),
            _ => None,
        })
        .collect()
}

/// A node that dialled migrates to another host: its session continues, and the path is validated
/// again.
#[test]
fn twp_t4_a_node_that_migrates_keeps_its_session_and_repeats_the_check() {
    let mut world = World::new(Seed::from_number(11));
    let (a, b) = (node(&mut world, 1, 7), node(&mut world, 2, 7));
    let session = dial(&mut world, &a, &b);
    world.run_for(Duration::from_secs(1));
    let moved = SocketAddr::from(([192, 0, 2, 9], 9_000));
    world.unbind_address(a.at);
    world.bind_address(a.handle, moved);
    world.run_for(Duration::from_secs(4));
    let machine = &world.get(b.handle).unwrap().machine;
    let theirs = machine.sessions().next().unwrap();
    assert_eq!(machine.peer_address(theirs), Some(moved));
    let reported: Vec<_> = log(&world, &b)
        .events
        .iter()
        // The silent old path halves a rate until the new path is found.
        .filter(|event| !matches!(event, Event::Connected { .. } | Event::RateChanged { .. }))
        .collect();
    let checked = Event::MtuChecked {
        session: theirs,
        mtu: Some(Mtu::MESH),
    };
    let changed = Event::AddressChanged {
        session: theirs,
        address: moved,
    };
    assert_eq!(reported, [&checked, &changed, &checked]);
    world.apply(a.handle, |host, now| {
        let machine = &mut host.machine;
        machine.send(now, session, RELIABLE, &[1; 3_000]).unwrap();
    });
    world.run_for(Duration::from_secs(1));
    assert_eq!(log(&world, &b).messages.len(), 1);
}

/// Two nodes with resets, and the session that the first opened 3 s ago.
fn pair_with_resets(world: &mut World) -> [Node; 2] {
    let pair = [1, 2].map(|number| {
        let at = SocketAddr::from(([198, 51, 100, number], 9_000));
        let handle = world.add(at, |now| peer((number, 7), (Resets::On, 0), now));
        let id = identity(number).node_id();
        Node { handle, id, at }
    });
    dial(world, &pair[0], &pair[1]);
    world.run_for(Duration::from_secs(3));
    pair
}

/// The restarted node dials nobody; the other one sends only keepalives.
#[test]
fn twp_t8_a_node_detects_a_restart_of_its_peer_whichever_dialled() {
    for (restarted, has_moved) in [(0, false), (0, true), (1, false)] {
        let mut world = World::new(Seed::from_number(14));
        let nodes = pair_with_resets(&mut world);
        let (dead, other) = (&nodes[restarted], &nodes[1 - restarted]);
        if has_moved {
            world.unbind_address(dead.at);
            world.bind_address(dead.handle, SocketAddr::from(([192, 0, 2, 9], 9_000)));
            world.run_for(Duration::from_secs(5));
        }
        assert!(log(&world, other).closes().is_empty());
        assert!(world.kill(dead.handle));
        world.run_for(Duration::from_millis(1_500));
        let number = u8::try_from(restarted + 1).unwrap();
        world.restart(dead.handle, |now| peer((number, 7), (Resets::On, 1), now));
        world.run_for(Duration::from_secs(1));
        let case = (restarted, has_moved);
        let closes = reasons(log(&world, other));
        assert_eq!(closes, [CloseReason::Reset], "{case:?}");
        let stats = *world.get(dead.handle).unwrap().machine.stats();
        assert_eq!(stats.resets_sent, 1, "{case:?}");
    }
}

/// The same reset from the address of the node that dialled, and from another address.
#[test]
fn a_reset_of_a_node_that_dialled_is_accepted_from_its_address_only() {
    let mut world = World::new(Seed::from_number(15));
    let [dialler, accepter] = pair_with_resets(&mut world);
    assert!(world.kill(dialler.handle));
    world.restart(dialler.handle, |now| peer((1, 7), (Resets::On, 1), now));
    let tap = world.tap(dialler.handle, accepter.handle, 8);
    world.intercept(dialler.handle, accepter.handle, |_, _| Verdict::Drop);
    world.run_for(Duration::from_millis(1_500));
    let reset = world.captured(tap).front().unwrap().datagram.bytes.clone();
    let elsewhere = SocketAddr::from(([198, 51, 100, 1], 9_001));
    for (from, closes) in [
        (elsewhere, &[][..]),
        (dialler.at, &[CloseReason::Reset][..]),
    ] {
        let forged = Datagram::new(from, accepter.at, reset.clone());
        world.inject(Duration::ZERO, forged);
        world.run_for(Duration::from_millis(10));
        assert_eq!(reasons(log(&world, &accepter)), closes, "{from}");
    }
}

/// Datagrams in one direction are lost, so one node times the session out and its dials fail. When
/// the path works again, packets of the old session show it, and the dial is repeated at once.
#[test]
fn twp_a_dial_is_repeated_at_once_when_its_peer_still_sends() {
    let mut worst = Duration::ZERO;
    for seed in 0..20 {
        let mut world = World::new(Seed::from_number(1_600 + seed));
        world.set_default_link(LinkConfig::default().with_delay(Duration::from_millis(10)));
        let (a, b) = (node(&mut world, 1, 7), node(&mut world, 2, 7));
        dial(&mut world, &a, &b);
        world.run_for(Duration::from_secs(2));
        let lossy = LinkConfig::default().with_loss(Loss::Bernoulli(Chance::percent(100)));
        let whole = world.link(a.handle, b.handle);
        world.set_link(a.handle, b.handle, lossy);
        world.run_for(Duration::from_millis(11_100));
        assert_eq!(reasons(log(&world, &b)), [CloseReason::Timeout]);
        dial(&mut world, &b, &a);
        world.run_for(Duration::from_millis(3_000 + 77 * seed));
        world.set_link(a.handle, b.handle, whole);
        let end = world.now();
        while proofs(log(&world, &b)).len() < 2 {
            world.run_for(Duration::from_millis(5));
        }
        worst = worst.max(world.now().saturating_since(end));
    }
    assert!(worst <= Duration::from_millis(700), "{worst:?}");
}

/// Packets with the dialled address as forged source cause at most four HELLOs per second to it.
#[test]
fn twp_forged_packets_draw_four_hellos_a_second_at_most() {
    let mut world = World::new(Seed::from_number(17));
    let (a, b) = (node(&mut world, 1, 7), node(&mut world, 2, 7));
    let to_b = world.tap(a.handle, b.handle, 1_000);
    assert!(world.kill(b.handle));
    dial(&mut world, &a, &b);
    for millis in 0..9_000 {
        let datagram = Datagram::new(b.at, a.at, vec![0x40; 60]);
        world.inject(Duration::from_millis(millis), datagram);
    }
    world.run_for(Duration::from_secs(9));
    let hellos = world.captured(to_b).len();
    assert!((25..=45).contains(&hellos), "{hellos} in 9 s");
}

/// A paused node keeps its session through the stall guard; its peer timed it out and opens
/// another.
#[test]
fn twp_a_session_timed_out_by_its_peer_yields_to_the_new_one() {
    for opener_is_stopped in [true, false] {
        let mut world = World::new(Seed::from_number(12));
        let (a, b) = (node(&mut world, 1, 7), node(&mut world, 2, 7));
        let old = dial(&mut world, &a, &b);
        world.run_for(Duration::from_secs(2));
        let (stopped, other) = if opener_is_stopped {
            (&a, &b)
        } else {
            (&b, &a)
        };
        world.stall(stopped.handle, Duration::from_secs(11));
        world.run_for(Duration::from_millis(10_900));
        let log_of = |world: &World, node: &Node| format!("{:?}", log(world, node).events);
        assert!(log_of(&world, other).contains("Timeout"));
        let new = dial(&mut world, other, stopped);
        world.run_for(Duration::from_secs(1));
        let sessions = |world: &World, node: &Node| -> Vec<SessionId> {
            world.get(node.handle).unwrap().machine.sessions().collect()
        };
        assert_eq!(sessions(&world, other), [new]);
        let left = sessions(&world, stopped);
        assert!(left.len() == 1 && (!opener_is_stopped || left[0] != old));
        world.apply(other.handle, |host, now| {
            host.machine.send(now, new, RELIABLE, b"back").unwrap();
        });
        world.run_for(Duration::from_secs(1));
        assert_eq!(log(&world, stopped).messages[0].2, b"back");
    }
}

#[test]
fn both_sides_prove_their_identity_and_check_1280_bytes() {
    let mut world = World::new(Seed::from_number(1));
    let (a, b) = (node(&mut world, 1, 7), node(&mut world, 2, 7));
    let session = dial(&mut world, &a, &b);
    world.run_for(Duration::from_secs(1));
    assert_eq!(proofs(log(&world, &a)), [&Proof::Node(b.id)]);
    assert_eq!(proofs(log(&world, &b)), [&Proof::Node(a.id)]);
    for node in [&a, &b] {
        let is_checked = log(&world, node)
            .events
            .iter()
            .any(|event| matches!(event, Event::MtuChecked { mtu, .. } if *mtu == Some(Mtu::MESH)));
        assert!(is_checked);
    }
    world.apply(a.handle, |host, now| {
        host.machine.send(now, session, RELIABLE, b"hello").unwrap();
    });
    world.run_for(Duration::from_secs(1));
    assert_eq!(log(&world, &b).messages[0].2, b"hello");
    // Both ends export the same keys for layers above.
    let other = log(&world, &b).sessions()[0];
    let key = |node: &Node, session| {
        let machine = &world.get(node.handle).unwrap().machine;
        let exporter = machine.exporter(session).unwrap();
        exporter.expand(machine.provider(), crypto::Label::new("test"), b"x")
    };
    assert!(key(&a, session) == key(&b, other));
}

#[test]
fn a_path_that_cuts_at_1279_bytes_fails_the_check_and_keeps_the_session() {
    let mut world = World::new(Seed::from_number(2));
    world.set_default_link(LinkConfig::default().with_mtu(1_279));
    let (a, b) = (node(&mut world, 1, 7), node(&mut world, 2, 7));
    dial(&mut world, &a, &b);
    world.run_for(Duration::from_secs(15));
    assert!(
        log(&world, &a)
            .events
            .iter()
            .any(|event| matches!(event, Event::MtuChecked { mtu: None, .. }))
    );
    assert!(log(&world, &a).closes().is_empty());
}

#[test]
fn the_wrong_network_secret_reaches_no_elliptic_curve() {
    let mut world = World::new(Seed::from_number(3));
    let (a, b) = (node(&mut world, 1, 7), node(&mut world, 2, 8));
    dial(&mut world, &a, &b);
    world.run_for(Duration::from_secs(11));
    assert_eq!(log(&world, &a).failures().len(), 1);
    let stats = *world.get(b.handle).unwrap().machine.stats();
    assert!(stats.dropped_psk > 0);
    assert_eq!(stats.accepted, 0);
}

#[test]
fn a_node_under_another_id_is_rejected() {
    let mut world = World::new(Seed::from_number(4));
    let (a, b, c) = (
        node(&mut world, 1, 7),
        node(&mut world, 2, 7),
        node(&mut world, 3, 7),
    );
    let other_node = Node {
        handle: c.handle,
        id: b.id,
        at: c.at,
    };
    dial(&mut world, &a, &other_node);
    world.run_for(Duration::from_secs(11));
    assert!(log(&world, &a).sessions().is_empty());
    assert!(matches!(
        log(&world, &a).failures()[..],
        [udp_proto::ConnectFailure::NotTheServer { .. }]
    ));
}

#[test]
fn a_node_that_is_not_allowed_gets_the_reason() {
    let mut world = World::new(Seed::from_number(5));
    let (a, b) = (node(&mut world, 1, 7), node(&mut world, 2, 7));
    world.apply(b.handle, |host, _| {
        host.machine.set_allowed_nodes(Some(BTreeSet::from([b.id])));
    });
    dial(&mut world, &a, &b);
    world.run_for(Duration::from_secs(2));
    assert!(log(&world, &b).events.is_empty());
    assert_eq!(
        log(&world, &a).closes()[0].1,
        CloseReason::Peer(CloseCode::PeerIdentity)
    );
}

#[test]
fn of_a_double_dial_the_session_of_the_smaller_id_survives_on_both_sides() {
    for number in 0..20 {
        let mut world = World::new(Seed::from_number(number));
        world.set_default_link(
            LinkConfig::default()
                .with_delay(Duration::from_millis(30))
                .with_jitter(netsim::Jitter::Uniform(Duration::from_millis(20))),
        );
        let (a, b) = (node(&mut world, 1, 7), node(&mut world, 2, 7));
        let from_a = dial(&mut world, &a, &b);
        let from_b = dial(&mut world, &b, &a);
        world.run_for(Duration::from_secs(5));
        let (smaller, kept) = if a.id < b.id {
            (&a, from_a)
        } else {
            (&b, from_b)
        };
        let open = |node: &Node| {
            world
                .get(node.handle)
                .unwrap()
                .machine
                .sessions()
                .collect::<Vec<_>>()
        };
        assert_eq!(open(smaller), [kept], "seed {number}");
        assert_eq!(open(&a).len(), 1);
        assert_eq!(open(&b).len(), 1);
    }
}

/// Key updates work between nodes, and the exporter output does not change.
#[test]
fn nodes_change_keys_and_export_the_same_as_before() {
    let mut world = World::new(Seed::from_number(6));
    let (a, b) = (node(&mut world, 1, 7), node(&mut world, 2, 7));
    let ours = dial(&mut world, &a, &b);
    world.run_for(Duration::from_secs(1));
    let theirs = log(&world, &b).sessions()[0];
    let exported = |world: &World, node: &Node, session| {
        let machine = &world.get(node.handle).unwrap().machine;
        let exporter = machine.exporter(session).unwrap();
        let label = crypto::Label::new("tw1 test");
        exporter.expand(machine.provider(), label, &[])
    };
    let before = exported(&world, &a, ours);
    for (node, session) in [(&a, ours), (&b, theirs), (&a, ours)] {
        world.apply(node.handle, |host, now| {
            let machine = &mut host.machine;
            machine.update_keys(now, session).unwrap();
            machine.send(now, session, RELIABLE, b"soon").unwrap();
        });
        world.run_for(Duration::from_secs(3));
    }
    for (node, session) in [(&a, ours), (&b, theirs)] {
        let machine = &world.get(node.handle).unwrap().machine;
        let stats = machine.session_stats(session).unwrap();
        assert_eq!((stats.key_phase_sent, stats.key_phase_received), (3, 3));
        assert_eq!(exported(&world, node, session), before);
    }
    assert_eq!(log(&world, &a).messages.len(), 1);
    assert_eq!(log(&world, &b).messages.len(), 2);
}

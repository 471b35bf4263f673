//! Nodes with several shards.

use std::collections::BTreeSet;

use crypto::Secret32;
use netsim::{Chance, LinkConfig, Loss, for_each_seed, test_site};
use relay_mesh::hop::{NextLabel, ShardId};
use relay_mesh::link_terms::KeyEpoch;
use relay_mesh::message::code;
use relay_mesh::route_request::{Bind, Granted, Refused, RouteReply, RouteRequest};
use relay_mesh::{Config, Forwarder, Mode, NewError, Node, PeerAddr, STRAYS_MAX};
use wire::{Arrival, InstanceId, Machine, NodeId, Seed};

use crate::alloc::allocations;
use crate::harness::{
    ENTRY, EXIT, Mesh, RELAY, START, Shape, identity, link, mesh_address, ms, shape,
};
use crate::member::Harness;
use crate::other_shards::Steering;
use crate::unseen::{GENEROUS, Lens, unseen};

/// Four shards at a relay, two at entry and exit.
const fn sharded(index: usize, config: &mut Config, _: &[NodeId]) {
    config.shards = if index < RELAY { 2 } else { 4 };
}

fn lossy(delay: u64) -> LinkConfig {
    link(delay).with_loss(Loss::Bernoulli(Chance::percent(2)))
}

/// The player plays over one relay, moves to another when the first is killed, and both relays are
/// restarted at the end.
fn play(mesh: &mut Mesh) {
    mesh.run(START + 10_000);
    mesh.kill(RELAY);
    mesh.run(10_000);
    mesh.restart(RELAY, 1);
    mesh.run(20_000);
    mesh.stop_player();
    mesh.run(1_000);
}

/// Number of frames that each shard but the first has forwarded.
fn passed(mesh: &Mesh, index: usize) -> Vec<u64> {
    let forwarders = &mesh.process(index).other_shards.forwarders;
    let passed = forwarders.iter().map(Forwarder::frame_stats);
    passed.map(|stats| stats.sealed).collect()
}

#[test]
fn sim_mesh_shards_forward_their_own_labels_and_reuse_no_nonce() {
    for_each_seed(&test_site!(), 4, |seed| {
        for mode in [Mode::Dup, Mode::Shadow] {
            let shape = Shape {
                mode,
                ..shape(sharded)
            };
            let mut mesh = Mesh::new(seed, &shape);
            let (entry, exit) = (mesh.nodes[ENTRY], mesh.nodes[EXIT]);
            for relay in mesh.nodes[RELAY..].iter().copied() {
                mesh.world.set_links(relay, exit, lossy(20));
            }
            mesh.world.set_links(entry, exit, link(120));
            play(&mut mesh);
            let (missing, sent) = (mesh.player().missing_from(60), mesh.player().answers.len());
            assert!(sent > 2_000, "{sent}");
            let bound = match mode {
                Mode::Dup => sent / 50,
                Mode::Single | Mode::Shadow => sent / 10,
            };
            assert!(missing < bound, "{missing} of {sent}");
            let relays = (RELAY..RELAY + 3).map(|relay| passed(&mesh, relay));
            let by_shard = relays.fold(vec![0; 3], |all: Vec<u64>, of| {
                all.iter().zip(of).map(|(all, of)| all + of).collect()
            });
            assert!(by_shard.iter().all(|passed| *passed > 100), "{by_shard:?}");
            for index in ENTRY..RELAY + 3 {
                assert_eq!(mesh.process(index).other_shards.strays, 0, "{index}");
            }
            assert_eq!(mesh.nonces.reuses(), []);
        }
    });
}

#[test]
fn sim_mesh_shards_forward_anothers_frames_or_hand_them_to_the_node() {
    for_each_seed(&test_site!(), 4, |seed| {
        let mut mesh = Mesh::new(seed, &shape(sharded));
        for index in 0..mesh.nodes.len() {
            let node = mesh.nodes[index];
            mesh.world.apply(node, |process, _| {
                process.other_shards.steering = Steering::Wrong;
            });
        }
        mesh.run(START + 10_000);
        mesh.stop_player();
        mesh.run(1_000);
        assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
        let other_shards = &mesh.process(RELAY).other_shards;
        // The node gets the datagrams that are its own. Forwarders forward each other's.
        assert!(other_shards.strays > 500, "{}", other_shards.strays);
        assert_eq!(other_shards.strays_of_forwarders, 0);
        assert_eq!(mesh.player().missing_from(60), 0);
        assert_eq!(mesh.nonces.reuses(), []);
    });
}

#[test]
fn a_node_forwards_frames_that_no_forwarder_accepts() {
    let mut mesh = Mesh::new(Seed::from_number(1), &shape(sharded));
    for node in mesh.nodes.clone() {
        mesh.world
            .apply(node, |process, _| process.other_shards.forwarders.clear());
    }
    mesh.run(START + 10_000);
    mesh.stop_player();
    mesh.run(1_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
    assert_eq!(mesh.player().missing_from(60), 0);
}

#[test]
fn a_node_has_from_one_to_eight_shards() {
    for (shards, is_good) in [(0, false), (1, true), (8, true), (9, false)] {
        let mut config = Config::new(Secret32::new([1; 32]), InstanceId(1));
        config.shards = shards;
        let seed = Seed::from_number(1);
        let mesh = Mesh::new(seed, &Shape::default());
        let provider = netsim::provider::SimProvider::new(seed);
        let node = Node::new(config, identity(seed, 0), provider, mesh.now());
        match node {
            Ok(node) => {
                assert!(is_good, "{shards}");
                let provider = || netsim::provider::SimProvider::new(seed);
                let other_shards =
                    (0..=9).filter(|place| node.forwarder(*place, provider()).is_some());
                assert_eq!(other_shards.count(), usize::from(shards) - 1);
            }
            Err(why) => {
                assert_eq!(why, NewError::Shards);
                assert!(!is_good, "{shards}");
            }
        }
    }
}

#[test]
fn mesh_a1_a_flood_at_the_socket_of_a_shard_is_bounded_and_counted() {
    let mut mesh = Mesh::new(Seed::from_number(1), &shape(sharded));
    let relay = mesh.nodes[RELAY];
    mesh.run(START);
    mesh.world.apply(relay, |process, now| {
        let forwarder = &mut process.other_shards.forwarders[0];
        let arrival = Arrival::from(PeerAddr::mesh(mesh_address(ENTRY)));
        let count = STRAYS_MAX + 500;
        for number in 0..count {
            let first = [0x00, 0x40, 0x81, 0x82][number % 4];
            forwarder.handle_datagram(now, arrival, &mut [first, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        assert_eq!(forwarder.strays_dropped(), 500);
        let strays = core::iter::from_fn(|| forwarder.poll_event());
        assert_eq!(strays.count(), STRAYS_MAX);
        // Datagrams that claim this shard: truncated, of an unknown label, and empty trunks.
        let before = forwarder.frame_stats();
        for datagram in [
            &mut [0x81, 0, 0, 0, 0x20][..],
            &mut [&[0x81, 0x50, 0, 0, 0x3F, 0xFF, 0, 0, 0][..], &[7; 60]].concat(),
            &mut [0x82, 0, 9, 0x81, 0, 0, 0, 0x20],
            &mut [&[0x82, 0, 60, 0x81, 0, 0, 0, 0x20][..], &[0; 1_300]].concat(),
        ] {
            assert_eq!(ShardId::of_datagram(datagram).place(), 1);
            forwarder.handle_datagram(now, arrival, datagram);
        }
        let after = forwarder.frame_stats();
        let counted = [
            after.truncated - before.truncated,
            after.unknown_label - before.unknown_label,
            after.bad_trunk - before.bad_trunk,
        ];
        assert_eq!(counted, [1, 1, 2]);
        assert!(forwarder.poll_event().is_none());
    });
}

/// The maximum number of shards, each with an eighth of an owner's rate.
fn one_each(index: usize, config: &mut Config, ids: &[NodeId]) {
    GENEROUS(index, config, ids);
    config.owner_rate = u32::MAX;
    config.shards = 8;
}

#[test]
fn mesh_f7_a_forwarder_allocates_nothing_for_a_frame() {
    let (mut mesh, mut datagrams) = unseen(one_each, 245, Lens::One);
    // Probes have their own label.
    let shard = ShardId::of_datagram(&datagrams[0]);
    datagrams.retain(|datagram| ShardId::of_datagram(datagram) == shard);
    mesh.nonces.close();
    let relay = mesh.nodes[RELAY];
    mesh.world.apply(relay, |process, now| {
        let Some(place) = usize::from(shard.place()).checked_sub(1) else {
            panic!("the flow's label is the node's own, whose frames no forwarder passes on");
        };
        let forwarder = &mut process.other_shards.forwarders[place];
        let mut out = Vec::with_capacity(1 << 17);
        let mut pass = |datagrams: &[Vec<u8>]| {
            let mut bytes = datagrams.to_vec();
            let before = allocations();
            for datagrams in bytes.chunks_mut(64) {
                for datagram in datagrams {
                    let arrival = Arrival::from(PeerAddr::mesh(mesh_address(ENTRY)));
                    forwarder.handle_datagram(now, arrival, datagram);
                }
                out.clear();
                while forwarder.poll_transmit(now, &mut out).is_some() {
                    out.clear();
                }
            }
            allocations() - before
        };
        let (warm, rest) = datagrams.split_at(datagrams.len() / 100);
        pass(warm);
        assert_eq!(pass(rest), 0);
        let stats = forwarder.frame_stats();
        assert!(stats.sealed > 90_000, "{stats:?}");
        assert!(forwarder.poll_event().is_none());
    });
}

#[test]
fn mesh_a1_an_impossible_key_update_notice_is_counted_and_ignored() {
    let mut harness = Harness::with(42, &shape(sharded));
    let malformed = |harness: &Harness| harness.mesh.process(RELAY).node.stats().messages_malformed;
    let mut transmit = |to, epoch| {
        let before = malformed(&harness);
        let mut message = Vec::new();
        let (from, to) = (ShardId::FIRST, ShardId::new(to).unwrap());
        KeyEpoch { from, to, epoch }.encode(&mut message);
        harness.transmit(&message);
        harness.mesh.run(200);
        malformed(&harness) - before
    };
    assert_eq!(transmit(4, 1), 1, "it has four shards");
    for to in 0..4 {
        assert_eq!(transmit(to, u32::MAX), 1);
        assert_eq!(transmit(to, 65), 1);
        assert_eq!(transmit(to, 64), 0, "of its own link, and so of no other");
        assert_eq!(transmit(to, 65), 1, "one a second from then on");
        assert_eq!(transmit(to, 3), 0);
    }
    harness.transmit(&[code::KEY_EPOCH, 0, 8, 0, 0, 0, 1]);
    harness.mesh.run(3_000);
    let now = harness.mesh.now();
    let from = now.saturating_sub(ms(3_000));
    assert!(harness.mesh.player().gap(from, now) < ms(50));
    assert_eq!(harness.mesh.process(RELAY).node.frame_stats().wrong_tag, 0);
}

/// Each shard keeps its own record of the packet numbers used for a label, so only one may bind it.
#[test]
fn mesh_a1_a_label_is_bound_by_one_shard_of_the_node_before_it_alone() {
    let mut harness = Harness::with(41, &shape(sharded));
    let at_relay = harness.session();
    let reserve = |previous, count| RouteRequest::ReserveTransit { previous, count };
    let (relay, exit, own) = (
        harness.mesh.ids[RELAY],
        harness.mesh.ids[RELAY + 1],
        harness.own,
    );
    harness.turn_to(RELAY + 1);
    let answer = harness.ask(&reserve(relay, 1));
    let RouteReply::Done(next) = answer else {
        panic!("a member may pass: {answer:?}");
    };
    harness.speak_over(at_relay);
    let RouteReply::Done(granted) = harness.ask(&reserve(own, 4)) else {
        panic!("a member may pass");
    };
    let shards: BTreeSet<_> = granted.iter().map(|it| it.label.shard()).collect();
    assert_eq!(shards.len(), 4);
    let mut bind = |label| {
        let Granted {
            label: name,
            form,
            grant,
        } = next[0].clone();
        let next = NextLabel { name, form };
        harness.ask(&RouteRequest::Bind {
            next: exit,
            binds: vec![Bind { label, next, grant }],
        })
    };
    let taken = RouteReply::Refused(Refused::LabelTaken);
    let answers: Vec<_> = granted.iter().map(|it| bind(it.label)).collect();
    assert_eq!(answers[1..], [taken.clone(), taken.clone(), taken]);
    assert!(matches!(answers[0], RouteReply::Done(_)), "{answers:?}");
}

/// If the second byte of the header names another shard, the frame does not decrypt with any key.
#[test]
fn mesh_a1_a_frame_for_another_shard_of_its_sender_does_not_decrypt() {
    let (mut mesh, datagrams) = unseen(one_each, 1, Lens::One);
    let relay = mesh.nodes[RELAY];
    mesh.world.apply(relay, |process, now| {
        let frame = &datagrams[0];
        let before = process.node.frame_stats();
        let arrival = Arrival::from(PeerAddr::mesh(mesh_address(ENTRY)));
        for from in 1..=7_u8 {
            let mut forged = frame.clone();
            forged[1] ^= from << 4;
            process.node.handle_datagram(now, arrival, &mut forged);
        }
        let after = process.node.frame_stats();
        assert_eq!(after.wrong_tag - before.wrong_tag, 7);
        process
            .node
            .handle_datagram(now, arrival, &mut frame.clone());
        assert_eq!(process.node.frame_stats().sealed, after.sealed + 1);
    });
}

//! Every limit of a node's configuration, reached by a hostile peer.

use std::collections::{BTreeMap, BTreeSet};

use core::net::SocketAddr;

use crypto::{Identity, Provider, Secret32};
use netsim::TapId;
use netsim::provider::SimProvider;
use relay_mesh::cost::Cost;
use relay_mesh::link_state::{Message, Network, NodeRecord, Profile, Roles};
use relay_mesh::route_request::{Refused, RouteReply, RouteRequest};
use relay_mesh::{Event, Mode, TurnedAway};
use wire::{NodeId, Seed};

use crate::harness::{
    Adjust, ENTRY, EXIT, Mesh, RELAY, START, Shape, identity, link, mesh_address, ms, shape,
};
use crate::member::{Harness, join};

#[test]
fn links_max_bounds_neighbours_in_both_dial_directions() {
    // The relay has four neighbours.
    let mut mesh = Mesh::new(
        Seed::from_number(1),
        &shape(|index, config, _| {
            if index == RELAY {
                config.links_max = 6;
            }
        }),
    );
    mesh.run(START);
    let before = mesh.process(RELAY).node.memory();
    for number in 0..30 {
        join(&mut mesh, 100 + number);
        mesh.run(300);
        assert!(mesh.process(RELAY).node.links().count() <= 6);
    }
    mesh.run(2_000);
    let relay = &mesh.process(RELAY).node;
    assert_eq!(relay.links().count(), 6, "two of thirty got in");
    assert!(relay.stats().links_refused >= 28, "{:?}", relay.stats());
    // Two neighbours, plus sessions that are still closing.
    assert!(relay.memory() < before + 28 * 32_768, "{}", relay.memory());
    let now = mesh.now();
    assert!(mesh.player().gap(now.saturating_sub(ms(3_000)), now) < ms(50));

    // A node that may have two neighbours dials two of its bootstrap list.
    let mut mesh = Mesh::new(
        Seed::from_number(2),
        &shape(|index, config, ids| {
            let all = ids.iter().enumerate();
            config.bootstrap.nodes = all.map(|(index, id)| (*id, mesh_address(index))).collect();
            config.links_max = if index == ENTRY { 2 } else { 64 };
        }),
    );
    let tap = mesh.world.tap_all(100_000);
    // No other node's dial has arrived yet.
    mesh.run(10);
    assert_eq!(dialled(&mesh, tap, ENTRY).len(), 2);
}

/// The addresses that a node sent anything to.
fn dialled(mesh: &Mesh, tap: TapId, index: usize) -> BTreeSet<SocketAddr> {
    mesh.world
        .captured(tap)
        .iter()
        .map(|captured| &captured.datagram)
        .filter(|datagram| datagram.source == mesh_address(index))
        .map(|datagram| datagram.destination)
        .collect()
}

#[test]
fn peers_max_bounds_peers_known_from_invented_records() {
    let mut harness = Harness::with(
        3,
        &shape(|index, config, _| {
            // Its four neighbours, the member, and one more.
            config.peers_max = if index == RELAY { 6 } else { 5 };
        }),
    );
    let tap = harness.mesh.world.tap_all(200_000);
    for number in 0..100 {
        let victim = SocketAddr::from(([198, 18, 7, number], 9_000));
        harness.mesh.world.bind_address(harness.mesh.player, victim);
    }
    let before = harness.mesh.process(RELAY).node.memory();
    let mut provider = SimProvider::new(Seed::from_number(4));
    for number in 0..100 {
        let address = SocketAddr::from(([198, 18, 7, number], 9_000));
        let message = invented(&mut provider, vec![address]);
        harness.transmit(&message);
        harness.mesh.run(50);
    }
    harness.mesh.run(5_000);
    let victims = dialled(&harness.mesh, tap, RELAY);
    let victims = victims
        .iter()
        .filter(|to| to.to_string().starts_with("198.18.7."))
        .count();
    assert_eq!(victims, 1, "of a hundred invented nodes");
    assert!(harness.mesh.process(RELAY).node.memory() < before + 65_536);
    // A real member that dials later finds no free slot.
    let refused = harness.mesh.process(RELAY).node.stats().links_refused;
    let late = join(&mut harness.mesh, 97);
    harness.mesh.run(2_000);
    assert!(harness.mesh.world[late].app.session.is_some());
    let relay = &harness.mesh.process(RELAY).node;
    assert!(relay.stats().links_refused > refused);
    assert_eq!(relay.links().count(), 5);
}

#[test]
fn peers_max_slots_of_ended_nodes_are_reused() {
    let mut harness = Harness::with(
        4,
        &shape(|index, config, _| {
            config.peers_max = if index == RELAY { 6 } else { 5 };
        }),
    );
    harness.mesh.stop_player();
    let mut provider = SimProvider::new(Seed::from_number(5));
    let message = invented(&mut provider, vec!["198.18.7.1:9000".parse().unwrap()]);
    harness.transmit(&message);
    harness.mesh.run(2_000);
    let links = |harness: &Harness| harness.mesh.process(RELAY).node.links().count();
    let before = links(&harness);
    join(&mut harness.mesh, 97);
    harness.mesh.run(3_000);
    assert_eq!(links(&harness), before, "all names are taken");
    // Its record expires, and every node forgets it 10 minutes later.
    harness.mesh.run(17 * 60_000);
    assert!(harness.mesh.process(RELAY).node.stats().nodes_forgotten >= 1);
    join(&mut harness.mesh, 96);
    harness.mesh.run(3_000);
    assert_eq!(links(&harness), before + 1, "one has come free");
}

/// A record of a node that does not exist.
fn invented(provider: &mut SimProvider, addresses: Vec<SocketAddr>) -> Vec<u8> {
    let invented = Identity::generate(provider).unwrap();
    record_of(provider, &invented, addresses)
}

pub(crate) fn record_of(
    provider: &mut SimProvider,
    identity: &Identity,
    addresses: Vec<SocketAddr>,
) -> Vec<u8> {
    let hash = provider.hmac_sha256(&[7; 32], &[b"tw1 mesh network"]);
    let network = Network(*hash.first_chunk().unwrap());
    let key = provider.signing_key(identity).unwrap();
    let record = NodeRecord {
        key: *identity.public_key(),
        version: 1,
        profile: Profile {
            roles: Roles::RELAY,
            name: String::new(),
            addresses,
        },
        neighbours: Vec::new(),
    };
    let record = record.sign(provider, &key, network).unwrap();
    let mut message = Vec::new();
    Message::NodeRecord(&record).encode(&mut message);
    message
}

#[test]
fn a_node_that_closes_sessions_is_dialled_with_growing_backoff() {
    let mut harness = Harness::with(18, &Shape::default());
    harness.mesh.stop_player();
    let mut provider = SimProvider::new(Seed::from_number(6));
    let own = identity(harness.mesh.seed, 98);
    harness.transmit(&record_of(&mut provider, &own, vec![mesh_address(98)]));
    harness.close_all();
    harness.mesh.run(60_000);
    // For each of five nodes: after 0.5, 1, 2, 4, 8 s, and then every 16 s.
    assert!(
        (20..=50).contains(&harness.closed()),
        "{}",
        harness.closed()
    );
}

#[test]
fn mesh_a1_records_cause_no_endless_dials_of_invented_nodes() {
    let mut harness = Harness::with(17, &Shape::default());
    let tap = harness.mesh.world.tap_all(200_000);
    let mut provider = SimProvider::new(Seed::from_number(4));
    let nowhere = [
        "0.0.0.0:9000",
        "224.0.0.1:9000",
        "255.255.255.255:9000",
        "127.0.0.1:9000",
        "198.18.7.1:0",
        "[::]:9000",
        "[ff02::1]:9000",
    ];
    for address in nowhere {
        let message = invented(&mut provider, vec![address.parse().unwrap()]);
        harness.transmit(&message);
        harness.mesh.run(50);
    }
    let victim: SocketAddr = "198.18.7.2:9000".parse().unwrap();
    harness.mesh.world.bind_address(harness.mesh.player, victim);
    let message = invented(&mut provider, vec![victim]);
    harness.transmit(&message);
    harness.mesh.run(10_000);
    let tried = dialled(&harness.mesh, tap, RELAY);
    assert!(tried.contains(&victim), "it may be a node");
    assert!(
        nowhere
            .iter()
            .all(|at| !tried.contains(&at.parse().unwrap()))
    );
    harness.mesh.run(110_000);
    let tap = harness.mesh.world.tap_all(200_000);
    harness.mesh.run(30_000);
    for index in 0..5 {
        let tried = dialled(&harness.mesh, tap, index);
        assert!(!tried.contains(&victim), "it was none");
    }
}

#[test]
fn labels_per_peer_max_bounds_the_labels_of_one_member() {
    let mut harness = Harness::with(5, &shape(|_, config, _| config.labels_per_peer_max = 100));
    let own = harness.own;
    let ask = |harness: &mut Harness, count| {
        let reserve = RouteRequest::ReserveTransit {
            previous: own,
            count,
        };
        matches!(harness.ask(&reserve), RouteReply::Done(granted) if granted.len() == usize::from(count))
    };
    assert!(ask(&mut harness, 64));
    assert!(!ask(&mut harness, 64), "128");
    assert!(ask(&mut harness, 36), "100, and none of the request before");
    assert!(!ask(&mut harness, 1), "101");
    assert_eq!(harness.stats().full, 2);
    // Others have their own limit.
    let now = harness.mesh.now();
    assert!(
        harness
            .mesh
            .player()
            .gap(now.saturating_sub(ms(1_000)), now)
            < ms(50)
    );
}

#[test]
fn request_rate_bounds_the_labels_that_a_member_may_ask_for() {
    let mut harness = Harness::with(6, &shape(|_, config, _| config.request_rate = 64));
    let reserve = RouteRequest::ReserveTransit {
        previous: harness.own,
        count: 64,
    };
    // A burst of four times the rate. Each request takes 400 ms here, which earns 25 labels.
    let replies: Vec<RouteReply> = (0..12).map(|_| harness.ask(&reserve)).collect();
    let refused = RouteReply::Refused(Refused::TooMany);
    let granted = replies.iter().filter(|reply| **reply != refused).count();
    // A burst of 256, plus 4.4 s at 64 per second.
    assert!((7..=8).contains(&granted), "{granted}");
    assert!(harness.stats().too_many >= 4);
}

#[test]
fn label_rate_bounds_what_a_flow_carries() {
    let bytes = |adjust: Adjust| {
        let shape = Shape {
            mode: Mode::Single,
            rate: 300,
            len: 1_000,
            ..shape(adjust)
        };
        let mut mesh = Mesh::new(Seed::from_number(7), &shape);
        mesh.run(START + 10_000);
        let over = [ENTRY, EXIT, RELAY, RELAY + 1, RELAY + 2]
            .map(|index| mesh.process(index).node.frame_stats().over_rate);
        let delivered = mesh.process(EXIT).node.stats().delivered;
        (delivered * 1_000, over.iter().sum::<u64>())
    };
    let (free, over) = bytes(|_, _, _| {});
    assert!(free > 2_000_000 && over == 0, "{free} {over}");
    let (bound, over) = bytes(|_, config, _| config.label_rate = 20_000);
    // Ten seconds, plus a burst of a quarter of a second for each path that the flow tries.
    assert!((50_000..300_000).contains(&bound), "{bound}");
    assert!(over > 1_000, "{over}");
}

/// The larger label rate for TCP does not apply to UDP: each end limits what its own side sends.
#[test]
fn mesh_a5_flow_rate_bounds_what_a_player_sends_and_gets() {
    fn at_entry(index: usize, config: &mut relay_mesh::Config, _: &[NodeId]) {
        if index == ENTRY {
            config.flow_rate = 20_000;
        }
    }
    fn at_exit(index: usize, config: &mut relay_mesh::Config, _: &[NodeId]) {
        if index == EXIT {
            config.flow_rate = 20_000;
        }
    }
    for (adjust, end, other) in [(at_entry as Adjust, ENTRY, EXIT), (at_exit, EXIT, ENTRY)] {
        let shape = Shape {
            mode: Mode::Single,
            rate: 300,
            len: 1_000,
            ..shape(adjust)
        };
        let mut mesh = Mesh::new(Seed::from_number(7), &shape);
        mesh.run(START + 10_000);
        let over = [end, other].map(|end| mesh.process(end).node.stats().over_flow_rate);
        assert!(over[0] > 1_000 && over[1] == 0, "{over:?}");
        let delivered = mesh.process(other).node.stats().delivered * 1_000;
        // Ten seconds, plus a burst of a quarter of a second.
        assert!((50_000..300_000).contains(&delivered), "{delivered}");
        let is_told = |event: &Event| {
            let reason = TurnedAway::FlowRate;
            matches!(event, Event::TurnedAway { reason: it, .. } if *it == reason)
        };
        let events = &mesh.process(end).events;
        assert!(events.iter().any(|(_, event)| is_told(event)));
    }
}

#[test]
fn owner_rate_bounds_what_all_flows_of_a_neighbour_carry() {
    let shape = Shape {
        mode: Mode::Single,
        rate: 300,
        len: 1_000,
        ..shape(|_, config, _| config.owner_rate = 20_000)
    };
    let mut mesh = Mesh::new(Seed::from_number(16), &shape);
    mesh.run(START + 10_000);
    let relays = [RELAY, RELAY + 1, RELAY + 2].map(|index| mesh.process(index));
    let over = relays.map(|relay| relay.node.frame_stats().over_owner_rate);
    assert!(over.iter().sum::<u64>() > 1_000, "{over:?}");
    // Ten seconds, plus a quarter of a second for each path that the flow tries.
    let delivered = mesh.process(EXIT).node.stats().delivered * 1_000;
    assert!((50_000..300_000).contains(&delivered), "{delivered}");
}

#[test]
fn members_are_admitted_by_name_and_limited_to_their_roles() {
    /// Lists all nodes but the last relay, and the member with the relay role only.
    fn listed(_: usize, config: &mut relay_mesh::Config, ids: &[NodeId]) {
        let own = identity(Seed::from_number(12), 98).node_id();
        let known = ids[..ids.len() - 1].iter().map(|id| (*id, Roles::ALL));
        let members: BTreeMap<NodeId, Roles> = known.chain([(own, Roles::RELAY)]).collect();
        config.members = Some(members);
    }
    let mut harness = Harness::with(12, &shape(listed));
    let outsider = harness.mesh.ids[RELAY + 2];
    for index in [ENTRY, EXIT, RELAY] {
        let mut links = harness.mesh.process(index).node.links();
        assert!(links.all(|link| link.node != outsider), "{index}");
    }
    assert_eq!(harness.mesh.process(RELAY + 2).node.links().count(), 0);
    assert!(
        !harness.mesh.player().answers.is_empty(),
        "those listed carry"
    );

    let reserve = RouteRequest::ReserveTransit {
        previous: harness.own,
        count: 1,
    };
    assert_eq!(harness.ask(&reserve), RouteReply::Refused(Refused::Policy));
    assert_eq!(harness.stats().policy, 1);
    let mut harness = Harness::with(13, &Shape::default());
    let reserve = RouteRequest::ReserveTransit {
        previous: harness.own,
        count: 1,
    };
    assert!(
        matches!(harness.ask(&reserve), RouteReply::Done(_)),
        "all may"
    );
}

#[test]
fn members_may_use_a_relay_as_its_roles_allow() {
    /// The first relay has no relay role, whatever its own profile claims. The member is an entry.
    fn listed(_: usize, config: &mut relay_mesh::Config, ids: &[NodeId]) {
        let own = identity(Seed::from_number(14), 98).node_id();
        let known = ids.iter().map(|id| (*id, Roles::ALL));
        let mut members: BTreeMap<NodeId, Roles> = known.chain([(own, Roles::ENTRY)]).collect();
        members.insert(ids[RELAY], Roles::ENTRY | Roles::EXIT);
        config.members = Some(members);
    }
    let reserve = |harness: &Harness| RouteRequest::ReserveTransit {
        previous: harness.own,
        count: 1,
    };
    let mut harness = Harness::with(14, &shape(listed));
    let asked = reserve(&harness);
    assert_eq!(harness.ask(&asked), RouteReply::Refused(Refused::Policy));
    // Another relay grants the same request.
    let mut harness = Harness::at(14, &shape(listed), RELAY + 1);
    let asked = reserve(&harness);
    assert!(matches!(harness.ask(&asked), RouteReply::Done(_)));
}

#[test]
fn previous_secret_lets_a_mesh_change_over_node_by_node() {
    // Entry and exit have switched secrets, the relays have not.
    let halfway: Adjust = |index, config, _| {
        let (old, new) = (Secret32::new([7; 32]), Secret32::new([8; 32]));
        let (now, other) = if index < RELAY {
            (new, old)
        } else {
            (old, new)
        };
        config.secret = now;
        config.previous_secret = Some(other);
    };
    let mut mesh = Mesh::new(Seed::from_number(14), &shape(halfway));
    mesh.run(START + 4_000);
    for index in 0..5 {
        assert_eq!(mesh.process(index).node.links().count(), 4, "{index}");
    }
    assert_eq!(
        mesh.route(),
        Some(mesh.path(&[RELAY])),
        "over a relay that has not swapped"
    );
    assert!(
        mesh.player()
            .round_trip(mesh.now().saturating_sub(ms(2_000)), mesh.now())
            < ms(80)
    );

    // Without the second secret the two halves do not know each other.
    let apart: Adjust = |index, config, _| {
        config.secret = Secret32::new(if index < RELAY { [8; 32] } else { [7; 32] });
    };
    let mut mesh = Mesh::new(Seed::from_number(14), &shape(apart));
    mesh.run(START + 4_000);
    assert_eq!(mesh.process(ENTRY).node.links().count(), 1);
    assert_eq!(mesh.process(RELAY).node.links().count(), 2);
}

#[test]
fn choice_of_the_configuration_is_the_flows_own() {
    let mut moves = [0, 0];
    let adjusts: [Adjust; 2] = [
        |_, _, _| {},
        |_, config, _| {
            config.choice.margin = Cost::from_millis(500);
        },
    ];
    for (count, adjust) in moves.iter_mut().zip(adjusts) {
        let mut mesh = Mesh::new(Seed::from_number(15), &shape(adjust));
        mesh.run(START + 8_000);
        let start = mesh.now();
        let relay = mesh.nodes[RELAY];
        let (entry, exit) = (mesh.nodes[ENTRY], mesh.nodes[EXIT]);
        // From 30 ms to 44 ms. The path over the second relay takes 40 ms.
        for end in [entry, exit] {
            mesh.world.set_links(end, relay, link(22));
        }
        // 3 s to confirm, up to 15 s more, and some time until the median has followed.
        mesh.run(28_000);
        *count = mesh.moves(ENTRY, start).len();
    }
    assert!(moves[0] >= 1 && moves[1] == 0, "{moves:?}");
}

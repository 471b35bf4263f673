//! Entries and exits that cannot reach each other: a relay forwards the datagrams of their session.

use netsim::{Chance, Loss, for_each_seed, test_site};

use relay_mesh::LinkView;
use relay_mesh::detour::{Detoured, ForwardHop};
use wire::NodeId;

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, link, ms};
use crate::member::Harness;

/// The views that entry and exit have of the link between them.
fn direct(mesh: &Mesh) -> Vec<LinkView> {
    let ends = [(ENTRY, EXIT), (EXIT, ENTRY)].into_iter();
    ends.map(|(index, other)| {
        let mut links = mesh.process(index).node.links();
        let found = links.find(|link| link.node == mesh.ids[other]);
        found.expect("a session")
    })
    .collect()
}

/// Blocks the direct path between entry and exit.
pub(crate) fn part(mesh: &mut Mesh) {
    let (entry, exit) = (mesh.nodes[ENTRY].index(), mesh.nodes[EXIT].index());
    mesh.world.partition(&[entry], &[exit]);
}

#[test]
fn sim_flows_outlive_the_direct_path_of_their_ends() {
    for_each_seed(&test_site!(), 6, |seed| {
        let mut mesh = Mesh::new(seed, &Shape::default());
        mesh.run(START + 3_000);
        let cut = mesh.now();
        part(&mut mesh);
        // Four times the idle timeout of a session.
        mesh.run(40_000);
        let now = mesh.now();
        assert_eq!(mesh.process(ENTRY).closed_flows(), []);
        assert_eq!(mesh.process(EXIT).closed_flows(), []);
        assert!(mesh.player().gap(cut, now) <= ms(300));
        assert_eq!(mesh.player().faults, 0);
        // The relay in use dies, which ends the detour too.
        mesh.kill(RELAY);
        mesh.run(20_000);
        assert_eq!(mesh.process(ENTRY).closed_flows(), []);
        assert_eq!(mesh.route(), Some(mesh.path(&[RELAY + 1])));
        let gap = mesh.player().gap(now, mesh.now());
        assert!(
            gap <= ms(1_000),
            "{gap:?} after {now:?}: {:?}",
            mesh.moves(ENTRY, now)
        );
    });
}

#[test]
fn sim_ends_without_a_direct_path_use_a_relay() {
    for_each_seed(&test_site!(), 6, |seed| {
        let mut mesh = Mesh::new(seed, &Shape::default());
        part(&mut mesh);
        mesh.run(30_000);
        let now = mesh.now();
        assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
        assert!(mesh.player().gap(now.saturating_sub(ms(5_000)), now) <= ms(50));
        let closed = mesh.process(ENTRY).closed_flows();
        assert_eq!(closed, [], "{closed:?}");
    });
}

#[test]
fn sim_the_direct_path_is_used_again_once_it_is_back() {
    for_each_seed(&test_site!(), 6, |seed| {
        for is_known in [true, false] {
            let shape = Shape {
                idle: 5,
                ..Shape::default()
            };
            let mut mesh = Mesh::new(seed, &shape);
            if is_known {
                mesh.run(START + 2_000);
            }
            part(&mut mesh);
            mesh.run(20_000);
            let (entry, exit) = (mesh.nodes[ENTRY].index(), mesh.nodes[EXIT].index());
            mesh.world.heal(&[entry], &[exit]);
            // The direct path is slower than any relay, so no copy arrives first over it by chance.
            mesh.run(30_000);
            for view in direct(&mesh) {
                assert_eq!(view.detour, None);
                // A session that never used the direct path lives as long as its flows.
                assert_eq!(view.carries, is_known);
            }
            assert_eq!(mesh.process(ENTRY).closed_flows(), []);
            mesh.stop_player();
            mesh.run(15_000);
            for view in direct(&mesh) {
                assert!(view.report.is_some_and(|report| report.is_up()), "{view:?}");
            }
            // Relays forwarded datagrams before, and forward none now.
            let passed = |mesh: &Mesh| -> u64 {
                let stats = |index| mesh.process(index).node.stats().detoured;
                (RELAY..RELAY + 3).map(stats).sum()
            };
            let before = passed(&mesh);
            assert!(before > 0);
            let news = mesh.process(ENTRY).events.len();
            mesh.run(15_000);
            assert_eq!(passed(&mesh), before);
            assert_eq!(mesh.process(ENTRY).events[news..], [], "all is quiet");
        }
    });
}

#[test]
fn sim_a_failure_in_one_direction_is_handled() {
    for_each_seed(&test_site!(), 4, |seed| {
        let mut mesh = Mesh::new(seed, &Shape::default());
        mesh.run(START + 3_000);
        let cut = mesh.now();
        let (entry, exit) = (mesh.nodes[ENTRY], mesh.nodes[EXIT]);
        mesh.world.set_link(
            entry,
            exit,
            link(80).with_loss(Loss::Bernoulli(Chance::ALWAYS)),
        );
        mesh.run(40_000);
        assert_eq!(mesh.process(ENTRY).closed_flows(), []);
        assert!(mesh.player().gap(cut, mesh.now()) <= ms(300));
    });
}

#[test]
fn mesh_a1_relaying_for_a_member_is_bounded_and_to_neighbours_only() {
    let mut harness = Harness::with(5, &Shape::default());
    let [entry, exit, relay] = [ENTRY, EXIT, RELAY].map(|index| harness.mesh.ids[index]);
    let own = harness.own;
    let transmit = |harness: &mut Harness, hop, node, datagram: &[u8]| {
        let detoured = Detoured {
            hop,
            node,
            datagram,
        };
        let mut message = Vec::new();
        detoured.encode(&mut message);
        harness.transmit(&message);
        harness.mesh.run(8);
    };
    let stats = |harness: &Harness, index| {
        let stats = harness.mesh.process(index).node.stats();
        (stats.detoured, stats.detours_refused)
    };
    assert_eq!([stats(&harness, RELAY), stats(&harness, EXIT)], [(0, 0); 2]);
    // Addressed to the sender itself, to the forwarding relay, and to an unknown node.
    for node in [own, relay, NodeId([9; 32])] {
        transmit(&mut harness, ForwardHop::First, node, &[0x40; 100]);
    }
    // From a node that is reached directly, from an unknown node, and a hop frame.
    for (node, first) in [(entry, 0x40), (NodeId([9; 32]), 0x40), (exit, 0x81)] {
        transmit(&mut harness, ForwardHop::Second, node, &[first; 100]);
    }
    harness.mesh.run(100);
    assert_eq!(stats(&harness, RELAY), (0, 6));
    // 128 kB/s, of which half is forwarded, after a burst of 64 KiB.
    let before = harness.mesh.now();
    for _ in 0..500 {
        transmit(&mut harness, ForwardHop::First, exit, &[0x40; 1_024]);
    }
    harness.mesh.run(1_000);
    let took = harness.mesh.now().saturating_since(before).as_secs() + 1;
    let (passed, refused) = stats(&harness, RELAY);
    assert!(
        (64..=64 * (took + 1)).contains(&passed),
        "{passed}, {took} s"
    );
    assert!(refused > 50, "{passed} {refused}");
    assert_eq!(passed + refused, 506);
    // The exit does not know a node of that name, and passes none of it to its sessions.
    assert_eq!(stats(&harness, EXIT), (0, passed));
    assert_eq!(harness.mesh.player().faults, 0);
}

#[test]
fn mesh_a1_datagrams_forged_by_a_relay_change_nothing() {
    let mut harness = Harness::with(6, &Shape::default());
    // The member is a neighbour of the relay. For the relay, the exit becomes unreachable.
    let exit = harness.mesh.ids[EXIT];
    let (relay, other) = (
        harness.mesh.nodes[RELAY].index(),
        harness.mesh.nodes[EXIT].index(),
    );
    harness.mesh.world.partition(&[relay], &[other]);
    harness.mesh.run(3_000);
    let before = *harness.mesh.process(RELAY).node.endpoint_stats();
    for number in 0..200_u8 {
        let mut message = Vec::new();
        let datagram = [number & 0x7f; 60];
        let forged = Detoured {
            hop: ForwardHop::Second,
            node: exit,
            datagram: &datagram,
        };
        forged.encode(&mut message);
        harness.transmit(&message);
        harness.mesh.run(20);
    }
    harness.mesh.run(1_000);
    let node = &harness.mesh.process(RELAY).node;
    assert_eq!(
        node.endpoint_stats().sessions_opened,
        before.sessions_opened
    );
    // Only the member receives what was sent to the exit, and it is sealed.
    assert_eq!(node.links().filter(|link| link.detour.is_some()).count(), 1);
    harness.mesh.world.heal(&[relay], &[other]);
    harness.mesh.run(20_000);
    let links = || harness.mesh.process(RELAY).node.links();
    assert!(links().all(|link| link.detour.is_none()));
    assert!(links().any(|link| link.node == exit));
}

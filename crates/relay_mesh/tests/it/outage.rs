//! Sessions between nodes after an outage: a stopped process, or loss in one direction.

use crypto::Secret32;
use netsim::{Chance, Loss, for_each_seed, test_site};
use relay_mesh::Config;
use wire::{NodeId, Seed};

use crate::harness::{
    Adjust, ENTRY, EXIT, Mesh, RELAY, START, Shape, address, game, link, mesh_address, ms,
};
use crate::player::Player;

/// Which of entry and exit opens the session at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opener {
    Entry,
    Exit,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    ExitStopped,
    EntryStopped,
    LossToExit,
    LossToEntry,
    Cut,
}

const OPENERS: [Opener; 3] = [Opener::Entry, Opener::Exit, Opener::Both];

/// An entry and an exit without a relay. Only the opener knows the other from the start.
fn mesh(seed: Seed, opener: Opener) -> Mesh {
    let adjust = match opener {
        Opener::Entry => |index: usize, config: &mut Config, ids: &[NodeId]| {
            config
                .bootstrap
                .nodes
                .retain(|(id, _)| index == ENTRY || ids.get(RELAY) == Some(id));
        },
        Opener::Exit => |index: usize, config: &mut Config, ids: &[NodeId]| {
            config
                .bootstrap
                .nodes
                .retain(|(id, _)| ids.get(RELAY) == Some(id));
            if index == EXIT {
                config
                    .bootstrap
                    .nodes
                    .push((ids[ENTRY], mesh_address(ENTRY)));
            }
        },
        Opener::Both => |index: usize, config: &mut Config, ids: &[NodeId]| {
            if index == EXIT {
                config
                    .bootstrap
                    .nodes
                    .push((ids[ENTRY], mesh_address(ENTRY)));
            }
        },
    };
    mesh_with(seed, adjust)
}

fn mesh_with(seed: Seed, adjust: Adjust) -> Mesh {
    let shape = Shape {
        relays: 1,
        adjust,
        ..Shape::default()
    };
    let mut mesh = Mesh::new(seed, &shape);
    mesh.kill(RELAY);
    let (entry, exit) = (mesh.nodes[ENTRY], mesh.nodes[EXIT]);
    mesh.world.set_links(entry, exit, link(10));
    mesh
}

fn strike(mesh: &mut Mesh, fault: Fault, span: u64) {
    let (entry, exit) = (mesh.nodes[ENTRY], mesh.nodes[EXIT]);
    let lossy = link(10).with_loss(Loss::Bernoulli(Chance::percent(100)));
    match fault {
        Fault::ExitStopped => mesh.world.stall(exit, ms(span)),
        Fault::EntryStopped => mesh.world.stall(entry, ms(span)),
        Fault::LossToExit => mesh.world.set_link(entry, exit, lossy),
        Fault::LossToEntry => mesh.world.set_link(exit, entry, lossy),
        Fault::Cut => mesh.world.set_links(entry, exit, lossy),
    }
    mesh.run(span);
    if !matches!(fault, Fault::ExitStopped | Fault::EntryStopped) {
        mesh.world.set_links(entry, exit, link(10));
    }
}

/// How long after the end of a fault the player, and a newcomer that arrives at that moment, are
/// not served, in ms.
fn outages(seed: Seed, (opener, fault, span): (Opener, Fault, u64), age: u64) -> [u64; 2] {
    let mut mesh = mesh(seed, opener);
    mesh.run(START + age);
    strike(&mut mesh, fault, span);
    let end = mesh.now();
    let newcomer = mesh.world.add(address("203.0.113.77:5000"), |now| {
        Player::new(game(), 60, 100, now)
    });
    mesh.world.set_links(newcomer, mesh.nodes[ENTRY], link(5));
    mesh.run(25_000);
    let to = mesh.now();
    let gap = |player: &Player| u64::try_from(player.gap(end, to).as_millis()).unwrap();
    [gap(mesh.player()), gap(&mesh.world[newcomer])]
}

/// A stopped process still has sessions that its neighbours closed 10 s into the stop. New sessions
/// from the neighbours replace them at once, whichever side opened the old ones.
#[test]
fn sim_mesh_a8_a_stopped_end_serves_players_within_a_second_of_its_return() {
    for_each_seed(&test_site!(), 2, |seed| {
        for opener in OPENERS {
            for fault in [Fault::ExitStopped, Fault::EntryStopped] {
                for (span, age) in [
                    (9_000, 1_000),
                    (9_000, 7_000),
                    (11_000, 14_000),
                    (15_000, 1_000),
                ] {
                    let case = (opener, fault, span);
                    let outages = outages(seed, case, age);
                    assert!(
                        outages.iter().all(|ms| *ms <= 1_000),
                        "{case:?} {outages:?}"
                    );
                }
            }
        }
    });
}

/// If one direction is lost, one end closes the session and the other does not. Packets from the
/// other end make the first one retry at once, and the link is up again after three answers. If
/// both directions are lost, an attempt is repeated once per second.
#[test]
fn sim_mesh_a8_players_are_served_soon_after_a_loss_in_one_direction() {
    for_each_seed(&test_site!(), 2, |seed| {
        for opener in OPENERS {
            for fault in [Fault::LossToExit, Fault::LossToEntry, Fault::Cut] {
                for (span, age) in [(9_000, 1_000), (10_000, 14_000), (12_000, 7_000)] {
                    let case = (opener, fault, span);
                    let outages = outages(seed, case, age);
                    let most = if fault == Fault::Cut { 1_500 } else { 1_000 };
                    assert!(outages.iter().all(|ms| *ms <= most), "{case:?} {outages:?}");
                }
            }
        }
    });
}

/// Gives a node its own secret for stateless resets, the same in each run.
fn with_resets(index: usize, config: &mut Config) {
    let number = u8::try_from(index).unwrap();
    config.reset_secret = Some(Secret32::new([number; 32]));
}

/// An end is killed and restarted. It dials no one, since it knows no node. Its neighbour gets a
/// stateless reset at once, whichever side opened the session, and dials.
#[test]
fn sim_mesh_a9_a_neighbour_dials_a_restarted_node_at_once() {
    for_each_seed(&test_site!(), 3, |seed| {
        let mut mesh = mesh_with(seed, |index, config, ids| {
            with_resets(index, config);
            config
                .bootstrap
                .nodes
                .retain(|(id, _)| index == ENTRY || ids.get(RELAY) == Some(id));
        });
        mesh.run(START + 11_000);
        mesh.kill(EXIT);
        mesh.run(2_000);
        mesh.restart(EXIT, 1);
        let end = mesh.now();
        mesh.run(15_000);
        let gap = mesh.player().gap(end, mesh.now());
        assert!(gap <= ms(2_000), "{gap:?}");
        let stats = mesh.process(EXIT).node.endpoint_stats();
        assert!(stats.resets_sent > 0);
    });
}

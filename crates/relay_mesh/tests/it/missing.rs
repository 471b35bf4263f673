//! What nodes do not do yet, as the README says it.

use netsim::{Chance, Loss};
use relay_mesh::{ExitGame, FlowEnd};
use wire::Seed;

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, link, ms, server};

#[test]
fn flows_over_relays_outlive_a_dead_direct_path_by_the_session_s_ten_seconds() {
    let mut mesh = Mesh::new(Seed::from_number(1), &Shape::default());
    mesh.run(START + 2_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
    let (entry, exit) = (mesh.nodes[ENTRY], mesh.nodes[EXIT]);
    let dead = link(80).with_loss(Loss::Bernoulli(Chance::percent(100)));
    mesh.world.set_links(entry, exit, dead);
    let cut = mesh.now();
    mesh.run(8_000);
    assert_eq!(mesh.process(ENTRY).closed_flows(), [], "it lives on");
    assert!(mesh.player().gap(cut, mesh.now()) < ms(50), "without a gap");
    mesh.run(4_000);
    assert_eq!(
        mesh.process(ENTRY).closed_flows(),
        [FlowEnd::SessionLost],
        "and ends with the session, with a reason"
    );
}

#[test]
fn an_exit_on_the_entry_s_own_node_is_no_exit() {
    let shape = Shape {
        adjust: |index, config, ids| {
            if index == ENTRY {
                let game = &mut config.games[0];
                game.exit = Some(ExitGame {
                    server: server(),
                    entries: None,
                    header: None,
                });
                game.entry.as_mut().unwrap().exits = vec![ids[ENTRY]];
            }
        },
        ..Shape::default()
    };
    let mut mesh = Mesh::new(Seed::from_number(2), &shape);
    mesh.run(START + 2_000);
    let stats = mesh.process(ENTRY).node.stats();
    assert!(stats.refused_players > 100, "counted: {stats:?}");
    assert!(mesh.player().answers.is_empty());
    assert_eq!(
        mesh.process(ENTRY).sockets(),
        2,
        "the mesh's and the game's"
    );
}

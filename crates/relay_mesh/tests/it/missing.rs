//! What nodes do not do yet, as the README says it.

use relay_mesh::ExitGame;
use wire::Seed;

use crate::harness::{ENTRY, Mesh, START, Shape, server};

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

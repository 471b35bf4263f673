//! The entry's configuration decides the mode of a game; the exit's may differ.

use netsim::{for_each_seed, test_site};
use relay_mesh::Mode;

use crate::harness::{ENTRY, EXIT, Mesh, START, Shape};

/// Number of duplicate frames that each end received in 5 s of play.
fn copies(seed: wire::Seed, entry: Mode, adjust: crate::harness::Adjust) -> [u64; 2] {
    let shape = Shape {
        mode: entry,
        adjust,
        ..Shape::default()
    };
    let mut mesh = Mesh::new(seed, &shape);
    mesh.run(START + 6_000);
    let count =
        |mesh: &Mesh| [ENTRY, EXIT].map(|end| mesh.process(end).node.stats().flow_duplicates);
    let before = count(&mesh);
    mesh.run(5_000);
    let after = count(&mesh);
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn sim_an_exit_uses_the_seal_mode_of_the_entry() {
    for_each_seed(&test_site!(), 2, |seed| {
        let both = copies(seed, Mode::Dup, |index, config, _| {
            if index == EXIT {
                config.games[0].mode = Mode::Single;
            }
        });
        assert!(both.iter().all(|copies| *copies >= 290), "{both:?}");
        let none = copies(seed, Mode::Single, |index, config, _| {
            if index == EXIT {
                config.games[0].mode = Mode::Dup;
            }
        });
        assert_eq!(none, [0, 0]);
    });
}

//! If all paths lose much or are long, the best one is used, and none is backed off.

use netsim::{Chance, Loss};
use relay_mesh::Mode;
use relay_mesh::cost::{Cost, LossCode};
use relay_mesh::measure::LinkReport;
use wire::Seed;

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, ms};
use crate::world::World;

#[test]
fn if_all_paths_are_lossy_the_one_with_the_least_loss_is_used() {
    let mut world = World::new(5, 3);
    // 70 % directly, 46 % over the relay.
    for (a, b, code) in [(0, 1, 250), (0, 2, 207), (2, 1, 207)] {
        world.link(a, b, 40);
        for (from, to) in [(a, b), (b, a)] {
            let to = world.nodes[to].id;
            let report = LinkReport {
                delay: Cost::from_millis(40),
                loss: LossCode(code),
            };
            world.nodes[from].links.insert(to, report);
        }
    }
    world.run(3_000);
    let (remote, relay) = (world.nodes[1].id, world.nodes[2].id);
    let route = world.nodes[0].route(remote).unwrap();
    assert_eq!(route.path.relays, [relay], "{route:?}");
}

#[test]
fn if_all_paths_are_long_the_shortest_is_used() {
    let mut world = World::new(6, 3);
    for (a, b, millis) in [(0, 1, 1_600), (0, 2, 420), (2, 1, 420)] {
        world.link(a, b, millis);
    }
    world.run(6_000);
    let (remote, relay) = (world.nodes[1].id, world.nodes[2].id);
    let route = world.nodes[0].route(remote).unwrap();
    assert_eq!(route.path.relays, [relay], "{route:?}");
}

/// Sets a line's loss in each direction.
fn lose(mesh: &mut Mesh, [a, b]: [usize; 2], percent: u32) {
    let [a, b] = [a, b].map(|at| mesh.nodes[at].index());
    let loss = Loss::Bernoulli(Chance::percent(percent));
    for (from, to) in [(a, b), (b, a)] {
        mesh.world
            .change_links(&[from], &[to], |link| link.with_loss(loss));
    }
}

#[test]
fn packets_use_the_less_lossy_path_even_if_it_loses_many() {
    for number in 0..3 {
        let shape = Shape {
            mode: Mode::Single,
            relays: 1,
            ..Shape::default()
        };
        let mut mesh = Mesh::new(Seed::from_number(50 + number), &shape);
        mesh.run(START + 4_000);
        for (line, percent) in [
            ([ENTRY, EXIT], 38),
            ([ENTRY, RELAY], 14),
            ([RELAY, EXIT], 14),
        ] {
            lose(&mut mesh, line, percent);
        }
        mesh.run(60_000);
        let mut direct = 0;
        for _ in 0..120 {
            mesh.run(1_000);
            direct += u32::from(mesh.route() == Some(mesh.path(&[])));
        }
        assert!(direct < 30, "{direct} of 120 s");
    }
}

#[test]
fn pgx6_a_lossy_path_with_its_advertised_delay_is_not_refuted() {
    for percent in [10, 25, 30] {
        let shape = Shape {
            relays: 1,
            ..Shape::default()
        };
        let mut mesh = Mesh::new(Seed::from_number(3), &shape);
        mesh.run(START + 4_000);
        lose(&mut mesh, [RELAY, EXIT], percent);
        mesh.run(120_000);
        let refuted = [ENTRY, EXIT].map(|end| mesh.process(end).node.stats().paths_refuted);
        assert_eq!(refuted, [0, 0], "{percent} %: nobody lied");
        // It is used again when it no longer loses.
        lose(&mut mesh, [RELAY, EXIT], 0);
        mesh.run(60_000);
        assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
        let gap = mesh
            .player()
            .gap(mesh.now().saturating_sub(ms(5_000)), mesh.now());
        assert!(gap < ms(100), "{gap:?}");
    }
}

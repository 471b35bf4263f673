//! Moves that are planned: from a path that carries to a better one.

use netsim::{Chance, for_each_seed, test_site};
use relay_mesh::RouteCause;
use relay_mesh::routes::Path;
use wire::{Instant, Seed};

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, link, ms};

/// What moves of one run there were.
#[derive(Default)]
struct Moves {
    apart: usize,
    shared: usize,
    /// Of those between paths that share a relay, with the old path's far relay killed.
    bereft: usize,
}

/// A mesh of one cheap chain over two relays, and packets that overtake each other on each link.
fn chained(seed: Seed) -> Mesh {
    let rate = if seed.generator(78).chance(500_000) {
        60
    } else {
        240
    };
    let shape = Shape {
        rate,
        ..Shape::default()
    };
    let mut mesh = Mesh::new(seed, &shape);
    let nodes = mesh.nodes.clone();
    for (index, &one) in nodes.iter().enumerate() {
        for &other in &nodes[index + 1..] {
            mesh.world.set_links(one, other, link(150));
        }
    }
    for (a, b, delay) in [
        (ENTRY, RELAY, 5),
        (RELAY, RELAY + 1, 5),
        (RELAY + 1, EXIT, 5),
        (RELAY, EXIT, 40),
        (ENTRY, RELAY + 2, 40),
        (RELAY + 2, EXIT, 40),
    ] {
        mesh.world.set_links(nodes[a], nodes[b], link(delay));
    }
    let all: Vec<_> = nodes.iter().map(|node| node.index()).collect();
    mesh.world.change_links(&all, &all, |link| {
        link.with_reorder(Chance::percent(20), ms(20))
    });
    mesh.run(START + 3_000);
    mesh
}

/// Sets the delay between two nodes, both ways.
fn set_delay(mesh: &mut Mesh, [a, b]: [usize; 2], delay: u64) {
    let (a, b) = (mesh.nodes[a].index(), mesh.nodes[b].index());
    for (from, to) in [(a, b), (b, a)] {
        mesh.world
            .change_links(&[from], &[to], |link| link.with_delay(ms(delay)));
    }
}

/// Runs until the packets of both ends take the relays `there`, in the order from the entry; returns
/// whether they do within 20 s. Who was bitten lately by a path may choose another for longer.
fn run_until(mesh: &mut Mesh, there: &[usize]) -> bool {
    let wanted = mesh.path(there).relays;
    for _ in 0..2_000 {
        let is_there = [ENTRY, EXIT].map(|end| {
            let view = mesh.process(end).node.routes().next();
            let path: Option<Path> = view.and_then(|view| view.path);
            path.is_some_and(|path| {
                let mut relays = path.relays;
                if end == EXIT {
                    relays.reverse();
                }
                relays == wanted
            })
        });
        if is_there == [true; 2] {
            return true;
        }
        mesh.run(10);
    }
    false
}

impl Moves {
    /// Counts those of an end since `at`.
    fn count(&mut self, mesh: &Mesh, end: usize, at: Instant) {
        let all = mesh.moves(end, Instant::ZERO);
        for pair in all.windows(2) {
            let [(_, from, _), (when, to, cause)] = pair else {
                continue;
            };
            if *when < at || *cause == RouteCause::Killed {
                continue;
            }
            if from.relays.iter().any(|relay| to.relays.contains(relay)) {
                self.shared += 1;
            } else {
                self.apart += 1;
            }
        }
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "a goal's figures are shown")]
fn sim_mesh_m1_moves_between_paths_that_share_a_relay_lose_nothing() {
    let mut moves = Moves::default();
    for_each_seed(&test_site!(), 2, |seed| {
        let mut mesh = chained(seed);
        let both = [RELAY, RELAY + 1];
        run_until(&mut mesh, &both);
        // From half a second ago, so that what is on its way counts too.
        let (at, sent) = (mesh.now(), mesh.player().sent() - 30);
        let changes: [([usize; 2], u64, &[usize]); 4] = [
            // Past the second relay, and back.
            ([RELAY + 1, EXIT], 120, &[RELAY]),
            ([RELAY + 1, EXIT], 5, &both),
            // Over quite another, and back.
            ([ENTRY, RELAY], 200, &[RELAY + 2]),
            ([ENTRY, RELAY], 5, &both),
        ];
        for (link, delay, there) in changes {
            set_delay(&mut mesh, link, delay);
            run_until(&mut mesh, there);
            mesh.run(1_000);
        }
        // Past the second relay once more, which dies while it is sent copies.
        let is_back = run_until(&mut mesh, &both);
        set_delay(&mut mesh, [RELAY + 1, EXIT], 120);
        if is_back && run_until(&mut mesh, &[RELAY]) {
            // What left for it alone has passed it: 120 ms from the exit, 20 more where overtaken.
            mesh.run(170);
            mesh.kill(RELAY + 1);
            // Of both ends.
            moves.bereft += 2;
        }
        mesh.run(3_000);
        mesh.stop_player();
        mesh.run(1_000);
        assert_eq!(mesh.player().missing_from(sent), 0, "lost");
        assert_eq!(mesh.player().faults, 0, "doubled");
        for end in [ENTRY, EXIT] {
            moves.count(&mesh, end, at);
        }
    });
    let Moves {
        apart,
        shared,
        bereft,
    } = moves;
    assert!(shared > 0 && apart > 0, "{shared} and {apart} moves");
    println!(
        "planned moves: {apart} between paths apart, {shared} between paths that share a relay, \
         {bereft} of them with the old path's far relay dead: 0 lost, 0 doubled"
    );
}

//! Planned moves: from a working path to a better one.

use netsim::{Chance, for_each_seed, test_site};
use relay_mesh::RouteCause;
use relay_mesh::routes::Path;
use wire::{Instant, Seed};

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, link, ms};

/// Minimum average number of moves per seed: each end makes at least three, and usually four.
const MOVES_LEAST: usize = 6;

/// The moves of both ends, and their effect on the player's packets.
#[derive(Debug, Default)]
struct Moves {
    apart: usize,
    shared: usize,
    /// Moves between paths that share a relay, with the old path's far relay killed.
    bereft: usize,
    /// Unanswered packets per seed.
    lost: Vec<usize>,
    /// Duplicated or changed answers per seed.
    doubled: Vec<u64>,
}

/// A mesh with one cheap chain over two relays, and reordering on each link.
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

/// Sets the delay between two nodes in both directions.
fn set_delay(mesh: &mut Mesh, [a, b]: [usize; 2], delay: u64) {
    let (a, b) = (mesh.nodes[a].index(), mesh.nodes[b].index());
    for (from, to) in [(a, b), (b, a)] {
        mesh.world
            .change_links(&[from], &[to], |link| link.with_delay(ms(delay)));
    }
}

/// Runs until the packets of both ends use the relays `there`, in the order from the entry. Returns
/// false if that takes more than 20 s: a flow may avoid a path that recently failed for longer.
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

/// Makes parts of a chain slow and fast again.
fn lead_about(seed: Seed, moves: &mut Moves) {
    let mut mesh = chained(seed);
    let both = [RELAY, RELAY + 1];
    run_until(&mut mesh, &both);
    // From half a second ago, to include packets in flight.
    let (at, sent) = (mesh.now(), mesh.player().sent() - 30);
    let changes: [([usize; 2], u64, &[usize]); 6] = [
        // Away from the second relay and back, twice.
        ([RELAY + 1, EXIT], 120, &[RELAY]),
        ([RELAY + 1, EXIT], 5, &both),
        ([RELAY + 1, EXIT], 120, &[RELAY]),
        ([RELAY + 1, EXIT], 5, &both),
        // To an entirely different path and back.
        ([ENTRY, RELAY], 200, &[RELAY + 2]),
        ([ENTRY, RELAY], 5, &both),
    ];
    for (link, delay, there) in changes {
        set_delay(&mut mesh, link, delay);
        run_until(&mut mesh, there);
        mesh.run(1_000);
    }
    // Away from the second relay once more, which dies while it still gets copies.
    let is_back = run_until(&mut mesh, &both);
    set_delay(&mut mesh, [RELAY + 1, EXIT], 120);
    if is_back && run_until(&mut mesh, &[RELAY]) {
        // Packets sent over it alone have passed: 120 ms from the exit, plus 20 if reordered.
        mesh.run(170);
        mesh.kill(RELAY + 1);
        // At both ends.
        moves.bereft += 2;
    }
    mesh.run(3_000);
    mesh.stop_player();
    mesh.run(1_000);
    moves.lost.push(mesh.player().missing_from(sent));
    moves.doubled.push(mesh.player().faults);
    for end in [ENTRY, EXIT] {
        moves.count(&mesh, end, at);
    }
}

impl Moves {
    /// Counts the moves of one end since `at`.
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

/// Each seed makes at least nine moves, so `SEEDS=120` gives the thousand of goal M1.
#[test]
#[expect(clippy::print_stdout, reason = "a goal's figures are shown")]
fn sim_mesh_m1_moves_between_paths_that_share_a_relay_lose_nothing() {
    let mut moves = Moves::default();
    for_each_seed(&test_site!(), 20, |seed| lead_about(seed, &mut moves));
    let Moves {
        apart,
        shared,
        bereft,
        ..
    } = moves;
    let (lost, doubled): (usize, u64) = (moves.lost.iter().sum(), moves.doubled.iter().sum());
    let (all, seeds) = (apart + shared, moves.lost.len());
    println!(
        "planned moves: {apart} between paths apart, {shared} between paths that share a relay, \
         {bereft} of them with the old path's far relay dead: {lost} lost, {doubled} doubled"
    );
    println!("figure: planned moves {all}");
    println!(
        "figure: planned shared_percent {}",
        shared * 100 / all.max(1)
    );
    println!("figure: planned bereft {bereft}");
    println!("figure: planned lost {lost}");
    println!("figure: planned doubled {doubled}");
    assert_eq!(
        (lost, doubled),
        (0, 0),
        "under the seeds in turn: {moves:?}"
    );
    assert!(
        all >= MOVES_LEAST * seeds,
        "{all} moves under {seeds} seeds"
    );
    // The shares of fewer seeds mean little.
    if seeds >= 20 {
        assert!(shared * 2 >= all, "{shared} of {all}");
        assert!(bereft * 10 >= all, "{bereft} of {all}");
    }
}

//! Nodes that do not run for a while, such as on a busy host or a migrated VM.

use core::cell::Cell;
use std::rc::Rc;

use netsim::{Verdict, for_each_seed, test_site};
use relay_mesh::{Event, RouteCause, SocketId};
use wire::Instant;

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, Shape, ms};

/// Time until packets use the best path again, in ms: links are judged by their last 30 s, and a
/// flow waits up to 18 s for an advantage to last.
const AGAIN: u64 = 50_000;

#[test]
fn sim_pgx13_nodes_stalled_at_their_start_use_the_best_path() {
    for_each_seed(&test_site!(), 10, |seed| {
        let mut mesh = Mesh::new(seed, &Shape::default());
        for round in 0..4 {
            let span = 500 + mesh.world.generator(round).below(3_000);
            for index in [ENTRY, EXIT] {
                let node = mesh.nodes[index];
                mesh.world.stall(node, ms(span));
            }
            mesh.run(span + 400);
        }
        mesh.run(AGAIN);
        let (best, moves) = (mesh.path(&[RELAY]), mesh.moves(ENTRY, Instant::ZERO));
        assert_eq!(mesh.route(), Some(best), "{moves:?}");
        assert_eq!(mesh.player().faults, 0);
    });
}

#[test]
fn sim_pgx13_a_paused_entry_kills_no_path_and_closes_no_flow() {
    for_each_seed(&test_site!(), 10, |seed| {
        let mut mesh = Mesh::new(seed, &Shape::default());
        mesh.run(10_000);
        let (best, from) = (mesh.path(&[RELAY]), mesh.now());
        assert_eq!(mesh.route().as_ref(), Some(&best));
        for round in 0..6 {
            let span = 300 + mesh.world.generator(round).below(2_500);
            let entry = mesh.nodes[ENTRY];
            mesh.world.stall(entry, ms(span));
            mesh.run(span + 1_000);
        }
        assert_eq!(mesh.process(ENTRY).node.stats().stalls, 6);
        // Its neighbours saw late probes and report that, but no path is dead.
        let moves = mesh.moves(ENTRY, from);
        let mut causes = moves.iter().map(|(_, _, cause)| *cause);
        assert!(causes.all(|cause| cause != RouteCause::Killed), "{moves:?}");
        assert_eq!(mesh.process(ENTRY).closed_flows(), []);
    });
}

#[test]
fn sim_pgx13_nodes_stalled_during_play_are_used_again() {
    for_each_seed(&test_site!(), 10, |seed| {
        let mut mesh = Mesh::new(seed, &Shape::default());
        mesh.run(10_000);
        for round in 0..6 {
            let span = 300 + mesh.world.generator(round).below(2_500);
            let index = [EXIT, RELAY][usize::try_from(round % 2).unwrap()];
            let node = mesh.nodes[index];
            mesh.world.stall(node, ms(span));
            mesh.run(span + 1_000);
        }
        // A relay that failed three times is excluded for up to a minute, and may fail once more
        // while its links are judged by their old measurements.
        mesh.run(30_000 + 60_000);
        let (best, moves) = (mesh.path(&[RELAY]), mesh.moves(ENTRY, Instant::ZERO));
        assert_eq!(mesh.route(), Some(best), "{moves:?}");
        assert_eq!(mesh.process(ENTRY).closed_flows(), []);
    });
}

/// An entry that is always 120 ms late moves no flow for that, and reports that it is overloaded.
#[test]
fn sim_an_entry_short_of_cpu_moves_no_flow_and_reports_overload() {
    for_each_seed(&test_site!(), 3, |seed| {
        let mut mesh = Mesh::new(seed, &Shape::default());
        mesh.run(12_000);
        let (best, from) = (mesh.path(&[RELAY]), mesh.now());
        assert_eq!(mesh.route().as_ref(), Some(&best));
        for _ in 0..100 {
            let entry = mesh.nodes[ENTRY];
            mesh.world.stall(entry, ms(120));
            mesh.run(160);
        }
        assert_eq!(mesh.moves(ENTRY, from), []);
        let process = mesh.process(ENTRY);
        let reported = process.events.iter().filter_map(|(_, event)| {
            if let Event::Overloaded { late, .. } = event {
                Some(*late)
            } else {
                None
            }
        });
        let reported: Vec<_> = reported.collect();
        assert!(
            reported.len() == 1 && reported[0] >= ms(100),
            "{reported:?}"
        );
        assert_eq!(process.node.stats().overloads, 1);
    });
}

/// The kernel drops 7 of 10 datagrams at the entry's mesh socket, from all senders alike. Neither
/// end moves: the entry knows by its socket's drop counter, and the exit by the entry's reports.
#[test]
fn sim_an_entry_with_receive_buffer_overflow_moves_neither_end() {
    for_each_seed(&test_site!(), 3, |seed| {
        let shape = Shape {
            rate: 200,
            ..Shape::default()
        };
        let mut mesh = Mesh::new(seed, &shape);
        mesh.run(12_000);
        let (best, from) = (mesh.path(&[RELAY]), mesh.now());
        assert_eq!(mesh.route().as_ref(), Some(&best));
        let dropped = Rc::new(Cell::new(0));
        let nodes = mesh.nodes.clone();
        for (index, other) in nodes.iter().enumerate().skip(1) {
            let dropped = Rc::clone(&dropped);
            let purpose = 700 + u64::try_from(index).unwrap();
            let mut draws = mesh.world.generator(purpose);
            mesh.world.intercept(*other, nodes[ENTRY], move |_, _| {
                if draws.chance(700_000) {
                    dropped.set(dropped.get() + 1);
                    Verdict::Drop
                } else {
                    Verdict::Pass
                }
            });
        }
        for _ in 0..60 {
            mesh.run(100);
            let count = dropped.take();
            mesh.world.apply(nodes[ENTRY], |process, now| {
                process
                    .node
                    .record_receive_drops(now, Some(SocketId::MESH), count);
            });
        }
        for end in [ENTRY, EXIT] {
            assert_eq!(mesh.moves(end, from), [], "{end}");
        }
        let reported = mesh.process(ENTRY).events.iter();
        let reported = reported.filter_map(|(_, event)| {
            if let Event::Overloaded { dropped, .. } = event {
                Some(*dropped)
            } else {
                None
            }
        });
        let reported: Vec<u64> = reported.collect();
        assert!(reported.len() == 1 && reported[0] >= 50, "{reported:?}");
    });
}

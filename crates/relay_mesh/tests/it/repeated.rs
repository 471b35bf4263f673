//! A captured frame that is replayed again and again.

use core::time::Duration;

use netsim::Datagram;
use relay_mesh::FrameStats;
use wire::Seed;

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, mesh_address};

/// A frame of the game from `from` to `to`.
fn seen(mesh: &mut Mesh, [from, to]: [usize; 2]) -> Vec<u8> {
    let tap = mesh.world.tap_all(4_000);
    mesh.run(500);
    let captured = mesh.world.captured(tap).iter();
    let datagrams = captured.map(|captured| &captured.datagram);
    let frames = datagrams.filter(|datagram| {
        datagram.source == mesh_address(from)
            && datagram.destination == mesh_address(to)
            && datagram.bytes.first() == Some(&0x81)
    });
    let longest = frames.max_by_key(|frame| frame.bytes.len());
    longest.unwrap().bytes.clone()
}

/// The frame counters of the node at the end of `line` while 8 copies of one frame arrive each
/// millisecond for 3 s, and the number of the player's unanswered datagrams.
fn repeat(line: [usize; 2]) -> (FrameStats, u64) {
    let shape = Shape {
        len: 1_000,
        ..Shape::default()
    };
    let mut mesh = Mesh::new(Seed::from_number(901), &shape);
    mesh.run(START + 4_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
    let frame = seen(&mut mesh, line);
    let [from, to] = line.map(mesh_address);
    let missing = mesh.player().missing();
    for copy in 0..8 * 3_000 {
        let at = Duration::from_micros(copy * 125);
        let copy = Datagram::new(from, to, frame.clone());
        mesh.world.inject(at, copy);
    }
    mesh.run(3_000);
    mesh.stop_player();
    mesh.run(500);
    let missing = mesh.player().missing().saturating_sub(missing);
    let [_, to] = line;
    (mesh.process(to).node.frame_stats(), missing)
}

#[test]
fn mesh_a3_a_repeated_frame_spends_no_budget_at_a_relay_or_an_end() {
    for line in [[ENTRY, RELAY], [RELAY, EXIT]] {
        let (stats, missing) = repeat(line);
        assert_eq!((stats.replayed, stats.over_rate), (24_000, 0), "{line:?}");
        assert!(missing < 4, "{line:?}: {missing} of 180");
    }
}

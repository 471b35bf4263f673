//! Frames that are sent together.

use core::net::SocketAddr;
use core::num::NonZeroU16;

use netsim::{Datagram, for_each_seed, test_site};
use relay_mesh::trunk::{KIND, append};
use relay_mesh::{FrameStats, PeerAddr, SocketId};

use crate::alloc::allocations;
use crate::harness::{Adjust, ENTRY, EXIT, Mesh, RELAY, START, Shape, address, mesh_address, ms};
use crate::unseen::{GENEROUS, Lens, frames, generous_tag_only, unseen};

/// Hands the entry's datagrams to the relay in batches of `batch`, as a driver does. Returns what
/// the relay sent: bytes, and the segment length if there are several datagrams.
fn relay(
    mesh: &mut Mesh,
    (datagrams, batch): (&mut [Vec<u8>], usize),
    mut left: impl FnMut(&[u8], Option<NonZeroU16>, SocketAddr),
) {
    let node = mesh.nodes[RELAY];
    mesh.world.apply(node, |process, now| {
        let mut out = Vec::with_capacity(1 << 17);
        for datagrams in datagrams.chunks_mut(batch) {
            for datagram in datagrams {
                let peer_addr = PeerAddr::mesh(mesh_address(ENTRY));
                process
                    .node
                    .handle_datagram(now, peer_addr.into(), datagram);
            }
            out.clear();
            while let Some(transmit) = process.node.poll_transmit(now, &mut out) {
                left(&out, transmit.segment_len, transmit.destination.address);
                out.clear();
            }
        }
    });
}

fn stats(mesh: &Mesh) -> FrameStats {
    mesh.process(RELAY).node.frame_stats()
}

#[test]
fn mesh_f3_frames_of_one_batch_are_sent_together() {
    for (adjust, len) in [(GENEROUS, 148), (generous_tag_only as Adjust, 140)] {
        let (mut mesh, mut datagrams) = unseen(adjust, 1, Lens::One);
        datagrams.retain(|datagram| datagram.len() == len);
        let mut bursts = Vec::new();
        relay(
            &mut mesh,
            (&mut datagrams[..64], 64),
            |bytes, segment, to| {
                if to == mesh_address(EXIT) && matches!(bytes[0], 0x80..=0x82) {
                    bursts.push((bytes.len(), segment.map(NonZeroU16::get)));
                }
            },
        );
        let segment = u16::try_from(len).unwrap();
        assert_eq!(bursts, [(64 * len, Some(segment))]);
    }
}

/// Asserts what the relay allocates for 100,000 frames of varying lengths in trunks.
fn pass_trunks(adjust: Adjust) {
    let (mut mesh, mut datagrams) = unseen(adjust, 245, Lens::Many);
    datagrams.retain(|datagram| datagram[0] == KIND);
    let count = frames(&datagrams).len();
    assert!(count > 101_000, "{count} in {}", datagrams.len());
    mesh.nonces.close();
    let before = stats(&mesh);
    let warm = datagrams.len() / 100;
    let (warm, counted) = datagrams.split_at_mut(warm);
    relay(&mut mesh, (warm, 4), |_, _, _| ());
    let (mut allocated, mut trunks) = (allocations(), 0);
    relay(&mut mesh, (counted, 4), |bytes, _, _| {
        trunks += u32::from(bytes[0] == KIND);
    });
    allocated = allocations() - allocated;
    let after = stats(&mesh);
    assert!(after.sealed - before.sealed > 101_000, "{after:?}");
    assert_eq!(after.dropped(), before.dropped());
    assert!(trunks > 5_000, "{trunks}");
    // The driver's buffer, which is part of this test.
    assert_eq!(allocated, 1);
}

#[test]
fn mesh_f7_a_relay_allocates_nothing_for_a_trunk() {
    pass_trunks(GENEROUS);
    pass_trunks(generous_tag_only);
}

#[test]
fn mesh_a1_frames_of_a_trunk_are_checked_singly_and_none_is_duplicated() {
    let (mut mesh, datagrams) = unseen(GENEROUS, 1, Lens::Many);
    let frames = frames(&datagrams);
    let [first, second, third, ..] = &frames[..] else {
        panic!("{} frames", frames.len());
    };
    let mut bad = second.clone();
    bad[20] ^= 1;
    let mut trunk = vec![KIND];
    for frame in [first, &bad, third, first] {
        append(frame, &mut trunk);
    }
    // The bytes after the last frame are too short for one.
    trunk.extend([0, 200, 0x81]);
    let (before, mut left) = (stats(&mesh), 0);
    relay(&mut mesh, (&mut [trunk.clone()], 1), |bytes, segment, _| {
        let len = segment.map_or(bytes.len(), |len| usize::from(len.get()));
        left += bytes.chunks(len).count();
    });
    let after = stats(&mesh);
    assert_eq!(after.sealed - before.sealed, 2, "the first and the third");
    assert_eq!(after.wrong_tag - before.wrong_tag, 1);
    assert_eq!(after.replayed - before.replayed, 1);
    assert_eq!(after.bad_trunk - before.bad_trunk, 1);
    assert!(left <= 2, "{left}");
    // From an unknown address it has no effect: no answer, and no frame is forwarded.
    let outsider = address("198.18.0.66:666");
    let (before, node) = (stats(&mesh), mesh.nodes[RELAY]);
    let tap = mesh.world.tap_all(10_000);
    mesh.world
        .inject(ms(0), Datagram::new(outsider, mesh_address(RELAY), trunk));
    mesh.run(100);
    let captured = mesh.world.captured(tap);
    assert!(
        captured
            .iter()
            .all(|one| one.datagram.destination != outsider)
    );
    let after = mesh.world[node].node.frame_stats();
    assert_eq!(after.wrong_link - before.wrong_link, 4);
}

#[test]
fn sim_trunks_carry_many_players_between_two_nodes() {
    for_each_seed(&test_site!(), 2, |seed| {
        let mut mesh = Mesh::new(seed, &Shape::default());
        let tap = mesh.world.tap_all(400_000);
        mesh.run(START + 1_000);
        let entry = mesh.nodes[ENTRY];
        // Forty players with packets of different lengths in one batch.
        for round in 0..100 {
            mesh.world.apply(entry, |process, now| {
                for player in 0..40_u16 {
                    let len = 20 + usize::from((player * 7 + round) % 90);
                    let peer_addr = PeerAddr {
                        socket: SocketId(1),
                        address: SocketAddr::from(([203, 0, 112, 1], 4_000 + player)),
                    };
                    process
                        .node
                        .handle_datagram(now, peer_addr.into(), &mut vec![3; len]);
                }
            });
            mesh.run(30);
        }
        let captured = mesh.world.captured(tap).iter();
        let trunks: Vec<Vec<u8>> = captured
            .map(|captured| &captured.datagram)
            .filter(|datagram| datagram.source == mesh_address(ENTRY))
            .map(|datagram| datagram.bytes.clone())
            .filter(|bytes| bytes.first() == Some(&KIND))
            .collect();
        let frames = frames(&trunks).len();
        assert!(frames > 2_000, "{frames} frames in {} trunks", trunks.len());
        assert!(frames > 4 * trunks.len(), "{frames} in {}", trunks.len());
        let (exit, relay) = (mesh.process(EXIT), stats(&mesh));
        assert_eq!((relay.bad_trunk, exit.node.frame_stats().bad_trunk), (0, 0));
        assert!(
            exit.node.stats().delivered > 3_500,
            "{:?}",
            exit.node.stats()
        );
        assert_eq!(mesh.player().faults, 0);
    });
}

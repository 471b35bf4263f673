//! Frames that a relay has not seen.

use netsim::Datagram;
use relay_mesh::trunk::Frames;
use relay_mesh::{Config, PeerAddr, SocketId};
use wire::{NodeId, Seed};

use crate::harness::{Adjust, ENTRY, Mesh, RELAY, START, address, shape};
use crate::tag_only::all_tag_only;

/// Packets per batch.
pub(crate) const BATCH: usize = 420;

/// Limits that admit a hundred thousand frames at once.
pub(crate) const GENEROUS: Adjust = |_, config, _| {
    config.label_rate = 256 << 20;
    config.flow_rate = 256 << 20;
    config.owner_rate = 256 << 20;
};

/// The same, with tags only.
pub(crate) fn generous_tag_only(index: usize, config: &mut Config, ids: &[NodeId]) {
    GENEROUS(index, config, ids);
    all_tag_only(index, config, ids);
}

/// Lengths of a player's packets.
#[derive(Clone, Copy)]
pub(crate) enum Lens {
    /// All of 100 bytes.
    One,
    /// Of 20 to 109 bytes.
    Many,
}

/// Hands the entry one player's packets, [`BATCH`] per millisecond.
pub(crate) fn play(mesh: &mut Mesh, batches: usize, lens: Lens) {
    let entry = mesh.nodes[ENTRY];
    for _ in 0..batches {
        mesh.world.apply(entry, |process, now| {
            for packet in 0..BATCH {
                let peer_addr = PeerAddr {
                    socket: SocketId(1),
                    address: address("203.0.112.1:4000"),
                };
                let len = match lens {
                    Lens::One => 100,
                    Lens::Many => 20 + packet * 37 % 90,
                };
                process
                    .node
                    .handle_datagram(now, peer_addr.into(), &mut vec![3; len]);
            }
        });
        mesh.run(1);
    }
}

/// What the entry sends to the relay, which does not receive it. At most 250 batches, since the
/// path then counts as dead.
pub(crate) fn unseen(adjust: Adjust, batches: usize, lens: Lens) -> (Mesh, Vec<Vec<u8>>) {
    let mut mesh = Mesh::new(Seed::from_number(1), &shape(adjust));
    let (entry, relay) = (mesh.nodes[ENTRY], mesh.nodes[RELAY]);
    mesh.run(START + 1_000);
    play(&mut mesh, 1, lens);
    mesh.run(1_000);
    let tap = mesh.world.tap(entry, relay, 200_000);
    let is_of_plane = |bytes: &[u8]| matches!(bytes.first(), Some(0x80..=0x82));
    mesh.world
        .intercept(entry, relay, move |_, datagram: &mut Datagram| {
            if is_of_plane(&datagram.bytes) {
                netsim::Verdict::Drop
            } else {
                netsim::Verdict::Pass
            }
        });
    play(&mut mesh, batches, lens);
    mesh.run(20);
    let captured = mesh.world.captured(tap);
    let datagrams = captured
        .iter()
        .map(|captured| captured.datagram.bytes.clone());
    let datagrams = datagrams.filter(|bytes| is_of_plane(bytes)).collect();
    (mesh, datagrams)
}

/// The frames in these datagrams.
pub(crate) fn frames(datagrams: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for datagram in datagrams {
        match Frames::new(&mut datagram.clone()) {
            Ok(trunk) => frames.extend(trunk.map(|frame| frame.unwrap().to_vec())),
            Err(_) => frames.push(datagram.clone()),
        }
    }
    frames
}

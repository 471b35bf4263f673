//! Ten thousand junk datagrams of each kind at every port: each one is counted exactly once.

use core::net::SocketAddr;

use netsim::TapId;
use relay_mesh::trunk::Frames;
use relay_mesh::{PeerAddr, SocketId};
use wire::{Generator, Instant, Seed};

use crate::harness::{
    ENTRY, EXIT, Mesh, RELAY, START, Shape, address, game, mesh_address, ms, server,
};
use crate::process::Process;

const COUNT: u64 = 10_000;

/// A kind of junk, derived from a captured datagram to the victim.
#[derive(Clone, Copy, Debug)]
enum Junk {
    Random,
    Truncated,
    Flipped,
}

impl Junk {
    const ALL: [Self; 3] = [Self::Random, Self::Truncated, Self::Flipped];

    fn make(self, genuine: &[u8], generator: &mut Generator) -> Vec<u8> {
        let mut bytes = genuine.to_vec();
        let place = below(generator, bytes.len());
        match self {
            Self::Random => {
                bytes.resize(below(generator, 1_600), 0);
                generator.fill(&mut bytes);
            }
            Self::Truncated => bytes.truncate(place),
            Self::Flipped => bytes[place] ^= 1 << generator.below(8),
        }
        bytes
    }
}

fn below(generator: &mut Generator, bound: usize) -> usize {
    usize::try_from(generator.below(u64::try_from(bound).unwrap())).unwrap()
}

/// A player other than the mesh's own. The junk may break its flow.
fn victim() -> SocketAddr {
    address("203.0.112.7:4000")
}

/// A mesh that carries two players, and a tap of its traffic.
fn mesh(seed: u64) -> (Mesh, TapId) {
    let shape = Shape {
        // The player's rate limit is not under test.
        adjust: |_, config, _| config.flow_rate = u32::MAX,
        ..Shape::default()
    };
    let mut mesh = Mesh::new(Seed::from_number(seed), &shape);
    // From the first handshake on.
    let tap = mesh.world.tap_all(400_000);
    // The mesh's own player opens its flow first.
    mesh.run(START + 500);
    let entry = mesh.nodes[ENTRY];
    for _ in 0..20 {
        let peer_addr = PeerAddr {
            socket: SocketId(1),
            address: victim(),
        };
        mesh.world.apply(entry, |process, now| {
            process
                .node
                .handle_datagram(now, peer_addr.into(), &mut [3; 200]);
        });
        mesh.run(100);
    }
    (mesh, tap)
}

/// Captured datagrams to `to`, with their sources.
fn seen(mesh: &Mesh, tap: TapId, to: SocketAddr) -> Vec<(SocketAddr, Vec<u8>)> {
    mesh.world
        .captured(tap)
        .iter()
        .map(|captured| &captured.datagram)
        .filter(|datagram| datagram.destination == to && !datagram.bytes.is_empty())
        .map(|datagram| (datagram.source, datagram.bytes.clone()))
        .collect()
}

/// Number of frames, or other counted items, in a datagram at the mesh socket.
fn parts(mut datagram: Vec<u8>) -> u64 {
    let frames = Frames::new(&mut datagram).map_or(1, |frames| frames.count().max(1));
    u64::try_from(frames).unwrap()
}

/// Hands `COUNT` datagrams to the node with nothing else in between. Returns the change of `count`,
/// minus the frames beyond the first in each datagram.
fn attack(
    mesh: &mut Mesh,
    (index, junk): (usize, Junk),
    mut draw: impl FnMut(&mut Generator) -> (PeerAddr, Vec<u8>),
    count: impl Fn(&Process) -> u64,
) -> u64 {
    let number = 90 + u64::try_from(index).unwrap();
    let mut generator = mesh.seed.generator(number);
    mesh.world
        .apply(mesh.nodes[index], |process, now: Instant| {
            let (before, mut further) = (count(process), 0);
            for _ in 0..COUNT {
                let (peer_addr, genuine) = draw(&mut generator);
                let mut bytes = junk.make(&genuine, &mut generator);
                if peer_addr.socket == SocketId::MESH {
                    further += parts(bytes.clone()) - 1;
                }
                process
                    .node
                    .handle_datagram(now, peer_addr.into(), &mut bytes);
            }
            count(process) - before - further
        })
}

/// Asserts that the player is still served and no node uses more memory.
fn assert_well(mesh: &mut Mesh, what: impl core::fmt::Debug) {
    mesh.run(1_500);
    let now = mesh.now();
    let gap = mesh.player().gap(now.saturating_sub(ms(1_000)), now);
    assert!(gap < ms(50), "{what:?}: {gap:?}");
    assert_eq!(mesh.player().faults, 0, "{what:?}");
    for index in [ENTRY, EXIT, RELAY] {
        let memory = mesh.process(index).node.memory();
        assert!(memory < 16 << 20, "{what:?}: {memory}");
    }
}

#[test]
fn junk_at_the_mesh_socket_is_counted_by_reason() {
    let (mut mesh, tap) = mesh(1);
    for index in [ENTRY, EXIT, RELAY] {
        let seen = seen(&mesh, tap, mesh_address(index));
        let frames = seen.iter().filter(|(_, bytes)| bytes[0] == 0x81).count();
        assert!(frames > 50 && seen.len() - frames > 50, "both sides of it");
        for junk in Junk::ALL {
            let draw = |generator: &mut Generator| {
                let (source, bytes) = seen[below(generator, seen.len())].clone();
                let source = if generator.chance(500_000) {
                    source
                } else {
                    address("198.18.0.66:666")
                };
                (PeerAddr::mesh(source), bytes)
            };
            let opened = |process: &Process| {
                let stats = process.node.endpoint_stats();
                process.node.frame_stats().arrived + stats.packets + stats.sessions_opened
            };
            let before = opened(mesh.process(index));
            let counted = attack(&mut mesh, (index, junk), draw, |process| {
                let frames = process.node.frame_stats();
                frames.dropped() + process.node.endpoint_stats().datagrams_received()
            });
            assert_eq!(counted, COUNT, "{index} {junk:?}");
            assert_eq!(opened(mesh.process(index)), before, "{index} {junk:?}");
            assert_well(&mut mesh, (index, junk));
        }
        let stats = mesh.process(index).node.frame_stats();
        for (reason, count) in [
            ("truncated", stats.truncated),
            ("unknown kind", stats.unknown_kind),
            ("bad trunk", stats.bad_trunk),
            ("malformed", stats.malformed),
            ("unknown label", stats.unknown_label),
            ("wrong link", stats.wrong_link),
            ("wrong tag", stats.wrong_tag),
        ] {
            assert!(count > 0, "{index}: {reason} {stats:?}");
        }
    }
}

#[test]
fn junk_at_the_game_port_is_forwarded_or_counted_by_reason() {
    let (mut mesh, tap) = mesh(2);
    let seen = seen(&mesh, tap, game());
    for junk in Junk::ALL {
        let draw = |generator: &mut Generator| {
            let (_, bytes) = seen[below(generator, seen.len())].clone();
            let [_, _, high, low] = generator.next_u32().to_be_bytes();
            let source = if generator.chance(500_000) {
                victim()
            } else {
                SocketAddr::from(([198, 18, high, low], 4_000))
            };
            let peer_addr = PeerAddr {
                socket: SocketId(1),
                address: source,
            };
            (peer_addr, bytes)
        };
        let counted = attack(&mut mesh, (ENTRY, junk), draw, |process| {
            let stats = process.node.stats();
            stats.refused_players
                + stats.too_big
                + stats.early_dropped
                + stats.waited
                + stats.carried
                + stats.over_flow_rate
        });
        assert_eq!(counted, COUNT, "{junk:?}");
        mesh.run(3_000);
    }
    let stats = mesh.process(ENTRY).node.stats();
    assert!(
        stats.carried > 5_000 && stats.too_big > 300 && stats.waited > 0,
        "{stats:?}"
    );
    assert!(mesh.process(ENTRY).node.memory() < 512 << 20);
    // Every unknown sender is a player of an open game. The number of flows is the limit.
    let flows: usize = mesh
        .process(ENTRY)
        .node
        .routes()
        .map(|route| route.flows)
        .sum();
    assert!(flows <= 16_384, "{flows}");
}

#[test]
fn junk_at_an_upstream_socket_is_forwarded_or_counted_by_reason() {
    let (mut mesh, tap) = mesh(3);
    let socket = mesh.process(EXIT).upstream_socket();
    let seen = seen(&mesh, tap, mesh.process(EXIT).upstream());
    assert!(!seen.is_empty(), "the server answered the other player");
    for junk in Junk::ALL {
        let draw = |generator: &mut Generator| {
            let (_, bytes) = seen[below(generator, seen.len())].clone();
            let (socket, from) = match generator.below(3) {
                0 => (socket, server()),
                1 => (socket, address("198.18.0.66:666")),
                _ => (SocketId(generator.next_u32() | 1 << 20), server()),
            };
            let peer_addr = PeerAddr {
                socket,
                address: from,
            };
            (peer_addr, bytes)
        };
        let counted = attack(&mut mesh, (EXIT, junk), draw, |process| {
            let stats = process.node.stats();
            stats.strangers
                + stats.too_big
                + stats.early_dropped
                + stats.waited
                + stats.carried
                + stats.over_flow_rate
        });
        assert_eq!(counted, COUNT, "{junk:?}");
        assert_well(&mut mesh, junk);
    }
    let stats = mesh.process(EXIT).node.stats();
    assert!(
        stats.strangers > 15_000 && stats.carried > 5_000 && stats.too_big > 100,
        "{stats:?}"
    );
}

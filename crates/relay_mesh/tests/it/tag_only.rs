//! Links with frames that have a tag instead of encryption.

use netsim::{Chance, Loss, TapId, for_each_seed, test_site};
use relay_mesh::Config;
use relay_mesh::hop::HopKind;
use wire::{NodeId, Seed};

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, link, mesh_address, ms, shape};

pub(crate) fn all_tag_only(_: usize, config: &mut Config, _: &[NodeId]) {
    config.hop_kind = HopKind::TagOnly;
}

/// Kinds and lengths of the frames with the player's packets from one node to another.
fn frames(mesh: &Mesh, tap: TapId, from: usize, to: usize) -> Vec<(u8, usize)> {
    let mut frames: Vec<(u8, usize)> = mesh
        .world
        .captured(tap)
        .iter()
        .map(|captured| &captured.datagram)
        .filter(|datagram| {
            datagram.source == mesh_address(from) && datagram.destination == mesh_address(to)
        })
        // Probes and keepalives of labels are shorter.
        .filter(|datagram| datagram.bytes.len() >= 140)
        .filter_map(|datagram| Some((*datagram.bytes.first()?, datagram.bytes.len())))
        .filter(|(first, _)| matches!(first, 0x80 | 0x81))
        .collect();
    frames.sort_unstable();
    frames.dedup();
    frames
}

/// Kinds and lengths of the frames on both links of the first relay's path, for a game with packets
/// of 100 bytes.
fn on_the_way(adjust: fn(usize, &mut Config, &[NodeId])) -> [Vec<(u8, usize)>; 2] {
    let mut mesh = Mesh::new(Seed::from_number(1), &shape(adjust));
    let tap = mesh.world.tap_all(200_000);
    mesh.run(START + 2_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
    let answers = mesh.player().answers.len();
    assert!(answers > 60, "the game is carried: {answers}");
    assert_eq!(mesh.player().faults, 0);
    [
        frames(&mesh, tap, ENTRY, RELAY),
        frames(&mesh, tap, RELAY, EXIT),
    ]
}

#[test]
#[expect(clippy::print_stdout, reason = "a goal's figures are shown")]
fn mesh_f8_a_packet_is_longer_by_40_bytes_with_tags_only_and_48_sealed() {
    let (tag_only, sealed) = (on_the_way(all_tag_only), on_the_way(|_, _, _| {}));
    for (case, kind) in [("hop", &tag_only), ("sealed", &sealed)] {
        let longest = kind.iter().flatten().map(|(_, len)| len - 100).max();
        println!("figure: {case} bytes_around {}", longest.unwrap());
    }
    assert_eq!(tag_only, [[(0x80, 140)], [(0x80, 140)]]);
    assert_eq!(sealed, [[(0x81, 148)], [(0x81, 148)]]);
}

#[test]
fn hop_kind_applies_if_both_ends_have_it() {
    let sealed_entry = |index: usize, config: &mut Config, ids: &[NodeId]| {
        all_tag_only(index, config, ids);
        if index == ENTRY {
            config.hop_kind = HopKind::Sealed;
        }
    };
    assert_eq!(on_the_way(sealed_entry), [[(0x81, 148)], [(0x80, 140)]]);
}

#[test]
fn hop_kinds_overrides_hop_kind_for_named_neighbours() {
    let but_for_one = |index: usize, config: &mut Config, ids: &[NodeId]| {
        all_tag_only(index, config, ids);
        if index == RELAY {
            config.hop_kinds.insert(ids[EXIT], HopKind::Sealed);
        }
    };
    assert_eq!(on_the_way(but_for_one), [[(0x80, 140)], [(0x81, 148)]]);
    let one_alone = |index: usize, config: &mut Config, ids: &[NodeId]| match index {
        RELAY => _ = config.hop_kinds.insert(ids[EXIT], HopKind::TagOnly),
        EXIT => _ = config.hop_kinds.insert(ids[RELAY], HopKind::TagOnly),
        _ => {}
    };
    assert_eq!(on_the_way(one_alone), [[(0x81, 148)], [(0x80, 140)]]);
}

#[test]
fn sim_tag_only_links_carry_a_game_over_loss_and_the_death_of_a_relay() {
    for_each_seed(&test_site!(), 3, |seed| {
        let mut mesh = Mesh::new(seed, &shape(all_tag_only));
        let nodes = mesh.nodes.clone();
        let lossy = |delay| link(delay).with_loss(Loss::Bernoulli(Chance::per_million(20_000)));
        for (relay, half) in nodes[RELAY..].iter().zip([15, 20, 30]) {
            mesh.world.set_links(nodes[ENTRY], *relay, lossy(half));
            mesh.world.set_links(*relay, nodes[EXIT], lossy(half));
        }
        mesh.run(START + 3_000);
        let at = mesh.now();
        let used = mesh.route().and_then(|path| path.relays.first().copied());
        let used = used.and_then(|relay| mesh.ids.iter().position(|id| *id == relay));
        mesh.kill(used.expect("a path over a relay is the best"));
        mesh.run(4_000);
        assert!(mesh.player().gap(at, mesh.now()) <= ms(600), "it goes on");
        assert_eq!(mesh.player().faults, 0, "no byte was altered");
        assert_eq!(mesh.process(ENTRY).closed_flows(), []);
        let exit = mesh.process(EXIT).node.frame_stats();
        assert!(exit.arrived > 200 && exit.wrong_tag == 0, "{exit:?}");
    });
}

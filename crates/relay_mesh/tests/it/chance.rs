//! Datagrams lost by chance, as on any long line, and datagrams lost for a reason.

use netsim::{Chance, Loss, Verdict, for_each_seed, test_site};
use relay_mesh::{Mode, RouteCause};
use wire::Seed;

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, link, ms};

/// Every line between nodes loses 2 of 1,000 datagrams. The second relay's lines are `gap` ms
/// longer than the first's, so its round trip is longer by four times that.
fn lossy(mesh: &mut Mesh, gap: u64) {
    let lossy = |delay| link(delay).with_loss(Loss::Bernoulli(Chance::per_million(2_000)));
    let nodes = mesh.nodes.clone();
    mesh.world.set_links(nodes[ENTRY], nodes[EXIT], lossy(80));
    for (relay, half) in nodes[RELAY..].iter().zip([15, 15 + gap, 30]) {
        mesh.world.set_links(nodes[ENTRY], *relay, lossy(half));
        mesh.world.set_links(*relay, nodes[EXIT], lossy(half));
    }
}

#[test]
fn sim_packets_stay_on_the_best_path_although_each_line_loses_2_of_1000() {
    // For each extra delay of the second relay in ms: the most moves in a minute, and in how many
    // of 100 samples at least the best path is in use. Both over all seeds.
    for (gap, moves_max, best_min) in [(5, 1, 97), (2, 1, 70)] {
        let (mut best, mut moments, mut moves, mut seeds) = (0, 0, 0, 0);
        // With only three seeds the share varies by several percent.
        for_each_seed(&test_site!(), 6, |seed| {
            let mut mesh = Mesh::new(seed, &Shape::default());
            lossy(&mut mesh, gap);
            mesh.run(START + 2_000);
            let (at, over_first) = (mesh.now(), mesh.path(&[RELAY]));
            for _ in 0..600 {
                mesh.run(200);
                moments += 1;
                best += u32::from(mesh.route().as_ref() == Some(&over_first));
            }
            moves += mesh.moves(ENTRY, at).len();
            seeds += 1;
        });
        assert!(
            best * 100 >= moments * best_min,
            "{best} of {moments} moments"
        );
        assert!(
            moves <= moves_max * 2 * seeds,
            "{moves} moves in {seeds} runs"
        );
    }
}

#[test]
fn sim_pgx5_loss_in_one_direction_does_not_count_for_the_other() {
    for_each_seed(&test_site!(), 6, |seed| {
        let mut mesh = Mesh::new(seed, &Shape::default());
        // The direct path is the best. The first relay makes it 20 ms longer, and the second 40 ms.
        let nodes = mesh.nodes.clone();
        mesh.world.set_links(nodes[ENTRY], nodes[EXIT], link(20));
        mesh.run(START + 4_000);
        let at = mesh.now();
        let (entry, exit) = (nodes[ENTRY].index(), nodes[EXIT].index());
        mesh.world.change_links(&[entry], &[exit], |link| {
            link.with_delay(ms(120))
                .with_loss(Loss::Bernoulli(Chance::percent(30)))
        });
        mesh.run(12_000);
        for end in [ENTRY, EXIT] {
            let moves = mesh.moves(end, at);
            let relays: Vec<_> = moves.iter().map(|(_, to, _)| &to.relays).collect();
            assert_eq!(relays, [&[mesh.ids[RELAY]]], "{moves:?}");
        }
    });
}

/// A stream would hold later data back until the retransmission arrives: P21.
#[test]
fn pg9_pgd_p21_a_lost_datagram_delays_no_later_one() {
    let shape = Shape {
        mode: Mode::Single,
        ..Shape::default()
    };
    let mut mesh = Mesh::new(Seed::from_number(1), &shape);
    mesh.run(START + 2_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
    let (at, missing) = (mesh.now(), mesh.player().missing());
    let (relay, exit) = (mesh.nodes[RELAY], mesh.nodes[EXIT]);
    let mut passed = 0;
    mesh.world.intercept(relay, exit, move |_, datagram| {
        // The player's datagrams are longer than path probes.
        passed += u32::from(datagram.bytes.len() > 140);
        if datagram.bytes.len() > 140 && passed <= 300 && passed % 60 == 0 {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    });
    mesh.run(8_000);
    assert_eq!(mesh.player().missing(), missing + 5);
    let answers = mesh.player().answers.iter();
    let trips: Vec<_> = answers
        .filter(|(_, sent, _)| *sent >= at)
        .map(|(_, sent, came)| came.saturating_since(*sent))
        .collect();
    assert!(trips.len() > 450, "{}", trips.len());
    let (least, most) = (trips.iter().min().unwrap(), trips.iter().max().unwrap());
    assert!(*most <= *least + ms(1), "{least:?} to {most:?}");
}

#[test]
fn sim_a_path_that_loses_without_delay_is_left() {
    for mode in [Mode::Single, Mode::Shadow] {
        for_each_seed(&test_site!(), 3, |seed| {
            let shape = Shape {
                mode,
                ..Shape::default()
            };
            let mut mesh = Mesh::new(seed, &shape);
            mesh.run(START + 2_000);
            assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
            let at = mesh.now();
            // Link probes do not detect this: the relay answers them, but drops the frames it
            // should forward.
            let (relay, exit) = (mesh.nodes[RELAY], mesh.nodes[EXIT]);
            let mut passed = 0;
            mesh.world.intercept(relay, exit, move |_, datagram| {
                let is_hop = datagram.bytes.first() == Some(&0x81);
                passed += u32::from(is_hop);
                if is_hop && passed % 4 == 0 {
                    Verdict::Drop
                } else {
                    Verdict::Pass
                }
            });
            mesh.run(60_000);
            let moves = mesh.moves(ENTRY, at);
            let (when, to, cause) = &moves[0];
            assert_eq!(*cause, RouteCause::Degraded);
            assert_eq!(*to, mesh.path(&[RELAY + 1]));
            assert!(when.saturating_since(at) <= ms(3_000), "{mode:?} {when:?}");
            assert!(moves.len() <= 5, "{mode:?} {moves:?}");
        });
    }
}

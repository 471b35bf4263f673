//! Datagrams that are lost by chance, as all long lines lose some.

use netsim::{Chance, Loss, for_each_seed, test_site};
use wire::Seed;

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, link, ms};

#[test]
fn packets_stay_on_the_best_path_although_each_line_loses_2_of_1000() {
    let (mut best, mut all) = (0, 0);
    for seed in 200..210 {
        let mut mesh = Mesh::new(Seed::from_number(seed), &Shape::default());
        let nodes = mesh.nodes.clone();
        let lossy = |delay| link(delay).with_loss(Loss::Bernoulli(Chance::per_million(2_000)));
        mesh.world.set_links(nodes[ENTRY], nodes[EXIT], lossy(80));
        for (relay, half) in nodes[RELAY..].iter().zip([15, 20, 30]) {
            mesh.world.set_links(nodes[ENTRY], *relay, lossy(half));
            mesh.world.set_links(*relay, nodes[EXIT], lossy(half));
        }
        mesh.run(START + 2_000);
        let over_first = mesh.path(&[RELAY]);
        for _ in 0..600 {
            mesh.run(200);
            all += 1;
            best += u32::from(mesh.route().as_ref() == Some(&over_first));
        }
    }
    assert!(best * 100 >= all * 90, "{best} of {all} moments");
}

#[test]
fn sim_a_path_is_not_blamed_for_what_the_way_back_loses() {
    for_each_seed(&test_site!(), 10, |seed| {
        let mut mesh = Mesh::new(seed, &Shape::default());
        // The direct way is the best; over the first relay it is 20 ms longer, over the next 40.
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

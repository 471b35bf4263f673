//! A player's losses on lossy lines, and when its path gets worse.

use netsim::{Chance, Loss, for_each_seed, test_site};
use relay_mesh::{Mode, RouteCause};
use wire::Seed;

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, ms};

/// How many datagrams have no answer, and of how many, if each path loses 5 %.
fn missing(seed: Seed, mode: Mode) -> (u64, u64) {
    let shape = Shape {
        mode,
        ..Shape::default()
    };
    let mut mesh = Mesh::new(seed, &shape);
    mesh.run(START + 4_000);
    let [entry, exit] = [ENTRY, EXIT].map(|end| mesh.nodes[end].index());
    let relays: Vec<_> = mesh.nodes[RELAY..].iter().map(|it| it.index()).collect();
    // Per half of a path over a relay. Both halves together lose 5 %.
    let half = Loss::Bernoulli(Chance::per_million(25_320));
    let whole = Loss::Bernoulli(Chance::percent(5));
    for end in [entry, exit] {
        for (from, to) in [(vec![end], relays.clone()), (relays.clone(), vec![end])] {
            mesh.world
                .change_links(&from, &to, |link| link.with_loss(half));
        }
    }
    for (from, to) in [(entry, exit), (exit, entry)] {
        mesh.world
            .change_links(&[from], &[to], |link| link.with_loss(whole));
    }
    let first = mesh.player().sent();
    mesh.run(60_000);
    let sent = mesh.player().sent() - first;
    mesh.stop_player();
    mesh.run(1_000);
    assert_eq!(mesh.player().faults, 0, "each comes once");
    let missing = u64::try_from(mesh.player().missing_from(first)).unwrap();
    (missing, sent)
}

/// Both directions lose. By chance, 9.75 % of round trips fail over one path and 0.5 % over two,
/// though a path is sometimes abandoned for its losses.
#[test]
fn sim_pgx4_two_paths_that_lose_a_twentieth_each_lose_a_400th_together() {
    let (mut single, mut dup, mut all) = (0, 0, 0);
    for_each_seed(&test_site!(), 3, |seed| {
        let (one, sent) = missing(seed, Mode::Single);
        let (two, _) = missing(seed, Mode::Dup);
        single += one;
        dup += two;
        all += sent;
    });
    eprintln!("of {all} round trips single misses {single}, dup {dup}");
    assert!(single * 1_000 > 80 * all, "{single} of {all}");
    assert!(dup * 1_000 < 8 * all, "{dup} of {all}");
}

#[test]
fn sim_pgx2_a_path_that_gets_100_ms_longer_is_left_and_nothing_is_lost() {
    for_each_seed(&test_site!(), 4, |seed| {
        let mut mesh = Mesh::new(seed, &Shape::default());
        mesh.run(START + 4_000);
        assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
        let (at, first) = (mesh.now(), mesh.player().sent() - 60);
        let ends = [ENTRY, EXIT].map(|end| mesh.nodes[end].index());
        let relay = mesh.nodes[RELAY].index();
        mesh.world
            .change_links(&[relay], &ends, |link| link.with_delay(ms(65)));
        mesh.world
            .change_links(&ends, &[relay], |link| link.with_delay(ms(65)));
        mesh.run(20_000);
        for end in [ENTRY, EXIT] {
            let moves = mesh.moves(end, at);
            let [(when, _, cause)] = &moves[..] else {
                panic!("one move, and none back: {moves:?}");
            };
            assert_eq!(*cause, RouteCause::Degraded);
            assert!(when.saturating_since(at) <= ms(3_000), "{when:?}");
        }
        assert_eq!(mesh.process(ENTRY).closed_flows(), []);
        let gap = mesh.player().gap(at, mesh.now());
        // The increase of the path's round trip, plus one packet interval.
        assert!(gap <= ms(230), "{gap:?}");
        mesh.stop_player();
        mesh.run(1_000);
        assert_eq!(mesh.player().missing_from(first), 0);
        assert_eq!(mesh.player().faults, 0);
    });
}

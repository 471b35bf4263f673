//! Thousands of flows between ends that cannot reach each other directly.

use core::time::Duration;

use netsim::{Handle, for_each_seed, test_site};
use relay_mesh::Mode;
use wire::Instant;

use crate::detour::part;
use crate::harness::{ENTRY, EXIT, Mesh, START, Shape, link, ms, shape};
use crate::many_players::{ManyPlayers, gather, gather_more};

/// The time until `count` players that arrive within 2 s are served, while a thousand others play.
fn serve(seed: wire::Seed, count: u32) -> Duration {
    let mut mesh = Mesh::new(seed, &shape(|_, _, _| {}));
    part(&mut mesh);
    mesh.run(12_000);
    let playing = gather(&mut mesh, 1_000, ms(1_000));
    mesh.run(6_000);
    assert_eq!(mesh.world[playing].served(), 1_000);
    let settled = mesh.now().saturating_sub(ms(500));
    let lost = mesh.world[playing].unanswered(Instant::ZERO, settled);
    assert_eq!(lost, 0, "newcomers within the limits lose nothing");
    let began = mesh.now();
    let many_players = gather_more(&mut mesh, 1_000..1_000 + count, ms(2_000));
    let all = usize::try_from(count).unwrap();
    while mesh.world[many_players].served() < all {
        mesh.run(100);
        let took = mesh.now().saturating_since(began);
        let served = mesh.world[many_players].served();
        assert!(took <= Duration::from_secs(10), "{served} after {took:?}");
    }
    let took = mesh.now().saturating_since(began);
    mesh.run(1_000);
    // Datagrams sent half a second ago must have been answered.
    let settled = mesh.now().saturating_sub(ms(500));
    let lost = |of: Handle<ManyPlayers>, from| mesh.world[of].unanswered(from, settled);
    assert_eq!(lost(playing, began), 0, "who plays notices nothing");
    assert_eq!(mesh.process(ENTRY).closed_flows(), []);
    took
}

#[test]
#[expect(clippy::print_stdout, reason = "a goal's figures are shown")]
fn sim_ten_thousand_flows_start_over_a_relay_and_disturb_none() {
    for_each_seed(&test_site!(), 1, |seed| {
        let [few, many] = [2_500, 10_000].map(|count| serve(seed, count));
        println!("figure: flows_over_a_detour 2500_ms {}", few.as_millis());
        println!("figure: flows_over_a_detour 10000_ms {}", many.as_millis());
        // The arrival itself takes 2 s.
        assert!(many <= few * 4, "{few:?} {many:?}");
    });
}

/// A newcomer's first datagram and its answer travel over the session.
#[test]
fn sim_the_first_datagram_of_a_player_waits_for_no_label() {
    for_each_seed(&test_site!(), 4, |seed| {
        // One way: 5 + 80 + 1 ms directly, 5 + 30 + 1 ms over the relay.
        for (is_parted, way) in [(false, 86), (true, 36)] {
            let mut mesh = Mesh::new(seed, &shape(|_, _, _| {}));
            if is_parted {
                part(&mut mesh);
            }
            mesh.stop_player();
            mesh.run(START + 15_000);
            let began = mesh.now();
            let many_players = gather(&mut mesh, 1, ms(60_000));
            mesh.run(1_000);
            let first = mesh.world[many_players].first_answer();
            let took = first.expect("an answer").saturating_since(began);
            assert!(took <= ms(2 * way + 5), "{is_parted} {took:?}");
        }
    });
}

/// The ends are 1 ms apart and the server never answers, so only the opening of a flow makes the
/// entry request labels.
#[test]
fn sim_players_that_join_in_a_row_get_labels_though_no_server_answers() {
    for_each_seed(&test_site!(), 4, |seed| {
        let near = Shape {
            relays: 1,
            mode: Mode::Single,
            ..Shape::default()
        };
        let mut mesh = Mesh::new(seed, &near);
        let (entry, exit) = (mesh.nodes[ENTRY], mesh.nodes[EXIT]);
        mesh.world.set_links(entry, exit, link(1));
        assert!(mesh.world.kill(mesh.server));
        mesh.stop_player();
        mesh.run(START);
        // One per millisecond. One message opens the flows of 10 ms.
        gather(&mut mesh, 400, ms(400));
        mesh.run(5_000);
        let before = *mesh.process(ENTRY).node.stats();
        mesh.run(5_000);
        let after = mesh.process(ENTRY).node.stats();
        assert_eq!(after.early_dropped, before.early_dropped);
        assert!(after.carried > before.carried + 4_000);
    });
}

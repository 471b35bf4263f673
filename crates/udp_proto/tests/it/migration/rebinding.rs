//! A NAT that rebinds its client many times in a row.

use core::net::SocketAddr;
use core::time::Duration;

use netsim::LinkConfig;
use wire::Seed;

use super::Game;

/// Longest time without an answer in ms, over ten port rebindings, one every `span` ms; and whether
/// the server follows the last.
fn longest_gap(seed: u64, span: u64) -> (u64, bool) {
    let link = LinkConfig::default().with_delay(Duration::from_millis(50));
    let mut game = Game::new(Seed::from_number(seed), link);
    game.run(1_000);
    game.longest_gap = 0;
    let mut last = game.nat.public();
    for port in 50_001..=50_010 {
        last = SocketAddr::new(last.ip(), port);
        game.nat.rebind(last);
        game.run(span);
    }
    game.run(3_000);
    (game.longest_gap, game.nat.peer_address() == Some(last))
}

#[test]
fn sim_ten_rebindings_in_a_row_cost_no_gap_of_a_second_at_100_ms() {
    for span in [
        200, 300, 400, 550, 700, 850, 1_000, 1_200, 1_500, 2_500, 5_000,
    ] {
        for seed in 0..4 {
            let (gap, follows) = longest_gap(seed, span);
            println!("each {span} ms, seed {seed}: {gap} ms");
            assert!(gap <= 1_000 && follows, "each {span} ms: {gap} ms");
        }
    }
}

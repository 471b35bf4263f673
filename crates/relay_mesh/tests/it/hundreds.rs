//! Whole nodes by the dozen and by the hundred, more of them than a node has places for links.
//!
//! `NODES` in the environment says how many nodes there are where a test does not ask for few.

mod crowd;

use netsim::{for_each_seed, test_site};

use self::crowd::Crowd;

/// Places of a node in small worlds.
const FEW: usize = 16;

#[test]
fn sim_pgx13_forty_nodes_of_16_links_each_are_one_network() {
    for_each_seed(&test_site!(), 1, |seed| {
        let mut crowd = Crowd::new(seed, 40, FEW);
        crowd.run_checked(60);
        crowd.show("40 nodes");
        crowd.assert_all_known();
        crowd.assert_joined(4);
        crowd.assert_game();
    });
}

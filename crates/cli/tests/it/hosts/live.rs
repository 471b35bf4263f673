//! Kills, cuts, losses, and a bootstrap node that restarts.

use std::time::Duration;

use daemon::relay::{Mode, ProcessEvent};

use super::{BOOTSTRAP, ENTRY, EXIT, FAR, NEAR, Testbed};
use crate::mesh_node::PATIENCE;

const SECOND: Duration = Duration::from_secs(1);
/// Longest stall of a loaded machine.
const SILENCE_MAX: Duration = Duration::from_secs(10);

#[test]
#[ignore = "needs ip, nft"]
fn pg2_pgx3_play_survives_kills_cuts_losses_and_a_restart() {
    let _alone = crate::alone();
    let Some(mut testbed) = Testbed::new(Mode::Shadow) else {
        return;
    };
    testbed.start_all();
    let (near, remote) = (testbed.id(NEAR), testbed.id(FAR));
    testbed.play_until(|relays| relays == [near]);
    let calm = testbed.play(3 * SECOND);
    eprintln!("over the near relay: {calm:?}");
    assert!(calm.answered * 2 > calm.asked, "{calm:?}");

    // The bootstrap node is no longer needed.
    testbed.kill(BOOTSTRAP);
    let without = testbed.play(3 * SECOND);
    eprintln!("without the bootstrap node: {without:?}");
    assert!(without.answered * 2 > without.asked, "{without:?}");
    testbed.start(BOOTSTRAP);
    testbed.wait_for_links(BOOTSTRAP, 4);

    // One link loses a quarter.
    testbed.network.lose(EXIT, NEAR, 25);
    let took = testbed.play_until(|relays| relays == [remote]);
    eprintln!("25 % lost between near relay and exit: left after {took:?}");
    testbed.network.lose_no_more(EXIT);

    // One link is cut between entry and far relay.
    testbed.network.cut(ENTRY, FAR);
    let (took, cut) = (
        testbed.play_until(|relays| relays != [remote]),
        testbed.play(SECOND),
    );
    eprintln!("cut between entry and far relay: left after {took:?}; then {cut:?}");
    assert!(cut.answered > 0, "{cut:?}");
    testbed.network.mend(ENTRY, FAR);

    // The near relay recovers and is used again; then it is killed.
    testbed.play_until(|relays| relays == [near]);
    testbed.play(SECOND);
    testbed.kill(NEAR);
    let killed = testbed.play(3 * SECOND);
    eprintln!("near relay killed: {killed:?}");
    assert!(killed.silence < SILENCE_MAX, "{killed:?}");
    let route = testbed.look().unwrap();
    assert!(!route.contains(&near), "{route:?}");
    let closed = testbed.node(EXIT).events();
    let closed = closed.filter(|news| matches!(news, ProcessEvent::FlowClosed { .. }));
    assert_eq!(closed.count(), 0, "the player's flow lived through it all");
    let status = testbed.nodes[ENTRY].as_mut().unwrap().stop(PATIENCE);
    assert!(status.unwrap().unwrap().success());
}

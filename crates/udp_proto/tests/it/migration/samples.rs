//! RTT samples of the old path do not count on the new one.

use core::time::Duration;

use udp_proto::Config;

use crate::harness::{UNRELIABLE, address};
use crate::link::Link;

const OLD: Duration = Duration::from_millis(10);
const NEW: Duration = Duration::from_millis(100);

/// A phone on two networks now sends over the slower one, and still receives over the faster one
/// what was sent there before the server migrated: half of such a round trip belongs to the old
/// path.
#[test]
fn twp_t4_packets_from_before_a_migration_give_no_samples() {
    let mut link = Link::new(41, Config::default(), |_, _| false);
    let first_address = link.line.client.at;
    let migrated = address("198.51.100.20:4100");
    assert_ne!(first_address.ip(), migrated.ip());
    link.delay = |_, at| {
        if at == address("198.51.100.20:4100") {
            NEW
        } else {
            OLD
        }
    };
    link.run(500);
    let (mine, theirs) = (link.dialled().unwrap(), link.accepted().unwrap());
    let mut moved_for = 0;
    for tick in 0..120 {
        if tick == 20 {
            link.line.client.at = migrated;
        }
        let now = link.line.now;
        let (client, server) = (&mut link.line.client, &mut link.line.server);
        client.machine.send(now, mine, UNRELIABLE, b"up").unwrap();
        server
            .machine
            .send(now, theirs, UNRELIABLE, b"down")
            .unwrap();
        link.run(16);
        let server = &link.line.server.machine;
        if server.peer_address(theirs) != Some(migrated) {
            continue;
        }
        moved_for += 1;
        let stats = server.session_stats(theirs).unwrap();
        assert!(stats.rtt_min >= 2 * NEW, "{:?} at {tick}", stats.rtt_min);
        assert!(stats.rtt >= 2 * NEW, "{:?} at {tick}", stats.rtt);
    }
    assert!(moved_for > 60, "{moved_for}");
    assert_eq!(link.closes(), []);
}

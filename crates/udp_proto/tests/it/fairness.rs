//! How channels share the packets in flight if more is queued than fits.

use core::time::Duration;

use netsim::{Handle, LinkConfig};
use udp_proto::{ChannelConfig, ChannelId, ChannelTable, Endpoint, Listen, SessionId};
use wire::Seed;

use crate::direct::without_rate_limits;
use crate::harness::{Peer, SERVER, Testbed, address};

const FIRST: ChannelId = ChannelId(0);
const LAST: ChannelId = ChannelId(1);

/// Channel 0 has the highest priority; 1 has a lower one of its own.
fn testbed(
    first: ChannelConfig,
    (last, level): (ChannelConfig, u8),
) -> (Testbed, Handle<Peer>, SessionId) {
    let mut rows = [first, last];
    for (row, priority) in rows.iter_mut().zip([0, level]) {
        row.priority = udp_proto::channel::Priority::new(priority).unwrap();
        row.queue_bytes_max = 1 << 20;
        row.ttl = Duration::from_secs(5);
    }
    let mut config = without_rate_limits();
    config.channels = ChannelTable::new(&rows).unwrap();
    config.receive_window = 64 << 20;
    let shape = |listen: Listen| listen.with_open_mode();
    let mut testbed = Testbed::with(Seed::from_number(1), config.clone(), shape);
    let link = LinkConfig::default().with_delay(Duration::from_millis(500));
    testbed.world.set_default_link(link);
    let client = testbed.client_with(config);
    let unix = testbed.world.unix_now();
    let credentials = testbed.keys.token(unix, 1, address(SERVER));
    let session = testbed.dial(client, credentials);
    testbed.run(1_500);
    assert_eq!(testbed.log(client).sessions(), [session]);
    (testbed, client, session)
}

/// One-packet messages, 8,000 per second for `millis`: eight times what fits in flight.
fn flood(
    testbed: &mut Testbed,
    client: Handle<Peer>,
    session: SessionId,
    channels: &[ChannelId],
    millis: u32,
) {
    for _ in 0..millis {
        for _ in 0..8 {
            for channel in channels {
                testbed.world.apply(client, |host, now| {
                    let machine: &mut Endpoint<_> = &mut host.machine;
                    // A flood fills the queue.
                    machine.send(now, session, *channel, &[0; 1_100]).ok();
                });
            }
        }
        testbed.run(1);
    }
}

fn came(testbed: &Testbed, channel: ChannelId) -> usize {
    let server = testbed.log(testbed.server);
    server
        .messages
        .iter()
        .filter(|(_, by, _)| *by == channel)
        .count()
}

#[test]
fn a_flood_of_unreliable_messages_leaves_room_for_reliable_ones() {
    for reliable in [
        ChannelConfig::reliable_ordered(),
        ChannelConfig::reliable_unordered(),
    ] {
        let (mut testbed, client, session) = testbed(ChannelConfig::unreliable(), (reliable, 7));
        flood(&mut testbed, client, session, &[FIRST], 400);
        testbed.send(client, session, LAST, b"in spite of it");
        flood(&mut testbed, client, session, &[FIRST], 490);
        assert_eq!(came(&testbed, LAST), 0, "half a second under way");
        flood(&mut testbed, client, session, &[FIRST], 20);
        assert_eq!(came(&testbed, LAST), 1, "it waited for the flood");
    }
}

#[test]
fn small_unreliable_messages_do_not_use_up_the_record_of_contents_either() {
    let (mut testbed, client, session) = testbed(
        ChannelConfig::sequenced(),
        (ChannelConfig::reliable_ordered(), 7),
    );
    for _ in 0..300 {
        for _ in 0..90 {
            testbed.send(client, session, FIRST, &[]);
        }
        testbed.run(1);
    }
    testbed.send(client, session, LAST, b"in spite of it");
    testbed.run(510);
    assert_eq!(came(&testbed, LAST), 1);
}

#[test]
fn two_floods_share_three_quarters_to_a_quarter_by_priority() {
    let (mut testbed, client, session) = testbed(
        ChannelConfig::unreliable(),
        (ChannelConfig::reliable_ordered(), 1),
    );
    flood(&mut testbed, client, session, &[FIRST, LAST], 6_000);
    let (first, last) = (came(&testbed, FIRST), came(&testbed, LAST));
    // Six flights of 1,024 were sent, one RTT of a second apart, and five or six arrived.
    assert!((768 * 5..=768 * 6).contains(&first), "{first}, {last}");
    assert!((256 * 5..=256 * 7).contains(&last), "{first}, {last}");
}

/// Bulk has no share of the room that realtime messages use, except two packets.
#[test]
fn bulk_under_a_flood_without_a_rate_still_moves() {
    let (mut testbed, client, session) =
        testbed(ChannelConfig::unreliable(), (ChannelConfig::bulk(), 7));
    flood(&mut testbed, client, session, &[FIRST], 2_000);
    let before = came(&testbed, LAST);
    flood(&mut testbed, client, session, &[FIRST, LAST], 6_000);
    let bulk = came(&testbed, LAST) - before;
    assert!((8..=1_500).contains(&bulk), "{bulk}");
}

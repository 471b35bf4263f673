//! Path MTU discovery.

use core::time::Duration;

use netsim::LinkConfig;
use udp_proto::{Config, Mtu, MtuSearch};

use super::lane::{BULK, GAME, Lane, config};

fn searching() -> Config {
    let mut config = config();
    config.mtu_search = MtuSearch::On;
    config
}

/// A path with this link MTU, of which IPv6 takes 40 bytes and UDP 8.
fn over_ipv6(link: usize) -> LinkConfig {
    LinkConfig::default()
        .with_delay(Duration::from_millis(10))
        .with_mtu(link - 48)
}

fn mtu(lane: &Lane) -> u16 {
    lane.stats(0).mtu
}

#[test]
fn u14_mtu_search_finds_the_mtu_of_each_direction() {
    assert_eq!(Mtu::MAX.get(), 1_500 - 48);
    assert!(Mtu::MIN.get() <= 1_280 - 48, "the least link of IPv6");
    for (up, ours) in [
        (1_280, 1_200),
        (1_328, 1_280),
        (1_399, 1_280),
        (1_400, 1_352),
        (1_500, 1_452),
    ] {
        for (down, theirs) in [(1_280, 1_200), (1_500, 1_452)] {
            let links = [over_ipv6(up), over_ipv6(down)];
            let mut lane = Lane::new(up as u64, 1, &searching(), links);
            lane.play(4_000, &[0]);
            let server = lane.testbed.server;
            let session = lane.testbed.log(server).sessions()[0];
            let machine = &lane.testbed.peer(server).machine;
            let there = machine.session_stats(session).unwrap().mtu;
            assert_eq!((mtu(&lane), there), (ours, theirs), "{up} and {down}");
            // Only MTU probes were too long.
            let too_long = lane
                .testbed
                .world
                .link_stats(lane.clients[0].0, server)
                .too_long;
            assert_eq!(too_long, if ours == 1_452 { 0 } else { 3 }, "{up}");
            assert!(lane.count(BULK, wire::Instant::ZERO) > 100);
        }
    }
}

#[test]
fn u14_without_mtu_search_no_longer_datagram_than_configured_is_sent() {
    let links = [over_ipv6(1_280), over_ipv6(1_500)];
    let mut lane = Lane::new(1, 1, &config(), links);
    lane.play(2_000, &[0]);
    let stats = lane
        .testbed
        .world
        .link_stats(lane.clients[0].0, lane.testbed.server);
    assert_eq!((mtu(&lane), stats.too_long), (1_200, 0));
}

/// The ends may differ in what they probe and send.
#[test]
fn u14_each_end_sends_by_its_own_configuration() {
    let mut lane = Lane::new(2, 0, &config(), [over_ipv6(1_500), over_ipv6(1_500)]);
    lane.add_client(1, searching());
    lane.play(3_000, &[0]);
    let server = lane.testbed.server;
    let session = lane.testbed.log(server).sessions()[0];
    let machine = &lane.testbed.peer(server).machine;
    assert_eq!(machine.session_stats(session).unwrap().mtu, 1_200);
    assert_eq!(mtu(&lane), 1_452);
}

/// The path MTU drops without a notice (RFC 8899, section 4.3); later it grows again.
#[test]
fn u14_a_black_hole_costs_little_and_is_tried_again_after_a_minute() {
    let wide = over_ipv6(1_500);
    let mut lane = Lane::new(3, 1, &searching(), [wide, wide]);
    // Three in a packet of 1,452 bytes.
    lane.bulk_len = 420;
    lane.play(3_000, &[0]);
    assert_eq!(mtu(&lane), 1_452);
    let narrow = over_ipv6(1_300);
    lane.set_path(narrow, narrow);
    let since = lane.now();
    lane.play(2_000, &[0]);
    assert_eq!(mtu(&lane), 1_200);
    lane.play(2_000, &[0]);
    assert!(lane.count(BULK, since) * 420 > 1_000_000, "it goes on");
    assert!(lane.ways(GAME, since).len() > 200);
    lane.play(54_000, &[]);
    lane.set_path(wide, wide);
    assert_eq!(mtu(&lane), 1_200);
    lane.play(4_000, &[]);
    assert_eq!(mtu(&lane), 1_452);
}

#[test]
fn u14_a_search_below_the_maximum_repeats_after_ten_minutes() {
    let narrow = over_ipv6(1_340);
    let mut lane = Lane::new(4, 1, &searching(), [narrow, narrow]);
    lane.play(4_000, &[]);
    assert_eq!(mtu(&lane), 1_280);
    let wide = over_ipv6(1_500);
    lane.set_path(wide, wide);
    lane.testbed.run(590_000);
    assert_eq!(mtu(&lane), 1_280);
    lane.testbed.run(15_000);
    assert_eq!(mtu(&lane), 1_452);
}

//! An idle session drops its expanded keys; a peer that sends often does not defeat that.

use core::time::Duration;

use udp_proto::Config;

use crate::authenticated::Scenario;
use crate::direct::Sent;
use crate::harness::address;

/// 100 PINGs per second for 20 s. Each must be opened and about each third answered, but with a
/// keepalive of a second the session expands its keys twice in that time, not for each answer.
#[test]
fn pings_at_an_idle_session_expand_keys_at_most_twice_a_keepalive() {
    let mut scenario = Scenario::open_with(61, Config::default());
    let (mut drops, mut answers, mut acked) = (0, 0, [0, 0]);
    let mut before = scenario.server().machine.memory();
    for _ in 0..2_000 {
        scenario.line.now += Duration::from_millis(10);
        let now = scenario.line.now;
        let ack = [0x02, acked[0], acked[1], 0, 0, 0, 0, 0x01];
        let packet = scenario.session.packet(&ack);
        let server = &mut scenario.line.server;
        server.wake(now);
        server.take(now, address(crate::direct::CLIENT), &packet);
        for Sent { bytes, .. } in server.drain(now) {
            answers += 1;
            acked = [bytes[5], bytes[6]];
        }
        let memory = server.machine.memory();
        drops += usize::from(memory < before);
        before = memory;
    }
    assert_eq!(scenario.end(), None);
    assert!(answers > 400, "{answers}");
    assert!((20..=41).contains(&drops), "{drops}");
}

/// 1,000 per second for 10 s; none opens.
#[test]
fn forged_packets_expand_an_idle_key_twice_a_keepalive_and_get_no_answer() {
    let mut scenario = Scenario::open_with(62, Config::default());
    let client = address(crate::direct::CLIENT);
    let (mut acked, mut least) = ([0, 0], usize::MAX);
    let mut expansions = 0;
    for milli in 1..=15_000 {
        scenario.line.now += Duration::from_millis(1);
        let now = scenario.line.now;
        let server = &mut scenario.line.server;
        server.wake(now);
        if milli % 1_000 == 0 {
            // The honest peer keeps the session alive.
            let ack = [0x02, acked[0], acked[1], 0, 0, 0, 0, 0x01];
            let packet = scenario.session.packet(&ack);
            server.take(now, client, &packet);
        }
        for Sent { bytes, .. } in server.drain(now) {
            acked = [bytes[5], bytes[6]];
        }
        let (due, memory) = (server.machine.poll_timeout(), server.machine.memory());
        least = least.min(memory);
        if milli <= 5_000 {
            continue;
        }
        let mut forged = scenario.session.packet(&[0x01]);
        *forged.last_mut().unwrap() ^= 1;
        server.take(now, client, &forged);
        assert!(server.drain(now).is_empty(), "{milli}");
        assert_eq!(server.machine.poll_timeout(), due, "{milli}");
        let after = server.machine.memory();
        assert!(after <= least + 2_048, "{milli}: {after} of {least}");
        expansions += usize::from(after > memory);
    }
    assert_eq!(scenario.end(), None);
    assert!((1..=21).contains(&expansions), "{expansions}");
}

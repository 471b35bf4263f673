//! One end sends, the other only acknowledges and gets no acknowledgements of its own.

use core::time::Duration;

use crate::direct::{Line, Sent};
use crate::harness::UNRELIABLE;

/// 200 messages per second for 20 s, with each ninth lost.
///
/// The receiver learns which of its reports arrived, so that they need not cover the 1,023 numbers
/// that 128 bytes of bits can name.
#[test]
fn a_pure_receiver_reports_only_recent_packets() {
    let mut line = Line::new(71);
    let (session, _) = line.join(1);
    line.run(100);
    let (mut reports, mut longest, mut early) = (0_u32, 0, 0);
    for turn in 0..4_000_u32 {
        line.now += Duration::from_millis(5);
        let now = line.now;
        line.client.wake(now);
        line.server.wake(now);
        line.client
            .machine
            .send(now, session, UNRELIABLE, &[7; 40])
            .unwrap();
        for Sent { bytes, .. } in line.client.drain(now) {
            if turn % 9 != 0 {
                let at = line.client.at;
                line.server.take(now, at, &bytes);
            }
        }
        for Sent { bytes, .. } in line.server.drain(now) {
            let at = line.server.at;
            line.client.take(now, at, &bytes);
            reports += 1;
            longest = longest.max(bytes.len());
        }
        if turn == 400 {
            early = reports;
        }
    }
    assert!(line.server.messages.len() > 3_500);
    assert!(early > 50 && reports > 500, "{early}, {reports}");
    // Header and tag of at least 18 bytes, a frame head of at most 8, and bits for 128 numbers and
    // those received meanwhile.
    assert!(longest <= 64, "{longest} bytes");
    let stats = line.client.machine.session_stats(session).unwrap();
    assert!(stats.packets_acknowledged > 3_500, "{stats:?}");
}

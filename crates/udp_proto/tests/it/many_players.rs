//! A typical number of players on one server.

use udp_proto::{EndpointStats, SessionId};
use wire::Seed;

use crate::harness::{Testbed, UNRELIABLE};

/// The goal in `MpGameServer`'s documentation.
const CLIENTS: u64 = 128;
/// Messages per player and second.
const RATE: u64 = 32;
const SECONDS: u64 = 3;

/// Counts datagrams, while `kind xtask peers udp` measures time. The server sends one datagram per
/// message. It receives at most two: at 32 per second a client's ACK does not wait for its next
/// message.
#[test]
fn u26_echoes_to_128_clients_cost_three_datagrams_a_message() {
    let mut testbed = Testbed::new(Seed::from_number(26));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|player| {
            let client = testbed.join(player);
            // Spread out, because handshakes are rate limited.
            testbed.run(10);
            client
        })
        .collect();
    testbed.run(1_000);
    let open: Vec<SessionId> = testbed.log(testbed.server).sessions();
    assert_eq!(open.len() as u64, CLIENTS);
    let count = |testbed: &Testbed| {
        let stats: &EndpointStats = testbed.peer(testbed.server).machine.stats();
        (stats.datagrams_received(), stats.datagrams_sent)
    };
    let before = count(&testbed);

    for milli in 0..SECONDS * 1_000 {
        for (number, (client, session)) in (0..).zip(&clients) {
            // Spread over the interval.
            let turn = (milli + number) * RATE % 1_000;
            if turn < RATE {
                testbed.send(*client, *session, UNRELIABLE, &[7; 100]);
            }
        }
        testbed.run(1);
    }
    testbed.run(300);

    let messages = CLIENTS * RATE * SECONDS;
    let after = count(&testbed);
    assert_eq!(testbed.log(testbed.server).messages.len() as u64, messages);
    for (client, _) in &clients {
        let echoed = testbed.log(*client).messages.len() as u64;
        assert_eq!(echoed, RATE * SECONDS);
    }
    let (received, sent) = (after.0 - before.0, after.1 - before.1);
    // Except for datagrams before the first message and after the last.
    let most = |each| each * messages + CLIENTS;
    assert!((messages..=most(2)).contains(&received), "{received}");
    assert!((messages..=most(1)).contains(&sent), "{sent}");
}

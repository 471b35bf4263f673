//! K1: no key seals twice with the same nonce.

mod lifetime;

use core::time::Duration;

use netsim::provider::{NonceLog, Recording, SimProvider};
use udp_proto::{CloseCode, Config, Event, RetryPolicy, SessionId};
use wire::Seed;

use crate::direct::{CLIENT, Line, Party, Sent};
use crate::harness::{RELIABLE, UNRELIABLE, address};

/// Reconnects, lost and repeated handshakes, restarts of both ends, lossy traffic with probes,
/// address changes, and repeated CLOSE; one log records every seal.
#[test]
fn twp_k1_no_two_seals_share_key_and_nonce() {
    let log = NonceLog::default();
    let seed = Seed::from_number(1);
    let (mut count, mut moves) = (0, 0);
    let is_move = |event: &&Event| matches!(event, Event::AddressChanged { .. });
    let mut provider = || {
        count += 1;
        Recording::new(SimProvider::new(seed.generator(count).seed()), &log)
    };
    let mut config = Config::default();
    config.retry = RetryPolicy::Always;
    let ends = (provider(), provider());
    let mut line = Line::between(seed, config.clone(), |listen| listen, ends);
    for round in 0..12_u64 {
        let credentials = line.token(round % 3);
        let session = line
            .client
            .dial(line.now, &line.keys, crate::direct::again(&credentials));
        shake_hands(&mut line);
        line.run(500);
        assert!(line.client.sessions().contains(&session), "round {round}");
        talk(&mut line, session);
        match round % 4 {
            0 => line
                .client
                .machine
                .close(line.now, session, CloseCode::App, b"again")
                .unwrap(),
            // Either end crashes; the next process tries the same token once more.
            1 => {
                line.client = Party::new(CLIENT, config.clone(), provider());
                line.client.dial(line.now, &line.keys, credentials);
            }
            // A server crashes, or shuts down and restarts.
            turn => {
                if turn == 3 {
                    line.server.machine.shutdown(line.now);
                    line.settle();
                }
                let mut server =
                    Party::server(config.clone(), &line.keys, provider(), |listen| listen);
                let unix = crate::direct::UNIX + line.now.saturating_since(crate::direct::START);
                server.machine.set_unix_time(line.now, unix);
                line.server = server;
            }
        }
        line.run(12_000);
        moves += line.server.events.iter().filter(is_move).count();
    }
    assert!(moves >= 6, "{moves} changes of address");
    assert_eq!(address(CLIENT), line.client.at);
    assert!(log.sealed() > 11_000, "{} seals", log.sealed());
    assert!(log.keys() > 30, "{} keys", log.keys());
    assert_eq!(log.reuses(), []);
}

type Recorded = Line<Recording<SimProvider>>;

/// The first HELLO and the first ACCEPT are lost; all later datagrams are duplicated.
fn shake_hands(line: &mut Recorded) {
    line.client.drain(line.now);
    for step in 0..8 {
        line.now += Duration::from_millis(300);
        line.client.wake(line.now);
        for Sent { bytes, .. } in line.client.drain(line.now) {
            line.server.take(line.now, line.client.at, &bytes);
            line.server.take(line.now, line.client.at, &bytes);
        }
        for Sent { bytes, .. } in line.server.drain(line.now) {
            if step > 0 {
                line.client.take(line.now, line.server.at, &bytes);
                line.client.take(line.now, line.server.at, &bytes);
            }
        }
    }
}

/// Reliable and unreliable messages, with some of them and of the answers lost. The client changes
/// its port repeatedly, which triggers copies and challenges.
fn talk(line: &mut Recorded, session: SessionId) {
    for number in 0..800_u32 {
        let channel = [UNRELIABLE, RELIABLE][usize::from(number % 2 == 0)];
        line.client
            .machine
            .send(line.now, session, channel, &[3; 60])
            .ok();
        line.now += Duration::from_millis(2);
        line.client
            .at
            .set_port([4_000, 4_001, 4_002][usize::try_from(number / 300).unwrap()]);
        line.client.wake(line.now);
        line.server.wake(line.now);
        for Sent { bytes, .. } in line.client.drain(line.now) {
            if number % 5 != 0 {
                line.server.take(line.now, line.client.at, &bytes);
            }
        }
        for Sent { bytes, .. } in line.server.drain(line.now) {
            if number % 11 != 0 {
                line.client.take(line.now, line.server.at, &bytes);
            }
        }
    }
    line.client.at = address(CLIENT);
}

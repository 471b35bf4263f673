//! How soon a client detects that its server lost the session, for each traffic pattern.

use core::time::Duration;

use netsim::{Handle, LinkConfig};
use udp_proto::{CloseReason, SessionId};
use wire::{Instant, Seed};

use super::{long_ids, with_secret};
use crate::harness::{INSTANCE, Peer, SERVER, Testbed, UNRELIABLE, address, server_host};

/// Message lengths, bytes.
const LENS: [usize; 4] = [1, 20, 100, 1_166];
/// Time between two messages, ms: 120, 60, 10, 2, 1 and 0.1 Hz.
const STEPS: [u64; 6] = [8, 16, 100, 500, 1_000, 10_000];
/// Downtimes of the server, ms.
const AWAY: [u64; 5] = [100, 300, 1_000, 3_000, 8_000];

/// A server with resets that sends nothing of its own, 20 ms away.
fn testbed(seed: u64) -> Testbed {
    let mut testbed = Testbed::with(Seed::from_number(seed), long_ids(), with_secret(1));
    testbed
        .world
        .apply(testbed.server, |host, _| host.app.is_echo = false);
    let link = LinkConfig::default().with_delay(Duration::from_millis(20));
    testbed.world.set_default_link(link);
    testbed
}

/// A player of a server with resets, with an RTT of 40 ms.
struct Play {
    testbed: Testbed,
    client: Handle<Peer>,
    session: SessionId,
    /// Message length in bytes, and ms between messages.
    pattern: (usize, u64),
    milli: u64,
}

impl Play {
    fn new(seed: u64, pattern: (usize, u64)) -> Self {
        let mut testbed = testbed(seed);
        let unix = testbed.world.unix_now();
        let client = testbed.client();
        let credentials = testbed.keys.token(unix, 1, address(SERVER));
        let session = testbed.dial(client, credentials);
        testbed.run(1_000);
        let mut play = Self {
            testbed,
            client,
            session,
            pattern,
            milli: 1,
        };
        play.run(3_200);
        assert_eq!(play.testbed.log(client).sessions().len(), 1);
        play
    }

    fn step(&mut self) {
        let (len, step) = self.pattern;
        let is_open = self.testbed.log(self.client).closes().is_empty();
        if self.milli.is_multiple_of(step) && is_open {
            let session = self.session;
            self.testbed
                .send(self.client, session, UNRELIABLE, &vec![7; len]);
        }
        self.milli += 1;
        self.testbed.run(1);
    }

    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.step();
        }
    }

    fn restart(&mut self) {
        let (keys, seed) = (&self.testbed.keys, Seed::from_number(99));
        let start = |now| server_host(seed, (long_ids(), INSTANCE), keys, with_secret(1), now);
        self.testbed.world.restart(self.testbed.server, start);
    }

    fn now(&self) -> Instant {
        self.testbed.world.local_now(self.client)
    }

    fn sent_count(&self) -> u64 {
        self.testbed
            .peer(self.client)
            .machine
            .stats()
            .datagrams_sent
    }

    /// Time from the first packet sent from now on until the client detects the reset.
    fn until_reported(&mut self) -> Duration {
        let packets = self.sent_count();
        let mut first = None;
        for _ in 0..12_000 {
            self.step();
            if self.sent_count() > packets {
                first = first.or_else(|| Some(self.now()));
            }
            match self.testbed.log(self.client).closes()[..] {
                [] => {}
                [(_, reason)] => {
                    assert_eq!(reason, CloseReason::Reset, "{:?}", self.pattern);
                    // None if an earlier packet was still in flight.
                    let first = first.unwrap_or_else(|| self.now());
                    return self.now().saturating_since(first);
                }
                ref more => panic!("{more:?}"),
            }
        }
        panic!("{:?}: not told", self.pattern)
    }
}

#[test]
fn sim_twp_t8_a_client_detects_a_restart_within_a_second() {
    for step in STEPS {
        for away in AWAY {
            let reported = LENS.map(|len| {
                let mut play = Play::new(step + away, (len, step));
                play.testbed.world.kill(play.testbed.server);
                play.run(away);
                play.restart();
                play.until_reported().as_millis()
            });
            println!("each {step} ms, away {away} ms: {reported:?} ms for {LENS:?} bytes");
            assert!(reported.iter().all(|time| *time <= 1_000), "{reported:?}");
        }
    }
}

/// The server timed the session out meanwhile.
#[test]
fn sim_twp_t8_a_client_paused_for_30_s_detects_a_restart() {
    for step in STEPS {
        let reported = LENS.map(|len| {
            let mut play = Play::new(step, (len, step));
            play.testbed
                .world
                .stall(play.client, Duration::from_secs(30));
            play.testbed.run(30_000);
            play.until_reported().as_millis()
        });
        println!("each {step} ms, paused: {reported:?} ms for {LENS:?} bytes");
        assert!(reported.iter().all(|time| *time <= 1_000), "{reported:?}");
    }
}

/// Each player sends 20 bytes at 20 Hz; the server is down for 0.3 s and answers 1,000 lost
/// sessions per second.
#[test]
fn sim_twp_t8_a_thousand_clients_detect_a_restart_within_2_s() {
    let mut testbed = testbed(77);
    let players: Vec<_> = (0..1_000)
        .map(|player| {
            testbed.run(2);
            testbed.join(player)
        })
        .collect();
    testbed.run(1_000);
    let is_in = |of: &&(Handle<Peer>, SessionId)| !testbed.log(of.0).sessions().is_empty();
    assert_eq!(players.iter().filter(is_in).count(), 1_000);

    let play = |testbed: &mut Testbed, millis: u64| {
        for _ in 0..millis / 50 {
            for (client, session) in &players {
                if testbed.log(*client).closes().is_empty() {
                    testbed.send(*client, *session, UNRELIABLE, &[7; 20]);
                }
            }
            testbed.run(50);
        }
    };
    play(&mut testbed, 500);
    testbed.world.kill(testbed.server);
    play(&mut testbed, 300);
    let (keys, seed) = (&testbed.keys, Seed::from_number(99));
    let start = |now| server_host(seed, (long_ids(), INSTANCE), keys, with_secret(1), now);
    testbed.world.restart(testbed.server, start);
    let mut reported = Vec::new();
    for _ in 0..8 {
        play(&mut testbed, 250);
        let is_tracked = |of: &&(Handle<Peer>, SessionId)| {
            let closes = testbed.log(of.0).closes();
            closes
                .iter()
                .any(|(_, reason)| *reason == CloseReason::Reset)
        };
        reported.push(players.iter().filter(is_tracked).count());
    }
    println!("of 1,000 players, told each 250 ms: {reported:?}");
    assert_eq!(reported.last(), Some(&1_000), "{reported:?}");
}

//! K1 over long lifetimes, with every event that starts, changes or ends a key.

use core::time::Duration;

use netsim::provider::{NonceLog, Recording, SimProvider};
use netsim::{for_each_seed, test_site};
use udp_proto::{CloseCode, Config, Credentials, RetryPolicy};
use wire::{Generator, Seed};

use crate::direct::{CLIENT, Line, Party, START, Sent, UNIX, again};
use crate::harness::UNRELIABLE;
use crate::key_update::{copies, every};

type Recorded = Party<Recording<SimProvider>>;

/// Milliseconds of one lifetime; some 50,000 seals.
const TURNS: u64 = 25_000;

/// 200 seeds seal 10^7 packets:
/// `kind xtask sim --crate udp_proto --test sim_twp_k1 --seeds 200`.
#[test]
fn sim_twp_k1_no_two_seals_share_key_and_nonce_under_any_faults() {
    let (mut sealed, mut keys, mut seeds) = (0, 0, 0);
    for_each_seed(&test_site!(), 2, |seed| {
        let log = NonceLog::default();
        Life::new(seed, &log).run();
        assert_eq!(log.reuses(), []);
        assert!(log.sealed() > 40_000, "{} seals", log.sealed());
        assert!(log.keys() > 300, "{} keys", log.keys());
        sealed += log.sealed();
        keys += log.keys();
        seeds += 1;
    });
    eprintln!("{sealed} seals under {keys} keys in {seeds} lives, no pair twice");
}

/// Two ends that crash, reconnect, migrate and update keys, over a line with loss and duplication.
struct Life {
    line: Line<Recording<SimProvider>>,
    log: NonceLog,
    generator: Generator,
    config: Config,
    seed: Seed,
    /// Number of providers; each process has its own.
    processes: u64,
    /// Delayed datagrams: time, whether to the server, bytes.
    late: Vec<(u64, bool, Vec<u8>)>,
    credentials: Credentials,
}

impl Life {
    fn new(seed: Seed, log: &NonceLog) -> Self {
        let mut config = every(64);
        config.retry = RetryPolicy::Always;
        let provider =
            |number| Recording::new(SimProvider::new(seed.generator(number).seed()), log);
        let ends = (provider(1), provider(2));
        let mut line = Line::between(seed, config.clone(), |listen| listen, ends);
        let credentials = line.token(1);
        line.client.dial(line.now, &line.keys, again(&credentials));
        Self {
            line,
            log: log.clone(),
            generator: seed.generator(3),
            config,
            seed,
            processes: 10,
            late: Vec::new(),
            credentials,
        }
    }

    fn run(&mut self) {
        for turn in 0..TURNS {
            self.line.now += Duration::from_millis(1);
            self.strike();
            self.talk();
            self.carry(turn);
        }
    }

    fn provider(&mut self) -> Recording<SimProvider> {
        self.processes += 1;
        let seed = self.seed.generator(self.processes).seed();
        Recording::new(SimProvider::new(seed), &self.log)
    }

    /// Random events.
    fn strike(&mut self) {
        let now = self.line.now;
        match self.generator.below(4_000) {
            // Both ends at once, or one.
            0..10 => {
                update(&mut self.line.client, now);
                update(&mut self.line.server, now);
            }
            10..20 => update(&mut self.line.client, now),
            20..24 => {
                let port = u16::try_from(self.generator.between(4_000, 4_008)).unwrap();
                self.line.client.at.set_port(port);
            }
            // The session ends or crashes, and the client reconnects: with the used token, then
            // with another.
            24 => {
                let machine = &mut self.line.client.machine;
                let open: Vec<_> = machine.sessions().collect();
                for session in open {
                    machine.close(now, session, CloseCode::App, b"").unwrap();
                }
                self.come_again();
            }
            25 => {
                let provider = self.provider();
                self.line.client = Party::new(CLIENT, self.config.clone(), provider);
                self.come_again();
            }
            26 => {
                let provider = self.provider();
                let keys = &self.line.keys;
                self.line.server =
                    Party::server(self.config.clone(), keys, provider, |listen| listen);
                let unix = UNIX + now.saturating_since(START);
                self.line.server.machine.set_unix_time(now, unix);
                self.come_again();
            }
            _ => {}
        }
    }

    fn come_again(&mut self) {
        let used = again(&self.credentials);
        self.credentials = self.line.token(1);
        for credentials in [used, again(&self.credentials)] {
            self.line
                .client
                .dial(self.line.now, &self.line.keys, credentials);
        }
    }

    fn talk(&mut self) {
        let now = self.line.now;
        for endpoint in [&mut self.line.client, &mut self.line.server] {
            let open: Vec<_> = endpoint.machine.sessions().collect();
            for session in open {
                // A full queue is fine; limits have tests of their own.
                endpoint
                    .machine
                    .send(now, session, UNRELIABLE, &[1; 20])
                    .ok();
            }
            endpoint.wake(now);
            endpoint.messages.clear();
            endpoint.events.clear();
        }
    }

    /// Each datagram is lost, delivered once or twice, 5 to 25 ms later.
    fn carry(&mut self, turn: u64) {
        let now = self.line.now;
        for (is_up, sent) in [
            (true, self.line.client.drain(now)),
            (false, self.line.server.drain(now)),
        ] {
            for Sent { bytes, .. } in sent {
                for _ in 0..copies(&mut self.generator) {
                    let due = turn + 5 + self.generator.below(20);
                    self.late.push((due, is_up, bytes.clone()));
                }
            }
        }
        for (_, is_up, bytes) in self.late.extract_if(.., |(due, ..)| *due <= turn) {
            if is_up {
                self.line.server.take(now, self.line.client.at, &bytes);
            } else {
                self.line.client.take(now, self.line.server.at, &bytes);
            }
        }
    }
}

fn update(endpoint: &mut Recorded, now: wire::Instant) {
    let open: Vec<_> = endpoint.machine.sessions().collect();
    for session in open {
        endpoint.machine.update_keys(now, session).unwrap();
    }
}

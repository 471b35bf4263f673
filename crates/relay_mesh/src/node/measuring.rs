//! Measurement of the costs from this exit to its game servers.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use crypto::Provider;
use wire::{CommandId, Instant};

use super::{Node, Pending};
use crate::cost::Cost;
use crate::event::{Command, Event, Outcome};
use crate::game::ServerProbe;
use crate::signed_config::Protocol;

pub(super) type GameKey = (Protocol, String);

/// The server of a game that this node is an exit of.
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    probe: ServerProbe,
    due: Instant,
    /// Whether the system has not permitted a probe since the last answer.
    is_not_permitted: bool,
    pending: Option<(CommandId, Instant)>,
    failures: u8,
    newest: Vec<Cost>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerChange {
    Reached,
    Lost,
}

impl Server {
    const fn new(now: Instant, address: SocketAddr, probe: ServerProbe) -> Self {
        Self {
            address,
            probe,
            due: now,
            is_not_permitted: false,
            pending: None,
            failures: 0,
            newest: Vec::new(),
        }
    }

    /// The median of the newest costs; unroutable if the server is lost, `None` if it was never
    /// measured.
    pub(super) fn cost(&self) -> Option<Cost> {
        if self.failures >= FAILURES {
            return Some(Cost::UNROUTABLE);
        }
        let mut newest = self.newest.clone();
        newest.sort_unstable();
        newest.get(newest.len() / 2).copied()
    }

    fn on_answer(&mut self, span: Duration) -> Option<ServerChange> {
        let change = self.newest.is_empty().then_some(ServerChange::Reached);
        (self.failures, self.is_not_permitted) = (0, false);
        if self.newest.len() >= SAMPLES_MAX {
            self.newest.remove(0);
        }
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        self.newest.push(Cost::from_micros(micros));
        change
    }

    fn on_failure(&mut self) -> Option<ServerChange> {
        let before = self.failures;
        self.failures = before.saturating_add(1).min(FAILURES);
        let is_lost = before < FAILURES && self.failures >= FAILURES;
        if is_lost {
            self.newest.clear();
        }
        is_lost.then_some(ServerChange::Lost)
    }

    /// Handles that the system does not permit the probe; it may later. Returns whether to report
    /// it.
    fn on_not_permitted(&mut self, now: Instant) -> bool {
        (self.due, self.failures) = (now + NOT_PERMITTED_WAIT, 0);
        self.newest.clear();
        !core::mem::replace(&mut self.is_not_permitted, true)
    }

    /// Wait until the next measurement: shorter after a failure, which may be chance.
    const fn wait(&self) -> Duration {
        if 0 < self.failures && self.failures < FAILURES {
            RETRY
        } else {
            PERIOD
        }
    }
}

impl<P: Provider> Node<P> {
    pub(super) fn measure_servers(&mut self, now: Instant) {
        if !core::mem::replace(&mut self.edges.is_current, true) {
            self.update_servers(now);
        }
        let mut pending: usize = 0;
        let mut overdue = Vec::new();
        for (key, server) in &mut self.edges.servers {
            match server.pending {
                Some((id, until)) if until <= now => overdue.push((key.clone(), id)),
                Some(_) => pending = pending.saturating_add(1),
                None => {}
            }
        }
        for (key, id) in overdue {
            self.pending.remove(&id);
            self.end_measurement(now, &key, Outcome::Failed);
        }
        let room = PENDING_MAX.saturating_sub(pending);
        for key in longest_due(now, &self.edges.servers, room) {
            let id = CommandId(self.next_command);
            let Some(server) = self.edges.servers.get_mut(&key) else {
                continue;
            };
            server.pending = Some((id, now + TIMEOUT));
            let command = Command::Measure {
                server: server.address,
                probe: server.probe.clone(),
            };
            self.stats.server_probes = self.stats.server_probes.saturating_add(1);
            self.command(command, Pending::Measure);
        }
    }

    pub(super) fn on_measured(&mut self, now: Instant, id: CommandId, outcome: Outcome) {
        let mut servers = self.edges.servers.iter();
        let found = servers.find(|(_, server)| server.pending.is_some_and(|(of, _)| of == id));
        if let Some(key) = found.map(|(key, _)| key.clone()) {
            self.end_measurement(now, &key, outcome);
        }
    }

    fn end_measurement(&mut self, now: Instant, key: &GameKey, outcome: Outcome) {
        let jitter = Duration::from_micros(self.generator.below(JITTER_MICROS));
        let Some(server) = self.edges.servers.get_mut(key) else {
            return;
        };
        server.pending = None;
        let change = match outcome {
            Outcome::Measured(span) if span < TIMEOUT => server.on_answer(span),
            Outcome::NotPermitted => {
                if server.on_not_permitted(now) {
                    let (protocol, game) = key.clone();
                    self.emit(Event::ProbeNotPermitted { game, protocol });
                }
                return;
            }
            Outcome::Measured(_) | Outcome::Failed | Outcome::Closed | Outcome::Opened(_) => {
                self.stats.server_probes_failed = self.stats.server_probes_failed.saturating_add(1);
                server.on_failure()
            }
        };
        let wait = server.wait();
        let fifth = wait.checked_div(5).unwrap_or_default();
        server.due = now + wait.saturating_sub(fifth) + jitter.min(fifth.saturating_mul(2));
        let (protocol, game) = key.clone();
        match change {
            None => {}
            Some(ServerChange::Reached) => self.emit(Event::ServerReached { game, protocol }),
            Some(ServerChange::Lost) => self.emit(Event::ServerLost { game, protocol }),
        }
        if let Outcome::Opened(socket) = outcome {
            self.command(Command::Close { socket }, Pending::Close);
        }
    }

    /// Updates the list of servers from the games. Unchanged servers keep their state.
    fn update_servers(&mut self, now: Instant) {
        self.edges.refresh();
        let mut wanted = self.servers_wanted();
        let mut given_up = Vec::new();
        self.edges.servers.retain(|key, server| {
            let is_same = |(address, probe): &(SocketAddr, ServerProbe)| {
                *address == server.address && *probe == server.probe
            };
            let is_unchanged = wanted.get(key).is_some_and(is_same);
            if is_unchanged {
                wanted.remove(key);
            } else {
                given_up.extend(server.pending.map(|(id, _)| id));
            }
            is_unchanged
        });
        for id in given_up {
            self.pending.remove(&id);
        }
        for (key, (address, probe)) in wanted {
            let server = Server::new(now, address, probe);
            self.edges.servers.insert(key, server);
        }
    }

    fn servers_wanted(&self) -> BTreeMap<GameKey, (SocketAddr, ServerProbe)> {
        let mut wanted = BTreeMap::new();
        for game in &self.games {
            let probe = self.config.probes.get(&game.name);
            if let (Some(exit), Some(probe)) = (&game.exit, probe) {
                let key = (Protocol::Udp, game.name.clone());
                wanted.insert(key, (exit.server, probe.clone()));
            }
        }
        #[cfg(feature = "tcp")]
        for game in self.tunnels.iter().flat_map(|tunnels| &tunnels.games) {
            if let Some(exit) = &game.exit {
                // Probed only if configured: many servers log a connection without data.
                let probe = self.config.probes.get(&game.name).cloned();
                let probe = probe.unwrap_or(ServerProbe::None);
                let key = (Protocol::Tcp, game.name.clone());
                wanted.insert(key, (exit.server, probe));
            }
        }
        wanted.retain(|_, (_, probe)| *probe != ServerProbe::None);
        wanted
    }
}

/// The `room` servers that have been due for longest, so that those that do not answer do not delay
/// the others.
fn longest_due(now: Instant, servers: &BTreeMap<GameKey, Server>, room: usize) -> Vec<GameKey> {
    let is_due = |server: &Server| server.pending.is_none() && server.due <= now;
    let servers = servers.iter().filter(|(_, server)| is_due(server));
    let mut due: Vec<_> = servers.map(|(key, server)| (server.due, key)).collect();
    due.sort_unstable();
    let due = due.into_iter().take(room);
    due.map(|(_, key)| key.clone()).collect()
}

/// Time between two measurements of a server, ±20 %.
const PERIOD: Duration = Duration::from_secs(10);
/// The same after a failure, until the server answers or is lost.
const RETRY: Duration = Duration::from_secs(2);
/// Upper bound of the random wait: two fifths of [`PERIOD`].
const JITTER_MICROS: u64 = 4_000_000;
const NOT_PERMITTED_WAIT: Duration = Duration::from_secs(600);
const TIMEOUT: Duration = Duration::from_secs(2);
const FAILURES: u8 = 3;
/// Measurements of which the median counts, so that one late answer changes nothing.
const SAMPLES_MAX: usize = 3;
/// Pending measurements, each a socket of the driver: 1,024 servers that answer within 300 ms fit
/// into the period.
const PENDING_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        let address = "192.0.2.7:7000".parse().expect("an address");
        Server::new(Instant::ZERO, address, ServerProbe::Icmp)
    }

    #[test]
    fn pg5_the_median_of_three_counts_and_three_failures_are_the_end() {
        let mut server = server();
        assert_eq!(server.cost(), None);
        assert_eq!(
            server.on_answer(Duration::from_millis(20)),
            Some(ServerChange::Reached)
        );
        for (millis, median) in [(900, 900), (22, 22), (23, 23), (24, 23)] {
            assert_eq!(server.on_answer(Duration::from_millis(millis)), None);
            assert_eq!(server.cost(), Some(Cost::from_millis(median)));
        }
        assert_eq!(server.on_failure(), None);
        assert_eq!(server.wait(), RETRY);
        assert_eq!(server.on_failure(), None);
        assert_eq!(
            server.cost(),
            Some(Cost::from_millis(23)),
            "it may be chance"
        );
        assert_eq!(server.on_failure(), Some(ServerChange::Lost));
        assert_eq!(server.cost(), Some(Cost::UNROUTABLE));
        assert_eq!((server.on_failure(), server.wait()), (None, PERIOD));
        assert_eq!(
            server.on_answer(Duration::from_millis(30)),
            Some(ServerChange::Reached)
        );
        assert_eq!(server.cost(), Some(Cost::from_millis(30)));
    }

    #[test]
    fn pg5_a_forbidden_probe_is_retried_and_reported_once() {
        let mut server = server();
        let at = Instant::from_millis;
        assert!(server.on_not_permitted(at(1_000)));
        assert_eq!((server.due, server.cost()), (at(601_000), None));
        assert!(!server.on_not_permitted(at(601_000)), "known");
        server.on_answer(Duration::from_millis(20));
        assert!(server.on_not_permitted(at(1_300_000)), "it was, meanwhile");
    }

    #[test]
    fn pg5_servers_that_do_not_answer_keep_no_other_waiting() {
        let key = |number: u16| (Protocol::Udp, format!("{number:03}"));
        let mut servers: BTreeMap<GameKey, Server> =
            (0..200).map(|number| (key(number), server())).collect();
        // The servers that answer are the last by name.
        let answers = |(_, name): &GameKey| name.as_str() >= "190";
        let mut measured = BTreeMap::<GameKey, Vec<u64>>::new();
        for second in 0..300 {
            let now = Instant::from_millis(second * 1_000);
            let mut pending = 0;
            for server in servers.values_mut() {
                match server.pending {
                    Some((_, until)) if until <= now => {
                        server.pending = None;
                        server.on_failure();
                        server.due = now + server.wait();
                    }
                    Some(_) => pending += 1,
                    None => {}
                }
            }
            for key in longest_due(now, &servers, PENDING_MAX - pending) {
                let server = servers.get_mut(&key).unwrap();
                if answers(&key) {
                    server.on_answer(Duration::from_millis(20));
                    server.due = now + server.wait();
                    measured.entry(key).or_default().push(second);
                } else {
                    server.pending = Some((CommandId(0), now + TIMEOUT));
                }
            }
        }
        assert_eq!(measured.len(), 10);
        for (key, times) in &measured {
            assert!(times[0] <= 13, "{key:?} {times:?}");
            let longest = times.windows(2).map(|two| two[1] - two[0]).max();
            assert!(longest <= Some(26), "{key:?} {times:?}");
        }
    }

    #[test]
    fn pg5_an_answer_after_longer_than_costs_reach_is_no_way() {
        let mut server = server();
        server.on_answer(Duration::MAX);
        assert_eq!(server.cost(), Some(Cost::UNROUTABLE));
    }
}

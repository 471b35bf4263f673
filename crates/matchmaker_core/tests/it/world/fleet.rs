//! The game servers: what they call, what reaches them, and how they end.

use core::time::Duration;
use std::collections::BTreeSet;

use matchmaker_core::record::{Assign, Reply, encode_left, encode_result};
use matchmaker_core::{Outcome, Seated, ServerLink};
use wire::{CommandId, Instant};

use super::{Faults, PLAYERS, TEAMS, World};

impl World {
    /// Servers call when due, end matches, and exit when their lease expires.
    pub(super) fn servers(&mut self, faults: Faults) {
        let now = self.harness.now;
        let mut index = 0;
        while index < self.processes.len() {
            if self.processes[index].lease_until <= now || !self.work(index, faults) {
                self.kill(index);
            } else {
                index += 1;
            }
        }
    }

    /// Returns whether the process continues.
    fn work(&mut self, index: usize, faults: Faults) -> bool {
        let now = self.harness.now;
        let loss = if faults == Faults::On { 100_000 } else { 0 };
        let is_cut_off = self.is_cut_off(&self.processes[index]);
        let process = &mut self.processes[index];
        let over = process.ends.iter().find(|(_, at)| **at <= now);
        if let Some(match_id) = over.map(|(id, _)| *id) {
            process.ends.remove(&match_id);
            process.server.matches.remove(&match_id);
            let mut body = Vec::new();
            encode_result(match_id, b"won", &mut body);
            // Sent once. If it is lost, the next heartbeat reports the end.
            if !self.generator.chance(loss) && !is_cut_off {
                process.server.call(&mut self.harness, &body);
            }
        }
        let process = &mut self.processes[index];
        if self.generator.chance(1_000)
            && !is_cut_off
            && let Some((match_id, seats)) = process.server.matches.iter_mut().next()
            && let Some(seated) = seats.pop()
        {
            let mut body = Vec::new();
            encode_left(*match_id, seated.client_id, &mut body);
            process.server.call(&mut self.harness, &body);
        }
        let process = &mut self.processes[index];
        if process.call_at > now {
            return true;
        }
        process.call_at = now + Duration::from_millis(300);
        if is_cut_off || self.generator.chance(loss) {
            return true;
        }
        let reply = if process.must_register {
            process.server.register(&mut self.harness)
        } else {
            process.server.heartbeat(&mut self.harness)
        };
        if self.generator.chance(loss) {
            return true;
        }
        let process = &mut self.processes[index];
        match reply {
            Reply::Renewed {
                lease,
                heartbeat,
                release,
            } => {
                process.must_register = false;
                process.lease_until = now + lease;
                process.call_at = now + heartbeat;
                for id in release {
                    process.server.matches.remove(&id);
                    process.server.unentered.remove(&id);
                    process.ends.remove(&id);
                }
            }
            Reply::Register => process.must_register = true,
            Reply::Retired => return false,
            reply @ (Reply::Noted | Reply::Refused(_) | _) => panic!("{reply:?}"),
        }
        true
    }

    /// Delivers calls to their servers, and outcomes to the matchmaker.
    pub(super) fn deliver(&mut self, faults: Faults) {
        let now = self.harness.now;
        let (due, later) = self.calls.drain(..).partition(|call| call.0 <= now);
        self.calls = later;
        let due: Vec<(Instant, u64, CommandId, ServerLink, Vec<u8>)> = due;
        for (_, life, id, to, body) in due {
            let is_down = self.outage_until.is_some();
            let found = self.processes.iter_mut().find(|process| {
                // A call reaches whichever process runs on the node.
                process.server.link.node == to.node && process.cut_until <= now && !is_down
            });
            let outcome = match found {
                Some(process) => {
                    let before = process.server.matches.len();
                    let answer = process.server.answer(&body);
                    if process.server.matches.len() > before {
                        let assign = Assign::decode(&body).unwrap();
                        check_match(&assign.players);
                        process.server.unentered.insert(assign.match_id);
                        process.wanted_at.insert(assign.match_id, now);
                    }
                    Outcome::Answered(answer)
                }
                None => Outcome::Failed,
            };
            self.answer(id, life, &outcome, faults);
        }
        let (due, later) = self.outcomes.drain(..).partition(|entry| entry.0 <= now);
        self.outcomes = later;
        let due: Vec<(Instant, u64, CommandId, Outcome)> = due;
        for (_, life, id, outcome) in due {
            if life == self.life {
                self.harness.machine.handle_completed(now, id, outcome);
            }
        }
    }

    /// Sends an outcome: late, twice or never.
    pub(super) fn answer(&mut self, id: CommandId, life: u64, outcome: &Outcome, faults: Faults) {
        let now = self.harness.now;
        if faults == Faults::On && self.generator.chance(30_000) {
            return;
        }
        let copies = if self.generator.chance(30_000) { 2 } else { 1 };
        for _ in 0..copies {
            let delay = Duration::from_millis(self.generator.between(0, 800));
            self.outcomes.push((now + delay, life, id, outcome.clone()));
        }
    }
}

/// Asserts that there are exactly as many distinct players as seats, in teams of equal size.
fn check_match(players: &[Seated]) {
    let size = usize::from(TEAMS) * usize::from(PLAYERS);
    let distinct: BTreeSet<_> = players.iter().map(|seated| seated.client_id).collect();
    let seats: Vec<_> = players.iter().map(|seated| seated.seat.0).collect();
    assert_eq!(distinct.len(), size, "{players:?}");
    assert_eq!(seats, (0..).take(size).collect::<Vec<u16>>());
    for team in 0..TEAMS {
        let count = players.iter().filter(|seated| seated.team.0 == team);
        assert_eq!(count.count(), usize::from(PLAYERS), "{players:?}");
    }
}

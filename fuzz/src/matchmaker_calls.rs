//! A matchmaker with hostile game servers.

use core::time::Duration;
use std::collections::VecDeque;

use crypto::Identity;
use matchmaker_core::record::{Assign, Reply, Verdict};
use matchmaker_core::{
    Command, Config, Game, Matchmaker, Outcome, Rule, ServerLink, TeamSize, TicketId,
    TicketRequest, TicketState,
};
use netsim::provider::SimProvider;
use wire::{ClientId, CommandId, InstanceId, Instant, NodeId, Seed, UnixTime};

/// The app id that a server's registration must have.
pub const APP: u64 = 9;

/// Runs a script of `op 1, length 1, bytes` against a matchmaker for matches of two players. Three
/// nodes may register and a fourth may not. Every call has a reply that a server can decode, every
/// request to a server can be decoded, timers stop, and memory is bounded.
///
/// The low three bits of `op`: 0 to 2 a call of node `op / 8 % 4`, run `op / 64`; 3 another ticket
/// request of the player in the first byte; 4 advances the time by up to 65 s; 5 completes the
/// oldest command, which fails if `bytes` is not empty, or answers a call with `bytes`; 6 withdraws
/// a ticket; 7 a process exits.
pub fn script(data: &[u8]) {
    live(data);
}

fn live(mut data: &[u8]) -> World {
    let mut world = World::new();
    while let Some(([op, len], rest)) = data.split_first_chunk() {
        let len = usize::from(*len).min(rest.len());
        let (bytes, behind) = rest.split_at(len);
        data = behind;
        world.act(*op, bytes);
        world.check();
    }
    world.go_on(Duration::from_secs(3_600));
    world.check();
    world
}

struct World {
    machine: Matchmaker<SimProvider>,
    /// Node ids by number.
    nodes: [NodeId; 4],
    now: Instant,
    /// Commands without a result.
    open: VecDeque<(CommandId, Command)>,
    /// Started processes.
    runs: Vec<CommandId>,
    tickets: Vec<TicketId>,
}

impl World {
    fn new() -> Self {
        let now = Instant::from_millis(1);
        let nodes = [0, 1, 2, 3].map(node);
        let [slot, one, other, _] = nodes;
        let size = TeamSize::new(2, 1);
        let game = Game {
            app_id: APP,
            rule: Rule::TeamSize(size.expect("two players")),
            slots: vec![slot],
            fleet: [one, other].into(),
        };
        let provider = SimProvider::new(Seed::from_number(5));
        let made = Matchmaker::new(Config::default(), game, provider, now);
        let mut machine = made.expect("a seed does not run dry");
        machine.set_unix_time(now, UnixTime::from_secs(1_000_000));
        let mut world = Self {
            machine,
            nodes,
            now,
            open: VecDeque::new(),
            runs: Vec::new(),
            tickets: Vec::new(),
        };
        world.go_on(Duration::from_secs(3));
        world
    }

    fn act(&mut self, op: u8, bytes: &[u8]) {
        match op % 8 {
            3 => {
                let client = ClientId(bytes.first().copied().unwrap_or(0).into());
                let request = TicketRequest::new(client);
                if let Ok(receipt) = self.machine.submit(self.now, &request)
                    && !self.tickets.contains(&receipt.ticket)
                {
                    self.tickets.push(receipt.ticket);
                }
            }
            4 => {
                let millis = bytes
                    .iter()
                    .take(2)
                    .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
                self.go_on(Duration::from_millis(millis));
            }
            5 => self.complete(bytes),
            6 => {
                let at = usize::from(bytes.first().copied().unwrap_or(0));
                if let Some(ticket) = self.tickets.get(at) {
                    self.machine.cancel(self.now, *ticket).ok();
                }
            }
            7 => {
                if let Some(run) = self.runs.pop() {
                    self.machine.handle_exited(self.now, run);
                }
            }
            _ => self.call(op, bytes),
        }
        self.drain();
    }

    fn call(&mut self, op: u8, body: &[u8]) {
        let [slot, one, other, stranger] = self.nodes;
        let node = match op / 8 % 4 {
            0 => slot,
            1 => one,
            2 => other,
            _ => stranger,
        };
        let from = ServerLink {
            node,
            instance: InstanceId((op / 64).into()),
        };
        let mut reply = Vec::new();
        self.machine.handle_call(self.now, from, body, &mut reply);
        assert!(reply.len() <= 1_024, "{} bytes", reply.len());
        let reply = Reply::decode(&reply).expect("a reply that a server can read");
        if node == stranger {
            assert!(matches!(reply, Reply::Refused(_)), "{reply:?}");
        }
    }

    fn complete(&mut self, bytes: &[u8]) {
        let Some((id, command)) = self.open.pop_front() else {
            return;
        };
        let outcome = match command {
            Command::Spawn { .. } if bytes.is_empty() => {
                self.runs.push(id);
                Outcome::Started
            }
            Command::Stop { .. } if bytes.is_empty() => Outcome::Stopped,
            Command::Call { body, .. } => {
                Assign::decode(&body).expect("a record that a server can read");
                let mut taken = Vec::new();
                Verdict::Taken.encode(&mut taken);
                Outcome::Answered(if bytes.is_empty() {
                    taken
                } else {
                    bytes.to_vec()
                })
            }
            Command::Spawn { .. } | Command::Stop { .. } | _ => Outcome::Failed,
        };
        self.machine.handle_completed(self.now, id, outcome);
    }

    fn go_on(&mut self, span: Duration) {
        let end = self.now + span;
        let mut wakes = 0;
        while let Some(at) = self.machine.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.machine.handle_timeout(self.now);
            self.drain();
            wakes += 1;
            assert!(wakes < 20_000, "it spins");
        }
        self.now = end;
        self.machine.handle_timeout(end);
        let next = self.machine.poll_timeout();
        assert!(next.is_none_or(|next| next > end), "it spins");
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(command) = self.machine.poll_command() {
            self.open.push_back(command);
        }
        while self.machine.poll_event().is_some() {}
    }

    fn check(&self) {
        let held = self.machine.memory_bytes();
        assert!(held < 4 << 20, "{held} bytes");
        let known = self
            .tickets
            .iter()
            .filter_map(|id| self.machine.ticket(*id));
        let assigned = known.filter(|state| matches!(state, TicketState::Assigned(_)));
        let load = self.machine.load();
        assert!(assigned.count() <= load.tickets_known);
        assert!(load.servers <= 3 * 4, "{load:?}");
    }
}

/// Returns the identity of a node with a number below 4. Node 3 may not register.
#[must_use]
pub fn identity(number: u8) -> Identity {
    let mut provider = SimProvider::new(Seed::from_number(u64::from(number) + 100));
    Identity::generate(&mut provider).expect("a seed does not run dry")
}

fn node(number: u8) -> NodeId {
    identity(number).public_key().node_id()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_reaches_matches() {
        let world = live(include_bytes!("../corpus/matchmaker_calls/seed_plays"));
        let stats = world.machine.stats();
        assert_eq!(stats.calls_refused, 1, "{stats:?}");
        assert_eq!((stats.matches, stats.tokens), (1, 2), "{stats:?}");
    }
}

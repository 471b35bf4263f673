//! Checks of the hub's machine on a backend, with completions out of order, late, twice, never and
//! failing.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use wire::{
    ClientId, CloseCause, ConnectionId, InstanceId, Instant, NodeId, PeerIdentity, Seed,
    StreamMachine, UnixTime,
};

use super::unreliable::{Faults, Unreliable};
use super::{Subject, limits};
use crate::field::{Addr, MailSeq, Role, SenderSeq};
use crate::hub::{Hub, HubConfig, HubEvent};
use crate::join_file::{Grant, JoinFile, NetworkSecret};
use crate::node::{Node, NodeConfig, NodeEvent};

/// Checks that a hub on the backend stores and delivers each mail once and in order, whatever
/// happens to the completions. `fresh` returns a subject with nothing stored; it is called once for
/// each check.
///
/// # Panics
///
/// If the machine fails a check.
pub fn check_machine<S: Subject>(mut fresh: impl FnMut() -> S) {
    let prompt = Faults::default();
    let unordered = Faults {
        turns_max: 7,
        ..prompt
    };
    let repeated = Faults {
        twice: 400_000,
        ..unordered
    };
    let busy = Faults {
        busy: 200_000,
        ..unordered
    };
    for (faults, seed) in [(prompt, 1), (unordered, 2), (repeated, 3), (busy, 4)] {
        mail_is_delivered_once_in_order(&mut fresh(), faults, seed);
    }
    live_traffic_does_not_wait_for_a_backend_that_completes_nothing(&mut fresh());
    a_failed_backend_confirms_nothing_and_a_restart_continues(&mut fresh());
}

const HUB: NodeId = NodeId([0xaa; 32]);
const PLAYERS: u64 = 3;
const MAILS: u64 = 60;
/// Virtual time of a turn.
const TURN: Duration = Duration::from_millis(5);
/// Turns until a check gives up: 100 s of virtual time.
const TURNS_MAX: u32 = 20_000;
/// Bytes in flight in one direction of a link.
const WINDOW: usize = 256 * 1_024;

/// A hub on a backend, and two nodes on links without delay.
struct Network<S: Subject> {
    now: Instant,
    hub: Hub,
    backend: Option<S::Backend>,
    unreliable: Unreliable,
    nodes: Vec<Node>,
    /// The open link of each node.
    links: Vec<Option<ConnectionId>>,
    last_link: u32,
    events: VecDeque<(usize, NodeEvent)>,
    hub_failed: bool,
}

impl<S: Subject> Network<S> {
    fn new(subject: &mut S, faults: Faults, seed: u64) -> Self {
        let now = Instant::from_millis(1);
        let file = join_file();
        let nodes = (1..=2).filter_map(|number| {
            let config = NodeConfig::default();
            let seed = Seed::from_number(seed + number);
            Node::new(config, &file, InstanceId(number), seed, now)
        });
        let nodes: Vec<_> = nodes.collect();
        Self {
            now,
            hub: new_hub(now),
            backend: Some(subject.open(limits())),
            unreliable: Unreliable::new(faults, Seed::from_number(seed).generator(9)),
            links: vec![None; nodes.len()],
            nodes,
            last_link: 0,
            events: VecDeque::new(),
            hub_failed: false,
        }
    }

    /// Crashes the backend and the hub, and starts both again on what is stored.
    fn restart(&mut self, subject: &mut S) {
        if let Some(backend) = self.backend.take() {
            subject.crash(backend);
        }
        for at in 0..self.nodes.len() {
            self.close(at);
        }
        self.backend = Some(subject.open(limits()));
        self.hub = new_hub(self.now);
        self.unreliable = Unreliable::new(Faults::default(), Seed::from_number(0).generator(0));
    }

    fn close(&mut self, at: usize) {
        if let Some(link) = self.links[at].take() {
            self.hub.handle_closed(self.now, link, CloseCause::Failed);
            self.nodes[at].handle_closed(self.now, link, CloseCause::Failed);
        }
    }

    /// One turn: timers, records, commands and their completions.
    fn turn(&mut self) {
        self.now += TURN;
        let now = self.now;
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.hub.poll_timeout()) {
            self.hub.handle_timeout(now);
        }
        for node in &mut self.nodes {
            if is_due(node.poll_timeout()) {
                node.handle_timeout(now);
            }
        }
        for at in 0..self.nodes.len() {
            self.run_node(at);
        }
        let commands: Vec<_> = std::iter::from_fn(|| self.hub.poll_command()).collect();
        if let Some(backend) = &mut self.backend {
            for (id, outcome) in self.unreliable.turn(backend, commands) {
                self.hub.handle_completed(now, id, outcome);
            }
        }
        self.run_hub();
        while let Some(event) = self.hub.poll_event() {
            self.hub_failed |= event == HubEvent::StoreFailed;
        }
    }

    fn run_node(&mut self, at: usize) {
        let now = self.now;
        while let Some((id, _dial)) = self.nodes[at].poll_command() {
            self.nodes[at].handle_completed(now, id, Ok(()));
            self.last_link += 1;
            let link = ConnectionId(self.last_link);
            self.links[at] = Some(link);
            let node = &mut self.nodes[at];
            self.hub
                .handle_opened(now, link, &PeerIdentity::Node(node_id(at)));
            self.hub.handle_credit(now, link, WINDOW);
            node.handle_opened(now, link, &PeerIdentity::Node(HUB));
            node.handle_credit(now, link, WINDOW);
        }
        let mut record = Vec::new();
        let mut closes = false;
        while let Some(outbound) = self.nodes[at].poll_outbound(now, &mut record) {
            self.hub.handle_frame(now, outbound.connection, &record);
            let node = &mut self.nodes[at];
            node.handle_credit(now, outbound.connection, record.len());
            closes |= outbound.close;
            record.clear();
        }
        if closes {
            self.close(at);
        }
        while let Some(event) = self.nodes[at].poll_event() {
            self.events.push_back((at, event));
        }
    }

    fn run_hub(&mut self) {
        let now = self.now;
        let mut record = Vec::new();
        let mut closing = Vec::new();
        while let Some(outbound) = self.hub.poll_outbound(now, &mut record) {
            let link = outbound.connection;
            if let Some(at) = self.links.iter().position(|it| *it == Some(link)) {
                self.nodes[at].handle_frame(now, link, &record);
                self.hub.handle_credit(now, link, record.len());
                if outbound.close {
                    closing.push(at);
                }
            }
            record.clear();
        }
        for at in closing {
            self.close(at);
        }
    }

    fn run_until(&mut self, what: &str, mut is_done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..TURNS_MAX {
            if is_done(self) {
                return;
            }
            self.turn();
        }
        panic!("after {TURNS_MAX} turns: not {what}");
    }

    fn join_all(&mut self) {
        self.run_until("all nodes have joined", |network| {
            network.nodes.iter().all(Node::is_joined)
        });
    }
}

fn node_id(at: usize) -> NodeId {
    NodeId([u8::try_from(at).unwrap_or(0) + 1; 32])
}

fn join_file() -> JoinFile {
    let mut file = JoinFile::new(NetworkSecret::new([9; 32]));
    file.grants
        .push(Grant::new(Role::Hub, HUB).with_address("hub.test:7400"));
    for at in 0..2 {
        file.grants.push(Grant::new(Role::GameNode, node_id(at)));
    }
    file
}

fn new_hub(now: Instant) -> Hub {
    let mut hub = Hub::new(HubConfig::default(), join_file(), now);
    hub.set_unix_time(now, UnixTime::from_secs(1_700_000_000));
    hub
}

/// The sender's and the players' view of the mail.
#[derive(Default)]
struct Exchange {
    /// The player and the number in order of each mail that was sent.
    sent: BTreeMap<SenderSeq, u64>,
    stored: BTreeMap<SenderSeq, u32>,
    delivered: BTreeMap<ClientId, Vec<u64>>,
    last: BTreeMap<ClientId, MailSeq>,
}

impl Exchange {
    /// Has node 1 send mail number `number`.
    fn send<S: Subject>(&mut self, network: &mut Network<S>, number: u64) {
        let body = Bytes::copy_from_slice(&number.to_be_bytes());
        let player = ClientId(number % PLAYERS);
        let sent = network.nodes[1].mail(network.now, player, body, Duration::from_secs(3_600));
        let Ok(seq) = sent else {
            panic!("mail {number} was not taken");
        };
        self.sent.insert(seq, number);
    }

    /// Has node 0 claim all players.
    fn claim<S: Subject>(&self, network: &mut Network<S>) {
        for player in (0..PLAYERS).map(ClientId) {
            let last = self.last.get(&player).copied().unwrap_or_default();
            let claimed = network.nodes[0].claim(network.now, player, last, Bytes::new());
            assert!(claimed.is_ok(), "the claim of {player:?}");
        }
    }

    /// Handles events; node 0 acknowledges what it is given.
    fn take<S: Subject>(&mut self, network: &mut Network<S>) {
        while let Some((at, event)) = network.events.pop_front() {
            if let NodeEvent::MailStored(seq) = event {
                *self.stored.entry(seq).or_default() += 1;
            } else if let NodeEvent::Mail {
                claim, seq, body, ..
            } = event
            {
                let number = body.0.first_chunk().copied().map_or(0, u64::from_be_bytes);
                let player = claim.player();
                self.delivered.entry(player).or_default().push(number);
                self.last.insert(player, seq);
                network.nodes[at].acknowledge(network.now, claim, seq);
            }
        }
    }

    fn is_complete(&self) -> bool {
        let delivered: usize = self.delivered.values().map(Vec::len).sum();
        self.stored.len() == self.sent.len() && delivered >= self.sent.len()
    }

    fn check(&self) {
        assert!(self.stored.values().all(|times| *times == 1), "stored once");
        for (player, numbers) in &self.delivered {
            let expected: Vec<_> = self
                .sent
                .values()
                .copied()
                .filter(|number| ClientId(number % PLAYERS) == *player)
                .collect();
            assert_eq!(*numbers, expected, "the mail of {player:?}");
        }
    }
}

fn mail_is_delivered_once_in_order(subject: &mut impl Subject, faults: Faults, seed: u64) {
    let mut network = Network::new(subject, faults, seed);
    network.join_all();
    let mut exchange = Exchange::default();
    exchange.claim(&mut network);
    let mut number = 0;
    network.run_until("all mail is delivered", |network| {
        if number < MAILS {
            number += 1;
            exchange.send(network, number);
        }
        exchange.take(network);
        number == MAILS && exchange.is_complete()
    });
    // Late ones arrive, and change nothing.
    for _ in 0..=2 * faults.turns_max {
        network.turn();
    }
    exchange.take(&mut network);
    exchange.check();
    let unreliable = &network.unreliable;
    let counted = network.hub.stats().completions_unknown;
    assert_eq!(counted, unreliable.repeated, "repeated completions");
    assert_eq!(faults.twice > 0, unreliable.repeated > 0);
    assert_eq!(faults.turns_max > 0, unreliable.overtaken > 0);
    if let Some(backend) = network.backend.take() {
        assert_eq!(backend_mails(subject, backend), 0, "mail is left");
    }
}

/// Crashes `backend`, and returns how many mails are stored for the players.
fn backend_mails<S: Subject>(subject: &mut S, backend: S::Backend) -> usize {
    subject.crash(backend);
    let mut backend = subject.open(limits());
    let reads = (0..PLAYERS).map(|player| crate::store::StoreOp::Read {
        player: ClientId(player),
        after: MailSeq(0),
        bytes_max: 1 << 20,
        now: UnixTime::default(),
    });
    let outcomes = super::run_batch(&mut backend, reads.collect());
    let mails = outcomes.into_iter().map(|outcome| match outcome {
        Ok(crate::store::Completed::Mails { mails, .. }) => mails.len(),
        other => panic!("a read was answered by {other:?}"),
    });
    let count = mails.sum();
    subject.crash(backend);
    count
}

fn live_traffic_does_not_wait_for_a_backend_that_completes_nothing(subject: &mut impl Subject) {
    let mut network = Network::new(subject, Faults::default(), 5);
    network.join_all();
    network.unreliable.faults.never = true;
    let mut exchange = Exchange::default();
    exchange.claim(&mut network);
    for number in 1..=MAILS {
        exchange.send(&mut network, number);
    }
    let mut replies = 0;
    for _ in 0..20 {
        let now = network.now;
        let to = Addr::Node(node_id(0));
        let called = network.nodes[1].call(now, to, Bytes::new(), Duration::from_secs(5));
        assert!(called.is_ok(), "a call");
        // The request, the reply, and one turn each between hub and node.
        for _ in 0..4 {
            network.turn();
            while let Some((at, event)) = network.events.pop_front() {
                if let NodeEvent::Request { ticket, .. } = event {
                    let replied = network.nodes[at].reply(network.now, ticket, Ok(Bytes::new()));
                    assert!(replied.is_ok(), "a reply");
                } else if let NodeEvent::Reply { result, .. } = event {
                    replies += u32::from(result.is_ok());
                } else {
                    assert!(
                        !matches!(event, NodeEvent::MailStored(_)),
                        "nothing is stored"
                    );
                }
            }
        }
    }
    assert_eq!(replies, 20, "each within four turns");
}

fn a_failed_backend_confirms_nothing_and_a_restart_continues(subject: &mut impl Subject) {
    let mut network = Network::new(subject, Faults::default(), 6);
    network.join_all();
    let mut exchange = Exchange::default();
    exchange.claim(&mut network);
    for number in 1..=MAILS / 2 {
        exchange.send(&mut network, number);
    }
    network.run_until("half is delivered", |network| {
        exchange.take(network);
        exchange.is_complete()
    });
    network.unreliable.faults.failed = true;
    let before = exchange.stored.len();
    for number in MAILS / 2 + 1..=MAILS {
        exchange.send(&mut network, number);
    }
    network.run_until("the hub has failed", |network| {
        exchange.take(network);
        network.hub_failed
    });
    for _ in 0..50 {
        network.turn();
    }
    exchange.take(&mut network);
    assert_eq!(
        exchange.stored.len(),
        before,
        "confirmed by a failed backend"
    );
    network.restart(subject);
    network.run_until("all mail is delivered after a restart", |network| {
        exchange.take(network);
        exchange.is_complete()
    });
    exchange.check();
}

//! A seeded simulation of three hubs that crash, with links that break.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use hub::{
    ClaimId, LiveSeq, LogId, MailOptions, MailSeq, NodeConfig, NodeEvent, Redacted, SenderSeq,
};
use wire::{ClientId, NodeId};

use super::net::Net;
use crate::world::{Power, node_id, seeds};

const HUBS: usize = 3;
const NODES: usize = 3;
const PLAYERS: u64 = 24;

/// What the players and senders have seen.
struct Game {
    net: Net,
    at: BTreeMap<ClientId, (usize, ClaimId)>,
    /// The last mail that each client has handled and persisted, with its log.
    last: BTreeMap<ClientId, (LogId, MailSeq)>,
    handled: BTreeMap<ClientId, Vec<u64>>,
    waiting: BTreeMap<(usize, SenderSeq), u64>,
    stored: BTreeSet<u64>,
    recipients: BTreeMap<u64, BTreeSet<ClientId>>,
    sender: BTreeMap<u64, usize>,
    next_tag: u64,
    /// Receivers of multicasts without an outcome.
    multicasts: BTreeMap<(usize, LiveSeq), usize>,
    outcomes: usize,
    /// What the last node has been told about players and nodes.
    players_seen: BTreeMap<ClientId, NodeId>,
    nodes_seen: BTreeSet<NodeId>,
    resets: usize,
}

impl Game {
    fn new(seed: u64) -> Self {
        let mut config = NodeConfig::default();
        config.watch_players = true;
        Self {
            net: Net::joined(seed, HUBS, NODES, &config),
            at: BTreeMap::new(),
            last: BTreeMap::new(),
            handled: BTreeMap::new(),
            waiting: BTreeMap::new(),
            stored: BTreeSet::new(),
            recipients: BTreeMap::new(),
            sender: BTreeMap::new(),
            next_tag: 1,
            multicasts: BTreeMap::new(),
            outcomes: 0,
            players_seen: BTreeMap::new(),
            nodes_seen: BTreeSet::new(),
            resets: 0,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap();
        usize::try_from(self.net.generator.below(bound)).unwrap()
    }

    fn players(&mut self) -> BTreeSet<ClientId> {
        let count = 1 + self.below(6);
        let mut player = || ClientId(self.net.generator.below(PLAYERS));
        (0..count).map(|_| player()).collect()
    }

    fn mail(&mut self) {
        let (node, players, now) = (self.below(NODES), self.players(), self.net.now);
        let tag = self.next_tag;
        self.next_tag += 1;
        let body = Bytes::copy_from_slice(&tag.to_be_bytes());
        let list: Vec<_> = players.iter().copied().collect();
        let machine = self.net.node(node);
        let sent = if let [player] = list[..] {
            machine.mail(now, player, body, Duration::ZERO)
        } else {
            machine.mail_many(now, &list, body, MailOptions::default())
        };
        assert_eq!(self.waiting.insert((node, sent.unwrap()), tag), None);
        self.recipients.insert(tag, players);
        self.sender.insert(tag, node);
    }

    fn multicast(&mut self) {
        let (node, players, now) = (self.below(NODES), self.players(), self.net.now);
        let list: Vec<_> = players.into_iter().collect();
        let sent = self.net.node(node).multicast(now, &list, Bytes::new());
        if let Ok(live) = sent {
            assert_eq!(self.multicasts.insert((node, live), list.len()), None);
        }
    }

    fn claim(&mut self, player: ClientId) {
        let (node, now) = (self.below(NODES), self.net.now);
        if let Some((old, claim)) = self.at.remove(&player) {
            self.net.node(old).release(now, claim);
        }
        let machine = self.net.node(node);
        let log = machine.log_of(player);
        let last = self.last.get(&player);
        let last = last.filter(|(known, _)| log.is_none_or(|log| log == *known));
        let delivered = last.map_or(MailSeq(0), |(_, seq)| *seq);
        let claim = machine.claim(now, player, delivered, Bytes::new());
        self.at.insert(player, (node, claim.unwrap()));
    }

    fn crash(&mut self) {
        let (hub, down) = (self.below(HUBS), self.net.generator.below(800));
        let power = Power::draw(&mut self.net.generator);
        let down = Duration::from_millis(50 + down);
        self.net.crash_hub(hub, power, Some(down));
    }

    fn run_ms(&mut self, millis: u64) {
        self.net.run_ms(millis);
        for (node, event) in self.net.take_events() {
            self.on_event(node, event);
        }
    }

    fn on_event(&mut self, node: usize, event: NodeEvent) {
        let is_watcher = node == NODES - 1;
        match event {
            NodeEvent::MailStored(seq) => {
                let tag = self.waiting.remove(&(node, seq)).expect("sent once");
                assert!(self.stored.insert(tag));
            }
            NodeEvent::MailRefused(..) | NodeEvent::MailPartRefused { .. } => {
                panic!("no mailbox is full")
            }
            NodeEvent::Mail {
                claim, seq, body, ..
            } => self.handle(node, claim, seq, &body),
            NodeEvent::LiveSent {
                first,
                last,
                outcome,
            } => {
                assert_eq!(first, last, "one message an event");
                let receivers = self.multicasts.remove(&(node, first));
                let receivers = receivers.expect("one outcome each");
                if let Some(outcome) = outcome {
                    let sum = outcome.reached + outcome.offline + outcome.busy;
                    assert_eq!(usize::from(sum), receivers);
                    self.outcomes += 1;
                }
            }
            NodeEvent::ClaimLost(claim, _)
                if self.at.get(&claim.player()) == Some(&(node, claim)) =>
            {
                self.at.remove(&claim.player());
            }
            NodeEvent::PresenceReset if is_watcher => self.resets += 1,
            NodeEvent::PlayerPresence(player, holder) if is_watcher => {
                match holder {
                    Some((node, _)) => self.players_seen.insert(player, node),
                    None => self.players_seen.remove(&player),
                };
            }
            NodeEvent::NodePresence(node, info) if is_watcher => {
                match info {
                    Some(_) => self.nodes_seen.insert(node),
                    None => self.nodes_seen.remove(&node),
                };
            }
            _ => {}
        }
    }

    /// The client handles a mail, and persists that, if it is connected to this node.
    fn handle(&mut self, node: usize, claim: ClaimId, seq: MailSeq, body: &Redacted<Bytes>) {
        let player = claim.player();
        if self.at.get(&player) != Some(&(node, claim)) {
            return;
        }
        let log = self.net.node(node).log_of(player).unwrap();
        let last = self.last.insert(player, (log, seq));
        assert!(last.is_none_or(|(last, before)| last != log || before < seq));
        let tag = u64::from_be_bytes(body[..].try_into().unwrap());
        self.handled.entry(player).or_default().push(tag);
        let now = self.net.now;
        if self.net.generator.chance(700_000) {
            self.net.node(node).acknowledge(now, claim, seq);
        }
    }

    /// Half of the players leave, and no hub can report it before its next snapshot.
    fn leave_while_hubs_are_down(&mut self) {
        for hub in 0..HUBS {
            let down = Some(Duration::from_millis(500));
            self.net.crash_hub(hub, Power::Stays, down);
        }
        let now = self.net.now;
        for player in (0..PLAYERS).step_by(2).map(ClientId) {
            if let Some((node, claim)) = self.at.remove(&player) {
                self.net.node(node).release(now, claim);
            }
        }
    }

    fn check(&self) {
        assert!(self.waiting.is_empty(), "{:?}", self.waiting);
        assert!(self.multicasts.is_empty(), "{:?}", self.multicasts);
        for (tag, players) in &self.recipients {
            for player in players {
                let handled = self.handled.get(player).into_iter().flatten();
                let count = handled.filter(|handled| *handled == tag).count();
                assert_eq!(count, 1, "mail {tag} to {player:?}");
            }
        }
        for (player, tags) in &self.handled {
            for sender in 0..NODES {
                let own = tags.iter().filter(|tag| self.sender[tag] == sender);
                assert!(own.is_sorted(), "order of {sender} to {player:?}");
            }
        }
        let held = self.at.iter();
        let held: BTreeMap<_, _> = held
            .map(|(player, (node, _))| (*player, node_id(*node)))
            .collect();
        assert_eq!(self.players_seen, held);
        let nodes: BTreeSet<_> = (0..NODES).map(node_id).collect();
        assert_eq!(self.nodes_seen, nodes);
        assert_eq!(self.resets, 1, "a restarted hub voids no other's players");
    }
}

#[test]
fn sim_hub_9_mail_and_presence_survive_restarts_of_three_shards() {
    let mut outcomes = 0;
    for seed in seeds(40) {
        let mut game = Game::new(seed);
        for _ in 0..150 {
            match game.below(16) {
                0..=5 => game.mail(),
                6..=8 => game.multicast(),
                9..=11 => {
                    let player = ClientId(game.net.generator.below(PLAYERS));
                    game.claim(player);
                }
                12 => game.net.reset_some_stream(),
                13 => game.crash(),
                _ => {}
            }
            let millis = 20 + game.net.generator.below(120);
            game.run_ms(millis);
        }
        game.run_ms(20_000);
        for player in (0..PLAYERS).map(ClientId) {
            game.claim(player);
        }
        game.run_ms(20_000);
        game.leave_while_hubs_are_down();
        game.run_ms(20_000);
        game.check();
        outcomes += game.outcomes;
    }
    assert!(outcomes > 0);
}

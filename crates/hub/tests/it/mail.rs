//! Mail is handled exactly once if its storage was acknowledged, whatever crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use hub::{ClaimId, MailOptions, MailSeq, Name, NodeConfig, NodeEvent, SenderSeq};
use wire::ClientId;

use crate::world::{Power, World, seeds};

const NODES: usize = 3;
const PLAYERS: u64 = 6;

/// The players' connections and handled mail, with a world that fails.
struct Game {
    world: World,
    /// The node that each player's client is connected to.
    at: BTreeMap<ClientId, Option<(usize, ClaimId)>>,
    /// Sessions whose node has not yet detected that the client left.
    stale: Vec<(usize, ClaimId)>,
    /// The last mail that each client has handled and persisted.
    last: BTreeMap<ClientId, MailSeq>,
    /// Handled tags of each player, in order.
    handled: BTreeMap<ClientId, Vec<u64>>,
    /// Tags that are not stored yet, by node and number. All of a node's are removed when it dies.
    waiting: BTreeMap<(usize, SenderSeq), u64>,
    /// Tags that the hub reported as stored.
    stored: BTreeSet<u64>,
    /// The recipients of each tag.
    recipients: BTreeMap<u64, BTreeSet<ClientId>>,
    /// Sender, its run and the number in that run, by tag.
    sent: BTreeMap<u64, (usize, u64, SenderSeq)>,
    runs: [u64; NODES],
    next_tag: u64,
    counted: u64,
    lost_counts: bool,
}

impl Game {
    fn new(seed: u64) -> Self {
        let mut game = Self {
            world: World::joined(seed, NODES),
            at: BTreeMap::new(),
            stale: Vec::new(),
            last: BTreeMap::new(),
            handled: BTreeMap::new(),
            waiting: BTreeMap::new(),
            stored: BTreeSet::new(),
            recipients: BTreeMap::new(),
            sent: BTreeMap::new(),
            runs: [0; NODES],
            next_tag: 1,
            counted: 0,
            lost_counts: false,
        };
        for player in (0..PLAYERS).map(ClientId) {
            game.at.insert(player, None);
        }
        game
    }

    fn pick(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap();
        usize::try_from(self.world.generator.below(bound)).unwrap()
    }

    fn player(&mut self) -> ClientId {
        ClientId(self.world.generator.below(PLAYERS))
    }

    fn send(&mut self, node: usize, count: u64) {
        for _ in 0..count {
            let mut players = vec![self.player()];
            // Every third mail is for several players.
            while self.world.generator.chance(330_000) {
                players.push(self.player());
            }
            let len = self.pick(3_000);
            let mut body = self.next_tag.to_be_bytes().to_vec();
            body.resize(8 + len, 0);
            let now = self.world.now;
            let Some(sender) = &mut self.world.nodes[node] else {
                return;
            };
            let body = Bytes::from(body);
            let seq = match players[..] {
                [player] => sender.mail(now, player, body, Duration::ZERO),
                _ => sender.mail_many(now, &players, body, MailOptions::default()),
            };
            let seq = seq.unwrap();
            self.recipients
                .insert(self.next_tag, players.into_iter().collect());
            self.waiting.insert((node, seq), self.next_tag);
            self.sent
                .insert(self.next_tag, (node, self.runs[node], seq));
            self.next_tag += 1;
        }
    }

    /// A player's client connects to a node. The hub may still have it on another one.
    fn connect(&mut self, player: ClientId, node: usize) {
        let now = self.world.now;
        let last = self.last.get(&player).copied().unwrap_or_default();
        if let Some(host) = &mut self.world.nodes[node] {
            let claim = host.claim(now, player, last, Bytes::new()).unwrap();
            let before = self.at.insert(player, Some((node, claim)));
            self.stale.extend(before.flatten());
        }
    }

    fn disconnect(&mut self, player: ClientId) {
        let now = self.world.now;
        let Some((node, claim)) = self.at.insert(player, None).flatten() else {
            return;
        };
        if self.world.generator.chance(700_000) {
            self.world.node(node).release(now, claim);
        } else {
            self.stale.push((node, claim));
        }
    }

    fn crash_node(&mut self, node: usize) {
        self.world.crash_node(node);
        self.runs[node] += 1;
        self.waiting.retain(|(index, _), _| *index != node);
        self.lost_counts = true;
        for at in self.at.values_mut() {
            if at.is_some_and(|(index, _)| index == node) {
                *at = None;
            }
        }
        self.stale.retain(|(index, _)| *index != node);
        self.world.start_node(node, NodeConfig::default());
    }

    fn count(&mut self, node: usize) {
        let key = Name::new("kill").unwrap().into();
        if let Some(node) = &mut self.world.nodes[node] {
            node.count(key, 1);
            self.counted += 1;
        }
    }

    /// Applies one random disturbance.
    fn disturb(&mut self) {
        let node = self.pick(NODES);
        let player = self.player();
        match self.world.generator.below(100) {
            0..=39 => {
                let count = self.world.generator.below(12);
                self.send(node, count);
            }
            40..=59 => self.connect(player, node),
            60..=69 => self.disconnect(player),
            70..=79 => self.count(node),
            80..=85 => self.world.reset_some_stream(),
            86 => self.crash_node(node),
            87..=89 => {
                let down = Duration::from_millis(self.world.generator.below(1_500));
                let power = Power::draw(&mut self.world.generator);
                self.world.crash_hub(power, down);
            }
            90..=92 => {
                let count = self.world.generator.below(20);
                if let Some(hub) = &mut self.world.hub {
                    hub.store.files_mut().stop_after(count);
                }
            }
            93 => {
                let count = self.world.generator.below(20);
                if let Some(hub) = &mut self.world.hub {
                    hub.store.files_mut().fail_sync_after(count);
                }
            }
            _ => {}
        }
    }

    fn run_ms(&mut self, millis: u64) {
        // Clients answer promptly, not after the whole run.
        for _ in 0..millis.div_ceil(10) {
            self.world.run_ms(10);
            for (node, event) in self.world.take_events() {
                self.on_event(node, event);
            }
        }
    }

    fn on_event(&mut self, node: usize, event: NodeEvent) {
        match event {
            NodeEvent::MailStored(seq) => {
                if let Some(tag) = self.waiting.remove(&(node, seq)) {
                    self.stored.insert(tag);
                }
            }
            NodeEvent::MailRefused(seq, reason) => panic!("{seq:?} refused: {reason}"),
            NodeEvent::Mail {
                claim, seq, body, ..
            } => {
                let player = claim.player();
                // The client is on another node, so the mail is not handled here.
                if self.at[&player] != Some((node, claim)) {
                    return;
                }
                let last = self.last.entry(player).or_default();
                if seq > *last {
                    *last = seq;
                    let tag = u64::from_be_bytes(body[..8].try_into().unwrap());
                    self.handled.entry(player).or_default().push(tag);
                }
                if self.world.generator.chance(600_000) {
                    let (now, upto) = (self.world.now, self.last[&player]);
                    self.world.node(node).acknowledge(now, claim, upto);
                }
            }
            _ => {}
        }
    }

    /// Repairs everything, and then checks the guarantees.
    fn settle(mut self, seed: u64) {
        if let Some(hub) = &mut self.world.hub {
            hub.store.files_mut().kill();
        }
        let now = self.world.now;
        let sessions: Vec<_> = self.at.values_mut().filter_map(Option::take).collect();
        for (node, claim) in std::mem::take(&mut self.stale).into_iter().chain(sessions) {
            // If two nodes claim a player while the hub is down, it cannot order the claims.
            self.world.node(node).release(now, claim);
        }
        self.run_ms(4_000);
        for player in (0..PLAYERS).map(ClientId) {
            let node = self.pick(NODES);
            self.connect(player, node);
        }
        self.run_ms(12_000);
        for (index, node) in self.world.nodes.iter().enumerate() {
            let node = node.as_ref().unwrap();
            assert!(node.is_joined(), "seed {seed}: node {index} is not back");
            assert_eq!(node.mails_waiting(), 0, "seed {seed}: node {index}");
            assert!(node.is_counted(), "seed {seed}: node {index}");
        }
        let mut seen = BTreeSet::new();
        for (player, tags) in &self.handled {
            let mut order = BTreeMap::new();
            for tag in tags {
                assert!(
                    self.recipients[tag].contains(player),
                    "seed {seed}: mail {tag} has another recipient"
                );
                let is_first = seen.insert((*tag, *player));
                assert!(is_first, "seed {seed}: mail {tag} was handled twice");
                let (node, run, seq) = self.sent[tag];
                let before = order.insert((node, run), seq);
                assert!(
                    before < Some(seq),
                    "seed {seed}: mail {tag} is out of order"
                );
            }
        }
        for tag in &self.stored {
            for player in &self.recipients[tag] {
                assert!(
                    seen.contains(&(*tag, *player)),
                    "seed {seed}: mail {tag} was acknowledged and is lost",
                );
            }
        }
        let total = self
            .world
            .hub()
            .store
            .total(&Name::new("kill").unwrap().into());
        if self.lost_counts {
            assert!(
                total <= self.counted,
                "seed {seed}: {total} of {}",
                self.counted
            );
        } else {
            assert_eq!(total, self.counted, "seed {seed}: counts");
        }
    }
}

#[test]
fn sim_hub_2_every_acknowledged_mail_is_handled_once_under_any_failures() {
    let (mut mails, mut starts) = (0, 0);
    for seed in seeds(60) {
        let mut game = Game::new(seed);
        for _ in 0..120 {
            game.disturb();
            let pause = game.world.generator.below(80);
            game.run_ms(pause);
        }
        mails += game.stored.len();
        starts += game.world.hub_starts;
        game.settle(seed);
    }
    // A world without activity proves nothing.
    assert!(mails > 0 && starts > 1, "{mails} mails, {starts} starts");
}

#[test]
fn sim_hub_h10_kill_with_64_mails_in_flight_loses_none() {
    for seed in seeds(20) {
        let mut game = Game::new(seed);
        for player in (0..PLAYERS).map(ClientId) {
            game.connect(player, 2);
        }
        game.run_ms(200);
        game.send(0, 64);
        let under_way = game.world.generator.below(60);
        game.run_ms(under_way);
        game.world.crash_hub(
            if seed % 2 == 0 {
                Power::Cut
            } else {
                Power::Stays
            },
            Duration::from_millis(300),
        );
        game.run_ms(5_000);
        assert_eq!(
            game.stored.len(),
            64,
            "seed {seed}: sent again until acknowledged"
        );
        let handled: usize = game.handled.values().map(Vec::len).sum();
        let expected: usize = game.recipients.values().map(BTreeSet::len).sum();
        assert_eq!(handled, expected, "seed {seed}: handled once each");
        game.settle(seed);
    }
}

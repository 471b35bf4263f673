//! Rejected players and nodes, and failed dials: counted, and reported at most once a minute.

use core::time::Duration;
use std::collections::BTreeMap;

use crypto::Provider;
use udp_proto::ConnectFailure;
use wire::{Instant, NodeId};

use super::Node;
use super::peers::Contact;
use crate::event::{Event, NodeRefusal, TurnedAway};
use crate::link::LinkId;

pub(super) type RejectionCounts = MinuteCounts<(String, TurnedAway), ()>;

#[derive(Debug, Default)]
pub(super) struct LinkFailures {
    dials: MinuteCounts<NodeId, ConnectFailure>,
    refused: MinuteCounts<NodeRefusal, ()>,
    /// The endpoint's counters at the last update of `refused`.
    counted: [u64; 2],
    /// Records with this node's identity that another node made.
    own: MinuteCounts<(), ()>,
    /// The table's counter at the last update of `own`.
    own_counted: u64,
    /// Consecutive 10 s spans with such records.
    spans_with_own: u8,
    /// Refused players by entry, with the last game's name.
    games: MinuteCounts<NodeId, String>,
}

/// Counts by key, with the last detail of each key.
#[derive(Debug)]
pub(super) struct MinuteCounts<K, D> {
    counts: BTreeMap<K, Tally<D>>,
    due_at: Option<Instant>,
}

#[derive(Debug)]
struct Tally<D> {
    count: u64,
    detail: D,
    due_at: Instant,
}

impl<K, D> Default for MinuteCounts<K, D> {
    fn default() -> Self {
        Self {
            counts: BTreeMap::new(),
            due_at: None,
        }
    }
}

impl<K: Ord + Clone, D: Clone> MinuteCounts<K, D> {
    /// Counts one. A key's first report waits for a second, to cover more than one occurrence.
    pub(super) fn add(&mut self, now: Instant, key: K, detail: D) {
        self.add_many(now, key, detail, 1);
    }

    pub(super) fn add_many(&mut self, now: Instant, key: K, detail: D, count: u64) {
        if count == 0 {
            return;
        }
        if self.counts.len() >= COUNTS_MAX && !self.counts.contains_key(&key) {
            self.counts.retain(|_, of| of.count > 0 || now < of.due_at);
            if self.counts.len() >= COUNTS_MAX {
                return;
            }
        }
        let of = self.counts.entry(key).or_insert(Tally {
            count: 0,
            detail: detail.clone(),
            due_at: now + FIRST_WAIT,
        });
        if of.count == 0 {
            of.due_at = of.due_at.max(now + FIRST_WAIT);
            let due_at = self.due_at.map_or(of.due_at, |due| due.min(of.due_at));
            self.due_at = Some(due_at);
        }
        of.count = of.count.saturating_add(count);
        of.detail = detail;
    }

    /// Takes the counts that are due: key, last detail, and count since the last report.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(K, D, u64)> {
        if self.due_at.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let mut due = Vec::new();
        for (key, of) in &mut self.counts {
            if of.count > 0 && of.due_at <= now {
                due.push((key.clone(), of.detail.clone(), of.count));
                (of.count, of.due_at) = (0, now + GAP);
            }
        }
        let waiting = self.counts.values().filter(|of| of.count > 0);
        self.due_at = waiting.map(|of| of.due_at).min();
        due
    }
}

impl<P: Provider> Node<P> {
    pub(super) fn count_rejected(&mut self, now: Instant, game: Option<usize>, reason: TurnedAway) {
        let game = game.map(|game| self.game_name(game)).unwrap_or_default();
        self.rejections.add(now, (game, reason), ());
    }

    /// Counts a rejected player of a TCP game.
    #[cfg(feature = "tcp")]
    pub(super) fn count_rejected_tcp(&mut self, now: Instant, game: String, reason: TurnedAway) {
        self.rejections.add(now, (game, reason), ());
    }

    /// Counts the player of a flow that ends. A tunnel has no single player and is not counted.
    pub(super) fn count_rejected_flow(&mut self, now: Instant, index: u32, reason: TurnedAway) {
        let flow = self.flows.get(index);
        if let Some(game) = flow
            .filter(|flow| flow.side.is_of_player())
            .map(|flow| flow.game)
        {
            self.count_rejected(now, Some(game), reason);
        }
    }

    pub(super) fn emit_rejections(&mut self, now: Instant) {
        for ((game, reason), (), count) in self.rejections.take_due(now) {
            self.emit(Event::TurnedAway {
                game,
                reason,
                count,
            });
        }
    }

    /// Counts a player of `entry`, if this node accepts players, but not those of this game.
    pub(super) fn count_refused_game(&mut self, now: Instant, entry: NodeId, game: &str) {
        if self.takes_new_flows(now) {
            self.link_failures.games.add(now, entry, game.to_owned());
        }
    }

    /// Counts a failed dial of a bootstrap node. A full node is not a failure: others are dialled.
    pub(super) fn count_failed_dial(
        &mut self,
        now: Instant,
        link: LinkId,
        failure: ConnectFailure,
    ) {
        let peer = self.peers.get(link);
        if let Some(peer) = peer.filter(|peer| !peer.bootstrap.is_empty()) {
            self.link_failures.dials.add(now, peer.node, failure);
        }
    }

    /// Counts a node that was removed from the members while its session opened.
    pub(super) fn count_non_member(&mut self, now: Instant) {
        self.link_failures
            .refused
            .add(now, NodeRefusal::NotMember, ());
    }

    /// Reports another node with this one's identity; called every 10 s.
    ///
    /// After a start or a partition, neighbours return this node's own earlier records once, until
    /// its next record is newer. A second node keeps making them.
    pub(super) fn report_identity_in_use(&mut self, now: Instant) {
        let count = self.gossip.table().stats().own_from_before;
        let failures = &mut self.link_failures;
        let new = count.saturating_sub(failures.own_counted);
        failures.own_counted = count;
        failures.spans_with_own = if new > 0 {
            failures.spans_with_own.saturating_add(1)
        } else {
            0
        };
        if failures.spans_with_own >= SPANS_IN_A_ROW {
            failures.own.add_many(now, (), (), new);
        }
    }

    pub(super) fn emit_link_failures(&mut self, now: Instant) {
        let stats = self.endpoint.stats();
        let counts = [
            (NodeRefusal::WrongSecret, stats.dropped_psk),
            (NodeRefusal::NotMember, stats.refused_identity),
        ];
        let LinkFailures {
            dials,
            refused,
            counted,
            own,
            games,
            ..
        } = &mut self.link_failures;
        for ((reason, count), old) in counts.into_iter().zip(counted) {
            refused.add_many(now, reason, (), count.saturating_sub(*old));
            *old = count;
        }
        let (dials, refused) = (dials.take_due(now), refused.take_due(now));
        let games = games.take_due(now);
        for ((), (), records) in own.take_due(now) {
            self.emit(Event::IdentityInUse { records });
        }
        for (entry, game, count) in games {
            self.emit(Event::GameRefused { entry, game, count });
        }
        for (reason, (), count) in refused {
            self.emit(Event::NodesRefused { reason, count });
        }
        for (node, failure, attempts) in dials {
            let peer = self.peers.find(&node).and_then(|link| self.peers.get(link));
            let Some(peer) = peer.filter(|peer| !matches!(peer.contact, Contact::Up(_))) else {
                continue;
            };
            let addresses = peer.bootstrap.clone();
            self.emit(Event::BootstrapFailed {
                node,
                addresses,
                failure,
                attempts,
            });
        }
    }
}

/// Records returned after a partition span at most two.
const SPANS_IN_A_ROW: u8 = 3;
const FIRST_WAIT: Duration = Duration::from_secs(1);
const GAP: Duration = Duration::from_secs(60);
const COUNTS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_due_once_a_minute_with_its_count_and_last_detail() {
        let at = Instant::from_millis;
        let mut counts = MinuteCounts::default();
        let mut reported = Vec::new();
        for tick in 0..1_800 {
            let now = at(tick * 100);
            counts.add(now, "ration", tick);
            if tick == 300 {
                counts.add(now, "too long", tick);
            }
            let due = counts.take_due(now);
            reported.extend(
                due.into_iter()
                    .map(|(key, detail, count)| (tick, key, detail, count)),
            );
        }
        let expected = [
            (10, "ration", 10, 11),
            (310, "too long", 300, 1),
            (610, "ration", 610, 600),
            (1_210, "ration", 1_210, 600),
        ];
        assert_eq!(reported, expected);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_forgotten() {
        let at = Instant::from_millis;
        let mut counts = MinuteCounts::default();
        for key in 0..2_000 {
            counts.add(at(0), key, ());
        }
        assert_eq!(counts.counts.len(), COUNTS_MAX);
        assert_eq!(counts.take_due(at(1_000)).len(), COUNTS_MAX);
        counts.add(at(60_000), 3_000, ());
        assert_eq!(counts.counts.len(), COUNTS_MAX, "there is no room");
        counts.add(at(61_000), 3_000, ());
        assert_eq!(counts.counts.len(), 1);
        assert_eq!(counts.take_due(at(62_000)).len(), 1);
    }
}

//! Opening of flows at their far end: the messages that open and close flows, and datagrams sent
//! before a flow has a label.

use core::time::Duration;
use std::collections::VecDeque;

use crypto::Provider;
use wire::Instant;

use super::path_set::PathSet;
use super::{Node, UNRELIABLE};
use crate::flow_key::FlowId;
use crate::flow_message::{FlowDatagram, FlowEnd, FlowMessage, OPENS_MAX};
use crate::link::LinkId;

#[derive(Debug, Default)]
pub(super) struct EarlyDatagrams {
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    link: LinkId,
    flow: FlowId,
    since: Instant,
    datagram: Vec<u8>,
}

impl EarlyDatagrams {
    /// Queues a datagram. Returns false if the queue or the link's share is full.
    fn push(&mut self, now: Instant, link: LinkId, of: FlowDatagram<'_>) -> bool {
        self.waiting
            .retain(|waiting| now.saturating_since(waiting.since) < WAIT_MAX);
        let of_link = self.waiting.iter().filter(|waiting| waiting.link == link);
        if of_link.count() >= WAITING_PER_LINK || self.waiting.len() >= WAITING_MAX {
            return false;
        }
        self.waiting.push_back(Waiting {
            link,
            flow: of.flow,
            since: now,
            datagram: of.datagram.to_vec(),
        });
        true
    }

    fn take(&mut self, link: LinkId, flow: FlowId) -> Vec<Vec<u8>> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let mut taken = Vec::new();
        self.waiting.retain_mut(|waiting| {
            let is_it = waiting.link == link && waiting.flow == flow;
            if is_it {
                taken.push(core::mem::take(&mut waiting.datagram));
            }
            !is_it
        });
        taken
    }
}

impl<P: Provider> Node<P> {
    /// Sends the pending opens of flows to an exit, at most every 10 ms; a single one at once.
    pub(super) fn send_opens(&mut self, now: Instant, far: LinkId) {
        let path_set = self.path_sets.get(&far);
        if path_set.is_some_and(|path_set| !path_set.opens.is_empty() && path_set.opens_at <= now) {
            self.send_all_opens(now, far);
        }
    }

    /// Sends all pending opens to an exit, oldest first; returns false if some have to wait.
    pub(super) fn send_all_opens(&mut self, now: Instant, far: LinkId) -> bool {
        let Some(path_set) = self.path_sets.get_mut(&far) else {
            return false;
        };
        path_set.opens_at = now + OPENS_REST;
        loop {
            let (count, message) = self.next_opens(far);
            let is_sent = message.is_none_or(|message| self.send_flow_message(now, far, &message));
            let Some(path_set) = self.path_sets.get_mut(&far) else {
                return false;
            };
            if !is_sent {
                return false;
            }
            for _ in 0..count {
                path_set.opens.pop_first();
            }
            path_set.search_from(now);
            if path_set.opens.is_empty() {
                return true;
            }
        }
    }

    /// Notifies the other end that a flow ended. If the session has no room, the message is queued;
    /// otherwise the other end would keep sending to a closed flow.
    pub(super) fn send_close(
        &mut self,
        now: Instant,
        far: LinkId,
        (flow, reason): (FlowId, FlowEnd),
    ) {
        let waits = |path_set: &PathSet<P::Aead>| !path_set.closes.is_empty();
        let is_sent = !self.path_sets.get(&far).is_some_and(waits)
            && self.send_flow_message(now, far, &FlowMessage::Close { flow, reason });
        let path_set = self.path_sets.get_mut(&far).filter(|_| !is_sent);
        if let Some(path_set) =
            path_set.filter(|path_set| path_set.closes.len() < CLOSES_WAITING_MAX)
        {
            path_set.closes.insert(flow, reason);
        }
    }

    pub(super) fn send_closes(&mut self, now: Instant, far: LinkId) {
        let next = |path_set: &PathSet<P::Aead>| {
            let first = path_set.closes.first_key_value();
            first
                .filter(|_| path_set.closes_at <= now)
                .map(|(flow, reason)| (*flow, *reason))
        };
        while let Some((flow, reason)) = self.path_sets.get(&far).and_then(next) {
            let is_sent = self.send_flow_message(now, far, &FlowMessage::Close { flow, reason });
            let Some(path_set) = self.path_sets.get_mut(&far) else {
                return;
            };
            if is_sent {
                path_set.closes.remove(&flow);
            } else {
                path_set.closes_at = now + CLOSES_REST;
            }
        }
    }

    /// The next message for pending flows, if any is left, and how many entries it covers.
    fn next_opens(&self, far: LinkId) -> (usize, Option<FlowMessage>) {
        let waiting = self.path_sets.get(&far).into_iter();
        let mut waiting = waiting.flat_map(|path_set| path_set.opens.iter().copied());
        let flow = |id: FlowId| self.flows.get(self.flows.of_id(far, id)?);
        let first = waiting.by_ref().find(|id| flow(*id).is_some());
        let path_set = self.path_sets.get(&far);
        let waiting_len = path_set.map_or(0, |path_set| path_set.opens.len());
        let (Some(first), Some(of)) = (first, first.and_then(flow)) else {
            return (waiting_len, None);
        };
        let mut players = vec![of.player];
        let mut last = first;
        for id in waiting {
            let next = flow(id).filter(|next| {
                id.0.checked_sub(2) == Some(last.0)
                    && next.game == of.game
                    && next.mode == of.mode
                    && next.player.is_ipv4() == of.player.is_ipv4()
            });
            let Some(next) = next.filter(|_| players.len() < OPENS_MAX) else {
                break;
            };
            players.push(next.player);
            last = id;
        }
        let ended = path_set.map_or(0, |path_set| path_set.opens.range(..first).count());
        let count = ended.saturating_add(players.len());
        let (game, mode) = (self.game_name(of.game), Some(of.mode));
        let message = if players.len() == 1 {
            FlowMessage::Open {
                flow: first,
                player: of.player,
                game,
                mode,
            }
        } else {
            FlowMessage::OpenMany {
                first,
                game,
                players,
                mode,
            }
        };
        (count, Some(message))
    }

    /// Sends a datagram of a new flow without a label over the session; returns false if it is not
    /// sent.
    pub(super) fn send_early_by_session(
        &mut self,
        now: Instant,
        index: u32,
        datagram: &[u8],
    ) -> bool {
        let Some(flow) = self.flows.get_mut(index) else {
            return false;
        };
        let is_young = now.saturating_since(flow.since) < YOUNG;
        if !is_young || flow.by_session >= BY_SESSION_MAX {
            return false;
        }
        let (far, id) = (flow.far, flow.id);
        if self.detours.is_paused(now, far) {
            return false;
        }
        let cost = u32::try_from(datagram.len()).unwrap_or(u32::MAX);
        let Some(path_set) = self.path_sets.get_mut(&far) else {
            return false;
        };
        if !path_set.early_out.take(now, cost.saturating_add(OVERHEAD)) {
            return false;
        }
        flow.by_session = flow.by_session.saturating_add(1);
        let mut message = Vec::with_capacity(datagram.len().saturating_add(9));
        let of = FlowDatagram { flow: id, datagram };
        of.encode(&mut message);
        self.send(now, far, UNRELIABLE, &message)
    }

    /// Handles a flow's datagram that arrived over the session.
    pub(super) fn on_flow_datagram(&mut self, now: Instant, link: LinkId, message: &[u8]) {
        let Ok(of) = FlowDatagram::decode(message) else {
            self.count_malformed();
            return;
        };
        let index = self.flows.of_id(link, of.flow);
        let is_taken = if let Some(index) = index {
            self.take_early(now, (link, index), of.datagram)
        } else {
            self.early.push(now, link, of)
        };
        if !is_taken {
            self.stats.early_dropped = self.stats.early_dropped.saturating_add(1);
        }
    }

    /// Delivers the datagrams that arrived before their flow was opened.
    pub(super) fn deliver_early(&mut self, now: Instant, link: LinkId, flow: FlowId) {
        let waiting = self.early.take(link, flow);
        let Some(index) = self.flows.of_id(link, flow) else {
            return;
        };
        for datagram in waiting {
            self.take_early(now, (link, index), &datagram);
        }
    }

    fn take_early(&mut self, now: Instant, (link, index): (LinkId, u32), datagram: &[u8]) -> bool {
        let cost = u32::try_from(datagram.len()).unwrap_or(u32::MAX);
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return false;
        };
        if !path_set.early_in.take(now, cost.saturating_add(OVERHEAD)) {
            return false;
        }
        path_set.used = now;
        if let Some(flow) = self.flows.get_mut(index) {
            flow.used = now;
        }
        self.deliver(now, index, datagram);
        true
    }
}

/// Minimum time between two messages that open flows to one exit: 100 for 1,000 joins per second.
const OPENS_REST: Duration = Duration::from_millis(10);
/// Delay before a close message is retried: a short round trip.
const CLOSES_REST: Duration = Duration::from_millis(20);
/// Queued close messages per session; 1.5 MiB. Dropping more costs only the flows of a slow peer.
const CLOSES_WAITING_MAX: usize = 65_536;
/// Maximum age of a flow that sends over the session. An older one has labels, or gets none.
const YOUNG: Duration = Duration::from_secs(2);
/// Datagrams of one flow over the session: 250 ms of a typical game.
const BY_SESSION_MAX: u8 = 16;
const OVERHEAD: u32 = 64;
/// Bytes per second that flows with one far end send over the session: a quarter of what a relay
/// forwards between ends that cannot reach each other. The burst is about 64 first datagrams. More
/// would delay the messages that open flows.
pub(super) const EARLY_RATE: u32 = 16 << 10;
pub(super) const EARLY_BURST: u32 = EARLY_RATE / 2;
/// How long a datagram waits for the message that opens its flow: one loss of that message.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Queued datagrams per neighbour and in total; 1.5 MiB.
const WAITING_PER_LINK: usize = 128;
const WAITING_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mesh_a1_early_datagrams_are_bounded_per_link_in_total_and_in_time() {
        let mut early = EarlyDatagrams::default();
        let at = Instant::from_millis;
        let push = |early: &mut EarlyDatagrams, now, link, flow| {
            let of = FlowDatagram {
                flow: FlowId(flow),
                datagram: &[1; 10],
            };
            early.push(now, LinkId(link), of)
        };
        let taken = (0..200).filter(|flow| push(&mut early, at(0), 1, *flow));
        assert_eq!(taken.count(), WAITING_PER_LINK);
        let links = (2..1_000).filter(|link| push(&mut early, at(0), *link, 1));
        assert_eq!(links.count(), WAITING_MAX - WAITING_PER_LINK);
        assert_eq!(early.take(LinkId(1), FlowId(5)), [vec![1; 10]]);
        assert_eq!(early.take(LinkId(1), FlowId(5)).len(), 0);
        assert!(push(&mut early, at(999), 1, 7), "one has left");
        assert!(!push(&mut early, at(999), 1, 8));
        assert!(push(&mut early, at(1_000), 1, 9), "who waited has gone");
        assert_eq!(early.waiting.len(), 2);
    }
}

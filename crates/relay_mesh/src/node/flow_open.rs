//! Opening of flows at their remote end: the messages that open and close flows, and datagrams sent
//! before a flow has a label.

use core::time::Duration;
use std::collections::VecDeque;

use crypto::Provider;
use wire::{Instant, TokenBucket};

use super::path_set::PathSet;
use super::{Node, UNRELIABLE};
use crate::flow_key::FlowId;
use crate::flow_message::{FLOWS_PER_OPEN_MAX, FlowDatagram, FlowEnd, FlowMessage};
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

/// Limits the bytes of datagrams that flows with one remote end send over the session.
#[derive(Debug)]
pub(super) struct EarlyLimiter {
    outgoing: TokenBucket,
    incoming: TokenBucket,
}

impl EarlyLimiter {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            outgoing: TokenBucket::new(EARLY_RATE, EARLY_BURST, now),
            // They may have queued on the path.
            incoming: TokenBucket::new(EARLY_RATE * 2, EARLY_BURST * 4, now),
        }
    }

    fn takes_outgoing(&mut self, now: Instant, len: usize) -> bool {
        self.outgoing.take(now, session_cost(len))
    }

    fn takes_incoming(&mut self, now: Instant, len: usize) -> bool {
        self.incoming.take(now, session_cost(len))
    }
}

/// Bytes of a datagram of `len` bytes in the session.
fn session_cost(len: usize) -> u32 {
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    len.saturating_add(OVERHEAD)
}

impl<P: Provider> Node<P> {
    /// Sends the pending opens of flows to an exit, at most every 10 ms; a single one at once.
    pub(super) fn send_opens(&mut self, now: Instant, remote: LinkId) {
        let path_set = self.path_sets.get(&remote);
        if path_set.is_some_and(|path_set| path_set.opens.is_due(now)) {
            self.send_all_opens(now, remote);
        }
    }

    /// Sends all pending opens to an exit, oldest first; returns false if some have to wait.
    pub(super) fn send_all_opens(&mut self, now: Instant, remote: LinkId) -> bool {
        let Some(path_set) = self.path_sets.get_mut(&remote) else {
            return false;
        };
        path_set.opens.pause(now);
        loop {
            let (count, message) = self.next_opens(remote);
            let is_sent =
                message.is_none_or(|message| self.send_flow_message(now, remote, &message));
            let Some(path_set) = self.path_sets.get_mut(&remote) else {
                return false;
            };
            if !is_sent {
                return false;
            }
            path_set.opens.on_sent(count);
            path_set.label_search.schedule(now);
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
        remote: LinkId,
        (flow, reason): (FlowId, FlowEnd),
    ) {
        let waits = |path_set: &PathSet<P::Aead>| !path_set.closes.is_empty();
        let is_sent = !self.path_sets.get(&remote).is_some_and(waits)
            && self.send_flow_message(now, remote, &FlowMessage::Close { flow, reason });
        let path_set = self.path_sets.get_mut(&remote).filter(|_| !is_sent);
        if let Some(path_set) = path_set {
            path_set.closes.push(flow, reason);
        }
    }

    pub(super) fn send_closes(&mut self, now: Instant, remote: LinkId) {
        let next = |path_set: &PathSet<P::Aead>| path_set.closes.next(now);
        while let Some((flow, reason)) = self.path_sets.get(&remote).and_then(next) {
            let is_sent = self.send_flow_message(now, remote, &FlowMessage::Close { flow, reason });
            let Some(path_set) = self.path_sets.get_mut(&remote) else {
                return;
            };
            if is_sent {
                path_set.closes.on_sent(flow);
            } else {
                path_set.closes.on_full(now);
            }
        }
    }

    /// The next message for pending flows, if any is left, and how many entries it covers.
    fn next_opens(&self, remote: LinkId) -> (usize, Option<FlowMessage>) {
        let waiting = self.path_sets.get(&remote).into_iter();
        let mut waiting = waiting.flat_map(|path_set| path_set.opens.iter());
        let flow = |id: FlowId| self.flows.get(self.flows.of_id(remote, id)?);
        let first = waiting.by_ref().find(|id| flow(*id).is_some());
        let path_set = self.path_sets.get(&remote);
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
            let Some(next) = next.filter(|_| players.len() < FLOWS_PER_OPEN_MAX) else {
                break;
            };
            players.push(next.player);
            last = id;
        }
        let ended = path_set.map_or(0, |path_set| {
            path_set.opens.iter().take_while(|id| *id < first).count()
        });
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
        if !flow.unlabelled.may_use_session(now) {
            return false;
        }
        let (remote, id) = (flow.remote, flow.id);
        if self.detours.is_paused(now, remote) {
            return false;
        }
        let Some(path_set) = self.path_sets.get_mut(&remote) else {
            return false;
        };
        if !path_set.early.takes_outgoing(now, datagram.len()) {
            return false;
        }
        flow.unlabelled.on_sent_by_session();
        let mut message = Vec::with_capacity(datagram.len().saturating_add(9));
        let of = FlowDatagram { flow: id, datagram };
        of.encode(&mut message);
        self.send(now, remote, UNRELIABLE, &message)
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
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return false;
        };
        if !path_set.early.takes_incoming(now, datagram.len()) {
            return false;
        }
        path_set.on_used(now);
        if let Some(flow) = self.flows.get_mut(index) {
            flow.used = now;
        }
        self.deliver(now, index, datagram);
        true
    }
}

const OVERHEAD: u32 = 64;
/// Bytes per second that flows with one remote end send over the session: a quarter of what a relay
/// forwards between ends that cannot reach each other. The burst is about 64 first datagrams. More
/// would delay the messages that open flows.
const EARLY_RATE: u32 = 16 << 10;
const EARLY_BURST: u32 = EARLY_RATE / 2;
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
        assert!(
            push(&mut early, at(1_000), 1, 9),
            "an older one was dropped"
        );
        assert_eq!(early.waiting.len(), 2);
    }
}

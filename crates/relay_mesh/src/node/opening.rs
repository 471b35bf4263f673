//! Messages to the other end about flows opened here, batched if several open at once, and about
//! ended flows.

use core::time::Duration;

use crypto::Provider;
use wire::Instant;

use super::Node;
use super::path_set::PathSet;
use crate::flow_key::FlowId;
use crate::flow_message::{FlowEnd, FlowMessage, OPENS_MAX};
use crate::link::LinkId;

impl<P: Provider> Node<P> {
    /// Announces pending flows to an exit, at most every 10 ms. A single new flow is announced at
    /// once.
    pub(super) fn tell_opens(&mut self, now: Instant, far: LinkId) {
        let path_set = self.path_sets.get(&far);
        if path_set.is_some_and(|path_set| !path_set.opens.is_empty() && path_set.opens_at <= now) {
            self.tell_all_opens(now, far);
        }
    }

    /// Announces all pending flows to an exit, oldest first. Skips flows that have ended. Returns
    /// false if some have to wait.
    pub(super) fn tell_all_opens(&mut self, now: Instant, far: LinkId) -> bool {
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
            // An earlier label search skipped these flows.
            path_set.search_from(now);
            if path_set.opens.is_empty() {
                return true;
            }
        }
    }

    /// Notifies the other end that a flow ended. If the session has no room, the message is queued
    /// and sent later; otherwise the other end would keep sending to a closed flow.
    pub(super) fn tell_close(
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

    /// Sends the queued close messages.
    pub(super) fn tell_closes(&mut self, now: Instant, far: LinkId) {
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

    /// Returns the next message for pending flows, oldest first, and how many entries it covers.
    /// The message is `None` if all of them have ended.
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
}

/// Minimum time between two messages that open flows to one exit. At 1,000 joins per second it
/// needs 100 messages, and the delay is not noticeable.
const OPENS_REST: Duration = Duration::from_millis(10);
/// Delay before a close message is retried after the session had no room: about a short round trip,
/// in which the peer acknowledges some data.
const CLOSES_REST: Duration = Duration::from_millis(20);
/// Queued close messages per session; 1.5 MiB. If a peer acknowledges too slowly, further ones are
/// dropped, which costs only its own flows.
const CLOSES_WAITING_MAX: usize = 65_536;

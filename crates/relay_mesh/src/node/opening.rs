//! Telling the other end of flows that are opened here, those that come together by one message, and of flows that
//! ended.

use core::time::Duration;

use crypto::Provider;
use wire::Instant;

use super::Node;
use super::path_set::PathSet;
use crate::flow_key::FlowId;
use crate::flow_message::{FlowEnd, FlowMessage, OPENS_MAX};
use crate::link::LinkId;

impl<P: Provider> Node<P> {
    /// Tells an exit of the flows that were opened here, at most each 10 ms: a single newcomer at once.
    pub(super) fn tell_opens(&mut self, now: Instant, far: LinkId) {
        let path_set = self.path_sets.get(&far);
        if path_set.is_some_and(|path_set| !path_set.opens.is_empty() && path_set.opens_at <= now) {
            self.tell_all_opens(now, far);
        }
    }

    /// Tells an exit of all flows that were opened here, oldest first; false where some have to wait. Those that
    /// have ended meanwhile are not told of.
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
            // A search before this left these flows out.
            path_set.search_from(now);
            if path_set.opens.is_empty() {
                return true;
            }
        }
    }

    /// Tells the other end that a flow ended. If the session has no room for the message now, it is sent as soon as
    /// there is: an end that did not learn of it would send into nothing.
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

    /// Tells the other end of the flows that ended while the session had no room to say so.
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

    /// How many of the flows that wait, the oldest of them, one message tells of, and the message; none where they
    /// have ended.
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

/// Time between two messages that open flows to one exit: chosen so that a thousand newcomers in a second are told of
/// by a hundred messages, and one more wait is nobody's to notice.
const OPENS_REST: Duration = Duration::from_millis(10);
/// Time until a session that had no room for the end of a flow is tried again: chosen as a short round trip, in which
/// it acknowledges some.
const CLOSES_REST: Duration = Duration::from_millis(20);
/// Ends of flows that wait for one session; 1.5 MiB. A peer that acknowledges fewer loses time with flows of its own.
const CLOSES_WAITING_MAX: usize = 65_536;

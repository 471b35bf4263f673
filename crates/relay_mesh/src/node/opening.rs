//! Telling exits of the flows that are opened here: those that come together, by one message.

use core::time::Duration;

use crypto::Provider;
use wire::Instant;

use super::Node;
use crate::flow_key::FlowId;
use crate::flow_message::{FlowMessage, OPENS_MAX};
use crate::link::LinkId;

impl<P: Provider> Node<P> {
    /// Tells an exit of the flows that were opened here, at most each 10 ms: a single newcomer at once.
    pub(super) fn tell_opens(&mut self, now: Instant, far: LinkId) {
        let course = self.courses.get(&far);
        if course.is_some_and(|course| !course.opens.is_empty() && course.opens_rest <= now) {
            self.tell_all_opens(now, far);
        }
    }

    /// Tells an exit of all flows that were opened here, oldest first; false where some have to wait. Those that
    /// have ended meanwhile are not told of.
    pub(super) fn tell_all_opens(&mut self, now: Instant, far: LinkId) -> bool {
        let Some(course) = self.courses.get_mut(&far) else {
            return false;
        };
        course.opens_rest = now + OPENS_REST;
        loop {
            let (count, message) = self.next_opens(far);
            let is_sent = message.is_none_or(|message| self.send_flow_message(now, far, &message));
            let Some(course) = self.courses.get_mut(&far) else {
                return false;
            };
            if !is_sent {
                return false;
            }
            for _ in 0..count {
                course.opens.pop_first();
            }
            if course.opens.is_empty() {
                return true;
            }
        }
    }

    /// How many of the flows that wait, the oldest of them, one message tells of, and the message; none where they
    /// have ended.
    fn next_opens(&self, far: LinkId) -> (usize, Option<FlowMessage>) {
        let waiting = self.courses.get(&far).into_iter();
        let mut waiting = waiting.flat_map(|course| course.opens.iter().copied());
        let flow = |id: FlowId| self.flows.get(self.flows.of_id(far, id)?);
        let first = waiting.by_ref().find(|id| flow(*id).is_some());
        let course = self.courses.get(&far);
        let waiting_len = course.map_or(0, |course| course.opens.len());
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
        let ended = course.map_or(0, |course| course.opens.range(..first).count());
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

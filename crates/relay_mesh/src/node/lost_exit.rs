//! Players whose exit cannot be reached any more, where another exit of their game can.

use core::time::Duration;
use std::collections::BTreeMap;

use crypto::Provider;
use wire::Instant;

use super::Node;
use super::flow_side::Side;
use crate::flow_message::FlowEnd;
use crate::link::LinkId;

impl<P: Provider> Node<P> {
    /// Ends the flows of players to a far end to which no way has led for [`LOST_AFTER`], where all that time
    /// another exit of their game could be reached: what they say next goes out by that one.
    ///
    /// A server that knows its players by more than their addresses, as those of `udp_proto` do, plays on with
    /// them; for others they would be gone seconds later, with the session between the two nodes.
    pub(super) fn leave_lost_exit(&mut self, now: Instant, link: LinkId) {
        let players = if self.is_lost(now, link) {
            self.players_with_another_exit(now, link)
        } else {
            Vec::new()
        };
        let Some(course) = self.courses.get_mut(&link) else {
            return;
        };
        if players.is_empty() {
            course.lost_since = None;
            return;
        }
        let since = *course.lost_since.get_or_insert(now);
        if now.saturating_since(since) >= LOST_AFTER {
            for flow in players {
                self.close_flow(now, flow, FlowEnd::SessionLost);
            }
        }
    }

    /// Whether no path of ours answers, and nobody tells of another way there.
    fn is_lost(&mut self, now: Instant, link: LinkId) -> bool {
        let answers = self
            .courses
            .get(&link)
            .is_some_and(|course| course.paths.iter().any(|path| path.is_proved(now)));
        let far = self.peers.get(link).map(|peer| peer.node);
        !answers && far.is_some_and(|far| !self.cost_to(now, far).is_routable())
    }

    /// The flows of players to a far end whose game has an exit that can be reached.
    fn players_with_another_exit(&mut self, now: Instant, link: LinkId) -> Vec<u32> {
        let is_players = |index: &u32| {
            let flow = self.flows.get(*index);
            flow.is_some_and(|flow| matches!(flow.side, Side::Entry { .. }))
        };
        let flows = self.flows.with(link).map(|(_, index)| index);
        let flows: Vec<u32> = flows.filter(is_players).collect();
        let mut has_another: BTreeMap<usize, bool> = BTreeMap::new();
        let mut players = Vec::new();
        for index in flows {
            let Some(game) = self.flows.get(index).map(|flow| flow.game) else {
                continue;
            };
            let known = has_another.get(&game).copied();
            let has = known.unwrap_or_else(|| self.exit_for(now, game).is_ok());
            has_another.insert(game, has);
            players.extend(has.then_some(index));
        }
        players
    }
}

/// How long nobody is moved: what stands still or restarts comes back, and a server that knows players by their
/// addresses alone loses those that are. With the second or so after which an exit's links are known as down, half
/// of the 10 s for which sessions of `udp_proto` wait by default.
const LOST_AFTER: Duration = Duration::from_secs(4);

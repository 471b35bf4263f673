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
    /// Ends the flows of players to a far end of which no path has answered for [`LOST_AFTER`], if no route leads
    /// there and another exit of their game can be reached: what they say next goes out by that one.
    ///
    /// A route that link state shows for a moment does not start the time anew. A server that knows its players by
    /// more than their addresses, as those of `udp_proto` do, plays on with them; for others they would be gone
    /// seconds later, with the session between the two nodes.
    pub(super) fn leave_lost_exit(&mut self, now: Instant, link: LinkId) {
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        if path_set.paths.iter().any(|path| path.is_proved(now)) {
            path_set.lost_since = None;
            return;
        }
        let since = *path_set.lost_since.get_or_insert(now);
        if now.saturating_since(since) < LOST_AFTER || self.has_route(now, link) {
            return;
        }
        for flow in self.players_with_another_exit(now, link) {
            self.close_flow(now, flow, FlowEnd::SessionLost);
        }
    }

    /// Returns whether link state shows a route to a far end, or the far end is unknown.
    fn has_route(&mut self, now: Instant, link: LinkId) -> bool {
        let far = self.peers.get(link).map(|peer| peer.node);
        far.is_none_or(|far| self.cost_to(now, far).is_routable())
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

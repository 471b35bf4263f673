//! Moves players to another exit of their game if theirs is unreachable.

use core::time::Duration;
use std::collections::BTreeMap;

use crypto::Provider;
use wire::Instant;

use super::Node;
use super::flow_side::Side;
use crate::flow_message::FlowEnd;
use crate::link::LinkId;

impl<P: Provider> Node<P> {
    /// Ends the players' flows to a remote node if no path has answered for [`LOST_AFTER`], no
    /// route leads there, and another exit of their game is reachable. Each player's next datagram
    /// uses that exit.
    ///
    /// A route that link state shows briefly does not reset the time. A server that identifies
    /// players by more than their addresses, as `udp_proto`'s do, keeps them; for others the
    /// session between the two nodes would time out seconds later anyway.
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

    /// Whether link state has a route to a remote node, or the node is unknown.
    fn has_route(&mut self, now: Instant, link: LinkId) -> bool {
        let far = self.peers.get(link).map(|peer| peer.node);
        far.is_none_or(|far| self.cost_to(now, far).is_routable())
    }

    /// The flows of players to a remote node whose game has another reachable exit.
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

/// How long no flow is moved. A paused or restarted exit returns, and a server that identifies
/// players by address alone loses those that move. With the second until an exit's links are known
/// as down, it is half of the default 10 s timeout of `udp_proto`'s sessions.
const LOST_AFTER: Duration = Duration::from_secs(4);

//! What a hub accepts as one of several.

use std::collections::BTreeSet;

use wire::{ClientId, ConnectionId, NodeId};

use super::Hub;
use crate::join_file::JoinFile;
use crate::record::{DownReason, GroupAction, MailTo};
use crate::shard::{Shard, ShardView};

/// The hub's part, and the links that agree about it.
#[derive(Debug)]
pub(super) struct Shards {
    view: ShardView,
    /// Links that have named this part and have not joined yet.
    agreed: BTreeSet<ConnectionId>,
}

impl Shards {
    pub(super) fn new(shard: Shard, join_file: &JoinFile) -> Self {
        Self {
            view: join_file.view_of(shard),
            agreed: BTreeSet::new(),
        }
    }

    pub(super) fn set_join_file(&mut self, join_file: &JoinFile) {
        self.view = join_file.view_of(self.view.shard);
    }

    /// Handles the view of a link before it joins; returns whether it is the hub's.
    fn on_view(&mut self, id: ConnectionId, view: ShardView) -> bool {
        let agrees = view == self.view;
        if agrees {
            self.agreed.insert(id);
        }
        agrees
    }

    /// Returns why a link may not join; `None` if it may.
    pub(super) fn refusal(&mut self, id: ConnectionId) -> Option<DownReason> {
        let agrees = self.agreed.remove(&id) || !self.view.shard.is_partial();
        (!agrees).then_some(DownReason::WrongShard)
    }

    pub(super) fn on_closed(&mut self, id: ConnectionId) {
        self.agreed.remove(&id);
    }

    fn has_player(&self, player: ClientId) -> bool {
        self.view.shard.has_player(player)
    }

    /// Returns whether all named recipients belong to this hub.
    fn has_recipients(&self, to: &MailTo) -> bool {
        !self.view.shard.is_partial() || to.players().all(|player| self.has_player(player))
    }
}

/// Handles the view of a link.
pub(super) fn on_view(hub: &mut Hub, id: ConnectionId, view: ShardView) {
    let is_first = hub.links.get(&id).is_some_and(|link| link.join().is_none());
    if !is_first {
        hub.close(id, DownReason::Protocol);
    } else if !hub.shards.on_view(id, view) {
        hub.close(id, DownReason::WrongShard);
    }
}

/// A record about players that a node sends to the hub of their shard only.
pub(super) enum About<'a> {
    Player(ClientId),
    Mail(&'a MailTo),
    Group(&'a GroupAction<'a>),
}

/// Returns whether a record belongs to this hub; closes the link if not. Mail in a mailbox of another hub
/// would never be delivered.
pub(super) fn accepts(hub: &mut Hub, id: ConnectionId, about: &About<'_>) -> bool {
    let shards = &hub.shards;
    let is_own = match about {
        About::Player(player) => shards.has_player(*player),
        About::Mail(to) => shards.has_recipients(to),
        About::Group(GroupAction::Join(player) | GroupAction::Leave(player)) => {
            shards.has_player(*player)
        }
        About::Group(GroupAction::List(_) | GroupAction::Send(_)) => true,
    };
    if !is_own {
        hub.close(id, DownReason::WrongShard);
    }
    is_own
}

/// Returns the node of a link if `player` belongs to this hub; closes the link if not.
pub(super) fn node_for(hub: &mut Hub, id: ConnectionId, player: ClientId) -> Option<NodeId> {
    let is_own = accepts(hub, id, &About::Player(player));
    let link = hub.links.get(&id).filter(|_| is_own)?;
    Some(link.node)
}

//! What a document allows: questions that entries, relays and exits ask of it, each for itself.

use wire::{NodeId, UnixTime};

use super::document::{AfterEnd, Document};
use super::outcome::Validity;
use crate::link_state::Roles;

impl Document {
    /// Returns the roles that `node` may have; `None` where it is no member.
    #[must_use]
    pub fn roles(&self, node: &NodeId) -> Option<Roles> {
        match &self.members {
            Some(members) => members.get(node).copied(),
            None => Some(Roles::ALL),
        }
    }

    /// Returns whether `node` may be a member at all.
    #[must_use]
    pub fn is_member(&self, node: &NodeId) -> bool {
        self.roles(node).is_some()
    }

    /// Returns whether `node` may pass packets of others.
    #[must_use]
    pub fn may_relay(&self, node: &NodeId) -> bool {
        self.has_role(node, Roles::RELAY)
    }

    /// Returns whether `node` may send players of `game`. An exit asks this of the entry that asks it.
    #[must_use]
    pub fn may_enter(&self, game: &str, node: &NodeId) -> bool {
        let rule = self.games.get(game);
        self.has_role(node, Roles::ENTRY) && rule.is_some_and(|rule| rule.entry.admits(node))
    }

    /// Returns whether `node` may speak to the server of `game`. An entry asks this of the exit; what
    /// a node that may not says about its way to the server counts for nothing.
    #[must_use]
    pub fn may_exit(&self, game: &str, node: &NodeId) -> bool {
        let rule = self.games.get(game);
        self.has_role(node, Roles::EXIT) && rule.is_some_and(|rule| rule.exit.admits(node))
    }

    /// Returns whether `node` is an end of some game's paths. A relay asks this of who wants labels:
    /// which game they are for is between the ends, and for them to ask.
    #[must_use]
    pub fn may_send(&self, node: &NodeId) -> bool {
        let enters = self.has_role(node, Roles::ENTRY);
        let exits = self.has_role(node, Roles::EXIT);
        let mut rules = self.games.values();
        rules.any(|rule| enters && rule.entry.admits(node) || exits && rule.exit.admits(node))
    }

    /// Returns whether the document lets new flows in at `unix`; those that run always go on.
    #[must_use]
    pub fn takes_new_flows(&self, unix: UnixTime) -> bool {
        self.after_end == AfterEnd::Serve || unix < self.not_after
    }

    /// Returns how it stands with the document at `unix`.
    #[must_use]
    pub fn validity(&self, unix: UnixTime) -> Validity {
        if unix < self.not_after {
            Validity::InForce
        } else {
            Validity::Expired
        }
    }

    fn has_role(&self, node: &NodeId, role: Roles) -> bool {
        self.roles(node).is_some_and(|roles| roles.contains(role))
    }
}

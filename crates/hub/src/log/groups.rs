//! Members of groups.

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};

use wire::ClientId;

use super::format::{HEAD_BYTES, LogRecord};
use crate::field::GroupId;
use crate::record::{PlayerIds, PlayerList};

/// All groups. One without a member does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupTable {
    members: BTreeMap<GroupId, BTreeSet<ClientId>>,
    /// In how many groups each player is.
    groups_of: BTreeMap<ClientId, usize>,
    /// Size of all members in a log, bytes.
    bytes: u64,
}

/// Size of a [`LogRecord::GroupMembers`] without its members, bytes.
pub(crate) const GROUP_BYTES: u64 = HEAD_BYTES as u64 + 11;

/// Size of a member in it, bytes.
pub(crate) const MEMBER_BYTES: u64 = 8;

impl GroupTable {
    pub(super) fn join(&mut self, group: GroupId, player: ClientId) {
        let members = self.members.entry(group).or_default();
        if members.is_empty() {
            self.bytes = self.bytes.saturating_add(GROUP_BYTES);
        }
        if members.insert(player) {
            self.bytes = self.bytes.saturating_add(MEMBER_BYTES);
            let groups = self.groups_of.entry(player).or_default();
            *groups = groups.saturating_add(1);
        }
    }

    pub(super) fn leave(&mut self, group: GroupId, player: ClientId) {
        let Some(members) = self.members.get_mut(&group) else {
            return;
        };
        if members.remove(&player) {
            self.bytes = self.bytes.saturating_sub(MEMBER_BYTES);
            if let Some(groups) = self.groups_of.get_mut(&player) {
                *groups = groups.saturating_sub(1);
                if *groups == 0 {
                    self.groups_of.remove(&player);
                }
            }
        }
        if members.is_empty() {
            self.members.remove(&group);
            self.bytes = self.bytes.saturating_sub(GROUP_BYTES);
        }
    }

    /// Replaces the members of a group, as the state at the start of a segment lists them.
    pub(super) fn set(&mut self, group: GroupId, players: PlayerList<'_>) {
        let before = self.members.get(&group).cloned().unwrap_or_default();
        for player in before {
            if !players.contains(player) {
                self.leave(group, player);
            }
        }
        for player in players.iter() {
            self.join(group, player);
        }
    }

    pub(super) fn state(&self) -> impl Iterator<Item = LogRecord<'static>> {
        self.members.iter().filter_map(|(group, members)| {
            let players: Vec<_> = members.iter().copied().collect();
            let players = ids(&players)?;
            Some(LogRecord::GroupMembers {
                group: *group,
                players,
            })
        })
    }

    pub(crate) fn is_member(&self, group: GroupId, player: ClientId) -> bool {
        let members = self.members.get(&group);
        members.is_some_and(|members| members.contains(&player))
    }

    /// Returns up to `max` members from `first` on, and whether more follow; `None` if there are
    /// none.
    pub(crate) fn page(
        &self,
        group: GroupId,
        first: ClientId,
        max: usize,
    ) -> (Option<PlayerIds>, bool) {
        let Some(members) = self.members.get(&group) else {
            return (None, false);
        };
        let from = (Bound::Included(first), Bound::Unbounded);
        let mut rest = members.range(from).copied();
        let players: Vec<_> = rest.by_ref().take(max.min(PlayerList::LEN_MAX)).collect();
        (ids(&players), rest.next().is_some())
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn len_of(&self, group: GroupId) -> usize {
        self.members.get(&group).map_or(0, BTreeSet::len)
    }

    pub(crate) fn groups_of(&self, player: ClientId) -> usize {
        self.groups_of.get(&player).copied().unwrap_or(0)
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn ids(players: &[ClientId]) -> Option<PlayerIds> {
    let mut buf = Vec::new();
    PlayerList::encode_into(players, &mut buf).map(PlayerList::to_ids)
}

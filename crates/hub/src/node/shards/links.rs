//! The links of a node, and numbers that are unique over them.

use core::iter::once;

use wire::{ClientId, ConnectionId};

use super::super::{HubLink, NodeEvent};
use crate::shard::Shard;

/// At least one link.
pub(super) struct Links {
    pub(super) first: HubLink,
    others: Vec<HubLink>,
}

impl Links {
    pub(super) const fn new(first: HubLink, others: Vec<HubLink>) -> Self {
        Self { first, others }
    }

    /// Returns the number of links.
    pub(super) fn count(&self) -> u8 {
        u8::try_from(self.others.len().saturating_add(1)).unwrap_or(u8::MAX)
    }

    pub(super) const fn are_several(&self) -> bool {
        !self.others.is_empty()
    }

    /// Returns the link with this number, or else the first.
    pub(super) fn get(&mut self, index: u8) -> &mut HubLink {
        let other = index.checked_sub(1).map(usize::from);
        match other.and_then(|other| self.others.get_mut(other)) {
            Some(link) => link,
            None => &mut self.first,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &HubLink> {
        once(&self.first).chain(&self.others)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut HubLink> {
        once(&mut self.first).chain(&mut self.others)
    }

    /// Returns the number of the link for `player`.
    pub(super) fn index_of(&self, player: ClientId) -> u8 {
        Shard::of_player(player, self.count())
    }

    pub(super) fn of_player(&mut self, player: ClientId) -> &mut HubLink {
        self.get(self.index_of(player))
    }

    /// Returns `index` if that link is up, or else the number of the next one that is; if none is, `index`.
    pub(super) fn index_up(&self, index: u8) -> u8 {
        let count = self.count();
        let after = (index..count).chain(0..index);
        let mut up = after.filter(|index| {
            let link = self.iter().nth((*index).into());
            link.is_some_and(HubLink::is_joined)
        });
        up.next().unwrap_or(index)
    }

    /// Returns the number of the link that uses `connection`, or is closing it.
    pub(super) fn index_with(&self, connection: ConnectionId) -> Option<u8> {
        let uses = |link: &HubLink| {
            link.link.connection() == Some(connection) || link.closing.contains(&connection)
        };
        let index = self.iter().position(uses)?;
        u8::try_from(index).ok()
    }

    /// Returns the next event, with the number of its link.
    pub(super) fn next_event(&mut self) -> Option<(u8, NodeEvent)> {
        let mut links = (0_u8..).zip(self.iter_mut());
        links.find_map(|(index, link)| Some((index, link.events.pop_front()?)))
    }

    /// Returns a number that is unique over all links for `number` of the link `index`; for the only link
    /// it is the same number.
    pub(super) fn to_unique(&self, index: u8, number: u64) -> u64 {
        if self.are_several() {
            number
                .saturating_mul(self.stride())
                .saturating_add(index.into())
        } else {
            number
        }
    }

    /// Returns the unique number of something that consists of parts on several links.
    pub(super) fn sum_number(&self, number: u64) -> u64 {
        self.to_unique(self.count(), number)
    }

    /// Returns the link and its number for a unique number, unless it consists of parts.
    pub(super) fn split_unique(&self, unique: u64) -> Option<(u8, u64)> {
        if !self.are_several() {
            return Some((0, unique));
        }
        let index = unique.checked_rem(self.stride())?;
        let index = u8::try_from(index)
            .ok()
            .filter(|index| *index < self.count())?;
        Some((index, unique.checked_div(self.stride())?))
    }

    /// One residue for each link, and one for what consists of parts.
    fn stride(&self) -> u64 {
        u64::from(self.count()).saturating_add(1)
    }
}

//! Topics with subscribers among the players of several links.

use std::collections::BTreeMap;

use crate::field::Name;
use crate::record::TOPICS_MAX;

/// The links with subscribers of each topic, one bit each.
#[derive(Debug, Default)]
pub(super) struct TopicTable {
    links: BTreeMap<Name, u16>,
}

impl TopicTable {
    /// Returns whether another subscriber of `topic` is within the limit of a node.
    pub(super) fn has_room(&self, topic: Name) -> bool {
        self.links.len() < TOPICS_MAX || self.links.contains_key(&topic)
    }

    /// Notes that players of `link` subscribe; returns whether they are the topic's first.
    pub(super) fn add(&mut self, topic: Name, link: u8) -> bool {
        let links = self.links.entry(topic).or_default();
        let is_first = *links == 0;
        *links |= bit(link);
        is_first
    }

    /// Notes that no player of `link` subscribes any more; returns whether they were the topic's last.
    pub(super) fn remove(&mut self, topic: Name, link: u8) -> bool {
        let Some(links) = self.links.get_mut(&topic) else {
            return false;
        };
        *links &= !bit(link);
        let is_last = *links == 0;
        if is_last {
            self.links.remove(&topic);
        }
        is_last
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let each = size_of::<(Name, u16)>().saturating_add(super::super::ENTRY);
        self.links.len().saturating_mul(each)
    }
}

/// There are at most 16 links.
fn bit(link: u8) -> u16 {
    1_u16.checked_shl(link.into()).unwrap_or_default()
}

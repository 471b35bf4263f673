//! Where each stored mail is in the log, ordered by player and number.
//!
//! A B+tree of two levels: blocks of up to [`BLOCK_MAX`] sorted entries, and a map to the blocks. An
//! entry takes 34 bytes in a full block, which is how a snapshot loads; random inserts fill blocks to
//! about two thirds. There is no second order by expiry, only the earliest expiry of each block, and
//! no size of each mailbox, only those of long ones.

mod batch;

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wire::{ClientId, NodeId, UnixTime};

use super::index::{MailEntry, Mailbox, Place};
use super::segment::SegmentId;
use super::senders::Senders;
use super::snapshot_format::IndexEntry;
use crate::field::MailSeq;

/// All stored mails.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mails {
    /// Blocks by a lower bound of their keys. None is empty.
    blocks: BTreeMap<Key, Block>,
    /// The [`Block::earliest`] and the key of each block.
    expiry: BTreeSet<(u32, Key)>,
    /// Memory of a block that has become empty, for the next one.
    spare: Vec<IndexEntry>,
    sizes: Sizes,
}

pub(crate) type Key = (ClientId, MailSeq);

#[derive(Clone, Debug, Default)]
struct Block {
    entries: Vec<IndexEntry>,
    /// No entry expires before this, in seconds.
    earliest: u32,
}

pub(super) const FIRST: Key = (ClientId(0), MailSeq(0));

/// Most entries of a block.
const BLOCK_MAX: usize = 128;

/// A block with fewer entries is merged with a neighbour if both fit.
const BLOCK_MIN: usize = BLOCK_MAX / 4;

/// Entries for which a block allocates at once.
const BLOCK_STEP: usize = 16;

impl Mails {
    /// Inserts a mail; a copy replaces its original.
    pub(super) fn put(&mut self, entry: IndexEntry) {
        let key = entry.key();
        self.sizes.add(&entry);
        let Some((&at, block)) = self.blocks.range_mut(..=key).next_back() else {
            self.put_single(FIRST, entry);
            self.note_long(&entry);
            return;
        };
        let position = block.lower_bound(key);
        if let Some(old) = block
            .entries
            .get_mut(position)
            .filter(|old| old.key() == key)
        {
            let old = core::mem::replace(old, entry);
            self.sizes.replace(&old, &entry);
            self.lower_earliest(at, entry.expires_s);
            return;
        }
        if block.entries.len() < BLOCK_MAX {
            block.insert(position, entry);
            self.lower_earliest(at, entry.expires_s);
        } else if position == BLOCK_MAX {
            self.put_single(key, entry);
        } else {
            let mut upper = block.entries.split_off(BLOCK_MAX / 2);
            let target = match position.checked_sub(BLOCK_MAX / 2) {
                Some(position) => (&mut upper, position),
                None => (&mut block.entries, position),
            };
            target.0.insert(target.1, entry);
            let upper_at = upper.first().map_or(key, IndexEntry::key);
            self.put_block(upper_at, upper);
            self.renew_earliest(at);
        }
        self.note_long(&entry);
    }

    pub(crate) fn remove(&mut self, player: ClientId, seq: MailSeq) {
        let key = (player, seq);
        let Some((&at, block)) = self.blocks.range_mut(..=key).next_back() else {
            return;
        };
        let position = block.lower_bound(key);
        if block
            .entries
            .get(position)
            .is_some_and(|entry| entry.key() == key)
        {
            let entry = block.entries.remove(position);
            self.sizes.remove(&entry);
            self.tidy_block(at);
        }
    }

    /// Removes the mails of `player` up to `upto`.
    pub(crate) fn acknowledge(&mut self, player: ClientId, upto: MailSeq) {
        loop {
            let first = (player, MailSeq(0));
            let before = self.blocks.range(..=first).next_back();
            let before = before.filter(|(_, block)| block.lower_bound(first) < block.entries.len());
            let after = (Bound::Excluded(first), Bound::Unbounded);
            let found = before.or_else(|| self.blocks.range(after).next());
            let Some(at) = found.map(|(at, _)| *at) else {
                return;
            };
            let Some(block) = self.blocks.get_mut(&at) else {
                return;
            };
            let start = block.lower_bound(first);
            let end = block
                .entries
                .partition_point(|entry| entry.key() <= (player, upto));
            if start >= end {
                return;
            }
            for entry in block.entries.drain(start..end) {
                self.sizes.remove(&entry);
            }
            self.tidy_block(at);
        }
    }

    /// Deletes up to `max` mails that have expired at `now`, and reads as many blocks at most;
    /// returns how many.
    pub(crate) fn expire(&mut self, now: UnixTime, max: u32) -> u32 {
        let now = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        let mut left = max;
        for _ in 0..max {
            let first = self.expiry.first().copied();
            let Some((_, at)) = first.filter(|(earliest, _)| is_over(*earliest, now)) else {
                break;
            };
            let Some(block) = self.blocks.get_mut(&at) else {
                break;
            };
            let sizes = &mut self.sizes;
            block.entries.retain(|entry| {
                let is_kept = left == 0 || !is_over(entry.expires_s, now);
                if !is_kept {
                    left = left.saturating_sub(1);
                    sizes.remove(entry);
                }
                is_kept
            });
            self.renew_earliest(at);
            self.tidy_block(at);
            if left == 0 {
                break;
            }
        }
        max.saturating_sub(left)
    }

    /// Removes all mails of a sender. It visits every mail.
    pub(super) fn purge(&mut self, sender: u16) {
        let sizes = &mut self.sizes;
        for block in self.blocks.values_mut() {
            block.entries.retain(|entry| {
                let is_kept = entry.sender != sender;
                if !is_kept {
                    sizes.remove(entry);
                }
                is_kept
            });
        }
        let blocks: Vec<Key> = self.blocks.keys().copied().collect();
        for at in blocks {
            self.renew_earliest(at);
            self.tidy_block(at);
        }
    }

    pub(super) const fn senders(&self) -> &Senders {
        &self.sizes.senders
    }

    pub(super) const fn senders_mut(&mut self) -> &mut Senders {
        &mut self.sizes.senders
    }

    pub(crate) fn get(&self, player: ClientId, seq: MailSeq) -> Option<MailEntry> {
        let first = self.entries_from((player, seq)).next();
        let found = first.filter(|entry| entry.key() == (player, seq));
        found.map(|entry| entry.to_mail())
    }

    /// Returns the mails of `player` after `after`, oldest first.
    pub(crate) fn after(
        &self,
        player: ClientId,
        after: MailSeq,
    ) -> impl Iterator<Item = (MailSeq, MailEntry)> {
        let first = (player, MailSeq(after.0.saturating_add(1)));
        self.entries_from(first)
            .take_while(move |entry| { entry.player } == player)
            .filter(move |entry| { entry.seq } > after)
            .map(|entry| (entry.seq, entry.to_mail()))
    }

    pub(crate) fn mailbox(&self, player: ClientId) -> Mailbox {
        let long = self.sizes.long.get(&player).copied();
        long.unwrap_or_else(|| self.count_short(player))
    }

    pub(crate) const fn len(&self) -> usize {
        self.sizes.count
    }

    pub(crate) const fn live_bytes(&self) -> u64 {
        self.sizes.live_bytes
    }

    /// Returns the bytes of mail in `segment`.
    pub(crate) fn live_in(&self, segment: SegmentId) -> u64 {
        let position = u32::try_from(segment.0).ok().and_then(|segment| {
            let position = segment.checked_sub(self.sizes.first)?;
            usize::try_from(position).ok()
        });
        position
            .and_then(|position| self.sizes.live.get(position).copied())
            .unwrap_or(0)
    }

    /// Returns all entries from `key` on.
    pub(super) fn entries_from(&self, key: Key) -> impl Iterator<Item = &IndexEntry> {
        let found = self.blocks.range(..=key).next_back();
        let (after, head) = found.map_or((Bound::Unbounded, [].as_slice()), |(at, block)| {
            let head = block.entries.get(block.lower_bound(key)..);
            (Bound::Excluded(*at), head.unwrap_or_default())
        });
        let rest = self.blocks.range((after, Bound::Unbounded));
        head.iter()
            .chain(rest.flat_map(|(_, block)| &block.entries))
    }

    /// Returns the size of a mailbox that is not long.
    fn count_short(&self, player: ClientId) -> Mailbox {
        let mut size = Mailbox::default();
        let entries = self.entries_from((player, MailSeq(0)));
        let of_player = entries.take_while(|entry| { entry.player } == player);
        for entry in of_player.take(LONG.saturating_add(1)) {
            size.add(entry);
        }
        size
    }

    /// Keeps the size of the mailbox of the new `entry` if it is long.
    fn note_long(&mut self, entry: &IndexEntry) {
        let player = entry.player;
        if let Some(long) = self.sizes.long.get_mut(&player) {
            long.add(entry);
        } else {
            let size = self.count_short(player);
            self.sizes.set_long(player, size);
        }
    }

    fn put_single(&mut self, at: Key, entry: IndexEntry) {
        let mut entries = core::mem::take(&mut self.spare);
        entries.push(entry);
        self.put_block(at, entries);
    }

    fn put_block(&mut self, at: Key, entries: Vec<IndexEntry>) {
        let mut block = Block {
            entries,
            earliest: 0,
        };
        block.earliest = block.find_earliest();
        self.expiry.insert((block.earliest, at));
        self.blocks.insert(at, block);
    }

    fn lower_earliest(&mut self, at: Key, expires_s: u32) {
        if let Some(block) = self.blocks.get_mut(&at)
            && expires_s < block.earliest
        {
            self.expiry.remove(&(block.earliest, at));
            block.earliest = expires_s;
            self.expiry.insert((expires_s, at));
        }
    }

    fn renew_earliest(&mut self, at: Key) {
        if let Some(block) = self.blocks.get_mut(&at) {
            let earliest = block.find_earliest();
            if earliest != block.earliest {
                self.expiry.remove(&(block.earliest, at));
                block.earliest = earliest;
                self.expiry.insert((earliest, at));
            }
        }
    }

    /// Removes a block that has become empty; merges a small one with a neighbour.
    fn tidy_block(&mut self, at: Key) {
        let Some(block) = self.blocks.get_mut(&at) else {
            return;
        };
        if block.entries.is_empty() {
            self.spare = core::mem::take(&mut block.entries);
            self.take_block(at);
            return;
        }
        if block.entries.len() >= BLOCK_MIN {
            block.shrink();
            return;
        }
        let len = block.entries.len();
        let fits = |other: &Block| other.entries.len().saturating_add(len) <= BLOCK_MAX / 4 * 3;
        let before = self.blocks.range(..at).next_back();
        let before = before.filter(|(_, block)| fits(block)).map(|(at, _)| *at);
        let pair = before.map(|before| (before, at)).or_else(|| {
            let after = (Bound::Excluded(at), Bound::Unbounded);
            let after = self.blocks.range(after).next();
            let after = after.filter(|(_, block)| fits(block));
            after.map(|(after, _)| (at, *after))
        });
        let Some((lower, upper)) = pair else {
            self.blocks.entry(at).and_modify(Block::shrink);
            return;
        };
        let Some(upper) = self.take_block(upper) else {
            return;
        };
        self.lower_earliest(lower, upper.earliest);
        if let Some(block) = self.blocks.get_mut(&lower) {
            block.entries.reserve_exact(upper.entries.len());
            block.entries.extend_from_slice(&upper.entries);
        }
    }

    fn take_block(&mut self, at: Key) -> Option<Block> {
        let block = self.blocks.remove(&at)?;
        self.expiry.remove(&(block.earliest, at));
        Some(block)
    }
}

/// Builds the index from entries in order.
#[derive(Debug, Default)]
pub(super) struct Loader {
    mails: Mails,
    /// The block that is being filled.
    block: Vec<IndexEntry>,
    last: Option<Key>,
    /// The mailbox of the last entry.
    mailbox: Mailbox,
}

impl Loader {
    /// Appends an entry; returns whether it is ordered after the last one.
    pub(super) fn push(&mut self, entry: IndexEntry) -> bool {
        let key = entry.key();
        if self.last.is_some_and(|last| last >= key) {
            return false;
        }
        self.end_mailbox(Some(entry.player));
        self.last = Some(key);
        self.mailbox.add(&entry);
        self.mails.sizes.add(&entry);
        if self.block.len() == BLOCK_MAX {
            self.end_block();
        }
        self.block.push(entry);
        true
    }

    /// Adds a sender of the entries; returns whether its number is free.
    pub(super) fn add_sender(&mut self, number: u16, node: NodeId) -> bool {
        self.mails.senders_mut().restore(number, node)
    }

    /// Returns all mails, if their senders are known.
    pub(super) fn finish(mut self) -> Option<Mails> {
        self.end_mailbox(None);
        self.end_block();
        self.mails.senders().is_complete().then_some(self.mails)
    }

    /// Keeps the size of the last mailbox if it is long and not that of `next`.
    fn end_mailbox(&mut self, next: Option<ClientId>) {
        if let Some((player, _)) = self.last
            && next != Some(player)
        {
            let size = core::mem::take(&mut self.mailbox);
            self.mails.sizes.set_long(player, size);
        }
    }

    fn end_block(&mut self) {
        let block = core::mem::replace(&mut self.block, Vec::with_capacity(BLOCK_MAX));
        let at = match block.first() {
            Some(_) if self.mails.blocks.is_empty() => FIRST,
            Some(first) => first.key(),
            None => return,
        };
        self.mails.put_block(at, block);
    }
}

/// Compares the mails, not how blocks hold them or which numbers their senders have.
impl PartialEq for Mails {
    fn eq(&self, other: &Self) -> bool {
        let all = |mails: &Self| {
            let entries = mails.entries_from(FIRST);
            let all = entries.map(|entry| {
                let sender = mails.senders().node(entry.sender);
                (
                    IndexEntry {
                        sender: 0,
                        ..*entry
                    },
                    sender,
                )
            });
            all.collect::<Vec<_>>()
        };
        all(self) == all(other)
    }
}

impl Eq for Mails {}

impl Block {
    fn lower_bound(&self, key: Key) -> usize {
        self.entries.partition_point(|entry| entry.key() < key)
    }

    fn insert(&mut self, position: usize, entry: IndexEntry) {
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(BLOCK_STEP);
        }
        self.entries.insert(position, entry);
    }

    fn find_earliest(&self) -> u32 {
        let expiry = self.entries.iter().map(|entry| entry.expires_s);
        expiry.min().unwrap_or(NEVER)
    }

    fn shrink(&mut self) {
        let used = self.entries.len().saturating_add(BLOCK_STEP);
        if self.entries.capacity() > used.saturating_add(2 * BLOCK_STEP) {
            self.entries.shrink_to(used);
        }
    }
}

/// Sums over all mails.
#[derive(Clone, Debug, Default)]
struct Sizes {
    count: usize,
    live_bytes: u64,
    /// Number of the segment that `live` begins with.
    first: u32,
    /// Bytes of mail by segment. A record that several mails share counts once.
    live: VecDeque<u64>,
    /// How many mails are left of each record that several share, by segment and offset.
    shared: BTreeMap<(u32, u32), u32>,
    /// Sizes of the mailboxes with more than [`LONG`] mails, and of those that were as long and still
    /// have half of that. Others are counted when they are needed.
    long: BTreeMap<ClientId, Mailbox>,
    senders: Senders,
}

/// Most mails of a mailbox that are counted one by one.
const LONG: usize = 64;

impl Sizes {
    /// Adds `entry`, without its mailbox.
    fn add(&mut self, entry: &IndexEntry) {
        self.count = self.count.saturating_add(1);
        if entry.size.is_shared() {
            let left = self
                .shared
                .entry((entry.segment, entry.offset))
                .or_default();
            *left = left.saturating_add(1);
            if *left > 1 {
                self.senders.add(entry.sender, 0);
                return;
            }
        }
        let bytes = u64::from(entry.size.record_bytes());
        self.senders.add(entry.sender, bytes);
        self.live_bytes = self.live_bytes.saturating_add(bytes);
        if self.live.is_empty() {
            self.first = entry.segment;
        }
        while entry.segment < self.first {
            self.live.push_front(0);
            self.first = self.first.saturating_sub(1);
        }
        let position = entry.segment.saturating_sub(self.first);
        let position = usize::try_from(position).unwrap_or(usize::MAX);
        if position >= self.live.len() {
            self.live.resize(position.saturating_add(1), 0);
        }
        if let Some(live) = self.live.get_mut(position) {
            *live = live.saturating_add(bytes);
        }
    }

    fn release(&mut self, entry: &IndexEntry) {
        self.count = self.count.saturating_sub(1);
        let place = (entry.segment, entry.offset);
        if entry.size.is_shared()
            && let Some(left) = self.shared.get_mut(&place)
        {
            *left = left.saturating_sub(1);
            if *left > 0 {
                self.senders.subtract(entry.sender, 0);
                return;
            }
            self.shared.remove(&place);
        }
        let bytes = u64::from(entry.size.record_bytes());
        self.senders.subtract(entry.sender, bytes);
        self.live_bytes = self.live_bytes.saturating_sub(bytes);
        let position = entry.segment.saturating_sub(self.first);
        let position = usize::try_from(position).unwrap_or(usize::MAX);
        if let Some(live) = self.live.get_mut(position) {
            *live = live.saturating_sub(bytes);
        }
        while self.live.front() == Some(&0) {
            self.live.pop_front();
            self.first = self.first.saturating_add(1);
        }
    }

    /// Removes `entry`, from its mailbox too.
    fn remove(&mut self, entry: &IndexEntry) {
        self.release(entry);
        let player = entry.player;
        if let Some(long) = self.long.get_mut(&player) {
            long.remove(entry);
            if usize::try_from(long.count).is_ok_and(|count| count <= LONG / 2) {
                self.long.remove(&player);
            }
        }
    }

    /// Removes `old`, which `new` replaces.
    fn replace(&mut self, old: &IndexEntry, new: &IndexEntry) {
        self.release(old);
        if let Some(long) = self.long.get_mut(&{ old.player }) {
            long.remove(old);
            long.add(new);
        }
    }

    /// Counts `entry` in its mailbox if that is long.
    fn add_long(&mut self, entry: &IndexEntry) {
        if let Some(long) = self.long.get_mut(&{ entry.player }) {
            long.add(entry);
        }
    }

    fn set_long(&mut self, player: ClientId, size: Mailbox) {
        if usize::try_from(size.count).is_ok_and(|count| count > LONG) {
            self.long.insert(player, size);
        }
    }
}

impl Mailbox {
    fn add(&mut self, entry: &IndexEntry) {
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(entry.size.mail_bytes().into());
    }

    fn remove(&mut self, entry: &IndexEntry) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(entry.size.mail_bytes().into());
    }
}

/// Expiry of a mail that expires after 2106 or never.
const NEVER: u32 = u32::MAX;

const fn is_over(expires_s: u32, now_s: u32) -> bool {
    expires_s <= now_s && expires_s != NEVER
}

impl IndexEntry {
    pub(super) fn new(player: ClientId, seq: MailSeq, entry: &MailEntry) -> Self {
        Self {
            player,
            seq,
            segment: u32::try_from(entry.place.segment.0).unwrap_or(u32::MAX),
            offset: u32::try_from(entry.place.offset).unwrap_or(u32::MAX),
            size: entry.size,
            expires_s: u32::try_from(entry.expires.as_millis().div_ceil(1_000)).unwrap_or(NEVER),
            sender: entry.sender,
        }
    }

    pub(super) const fn key(&self) -> Key {
        (self.player, self.seq)
    }

    pub(super) fn to_mail(self) -> MailEntry {
        let expires = match self.expires_s {
            NEVER => UnixTime::from_millis(u64::MAX),
            expires => UnixTime::from_secs(expires.into()),
        };
        MailEntry {
            place: Place {
                segment: SegmentId(self.segment.into()),
                offset: self.offset.into(),
            },
            size: self.size,
            expires,
            sender: self.sender,
        }
    }
}

#[cfg(test)]
mod tests;

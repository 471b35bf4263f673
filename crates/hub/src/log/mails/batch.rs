//! Many mails at once, as a recovery puts them.

use core::ops::Bound;

use super::{BLOCK_MAX, FIRST, Key, LONG, Mails};
use crate::field::MailSeq;
use crate::log::index::Mailbox;
use crate::log::snapshot_format::IndexEntry;
use wire::ClientId;

/// With fewer mails for one block it costs less to insert each.
const MERGE_MIN: usize = 5;

impl Mails {
    /// Inserts mails, ordered by player. Of two with one key the later one stays, as with
    /// [`put`](Self::put), and each block is rebuilt once.
    pub(in crate::log) fn put_all(&mut self, entries: &mut Vec<IndexEntry>) {
        // Stable, and fast on what is ordered already.
        entries.sort_by_key(IndexEntry::key);
        let mut rest = entries.as_slice();
        while let Some(first) = rest.first() {
            let key = first.key();
            let mut before = self.blocks.range(..=key);
            let at = before.next_back().map(|(at, _)| *at);
            let before = before
                .next_back()
                .and_then(|(_, block)| block.entries.last());
            let before = before.map(|entry| entry.player);
            let after = (Bound::Excluded(key), Bound::Unbounded);
            let next = self.blocks.range(after).next().map(|(next, _)| *next);
            let end = next.map_or(rest.len(), |next| {
                rest.partition_point(|entry| entry.key() < next)
            });
            let (run, later) = rest.split_at(end);
            if run.len() < MERGE_MIN {
                for entry in run {
                    self.put(*entry);
                }
            } else {
                let merged = self.merge(at.unwrap_or(FIRST), run);
                self.note_all_long(&merged, [before, next.map(|(player, _)| player)]);
            }
            rest = later;
        }
        entries.clear();
    }

    /// Inserts the mails of `run`, which are ordered and before the next block, into the block `at`;
    /// returns what it then holds, together with new blocks after it.
    fn merge(&mut self, at: Key, run: &[IndexEntry]) -> Vec<IndexEntry> {
        let mut old = self.take_block(at).unwrap_or_default().entries;
        let mut merged = Vec::with_capacity(old.len().saturating_add(run.len()));
        let mut left = old.iter().peekable();
        let mut run = run.iter().peekable();
        while let Some(entry) = run.next() {
            let key = entry.key();
            if run.peek().is_some_and(|next| next.key() == key) {
                continue;
            }
            while let Some(before) = left.next_if(|old| old.key() < key) {
                merged.push(*before);
            }
            self.sizes.add(entry);
            if let Some(replaced) = left.next_if(|old| old.key() == key) {
                self.sizes.replace(replaced, entry);
            } else {
                self.sizes.add_long(entry);
            }
            merged.push(*entry);
        }
        merged.extend(left);
        // Blocks of one size, so that each has room for more.
        let parts = merged.len().div_ceil(BLOCK_MAX).max(1);
        let part = merged.len().div_ceil(parts).max(1);
        let mut chunks = merged.chunks(part);
        old.clear();
        old.extend_from_slice(chunks.next().unwrap_or_default());
        self.put_block(at, old);
        for chunk in chunks {
            let at = chunk.first().map_or(at, IndexEntry::key);
            self.put_block(at, chunk.to_vec());
        }
        merged
    }

    /// Keeps the sizes of the long mailboxes of `merged`. Those of `ends`, the players before and
    /// after it, may have mails in other blocks.
    fn note_all_long(&mut self, merged: &[IndexEntry], ends: [Option<ClientId>; 2]) {
        for mailbox in merged.chunk_by(|one, next| { one.player } == { next.player }) {
            let Some(player) = mailbox.first().map(|entry| entry.player) else {
                continue;
            };
            if (mailbox.len() > LONG || ends.contains(&Some(player)))
                && !self.sizes.long.contains_key(&player)
            {
                let size = self.count(player);
                self.sizes.set_long(player, size);
            }
        }
    }

    /// Counts all mails of `player`.
    fn count(&self, player: ClientId) -> Mailbox {
        let mut size = Mailbox::default();
        let entries = self.entries_from((player, MailSeq(0)));
        for entry in entries.take_while(|entry| { entry.player } == player) {
            size.add(entry);
        }
        size
    }
}

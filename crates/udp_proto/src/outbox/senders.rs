//! The sending halves of all channels.

use wire::Instant;

use super::Page;
use super::page::Sort;
use super::round::Class;
use crate::channel::byte_queue::ByteQueue;
use crate::channel::outgoing::{Next, Outgoing};
use crate::channel::{ChannelId, ChannelTable, reliable, unreliable};

/// The sending halves of a session's channels, and what of the peer's window they took.
#[derive(Debug)]
pub(super) struct Senders {
    /// One for each row of the table.
    pub(super) channels: Vec<Outbound>,
    /// What the peer grants: reliable bytes since the session's start.
    pub(super) window: u64,
    /// What of it the messages that began take.
    pub(super) spent: u64,
    /// The time of the packet at hand.
    pub(super) now: Instant,
    /// Bytes of datagrams that a split unreliable message may take, or it does not begin to leave.
    pub(super) begin_max: usize,
}

impl Senders {
    /// Makes the halves of `table`, towards a peer who grants `window`.
    pub(super) fn new(table: &ChannelTable, window: u64, first_id: u64) -> Self {
        let channels = (0..)
            .map(ChannelId)
            .zip(table.rows())
            .map(|(id, row)| {
                if row.delivery.is_reliable() {
                    Outbound::Reliable(reliable::Outbound::new(id, first_id))
                } else {
                    let outbound =
                        unreliable::Outbound::new(id, row.delivery, (first_id, first_id));
                    Outbound::Unreliable(outbound)
                }
            })
            .collect();
        Self {
            channels,
            window,
            spent: 0,
            now: Instant::ZERO,
            begin_max: usize::MAX,
        }
    }

    /// Writes what of `channel` was lost, as far as there is room.
    pub(super) fn write_lost(&mut self, channel: usize, page: &mut Page<'_>) {
        let Some(outbound) = self.channels.get_mut(channel) else {
            return;
        };
        if !page.allows(channel) {
            return;
        }
        // A peer who has given up a split message acknowledges no packet with a part of it: nothing else
        // shall be lost with that.
        let mut part_of = None;
        while let Some(outgoing) = outbound.next_lost()
            && part_of.is_none_or(|message| message == outgoing.message)
            && (!outbound.may_be_given_up(&outgoing) || page.is_empty() || part_of.is_some())
            && let Some(bytes) = outbound.lost_bytes()
        {
            let is_part = outbound.may_be_given_up(&outgoing);
            page.sort = if is_part { Sort::Again } else { Sort::Other };
            if !page.write(&outgoing, bytes) {
                break;
            }
            part_of = is_part.then_some(outgoing.message);
            outbound.on_lost_written(&outgoing);
        }
        if part_of.is_some() {
            page.close();
        }
        page.sort = Sort::Other;
    }

    /// Returns whether `channel` is one of `class`.
    pub(super) fn is_of(&self, class: Class, channel: usize) -> bool {
        match class {
            Class::Any => true,
            Class::Reliable => matches!(self.channels.get(channel), Some(Outbound::Reliable(_))),
            Class::Unreliable => {
                matches!(self.channels.get(channel), Some(Outbound::Unreliable(_)))
            }
        }
    }

    /// Returns what of the peer's window is not taken.
    pub(super) const fn credit(&self) -> u64 {
        self.window.saturating_sub(self.spent)
    }
}

/// The sending half of one channel.
#[derive(Debug)]
pub(super) enum Outbound {
    /// Of an unreliable one, sequenced or not.
    Unreliable(unreliable::Outbound),
    /// Of a reliable one, ordered or not.
    Reliable(reliable::Outbound),
}

impl Outbound {
    /// Returns whether there is nothing to write, now or when credit comes.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            Self::Unreliable(outbound) => {
                outbound.expires().is_none() && outbound.next_lost().is_none()
            }
            Self::Reliable(outbound) => outbound.is_written(),
        }
    }

    /// Returns how many bytes of datagrams the message takes that is written next, where it is unreliable,
    /// split, and has not begun to leave.
    pub(super) fn to_begin(&self) -> Option<usize> {
        match self {
            Self::Unreliable(outbound) => outbound.to_begin(),
            Self::Reliable(_) => None,
        }
    }

    /// Returns whether a message of more than `begin_max` bytes would have to begin next.
    pub(super) fn is_held_back(&self, begin_max: usize) -> bool {
        self.to_begin().is_some_and(|len| len > begin_max)
    }

    /// Returns the frame to be written again next.
    pub(super) fn next_lost(&self) -> Option<Outgoing> {
        match self {
            Self::Unreliable(outbound) => outbound.next_lost(),
            Self::Reliable(outbound) => outbound.next_lost(),
        }
    }

    /// Returns whether the peer may know that message, and have given it up: an unreliable one that is
    /// split.
    fn may_be_given_up(&self, outgoing: &Outgoing) -> bool {
        let is_split = outgoing
            .header
            .fragment
            .is_some_and(|position| position.count > 1);
        is_split && matches!(self, Self::Unreliable(_))
    }

    /// Takes note that the frame from [`next_lost`](Self::next_lost) is written.
    pub(super) fn on_lost_written(&mut self, outgoing: &Outgoing) {
        match self {
            Self::Unreliable(outbound) => outbound.on_lost_written(outgoing),
            Self::Reliable(outbound) => outbound.on_lost_written(),
        }
    }

    /// Returns where the data of frames that are written again is.
    pub(super) fn lost_bytes(&self) -> Option<&ByteQueue> {
        match self {
            Self::Unreliable(outbound) => outbound.kept_bytes(),
            Self::Reliable(outbound) => Some(outbound.bytes()),
        }
    }

    /// Returns the frame to be written for the first time next.
    pub(super) fn next_new(&self, credit: u64) -> Next {
        match self {
            Self::Unreliable(outbound) => outbound.next(),
            Self::Reliable(outbound) => outbound.next_new(credit),
        }
    }

    /// Takes note that the frame from [`next_new`](Self::next_new) is written.
    pub(super) fn on_new_written(&mut self, now: Instant) {
        match self {
            Self::Unreliable(outbound) => outbound.on_written(now),
            Self::Reliable(outbound) => outbound.on_new_written(),
        }
    }

    /// Returns where the data of frames is.
    pub(super) const fn bytes(&self) -> &ByteQueue {
        match self {
            Self::Unreliable(outbound) => outbound.bytes(),
            Self::Reliable(outbound) => outbound.bytes(),
        }
    }
}

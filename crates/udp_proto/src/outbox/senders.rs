//! The sending halves of all channels, and their scheduling.

use wire::Instant;

use super::Expiry;
use super::PacketBuilder;
use super::packet_builder::{FrameKind, Next, Outgoing, bit_of};
use super::{reliable, unreliable};
use crate::byte_queue::ByteQueue;
use crate::channel::{ChannelId, ChannelTable, Content, plain_len};

/// The sending halves of a session's channels, and the use of the peer's window.
#[derive(Debug)]
pub(super) struct Senders {
    /// One for each row of the table.
    pub(super) channels: Vec<Outbound>,
    /// The peer's grant in bytes since the session's start.
    pub(super) window: u64,
    pub(super) spent: u64,
    pub(super) now: Instant,
    /// A split unreliable message starts only if it needs at most this many bytes of datagrams.
    pub(super) begin_max: usize,
}

impl Senders {
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

    pub(super) fn write_lost(&mut self, channel: usize, builder: &mut PacketBuilder<'_>) {
        let Some(outbound) = self.channels.get_mut(channel) else {
            return;
        };
        if !builder.allows(channel) {
            return;
        }
        // A peer that gave up a split message does not acknowledge packets with its fragments, so
        // nothing else may share them.
        let mut part_of = None;
        while let Some(outgoing) = outbound.next_lost()
            && part_of.is_none_or(|message| message == outgoing.message)
            && (!outbound.may_be_given_up(&outgoing) || builder.is_empty() || part_of.is_some())
            && let Some(bytes) = outbound.lost_bytes()
        {
            let is_part = outbound.may_be_given_up(&outgoing);
            builder.kind = if is_part {
                FrameKind::Retransmit
            } else {
                FrameKind::Other
            };
            if !builder.write(&outgoing, bytes) {
                break;
            }
            part_of = is_part.then_some(outgoing.message);
            outbound.on_lost_written(&outgoing);
        }
        if part_of.is_some() {
            builder.close();
        }
        builder.kind = FrameKind::Other;
    }

    pub(super) fn is_of(&self, class: Class, channel: usize) -> bool {
        match class {
            Class::Any => true,
            Class::Reliable => matches!(self.channels.get(channel), Some(Outbound::Reliable(_))),
            Class::Unreliable => {
                matches!(self.channels.get(channel), Some(Outbound::Unreliable(_)))
            }
        }
    }

    pub(super) const fn credit(&self) -> u64 {
        self.window.saturating_sub(self.spent)
    }
}

#[derive(Debug)]
pub(super) enum Outbound {
    Unreliable(unreliable::Outbound),
    Reliable(reliable::Outbound),
}

impl Outbound {
    /// Returns whether there is nothing to write, now or with more credit.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            Self::Unreliable(outbound) => {
                outbound.expires().is_none() && outbound.next_lost().is_none()
            }
            Self::Reliable(outbound) => outbound.is_written(),
        }
    }

    /// Returns the datagram bytes of the next message if it is unreliable, split and not started.
    pub(super) fn to_begin(&self) -> Option<usize> {
        match self {
            Self::Unreliable(outbound) => outbound.to_begin(),
            Self::Reliable(_) => None,
        }
    }

    /// Returns whether the next message needs more than `begin_max` bytes to start.
    pub(super) fn is_held_back(&self, begin_max: usize) -> bool {
        self.to_begin().is_some_and(|len| len > begin_max)
    }

    pub(super) fn next_lost(&self) -> Option<Outgoing> {
        match self {
            Self::Unreliable(outbound) => outbound.next_lost(),
            Self::Reliable(outbound) => outbound.next_lost(),
        }
    }

    /// Returns whether the peer may have given up the frame's message: a split unreliable one.
    fn may_be_given_up(&self, outgoing: &Outgoing) -> bool {
        let is_split = outgoing
            .header
            .fragment
            .is_some_and(|position| position.count > 1);
        is_split && matches!(self, Self::Unreliable(_))
    }

    pub(super) fn on_lost_written(&mut self, outgoing: &Outgoing) {
        match self {
            Self::Unreliable(outbound) => outbound.on_lost_written(outgoing),
            Self::Reliable(outbound) => outbound.on_lost_written(),
        }
    }

    pub(super) fn lost_bytes(&self) -> Option<&ByteQueue> {
        match self {
            Self::Unreliable(outbound) => outbound.kept_bytes(),
            Self::Reliable(outbound) => Some(&outbound.bytes),
        }
    }

    pub(super) fn next_new(&self, credit: u64) -> Next {
        match self {
            Self::Unreliable(outbound) => outbound.next(),
            Self::Reliable(outbound) => outbound.next_new(credit),
        }
    }

    pub(super) fn on_new_written(&mut self, now: Instant) {
        match self {
            Self::Unreliable(outbound) => outbound.on_written(now),
            Self::Reliable(outbound) => outbound.on_new_written(),
        }
    }

    pub(super) const fn bytes(&self) -> &ByteQueue {
        match self {
            Self::Unreliable(outbound) => &outbound.bytes,
            Self::Reliable(outbound) => &outbound.bytes,
        }
    }
}

/// The channels of one priority, served by deficit round robin.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// At least one, by ascending channel id.
    members: Vec<Member>,
    /// Index in `members` of the next turn.
    turn: usize,
    /// Bit n is set if channel n is a member.
    channels: u32,
}

impl Round {
    /// Creates the rounds of `table`, highest priority first.
    pub(super) fn of(table: &ChannelTable) -> Vec<Self> {
        let mut order: Vec<(u8, usize)> = table
            .rows()
            .iter()
            .enumerate()
            .map(|(channel, row)| (row.priority.level(), channel))
            .collect();
        order.sort_unstable();
        order
            .chunk_by(|(level, _), (next, _)| level == next)
            .map(|members| Self {
                members: members
                    .iter()
                    .map(|(_, channel)| Member {
                        channel: *channel,
                        deficit: 0,
                        is_paid: false,
                    })
                    .collect(),
                turn: 0,
                channels: members
                    .iter()
                    .fold(0, |bits, (_, channel)| bits | bit_of(*channel)),
            })
            .collect()
    }

    /// Returns whether any of `channels` is a member: bit n is channel n.
    pub(super) const fn has_any(&self, channels: u32) -> bool {
        self.channels & channels != 0
    }

    pub(super) fn channels(&self) -> impl Iterator<Item = usize> {
        let (before, after) = self
            .members
            .split_at_checked(self.turn)
            .unwrap_or((&[], &self.members));
        after.iter().chain(before).map(|member| member.channel)
    }

    /// Writes new frames of the channels of `class` in turn, until all are done or the packet is
    /// full.
    pub(super) fn run(
        &mut self,
        class: Class,
        senders: &mut Senders,
        builder: &mut PacketBuilder<'_>,
        expiry: &mut Expiry<'_>,
    ) {
        let mut first_short = None;
        loop {
            let mut any_over = false;
            for step in 0..self.members.len() {
                let place = self.place_after(step);
                let Some(member) = self.members.get_mut(place) else {
                    return;
                };
                if !senders.is_of(class, member.channel) || !builder.allows(member.channel) {
                    continue;
                }
                match member.run(senders, builder, expiry) {
                    Turn::Idle => {}
                    Turn::Over => any_over = true,
                    Turn::Short => {
                        first_short.get_or_insert(place);
                    }
                }
            }
            if !any_over || builder.is_full() {
                break;
            }
        }
        self.turn = first_short.unwrap_or(self.turn);
    }

    pub(super) const fn memory(&self) -> usize {
        self.members.capacity().saturating_mul(size_of::<Member>())
    }

    /// Returns the index `step` turns after the current one.
    fn place_after(&self, step: usize) -> usize {
        // Both are below the length, and a comparison is faster than a division.
        let place = self.turn.saturating_add(step);
        place.checked_sub(self.members.len()).unwrap_or(place)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Any,
    Reliable,
    Unreliable,
}

#[derive(Debug)]
struct Member {
    channel: usize,
    /// Bytes that it may still write in this turn.
    deficit: usize,
    /// Whether the current turn was given its quantum.
    is_paid: bool,
}

impl Member {
    fn run(
        &mut self,
        senders: &mut Senders,
        builder: &mut PacketBuilder<'_>,
        expiry: &mut Expiry<'_>,
    ) -> Turn {
        loop {
            let credit = senders.credit();
            let Some(outbound) = senders.channels.get_mut(self.channel) else {
                return self.over(Turn::Idle);
            };
            if let Outbound::Unreliable(outbound) = outbound
                && let Some(turn) = self.run_plain(outbound, builder, expiry)
            {
                // The packet is full; the turn continues with the same deficit in the next one.
                return match turn {
                    Turn::Short => turn,
                    Turn::Idle | Turn::Over => self.over(turn),
                };
            }
            if outbound.is_held_back(senders.begin_max.saturating_sub(builder.used())) {
                // All or nothing: a part of the message would be useless.
                return self.over(Turn::Short);
            }
            let next = outbound.next_new(credit);
            let outgoing = match &next {
                Next::Idle => {
                    self.deficit = 0;
                    return self.over(Turn::Idle);
                }
                Next::Waiting => {
                    builder.is_credit_awaited = true;
                    // Keep the deficit for when the credit arrives, or others would use it.
                    return self.over(Turn::Short);
                }
                Next::Frame(outgoing) => outgoing,
            };
            if outgoing.credit > 0 && builder.is_credit_awaited {
                return Turn::Short;
            }
            let header = outgoing.header.encoded_len(Some(outgoing.len));
            let cost = header.saturating_add(outgoing.len);
            if !self.may_pay(cost) {
                return self.over(Turn::Over);
            }
            if !builder.write(outgoing, outbound.bytes()) {
                return Turn::Short;
            }
            outbound.on_new_written(senders.now);
            if let Outbound::Unreliable(outbound) = outbound {
                expiry.look_at_front(outgoing.header.channel, outbound);
            }
            self.deficit = self.deficit.saturating_sub(cost);
            senders.spent = senders.spent.saturating_add(outgoing.credit as u64);
        }
    }

    /// Writes messages whose frames need only the channel while the deficit lasts. Returns `None`
    /// if the next message, if any, needs more.
    #[inline]
    fn run_plain(
        &mut self,
        outbound: &mut unreliable::Outbound,
        builder: &mut PacketBuilder<'_>,
        expiry: &mut Expiry<'_>,
    ) -> Option<Turn> {
        let channel = ChannelId(u8::try_from(self.channel).unwrap_or(u8::MAX));
        while let Some((message, bytes)) = outbound.next_plain() {
            let cost = plain_len(bytes.len());
            if !self.may_pay(cost) {
                return Some(Turn::Over);
            }
            if !builder.write_plain(Content::new(channel, message, 0), bytes) {
                return Some(Turn::Short);
            }
            self.deficit = self.deficit.saturating_sub(cost);
            outbound.on_plain_written();
            expiry.look_at_front(channel, outbound);
        }
        None
    }

    /// Returns whether the deficit covers `cost`. Adds the quantum once per turn.
    const fn may_pay(&mut self, cost: usize) -> bool {
        if cost > self.deficit {
            if self.is_paid {
                return false;
            }
            self.is_paid = true;
            self.deficit = self.deficit.saturating_add(QUANTUM);
        }
        true
    }

    const fn over(&mut self, turn: Turn) -> Turn {
        self.is_paid = false;
        turn
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Nothing more to write.
    Idle,
    Over,
    /// A frame did not fit, or a message lacks credit: the channel is served first next time.
    Short,
}

/// Bytes per turn: no frame is longer.
const QUANTUM: usize = 1_200;

const _: () = assert!(
    QUANTUM >= crate::channel::WHOLE_MAX + 5,
    "a turn must be worth any frame"
);

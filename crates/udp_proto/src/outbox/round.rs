//! Turns among channels of one priority.

use super::Page;
use super::expiry::Expiry;
use super::page::bit_of;
use super::senders::{Outbound, Senders};
use crate::channel::outgoing::Next;
use crate::channel::{ChannelId, ChannelTable, Content, plain_len, unreliable};

/// The channels of one priority.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// At least one, in the order of their ids.
    members: Vec<Member>,
    /// Whose turn it is: a place in `members`.
    turn: usize,
    /// Which channels they are: bit n is channel n.
    channels: u32,
}

impl Round {
    /// Makes the rounds of `table`, of the first priority first.
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

    /// Returns whether any of `channels`, in which bit n is channel n, is here.
    pub(super) const fn has_any(&self, channels: u32) -> bool {
        self.channels & channels != 0
    }

    /// Returns the channels, beginning with the one whose turn it is.
    pub(super) fn channels(&self) -> impl Iterator<Item = usize> {
        let (before, after) = self
            .members
            .split_at_checked(self.turn)
            .unwrap_or((&[], &self.members));
        after.iter().chain(before).map(|member| member.channel)
    }

    /// Lets the channels of `class` write what is new, in turn, until all are done or the page is
    /// full.
    pub(super) fn run(
        &mut self,
        class: Class,
        senders: &mut Senders,
        page: &mut Page<'_>,
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
                if !senders.is_of(class, member.channel) || !page.allows(member.channel) {
                    continue;
                }
                match member.run(senders, page, expiry) {
                    Turn::Idle => {}
                    Turn::Over => any_over = true,
                    Turn::Short => {
                        first_short.get_or_insert(place);
                    }
                }
            }
            if !any_over || page.is_full() {
                break;
            }
        }
        self.turn = first_short.unwrap_or(self.turn);
    }

    /// Returns the heap memory it keeps, bytes.
    pub(super) const fn memory(&self) -> usize {
        self.members.capacity().saturating_mul(size_of::<Member>())
    }

    /// The member `step` turns after the one whose turn it is.
    fn place_after(&self, step: usize) -> usize {
        // Both are below the length, which a division would take longer to tell.
        let place = self.turn.saturating_add(step);
        place.checked_sub(self.members.len()).unwrap_or(place)
    }
}

/// Which channels have their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// All.
    Any,
    /// Reliable ones, ordered or not.
    Reliable,
    /// Unreliable ones, sequenced or not.
    Unreliable,
}

/// A channel in its round.
#[derive(Debug)]
struct Member {
    /// Its place in the table.
    channel: usize,
    /// Bytes that it may write before its turn ends.
    deficit: usize,
    /// Whether its turn, which has not ended, had its quantum.
    is_paid: bool,
}

impl Member {
    /// Writes what is new until its share is used up.
    fn run(&mut self, senders: &mut Senders, page: &mut Page<'_>, expiry: &mut Expiry<'_>) -> Turn {
        loop {
            let credit = senders.credit();
            let Some(outbound) = senders.channels.get_mut(self.channel) else {
                return self.over(Turn::Idle);
            };
            if let Outbound::Unreliable(outbound) = outbound
                && let Some(turn) = self.run_plain(outbound, page, expiry)
            {
                // Who has no room any more goes on with the same share in the next packet.
                return match turn {
                    Turn::Short => turn,
                    Turn::Idle | Turn::Over => self.over(turn),
                };
            }
            if outbound.is_held_back(senders.begin_max.saturating_sub(page.used())) {
                // None of it, or all: its first parts alone would be sent in vain.
                return self.over(Turn::Short);
            }
            let next = outbound.next_new(credit);
            let outgoing = match &next {
                Next::Idle => {
                    self.deficit = 0;
                    return self.over(Turn::Idle);
                }
                Next::Waiting => {
                    page.is_credit_awaited = true;
                    // When the credit comes, its share must not be used up: others would take it.
                    return self.over(Turn::Short);
                }
                Next::Frame(outgoing) => outgoing,
            };
            if outgoing.credit > 0 && page.is_credit_awaited {
                return Turn::Short;
            }
            let header = outgoing.header.encoded_len(Some(outgoing.len));
            let cost = header.saturating_add(outgoing.len);
            if !self.may_pay(cost) {
                return self.over(Turn::Over);
            }
            if !page.write(outgoing, outbound.bytes()) {
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

    /// Writes messages that are their frame's only field, as long as there are such and its share
    /// lasts; `None` where the next one, if any, is not.
    #[inline]
    fn run_plain(
        &mut self,
        outbound: &mut unreliable::Outbound,
        page: &mut Page<'_>,
        expiry: &mut Expiry<'_>,
    ) -> Option<Turn> {
        let channel = ChannelId(u8::try_from(self.channel).unwrap_or(u8::MAX));
        while let Some((message, bytes)) = outbound.next_plain() {
            let cost = plain_len(bytes.len());
            if !self.may_pay(cost) {
                return Some(Turn::Over);
            }
            if !page.write_plain(Content::new(channel, message, 0), bytes) {
                return Some(Turn::Short);
            }
            self.deficit = self.deficit.saturating_sub(cost);
            outbound.on_plain_written();
            expiry.look_at_front(channel, outbound);
        }
        None
    }

    /// Returns whether its share covers `cost`; it gets it once a turn.
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

    /// Ends its turn.
    const fn over(&mut self, turn: Turn) -> Turn {
        self.is_paid = false;
        turn
    }
}

/// How a channel's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It has nothing more.
    Idle,
    /// It wrote its share.
    Over,
    /// It has a frame without room, or a message without credit: it is first next time.
    Short,
}

/// What a channel gets for each turn, bytes: no frame is longer.
const QUANTUM: usize = 1_200;

const _: () = assert!(
    QUANTUM >= crate::channel::WHOLE_MAX + 5,
    "a turn must be worth any frame"
);

//! Channels: what both ends of a session agree on in the handshake.

mod msg;

use core::time::Duration;
use std::sync::Arc;

use wire::Writer;

use crate::fragment::{
    FRAGMENT_LEN, FragmentError, UNRELIABLE_BUDGET, fragment_cost, fragment_count, tail_len,
};

pub use msg::{MsgFrame, MsgHeader};
pub(crate) use msg::{WITH_LENGTH, encode_length, encode_plain, length_len, plain_len};

/// One of up to 32 message streams of a session: its row in the [`ChannelTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u8);

/// The number of a message among those that this side sent on its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u64);

/// A message to send, with options beyond its channel's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message<'a> {
    /// The channel.
    pub channel: ChannelId,
    /// The content.
    pub bytes: &'a [u8],
    /// How long it may wait to be sent; `None` is the channel's TTL. The unsent rest of a split
    /// message is dropped 2 s after its first fragment, when the peer gives it up. Reliable
    /// channels ignore it.
    pub ttl: Option<Duration>,
    /// Whether it is retransmitted until its TTL ends; see
    /// [`until_deadline`](Self::until_deadline).
    pub is_repeated: bool,
}

impl<'a> Message<'a> {
    /// Creates a message with the channel's TTL.
    #[must_use]
    pub const fn new(channel: ChannelId, bytes: &'a [u8]) -> Self {
        Self {
            channel,
            bytes,
            ttl: None,
            is_repeated: false,
        }
    }

    /// Sets its TTL.
    #[must_use]
    pub const fn with_ttl(self, ttl: Duration) -> Self {
        Self {
            ttl: Some(ttl),
            ..self
        }
    }

    /// Retransmits an unreliable message whenever its packet is declared lost, until its TTL ends,
    /// but not 2 s after its first fragment was sent, when the peer gives it up. Reliable channels
    /// ignore it.
    ///
    /// It is delivered at most once, and costs 6 more bytes on a channel that is not sequenced.
    /// Kept messages count in [`ChannelConfig::queue_bytes_max`]: if that is full, or 1,024 newer
    /// numbered messages follow, the oldest is no longer retransmitted.
    #[must_use]
    pub const fn until_deadline(self) -> Self {
        Self {
            is_repeated: true,
            ..self
        }
    }
}

/// How a channel treats loss and order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Delivery {
    /// At most once, in order of arrival. Lost messages are not retransmitted.
    Unreliable = 0,
    /// At most once, and never older than the last one delivered. Lost and late messages are
    /// dropped.
    Sequenced = 1,
    /// Exactly once, in order of arrival, while the session lives.
    ReliableUnordered = 2,
    /// Exactly once, in order of sending, while the session lives.
    ReliableOrdered = 3,
}

impl Delivery {
    /// Returns its code in the encoded table.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Unreliable => 0,
            Self::Sequenced => 1,
            Self::ReliableUnordered => 2,
            Self::ReliableOrdered => 3,
        }
    }

    /// Returns whether lost messages are retransmitted.
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        match self {
            Self::Unreliable | Self::Sequenced => false,
            Self::ReliableUnordered | Self::ReliableOrdered => true,
        }
    }

    /// Returns whether each message has a number on the wire, not only split ones.
    pub(crate) const fn is_numbered(self) -> bool {
        match self {
            Self::Unreliable => false,
            Self::Sequenced | Self::ReliableUnordered | Self::ReliableOrdered => true,
        }
    }
}

/// The priority of a channel, 0 (highest) to 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// Higher than all others.
    pub const FIRST: Self = Self(0);
    /// Next to [`Self::FIRST`].
    pub const SECOND: Self = Self(1);
    /// The first level at which reliable messages are bulk: see [`ChannelConfig::is_bulk`].
    pub const BULK: Self = Self(2);
    /// Lower than all others.
    pub const LAST: Self = Self(7);

    /// Returns the priority of that level; `None` above 7.
    #[must_use]
    pub const fn new(level: u8) -> Option<Self> {
        if level <= Self::LAST.0 {
            Some(Self(level))
        } else {
            None
        }
    }

    /// Returns its level, 0 to 7.
    #[must_use]
    pub const fn level(self) -> u8 {
        self.0
    }
}

/// One row of the [`ChannelTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelConfig {
    /// Loss and order; both ends must agree.
    pub delivery: Delivery,
    /// Send priority. A busy channel starves those of lower priority, except that unreliable
    /// channels leave a quarter of the room in flight to reliable ones. Equal ones share byte for
    /// byte.
    pub priority: Priority,
    /// Longest message in bytes; both ends must agree. A long reliable message raises the
    /// receiver's window ([`ChannelTable::receive_window`]).
    pub message_bytes_max: usize,
    /// How long an unreliable message may wait to be sent; 100 ms, about six ticks at 60 Hz.
    /// Reliable channels ignore it.
    pub ttl: Duration,
    /// Bytes that may wait to be sent and, on a reliable channel, to be acknowledged; 64 KiB. Each
    /// message counts as [`QUEUE_RECORD_LEN`] more. An empty queue accepts any one message.
    pub queue_bytes_max: usize,
}

impl ChannelConfig {
    /// Returns a channel for state that the next tick replaces: highest priority, messages of up to
    /// 16 fragments.
    #[must_use]
    pub const fn unreliable() -> Self {
        Self {
            delivery: Delivery::Unreliable,
            priority: Priority::FIRST,
            message_bytes_max: 16 * FRAGMENT_LEN,
            ttl: Duration::from_millis(100),
            queue_bytes_max: 64 << 10,
        }
    }

    /// Returns a channel for state of which only the newest counts: late messages are dropped.
    #[must_use]
    pub const fn sequenced() -> Self {
        let mut config = Self::unreliable();
        config.delivery = Delivery::Sequenced;
        config
    }

    /// Returns a channel for independent messages that must arrive: none waits for earlier ones.
    #[must_use]
    pub const fn reliable_unordered() -> Self {
        let mut config = Self::reliable_ordered();
        config.delivery = Delivery::ReliableUnordered;
        config
    }

    /// Returns a channel for large transfers: as [`reliable_ordered`](Self::reliable_ordered), with
    /// lower priority, a queue of 1 MiB, and a rate limited by congestion control.
    #[must_use]
    pub const fn bulk() -> Self {
        let mut config = Self::reliable_ordered();
        config.priority = Priority::BULK;
        config.queue_bytes_max = 1 << 20;
        config
    }

    /// Returns whether its messages wait for the congestion window: reliable ones of priority
    /// [`Priority::BULK`] and lower. Others are realtime
    /// ([`Config::realtime_rate`](crate::Config)).
    #[must_use]
    pub const fn is_bulk(&self) -> bool {
        self.delivery.is_reliable() && self.priority.0 >= Priority::BULK.0
    }

    /// Returns a channel for messages that must arrive in order: second priority, up to 64 KiB.
    #[must_use]
    pub const fn reliable_ordered() -> Self {
        Self {
            delivery: Delivery::ReliableOrdered,
            priority: Priority::SECOND,
            message_bytes_max: 64 << 10,
            ttl: Duration::from_millis(100),
            queue_bytes_max: 64 << 10,
        }
    }
}

/// The channels of a session, fixed in the handshake. Clones share one list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelTable {
    /// Row `n` is channel `n`; 1 to 32 rows, each within its limits.
    rows: Arc<[ChannelConfig]>,
}

impl ChannelTable {
    /// Most channels: the 5 bits in a MSG frame.
    pub const LEN_MAX: usize = 32;

    /// Longest message of a reliable channel, bytes: 7,490 fragments.
    pub const RELIABLE_BYTES_MAX: usize = 8 << 20;

    /// Longest message of an unreliable channel, bytes: 58 fragments, which fill a session's
    /// budget.
    pub const UNRELIABLE_BYTES_MAX: usize = 58 * FRAGMENT_LEN;

    /// Creates a table in which row `n` is channel `n`.
    ///
    /// # Errors
    ///
    /// [`TableError`] if there are no or more than 32 rows, or a row allows messages longer than
    /// its delivery supports.
    pub fn new(rows: &[ChannelConfig]) -> Result<Self, TableError> {
        if rows.is_empty() || rows.len() > Self::LEN_MAX {
            return Err(TableError::Length(rows.len()));
        }
        for (id, row) in (0..).zip(rows) {
            let max = if row.delivery.is_reliable() {
                Self::RELIABLE_BYTES_MAX
            } else {
                Self::UNRELIABLE_BYTES_MAX
            };
            if row.message_bytes_max > max {
                return Err(TableError::MessageBytes {
                    channel: ChannelId(id),
                    found: row.message_bytes_max,
                    max,
                });
            }
        }
        Ok(Self { rows: rows.into() })
    }

    /// Returns the table with another TTL of `channel`; `None` if the channel does not exist.
    pub(crate) fn with_ttl(&self, channel: ChannelId, ttl: Duration) -> Option<Self> {
        let mut rows = Arc::clone(&self.rows);
        let row = Arc::make_mut(&mut rows).get_mut(usize::from(channel.0))?;
        row.ttl = ttl;
        Some(Self { rows })
    }

    /// Returns the configuration of `channel`.
    #[must_use]
    pub fn get(&self, channel: ChannelId) -> Option<&ChannelConfig> {
        self.rows.get(usize::from(channel.0))
    }

    /// Returns all rows, channel 0 first.
    #[must_use]
    pub fn rows(&self) -> &[ChannelConfig] {
        &self.rows
    }

    /// Returns the receive window in bytes that these channels need, at least `configured`. The
    /// longest reliable message must fit in three quarters, since grants worth the last may be held
    /// back.
    #[must_use]
    pub fn receive_window(&self, configured: usize) -> usize {
        let longest = self
            .rows
            .iter()
            .filter(|row| row.delivery.is_reliable())
            .map(|row| message_credit(row.message_bytes_max))
            .max();
        let needed = longest.map_or(0, |longest| longest.div_ceil(3).saturating_mul(4));
        configured.max(needed)
    }

    /// Returns the reliable channels: bit n is channel n.
    pub(crate) fn reliable_bits(&self) -> u32 {
        let rows = self.rows.iter().rev();
        rows.fold(0, |bits, row| {
            bits << 1 | u32::from(row.delivery.is_reliable())
        })
    }

    /// Returns the bulk channels: bit n is channel n.
    pub(crate) fn bulk_bits(&self) -> u32 {
        let rows = self.rows.iter().rev();
        rows.fold(0, |bits, row| bits << 1 | u32::from(row.is_bulk()))
    }

    /// Appends what both ends must agree on; the channel digest is its hash.
    ///
    /// `count 1 | count * (delivery 1 | message_bytes_max 4)`, big-endian.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(u8::try_from(self.rows.len()).unwrap_or(u8::MAX));
        for row in self.rows.iter() {
            writer.u8(row.delivery.code());
            writer.u32(u32::try_from(row.message_bytes_max).unwrap_or(u32::MAX));
        }
    }
}

impl Default for ChannelTable {
    /// Channel 0 unreliable, channel 1 reliable and ordered.
    fn default() -> Self {
        Self {
            rows: [
                ChannelConfig::unreliable(),
                ChannelConfig::reliable_ordered(),
            ]
            .into(),
        }
    }
}

/// Why a list of channels is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// This many channels; 1 to 32 are allowed.
    Length(usize),
    /// A channel allows messages longer than its delivery supports.
    MessageBytes {
        /// The channel.
        channel: ChannelId,
        /// Its limit in bytes.
        found: usize,
        /// The highest limit allowed, in bytes.
        max: usize,
    },
}

wire::error_text! { TableError {
    Self::Length(found) => "{found} channels, where 1 to 32 are allowed",
    Self::MessageBytes { channel: ChannelId(channel), found, max } =>
        "channel {channel} allows messages of {found} bytes, over the limit of {max}",
}}

const _: () = assert!(
    ChannelTable::UNRELIABLE_BYTES_MAX + fragment_cost(58) <= UNRELIABLE_BUDGET,
    "the longest unreliable message must be reassembled inside its budget"
);

/// The content of one MSG frame, for the record of its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    message: MessageId,
    /// The channel, and in the low half the fragment's index: two integers are passed in registers,
    /// three would go through memory for each message.
    place: u32,
}

impl Content {
    /// Identifies `fragment` of `message` on `channel`; a whole message is its fragment 0.
    #[must_use]
    pub const fn new(channel: ChannelId, message: MessageId, fragment: u16) -> Self {
        Self {
            message,
            place: (channel.0 as u32) << 16 | fragment as u32,
        }
    }

    /// Returns the channel.
    #[must_use]
    pub const fn channel(self) -> ChannelId {
        let [_, channel, ..] = self.place.to_be_bytes();
        ChannelId(channel)
    }

    /// Returns the number of the message on its channel.
    #[must_use]
    pub const fn message(self) -> MessageId {
        self.message
    }

    /// Returns the index of the fragment; 0 for a whole message.
    #[must_use]
    pub const fn fragment(self) -> u16 {
        let [_, _, high, low] = self.place.to_be_bytes();
        u16::from_be_bytes([high, low])
    }
}

/// Why [`Outbox::send`](crate::outbox::Outbox::send) rejected a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The session is not open.
    Closed,
    /// The table has no such channel.
    UnknownChannel(ChannelId),
    /// The message is longer than the channel or the peer's window allows.
    TooLarge {
        /// Its length, bytes.
        len: usize,
        /// What was allowed, bytes.
        max: usize,
    },
    /// The reliable channel's queue is full; try again after an acknowledgement.
    Full,
    /// 4,096 tracked messages of the session are open or not polled.
    TooManyTracked,
}

wire::error_text! { SendError {
    Self::Closed => "the session is not open",
    Self::UnknownChannel(ChannelId(id)) => "there is no channel {id}",
    Self::TooLarge { len, max } => "message of {len} bytes is over the limit of {max}",
    Self::Full => "the channel's send queue is full",
    Self::TooManyTracked => "too many messages are tracked",
}}

/// A peer's violation that ends the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelError {
    /// A malformed MSG frame: truncated, unknown channel, length not minimal, or message over the
    /// channel's limit.
    Frame,
    /// A fragment that contradicts its header, its channel or an earlier fragment.
    Fragment(FragmentError),
    /// More reliable bytes than granted, or a message number 1,024 or more ahead.
    Flow,
}

impl ChannelError {
    /// Returns the CLOSE code of TWP/1, section 14.
    #[must_use]
    pub const fn close_code(self) -> u16 {
        match self {
            Self::Frame => 2,
            Self::Fragment(_) => 4,
            Self::Flow => 5,
        }
    }
}

wire::error_text! { ChannelError {
    Self::Frame => "message frame without a meaning",
    Self::Fragment(error) => "fragment refused: {error}",
    Self::Flow => "more reliable data than granted",
}}

impl From<FragmentError> for ChannelError {
    fn from(error: FragmentError) -> Self {
        Self::Fragment(error)
    }
}

/// How far a reliable sender may be ahead of the oldest unacknowledged message, and how far back a
/// receiver remembers split unreliable messages; TWP/1, section 7.
pub const ID_WINDOW: u64 = 1_024;

/// Most MSG frames in one packet.
///
/// A packet is at most 1,024 numbers late, so a message number is less than 1,023 * 30 + 30 +
/// [`ID_WINDOW`] = 31,744 behind the newest: 2 bytes never read an old number as a new one.
pub const FRAMES_MAX: usize = 30;

/// Longest message that fits in one frame: a datagram of 1,200 bytes less 29 of header and tag and
/// 5 of the frame's header.
pub const WHOLE_MAX: usize = 1_166;

/// Bytes that a queued message's record counts for.
pub const QUEUE_RECORD_LEN: usize = 40;

/// Least credit of a reliable frame: short messages cost their receiver a record and a block each.
pub const FRAME_CREDIT_MIN: usize = 96;

/// Credit of a reliable frame with `len` bytes of data.
pub(crate) const fn frame_credit(len: usize) -> usize {
    if len < FRAME_CREDIT_MIN {
        FRAME_CREDIT_MIN
    } else {
        len
    }
}

/// Credit of all frames of a reliable message.
pub(crate) const fn message_credit(len: usize) -> usize {
    if len <= WHOLE_MAX {
        return frame_credit(len);
    }
    let tail = tail_len(len);
    len.saturating_sub(tail).saturating_add(frame_credit(tail))
}

/// Number of frames for a message of `len` bytes.
pub(crate) fn frame_count(len: usize) -> u16 {
    if len <= WHOLE_MAX {
        return 1;
    }
    u16::try_from(fragment_count(len)).unwrap_or(u16::MAX)
}

/// The number nearest to `expected` with the low 16 bits `low`; RFC 9000, appendix A.3.
pub(crate) fn widen(expected: u64, low: u16) -> u64 {
    let [.., high_byte, low_byte] = expected.to_be_bytes();
    let distance = low
        .wrapping_sub(u16::from_be_bytes([high_byte, low_byte]))
        .cast_signed();
    expected
        .checked_add_signed(distance.into())
        .unwrap_or_else(|| low.into())
}

pub(crate) const fn truncate(id: u64) -> u16 {
    let [.., high_byte, low_byte] = id.to_be_bytes();
    u16::from_be_bytes([high_byte, low_byte])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_too_many_channels_and_too_long_messages() {
        let row = ChannelConfig::unreliable();
        assert_eq!(ChannelTable::new(&[]), Err(TableError::Length(0)));
        assert_eq!(ChannelTable::new(&[row; 33]), Err(TableError::Length(33)));
        assert!(ChannelTable::new(&[row; 32]).is_ok());

        let mut long = row;
        long.message_bytes_max = ChannelTable::UNRELIABLE_BYTES_MAX + 1;
        let error = ChannelTable::new(&[row, long]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "channel 1 allows messages of 64961 bytes, over the limit of 64960"
        );
        long.delivery = Delivery::ReliableOrdered;
        assert!(ChannelTable::new(&[row, long]).is_ok());
        long.message_bytes_max = ChannelTable::RELIABLE_BYTES_MAX + 1;
        assert!(ChannelTable::new(&[row, long]).is_err());
    }

    #[test]
    fn the_encoding_is_frozen_and_leaves_local_choices_out() {
        let mut out = Vec::new();
        ChannelTable::default().encode(&mut out);
        assert_eq!(out, [2, 0, 0, 0, 0x46, 0, 3, 0, 1, 0, 0]);

        let mut local = [
            ChannelConfig::unreliable(),
            ChannelConfig::reliable_ordered(),
        ];
        local[0].queue_bytes_max = 1;
        local[1].priority = Priority::LAST;
        let mut same = Vec::new();
        ChannelTable::new(&local).unwrap().encode(&mut same);
        assert_eq!(same, out);
    }

    #[test]
    fn a_long_message_raises_the_window_so_that_three_quarters_hold_it() {
        let table = ChannelTable::default();
        assert_eq!(table.receive_window(256 << 10), 256 << 10);
        let mut long = ChannelConfig::reliable_ordered();
        long.message_bytes_max = 1 << 20;
        let table = ChannelTable::new(&[long]).unwrap();
        let window = table.receive_window(256 << 10);
        assert!(window - window / 4 >= message_credit(1 << 20));
        assert!(window < (1 << 20) * 3 / 2);
    }

    #[test]
    fn numbers_near_both_ends_are_widened_without_overflow() {
        assert_eq!(widen(0, 0xffff), 0xffff);
        assert_eq!(widen(3, 0xffff), 0xffff);
        assert_eq!(widen(0x1_0000, 0xffff), 0xffff);
        assert_eq!(widen(0xffff, 1), 0x1_0001);
        assert_eq!(widen(u64::MAX, 0xfffe), u64::MAX - 1);
        assert_eq!(widen(u64::MAX, 0), 0, "nothing lies above");
    }

    #[test]
    fn the_longest_message_of_a_window_costs_its_length() {
        assert_eq!(message_credit(0), FRAME_CREDIT_MIN);
        assert_eq!(message_credit(WHOLE_MAX), WHOLE_MAX);
        assert_eq!(message_credit(262_080), 262_080);
        assert_eq!(message_credit(2_241), 2_240 + FRAME_CREDIT_MIN);
    }

    proptest! {
        #[test]
        fn twp_m6_ids_within_half_the_range_are_widened_exactly(
            expected in prop_oneof![
                Just(1_u64 << 16), Just(1 << 32), any::<u64>(),
            ].prop_map(|near| near.clamp(1 << 15, u64::MAX - (1 << 15))),
            distance in -(1_i64 << 15)..(1 << 15),
        ) {
            let id = expected.checked_add_signed(distance).unwrap();
            prop_assert_eq!(widen(expected, truncate(id)), id);
        }
    }
}

//! The channel table.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use wire::Writer;

use super::{ChannelConfig, ChannelId, message_credit};
use crate::fragment::{FRAGMENT_LEN, UNRELIABLE_BUDGET, fragment_cost};

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

    /// Longest message of an unreliable channel, bytes: 58 fragments, which fill a session's budget
    /// for unreliable reassembly.
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

    /// Returns the receive window in bytes that these channels need, at least `configured`.
    ///
    /// The receiver may hold back grants worth a quarter of its window. So the longest reliable
    /// message must fit in the other three, or it could wait forever for credit.
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
    /// `count 1 | count * (delivery 1 | message_bytes_max 4)`, big-endian. Priority, TTL and queue
    /// are local to each sender.
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

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(found) => write!(f, "{found} channels, where 1 to 32 are allowed"),
            Self::MessageBytes {
                channel: ChannelId(channel),
                found,
                max,
            } => write!(
                f,
                "channel {channel} allows messages of {found} bytes, over the limit of {max}"
            ),
        }
    }
}

impl core::error::Error for TableError {}

const _: () = assert!(
    ChannelTable::UNRELIABLE_BYTES_MAX + fragment_cost(58) <= UNRELIABLE_BUDGET,
    "the longest unreliable message must be reassembled inside its budget"
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Delivery;

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
        local[1].priority = super::super::Priority::LAST;
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
}

//! The record at the start of each stream of a tunnel, and its answer.
//!
//! | entry to exit | bytes |
//! |---|---|
//! | length of the rest | 1, at most 104 |
//! | version, 1 | 1 |
//! | game name | 1 + n, n at most 64 |
//! | player's address | family 1 (4 or 6), ip 4 or 16, port 2 |
//! | address that the player connected to | the same |
//!
//! The exit sends the byte 1 when its server has answered, and nothing before. If it refuses, it
//! resets the stream with the reason as error code.

use core::net::SocketAddr;

use wire::{Reader, Writer};

use crate::flow_message::{GAME_NAME_MAX, read_name, write_name};
use crate::message::{DecodeError, at_most, read_address, whole, write_address};

/// Game and player of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRecord {
    /// The game; at most 64 bytes.
    pub game: String,
    /// The player's address, as seen by the entry or named by a trusted proxy.
    pub player: SocketAddr,
    /// The address of the entry that the player connected to.
    pub listen: SocketAddr,
}

impl OpenRecord {
    /// Longest record in bytes, with its length byte.
    pub const LEN_MAX: usize = 1 + 1 + 1 + GAME_NAME_MAX + 2 * 19;

    /// Appends the record to `out`. A name is cut at 64 bytes; games have no longer ones.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut writer = Writer::new(out);
        writer.u8(0);
        writer.u8(VERSION);
        write_name(&mut writer, &self.game);
        write_address(&mut writer, self.player);
        write_address(&mut writer, self.listen);
        let len = out.len().saturating_sub(start).saturating_sub(1);
        if let (Some(first), Ok(len)) = (out.get_mut(start), u8::try_from(len)) {
            *first = len;
        }
    }

    /// Decodes the record without its length byte.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] names the first rule that `bytes` break.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return Err(DecodeError::BadValue);
        }
        let record = Self {
            game: read_name(&mut reader)?,
            player: read_address(&mut reader)?,
            listen: read_address(&mut reader)?,
        };
        whole(&reader, record)
    }
}

/// Reassembles the record at the start of a stream.
#[derive(Debug, Default)]
pub struct OpenReader {
    /// Length byte and the bytes after it; never more than the record.
    bytes: Vec<u8>,
}

impl OpenReader {
    /// Returns how many more bytes it accepts; never more than the rest of the record.
    #[must_use]
    pub fn wants(&self) -> usize {
        let len = self.bytes.first().map_or(0, |&len| usize::from(len));
        let whole = len.saturating_add(1);
        whole.saturating_sub(self.bytes.len())
    }

    /// Adds the stream's next bytes, at most [`wants`](Self::wants); returns the record when it is
    /// complete.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes do not start a record; the stream is then unusable.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Option<OpenRecord>, DecodeError> {
        at_most(bytes.len(), self.wants())?;
        self.bytes.extend_from_slice(bytes);
        let len = self.bytes.first().map_or(1, |&len| usize::from(len));
        if len == 0 || len >= OpenRecord::LEN_MAX {
            let max = OpenRecord::LEN_MAX;
            return Err(DecodeError::OverLimit { found: len, max });
        }
        if self.bytes.is_empty() || self.wants() > 0 {
            return Ok(None);
        }
        OpenRecord::decode(self.bytes.get(1..).unwrap_or_default()).map(Some)
    }
}

/// Why an exit refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Refusal {
    /// It does not serve this game, or not for this entry.
    Policy,
    /// A limit is reached: of connections in total, per address, or per second.
    LimitReached,
    /// The game's server refused, or is unreachable.
    Server,
    /// The game's server did not answer in time.
    Slow,
    /// The record was malformed or incomplete at the timeout.
    Malformed,
}

impl Refusal {
    /// Returns the error code that the stream is reset with.
    pub(super) const fn code(self) -> u32 {
        match self {
            Self::Policy => 0x10,
            Self::LimitReached => 0x11,
            Self::Server => 0x12,
            Self::Slow => 0x13,
            Self::Malformed => 0x14,
        }
    }

    pub(super) const fn of_code(code: u64) -> Option<Self> {
        Some(match code {
            0x10 => Self::Policy,
            0x11 => Self::LimitReached,
            0x12 => Self::Server,
            0x13 => Self::Slow,
            0x14 => Self::Malformed,
            _ => return None,
        })
    }
}

wire::display_text! { Refusal {
    Self::Policy => "the exit does not serve this game for this entry",
    Self::LimitReached => "the limit of connections of the exit is reached",
    Self::Server => "the game's server cannot be reached",
    Self::Slow => "the game's server did not answer in time",
    Self::Malformed => "the exit could not read the open record",
}}

/// Byte that the exit sends before the server's bytes.
pub(super) const ACCEPTED: u8 = 1;
/// Error code of a stream if a TCP connection at either end was reset.
pub(super) const RESET: u32 = 1;
const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> OpenRecord {
        OpenRecord {
            game: "web".into(),
            player: "192.0.2.1:258".parse().unwrap(),
            listen: "[2001:db8::1]:443".parse().unwrap(),
        }
    }

    #[test]
    fn the_bytes_are_frozen() {
        let mut out = vec![9];
        record().encode(&mut out);
        let expected = [
            9, 31, 1, 3, b'w', b'e', b'b', 4, 192, 0, 2, 1, 1, 2, 6, 0x20, 1, 0x0d, 0xb8, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 187,
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn a_record_is_read_byte_by_byte_and_nothing_behind_it() {
        let mut bytes = Vec::new();
        record().encode(&mut bytes);
        let mut reader = OpenReader::default();
        let (last, first) = bytes.split_last().unwrap();
        for byte in first {
            assert!(reader.wants() > 0);
            assert_eq!(reader.take(&[*byte]), Ok(None));
        }
        assert_eq!(reader.wants(), 1);
        assert!(reader.take(&[*last, 0]).is_err(), "one byte too many");
        assert_eq!(reader.take(&[*last]), Ok(Some(record())));
        assert_eq!(reader.wants(), 0);
    }

    #[test]
    fn a_length_that_no_record_has_is_refused_at_its_first_byte() {
        for len in [0, 105, 255] {
            assert!(OpenReader::default().take(&[len]).is_err(), "{len}");
        }
        assert_eq!(OpenReader::default().take(&[104]), Ok(None));
    }

    #[test]
    fn each_refusal_has_a_code_of_its_own() {
        let all = [
            Refusal::Policy,
            Refusal::LimitReached,
            Refusal::Server,
            Refusal::Slow,
            Refusal::Malformed,
        ];
        for refusal in all {
            assert_eq!(Refusal::of_code(refusal.code().into()), Some(refusal));
        }
        assert_eq!(Refusal::of_code(RESET.into()), None);
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_the_same(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            if let Ok(record) = OpenRecord::decode(&bytes) {
                let mut out = Vec::new();
                record.encode(&mut out);
                prop_assert_eq!(&out[1..], &bytes[..]);
            }
        }

        #[test]
        fn no_record_is_longer_than_the_longest(game in "[a-z]{0,100}") {
            let listen = "[2001:db8::1]:443".parse().unwrap();
            let record = OpenRecord { game, player: listen, listen };
            let mut out = Vec::new();
            record.encode(&mut out);
            prop_assert!(out.len() <= OpenRecord::LEN_MAX);
            let read = OpenRecord::decode(&out[1..]).unwrap();
            prop_assert_eq!(read == record, record.game.len() <= GAME_NAME_MAX);
        }
    }
}

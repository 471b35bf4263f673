//! The MSG frame; TWP/1, section 7.
//!
//! ```text
//! 1 F L ccccc | id 2 (not unreliable, or F) | frag_index 2, frag_count 2 (F) | len varint (L) | data
//! ```

use wire::{Reader, Writer};

use super::{ChannelError, ChannelId, ChannelTable};
use crate::fragment::Position;

/// A MSG frame without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsgHeader {
    /// The channel.
    pub channel: ChannelId,
    /// Low 16 bits of the message's number; on an unreliable channel only if it is split.
    pub id: Option<u16>,
    /// The position of the fragment; `None` for a whole message.
    pub fragment: Option<Position>,
}

impl MsgHeader {
    /// Appends the header of a frame with `len` bytes of data. `None` omits the length, which only
    /// a packet's last frame may do.
    ///
    /// `len` is at most 16,383; a packet holds less.
    pub fn encode(&self, len: Option<usize>, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        let fragmented = if self.fragment.is_some() {
            FRAGMENTED
        } else {
            0
        };
        let with_length = if len.is_some() { WITH_LENGTH } else { 0 };
        writer.u8(MSG | fragmented | with_length | (self.channel.0 & CHANNEL));
        if let Some(id) = self.id {
            writer.u16(id);
        }
        if let Some(Position { index, count }) = self.fragment {
            writer.u16(index);
            writer.u16(count);
        }
        if let Some(len) = len {
            encode_length(len, &mut writer);
        }
    }

    /// Returns the encoded length.
    #[must_use]
    pub const fn encoded_len(&self, len: Option<usize>) -> usize {
        let id = if self.id.is_some() { 2 } else { 0 };
        let fragment = if self.fragment.is_some() { 4 } else { 0 };
        let len = match len {
            Some(len) => length_len(len),
            None => 0,
        };
        1_usize
            .saturating_add(id)
            .saturating_add(fragment)
            .saturating_add(len)
    }
}

/// A received MSG frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsgFrame<'a> {
    /// The header.
    pub header: MsgHeader,
    /// The message or fragment.
    pub data: &'a [u8],
}

impl<'a> MsgFrame<'a> {
    /// Decodes a frame from its type byte. Without a length, the frame takes all remaining bytes.
    ///
    /// # Errors
    ///
    /// [`ChannelError::Frame`] if the type is not MSG, `table` has no such channel, bytes are
    /// missing, or the length is not minimal.
    pub fn decode(reader: &mut Reader<'a>, table: &ChannelTable) -> Result<Self, ChannelError> {
        let first = reader.u8().map_err(|_| ChannelError::Frame)?;
        Self::decode_after(first, reader, table)
    }

    /// As [`decode`](Self::decode), after the type byte `first`.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode).
    #[inline]
    pub fn decode_after(
        first: u8,
        reader: &mut Reader<'a>,
        table: &ChannelTable,
    ) -> Result<Self, ChannelError> {
        Self::take(first, reader, table).ok_or(ChannelError::Frame)
    }

    /// Appends the frame, with its length.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.header.encode(Some(self.data.len()), out);
        out.extend_from_slice(self.data);
    }

    /// Returns the encoded length.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        let len = self.data.len();
        self.header.encoded_len(Some(len)).saturating_add(len)
    }

    #[inline]
    fn take(first: u8, reader: &mut Reader<'a>, table: &ChannelTable) -> Option<Self> {
        if first & MSG == 0 {
            return None;
        }
        let channel = ChannelId(first & CHANNEL);
        let numbered = table.get(channel)?.delivery.is_numbered();
        let fragmented = first & FRAGMENTED != 0;
        let id = if numbered || fragmented {
            Some(reader.u16().ok()?)
        } else {
            None
        };
        let fragment = if fragmented {
            let index = reader.u16().ok()?;
            let count = reader.u16().ok()?;
            Some(Position { index, count })
        } else {
            None
        };
        let data = if first & WITH_LENGTH == 0 {
            reader.take_rest()
        } else {
            let len = decode_length(reader)?;
            reader.bytes(len).ok()?
        };
        let header = MsgHeader {
            channel,
            id,
            fragment,
        };
        Some(Self { header, data })
    }
}

/// Type bit of every MSG frame.
const MSG: u8 = 0x80;

/// Type bit: the data is a fragment.
const FRAGMENTED: u8 = 0x40;

/// Type bit: a length precedes the data.
pub(crate) const WITH_LENGTH: u8 = 0x20;

/// Type bits that hold the channel.
const CHANNEL: u8 = 0x1f;

/// Length of a frame of channel, length and `len` bytes of data.
pub(crate) const fn plain_len(len: usize) -> usize {
    1_usize.saturating_add(length_len(len)).saturating_add(len)
}

/// Appends a frame of channel, length if given, and `data`.
#[inline]
pub(crate) fn encode_plain(channel: ChannelId, len: Option<usize>, data: &[u8], out: &mut Vec<u8>) {
    let first = MSG | (channel.0 & CHANNEL);
    match len {
        None => out.push(first),
        Some(len) if len < 0x80 => {
            out.extend([first | WITH_LENGTH, u8::try_from(len).unwrap_or(0)]);
        }
        Some(len) => {
            let [low, high] = long_length(len);
            out.extend([first | WITH_LENGTH, low, high]);
        }
    }
    out.extend_from_slice(data);
}

/// The LEB128 form of `len`, 128 to 16,383.
fn long_length(len: usize) -> [u8; 2] {
    let low = u8::try_from(len & 0x7f).unwrap_or(0);
    let high = u8::try_from(len >> 7).unwrap_or(0x7f);
    [low | 0x80, high & 0x7f]
}

/// Bytes of the LEB128 form of `len`.
pub(crate) const fn length_len(len: usize) -> usize {
    if len < 0x80 { 1 } else { 2 }
}

/// Appends `len` as LEB128 of 1 or 2 bytes.
pub(crate) fn encode_length(len: usize, writer: &mut Writer<'_>) {
    if len < 0x80 {
        writer.u8(u8::try_from(len).unwrap_or(0));
    } else {
        writer.bytes(&long_length(len));
    }
}

/// Decodes a LEB128 number of 1 or 2 bytes; `None` if longer or not minimal.
fn decode_length(reader: &mut Reader<'_>) -> Option<usize> {
    let low = reader.u8().ok()?;
    if low & 0x80 == 0 {
        return Some(usize::from(low));
    }
    let high = reader.u8().ok()?;
    if high == 0 || high & 0x80 != 0 {
        return None;
    }
    Some(usize::from(high) << 7 | usize::from(low & 0x7f))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(bytes: &[u8]) -> Result<MsgFrame<'_>, ChannelError> {
        MsgFrame::decode(&mut Reader::new(bytes), &ChannelTable::default())
    }

    #[test]
    fn the_layout_is_frozen() {
        let mut out = Vec::new();
        let header = MsgHeader {
            channel: ChannelId(1),
            id: Some(0x0203),
            fragment: Some(Position { index: 4, count: 5 }),
        };
        header.encode(Some(300), &mut out);
        assert_eq!(out, [0xe1, 2, 3, 0, 4, 0, 5, 0xac, 0x02]);
        out.clear();
        let header = MsgHeader {
            channel: ChannelId(0),
            id: None,
            fragment: None,
        };
        header.encode(None, &mut out);
        assert_eq!(out, [0x80]);
    }

    #[test]
    fn malformed_frames_are_refused() {
        for bytes in [
            &[][..],
            &[0x07],                         // another type
            &[0x82],                         // no channel 2
            &[0x81, 0],                      // half an id
            &[0xc0, 0, 0, 0, 0, 0],          // half a position
            &[0xa0],                         // no length
            &[0xa0, 2, 0],                   // data cut short
            &[0xa0, 0x81, 0x00, 0],          // 1 in two bytes
            &[0xa0, 0x80, 0x80, 0x01, 0, 0], // a third byte
        ] {
            assert_eq!(decode(bytes), Err(ChannelError::Frame), "{bytes:?}");
        }
        assert_eq!(
            decode(&[0xa0, 1, 7, 8]).map(|frame| frame.data),
            Ok(&[7][..])
        );
        assert_eq!(
            decode(&[0x80, 7, 8]).map(|frame| frame.data),
            Ok(&[7, 8][..])
        );
    }

    proptest! {
        #[test]
        fn twp_m3_decoding_any_bytes_gives_a_frame_that_encodes_to_them(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut reader = Reader::new(&bytes);
            while let Ok(frame) = MsgFrame::decode(&mut reader, &ChannelTable::default()) {
                let taken = bytes.len() - reader.len();
                let with_length = Some(frame.data.len());
                let mut out = Vec::new();
                let head = frame.header.encoded_len(with_length) + frame.data.len();
                let length = if taken >= head { with_length } else { None };
                frame.header.encode(length, &mut out);
                prop_assert_eq!(out.len(), frame.header.encoded_len(length));
                out.extend_from_slice(frame.data);
                prop_assert!(bytes[..taken].ends_with(&out));
            }
        }

        #[test]
        fn what_is_written_is_read(
            reliable: bool,
            id: u16,
            fragment in prop::option::of((any::<u16>(), any::<u16>())),
            with_length: bool,
            data in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let header = MsgHeader {
                channel: ChannelId(reliable.into()),
                id: (reliable || fragment.is_some()).then_some(id),
                fragment: fragment.map(|(index, count)| Position { index, count }),
            };
            let mut out = Vec::new();
            header.encode(with_length.then_some(data.len()), &mut out);
            out.extend_from_slice(&data);
            prop_assert_eq!(decode(&out), Ok(MsgFrame { header, data: &data }));
        }
    }
}

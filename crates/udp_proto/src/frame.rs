//! Frames: the typed items inside a packet's plaintext.
//!
//! Decoding is strict: each frame has one encoding, and any error ends the session. It allocates
//! nothing and reads each byte once.
//!
//! | type | frame | body |
//! |---|---|---|
//! | 0x00 | PADDING | none |
//! | 0x01 | PING | none |
//! | 0x02, 0x03 | ACK | [`AckFrame`] |
//! | 0x04 | CLOSE | code 2, reason length 1 (at most 128), reason |
//! | 0x05, 0x06 | `PATH_CHALLENGE`, `PATH_RESPONSE` | 8 bytes |
//! | 0x07 | WINDOW | 6 bytes |
//! | 0x08 | CONFIRM | parameters 40, channel digest 16 |
//! | 0x09 | TIME | 4 bytes |
//! | 0x0A | IDENTITY | public key 65, signature 64 |
//! | 0x80..=0xFF | MSG | [`MsgFrame`] |

use core::time::Duration;

use wire::{Reader, Truncated, Writer};

use crate::channel::{ChannelError, ChannelTable, FRAMES_MAX, MsgFrame, encode_length, length_len};
use crate::packet::{Form, TruncatedNumber};

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Requests an acknowledgement.
    Ping,
    /// Reports which packets arrived.
    Ack(AckFrame<'a>),
    /// Ends the session.
    Close {
        /// The code, from the protocol's table.
        code: u16,
        /// The reason text, at most [`REASON_LEN_MAX`] bytes.
        reason: &'a [u8],
    },
    /// Asks the receiver to prove that it is reachable on this path.
    PathChallenge([u8; 8]),
    /// Echoes a challenge.
    PathResponse([u8; 8]),
    /// The receiver's limit of reliable payload since the start of the session, in bytes; below
    /// 2^48.
    Window(u64),
    /// The client's part of the handshake.
    Confirm {
        /// The client's transport parameters.
        params: &'a [u8; 40],
        /// Digest of its channel table.
        channel_digest: &'a [u8; 16],
    },
    /// The sender's monotonic clock in milliseconds, truncated to 32 bits.
    Time(u32),
    /// Proof of the dialler's identity in peer mode.
    Identity {
        /// SEC1 uncompressed P-256 key.
        public_key: &'a [u8; 65],
        /// ECDSA over the transcript, r then s.
        signature: &'a [u8; 64],
    },
    /// A message of the application, or a fragment of one.
    Message(MsgFrame<'a>),
}

/// Whether a packet or frame is ack-eliciting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elicits {
    /// It is.
    Ack,
    /// It is not; it is acknowledged only along with others.
    Nothing,
}

impl Frame<'_> {
    /// Returns whether the frame makes its packet ack-eliciting.
    #[must_use]
    pub const fn elicits(&self) -> Elicits {
        match self {
            Self::Ack(_) | Self::Close { .. } | Self::Time(_) => Elicits::Nothing,
            Self::Ping
            | Self::PathChallenge(_)
            | Self::PathResponse(_)
            | Self::Window(_)
            | Self::Confirm { .. }
            | Self::Identity { .. }
            | Self::Message(_) => Elicits::Ack,
        }
    }

    /// Appends the frame.
    ///
    /// Within the bounds of its fields, it decodes to the same frame. Too long a reason is
    /// truncated, and too large a window clamped.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        match *self {
            Self::Ping => writer.u8(PING),
            Self::Ack(ref ack) => ack.encode(&mut writer),
            Self::Close { code, reason } => {
                let reason = reason.get(..REASON_LEN_MAX).unwrap_or(reason);
                writer.u8(CLOSE);
                writer.u16(code);
                writer.u8(u8::try_from(reason.len()).unwrap_or_default());
                writer.bytes(reason);
            }
            Self::PathChallenge(ref token) => {
                writer.u8(PATH_CHALLENGE);
                writer.bytes(token);
            }
            Self::PathResponse(ref token) => {
                writer.u8(PATH_RESPONSE);
                writer.bytes(token);
            }
            Self::Window(credit) => {
                let [_, _, low @ ..] = credit.min(WINDOW_MAX).to_be_bytes();
                writer.u8(WINDOW);
                writer.bytes(&low);
            }
            Self::Confirm {
                params,
                channel_digest,
            } => {
                writer.u8(CONFIRM);
                writer.bytes(params);
                writer.bytes(channel_digest);
            }
            Self::Time(millis) => {
                writer.u8(TIME);
                writer.u32(millis);
            }
            Self::Identity {
                public_key,
                signature,
            } => {
                writer.u8(IDENTITY);
                writer.bytes(public_key);
                writer.bytes(signature);
            }
            Self::Message(ref message) => message.encode(out),
        }
    }

    /// Returns the encoded length.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Ping => 1,
            Self::Ack(ack) => ack.encoded_len(),
            Self::Close { reason, .. } => reason.len().min(REASON_LEN_MAX).saturating_add(4),
            Self::PathChallenge(_) | Self::PathResponse(_) => 9,
            Self::Window(_) => 7,
            Self::Confirm { .. } => 57,
            Self::Time(_) => 5,
            Self::Identity { .. } => 130,
            Self::Message(message) => message.encoded_len(),
        }
    }
}

/// Iterates over the frames of one plaintext, skipping padding. Ends after an error.
#[derive(Clone, Debug)]
pub struct Frames<'a, 't> {
    left: FramesLeft<'a>,
    table: &'t ChannelTable,
}

/// As [`Frames`], but without the table, so that each frame can be processed before the next is
/// decoded: at most [`FRAMES_MAX`] messages and [`CONTROL_FRAMES_MAX`] others.
#[derive(Clone, Debug)]
pub struct FramesLeft<'a> {
    reader: Reader<'a>,
    /// Messages still allowed.
    messages: usize,
    /// Other frames still allowed, without padding.
    controls: usize,
}

impl<'a, 't> Frames<'a, 't> {
    /// Starts at the first byte of `plaintext`.
    #[must_use]
    pub const fn new(plaintext: &'a [u8], table: &'t ChannelTable) -> Self {
        Self {
            left: FramesLeft::new(plaintext),
            table,
        }
    }
}

impl<'a> FramesLeft<'a> {
    /// Starts at the first byte of `plaintext`.
    #[must_use]
    pub const fn new(plaintext: &'a [u8]) -> Self {
        Self {
            reader: Reader::new(plaintext),
            messages: FRAMES_MAX,
            controls: CONTROL_FRAMES_MAX,
        }
    }

    pub(crate) fn taken(&self) -> u32 {
        let left = self.messages.saturating_add(self.controls);
        PACKET_FRAMES_MAX.saturating_sub(u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Decodes the next frame if it is a message. Skips padding and leaves other frames.
    #[inline]
    pub(crate) fn take_message(
        &mut self,
        table: &ChannelTable,
    ) -> Option<Result<MsgFrame<'a>, ChannelError>> {
        let kind = loop {
            match *self.reader.rest().first()? {
                PADDING => self.reader.u8().ok()?,
                kind if kind < MESSAGE => return None,
                kind => break kind,
            };
        };
        self.reader.u8().ok()?;
        Some(self.message(kind, table))
    }

    #[inline]
    fn message(&mut self, kind: u8, table: &ChannelTable) -> Result<MsgFrame<'a>, ChannelError> {
        self.messages = self.messages.checked_sub(1).ok_or(ChannelError::Frame)?;
        MsgFrame::decode_after(kind, &mut self.reader, table)
    }

    /// Decodes the next frame for the channels of `table`. Results after an error are meaningless.
    pub fn take(&mut self, table: &ChannelTable) -> Option<Result<Frame<'a>, FrameError>> {
        let kind = loop {
            match self.reader.u8().ok()? {
                PADDING => {}
                kind => break kind,
            }
        };
        // Built in the caller's place: copying a value just written stalls the processor.
        Some(self.frame(kind, table))
    }

    fn frame(&mut self, kind: u8, table: &ChannelTable) -> Result<Frame<'a>, FrameError> {
        if kind >= MESSAGE {
            return Ok(Frame::Message(self.message(kind, table)?));
        }
        self.controls = self.controls.checked_sub(1).ok_or(FrameError::TooMany)?;
        let reader = &mut self.reader;
        Ok(match kind {
            PING => Frame::Ping,
            TYPE_SHORT | TYPE_LONG => Frame::Ack(AckFrame::decode(kind, reader)?),
            CLOSE => {
                let code = reader.u16()?;
                let len = usize::from(reader.u8()?);
                if len > REASON_LEN_MAX {
                    return Err(FrameError::TooLong);
                }
                let reason = reader.bytes(len)?;
                Frame::Close { code, reason }
            }
            PATH_CHALLENGE => Frame::PathChallenge(reader.array()?),
            PATH_RESPONSE => Frame::PathResponse(reader.array()?),
            WINDOW => {
                let (high, low) = (reader.u16()?, reader.u32()?);
                Frame::Window(u64::from(high) << 32 | u64::from(low))
            }
            CONFIRM => Frame::Confirm {
                params: chunk(reader)?,
                channel_digest: chunk(reader)?,
            },
            TIME => Frame::Time(reader.u32()?),
            IDENTITY => Frame::Identity {
                public_key: chunk(reader)?,
                signature: chunk(reader)?,
            },
            _ => return Err(FrameError::UnknownType(kind)),
        })
    }
}

impl<'a> Iterator for Frames<'a, '_> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        let frame = self.left.take(self.table);
        if let Some(Err(_)) = frame {
            self.left.reader.take_rest();
        }
        frame
    }
}

impl core::iter::FusedIterator for Frames<'_, '_> {}

/// Why a plaintext is malformed; each ends the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// Truncated.
    Truncated,
    /// An unknown or reserved type.
    UnknownType(u8),
    /// A longer encoding than needed.
    NotMinimal,
    /// A length over its limit.
    TooLong,
    /// More frames than one packet may hold.
    TooMany,
    /// A MSG frame that its channel does not allow.
    Message(ChannelError),
}

impl From<Truncated> for FrameError {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

impl From<ChannelError> for FrameError {
    fn from(error: ChannelError) -> Self {
        Self::Message(error)
    }
}

wire::error_text! { FrameError {
    Self::Truncated => "frame is cut off",
    Self::UnknownType(kind) => "frame type {kind:#04x} is not known",
    Self::NotMinimal => "field has a shorter encoding",
    Self::TooLong => "length is over the limit of its field",
    Self::TooMany => "more frames than one packet may hold",
    Self::Message(error) => "{error}",
}}

/// Most frames other than messages and padding in one packet: a sender needs fewer.
pub const CONTROL_FRAMES_MAX: usize = 16;

pub(crate) const PACKET_FRAMES_MAX: u32 = 46;

const _: () = assert!(PACKET_FRAMES_MAX as usize == FRAMES_MAX + CONTROL_FRAMES_MAX);

/// Longest reason of a CLOSE, in bytes.
pub const REASON_LEN_MAX: usize = 128;

/// Largest credit that a WINDOW holds.
pub const WINDOW_MAX: u64 = (1 << 48) - 1;

/// Reads `LEN` bytes without a copy.
fn chunk<'a, const LEN: usize>(reader: &mut Reader<'a>) -> Result<&'a [u8; LEN], Truncated> {
    reader.bytes(LEN)?.first_chunk().ok_or(Truncated)
}

/// Reads a LEB128 number of 1 or 2 bytes.
fn read_varint(reader: &mut Reader<'_>) -> Result<u16, FrameError> {
    let low = reader.u8()?;
    if low & 0x80 == 0 {
        return Ok(low.into());
    }
    match reader.u8()? {
        0 => Err(FrameError::NotMinimal),
        0x80..=u8::MAX => Err(FrameError::TooLong),
        high => Ok(u16::from(high) << 7 | u16::from(low & 0x7F)),
    }
}

const PADDING: u8 = 0x00;
const PING: u8 = 0x01;
const CLOSE: u8 = 0x04;
const PATH_CHALLENGE: u8 = 0x05;
const PATH_RESPONSE: u8 = 0x06;
const WINDOW: u8 = 0x07;
const CONFIRM: u8 = 0x08;
const TIME: u8 = 0x09;
const IDENTITY: u8 = 0x0A;
const MESSAGE: u8 = 0x80;

#[cfg(test)]
mod tests;

/// Body of an ACK.
///
/// | size | field | |
/// |---|---|---|
/// | 2 or 4 | largest | by the type: 0x02 short, 0x03 long |
/// | 2 | delay | units of 16 microseconds, 0xFFFF for none |
/// | 1..2 | run | varint, at most 1,023 |
/// | 1 | length of bits | at most 128 |
/// | 0..128 | bits | the last byte is not zero |
///
/// `largest` and the `run` packets below it were received. The next one below, the gap, was not.
/// Bit `k`, lowest first, is set if the packet `k + 1` below the gap was received. Without bits,
/// the state of the gap and of all packets below is unspecified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckFrame<'a> {
    /// Low bytes of the largest received packet number.
    pub largest: TruncatedNumber,
    /// Time from the arrival of `largest` to this frame, in [`Self::DELAY_UNIT`], or
    /// [`Self::DELAY_NONE`].
    pub delay: u16,
    /// Number of received packets directly below `largest`; at most [`Self::RUN_MAX`].
    pub run: u16,
    /// Bits from below the gap downwards; at most [`Self::BITS_LEN_MAX`] bytes, the last not 0.
    pub bits: &'a [u8],
}

impl<'a> AckFrame<'a> {
    /// Unit of the delay.
    pub const DELAY_UNIT: Duration = Duration::from_micros(16);
    /// The delay is unknown.
    pub const DELAY_NONE: u16 = u16::MAX;
    /// Longest run.
    pub const RUN_MAX: u16 = 1_023;
    /// Most bytes of bits.
    pub const BITS_LEN_MAX: usize = 128;
    /// Longest frame, its type byte included.
    pub const LEN_MAX: usize = 138;

    /// Returns the delay as a field; [`Self::DELAY_NONE`] above 1.048 s.
    #[must_use]
    pub fn delay_field(delay: Duration) -> u16 {
        let units = delay.as_micros().checked_div(16).unwrap_or_default();
        u16::try_from(units).unwrap_or(Self::DELAY_NONE)
    }

    /// Returns the delay, if known.
    #[must_use]
    pub const fn delay(&self) -> Option<Duration> {
        match self.delay {
            Self::DELAY_NONE => None,
            units => Some(Self::DELAY_UNIT.saturating_mul(units as u32)),
        }
    }

    /// Returns whether the packet `below` under the largest is acknowledged.
    #[must_use]
    pub fn reports(&self, below: u64) -> bool {
        let run = u64::from(self.run);
        if below <= run {
            return true;
        }
        let Some(index) = below.checked_sub(run.saturating_add(2)) else {
            return false;
        };
        usize::try_from(index >> 3)
            .ok()
            .and_then(|byte| self.bits.get(byte))
            .is_some_and(|byte| byte >> (index & 7) & 1 == 1)
    }

    /// Returns the distance from the largest to the lowest acknowledged packet; at most 2,048.
    #[must_use]
    pub fn lowest_below(&self) -> u64 {
        let run = u64::from(self.run);
        let Some((last, whole)) = self.bits.split_last() else {
            return run;
        };
        let Some(highest_bit) = last.checked_ilog2() else {
            return run;
        };
        let index = u64::try_from(whole.len())
            .unwrap_or(u64::MAX)
            .saturating_mul(8)
            .saturating_add(highest_bit.into());
        run.saturating_add(2).saturating_add(index)
    }

    /// Returns the encoded length.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        // Type, delay and the length of the bits.
        self.bits
            .len()
            .saturating_add(self.largest.form().byte_len())
            .saturating_add(length_len(self.run as usize))
            .saturating_add(4)
    }

    #[inline]
    fn decode(kind: u8, reader: &mut Reader<'a>) -> Result<Self, FrameError> {
        let form = if kind == TYPE_SHORT {
            Form::Two
        } else {
            Form::Four
        };
        let largest = TruncatedNumber::decode(form, reader)?;
        let delay = reader.u16()?;
        let run = read_varint(reader)?;
        let len = usize::from(reader.u8()?);
        if run > Self::RUN_MAX || len > Self::BITS_LEN_MAX {
            return Err(FrameError::TooLong);
        }
        let bits = reader.bytes(len)?;
        if bits.last() == Some(&0) {
            return Err(FrameError::NotMinimal);
        }
        Ok(Self {
            largest,
            delay,
            run,
            bits,
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u8(match self.largest.form() {
            Form::Two => TYPE_SHORT,
            Form::Four => TYPE_LONG,
        });
        self.largest.encode(writer);
        writer.u16(self.delay);
        encode_length(self.run.into(), writer);
        debug_assert!(self.bits.len() <= Self::BITS_LEN_MAX, "bits are too long");
        writer.u8(u8::try_from(self.bits.len()).unwrap_or_default());
        writer.bytes(self.bits);
    }
}

/// Type with a largest number of 2 bytes.
const TYPE_SHORT: u8 = 0x02;
/// Type with a largest number of 4 bytes.
const TYPE_LONG: u8 = 0x03;

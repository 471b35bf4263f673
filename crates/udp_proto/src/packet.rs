//! The clear header of a protected packet: first byte, connection id, packet number.
//!
//! | off | size | field |
//! |---|---|---|
//! | 0 | 1 | `0 1 K L 0 0 0 0`: K key phase, L set if the number has 4 bytes |
//! | 1 | 0..8 | connection id, as long as the receiver announced |
//! | .. | 2 or 4 | low bytes of the packet number, big-endian |
//! | .. | at least 4 + 16 | ciphertext and tag |

use core::fmt;

use wire::{Generator, Reader, Truncated, Writer};

/// The kind of a datagram, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// First datagram of a handshake, client to server.
    Hello,
    /// The server requests proof of the source address.
    Retry,
    /// The server accepts a HELLO.
    Accept,
    /// The server refuses a HELLO.
    Refuse,
    /// The server lists its versions.
    Version,
    /// A protected packet, or a stateless reset, which looks like one.
    Protected,
    /// The relay mesh's envelope.
    Envelope,
    /// STUN, or unknown.
    NotOurs,
}

impl Kind {
    /// Classifies a first byte.
    #[must_use]
    pub const fn of(first_byte: u8) -> Self {
        match first_byte {
            0x40..=0x7F => Self::Protected,
            0x80..=0xBF => Self::Envelope,
            0xC1 => Self::Hello,
            0xC2 => Self::Retry,
            0xC3 => Self::Accept,
            0xC4 => Self::Refuse,
            0xC5 => Self::Version,
            _ => Self::NotOurs,
        }
    }
}

/// A connection id: up to 8 bytes that its receiver chose and only its receiver interprets.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cid {
    /// Length, at most 8.
    len: u8,
    bytes: [u8; 8],
}

impl Cid {
    /// The id of a receiver that matches packets by address.
    pub const EMPTY: Self = Self {
        len: 0,
        bytes: [0; 8],
    };
    /// Longest id, in bytes.
    pub const LEN_MAX: usize = 8;

    /// Creates an id; `None` if longer than 8 bytes.
    #[must_use]
    pub fn from_slice(id: &[u8]) -> Option<Self> {
        let mut bytes = [0; 8];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        let len = u8::try_from(id.len()).ok()?;
        Some(Self { len, bytes })
    }

    /// Returns the bytes of the id.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len()).unwrap_or_default()
    }

    /// Returns the id padded with zeros, as in handshake datagrams.
    #[must_use]
    pub const fn padded(&self) -> &[u8; 8] {
        &self.bytes
    }

    /// Returns the length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether the id has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cid(")?;
        self.as_slice()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// The parity of the key generation that sealed a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyPhase {
    /// An even generation; the first one is.
    #[default]
    Even,
    /// An odd generation.
    Odd,
}

impl KeyPhase {
    /// Returns the phase of a generation, counted from 0.
    #[must_use]
    pub const fn of(generation: u64) -> Self {
        if generation & 1 == 0 {
            Self::Even
        } else {
            Self::Odd
        }
    }

    /// Returns the phase of the next generation.
    #[must_use]
    pub const fn flipped(self) -> Self {
        match self {
            Self::Even => Self::Odd,
            Self::Odd => Self::Even,
        }
    }
}

/// The clear header of a protected packet, which is authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Key generation that sealed the packet.
    pub key_phase: KeyPhase,
    /// Id that the receiver gave to the session.
    pub destination: Cid,
    /// Low bytes of the packet's number.
    pub number: TruncatedNumber,
}

impl Header {
    /// Longest header, in bytes.
    pub const LEN_MAX: usize = 1 + Cid::LEN_MAX + 4;

    /// Decodes the header of a datagram with a connection id of `cid_len` bytes.
    ///
    /// The header is the first [`Self::encoded_len`] bytes; ciphertext and tag follow.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Reserved`] if the first byte is invalid; [`HeaderError::Truncated`] if the
    /// shortest ciphertext and the tag do not fit after the header.
    pub fn decode(datagram: &[u8], cid_len: usize) -> Result<Self, HeaderError> {
        let mut reader = Reader::new(datagram);
        let flags = reader.u8()?;
        if flags & !(KEY_PHASE | LONG_NUMBER) != FIXED {
            return Err(HeaderError::Reserved(flags));
        }
        let key_phase = if flags & KEY_PHASE == 0 {
            KeyPhase::Even
        } else {
            KeyPhase::Odd
        };
        let form = if flags & LONG_NUMBER == 0 {
            Form::Two
        } else {
            Form::Four
        };
        let destination = Cid::from_slice(reader.bytes(cid_len)?).ok_or(HeaderError::Truncated)?;
        let number = TruncatedNumber::decode(form, &mut reader)?;
        if reader.len() < PLAINTEXT_LEN_MIN.saturating_add(TAG_LEN) {
            return Err(HeaderError::Truncated);
        }
        Ok(Self {
            key_phase,
            destination,
            number,
        })
    }

    /// Appends the header.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        let phase = match self.key_phase {
            KeyPhase::Even => 0,
            KeyPhase::Odd => KEY_PHASE,
        };
        let long = match self.number.form() {
            Form::Two => 0,
            Form::Four => LONG_NUMBER,
        };
        writer.u8(FIXED | phase | long);
        writer.bytes(self.destination.as_slice());
        self.number.encode(&mut writer);
    }

    /// Returns the length in bytes.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        self.number
            .form()
            .byte_len()
            .saturating_add(self.destination.len())
            .saturating_add(1)
    }
}

/// Why a datagram is not a protected packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// Shorter than the shortest packet with such a header.
    Truncated,
    /// Reserved bits of the first byte (given) are not as this version sets them.
    Reserved(u8),
}

impl From<Truncated> for HeaderError {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

wire::error_text! { HeaderError {
    Self::Truncated => "shorter than the shortest packet",
    Self::Reserved(first) => "first byte {first:#04x} has reserved bits set",
}}

/// Bytes of an AEAD tag.
pub const TAG_LEN: usize = 16;

/// Least plaintext, in bytes; shorter ones are padded, RFC 9001, section 5.4.2.
pub const PLAINTEXT_LEN_MIN: usize = 4;

/// The constant bits of the first byte.
const FIXED: u8 = 0x40;
/// Set in odd key generations.
const KEY_PHASE: u8 = 0x20;
/// Set if the number has 4 bytes.
const LONG_NUMBER: u8 = 0x10;

/// Number of a protected packet: one counter per direction, below 2^62, never reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketNumber(u64);

impl PacketNumber {
    /// The first of every direction.
    pub const ZERO: Self = Self(0);
    /// The last; a session that used it closes. RFC 9000, section 12.3.
    pub const MAX: Self = Self((1 << 62) - 1);

    /// Returns `None` if `number` is 2^62 or more.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX.0 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the next number; `None` after [`Self::MAX`].
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        Self::new(self.0.saturating_add(1))
    }

    /// Returns the number `distance` below; `None` below 0.
    #[must_use]
    pub const fn checked_sub(self, distance: u64) -> Option<Self> {
        match self.0.checked_sub(distance) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns the distance above `older`; 0 if not above.
    #[must_use]
    pub const fn distance_from(self, older: Self) -> u64 {
        self.0.saturating_sub(older.0)
    }

    /// Returns the encoded length of this number in the next packet. `reference` is the largest
    /// number that the peer is known to have, or the direction's first. `None`: only a CLOSE may be
    /// sent, in 4 bytes.
    #[must_use]
    pub const fn form_after(self, reference: Self) -> Option<Form> {
        match self.distance_from(reference) {
            0..=0x3FFF => Some(Form::Two),
            0x4000..=0x3FFF_FFFF => Some(Form::Four),
            _ => None,
        }
    }

    /// Returns the low bytes of this number.
    #[must_use]
    pub const fn truncate(self, form: Form) -> TruncatedNumber {
        let [_, _, _, _, a, b, c, d] = self.0.to_be_bytes();
        match form {
            Form::Two => TruncatedNumber::Two(u16::from_be_bytes([c, d])),
            Form::Four => TruncatedNumber::Four(u32::from_be_bytes([a, b, c, d])),
        }
    }

    /// Returns the packet number nearest to this expected one that ends in `low`; RFC 9000,
    /// appendix A.3. Of two equally near, the higher. Exact if within 2^15 (2 bytes) or 2^31 (4
    /// bytes).
    #[must_use]
    pub const fn widen(self, low: TruncatedNumber) -> Self {
        let (low, window) = match low {
            TruncatedNumber::Two(low) => (low as u64, 1_u64 << 16),
            TruncatedNumber::Four(low) => (low as u64, 1_u64 << 32),
        };
        let half = window >> 1;
        let mask = window.wrapping_sub(1);
        let candidate = (self.0 & !mask) | low;
        // All terms are below 2^63, so no valid sum saturates.
        let up = candidate.saturating_add(window);
        if candidate.saturating_add(half) <= self.0 && up <= Self::MAX.0 {
            return Self(up);
        }
        match candidate.checked_sub(window) {
            Some(down) if candidate > self.0.saturating_add(half) => Self(down),
            _ => Self(candidate),
        }
    }
}

/// Encoded length of a packet number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The low 2 bytes.
    Two,
    /// The low 4 bytes.
    Four,
}

impl Form {
    /// Returns the length in bytes.
    #[must_use]
    pub const fn byte_len(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Four => 4,
        }
    }
}

/// The low bytes of a packet number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncatedNumber {
    /// The low 2 bytes.
    Two(u16),
    /// The low 4 bytes.
    Four(u32),
}

impl TruncatedNumber {
    /// Returns the encoded length.
    #[must_use]
    pub const fn form(self) -> Form {
        match self {
            Self::Two(_) => Form::Two,
            Self::Four(_) => Form::Four,
        }
    }

    /// Decodes a number.
    ///
    /// # Errors
    ///
    /// [`Truncated`] if too few bytes are left.
    pub fn decode(form: Form, reader: &mut Reader<'_>) -> Result<Self, Truncated> {
        match form {
            Form::Two => reader.u16().map(Self::Two),
            Form::Four => reader.u32().map(Self::Four),
        }
    }

    /// Appends the number.
    pub fn encode(self, writer: &mut Writer<'_>) {
        match self {
            Self::Two(low) => writer.u16(low),
            Self::Four(low) => writer.u32(low),
        }
    }
}

/// Skips one packet number at random intervals of 64 to 1,023.
///
/// A peer that acknowledges packets it has not received, to raise its rate, must guess which
/// numbers do not exist (RFC 9000, section 21.4).
#[derive(Clone, Copy, Debug)]
pub struct SkipPolicy {
    next: u64,
}

impl SkipPolicy {
    /// Least interval.
    pub const DISTANCE_MIN: u64 = 64;
    /// Largest interval.
    pub const DISTANCE_MAX: u64 = 1_023;

    /// Draws the first skip after `first`.
    #[must_use]
    pub fn new(first: PacketNumber, generator: &mut Generator) -> Self {
        Self {
            next: first.get().saturating_add(draw(generator)),
        }
    }

    /// Returns whether to skip `number`. Call once for each number in order.
    pub fn skips(&mut self, number: PacketNumber, generator: &mut Generator) -> bool {
        if number.get() < self.next {
            return false;
        }
        self.next = number.get().saturating_add(draw(generator));
        true
    }
}

fn draw(generator: &mut Generator) -> u64 {
    generator.between(SkipPolicy::DISTANCE_MIN, SkipPolicy::DISTANCE_MAX)
}

#[cfg(test)]
mod tests;

//! Packet numbers, and the low bytes of them that travel.

use wire::{Reader, Truncated, Writer};

/// Number of a protected packet: one counter per direction, below 2^62, never reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketNumber(u64);

impl PacketNumber {
    /// Where every direction starts.
    pub const ZERO: Self = Self(0);
    /// The last one; a session that used it closes. RFC 9000, section 12.3.
    pub const MAX: Self = Self((1 << 62) - 1);

    /// Accepts `number` where it is below 2^62.
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

    /// Returns the one after this; `None` after [`Self::MAX`].
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        Self::new(self.0.saturating_add(1))
    }

    /// Returns the one `distance` below; `None` below 0.
    #[must_use]
    pub const fn checked_sub(self, distance: u64) -> Option<Self> {
        match self.0.checked_sub(distance) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns how far above `older` this lies; 0 where it does not.
    #[must_use]
    pub const fn distance_from(self, older: Self) -> u64 {
        self.0.saturating_sub(older.0)
    }

    /// Returns how many bytes of this number the next packet shows.
    ///
    /// `reference` is the largest number the peer is known to have, or the direction's first
    /// number while it has none. `None`: 2^30 or more are unacknowledged, and only a CLOSE may be
    /// sent, in the 4-byte form.
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

    /// Returns the packet number nearest to this expected one that ends in `low`.
    ///
    /// Of two equally near the higher; RFC 9000, appendix A.3. Never below 0 nor above
    /// [`Self::MAX`]: at either end the answer is the nearest that exists. Exact where the true
    /// number lies within 2^15 (2 bytes) or 2^31 (4 bytes) of the expected one.
    #[must_use]
    pub const fn widen(self, low: TruncatedNumber) -> Self {
        let (low, window) = match low {
            TruncatedNumber::Two(low) => (low as u64, 1_u64 << 16),
            TruncatedNumber::Four(low) => (low as u64, 1_u64 << 32),
        };
        let half = window >> 1;
        let mask = window.wrapping_sub(1);
        let candidate = (self.0 & !mask) | low;
        // All terms lie below 2^63, so nothing saturates that should not.
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

/// How many bytes of a number travel.
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

/// Low bytes of a packet number, as they travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncatedNumber {
    /// The low 2 bytes.
    Two(u16),
    /// The low 4 bytes.
    Four(u32),
}

impl TruncatedNumber {
    /// Returns which bytes these are.
    #[must_use]
    pub const fn form(self) -> Form {
        match self {
            Self::Two(_) => Form::Two,
            Self::Four(_) => Form::Four,
        }
    }

    /// Takes the number off the front.
    ///
    /// # Errors
    ///
    /// [`Truncated`] where too few bytes are left.
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

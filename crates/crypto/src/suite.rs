//! AEADs for sessions, and the set of them in a HELLO.

/// P-256 with SHA-256 and one of three AEADs, which every provider supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Suite {
    /// AES-128-GCM, which every peer must support.
    Aes128Gcm = 1,
    /// AES-256-GCM.
    Aes256Gcm = 2,
    /// ChaCha20-Poly1305, faster on processors without AES instructions.
    ChaCha20Poly1305 = 3,
}

impl Suite {
    /// All of them, by code.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305];

    /// Returns the suite with this code on the wire.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Aes128Gcm),
            2 => Some(Self::Aes256Gcm),
            3 => Some(Self::ChaCha20Poly1305),
            _ => None,
        }
    }

    /// Returns the code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the length of its AEAD key in bytes, at most 32.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }
}

/// Suites that a peer offers: bit 0 is suite 1. Unknown bits are kept, because hashes cover them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuiteSet(u16);

impl SuiteSet {
    /// Every suite known here.
    pub const ALL: Self = Self(0b111);

    /// Creates a set from the bits of a HELLO.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns the bits for a HELLO.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns this set with `suite` added.
    #[must_use]
    pub const fn with(self, suite: Suite) -> Self {
        Self(self.0 | Self::bit(suite))
    }

    /// Returns whether `suite` is offered.
    #[must_use]
    pub const fn contains(self, suite: Suite) -> bool {
        self.0 & Self::bit(suite) != 0
    }

    const fn bit(suite: Suite) -> u16 {
        match suite {
            Suite::Aes128Gcm => 1,
            Suite::Aes256Gcm => 2,
            Suite::ChaCha20Poly1305 => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_others_are_refused() {
        for code in 0..=u8::MAX {
            match Suite::from_code(code) {
                Some(suite) => assert_eq!(suite.code(), code),
                None => assert!(code == 0 || code > 3),
            }
        }
    }

    #[test]
    fn bit_n_is_suite_n_plus_one() {
        for suite in Suite::ALL {
            let only = SuiteSet::from_bits(1 << (suite.code() - 1));
            for other in Suite::ALL {
                assert_eq!(only.contains(other), other == suite);
            }
            assert!(SuiteSet::ALL.contains(suite));
            assert_eq!(SuiteSet::from_bits(0).with(suite), only);
        }
        assert_eq!(SuiteSet::from_bits(0xFF01).bits(), 0xFF01);
    }
}

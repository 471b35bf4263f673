//! How long one key is used.

use core::time::Duration;

use crypto::SEALS_MAX;

/// When keys are changed, and how much one may be used at the very most.
///
/// The defaults are what a session wants; smaller ones are for tests, which cannot wait for a
/// million packets. What is out of range is cut to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLimits {
    phase_packets: u64,
    phase_span: Duration,
    seals_max: u64,
    failed_opens_max: u64,
}

impl KeyLimits {
    /// Packets that did not open, over a session's life, at which it ends: RFC 9001, section 6.6,
    /// allows 2^52 for AES-GCM, and for ChaCha20-Poly1305 no more than this.
    pub const FAILED_OPENS_MAX: u64 = 1 << 36;

    /// Changes keys after so many packets of a phase; 1 to 2^23, 2^20 unless told.
    #[must_use]
    pub const fn with_phase_packets(mut self, packets: u64) -> Self {
        self.phase_packets = within(packets, SEALS_MAX);
        self
    }

    /// Changes keys after so long; 15 minutes unless told.
    ///
    /// However short, keys are changed only when a packet of the present phase was acknowledged
    /// and three probe timeouts have passed.
    #[must_use]
    pub const fn with_phase_span(mut self, span: Duration) -> Self {
        self.phase_span = span;
        self
    }

    /// Ends a session, rather than seal more packets under one key; 1 to 2^23, which is also what
    /// holds unless told. The last 64 are kept for CLOSE: with 64 or fewer, nothing else is sent.
    #[must_use]
    pub const fn with_seals_max(mut self, packets: u64) -> Self {
        self.seals_max = within(packets, SEALS_MAX);
        self
    }

    /// Ends a session when so many packets for it did not open; 1 to 2^36, which is also what holds
    /// unless told.
    #[must_use]
    pub const fn with_failed_opens_max(mut self, packets: u64) -> Self {
        self.failed_opens_max = within(packets, Self::FAILED_OPENS_MAX);
        self
    }

    /// Returns after how many packets of a phase the next one begins.
    #[must_use]
    pub const fn phase_packets(&self) -> u64 {
        self.phase_packets
    }

    /// Returns after how long a phase ends.
    #[must_use]
    pub const fn phase_span(&self) -> Duration {
        self.phase_span
    }

    /// Returns how many packets a key seals at most.
    #[must_use]
    pub const fn seals_max(&self) -> u64 {
        self.seals_max
    }

    /// Returns how many packets may fail to open.
    #[must_use]
    pub const fn failed_opens_max(&self) -> u64 {
        self.failed_opens_max
    }
}

impl Default for KeyLimits {
    fn default() -> Self {
        Self {
            phase_packets: 1 << 20,
            phase_span: Duration::from_secs(15 * 60),
            seals_max: SEALS_MAX,
            failed_opens_max: Self::FAILED_OPENS_MAX,
        }
    }
}

/// `value`, cut to 1 to `most`.
const fn within(value: u64, most: u64) -> u64 {
    if value == 0 {
        1
    } else if value > most {
        most
    } else {
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_held() {
        let limits = KeyLimits::default();
        assert_eq!(
            (limits.phase_packets(), limits.seals_max()),
            (1 << 20, 1 << 23)
        );
        assert_eq!(limits.phase_span(), Duration::from_secs(900));
        assert_eq!(limits.failed_opens_max(), 1 << 36);
        for (asked, held) in [(0, 1), (1, 1), (64, 64)] {
            let limits = limits
                .with_phase_packets(asked)
                .with_seals_max(asked)
                .with_failed_opens_max(asked);
            assert_eq!(limits.phase_packets(), held);
            assert_eq!(limits.seals_max(), held);
            assert_eq!(limits.failed_opens_max(), held);
        }
        let limits = limits
            .with_phase_packets(u64::MAX)
            .with_seals_max(u64::MAX)
            .with_failed_opens_max(u64::MAX);
        assert_eq!(
            (limits.phase_packets(), limits.seals_max()),
            (1 << 23, 1 << 23)
        );
        assert_eq!(limits.failed_opens_max(), 1 << 36);
    }
}

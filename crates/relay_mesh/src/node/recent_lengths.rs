//! Which length probes have: that of recent data, so that a relay cannot tell them apart.

use crate::path_probe::MEDIUM_MAX;

/// Lengths of the newest payloads sent to a remote end, and the byte budget of probes.
#[derive(Debug, Default)]
pub(super) struct RecentLengths {
    newest: [u16; NEWEST],
    next: usize,
    /// Bytes that probes may use.
    credit: usize,
    /// Length of the longest recent payloads in either direction, or 0: that of padding.
    longest: usize,
}

impl RecentLengths {
    /// Records the length of a payload in either direction. The longest decreases by a byte for
    /// each shorter one.
    pub(super) fn record_longest(&mut self, len: usize) {
        self.longest = len.max(self.longest.saturating_sub(1));
    }

    /// Records the length of a sent payload, which adds to the budget of probes.
    pub(super) fn record(&mut self, len: usize) {
        let len = len.min(MEDIUM_MAX);
        if let Some(oldest) = self.newest.get_mut(self.next) {
            *oldest = u16::try_from(len).unwrap_or(u16::MAX);
        }
        self.next = self.next.wrapping_add(1) % NEWEST;
        self.credit = self.credit.saturating_add(len / SHARE).min(CREDIT_MAX);
    }

    pub(super) const fn longest(&self) -> usize {
        self.longest
    }

    /// Returns a recent payload's length for a probe, selected by `draw`; 0 if the budget is used
    /// up.
    pub(super) fn take(&mut self, draw: u64) -> usize {
        let place = usize::try_from(draw).unwrap_or(0) % NEWEST;
        let len = self.newest.get(place).copied().map_or(0, usize::from);
        match self.credit.checked_sub(len) {
            Some(left) => {
                self.credit = left;
                len
            }
            None => 0,
        }
    }
}

const NEWEST: usize = 16;
/// Probes may use one of this many bytes of data.
const SHARE: usize = 4;
const CREDIT_MAX: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_as_long_as_data_and_take_a_quarter_of_its_bytes_at_most() {
        let mut lengths = RecentLengths::default();
        assert_eq!(lengths.take(7), 0, "before any data");
        let (mut data, mut probes, mut padded) = (0, 0, 0);
        for round in 0..1_000_u64 {
            let len = 100 + usize::try_from(round % 5).unwrap() * 100;
            lengths.record(len);
            data += len;
            let taken = lengths.take(round.wrapping_mul(0x9E37_79B9) >> 7);
            assert!(taken == 0 || (100..=500).contains(&taken) && taken.is_multiple_of(100));
            probes += taken;
            padded += usize::from(taken > 0);
        }
        assert!(probes <= data / 4 && probes >= data / 5, "{probes} {data}");
        assert!(padded >= 200, "{padded}");
        lengths.record(1_472);
        assert!((0..64).all(|draw| lengths.take(draw) <= MEDIUM_MAX));
        for _ in 0..1_000 {
            lengths.record(1_472);
        }
        assert_eq!(lengths.credit, CREDIT_MAX);
    }
}

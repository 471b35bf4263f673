//! Snapshot transfer in chunks, from the server to a joining player, or from a donor to the server.
//!
//! [`Outgoing`] sends a snapshot as chunks of equal length, one per datagram, at a set rate that
//! leaves bandwidth for inputs. [`Incoming`] assembles and acknowledges them. Both are sans-IO.
//!
//! Losses are detected by later arrivals (selective acknowledgement, RFC 2018) and by time (RFC
//! 9002, section 6). Each transmission has a unique number, so retransmissions are unambiguous.
//!
//! The caller verifies the content, by the state hash reported for the snapshot's tick.
//!
//! A hostile sender makes a receiver hold at most twice what it sent, and no more than the
//! receiver's own limit; announcements cost nothing. A hostile receiver makes a sender send at the
//! set rate, and no faster.

mod flight;
mod incoming;
mod outgoing;

use core::time::Duration;

use wire::Instant;

use crate::message::{CHUNK_HEAD_LEN, chunk_count};

pub use flight::TAIL_MAX;
pub use incoming::{Incoming, IncomingStats};
pub use outgoing::Outgoing;
pub(crate) use outgoing::Rate;
pub(crate) use outgoing::{ACK_WAIT, RoundTrip};

/// Time without a new acknowledgement, while chunks are sent, after which a waiting receiver is
/// given up: it has left, or does not want the snapshot. Chunks are sent at least once per second.
pub(crate) const STALL_TIME: Duration = Duration::from_secs(5);

/// Lowest datagram limit: four times the 16-byte header, plus as much data again.
const DATAGRAM_LEN_MIN: u16 = 80;

/// Header of a chunk, in bytes.
const HEAD_LEN: u64 = 16;

/// Latency of the first chunk and the last acknowledgement, with losses, on most paths.
const WAYS: Duration = Duration::from_millis(250);

/// Send rate and datagram size of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferLimits {
    /// Bytes per second, headers of chunks included, but not of the transport; 1,250,000, which is
    /// 10 Mbit/s. With 0, a transfer ends after its burst.
    pub rate_bytes_per_s: u32,
    /// Bytes that may be sent in one burst; 8,800, eight datagrams of the usual length. It delays a
    /// following input by 7 ms at 10 Mbit/s. One datagram is always allowed.
    pub burst_bytes: u32,
    /// Longest datagram, in bytes, the 16-byte header included; 1,100 as
    /// [`Config::datagram_len_max`](crate::Config::datagram_len_max). Values below 80 count as 80.
    pub datagram_len_max: u16,
}

impl Default for TransferLimits {
    fn default() -> Self {
        Self {
            rate_bytes_per_s: 1_250_000,
            burst_bytes: 8_800,
            datagram_len_max: 1_100,
        }
    }
}

impl TransferLimits {
    /// Snapshot bytes in each chunk except the last.
    pub(crate) fn stride(&self) -> u16 {
        let head_len = u16::try_from(CHUNK_HEAD_LEN).unwrap_or(DATAGRAM_LEN_MIN);
        let datagram_len = self.datagram_len_max.max(DATAGRAM_LEN_MIN);
        datagram_len.saturating_sub(head_len)
    }

    /// Returns how long a transfer of `len` bytes takes if one datagram in nine is lost and latency
    /// is [`WAYS`]; [`Duration::MAX`] if it does not end.
    pub(crate) fn time_for(&self, len: usize) -> Duration {
        let Ok(total) = u32::try_from(len) else {
            return Duration::MAX;
        };
        let heads = u64::from(chunk_count(total, self.stride())).saturating_mul(HEAD_LEN);
        let bytes = u64::from(total).saturating_add(heads);
        let paid = bytes.saturating_sub(self.burst_bytes.into());
        // An eighth more than without loss.
        let nanos = paid.saturating_mul(1_125_000_000);
        let Some(nanos) = nanos.checked_div(self.rate_bytes_per_s.into()) else {
            return if paid == 0 { WAYS } else { Duration::MAX };
        };
        Duration::from_nanos(nanos).saturating_add(WAYS)
    }
}

/// Returns `at` plus `span`, saturating.
pub(crate) fn after(at: Instant, span: Duration) -> Instant {
    at + span
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_transfer_follows_its_bytes_and_the_rate() {
        let mut limits = TransferLimits::default();
        // Nine chunks with headers exceed the burst by one datagram.
        let len = 9 * usize::from(limits.stride());
        let datagram = Duration::from_micros(880) * 9 / 8;
        assert_eq!(limits.time_for(len), WAYS + datagram);
        assert_eq!(limits.time_for(0), WAYS);
        // A mebibyte with headers, at 10 Mbit/s.
        let mebibyte = limits.time_for(1 << 20).as_millis();
        assert!((1_195..1_200).contains(&mebibyte), "{mebibyte}");
        limits.rate_bytes_per_s = 0;
        assert_eq!(limits.time_for(8_000), WAYS);
        assert_eq!(limits.time_for(9_000), Duration::MAX);
        limits.rate_bytes_per_s = 1;
        limits.datagram_len_max = 0;
        assert!(limits.time_for(1 << 30) > Duration::from_secs(1 << 30));
        let _ = limits.time_for(usize::MAX);
    }
}

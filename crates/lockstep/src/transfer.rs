//! Snapshots in pieces: from the server to one who joins, or from a player who gives one.
//!
//! [`Outgoing`] sends a snapshot as chunks of equal length, each a datagram of its own, at a set
//! rate, so that what is left of the line belongs to inputs. [`Incoming`] puts them together and
//! says which arrived. Both are pure: time comes in as `now`, bytes go in and out.
//!
//! What is lost is found by what arrived (selective acknowledgement, RFC 2018) and by time (RFC
//! 9002, section 6). Each transmission has a number that no other has, so that a second one of a
//! chunk is never taken for the first.
//!
//! Whether the bytes are the right ones is the caller's to see: by the state hash that was reported
//! for the snapshot's tick.
//!
//! A hostile sender makes a receiver hold at most twice what it sent, and no more than the
//! receiver's own limit; what it announces costs nothing. A hostile receiver makes a sender send at
//! the rate set, and nothing else.

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

/// Time in which nothing new arrives though chunks go out, after which one who waits for a snapshot
/// is given up: then it is not there, or does not want it. Chunks go out again at least once a
/// second.
pub(crate) const STALL_TIME: Duration = Duration::from_secs(5);

/// Least that a chunk's datagram may be made: a head of 16 bytes four times over, and as much again.
const DATAGRAM_LEN_MIN: u16 = 80;

/// Bytes that stand before each chunk.
const HEAD_LEN: u64 = 16;

/// The first chunk's way, the last answer's, and what was lost of both, on most paths.
const WAYS: Duration = Duration::from_millis(250);

/// How fast, and in what pieces, a snapshot is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferLimits {
    /// Bytes a second, heads of chunks included, those of the transport not; 1,250,000, which is
    /// 10 Mbit/s. At 0 a transfer ends with its burst.
    pub rate_bytes_per_s: u32,
    /// Bytes that may go out at once; 8,800, eight datagrams of the usual length. It delays an
    /// input behind it by 7 ms on a line of 10 Mbit/s. At least one datagram always may.
    pub burst_bytes: u32,
    /// Longest datagram, in bytes, the head of 16 included; 1,100 as
    /// [`Config::datagram_len_max`](crate::Config::datagram_len_max). Below 80 it counts as 80.
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
    /// Bytes of a snapshot in each chunk but the last.
    pub(crate) fn stride(&self) -> u16 {
        let head_len = u16::try_from(CHUNK_HEAD_LEN).unwrap_or(DATAGRAM_LEN_MIN);
        let datagram_len = self.datagram_len_max.max(DATAGRAM_LEN_MIN);
        datagram_len.saturating_sub(head_len)
    }

    /// Returns how long a transfer of `len` bytes takes where one datagram in nine is lost, and ways
    /// and waits come to [`WAYS`]; [`Duration::MAX`] where it does not end.
    pub(crate) fn time_for(&self, len: usize) -> Duration {
        let Ok(total) = u32::try_from(len) else {
            return Duration::MAX;
        };
        let heads = u64::from(chunk_count(total, self.stride())).saturating_mul(HEAD_LEN);
        let bytes = u64::from(total).saturating_add(heads);
        let paid = bytes.saturating_sub(self.burst_bytes.into());
        // An eighth more than what is sent once.
        let nanos = paid.saturating_mul(1_125_000_000);
        let Some(nanos) = nanos.checked_div(self.rate_bytes_per_s.into()) else {
            return if paid == 0 { WAYS } else { Duration::MAX };
        };
        Duration::from_nanos(nanos).saturating_add(WAYS)
    }
}

/// The point `span` after `at`; the last there is where there is none.
pub(crate) fn after(at: Instant, span: Duration) -> Instant {
    at + span
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_transfer_follows_its_bytes_and_the_rate() {
        let mut limits = TransferLimits::default();
        // Nine chunks and their heads are more than what goes out at once by one datagram.
        let len = 9 * usize::from(limits.stride());
        let datagram = Duration::from_micros(880) * 9 / 8;
        assert_eq!(limits.time_for(len), WAYS + datagram);
        assert_eq!(limits.time_for(0), WAYS);
        // A mebibyte with its heads, at 10 Mbit/s.
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

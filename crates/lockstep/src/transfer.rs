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

#![warn(clippy::arithmetic_side_effects)]

mod ahead;
mod flight;
mod incoming;
mod outgoing;
mod rate;
mod round_trip;

use core::time::Duration;

use wire::Instant;

pub use flight::TAIL_MAX;
pub use incoming::{Incoming, IncomingStats};
pub use outgoing::Outgoing;
pub(crate) use rate::Rate;
pub(crate) use round_trip::{ACK_WAIT, RoundTrip};

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

/// The point `span` after `at`; the last there is where there is none.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "arithmetic on points in time saturates"
)]
pub(crate) fn after(at: Instant, span: Duration) -> Instant {
    at + span
}

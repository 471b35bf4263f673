//! Unordered delivery of opaque states, of which only the newest counts: for games that are not
//! lockstep, and for what a lockstep game displays in addition to its turns.
//!
//! There is one [`StateSender`] per receiver. It takes states as often as the game produces them, and
//! sends them as fast as its rate allows: a newer state replaces one that was not begun. A
//! [`StateReceiver`] returns complete states in increasing order, each once, and only the newest. The
//! last one always arrives, since it is retransmitted until acknowledged. Both are sans-IO.
//!
//! A sequenced channel drops older messages too, but does not repair losses: the last state before a
//! pause may be lost, and a state of a hundred fragments arrives once in 170 times at 5 % loss. It also
//! sends what is queued although a newer state is available. So send these datagrams on an unreliable,
//! unordered channel.
//!
//! A state of one datagram is not retransmitted once a newer one is available. A state of several
//! datagrams is abandoned for a newer one once all of it was sent. But if none was acknowledged for
//! [`StateLimits::gap_max`], it is repaired until complete, so that long, frequent states arrive at any
//! loss rate.
//!
//! States are not delta-coded. A game that does so takes its reference from
//! [`StateSender::acknowledged`], and prefixes its number to the state.
//!
//! A hostile sender makes a receiver hold at most three states of the receiver's maximum length, and
//! send at most 50 acknowledgements per second. A hostile receiver makes a sender send at its rate, and
//! no faster.
//!
//! ```
//! use lockstep::state_channel::{StateLimits, StateReceiver, StateSender};
//! use wire::Instant;
//!
//! let now = Instant::ZERO;
//! let mut sender = StateSender::new(&StateLimits::default(), now);
//! let mut receiver = StateReceiver::new(64 << 10);
//! sender.push(now, b"an older state".as_slice().into())?;
//! let newest = sender.push(now, b"the newest state".as_slice().into())?;
//!
//! let mut datagram = Vec::new();
//! while sender.poll(now, &mut datagram) {
//!     receiver.handle_datagram(now, &datagram);
//!     datagram.clear();
//! }
//! assert_eq!(receiver.poll_state(), Some((newest, b"the newest state".as_slice())));
//! assert!(receiver.poll_ack(now, &mut datagram));
//! sender.handle_datagram(now, &datagram);
//! assert_eq!(sender.acknowledged(), Some(newest));
//! # Ok::<(), lockstep::state_channel::PushError>(())
//! ```

mod marks;
mod message;
mod receiver;
mod sender;

use core::fmt;
use core::time::Duration;

pub use message::{
    FRAGMENT_HEAD_LEN, FRAGMENTS_MAX, StateAck, StatePart, WHOLE_HEAD_LEN, decode_state_ack,
    decode_state_part, part_range,
};
pub use receiver::{StateReceiver, StateReceiverStats};
pub use sender::{StateSender, StateSenderStats};

/// Send rate and datagram size of states, per receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateLimits {
    /// Bytes per second, headers of the channel included, but not of the transport; 250,000, which
    /// is 2 Mbit/s. With 0, nothing is sent after the burst.
    pub rate_bytes_per_s: u32,
    /// Bytes that may be sent in one burst; 4,400, four datagrams of the usual length. One datagram
    /// is always allowed.
    pub burst_bytes: u32,
    /// Longest datagram, in bytes, header included; 1,100 as
    /// [`Config::datagram_len_max`](crate::Config::datagram_len_max). Values below 80 count as 80.
    pub datagram_len_max: u16,
    /// How long states of several datagrams may be abandoned for newer ones without any being
    /// acknowledged; 250 ms. Then one is repaired until it is complete, or for at most 31 times as
    /// long.
    pub gap_max: Duration,
}

impl Default for StateLimits {
    fn default() -> Self {
        Self {
            rate_bytes_per_s: 250_000,
            burst_bytes: 4_400,
            datagram_len_max: 1_100,
            gap_max: Duration::from_millis(250),
        }
    }
}

/// Why a state is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError {
    /// It is longer than [`StateSender::len_max`].
    TooLong,
    /// All numbers are used: 4,294,967,295 states, 2 years at 60 Hz.
    Exhausted,
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the state takes more datagrams than one may",
            Self::Exhausted => "all numbers of states are used",
        })
    }
}

impl core::error::Error for PushError {}

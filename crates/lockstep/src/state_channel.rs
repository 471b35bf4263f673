//! States of a world, opaque, of which only the newest counts: for games that are not lockstep, and
//! for what a lockstep game shows beside its turns.
//!
//! A [`StateSender`] stands for each receiver. It takes states as often as the game has them, and
//! sends them as fast as its rate allows: a newer one takes the place of one that was not begun.
//! A [`StateReceiver`] returns states in the order of their numbers and each once, and of those that
//! are whole the newest. The last one arrives, whatever is lost before, for it is sent again until
//! it is acknowledged. Both are pure: time comes in as `now`, bytes go in and out.
//!
//! A sequenced channel of a datagram protocol drops what is overtaken, too. But what it loses stays
//! lost: the last state before a pause may never come, and one of a hundred fragments comes at 5 %
//! loss once in 170 times. And what waits in its queue is sent though a newer state is there. So
//! send these datagrams on a channel that is unreliable and unordered, and let this decide.
//!
//! What is given up. A state of one datagram is never sent again once a newer one is there. One of
//! several is left for a newer one too, when all of it was sent; but where none was acknowledged for
//! [`StateLimits::gap_max`] it is repaired until it is whole, so that states that are long and come
//! often get through at any loss.
//!
//! States are not coded against each other. A game that does that itself finds its reference in
//! [`StateSender::acknowledged`], and puts its number in front of the state.
//!
//! A hostile sender makes a receiver hold at most three states of the length that the receiver
//! allows, and say at most 50 words a second. A hostile receiver makes a sender send at its rate,
//! and nothing else.
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

/// How fast, and in what pieces, states are sent to one receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateLimits {
    /// Bytes a second, heads included, those of the transport not; 250,000, which is 2 Mbit/s. At 0
    /// nothing is sent after the burst.
    pub rate_bytes_per_s: u32,
    /// Bytes that may go out at once; 4,400, four datagrams of the usual length. At least one
    /// datagram always may.
    pub burst_bytes: u32,
    /// Longest datagram, in bytes, heads included; 1,100 as
    /// [`Config::datagram_len_max`](crate::Config::datagram_len_max). Below 80 it counts as 80.
    pub datagram_len_max: u16,
    /// How long states of several datagrams may be left for newer ones with none acknowledged;
    /// 250 ms. Then one is repaired until it is whole, or has been for 31 times as long.
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

/// Why a state was not taken.
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

//! What a lease is about, its times, and its end.

use core::fmt;
use core::time::Duration;

use crypto::{AddressList, ServerKeys};
use matchmaker_core::record::RefuseReason;

/// What a game server offers to the matchmaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Separates games and builds; that of the matchmaker.
    pub app_id: u64,
    /// Seats that it can serve at a time, in all its matches.
    pub capacity: u16,
    /// Its identity keys; the one that its hub link proves is among them.
    pub identity_keys: ServerKeys,
    /// Where players find it, best first.
    pub addresses: AddressList,
}

/// Times of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseConfig {
    /// How long the instance lives before its first registration; 60 s.
    pub boot_timeout: Duration,
    /// How long an answer may take; 5 s.
    pub call_timeout: Duration,
    /// Pause before a call that failed is made again; 500 ms.
    pub retry_pause: Duration,
    /// How often the lease is renewed, at the least; 10 s. The matchmaker may ask for more.
    pub heartbeat_max: Duration,
    /// How long matches that players have entered may go on without a lease; 10 minutes. Meanwhile
    /// nobody is let in, and with the last of them the instance ends. It bounds how long a server
    /// whose matchmaker never comes back is left over.
    pub lease_grace: Duration,
    /// How long a token key is in use before another takes its place; 24 h. The one before opens
    /// tokens for 305 s more, in which they all lapse; it is not changed again meanwhile.
    pub key_rotation: Duration,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self {
            boot_timeout: Duration::from_secs(60),
            call_timeout: Duration::from_secs(5),
            retry_pause: Duration::from_millis(500),
            heartbeat_max: Duration::from_secs(10),
            lease_grace: Duration::from_secs(600),
            key_rotation: Duration::from_secs(24 * 3_600),
        }
    }
}

/// Why an instance must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseEnd {
    /// No call has renewed the lease in time, and no match that is played has time left.
    Expired,
    /// The matchmaker gave the instance up, or another one has its place.
    Retired,
    /// The matchmaker does not take this server at all.
    Refused(RefuseReason),
    /// A later run of the same node has joined the hub.
    Superseded,
    /// The instance said that it ends, and the matchmaker has heard it or cannot.
    Left,
}

impl fmt::Display for LeaseEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("the lease was not renewed"),
            Self::Retired => f.write_str("the matchmaker gave this instance up"),
            Self::Refused(reason) => write!(f, "the matchmaker refused this server: {reason:?}"),
            Self::Superseded => f.write_str("a later run of this node has joined the hub"),
            Self::Left => f.write_str("the instance has left"),
        }
    }
}

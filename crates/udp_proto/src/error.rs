//! Errors, and reasons of ends and refusals.

use core::fmt;

use crypto::CertificateError;
use wire::BadDestination;

/// Code of a CLOSE frame or a REFUSE; TWP/1, section 14.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CloseCode {
    /// A regular end.
    NoError,
    /// The application's own reason, in the reason text.
    App,
    /// A malformed frame.
    Frame,
    /// An acknowledgement of a packet that was never sent.
    AckUnsent,
    /// Contradictory fragments of one message.
    Fragment,
    /// More reliable bytes than granted.
    Flow,
    /// The ends have different channels.
    ChannelConfig,
    /// A key update out of turn.
    KeyUpdate,
    /// A key reached its limit.
    AeadLimit,
    /// Packet numbers ran out.
    PacketNumbersExhausted,
    /// Too many packets for too long.
    Flood,
    /// Idle timeout. Never sent.
    Idle,
    /// Replaced by a newer session.
    Replaced,
    /// The application ended it.
    Kicked,
    /// The endpoint is shutting down.
    Shutdown,
    /// The requested version is below what both ends support.
    Downgrade,
    /// No slot is free.
    Full,
    /// The token was already used.
    TokenUsed,
    /// An internal error.
    Internal,
    /// No version in common.
    Version,
    /// A parameter is out of range.
    Params,
    /// The peer's identity did not verify or is not allowed.
    PeerIdentity,
    /// The server runs another application.
    Application,
    /// The server does not serve this mode: with a token, without one, or as a node.
    Mode,
    /// The client's address has
    /// [`Config::sessions_per_source_max`](crate::Config::sessions_per_source_max) open sessions.
    SourceFull,
    /// The token does not open at this server: it is for another one, or from before a restart.
    TokenInvalid,
    /// The token has expired.
    TokenExpired,
    /// The token is from the future, or lives longer than allowed.
    TokenClock,
    /// A code unknown to this version.
    Unknown(u16),
}

impl CloseCode {
    /// Returns the wire code.
    pub const fn to_wire(self) -> u16 {
        match self {
            Self::NoError => 0,
            Self::App => 1,
            Self::Frame => 2,
            Self::AckUnsent => 3,
            Self::Fragment => 4,
            Self::Flow => 5,
            Self::ChannelConfig => 6,
            Self::KeyUpdate => 7,
            Self::AeadLimit => 8,
            Self::PacketNumbersExhausted => 9,
            Self::Flood => 10,
            Self::Idle => 11,
            Self::Replaced => 12,
            Self::Kicked => 13,
            Self::Shutdown => 14,
            Self::Downgrade => 15,
            Self::Full => 16,
            Self::TokenUsed => 17,
            Self::Internal => 18,
            Self::Version => 19,
            Self::Params => 20,
            Self::PeerIdentity => 21,
            Self::Application => 22,
            Self::Mode => 23,
            Self::SourceFull => 24,
            Self::TokenInvalid => 25,
            Self::TokenExpired => 26,
            Self::TokenClock => 27,
            Self::Unknown(code) => code,
        }
    }

    /// Reads a code from the wire.
    pub const fn from_wire(code: u16) -> Self {
        match code {
            0 => Self::NoError,
            1 => Self::App,
            2 => Self::Frame,
            3 => Self::AckUnsent,
            4 => Self::Fragment,
            5 => Self::Flow,
            6 => Self::ChannelConfig,
            7 => Self::KeyUpdate,
            8 => Self::AeadLimit,
            9 => Self::PacketNumbersExhausted,
            10 => Self::Flood,
            11 => Self::Idle,
            12 => Self::Replaced,
            13 => Self::Kicked,
            14 => Self::Shutdown,
            15 => Self::Downgrade,
            16 => Self::Full,
            17 => Self::TokenUsed,
            18 => Self::Internal,
            19 => Self::Version,
            20 => Self::Params,
            21 => Self::PeerIdentity,
            22 => Self::Application,
            23 => Self::Mode,
            24 => Self::SourceFull,
            25 => Self::TokenInvalid,
            26 => Self::TokenExpired,
            27 => Self::TokenClock,
            code => Self::Unknown(code),
        }
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::NoError => "closed in order",
            Self::App => "closed by the application",
            Self::Frame => "a frame could not be read",
            Self::AckUnsent => "a packet was acknowledged that was never sent",
            Self::Fragment => "fragments contradict each other",
            Self::Flow => "more bytes came than were granted",
            Self::ChannelConfig => "the ends have different channels",
            Self::KeyUpdate => "keys were updated out of turn",
            Self::AeadLimit => "a key reached its limit",
            Self::PacketNumbersExhausted => "packet numbers ran out",
            Self::Flood => "too many packets for too long",
            Self::Idle => "the idle timeout passed",
            Self::Replaced => "a newer session took its place",
            Self::Kicked => "ended by the application",
            Self::Shutdown => "the endpoint shuts down",
            Self::Downgrade => "a version below what both speak was asked for",
            Self::Full => "no slot is free",
            Self::TokenUsed => "the token was used before",
            Self::Internal => "internal fault",
            Self::Version => "no version in common",
            Self::Params => "a parameter is out of range",
            Self::PeerIdentity => "the peer's identity is not accepted",
            Self::Application => "the server is of another application",
            Self::Mode => "the server does not take clients in this mode",
            Self::SourceFull => {
                "as many sessions of this address are open as the server allows (sessions_per_source_max)"
            }
            Self::TokenInvalid => "the token is not for this server, or of before its restart",
            Self::TokenExpired => {
                "the token has expired; if it is new, the matchmaker's clock is behind the server's"
            }
            Self::TokenClock => {
                "the token is of the future: the matchmaker's clock is ahead of the server's"
            }
            Self::Unknown(code) => return write!(f, "unknown code {code}"),
        };
        f.write_str(text)
    }
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// We closed it with this code.
    Local(CloseCode),
    /// The peer closed it with this code.
    Peer(CloseCode),
    /// The idle timeout passed.
    Timeout,
    /// The server restarted and lost the session.
    Reset,
}

wire::display_text! { CloseReason {
    Self::Local(code) => "closed here: {code}",
    Self::Peer(code) => "closed by the peer: {code}",
    Self::Timeout => "the idle timeout passed",
    Self::Reset => "the server does not know the session any more",
}}

/// Why `listen` failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenError {
    /// It already listens; see [`Endpoint::shutdown`](crate::Endpoint::shutdown).
    AlreadyListening,
    /// The endpoint's connection ids have length 0, so players behind one address are
    /// indistinguishable.
    NoConnectionIds,
    /// The certificate is for another key or instance.
    Certificate,
    /// The provider has no randomness.
    NoEntropy,
}

wire::error_text! { ListenError {
    Self::AlreadyListening => "the endpoint listens already",
    Self::Certificate => "the certificate is for another key or instance",
    Self::NoConnectionIds => "an endpoint without connection ids cannot listen",
    Self::NoEntropy => "the system gave no randomness",
}}

impl From<crypto::NoEntropy> for ListenError {
    fn from(crypto::NoEntropy: crypto::NoEntropy) -> Self {
        Self::NoEntropy
    }
}

/// Why `connect` failed immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// No address was given, or more than eight.
    Addresses(usize),
    /// No address is usable; the problem of the first one.
    Destination(BadDestination),
    /// This many server keys; 1 to 4 are allowed.
    ServerKeys(usize),
    /// This many root keys; 1 or 2 are allowed.
    RootKeys(usize),
    /// A server or root key is listed twice.
    ServerKeyRepeated,
    /// The token is longer than a HELLO can carry, in bytes.
    TokenLength(usize),
    /// All sessions of the endpoint are in use.
    Full,
    /// A session with this address exists, and connection ids of length 0 cannot distinguish two.
    AddressTaken,
    /// Peer mode requires an endpoint that listens with an identity.
    NoIdentity,
    /// The provider has no randomness.
    NoEntropy,
}

wire::error_text! { ConnectError {
    Self::Addresses(count) => "{count} addresses where 1 to 8 are allowed",
    Self::Destination(error) => "{error}",
    Self::ServerKeys(count) => "{count} server keys where 1 to 4 are allowed",
    Self::RootKeys(count) => "{count} root keys where 1 or 2 are allowed",
    Self::ServerKeyRepeated => "a server key was given twice",
    Self::TokenLength(len) => "token of {len} bytes is over the limit of 1000",
    Self::Full => "all sessions of this endpoint are taken",
    Self::AddressTaken => "a session with this address exists",
    Self::NoIdentity => "peer mode needs an endpoint that listens",
    Self::NoEntropy => "the system gave no randomness",
}}

impl From<BadDestination> for ConnectError {
    fn from(error: BadDestination) -> Self {
        Self::Destination(error)
    }
}

/// Why an attempt to connect failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectFailure {
    /// No server answered in time.
    Timeout,
    /// Answers arrived, but none from the holder of the expected key: `rejected` ACCEPTs failed a
    /// check.
    NotTheServer {
        /// ACCEPTs that failed.
        rejected: u8,
    },
    /// A server answered with a certificate that failed verification, for this reason (the last
    /// one).
    Certificate(CertificateError),
    /// The server refused, and proved that it opened the token or holds the network secret.
    Refused(CloseCode),
    /// The server refused without a proof, as in open mode: at least twice, with no genuine answer
    /// within a second or three round trips.
    RefusedUnproved(CloseCode),
    /// No common version, without a proof.
    Version,
    /// The application cancelled it.
    Cancelled,
    /// The provider has no randomness.
    NoEntropy,
}

/// How certain the cause of a failed attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// Known locally: cancelled, or no randomness.
    Known,
    /// The server proved its identity.
    Proved,
    /// Answers from the dialled address that echo the attempt. An attacker that reads our packets
    /// can forge them.
    Unproved,
    /// No answer: the server is down, the address is wrong, or the path is broken.
    Silence,
}

impl ConnectFailure {
    /// Returns how certain the cause is.
    #[must_use]
    pub const fn certainty(self) -> Certainty {
        match self {
            Self::Cancelled | Self::NoEntropy => Certainty::Known,
            Self::Refused(_) => Certainty::Proved,
            Self::RefusedUnproved(_)
            | Self::Version
            | Self::NotTheServer { .. }
            | Self::Certificate(_) => Certainty::Unproved,
            Self::Timeout => Certainty::Silence,
        }
    }
}

wire::display_text! { ConnectFailure {
    Self::Timeout => "no server answered in time",
    Self::NotTheServer { rejected } =>
        "{rejected} answers did not come from the expected server key",
    Self::Certificate(error) => "{error}",
    Self::Refused(code) => "the server refused: {code}",
    Self::RefusedUnproved(code) => "the server refused (unproved): {code}",
    Self::Version => "no version in common",
    Self::Cancelled => "given up by the application",
    Self::NoEntropy => "the system gave no randomness",
}}

/// The session has ended or never existed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSession;

wire::error_text! { NoSession {
    Self => "no such session",
}}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip() {
        for code in 0..=u16::MAX {
            assert_eq!(CloseCode::from_wire(code).to_wire(), code);
        }
        assert_eq!(CloseCode::from_wire(21), CloseCode::PeerIdentity);
        assert_eq!(CloseCode::from_wire(28), CloseCode::Unknown(28));
    }
}

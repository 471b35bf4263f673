//! Tickets: a player's request for a match, and its state.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crypto::{NoEntropy, Provider, UserData, equal};
use wire::{ClientId, MatchId, Seat, Team, UnixTime};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::server::ServerLink;

/// Id of a ticket. Random, so that it does not reveal how many there are. It is not secret; the
/// [`ResumeKey`] is.
///
/// Its text form is 16 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketId(pub u64);

impl fmt::Display for TicketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for TicketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TicketId({self})")
    }
}

impl FromStr for TicketId {
    type Err = TicketIdError;

    fn from_str(text: &str) -> Result<Self, TicketIdError> {
        hex::<8>(text)
            .map(|bytes| Self(u64::from_be_bytes(bytes)))
            .ok_or(TicketIdError)
    }
}

/// The text is not a [`TicketId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketIdError;

wire::error_text! { TicketIdError {
    Self => "a ticket id has 16 hexadecimal digits",
}}

/// Proves that a request comes from the ticket's holder: 16 secret bytes, wiped on drop.
#[derive(Clone)]
pub struct ResumeKey([u8; 16]);

impl ResumeKey {
    /// Parses the text of [`to_text`](Self::to_text).
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        hex(text).map(Self)
    }

    /// Returns 32 hexadecimal digits, for the player only.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        // Never reallocates: that would leave copies behind.
        let mut text = Zeroizing::new(String::with_capacity(32));
        for byte in self.0 {
            for digit in [byte >> 4, byte & 15] {
                text.extend(char::from_digit(digit.into(), 16));
            }
        }
        text
    }

    pub(crate) fn random<P: Provider>(provider: &mut P) -> Result<Self, NoEntropy> {
        let mut key = Self([0; 16]);
        provider.random(&mut key.0)?;
        Ok(key)
    }
}

impl PartialEq for ResumeKey {
    /// Compares in constant time.
    fn eq(&self, other: &Self) -> bool {
        equal(&self.0, &other.0)
    }
}

impl Eq for ResumeKey {}

impl Drop for ResumeKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for ResumeKey {}

wire::opaque_debug!(ResumeKey);

/// Chosen by the client for one request; a repeat with the same key is the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdempotencyKey(pub [u8; 16]);

/// A player's request for a match.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TicketRequest {
    /// The player, authenticated by the front end.
    pub client_id: ClientId,
    /// Data for the game server, carried in the player's token.
    pub user: UserData,
    /// Identifies repeats; if `None`, each request is new.
    pub idempotency: Option<IdempotencyKey>,
}

impl TicketRequest {
    /// Creates a request without user data.
    #[must_use]
    pub fn new(client_id: ClientId) -> Self {
        Self {
            client_id,
            user: UserData::default(),
            idempotency: None,
        }
    }

    /// Sets the data for the game server.
    #[must_use]
    pub fn with_user(mut self, user: UserData) -> Self {
        self.user = user;
        self
    }

    /// Sets the idempotency key.
    #[must_use]
    pub const fn with_idempotency(mut self, key: IdempotencyKey) -> Self {
        self.idempotency = Some(key);
        self
    }
}

/// Result of a [`TicketRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The ticket.
    pub ticket: TicketId,
    /// Key for later requests about the ticket.
    pub resume_key: ResumeKey,
}

/// State of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TicketState {
    /// It waits for other players.
    Queued,
    /// Its match waits for a server.
    Allocating {
        /// The match.
        match_id: MatchId,
    },
    /// The player has a seat on a server.
    Assigned(Assignment),
    /// Ended.
    Ended(Ending),
}

impl TicketState {
    /// Returns whether the state is final.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        matches!(self, Self::Ended(_))
    }

    /// Returns whether the ticket waits for players or for a server.
    pub(crate) const fn is_waiting(&self) -> bool {
        matches!(self, Self::Queued | Self::Allocating { .. })
    }
}

/// Why a ticket has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// Its holder cancelled it.
    Cancelled,
    /// The player submitted another request.
    Replaced,
    /// It has waited too long.
    Expired,
    /// No server was found, or its server was lost.
    Failed(FailReason),
    /// Its match has ended.
    Finished,
    /// The player left the match permanently.
    Left,
    /// Its holder has not polled it for [`Config::ask_timeout`](crate::Config::ask_timeout).
    Abandoned,
    /// No player entered its match while a token was valid.
    NotEntered,
}

/// Why a ticket has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailReason {
    /// No server accepted its match in the configured number of attempts.
    NoServer,
    /// The server of its match is lost.
    ServerLost,
    /// No token could be issued, since the source of randomness failed.
    NoEntropy,
    /// The player's live match was discovered while the ticket waited, and no token could be
    /// issued. A new request gets one.
    InMatch,
}

/// A seat on a server, with the grant to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Assignment {
    /// The match.
    pub match_id: MatchId,
    /// The seat.
    pub seat: Seat,
    /// The team of the seat.
    pub team: Team,
    /// The server instance that accepts the token.
    pub server: ServerLink,
    /// When the token expires; [`Matchmaker::reissue`](crate::Matchmaker::reissue) issues another.
    pub expires_at: UnixTime,
    /// For the player, over TLS.
    pub grant: GrantText,
}

/// A [`ClientGrant`](crypto::ClientGrant) as text (`TWG1...`). It holds the pre-shared key, so it
/// is wiped on drop and not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct GrantText(Zeroizing<String>);

impl GrantText {
    pub(crate) const fn new(text: Zeroizing<String>) -> Self {
        Self(text)
    }

    /// Returns the text, for the player only; never log it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

wire::opaque_debug!(GrantText);

/// Parses exactly `2 * LEN` hexadecimal digits.
fn hex<const LEN: usize>(text: &str) -> Option<[u8; LEN]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != LEN || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; LEN];
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        *byte = u8::try_from((high? << 4) | low?).ok()?;
    }
    Some(bytes)
}

/// Why no ticket was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitError {
    /// The limit of waiting tickets is reached.
    Full,
    /// The player has this ticket, and [`Duplicate::Refuse`](crate::Duplicate) is configured.
    Duplicate(TicketId),
    /// The player is in a live match and got a token recently; retry after this time.
    TooSoon(Duration),
    /// The player is in a live match, and no token can be issued before the first
    /// [`set_unix_time`](crate::Matchmaker::set_unix_time).
    NoClock,
    /// The source of randomness failed.
    NoEntropy,
}

impl From<NoEntropy> for SubmitError {
    fn from(_: NoEntropy) -> Self {
        Self::NoEntropy
    }
}

wire::error_text! { SubmitError {
    Self::Full => "the queue is full",
    Self::Duplicate(ticket) => "the player already has ticket {ticket}",
    Self::TooSoon(wait) => "the next token may be asked for in {wait:?}",
    Self::NoClock => "the matchmaker has no wall clock yet",
    Self::NoEntropy => "the source of randomness failed",
}}

/// Why a ticket was not cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelError {
    /// There is no such ticket.
    Unknown,
    /// The player has a seat. To leave the match, it leaves the server.
    Assigned,
    /// It has ended.
    Ended,
}

wire::error_text! { CancelError {
    Self::Unknown => "there is no such ticket",
    Self::Assigned => "the ticket has a seat on a server",
    Self::Ended => "the ticket has ended",
}}

/// Why no new token was issued for a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReissueError {
    /// There is no such ticket.
    Unknown,
    /// It has no seat on a server.
    NotAssigned,
    /// The last token is too recent; retry after this time.
    TooSoon(Duration),
    /// [`set_unix_time`](crate::Matchmaker::set_unix_time) was not called yet.
    NoClock,
    /// The source of randomness failed.
    NoEntropy,
}

wire::error_text! { ReissueError {
    Self::Unknown => "there is no such ticket",
    Self::NotAssigned => "the ticket has no seat on a server",
    Self::TooSoon(wait) => "the next token may be asked for in {wait:?}",
    Self::NoClock => "the matchmaker has no wall clock yet",
    Self::NoEntropy => "the source of randomness failed",
}}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_keys_are_read_as_they_are_written() {
        let id = TicketId(0x0123_4567_89AB_CDEF);
        assert_eq!(id.to_string(), "0123456789abcdef");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("0123".parse::<TicketId>(), Err(TicketIdError));
        assert_eq!("g".repeat(16).parse::<TicketId>(), Err(TicketIdError));

        let key = ResumeKey([0xAB; 16]);
        assert_eq!(key.to_text().as_str(), "ab".repeat(16));
        assert_eq!(ResumeKey::from_text(&key.to_text()), Some(key));
        assert_eq!(ResumeKey::from_text(&"ab".repeat(17)), None);
    }

    #[test]
    fn mm_7_secrets_are_not_printed() {
        let key = ResumeKey([0xAB; 16]);
        let grant = GrantText::new(Zeroizing::new("TWG1abc".to_owned()));
        assert_eq!(format!("{key:?} {grant:?}"), "ResumeKey(..) GrantText(..)");
    }
}

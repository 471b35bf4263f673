//! Tickets: a player's wish to play, and what has become of it.

use core::fmt;
use core::str::FromStr;

use crypto::{NoEntropy, Provider, UserData, equal};
use wire::{ClientId, MatchId, Seat, Team, UnixTime};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::lease::ServerLink;

/// Names a ticket. Drawn at random, so it tells nobody how many there are; it is no secret, the
/// [`ResumeKey`] is.
///
/// Written and read as 16 lower-case hexadecimal digits.
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

/// A text is no [`TicketId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketIdError;

impl fmt::Display for TicketIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a ticket id has 16 hexadecimal digits")
    }
}

impl core::error::Error for TicketIdError {}

/// What the holder of a ticket shows to ask for it: 16 secret bytes, wiped on drop.
#[derive(Clone)]
pub struct ResumeKey([u8; 16]);

impl ResumeKey {
    /// Reads the text of [`to_text`](Self::to_text); `None` where it is none.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        hex(text).map(Self)
    }

    /// Returns 32 hexadecimal digits, for the player alone.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        // Filled without growing: a string that grows leaves copies behind.
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

impl fmt::Debug for ResumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResumeKey(..)")
    }
}

/// Chosen by the client for one wish: a request sent again with the same key is the same wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdempotencyKey(pub [u8; 16]);

/// A player wants to play.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TicketRequest {
    /// Who; the edge has made sure of it.
    pub client_id: ClientId,
    /// What the game server gets with the player's token.
    pub user: UserData,
    /// Which wish; `None` where each request is one.
    pub idempotency: Option<IdempotencyKey>,
}

impl TicketRequest {
    /// A wish of `client_id`, with no user data.
    #[must_use]
    pub fn new(client_id: ClientId) -> Self {
        Self {
            client_id,
            user: UserData::default(),
            idempotency: None,
        }
    }

    /// Sets what the game server gets with the player's token.
    #[must_use]
    pub fn with_user(mut self, user: UserData) -> Self {
        self.user = user;
        self
    }

    /// Sets which wish it is.
    #[must_use]
    pub const fn with_idempotency(mut self, key: IdempotencyKey) -> Self {
        self.idempotency = Some(key);
        self
    }
}

/// What a player gets for a [`TicketRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The ticket.
    pub ticket: TicketId,
    /// What to show to ask for it.
    pub resume_key: ResumeKey,
}

/// What has become of a ticket.
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
    /// A server waits for the player.
    Assigned(Assignment),
    /// Over.
    Ended(Ending),
}

impl TicketState {
    /// Returns whether nothing will change any more.
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
    /// The same player asked anew.
    Replaced,
    /// It waited longer than tickets may.
    Expired,
    /// No server was found for it, or the one that was is lost.
    Failed(FailReason),
    /// Its match is over.
    Finished,
    /// The player left the match for good.
    Left,
    /// Its holder has not asked for it for a while: see
    /// [`Config::ask_timeout`](crate::Config::ask_timeout).
    Abandoned,
    /// Nobody entered its match while a token for it was good.
    NotEntered,
}

/// Why a ticket has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailReason {
    /// As many times as are tried, no server took its match.
    NoServer,
    /// The server of its match is gone.
    ServerLost,
    /// No token could be made, since the source of randomness failed.
    NoEntropy,
    /// The player is in a live match that was found while the ticket waited, and no token could be
    /// made for it. Asking anew gives one.
    InMatch,
}

/// A seat on a server, and the means to take it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Assignment {
    /// The match.
    pub match_id: MatchId,
    /// The seat in it.
    pub seat: Seat,
    /// The side that the seat is on.
    pub team: Team,
    /// The only server instance that the token is good for.
    pub server: ServerLink,
    /// When the token ends; [`Matchmaker::reissue`](crate::Matchmaker::reissue) makes another.
    pub expires_at: UnixTime,
    /// For the player, over TLS.
    pub grant: GrantText,
}

/// A [`ClientGrant`](crypto::ClientGrant) as text (`TWG1...`): it holds the pre-shared key, so it
/// is wiped on drop and not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct GrantText(Zeroizing<String>);

impl GrantText {
    pub(crate) const fn new(text: Zeroizing<String>) -> Self {
        Self(text)
    }

    /// Returns the text, for the player alone; never for a log.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for GrantText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GrantText(..)")
    }
}

/// Reads exactly `2 * LEN` hexadecimal digits.
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

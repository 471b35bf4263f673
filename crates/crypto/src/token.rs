//! Connect tokens (TWT1): a token permits one player to take one seat on one server instance until
//! it expires.
//!
//! A matchmaker seals tokens, and only the instance that holds the key opens them. All integers are
//! big-endian.
//!
//! | offset | size | clear field |
//! |---|---|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 4 | key id, counted within the instance |
//! | 5 | 16 | token id, random |
//! | 21 | 8 | expiry, Unix seconds |
//!
//! The sealed fields follow: issued at (8, Unix milliseconds), client 8, pre-shared key 32, server
//! instance 8, address count 1 (1 to 8) and addresses 19 each, flags 1 (0), match 16, seat 2, team
//! 1, user data length 2 and user data (at most 512); then the tag, 16. The AEAD is AES-256-GCM
//! with the nonce 0, a key for each token (`Expand(token key, "tw1 token", token id)`), and as AAD
//! the clear fields and the id of the application. So two tokens never share a key, a token opens
//! only for one game on one instance, and a modified token does not open.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use wire::codec::concat;
use wire::{ClientId, InstanceId, MatchId, Reader, Seat, Team, Truncated, UnixTime, Writer};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use crate::key_schedule::{Label, expand};
use crate::{AddressList, Aead, NoEntropy, Provider, Secret32, Suite};

/// The content of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenGrant {
    /// Time of issue, in milliseconds: of two tokens of a client, the newer one wins.
    pub issued_at: UnixTime,
    /// Expiry in whole seconds, at most [`LIFETIME_MAX`] after `issued_at`.
    pub expires_at: UnixTime,
    /// The player that may connect.
    pub client_id: ClientId,
    /// The player proves that it holds this key; a stolen token alone does not suffice.
    pub psk: Secret32,
    /// The only instance which accepts it.
    pub server_id: InstanceId,
    /// Addresses of that instance; advisory, not checked.
    pub addresses: AddressList,
    /// The match of the seat.
    pub match_id: MatchId,
    /// The seat that the player may take.
    pub seat: Seat,
    /// The team of the seat.
    pub team: Team,
    /// Application data from the matchmaker to the server.
    pub user: UserData,
}

/// A token that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectToken {
    /// Its clear fields.
    pub header: TokenHeader,
    /// Its content.
    pub grant: TokenGrant,
}

/// The game and instance for which a token is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audience {
    /// Separates games and builds.
    pub app_id: u64,
    /// The instance that opens the token.
    pub server_id: InstanceId,
}

/// Symmetric key of one server instance. Its holder can issue tokens for that instance.
///
/// A server generates it at start, registers it with the matchmaker, and never stores it on disk.
/// It has no `Debug`, so that no log can contain any part of it:
///
/// ```compile_fail
/// fn log(key: &crypto::TokenKey) -> String {
///     format!("{key:?}")
/// }
/// ```
#[expect(
    missing_debug_implementations,
    reason = "a token key must not be printable"
)]
#[derive(Clone)]
pub struct TokenKey {
    /// Distinguishes the keys of one instance, which rotate.
    id: u32,
    secret: Secret32,
}

impl TokenKey {
    /// Length of [`to_bytes`](Self::to_bytes).
    pub const LEN: usize = 36;

    /// Generates a key.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the provider has no randomness.
    pub fn generate<P: Provider>(provider: &mut P, id: u32) -> Result<Self, NoEntropy> {
        Secret32::random(provider).map(|secret| Self { id, secret })
    }

    /// Decodes a key from its registration record: id 4, secret 32.
    #[must_use]
    pub const fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let [a, b, c, d, secret @ ..] = bytes;
        Self {
            id: u32::from_be_bytes([*a, *b, *c, *d]),
            secret: Secret32::new(*secret),
        }
    }

    /// Returns the registration record for a matchmaker, wiped on drop.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<[u8; Self::LEN]> {
        Zeroizing::new(concat(&[&self.id.to_be_bytes(), self.secret.expose()]))
    }

    /// Returns its id within the instance.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Seals a token for the game `app_id`, with a new random id, so that no two tokens share a
    /// key.
    ///
    /// # Errors
    ///
    /// [`SealTokenError::Lifetime`] if the grant's lifetime is zero or too long;
    /// [`SealTokenError::NoEntropy`] if the provider has no randomness.
    pub fn seal<P: Provider>(
        &self,
        provider: &mut P,
        app_id: u64,
        grant: &TokenGrant,
    ) -> Result<SealedToken, SealTokenError> {
        let expires_at = UnixTime::from_secs(grant.expires_at.as_secs());
        if !is_lifetime_allowed(grant.issued_at, expires_at) {
            return Err(SealTokenError::Lifetime);
        }
        let mut token_id = [0; 16];
        provider.random(&mut token_id)?;
        let header = TokenHeader {
            key_id: self.id,
            token_id: TokenId(token_id),
            expires_at,
        };
        let clear = header.encode();
        let mut body = Zeroizing::new(Vec::with_capacity(SEALED_MAX));
        grant.encode(&mut Writer::new(&mut body));
        let mut tag = [0; 16];
        self.aead(provider, header.token_id).seal(
            NONCE,
            &concat::<AAD_LEN>(&[&clear, &app_id.to_be_bytes()]),
            &mut body,
            &mut tag,
        );
        Ok(SealedToken::join(header, &body, tag))
    }

    /// Opens a token for `audience` at `now`.
    ///
    /// Length, version, key and expiry are checked before the AEAD: an unauthenticated peer causes
    /// at most one key derivation and one open of at most 743 bytes, and no allocation.
    ///
    /// # Errors
    ///
    /// [`TokenError`] names the first check that failed.
    pub fn open<P: Provider>(
        &self,
        provider: &P,
        audience: Audience,
        now: UnixTime,
        token: &[u8],
    ) -> Result<ConnectToken, TokenError> {
        let header = TokenHeader::decode(token)?;
        if header.key_id != self.id {
            return Err(TokenError::UnknownKey(header.key_id));
        }
        header.check_expiry(now)?;
        let mut body = Zeroizing::new([0; SEALED_MAX]);
        let body = self.open_body(provider, audience.app_id, header, (token, &mut body))?;
        let grant = TokenGrant::decode(header, body)?;
        if grant.issued_at.saturating_since(now) > CLOCK_SKEW {
            return Err(TokenError::NotYetIssued);
        }
        if !is_lifetime_allowed(grant.issued_at, grant.expires_at) {
            return Err(TokenError::Lifetime);
        }
        if grant.server_id != audience.server_id {
            return Err(TokenError::OtherServer(grant.server_id));
        }
        Ok(ConnectToken { header, grant })
    }

    /// Copies the sealed part of `token` to `out` and opens it there.
    fn open_body<'a, P: Provider>(
        &self,
        provider: &P,
        app_id: u64,
        header: TokenHeader,
        (token, out): (&[u8], &'a mut [u8; SEALED_MAX]),
    ) -> Result<&'a [u8], TokenError> {
        let wrong_length = TokenError::Length(token.len());
        let (clear, rest) = token
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(wrong_length)?;
        let aad: [u8; AAD_LEN] = concat(&[clear, &app_id.to_be_bytes()]);
        let (sealed, tag) = rest.split_last_chunk().ok_or(wrong_length)?;
        let body = out.get_mut(..sealed.len()).ok_or(wrong_length)?;
        body.copy_from_slice(sealed);
        self.aead(provider, header.token_id)
            .open(NONCE, &aad, body, tag)
            .map_err(|_| TokenError::Forged)?;
        Ok(body)
    }

    fn aead<P: Provider>(&self, provider: &P, token_id: TokenId) -> P::Aead {
        let key = expand(provider, &self.secret, TOKEN, &token_id.0);
        provider.aead(Suite::Aes256Gcm, &key)
    }
}

/// Its secret wipes itself.
impl ZeroizeOnDrop for TokenKey {}

impl TokenGrant {
    fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.issued_at.as_millis());
        out.u64(self.client_id.0);
        out.bytes(self.psk.expose());
        out.u64(self.server_id.0);
        self.addresses.encode(out);
        out.u8(FLAGS);
        out.bytes(&self.match_id.0);
        out.u16(self.seat.0);
        out.u8(self.team.0);
        self.user.encode(out);
    }

    fn decode(header: TokenHeader, body: &[u8]) -> Result<Self, TokenError> {
        let mut reader = Reader::new(body);
        let grant = Self {
            issued_at: UnixTime::from_millis(reader.u64()?),
            expires_at: header.expires_at,
            client_id: ClientId(reader.u64()?),
            psk: Secret32::new(reader.array()?),
            server_id: InstanceId(reader.u64()?),
            addresses: AddressList::decode(&mut reader).ok_or(TokenError::Malformed)?,
            match_id: match reader.u8()? {
                FLAGS => MatchId(reader.array()?),
                _ => return Err(TokenError::Malformed),
            },
            seat: Seat(reader.u16()?),
            team: Team(reader.u8()?),
            user: UserData::decode(&mut reader)?,
        };
        if reader.is_empty() {
            Ok(grant)
        } else {
            Err(TokenError::Malformed)
        }
    }
}

/// Clear fields of a token, which are not authentic until the token has been opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenHeader {
    /// Id of the instance's key that sealed it.
    pub key_id: u32,
    /// Id of the token; no two tokens have the same one.
    pub token_id: TokenId,
    /// Expiry in whole seconds.
    pub expires_at: UnixTime,
}

impl TokenHeader {
    /// Decodes the clear fields of the complete `token`.
    ///
    /// # Errors
    ///
    /// [`TokenError::Length`] and [`TokenError::Version`].
    pub fn decode(token: &[u8]) -> Result<Self, TokenError> {
        if !(TOKEN_LEN_MIN..=TOKEN_LEN_MAX).contains(&token.len()) {
            return Err(TokenError::Length(token.len()));
        }
        let mut reader = Reader::new(token);
        match reader.u8()? {
            VERSION => {}
            other => return Err(TokenError::Version(other)),
        }
        Ok(Self {
            key_id: reader.u32()?,
            token_id: TokenId(reader.array()?),
            expires_at: UnixTime::from_secs(reader.u64()?),
        })
    }

    /// Checks that the token has not expired at `now`, and that its expiry is within the maximum
    /// lifetime.
    ///
    /// # Errors
    ///
    /// [`TokenError::Expired`] and [`TokenError::Lifetime`].
    pub fn check_expiry(&self, now: UnixTime) -> Result<(), TokenError> {
        if now.saturating_since(self.expires_at) >= CLOCK_SKEW {
            return Err(TokenError::Expired);
        }
        if self.expires_at.saturating_since(now) > LIFETIME_MAX.saturating_add(CLOCK_SKEW) {
            return Err(TokenError::Lifetime);
        }
        Ok(())
    }

    fn encode(&self) -> [u8; HEADER_LEN] {
        concat(&[
            &[VERSION],
            &self.key_id.to_be_bytes(),
            &self.token_id.0,
            &self.expires_at.as_secs().to_be_bytes(),
        ])
    }
}

/// Random id of a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub [u8; 16]);

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenId(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// A sealed token: 143 to 788 bytes with a readable header.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedToken {
    bytes: Vec<u8>,
    header: TokenHeader,
}

impl SealedToken {
    /// Parses a token's length and header. Only its server can authenticate it.
    ///
    /// # Errors
    ///
    /// [`TokenError::Length`] and [`TokenError::Version`].
    pub fn parse(bytes: &[u8]) -> Result<Self, TokenError> {
        TokenHeader::decode(bytes).map(|header| Self {
            bytes: bytes.to_vec(),
            header,
        })
    }

    /// Returns the bytes for the token field of a HELLO.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns its clear fields.
    #[must_use]
    pub const fn header(&self) -> TokenHeader {
        self.header
    }

    fn join(header: TokenHeader, body: &[u8], tag: [u8; 16]) -> Self {
        let bytes = [header.encode().as_slice(), body, &tag].concat();
        Self { bytes, header }
    }
}

impl fmt::Debug for SealedToken {
    /// Omits the token, because even a sealed token must not be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedToken({} bytes)", self.bytes.len())
    }
}

/// First byte of TWT1.
const VERSION: u8 = 1;

/// At most [`USER_DATA_MAX`] opaque bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UserData(Vec<u8>);

impl UserData {
    /// Creates user data.
    ///
    /// # Errors
    ///
    /// [`UserDataTooLong`] if there are more than [`USER_DATA_MAX`] bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, UserDataTooLong> {
        if bytes.len() > USER_DATA_MAX {
            return Err(UserDataTooLong(bytes.len()));
        }
        Ok(Self(bytes.to_vec()))
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn encode(&self, out: &mut Writer<'_>) {
        let [.., high, low] = self.0.len().to_be_bytes();
        out.bytes(&[high, low]);
        out.bytes(&self.0);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, TokenError> {
        let len = usize::from(reader.u16()?);
        Self::new(reader.bytes(len)?).map_err(|_| TokenError::Malformed)
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData({} bytes)", self.0.len())
    }
}

/// The user data is longer than [`USER_DATA_MAX`]; the number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserDataTooLong(pub usize);

wire::error_text! { UserDataTooLong {
    Self(len) => "user data of {len} bytes is over the limit of {USER_DATA_MAX}",
}}

/// Why a token is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenError {
    /// Invalid length in bytes.
    Length(usize),
    /// Not version 1.
    Version(u8),
    /// Sealed under a key with another id.
    UnknownKey(u32),
    /// It expired more than the clock skew ago.
    Expired,
    /// Its lifetime is over the maximum, or it expires before its issue.
    Lifetime,
    /// The AEAD rejected it: changed, sealed under another key, or for another game.
    Forged,
    /// It opened, but its content is malformed.
    Malformed,
    /// It was issued in the future, by more than the clock skew.
    NotYetIssued,
    /// It is for another instance.
    OtherServer(InstanceId),
}

wire::error_text! { TokenError {
    Self::Length(len) =>
        "token of {len} bytes, where {TOKEN_LEN_MIN} to {TOKEN_LEN_MAX} are allowed",
    Self::Version(version) => "token version {version}, where 1 is known",
    Self::UnknownKey(id) => "token is sealed under key {id}, which is not held",
    Self::Expired => "token has expired",
    Self::Lifetime => "token lifetime is not within 300 seconds",
    Self::Forged => "token was changed or belongs to another key or game",
    Self::Malformed => "token opened, but its contents break the format",
    Self::NotYetIssued => "token was issued in the future",
    Self::OtherServer(id) => "token is good for server instance {id}",
}}

/// Why no token was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SealTokenError {
    /// The lifetime is zero or over [`LIFETIME_MAX`].
    Lifetime,
    /// The source of randomness failed.
    NoEntropy,
}

impl From<NoEntropy> for SealTokenError {
    fn from(_: NoEntropy) -> Self {
        Self::NoEntropy
    }
}

wire::error_text! { SealTokenError {
    Self::Lifetime => "token lifetime is not within 300 seconds",
    Self::NoEntropy => "{NoEntropy}",
}}

impl From<Truncated> for TokenError {
    fn from(_: Truncated) -> Self {
        Self::Malformed
    }
}

fn is_lifetime_allowed(issued_at: UnixTime, expires_at: UnixTime) -> bool {
    issued_at < expires_at && expires_at.saturating_since(issued_at) <= LIFETIME_MAX
}

/// Maximum lifetime of a token. It limits the use of a stolen token, and how long a server must
/// remember used ones.
pub const LIFETIME_MAX: Duration = Duration::from_secs(300);

/// Tolerated difference between the clocks of matchmaker and server.
pub const CLOCK_SKEW: Duration = Duration::from_secs(5);

/// Maximum user data in a token, bytes.
pub const USER_DATA_MAX: usize = 512;

/// Minimum token length: one address, no user data.
pub const TOKEN_LEN_MIN: usize = 143;

/// Maximum token length: eight addresses, 512 bytes of user data. It fits the 1,000-byte field of
/// HELLO.
pub const TOKEN_LEN_MAX: usize = 788;

/// Version, key id, token id, expiry.
const HEADER_LEN: usize = 29;

/// Header and `app_id`.
const AAD_LEN: usize = 37;

/// Maximum plaintext length: all but header and tag.
const SEALED_MAX: usize = 743;

/// Reserved.
const FLAGS: u8 = 0;

/// Each key seals once.
const NONCE: [u8; 12] = [0; 12];

const TOKEN: Label = Label::new("tw1 token");

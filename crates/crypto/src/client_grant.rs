//! A client grant: what a matchmaker sends to a player over HTTPS, so that it can take its seat.

use alloc::string::String;
use alloc::vec::Vec;

use base64ct::{Base64UrlUnpadded, Encoding};
use sha2::{Digest, Sha256};
use wire::{Reader, Truncated, UnixTime, Writer};
use zeroize::Zeroizing;

use crate::token::TOKEN_LEN_MAX;
use crate::{AddressList, PublicKey, SealedToken, Secret32, TokenError, equal};

/// A token with all data that its use requires, at most 1,679 bytes.
///
/// As text it is one word: `TWG1`, then base64 (RFC 4648, section 5, unpadded) of app id 8, expiry
/// 8 (Unix seconds), pre-shared key 32, key count 1 and server keys 65 each, address count 1 and
/// addresses 19 each, token length 2 and token, and the first 4 bytes of SHA-256 over all that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientGrant {
    /// Separates games and builds.
    pub app_id: u64,
    /// Expiry of the token in whole seconds.
    pub expires_at: UnixTime,
    /// The pre-shared key of the player; the token contains the same one.
    pub psk: Secret32,
    /// Identity keys of the server, any of which is accepted: the current and the next.
    pub server_keys: ServerKeys,
    /// Addresses of the server, best first.
    pub addresses: AddressList,
    /// The token, for the server.
    pub token: SealedToken,
}

impl ClientGrant {
    /// Formats it as one word, wiped on drop. It holds a secret: send it over TLS only.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        // The vector has its full capacity, because a growing one leaves copies of the key in
        // memory.
        let mut bytes = Zeroizing::new(Vec::with_capacity(BYTES_MAX));
        let mut out = Writer::new(&mut bytes);
        out.u64(self.app_id);
        out.u64(self.expires_at.as_secs());
        out.bytes(self.psk.expose());
        self.server_keys.encode(&mut out);
        self.addresses.encode(&mut out);
        let token = self.token.as_bytes();
        let [.., high, low] = token.len().to_be_bytes();
        out.bytes(&[high, low]);
        out.bytes(token);
        let checksum = checksum(&bytes);
        bytes.extend_from_slice(&checksum);

        let mut text = Zeroizing::new(String::with_capacity(TEXT_MAX));
        text.push_str(PREFIX);
        text.push_str(&Zeroizing::new(Base64UrlUnpadded::encode_string(&bytes)));
        text
    }

    /// Parses the text of [`to_text`](Self::to_text); surrounding white space is ignored.
    ///
    /// # Errors
    ///
    /// [`GrantError`] names the fault.
    pub fn from_text(text: &str) -> Result<Self, GrantError> {
        let text = text.trim_ascii();
        if text.len() > TEXT_MAX {
            return Err(GrantError::TooLong(text.len()));
        }
        let encoded = text.strip_prefix(PREFIX).ok_or(GrantError::Prefix)?;
        let bytes = Base64UrlUnpadded::decode_vec(encoded).map_err(|_| GrantError::Encoding)?;
        let bytes = Zeroizing::new(bytes);
        let (fields, sum) = bytes.split_last_chunk::<4>().ok_or(GrantError::Checksum)?;
        if !equal(&checksum(fields), sum) {
            return Err(GrantError::Checksum);
        }
        Self::decode(fields)
    }

    fn decode(fields: &[u8]) -> Result<Self, GrantError> {
        let mut reader = Reader::new(fields);
        let grant = Self {
            app_id: reader.u64()?,
            expires_at: expiry(reader.u64()?)?,
            psk: Secret32::new(reader.array()?),
            server_keys: ServerKeys::decode(&mut reader)?,
            addresses: AddressList::decode(&mut reader).ok_or(GrantError::Malformed)?,
            token: {
                let len = usize::from(reader.u16()?);
                SealedToken::parse(reader.bytes(len)?).map_err(GrantError::Token)?
            },
        };
        if reader.is_empty() {
            Ok(grant)
        } else {
            Err(GrantError::Malformed)
        }
    }
}

impl core::str::FromStr for ClientGrant {
    type Err = GrantError;

    /// Parses the text of [`to_text`](Self::to_text), like [`from_text`](Self::from_text).
    fn from_str(text: &str) -> Result<Self, GrantError> {
        Self::from_text(text)
    }
}

/// One to four identity keys of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerKeys(Vec<PublicKey>);

impl ServerKeys {
    /// Maximum number of keys; rotation needs two.
    pub const MAX: usize = 4;

    /// Creates the list; `None` if there is no key, or more than four.
    #[must_use]
    pub fn new(keys: &[PublicKey]) -> Option<Self> {
        let is_allowed = !keys.is_empty() && keys.len() <= Self::MAX;
        is_allowed.then(|| Self(keys.to_vec()))
    }

    /// Returns the keys; never empty.
    #[must_use]
    pub fn as_slice(&self) -> &[PublicKey] {
        &self.0
    }

    fn encode(&self, out: &mut Writer<'_>) {
        let [.., count] = self.0.len().to_be_bytes();
        out.u8(count);
        for key in &self.0 {
            out.bytes(&key.0);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, GrantError> {
        let count = usize::from(reader.u8()?);
        if count == 0 || count > Self::MAX {
            return Err(GrantError::Malformed);
        }
        (0..count)
            .map(|_| {
                let bytes = reader.bytes(PublicKey::LEN)?;
                PublicKey::parse(bytes).map_err(|_| GrantError::ServerKey)
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// Why a text is not a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrantError {
    /// The text is longer than any grant; its length in bytes.
    TooLong(usize),
    /// It does not start with `TWG1`.
    Prefix,
    /// It is not base64 in the URL alphabet without padding.
    Encoding,
    /// The checksum differs: the text is truncated or mistyped.
    Checksum,
    /// A field is malformed.
    Malformed,
    /// A server key is not a point of the curve.
    ServerKey,
    /// The token is malformed.
    Token(TokenError),
}

impl From<Truncated> for GrantError {
    fn from(_: Truncated) -> Self {
        Self::Malformed
    }
}

wire::error_text! { GrantError {
    Self::TooLong(len) => "grant of {len} bytes is over the limit of {TEXT_MAX}",
    Self::Prefix => "grant does not begin with {PREFIX}",
    Self::Encoding => "grant is not unpadded base64 of the URL alphabet",
    Self::Checksum => "grant was cut short or mistyped",
    Self::Malformed => "a field of the grant breaks the format",
    Self::ServerKey => "a server key in the grant is no point of P-256",
    Self::Token(error) => "{error}",
}}

/// Seconds that [`UnixTime`] holds exactly, so that what is decoded encodes to the same bytes.
const fn expiry(secs: u64) -> Result<UnixTime, GrantError> {
    let time = UnixTime::from_secs(secs);
    if time.as_secs() == secs {
        Ok(time)
    } else {
        Err(GrantError::Malformed)
    }
}

/// Detects accidental changes only; TLS protects the text against attacks.
fn checksum(fields: &[u8]) -> [u8; 4] {
    let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(fields));
    [a, b, c, d]
}

const PREFIX: &str = "TWG1";

/// 8 + 8 + 32, four keys, eight addresses, the longest token, checksum.
const BYTES_MAX: usize = 48 + (1 + 4 * 65) + (1 + 8 * 19) + (2 + TOKEN_LEN_MAX) + 4;

/// [`BYTES_MAX`] in base64, behind the prefix.
const TEXT_MAX: usize = PREFIX.len() + (BYTES_MAX * 4).div_ceil(3);

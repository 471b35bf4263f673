//! Sealed tokens and their clear fields.

use alloc::vec::Vec;
use core::fmt;

use wire::{Reader, UnixTime};

use super::{CLOCK_SKEW, HEADER_LEN, LIFETIME_MAX, TOKEN_LEN_MAX, TOKEN_LEN_MIN, TokenError};

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

    pub(super) fn encode(&self) -> [u8; HEADER_LEN] {
        let fields = [VERSION]
            .into_iter()
            .chain(self.key_id.to_be_bytes())
            .chain(self.token_id.0)
            .chain(self.expires_at.as_secs().to_be_bytes());
        let mut bytes = [0; HEADER_LEN];
        for (to, from) in bytes.iter_mut().zip(fields) {
            *to = from;
        }
        bytes
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

    pub(super) fn join(header: TokenHeader, body: &[u8], tag: [u8; 16]) -> Self {
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

//! Public keys: P-256 points in wire format.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use p256::elliptic_curve::sec1::ToSec1Point;
use p256::pkcs8::{DecodePublicKey, EncodePublicKey, LineEnding};
use sha2::{Digest, Sha256};
use wire::NodeId;

use crate::PemError;

/// SEC1 uncompressed point of P-256: 0x04, x, y, big-endian.
///
/// A received value may not be a point of the curve. [`parse`](Self::parse) and a provider's
/// `agree` and `verify` check that and reject others. As text: 130 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 65]);

impl PublicKey {
    /// Length in bytes.
    pub const LEN: usize = 65;

    /// Parses 65 bytes which are a point of the curve.
    ///
    /// # Errors
    ///
    /// [`BadPoint`] for another length, a prefix other than 4, a coordinate not below the field's
    /// prime, a point off the curve, and the point at infinity.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadPoint> {
        let key = Self(bytes.try_into().map_err(|_| BadPoint)?);
        key.to_p256()?;
        Ok(key)
    }

    /// Returns the id of the node that holds the private key: SHA-256 of the 65 bytes.
    #[must_use]
    pub fn node_id(&self) -> NodeId {
        NodeId(Sha256::digest(self.0).into())
    }

    /// Returns the key as PEM, label `PUBLIC KEY` (RFC 7468, section 13).
    ///
    /// # Errors
    ///
    /// [`BadPoint`] if the bytes are not a point of the curve.
    pub fn to_pem(&self) -> Result<String, BadPoint> {
        self.to_p256()?
            .to_public_key_pem(LineEnding::LF)
            .map_err(|_| BadPoint)
    }

    /// Reads PEM with the label `PUBLIC KEY`; text around the block is skipped.
    ///
    /// # Errors
    ///
    /// [`PemError`] if there is no such block, or if it holds another kind of key.
    pub fn from_pem(text: &str) -> Result<Self, PemError> {
        let block = crate::identity::pem_block(text, "PUBLIC KEY").ok_or(PemError::NoKey)?;
        p256::PublicKey::from_public_key_pem(block)
            .map(Self::from)
            .map_err(|_| PemError::Malformed)
    }

    /// Checks the bytes and returns the point.
    pub(crate) fn to_p256(self) -> Result<p256::PublicKey, BadPoint> {
        // p256 would also accept compressed and other SEC1 forms. The protocol allows only one
        // form.
        if self.0.first() != Some(&0x04) {
            return Err(BadPoint);
        }
        p256::PublicKey::from_sec1_bytes(&self.0).map_err(|_| BadPoint)
    }
}

impl From<p256::PublicKey> for PublicKey {
    fn from(key: p256::PublicKey) -> Self {
        let Ok(bytes) = key.to_sec1_point(false).as_bytes().try_into() else {
            unreachable!("an uncompressed point of P-256 has 65 bytes");
        };
        Self(bytes)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    /// The first 8 digits of x: enough to tell keys apart in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicKey(")?;
        self.0
            .iter()
            .skip(1)
            .take(4)
            .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("..)")
    }
}

impl FromStr for PublicKey {
    type Err = BadPoint;

    fn from_str(text: &str) -> Result<Self, BadPoint> {
        let mut bytes = [0; Self::LEN];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(BadPoint);
        }
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
            let (Some(high), Some(low)) = (high, low) else {
                return Err(BadPoint);
            };
            *byte = u8::try_from((high << 4) | low).map_err(|_| BadPoint)?;
        }
        Self::parse(&bytes)
    }
}

/// The bytes are not a point of P-256 in uncompressed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPoint;

wire::error_text! { BadPoint {
    Self => "no uncompressed point of P-256",
}}

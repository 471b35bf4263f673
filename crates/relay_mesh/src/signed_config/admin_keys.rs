//! Admins' keys and how many of them must sign.

use core::fmt;

use crypto::{PemError, PublicKey};
use serde::{Deserialize, Serialize};

use super::fault::{DocumentError, Fault, Place};
use super::text::AdminsText;

/// Public keys of admins, and how many of them must sign a document. JSON members: `threshold` and
/// `keys`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "AdminsText", into = "AdminsText")]
pub struct AdminKeys {
    /// Ascending, unique, 1 to 8.
    keys: Vec<PublicKey>,
    /// 1 to the number of keys.
    threshold: usize,
    /// Derived from both.
    tag: u64,
}

impl AdminKeys {
    /// Most keys.
    pub const KEYS_MAX: usize = 8;

    /// Creates a set of `keys`, `threshold` of which must sign.
    ///
    /// # Errors
    ///
    /// [`AdminKeysError`] for no or more than 8 keys, a duplicate key, bytes that are no P-256
    /// point, and a threshold of 0 or above the number of keys.
    pub fn new(
        keys: impl IntoIterator<Item = PublicKey>,
        threshold: usize,
    ) -> Result<Self, AdminKeysError> {
        let mut sorted: Vec<PublicKey> = keys.into_iter().take(Self::KEYS_MAX + 1).collect();
        if sorted.is_empty() || sorted.len() > Self::KEYS_MAX {
            return Err(AdminKeysError::Count);
        }
        if sorted.iter().any(|key| PublicKey::parse(&key.0).is_err()) {
            return Err(AdminKeysError::BadKey);
        }
        sorted.sort_unstable();
        if !sorted.is_sorted_by(|one, next| one < next) {
            return Err(AdminKeysError::Twice);
        }
        if threshold == 0 || threshold > sorted.len() {
            return Err(AdminKeysError::Threshold);
        }
        let tag = tag_of(&sorted, threshold);
        Ok(Self {
            keys: sorted,
            threshold,
            tag,
        })
    }

    /// Returns a short tag of keys and threshold, which neighbours compare. It is a hint and proves
    /// nothing.
    #[must_use]
    pub const fn tag(&self) -> u64 {
        self.tag
    }

    /// Returns the keys, ascending.
    #[must_use]
    pub fn keys(&self) -> &[PublicKey] {
        &self.keys
    }

    /// Returns how many must sign.
    #[must_use]
    pub const fn threshold(&self) -> usize {
        self.threshold
    }

    /// Returns whether `key` is in the set.
    #[must_use]
    pub fn contains(&self, key: &PublicKey) -> bool {
        self.keys.binary_search(key).is_ok()
    }

    pub(super) fn read(text: &AdminsText) -> Result<Self, DocumentError> {
        let place = Place::of("admins.keys");
        let count = text.keys.len();
        if count > Self::KEYS_MAX {
            let max = Self::KEYS_MAX;
            return Err(place.fault(Fault::OverLimit { found: count, max }));
        }
        let mut keys = Vec::with_capacity(count);
        for (index, text) in text.keys.iter().enumerate() {
            let place = Place::item("admins.keys", index);
            let key = read_key(text).map_err(|_| place.fault(Fault::BadKey))?;
            if keys.contains(&key) {
                return Err(place.fault(Fault::Twice));
            }
            keys.push(key);
        }
        let threshold = usize::try_from(text.threshold).unwrap_or(usize::MAX);
        Self::new(keys, threshold).map_err(|error| match error {
            AdminKeysError::Count => place.fault(Fault::Empty),
            AdminKeysError::Twice => place.fault(Fault::Twice),
            AdminKeysError::BadKey => place.fault(Fault::BadKey),
            AdminKeysError::Threshold => Place::of("admins.threshold").fault(Fault::OutOfRange {
                min: 1,
                max: u64::try_from(count).unwrap_or(u64::MAX),
            }),
        })
    }
}

impl TryFrom<AdminsText> for AdminKeys {
    type Error = DocumentError;

    fn try_from(text: AdminsText) -> Result<Self, DocumentError> {
        Self::read(&text)
    }
}

impl From<AdminKeys> for AdminsText {
    fn from(admins: AdminKeys) -> Self {
        Self {
            threshold: u64::try_from(admins.threshold).unwrap_or(u64::MAX),
            keys: admins.keys.iter().map(PublicKey::to_string).collect(),
        }
    }
}

/// Hashes part of each key's SHA-256 and the threshold.
fn tag_of(keys: &[PublicKey], threshold: usize) -> u64 {
    let threshold = u64::try_from(threshold).unwrap_or(u64::MAX);
    keys.iter().fold(threshold, |tag, key| {
        let part = key
            .node_id()
            .0
            .first_chunk()
            .map_or(0, |part| u64::from_be_bytes(*part));
        tag.rotate_left(1) ^ part
    })
}

/// Reads a public key: 130 hexadecimal digits, or PEM as openssl writes it.
pub(super) fn read_key(text: &str) -> Result<PublicKey, PemError> {
    match text.parse() {
        Ok(key) => Ok(key),
        Err(_) => PublicKey::from_pem(text),
    }
}

/// Why a set of admin keys is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdminKeysError {
    /// There is no key, or there are more than 8.
    Count,
    /// A key occurs twice.
    Twice,
    /// Bytes are not a P-256 point.
    BadKey,
    /// The threshold is 0 or above the number of keys.
    Threshold,
}

impl fmt::Display for AdminKeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Count => "there are no admin keys, or more than 8",
            Self::Twice => "duplicate admin key",
            Self::BadKey => "an admin key is not a P-256 point",
            Self::Threshold => "the threshold is 0 or above the number of admin keys",
        })
    }
}

impl core::error::Error for AdminKeysError {}

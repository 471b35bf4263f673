//! Admins' keys, and a document's bytes with their signatures.

use core::fmt;
use std::collections::BTreeMap;

use crypto::{NoEntropy, PemError, Provider, PublicKey};
use serde::{Deserialize, Serialize};
use wire::{Reader, Truncated, Writer};

use super::document::{AdminsText, DOCUMENT_LEN_MAX, Document, DocumentError, Fault, Place};
use super::outcome::Refused;

/// A document as signed, with its signatures.
///
/// | size | field |
/// |---|---|
/// | 8 | `tw1 conf` |
/// | 1 | signature count (1 to 16) |
/// | 129 each | public key 65, SEC1 uncompressed; signature 64; ascending by key, no duplicates |
/// | 4 | document length (≤ 262,144), big-endian |
/// | n | document |
///
/// Keys are included in full, so that every signature can be verified while keys change, and no bit
/// of an envelope is unprotected.
#[derive(Clone, PartialEq, Eq)]
pub struct Envelope {
    document: Vec<u8>,
    signatures: BTreeMap<PublicKey, [u8; 64]>,
}

impl Envelope {
    /// Wraps the text of a document, to be signed unchanged.
    ///
    /// # Errors
    ///
    /// [`DocumentError`] if nodes would reject it.
    pub fn new(document: Vec<u8>) -> Result<Self, DocumentError> {
        Document::read(&document)?;
        Ok(Self {
            document,
            signatures: BTreeMap::new(),
        })
    }

    /// Adds the signature of the admin `key`; replaces an earlier one of the same key. `public` is
    /// its public half.
    ///
    /// # Errors
    ///
    /// [`SignError`] if randomness fails, `public` does not match `key`, or 16 have signed.
    pub fn sign<P: Provider>(
        &mut self,
        provider: &mut P,
        key: &P::SigningKey,
        public: PublicKey,
    ) -> Result<(), SignError> {
        let is_new = !self.signatures.contains_key(&public);
        if is_new && self.signatures.len() >= SIGNATURES_MAX {
            return Err(SignError::Full);
        }
        let message = signed(&self.document);
        let signature = provider.sign(key, &message)?;
        if !provider.verify(&public, &message, &signature) {
            return Err(SignError::OtherKey);
        }
        self.signatures.insert(public, signature);
        Ok(())
    }

    /// Reads an envelope without verifying its signatures or document.
    ///
    /// # Errors
    ///
    /// [`EnvelopeError`] names the first rule that `bytes` break.
    pub fn decode(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        let mut reader = Reader::new(bytes);
        let envelope = Self::read(&mut reader)?;
        if reader.is_empty() {
            Ok(envelope)
        } else {
            Err(EnvelopeError::Trailing)
        }
    }

    /// Reads an envelope that may be followed by others.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, EnvelopeError> {
        if reader.array::<8>()? != *MAGIC {
            return Err(EnvelopeError::Foreign);
        }
        let count = usize::from(reader.u8()?);
        if count == 0 || count > SIGNATURES_MAX {
            return Err(EnvelopeError::SignatureCount(count));
        }
        let mut signatures: BTreeMap<PublicKey, [u8; 64]> = BTreeMap::new();
        for _ in 0..count {
            let key = PublicKey(reader.array()?);
            let last = signatures.last_key_value();
            if last.is_some_and(|(last, _)| *last >= key) {
                return Err(EnvelopeError::KeyOrder);
            }
            signatures.insert(key, reader.array()?);
        }
        let len = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
        if len > DOCUMENT_LEN_MAX {
            return Err(EnvelopeError::DocumentLen(len));
        }
        Ok(Self {
            document: reader.bytes(len)?.to_vec(),
            signatures,
        })
    }

    /// Appends the envelope to `out`. An envelope without a signature cannot be decoded again.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.bytes(MAGIC);
        writer.u8(u8::try_from(self.signatures.len()).unwrap_or(u8::MAX));
        for (key, signature) in &self.signatures {
            writer.bytes(&key.0);
            writer.bytes(signature);
        }
        writer.u32(u32::try_from(self.document.len()).unwrap_or(u32::MAX));
        writer.bytes(&self.document);
    }

    /// Returns the text of the document as signed.
    #[must_use]
    pub fn document(&self) -> &[u8] {
        &self.document
    }

    /// Returns the signers' keys, ascending.
    pub fn signers(&self) -> impl Iterator<Item = &PublicKey> {
        self.signatures.keys()
    }

    /// Verifies the signatures and reads the document. Enough of `admins` must have signed it, and,
    /// if it changes them, enough of the new ones: keys that nobody holds never come into force.
    ///
    /// All signatures must be genuine, also those of unknown keys, which do not count. At most 16
    /// are verified, and none if too few of the admins have signed.
    ///
    /// # Errors
    ///
    /// [`Refused`], for signatures or [`Refused::Document`].
    pub fn open<P: Provider>(&self, provider: &P, admins: &AdminKeys) -> Result<Document, Refused> {
        let found = self.signed_by(admins);
        if found == 0 {
            return Err(Refused::UnknownKey);
        }
        check_count(found, admins)?;
        let message = signed(&self.document);
        let is_genuine =
            |(key, signature): (&PublicKey, &[u8; 64])| provider.verify(key, &message, signature);
        if !self.signatures.iter().all(is_genuine) {
            return Err(Refused::BadSignature);
        }
        let document = Document::read(&self.document).map_err(Refused::Document)?;
        check_count(self.signed_by(&document.admins), &document.admins)?;
        Ok(document)
    }

    /// How many of `admins` signed; the signatures are unverified.
    fn signed_by(&self, admins: &AdminKeys) -> usize {
        self.signers().filter(|key| admins.contains(key)).count()
    }
}

impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope")
            .field("document_len", &self.document.len())
            .field("signers", &self.signatures.keys())
            .finish()
    }
}

const fn check_count(found: usize, admins: &AdminKeys) -> Result<(), Refused> {
    let needed = admins.threshold();
    if found < needed {
        return Err(Refused::TooFewSignatures { found, needed });
    }
    Ok(())
}

/// The signed bytes: the prefix separates them from anything else that the key signs.
fn signed(document: &[u8]) -> Vec<u8> {
    [PREFIX, document].concat()
}

/// Why bytes are not an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// They end too early.
    Truncated,
    /// They do not start with `tw1 conf`.
    Foreign,
    /// No signature, or more than 16.
    SignatureCount(usize),
    /// Keys are not in ascending order, or one occurs twice.
    KeyOrder,
    /// The document is longer than [`DOCUMENT_LEN_MAX`](super::DOCUMENT_LEN_MAX).
    DocumentLen(usize),
    /// More envelopes than a bundle may have.
    TooMany,
    /// Bytes follow the envelope.
    Trailing,
}

impl From<Truncated> for EnvelopeError {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

wire::error_text! { EnvelopeError {
    Self::Truncated => "truncated envelope",
    Self::Foreign => "not a signed configuration",
    Self::SignatureCount(n) => "envelope has {n} signatures, not 1 to {SIGNATURES_MAX}",
    Self::KeyOrder => "keys of the envelope are not in ascending order",
    Self::DocumentLen(found) => "document of {found} bytes is over the limit of {DOCUMENT_LEN_MAX}",
    Self::TooMany => "more envelopes than a bundle allows",
    Self::Trailing => "bytes follow the envelope",
}}

/// Why signing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignError {
    /// The provider's source of randomness failed.
    NoEntropy,
    /// The public key does not match the private key.
    OtherKey,
    /// It has 16 signatures.
    Full,
}

impl From<NoEntropy> for SignError {
    fn from(_: NoEntropy) -> Self {
        Self::NoEntropy
    }
}

wire::error_text! { SignError {
    Self::NoEntropy => "the provider has no randomness",
    Self::OtherKey => "the public key does not match the private key",
    Self::Full => "the envelope has 16 signatures",
}}

/// Most signatures: all admins before a change of keys, and all after it.
pub const SIGNATURES_MAX: usize = 2 * AdminKeys::KEYS_MAX;
/// Longest envelope, in bytes.
pub const ENVELOPE_LEN_MAX: usize = 8 + 1 + SIGNATURES_MAX * (65 + 64) + 4 + DOCUMENT_LEN_MAX;

const MAGIC: &[u8; 8] = b"tw1 conf";
const PREFIX: &[u8] = b"tw1 mesh config";

/// Public keys of admins, and how many must sign. JSON members: `threshold` and `keys`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "AdminsText", into = "AdminsText")]
pub struct AdminKeys {
    /// Ascending, unique, 1 to 8.
    keys: Vec<PublicKey>,
    threshold: usize,
    /// Derived from both; see [`tag`](Self::tag).
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

    /// Returns a short tag of keys and threshold, which neighbours compare: a hint, no proof.
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
        place.at_most(count, Self::KEYS_MAX)?;
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
        let id = key.node_id().0;
        let part = id.first_chunk().copied().map_or(0, u64::from_be_bytes);
        tag.rotate_left(1) ^ part
    })
}

/// Reads a public key: 130 hexadecimal digits, or PEM as openssl writes it.
pub(super) fn read_key(text: &str) -> Result<PublicKey, PemError> {
    text.parse().or_else(|_| PublicKey::from_pem(text))
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

wire::error_text! { AdminKeysError {
    Self::Count => "there are no admin keys, or more than 8",
    Self::Twice => "duplicate admin key",
    Self::BadKey => "an admin key is not a P-256 point",
    Self::Threshold => "the threshold is 0 or above the number of admin keys",
}}

#[cfg(test)]
mod tests;

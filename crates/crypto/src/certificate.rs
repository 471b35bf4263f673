//! Server certificates: a root key signs the identity key of one server instance.

use core::fmt;

use wire::codec::concat;
use wire::{InstanceId, UnixTime};

use crate::token::CLOCK_SKEW;
use crate::{Identity, NoEntropy, Provider, PublicKey};

/// A root key's signature over a server's identity key, its instance, and the expiry.
///
/// 145 bytes: `version 1 | key 65 | instance id 8 | end 7 (Unix seconds) | signature 64`. The
/// signature is by the root key over "tw1 server cert", the application id (8 bytes), and the first
/// 81 bytes. Do not trust a received value before [`check`](Self::check).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Certificate([u8; 145]);

/// The content of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The server's identity key.
    pub key: PublicKey,
    /// The server instance that holds the key.
    pub server_id: InstanceId,
    /// The last second of its validity.
    pub not_after: UnixTime,
}

/// Expected values for a check.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Trusted root keys; each costs at most one signature check.
    pub roots: &'a [PublicKey],
    /// Separates games and builds.
    pub app_id: u64,
    /// The instance that it must name, if known.
    pub server_id: Option<InstanceId>,
    /// The wall clock. Without one, no certificate is accepted.
    pub now: Option<UnixTime>,
}

const VERSION: u8 = 1;
/// Bytes that the signature covers, in addition to label and application.
const SIGNED_LEN: usize = 81;
const LABEL: &[u8] = b"tw1 server cert";
/// Length of what a root signs.
const MESSAGE_LEN: usize = 104;

const _: () = assert!(LABEL.len() + 8 + SIGNED_LEN == MESSAGE_LEN);
const _: () = assert!(1 + 65 + 8 + 7 == SIGNED_LEN && SIGNED_LEN + 64 == Certificate::LEN);

impl Certificate {
    /// Length in bytes.
    pub const LEN: usize = 145;

    /// Issues a certificate by `root` for a server of the application `app_id`.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the provider has no randomness.
    pub fn issue<P: Provider>(
        provider: &mut P,
        root: &Identity,
        app_id: u64,
        subject: &Subject,
    ) -> Result<Self, NoEntropy> {
        // 64-bit milliseconds are fewer seconds than 7 bytes hold.
        let [_, end @ ..] = subject.not_after.as_secs().to_be_bytes();
        let mut certificate = Self(concat(&[
            &[VERSION],
            &subject.key.0,
            &subject.server_id.0.to_be_bytes(),
            &end,
        ]));
        let key = provider.signing_key(root)?;
        let signature = provider.sign(&key, &certificate.message(app_id))?;
        if let Some(field) = certificate.0.last_chunk_mut() {
            *field = signature;
        }
        Ok(certificate)
    }

    /// Parses a certificate; `None` if its version is not 1.
    #[must_use]
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        match bytes {
            [VERSION, ..] => Some(Self(*bytes)),
            _ => None,
        }
    }

    /// Returns the bytes.
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// Returns its content, which is authentic only if [`check`](Self::check) returns `Ok`.
    #[must_use]
    pub fn subject(&self) -> Subject {
        let [_, rest @ ..] = &self.0;
        let (key, rest) = rest.split_first_chunk().unwrap_or((&[0; 65], &[]));
        let (server_id, rest) = rest.split_first_chunk().unwrap_or((&[0; 8], &[]));
        Subject {
            key: PublicKey(*key),
            server_id: InstanceId(u64::from_be_bytes(*server_id)),
            not_after: UnixTime::from_secs(u64::from_be_bytes(concat(&[&[0], rest]))),
        }
    }

    /// Checks that the certificate is valid now and matches `expected`. It is accepted for 5 s
    /// after its end, as tokens are, because clocks differ.
    ///
    /// # Errors
    ///
    /// [`CertificateError`] names the first fault. The signature is checked first: the content is
    /// read only if a root key has signed it.
    pub fn check<P: Provider>(
        &self,
        provider: &P,
        expected: &Expected<'_>,
    ) -> Result<Subject, CertificateError> {
        let message = self.message(expected.app_id);
        let signature = self.0.last_chunk().unwrap_or(&[0; 64]);
        let is_signed = expected
            .roots
            .iter()
            .any(|root| provider.verify(root, &message, signature));
        if !is_signed {
            return Err(CertificateError::Issuer);
        }
        let subject = self.subject();
        if expected.server_id.is_some_and(|id| id != subject.server_id) {
            return Err(CertificateError::OtherServer(subject.server_id));
        }
        let now = expected.now.ok_or(CertificateError::NoClock)?;
        // The certificate is valid until the end of its last second.
        let age = now.as_secs().saturating_sub(subject.not_after.as_secs());
        if age > CLOCK_SKEW.as_secs() {
            return Err(CertificateError::Expired);
        }
        Ok(subject)
    }

    fn message(&self, app_id: u64) -> [u8; MESSAGE_LEN] {
        let signed = self.0.get(..SIGNED_LEN).unwrap_or_default();
        concat(&[LABEL, &app_id.to_be_bytes(), signed])
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = self.subject();
        f.debug_struct("Certificate")
            .field("key", &subject.key)
            .field("server_id", &subject.server_id)
            .field("not_after", &subject.not_after)
            .finish_non_exhaustive()
    }
}

/// Why a certificate is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateError {
    /// No root key has signed it for this application.
    Issuer,
    /// It names another instance.
    OtherServer(InstanceId),
    /// It expired more than the clock skew ago.
    Expired,
    /// The wall clock was never set.
    NoClock,
}

wire::error_text! { CertificateError {
    Self::Issuer => "no root key has signed the certificate for this application",
    Self::OtherServer(id) => "the certificate is good for server instance {id}",
    Self::Expired => "the certificate has expired",
    Self::NoClock => "without a wall clock no certificate is believed",
}}

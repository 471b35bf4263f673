//! The handshake: HELLO, RETRY, ACCEPT, CONFIRM.
//!
//! One module for each datagram ([`hello`], [`accept`], [`reply`]) and for each side's state
//! (`dial`, `half_open`, `token_cache`, [`cookie`]). `endpoint::admission` holds the order of a
//! server's checks.

pub mod accept;
pub mod cookie;
pub(crate) mod dial;
pub(crate) mod half_open;
pub mod hello;
pub mod params;
pub(crate) mod peer;
pub mod reply;
pub mod reset;
pub(crate) mod target;
pub(crate) mod token_cache;
pub(crate) mod trust;

use crypto::Provider;

use hello::Hello0;

/// How a client authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// With a connect token and its PSK.
    Token,
    /// It does not.
    Open,
    /// With the network secret and its identity key.
    Peer,
}

/// Returns th0, which binds the key of ACCEPT's sealed part: SHA-256 over HELLO0 and the clear part
/// of ACCEPT.
pub(crate) fn transcript_0<P: Provider>(
    provider: &P,
    hello: &Hello0<'_>,
    clear: &[u8],
) -> [u8; 32] {
    let [a, b, c] = hello.parts();
    provider.sha256(&[a, b, c, clear])
}

/// Returns th1, which binds all session keys: SHA-256 over HELLO0 and the encoded ACCEPT.
pub(crate) fn transcript_1<P: Provider>(
    provider: &P,
    hello: &Hello0<'_>,
    accept: &[u8],
) -> [u8; 32] {
    transcript_0(provider, hello, accept)
}

/// The first version, and the only one with a layout of its own.
pub const VERSION_1: u32 = 0x5457_0001;
/// A version with the layout of version 1, used only on request. It exercises version negotiation
/// before a second version exists. RFC 9000, section 15, reserves versions for this purpose.
pub const VERSION_TRIAL: u32 = 0x5457_0A0A;

/// Versions that an endpoint supports; always includes version 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpokenVersions {
    /// Version 1.
    #[default]
    One,
    /// Version 1 and the trial version, which ranks higher.
    WithTrial,
}

impl SpokenVersions {
    /// Returns the versions, lowest first.
    #[must_use]
    pub const fn as_slice(self) -> &'static [u32] {
        match self {
            Self::One => &[VERSION_1],
            Self::WithTrial => &[VERSION_1, VERSION_TRIAL],
        }
    }

    /// Returns the highest version.
    #[must_use]
    pub const fn best(self) -> u32 {
        match self {
            Self::One => VERSION_1,
            Self::WithTrial => VERSION_TRIAL,
        }
    }

    /// Returns whether `version` is supported.
    #[must_use]
    pub fn contains(self, version: u32) -> bool {
        self.as_slice().contains(&version)
    }
}

/// Returns whether the layout of `version` is known.
pub(crate) const fn is_known(version: u32) -> bool {
    matches!(version, VERSION_1 | VERSION_TRIAL)
}

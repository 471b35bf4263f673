//! HELLO, RETRY, ACCEPT, CONFIRM: how two ends come to share keys.
//!
//! One file for each datagram ([`hello`], [`accept`], [`reply`]) and for what each side keeps
//! meanwhile (`dial`, `half_open`, `token_cache`, [`cookie`]). The order in which a server
//! checks stands in `endpoint::admission`.

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

/// How a client shows that it may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By a connect token and the PSK that came with it.
    Token,
    /// Not at all.
    Open,
    /// By the network secret, and then by its identity key.
    Peer,
}

/// Returns th0, which the key of ACCEPT's sealed part is bound to: SHA-256 over HELLO0 and the
/// clear part of ACCEPT.
pub(crate) fn transcript_0<P: Provider>(
    provider: &P,
    hello: &Hello0<'_>,
    clear: &[u8],
) -> [u8; 32] {
    let [a, b, c] = hello.parts();
    provider.sha256(&[a, b, c, clear])
}

/// Returns th1, which all session keys are bound to: SHA-256 over HELLO0 and the whole ACCEPT as
/// it is on the wire.
pub(crate) fn transcript_1<P: Provider>(
    provider: &P,
    hello: &Hello0<'_>,
    accept: &[u8],
) -> [u8; 32] {
    transcript_0(provider, hello, accept)
}

/// The first version, and the only one with a layout of its own.
pub const VERSION_1: u32 = 0x5457_0001;
/// Laid out as version 1 and spoken by nobody who is not told to: so that the choice of a version is
/// made, and tested, before there are two. RFC 9000, section 15, reserves versions for the same.
pub const VERSION_TRIAL: u32 = 0x5457_0A0A;

/// Versions that an endpoint speaks; version 1 is always among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpokenVersions {
    /// Version 1.
    #[default]
    One,
    /// Version 1 and the trial version, which counts as the higher one.
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

    /// Returns the highest one.
    #[must_use]
    pub const fn best(self) -> u32 {
        match self {
            Self::One => VERSION_1,
            Self::WithTrial => VERSION_TRIAL,
        }
    }

    /// Returns whether `version` is among them.
    #[must_use]
    pub fn contains(self, version: u32) -> bool {
        self.as_slice().contains(&version)
    }
}

/// Returns whether `version` has a layout that is read here.
pub(crate) const fn is_known(version: u32) -> bool {
    matches!(version, VERSION_1 | VERSION_TRIAL)
}

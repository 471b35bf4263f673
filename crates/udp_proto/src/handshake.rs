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
pub mod version;

use crypto::Provider;

use hello::Hello0;

pub use version::{SpokenVersions, VERSION_1, VERSION_TRIAL};

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

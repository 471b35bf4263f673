//! Proxies whose headers are trusted.

use core::net::IpAddr;

use udp_proto::Prefix;
use wire::proxy_header::Ends;

use super::header::Header;

/// The proxies whose headers a server trusts; by default none.
///
/// A header proves nothing: trust depends on its sender's address, so make sure that nobody else
/// can send from it. Prefixes have the limits of block lists: 8 to 32 bits for IPv4, 16 to 128 for
/// IPv6, so that none covers every address. IPv4-mapped IPv6 addresses are matched as IPv4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    /// At most [`PREFIXES_MAX`]; a lookup scans all.
    prefixes: Vec<Prefix>,
    policy: HeaderPolicy,
}

/// Whether a trusted proxy must send a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HeaderPolicy {
    /// It must, as section 2 of the specification requires: a proxy that adds none would forward a
    /// header that a player forged.
    #[default]
    Required,
    /// It may: for hosts that are also players, whose data without a header are their own. If the
    /// proxy writes a header only before a flow's first datagram, a player's later datagram may
    /// look like one: the caller must then track which player a flow belongs to.
    Optional,
}

impl TrustedProxies {
    /// Trusts addresses in any of `prefixes`.
    ///
    /// # Errors
    ///
    /// [`TrustError::TooMany`] if there are more than [`PREFIXES_MAX`].
    pub fn new(prefixes: Vec<Prefix>, policy: HeaderPolicy) -> Result<Self, TrustError> {
        if prefixes.len() > PREFIXES_MAX {
            return Err(TrustError::TooMany(prefixes.len()));
        }
        Ok(Self { prefixes, policy })
    }

    /// Trusts addresses in any of `texts`: `10.0.0.0/8`, `2001:db8::/32`, or a single address.
    ///
    /// # Errors
    ///
    /// [`TrustError`], which names the invalid text.
    pub fn parse<'a>(
        texts: impl IntoIterator<Item = &'a str>,
        policy: HeaderPolicy,
    ) -> Result<Self, TrustError> {
        let prefix = |text: &str| {
            let prefix = text.parse::<Prefix>();
            prefix.map_err(|error| TrustError::Prefix {
                text: text.to_owned(),
                fault: error.to_string(),
            })
        };
        // One more than allowed, so that an endless iterator ends.
        let texts = texts.into_iter().take(PREFIXES_MAX.saturating_add(1));
        Self::new(texts.map(prefix).collect::<Result<_, _>>()?, policy)
    }

    /// Returns whether headers from `peer` are trusted.
    #[must_use]
    pub fn is_trusted(&self, peer: IpAddr) -> bool {
        self.prefixes.iter().any(|prefix| prefix.contains(peer))
    }

    /// Returns the flow that `peer` proxies according to `header`; `None` if it is its own.
    ///
    /// If only proxies should connect, check [`is_trusted`](Self::is_trusted) before reading
    /// anything.
    ///
    /// # Errors
    ///
    /// [`PolicyViolation`] if the input must be dropped.
    pub fn judge(
        &self,
        peer: IpAddr,
        header: Option<&Header<'_>>,
    ) -> Result<Option<Ends>, PolicyViolation> {
        self.judge_by(self.policy, peer, header)
    }

    /// As [`judge`](Self::judge), with another policy.
    pub(crate) fn judge_by(
        &self,
        policy: HeaderPolicy,
        peer: IpAddr,
        header: Option<&Header<'_>>,
    ) -> Result<Option<Ends>, PolicyViolation> {
        match (header, self.is_trusted(peer)) {
            (Some(header), true) => Ok(header.ends()),
            (Some(_), false) => Err(PolicyViolation::Untrusted),
            (None, true) if policy == HeaderPolicy::Required => Err(PolicyViolation::Missing),
            (None, _) => Ok(None),
        }
    }
}

/// Why a connection or datagram is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyViolation {
    /// An untrusted peer sent a header.
    Untrusted,
    /// A trusted proxy did not send a required header.
    Missing,
}

wire::error_text! { PolicyViolation {
    Self::Untrusted => "a PROXY protocol header from an untrusted address",
    Self::Missing => "a trusted proxy sent no PROXY protocol header",
}}

/// Why a set of proxies is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrustError {
    /// A text is not a prefix.
    Prefix {
        /// The text.
        text: String,
        /// The reason.
        fault: String,
    },
    /// There are at least this many prefixes.
    TooMany(usize),
}

wire::error_text! { TrustError {
    Self::Prefix { text, fault } => "{text:?}: {fault}",
    Self::TooMany(count) => "{count} prefixes, over the limit of {PREFIXES_MAX}",
}}

/// Most prefixes of a set.
pub const PREFIXES_MAX: usize = 1_024;

//! Whose headers are believed.

use core::fmt;
use core::net::IpAddr;

use udp_proto::Prefix;

use super::header::{Ends, Header};

/// The proxies that a server believes when they say whom they speak for; by default none.
///
/// A header proves nothing, so what is believed is the address that it came from: keep everybody else from
/// sending with it. Prefixes are those of block lists: of IPv4 8 to 32 bits long, of IPv6 16 to 128, so that
/// none is everybody. An IPv4 address mapped into IPv6 is judged as the IPv4 address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    /// At most [`PREFIXES_MAX`]; a look-up goes over all of them.
    prefixes: Vec<Prefix>,
    need: HeaderPolicy,
}

/// Whether what a trusted proxy sends must begin with a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HeaderPolicy {
    /// It must, as the specification has it in section 2: a proxy that writes none would pass on a header that
    /// a player wrote.
    #[default]
    Required,
    /// It need not: for hosts that are also players. What it sends bare is its own. Where it passes datagrams on and
    /// writes a header before the first of a flow alone, a player's own words may look like one: who believes it has
    /// to remember whose flow it is.
    Optional,
}

impl TrustedProxies {
    /// Trusts who is in any of `prefixes`.
    ///
    /// # Errors
    ///
    /// [`TrustError::TooMany`] where they are over [`PREFIXES_MAX`].
    pub fn new(prefixes: Vec<Prefix>, need: HeaderPolicy) -> Result<Self, TrustError> {
        if prefixes.len() > PREFIXES_MAX {
            return Err(TrustError::TooMany(prefixes.len()));
        }
        Ok(Self { prefixes, need })
    }

    /// Trusts who is in any of `texts`: `10.0.0.0/8`, `2001:db8::/32`, or an address alone.
    ///
    /// # Errors
    ///
    /// [`TrustError`], which names the text that is no prefix.
    pub fn parse<'a>(
        texts: impl IntoIterator<Item = &'a str>,
        need: HeaderPolicy,
    ) -> Result<Self, TrustError> {
        let prefix = |text: &str| {
            let prefix = text.parse::<Prefix>();
            prefix.map_err(|error| TrustError::Prefix {
                text: text.to_owned(),
                fault: error.to_string(),
            })
        };
        let texts = texts.into_iter();
        // One more than may be, so that a list without an end has one.
        let prefixes: Result<Vec<_>, _> = texts
            .take(PREFIXES_MAX.saturating_add(1))
            .map(prefix)
            .collect();
        Self::new(prefixes?, need)
    }

    /// Returns whether the headers of `peer` are believed.
    #[must_use]
    pub fn is_trusted(&self, peer: IpAddr) -> bool {
        self.prefixes.iter().any(|prefix| prefix.contains(peer))
    }

    /// Says for whom `peer` speaks, which sent `header`, or none; `None` where for itself.
    ///
    /// Where nobody but proxies has business, ask [`is_trusted`](Self::is_trusted) before anything is read.
    ///
    /// # Errors
    ///
    /// [`PolicyViolation`] where what came is to be dropped.
    pub fn judge(
        &self,
        peer: IpAddr,
        header: Option<&Header<'_>>,
    ) -> Result<Option<Ends>, PolicyViolation> {
        self.judge_by(self.need, peer, header)
    }

    /// As [`judge`](Self::judge), by another need than the set's own.
    pub(crate) fn judge_by(
        &self,
        need: HeaderPolicy,
        peer: IpAddr,
        header: Option<&Header<'_>>,
    ) -> Result<Option<Ends>, PolicyViolation> {
        match (header, self.is_trusted(peer)) {
            (Some(header), true) => Ok(header.ends()),
            (Some(_), false) => Err(PolicyViolation::Untrusted),
            (None, true) if need == HeaderPolicy::Required => Err(PolicyViolation::Missing),
            (None, _) => Ok(None),
        }
    }
}

/// Why nothing is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyViolation {
    /// A header from somebody who is not trusted.
    Untrusted,
    /// No header from a trusted proxy that must write one.
    Missing,
}

impl fmt::Display for PolicyViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Untrusted => "a header of the PROXY protocol from who is no trusted proxy",
            Self::Missing => "a trusted proxy wrote no header of the PROXY protocol",
        })
    }
}

impl core::error::Error for PolicyViolation {}

/// Why there is no such set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrustError {
    /// A text is no prefix.
    Prefix {
        /// As it came.
        text: String,
        /// What is wrong with it.
        fault: String,
    },
    /// There are as many prefixes, or at least so many.
    TooMany(usize),
}

impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix { text, fault } => write!(f, "{text:?}: {fault}"),
            Self::TooMany(count) => write!(f, "{count} prefixes are over {PREFIXES_MAX}"),
        }
    }
}

impl core::error::Error for TrustError {}

/// Most prefixes of a set.
pub const PREFIXES_MAX: usize = 1_024;

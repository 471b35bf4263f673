//! The conditioners of a driver, or the lack of them.

use wire::Instant;

#[cfg(feature = "conditioner")]
use crate::conditioner::Conditioner;

/// What stands between a driver's sockets and its machine, in each direction.
#[derive(Debug, Default)]
pub(crate) struct Conditioners {
    /// Delays what arrives.
    pub(crate) inbound: Option<Conditioner>,
    /// Delays what leaves.
    pub(crate) outbound: Option<Conditioner>,
}

impl Conditioners {
    /// Returns when the next datagram has been delayed enough.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [&self.inbound, &self.outbound]
            .into_iter()
            .flatten()
            .filter_map(Conditioner::poll_timeout)
            .min()
    }

    /// Returns whether nothing waits to leave.
    pub(super) fn is_sent(&self) -> bool {
        self.outbound
            .as_ref()
            .is_none_or(|conditioner| conditioner.poll_timeout().is_none())
    }
}

/// Stands in where the feature is absent. There is none of it, so that the compiler removes
/// whatever asks it.
#[cfg(not(feature = "conditioner"))]
#[derive(Debug)]
pub(crate) enum Conditioner {}

#[cfg(not(feature = "conditioner"))]
impl Conditioner {
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        match *self {}
    }

    pub(super) const fn has_rule(&self, _: &super::Envelope) -> bool {
        match *self {}
    }

    pub(super) const fn take(
        &mut self,
        _: Instant,
        _: super::Envelope,
        _: &[u8],
        _: &super::Ledger,
    ) {
        match *self {}
    }

    pub(super) const fn pop_due(&mut self, _: Instant) -> Option<(super::Envelope, Vec<u8>)> {
        match *self {}
    }
}

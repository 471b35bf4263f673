//! The optional conditioners of a driver.

use wire::Instant;

#[cfg(feature = "conditioner")]
use crate::conditioner::Conditioner;

/// The conditioners between a driver's sockets and its machine.
#[derive(Debug, Default)]
pub(crate) struct Conditioners {
    /// Applies to received datagrams.
    pub(crate) inbound: Option<Conditioner>,
    /// Applies to sent datagrams.
    pub(crate) outbound: Option<Conditioner>,
}

impl Conditioners {
    /// Returns when the next delayed datagram is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [&self.inbound, &self.outbound]
            .into_iter()
            .flatten()
            .filter_map(Conditioner::poll_timeout)
            .min()
    }

    /// Returns whether no outbound datagram is delayed.
    pub(super) fn is_sent(&self) -> bool {
        self.outbound
            .as_ref()
            .is_none_or(|conditioner| conditioner.poll_timeout().is_none())
    }
}

/// Placeholder without the feature. It is uninhabited, so the compiler removes the code that uses
/// it.
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

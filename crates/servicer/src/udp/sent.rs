//! What became of what was sent, and of whom an error tells.

use std::io::{self, ErrorKind};
use std::ops::AddAssign;

use super::batch::is_full;

/// What became of the datagrams of one send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// System calls that were made for it.
    pub(crate) calls: u64,
    /// Taken by the system.
    pub(crate) datagrams: u64,
    /// Dropped because the send buffer was full.
    pub(crate) full: u64,
    /// Dropped because they are longer than the path or the interface carries.
    pub(crate) too_large: u64,
    /// Reports that something could not be delivered.
    pub(crate) unreachable: u64,
    /// Dropped because the system refused them for another reason.
    pub(crate) refused: u64,
}

impl Sent {
    /// Returns whether the system took all of it.
    pub(super) const fn is_taken(&self) -> bool {
        self.full == 0 && self.too_large == 0 && self.unreachable == 0 && self.refused == 0
    }

    /// Counts the fate of one datagram.
    pub(super) fn note(&mut self, result: &io::Result<()>) {
        match result {
            Ok(()) => self.datagrams += 1,
            Err(error) if is_full(error) => self.full += 1,
            Err(error) if quinn_udp::is_msg_size_err(error) => self.too_large += 1,
            Err(error) if is_unreachable(error) => self.unreachable += 1,
            Err(_) => self.refused += 1,
        }
    }
}

impl AddAssign for Sent {
    fn add_assign(&mut self, more: Self) {
        self.calls += more.calls;
        self.datagrams += more.datagrams;
        self.full += more.full;
        self.too_large += more.too_large;
        self.unreachable += more.unreachable;
        self.refused += more.refused;
    }
}

/// Returns whether `error` tells that a datagram did not reach its peer: ICMP unreachable, or no
/// route.
pub(super) fn is_unreachable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fate_has_its_count() {
        let mut sent = Sent::default();
        sent.note(&Ok(()));
        sent.note(&Err(ErrorKind::WouldBlock.into()));
        sent.note(&Err(ErrorKind::ConnectionRefused.into()));
        sent.note(&Err(ErrorKind::ConnectionReset.into()));
        sent.note(&Err(ErrorKind::NetworkUnreachable.into()));
        sent.note(&Err(ErrorKind::PermissionDenied.into()));
        let counted = Sent {
            calls: 0,
            datagrams: 1,
            full: 1,
            too_large: 0,
            unreachable: 3,
            refused: 1,
        };
        assert_eq!(sent, counted);
    }
}

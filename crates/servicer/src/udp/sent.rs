//! Results of sends, and the classification of send errors.

use std::io::{self, ErrorKind};

use super::batch::is_full;

/// The results of one send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// System calls made.
    pub(crate) calls: u64,
    /// Datagrams that the system accepted.
    pub(crate) datagrams: u64,
    /// Datagrams dropped because the send buffer was full.
    pub(crate) full: u64,
    /// Datagrams dropped because they exceed the MTU of the path or the interface.
    pub(crate) too_large: u64,
    /// Reports that a datagram was undeliverable.
    pub(crate) unreachable: u64,
    /// Datagrams dropped because the system rejected them for another reason.
    pub(crate) refused: u64,
}

impl Sent {
    /// Returns whether the system accepted all datagrams.
    pub(super) const fn is_taken(&self) -> bool {
        self.full == 0 && self.too_large == 0 && self.unreachable == 0 && self.refused == 0
    }

    /// Counts the result of one datagram.
    pub(super) fn note(&mut self, result: &io::Result<()>) {
        let counter = match result {
            Ok(()) => &mut self.datagrams,
            Err(error) if is_full(error) => &mut self.full,
            Err(error) if quinn_udp::is_msg_size_err(error) => &mut self.too_large,
            Err(error) if is_unreachable(error) => &mut self.unreachable,
            Err(_) => &mut self.refused,
        };
        *counter = counter.saturating_add(1);
    }

    /// Counts the result of a retried datagram. `first` may have reported an earlier datagram. The
    /// system reports each such error once, so if the same error recurs, it belongs to this
    /// datagram.
    pub(super) fn note_again(&mut self, first: &io::Error, second: &io::Result<()>) {
        let is_own = matches!(second, Err(error) if is_same(error, first));
        if !is_own {
            self.unreachable = self.unreachable.saturating_add(1);
        }
        self.note(second);
    }

    /// Adds the results of other datagrams.
    pub(crate) const fn add(&mut self, more: Self) {
        self.calls = self.calls.saturating_add(more.calls);
        self.datagrams = self.datagrams.saturating_add(more.datagrams);
        self.full = self.full.saturating_add(more.full);
        self.too_large = self.too_large.saturating_add(more.too_large);
        self.unreachable = self.unreachable.saturating_add(more.unreachable);
        self.refused = self.refused.saturating_add(more.refused);
    }
}

/// Returns whether `error` reports an undeliverable datagram: ICMP unreachable, or no route.
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

/// Returns whether Linux may derive `error` from an ICMP message, of IPv4 (`icmp_err_convert` and
/// `__udp4_lib_err`) or of IPv6 (`icmpv6_err_convert`). The call itself can also fail with some of
/// them.
#[cfg(has_linux_calls)]
pub(super) fn is_of_icmp(error: &io::Error) -> bool {
    use nix::libc;

    matches!(
        error.raw_os_error(),
        Some(
            libc::EACCES
                | libc::ECONNREFUSED
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::EMSGSIZE
                | libc::ENETUNREACH
                | libc::ENONET
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
                | libc::EPROTO
        )
    )
}

/// On other systems sockets are never connected.
#[cfg(not(has_linux_calls))]
pub(super) const fn is_of_icmp(_: &io::Error) -> bool {
    false
}

fn is_same(one: &io::Error, other: &io::Error) -> bool {
    (one.raw_os_error(), one.kind()) == (other.raw_os_error(), other.kind())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_comes_again_was_the_datagrams_own() {
        let (refused, no_route) = (
            ErrorKind::ConnectionRefused.into(),
            ErrorKind::NetworkUnreachable.into(),
        );
        for (first, second, [datagrams, unreachable, denied]) in [
            (&refused, Ok(()), [1, 1, 0]),
            (&refused, Err(ErrorKind::PermissionDenied), [0, 1, 1]),
            (&no_route, Err(ErrorKind::ConnectionRefused), [0, 2, 0]),
            (&no_route, Err(ErrorKind::NetworkUnreachable), [0, 1, 0]),
        ] {
            let mut sent = Sent::default();
            sent.note_again(first, &second.map_err(io::Error::from));
            let expected = Sent {
                datagrams,
                unreachable,
                refused: denied,
                ..Sent::default()
            };
            assert_eq!(sent, expected, "{first} {second:?}");
        }
    }

    /// An error attributed to an earlier datagram is retried at once, so a permanent one would
    /// loop.
    #[cfg(has_linux_calls)]
    #[test]
    fn an_error_that_may_last_is_none_of_icmp() {
        use nix::libc;

        let of = |error| is_of_icmp(&io::Error::from_raw_os_error(error));
        for error in [libc::ENOPROTOOPT, libc::EMSGSIZE, libc::EACCES] {
            assert!(of(error), "{error}");
        }
        for error in [libc::ENOMEM, libc::EPERM, libc::EAGAIN, libc::ENOBUFS] {
            assert!(!of(error), "{error}");
        }
    }

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

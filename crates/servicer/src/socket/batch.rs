//! A batch of outbound datagrams in one buffer, with their destinations.

use std::io::{self, ErrorKind};
use std::ops::Range;

#[cfg(has_linux_calls)]
pub(crate) use super::linux::Headers;
use super::{Outbound, SEGMENTED_BYTES_MAX, SocketIndex, count};

/// How many datagrams one system call may carry.
///
/// All modes send the same datagrams in the same order and count the same results. If the system
/// does not support a mode or rejects it, the next simpler mode is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Batching {
    /// One in each direction.
    One,
    /// Up to 64 outbound, to any destinations, and up to 32 inbound: `sendmmsg` and `recvmmsg`
    /// (Linux, Android). On other systems one.
    Many,
    /// As `Many`, and each of the 64 may be a run of datagrams to one peer, all of one length
    /// except a shorter last one, which the system splits: segmentation offload (Linux 4.18).
    #[default]
    Segmented,
}

/// Outbound datagrams, to be sent together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// Their runs in order, without gaps.
    runs: Vec<Run>,
    /// Reused message headers for the system call.
    headers: Headers,
}

/// Empty: the system has no call for several datagrams.
#[cfg(not(has_linux_calls))]
#[derive(Debug, Default)]
pub(crate) struct Headers;

/// One datagram, or several of one length with the same source and destination.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) socket: SocketIndex,
    /// Source and destination. It has a segment length only if there are several datagrams.
    pub(crate) outbound: Outbound,
    pub(crate) range: Range<usize>,
}

impl Batch {
    /// Buffer to which a machine appends its next datagram. Take [`len`](Self::len) before.
    pub(crate) const fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    pub(crate) fn since(&self, len: usize) -> &[u8] {
        self.bytes.get(len..).unwrap_or_default()
    }

    /// Returns whether the batch must be sent before more is added.
    pub(crate) const fn is_full(&self) -> bool {
        self.runs.len() >= RUNS_MAX || self.bytes.len() >= BYTES_MAX
    }

    /// Adds the bytes after the first `start`, to be sent by `socket` in runs of up to
    /// `segments_max` datagrams.
    pub(crate) fn push(
        &mut self,
        socket: SocketIndex,
        outbound: Outbound,
        start: usize,
        segments_max: usize,
    ) {
        let end = self.bytes.len();
        let segment = outbound
            .segment_len
            .map_or_else(|| end.saturating_sub(start), |len| usize::from(len.get()))
            .max(1);
        let outbound = Outbound {
            segment_len: None,
            ..outbound
        };
        let mut begin = start;
        loop {
            let range = begin..begin.saturating_add(segment).min(end);
            begin = range.end;
            let is_joined = self
                .runs
                .last_mut()
                .is_some_and(|last| last.join(socket, &outbound, &range, segments_max));
            if !is_joined {
                self.runs.push(Run {
                    socket,
                    outbound,
                    range,
                });
            }
            if begin >= end {
                return;
            }
        }
    }

    /// Passes all runs to `send`, grouped by socket, and empties the batch.
    pub(crate) fn flush(
        &mut self,
        mut send: impl FnMut(SocketIndex, &[Run], &[u8], &mut Headers) -> Sent,
    ) -> Sent {
        let mut sent = Sent::default();
        for runs in self.runs.chunk_by(|one, next| one.socket == next.socket) {
            if let [first, ..] = runs {
                sent.add(send(first.socket, runs, &self.bytes, &mut self.headers));
            }
        }
        self.runs.clear();
        self.bytes.clear();
        sent
    }
}

impl Run {
    /// Appends the adjacent datagram at `range` if it has the same source, destination and length.
    /// Returns whether it was appended.
    fn join(
        &mut self,
        socket: SocketIndex,
        outbound: &Outbound,
        range: &Range<usize>,
        segments_max: usize,
    ) -> bool {
        let segment = self.segment();
        let segments = self.range.len().checked_div(segment).unwrap_or(0);
        let fits = !range.is_empty()
            && range.len() <= segment
            // A shorter datagram ends a run.
            && self.range.len().is_multiple_of(segment)
            && !self.range.is_empty()
            && segments < segments_max
            && range.end.saturating_sub(self.range.start) <= SEGMENTED_BYTES_MAX;
        let is_same = self.socket == socket
            && self.outbound.destination == outbound.destination
            && self.outbound.source == outbound.source
            && self.outbound.ecn == outbound.ecn;
        let Some(len) = u16::try_from(segment)
            .ok()
            .and_then(std::num::NonZeroU16::new)
            .filter(|_| fits && is_same)
        else {
            return false;
        };
        self.outbound.segment_len = Some(len);
        self.range.end = range.end;
        true
    }

    /// Length of each datagram except the last, bytes.
    fn segment(&self) -> usize {
        self.outbound
            .segment_len
            .map_or_else(|| self.range.len(), |len| usize::from(len.get()))
            .max(1)
    }

    pub(crate) fn count(&self) -> u64 {
        count(self.range.len(), self.segment())
    }
}

/// The send calls of the system.
pub(crate) trait DatagramSink {
    /// Sends the first of `runs` and as many more as one call takes. Returns how many, or the error
    /// of the first run, which was not sent.
    fn send_many(&mut self, runs: &[Run]) -> io::Result<usize>;

    /// Whether [`send_many`](Self::send_many) is usable now.
    fn can_send_many(&self) -> bool;

    /// Records the result of sending a run alone that `send_many` rejected.
    fn on_sent_alone(&mut self, sent: &Sent);

    /// Sends one run and counts the result.
    fn send_alone(&mut self, run: &Run) -> Sent;
}

/// Sends all of `runs` in order.
///
/// An error of a batch belongs to its first run. That run is sent alone, so its result is the same
/// as without a batch, and the runs after it are sent as usual. If the buffer is full, the run is
/// dropped without a retry, because an immediate retry would be a busy wait.
pub(crate) fn send_in_order(runs: &[Run], sink: &mut impl DatagramSink) -> Sent {
    let mut sent = Sent::default();
    let mut left = runs;
    while let [first, rest @ ..] = left {
        if rest.is_empty() || !sink.can_send_many() {
            sent.add(sink.send_alone(first));
            left = rest;
            continue;
        }
        sent.calls = sent.calls.saturating_add(1);
        match sink.send_many(left) {
            Ok(taken) => {
                let (taken, behind) = left.split_at_checked(taken.max(1)).unwrap_or((left, &[]));
                sent.datagrams = sent
                    .datagrams
                    .saturating_add(taken.iter().map(Run::count).sum::<u64>());
                left = behind;
                continue;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if is_full(&error) => sent.full = sent.full.saturating_add(first.count()),
            Err(_) => {
                let alone = sink.send_alone(first);
                sink.on_sent_alone(&alone);
                sent.add(alone);
            }
        }
        left = rest;
    }
    sent
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
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
    pub(super) const fn is_complete(&self) -> bool {
        self.full == 0 && self.too_large == 0 && self.unreachable == 0 && self.refused == 0
    }

    pub(super) fn count(&mut self, result: &io::Result<()>) {
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
    pub(super) fn count_retry(&mut self, first: &io::Error, second: &io::Result<()>) {
        let is_own = matches!(second, Err(error) if is_same(error, first));
        if !is_own {
            self.unreachable = self.unreachable.saturating_add(1);
        }
        self.count(second);
    }

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

/// Returns whether `error` means that the socket's buffer or the interface's queue is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock || is_out_of_buffers(error)
}

fn is_out_of_buffers(error: &io::Error) -> bool {
    error.raw_os_error() == Some(NO_BUFFERS)
}

/// `ENOBUFS`.
#[cfg(any(target_os = "android", target_os = "linux"))]
const NO_BUFFERS: i32 = nix::libc::ENOBUFS;
/// `WSAENOBUFS`.
#[cfg(windows)]
const NO_BUFFERS: i32 = 10_055;
/// `ENOBUFS` of macOS and the BSDs.
#[cfg(not(any(target_os = "android", target_os = "linux", windows)))]
const NO_BUFFERS: i32 = 55;

/// Maximum runs per system call.
pub(crate) const RUNS_MAX: usize = 64;
/// Maximum bytes of a batch: two runs of the longest, or what fits well into a second-level cache.
const BYTES_MAX: usize = 128 << 10;

#[cfg(test)]
mod tests;

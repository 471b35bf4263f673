//! A batch of outbound datagrams in one buffer, with their destinations.

use std::io::{self, ErrorKind};
use std::ops::Range;

#[cfg(has_linux_calls)]
pub(crate) use super::many::Heads;
use super::sent::Sent;
use super::socket::{Outbound, SEGMENTED_BYTES_MAX, count};
use crate::driver::SocketIndex;

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
    /// The datagrams, concatenated.
    bytes: Vec<u8>,
    /// Their runs in order, without gaps.
    runs: Vec<Run>,
    /// Reused message headers for the system call.
    heads: Heads,
}

/// Empty: the system has no call for several datagrams.
#[cfg(not(has_linux_calls))]
#[derive(Debug, Default)]
pub(crate) struct Heads;

/// One datagram, or several of one length with the same source and destination.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The socket to send from.
    pub(crate) socket: SocketIndex,
    /// Source and destination. It has a segment length only if there are several datagrams.
    pub(crate) outbound: Outbound,
    /// Range in the buffer.
    pub(crate) range: Range<usize>,
}

impl Batch {
    /// Buffer to which a machine appends its next datagram. Take [`len`](Self::len) before.
    pub(crate) const fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Bytes in the batch.
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Removes the bytes after the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// The bytes after the first `len`.
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
        mut send: impl FnMut(SocketIndex, &[Run], &[u8], &mut Heads) -> Sent,
    ) -> Sent {
        let mut sent = Sent::default();
        for runs in self.runs.chunk_by(|one, next| one.socket == next.socket) {
            if let [first, ..] = runs {
                sent.add(send(first.socket, runs, &self.bytes, &mut self.heads));
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

    /// Number of datagrams.
    pub(crate) fn count(&self) -> u64 {
        count(self.range.len(), self.segment())
    }
}

/// The send calls of the system.
pub(crate) trait Road {
    /// Sends the first of `runs` and as many more as one call takes. Returns how many.
    ///
    /// # Errors
    ///
    /// The error of the first run, which was not sent.
    fn many(&mut self, runs: &[Run]) -> io::Result<usize>;

    /// Whether [`many`](Self::many) is usable now.
    fn has_many(&self) -> bool;

    /// Records the result of sending a run alone that `many` rejected.
    fn note_alone(&mut self, fate: &Sent);

    /// Sends one run and counts the result.
    fn alone(&mut self, run: &Run) -> Sent;
}

/// Sends all of `runs` in order.
///
/// An error of a batch belongs to its first run. That run is sent alone, so its result is the same
/// as without a batch, and the runs after it are sent as usual. If the buffer is full, the run is
/// dropped without a retry, because an immediate retry would be a busy wait.
pub(crate) fn send_in_order(runs: &[Run], road: &mut impl Road) -> Sent {
    let mut sent = Sent::default();
    let mut left = runs;
    while let [first, rest @ ..] = left {
        if rest.is_empty() || !road.has_many() {
            sent.add(road.alone(first));
            left = rest;
            continue;
        }
        sent.calls = sent.calls.saturating_add(1);
        match road.many(left) {
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
                let fate = road.alone(first);
                road.note_alone(&fate);
                sent.add(fate);
            }
        }
        left = rest;
    }
    sent
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

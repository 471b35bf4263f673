//! What waits to be sent together: datagrams in one buffer, and whom each is for.

use std::io::{self, ErrorKind};
use std::ops::Range;

#[cfg(has_linux_calls)]
pub(crate) use super::many::Heads;
use super::sent::Sent;
use super::socket::{Outbound, SEGMENTED_BYTES_MAX, count};
use crate::driver::SocketIndex;

/// How many datagrams one system call may carry.
///
/// All ways send the same datagrams in the same order, and count the same fates. Where the system
/// does not know a way, or refuses it, the next one below takes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Batching {
    /// One, in either direction.
    One,
    /// Up to 64, each for whom it may be, and up to 32 that have come: `sendmmsg` and `recvmmsg`
    /// (Linux, Android). Elsewhere one.
    Many,
    /// The same, and each of those 64 may be a run of datagrams to one peer, of one length but for
    /// the last, that the system cuts up: segmentation offload (Linux 4.18).
    #[default]
    Segmented,
}

/// Datagrams that wait to be sent in one go.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The datagrams, one behind the other.
    bytes: Vec<u8>,
    /// Whom they are for, in order; no gaps between them.
    runs: Vec<Run>,
    /// Room for what the system wants to be told of each.
    heads: Heads,
}

/// Nothing: the system has no call for several.
#[cfg(not(has_linux_calls))]
#[derive(Debug, Default)]
pub(crate) struct Heads;

/// One datagram, or several of one length that go the same way.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The socket they leave by.
    pub(crate) socket: SocketIndex,
    /// Where they go; a length of segments only where there are several.
    pub(crate) outbound: Outbound,
    /// Where they are in the buffer.
    pub(crate) range: Range<usize>,
}

impl Batch {
    /// What a machine appends its next datagram to, and [`len`](Self::len) before that.
    pub(crate) const fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Bytes that wait.
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes back what was appended since there were `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// What was appended since there were `len` bytes.
    pub(crate) fn since(&self, len: usize) -> &[u8] {
        self.bytes.get(len..).unwrap_or_default()
    }

    /// Returns whether it is to be sent before more is added.
    pub(crate) const fn is_full(&self) -> bool {
        self.runs.len() >= RUNS_MAX || self.bytes.len() >= BYTES_MAX
    }

    /// Takes in what was appended since there were `start` bytes, to leave by `socket` in runs of up to
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

    /// Gives what waits to `send`, all of one socket at a time, and is empty then.
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
    /// Adds the datagram at `range`, which follows it, where it goes the same way; returns whether it
    /// does.
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
            // A shorter one is the last.
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

    /// Bytes of each datagram but the last.
    fn segment(&self) -> usize {
        self.outbound
            .segment_len
            .map_or_else(|| self.range.len(), |len| usize::from(len.get()))
            .max(1)
    }

    /// How many datagrams it is.
    pub(crate) fn count(&self) -> u64 {
        count(self.range.len(), self.segment())
    }
}

/// The ways to the system.
pub(crate) trait Road {
    /// Sends the first of `runs` and as many more as it can in one call, and returns how many.
    ///
    /// # Errors
    ///
    /// The first one's; it was not sent.
    fn many(&mut self, runs: &[Run]) -> io::Result<usize>;

    /// Whether [`many`](Self::many) is of use now.
    fn has_many(&self) -> bool;

    /// Takes note of how one fared that `many` refused.
    fn note_alone(&mut self, fate: &Sent);

    /// Sends one, by whatever way there is, and counts what became of it.
    fn alone(&mut self, run: &Run) -> Sent;
}

/// Sends all of `runs` in order.
///
/// An error belongs to the run it is told of: that one is sent by itself, so that its fate is what it
/// would be without a batch, and those behind it are sent as if nothing had been. Only a full buffer is
/// taken for an answer at once, since to ask again so soon would be to wait.
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

/// Returns whether `error` says that there is no room: in the socket's buffer, or in the interface's
/// queue.
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

/// Runs that one system call carries.
pub(crate) const RUNS_MAX: usize = 64;
/// Bytes after which no more are added: two runs of the longest, or what fits a second-level cache
/// with room to spare.
const BYTES_MAX: usize = 128 << 10;

#[cfg(test)]
mod tests;

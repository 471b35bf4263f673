//! Trace of a world: a hash over all steps, and the newest lines.

use core::cell::RefCell;
use core::fmt;
use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use siphasher::sip::SipHasher13;
use wire::Instant;

use crate::Datagram;

/// Running hash over every datagram's time, fate, addresses and bytes, and a log of the newest.
///
/// Equal hashes mean equal runs. The hash is SipHash-1-3 with a zero key over little-endian fields,
/// so it can be compared between platforms. It detects differences, not tampering.
///
/// When a trace is dropped, its log is kept for its thread, so that
/// [`for_each_seed`](crate::for_each_seed) can print it if the seed fails.
#[derive(Clone)]
pub struct Trace {
    hasher: SipHasher13,
    /// Newest lines, oldest first; at most `capacity`.
    lines: VecDeque<Line>,
    capacity: usize,
    count: u64,
}

impl Trace {
    /// Returns the hash of everything so far.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    /// Returns how many steps were noted so far.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the newest lines, oldest first.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = &Line> {
        self.lines.iter()
    }

    /// Mixes the test's own bytes into the hash, for example what an application received.
    pub fn mix(&mut self, bytes: &[u8]) {
        self.hasher.write(&u64_len(bytes).to_le_bytes());
        self.hasher.write(bytes);
    }

    /// Keeps `capacity` lines from now on; 0 keeps none.
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        while self.lines.len() > capacity {
            self.lines.pop_front();
        }
    }

    pub(crate) fn new() -> Self {
        Self {
            hasher: SipHasher13::new(),
            lines: VecDeque::new(),
            capacity: LINES,
            count: 0,
        }
    }

    pub(crate) fn note(&mut self, at: Instant, step: Step, datagram: &Datagram) {
        self.count += 1;
        self.hasher.write(&at.as_nanos().to_le_bytes());
        self.hasher.write(&[step as u8]);
        self.mix_address(datagram.source);
        self.mix_address(datagram.destination);
        self.mix(&datagram.bytes);
        if self.capacity == 0 {
            return;
        }
        if self.lines.len() >= self.capacity {
            self.lines.pop_front();
        }
        let mut head = [0; HEAD];
        for (to, from) in head.iter_mut().zip(&datagram.bytes) {
            *to = *from;
        }
        self.lines.push_back(Line {
            at,
            step,
            source: datagram.source,
            destination: datagram.destination,
            len: datagram.bytes.len(),
            head,
        });
    }

    fn mix_address(&mut self, address: SocketAddr) {
        match address.ip() {
            IpAddr::V4(ip) => self.hasher.write(&ip.octets()),
            IpAddr::V6(ip) => self.hasher.write(&ip.octets()),
        }
        self.hasher.write(&address.port().to_le_bytes());
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let lines = core::mem::take(&mut self.lines);
        if !lines.is_empty() {
            NEWEST.with_borrow_mut(|newest| *newest = lines);
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("hash", &format_args!("{:016x}", self.hash()))
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// One step of one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// World time.
    pub at: Instant,
    /// What happened.
    pub step: Step,
    /// Sender as the receiver sees it.
    pub source: SocketAddr,
    /// Receiver.
    pub destination: SocketAddr,
    /// Length in bytes.
    pub len: usize,
    /// The first bytes, zero past the end of a shorter datagram.
    pub head: [u8; HEAD],
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {:?} {} > {} {} B ",
            self.at, self.step, self.source, self.destination, self.len
        )?;
        let shown = self.head.iter().take(self.len);
        shown
            .into_iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What happened to a datagram. The numbers are part of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// A node sent it.
    Sent = 0,
    /// An adversary sent it.
    Forged = 1,
    /// It reached the socket buffer of its destination.
    Arrived = 2,
    /// The link drew its loss.
    Lost = 3,
    /// The queue of the link's bottleneck was full.
    QueueFull = 4,
    /// It was longer than the link's MTU.
    TooLong = 5,
    /// The link was down.
    Partitioned = 6,
    /// An interceptor took it.
    Intercepted = 7,
    /// No node has the destination address, or the node was killed.
    Unroutable = 8,
    /// The socket buffer of its destination was full.
    Overflowed = 9,
}

/// Takes the log of the trace that this thread dropped last.
pub(crate) fn take_newest() -> VecDeque<Line> {
    NEWEST.with_borrow_mut(core::mem::take)
}

std::thread_local! {
    static NEWEST: RefCell<VecDeque<Line>> = const { RefCell::new(VecDeque::new()) };
}

/// Lines kept by default: about two round trips of a small world, and one screen.
const LINES: usize = 48;
/// Bytes of a datagram that a line shows: enough for the first header fields.
pub(crate) const HEAD: usize = 8;

fn u64_len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

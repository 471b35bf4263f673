//! An emulated wide-area network between real sockets: delay, loss, duplication and corruption by
//! rule.
//!
//! A driver passes each datagram, outbound or inbound, to its conditioner. A datagram that matches
//! a rule goes through that rule's link model and waits in a bounded heap until its arrival time.
//! All others pass unchanged. For tests and demonstrations: delayed datagrams are copied.

mod netsim_link;
mod rule;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use wire::Instant;

pub use rule::{Ends, Remote, Rules};

use crate::driver::{Envelope, Ledger};

/// A model of a link. netsim's links implement it.
pub trait LinkModel: Send {
    /// Sends `datagram` at `now`: pushes each copy that arrives to `deliveries`, with any damage of
    /// the link. Pushes none if the datagram is lost.
    fn send(&mut self, now: Instant, datagram: &[u8], deliveries: &mut Vec<Delivery>);
}

/// The arrival of one copy of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// When it arrives.
    pub at: Instant,
    /// The bytes that arrive.
    pub bytes: Vec<u8>,
}

/// The direction that a conditioner applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the sockets to the machine.
    Inbound,
    /// From the machine to the sockets.
    Outbound,
}

/// Holds the datagrams in flight.
#[derive(Debug)]
pub struct Conditioner {
    rules: Rules,
    /// Earliest arrival on top. Equal times keep their order.
    held: BinaryHeap<Reverse<Held>>,
    /// Sum of the lengths of the held datagrams.
    held_bytes: usize,
    limits: Limits,
    /// Sequence number of the next held datagram.
    next_number: u64,
    /// Output buffer of the models. Empty between calls.
    deliveries: Vec<Delivery>,
}

impl Conditioner {
    /// Creates a conditioner that applies `rules`, which may change while it runs.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            held: BinaryHeap::new(),
            held_bytes: 0,
            limits: Limits::default(),
            next_number: 0,
            deliveries: Vec::new(),
        }
    }

    /// Replaces the default limits.
    #[must_use]
    pub const fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Returns when the next datagram arrives.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.held.peek().map(|Reverse(held)| held.at)
    }

    /// Returns whether a rule matches the addresses of a datagram.
    pub(crate) fn has_rule(&self, envelope: &Envelope) -> bool {
        self.rules.has_rule(envelope.local, envelope.remote)
    }

    /// Sends a datagram through the link of its rule. Without a rule it arrives at once.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        envelope: Envelope,
        datagram: &[u8],
        ledger: &Ledger,
    ) {
        self.deliveries.clear();
        let ruled = self.rules.send(
            (envelope.local, envelope.remote),
            now,
            datagram,
            &mut self.deliveries,
        );
        if !ruled {
            // The rule was removed between the two lookups.
            self.deliveries.push(Delivery {
                at: now,
                bytes: datagram.to_vec(),
            });
        }
        if self.deliveries.is_empty() {
            ledger.conditioned_lost.add(1);
        }
        let mut deliveries = std::mem::take(&mut self.deliveries);
        for delivery in deliveries.drain(..) {
            if !self.hold(delivery, envelope) {
                ledger.conditioned_full.add(1);
            }
        }
        self.deliveries = deliveries;
    }

    /// Takes the earliest datagram that has arrived by `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Envelope, Vec<u8>)> {
        if self.poll_timeout()? > now {
            return None;
        }
        let Reverse(held) = self.held.pop()?;
        self.held_bytes = self.held_bytes.saturating_sub(held.bytes.len());
        Some((held.envelope, held.bytes))
    }

    /// Adds one copy to the heap. Returns false if the limits are reached.
    fn hold(&mut self, Delivery { at, bytes }: Delivery, envelope: Envelope) -> bool {
        let held_bytes = self.held_bytes.saturating_add(bytes.len());
        if self.held.len() >= self.limits.datagrams_max || held_bytes > self.limits.bytes_max {
            return false;
        }
        self.held_bytes = held_bytes;
        self.held.push(Reverse(Held {
            at,
            number: self.next_number,
            envelope,
            bytes,
        }));
        self.next_number = self.next_number.saturating_add(1);
        true
    }
}

/// Limits of what a conditioner holds.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum datagrams in flight; 65,536, which is 1 s at 65,536 datagrams per second.
    pub datagrams_max: usize,
    /// Maximum bytes in flight; 64 MiB.
    pub bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            datagrams_max: 65_536,
            bytes_max: 64 << 20,
        }
    }
}

/// A datagram in flight.
#[derive(Debug)]
struct Held {
    at: Instant,
    /// Orders datagrams with equal times.
    number: u64,
    envelope: Envelope,
    bytes: Vec<u8>,
}

impl Held {
    const fn order(&self) -> (Instant, u64) {
        (self.at, self.number)
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

#[cfg(test)]
mod tests;

//! An emulated wide-area network between real sockets: delay, loss, duplication and corruption by
//! rule.
//!
//! A driver passes each datagram, outbound or inbound, to its conditioner. A datagram that matches
//! a rule goes through that rule's link model and waits in a bounded heap until its arrival time.
//! All others pass unchanged. For tests and demonstrations: delayed datagrams are copied.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netsim::Link;
use wire::Instant;

use crate::counters::Ledger;
use crate::socket::Envelope;

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
    held: BinaryHeap<Reverse<DelayedDatagram>>,
    held_bytes: usize,
    limits: Limits,
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
        self.held.push(Reverse(DelayedDatagram {
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

#[derive(Debug)]
struct DelayedDatagram {
    at: Instant,
    number: u64,
    envelope: Envelope,
    bytes: Vec<u8>,
}

impl DelayedDatagram {
    const fn order(&self) -> (Instant, u64) {
        (self.at, self.number)
    }
}

impl PartialEq for DelayedDatagram {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for DelayedDatagram {}

impl PartialOrd for DelayedDatagram {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DelayedDatagram {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl LinkModel for Link {
    fn send(&mut self, now: Instant, datagram: &[u8], deliveries: &mut Vec<Delivery>) {
        for arrival in Self::send(self, now, datagram.len()) {
            let mut bytes = datagram.to_vec();
            let len = arrival.edit(&mut bytes).len();
            bytes.truncate(len);
            deliveries.push(Delivery {
                at: arrival.at,
                bytes,
            });
        }
    }
}

/// The rules of one or more conditioners. Clones share them, so they can change while drivers run.
///
/// The most specific rule applies: a rule with a local address before one without, then an address
/// before a host before [`Remote::Any`].
#[derive(Clone, Default)]
pub struct Rules {
    links: Arc<Mutex<Links>>,
}

impl Rules {
    /// Creates an empty set, which passes all datagrams unchanged.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends all datagrams between `ends` through `link`, which replaces any earlier link.
    ///
    /// All datagrams of the rule share the link, its queue and its rate. Datagrams already in
    /// flight keep the arrival times of the old link.
    pub fn set(&self, ends: impl Into<Ends>, link: impl LinkModel + 'static) {
        self.lock().insert(ends.into(), Box::new(link));
    }

    /// Removes the rule for exactly these `ends`; returns whether there was one.
    pub fn remove(&self, ends: impl Into<Ends>) -> bool {
        self.lock().remove(&ends.into()).is_some()
    }

    /// Returns how many rules there are.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn has_rule(&self, local: Option<IpAddr>, remote: SocketAddr) -> bool {
        let links = self.lock();
        candidates(local, remote).any(|ends| links.contains_key(&ends))
    }

    /// Sends through the link for `local` and `remote`. Returns false if no rule matches.
    fn send(
        &self,
        (local, remote): (Option<IpAddr>, SocketAddr),
        now: Instant,
        datagram: &[u8],
        deliveries: &mut Vec<Delivery>,
    ) -> bool {
        let mut links = self.lock();
        let Some(ends) = candidates(local, remote).find(|ends| links.contains_key(ends)) else {
            return false;
        };
        if let Some(link) = links.get_mut(&ends) {
            link.send(now, datagram, deliveries);
        }
        true
    }

    /// Ignores poisoning: a model that panics does not invalidate the rules.
    fn lock(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

/// The addresses that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ends {
    /// Local address; `None` matches any.
    pub local: Option<IpAddr>,
    /// Remote address: destination of outbound datagrams, source of inbound ones.
    pub remote: Remote,
}

impl From<Remote> for Ends {
    fn from(remote: Remote) -> Self {
        Self {
            local: None,
            remote,
        }
    }
}

impl From<SocketAddr> for Ends {
    fn from(remote: SocketAddr) -> Self {
        Remote::Address(remote).into()
    }
}

impl From<IpAddr> for Ends {
    fn from(remote: IpAddr) -> Self {
        Remote::Host(remote).into()
    }
}

/// The remote addresses that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remote {
    /// All addresses.
    Any,
    /// All ports of a host.
    Host(IpAddr),
    /// One port of a host.
    Address(SocketAddr),
}

/// The rules that could match, the most specific first.
fn candidates(local: Option<IpAddr>, remote: SocketAddr) -> impl Iterator<Item = Ends> {
    let locals = [local, None].into_iter().skip(usize::from(local.is_none()));
    locals.flat_map(move |local| {
        [
            Remote::Address(remote),
            Remote::Host(remote.ip()),
            Remote::Any,
        ]
        .map(|remote| Ends { local, remote })
    })
}

type Links = BTreeMap<Ends, Box<dyn LinkModel>>;

#[cfg(test)]
mod tests;

//! The seam between protocol machines and the world: one set of verbs for every crate.
//!
//! A machine owns no socket, clock, thread or file. A driver, or the simulator, tells it what
//! happened and asks it what to do. The contract, held for every machine by
//! `netsim::contract`:
//!
//! 1. `now` comes first and never goes back. (A late clock is a driver bug: debug assertion; in
//!    release the later value is kept.)
//! 2. After input, drain `poll_transmit`, `poll_command` and `poll_event` to `None`. A bounded
//!    batch of inputs may be handled between two drains; a machine bounds its own outbox.
//! 3. Draining without input ends: a machine at rest returns `None` until its timeout.
//! 4. `handle_timeout` before the deadline changes nothing; after it, `poll_timeout` is later
//!    than `now` or `None`. (No busy loop.)
//! 5. Equal configuration, seed, inputs and provider outputs give equal outputs, byte for byte.
//! 6. No call blocks. None allocates in the steady state beyond what the caller's buffers need.
//! 7. Nothing a peer sends makes any call panic, loop without bound, or grow memory past the
//!    configured bound.
//! 8. A command is completed at most once. A completion that comes late, twice or for an unknown
//!    id is counted and changes nothing else; one that never comes blocks no other peer.

use alloc::vec::Vec;
use core::convert::Infallible;
use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU16;

use crate::{ConnectionId, Instant, NodeId, UnixTime};

/// A machine that speaks in datagrams.
pub trait Machine {
    /// Whom it speaks to: an address, or a number where addresses do not belong.
    type Peer: Copy;
    /// What it tells the application.
    type Event;
    /// What it asks the driver to do, besides sending.
    type Command: Effect;

    /// Takes one datagram, decrypting it in place.
    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<Self::Peer>, datagram: &mut [u8]);

    /// Returns whether a datagram may be handled after others that came with it: where it begins
    /// something and they go on with something. By default none may.
    fn may_wait(&self, _datagram: &[u8]) -> bool {
        false
    }

    /// Returns whether a datagram is for another machine behind the same port, as far as this one can tell
    /// at little cost: it names something that is not here, such as a session. By default none is.
    fn is_stray(&self, _datagram: &[u8]) -> bool {
        false
    }

    /// Tells whom it has something with that has proved who it is, such as a session; by default nobody.
    /// A driver asks so, once a second at the most, whom it may forget.
    fn tell_peers(&self, _tell: &mut dyn FnMut(Self::Peer)) {}

    /// Runs every timer due at `now`.
    fn handle_timeout(&mut self, now: Instant);

    /// Takes the outcome of a command; an unknown or repeated id is counted and ignored.
    fn handle_completed(
        &mut self,
        now: Instant,
        id: CommandId,
        outcome: <Self::Command as Effect>::Outcome,
    );

    /// Takes the wall clock, which only expiry checks look at.
    fn set_unix_time(&mut self, _now: Instant, _unix: UnixTime) {}

    /// Appends the next datagram to `buf`, or several of equal length; `None` when there is none.
    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<Self::Peer>>;

    /// Returns the next command for the driver.
    fn poll_command(&mut self) -> Option<(CommandId, Self::Command)>;

    /// Returns the next event for the application.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// Returns when `handle_timeout` is next needed; `None` means never, until new input. Right after a
    /// drain: what has come in since may have a deadline of its own that it does not know yet.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// A machine that speaks in records over streams; timers, commands and events as in [`Machine`].
pub trait StreamMachine {
    /// What it tells the application.
    type Event;
    /// What it asks the driver to do, besides sending.
    type Command: Effect;

    /// Takes a new connection and who has been proved to be at its other end.
    fn handle_opened(&mut self, now: Instant, connection: ConnectionId, peer: &PeerIdentity);

    /// Takes one whole record of `connection`.
    fn handle_frame(&mut self, now: Instant, connection: ConnectionId, record: &[u8]);

    /// Takes word that `bytes` more may be written to `connection`.
    fn handle_credit(&mut self, now: Instant, connection: ConnectionId, bytes: usize);

    /// Takes the end of `connection`; its id is not used again.
    fn handle_closed(&mut self, now: Instant, connection: ConnectionId, cause: CloseCause);

    /// Appends the next record to `buf`, never beyond the credit of its connection.
    fn poll_outbound(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Outbound>;

    /// As in [`Machine`].
    fn handle_timeout(&mut self, now: Instant);
    /// As in [`Machine`].
    fn handle_completed(
        &mut self,
        now: Instant,
        id: CommandId,
        outcome: <Self::Command as Effect>::Outcome,
    );
    /// As in [`Machine`].
    fn set_unix_time(&mut self, _now: Instant, _unix: UnixTime) {}
    /// As in [`Machine`].
    fn poll_command(&mut self) -> Option<(CommandId, Self::Command)>;
    /// As in [`Machine`].
    fn poll_event(&mut self) -> Option<Self::Event>;
    /// As in [`Machine`].
    fn poll_timeout(&self) -> Option<Instant>;
}

/// An effect that is not a send: dial, store, spawn, measure.
pub trait Effect {
    /// How it ended.
    type Outcome;
}

/// For machines that only send.
impl Effect for Infallible {
    type Outcome = Self;
}

/// Names one command of one machine; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommandId(pub u64);

/// What the driver knows about a datagram that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<P> {
    /// Who sent it, as seen on the wire.
    pub peer: P,
    /// The player's address as told by a trusted exit; limits and block lists go by it.
    pub real_source: Option<SocketAddr>,
    /// The address of ours that it came to, where the host has several.
    pub local: Option<IpAddr>,
    /// Congestion mark.
    pub ecn: Option<Ecn>,
}

impl<P> From<P> for Arrival<P> {
    /// An arrival of which only the sender is known.
    fn from(peer: P) -> Self {
        Self {
            peer,
            real_source: None,
            local: None,
            ecn: None,
        }
    }
}

/// Where the bytes that `poll_transmit` wrote shall go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit<P> {
    /// Who shall get them.
    pub destination: P,
    /// The address of ours to send from; `None` leaves it to the system.
    pub source: Option<IpAddr>,
    /// Set when `buf` holds several datagrams of this length, the last one maybe shorter.
    pub segment_len: Option<NonZeroU16>,
    /// Congestion mark.
    pub ecn: Option<Ecn>,
}

impl<P> Transmit<P> {
    /// One datagram to `destination`, the rest left to the system.
    #[must_use]
    pub const fn to(destination: P) -> Self {
        Self {
            destination,
            source: None,
            segment_len: None,
            ecn: None,
        }
    }

    /// Splits what `poll_transmit` wrote into its datagrams.
    pub fn datagrams<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a, P> {
        let len = self
            .segment_len
            .map_or(bytes.len(), |len| usize::from(len.get()));
        bytes.chunks(len.max(1))
    }
}

/// Congestion mark of an IP packet; RFC 3168, section 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// Sender understands congestion marks; codepoint 10.
    Ect0,
    /// Sender understands congestion marks; codepoint 01.
    Ect1,
    /// A router on the way was congested; codepoint 11.
    CongestionExperienced,
}

/// Who has been proved to be at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerIdentity {
    /// The holder of the identity key with this hash.
    Node(NodeId),
    /// The host that was dialled by its name, as its certificate says.
    Host,
    /// Nobody: the other end proved no key.
    Anonymous,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseCause {
    /// The other end closed it in order.
    Finished,
    /// We closed it.
    Local,
    /// The transport failed: reset, timed out, or broke the record format.
    Failed,
    /// It could not be opened.
    Unreachable,
}

/// Where the record that `poll_outbound` wrote shall go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbound {
    /// The connection to write to.
    pub connection: ConnectionId,
    /// Close the connection once the record, which may be empty, is written.
    pub close: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_a_burst_into_its_datagrams() {
        let mut transmit = Transmit::to(());
        assert_eq!(transmit.datagrams(&[1, 2, 3]).count(), 1);
        transmit.segment_len = NonZeroU16::new(2);
        let mut datagrams = transmit.datagrams(&[1, 2, 3]);
        assert_eq!(datagrams.next(), Some(&[1, 2][..]));
        assert_eq!(datagrams.next(), Some(&[3][..]));
        assert_eq!(datagrams.next(), None);
    }
}

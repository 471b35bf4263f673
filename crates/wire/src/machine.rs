//! The interface between protocol state machines and I/O, shared by all crates.
//!
//! A machine owns no socket, clock, thread or file. A driver, or the simulator, passes in what
//! happened and takes out what to do. Every machine keeps this contract, which
//! `netsim::contract` tests:
//!
//! 1. `now` is the first argument and never decreases. (If it does, that is a bug of the driver:
//!    debug builds assert, release builds keep the later value.)
//! 2. After input, drain `poll_transmit`, `poll_command` and `poll_event` to `None`. A bounded
//!    batch of inputs may be handled between two drains; a machine bounds its own outbox.
//! 3. Draining without input ends: an idle machine returns `None` until its timeout.
//! 4. `handle_timeout` before the deadline changes nothing; after it, `poll_timeout` is later
//!    than `now` or `None`. (No busy loop.)
//! 5. Equal configuration, seed, inputs and provider outputs give equal outputs, byte for byte.
//! 6. No call blocks. None allocates in the steady state beyond what the caller's buffers need.
//! 7. Nothing a peer sends makes any call panic, loop without bound, or grow memory past the
//!    configured bound.
//! 8. A command is completed at most once. A completion that is late, repeated or for an unknown
//!    id is counted and has no other effect. A missing completion blocks no other peer.

use alloc::vec::Vec;
use core::convert::Infallible;
use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU16;

use crate::{ConnectionId, Instant, NodeId, UnixTime};

/// A machine that exchanges datagrams.
pub trait Machine {
    /// Identifies a peer: an address, or a number if the machine must not know addresses.
    type Peer: Copy;
    /// Events for the application.
    type Event;
    /// Work for the driver other than sending.
    type Command: Effect;

    /// Handles one datagram, and decrypts it in place.
    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<Self::Peer>, datagram: &mut [u8]);

    /// Returns whether a datagram may be handled after others of the same batch, because it starts
    /// a handshake and they belong to sessions. By default none may.
    fn may_wait(&self, _datagram: &[u8]) -> bool {
        false
    }

    /// Returns whether a datagram is for another machine behind the same port, judged at little
    /// cost: it names something unknown here, such as a session. By default none is.
    fn is_stray(&self, _datagram: &[u8]) -> bool {
        false
    }

    /// Reports each peer that has proved its identity and is still in use, such as the peer of a
    /// session. By default it reports none. A driver calls it at most once a second, and may forget
    /// other peers.
    fn for_each_peer(&self, _tell: &mut dyn FnMut(Self::Peer)) {}

    /// Runs every timer due at `now`.
    fn handle_timeout(&mut self, now: Instant);

    /// Handles the outcome of a command. An unknown or repeated id is counted and ignored.
    fn handle_completed(
        &mut self,
        now: Instant,
        id: CommandId,
        outcome: <Self::Command as Effect>::Outcome,
    );

    /// Sets the wall clock, which only expiry checks use.
    fn set_unix_time(&mut self, _now: Instant, _unix: UnixTime) {}

    /// Appends the next datagram to `buf`, or several of equal length; `None` when there is none.
    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<Self::Peer>>;

    /// Returns the next command for the driver.
    fn poll_command(&mut self) -> Option<(CommandId, Self::Command)>;

    /// Returns the next event for the application.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// Returns when `handle_timeout` is next due; `None` means not before new input. Call it right
    /// after a drain: input since then may have set a deadline that is not computed yet.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// A machine that exchanges records over streams. Timers, commands and events are as in
/// [`Machine`].
pub trait StreamMachine {
    /// Events for the application.
    type Event;
    /// Work for the driver other than sending.
    type Command: Effect;

    /// Handles a new connection; `peer` is the identity that the other end has proved.
    fn handle_opened(&mut self, now: Instant, connection: ConnectionId, peer: &PeerIdentity);

    /// Handles one complete record of `connection`.
    fn handle_frame(&mut self, now: Instant, connection: ConnectionId, record: &[u8]);

    /// Adds `bytes` of send credit to `connection`.
    fn handle_credit(&mut self, now: Instant, connection: ConnectionId, bytes: usize);

    /// Handles the end of `connection`; its id is never reused.
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

/// Work for the driver other than sending: dial, store, spawn, measure.
pub trait Effect {
    /// The outcome.
    type Outcome;
}

/// The command type of a machine that only sends.
impl Effect for Infallible {
    type Outcome = Self;
}

/// Identifies one command of one machine; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommandId(pub u64);

/// What the driver knows about a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<P> {
    /// The sender's address on the wire.
    pub peer: P,
    /// The player's address, as reported by a trusted exit. Limits and block lists use it.
    pub real_source: Option<SocketAddr>,
    /// The local address that received it, if the host has several.
    pub local: Option<IpAddr>,
    /// Congestion mark.
    pub ecn: Option<Ecn>,
}

impl<P> From<P> for Arrival<P> {
    /// An arrival with a known sender only.
    fn from(peer: P) -> Self {
        Self {
            peer,
            real_source: None,
            local: None,
            ecn: None,
        }
    }
}

/// Where to send the bytes that `poll_transmit` wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit<P> {
    /// The receiver.
    pub destination: P,
    /// The local address to send from; `None` lets the system choose.
    pub source: Option<IpAddr>,
    /// If set, `buf` holds several datagrams of this length; the last may be shorter.
    pub segment_len: Option<NonZeroU16>,
    /// Congestion mark.
    pub ecn: Option<Ecn>,
}

impl<P> Transmit<P> {
    /// One datagram to `destination`; the system chooses everything else.
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
    /// The sender supports ECN; codepoint 10.
    Ect0,
    /// The sender supports ECN; codepoint 01.
    Ect1,
    /// A router was congested; codepoint 11.
    CongestionExperienced,
}

/// The proved identity of the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerIdentity {
    /// The holder of the identity key with this hash.
    Node(NodeId),
    /// The host that was dialled by name; its certificate proves the name.
    Host,
    /// The other end proved no key.
    Anonymous,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseCause {
    /// The other end closed it cleanly.
    Finished,
    /// We closed it.
    Local,
    /// The transport failed: reset, timed out, or broke the record format.
    Failed,
    /// It could not be opened.
    Unreachable,
}

/// Where to send the record that `poll_outbound` wrote.
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

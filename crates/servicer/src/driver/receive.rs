//! Receiving a bounded batch from the sockets in each turn, and giving it to the machine.
//!
//! In a turn with many datagrams, those that start a handshake are deferred until those of sessions
//! are handled. A flood of handshakes thus delays a session by only a few of them. No datagram is
//! dropped for this.

use std::io::{ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta};
use wire::address::canonical;
use wire::{Arrival, Ecn, Instant, Machine};

use super::exits::Exits;
use super::send::Transmitter;
use super::{Application, Driver, PeerAddress, Pending};
use crate::counters::Ledger;
use crate::socket::{Batching, Envelope, SocketIndex, UdpSocket};
use crate::turn::{STALL_BATCHES, is_stall};

impl<M, A> Driver<M, A>
where
    M: Machine<Peer: PeerAddress>,
    A: Application<M>,
{
    /// Receives from the sockets, up to a batch. Returns the time with which timers may run.
    ///
    /// All datagrams that arrived before that time have been handled, even if the process was
    /// paused at any point here. It is before the sockets were last found empty, or at most
    /// [`CLOSE`] after that.
    pub(super) fn receive(&mut self) -> Instant {
        let began = self.clock.now();
        let batch = self.config.datagrams_per_turn.get();
        let bound = bound(self.turned_at.replace(began), began, batch);
        let mut received = 0_usize;
        self.dispatcher.begin();
        let until = loop {
            let as_of = self.clock.now();
            let sockets = &mut self.transmitter.sockets;
            if sockets.has_opened() && sockets.poll_opened(&mut self.waiter).is_err() {
                // The next wait fails likewise and reports it.
                self.inbox.ledger().receive_errors.add(1);
            }
            let round = self.receive_round();
            received = received.saturating_add(round.received);
            if let Some(as_of) = round.all_as_of(as_of) {
                self.release_inbound(as_of);
                break as_of;
            }
            if received >= bound {
                self.pending = Pending::Work;
                break self.clock.now();
            }
        };
        self.dispatcher
            .finish(until, &mut self.machine, self.inbox.ledger());
        until
    }

    /// Reads the system's drop counts periodically and reports them to the application.
    pub(super) fn read_drops(&mut self, now: Instant) {
        if now < self.drops_at {
            return;
        }
        self.drops_at = now + DROPS_INTERVAL;
        for drops in self.transmitter.sockets.read_drops() {
            let (ledger, count) = (self.inbox.ledger(), u64::from(drops.count));
            if drops.is_opened {
                ledger.dropped_in_full_opened.add(count);
            } else {
                ledger.dropped_in_full.add(count);
            }
            self.application
                .on_receive_drops(now, &mut self.machine, drops.socket, count);
        }
    }

    fn receive_round(&mut self) -> Round {
        let Self {
            machine,
            buffers,
            dispatcher,
            transmitter,
            inbox,
            clock,
            ..
        } = self;
        let Transmitter {
            sockets,
            conditioners,
            ..
        } = transmitter;
        let ledger = inbox.ledger();
        let mut round = Round::default();
        for mut ready in sockets.ready() {
            let mut stamp = None;
            let mut bytes = 0_usize;
            let from = (ready.index, ready.socket);
            let received = buffers.receive(from, ledger, |envelope, datagram| {
                let now = *stamp.get_or_insert_with(|| clock.now());
                bytes = bytes.saturating_add(datagram.len());
                if let Some(conditioner) = &mut conditioners.inbound
                    && conditioner.has_rule(&envelope)
                {
                    conditioner.take(now, envelope, datagram, ledger);
                    return;
                }
                dispatcher.take((now, &envelope), datagram, machine, ledger);
            });
            ledger
                .bytes_in
                .add(u64::try_from(bytes).unwrap_or(u64::MAX));
            round.latest = stamp.or(round.latest);
            if stamp.is_some() {
                ready.mark_received();
            }
            match received {
                Received::Nothing => ready.mark_empty(),
                Received::All(received) => {
                    ready.mark_empty();
                    round.received = round.received.saturating_add(received.max(1));
                }
                // Errors count towards the bound, so endless errors cannot keep the loop here.
                Received::Some(received) => {
                    round.may_hold_more = true;
                    round.received = round.received.saturating_add(received.max(1));
                }
            }
        }
        round
    }

    fn release_inbound(&mut self, now: Instant) {
        while let Some((envelope, mut datagram)) = self
            .transmitter
            .conditioners
            .inbound
            .as_mut()
            .and_then(|conditioner| conditioner.pop_due(now))
        {
            let ledger = self.inbox.ledger();
            self.dispatcher
                .take((now, &envelope), &mut datagram, &mut self.machine, ledger);
        }
    }
}

#[derive(Debug, Default)]
struct Round {
    received: usize,
    may_hold_more: bool,
    /// The time with which the last datagram was given to the machine.
    latest: Option<Instant>,
}

impl Round {
    /// Returns the time before which all arrivals have been handled, for a round that began at
    /// `began`; `None` if the sockets must be read again.
    ///
    /// A socket may be found empty before its last datagrams get their time stamp. Datagrams that
    /// arrive in between are not handled yet, so the two moments must be close. They are, unless
    /// the process was paused there.
    fn all_as_of(&self, began: Instant) -> Option<Instant> {
        let as_of = self.latest.unwrap_or(began);
        let is_close = as_of.saturating_since(began) <= CLOSE;
        (!self.may_hold_more && is_close).then_some(as_of)
    }
}

/// Maximum datagrams of a turn, raised if the last turn began long ago or this is the first.
fn bound(last: Option<Instant>, began: Instant, batch: usize) -> usize {
    if is_stall(last, began) {
        batch.saturating_mul(STALL_BATCHES)
    } else {
        batch
    }
}

/// Minimum time between two reads of the drop counts. An idle driver reads none.
const DROPS_INTERVAL: Duration = Duration::from_millis(100);

/// Longest receive whose end counts as its start: a tenth of the accuracy of timers.
const CLOSE: Duration = Duration::from_micros(100);

/// Receive buffers of one system call.
#[derive(Debug)]
pub(super) struct ReceiveBuffers {
    /// Room for `most` receives.
    bytes: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
    most: usize,
}

impl ReceiveBuffers {
    pub(super) fn new(batching: Batching) -> Self {
        let most = match batching {
            Batching::One => 1,
            Batching::Many | Batching::Segmented if cfg!(tickwire_portable) => 1,
            Batching::Many | Batching::Segmented => BATCH_SIZE,
        };
        Self {
            bytes: vec![0; RECEIVE_LEN.saturating_mul(most)],
            metas: [RecvMeta::default(); BATCH_SIZE],
            most,
        }
    }

    /// Makes one receive on `socket` and passes its datagrams to `deliver`.
    pub(super) fn receive(
        &mut self,
        (index, socket): (SocketIndex, &UdpSocket),
        ledger: &Ledger,
        mut deliver: impl FnMut(Envelope, &mut [u8]),
    ) -> Received {
        let mut rooms = self.bytes.chunks_mut(RECEIVE_LEN);
        let mut buffers: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(rooms.next().unwrap_or_default()));
        ledger.receive_calls.add(1);
        let used = buffers.get_mut(..self.most).unwrap_or_default();
        let filled = match socket.receive(used, &mut self.metas) {
            Ok(filled) => filled,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Received::Nothing,
            Err(error) if socket.is_of_earlier_send(&error) => {
                ledger.unreachable.add(1);
                return Received::Some(0);
            }
            Err(_) => {
                // An immediate retry could become a busy loop, whatever the error.
                ledger.receive_errors.add(1);
                return Received::Nothing;
            }
        };
        let mut received = 0_usize;
        for (meta, room) in self.metas.iter().zip(&mut buffers).take(filled) {
            let bytes = room.get_mut(..meta.len).unwrap_or_default();
            let envelope = envelope(index, meta);
            if bytes.is_empty() {
                received = received.saturating_add(1);
                take(envelope, &mut [], ledger, &mut deliver);
            }
            for datagram in bytes.chunks_mut(meta.stride.max(1)) {
                received = received.saturating_add(1);
                take(envelope, datagram, ledger, &mut deliver);
            }
        }
        if SHORT_BATCH_IS_LAST && filled < self.most {
            Received::All(received)
        } else {
            Received::Some(received)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// The socket was empty.
    Nothing,
    /// This many datagrams. There may be more.
    Some(usize),
    /// This many datagrams, and the socket is now empty.
    All(usize),
}

/// Passes one datagram on, unless it cannot be answered.
fn take(
    envelope: Envelope,
    datagram: &mut [u8],
    ledger: &Ledger,
    deliver: &mut impl FnMut(Envelope, &mut [u8]),
) {
    if envelope.remote.port() == 0 {
        ledger.dropped_in_unanswerable.add(1);
    } else {
        deliver(envelope, datagram);
    }
}

fn envelope(socket: SocketIndex, meta: &RecvMeta) -> Envelope {
    let local = meta.dst_ip.map(|ip| ip.to_canonical());
    Envelope {
        socket,
        remote: canonical(meta.addr),
        local: local.filter(|ip| is_own(*ip)),
        ecn: meta.ecn.map(|ecn| match ecn {
            EcnCodepoint::Ect0 => Ecn::Ect0,
            EcnCodepoint::Ect1 => Ecn::Ect1,
            EcnCodepoint::Ce => Ecn::CongestionExperienced,
        }),
    }
}

/// Returns whether `ip` can be the source of an answer.
const fn is_own(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !ip.is_multicast() && !ip.is_unspecified() && !is_broadcast
}

/// Whether a receive with free buffers means that the socket is empty. `recvmmsg(2)` of Linux
/// continues until the socket is empty, and a later datagram ends an edge-triggered wait. An error
/// also ends the call early, and it ends the wait too.
const SHORT_BATCH_IS_LAST: bool = cfg!(has_linux_calls);

/// Maximum bytes of one receive: a whole datagram, or several merged by the system.
const RECEIVE_LEN: usize = 1 << 16;

/// Datagrams handled in order at the start of a turn. A shorter turn is not worth the copies.
const UNSORTED: usize = 64;
/// Maximum deferred datagrams. Further ones are handled in order.
const WAITING_MAX: usize = 1_024;
/// Maximum length of a deferred datagram, bytes: the usual path MTU.
const WAITING_LEN_MAX: usize = 1_500;

/// Received datagrams of one turn on their way to the machine.
#[derive(Debug, Default)]
pub(super) struct Dispatcher {
    exits: Exits,
    count: usize,
    /// The deferred datagrams, each with its end in `bytes`.
    waiting: Vec<(Envelope, Option<SocketAddr>, usize)>,
    /// At most 1.5 MB.
    bytes: Vec<u8>,
}

impl Dispatcher {
    pub(super) fn set_exits(&mut self, exits: &[IpAddr], flows_max: usize) {
        self.exits = Exits::new(exits, flows_max);
    }

    pub(super) fn on_sent<P: PeerAddress>(&mut self, now: Instant, peer: &P) {
        self.exits.on_sent(now, peer);
    }

    pub(super) const fn begin(&mut self) {
        self.count = 0;
    }

    /// Gives a datagram to the machine, with the player's address from the exit, or defers it.
    pub(super) fn take<M: Machine<Peer: PeerAddress>>(
        &mut self,
        (now, envelope): (Instant, &Envelope),
        datagram: &mut [u8],
        machine: &mut M,
        ledger: &Ledger,
    ) {
        let at = (now, envelope);
        let Some((source, datagram)) = self.exits.unwrap(at, datagram, machine, ledger) else {
            return;
        };
        self.count = self.count.saturating_add(1);
        let waits = self.count > UNSORTED
            && self.waiting.len() < WAITING_MAX
            && datagram.len() <= WAITING_LEN_MAX
            && machine.may_wait(datagram);
        if waits {
            ledger.datagrams_waited.add(1);
            self.bytes.extend_from_slice(datagram);
            self.waiting.push((*envelope, source, self.bytes.len()));
        } else {
            give((now, envelope, source), datagram, machine, ledger);
        }
    }

    pub(super) fn finish<M: Machine<Peer: PeerAddress>>(
        &mut self,
        now: Instant,
        machine: &mut M,
        ledger: &Ledger,
    ) {
        let mut rest = self.bytes.as_mut_slice();
        let mut begin = 0_usize;
        for (envelope, source, end) in self.waiting.drain(..) {
            let (datagram, behind) = rest
                .split_at_mut_checked(end.saturating_sub(begin))
                .unwrap_or_default();
            (rest, begin) = (behind, end);
            give((now, &envelope, source), datagram, machine, ledger);
        }
        self.bytes.clear();
    }
}

fn give<M: Machine<Peer: PeerAddress>>(
    (now, envelope, real_source): (Instant, &Envelope, Option<SocketAddr>),
    datagram: &mut [u8],
    machine: &mut M,
    ledger: &Ledger,
) {
    ledger.datagrams_in.add(1);
    let arrival = Arrival {
        peer: M::Peer::from_wire(envelope.socket, envelope.remote),
        real_source,
        local: envelope.local,
        ecn: envelope.ecn,
    };
    machine.handle_datagram(now, arrival, datagram);
}

#[cfg(test)]
mod tests;

//! Sending: selects a socket for each transmit, conditions it, and counts the results.

use wire::address::canonical;
use wire::{Instant, Transmit};

use super::application::PeerAddress;
use super::sockets::Sockets;
#[cfg(feature = "conditioner")]
use crate::conditioner::Conditioner;
use crate::counters::Ledger;
use crate::socket::batch::{Batch, Sent};
use crate::socket::{Batching, Envelope, Outbound};

/// The sockets with their send batch.
///
/// If the socket's send buffer is full, a datagram is dropped and counted, not queued. The buffer
/// already holds megabytes, so another queue would only add delay. A machine treats the drop as
/// congestion.
#[derive(Debug)]
pub(super) struct Transmitter {
    pub(super) sockets: Sockets,
    pub(super) conditioners: Conditioners,
    /// Datagrams to be sent together. Empty between turns.
    pub(super) batch: Batch,
    pub(super) batching: Batching,
}

impl Transmitter {
    /// Adds what `poll_transmit` wrote after the first `start` bytes of the batch, and sends the
    /// batch if it is full.
    pub(super) fn take<P: PeerAddress>(
        &mut self,
        now: Instant,
        (transmit, start): (&Transmit<P>, usize),
        ledger: &Ledger,
    ) {
        let destination = canonical(transmit.destination.address());
        let picked = self
            .sockets
            .pick(transmit.destination.socket(), destination);
        let Some((index, socket)) = picked else {
            let dropped = transmit.datagrams(self.batch.since(start)).count();
            let dropped = u64::try_from(dropped).unwrap_or(u64::MAX);
            ledger.dropped_out_no_socket.add(dropped.max(1));
            self.batch.truncate(start);
            return;
        };
        if let Some(conditioner) = &mut self.conditioners.outbound {
            let bound = Some(socket.local_address().ip()).filter(|ip| !ip.is_unspecified());
            let envelope = Envelope {
                socket: index,
                remote: destination,
                local: transmit.source.or(bound),
                ecn: transmit.ecn,
            };
            // A burst is split only if a rule matches: a model takes single datagrams.
            if conditioner.has_rule(&envelope) {
                for datagram in transmit.datagrams(self.batch.since(start)) {
                    conditioner.take(now, envelope, datagram, ledger);
                }
                self.batch.truncate(start);
                return;
            }
        }
        let outbound = Outbound {
            destination,
            source: transmit.source,
            segment_len: transmit.segment_len,
            ecn: transmit.ecn,
        };
        let segments_max = socket.segments_max(self.batching);
        self.batch.push(index, outbound, start, segments_max);
        if self.batch.is_full() {
            self.flush(now, ledger);
        }
    }

    pub(super) fn flush(&mut self, now: Instant, ledger: &Ledger) {
        let (sockets, batching) = (&mut self.sockets, self.batching);
        let sent = self.batch.flush(|index, runs, bytes, heads| {
            // Sockets are not closed while a batch holds datagrams.
            sockets.get_mut(index).map_or_else(Sent::default, |socket| {
                socket.send_all(now, (runs, bytes), batching, heads)
            })
        });
        record(sent, ledger);
    }

    pub(super) fn release(&mut self, now: Instant, ledger: &Ledger) {
        let Some(conditioner) = &mut self.conditioners.outbound else {
            return;
        };
        while let Some((envelope, bytes)) = conditioner.pop_due(now) {
            let Some(socket) = self.sockets.get_mut(envelope.socket) else {
                // The socket was closed in the meantime.
                ledger.dropped_out_no_socket.add(1);
                continue;
            };
            let outbound = Outbound {
                destination: envelope.remote,
                source: envelope.local,
                segment_len: None,
                ecn: envelope.ecn,
            };
            record(socket.send(now, &outbound, &bytes), ledger);
        }
    }
}

fn record(sent: Sent, ledger: &Ledger) {
    ledger.send_calls.add(sent.calls);
    ledger.datagrams_out.add(sent.datagrams);
    ledger.dropped_out_full.add(sent.full);
    ledger.dropped_out_too_large.add(sent.too_large);
    ledger.dropped_out_refused.add(sent.refused);
    ledger.unreachable.add(sent.unreachable);
}

/// The conditioners between a driver's sockets and its machine.
#[derive(Debug, Default)]
pub(crate) struct Conditioners {
    pub(crate) inbound: Option<Conditioner>,
    pub(crate) outbound: Option<Conditioner>,
}

impl Conditioners {
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [&self.inbound, &self.outbound]
            .into_iter()
            .flatten()
            .filter_map(Conditioner::poll_timeout)
            .min()
    }

    /// Returns whether no outbound datagram is delayed.
    pub(super) fn is_sent(&self) -> bool {
        self.outbound
            .as_ref()
            .is_none_or(|conditioner| conditioner.poll_timeout().is_none())
    }
}

/// Placeholder without the feature. It is uninhabited, so the compiler removes the code that uses
/// it.
#[cfg(not(feature = "conditioner"))]
#[derive(Debug)]
pub(crate) enum Conditioner {}

#[cfg(not(feature = "conditioner"))]
impl Conditioner {
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        match *self {}
    }

    pub(super) const fn has_rule(&self, _: &Envelope) -> bool {
        match *self {}
    }

    pub(super) const fn take(&mut self, _: Instant, _: Envelope, _: &[u8], _: &Ledger) {
        match *self {}
    }

    pub(super) const fn pop_due(&mut self, _: Instant) -> Option<(Envelope, Vec<u8>)> {
        match *self {}
    }
}

//! Sending: from a machine's peer to a socket, and the count of what became of it.

use std::net::SocketAddr;

use wire::{Instant, Transmit};

use super::application::{PeerAddress, SocketIndex};
use super::counters::Ledger;
#[cfg(feature = "conditioner")]
use super::intake::Envelope;
#[cfg(feature = "conditioner")]
use crate::conditioner::Conditioner;
use crate::udp::UdpSocket;
use crate::udp::socket::{Outbound, Sent};

/// The way out.
///
/// A datagram that finds the socket's send buffer full is dropped and counted, not kept: the
/// buffer holds megabytes already, a queue behind it would only make everything in it later, and
/// a machine treats the drop as what it is, congestion.
#[derive(Debug, Default)]
pub(super) struct Outlet {
    /// Delays what leaves, for peers that a rule names.
    #[cfg(feature = "conditioner")]
    pub(super) conditioner: Option<Conditioner>,
}

impl Outlet {
    /// Sends what `poll_transmit` wrote.
    pub(super) fn send<P: PeerAddress>(
        &mut self,
        now: Instant,
        sockets: &mut [UdpSocket],
        (transmit, bytes): (&Transmit<P>, &[u8]),
        ledger: &Ledger,
    ) {
        let destination = transmit.destination.address();
        let Some((index, socket)) = pick(sockets, transmit.destination.socket(), destination)
        else {
            let dropped = u64::try_from(transmit.datagrams(bytes).count()).unwrap_or(u64::MAX);
            ledger.dropped_out_no_socket.add(dropped.max(1));
            return;
        };
        let outbound = Outbound {
            destination,
            source: transmit.source,
            segment_len: transmit.segment_len,
            ecn: transmit.ecn,
        };
        #[cfg(feature = "conditioner")]
        if let Some(conditioner) = &mut self.conditioner {
            let bound = Some(socket.local_address().ip()).filter(|ip| !ip.is_unspecified());
            let envelope = Envelope {
                socket: index,
                remote: destination,
                local: transmit.source.or(bound),
                ecn: transmit.ecn,
            };
            // A burst is cut up only where a rule takes it: a model sees single datagrams.
            if conditioner.has_rule(&envelope) {
                for datagram in transmit.datagrams(bytes) {
                    conditioner.take(now, envelope, datagram, ledger);
                }
                return;
            }
        }
        #[cfg(not(feature = "conditioner"))]
        let _ = index;
        record(socket.send(now, &outbound, bytes), ledger);
    }

    /// Sends what the conditioner has delayed until `now`.
    #[cfg(feature = "conditioner")]
    pub(super) fn release(&mut self, now: Instant, sockets: &mut [UdpSocket], ledger: &Ledger) {
        let Some(conditioner) = &mut self.conditioner else {
            return;
        };
        while let Some((envelope, bytes)) = conditioner.pop_due(now) {
            if let Some(socket) = sockets.get_mut(usize::from(envelope.socket.0)) {
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
}

/// Chooses the socket of that index, or the first that reaches `destination`.
fn pick(
    sockets: &mut [UdpSocket],
    index: Option<SocketIndex>,
    destination: SocketAddr,
) -> Option<(SocketIndex, &mut UdpSocket)> {
    let place = match index {
        Some(SocketIndex(index)) => usize::from(index),
        None => sockets
            .iter()
            .position(|socket| socket.reaches(destination))?,
    };
    let socket = sockets
        .get_mut(place)
        .filter(|socket| socket.reaches(destination))?;
    Some((SocketIndex(u16::try_from(place).ok()?), socket))
}

fn record(sent: Sent, ledger: &Ledger) {
    ledger.datagrams_out.add(sent.datagrams);
    ledger.dropped_out_full.add(sent.full);
    ledger.dropped_out_too_large.add(sent.too_large);
    ledger.dropped_out_refused.add(sent.refused);
    ledger.unreachable.add(sent.unreachable);
}

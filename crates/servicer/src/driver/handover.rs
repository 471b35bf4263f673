//! From the driver to the machine: one datagram, and what is known about it.

use wire::{Arrival, Instant, Machine};

use super::application::PeerAddress;
use super::counters::Ledger;
use super::exits::Exits;
use super::intake::Envelope;

/// Gives a datagram to the machine, with whom an exit says that it is from.
pub(super) fn hand_over<M: Machine<Peer: PeerAddress>>(
    (now, envelope): (Instant, &Envelope),
    datagram: &mut [u8],
    (exits, machine): (&mut Exits, &mut M),
    ledger: &Ledger,
) {
    let Some((real_source, datagram)) = exits.unwrap(now, envelope, datagram, ledger) else {
        return;
    };
    ledger.datagrams_in.add(1);
    let arrival = Arrival {
        peer: M::Peer::from_wire(envelope.socket, envelope.remote),
        real_source,
        local: envelope.local,
        ecn: envelope.ecn,
    };
    machine.handle_datagram(now, arrival, datagram);
}

//! Gives received datagrams to the machine, with their addresses.
//!
//! In a turn with many datagrams, those that start a handshake are deferred until those of sessions
//! are handled. A flood of handshakes thus delays a session by only a few of them. No datagram is
//! dropped for this.

use std::net::{IpAddr, SocketAddr};

use wire::{Arrival, Instant, Machine};

use super::application::PeerAddress;
use super::counters::Ledger;
use super::exits::Exits;
use super::intake::Envelope;

/// Number of datagrams handled in order at the start of a turn. A shorter turn is not worth the
/// copies.
const UNSORTED: usize = 64;
/// Maximum deferred datagrams. Further ones are handled in order.
const WAITING_MAX: usize = 1_024;
/// Maximum length of a deferred datagram, bytes: the usual path MTU.
const WAITING_LEN_MAX: usize = 1_500;

/// Received datagrams of one turn on their way to the machine.
#[derive(Debug, Default)]
pub(super) struct Handover {
    exits: Exits,
    /// Datagrams in this turn so far.
    count: usize,
    /// The deferred datagrams, each with its end in `bytes`.
    waiting: Vec<(Envelope, Option<SocketAddr>, usize)>,
    /// At most 1.5 MB.
    bytes: Vec<u8>,
}

impl Handover {
    /// Replaces the trusted exits.
    pub(super) fn set_exits(&mut self, exits: &[IpAddr], flows_max: usize) {
        self.exits = Exits::new(exits, flows_max);
    }

    /// Records a send to `peer`.
    pub(super) fn note_sent<P: PeerAddress>(&mut self, now: Instant, peer: &P) {
        self.exits.note_sent(now, peer);
    }

    /// Begins a turn, with no deferred datagrams.
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

    /// Gives the deferred datagrams to the machine.
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
mod tests {
    use super::*;
    use crate::driver::SocketIndex;
    use std::convert::Infallible;
    use wire::{CommandId, Transmit};

    /// Records its datagrams; those that begin with `H` may be deferred.
    #[derive(Default)]
    struct Heard(Vec<(u16, Vec<u8>)>);

    impl Machine for Heard {
        type Peer = SocketAddr;
        type Event = ();
        type Command = Infallible;

        fn handle_datagram(&mut self, _: Instant, from: Arrival<SocketAddr>, datagram: &mut [u8]) {
            self.0.push((from.peer.port(), datagram.to_vec()));
        }
        fn may_wait(&self, datagram: &[u8]) -> bool {
            datagram.first() == Some(&b'H')
        }
        fn handle_timeout(&mut self, _: Instant) {}
        fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
            match outcome {}
        }
        fn poll_transmit(&mut self, _: Instant, _: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
            None
        }
        fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
            None
        }
        fn poll_event(&mut self) -> Option<()> {
            None
        }
        fn poll_timeout(&self) -> Option<Instant> {
            None
        }
    }

    /// Runs one turn with datagrams of these first bytes and lengths, from ports 1, 2, 3 ...
    /// Returns the order of ports at the machine, and how many were deferred.
    fn turn(handover: &mut Handover, kinds: &[(u8, usize)]) -> (Vec<u16>, u64) {
        let (mut machine, ledger) = (Heard::default(), Ledger::default());
        handover.begin();
        for (port, (kind, len)) in (1..).zip(kinds) {
            let envelope = Envelope {
                socket: SocketIndex(0),
                remote: SocketAddr::from(([192, 0, 2, 1], port)),
                local: None,
                ecn: None,
            };
            let mut datagram = vec![*kind; *len];
            let at = (Instant::ZERO, &envelope);
            handover.take(at, &mut datagram, &mut machine, &ledger);
        }
        handover.finish(Instant::ZERO, &mut machine, &ledger);
        for (port, bytes) in &machine.0 {
            let (kind, len) = kinds[usize::from(*port) - 1];
            assert_eq!(*bytes, vec![kind; len], "as it came");
        }
        assert_eq!(
            ledger.snapshot().datagrams_in,
            u64::try_from(kinds.len()).unwrap()
        );
        let order = machine.0.iter().map(|(port, _)| *port).collect();
        (order, ledger.snapshot().datagrams_waited)
    }

    #[test]
    fn in_a_long_turn_sessions_go_before_handshakes_and_none_is_lost() {
        let mut handover = Handover::default();
        let mut kinds = vec![(b'H', 1_200); 200];
        kinds.extend([(b'p', 40); 50]);
        for _ in 0..2 {
            let (order, waited) = turn(&mut handover, &kinds);
            let expected: Vec<u16> = (1..=64).chain(201..=250).chain(65..=200).collect();
            assert_eq!((order, waited), (expected, 136));
        }
    }

    #[test]
    fn a_short_turn_keeps_its_order() {
        let mut kinds = vec![(b'H', 1_200); 63];
        kinds.push((b'p', 40));
        let (order, waited) = turn(&mut Handover::default(), &kinds);
        assert_eq!((order, waited), ((1..=64).collect(), 0));
    }

    /// At most 1,024 datagrams of 1,500 bytes are deferred; the others are handled in order.
    #[test]
    fn what_waits_is_bounded() {
        let mut handover = Handover::default();
        let mut kinds = vec![(b'H', 1_500); 64 + 1_024 + 10];
        kinds.push((b'p', 40));
        let (order, waited) = turn(&mut handover, &kinds);
        assert_eq!(waited, 1_024);
        assert_eq!(
            order[64..75],
            [
                1_089, 1_090, 1_091, 1_092, 1_093, 1_094, 1_095, 1_096, 1_097, 1_098, 1_099
            ]
        );
        assert!(handover.waiting.is_empty() && handover.bytes.is_empty());
        assert!(handover.bytes.capacity() <= 2 * 1_024 * 1_500);
        let (_, waited) = turn(&mut handover, &[(b'H', 1_501); 100]);
        assert_eq!(waited, 0);
    }
}

use std::convert::Infallible;

use wire::{CommandId, Transmit};

use super::*;
use crate::turn::STALL;

#[test]
fn sockets_are_polled_again_unless_all_were_just_empty() {
    let began = Instant::from_millis(1_000);
    let round = |may_hold_more, behind| Round {
        received: 1,
        may_hold_more,
        latest: Some(began + behind),
    };
    let next = Duration::from_nanos(1);
    assert_eq!(Round::default().all_as_of(began), Some(began));
    assert_eq!(round(false, CLOSE).all_as_of(began), Some(began + CLOSE));
    assert_eq!(round(false, CLOSE + next).all_as_of(began), None);
    assert_eq!(round(true, next).all_as_of(began), None);
}

#[test]
fn a_turn_reads_more_after_a_pause_than_in_steady_work() {
    let last = Instant::from_millis(1_000);
    assert_eq!(bound(None, last, 1_024), 16_384);
    assert_eq!(bound(Some(last), last + STALL, 1_024), 1_024);
    let after = last + STALL + Duration::from_nanos(1);
    assert_eq!(bound(Some(last), after, 1_024), 16_384);
    assert_eq!(bound(None, last, usize::MAX), usize::MAX);
}

#[test]
fn a_mapped_address_is_seen_as_ipv4() {
    let mut meta = RecvMeta::default();
    meta.addr = "[::ffff:192.0.2.1]:9".parse().unwrap();
    meta.dst_ip = Some("::ffff:192.0.2.2".parse().unwrap());
    let envelope = envelope(SocketIndex(3), &meta);
    assert_eq!(envelope.remote, "192.0.2.1:9".parse().unwrap());
    assert_eq!(envelope.local, Some("192.0.2.2".parse().unwrap()));
    assert_eq!(envelope.socket, SocketIndex(3));
}

#[test]
fn a_multicast_address_is_not_used_as_source() {
    for ip in ["255.255.255.255", "224.0.0.1", "ff02::1", "0.0.0.0", "::"] {
        assert!(!is_own(ip.parse().unwrap()), "{ip}");
    }
    assert!(is_own("127.0.0.1".parse().unwrap()));
    assert!(is_own("fe80::1".parse().unwrap()));
}

#[test]
fn datagrams_that_cannot_be_answered_are_dropped_and_counted() {
    let ledger = Ledger::default();
    let mut incoming = Vec::new();
    for port in [0, 9] {
        let mut meta = RecvMeta::default();
        meta.addr = SocketAddr::from(([192, 0, 2, 1], port));
        let envelope = envelope(SocketIndex(0), &meta);
        take(envelope, &mut [], &ledger, &mut |envelope, _| {
            incoming.push(envelope.remote.port());
        });
    }
    assert_eq!(incoming, [9]);
    assert_eq!(ledger.snapshot().dropped_in_unanswerable, 1);
}

/// Records its datagrams; those that begin with `H` may be deferred.
#[derive(Default)]
struct Recorder(Vec<(u16, Vec<u8>)>);

impl Machine for Recorder {
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
fn turn(dispatcher: &mut Dispatcher, kinds: &[(u8, usize)]) -> (Vec<u16>, u64) {
    let (mut machine, ledger) = (Recorder::default(), Ledger::default());
    dispatcher.begin();
    for (port, (kind, len)) in (1..).zip(kinds) {
        let envelope = Envelope {
            socket: SocketIndex(0),
            remote: SocketAddr::from(([192, 0, 2, 1], port)),
            local: None,
            ecn: None,
        };
        let mut datagram = vec![*kind; *len];
        let at = (Instant::ZERO, &envelope);
        dispatcher.take(at, &mut datagram, &mut machine, &ledger);
    }
    dispatcher.finish(Instant::ZERO, &mut machine, &ledger);
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
fn in_a_long_turn_sessions_precede_handshakes_and_none_is_lost() {
    let mut dispatcher = Dispatcher::default();
    let mut kinds = vec![(b'H', 1_200); 200];
    kinds.extend([(b'p', 40); 50]);
    for _ in 0..2 {
        let (order, waited) = turn(&mut dispatcher, &kinds);
        let expected: Vec<u16> = (1..=64).chain(201..=250).chain(65..=200).collect();
        assert_eq!((order, waited), (expected, 136));
    }
}

#[test]
fn a_short_turn_keeps_its_order() {
    let mut kinds = vec![(b'H', 1_200); 63];
    kinds.push((b'p', 40));
    let (order, waited) = turn(&mut Dispatcher::default(), &kinds);
    assert_eq!((order, waited), ((1..=64).collect(), 0));
}

/// At most 1,024 datagrams of 1,500 bytes are deferred; the others are handled in order.
#[test]
fn deferred_datagrams_are_bounded() {
    let mut dispatcher = Dispatcher::default();
    let mut kinds = vec![(b'H', 1_500); 64 + 1_024 + 10];
    kinds.push((b'p', 40));
    let (order, waited) = turn(&mut dispatcher, &kinds);
    assert_eq!(waited, 1_024);
    assert_eq!(
        order[64..75],
        [
            1_089, 1_090, 1_091, 1_092, 1_093, 1_094, 1_095, 1_096, 1_097, 1_098, 1_099
        ]
    );
    assert!(dispatcher.waiting.is_empty() && dispatcher.bytes.is_empty());
    assert!(dispatcher.bytes.capacity() <= 2 * 1_024 * 1_500);
    let (_, waited) = turn(&mut dispatcher, &[(b'H', 1_501); 100]);
    assert_eq!(waited, 0);
}

//! Sockets: errors of binding, and errors that must not end a servicer.

use std::net::SocketAddr;

use servicer::{BindCause, SocketConfig, SocketIndex, UdpServicer, UdpSocket};
use wire::{Ecn, Transmit};

use crate::harness::{
    Echo, EchoEvent, HarnessRequest, Service, TIMEOUT, burst, next, plain, receive, reporter,
};

#[test]
fn a_busy_port_is_one_clear_sentence() {
    let taken = plain("127.0.0.1").local_addr().unwrap();
    let holder = std::net::UdpSocket::bind(taken).unwrap();
    let error = UdpSocket::bind(taken, &SocketConfig::default()).unwrap_err();
    assert_eq!(error.cause, BindCause::Busy);
    assert_eq!(
        error.to_string(),
        format!("UDP port {taken} is in use by another socket")
    );
    drop(holder);
}

#[test]
fn an_address_of_another_host_is_reported_as_one() {
    let address: SocketAddr = "192.0.2.1:0".parse().unwrap();
    let error = UdpSocket::bind(address, &SocketConfig::default()).unwrap_err();
    assert_eq!(error.cause, BindCause::NotOurs);
    assert_eq!(error.to_string(), "this host has no address 192.0.2.1");
}

#[test]
fn the_report_has_requested_and_granted_values() {
    let mut config = SocketConfig::default();
    config.receive_buffer_bytes = 1 << 30;
    config.send_buffer_bytes = 1 << 30;
    let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &config).unwrap();
    let report = socket.report();
    assert_eq!(report.address, socket.local_address());
    assert_eq!(report.receive_buffer.asked_bytes, Some(1 << 30));
    assert!(report.receive_buffer.granted_bytes < 1 << 30);
    assert!(report.receive_buffer.granted_bytes >= 64 << 10);
    assert_eq!(report.send_buffer.asked_bytes, Some(1 << 30));
    assert!(report.send_buffer.granted_bytes > 0);
    let line = report.to_string();
    assert!(line.contains("asked 1073741824 B"), "{line}");
    assert!(line.contains("never fragmented"), "{line}");
}

#[test]
fn a_refusal_by_icmp_is_counted_and_ends_nothing() {
    // Linux reports closed ports only on connected sockets, other systems on all.
    let closed = plain("127.0.0.1");
    let nobody = closed.local_addr().unwrap();
    drop(closed);
    let connected = plain("127.0.0.1");
    connected.connect(nobody).unwrap();
    let (application, events) = reporter();
    let socket = UdpSocket::from_std(connected).unwrap();
    let handle = UdpServicer::named("refused")
        .spawn(vec![socket], Echo::default(), application)
        .unwrap();
    while handle.counters().unreachable == 0 {
        handle
            .request(HarnessRequest::Send(
                Transmit::to(nobody),
                b"anyone".to_vec(),
            ))
            .unwrap();
        let (answer, answered) = crossbeam_channel::bounded(1);
        handle.request(HarnessRequest::Ping(answer)).unwrap();
        answered.recv().unwrap();
    }
    handle
        .request(HarnessRequest::Timer(std::time::Duration::ZERO))
        .unwrap();
    assert!(matches!(next(&events), EchoEvent::Fired { .. }));
}

#[test]
fn a_closed_port_does_not_disturb_the_other_peers() {
    let service = Service::start("127.0.0.1");
    let closed = plain("127.0.0.1");
    let nobody = closed.local_addr().unwrap();
    drop(closed);
    let client = plain("127.0.0.1");
    for _ in 0..20 {
        service
            .handle
            .request(HarnessRequest::Send(
                Transmit::to(nobody),
                b"anyone".to_vec(),
            ))
            .unwrap();
        client.send_to(b"hello", service.address).unwrap();
        assert_eq!(receive(&client).0, b"hello");
    }
}

/// Each datagram is received, or counted as dropped by the system and reported to the application.
#[cfg(target_os = "linux")]
#[test]
fn receive_buffer_overflows_are_counted_and_reported() {
    const SENT: u64 = 400;
    let flood = |to: SocketAddr| {
        let client = plain("127.0.0.1");
        for _ in 0..SENT {
            client.send_to(&[7; 1_000], to).unwrap();
        }
    };
    let small = socket2::Socket::from(plain("127.0.0.1"));
    small.set_recv_buffer_size(16 << 10).unwrap();
    let socket = UdpSocket::from_std(small.into()).unwrap();
    let address = socket.local_address();
    flood(address);
    let (mut application, _news) = reporter();
    let (sender, drops) = crossbeam_channel::unbounded();
    application.drops = Some(sender);
    let handle = UdpServicer::named("small")
        .spawn(vec![socket], Echo::silent(), application)
        .unwrap();
    let (index, first) = drops.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(index, SocketIndex(0));
    assert!(first > SENT / 2, "{first}");
    let turn = || {
        let (answer, answered) = crossbeam_channel::bounded(1);
        handle.request(HarnessRequest::Ping(answer)).unwrap();
        answered.recv_timeout(TIMEOUT).unwrap();
    };
    turn();
    let counters = handle.counters();
    assert_eq!(counters.dropped_in_full, first);
    assert_eq!(counters.datagrams_in + first, SENT);
    // The same while it runs: its thread is blocked for too long.
    let (end, until) = crossbeam_channel::bounded(0);
    handle.request(HarnessRequest::Block(until)).unwrap();
    flood(address);
    drop(end);
    let second = loop {
        turn();
        if let Ok((_, count)) = drops.try_recv() {
            break count;
        }
    };
    turn();
    let counters = handle.counters();
    assert_eq!(counters.dropped_in_full, first + second);
    assert_eq!(counters.datagrams_in + first + second, 2 * SENT);
    assert_eq!(counters.dropped_in_full_opened, 0);
}

#[test]
fn datagrams_that_are_too_long_are_counted() {
    let service = Service::start("127.0.0.1");
    let client = plain("127.0.0.1");
    let to = client.local_addr().unwrap();
    service
        .handle
        .request(HarnessRequest::Send(Transmit::to(to), vec![0; 65_535]))
        .unwrap();
    service
        .handle
        .request(HarnessRequest::Send(Transmit::to(to), b"short".to_vec()))
        .unwrap();
    assert_eq!(receive(&client).0, b"short");
    // A turn's datagrams are counted at its end.
    service.ping();
    assert_eq!(service.handle.counters().dropped_out_too_large, 1);
}

#[test]
fn a_destination_without_a_socket_of_its_family_is_counted() {
    let service = Service::start("127.0.0.1");
    for to in ["[::1]:9", "127.0.0.1:0"] {
        let transmit = burst(to.parse().unwrap(), 2);
        service
            .handle
            .request(HarnessRequest::Send(transmit, vec![0; 5]))
            .unwrap();
    }
    service.ping();
    service.ping();
    let counters = service.handle.counters();
    assert_eq!(counters.dropped_out_no_socket, 3);
    assert_eq!(counters.dropped_out_refused, 3);
}

#[test]
fn after_one_malformed_send_others_keep_their_ecn_marks() {
    let service = Service::start("127.0.0.1");
    let other = Service::start_with("127.0.0.1", Echo::silent(), |_| {});
    // A multicast source address is invalid: Linux returns EINVAL.
    let mut malformed = Transmit::to(other.address);
    malformed.source = Some("224.0.0.1".parse().unwrap());
    service
        .handle
        .request(HarnessRequest::Send(malformed, b"lost".to_vec()))
        .unwrap();
    let mut marked = burst(other.address, 6);
    marked.ecn = Some(Ecn::Ect0);
    service
        .handle
        .request(HarnessRequest::Send(marked, b"markedmarked".to_vec()))
        .unwrap();
    for _ in 0..2 {
        let EchoEvent::Received { ecn, bytes, .. } = other.next() else {
            panic!("not a datagram")
        };
        assert_eq!(bytes, b"marked");
        assert_eq!(ecn, Some(Ecn::Ect0));
    }
    service.ping();
    assert_eq!(service.handle.counters().dropped_out_refused, 1);
}

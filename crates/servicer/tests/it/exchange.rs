//! Datagrams in both directions.

use std::collections::BTreeSet;

use servicer::{SocketConfig, Stack, UdpServicer, UdpSocket};
use wire::{Ecn, Seed, Transmit};

use crate::harness::{
    Echo, EchoEvent, HarnessRequest, Service, bind, burst, next, plain, receive, reporter,
};

#[test]
fn echoes_200_datagrams_over_ipv4() {
    echo_200("127.0.0.1");
}

#[test]
fn echoes_200_datagrams_over_ipv6() {
    echo_200("::1");
}

fn echo_200(ip: &str) {
    let service = Service::start(ip);
    let client = plain(ip);
    let mut missing: BTreeSet<u32> = (0..200).collect();
    for number in 0..200_u32 {
        client
            .send_to(&number.to_be_bytes(), service.address)
            .unwrap();
        // One datagram at a time, so that the kernel's buffers do not matter.
        let (bytes, from) = receive(&client);
        assert_eq!(from, service.address);
        assert!(missing.remove(&u32::from_be_bytes(bytes.try_into().unwrap())));
    }
    assert!(missing.is_empty());
    service.ping();
    let counters = service.handle.counters();
    assert_eq!(counters.datagrams_in, 200);
    assert_eq!(counters.bytes_in, 800);
    assert_eq!(counters.datagrams_out, 200);
}

#[test]
fn a_burst_is_sent_as_its_datagrams_with_any_segmentation() {
    let service = Service::start("127.0.0.1");
    let client = plain("127.0.0.1");
    let to = client.local_addr().unwrap();
    // 100 datagrams, the last one shorter: more than one segmented send can hold (64), and few
    // enough for the receive buffer of a plain socket.
    let bytes: Vec<u8> = (0..100_u8)
        .flat_map(|number| vec![number; if number == 99 { 7 } else { 500 }])
        .collect();
    service
        .handle
        .request(HarnessRequest::Send(burst(to, 500), bytes.clone()))
        .unwrap();
    let mut received = Vec::new();
    for number in 0..100 {
        let (datagram, _) = receive(&client);
        assert_eq!(datagram.len(), if number == 99 { 7 } else { 500 });
        received.extend(datagram);
    }
    assert_eq!(received, bytes);
}

#[test]
fn a_burst_between_two_servicers_arrives_as_its_datagrams() {
    let sender = Service::start("127.0.0.1");
    let receiver = Service::start_with("127.0.0.1", Echo::silent(), |_| {});
    let bytes: Vec<u8> = (0..40_u8).flat_map(|number| [number; 1_200]).collect();
    sender
        .handle
        .request(HarnessRequest::Send(burst(receiver.address, 1_200), bytes))
        .unwrap();
    for number in 0..40 {
        let EchoEvent::Received { bytes, peer, .. } = receiver.next() else {
            panic!("not a datagram")
        };
        assert_eq!(bytes, [number; 1_200]);
        assert_eq!(peer, sender.address);
    }
}

#[test]
fn bursts_of_any_shape_arrive_as_their_datagrams() {
    let sender = Service::start("127.0.0.1");
    let receiver = Service::start_with("127.0.0.1", Echo::silent(), |_| {});
    let mut generator = Seed::from_number(7).generator(0);
    let drawn = (0..60).map(|_| (generator.between(1, 1_400), generator.between(1, 60_000)));
    // Limits: one system call holds 65,467 bytes and 64 datagrams.
    let shapes = [
        (1, 300),
        (1_400, 140_000),
        (1_400, 1),
        (60_000, 65_507),
        (1_023, 65_472),
    ];
    for (segment, len) in shapes.into_iter().chain(drawn.collect::<Vec<_>>()) {
        // At most 300 datagrams, which the receive buffer holds.
        let len = usize::try_from(len.min(segment * 300)).unwrap();
        let mut bytes = vec![0; len];
        generator.fill(&mut bytes);
        let segment = u16::try_from(segment).unwrap();
        sender
            .handle
            .request(HarnessRequest::Send(
                burst(receiver.address, segment),
                bytes.clone(),
            ))
            .unwrap();
        for expected in bytes.chunks(segment.into()) {
            let EchoEvent::Received { bytes, .. } = receiver.next() else {
                panic!("not a datagram")
            };
            assert_eq!(bytes, expected, "{len} bytes in datagrams of {segment}");
        }
    }
}

#[test]
fn ecn_mark_and_local_address_are_kept() {
    // Bound to all addresses: only the datagram shows its destination address.
    let service = Service::start("0.0.0.0");
    let other = Service::start_with("127.0.0.1", Echo::silent(), |_| {});
    let to = format!("127.0.0.77:{}", service.address.port())
        .parse()
        .unwrap();
    for ecn in [
        None,
        Some(Ecn::Ect0),
        Some(Ecn::Ect1),
        Some(Ecn::CongestionExperienced),
    ] {
        let mut transmit = Transmit::to(to);
        transmit.ecn = ecn;
        other
            .handle
            .request(HarnessRequest::Send(transmit, b"mark".to_vec()))
            .unwrap();
        let received = EchoEvent::Received {
            peer: other.address,
            local: Some("127.0.0.77".parse().unwrap()),
            ecn,
            bytes: b"mark".to_vec(),
        };
        assert_eq!(service.next(), received);
        // The echo copies mark and source, so that both directions are checked.
        let answer = EchoEvent::Received {
            peer: to,
            local: Some("127.0.0.1".parse().unwrap()),
            ecn,
            bytes: b"mark".to_vec(),
        };
        assert_eq!(other.next(), answer);
    }
}

#[test]
fn an_empty_datagram_is_one() {
    let service = Service::start("127.0.0.1");
    let client = plain("127.0.0.1");
    client.send_to(&[], service.address).unwrap();
    assert!(receive(&client).0.is_empty());
}

#[test]
fn of_two_sockets_the_one_of_the_family_is_used() {
    let (v4, v6) = (bind("127.0.0.1"), bind("::1"));
    let addresses = [v4.local_address(), v6.local_address()];
    let (application, _news) = reporter();
    let _handle = UdpServicer::named("both")
        .spawn(vec![v4, v6], Echo::default(), application)
        .unwrap();
    for address in addresses {
        let client = plain(&address.ip().to_string());
        client.send_to(b"hello", address).unwrap();
        assert_eq!(receive(&client), (b"hello".to_vec(), address));
    }
}

#[test]
fn a_dual_socket_sees_and_answers_ipv4_under_its_own_address() {
    let mut config = SocketConfig::default();
    config.stack = Stack::Dual;
    let socket = UdpSocket::bind("[::]:0".parse().unwrap(), &config).unwrap();
    let port = socket.local_address().port();
    let (application, events) = reporter();
    let _handle = UdpServicer::named("dual")
        .spawn(vec![socket], Echo::default(), application)
        .unwrap();
    for ip in ["127.0.0.1", "::1"] {
        let client = plain(ip);
        client.send_to(b"hello", (ip, port)).unwrap();
        assert_eq!(receive(&client).0, b"hello");
        let EchoEvent::Received { peer, local, .. } = next(&events) else {
            panic!("not a datagram")
        };
        assert_eq!(peer, client.local_addr().unwrap());
        assert_eq!(local, Some(ip.parse().unwrap()));
    }
}

#[test]
fn a_mapped_address_is_the_ipv4_address() {
    let mapped = "[::ffff:127.0.0.1]:0".parse().unwrap();
    let socket = UdpSocket::bind(mapped, &SocketConfig::default()).unwrap();
    let address = socket.local_address();
    assert_eq!(address.ip().to_string(), "127.0.0.1");
    let (application, _news) = reporter();
    let _handle = UdpServicer::named("mapped")
        .spawn(vec![socket], Echo::default(), application)
        .unwrap();
    let client = plain("127.0.0.1");
    client.send_to(b"hello", address).unwrap();
    assert_eq!(receive(&client), (b"hello".to_vec(), address));
}

#[test]
fn a_single_stack_socket_leaves_ipv4_to_others() {
    let v6 = UdpSocket::bind("[::]:0".parse().unwrap(), &SocketConfig::default()).unwrap();
    let v4 = std::net::UdpSocket::bind(("0.0.0.0", v6.local_address().port()));
    assert!(v4.is_ok(), "the port is free on IPv4");
}

//! Defects of the UDP servicers of `game_network`, each checked here.

use crate::harness::{EchoEvent, HarnessRequest, Service, next, plain, receive};

/// The UDP servicer was created and never started.
#[test]
fn gnet_g2_a_udp_servicer_that_is_made_serves() {
    let service = Service::start("127.0.0.1");
    let client = plain("127.0.0.1");
    client.send_to(b"served?", service.address).unwrap();
    assert_eq!(receive(&client), (b"served?".to_vec(), service.address));
    assert!(service.handle.is_running());
}

/// Data for several players was kept for the last of them only.
#[test]
fn gnet_g6_datagrams_to_several_peers_in_one_turn_arrive() {
    let service = Service::start("127.0.0.1");
    let clients: Vec<_> = (0..50).map(|_| plain("127.0.0.1")).collect();
    for (number, client) in clients.iter().enumerate() {
        let peer = client.local_addr().unwrap();
        let state = format!("state {number}").into_bytes();
        let ask = HarnessRequest::Send(wire::Transmit::to(peer), state);
        service.handle.request(ask).unwrap();
    }
    for (number, client) in clients.iter().enumerate() {
        assert_eq!(receive(client).0, format!("state {number}").into_bytes());
    }
}

/// The loop was a busy loop.
#[test]
fn gnet_g10_a_udp_servicer_makes_turns_for_arrivals_only() {
    let service = Service::start("127.0.0.1");
    let client = plain("127.0.0.1");
    service.ping();
    let before = service.handle.counters().turns;
    for number in 0..10_u8 {
        client.send_to(&[number], service.address).unwrap();
        assert_eq!(receive(&client).0, [number]);
        assert!(matches!(next(&service.events), EchoEvent::Received { .. }));
    }
    // One for each datagram, and one for each that finds the socket empty.
    let turns = service.handle.counters().turns - before;
    assert!(turns <= 30, "{turns}");
}

//! The link conditioner on real sockets.

use std::time::Duration;

use crossbeam_channel::Sender;
use servicer::{
    Clock, Conditioner, Delivery, Direction, End, LinkModel, Remote, Rules, UdpServicer,
};
use wire::{Instant, Transmit};

use crate::harness::{
    Echo, EchoEvent, HarnessRequest, TIMEOUT, bind, burst, next, plain, receive, reporter,
};

#[test]
fn delays_outgoing_datagrams_only() {
    both_ways(Direction::Outbound);
}

#[test]
fn delays_incoming_datagrams_only() {
    both_ways(Direction::Inbound);
}

/// A delayed echo arrives after its delay, behind a later one without delay.
fn both_ways(direction: Direction) {
    let rules = Rules::new();
    let socket = bind("127.0.0.1");
    let address = socket.local_address();
    let (application, _news) = reporter();
    let _handle = UdpServicer::named("far")
        .with_conditioner(direction, Conditioner::new(rules.clone()))
        .spawn(vec![socket], Echo::default(), application)
        .unwrap();
    let (remote, near) = (plain("127.0.0.1"), plain("127.0.0.1"));
    let delay = Duration::from_millis(40);
    rules.set(remote.local_addr().unwrap(), Delay(delay));

    let sent_at = Clock::new().now();
    remote.send_to(b"far", address).unwrap();
    near.send_to(b"near", address).unwrap();
    assert_eq!(receive(&near).0, b"near");
    assert_eq!(receive(&remote).0, b"far");
    assert!(Clock::new().now().saturating_since(sent_at) >= delay);

    assert!(rules.remove(remote.local_addr().unwrap()));
    remote.send_to(b"close", address).unwrap();
    assert_eq!(receive(&remote).0, b"close");
}

#[test]
fn a_link_model_decides_on_each_datagram_of_a_burst() {
    let rules = Rules::new();
    let (application, _news) = reporter();
    let handle = UdpServicer::named("lossy")
        .with_conditioner(Direction::Outbound, Conditioner::new(rules.clone()))
        .spawn(vec![bind("127.0.0.1")], Echo::default(), application)
        .unwrap();
    let (lens, seen) = crossbeam_channel::unbounded();
    rules.set(Remote::Any, EverySecond { lens, number: 0 });
    let client = plain("127.0.0.1");
    let to = client.local_addr().unwrap();
    handle
        .request(HarnessRequest::Send(burst(to, 2), b"aabbccddee!".to_vec()))
        .unwrap();
    for expected in [b"bb".as_slice(), b"dd", b"!"] {
        assert_eq!(receive(&client).0, expected);
    }
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [2, 2, 2, 2, 2, 1]);
    let report = handle.shutdown(TIMEOUT);
    assert_eq!(report.counters.conditioned_lost, 3);
    assert_eq!(report.counters.datagrams_out, 3);
}

#[test]
fn a_shutdown_waits_for_delayed_datagrams() {
    let rules = Rules::new();
    rules.set(Remote::Any, Delay(Duration::from_millis(20)));
    let client = plain("127.0.0.1");
    let (mut application, _news) = reporter();
    application.farewell = vec![client.local_addr().unwrap()];
    let handle = UdpServicer::named("slow")
        .with_conditioner(Direction::Outbound, Conditioner::new(rules))
        .spawn(vec![bind("127.0.0.1")], Echo::default(), application)
        .unwrap();
    assert_eq!(handle.shutdown(TIMEOUT).end, End::Drained);
    assert_eq!(receive(&client).0, b"farewell");
}

#[test]
fn the_delays_of_two_drivers_add_up() {
    let rules = Rules::new();
    rules.set(Remote::Any, Delay(Duration::from_millis(15)));
    let start = |name: &str, machine| {
        let socket = bind("127.0.0.1");
        let address = socket.local_address();
        let (application, events) = reporter();
        let conditioner = Conditioner::new(rules.clone());
        let handle = UdpServicer::named(name)
            .with_conditioner(Direction::Outbound, conditioner)
            .spawn(vec![socket], machine, application)
            .unwrap();
        (handle, address, events)
    };
    let (_server, to, _) = start("server", Echo::default());
    let silent = Echo::silent();
    let (client, _, received) = start("client", silent);
    let sent_at = Clock::new().now();
    client
        .request(HarnessRequest::Send(Transmit::to(to), b"hello".to_vec()))
        .unwrap();
    assert!(matches!(next(&received), EchoEvent::Received { .. }));
    assert!(Clock::new().now().saturating_since(sent_at) >= Duration::from_millis(30));
}

/// Delays everything.
struct Delay(Duration);

impl LinkModel for Delay {
    fn send(&mut self, now: Instant, datagram: &[u8], deliveries: &mut Vec<Delivery>) {
        deliveries.push(Delivery {
            at: now + self.0,
            bytes: datagram.to_vec(),
        });
    }
}

/// Loses the first, third, fifth ... datagram, and reports the length of each.
struct EverySecond {
    lens: Sender<usize>,
    number: u32,
}

impl LinkModel for EverySecond {
    fn send(&mut self, now: Instant, datagram: &[u8], deliveries: &mut Vec<Delivery>) {
        self.lens.send(datagram.len()).unwrap();
        self.number += 1;
        if self.number.is_multiple_of(2) {
            deliveries.push(Delivery {
                at: now,
                bytes: datagram.to_vec(),
            });
        }
    }
}

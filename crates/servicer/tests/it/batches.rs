//! Many datagrams in one system call: every send method sends the same datagrams.

use std::net::{SocketAddr, UdpSocket as PlainSocket};
use std::ops::ControlFlow;

use servicer::{Batching, Config, Counters, Driver, Requests, SocketConfig, Stack, UdpSocket};
use wire::{Ecn, Transmit};

use crate::harness::{
    Echo, EchoEvent, HarnessRequest, Reporter, bind, next, plain, receive, reporter,
};

const ALL: [Batching; 3] = [Batching::One, Batching::Many, Batching::Segmented];

fn driver(ip: &str, batching: Batching, machine: Echo) -> Bench {
    driver_on(bind(ip), batching, machine)
}

fn driver_on(socket: UdpSocket, batching: Batching, machine: Echo) -> Bench {
    let address = socket.local_address();
    let (application, events) = reporter();
    let mut config = Config::default();
    config.batching = batching;
    let (driver, requests) = Driver::new(vec![socket], machine, application, config).unwrap();
    Bench {
        driver,
        requests,
        events,
        address,
    }
}

struct Bench {
    driver: Driver<Echo, Reporter>,
    requests: Requests<HarnessRequest>,
    events: crossbeam_channel::Receiver<EchoEvent>,
    address: SocketAddr,
}

impl Bench {
    fn send(&self, transmit: Transmit<SocketAddr>, bytes: &[u8]) {
        self.requests
            .send(HarnessRequest::Send(transmit, bytes.to_vec()))
            .unwrap();
    }

    fn turn(&mut self) -> Counters {
        assert_eq!(self.driver.turn(), ControlFlow::Continue(()));
        self.requests.counters()
    }
}

/// Datagrams that each of `clients` received, in order.
fn held(clients: &[PlainSocket], count: usize) -> Vec<Vec<Vec<u8>>> {
    let all = |client| (0..count).map(|_| receive(client).0).collect();
    clients.iter().map(all).collect()
}

/// To 20 clients in turn, 10 each, with varying lengths.
fn send_to_many(batching: Batching) -> (Vec<Vec<Vec<u8>>>, Counters) {
    let mut bench = driver("127.0.0.1", batching, Echo::silent());
    let clients: Vec<_> = (0..20).map(|_| plain("127.0.0.1")).collect();
    for round in 0..10_u8 {
        for client in &clients {
            let bytes = vec![round; 100 + usize::from(round)];
            bench.send(Transmit::to(client.local_addr().unwrap()), &bytes);
        }
    }
    let counters = bench.turn();
    (held(&clients, 10), counters)
}

/// To one client, 50 of 1,200 bytes each and a shorter one.
fn bulk(batching: Batching) -> (Vec<Vec<Vec<u8>>>, Counters) {
    let mut bench = driver("127.0.0.1", batching, Echo::silent());
    let client = plain("127.0.0.1");
    let to = Transmit::to(client.local_addr().unwrap());
    for number in 0..50_u8 {
        bench.send(to, &[number; 1_200]);
    }
    bench.send(to, b"end");
    let counters = bench.turn();
    (held(&[client], 51), counters)
}

#[test]
fn b5_each_batching_mode_sends_the_same_datagrams_in_fewer_calls() {
    let per_mode = ALL.map(send_to_many);
    let bulks = ALL.map(bulk);
    for others in [&per_mode[1], &per_mode[2]] {
        assert_eq!(others.0, per_mode[0].0);
    }
    for others in [&bulks[1], &bulks[2]] {
        assert_eq!(others.0, bulks[0].0);
    }
    for (_, counters) in &per_mode {
        assert_eq!(counters.datagrams_out, 200);
    }
    for (_, counters) in &bulks {
        assert_eq!(counters.datagrams_out, 51);
    }
    if cfg!(tickwire_portable) {
        assert_eq!(per_mode.map(|(_, counters)| counters.send_calls), [200; 3]);
        assert_eq!(bulks.map(|(_, counters)| counters.send_calls), [51; 3]);
    } else if cfg!(target_os = "linux") {
        // 64 datagrams to several clients are a batch, and 51 to one are a run.
        assert_eq!(
            per_mode.map(|(_, counters)| counters.send_calls),
            [200, 4, 4]
        );
        assert_eq!(bulks.map(|(_, counters)| counters.send_calls), [51, 1, 1]);
    }
}

/// `cargo xtask targets --portable` runs it; without that `cfg` it does not exist.
#[cfg(tickwire_portable)]
#[test]
fn b5_without_linux_calls_each_datagram_is_one_call() {
    for batching in ALL {
        let mut bench = driver("127.0.0.1", batching, Echo::silent());
        let client = plain("127.0.0.1");
        for number in 0..64_u8 {
            bench.send(Transmit::to(client.local_addr().unwrap()), &[number]);
        }
        let counters = bench.turn();
        assert_eq!(counters.datagrams_out, 64, "{batching:?}");
        assert_eq!(counters.send_calls, 64, "{batching:?}");
    }
}

#[test]
fn b5_a_batch_is_received_in_fewer_calls() {
    let [one, many] = [Batching::One, Batching::Many].map(|batching| {
        let mut bench = driver("127.0.0.1", batching, Echo::silent());
        let client = plain("127.0.0.1");
        for number in 0..64_u8 {
            client.send_to(&[number], bench.address).unwrap();
        }
        let counters = bench.turn();
        assert_eq!(counters.datagrams_in, 64);
        for number in 0..64_u8 {
            let EchoEvent::Received { bytes, .. } = next(&bench.events) else {
                panic!("not a datagram")
            };
            assert_eq!(bytes, [number]);
        }
        counters.receive_calls
    });
    // One more call finds the socket empty.
    assert_eq!(one, 65);
    if cfg!(tickwire_portable) {
        assert_eq!(many, one);
    } else if cfg!(target_os = "linux") {
        assert_eq!(many, 3);
    }
}

/// A receive call with room left has emptied the socket, so it is not repeated. After a pause of
/// the process it may be: one in a hundred is allowed.
#[test]
fn b5_a_single_datagram_costs_one_call() {
    let mut bench = driver("127.0.0.1", Batching::Many, Echo::silent());
    let client = plain("127.0.0.1");
    let calls = (0..100_u8).map(|number| {
        client.send_to(&[number], bench.address).unwrap();
        let counters = bench.turn();
        let EchoEvent::Received { bytes, .. } = next(&bench.events) else {
            panic!("not a datagram")
        };
        assert_eq!(bytes, [number]);
        counters.receive_calls
    });
    let calls: Vec<u64> = calls.collect();
    let each = calls.windows(2).map(|two| two[1] - two[0]);
    let least = if cfg!(tickwire_portable) || cfg!(not(target_os = "linux")) {
        2
    } else {
        1
    };
    assert_eq!(each.min(), Some(least), "{calls:?}");
}

/// The middle ones fail: too long, to a forbidden address, from an address that is not ours, to an
/// empty address. The others arrive, and each failure is counted by its kind.
#[test]
fn b5_errors_within_a_batch_are_counted_alike_in_each_mode() {
    for batching in ALL {
        let mut bench = driver("127.0.0.1", batching, Echo::silent());
        let client = plain("127.0.0.1");
        let to = Transmit::to(client.local_addr().unwrap());
        let mut malformed = to;
        malformed.source = Some("224.0.0.1".parse().unwrap());
        bench.send(to, b"1");
        bench.send(to, &vec![0; 65_530]);
        bench.send(to, b"2");
        bench.send(Transmit::to("255.255.255.255:9".parse().unwrap()), b"x");
        bench.send(to, b"3");
        bench.send(malformed, b"x");
        bench.send(to, b"4");
        bench.send(Transmit::to("127.0.0.1:0".parse().unwrap()), b"x");
        bench.send(to, b"5");
        let counters = bench.turn();
        for number in [b"1", b"2", b"3", b"4", b"5"] {
            assert_eq!(receive(&client).0, number, "{batching:?}");
        }
        assert_eq!(counters.datagrams_out, 5, "{batching:?}");
        assert_eq!(counters.dropped_out_too_large, 1, "{batching:?}");
        assert_eq!(counters.dropped_out_refused, 3, "{batching:?}");
    }
}

/// IPv4 and IPv6, with an unbound socket, of one family and of both.
#[test]
fn b5_ecn_marks_and_source_addresses_are_kept_in_each_mode() {
    for (ip, any, stack) in [
        ("127.0.0.3", "0.0.0.0:0", Stack::Single),
        ("::1", "[::]:0", Stack::Single),
        ("127.0.0.3", "[::]:0", Stack::Dual),
        ("::1", "[::]:0", Stack::Dual),
    ] {
        for batching in ALL {
            let mut config = SocketConfig::default();
            config.stack = stack;
            let socket = UdpSocket::bind(any.parse().unwrap(), &config).unwrap();
            let mut bench = driver_on(socket, batching, Echo::silent());
            let mut listener = driver(ip, Batching::Segmented, Echo::silent());
            let source = ip.parse().unwrap();
            let marks = [
                None,
                Some(Ecn::Ect0),
                Some(Ecn::Ect1),
                Some(Ecn::CongestionExperienced),
            ];
            for ecn in marks {
                let mut to = Transmit::to(listener.address);
                to.source = Some(source);
                to.ecn = ecn;
                for _ in 0..2 {
                    bench.send(to, b"marked");
                }
            }
            assert_eq!(bench.turn().datagrams_out, 8, "{any} {batching:?}");
            assert_eq!(listener.turn().datagrams_in, 8);
            for expected in marks {
                for _ in 0..2 {
                    let EchoEvent::Received { peer, ecn, .. } = next(&listener.events) else {
                        panic!("not a datagram")
                    };
                    let found = (peer.ip(), ecn);
                    assert_eq!(found, (source, expected), "{any} {batching:?}");
                }
            }
        }
    }
}

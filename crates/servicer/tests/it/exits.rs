//! Exits that report the player's address, on real sockets.

use std::ops::ControlFlow;

use servicer::{Config, Driver, UdpSocket};

use crate::harness::{Echo, EchoEvent, next, plain, reporter};

const HEADER: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0C\xCB\0\x71\x09\x7F\0\0\x01\x0F\xA0\0\x09";

/// Sends from two ports, with the header and then without; returns what the machine received and
/// the drops due to a full table.
fn receive_through(exit: &str, flows_max: usize) -> (Vec<Vec<u8>>, u64) {
    let socket = plain("127.0.0.1");
    let address = socket.local_addr().unwrap();
    let (application, events) = reporter();
    let mut config = Config::default();
    config.exit_flows_max = flows_max;
    let sockets = vec![UdpSocket::from_std(socket.try_clone().unwrap()).unwrap()];
    let (mut driver, requests) =
        Driver::new(sockets, Echo::default(), application, config).unwrap();
    driver.set_trusted_exits(&[exit.parse().unwrap()]);
    for text in [b"first", b"other"] {
        let from = plain("127.0.0.1");
        from.send_to(&[HEADER, text].concat(), address).unwrap();
        from.send_to(text, address).unwrap();
    }
    // Loopback delivers before `send_to` returns.
    assert_eq!(driver.turn(), ControlFlow::Continue(()));
    let counters = requests.counters();
    let received = (0..counters.datagrams_in)
        .map(|_| match next(&events) {
            EchoEvent::Received { bytes, .. } => bytes,
            other @ (EchoEvent::Fired { .. } | EchoEvent::WallClock(_)) => panic!("{other:?}"),
        })
        .collect();
    (received, counters.dropped_in_exit_full)
}

#[test]
fn u13_headers_of_a_trusted_exit_are_removed() {
    let whole = [b"first", b"first", b"other", b"other"].map(|text| text.to_vec());
    assert_eq!(receive_through("127.0.0.1", 8), (whole.to_vec(), 0));
    let wrapped = |text: &[u8]| [HEADER, text].concat();
    let (received, _) = receive_through("127.0.0.2", 8);
    assert_eq!(received[0], wrapped(b"first"), "from anybody else it stays");
}

/// The second flow's header finds the table full; its later datagrams belong to the exit's own
/// address.
#[test]
fn exit_flows_max_bounds_the_number_of_flows() {
    let (received, dropped) = receive_through("127.0.0.1", 1);
    assert_eq!(received, [b"first", b"first", b"other"]);
    assert_eq!(dropped, 1);
}

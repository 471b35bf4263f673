//! Any invalid input is counted and closed, and other connections are unaffected.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use servicer::{StreamConfig, StreamCounters};
use wire::{CloseCause, Seed};

use crate::harness::{HarnessRequest, Node, Setup, TalkerEvent};
use crate::raw_client::{
    RawIdentity, client_hello, plain, read_confirmation, read_to_end, write_partial_record,
};

fn failed(counters: &StreamCounters) -> u64 {
    counters.failed_tls + counters.failed_gone + counters.failed_refused + counters.failed_timeout
}

#[test]
fn ten_thousand_pieces_of_junk_are_counted_and_closed() {
    const COUNT: u64 = 10_000;
    let server = Node::start();
    let hello = client_hello(server.address);
    let mut draws = Seed([7; 32]).generator(0);
    let mut draw = |bound: usize| {
        let mut bytes = [0; 8];
        draws.fill(&mut bytes);
        usize::try_from(u64::from_le_bytes(bytes) % u64::try_from(bound).unwrap()).unwrap()
    };
    for number in 0..COUNT {
        let junk = match number % 4 {
            0 => (0..draw(2_000))
                .map(|_| u8::try_from(draw(256)).unwrap())
                .collect(),
            1 => hello[..draw(hello.len())].to_vec(),
            2 => {
                let mut junk = hello.clone();
                junk[draw(hello.len())] ^= 1 << draw(8);
                junk
            }
            // The head of a TLS record without the rest.
            _ => [&[22, 3, 1, 0x40, 0][..], &vec![0; draw(16_384)]].concat(),
        };
        let mut raw_client = plain(server.address);
        // It may be closed before all is written.
        drop(raw_client.write_all(&junk));
        drop(raw_client.shutdown(Shutdown::Write));
        read_to_end(raw_client);
    }
    let counters = server.wait_for(|counters| failed(counters) == COUNT);
    assert_eq!(counters.accepted, COUNT);
    assert_eq!(counters.opened, 0);
    assert!(counters.failed_tls > COUNT / 4, "{counters:?}");
    assert!(counters.failed_gone > COUNT / 8, "{counters:?}");
    assert!(server.events.is_empty(), "the machine never hears of it");
    Node::start().join(&server);
}

/// Relays bytes both ways, and flips one bit of the dialer's.
fn flipping_relay(to: SocketAddr, at: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let pass = |mut from: TcpStream, mut to: TcpStream, mut at: Option<usize>| {
        let mut buffer = [0; 4_096];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            if let Some(left) = at {
                if left < len {
                    buffer[left] ^= 1;
                }
                at = left.checked_sub(len);
            }
            if to.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        drop(to.shutdown(Shutdown::Write));
    };
    std::thread::spawn(move || {
        let (near, _) = listener.accept().unwrap();
        let remote = TcpStream::connect(to).unwrap();
        let (back, forth) = (remote.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || pass(back, forth, None));
        pass(near, remote, Some(at));
    });
    address
}

#[test]
fn gonet_h2_a_bit_flipped_in_any_packet_is_detected() {
    let server = Node::start();
    let one = Node::start();
    let mut opened = 0;
    for at in (0..3_000).step_by(61) {
        let relay = flipping_relay(server.address, at);
        let Ok(here) = one.dial(relay, server.id) else {
            continue;
        };
        opened += 1;
        one.ask(HarnessRequest::Flood(here, 30, 100));
        assert_eq!(
            one.next(),
            TalkerEvent::Closed(here, CloseCause::Failed),
            "{at}"
        );
    }
    assert!((20..45).contains(&opened), "{opened}");
    let counters = server.wait_for(|counters| counters.closed_tls == opened);
    assert_eq!(counters.opened, opened);
    assert_eq!(failed(&counters), counters.accepted - opened);
    // Each record that the machine received is unmodified.
    for event in server.events.try_iter() {
        if let TalkerEvent::Frame(_, record) = event {
            let number = u32::from_be_bytes(record[..4].try_into().unwrap());
            assert_eq!(record, crate::harness::numbered(number, 100));
        }
    }
}

#[test]
fn a_record_over_the_limit_closes_before_its_body() {
    let server = Node::start();
    for len in [66_561, u32::MAX] {
        let mut raw_client = RawIdentity::honest().dial(server.address);
        read_confirmation(&mut raw_client);
        let TalkerEvent::Opened(there, _) = server.next() else {
            panic!("nothing opened")
        };
        write_partial_record(&mut raw_client, 2, b"ok");
        assert_eq!(server.next(), TalkerEvent::Frame(there, b"ok".to_vec()));
        write_partial_record(&mut raw_client, len, b"");
        assert_eq!(
            server.next(),
            TalkerEvent::Closed(there, CloseCause::Failed)
        );
        assert!(read_to_end(raw_client).is_empty());
    }
    assert_eq!(server.handle.counters().closed_too_long, 2);
}

#[test]
fn the_end_of_a_stream_inside_a_record_is_no_orderly_end() {
    let server = Node::start();
    let open = || {
        let mut raw_client = RawIdentity::honest().dial(server.address);
        read_confirmation(&mut raw_client);
        let TalkerEvent::Opened(there, _) = server.next() else {
            panic!("nothing opened")
        };
        (raw_client, there)
    };
    // A close_notify in the middle of a record.
    let (mut raw_client, there) = open();
    write_partial_record(&mut raw_client, 10, b"half");
    raw_client.conn.send_close_notify();
    raw_client.flush().unwrap();
    assert_eq!(
        server.next(),
        TalkerEvent::Closed(there, CloseCause::Failed)
    );
    // No close_notify.
    let (raw_client, there) = open();
    drop(raw_client.sock);
    assert_eq!(
        server.next(),
        TalkerEvent::Closed(there, CloseCause::Failed)
    );
    assert_eq!(server.handle.counters().closed_reset, 2);
    // A close_notify between records.
    let (mut raw_client, there) = open();
    raw_client.conn.send_close_notify();
    raw_client.flush().unwrap();
    assert_eq!(
        server.next(),
        TalkerEvent::Closed(there, CloseCause::Finished)
    );
}

#[test]
fn a_slow_handshake_is_closed_by_deadline() {
    let mut config = StreamConfig::default();
    config.handshake_timeout = std::time::Duration::from_millis(100);
    let server = Setup {
        config,
        ..Setup::default()
    }
    .start();
    // A handshake that never completes.
    let hello = client_hello(server.address);
    let mut slow = plain(server.address);
    let mut written = 0;
    for byte in &hello[..hello.len() - 1] {
        if slow.write_all(&[*byte]).is_err() {
            break;
        }
        written += 1;
    }
    assert!(written > 0);
    assert!(read_to_end(slow).is_empty());
    assert_eq!(server.wait_for(|it| it.failed_timeout == 1).accepted, 1);
    // A handshake that never starts.
    assert!(read_to_end(plain(server.address)).is_empty());
    assert_eq!(server.wait_for(|it| it.failed_timeout == 2).accepted, 2);
}

#[test]
fn a_slow_record_is_closed_by_deadline() {
    let mut config = StreamConfig::default();
    config.record_timeout = std::time::Duration::from_millis(50);
    let server = Setup {
        config,
        ..Setup::default()
    }
    .start();
    // A record that is still incomplete at the deadline.
    let mut raw_client = RawIdentity::honest().dial(server.address);
    read_confirmation(&mut raw_client);
    let TalkerEvent::Opened(there, _) = server.next() else {
        panic!("nothing opened")
    };
    write_partial_record(&mut raw_client, 60_000, b"x");
    for _ in 0..1_000 {
        if !server.events.is_empty() || raw_client.write_all(b"x").is_err() {
            break;
        }
        drop(raw_client.flush());
    }
    assert_eq!(
        server.next(),
        TalkerEvent::Closed(there, CloseCause::Failed)
    );
    assert_eq!(server.handle.counters().closed_slow, 1);
    // A TLS record that is still incomplete at the deadline.
    let mut raw_client = RawIdentity::honest().dial(server.address);
    read_confirmation(&mut raw_client);
    let TalkerEvent::Opened(there, _) = server.next() else {
        panic!("nothing opened")
    };
    raw_client.sock.write_all(&[23, 3, 3, 0x40]).unwrap();
    assert_eq!(
        server.next(),
        TalkerEvent::Closed(there, CloseCause::Failed)
    );
    assert_eq!(server.handle.counters().closed_slow, 2);
}

#[test]
fn a_silent_client_is_closed_by_deadline() {
    let mut config = StreamConfig::default();
    config.idle_timeout = std::time::Duration::from_millis(50);
    let server = Setup {
        config,
        ..Setup::default()
    }
    .start();
    let one = Node::start();
    let (here, there) = one.join(&server);
    assert_eq!(
        server.next(),
        TalkerEvent::Closed(there, CloseCause::Failed)
    );
    assert_eq!(server.handle.counters().closed_idle, 1);
    assert_eq!(one.next(), TalkerEvent::Closed(here, CloseCause::Failed));
}

#[test]
fn an_accepting_end_that_confirms_with_data_is_refused() {
    // The accepting end sends a record instead of the empty one.
    let raw_identity = RawIdentity::honest();
    let one = Node::start();
    let address = raw_identity.serve(&[0, 0, 0, 1, 7]);
    assert_eq!(
        one.dial(address, raw_identity.public.node_id()),
        Err(servicer::DialError::Malformed)
    );
}

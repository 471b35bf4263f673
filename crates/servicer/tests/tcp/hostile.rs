//! Any invalid input is counted and closed, and other connections are unaffected.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use servicer::{StreamConfig, StreamCounters};
use wire::{CloseCause, Seed};

use crate::stranger::{Shown, announce, client_hello, greet, plain, read_to_end};
use crate::toy::{Ask, Node, Setup, ToyEvent};

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
        let mut stranger = plain(server.address);
        // It may be closed before all is written.
        drop(stranger.write_all(&junk));
        drop(stranger.shutdown(Shutdown::Write));
        read_to_end(stranger);
    }
    let counters = server.wait_for(|counters| failed(counters) == COUNT);
    assert_eq!(counters.accepted, COUNT);
    assert_eq!(counters.opened, 0);
    assert!(counters.failed_tls > COUNT / 4, "{counters:?}");
    assert!(counters.failed_gone > COUNT / 8, "{counters:?}");
    assert!(server.news.is_empty(), "the machine never hears of it");
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
        let far = TcpStream::connect(to).unwrap();
        let (back, forth) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || pass(back, forth, None));
        pass(near, far, Some(at));
    });
    address
}

#[test]
fn a_bit_turned_over_anywhere_on_the_way_is_noticed() {
    let server = Node::start();
    let one = Node::start();
    let mut opened = 0;
    for at in (0..3_000).step_by(61) {
        let relay = flipping_relay(server.address, at);
        let Ok(here) = one.dial(relay, server.id) else {
            continue;
        };
        opened += 1;
        one.ask(Ask::Flood(here, 30, 100));
        assert_eq!(
            one.next(),
            ToyEvent::Closed(here, CloseCause::Failed),
            "{at}"
        );
    }
    assert!((20..45).contains(&opened), "{opened}");
    let counters = server.wait_for(|counters| counters.closed_tls == opened);
    assert_eq!(counters.opened, opened);
    assert_eq!(failed(&counters), counters.accepted - opened);
    // Each record that the machine received is unmodified.
    for news in server.news.try_iter() {
        if let ToyEvent::Frame(_, record) = news {
            let number = u32::from_be_bytes(record[..4].try_into().unwrap());
            assert_eq!(record, crate::toy::numbered(number, 100));
        }
    }
}

#[test]
fn a_record_over_the_limit_closes_before_its_body() {
    let server = Node::start();
    for len in [66_561, u32::MAX] {
        let mut stranger = Shown::honest().dial(server.address);
        greet(&mut stranger);
        let ToyEvent::Opened(there, _) = server.next() else {
            panic!("nothing opened")
        };
        announce(&mut stranger, 2, b"ok");
        assert_eq!(server.next(), ToyEvent::Frame(there, b"ok".to_vec()));
        announce(&mut stranger, len, b"");
        assert_eq!(server.next(), ToyEvent::Closed(there, CloseCause::Failed));
        assert!(read_to_end(stranger).is_empty());
    }
    assert_eq!(server.handle.counters().closed_too_long, 2);
}

#[test]
fn the_end_of_a_stream_inside_a_record_is_no_orderly_end() {
    let server = Node::start();
    let open = || {
        let mut stranger = Shown::honest().dial(server.address);
        greet(&mut stranger);
        let ToyEvent::Opened(there, _) = server.next() else {
            panic!("nothing opened")
        };
        (stranger, there)
    };
    // A close_notify in the middle of a record.
    let (mut stranger, there) = open();
    announce(&mut stranger, 10, b"half");
    stranger.conn.send_close_notify();
    stranger.flush().unwrap();
    assert_eq!(server.next(), ToyEvent::Closed(there, CloseCause::Failed));
    // No close_notify.
    let (stranger, there) = open();
    drop(stranger.sock);
    assert_eq!(server.next(), ToyEvent::Closed(there, CloseCause::Failed));
    assert_eq!(server.handle.counters().closed_reset, 2);
    // A close_notify between records.
    let (mut stranger, there) = open();
    stranger.conn.send_close_notify();
    stranger.flush().unwrap();
    assert_eq!(server.next(), ToyEvent::Closed(there, CloseCause::Finished));
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
    let mut stranger = Shown::honest().dial(server.address);
    greet(&mut stranger);
    let ToyEvent::Opened(there, _) = server.next() else {
        panic!("nothing opened")
    };
    announce(&mut stranger, 60_000, b"x");
    for _ in 0..1_000 {
        if !server.news.is_empty() || stranger.write_all(b"x").is_err() {
            break;
        }
        drop(stranger.flush());
    }
    assert_eq!(server.next(), ToyEvent::Closed(there, CloseCause::Failed));
    assert_eq!(server.handle.counters().closed_slow, 1);
    // A TLS record that is still incomplete at the deadline.
    let mut stranger = Shown::honest().dial(server.address);
    greet(&mut stranger);
    let ToyEvent::Opened(there, _) = server.next() else {
        panic!("nothing opened")
    };
    stranger.sock.write_all(&[23, 3, 3, 0x40]).unwrap();
    assert_eq!(server.next(), ToyEvent::Closed(there, CloseCause::Failed));
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
    assert_eq!(server.next(), ToyEvent::Closed(there, CloseCause::Failed));
    assert_eq!(server.handle.counters().closed_idle, 1);
    assert_eq!(one.next(), ToyEvent::Closed(here, CloseCause::Failed));
}

#[test]
fn a_vote_before_the_end_of_voting_is_refused() {
    // The accepting end sends a record instead of the empty one.
    let shown = Shown::honest();
    let one = Node::start();
    let address = shown.serve(&[0, 0, 0, 1, 7]);
    assert_eq!(
        one.dial(address, shown.public.node_id()),
        Err(servicer::DialError::Malformed)
    );
}

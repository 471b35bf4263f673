//! Invalid connections, to a host's port or from a dialled host, are counted and closed.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use servicer::{DialError, HostCertificate, StreamConfig};
use wire::CloseCause;

use crate::authority::{Authority, accepted_by, dial, dial_raw, hello, listen, serve};
use crate::harness::{HarnessRequest, Node, Setup, TalkerEvent};
use crate::raw_client::{plain, read_confirmation, read_to_end, write_partial_record};

/// A host with other limits.
fn limited(certificate: &HostCertificate, set: impl FnOnce(&mut StreamConfig)) -> Node {
    let mut config = StreamConfig::default();
    set(&mut config);
    Setup {
        certificate: Some(certificate.clone()),
        config,
        ..Setup::default()
    }
    .start()
}

/// A client's first flight.
fn first_flight(authority: &Authority) -> Vec<u8> {
    let mut bytes = Vec::new();
    hello(authority).write_tls(&mut bytes).unwrap();
    bytes
}

#[test]
fn b4_a_client_without_tls_1_3_is_counted_and_closed() {
    let root = Authority::new("root");
    let host = serve(&root.certificate());
    // Only version 1.3 is supported; RFC 8446, section 4.2.1.
    let mut older = first_flight(&root);
    let offer = [0, 43, 0, 3, 2, 3, 4];
    let at = older.windows(7).position(|it| it == offer).unwrap();
    older[at + 6] = 3;
    // An announced message of 16 MiB: the host neither waits for it nor allocates it.
    let endless = [22, 3, 1, 0, 8, 1, 255, 255, 255, 3, 3, 0, 0];
    let record = [0, 0, 0, 2, b'h', b'i'];
    let plaintext = b"GET / HTTP/1.1\r\nHost: game.example\r\n\r\n";
    for (count, bytes) in (1..).zip([&plaintext[..], &record, &older, &endless]) {
        let mut raw_client = plain(host.address);
        raw_client.write_all(bytes).unwrap();
        if bytes == record {
            // Too short to distinguish from the start of a longer one.
            raw_client.write_all(&[0; 16]).unwrap();
        }
        let answer = read_to_end(raw_client);
        // Nothing, or an alert with the cause; RFC 8446, section 6.
        assert!(answer.is_empty() || answer[0] == 21, "{answer:?}");
        let counters = host.wait_for(|counters| counters.failed_tls == count);
        assert_eq!((counters.accepted, counters.opened), (count, 0));
    }
    assert!(host.events.is_empty(), "the machine never hears of it");
    assert!(dial(&Node::start(), host.address, &root.trusted()).is_ok());
}

#[test]
fn b4_a_dial_of_an_absent_host_ends_with_an_error_in_time() {
    let mut config = StreamConfig::default();
    config.handshake_timeout = Duration::from_millis(200);
    let one = Setup {
        config,
        ..Setup::default()
    }
    .start();
    let trusted = Authority::new("root").trusted();
    let echo = |mut io: TcpStream| {
        let mut buffer = [0; 512];
        while let Ok(len @ 1..) = io.read(&mut buffer) {
            drop(io.write_all(&buffer[..len]));
        }
    };
    let banner = |mut io: TcpStream| {
        drop(io.write_all(b"220 mail.example ready\r\n"));
        read_to_end(io);
    };
    let endless = |mut io: TcpStream| {
        drop(io.write_all(&[22, 3, 3, 0, 8, 2, 255, 255, 255, 3, 3, 0, 0]));
        read_to_end(io);
    };
    // One byte for each read of the other end, until that closes.
    let trickle = |mut io: TcpStream| {
        while io.write_all(&[22]).is_ok() && io.write_all(&[3, 3, 64, 0]).is_ok() {
            while io.write_all(&[0]).is_ok() {
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
    };
    let silent = |io: TcpStream| drop(read_to_end(io));
    let cases: [(SocketAddr, DialError); 6] = [
        (listen(echo), DialError::Malformed),
        (listen(banner), DialError::Malformed),
        (listen(endless), DialError::Malformed),
        (listen(trickle), DialError::TimedOut),
        (listen(silent), DialError::TimedOut),
        (listen(drop), DialError::Gone),
    ];
    for (number, (address, expected)) in cases.into_iter().enumerate() {
        assert_eq!(dial(&one, address, &trusted), Err(expected), "{number}");
    }
    let counters = one.handle.counters();
    assert_eq!((counters.failed_tls, counters.failed_timeout), (3, 2));
    assert_eq!((counters.failed_gone, counters.opened), (1, 0));
}

#[test]
fn b4_a_node_is_not_accepted_as_host_nor_a_host_as_node() {
    let root = Authority::new("root");
    let (node, host, one) = (Node::start(), serve(&root.certificate()), Node::start());
    assert_eq!(one.dial(host.address, host.id), Err(DialError::Refused));
    let result = dial(&one, node.address, &root.trusted());
    assert_eq!(result, Err(DialError::Refused));
    for refusing in [&node, &host] {
        let counters = refusing.wait_for(|counters| counters.failed_tls == 1);
        assert_eq!((counters.accepted, counters.opened), (1, 0));
    }
    // Each over its own protocol.
    assert!(one.dial(node.address, node.id).is_ok());
    assert!(dial(&one, host.address, &root.trusted()).is_ok());
}

#[test]
fn b4_an_endless_handshake_with_a_host_times_out() {
    let root = Authority::new("root");
    let host = limited(&root.certificate(), |config| {
        config.handshake_timeout = Duration::from_millis(100);
    });
    let flight = first_flight(&root);
    // One that never starts, one that stops halfway, one that sends slowly.
    for len in [0, 100, flight.len() - 1] {
        let mut raw_client = plain(host.address);
        for byte in &flight[..len] {
            if raw_client.write_all(&[*byte]).is_err() {
                break;
            }
        }
        assert!(read_to_end(raw_client).is_empty());
    }
    // One that reads the host's flight and never answers.
    let mut raw_client = plain(host.address);
    raw_client.write_all(&flight).unwrap();
    let raw_identity = read_to_end(raw_client);
    assert!(raw_identity.len() > 500, "{}", raw_identity.len());
    let counters = host.wait_for(|counters| counters.failed_timeout == 4);
    assert_eq!((counters.accepted, counters.opened), (4, 0));
    assert!(dial(&Node::start(), host.address, &root.trusted()).is_ok());
}

#[test]
fn b4_a_half_closing_client_is_distinguished_from_an_orderly_leave() {
    let root = Authority::new("root");
    let host = serve(&root.certificate());
    let open = || {
        let mut raw_client = dial_raw(host.address, &root);
        read_confirmation(&mut raw_client);
        (raw_client, accepted_by(&host))
    };
    // Orderly: its earlier data arrives, and the host sends close_notify, too.
    let (mut raw_client, there) = open();
    write_partial_record(&mut raw_client, 2, b"ok");
    raw_client.conn.send_close_notify();
    raw_client.flush().unwrap();
    assert_eq!(host.next(), TalkerEvent::Frame(there, b"ok".to_vec()));
    assert_eq!(
        host.next(),
        TalkerEvent::Closed(there, CloseCause::Finished)
    );
    assert_eq!(raw_client.read(&mut [0; 8]).unwrap(), 0);
    // Only TCP's FIN, which anybody on the path could send.
    let (mut raw_client, there) = open();
    raw_client.sock.shutdown(Shutdown::Write).unwrap();
    assert_eq!(host.next(), TalkerEvent::Closed(there, CloseCause::Failed));
    let error = raw_client.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    // The host sends close_notify first; no data is lost.
    let (mut raw_client, there) = open();
    host.ask(HarnessRequest::Close(there, b"bye".to_vec()));
    let mut bytes = Vec::new();
    raw_client.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"\0\0\0\x03bye");
    assert_eq!(host.next(), TalkerEvent::Closed(there, CloseCause::Local));
    let counters = host.handle.counters();
    let closed = (counters.closed_finished, counters.closed_reset);
    assert_eq!((closed, counters.closed_local), ((1, 1), 1));
}

#[test]
fn b4_a_flood_of_the_smallest_pieces_starves_no_other() {
    const PIECES: usize = 20_000;
    let root = Authority::new("root");
    let host = serve(&root.certificate());
    let mut flooder = dial_raw(host.address, &root);
    read_confirmation(&mut flooder);
    let flooding = accepted_by(&host);
    let mut quiet = dial_raw(host.address, &root);
    read_confirmation(&mut quiet);
    let aside = accepted_by(&host);
    // Each byte of a record in a TLS record of its own: 23 bytes for one.
    let len = u32::try_from(PIECES).unwrap();
    let mut flood = Vec::new();
    for byte in len.to_be_bytes().into_iter().chain([7].repeat(PIECES)) {
        flooder.conn.writer().write_all(&[byte]).unwrap();
        flooder.conn.write_tls(&mut flood).unwrap();
    }
    assert_eq!(flood.len(), 23 * (PIECES + 4));
    let mut socket = flooder.sock.try_clone().unwrap();
    let writer = std::thread::spawn(move || socket.write_all(&flood).unwrap());
    write_partial_record(&mut quiet, 2, b"me");
    let (first, second) = (host.next(), host.next());
    writer.join().unwrap();
    let whole = TalkerEvent::Frame(flooding, vec![7; PIECES]);
    let mine = TalkerEvent::Frame(aside, b"me".to_vec());
    assert!([&first, &second].contains(&&whole));
    assert!([&first, &second].contains(&&mine));
    assert_eq!(host.handle.counters().records_in, 2);
}

#[test]
fn b4_a_client_that_updates_keys_endlessly_is_closed() {
    let root = Authority::new("root");
    let host = serve(&root.certificate());
    let mut raw_client = dial_raw(host.address, &root);
    read_confirmation(&mut raw_client);
    let there = accepted_by(&host);
    // A few are allowed.
    for _ in 0..100 {
        raw_client.conn.refresh_traffic_keys().unwrap();
        write_partial_record(&mut raw_client, 1, b"x");
        assert_eq!(host.next(), TalkerEvent::Frame(there, b"x".to_vec()));
    }
    // Each costs a key derivation at both ends and carries no data.
    for _ in 0..100 {
        raw_client.conn.refresh_traffic_keys().unwrap();
        if raw_client.flush().is_err() {
            break;
        }
    }
    assert_eq!(host.next(), TalkerEvent::Closed(there, CloseCause::Failed));
    assert_eq!(host.handle.counters().closed_tls, 1);
    // A second handshake, which TLS 1.3 does not have.
    let mut raw_client = dial_raw(host.address, &root);
    read_confirmation(&mut raw_client);
    let there = accepted_by(&host);
    raw_client.sock.write_all(&first_flight(&root)).unwrap();
    assert_eq!(host.next(), TalkerEvent::Closed(there, CloseCause::Failed));
    assert_eq!(host.handle.counters().closed_tls, 2);
}

#[test]
fn b4_a_client_that_reads_nothing_is_closed_within_its_credit() {
    const LEN: usize = 60_000;
    let root = Authority::new("root");
    let host = limited(&root.certificate(), |config| {
        config.stall_timeout = Duration::from_millis(200);
        config.credit_bytes = 200_000;
    });
    let mut raw_client = dial_raw(host.address, &root);
    read_confirmation(&mut raw_client);
    let there = accepted_by(&host);
    host.ask(HarnessRequest::Flood(there, 10_000, LEN));
    assert_eq!(host.next(), TalkerEvent::Closed(there, CloseCause::Failed));
    let counters = host.handle.counters();
    assert_eq!(counters.closed_stalled, 1);
    // The data written is what the sockets hold; beyond that, at most the credit was taken.
    let taken = u64::try_from(read_to_end(raw_client).len()).unwrap();
    let sent = counters.bytes_out + 4 * counters.records_out;
    assert!(sent - taken < 200_000 + 65_536, "{sent} {taken}");
}

//! Peers and an application that do not read.

use std::io::Write;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender};
use servicer::{ClientEvent, Dest, LeaveCause, MessageError, ServerEvent};

use super::harness::{
    Harness, SETTLE_TIME, closed, message, next_event, record, text, until, with_both_modes,
};
use crate::harness::TIMEOUT;
use crate::raw_client::{RawIdentity, read_confirmation, read_to_end, write_partial_record};

#[test]
fn ls_19_a_stopped_reader_is_disconnected_at_its_budget() {
    with_both_modes(|mut config| {
        config.queued_bytes_max = 64 << 10;
        config.message_bytes_max = 1 << 10;
        let mut harness = Harness::new(&config);
        let (raw_client, slow) = harness.join_by_hand();
        let mut readers: Vec<_> = (0..3).map(|_| harness.join("reader")).collect();
        let mut sent = 0_u32;
        let waited = loop {
            let payload = Bytes::from(sent.to_be_bytes().repeat(250));
            harness.send_retrying(Dest::All, &payload);
            sent += 1;
            // Each reader has each message before the next is sent, whatever is queued for the
            // other.
            for (client, _) in &mut readers {
                assert_eq!(message(client), payload, "{sent}");
            }
            if let Some(ServerEvent::Slow {
                member,
                waiting_bytes,
                ..
            }) = harness.server.poll_event()
            {
                assert_eq!(member, slow);
                break waiting_bytes;
            }
        };
        assert!(waited <= 64 << 10 && waited > 60 << 10, "{waited}");
        assert_eq!(harness.left(slow), LeaveCause::Slow);
        // Once it reads again, it sees the close.
        let mut read = read_to_end(raw_client);
        assert_eq!(read.split_off(read.len() - 6), [0, 0, 0, 2, 4, 1]);
        println!("given up after {sent} messages of 1,000 B");
    });
}

#[test]
fn ls_19_messages_queued_too_long_disconnect_the_reader() {
    with_both_modes(|mut config| {
        config.queued_bytes_max = 64 << 20;
        config.queued_age_max = Duration::from_millis(80);
        let mut harness = Harness::new(&config);
        let (raw_client, slow) = harness.join_by_hand();
        // More than the sockets hold, and less than the byte limit.
        for _ in 0..400 {
            harness.send_retrying(slow, &Bytes::from(vec![7; 60_000]));
        }
        let ServerEvent::Slow {
            member,
            waiting_bytes,
            waiting_for,
        } = harness.next()
        else {
            panic!("no word of it")
        };
        assert_eq!(member, slow);
        assert!(waiting_bytes < 64 << 20);
        assert!(waiting_for >= Duration::from_millis(80), "{waiting_for:?}");
        assert_eq!(harness.left(slow), LeaveCause::Slow);
        drop(raw_client);
    });
}

#[test]
fn ls_19_a_client_disconnects_from_a_server_that_reads_nothing() {
    with_both_modes(|mut config| {
        config.event_bytes_max = 64 << 10;
        let mut harness = Harness::new(&config);
        harness.config.queued_age_max = Duration::from_millis(80);
        let (mut client, _) = harness.join("chatterer");
        // The application takes no events; so the server stops reading, and in the end the socket
        // fills.
        until(|| {
            client.send(Bytes::from(vec![7; 60_000])).ok();
            client.counters().closed_local == 1
        });
        assert_eq!(closed(&mut client), servicer::ClientClose::ServerSlow);
    });
}

#[test]
fn ls_19_clients_wait_for_a_stalled_application_and_lose_nothing() {
    const COUNT: u32 = 600;
    with_both_modes(|mut config| {
        config.events_max = 8;
        config.event_bytes_max = 256 << 10;
        let mut harness = Harness::new(&config);
        // The client has no deadline.
        harness.config.queued_bytes_max = 64 << 20;
        harness.config.queued_age_max = TIMEOUT;
        let (client, id) = harness.join("chatterer");
        for number in 0..COUNT {
            let payload = Bytes::from(number.to_be_bytes().repeat(15_000));
            while client.send(payload.clone()) == Err(MessageError::Busy) {
                std::thread::yield_now();
            }
        }
        until(|| client.counters().writes_blocked > 0);
        let taken = harness.sum(|counters| counters.bytes_in);
        assert!(taken < u64::from(COUNT) * 60_000 / 2, "{taken}");
        for number in 0..COUNT {
            let ServerEvent::Message { from, payload } = harness.next() else {
                panic!("no message")
            };
            assert_eq!(from, id);
            assert!(payload == number.to_be_bytes().repeat(15_000), "{number}");
        }
    });
}

#[test]
fn ls_19_the_shortest_messages_are_bounded_too() {
    with_both_modes(|mut config| {
        config.events_max = 100;
        let mut harness = Harness::new(&config);
        let (mut raw_client, id) = harness.join_by_hand();
        // Each has one byte, and four of length.
        let flood = [0, 0, 0, 1, 3].repeat(300_000);
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                raw_client.write_all(&flood).unwrap();
                raw_client.flush().unwrap();
                raw_client
            });
            until(|| harness.sum(|counters| counters.records_in) > 100);
            let mut taken = 0;
            // Until no more is read.
            while taken < harness.sum(|counters| counters.records_in) {
                taken = harness.sum(|counters| counters.records_in);
                assert!(harness.server.members().eq([id]));
                std::thread::park_timeout(SETTLE_TIME);
            }
            // The events queued for the application and in the servicer, and those of one read.
            assert!(taken < 100 + 256 + (64 << 10) / 5 + 2, "{taken}");
            for _ in 0..300_000 {
                let ServerEvent::Message { from, payload } = harness.next() else {
                    panic!("no message")
                };
                assert!(from == id && payload.is_empty());
            }
            drop(writer.join());
        });
    });
}

#[test]
fn the_request_queue_is_bounded_and_returns_what_does_not_fit() {
    with_both_modes(|mut config| {
        config.orders_max = 4.try_into().unwrap();
        let mut harness = Harness::new(&config);
        let (mut client, id) = harness.join("ann");
        // The servicer blocks until the test releases it.
        let (release, released) = crossbeam_channel::bounded::<()>(0);
        let (blocks, blocked) = crossbeam_channel::bounded::<()>(1);
        let payload = Bytes::from_owner(Brake {
            bytes: b"stop".to_vec(),
            blocks,
            released,
        });
        harness.server.send(id, payload).unwrap();
        blocked.recv().unwrap();
        let sent = (0..100)
            .take_while(|number| harness.server.send(id, text(&number.to_string())).is_ok())
            .count();
        assert_eq!(sent, 4);
        assert_eq!(
            harness.server.send(Dest::All, text("x")),
            Err(MessageError::Busy)
        );
        drop(release);
        assert_eq!(message(&mut client), "stop");
        for number in 0..sent {
            assert_eq!(message(&mut client), number.to_string());
        }
    });
}

#[test]
fn an_unauthenticated_peer_has_small_limits() {
    with_both_modes(|mut config| {
        config.join_bytes_max = 100;
        config.stream.handshakes_max = 8;
        let harness = Harness::new(&config);
        // One sends too much, one sends an invalid message.
        let mut chatty = harness.call(&"x".repeat(101));
        assert_eq!(closed(&mut chatty), servicer::ClientClose::Lost);
        let mut eager = RawIdentity::honest().dial(harness.address);
        read_confirmation(&mut eager);
        write_partial_record(&mut eager, 3, b"\x03hi");
        assert_eq!(read_to_end(eager), b"");
        let door = harness.server.counters()[0];
        assert_eq!((door.closed_too_long, door.closed_local), (1, 1));
        // And one sends nothing.
        config.join_timeout = Duration::from_millis(60);
        let harness = Harness::new(&config);
        let mut silent = RawIdentity::honest().dial(harness.address);
        read_confirmation(&mut silent);
        assert_eq!(read_to_end(silent), b"");
        assert_eq!(harness.server.counters()[0].closed_idle, 1);
    });
}

#[test]
fn a_peer_served_by_another_driver_counts_at_its_listener() {
    with_both_modes(|mut config| {
        config.stream.connections_per_source_max = 2;
        let mut harness = Harness::new(&config);
        let (one, id) = harness.join("one");
        let (_two, _) = harness.join("two");
        let mut three = harness.call("three");
        assert!(matches!(next_event(&mut three), ClientEvent::Closed(_)));
        assert_eq!(harness.server.counters()[0].refused_source, 1);
        drop(one);
        harness.left(id);
        // Its servicer frees the slot with the connection.
        let clock = servicer::Clock::new();
        let began = clock.now();
        loop {
            let mut again = harness.call("again");
            if let Some(ServerEvent::Join(_)) = harness.server.wait_event(TIMEOUT / 100) {
                break;
            }
            assert!(matches!(next_event(&mut again), ClientEvent::Closed(_)));
            assert!(clock.now().saturating_since(began) < TIMEOUT);
        }
    });
}

#[test]
fn a_silent_member_costs_nothing_and_stays() {
    with_both_modes(|mut config| {
        config.keepalive = Duration::from_secs(1);
        config.socket_buffer_bytes = 16 << 10;
        config.stream.idle_timeout = Duration::from_millis(10);
        config.stream.stall_timeout = Duration::from_millis(10);
        let mut harness = Harness::new(&config);
        let (mut raw_client, id) = harness.join_by_hand();
        assert!(harness.server.wait_event(TIMEOUT / 150).is_none());
        harness.server.send(id, text("still there?")).unwrap();
        assert_eq!(record(&mut raw_client), b"\x03still there?");
    });
}

/// Bytes that say that the last drop began, and block it until the test
/// releases it.
struct Brake {
    bytes: Vec<u8>,
    blocks: Sender<()>,
    released: Receiver<()>,
}

impl AsRef<[u8]> for Brake {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Brake {
    fn drop(&mut self) {
        self.blocks.send(()).ok();
        self.released.recv().ok();
    }
}

//! How a reliable server ends, and how it continues if one of its servicers ends.

use std::time::Duration;

use bytes::Bytes;
use servicer::{
    ClientClose, ClientEvent, Dest, End, LeaveCause, MemberId, ReliableClient, ServerEvent,
    TcpServicers,
};

use super::harness::{
    Harness, closed, message, next_event, no_threads, text, threads, until, with_both_modes,
};
use crate::harness::TIMEOUT;
use crate::raw_client::{plain, read_to_end};

#[test]
fn ls_18_l7_a_shutdown_sends_reason_and_messages_and_joins_threads() {
    with_both_modes(|config| {
        let mut harness = Harness::named("ls18why", &config);
        let mut clients: Vec<_> = (0..5).map(|_| harness.join("crowd")).collect();
        let servicers = harness.server.counters().len();
        until(|| threads("ls18why") == servicers);
        for number in 0..100 {
            harness.send_retrying(Dest::All, &text(&number.to_string()));
        }
        let report = harness.server.shutdown(TIMEOUT, text("maintenance"));
        assert_eq!((report.flushed, report.dropped), (500, 0), "{report}");
        assert_eq!((report.started, report.joined), (servicers, servicers));
        assert_eq!(report.faults, []);
        no_threads("ls18why");
        for (client, _) in &mut clients {
            for number in 0..100 {
                assert_eq!(message(client), number.to_string());
            }
            assert_eq!(closed(client), ClientClose::ShutDown(text("maintenance")));
        }
        // The end of each member is reported, and requests to an ended server are harmless.
        let mut reported: Vec<_> = clients.iter().map(|_| sent_away(&mut harness)).collect();
        reported.sort_unstable();
        assert!(reported.iter().eq(clients.iter().map(|(_, id)| id)));
        assert_eq!(harness.server.poll_event().map(drop), None);
        assert_eq!(harness.server.send(Dest::All, text("late")), Ok(0));
        assert_eq!(harness.server.shutdown(TIMEOUT, text("again")), report);
        // The port is closed.
        let mut late = harness.call("late");
        assert!(matches!(closed(&mut late), ClientClose::Unreachable(_)));
    });
}

#[test]
fn ls_18_messages_unwritten_at_the_deadline_are_counted_as_dropped() {
    with_both_modes(|mut config| {
        config.queued_bytes_max = 64 << 20;
        config.queued_age_max = TIMEOUT;
        let mut harness = Harness::named("ls18late", &config);
        let (raw_client, id) = harness.join_by_hand();
        let (mut client, other) = harness.join("reader");
        let payload = Bytes::from(vec![7; 60_000]);
        for _ in 0..400 {
            harness.send_retrying(id, &payload);
        }
        harness.server.send(other, text("hello")).unwrap();
        let began = servicer::Clock::new().now();
        let within = Duration::from_millis(100);
        let report = harness.server.shutdown(within, text("enough"));
        let took = servicer::Clock::new().now().saturating_since(began);
        println!("shutdown({within:?}) took {took:?}: {report}");
        assert!(took < TIMEOUT, "{took:?}");
        assert_eq!(report.flushed + report.dropped, 401);
        assert!(report.dropped > 100 && report.flushed >= 1, "{report}");
        assert_eq!((report.joined, report.faults), (report.started, Vec::new()));
        no_threads("ls18late");
        assert_eq!(message(&mut client), "hello");
        assert_eq!(closed(&mut client), ClientClose::ShutDown(text("enough")));
        drop(raw_client);
    });
}

#[test]
fn ls_18_a_dropped_handle_leaves_no_thread_and_no_socket() {
    with_both_modes(|config| {
        let mut harness = Harness::named("ls18drop", &config);
        let (mut client, _) = harness.join("member");
        let mut waiting = harness.call("waiting");
        let request = harness.request();
        let mut handshake = plain(harness.address);
        let address = harness.address;
        drop(harness);
        no_threads("ls18drop");
        let end = closed(&mut client);
        let expected = [ClientClose::Lost, ClientClose::ShutDown(Bytes::new())];
        assert!(expected.contains(&end), "{end:?}");
        assert_eq!(read_to_end(&mut handshake), b"");
        // The application has to drop a request that it was given.
        drop(request);
        assert_eq!(closed(&mut waiting), ClientClose::Lost);
        assert!(std::net::TcpStream::connect(address).is_err());
    });
}

#[test]
fn ls_18_a_panic_in_one_servicer_closes_its_connections_and_no_others() {
    with_both_modes(|config| {
        let mut harness = Harness::named("ls18panic", &config);
        let mut clients: Vec<_> = (0..6).map(|_| harness.join("crowd")).collect();
        let victim = clients[0].1;
        // The servicer drops it after writing it.
        let payload = Bytes::from_owner(Bomb(b"boom".to_vec()));
        assert_eq!(harness.server.send(victim, payload), Ok(1));
        let ServerEvent::ThreadEnded { name, end, members } = harness.next() else {
            panic!("no word of it")
        };
        assert!(name.starts_with("ls18panic-"), "{name}");
        assert_eq!(end, End::Panicked("the payload was told to".to_owned()));
        let expected = match config.servicers {
            Some(TcpServicers::Pool { .. }) => 2,
            _ => 1,
        };
        assert_eq!(members, expected);
        let lost: Vec<MemberId> = (0..members).map(|_| lost(&mut harness)).collect();
        assert!(lost.contains(&victim));
        // Its clients see a lost connection, not a close; all others are unaffected.
        assert_eq!(
            harness.server.send(Dest::All, text("still here")),
            Ok(6 - members)
        );
        for (client, id) in &mut clients {
            if lost.contains(id) {
                let mut event = next_event(client);
                if event == ClientEvent::Message(text("boom")) {
                    event = next_event(client);
                }
                assert_eq!(event, ClientEvent::Closed(ClientClose::Lost));
            } else {
                assert_eq!(message(client), "still here");
            }
        }
        let (mut next, id) = harness.join("the next");
        harness.server.send(id, text("welcome back")).unwrap();
        assert_eq!(message(&mut next), "welcome back");
        let report = harness.server.shutdown(TIMEOUT, Bytes::new());
        assert_eq!(report.faults, [(name, end)]);
        assert_eq!(report.joined, report.started);
        no_threads("ls18panic");
    });
}

#[test]
fn l7_a_client_reports_the_loss_of_its_server() {
    with_both_modes(|config| {
        let mut harness = Harness::new(&config);
        let (mut client, id) = harness.join("ann");
        let payload = Bytes::from_owner(Bomb(b"boom".to_vec()));
        harness.server.send(id, payload).unwrap();
        let end = end_of(&mut client);
        assert_eq!(end, ClientClose::Lost);
        assert_eq!(end.to_string(), "the connection was lost");
        // It can send nothing more, and its own end is orderly.
        client.send(text("hello?")).unwrap();
        assert_eq!(client.shutdown(TIMEOUT).end, End::Drained);
    });
}

#[test]
fn a_thread_ends_with_its_client() {
    let mut config = servicer::ReliableConfig::default();
    config.servicers = Some(TcpServicers::ThreadPerClient);
    let mut harness = Harness::named("leaver", &config);
    for _ in 0..4 {
        let (client, id) = harness.join("short");
        drop(client);
        let cause = harness.left(id);
        assert!(matches!(cause, LeaveCause::Finished | LeaveCause::Lost));
    }
    until(|| threads("leaver") == 1);
    let report = harness.server.shutdown(TIMEOUT, Bytes::new());
    assert_eq!((report.started, report.joined), (5, 5));
}

/// The member that the next event reports as lost with its servicer.
fn lost(harness: &mut Harness) -> MemberId {
    left_for(harness, LeaveCause::ThreadEnded)
}

/// The member that the next event reports as closed with the server.
fn sent_away(harness: &mut Harness) -> MemberId {
    left_for(harness, LeaveCause::ShutDown)
}

fn left_for(harness: &mut Harness, expected: LeaveCause) -> MemberId {
    let event = harness.next();
    let ServerEvent::Left { member, cause } = event else {
        panic!("{event:?}")
    };
    assert_eq!(cause, expected);
    member
}

/// Waits for the end of a client, and ignores earlier events.
fn end_of(client: &mut ReliableClient) -> ClientClose {
    loop {
        if let ClientEvent::Closed(close) = next_event(client) {
            return close;
        }
    }
}

/// Bytes that panic when the last reference is dropped.
struct Bomb(Vec<u8>);

impl AsRef<[u8]> for Bomb {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the payload was told to");
    }
}

//! How a reliable server ends, and how it continues if one of its servicers ends.

use std::time::Duration;

use bytes::Bytes;
use servicer::{
    ClientClose, ClientEvent, Dest, End, LeaveCause, MemberId, ReliableClient, ServerEvent,
    TcpServicers,
};

use super::stage::{Stage, closed, heard, message, no_threads, on_both, text, threads, until};
use crate::stranger::{plain, read_to_end};
use crate::toy::PATIENCE;

#[test]
fn ls_18_l7_a_shutdown_gives_its_reason_writes_all_and_joins_every_thread() {
    on_both(|config| {
        let mut stage = Stage::named("ls18why", &config);
        let mut clients: Vec<_> = (0..5).map(|_| stage.join("crowd")).collect();
        let servicers = stage.server.counters().len();
        until(|| threads("ls18why") == servicers);
        for number in 0..100 {
            stage.insist(Dest::All, &text(&number.to_string()));
        }
        let report = stage.server.shutdown(PATIENCE, text("maintenance"));
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
        let mut told: Vec<_> = clients.iter().map(|_| sent_away(&mut stage)).collect();
        told.sort_unstable();
        assert!(told.iter().eq(clients.iter().map(|(_, id)| id)));
        assert_eq!(stage.server.poll_event().map(drop), None);
        assert_eq!(stage.server.send(Dest::All, text("late")), Ok(0));
        assert_eq!(stage.server.shutdown(PATIENCE, text("again")), report);
        // The port is closed.
        let mut late = stage.call("late");
        assert!(matches!(closed(&mut late), ClientClose::Unreachable(_)));
    });
}

#[test]
fn ls_18_at_the_deadline_what_is_not_written_is_counted_as_dropped() {
    on_both(|mut config| {
        config.queued_bytes_max = 64 << 20;
        config.queued_age_max = PATIENCE;
        let mut stage = Stage::named("ls18late", &config);
        let (stranger, id) = stage.join_by_hand();
        let (mut client, other) = stage.join("reader");
        let payload = Bytes::from(vec![7; 60_000]);
        for _ in 0..400 {
            stage.insist(id, &payload);
        }
        stage.server.send(other, text("hello")).unwrap();
        let began = servicer::Clock::new().now();
        let within = Duration::from_millis(100);
        let report = stage.server.shutdown(within, text("enough"));
        let took = servicer::Clock::new().now().saturating_since(began);
        println!("shutdown({within:?}) took {took:?}: {report}");
        assert!(took < PATIENCE, "{took:?}");
        assert_eq!(report.flushed + report.dropped, 401);
        assert!(report.dropped > 100 && report.flushed >= 1, "{report}");
        assert_eq!((report.joined, report.faults), (report.started, Vec::new()));
        no_threads("ls18late");
        assert_eq!(message(&mut client), "hello");
        assert_eq!(closed(&mut client), ClientClose::ShutDown(text("enough")));
        drop(stranger);
    });
}

#[test]
fn ls_18_a_handle_that_is_dropped_leaves_no_thread_and_no_socket() {
    on_both(|config| {
        let mut stage = Stage::named("ls18drop", &config);
        let (mut client, _) = stage.join("member");
        let mut waiting = stage.call("waiting");
        let request = stage.request();
        let mut handshake = plain(stage.address);
        let address = stage.address;
        drop(stage);
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
    on_both(|config| {
        let mut stage = Stage::named("ls18panic", &config);
        let mut clients: Vec<_> = (0..6).map(|_| stage.join("crowd")).collect();
        let victim = clients[0].1;
        // The servicer drops it after writing it.
        let payload = Bytes::from_owner(Bomb(b"boom".to_vec()));
        assert_eq!(stage.server.send(victim, payload), Ok(1));
        let ServerEvent::ServicerEnded { name, end, members } = stage.next() else {
            panic!("no word of it")
        };
        assert!(name.starts_with("ls18panic-"), "{name}");
        assert_eq!(end, End::Panicked("the payload was told to".to_owned()));
        let expected = match config.servicers {
            Some(TcpServicers::Pool { .. }) => 2,
            _ => 1,
        };
        assert_eq!(members, expected);
        let lost: Vec<MemberId> = (0..members).map(|_| lost(&mut stage)).collect();
        assert!(lost.contains(&victim));
        // Its clients see a lost connection, not a close; all others are unaffected.
        assert_eq!(
            stage.server.send(Dest::All, text("still here")),
            Ok(6 - members)
        );
        for (client, id) in &mut clients {
            if lost.contains(id) {
                let mut event = heard(client);
                if event == ClientEvent::Message(text("boom")) {
                    event = heard(client);
                }
                assert_eq!(event, ClientEvent::Closed(ClientClose::Lost));
            } else {
                assert_eq!(message(client), "still here");
            }
        }
        let (mut next, id) = stage.join("the next");
        stage.server.send(id, text("welcome back")).unwrap();
        assert_eq!(message(&mut next), "welcome back");
        let report = stage.server.shutdown(PATIENCE, Bytes::new());
        assert_eq!(report.faults, [(name, end)]);
        assert_eq!(report.joined, report.started);
        no_threads("ls18panic");
    });
}

#[test]
fn l7_a_server_that_is_lost_is_an_error_to_its_client() {
    on_both(|config| {
        let mut stage = Stage::new(&config);
        let (mut client, id) = stage.join("ann");
        let payload = Bytes::from_owner(Bomb(b"boom".to_vec()));
        stage.server.send(id, payload).unwrap();
        let end = end_of(&mut client);
        assert_eq!(end, ClientClose::Lost);
        assert_eq!(end.to_string(), "the connection was lost");
        // It can send nothing more, and its own end is orderly.
        client.send(text("hello?")).unwrap();
        assert_eq!(client.shutdown(PATIENCE).end, End::Drained);
    });
}

#[test]
fn a_thread_ends_with_its_client() {
    let mut config = servicer::ReliableConfig::default();
    config.servicers = Some(TcpServicers::ThreadPerClient);
    let mut stage = Stage::named("leaver", &config);
    for _ in 0..4 {
        let (client, id) = stage.join("short");
        drop(client);
        let cause = stage.left(id);
        assert!(matches!(cause, LeaveCause::Finished | LeaveCause::Lost));
    }
    until(|| threads("leaver") == 1);
    let report = stage.server.shutdown(PATIENCE, Bytes::new());
    assert_eq!((report.started, report.joined), (5, 5));
}

/// The member that the next event reports as lost with its servicer.
fn lost(stage: &mut Stage) -> MemberId {
    left_for(stage, LeaveCause::ServicerEnded)
}

/// The member that the next event reports as closed with the server.
fn sent_away(stage: &mut Stage) -> MemberId {
    left_for(stage, LeaveCause::ShutDown)
}

fn left_for(stage: &mut Stage, expected: LeaveCause) -> MemberId {
    let event = stage.next();
    let ServerEvent::Left { member, cause } = event else {
        panic!("{event:?}")
    };
    assert_eq!(cause, expected);
    member
}

/// Waits for the end of a client, and ignores earlier events.
fn end_of(client: &mut ReliableClient) -> ClientClose {
    loop {
        if let ClientEvent::Closed(close) = heard(client) {
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

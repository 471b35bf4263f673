//! Combined load: killed clients, slow readers, incomplete handshakes, and a shutdown during all
//! that.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::RecvTimeoutError;
use servicer::{
    ClientClose, ClientEvent, Dest, End, LeaveCause, MessageError, ReliableClient, ServerEvent,
};

use super::harness::{
    Harness, closed, message, next_event, no_threads, record, text, until, with_both_modes,
};
use crate::harness::TIMEOUT;
use crate::limits::silent;
use crate::raw_client::{RawIdentity, client_hello, read_confirmation, write_partial_record};

/// The address that a client in its own process dials.
const ADDRESS: &str = "CLIENT_ADDRESS";

/// Not a test: [`Client`] runs it in a process of its own, a client that reads everything.
#[test]
fn runs_as_a_client_if_given_an_address() {
    let Ok(address) = std::env::var(ADDRESS) else {
        return;
    };
    let mut raw_client = RawIdentity::honest().dial(address.parse().unwrap());
    read_confirmation(&mut raw_client);
    write_partial_record(&mut raw_client, 5, b"\0\x01raw");
    loop {
        record(&mut raw_client);
    }
}

/// A client in a process of its own, killed on drop.
struct Client(Child);

impl Client {
    fn start(address: SocketAddr) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "reliable::combined_load::runs_as_a_client_if_given_an_address",
            ])
            .env(ADDRESS, address.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// Kills it as `kill -9` does: none of its own code runs any more.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        let status = self.0.wait().unwrap();
        assert!(!status.success(), "it ran until then: {status}");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn l7_killed_clients_cost_no_other_client_a_message() {
    const ROUNDS: usize = 300;
    with_both_modes(|config| {
        let mut harness = Harness::named("l7kill", &config);
        let mut readers: Vec<_> = (0..3).map(|_| harness.join("reader")).collect();
        let mut victims: Vec<_> = (0..3)
            .map(|_| {
                let client = Client::start(harness.address);
                let request = harness.request();
                (
                    client,
                    harness.server.accept(request, Bytes::new()).unwrap(),
                )
            })
            .collect();
        let mut left = Vec::new();
        for number in 0..ROUNDS {
            let payload = Bytes::from(format!("{number} ").repeat(300));
            harness.send_retrying(Dest::All, &payload);
            for (client, _) in &mut readers {
                assert_eq!(message(client), payload);
            }
            if number % 100 == 50 {
                victims[number / 100].0.kill();
            }
            while let Some(event) = harness.server.poll_event() {
                left.push(event);
            }
        }
        while left.len() < victims.len() {
            left.push(harness.next());
        }
        let mut lost: Vec<_> = left
            .into_iter()
            .map(|event| {
                let ServerEvent::Left { member, cause } = event else {
                    panic!("{event:?}")
                };
                (member, cause)
            })
            .collect();
        lost.sort_unstable_by_key(|(member, _)| *member);
        let expected: Vec<_> = victims
            .iter()
            .map(|(_, victim)| (*victim, LeaveCause::Lost))
            .collect();
        assert_eq!(lost, expected);
        // A client killed before the application accepts it is accepted, and then lost.
        let mut killed = Client::start(harness.address);
        let request = harness.request();
        killed.kill();
        let member = harness.server.accept(request, text("welcome")).unwrap();
        assert_eq!(harness.left(member), LeaveCause::Lost);
        let report = harness.server.shutdown(TIMEOUT, Bytes::new());
        assert_eq!((report.joined, report.faults), (report.started, Vec::new()));
        no_threads("l7kill");
    });
}

#[test]
fn ls_19_a_slow_reader_is_disconnected_by_age_and_delays_no_other() {
    with_both_modes(|mut config| {
        config.queued_bytes_max = 64 << 20;
        config.queued_age_max = Duration::from_millis(300);
        let mut harness = Harness::new(&config);
        let (mut raw_client, slow) = harness.join_by_hand();
        let (mut reader, other) = harness.join("reader");
        let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
        // One byte every few milliseconds until the end: slow progress is no excuse.
        let slow_reader = std::thread::spawn(move || {
            let moment = Duration::from_millis(5);
            let mut taken = 0_u64;
            while stopped.recv_timeout(moment) == Err(RecvTimeoutError::Timeout)
                && matches!(raw_client.read(&mut [0]), Ok(1))
            {
                taken += 1;
            }
            taken
        });
        for _ in 0..200 {
            harness.send_retrying(slow, &Bytes::from(vec![7; 60_000]));
        }
        for number in 0..50 {
            harness
                .server
                .send(other, text(&number.to_string()))
                .unwrap();
            assert_eq!(message(&mut reader), number.to_string());
        }
        let ServerEvent::Slow {
            member,
            waiting_for,
            ..
        } = harness.next()
        else {
            panic!("no word of it")
        };
        assert_eq!(member, slow);
        assert!(waiting_for >= config.queued_age_max, "{waiting_for:?}");
        assert_eq!(harness.left(slow), LeaveCause::Slow);
        drop(stop);
        println!("it took {} bytes", slow_reader.join().unwrap());
    });
}

#[test]
fn endless_handshakes_delay_no_member_and_no_new_client() {
    with_both_modes(|mut config| {
        config.stream.handshakes_max = 16;
        config.stream.handshakes_per_source_max = 8;
        let mut harness = Harness::named("halfopen", &config);
        let mut readers: Vec<_> = (0..3).map(|_| harness.join("reader")).collect();
        let hello = client_hello(harness.address);
        let mut held = Vec::new();
        for number in 0..200_u8 {
            // Some send nothing, some a part of the first message, some all of it and then nothing.
            let mut socket = silent([127, 0, 0, 2 + number % 5], harness.address);
            let sent_len = hello.len() * usize::from(number % 3) / 2;
            // It may have been evicted by then.
            socket.write_all(&hello[..sent_len]).ok();
            held.push(socket);
            let payload = text(&number.to_string());
            harness.send_retrying(Dest::All, &payload);
            for (client, _) in &mut readers {
                assert_eq!(message(client), payload);
            }
        }
        let (mut newcomer, id) = harness.join("newcomer");
        harness.server.send(id, text("hello")).unwrap();
        assert_eq!(message(&mut newcomer), "hello");
        // They do not delay the shutdown.
        let report = harness.server.shutdown(TIMEOUT, text("enough"));
        assert_eq!((report.joined, report.dropped), (report.started, 0));
        no_threads("halfopen");
        assert_eq!(closed(&mut newcomer), ClientClose::ShutDown(text("enough")));
        drop(held);
    });
}

#[test]
fn ls_18_a_shutdown_ends_in_time_while_all_readers_are_stalled() {
    with_both_modes(|mut config| {
        config.queued_bytes_max = 64 << 20;
        config.events_max = 8;
        config.event_bytes_max = 64 << 10;
        let mut harness = Harness::named("ls18all", &config);
        harness.config.queued_bytes_max = 64 << 20;
        let raw_clients: Vec<_> = (0..6).map(|_| harness.join_by_hand()).collect();
        let senders: Vec<_> = (0..3).map(|_| harness.join("talker")).collect();
        let payload = Bytes::from(vec![7; 60_000]);
        for _ in 0..50 {
            for (_, id) in &raw_clients {
                harness.send_retrying(*id, &payload);
            }
        }
        // The application takes no events, so the talkers' queues fill up.
        for (sender, _) in &senders {
            until(|| {
                while sender.send(payload.clone()) == Err(MessageError::Busy) {
                    std::thread::yield_now();
                }
                sender.counters().writes_blocked > 0
            });
        }
        let clock = servicer::Clock::new();
        let began = clock.now();
        let report = harness
            .server
            .shutdown(Duration::from_millis(200), text("enough"));
        let took = clock.now().saturating_since(began);
        println!("took {took:?}: {report}");
        assert!(took < TIMEOUT, "{took:?}");
        assert_eq!(report.flushed + report.dropped, 300);
        assert!(report.dropped > 100, "{report}");
        assert_eq!(
            (report.joined, &report.faults[..]),
            (report.started, &[][..])
        );
        no_threads("ls18all");
        assert_eq!(harness.server.shutdown(TIMEOUT, text("again")), report);
        // Events that had arrived are delivered, and the end of each member is reported.
        let (mut left, mut messages) = (0, 0);
        while let Some(event) = harness.server.poll_event() {
            if let ServerEvent::Left { cause, .. } = event {
                assert_eq!(cause, LeaveCause::ShutDown);
                left += 1;
            } else {
                assert!(matches!(event, ServerEvent::Message { .. }), "{event:?}");
                messages += 1;
            }
        }
        assert_eq!(left, 9);
        assert!(messages > 0);
        // A client that sends to an ended server does not wait for it.
        for (sender, _) in senders {
            let end = sender.shutdown(TIMEOUT).end;
            assert_eq!(end, End::Drained);
        }
        drop(raw_clients);
    });
}

#[test]
fn ls_18_both_ends_may_shut_down_at_once() {
    with_both_modes(|config| {
        let mut harness = Harness::named("ls18both", &config);
        let clients: Vec<_> = (0..6).map(|_| harness.join("crowd").0).collect();
        for number in 0..50 {
            harness.send_retrying(Dest::All, &text(&number.to_string()));
            for client in &clients {
                client.send(text("and you?")).unwrap();
            }
        }
        let clock = servicer::Clock::new();
        let began = clock.now();
        let shut = |client: ReliableClient| client.shutdown(TIMEOUT).end;
        let (report, ends) = std::thread::scope(|scope| {
            let ends: Vec<_> = clients
                .into_iter()
                .map(|client| scope.spawn(move || shut(client)))
                .collect();
            let report = harness.server.shutdown(TIMEOUT, text("enough"));
            let ends: Vec<_> = ends.into_iter().map(|end| end.join().unwrap()).collect();
            (report, ends)
        });
        let took = clock.now().saturating_since(began);
        println!("took {took:?}: {report}");
        assert!(took < TIMEOUT, "neither waits for the other: {took:?}");
        assert_eq!(ends, vec![End::Drained; 6]);
        assert_eq!((report.joined, report.faults), (report.started, Vec::new()));
        assert_eq!(report.flushed + report.dropped, 300);
        no_threads("ls18both");
    });
}

#[test]
fn ls_18_decisions_before_the_shutdown_are_sent_before_its_reason() {
    with_both_modes(|config| {
        for _ in 0..10 {
            let mut harness = Harness::new(&config);
            let mut accepted = harness.call("accepted");
            let request = harness.request();
            let mut refused = harness.call("refused");
            let other = harness.request();
            harness.server.accept(request, text("welcome")).unwrap();
            harness.server.refuse(other, text("full"));
            let report = harness.server.shutdown(TIMEOUT, text("enough"));
            assert_eq!(report.joined, report.started);
            let welcome = text("welcome");
            assert_eq!(next_event(&mut accepted), ClientEvent::Accepted { welcome });
            assert_eq!(closed(&mut accepted), ClientClose::ShutDown(text("enough")));
            assert_eq!(closed(&mut refused), ClientClose::Refused(text("full")));
        }
    });
}

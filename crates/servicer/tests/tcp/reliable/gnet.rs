//! Defects of the servicers of `game_network`, each checked here.

use std::io::Write;
use std::time::Duration;

use servicer::{ClientClose, ClientEvent, Clock, LeaveCause, ServerEvent};

use super::harness::{Harness, SETTLE_TIME, message, next_event, text, threads, with_both_modes};
use crate::harness::TIMEOUT;
use crate::raw_client::{RawIdentity, read_confirmation, read_to_end, write_partial_record};

/// Reads used an empty buffer, which returns "closed": no client ever connected.
#[test]
fn gnet_g1_a_client_is_admitted_with_a_join_of_any_length() {
    with_both_modes(|config| {
        let mut harness = Harness::new(&config);
        let mut clients = Vec::new();
        for len in [0, 1, 2, 100, 1_024] {
            let (mut client, id) = harness.join(&"x".repeat(len));
            harness.server.send(id, text("")).unwrap();
            assert_eq!(message(&mut client), "");
            clients.push(client);
        }
    });
}

/// The UDP servicer was created and never started.
#[test]
fn gnet_g2_every_started_worker_has_a_thread() {
    with_both_modes(|config| {
        let mut harness = Harness::named("g2", &config);
        let clients: Vec<_> = (0..3).map(|_| harness.join("crowd")).collect();
        // The acceptor, and one for each client or those of the pool: three either way.
        assert_eq!(harness.server.counters().len(), 4);
        assert_eq!(threads("g2"), 4);
        drop(clients);
    });
}

/// Any thread took messages from the shared queue to the servicers.
#[test]
fn gnet_g7_a_message_reaches_its_addressees_thread_only() {
    with_both_modes(|config| {
        let mut harness = Harness::new(&config);
        let (mut ann, for_ann) = harness.join("ann");
        let (mut bob, for_bob) = harness.join("bob");
        for number in 0..500 {
            harness.send_retrying(for_ann, &text(&format!("ann {number}")));
            harness.send_retrying(for_bob, &text(&format!("bob {number}")));
        }
        for number in 0..500 {
            assert_eq!(message(&mut bob), format!("bob {number}"));
        }
        for number in 0..500 {
            assert_eq!(message(&mut ann), format!("ann {number}"));
        }
    });
}

/// Messages had no framing: two that arrived together, or one in pieces, broke the stream.
#[test]
fn gnet_g8_messages_are_separated_however_they_arrive() {
    with_both_modes(|config| {
        let mut harness = Harness::new(&config);
        let (mut raw_client, id) = harness.join_by_hand();
        let mut together = Vec::new();
        for word in ["one", "", "three"] {
            let len = u32::try_from(word.len() + 1).unwrap();
            together.extend_from_slice(&len.to_be_bytes());
            together.push(3);
            together.extend_from_slice(word.as_bytes());
        }
        raw_client.write_all(&together).unwrap();
        for byte in &together {
            raw_client.write_all(&[*byte]).unwrap();
            raw_client.flush().unwrap();
        }
        for word in ["one", "", "three"].repeat(2) {
            let ServerEvent::Message { from, payload } = harness.next() else {
                panic!("no message")
            };
            assert_eq!((from, payload), (id, text(word)));
        }
    });
}

/// The client's thread never sent anything.
#[test]
fn gnet_g9_messages_of_a_client_are_sent() {
    with_both_modes(|config| {
        let mut harness = Harness::new(&config);
        let (client, id) = harness.join("ann");
        client.send(text("hello")).unwrap();
        let ServerEvent::Message { from, payload } = harness.next() else {
            panic!("no message")
        };
        assert_eq!((from, payload), (id, text("hello")));
    });
}

/// Loops were busy loops.
#[test]
fn l10_gnet_g10_idle_servicers_make_no_turns() {
    with_both_modes(|config| {
        let mut harness = Harness::named("g10", &config);
        let clients: Vec<_> = (0..20).map(|_| harness.join("crowd")).collect();
        let cpu = cpu_of("g10");
        // The work left by the joins takes as long as the host needs; a busy loop never has an idle
        // period.
        let is_at_rest = (0..50).any(|_| {
            let before = harness.sum(|counters| counters.turns);
            assert!(harness.server.wait_event(SETTLE_TIME * 4).is_none());
            harness.sum(|counters| counters.turns) == before
        });
        println!(
            "{:?} of CPU time until at rest",
            cpu_of("g10").saturating_sub(cpu)
        );
        assert!(is_at_rest);
        assert!(
            clients
                .iter()
                .all(|(client, _)| client.counters().turns < 100)
        );
    });
}

/// A servicer continued after its client was dropped, and a second join was not handled.
#[test]
fn gnet_g14_a_second_join_is_closed() {
    with_both_modes(|config| {
        let mut harness = Harness::new(&config);
        // Before it is accepted.
        let mut killed = RawIdentity::honest().dial(harness.address);
        read_confirmation(&mut killed);
        let twice = [0, 0, 0, 2, 0, 1].repeat(2);
        killed.write_all(&twice).unwrap();
        killed.flush().unwrap();
        assert_eq!(read_to_end(killed), b"");
        // And after.
        let (mut raw_client, id) = harness.join_by_hand();
        write_partial_record(&mut raw_client, 2, &[0, 1]);
        assert_eq!(harness.left(id), LeaveCause::Malformed);
    });
}

/// The listener slept half a second after each poll. The absence of such pauses is checked by
/// counting turns; the time is only printed, because it depends on the host's load.
#[test]
fn l11_gnet_g16_three_hundred_clients_join_without_a_pause() {
    with_both_modes(|mut config| {
        config.clients_max = 300;
        let mut harness = Harness::named("g16", &config);
        let clock = Clock::new();
        let began = clock.now();
        let mut clients = Vec::new();
        while clients.len() < 300 {
            // As many at a time as one source may have in the handshake.
            let calls: Vec<_> = (0..30).map(|_| harness.call("crowd")).collect();
            for _ in 0..calls.len() {
                let request = harness.request();
                harness.server.accept(request, text("welcome")).unwrap();
            }
            clients.extend(calls);
        }
        for client in &mut clients {
            let welcome = text("welcome");
            assert_eq!(next_event(client), ClientEvent::Accepted { welcome });
        }
        let took = clock.now().saturating_since(began);
        let door = harness.server.counters()[0];
        println!(
            "300 joins in {took:?}, {:.0} a second, {} turns of the door, {:?} of the servicers' CPU time",
            300.0 / took.as_secs_f64(),
            door.turns,
            cpu_of("g16")
        );
        assert_eq!(harness.server.members().count(), 300);
        // The acceptor pauses only after a failed accept.
        assert_eq!((door.accept_errors, door.timeouts), (0, 0));
        assert_eq!((door.accepted, door.handed_over), (300, 300));
        let report = harness.server.shutdown(TIMEOUT, text("done"));
        assert_eq!(report.started, report.joined);
        for client in &mut clients {
            let expected = ClientClose::ShutDown(text("done"));
            assert_eq!(next_event(client), ClientEvent::Closed(expected));
        }
    });
}

/// CPU time, from the scheduler, of the threads with this name prefix.
fn cpu_of(name: &str) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let nanos = tasks.filter_map(|task| {
        let path = task.ok()?.path();
        let comm = std::fs::read_to_string(path.join("comm")).ok()?;
        let stat = std::fs::read_to_string(path.join("schedstat")).ok()?;
        let nanos = stat.split(' ').next()?.parse::<u64>().ok()?;
        comm.starts_with(name).then_some(nanos)
    });
    Duration::from_nanos(nanos.sum())
}

//! Defects of the servicers of `game_network`, each checked here.

use std::io::Write;
use std::time::Duration;

use servicer::{ClientClose, ClientEvent, Clock, LeaveCause, ServerEvent};

use super::stage::{MOMENT, Stage, heard, message, on_both, text, threads};
use crate::stranger::{Shown, announce, greet, read_to_end};
use crate::toy::PATIENCE;

/// Reads used an empty buffer, which returns "closed": no client ever connected.
#[test]
fn gnet_g1_a_client_is_admitted_with_a_join_of_any_length() {
    on_both(|config| {
        let mut stage = Stage::new(&config);
        let mut clients = Vec::new();
        for len in [0, 1, 2, 100, 1_024] {
            let (mut client, id) = stage.join(&"x".repeat(len));
            stage.server.send(id, text("")).unwrap();
            assert_eq!(message(&mut client), "");
            clients.push(client);
        }
    });
}

/// The UDP servicer was created and never started.
#[test]
fn gnet_g2_every_servicer_that_is_made_has_a_thread() {
    on_both(|config| {
        let mut stage = Stage::named("g2", &config);
        let clients: Vec<_> = (0..3).map(|_| stage.join("crowd")).collect();
        // The acceptor, and one for each client or those of the pool: three either way.
        assert_eq!(stage.server.counters().len(), 4);
        assert_eq!(threads("g2"), 4);
        drop(clients);
    });
}

/// Any thread took messages from the shared queue to the servicers.
#[test]
fn gnet_g7_what_is_for_one_is_not_taken_by_the_thread_of_another() {
    on_both(|config| {
        let mut stage = Stage::new(&config);
        let (mut ann, for_ann) = stage.join("ann");
        let (mut bob, for_bob) = stage.join("bob");
        for number in 0..500 {
            stage.insist(for_ann, &text(&format!("ann {number}")));
            stage.insist(for_bob, &text(&format!("bob {number}")));
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
    on_both(|config| {
        let mut stage = Stage::new(&config);
        let (mut stranger, id) = stage.join_by_hand();
        let mut together = Vec::new();
        for word in ["one", "", "three"] {
            let len = u32::try_from(word.len() + 1).unwrap();
            together.extend_from_slice(&len.to_be_bytes());
            together.push(3);
            together.extend_from_slice(word.as_bytes());
        }
        stranger.write_all(&together).unwrap();
        for byte in &together {
            stranger.write_all(&[*byte]).unwrap();
            stranger.flush().unwrap();
        }
        for word in ["one", "", "three"].repeat(2) {
            let ServerEvent::Message { from, payload } = stage.next() else {
                panic!("no message")
            };
            assert_eq!((from, payload), (id, text(word)));
        }
    });
}

/// The client's thread never sent anything.
#[test]
fn gnet_g9_what_a_client_sends_leaves_it() {
    on_both(|config| {
        let mut stage = Stage::new(&config);
        let (client, id) = stage.join("ann");
        client.send(text("hello")).unwrap();
        let ServerEvent::Message { from, payload } = stage.next() else {
            panic!("no message")
        };
        assert_eq!((from, payload), (id, text("hello")));
    });
}

/// Loops were busy loops.
#[test]
fn l10_gnet_g10_servicers_at_rest_make_no_turns() {
    on_both(|config| {
        let mut stage = Stage::named("g10", &config);
        let clients: Vec<_> = (0..20).map(|_| stage.join("crowd")).collect();
        let cpu = cpu_of("g10");
        // The work left by the joins takes as long as the host needs; a busy loop never has an idle
        // period.
        let is_at_rest = (0..50).any(|_| {
            let before = stage.sum(|counters| counters.turns);
            assert!(stage.server.wait_event(MOMENT * 4).is_none());
            stage.sum(|counters| counters.turns) == before
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
    on_both(|config| {
        let mut stage = Stage::new(&config);
        // Before it is accepted.
        let mut hasty = Shown::honest().dial(stage.address);
        greet(&mut hasty);
        let twice = [0, 0, 0, 2, 0, 1].repeat(2);
        hasty.write_all(&twice).unwrap();
        hasty.flush().unwrap();
        assert_eq!(read_to_end(hasty), b"");
        // And after.
        let (mut stranger, id) = stage.join_by_hand();
        announce(&mut stranger, 2, &[0, 1]);
        assert_eq!(stage.left(id), LeaveCause::Malformed);
    });
}

/// The listener slept half a second after each poll. The absence of such pauses is checked by
/// counting turns; the time is only printed, because it depends on the host's load.
#[test]
fn l11_gnet_g16_three_hundred_clients_join_without_a_pause() {
    on_both(|mut config| {
        config.clients_max = 300;
        let mut stage = Stage::named("g16", &config);
        let clock = Clock::new();
        let began = clock.now();
        let mut clients = Vec::new();
        while clients.len() < 300 {
            // As many at a time as one source may have in the handshake.
            let calls: Vec<_> = (0..30).map(|_| stage.call("crowd")).collect();
            for _ in 0..calls.len() {
                let request = stage.request();
                stage.server.accept(request, text("welcome")).unwrap();
            }
            clients.extend(calls);
        }
        for client in &mut clients {
            let welcome = text("welcome");
            assert_eq!(heard(client), ClientEvent::Accepted { welcome });
        }
        let took = clock.now().saturating_since(began);
        let door = stage.server.counters()[0];
        println!(
            "300 joins in {took:?}, {:.0} a second, {} turns of the door, {:?} of the servicers' CPU time",
            300.0 / took.as_secs_f64(),
            door.turns,
            cpu_of("g16")
        );
        assert_eq!(stage.server.members().count(), 300);
        // The acceptor pauses only after a failed accept.
        assert_eq!((door.accept_errors, door.timeouts), (0, 0));
        assert_eq!((door.accepted, door.handed_over), (300, 300));
        let report = stage.server.shutdown(PATIENCE, text("done"));
        assert_eq!(report.started, report.joined);
        for client in &mut clients {
            let expected = ClientClose::ShutDown(text("done"));
            assert_eq!(heard(client), ClientEvent::Closed(expected));
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

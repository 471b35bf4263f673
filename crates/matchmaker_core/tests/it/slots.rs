//! The pool: processes are started as needed, kept warm, backed off after failures, and stopped.

use core::time::Duration;

use matchmaker_core::{Command, Config, Ending, Event, FailReason, Outcome, Slot, TicketState};
use wire::CommandId;

use crate::harness::{Harness, Server, secs};

#[test]
fn bgx9_one_server_is_kept_warm_and_another_started_when_it_fills() {
    let (mut first, second) = (Server::new(1, 1), Server::new(2, 1));
    let mut harness = Harness::with_slots(Config::default(), (1, 1), &[], &[&first, &second]);
    let run = spawned(&mut harness, &first);
    harness.complete(run, Outcome::Started);
    assert!(harness.commands.is_empty());
    first.join(&mut harness);
    let ticket = harness.submit(0);
    let (id, command) = harness.command();
    let Command::Call { body, .. } = command else {
        panic!("{command:?}");
    };
    let run = spawned(&mut harness, &second);
    harness.complete(run, Outcome::Started);
    let answer = first.answer(&body);
    harness.complete(id, Outcome::Answered(answer));
    harness.assignment(ticket);
}

#[test]
fn as_many_processes_are_started_as_the_waiting_matches_need() {
    let servers: Vec<_> = (1..=6).map(|number| Server::new(number, 8)).collect();
    let slots: Vec<_> = servers.iter().collect();
    let mut config = Config::default();
    config.warm = 0;
    let mut harness = Harness::with_slots(config, (2, 1), &[], &slots);
    // Ten matches of two need three servers of eight seats. The first server reports its seats.
    let tickets: Vec<_> = (0..20).map(|client| harness.submit(client)).collect();
    spawned(&mut harness, slots[0]);
    assert!(harness.commands.is_empty(), "{:?}", harness.commands);
    slots[0].join(&mut harness);
    let spawns = |harness: &Harness| {
        let is_spawn =
            |(_, command): &&(CommandId, Command)| matches!(command, Command::Spawn { .. });
        harness.commands.iter().filter(is_spawn).count()
    };
    // Four matches are being placed on it, six wait.
    assert_eq!(harness.machine.load().matches_waiting, 6);
    assert_eq!(spawns(&harness), 2);
    slots[1].join(&mut harness);
    slots[2].join(&mut harness);
    assert_eq!(harness.machine.load().matches_waiting, 0);
    assert_eq!(spawns(&harness), 2, "no more than are needed");
    assert!(matches!(
        harness.state(tickets[19]),
        TicketState::Allocating { .. }
    ));
}

#[test]
fn bg5_an_unused_server_is_stopped_down_to_none() {
    let mut config = Config::default();
    config.warm = 0;
    let mut server = Server::new(1, 1);
    let mut harness = Harness::with_slots(config, (1, 1), &[], &[&server]);
    assert!(harness.commands.is_empty());
    let ticket = harness.submit(0);
    let run = spawned(&mut harness, &server);
    server.join(&mut harness);
    harness.complete(run, Outcome::Started);
    harness.serve(&mut [&mut server]);
    let match_id = harness.assignment(ticket).match_id;
    harness.pass_alive(secs(400), &[&server]);
    server.end(&mut harness, match_id);
    harness.pass_alive(secs(299), &[&server]);
    assert!(harness.commands.is_empty());
    harness.pass(secs(1));
    let (id, command) = harness.command();
    let run = Some(run);
    assert_eq!(command, Command::Stop { slot: Slot(0), run });
    harness.complete(id, Outcome::Stopped);
    assert_eq!(harness.machine.servers().count(), 0);
    // It is started again when it is needed.
    harness.submit(0);
    server = Server::run(1, 1, 1);
    spawned(&mut harness, &server);
    server.join(&mut harness);
}

#[test]
fn a_failing_slot_backs_off_longer_each_time() {
    let server = Server::new(1, 1);
    let mut harness = Harness::with_slots(Config::default(), (1, 1), &[], &[&server]);
    let mut rests = Vec::new();
    for failures in 1..=8 {
        let run = spawned(&mut harness, &server);
        harness.complete(run, Outcome::Failed);
        let slot = Slot(0);
        assert!(
            harness
                .events
                .contains(&Event::SpawnFailed { slot, failures })
        );
        let failed_at = harness.now;
        while harness.commands.is_empty() {
            harness.pass(secs(1));
        }
        rests.push(harness.now.saturating_since(failed_at).as_secs());
    }
    assert!(rests.is_sorted(), "{rests:?}");
    assert!(rests[0] <= 2 && (60..=68).contains(&rests[7]), "{rests:?}");
}

#[test]
fn bg2_a_process_that_never_registers_is_ended() {
    let server = Server::new(1, 1);
    let mut harness = Harness::with_slots(Config::default(), (1, 1), &[], &[&server]);
    let run = spawned(&mut harness, &server);
    harness.pass(secs(60));
    let (stop, command) = harness.command();
    let (slot, run) = (Slot(0), Some(run));
    assert_eq!(command, Command::Stop { slot, run });
    // The command is lost and repeated. A late outcome of the first one is ignored.
    harness.pass(secs(30));
    let (again, command) = harness.command();
    assert_eq!(command, Command::Stop { slot, run });
    harness.complete(stop, Outcome::Stopped);
    assert_eq!(harness.machine.stats().completions_stray, 1);
    harness.complete(again, Outcome::Stopped);
    harness.pass(secs(2));
    spawned(&mut harness, &server);
}

#[test]
fn a_process_that_ends_takes_its_instance_with_it_at_once() {
    let mut server = Server::new(1, 1);
    let mut harness = Harness::with_slots(Config::default(), (1, 1), &[], &[&server]);
    let run = spawned(&mut harness, &server);
    server.join(&mut harness);
    let ticket = harness.play(0..1, &mut server)[0];
    harness
        .machine
        .handle_exited(harness.now, CommandId(run.0 + 99));
    harness.assignment(ticket);
    harness.machine.handle_exited(harness.now, run);
    let lost = TicketState::Ended(Ending::Failed(FailReason::ServerLost));
    assert_eq!(harness.state(ticket), &lost);
    // A repeated report counts once.
    harness.machine.handle_exited(harness.now, run);
    harness.pass(secs(2));
    spawned(&mut harness, &server);
}

#[test]
fn a_lost_lease_ends_the_process() {
    let server = Server::new(1, 1);
    let mut harness = Harness::with_slots(Config::default(), (1, 1), &[], &[&server]);
    let run = spawned(&mut harness, &server);
    server.join(&mut harness);
    harness.pass(secs(30));
    let (_, command) = harness.command();
    let (slot, run) = (Slot(0), Some(run));
    assert_eq!(command, Command::Stop { slot, run });
}

#[test]
fn mm_9_a_spawn_that_is_never_answered_blocks_no_other_slot() {
    let mut config = Config::default();
    config.warm = 0;
    let (silent, mut server) = (Server::new(1, 1), Server::new(2, 1));
    let mut harness = Harness::with_slots(config, (1, 1), &[], &[&silent, &server]);
    let first = harness.submit(0);
    spawned(&mut harness, &silent);
    let second = harness.submit(1);
    // The capacity of a server is unknown before the first one registers, which is late here.
    harness.pass(Duration::from_millis(4_999));
    assert!(harness.commands.is_empty(), "{:?}", harness.commands);
    harness.pass(Duration::from_millis(1));
    let run = spawned(&mut harness, &server);
    harness.complete(run, Outcome::Started);
    server.join(&mut harness);
    harness.serve(&mut [&mut server]);
    // The older match has the server. The other waits for the slot that does not answer.
    harness.assignment(first);
    assert!(matches!(
        harness.state(second),
        TicketState::Allocating { .. }
    ));
    let match_id = harness.assignment(first).match_id;
    server.end(&mut harness, match_id);
    harness.serve(&mut [&mut server]);
    harness.assignment(second);
}

#[test]
fn no_process_is_started_while_an_old_one_may_come_back() {
    let server = Server::new(1, 4);
    let game = matchmaker_core::Game {
        app_id: crate::harness::APP,
        rule: matchmaker_core::Rule::TeamSize(matchmaker_core::TeamSize::new(1, 1).unwrap()),
        slots: vec![server.link.node],
        fleet: [].into(),
    };
    let mut harness = Harness::start(Config::default(), game, wire::Instant::ZERO, 1);
    harness
        .machine
        .set_unix_time(harness.now, crate::harness::UNIX);
    harness.pass(secs(1));
    server.join(&mut harness);
    harness.pass(secs(5));
    assert!(harness.commands.is_empty(), "{:?}", harness.commands);
}

#[test]
fn a_process_started_while_the_link_is_down_has_time_to_register() {
    let server = Server::new(1, 1);
    let up_after = |up_after: Duration| {
        let mut harness = Harness::with_slots(Config::default(), (1, 1), &[], &[&server]);
        let run = spawned(&mut harness, &server);
        harness.complete(run, Outcome::Started);
        harness.pass(secs(59));
        harness.machine.handle_link_down(harness.now);
        harness.pass(up_after);
        harness.machine.handle_link_up(harness.now);
        harness
    };
    // The deadline is shortly after the cut, or within it.
    for cut in [Duration::from_millis(900), secs(10)] {
        let mut harness = up_after(cut);
        harness.pass(Duration::from_millis(1_999));
        assert!(
            harness.commands.is_empty(),
            "{cut:?}: {:?}",
            harness.commands
        );
        server.join(&mut harness);
        harness.pass_alive(secs(60), &[&server]);
        assert!(
            harness.commands.is_empty(),
            "{cut:?}: {:?}",
            harness.commands
        );
        assert_eq!(harness.machine.servers().collect::<Vec<_>>(), [server.link]);
        // It gets two seconds, and no more.
        let mut harness = up_after(cut);
        harness.pass(secs(2));
        let (_, command) = harness.command();
        assert!(matches!(command, Command::Stop { .. }), "{command:?}");
    }
}

fn spawned(harness: &mut Harness, server: &Server) -> CommandId {
    let (id, command) = harness.command();
    let is_expected = matches!(command, Command::Spawn { node, .. } if node == server.link.node);
    assert!(is_expected, "{command:?}");
    id
}

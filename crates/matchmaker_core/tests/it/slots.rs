//! The pool: processes are started as needed, kept warm, rested after failures, stopped unused.

use matchmaker_core::{Command, Config, Ending, Event, FailReason, Outcome, Slot, TicketState};
use wire::CommandId;

use crate::rig::{Rig, Server, secs};

#[test]
fn bgx9_one_server_is_kept_warm_and_another_started_when_it_fills() {
    let (mut first, second) = (Server::new(1, 1), Server::new(2, 1));
    let mut rig = Rig::with_slots(Config::default(), (1, 1), &[], &[&first, &second]);
    let run = spawned(&mut rig, &first);
    rig.complete(run, Outcome::Started);
    assert!(rig.commands.is_empty());
    first.join(&mut rig);
    let ticket = rig.submit(0);
    let (id, command) = rig.command();
    let Command::Call { body, .. } = command else {
        panic!("{command:?}");
    };
    let run = spawned(&mut rig, &second);
    rig.complete(run, Outcome::Started);
    let answer = first.answer(&body);
    rig.complete(id, Outcome::Answered(answer));
    rig.assignment(ticket);
}

#[test]
fn as_many_processes_are_started_as_the_waiting_matches_need() {
    let servers: Vec<_> = (1..=6).map(|number| Server::new(number, 8)).collect();
    let slots: Vec<_> = servers.iter().collect();
    let mut config = Config::default();
    config.warm = 0;
    let mut rig = Rig::with_slots(config, (2, 1), &[], &slots);
    // Ten matches of two: three servers of eight seats, the first of which tells its seats.
    let tickets: Vec<_> = (0..20).map(|client| rig.submit(client)).collect();
    spawned(&mut rig, slots[0]);
    assert!(rig.commands.is_empty(), "{:?}", rig.commands);
    slots[0].join(&mut rig);
    let spawns = |rig: &Rig| {
        let is_spawn =
            |(_, command): &&(CommandId, Command)| matches!(command, Command::Spawn { .. });
        rig.commands.iter().filter(is_spawn).count()
    };
    // Four matches are on their way to it, six wait.
    assert_eq!(rig.machine.load().matches_waiting, 6);
    assert_eq!(spawns(&rig), 2);
    slots[1].join(&mut rig);
    slots[2].join(&mut rig);
    assert_eq!(rig.machine.load().matches_waiting, 0);
    assert_eq!(spawns(&rig), 2, "no more than are needed");
    assert!(matches!(
        rig.state(tickets[19]),
        TicketState::Allocating { .. }
    ));
}

#[test]
fn bg5_an_unused_server_is_stopped_down_to_none() {
    let mut config = Config::default();
    config.warm = 0;
    let mut server = Server::new(1, 1);
    let mut rig = Rig::with_slots(config, (1, 1), &[], &[&server]);
    assert!(rig.commands.is_empty());
    let ticket = rig.submit(0);
    let run = spawned(&mut rig, &server);
    server.join(&mut rig);
    rig.complete(run, Outcome::Started);
    rig.serve(&mut [&mut server]);
    let match_id = rig.assignment(ticket).match_id;
    rig.pass_alive(secs(400), &[&server]);
    server.end(&mut rig, match_id);
    rig.pass_alive(secs(299), &[&server]);
    assert!(rig.commands.is_empty());
    rig.pass(secs(1));
    let (id, command) = rig.command();
    let run = Some(run);
    assert_eq!(command, Command::Stop { slot: Slot(0), run });
    rig.complete(id, Outcome::Stopped);
    assert_eq!(rig.machine.servers().count(), 0);
    // It comes back when it is needed.
    rig.submit(0);
    server = Server::run(1, 1, 1);
    spawned(&mut rig, &server);
    server.join(&mut rig);
}

#[test]
fn a_slot_that_fails_rests_longer_and_longer() {
    let server = Server::new(1, 1);
    let mut rig = Rig::with_slots(Config::default(), (1, 1), &[], &[&server]);
    let mut rests = Vec::new();
    for failures in 1..=8 {
        let run = spawned(&mut rig, &server);
        rig.complete(run, Outcome::Failed);
        let slot = Slot(0);
        assert!(rig.events.contains(&Event::SpawnFailed { slot, failures }));
        let failed_at = rig.now;
        while rig.commands.is_empty() {
            rig.pass(secs(1));
        }
        rests.push(rig.now.saturating_since(failed_at).as_secs());
    }
    assert!(rests.is_sorted(), "{rests:?}");
    assert!(rests[0] <= 2 && (60..=68).contains(&rests[7]), "{rests:?}");
}

#[test]
fn bg2_a_process_that_never_registers_is_ended() {
    let server = Server::new(1, 1);
    let mut rig = Rig::with_slots(Config::default(), (1, 1), &[], &[&server]);
    let run = spawned(&mut rig, &server);
    rig.pass(secs(60));
    let (stop, command) = rig.command();
    let (slot, run) = (Slot(0), Some(run));
    assert_eq!(command, Command::Stop { slot, run });
    // The command is lost: it comes again, and the late outcome of the first counts for nothing.
    rig.pass(secs(30));
    let (again, command) = rig.command();
    assert_eq!(command, Command::Stop { slot, run });
    rig.complete(stop, Outcome::Stopped);
    assert_eq!(rig.machine.stats().completions_stray, 1);
    rig.complete(again, Outcome::Stopped);
    rig.pass(secs(2));
    spawned(&mut rig, &server);
}

#[test]
fn a_process_that_ends_takes_its_instance_with_it_at_once() {
    let mut server = Server::new(1, 1);
    let mut rig = Rig::with_slots(Config::default(), (1, 1), &[], &[&server]);
    let run = spawned(&mut rig, &server);
    server.join(&mut rig);
    let ticket = rig.play(0..1, &mut server)[0];
    rig.machine.handle_exited(rig.now, CommandId(run.0 + 99));
    rig.assignment(ticket);
    rig.machine.handle_exited(rig.now, run);
    let lost = TicketState::Ended(Ending::Failed(FailReason::ServerLost));
    assert_eq!(rig.state(ticket), &lost);
    // Told twice, it counts once.
    rig.machine.handle_exited(rig.now, run);
    rig.pass(secs(2));
    spawned(&mut rig, &server);
}

#[test]
fn a_lost_lease_ends_the_process() {
    let server = Server::new(1, 1);
    let mut rig = Rig::with_slots(Config::default(), (1, 1), &[], &[&server]);
    let run = spawned(&mut rig, &server);
    server.join(&mut rig);
    rig.pass(secs(30));
    let (_, command) = rig.command();
    let (slot, run) = (Slot(0), Some(run));
    assert_eq!(command, Command::Stop { slot, run });
}

#[test]
fn mm_9_a_spawn_that_is_never_answered_blocks_no_other_slot() {
    let mut config = Config::default();
    config.warm = 0;
    let (mute, mut server) = (Server::new(1, 1), Server::new(2, 1));
    let mut rig = Rig::with_slots(config, (1, 1), &[], &[&mute, &server]);
    let first = rig.submit(0);
    spawned(&mut rig, &mute);
    let second = rig.submit(1);
    // How many matches a server takes is not known before the first is there; that one is late.
    rig.pass(core::time::Duration::from_millis(4_999));
    assert!(rig.commands.is_empty(), "{:?}", rig.commands);
    rig.pass(core::time::Duration::from_millis(1));
    let run = spawned(&mut rig, &server);
    rig.complete(run, Outcome::Started);
    server.join(&mut rig);
    rig.serve(&mut [&mut server]);
    // The older match has the server; the other waits for the slot that is mute.
    rig.assignment(first);
    assert!(matches!(rig.state(second), TicketState::Allocating { .. }));
    let match_id = rig.assignment(first).match_id;
    server.end(&mut rig, match_id);
    rig.serve(&mut [&mut server]);
    rig.assignment(second);
}

#[test]
fn no_process_is_started_while_an_old_one_may_come_back() {
    let server = Server::new(1, 4);
    let game = matchmaker_core::Game {
        app_id: crate::rig::APP,
        rule: matchmaker_core::Rule::TeamSize(matchmaker_core::TeamSize::new(1, 1).unwrap()),
        slots: vec![server.link.node],
        fleet: [].into(),
    };
    let mut rig = Rig::start(Config::default(), game, wire::Instant::ZERO, 1);
    rig.machine.set_unix_time(rig.now, crate::rig::UNIX);
    rig.pass(secs(1));
    server.join(&mut rig);
    rig.pass(secs(5));
    assert!(rig.commands.is_empty(), "{:?}", rig.commands);
}

/// Takes the command that starts `server`.
fn spawned(rig: &mut Rig, server: &Server) -> CommandId {
    let (id, command) = rig.command();
    let is_expected = matches!(command, Command::Spawn { node, .. } if node == server.link.node);
    assert!(is_expected, "{command:?}");
    id
}

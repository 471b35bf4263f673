//! Server instances: registration, leases, and their matches.

use matchmaker_core::record::{Intake, RefuseReason, Reply, encode_bye};
use matchmaker_core::{
    Command, Config, DownReason, Ending, Event, FailReason, MatchEnd, Outcome, TicketState,
};
use wire::MatchId;

use crate::harness::{Harness, Server, secs};

#[test]
fn an_instance_lives_as_long_as_it_renews_its_lease() {
    let mut server = Server::new(1, 2);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    server.join(&mut harness);
    let tickets = harness.play(0..2, &mut server);
    harness.pass_alive(secs(120), &[&server]);
    harness.pass(secs(19));
    harness.assignment(tickets[0]);
    harness.pass(secs(1));
    let lost = TicketState::Ended(Ending::Failed(FailReason::ServerLost));
    assert_eq!(
        [harness.state(tickets[0]), harness.state(tickets[1])],
        [&lost; 2]
    );
    let down = Event::ServerDown {
        server: server.link,
        reason: DownReason::LeaseLost,
    };
    assert!(harness.events.contains(&down));
    // It was retired permanently.
    assert_eq!(server.heartbeat(&mut harness), Reply::Retired);
    assert_eq!(server.register(&mut harness), Reply::Retired);
    assert_eq!(harness.machine.servers().count(), 0);
}

#[test]
fn no_lease_ends_while_the_matchmaker_is_unreachable() {
    let (mut server, left) = (Server::new(1, 2), Server::new(2, 2));
    let mut harness = Harness::with_slots(Config::default(), (2, 1), &[&left], &[&server]);
    harness.command();
    server.join(&mut harness);
    left.join(&mut harness);
    let tickets = harness.play(0..2, &mut server);
    let seat = harness.assignment(tickets[0]).clone();
    // 25 s into the leases, the hub is down for a minute.
    harness.pass(secs(25));
    harness.commands.clear();
    harness.machine.handle_link_down(harness.now);
    let waiting = [harness.submit(2), harness.submit(3)];
    harness.pass_with_requests(secs(60), &waiting);
    harness.machine.handle_link_up(harness.now);
    assert_eq!(harness.assignment(tickets[0]), &seat);
    // No match was ended or made, and no server was started.
    let is_stop = |(_, command): &(_, Command)| !matches!(command, Command::Call { .. });
    harness.drain();
    assert!(
        !harness.commands.iter().any(is_stop),
        "{:?}",
        harness.commands
    );
    // A server that returns within the remaining time keeps its lease.
    harness.pass(core::time::Duration::from_millis(4_999));
    let Reply::Renewed { release, .. } = server.register(&mut harness) else {
        panic!("not renewed");
    };
    assert_eq!(release, []);
    harness.pass(core::time::Duration::from_millis(1));
    assert_eq!(harness.machine.servers().collect::<Vec<_>>(), [server.link]);
    assert_eq!(left.register(&mut harness), Reply::Retired);
    harness.pass_alive(secs(60), &[&server]);
    assert_eq!(harness.assignment(tickets[0]), &seat);
}

#[test]
fn an_almost_expired_lease_is_extended_after_an_outage() {
    let server = Server::new(1, 2);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    server.join(&mut harness);
    harness.pass(core::time::Duration::from_millis(29_999));
    harness.machine.handle_link_down(harness.now);
    harness.machine.handle_link_down(harness.now);
    harness.pass(secs(600));
    harness.machine.handle_link_up(harness.now);
    harness.pass(core::time::Duration::from_millis(1_999));
    server.join(&mut harness);
    // A repeated notification has no further effect.
    harness.machine.handle_link_up(harness.now);
    harness.pass(secs(30));
    assert_eq!(harness.machine.servers().count(), 0);
}

#[test]
fn mm_4_a_matchmaker_without_a_link_waits_for_it_to_recover() {
    let mut server = Server::new(1, 2);
    let mut before = Harness::new(Config::default(), (2, 1), &[&server]);
    server.join(&mut before);
    let match_id = before.play(0..2, &mut server)[0];
    let match_id = before.assignment(match_id).match_id;

    let game = matchmaker_core::Game {
        app_id: crate::harness::APP,
        rule: matchmaker_core::Rule::TeamSize(matchmaker_core::TeamSize::new(2, 1).unwrap()),
        slots: vec![Server::new(2, 4).link.node],
        fleet: [server.link.node].into(),
    };
    let mut harness = Harness::start(Config::default(), game, wire::Instant::ZERO, 2);
    harness
        .machine
        .set_unix_time(harness.now, crate::harness::UNIX);
    harness.machine.handle_link_down(harness.now);
    let ticket = harness.submit(0);
    harness.pass_with_requests(secs(100), &[ticket]);
    harness.machine.handle_link_up(harness.now);
    harness.pass(secs(1));
    harness.drain();
    assert!(harness.commands.is_empty(), "{:?}", harness.commands);
    server.join(&mut harness);
    assert_eq!(harness.assignment(ticket).match_id, match_id);
    harness.pass(secs(1));
    // It is full, so a server with free room is started in advance.
    assert!(matches!(harness.command().1, Command::Spawn { .. }));
}

#[test]
fn mm_4_a_restarted_matchmaker_requests_registration_and_adopts_matches() {
    let mut server = Server::new(1, 4);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    server.join(&mut harness);
    let before = harness.play(0..2, &mut server);
    let seat = harness.assignment(before[0]).clone();

    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    // Submitted too early, so the player waits.
    let ticket = harness.submit(0);
    assert_eq!(harness.state(ticket), &TicketState::Queued);
    assert_eq!(server.heartbeat(&mut harness), Reply::Register);
    server.join(&mut harness);
    let after = harness.assignment(ticket);
    assert_eq!((after.match_id, after.seat), (seat.match_id, seat.seat));
    // A later ticket also gets a seat in the same match.
    let other = harness.submit(1);
    assert_eq!(harness.assignment(other).match_id, seat.match_id);
    assert_eq!(harness.machine.stats().adopted, 1);
    assert_eq!(harness.machine.load().players, 2);
}

#[test]
fn mm_1_a_match_without_players_is_not_adopted() {
    let mut server = Server::new(1, 4);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    server.join(&mut harness);
    let ticket = harness.play(0..2, &mut server)[0];
    let match_id = harness.assignment(ticket).match_id;
    server.unentered.insert(match_id);
    // For the matchmaker that knows it, it is a normal match.
    harness.pass(secs(20));
    server.join(&mut harness);
    harness.assignment(ticket);

    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    let Reply::Renewed { release, .. } = server.register(&mut harness) else {
        panic!("not renewed");
    };
    assert_eq!(release, [match_id]);
    assert_eq!(harness.machine.load().players, 0);
}

#[test]
fn no_match_is_made_while_servers_register_again() {
    let server = Server::new(1, 4);
    let game = matchmaker_core::Game {
        app_id: crate::harness::APP,
        rule: matchmaker_core::Rule::TeamSize(matchmaker_core::TeamSize::new(1, 1).unwrap()),
        slots: Vec::new(),
        fleet: [server.link.node].into(),
    };
    let mut harness = Harness::start(Config::default(), game, wire::Instant::ZERO, 1);
    harness
        .machine
        .set_unix_time(harness.now, crate::harness::UNIX);
    server.join(&mut harness);
    let ticket = harness.submit(0);
    harness.pass(core::time::Duration::from_millis(1_999));
    assert_eq!(harness.state(ticket), &TicketState::Queued);
    harness.pass(core::time::Duration::from_millis(1));
    assert!(matches!(
        harness.state(ticket),
        TicketState::Allocating { .. }
    ));
}

#[test]
fn a_server_cannot_claim_players_once_every_old_lease_is_over() {
    let (honest, mut impostor) = (Server::new(1, 4), Server::new(2, 100));
    let mut harness = Harness::new(Config::default(), (2, 1), &[&honest, &impostor]);
    harness.pass(secs(28));
    let ticket = harness.submit(7);
    let seated = matchmaker_core::Seated {
        client_id: wire::ClientId(7),
        seat: wire::Seat(0),
        team: wire::Team(0),
    };
    impostor.matches.insert(MatchId([9; 16]), vec![seated]);
    let Reply::Renewed { release, .. } = impostor.register(&mut harness) else {
        panic!("not renewed");
    };
    assert_eq!(release, [MatchId([9; 16])]);
    assert_eq!(harness.state(ticket), &TicketState::Queued);
}

#[test]
fn an_adopted_match_needs_room_and_its_players_are_in_one_match_only() {
    let (mut first, mut second) = (Server::new(1, 2), Server::new(2, 2));
    let seated = |client, seat| matchmaker_core::Seated {
        client_id: wire::ClientId(client),
        seat: wire::Seat(seat),
        team: wire::Team(0),
    };
    first
        .matches
        .insert(MatchId([1; 16]), vec![seated(1, 0), seated(2, 1)]);
    first.matches.insert(MatchId([2; 16]), vec![seated(3, 0)]);
    // Three players are more than a match has.
    let many = (5..8).map(|client| seated(client, 0)).collect();
    first.matches.insert(MatchId([0; 16]), many);
    second
        .matches
        .insert(MatchId([3; 16]), vec![seated(2, 0), seated(4, 1)]);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&first, &second]);
    let Reply::Renewed { release, .. } = first.register(&mut harness) else {
        panic!("not renewed");
    };
    assert_eq!(release, [MatchId([0; 16]), MatchId([2; 16])]);
    second.join(&mut harness);
    assert_eq!(harness.machine.load().players, 3);
    let back = harness.submit(2);
    assert_eq!(harness.assignment(back).match_id, MatchId([1; 16]));
}

#[test]
fn only_servers_of_the_join_file_register() {
    let (known, other_server) = (Server::new(1, 2), Server::new(2, 2));
    let mut harness = Harness::new(Config::default(), (2, 1), &[&known]);
    assert_eq!(
        other_server.register(&mut harness),
        Reply::Refused(RefuseReason::NotAllowed)
    );
    let mut other_app = known.record();
    other_app.app_id ^= 1;
    let reply = known.call(&mut harness, &other_app.encode().unwrap());
    assert_eq!(reply, Reply::Refused(RefuseReason::OtherApp));
    let mut other_identity = known.record();
    other_identity.identity_keys = other_server.identity_keys.clone();
    let reply = known.call(&mut harness, &other_identity.encode().unwrap());
    assert_eq!(reply, Reply::Refused(RefuseReason::OtherIdentity));
    let reply = known.call(&mut harness, b"\x01\x09");
    assert_eq!(reply, Reply::Refused(RefuseReason::Malformed));
    assert_eq!(harness.machine.stats().calls_refused, 4);
    assert_eq!(harness.machine.servers().count(), 0);
}

#[test]
fn a_restarted_server_is_another_instance_and_the_old_one_ends() {
    let mut old = Server::new(1, 2);
    let mut new = Server::run(1, 2, 1);
    let mut harness = Harness::new(Config::default(), (1, 1), &[&old]);
    old.join(&mut harness);
    let ticket = harness.play(0..1, &mut old)[0];
    new.join(&mut harness);
    let lost = TicketState::Ended(Ending::Failed(FailReason::ServerLost));
    assert_eq!(harness.state(ticket), &lost);
    assert_eq!(harness.machine.servers().collect::<Vec<_>>(), [new.link]);
    // The two do not alternate.
    assert_eq!(old.register(&mut harness), Reply::Retired);
    assert_eq!(harness.machine.servers().collect::<Vec<_>>(), [new.link]);
    let ticket = harness.play(0..1, &mut new)[0];
    assert_eq!(harness.assignment(ticket).server, new.link);
}

#[test]
fn a_match_that_its_server_no_longer_names_is_over() {
    let mut server = Server::new(1, 2);
    let mut harness = Harness::new(Config::default(), (1, 1), &[&server]);
    server.join(&mut harness);
    let ticket = harness.play(0..1, &mut server)[0];
    let match_id = harness.assignment(ticket).match_id;
    server.matches.clear();
    // A heartbeat that was in flight when the match went live does not count.
    server.heartbeat(&mut harness);
    harness.assignment(ticket);
    harness.pass(secs(10));
    server.heartbeat(&mut harness);
    assert_eq!(harness.state(ticket), &TicketState::Ended(Ending::Finished));
    assert!(harness.events.contains(&Event::MatchEnded {
        match_id,
        end: MatchEnd::Unlisted,
        result: Vec::new(),
    }));
}

#[test]
fn a_match_without_players_ends_when_its_tokens_have_expired() {
    let mut server = Server::new(1, 2);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    server.join(&mut harness);
    let tickets = harness.play(0..2, &mut server);
    let match_id = harness.assignment(tickets[0]).match_id;
    server.unentered.insert(match_id);
    harness.pass_alive(secs(30), &[&server]);
    // A new token is valid for another minute.
    harness.machine.reissue(harness.now, tickets[0]).unwrap();
    // 60 s for the token, 5 s of skew for each of two clocks, and 5 s for a heartbeat in flight.
    harness.pass_alive(secs(74), &[&server]);
    harness.assignment(tickets[0]);
    harness.pass(secs(1));
    let Reply::Renewed { release, .. } = server.heartbeat(&mut harness) else {
        panic!("not renewed");
    };
    assert_eq!(release, [match_id], "the server forgets it");
    for ticket in tickets {
        assert_eq!(
            harness.state(ticket),
            &TicketState::Ended(Ending::NotEntered)
        );
    }
    assert!(harness.events.contains(&Event::MatchEnded {
        match_id,
        end: MatchEnd::NotEntered,
        result: Vec::new(),
    }));
    // The seats are free on both sides.
    server.matches.remove(&match_id);
    let next = harness.play(2..4, &mut server);
    harness.assignment(next[0]);
    assert_eq!(harness.machine.load().players, 2);
}

#[test]
fn an_entered_match_never_times_out() {
    let mut server = Server::new(1, 2);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    server.join(&mut harness);
    let tickets = harness.play(0..2, &mut server);
    let match_id = harness.assignment(tickets[0]).match_id;
    server.unentered.insert(match_id);
    harness.pass_alive(secs(70), &[&server]);
    server.unentered.clear();
    harness.pass_alive(secs(3_600), &[&server]);
    harness.assignment(tickets[1]);
    // A registration, such as with a new key, carries the same report.
    server.join(&mut harness);
    harness.assignment(tickets[1]);
}

#[test]
fn a_server_at_capacity_gets_no_matches() {
    let (mut closed, mut open) = (Server::new(1, 8), Server::new(2, 8));
    let mut harness = Harness::new(Config::default(), (1, 1), &[&closed, &open]);
    closed.join(&mut harness);
    open.join(&mut harness);
    closed.intake = Intake::Closed;
    closed.heartbeat(&mut harness);
    for client in 0..4 {
        let ticket = harness.submit(client);
        harness.serve(&mut [&mut open]);
        assert_eq!(harness.assignment(ticket).server, open.link);
    }
    let mut bye = Vec::new();
    encode_bye(&mut bye);
    assert_eq!(closed.call(&mut harness, &bye), Reply::Noted);
    assert_eq!(harness.machine.servers().collect::<Vec<_>>(), [open.link]);
}

#[test]
fn matches_are_packed_on_the_fullest_server() {
    let (mut one, mut two) = (Server::new(1, 4), Server::new(2, 4));
    let mut harness = Harness::new(Config::default(), (2, 1), &[&one, &two]);
    one.join(&mut harness);
    two.join(&mut harness);
    for clients in [0..2, 2..4, 4..6, 6..8] {
        for client in clients {
            harness.submit(client);
        }
        harness.serve(&mut [&mut one, &mut two]);
    }
    assert_eq!((one.players().len(), two.players().len()), (4, 4));
    let halves = [one.players(), two.players()].map(|players| players.first().copied());
    assert!(halves.contains(&Some(wire::ClientId(0))));
    assert!(halves.contains(&Some(wire::ClientId(4))));
}

#[test]
fn mm_9_a_server_that_does_not_answer_delays_its_own_match_only() {
    let (dead, mut alive) = (Server::new(1, 8), Server::new(2, 8));
    let mut harness = Harness::new(Config::default(), (1, 1), &[&dead, &alive]);
    dead.join(&mut harness);
    let stuck = harness.submit(0);
    let (_never, command) = harness.command();
    assert!(matches!(command, Command::Call { to, .. } if to == dead.link));
    alive.join(&mut harness);
    // Packing would still prefer the dead server, so close its intake.
    let mut closed = dead.record();
    closed.intake = Intake::Closed;
    dead.call(&mut harness, &closed.encode().unwrap());
    let fine = harness.play(1..2, &mut alive)[0];
    harness.assignment(fine);
    assert!(matches!(
        harness.state(stuck),
        TicketState::Allocating { .. }
    ));
    harness.pass(secs(5));
    harness.serve(&mut [&mut alive]);
    assert_eq!(harness.assignment(stuck).server, alive.link);
}

#[test]
fn a_refusing_server_is_not_asked_until_its_next_heartbeat() {
    let mut server = Server::new(1, 8);
    let mut harness = Harness::new(Config::default(), (1, 1), &[&server]);
    server.join(&mut harness);
    let ticket = harness.submit(0);
    let (id, _) = harness.command();
    harness.complete(id, Outcome::Answered(vec![1, 1]));
    assert!(harness.commands.is_empty());
    server.heartbeat(&mut harness);
    let (id, _) = harness.command();
    // A malformed answer, or the outcome of another command, does not count as accepted.
    harness.complete(id, Outcome::Answered(vec![0; 99]));
    server.heartbeat(&mut harness);
    let (id, _) = harness.command();
    harness.complete(id, Outcome::Started);
    assert!(matches!(
        harness.state(ticket),
        TicketState::Allocating { .. }
    ));
    server.heartbeat(&mut harness);
    harness.serve(&mut [&mut server]);
    harness.assignment(ticket);
}

//! Tickets: order, one per player, and how they end.

use matchmaker_core::record::{Reply, encode_left};
use matchmaker_core::{
    CancelError, Config, Duplicate, Ending, Event, FailReason, IdempotencyKey, MatchEnd, Outcome,
    SubmitError, TicketRequest, TicketState,
};
use wire::{ClientId, MatchId};

use crate::harness::{Harness, Server, secs};

#[test]
fn mm_3_first_come_first_served() {
    let mut server = Server::new(1, 4);
    let mut harness = Harness::new(Config::default(), (2, 2), &[&server]);
    server.join(&mut harness);
    let tickets: Vec<_> = (0..7).map(|client| harness.submit(client)).collect();
    harness.serve(&mut [&mut server]);
    for ticket in &tickets[..4] {
        assert_eq!(harness.assignment(*ticket).server, server.link);
    }
    for ticket in &tickets[4..] {
        assert_eq!(harness.state(*ticket), &TicketState::Queued);
    }
    let seats: Vec<_> = tickets[..4]
        .iter()
        .map(|ticket| harness.assignment(*ticket))
        .map(|seat| (seat.seat.0, seat.team.0))
        .collect();
    assert_eq!(seats, [(0, 0), (1, 1), (2, 0), (3, 1)]);
}

#[test]
fn a_change_of_state_is_an_event() {
    let mut server = Server::new(1, 2);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    server.join(&mut harness);
    let tickets = harness.play(0..2, &mut server);
    let changes = |ticket| {
        let of = |event: &&Event| **event == Event::Ticket(ticket);
        harness.events.iter().filter(of).count()
    };
    // Queued, allocating, assigned.
    assert_eq!((changes(tickets[0]), changes(tickets[1])), (3, 3));
}

#[test]
fn bgx4_the_same_idempotency_key_gives_the_same_ticket() {
    let mut server = Server::new(1, 2);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    server.join(&mut harness);
    let wish = TicketRequest::new(ClientId(1)).with_idempotency(IdempotencyKey([7; 16]));
    let receipt = harness.machine.submit(harness.now, &wish).unwrap();
    assert_eq!(
        harness.machine.submit(harness.now, &wish),
        Ok(receipt.clone())
    );
    harness.submit(2);
    harness.serve(&mut [&mut server]);
    let grant = harness.assignment(receipt.ticket).grant.clone();
    assert_eq!(
        harness.machine.submit(harness.now, &wish),
        Ok(receipt.clone())
    );
    assert_eq!(harness.assignment(receipt.ticket).grant, grant);
    assert!(
        harness
            .machine
            .is_holder(receipt.ticket, &receipt.resume_key)
    );
    let other = harness
        .machine
        .submit(harness.now, &TicketRequest::new(ClientId(3)));
    assert!(
        !harness
            .machine
            .is_holder(receipt.ticket, &other.unwrap().resume_key)
    );
}

#[test]
fn bgx4_the_key_of_an_ended_ticket_is_not_queued_again() {
    let mut config = Config::default();
    config.ended_kept = secs(100);
    let mut server = Server::new(1, 8);
    let mut harness = Harness::new(config, (2, 1), &[&server]);
    server.join(&mut harness);
    let wish = |client, key| {
        TicketRequest::new(ClientId(client)).with_idempotency(IdempotencyKey([key; 16]))
    };
    let mut submit = |harness: &mut Harness, client, key| {
        let receipt = harness
            .machine
            .submit(harness.now, &wish(client, key))
            .unwrap();
        harness.serve(&mut [&mut server]);
        receipt
    };
    // One is cancelled, one replaced, one played to its end.
    let cancelled = submit(&mut harness, 1, 1);
    harness
        .machine
        .cancel(harness.now, cancelled.ticket)
        .unwrap();
    let replaced = submit(&mut harness, 2, 1);
    let played = submit(&mut harness, 2, 2);
    submit(&mut harness, 3, 3);
    let match_id = harness.assignment(played.ticket).match_id;
    server.end(&mut harness, match_id);
    for (client, key, receipt) in [(1, 1, &cancelled), (2, 1, &replaced), (2, 2, &played)] {
        let again = harness.machine.submit(harness.now, &wish(client, key));
        assert_eq!(again.as_ref(), Ok(receipt));
    }
    assert_eq!(harness.machine.load().tickets_waiting, 0);
    // A key belongs to one player, and is valid while its ticket is known.
    let other = harness.machine.submit(harness.now, &wish(4, 1)).unwrap();
    assert_ne!(other, cancelled);
    harness.pass(secs(100));
    let anew = harness.machine.submit(harness.now, &wish(1, 1)).unwrap();
    assert_ne!(anew, cancelled);
    assert_eq!(harness.state(anew.ticket), &TicketState::Queued);
}

#[test]
fn a_newer_request_replaces_a_waiting_one() {
    let mut harness = Harness::new(Config::default(), (2, 1), &[]);
    let first = harness.submit(1);
    let second = harness.submit(1);
    assert_eq!(harness.state(first), &TicketState::Ended(Ending::Replaced));
    assert_eq!(harness.state(second), &TicketState::Queued);
    assert_eq!(harness.machine.load().tickets_waiting, 1);
}

#[test]
fn a_second_request_is_refused_if_configured() {
    let mut config = Config::default();
    config.duplicate = Duplicate::Refuse;
    let mut harness = Harness::new(config, (2, 1), &[]);
    let first = harness.submit(1);
    let second = harness
        .machine
        .submit(harness.now, &TicketRequest::new(ClientId(1)));
    assert_eq!(second, Err(SubmitError::Duplicate(first)));
    assert_eq!(harness.state(first), &TicketState::Queued);
}

#[test]
fn mm_1_a_player_in_a_live_match_is_returned_to_it() {
    let mut server = Server::new(1, 8);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    server.join(&mut harness);
    let tickets = harness.play(0..2, &mut server);
    let before = harness.assignment(tickets[0]).clone();
    let again = |harness: &mut Harness| {
        harness
            .machine
            .submit(harness.now, &TicketRequest::new(ClientId(0)))
    };
    assert_eq!(again(&mut harness), Err(SubmitError::TooSoon(secs(5))));
    harness.pass(secs(5));
    let ticket = again(&mut harness).unwrap().ticket;
    let after = harness.assignment(ticket);
    assert_eq!((after.match_id, after.seat), (before.match_id, before.seat));
    assert_ne!(after.grant, before.grant);
    assert_eq!(
        harness.state(tickets[0]),
        &TicketState::Ended(Ending::Replaced)
    );
    assert_eq!(harness.machine.load().players, 2);
    let match_id = before.match_id;
    server.end(&mut harness, match_id);
    assert_eq!(harness.state(ticket), &TicketState::Ended(Ending::Finished));
}

#[test]
fn a_cancelled_ticket_ends_and_the_others_keep_their_places() {
    let server = Server::new(1, 4);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    let tickets: Vec<_> = (0..4).map(|client| harness.submit(client)).collect();
    // Two matches wait for a server. One is cancelled, and its other player plays with the third.
    harness.machine.cancel(harness.now, tickets[0]).unwrap();
    assert_eq!(
        harness.state(tickets[0]),
        &TicketState::Ended(Ending::Cancelled)
    );
    assert_eq!(harness.state(tickets[1]), &TicketState::Queued);
    assert_eq!(
        harness.machine.cancel(harness.now, tickets[0]),
        Err(CancelError::Ended)
    );
    harness.machine.cancel(harness.now, tickets[2]).unwrap();
    let states = [1, 3].map(|index: usize| harness.state(tickets[index]).clone());
    assert!(
        matches!(&states[0], TicketState::Allocating { .. }),
        "{states:?}"
    );
    assert_eq!(states[0], states[1]);
}

#[test]
fn an_assigned_ticket_cannot_be_cancelled() {
    let mut server = Server::new(1, 2);
    let mut harness = Harness::new(Config::default(), (1, 1), &[&server]);
    server.join(&mut harness);
    let ticket = harness.play(0..1, &mut server)[0];
    assert_eq!(
        harness.machine.cancel(harness.now, ticket),
        Err(CancelError::Assigned)
    );
}

#[test]
fn a_ticket_expires_and_is_forgotten() {
    let mut harness = Harness::new(Config::default(), (2, 1), &[]);
    let ticket = harness.submit(1);
    harness.pass_with_requests(secs(599), &[ticket]);
    assert_eq!(harness.state(ticket), &TicketState::Queued);
    harness.pass(secs(1));
    assert_eq!(harness.state(ticket), &TicketState::Ended(Ending::Expired));
    harness.pass(secs(600));
    assert_eq!(harness.machine.ticket(ticket), None);
    assert_eq!(
        harness.machine.cancel(harness.now, ticket),
        Err(CancelError::Unknown)
    );
}

#[test]
fn an_abandoned_ticket_ends_and_is_not_matched() {
    let server = Server::new(1, 8);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    server.join(&mut harness);
    let left = harness.submit(1);
    harness.pass_alive(secs(59), &[&server]);
    assert_eq!(harness.state(left), &TicketState::Queued);
    harness.pass_alive(secs(1), &[&server]);
    assert_eq!(harness.state(left), &TicketState::Ended(Ending::Abandoned));
    // A player that polls keeps its ticket, and is not matched with one that left.
    let patient = harness.submit(2);
    harness.pass_with_requests(secs(120), &[patient]);
    assert_eq!(harness.state(patient), &TicketState::Queued);
    // Polling does not affect a ticket that is assigned or has ended.
    harness.machine.keep_ticket(harness.now, left);
    harness.pass(secs(1));
    assert_eq!(harness.state(left), &TicketState::Ended(Ending::Abandoned));
}

#[test]
fn mm_5_a_failed_allocation_returns_tickets_to_the_queue_then_ends_them() {
    let mut server = Server::new(1, 8);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    let old = [harness.submit(0), harness.submit(1)];
    harness.pass_with_requests(secs(60), &old);
    let young = [harness.submit(2), harness.submit(3)];
    let all = [old, young].concat();
    harness.pass_with_requests(secs(59), &all);
    // Both pairs have failed once or twice, and still wait as pairs in their original order.
    let TicketState::Allocating { match_id } = *harness.state(old[0]) else {
        panic!("{:?}", harness.state(old[0]));
    };
    assert_eq!(harness.state(old[1]), &TicketState::Allocating { match_id });
    harness.pass_with_requests(secs(61), &all);
    let ended = TicketState::Ended(Ending::Failed(FailReason::NoServer));
    assert_eq!([harness.state(old[0]), harness.state(old[1])], [&ended; 2]);
    server.join(&mut harness);
    harness.serve(&mut [&mut server]);
    assert_eq!(
        harness.assignment(young[0]).match_id,
        harness.assignment(young[1]).match_id
    );
}

#[test]
fn a_match_that_its_server_ends_ends_its_tickets_once() {
    let mut server = Server::new(1, 2);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    server.join(&mut harness);
    let tickets = harness.play(0..2, &mut server);
    let match_id = harness.assignment(tickets[0]).match_id;
    assert_eq!(server.end(&mut harness, match_id), Reply::Noted);
    assert_eq!(server.end(&mut harness, match_id), Reply::Noted);
    let ended = Event::MatchEnded {
        match_id,
        end: MatchEnd::Reported,
        result: b"3:1".to_vec(),
    };
    assert_eq!(
        harness
            .events
            .iter()
            .filter(|event| **event == ended)
            .count(),
        1
    );
    assert_eq!(harness.machine.load().players, 0);
    // The seats are free again.
    harness.play(4..6, &mut server);
    assert_eq!(harness.machine.load().players, 2);
}

#[test]
fn another_server_cannot_end_a_match_nor_free_its_players() {
    let (mut server, other) = (Server::new(1, 2), Server::new(2, 0));
    let mut harness = Harness::new(Config::default(), (1, 1), &[&server, &other]);
    server.join(&mut harness);
    other.join(&mut harness);
    let ticket = harness.play(0..1, &mut server)[0];
    let match_id = harness.assignment(ticket).match_id;
    let mut body = Vec::new();
    encode_left(match_id, ClientId(0), &mut body);
    assert_eq!(other.call(&mut harness, &body), Reply::Noted);
    body.clear();
    matchmaker_core::record::encode_result(match_id, b"", &mut body);
    assert_eq!(other.call(&mut harness, &body), Reply::Noted);
    assert_eq!(harness.assignment(ticket).match_id, match_id);
}

#[test]
fn a_player_that_left_for_good_may_play_elsewhere() {
    let mut server = Server::new(1, 8);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    server.join(&mut harness);
    let tickets = harness.play(0..2, &mut server);
    let match_id = harness.assignment(tickets[0]).match_id;
    let mut body = Vec::new();
    encode_left(match_id, ClientId(0), &mut body);
    for _ in 0..2 {
        assert_eq!(server.call(&mut harness, &body), Reply::Noted);
    }
    assert_eq!(harness.state(tickets[0]), &TicketState::Ended(Ending::Left));
    let next = harness.play(0..1, &mut server);
    assert_eq!(harness.state(next[0]), &TicketState::Queued);
    assert!(matches!(
        harness.state(tickets[1]),
        TicketState::Assigned(_)
    ));
}

#[test]
fn no_match_is_made_before_the_time_is_known() {
    let mut server = Server::new(1, 2);
    let game = matchmaker_core::Game {
        app_id: crate::harness::APP,
        rule: matchmaker_core::Rule::TeamSize(matchmaker_core::TeamSize::new(1, 1).unwrap()),
        slots: Vec::new(),
        fleet: [server.link.node].into(),
    };
    let mut harness = Harness::start(Config::default(), game, wire::Instant::ZERO, 1);
    server.join(&mut harness);
    let ticket = harness.submit(1);
    harness.pass_with_requests(secs(500), &[ticket]);
    assert_eq!(harness.state(ticket), &TicketState::Queued);
    harness
        .machine
        .set_unix_time(harness.now, crate::harness::UNIX);
    // Its lease has expired long ago.
    assert!(matches!(
        harness.state(ticket),
        TicketState::Allocating { .. }
    ));
    server = Server::run(1, 2, 1);
    server.join(&mut harness);
    harness.serve(&mut [&mut server]);
    harness.assignment(ticket);
}

#[test]
fn a_cancel_ends_a_pending_match_and_its_late_answer_is_ignored() {
    let mut server = Server::new(1, 2);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    server.join(&mut harness);
    let tickets = [harness.submit(0), harness.submit(1)];
    let (id, command) = harness.command();
    harness.machine.cancel(harness.now, tickets[1]).unwrap();
    let matchmaker_core::Command::Call { body, .. } = command else {
        panic!("{command:?}");
    };
    let answer = server.answer(&body);
    harness.complete(id, Outcome::Answered(answer));
    assert_eq!(harness.state(tickets[0]), &TicketState::Queued);
    assert_eq!(harness.machine.stats().completions_stray, 1);
    assert_eq!(harness.machine.stats().tokens, 0);
    // The server learns from its next heartbeat that the match is cancelled.
    let kept: Vec<MatchId> = server.matches.keys().copied().collect();
    let Reply::Renewed { release, .. } = server.heartbeat(&mut harness) else {
        panic!("not renewed");
    };
    assert_eq!(release, kept);
}

//! Every limit of the configuration, reached.

use core::num::NonZeroU8;

use matchmaker_core::record::{RECORD_BYTES_MAX, RefuseReason, Reply, encode_heartbeat};
use matchmaker_core::{
    Caller, Config, Ending, Event, FailReason, SubmitError, TicketRequest, TicketState,
};
use wire::{Arrival, ClientId, Machine, MatchId};

use crate::harness::{Harness, Server, secs};

#[test]
fn tickets_max_refuses_and_a_requeued_ticket_keeps_its_place() {
    let mut config = Config::default();
    config.tickets_max = 4;
    let mut harness = Harness::new(config, (3, 1), &[]);
    let tickets: Vec<_> = (0..4).map(|client| harness.submit(client)).collect();
    let fifth = TicketRequest::new(ClientId(9));
    assert_eq!(
        harness.machine.submit(harness.now, &fifth),
        Err(SubmitError::Full)
    );
    // Three are being placed on a server, and count.
    assert_eq!(harness.machine.load().tickets_queued, 1);
    assert_eq!(harness.machine.load().tickets_waiting, 4);
    // A replacement does not add to the count.
    harness.submit(3);
    harness.machine.cancel(harness.now, tickets[0]).unwrap();
    assert_eq!(harness.machine.load().tickets_waiting, 3);
    harness.machine.submit(harness.now, &fifth).unwrap();
}

#[test]
fn ended_max_forgets_the_oldest() {
    let mut config = Config::default();
    config.ended_max = 2;
    let mut harness = Harness::new(config, (3, 1), &[]);
    let tickets: Vec<_> = (0..3).map(|_| harness.submit(1)).collect();
    assert_eq!(harness.machine.load().tickets_known, 3);
    let last = harness.submit(1);
    assert_eq!(harness.machine.ticket(tickets[0]), None);
    assert_eq!(
        harness.state(tickets[1]),
        &TicketState::Ended(Ending::Replaced)
    );
    assert_eq!(harness.state(last), &TicketState::Queued);
}

#[test]
fn servers_max_refuses_new_servers_but_not_a_restarted_one() {
    let mut config = Config::default();
    config.servers_max = 1;
    let (one, two) = (Server::new(1, 1), Server::new(2, 1));
    let mut harness = Harness::new(config, (1, 1), &[&one, &two]);
    one.join(&mut harness);
    assert_eq!(
        two.register(&mut harness),
        Reply::Refused(RefuseReason::Full)
    );
    Server::run(1, 1, 1).join(&mut harness);
    assert_eq!(harness.machine.load().servers, 1);
}

#[test]
fn matches_max_keeps_tickets_in_the_queue() {
    let mut config = Config::default();
    config.matches_max = 2;
    let mut server = Server::new(1, 100);
    let mut harness = Harness::new(config, (1, 1), &[&server]);
    server.join(&mut harness);
    let tickets = harness.play(0..3, &mut server);
    assert_eq!(harness.state(tickets[2]), &TicketState::Queued);
    let match_id = harness.assignment(tickets[0]).match_id;
    server.end(&mut harness, match_id);
    harness.serve(&mut [&mut server]);
    harness.assignment(tickets[2]);
}

#[test]
fn matches_max_refuses_a_server_that_brings_more() {
    let mut config = Config::default();
    config.matches_max = 2;
    let mut server = Server::new(1, 100);
    for id in 0..3 {
        server.matches.insert(MatchId([id; 16]), Vec::new());
    }
    let mut harness = Harness::new(config, (1, 1), &[&server]);
    assert_eq!(
        server.register(&mut harness),
        Reply::Refused(RefuseReason::Full)
    );
    server.matches.pop_first();
    server.join(&mut harness);
    assert_eq!(harness.machine.load().matches, 2);
}

#[test]
fn an_instance_runs_256_matches_at_most() {
    let mut server = Server::new(1, u16::MAX);
    for id in 0..=255 {
        server.matches.insert(MatchId([id; 16]), Vec::new());
    }
    let mut harness = Harness::new(Config::default(), (1, 1), &[&server]);
    server.join(&mut harness);
    let ticket = harness.submit(0);
    assert!(harness.commands.is_empty(), "{:?}", harness.commands);
    server.end(&mut harness, MatchId([0; 16]));
    harness.serve(&mut [&mut server]);
    harness.assignment(ticket);
}

#[test]
fn attempts_max_of_1_ends_a_ticket_at_once() {
    let mut config = Config::default();
    config.attempts_max = NonZeroU8::MIN;
    let mut harness = Harness::new(config, (1, 1), &[]);
    let ticket = harness.submit(0);
    harness.pass(secs(60));
    let failed = TicketState::Ended(Ending::Failed(FailReason::NoServer));
    assert_eq!(harness.state(ticket), &failed);
}

#[test]
fn events_max_drops_the_oldest_and_reports_it() {
    let mut config = Config::default();
    config.events_max = 3;
    let mut harness = Harness::new(config, (9, 1), &[]);
    for client in 0..5 {
        let request = TicketRequest::new(ClientId(client));
        harness.machine.submit(harness.now, &request).unwrap();
    }
    assert_eq!(harness.machine.poll_event(), Some(Event::Missed(2)));
    for client in 2..5 {
        let ticket = harness.machine.ticket_of(ClientId(client)).unwrap();
        assert_eq!(harness.machine.poll_event(), Some(Event::Ticket(ticket)));
    }
    assert_eq!(harness.machine.poll_event(), None);
    assert_eq!(harness.machine.stats().events_missed, 2);
}

#[test]
fn replies_max_drops_replies_that_are_not_polled() {
    let mut config = Config::default();
    config.replies_max = 2;
    let server = Server::new(1, 1);
    let mut harness = Harness::new(config, (1, 1), &[&server]);
    for call in 0..3 {
        let caller = Caller {
            link: server.link,
            call,
        };
        let mut body = vec![1, 2, 1, 0, 0];
        harness
            .machine
            .handle_datagram(harness.now, Arrival::from(caller), &mut body);
    }
    let mut reply = Vec::new();
    for call in 0..2 {
        reply.clear();
        let transmit = harness
            .machine
            .poll_transmit(harness.now, &mut reply)
            .unwrap();
        assert_eq!(transmit.destination.call, call);
        assert_eq!(Reply::decode(&reply), Ok(Reply::Register));
    }
    assert_eq!(harness.machine.poll_transmit(harness.now, &mut reply), None);
    assert_eq!(harness.machine.stats().replies_dropped, 1);
}

#[test]
fn a_record_too_long_or_with_too_many_matches_is_refused() {
    let server = Server::new(1, 1);
    let mut harness = Harness::new(Config::default(), (1, 1), &[&server]);
    server.join(&mut harness);
    let malformed = Reply::Refused(RefuseReason::Malformed);
    assert_eq!(
        server.call(&mut harness, &vec![1; RECORD_BYTES_MAX + 1]),
        malformed
    );
    let mut body = vec![1, 2, 1, 1, 1];
    body.resize(5 + 257 * 17, 0);
    assert_eq!(server.call(&mut harness, &body), malformed);
    // The encoder enforces the limit too.
    body.clear();
    let ids = (0..=u16::MAX).map(|id| {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&id.to_be_bytes());
        (MatchId(bytes), true)
    });
    encode_heartbeat(matchmaker_core::record::Intake::Open, ids, &mut body);
    assert_eq!(body.len(), 5 + 256 * 17);
    let Reply::Renewed { release, .. } = server.call(&mut harness, &body) else {
        panic!("not renewed");
    };
    assert_eq!(release.len(), matchmaker_core::record::RELEASE_MAX);
}

#[test]
fn memory_stays_bounded_under_any_requests() {
    let mut config = Config::default();
    (config.tickets_max, config.ended_max, config.events_max) = (50, 50, 50);
    let mut harness = Harness::new(config, (8, 8), &[]);
    let mut highest = 0;
    for client in 0..5_000 {
        let request = TicketRequest::new(ClientId(client % 70));
        harness.machine.submit(harness.now, &request).ok();
        highest = highest.max(harness.machine.memory_bytes());
    }
    // 100 tickets of at most 3 KiB, their timers, 50 events of at most 4 KiB.
    assert!(highest < 100 * 3_072 + 102 * 192 + 50 * 4_096, "{highest}");
    assert_eq!(harness.machine.load().tickets_known, 100);
}

//! Each time in the configuration takes effect, and no other in its place.

use core::num::NonZeroU8;

use matchmaker_core::{
    Command, Config, Ending, FailReason, Outcome, ReissueError, Slot, TicketState,
};

use crate::harness::{Harness, Server, secs};

#[test]
fn ticket_ttl_and_ended_kept() {
    let mut config = Config::default();
    (config.ticket_ttl, config.ended_kept) = (secs(7), secs(9));
    let mut harness = Harness::new(config, (2, 1), &[]);
    let ticket = harness.submit(1);
    harness.pass(secs(6));
    assert_eq!(harness.state(ticket), &TicketState::Queued);
    harness.pass(secs(1));
    assert_eq!(harness.state(ticket), &TicketState::Ended(Ending::Expired));
    harness.pass(secs(8));
    assert!(harness.machine.ticket(ticket).is_some());
    harness.pass(secs(1));
    assert!(harness.machine.ticket(ticket).is_none());
}

#[test]
fn ask_timeout() {
    let mut config = Config::default();
    config.ask_timeout = secs(7);
    let mut harness = Harness::new(config, (2, 1), &[]);
    let ticket = harness.submit(1);
    harness.pass(secs(6));
    harness.machine.keep_ticket(harness.now, ticket);
    harness.pass(secs(6));
    assert_eq!(harness.state(ticket), &TicketState::Queued);
    harness.pass(secs(1));
    assert_eq!(
        harness.state(ticket),
        &TicketState::Ended(Ending::Abandoned)
    );
}

#[test]
fn allocate_timeout_and_call_timeout() {
    let mut config = Config::default();
    config.attempts_max = NonZeroU8::MIN;
    (config.allocate_timeout, config.call_timeout) = (secs(8), secs(3));
    let silent = Server::new(1, 8);
    let mut harness = Harness::new(config, (1, 1), &[&silent]);
    silent.join(&mut harness);
    let ticket = harness.submit(0);
    let (_, command) = harness.command();
    assert!(matches!(command, Command::Call { timeout, .. } if timeout == secs(3)));
    harness.pass(secs(2));
    silent.heartbeat(&mut harness);
    assert!(harness.commands.is_empty());
    harness.pass(secs(1));
    silent.heartbeat(&mut harness);
    harness.command();
    harness.pass(secs(4));
    assert!(matches!(
        harness.state(ticket),
        TicketState::Allocating { .. }
    ));
    harness.pass(secs(1));
    let failed = TicketState::Ended(Ending::Failed(FailReason::NoServer));
    assert_eq!(harness.state(ticket), &failed);
}

#[test]
fn reissue_interval() {
    let mut config = Config::default();
    config.reissue_interval = secs(2);
    let mut server = Server::new(1, 8);
    let mut harness = Harness::new(config, (1, 1), &[&server]);
    server.join(&mut harness);
    let ticket = harness.play(0..1, &mut server)[0];
    harness.pass(secs(1));
    let soon = harness.machine.reissue(harness.now, ticket);
    assert_eq!(soon, Err(ReissueError::TooSoon(secs(1))));
    harness.pass(secs(1));
    harness.machine.reissue(harness.now, ticket).unwrap();
}

#[test]
fn recovery() {
    let mut config = Config::default();
    config.recovery = secs(9);
    // The harness lets 2 seconds pass.
    let mut harness = Harness::new(config, (1, 1), &[]);
    let ticket = harness.submit(0);
    harness.pass(secs(6));
    assert_eq!(harness.state(ticket), &TicketState::Queued);
    harness.pass(secs(1));
    assert!(matches!(
        harness.state(ticket),
        TicketState::Allocating { .. }
    ));
}

#[test]
fn ready_timeout_stop_timeout_and_backoff() {
    let mut config = Config::default();
    (config.ready_timeout, config.stop_timeout) = (secs(5), secs(3));
    (config.backoff_min, config.backoff_max) = (secs(16), secs(32));
    let server = Server::new(1, 1);
    let mut harness = Harness::with_slots(config, (1, 1), &[], &[&server]);
    for rest in [16, 32, 32] {
        let (run, command) = harness.command();
        assert!(matches!(command, Command::Spawn { .. }));
        let stop = Command::Stop {
            slot: Slot(0),
            run: Some(run),
        };
        harness.pass(secs(4));
        assert!(harness.commands.is_empty());
        harness.pass(secs(1));
        assert_eq!(harness.command().1, stop);
        harness.pass(secs(2));
        assert!(harness.commands.is_empty());
        harness.pass(secs(1));
        let (id, again) = harness.command();
        assert_eq!(again, stop);
        harness.complete(id, Outcome::Stopped);
        let stopped_at = harness.now;
        while harness.commands.is_empty() {
            harness.pass(core::time::Duration::from_millis(1));
        }
        let rested = harness.now.saturating_since(stopped_at);
        assert!(
            (secs(rest)..=secs(rest) * 9 / 8).contains(&rested),
            "{rested:?}"
        );
    }
}

#[test]
fn unused_timeout() {
    let mut config = Config::default();
    (config.unused_timeout, config.warm) = (secs(4), 0);
    let mut server = Server::new(1, 1);
    let mut harness = Harness::with_slots(config, (1, 1), &[], &[&server]);
    let ticket = harness.submit(0);
    harness.command();
    server.join(&mut harness);
    harness.serve(&mut [&mut server]);
    harness.pass(secs(20));
    let match_id = harness.assignment(ticket).match_id;
    server.end(&mut harness, match_id);
    harness.pass(secs(3));
    assert!(harness.commands.is_empty());
    harness.pass(secs(1));
    assert!(matches!(harness.command().1, Command::Stop { .. }));
}

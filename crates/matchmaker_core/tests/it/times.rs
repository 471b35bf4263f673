//! Every time of the configuration decides, and not another.

use core::num::NonZeroU8;

use matchmaker_core::{
    Command, Config, Ending, FailReason, Outcome, ReissueError, Slot, TicketState,
};

use crate::rig::{Rig, Server, secs};

#[test]
fn ticket_ttl_and_ended_kept() {
    let mut config = Config::default();
    (config.ticket_ttl, config.ended_kept) = (secs(7), secs(9));
    let mut rig = Rig::new(config, (2, 1), &[]);
    let ticket = rig.submit(1);
    rig.pass(secs(6));
    assert_eq!(rig.state(ticket), &TicketState::Queued);
    rig.pass(secs(1));
    assert_eq!(rig.state(ticket), &TicketState::Ended(Ending::Expired));
    rig.pass(secs(8));
    assert!(rig.machine.ticket(ticket).is_some());
    rig.pass(secs(1));
    assert!(rig.machine.ticket(ticket).is_none());
}

#[test]
fn ask_timeout() {
    let mut config = Config::default();
    config.ask_timeout = secs(7);
    let mut rig = Rig::new(config, (2, 1), &[]);
    let ticket = rig.submit(1);
    rig.pass(secs(6));
    rig.machine.keep_ticket(rig.now, ticket);
    rig.pass(secs(6));
    assert_eq!(rig.state(ticket), &TicketState::Queued);
    rig.pass(secs(1));
    assert_eq!(rig.state(ticket), &TicketState::Ended(Ending::Abandoned));
}

#[test]
fn allocate_timeout_and_call_timeout() {
    let mut config = Config::default();
    config.attempts_max = NonZeroU8::MIN;
    (config.allocate_timeout, config.call_timeout) = (secs(8), secs(3));
    let mute = Server::new(1, 8);
    let mut rig = Rig::new(config, (1, 1), &[&mute]);
    mute.join(&mut rig);
    let ticket = rig.submit(0);
    let (_, command) = rig.command();
    assert!(matches!(command, Command::Call { timeout, .. } if timeout == secs(3)));
    rig.pass(secs(2));
    mute.heartbeat(&mut rig);
    assert!(rig.commands.is_empty());
    rig.pass(secs(1));
    mute.heartbeat(&mut rig);
    rig.command();
    rig.pass(secs(4));
    assert!(matches!(rig.state(ticket), TicketState::Allocating { .. }));
    rig.pass(secs(1));
    let failed = TicketState::Ended(Ending::Failed(FailReason::NoServer));
    assert_eq!(rig.state(ticket), &failed);
}

#[test]
fn reissue_interval() {
    let mut config = Config::default();
    config.reissue_interval = secs(2);
    let mut server = Server::new(1, 8);
    let mut rig = Rig::new(config, (1, 1), &[&server]);
    server.join(&mut rig);
    let ticket = rig.play(0..1, &mut server)[0];
    rig.pass(secs(1));
    let soon = rig.machine.reissue(rig.now, ticket);
    assert_eq!(soon, Err(ReissueError::TooSoon(secs(1))));
    rig.pass(secs(1));
    rig.machine.reissue(rig.now, ticket).unwrap();
}

#[test]
fn recovery() {
    let mut config = Config::default();
    config.recovery = secs(9);
    // The rig lets 2 seconds pass.
    let mut rig = Rig::new(config, (1, 1), &[]);
    let ticket = rig.submit(0);
    rig.pass(secs(6));
    assert_eq!(rig.state(ticket), &TicketState::Queued);
    rig.pass(secs(1));
    assert!(matches!(rig.state(ticket), TicketState::Allocating { .. }));
}

#[test]
fn ready_timeout_stop_timeout_and_backoff() {
    let mut config = Config::default();
    (config.ready_timeout, config.stop_timeout) = (secs(5), secs(3));
    (config.backoff_min, config.backoff_max) = (secs(16), secs(32));
    let server = Server::new(1, 1);
    let mut rig = Rig::with_slots(config, (1, 1), &[], &[&server]);
    for rest in [16, 32, 32] {
        let (run, command) = rig.command();
        assert!(matches!(command, Command::Spawn { .. }));
        let stop = Command::Stop {
            slot: Slot(0),
            run: Some(run),
        };
        rig.pass(secs(4));
        assert!(rig.commands.is_empty());
        rig.pass(secs(1));
        assert_eq!(rig.command().1, stop);
        rig.pass(secs(2));
        assert!(rig.commands.is_empty());
        rig.pass(secs(1));
        let (id, again) = rig.command();
        assert_eq!(again, stop);
        rig.complete(id, Outcome::Stopped);
        let stopped_at = rig.now;
        while rig.commands.is_empty() {
            rig.pass(core::time::Duration::from_millis(1));
        }
        let rested = rig.now.saturating_since(stopped_at);
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
    let mut rig = Rig::with_slots(config, (1, 1), &[], &[&server]);
    let ticket = rig.submit(0);
    rig.command();
    server.join(&mut rig);
    rig.serve(&mut [&mut server]);
    rig.pass(secs(20));
    let match_id = rig.assignment(ticket).match_id;
    server.end(&mut rig, match_id);
    rig.pass(secs(3));
    assert!(rig.commands.is_empty());
    rig.pass(secs(1));
    assert!(matches!(rig.command().1, Command::Stop { .. }));
}

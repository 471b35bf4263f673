use core::num::NonZeroU32;
use core::time::Duration;

use super::*;

const PLAYER: ClientId = ClientId(42);

fn secs(secs: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(secs)
}

fn machine(change: impl FnOnce(&mut SessionConfig)) -> PlayerSessions {
    let mut config = SessionConfig::default();
    change(&mut config);
    PlayerSessions::new(config, Seed([7; 32]))
}

fn events(sessions: &mut PlayerSessions) -> Vec<SessionEvent> {
    std::iter::from_fn(|| sessions.poll_event()).collect()
}

fn commands(sessions: &mut PlayerSessions) -> Vec<(CommandId, SessionCommand)> {
    std::iter::from_fn(|| sessions.poll_command()).collect()
}

/// Completes all commands; returns how many were saves.
fn complete(
    sessions: &mut PlayerSessions,
    now: Instant,
    result: Result<(), StorageFailed>,
) -> usize {
    let mut saves = 0;
    while let Some((id, command)) = sessions.poll_command() {
        saves += usize::from(matches!(command, SessionCommand::Save { .. }));
        sessions.handle_completed(now, id, result);
    }
    saves
}

fn log_in(sessions: &mut PlayerSessions, now: Instant, player: ClientId) -> SessionId {
    let id = sessions.login(now, player).unwrap();
    complete(sessions, now, Ok(()));
    assert_eq!(sessions.phase(id), Some(SessionPhase::Active));
    events(sessions);
    id
}

fn ended(session: SessionId, cause: EndCause, unsaved: u32) -> SessionEvent {
    SessionEvent::Ended {
        session,
        player: PLAYER,
        cause,
        unsaved,
    }
}

#[test]
fn h13_changes_are_saved_by_number_by_time_and_at_logout() {
    let mut sessions = machine(|config| {
        assert_eq!(config.save_after_changes, 256);
        assert_eq!(config.save_interval, Duration::from_secs(600));
    });
    let id = log_in(&mut sessions, secs(0), PLAYER);
    for _change in 0..255 {
        sessions.mark_changed(secs(1), id).unwrap();
    }
    assert_eq!(complete(&mut sessions, secs(1), Ok(())), 0);
    sessions.mark_changed(secs(2), id).unwrap();
    assert_eq!(sessions.unsaved(id), Some(256));
    assert_eq!(complete(&mut sessions, secs(2), Ok(())), 1);
    assert_eq!(sessions.unsaved(id), Some(0));
    assert_eq!(sessions.poll_timeout(), None, "nothing to save");

    sessions.mark_changed(secs(10), id).unwrap();
    sessions.mark_changed(secs(500), id).unwrap();
    assert_eq!(sessions.poll_timeout(), Some(secs(610)));
    sessions.handle_timeout(secs(609));
    assert_eq!(complete(&mut sessions, secs(609), Ok(())), 0);
    sessions.handle_timeout(secs(610));
    assert_eq!(complete(&mut sessions, secs(610), Ok(())), 1);

    sessions.mark_changed(secs(700), id).unwrap();
    sessions.logout(secs(700), id).unwrap();
    assert_eq!(sessions.phase(id), Some(SessionPhase::LoggingOut));
    assert_eq!(complete(&mut sessions, secs(700), Ok(())), 1);
    assert_eq!(events(&mut sessions), [ended(id, EndCause::Logout, 0)]);
    assert!(sessions.is_empty());
    assert_eq!(sessions.poll_timeout(), None);
}

#[test]
fn h13_changes_during_a_save_are_saved_by_the_next() {
    let mut sessions = machine(|config| config.save_after_changes = 2);
    let id = log_in(&mut sessions, secs(0), PLAYER);
    for _change in 0..5 {
        sessions.mark_changed(secs(1), id).unwrap();
    }
    let first = commands(&mut sessions);
    assert_eq!(first.len(), 1, "one save in flight");
    sessions.logout(secs(2), id).unwrap();
    sessions.handle_completed(secs(3), first[0].0, Ok(()));
    assert_eq!(sessions.unsaved(id), Some(3));
    assert_eq!(complete(&mut sessions, secs(3), Ok(())), 1);
    assert_eq!(events(&mut sessions), [ended(id, EndCause::Logout, 0)]);
    // Repeated.
    sessions.handle_completed(secs(3), first[0].0, Ok(()));
    assert_eq!(sessions.stats().completions_unknown, 1);
}

#[test]
fn h13_a_failed_save_is_reported_and_retried_with_backoff() {
    let mut sessions = machine(|config| {
        config.retry_min = Duration::from_secs(2);
        config.retry_max = Duration::from_secs(16);
    });
    let id = log_in(&mut sessions, secs(0), PLAYER);
    sessions.mark_changed(secs(0), id).unwrap();
    let mut now = sessions.poll_timeout().unwrap();
    let mut waits = Vec::new();
    for attempts in 1..=8 {
        sessions.handle_timeout(now);
        assert_eq!(complete(&mut sessions, now, Err(StorageFailed)), 1);
        let failed = SessionEvent::SaveFailed {
            session: id,
            player: PLAYER,
            attempts,
            unsaved: 1,
        };
        assert_eq!(events(&mut sessions), [failed]);
        let next = sessions.poll_timeout().unwrap();
        waits.push(next.saturating_since(now).as_secs_f64());
        now = next;
    }
    for (wait, least) in waits
        .iter()
        .zip([2.0, 4.0, 8.0, 16.0, 16.0, 16.0, 16.0, 16.0])
    {
        assert!((least..=least * 1.5).contains(wait), "{waits:?}");
    }
    sessions.handle_timeout(now);
    assert_eq!(complete(&mut sessions, now, Ok(())), 1);
    assert_eq!(sessions.unsaved(id), Some(0));
    assert_eq!(sessions.stats().saves_failed, 8);
    assert!(events(&mut sessions).is_empty());
}

#[test]
fn h13_a_logout_retries_its_save_until_the_timeout_and_reports_the_loss() {
    let mut sessions = machine(|config| config.logout_timeout = Duration::from_secs(100));
    let id = log_in(&mut sessions, secs(0), PLAYER);
    for _change in 0..3 {
        sessions.mark_changed(secs(0), id).unwrap();
    }
    sessions.logout(secs(10), id).unwrap();
    let (mut attempts, mut now) = (0, secs(10));
    loop {
        attempts += complete(&mut sessions, now, Err(StorageFailed));
        let Some(next) = sessions.poll_timeout() else {
            break;
        };
        now = next;
        sessions.handle_timeout(now);
    }
    assert_eq!(now, secs(110));
    assert!(attempts >= 5, "{attempts}");
    let polled = events(&mut sessions);
    assert!(matches!(
        polled[0],
        SessionEvent::SaveFailed { unsaved: 3, .. }
    ));
    assert_eq!(polled.last(), Some(&ended(id, EndCause::Logout, 3)));
    assert_eq!(polled.len(), 2, "one failure event waits at a time");
    assert_eq!(sessions.stats().ended_unsaved, 1);
}

#[test]
fn gonet_h4_a_save_that_never_ends_stops_neither_requests_nor_timers() {
    let mut sessions = machine(|config| config.save_after_changes = 1);
    let id = log_in(&mut sessions, secs(0), PLAYER);
    sessions.mark_changed(secs(0), id).unwrap();
    assert_eq!(commands(&mut sessions).len(), 1);
    sessions
        .set_timer(secs(0), id, TimerId(1), secs(5))
        .unwrap();
    let other = log_in(&mut sessions, secs(1), ClientId(1));
    sessions.request(secs(2), id).unwrap();
    sessions.handle_timeout(secs(5));
    let due = events(&mut sessions);
    assert!(matches!(due[..], [SessionEvent::Timer { .. }]), "{due:?}");
    sessions.logout(secs(6), other).unwrap();
    assert_eq!(sessions.phase(other), None);
    // It counts as failed after the timeout, and its late result has no effect.
    sessions.handle_timeout(secs(10));
    let polled = events(&mut sessions);
    assert!(
        matches!(polled[1], SessionEvent::SaveFailed { .. }),
        "{polled:?}"
    );
    sessions.handle_completed(secs(11), CommandId(2), Ok(()));
    assert_eq!(sessions.unsaved(id), Some(1));
    assert_eq!(sessions.stats().completions_unknown, 1);
}

#[test]
fn gonet_h11_events_that_are_not_polled_stop_no_session() {
    let mut sessions = machine(|config| {
        config.events_max = 4;
        config.save_after_changes = 1;
    });
    let ids: Vec<_> = (0..4)
        .map(|player| sessions.login(secs(0), ClientId(player)).unwrap())
        .collect();
    complete(&mut sessions, secs(0), Ok(()));
    assert_eq!(sessions.login(secs(0), PLAYER), Err(LoginError::Full));
    for id in ids {
        sessions.request(secs(1), id).unwrap();
        sessions.mark_changed(secs(1), id).unwrap();
        assert_eq!(complete(&mut sessions, secs(1), Ok(())), 1);
        sessions.logout(secs(1), id).unwrap();
    }
    assert!(sessions.is_empty());
    assert_eq!(events(&mut sessions).len(), 8);
    log_in(&mut sessions, secs(2), PLAYER);
}

#[test]
fn h13_timers_are_due_once_in_order_and_bounded() {
    let mut sessions = machine(|config| config.timers_max = 3);
    let id = log_in(&mut sessions, secs(0), PLAYER);
    for (timer, at) in [(1, 30), (2, 10), (3, 20)] {
        sessions
            .set_timer(secs(0), id, TimerId(timer), secs(at))
            .unwrap();
    }
    let full = sessions.set_timer(secs(0), id, TimerId(4), secs(1));
    assert_eq!(full, Err(TimerError::Full));
    sessions
        .set_timer(secs(0), id, TimerId(1), secs(15))
        .unwrap();
    assert_eq!(sessions.poll_timeout(), Some(secs(10)));
    sessions.handle_timeout(secs(25));
    // Due timers count until they are polled.
    let full = sessions.set_timer(secs(25), id, TimerId(4), secs(30));
    assert_eq!(full, Err(TimerError::Full));
    let expected: Vec<_> = [2, 1, 3]
        .into_iter()
        .map(|timer| SessionEvent::Timer {
            session: id,
            player: PLAYER,
            timer: TimerId(timer),
        })
        .collect();
    assert_eq!(events(&mut sessions), expected);
    sessions
        .set_timer(secs(25), id, TimerId(4), secs(30))
        .unwrap();
    assert!(sessions.cancel_timer(id, TimerId(4)));
    assert!(!sessions.cancel_timer(id, TimerId(4)));
    assert_eq!(sessions.poll_timeout(), None);
    sessions
        .set_timer(secs(25), id, TimerId(5), secs(30))
        .unwrap();
    sessions.logout(secs(26), id).unwrap();
    sessions.handle_timeout(secs(40));
    assert_eq!(events(&mut sessions), [ended(id, EndCause::Logout, 0)]);
}

#[test]
fn h13_requests_beyond_the_limit_of_a_minute_end_the_session() {
    let mut sessions = machine(|config| config.requests_per_minute = NonZeroU32::new(120));
    let id = log_in(&mut sessions, secs(0), PLAYER);
    for _request in 0..120 {
        sessions.request(secs(0), id).unwrap();
    }
    // Two are gained each second.
    for second in 1..=60 {
        sessions.request(secs(second), id).unwrap();
        sessions.request(secs(second), id).unwrap();
    }
    sessions.mark_changed(secs(60), id).unwrap();
    assert_eq!(sessions.request(secs(60), id), Err(RequestError::TooMany));
    assert_eq!(sessions.request(secs(90), id), Err(RequestError::NotActive));
    let reason = KickReason::TooManyRequests;
    let kicked = SessionEvent::Kicked {
        session: id,
        player: PLAYER,
        reason,
    };
    assert_eq!(events(&mut sessions), [kicked]);
    assert_eq!(complete(&mut sessions, secs(61), Ok(())), 1, "it is saved");
    assert_eq!(
        events(&mut sessions),
        [ended(id, EndCause::Kicked(reason), 0)]
    );
}

#[test]
fn gonet_h13_without_a_limit_no_player_is_kicked() {
    let mut sessions = machine(|_| {});
    let id = log_in(&mut sessions, secs(0), PLAYER);
    for _request in 0..100_000 {
        sessions.request(secs(60), id).unwrap();
    }
}

#[test]
fn h13_the_newest_login_is_loaded_once_the_old_state_is_saved() {
    let mut sessions = machine(|_| {});
    let old = log_in(&mut sessions, secs(0), PLAYER);
    sessions.mark_changed(secs(0), old).unwrap();
    let replaced = sessions.login(secs(1), PLAYER).unwrap();
    let new = sessions.login(secs(2), PLAYER).unwrap();
    let cause = EndCause::Kicked(KickReason::Replaced);
    let polled = events(&mut sessions);
    assert!(matches!(polled[0], SessionEvent::Kicked { session, .. } if session == old));
    assert_eq!(polled[1..], [ended(replaced, cause, 0)]);
    let first = commands(&mut sessions);
    assert_eq!(first.len(), 1);
    assert!(matches!(first[0].1, SessionCommand::Save { session, .. } if session == old));
    assert_eq!(sessions.session_of(PLAYER), Some(old));
    sessions.handle_completed(secs(3), first[0].0, Ok(()));
    let second = commands(&mut sessions);
    assert!(matches!(second[..], [(_, SessionCommand::Load { session, .. })] if session == new));
    sessions.handle_completed(secs(3), second[0].0, Ok(()));
    assert_eq!(sessions.phase(new), Some(SessionPhase::Active));
    assert_eq!(sessions.session_of(PLAYER), Some(new));
    // The end of the old connection does not end the new session.
    assert_eq!(sessions.logout(secs(4), old), Err(UnknownSession));
    assert_eq!(sessions.phase(new), Some(SessionPhase::Active));
}

#[test]
fn h13_a_second_login_is_refused_by_policy() {
    let mut sessions = machine(|config| config.duplicate_login = DuplicateLogin::Refuse);
    let id = log_in(&mut sessions, secs(0), PLAYER);
    assert_eq!(
        sessions.login(secs(1), PLAYER),
        Err(LoginError::AlreadyOnline)
    );
    sessions.logout(secs(2), id).unwrap();
    log_in(&mut sessions, secs(3), PLAYER);
}

#[test]
fn gonet_h1_each_active_session_is_saved_and_ended_however_it_ends() {
    let reason = KickReason::Application(9);
    for cause in [EndCause::Logout, EndCause::Kicked(reason)] {
        let mut sessions = machine(|_| {});
        let id = log_in(&mut sessions, secs(0), PLAYER);
        sessions.mark_changed(secs(0), id).unwrap();
        if cause == EndCause::Logout {
            sessions.logout(secs(1), id).unwrap();
        } else {
            sessions.kick(secs(1), id, reason).unwrap();
        }
        assert_eq!(complete(&mut sessions, secs(1), Ok(())), 1);
        assert_eq!(events(&mut sessions).last(), Some(&ended(id, cause, 0)));
        assert_eq!(sessions.session_of(PLAYER), None);
    }
}

#[test]
fn gonet_h3_a_login_that_is_not_loaded_fails_and_serves_no_request() {
    let mut sessions = machine(|_| {});
    let id = sessions.login(secs(0), PLAYER).unwrap();
    assert_eq!(sessions.request(secs(0), id), Err(RequestError::NotActive));
    assert_eq!(sessions.mark_changed(secs(0), id), Err(UnknownSession));
    complete(&mut sessions, secs(0), Err(StorageFailed));
    assert_eq!(events(&mut sessions), [ended(id, EndCause::LoadFailed, 0)]);
    assert_eq!(sessions.request(secs(0), id), Err(RequestError::Unknown));
    // A load without a result ends in time, and its late result has no effect.
    let id = sessions.login(secs(0), PLAYER).unwrap();
    let load = commands(&mut sessions);
    sessions.handle_timeout(sessions.poll_timeout().unwrap());
    assert_eq!(
        events(&mut sessions),
        [ended(id, EndCause::LoginTimeout, 0)]
    );
    sessions.handle_completed(secs(20), load[0].0, Ok(()));
    assert!(events(&mut sessions).is_empty());
}

#[test]
fn gonet_h9_calls_on_an_ended_session_are_refused() {
    let mut sessions = machine(|_| {});
    let id = log_in(&mut sessions, secs(0), PLAYER);
    sessions.logout(secs(0), id).unwrap();
    assert_eq!(sessions.request(secs(1), id), Err(RequestError::Unknown));
    assert_eq!(sessions.mark_changed(secs(1), id), Err(UnknownSession));
    assert_eq!(sessions.logout(secs(1), id), Err(UnknownSession));
    assert_eq!(
        sessions.kick(secs(1), id, KickReason::WrongTime),
        Err(UnknownSession)
    );
    let timer = sessions.set_timer(secs(1), id, TimerId(1), secs(2));
    assert_eq!(timer, Err(TimerError::Unknown));
}

#[test]
fn h13_shutdown_saves_all_sessions_and_ends_by_its_deadline() {
    let mut sessions = machine(|_| {});
    for player in 0..1_000 {
        let id = log_in(&mut sessions, secs(0), ClientId(player));
        sessions.mark_changed(secs(0), id).unwrap();
    }
    let waiting = sessions.login(secs(1), ClientId(1)).unwrap();
    sessions.shutdown(secs(2), secs(12));
    assert_eq!(
        sessions.login(secs(2), PLAYER),
        Err(LoginError::ShuttingDown)
    );
    assert_eq!(sessions.phase(waiting), None);
    let saves = commands(&mut sessions);
    assert_eq!(saves.len(), 1_000);
    // All but ten are saved at once; five fail and are retried, and five have no result.
    for (turn, (id, _)) in saves.iter().enumerate() {
        match turn {
            0..990 => sessions.handle_completed(secs(3), *id, Ok(())),
            990..995 => sessions.handle_completed(secs(3), *id, Err(StorageFailed)),
            _ => {}
        }
    }
    assert_eq!(sessions.len(), 10);
    let retry = sessions.poll_timeout().unwrap();
    assert!(retry < secs(5));
    let mut saves = 0;
    while let Some(now) = sessions.poll_timeout().filter(|now| *now < secs(11)) {
        sessions.handle_timeout(now);
        saves += complete(&mut sessions, now, Ok(()));
    }
    assert_eq!((saves, sessions.len()), (5, 5));
    sessions.handle_timeout(secs(12));
    assert!(sessions.is_empty());
    let lost = events(&mut sessions);
    let lost = lost
        .iter()
        .filter(|event| matches!(event, SessionEvent::Ended { unsaved: 1, .. }));
    assert_eq!(lost.count(), 5);
}

#[test]
fn h13_sessions_events_and_commands_are_bounded() {
    let mut sessions = machine(|config| {
        config.sessions_max = 10;
        config.events_max = 100;
        config.storage_timeout = Duration::from_secs(1);
    });
    for player in 0..10 {
        sessions.login(secs(0), ClientId(player)).unwrap();
    }
    assert_eq!(sessions.login(secs(0), PLAYER), Err(LoginError::Full));
    // Without polls, logins that time out fill the events.
    let mut refused = 0;
    for second in 1..100 {
        sessions.handle_timeout(secs(second));
        for player in 0..10 {
            refused += u32::from(sessions.login(secs(second), ClientId(player)).is_err());
        }
        assert!(sessions.events.len() <= 110);
        assert!(sessions.commands.len() <= 100);
    }
    assert!(refused > 500);
    events(&mut sessions);
    // Without polls of commands, those that nobody waits for stay few.
    for second in 100..1_000 {
        let id = sessions.login(secs(second), PLAYER).unwrap();
        sessions.logout(secs(second), id).unwrap();
        events(&mut sessions);
        assert!(sessions.commands.len() <= 100);
    }
    assert!(commands(&mut sessions).is_empty());
}

/// Players who change their states, and storage that fails, answers late or not at all.
struct Play {
    sessions: PlayerSessions,
    generator: Generator,
    now: Instant,
    /// Changes of each player.
    made: BTreeMap<ClientId, u32>,
    /// Those that its last save contains.
    stored: BTreeMap<ClientId, u32>,
    /// Those up to its last session that ended with unsaved changes.
    reported: BTreeMap<ClientId, u32>,
    /// Commands without a result, with the changes when each was polled.
    pending: Vec<(CommandId, SessionCommand, BTreeMap<ClientId, u32>)>,
}

impl Play {
    fn new(seed: Seed) -> Self {
        let sessions = machine(|config| {
            config.save_after_changes = 8;
            config.save_interval = Duration::from_secs(30);
            config.logout_timeout = Duration::from_secs(60);
        });
        Self {
            sessions,
            generator: seed.generator(1),
            now: Instant::ZERO,
            made: BTreeMap::new(),
            stored: BTreeMap::new(),
            reported: BTreeMap::new(),
            pending: Vec::new(),
        }
    }

    fn act(&mut self) {
        let player = ClientId(self.generator.below(4));
        let session = self.sessions.session_of(player);
        match (self.generator.below(30), session) {
            (0..2, _) => {
                self.sessions.login(self.now, player).ok();
            }
            (2, Some(id)) => {
                self.sessions.logout(self.now, id).ok();
            }
            (3..20, Some(id)) if self.sessions.mark_changed(self.now, id).is_ok() => {
                *self.made.entry(player).or_default() += 1;
            }
            _ => {}
        }
    }

    /// Answers some commands, in any order; one in ten has no answer.
    fn store(&mut self) {
        for (id, command) in commands(&mut self.sessions) {
            if self.generator.below(10) > 0 {
                self.pending.push((id, command, self.made.clone()));
            }
        }
        while !self.pending.is_empty() && self.generator.chance(500_000) {
            let at = self.generator.below(self.pending.len() as u64);
            let (id, command, made) = self.pending.swap_remove(usize::try_from(at).unwrap());
            let is_stored = self.generator.below(4) > 0;
            self.complete(id, &command, &made, is_stored.then_some(()));
        }
    }

    fn complete(
        &mut self,
        id: CommandId,
        command: &SessionCommand,
        made: &BTreeMap<ClientId, u32>,
        stored: Option<()>,
    ) {
        let unknown = self.sessions.stats().completions_unknown;
        let result = stored.ok_or(StorageFailed);
        self.sessions.handle_completed(self.now, id, result);
        let is_known = self.sessions.stats().completions_unknown == unknown;
        if let SessionCommand::Save { player, .. } = command
            && is_known
            && result.is_ok()
        {
            let made = made.get(player).copied().unwrap_or(0);
            self.stored.insert(*player, made);
        }
    }

    fn note_events(&mut self) {
        for event in events(&mut self.sessions) {
            if let SessionEvent::Ended {
                player, unsaved, ..
            } = event
                && unsaved > 0
            {
                let made = self.made.get(&player).copied().unwrap_or(0);
                self.reported.insert(player, made);
            }
        }
    }

    /// Shuts down with storage that works again.
    fn finish(&mut self) {
        let deadline = self.now + Duration::from_secs(60);
        self.sessions.shutdown(self.now, deadline);
        while let Some(at) = self.sessions.poll_timeout() {
            self.now = at;
            self.sessions.handle_timeout(at);
            for (id, command) in commands(&mut self.sessions) {
                let made = self.made.clone();
                self.complete(id, &command, &made, Some(()));
            }
        }
        self.note_events();
    }
}

#[test]
fn sim_h13_each_change_is_saved_or_reported_under_any_storage_faults() {
    netsim::for_each_seed(&netsim::test_site!(), 200, |seed| {
        let mut play = Play::new(seed);
        for _turn in 0..2_000 {
            play.now += Duration::from_millis(play.generator.below(2_000));
            play.sessions.handle_timeout(play.now);
            play.act();
            play.store();
            play.note_events();
            let next = play.sessions.poll_timeout();
            assert!(next.is_none_or(|at| at > play.now));
        }
        play.finish();
        assert!(play.sessions.is_empty());
        for (player, made) in &play.made {
            let saved = play.stored.get(player).copied().unwrap_or(0);
            let reported = play.reported.get(player).copied().unwrap_or(0);
            assert_eq!(saved.max(reported), *made, "{player}");
        }
    });
}

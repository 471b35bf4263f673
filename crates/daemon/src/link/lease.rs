//! The lease of one game server instance, as a machine without I/O.
//!
//! A game server ends itself if its lease is not renewed, after its last match or a grace period. So
//! no matchmaker, allocator or network failure can leave one running.

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use crypto::token::{CLOCK_SKEW, LIFETIME_MAX};
use crypto::{AddressList, ServerKeys, TokenKey};
use hub::record::CallError;
use matchmaker_core::Seated;
use matchmaker_core::record::{
    self, Assign, Intake, MATCHES_MAX, RECORD_BYTES_MAX, RefuseReason, Register, Reply,
    RunningMatch, Verdict,
};
use wire::{ClientId, InstanceId, Instant, MatchId};
use zeroize::Zeroizing;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseEvent {
    Registered,
    /// A match without issued tokens was released.
    Released(MatchId),
    /// The lease ended; running matches may finish.
    CutOff,
    /// Replace the token key of this id.
    RotateKey(u32),
    /// All tokens under the key of this id have expired.
    KeyLapsed(u32),
}

/// The lease of one instance.
///
/// It holds the token key, so it has no `Debug`.
pub(crate) struct Lease {
    config: LeaseConfig,
    offer: Offer,
    instance: InstanceId,
    keys: Keys,
    intake: Intake,
    matches: BTreeMap<MatchId, Running>,
    calls: Calls,
    is_joined: bool,
    expires_at: Instant,
    /// Why the lease ended, while running matches finish.
    cut_off: Option<LeaseEnd>,
    /// Unacknowledged results and departures, oldest first.
    reports: VecDeque<Zeroizing<Vec<u8>>>,
    is_leaving: bool,
    end: Option<LeaseEnd>,
    events: VecDeque<LeaseEvent>,
    reports_dropped: u64,
}

struct Running {
    players: Vec<Seated>,
    is_entered: bool,
}

/// The calls to the matchmaker; at most one is outstanding.
struct Calls {
    outstanding: Option<Call>,
    next_at: Instant,
    is_due: bool,
    is_registered: bool,
    /// Incremented for each registration; an answer to an earlier one is outdated.
    epoch: u64,
}

impl Calls {
    /// Registers as soon as the outstanding call is answered.
    const fn reregister(&mut self) {
        self.is_registered = false;
        self.is_due = true;
        self.epoch = self.epoch.saturating_add(1);
    }
}

#[derive(Clone, Copy)]
struct Call {
    kind: Kind,
    sent_at: Instant,
    epoch: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Register,
    Heartbeat,
    Report,
    Bye,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestAction {
    Answer(Verdict),
    /// The match fits: ask the game, then call [`Lease::take`].
    Assign(Assign),
    Malformed,
}

impl Lease {
    pub(crate) fn new(
        config: LeaseConfig,
        offer: Offer,
        instance: InstanceId,
        token_key: TokenKey,
        now: Instant,
    ) -> Self {
        Self {
            config,
            offer,
            instance,
            keys: Keys::new(token_key, config.key_rotation, now),
            intake: Intake::Open,
            matches: BTreeMap::new(),
            calls: Calls {
                outstanding: None,
                next_at: now,
                is_due: false,
                is_registered: false,
                epoch: 0,
            },
            is_joined: false,
            expires_at: now + config.boot_timeout,
            cut_off: None,
            reports: VecDeque::new(),
            is_leaving: false,
            end: None,
            events: VecDeque::new(),
            reports_dropped: 0,
        }
    }

    /// The node has joined the hub. An earlier hub's matchmaker state may be lost.
    pub(crate) const fn handle_joined(&mut self) {
        self.is_joined = true;
        self.calls.reregister();
    }

    pub(crate) const fn handle_hub_down(&mut self) {
        self.is_joined = false;
    }

    pub(crate) const fn handle_matchmaker(&mut self) {
        self.calls.reregister();
    }

    pub(crate) fn handle_superseded(&mut self) {
        self.finish(LeaseEnd::Superseded);
    }

    pub(crate) fn handle_request(&self, body: &[u8]) -> RequestAction {
        let Ok(assign) = Assign::decode(body) else {
            return RequestAction::Malformed;
        };
        if assign.instance != self.instance {
            return RequestAction::Answer(Verdict::OtherInstance);
        }
        if self.matches.contains_key(&assign.match_id) {
            return RequestAction::Answer(Verdict::Taken);
        }
        let seated = self.matches.values().map(|running| running.players.len());
        let seats = seated.fold(assign.players.len(), usize::saturating_add);
        let is_ending = self.is_leaving || self.cut_off.is_some() || self.end.is_some();
        let is_open = self.intake == Intake::Open && !is_ending;
        if !is_open
            || seats > usize::from(self.offer.capacity)
            || self.matches.len() >= MATCHES_MAX
            || registration_len(seats, self.matches.len().saturating_add(1)) > RECORD_BYTES_MAX
        {
            return RequestAction::Answer(Verdict::Full);
        }
        RequestAction::Assign(assign)
    }

    /// Reserves the seats of a match that the game has accepted.
    pub(crate) fn take(&mut self, assign: Assign) {
        let running = Running {
            players: assign.players,
            is_entered: false,
        };
        self.matches.insert(assign.match_id, running);
    }

    /// A player has entered a match. The first one is reported at once, since the matchmaker ends a
    /// match that no player enters.
    pub(crate) fn entered(&mut self, match_id: MatchId) {
        if let Some(running) = self.matches.get_mut(&match_id)
            && !running.is_entered
        {
            running.is_entered = true;
            self.calls.is_due = true;
        }
    }

    pub(crate) fn left(&mut self, match_id: MatchId, client: ClientId) {
        let Some(running) = self.matches.get_mut(&match_id) else {
            return;
        };
        let before = running.players.len();
        running.players.retain(|seated| seated.client_id != client);
        if running.players.len() < before {
            self.report(|out| record::encode_left(match_id, client, out));
        }
    }

    pub(crate) fn ended(&mut self, match_id: MatchId, result: &[u8]) {
        if self.matches.remove(&match_id).is_some() {
            self.report(|out| record::encode_result(match_id, result, out));
        }
    }

    pub(crate) const fn set_intake(&mut self, intake: Intake) {
        self.intake = intake;
        self.calls.is_due = true;
    }

    pub(crate) fn set_token_key(&mut self, key: TokenKey) {
        if let Some(id) = self.keys.replace(key) {
            self.events.push_back(LeaseEvent::KeyLapsed(id));
        }
        self.calls.reregister();
    }

    /// Ends the instance; the matchmaker is notified if it is reachable.
    pub(crate) fn leave(&mut self) {
        self.is_leaving = true;
        self.calls.is_due = true;
        if !self.is_joined || !self.calls.is_registered {
            self.finish(LeaseEnd::Left);
        }
    }

    pub(crate) fn poll_call(&mut self, now: Instant) -> Option<Zeroizing<Vec<u8>>> {
        let is_due = self.calls.is_due || self.calls.next_at <= now;
        let is_over = self.end.is_some() || self.cut_off == Some(LeaseEnd::Retired);
        if self.calls.outstanding.is_some() || !self.is_joined || is_over || !is_due {
            return None;
        }
        let (kind, body) = self.next_call()?;
        self.calls.is_due = false;
        self.calls.outstanding = Some(Call {
            kind,
            sent_at: now,
            epoch: self.calls.epoch,
        });
        Some(body)
    }

    pub(crate) fn handle_answer(&mut self, now: Instant, answer: Result<&[u8], CallError>) {
        let Some(call) = self.calls.outstanding.take() else {
            return;
        };
        let reply = answer.ok().and_then(|answer| Reply::decode(answer).ok());
        match reply {
            Some(Reply::Renewed {
                lease,
                heartbeat,
                release,
            }) => self.on_renewed(now, call, (lease, heartbeat), release),
            Some(Reply::Noted) => self.on_noted(now, call.kind),
            Some(Reply::Register) => self.calls.reregister(),
            Some(Reply::Retired) => self.cut_off(now, LeaseEnd::Retired),
            // The matchmaker is at its limit of servers; this may change.
            Some(Reply::Refused(RefuseReason::Full)) => {
                self.calls.next_at = now + self.config.call_timeout;
            }
            Some(Reply::Refused(reason)) => self.finish(LeaseEnd::Refused(reason)),
            _ if call.kind == Kind::Bye => self.finish(LeaseEnd::Left),
            _ => self.calls.next_at = now + self.config.retry_pause,
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.expires_at <= now {
            self.cut_off(now, self.cut_off.unwrap_or(LeaseEnd::Expired));
        }
        while let Some(next_call_at) = self.keys.poll_due(now) {
            self.events.push_back(match next_call_at {
                KeyDue::Rotate => LeaseEvent::RotateKey(self.keys.current().id()),
                KeyDue::Lapsed(id) => LeaseEvent::KeyLapsed(id),
            });
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.end.is_some() {
            return None;
        }
        let expires_at = if self.cut_off.is_some() {
            self.final_deadline()
        } else {
            self.expires_at
        };
        let expires_at = self
            .keys
            .poll_timeout()
            .map_or(expires_at, |at| at.min(expires_at));
        let may_call = self.is_joined && self.cut_off != Some(LeaseEnd::Retired);
        Some(if self.calls.outstanding.is_none() && may_call {
            expires_at.min(self.calls.next_at)
        } else {
            expires_at
        })
    }

    pub(crate) fn poll_event(&mut self) -> Option<LeaseEvent> {
        self.events.pop_front()
    }

    /// Returns why the instance must end, once it must.
    pub(crate) const fn end(&self) -> Option<LeaseEnd> {
        self.end
    }

    pub(crate) const fn call_timeout(&self) -> Duration {
        self.config.call_timeout
    }

    fn next_call(&self) -> Option<(Kind, Zeroizing<Vec<u8>>)> {
        if !self.calls.is_registered {
            return Some((Kind::Register, self.registration()?));
        }
        if let Some(report) = self.reports.front() {
            return Some((Kind::Report, report.clone()));
        }
        let mut body = Zeroizing::new(Vec::new());
        if self.is_leaving {
            record::encode_bye(&mut body);
            return Some((Kind::Bye, body));
        }
        let listed = self.matches.iter();
        let listed = listed.map(|(id, running)| (*id, running.is_entered));
        record::encode_heartbeat(self.intake, listed, &mut body);
        Some((Kind::Heartbeat, body))
    }

    fn registration(&self) -> Option<Zeroizing<Vec<u8>>> {
        let matches = self.matches.iter().map(|(id, running)| RunningMatch {
            match_id: *id,
            is_entered: running.is_entered,
            players: running.players.clone(),
        });
        Register {
            app_id: self.offer.app_id,
            token_key: self.keys.current().clone(),
            capacity: self.offer.capacity,
            intake: self.intake,
            identity_keys: self.offer.identity_keys.clone(),
            addresses: self.offer.addresses.clone(),
            matches: matches.collect(),
        }
        .encode()
    }

    fn on_renewed(
        &mut self,
        now: Instant,
        call: Call,
        (lease, heartbeat): (Duration, Duration),
        release: Vec<MatchId>,
    ) {
        self.expires_at = call.sent_at + lease;
        let was_cut_off = self.cut_off.take().is_some();
        let is_new = call.kind == Kind::Register && call.epoch == self.calls.epoch;
        self.calls.is_registered |= is_new;
        if is_new {
            self.keys.on_registered(now);
        }
        if is_new || (was_cut_off && self.calls.is_registered) {
            self.events.push_back(LeaseEvent::Registered);
        }
        for id in release {
            if self.matches.remove(&id).is_some() {
                self.events.push_back(LeaseEvent::Released(id));
            }
        }
        let pause = heartbeat.clamp(HEARTBEAT_MIN, self.config.heartbeat_max.max(HEARTBEAT_MIN));
        self.calls.next_at = call.sent_at + pause;
        if !self.reports.is_empty() || self.is_leaving {
            self.calls.next_at = now;
        }
    }

    fn on_noted(&mut self, now: Instant, kind: Kind) {
        match kind {
            Kind::Report => drop(self.reports.pop_front()),
            Kind::Bye => self.finish(LeaseEnd::Left),
            Kind::Register | Kind::Heartbeat => {}
        }
        // The next report, or a heartbeat that lists the running matches.
        self.calls.next_at = now;
    }

    fn report(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        if self.reports.len() >= REPORTS_MAX {
            // The next heartbeat lacks the match, so its end is known; the result is lost.
            self.reports_dropped = self.reports_dropped.saturating_add(1);
            return;
        }
        let mut body = Zeroizing::new(Vec::new());
        encode(&mut body);
        self.reports.push_back(body);
        self.calls.is_due = true;
    }

    /// Handles the end of the lease. Without an entered match the instance ends at once.
    fn cut_off(&mut self, now: Instant, why: LeaseEnd) {
        self.expires_at = self.expires_at.min(now);
        if self.final_deadline() <= now {
            self.finish(why);
        } else if self.cut_off.replace(why).is_none() {
            self.events.push_back(LeaseEvent::CutOff);
        }
    }

    /// When an instance without a lease must end.
    fn final_deadline(&self) -> Instant {
        if self.matches.values().any(|running| running.is_entered) && !self.is_leaving {
            self.expires_at + self.config.lease_grace
        } else {
            self.expires_at
        }
    }

    fn finish(&mut self, end: LeaseEnd) {
        self.end.get_or_insert(end);
    }
}

/// Upper bound of a registration's length, bytes: a fixed part, 19 for each match and 11 for each
/// seat ([`matchmaker_core::record`]). A match with which it would be too long is rejected.
const fn registration_len(seats: usize, matches: usize) -> usize {
    seats
        .saturating_mul(11)
        .saturating_add(matches.saturating_mul(19))
        .saturating_add(1_024)
}

/// Shortest interval between heartbeats, whatever the matchmaker asks for.
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);

/// Queued reports; at most 1 KiB each.
const REPORTS_MAX: usize = 1_024;

/// What a game server offers to the matchmaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Id of the game and its build; equal to the matchmaker's.
    pub app_id: u64,
    /// Concurrent seats, over all matches.
    pub capacity: u16,
    /// Its identity keys; includes the key of its hub link.
    pub identity_keys: ServerKeys,
    /// Addresses for players, best first.
    pub addresses: AddressList,
}

/// Timeouts of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseConfig {
    /// Time from the start to the first registration. Default 60 s.
    pub boot_timeout: Duration,
    /// Time for an answer. Default 5 s.
    pub call_timeout: Duration,
    /// Pause before a failed call is retried. Default 500 ms.
    pub retry_pause: Duration,
    /// Longest interval between renewals. Default 10 s. The matchmaker may ask for a shorter one.
    pub heartbeat_max: Duration,
    /// Time for entered matches to finish without a lease. Default 10 minutes. No players are
    /// admitted meanwhile, and the instance ends with the last match. This bounds the life of a
    /// server whose matchmaker never returns. Results are kept for a matchmaker that does; one that
    /// has retired the instance ([`LeaseEnd::Retired`]) gets none.
    pub lease_grace: Duration,
    /// Time that a token key is in use; 24 h. The previous key is accepted for 305 s more, until
    /// all its tokens have expired; there is no other rotation meanwhile.
    pub key_rotation: Duration,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self {
            boot_timeout: Duration::from_secs(60),
            call_timeout: Duration::from_secs(5),
            retry_pause: Duration::from_millis(500),
            heartbeat_max: Duration::from_secs(10),
            lease_grace: Duration::from_secs(600),
            key_rotation: Duration::from_secs(24 * 3_600),
        }
    }
}

/// Why an instance must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseEnd {
    /// The lease expired, and no entered match has time left.
    Expired,
    /// The matchmaker retired the instance, or another one replaced it.
    Retired,
    /// The matchmaker rejected the server.
    Refused(RefuseReason),
    /// A later run of the same node has joined the hub.
    Superseded,
    /// The instance ended itself; the matchmaker has acknowledged it or is unreachable.
    Left,
}

wire::display_text! { LeaseEnd {
    Self::Expired => "the lease was not renewed",
    Self::Retired => "the matchmaker gave this instance up",
    Self::Refused(reason) => "the matchmaker refused this server: {reason:?}",
    Self::Superseded => "a later run of this node has joined the hub",
    Self::Left => "the instance has left",
}}

/// Token keys of one instance. It holds key bytes, so it has no `Debug`.
struct Keys {
    current: TokenKey,
    /// Ids of previous keys, oldest first, with the time at which their last token expires; `None`
    /// while the matchmaker may still seal under it.
    old: VecDeque<(u32, Option<Instant>)>,
    rotation: Duration,
    rotate_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyDue {
    Rotate,
    /// All tokens under this key have expired.
    Lapsed(u32),
}

impl Keys {
    fn new(current: TokenKey, rotation: Duration, now: Instant) -> Self {
        Self {
            current,
            old: VecDeque::new(),
            rotation,
            rotate_at: now + rotation,
        }
    }

    const fn current(&self) -> &TokenKey {
        &self.current
    }

    /// Replaces the current key. Returns the id of a key that is dropped early because too many are
    /// in use.
    fn replace(&mut self, key: TokenKey) -> Option<u32> {
        let before = core::mem::replace(&mut self.current, key).id();
        if before == self.current.id() {
            return None;
        }
        self.old.push_back((before, None));
        if self.old.len() < KEYS_MAX {
            return None;
        }
        self.old.pop_front().map(|(id, _)| id)
    }

    /// The matchmaker knows the current key and seals only under it.
    fn on_registered(&mut self, now: Instant) {
        for (_, lapses_at) in &mut self.old {
            lapses_at.get_or_insert(now + OVERLAP);
        }
    }

    /// Returns one due change. A key is not rotated while a previous one is in use, which bounds
    /// the number of keys.
    fn poll_due(&mut self, now: Instant) -> Option<KeyDue> {
        if let Some((id, Some(lapses_at))) = self.old.front().copied()
            && lapses_at <= now
        {
            self.old.pop_front();
            return Some(KeyDue::Lapsed(id));
        }
        if self.old.is_empty() && self.rotate_at <= now {
            self.rotate_at = now + self.rotation.max(ROTATION_MIN);
            return Some(KeyDue::Rotate);
        }
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.old.front() {
            Some((_, lapses_at)) => *lapses_at,
            None => Some(self.rotate_at),
        }
    }
}

/// Longest validity of a token after its key was replaced.
const OVERLAP: Duration = LIFETIME_MAX.saturating_add(CLOCK_SKEW);

/// Keys in use; as many as an endpoint accepts.
const KEYS_MAX: usize = 4;

const ROTATION_MIN: Duration = Duration::from_millis(100);

//! The lease of one game server instance: a machine without I/O.
//!
//! It says what to call the matchmaker with, takes the answers, and knows when the instance must
//! end: a game server whose lease is not renewed ends itself, with the last match that is played on it
//! or after a grace, so that no matchmaker, allocator or broken network can leave one behind.

#[cfg(test)]
mod tests;

use core::fmt;
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

/// What has happened to a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseEvent {
    /// The matchmaker knows this instance and its key.
    Registered,
    /// Nobody got a token for this match: forget it.
    Released(MatchId),
    /// There is no lease: let nobody in; matches that run may come to their end.
    CutOff,
    /// Another token key shall take the place of the one of this id.
    RotateKey(u32),
    /// No token under the key of this id is good any more.
    KeyLapsed(u32),
}

/// The lease of one instance.
///
/// It holds the token key, so it has no `Debug`.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is about another thing, and they mix freely"
)]
pub(crate) struct Lease {
    config: LeaseConfig,
    offer: Offer,
    instance: InstanceId,
    keys: Keys,
    intake: Intake,
    matches: BTreeMap<MatchId, Running>,
    /// Whether the matchmaker knows this instance and its present key.
    is_registered: bool,
    /// Whether a link to the hub is up.
    is_joined: bool,
    /// The call that waits for its answer.
    call: Option<Call>,
    /// When the next call is due.
    next_call_at: Instant,
    /// Something is to be said at once.
    is_call_due: bool,
    /// How often the instance had to register anew: an answer to an earlier registration is of a
    /// matchmaker or a key that was.
    registration_epoch: u64,
    /// When the lease is over.
    expires_at: Instant,
    /// Why there is no lease, where matches come to their end without one.
    cut_off: Option<LeaseEnd>,
    /// Results and departures that the matchmaker has not noted, oldest first.
    reports: VecDeque<Zeroizing<Vec<u8>>>,
    is_leaving: bool,
    end: Option<LeaseEnd>,
    events: VecDeque<LeaseEvent>,
    /// Reports dropped because too many waited.
    reports_dropped: u64,
}

/// A match that the instance runs.
struct Running {
    /// Who has a seat and has not left for good.
    players: Vec<Seated>,
    is_entered: bool,
}

/// A call on its way.
#[derive(Clone, Copy)]
struct Call {
    kind: Kind,
    sent_at: Instant,
    registration_epoch: u64,
}

/// What a call says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Register,
    Heartbeat,
    Report,
    Bye,
}

/// What to do with a call of the matchmaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestAction {
    /// Answer this.
    Answer(Verdict),
    /// There is room for this match: ask the game, then [`Lease::take`].
    Assign(Assign),
    /// It is no record.
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
            is_registered: false,
            is_joined: false,
            call: None,
            next_call_at: now,
            is_call_due: false,
            registration_epoch: 0,
            expires_at: now + config.boot_timeout,
            cut_off: None,
            reports: VecDeque::new(),
            is_leaving: false,
            end: None,
            events: VecDeque::new(),
            reports_dropped: 0,
        }
    }

    /// The hub has let the node join: whatever the matchmaker knew may be gone with an earlier hub.
    pub(crate) const fn handle_joined(&mut self) {
        self.is_joined = true;
        self.reregister();
    }

    /// The link to the hub has ended; the node fails its calls by itself.
    pub(crate) const fn handle_hub_down(&mut self) {
        self.is_joined = false;
    }

    /// Another matchmaker is there, which knows nothing.
    pub(crate) const fn handle_matchmaker(&mut self) {
        self.reregister();
    }

    /// A later run of this node has joined the hub.
    pub(crate) fn handle_superseded(&mut self) {
        self.finish(LeaseEnd::Superseded);
    }

    /// Takes a call of the matchmaker.
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
        let seats = self
            .matches
            .values()
            .map(|running| running.players.len())
            .fold(assign.players.len(), usize::saturating_add);
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

    /// Keeps the seats of a match that the game has taken.
    pub(crate) fn take(&mut self, assign: Assign) {
        let running = Running {
            players: assign.players,
            is_entered: false,
        };
        self.matches.insert(assign.match_id, running);
    }

    /// A player has entered the match with a token; of the first the matchmaker hears at once, as
    /// it ends a match that nobody enters.
    pub(crate) fn entered(&mut self, match_id: MatchId) {
        if let Some(running) = self.matches.get_mut(&match_id)
            && !running.is_entered
        {
            running.is_entered = true;
            self.is_call_due = true;
        }
    }

    /// A player has left the match for good.
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

    /// The match is over.
    pub(crate) fn ended(&mut self, match_id: MatchId, result: &[u8]) {
        if self.matches.remove(&match_id).is_some() {
            self.report(|out| record::encode_result(match_id, result, out));
        }
    }

    /// Whether to take new matches from now on.
    pub(crate) const fn set_intake(&mut self, intake: Intake) {
        self.intake = intake;
        self.is_call_due = true;
    }

    /// Another key takes the place of the present one.
    pub(crate) fn set_token_key(&mut self, key: TokenKey) {
        if let Some(id) = self.keys.replace(key) {
            self.events.push_back(LeaseEvent::KeyLapsed(id));
        }
        self.reregister();
    }

    /// The instance ends: the matchmaker is notified if it is reachable.
    pub(crate) fn leave(&mut self) {
        self.is_leaving = true;
        self.is_call_due = true;
        if !self.is_joined || !self.is_registered {
            self.finish(LeaseEnd::Left);
        }
    }

    /// Returns the next call to make; the next comes when this one is answered.
    pub(crate) fn poll_call(&mut self, now: Instant) -> Option<Zeroizing<Vec<u8>>> {
        let is_due = self.is_call_due || self.next_call_at <= now;
        let is_over = self.end.is_some() || self.cut_off == Some(LeaseEnd::Retired);
        if self.call.is_some() || !self.is_joined || is_over || !is_due {
            return None;
        }
        let (kind, body) = self.next_call()?;
        self.is_call_due = false;
        self.call = Some(Call {
            kind,
            sent_at: now,
            registration_epoch: self.registration_epoch,
        });
        Some(body)
    }

    /// Takes the answer to the call on its way, or why there is none.
    pub(crate) fn handle_answer(&mut self, now: Instant, answer: Result<&[u8], CallError>) {
        let Some(call) = self.call.take() else {
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
            Some(Reply::Register) => self.reregister(),
            Some(Reply::Retired) => self.cut_off(now, LeaseEnd::Retired),
            // As many servers as may be: there may be room later.
            Some(Reply::Refused(RefuseReason::Full)) => {
                self.next_call_at = now + self.config.call_timeout;
            }
            Some(Reply::Refused(reason)) => self.finish(LeaseEnd::Refused(reason)),
            _ if call.kind == Kind::Bye => self.finish(LeaseEnd::Left),
            _ => self.next_call_at = now + self.config.retry_pause,
        }
    }

    /// Runs what is due.
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
        Some(if self.call.is_none() && may_call {
            expires_at.min(self.next_call_at)
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
        if !self.is_registered {
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
        let is_new =
            call.kind == Kind::Register && call.registration_epoch == self.registration_epoch;
        self.is_registered |= is_new;
        if is_new {
            self.keys.on_registered(now);
        }
        if is_new || (was_cut_off && self.is_registered) {
            self.events.push_back(LeaseEvent::Registered);
        }
        for id in release {
            if self.matches.remove(&id).is_some() {
                self.events.push_back(LeaseEvent::Released(id));
            }
        }
        let pause = heartbeat.clamp(HEARTBEAT_MIN, self.config.heartbeat_max.max(HEARTBEAT_MIN));
        self.next_call_at = call.sent_at + pause;
        if !self.reports.is_empty() || self.is_leaving {
            self.next_call_at = now;
        }
    }

    fn on_noted(&mut self, now: Instant, kind: Kind) {
        match kind {
            Kind::Report => drop(self.reports.pop_front()),
            Kind::Bye => self.finish(LeaseEnd::Left),
            Kind::Register | Kind::Heartbeat => {}
        }
        // The next report, or a heartbeat, which names what still runs.
        self.next_call_at = now;
    }

    fn report(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        if self.reports.len() >= REPORTS_MAX {
            // The heartbeat tells which matches run, so the end is known, and the result lost.
            self.reports_dropped = self.reports_dropped.saturating_add(1);
            return;
        }
        let mut body = Zeroizing::new(Vec::new());
        encode(&mut body);
        self.reports.push_back(body);
        self.is_call_due = true;
    }

    /// Registers as soon as the call on its way is answered.
    const fn reregister(&mut self) {
        self.is_registered = false;
        self.is_call_due = true;
        self.registration_epoch = self.registration_epoch.saturating_add(1);
    }

    /// There is no lease any more: without a match that somebody plays the instance ends at once.
    fn cut_off(&mut self, now: Instant, why: LeaseEnd) {
        self.expires_at = self.expires_at.min(now);
        if self.final_deadline() <= now {
            self.finish(why);
        } else if self.cut_off.replace(why).is_none() {
            self.events.push_back(LeaseEvent::CutOff);
        }
    }

    /// When an instance whose lease is over must end.
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

/// What a registration takes at most, bytes: what names the server, then 19 for each match and 11
/// for each seat ([`matchmaker_core::record`]). A match that would make it too long to be sent is
/// not taken.
const fn registration_len(seats: usize, matches: usize) -> usize {
    seats
        .saturating_mul(11)
        .saturating_add(matches.saturating_mul(19))
        .saturating_add(1_024)
}

/// However often a matchmaker asks to be called, it is no more than that.
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);

/// Reports that may wait; 1 KiB each at most.
const REPORTS_MAX: usize = 1_024;

/// What a game server offers to the matchmaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Separates games and builds; that of the matchmaker.
    pub app_id: u64,
    /// Seats that it can serve at a time, in all its matches.
    pub capacity: u16,
    /// Its identity keys; the one that its hub link proves is among them.
    pub identity_keys: ServerKeys,
    /// Where players find it, best first.
    pub addresses: AddressList,
}

/// Times of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseConfig {
    /// How long the instance lives before its first registration; 60 s.
    pub boot_timeout: Duration,
    /// How long an answer may take; 5 s.
    pub call_timeout: Duration,
    /// Pause before a call that failed is made again; 500 ms.
    pub retry_pause: Duration,
    /// How often the lease is renewed, at the least; 10 s. The matchmaker may ask for more.
    pub heartbeat_max: Duration,
    /// How long matches that players have entered may go on without a lease; 10 minutes. Meanwhile
    /// nobody is let in, and with the last of them the instance ends. It bounds how long a server
    /// whose matchmaker never comes back is left over. Results wait for a matchmaker that comes
    /// back; one that has given the instance up ([`LeaseEnd::Retired`]) gets none any more.
    pub lease_grace: Duration,
    /// How long a token key is in use before another takes its place; 24 h. The one before opens
    /// tokens for 305 s more, in which they all lapse; it is not changed again meanwhile.
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
    /// No call has renewed the lease in time, and no match that is played has time left.
    Expired,
    /// The matchmaker gave the instance up, or another one has its place.
    Retired,
    /// The matchmaker does not take this server at all.
    Refused(RefuseReason),
    /// A later run of the same node has joined the hub.
    Superseded,
    /// The instance said that it ends, and the matchmaker has heard it or cannot.
    Left,
}

impl fmt::Display for LeaseEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("the lease was not renewed"),
            Self::Retired => f.write_str("the matchmaker gave this instance up"),
            Self::Refused(reason) => write!(f, "the matchmaker refused this server: {reason:?}"),
            Self::Superseded => f.write_str("a later run of this node has joined the hub"),
            Self::Left => f.write_str("the instance has left"),
        }
    }
}

/// The keys of one instance; holds key bytes, so it has no `Debug`.
struct Keys {
    current: TokenKey,
    /// Ids of keys before it, oldest first, and when the last token under each has lapsed; `None`
    /// while the matchmaker may still seal under it.
    old: VecDeque<(u32, Option<Instant>)>,
    /// How long a key is in use.
    rotation: Duration,
    rotate_at: Instant,
}

/// What is due about keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyDue {
    /// Another key shall take the place of the current one.
    Rotate,
    /// No token under this key is good any more.
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

    /// Another key takes the place of the current one. Returns a key that is given up early, as
    /// too many are in use.
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

    /// The matchmaker knows the current key, and seals under no other from now on.
    fn on_registered(&mut self, now: Instant) {
        for (_, lapses_at) in &mut self.old {
            lapses_at.get_or_insert(now + OVERLAP);
        }
    }

    /// Returns what is due at `now`, one thing at a time. A key is not changed while an earlier one
    /// is in use, so that those in use are few however short their time is.
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

    /// Returns when something is next due.
    fn poll_timeout(&self) -> Option<Instant> {
        match self.old.front() {
            Some((_, lapses_at)) => *lapses_at,
            None => Some(self.rotate_at),
        }
    }
}

/// For how long tokens under a key may be good that is sealed under no more.
const OVERLAP: Duration = LIFETIME_MAX.saturating_add(CLOCK_SKEW);

/// Keys in use at a time; as many as an endpoint opens tokens with.
const KEYS_MAX: usize = 4;

/// However often keys shall change, it is no more than that.
const ROTATION_MIN: Duration = Duration::from_millis(100);

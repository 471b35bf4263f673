//! The addresses beside the one that a session's packets go to: one that may become it, one that it
//! may return to, and one that it has just left.

use core::net::SocketAddr;
use core::time::Duration;

use wire::{Generator, Instant};

use super::candidate::Candidate;
use super::challenge::Challenge;
use super::pace::Pace;
use super::switches::Switches;
use super::{Heard, Route, Span};

/// How long an address that was left may be returned to without a challenge: "recently" of RFC 9000,
/// section 9.3.
const RETURN: Duration = Duration::from_secs(60);
/// An address that the session had for less does not take the place of the one to return to. As long
/// as the time that the number of changes is limited in: who changes address as often as he may does
/// not make the session forget where its peer was before.
const SETTLED: Duration = Switches::WINDOW;
/// How many patiences an address that was left still gets copies; TWP/1, section 9.
const PARTING: u32 = 3;
/// At most so long nothing need be heard at the session's address for another port of the same host to be
/// asked, however often and lately the peer moved: a NAT may bind its client anew many times in a row.
const PORT_PATIENCE: Duration = Duration::from_millis(250);
/// How many patiences without a packet make an address silent.
const SILENCE: u32 = 3;

/// What a session knows of other addresses of its peer. Of fixed size, but for one datagram.
#[derive(Debug)]
pub(super) struct Roaming {
    candidate: Option<Candidate>,
    /// What is opened from candidates: one bucket for all of them, or who changes his address often
    /// would have a full one each time.
    candidate_pace: Pace,
    /// The question whether the peer is still at the session's address.
    check: Option<Challenge>,
    /// The address proved before the session's present one.
    previous: Option<Previous>,
    /// The address that was left last, and until when it gets copies.
    left: Option<(Route, Instant)>,
    switches: Switches,
    /// Since when the session has its address, as far as is known.
    since: Instant,
    /// When the last packet from there opened, as far as is known.
    heard_at: Instant,
    /// A datagram, and who else gets it.
    copy: Vec<u8>,
    copy_to: Option<Route>,
}

/// An address that the session had.
#[derive(Clone, Copy, Debug)]
struct Previous {
    route: Route,
    until: Instant,
    pace: Pace,
}

/// A candidate that has answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Won {
    pub(super) route: Route,
    pub(super) address: SocketAddr,
    pub(super) round_trip: Option<Duration>,
}

impl Roaming {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            candidate: None,
            candidate_pace: Pace::IDLE,
            check: None,
            previous: None,
            left: None,
            switches: Switches::NONE,
            since: Instant::ZERO,
            heard_at: now,
            copy: Vec::new(),
            copy_to: None,
        }
    }

    /// Returns the bucket of `peer` where it has one of its own.
    pub(super) fn pace_of(&mut self, peer: SocketAddr) -> Option<&mut Pace> {
        // The one to return to comes first: it may be the true one.
        if let Some(previous) = &mut self.previous
            && previous.route.peer == peer
        {
            return Some(&mut previous.pace);
        }
        self.candidate
            .is_some_and(|candidate| candidate.route.peer == peer)
            .then_some(&mut self.candidate_pace)
    }

    /// Takes note of a packet from the session's address.
    pub(super) const fn on_current(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// Takes note of a packet from elsewhere. Returns where the session returns to at once, with
    /// that noted; `current` is where it is, and whether that is proved.
    pub(super) fn on_elsewhere(
        &mut self,
        heard: &Heard<'_>,
        (current, is_proved): (Route, bool),
    ) -> Option<Route> {
        let (now, from) = (heard.now, heard.arrival.peer);
        self.give_up(now);
        if let Some(candidate) = &mut self.candidate
            && candidate.route.peer == from
        {
            candidate.on_packet(heard.len);
            return None;
        }
        if !heard.is_newest {
            return None;
        }
        if let Some(previous) = self.previous
            && previous.route.peer == from
        {
            // Free, not counted, and once: a copier must win the session's address anew.
            self.previous = None;
            self.move_on(now, current, heard.patience);
            return Some(previous.route);
        }
        let is_port = current.span(Route::of(heard.arrival)) == Span::Port;
        // The host is the same one, so copies that go there reach nobody new.
        let patience = if is_port {
            heard.patience.min(PORT_PATIENCE)
        } else {
            heard.patience
        };
        let has_place = self
            .candidate
            .is_none_or(|candidate| candidate.is_replaceable(now, patience));
        let is_left = is_port && now >= self.heard_at + patience;
        if has_place && (is_left || self.may_move(now, patience)) {
            self.candidate = Some(Candidate::new(heard, current));
            self.left = None;
            // RFC 9000, section 9.3.3: the peer may not have moved at all.
            self.check = is_proved.then(|| Challenge::due_at(now));
        }
        None
    }

    /// Returns whether a further change is allowed: one a second, and eight a minute unless nobody is
    /// heard at the present address any more.
    fn may_move(&self, now: Instant, patience: Duration) -> bool {
        let is_silent = now >= self.heard_at + patience.saturating_mul(SILENCE);
        self.switches.are_spaced(now) && (is_silent || self.switches.are_few(now))
    }

    /// Takes an answer from the session's address: its peer is there, and nothing moves.
    pub(super) fn on_current_answer(&mut self, token: [u8; 8]) {
        let is_answer = self.check.is_some_and(|check| check.is_answered_by(token));
        if is_answer {
            self.check = None;
            self.candidate = None;
        }
    }

    /// Takes an answer from another address.
    pub(super) fn on_candidate_answer(
        &self,
        now: Instant,
        from: SocketAddr,
        token: [u8; 8],
    ) -> Option<Won> {
        let candidate = self.candidate.filter(|candidate| {
            candidate.route.peer == from && candidate.challenge.is_answered_by(token)
        })?;
        Some(Won {
            route: candidate.route,
            address: candidate.address,
            round_trip: candidate.challenge.round_trip(now),
        })
    }

    /// Takes note that the session leaves `from` for `to`, which has answered.
    pub(super) fn leave(
        &mut self,
        now: Instant,
        (from, was_proved): (Route, bool),
        (to, patience): (Route, Duration),
    ) {
        self.switches.note(now);
        let is_settled = now.saturating_since(self.since) >= SETTLED;
        if was_proved && (is_settled || self.previous.is_none()) {
            self.previous = Some(Previous {
                route: from,
                until: now + RETURN,
                pace: Pace::IDLE,
            });
        }
        self.previous = self
            .previous
            .filter(|previous| previous.route.peer != to.peer);
        self.move_on(now, from, patience);
        if !was_proved {
            self.left = None;
        }
    }

    /// Begins anew at another address than `from`.
    fn move_on(&mut self, now: Instant, from: Route, patience: Duration) {
        self.candidate = None;
        self.check = None;
        self.left = Some((from, now + patience.saturating_mul(PARTING)));
        self.since = now;
        self.heard_at = now;
    }

    /// Forgets what is over.
    fn give_up(&mut self, now: Instant) {
        self.candidate = self
            .candidate
            .filter(|candidate| !candidate.challenge.is_over(now));
        self.check = self.check.filter(|check| !check.is_over(now));
        self.previous = self.previous.filter(|previous| now < previous.until);
        self.left = self.left.filter(|(_, until)| now < *until);
    }

    /// Returns the challenge that is due, and where it goes: `None` is the session's address.
    pub(super) fn poll_challenge(
        &mut self,
        now: Instant,
        generator: &mut Generator,
        patience: Duration,
    ) -> Option<([u8; 8], Option<Route>)> {
        if let Some(candidate) = &mut self.candidate
            && candidate.takes_challenge(now)
        {
            let token = candidate.challenge.ask(now, generator, patience);
            return Some((token, Some(candidate.route)));
        }
        let check = self.check.as_mut().filter(|check| check.is_due(now))?;
        Some((check.ask(now, generator, patience), None))
    }

    /// Copies a datagram where another address is to get it too: the one that may be the peer's new
    /// port, as far as bytes came from there, else the one that was left. Returns whether one is.
    pub(super) fn copy(&mut self, now: Instant, datagram: &[u8]) -> bool {
        let len = u64::try_from(datagram.len()).unwrap_or(u64::MAX);
        let to = if let Some(candidate) = &mut self.candidate {
            candidate.takes_copy(now, len).then_some(candidate.route)
        } else {
            let left = self.left.filter(|(_, until)| now < *until);
            left.map(|(route, _)| route)
        };
        if to.is_some() {
            self.copy.clear();
            self.copy.extend_from_slice(datagram);
            self.copy_to = to;
        }
        to.is_some()
    }

    /// Appends the copy that waits, and returns where it goes.
    pub(super) fn poll_copy(&mut self, buf: &mut Vec<u8>) -> Option<Route> {
        let to = self.copy_to.take()?;
        buf.extend_from_slice(&self.copy);
        Some(to)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let candidate = self
            .candidate
            .as_ref()
            .map(|candidate| &candidate.challenge);
        [candidate, self.check.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(Challenge::poll_timeout)
            .min()
    }

    /// Returns whether nothing of it matters any more.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        self.give_up(now);
        self.candidate.is_none()
            && self.check.is_none()
            && self.previous.is_none()
            && self.left.is_none()
            && self.copy_to.is_none()
            && self.switches.are_over(now)
    }

    pub(super) const fn memory(&self) -> usize {
        size_of::<Self>().saturating_add(self.copy.capacity())
    }
}

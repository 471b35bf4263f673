//! The addresses beside the one that a session's packets go to: one that may become it, one that it
//! may return to, and one that it has just left.

use core::net::SocketAddr;
use core::time::Duration;

use wire::{Generator, Instant};

use super::{OpenedPacket, Route, Span, real_address};
use crate::packet::{Header, TAG_LEN};

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
pub(super) struct Migration {
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
    received_at: Instant,
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
pub(super) struct ValidatedPath {
    pub(super) route: Route,
    pub(super) address: SocketAddr,
    pub(super) round_trip: Option<Duration>,
}

impl Migration {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            candidate: None,
            candidate_pace: Pace::IDLE,
            check: None,
            previous: None,
            left: None,
            switches: Switches::NONE,
            since: Instant::ZERO,
            received_at: now,
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
        self.received_at = now;
    }

    /// Takes note of a packet from elsewhere. Returns where the session returns to at once, with
    /// that noted; `current` is where it is, and whether that is proved.
    pub(super) fn on_elsewhere(
        &mut self,
        packet: &OpenedPacket<'_>,
        (current, is_proved): (Route, bool),
    ) -> Option<Route> {
        let (now, from) = (packet.now, packet.arrival.peer);
        self.give_up(now);
        if let Some(candidate) = &mut self.candidate
            && candidate.route.peer == from
        {
            candidate.on_packet(packet.len);
            return None;
        }
        if !packet.is_newest {
            return None;
        }
        if let Some(previous) = self.previous
            && previous.route.peer == from
        {
            // Free, not counted, and once: a copier must win the session's address anew.
            self.previous = None;
            self.move_on(now, current, packet.pto);
            return Some(previous.route);
        }
        let is_port = current.span(Route::of(packet.arrival)) == Span::Port;
        // The host is the same one, so copies that go there reach nobody new.
        let pto = if is_port {
            packet.pto.min(PORT_PATIENCE)
        } else {
            packet.pto
        };
        let has_place = self
            .candidate
            .is_none_or(|candidate| candidate.is_replaceable(now, pto));
        let is_left = is_port && now >= self.received_at + pto;
        if has_place && (is_left || self.may_move(now, pto)) {
            self.candidate = Some(Candidate::new(packet, current));
            self.left = None;
            // RFC 9000, section 9.3.3: the peer may not have moved at all.
            self.check = is_proved.then(|| Challenge::due_at(now));
        }
        None
    }

    /// Returns whether a further change is allowed: one a second, and eight a minute unless nobody is
    /// heard at the present address any more.
    fn may_move(&self, now: Instant, pto: Duration) -> bool {
        let is_silent = now >= self.received_at + pto.saturating_mul(SILENCE);
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
    ) -> Option<ValidatedPath> {
        let candidate = self.candidate.filter(|candidate| {
            candidate.route.peer == from && candidate.challenge.is_answered_by(token)
        })?;
        Some(ValidatedPath {
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
        (to, pto): (Route, Duration),
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
        self.move_on(now, from, pto);
        if !was_proved {
            self.left = None;
        }
    }

    /// Begins anew at another address than `from`.
    fn move_on(&mut self, now: Instant, from: Route, pto: Duration) {
        self.candidate = None;
        self.check = None;
        self.left = Some((from, now + pto.saturating_mul(PARTING)));
        self.since = now;
        self.received_at = now;
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
        pto: Duration,
    ) -> Option<([u8; 8], Option<Route>)> {
        if let Some(candidate) = &mut self.candidate
            && candidate.takes_challenge(now)
        {
            let token = candidate.challenge.ask(now, generator, pto);
            return Some((token, Some(candidate.route)));
        }
        let check = self.check.as_mut().filter(|check| check.is_due(now))?;
        Some((check.ask(now, generator, pto), None))
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

/// How long a challenge waits for a packet to another port to go first. What came from there so far
/// may be no more than a single packet: the game's next one comes first, and a NAT that has bound
/// its client anew costs it no further tick.
const HOLD: Duration = Duration::from_millis(100);

/// Bytes of a packet with a challenge, at most.
const CHALLENGE_LEN: u64 = CHALLENGE_LEN_MAX as u64;

/// A new address of the peer.
///
/// What is sent there never exceeds what came from there in packets that opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) route: Route,
    /// What the application is told of it.
    pub(super) address: SocketAddr,
    pub(super) challenge: Challenge,
    span: Span,
    since: Instant,
    /// Bytes that came from it.
    received: u64,
    /// Bytes sent to it.
    sent: u64,
}

impl Candidate {
    pub(super) fn new(packet: &OpenedPacket<'_>, current: Route) -> Self {
        let route = Route::of(packet.arrival);
        let span = current.span(route);
        let first = match span {
            Span::Port => packet.now + HOLD,
            Span::Host => packet.now,
        };
        Self {
            route,
            address: real_address(packet.arrival),
            challenge: Challenge::due_at(first),
            span,
            since: packet.now,
            received: packet.len,
            sent: 0,
        }
    }

    /// Takes note of a further packet from it.
    pub(super) const fn on_packet(&mut self, len: u64) {
        self.received = self.received.saturating_add(len);
    }

    /// Returns whether another address may take its place: it had the time to answer once.
    pub(super) fn is_replaceable(&self, now: Instant, pto: Duration) -> bool {
        self.challenge.is_over(now) || now >= self.since + pto
    }

    /// Returns whether a challenge is to leave now, and takes note of it.
    pub(super) fn takes_challenge(&mut self, now: Instant) -> bool {
        let is_sent = self.challenge.is_due(now) && CHALLENGE_LEN <= self.allowance();
        if is_sent {
            self.sent = self.sent.saturating_add(CHALLENGE_LEN);
        }
        is_sent
    }

    /// Returns whether it gets a copy of a packet of `len` bytes, and takes note of it.
    pub(super) fn takes_copy(&mut self, now: Instant, len: u64) -> bool {
        if self.span == Span::Host || self.challenge.is_over(now) {
            return false;
        }
        // A challenge that is due waits for no copy.
        let kept = if self.challenge.is_due(now) {
            CHALLENGE_LEN
        } else {
            0
        };
        let is_sent = len.saturating_add(kept) <= self.allowance();
        if is_sent {
            self.sent = self.sent.saturating_add(len);
            self.challenge.retry_now(now);
        }
        is_sent
    }

    /// Bytes that may be sent to it.
    const fn allowance(&self) -> u64 {
        self.received.saturating_sub(self.sent)
    }
}

/// How long an answer is waited for at least. The way to a new address may be much longer than the one
/// that was measured: three times the probe timeout of a path of which nothing is known, RFC 9000,
/// section 8.2.4, and RFC 9002, section 6.2.2.
const LIFE: Duration = Duration::from_secs(3);
/// How many patiences an answer is waited for where that is longer.
const PATIENCES: u32 = 3;
/// When it is sent again first, at the latest: whoever's old way was bad, and who waits long for
/// answers there, is not to wait so long for the new one.
const GAP: Duration = Duration::from_millis(250);
/// How long after one the next is sent, at most.
const GAP_MAX: Duration = Duration::from_secs(1);
/// Bytes of a packet with a challenge, at most: header, type and token, tag.
pub(in crate::session) const CHALLENGE_LEN_MAX: usize = Header::LEN_MAX + 9 + TAG_LEN;

/// A challenge, sent again with the same token after one patience, 250 ms at most, then after twice as
/// long, and so on up to a second: an answer to any of them counts until it is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Challenge {
    /// What the answer must repeat; drawn when it is first sent.
    token: Option<[u8; 8]>,
    tries: u8,
    /// When it was first sent.
    sent_at: Instant,
    /// When it is sent next.
    next_at: Instant,
    /// When it is given up, once it was sent.
    over_at: Instant,
}

impl Challenge {
    pub(super) const fn due_at(at: Instant) -> Self {
        Self {
            token: None,
            tries: 0,
            sent_at: at,
            next_at: at,
            over_at: at,
        }
    }

    /// Asks at `now` where nothing was asked yet.
    pub(super) fn retry_now(&mut self, now: Instant) {
        if self.tries == 0 {
            self.next_at = self.next_at.min(now);
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.next_at && !self.is_over(now)
    }

    /// Returns whether nobody has answered.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.tries > 0 && now >= self.over_at
    }

    /// Takes note that it is sent; returns its token.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        generator: &mut Generator,
        pto: Duration,
    ) -> [u8; 8] {
        let token = *self.token.get_or_insert_with(|| {
            let mut token = [0; 8];
            generator.fill(&mut token);
            token
        });
        if self.tries == 0 {
            self.sent_at = now;
            self.over_at = now + LIFE.max(pto.saturating_mul(PATIENCES));
        }
        let gap = pto.min(GAP).saturating_mul(1 << self.tries.min(16));
        self.next_at = now + gap.min(GAP_MAX);
        self.tries = self.tries.saturating_add(1);
        token
    }

    pub(super) fn is_answered_by(&self, token: [u8; 8]) -> bool {
        self.token == Some(token)
    }

    /// Returns how long the answer took, where it is known which try it is to.
    pub(super) fn round_trip(&self, now: Instant) -> Option<Duration> {
        (self.tries == 1).then(|| now.saturating_since(self.sent_at))
    }

    /// Returns when it is next sent.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (self.tries == 0 || self.next_at < self.over_at).then_some(self.next_at)
    }
}

/// Times of the last changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Switches {
    /// A ring.
    times: [Option<Instant>; Self::PER_WINDOW],
    /// Where the oldest stands.
    next: u8,
    last: Option<Instant>,
}

impl Switches {
    /// Changes in [`Self::WINDOW`]; TWP/1, section 9.
    pub(super) const PER_WINDOW: usize = 8;
    pub(super) const WINDOW: Duration = Duration::from_secs(60);
    /// Least time between two.
    pub(super) const SPACING: Duration = Duration::from_secs(1);

    pub(super) const NONE: Self = Self {
        times: [None; Self::PER_WINDOW],
        next: 0,
        last: None,
    };

    /// Takes note of a change.
    pub(super) fn note(&mut self, now: Instant) {
        if let Some(time) = self.times.get_mut(usize::from(self.next)) {
            *time = Some(now);
        }
        self.next = self.next.saturating_add(1);
        if usize::from(self.next) >= Self::PER_WINDOW {
            self.next = 0;
        }
        self.last = Some(now);
    }

    /// Returns whether a second has passed since the last change.
    pub(super) fn are_spaced(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| now >= last + Self::SPACING)
    }

    /// Returns whether fewer than eight were within a minute.
    pub(super) fn are_few(&self, now: Instant) -> bool {
        let oldest = self.times.get(usize::from(self.next)).copied().flatten();
        oldest.is_none_or(|oldest| now >= oldest + Self::WINDOW)
    }

    /// Returns whether the last change is forgotten.
    pub(super) fn are_over(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| now >= last + Self::WINDOW)
    }
}

/// A bucket of packets in 8 bytes, as the time when it is full; ITU-T I.371, the generic cell rate
/// algorithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    full_at: Instant,
}

/// Rate and depth of a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Time that earns one packet.
    interval: Duration,
    /// Packets at once.
    burst: u32,
}

/// All addresses that nobody of the session was heard at, together; TWP/1, section 8.
pub(super) const UNKNOWN_RATE: Rate = Rate::per_second(32, 32);
/// The address that is challenged, and the one that the session may return to, each: as much as a
/// player sends. TWP/1, section 8.
pub(super) const KNOWN_RATE: Rate = Rate::per_second(600, 300);

impl Rate {
    const fn per_second(count: u32, burst: u32) -> Self {
        let nanos = match 1_000_000_000_u64.checked_div(count as u64) {
            Some(nanos) => nanos,
            None => u64::MAX,
        };
        Self {
            interval: Duration::from_nanos(nanos),
            burst,
        }
    }
}

impl Pace {
    /// A full bucket.
    pub(super) const IDLE: Self = Self {
        full_at: Instant::ZERO,
    };

    /// Takes one packet where there is one left.
    pub(super) fn take(&mut self, now: Instant, rate: Rate) -> bool {
        let after = self.full_at.max(now) + rate.interval;
        if after.saturating_since(now) > rate.interval.saturating_mul(rate.burst) {
            return false;
        }
        self.full_at = after;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_changes_in_any_minute_and_one_in_any_second() {
        let mut switches = Switches::NONE;
        let mut times = Vec::new();
        for millis in (0..200_000).step_by(100) {
            let now = Instant::from_millis(millis);
            if switches.are_spaced(now) && switches.are_few(now) {
                switches.note(now);
                times.push(millis);
            }
        }
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 1_000));
        assert!(times.windows(9).all(|nine| nine[8] - nine[0] >= 60_000));
        assert_eq!(times.len(), 4 * Switches::PER_WINDOW);
        assert!(!switches.are_over(Instant::from_millis(200_000)));
        assert!(switches.are_over(Instant::from_millis(300_000)));
    }

    #[test]
    fn twp_f2_strangers_get_32_at_once_and_32_a_second() {
        let mut pace = Pace::IDLE;
        let mut now = Instant::from_millis(5_000);
        let mut granted = 0;
        for _ in 0..1_000 {
            granted += u32::from(pace.take(now, UNKNOWN_RATE));
        }
        assert_eq!(granted, 32);
        for _ in 0..10_000 {
            now += Duration::from_millis(1);
            granted += u32::from(pace.take(now, UNKNOWN_RATE));
        }
        assert_eq!(granted, 32 + 320);
    }
}

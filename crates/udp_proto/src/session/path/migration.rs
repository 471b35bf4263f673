//! Connection migration: a candidate address, the previous one, and the one just left; RFC 9000,
//! section 9.

use core::net::SocketAddr;
use core::time::Duration;

use wire::{Generator, Instant};

use super::{OpenedPacket, Route, Span, real_address};
use crate::packet::{Header, TAG_LEN};

/// How long the peer may return without a challenge: "recently" of RFC 9000, section 9.3.
const RETURN_SPAN: Duration = Duration::from_secs(60);
/// A shorter-lived address does not replace the one to return to, so that a peer that moves as
/// often as allowed does not displace the genuine address.
const SETTLED_SPAN: Duration = ChangeLimiter::WINDOW;
/// For how many PTOs a left address still gets copies; TWP/1, section 9.
const COPY_PTOS: u32 = 3;
/// Another port of the same host is challenged after this much silence, regardless of the change
/// limit: NATs may rebind many times in a row.
const PORT_SILENCE: Duration = Duration::from_millis(250);
/// PTOs without a packet after which an address counts as silent.
const SILENCE_PTOS: u32 = 3;

/// State of the peer's other addresses. Fixed size, except for one datagram.
#[derive(Debug)]
pub(super) struct Migration {
    candidate: Option<Candidate>,
    /// Shared by all candidates; otherwise each change of address would get a full bucket.
    candidate_pace: PacketLimiter,
    /// Challenges the session's current address.
    check: Option<Challenge>,
    previous: Option<Previous>,
    /// The address left last, and until when it gets copies.
    left: Option<(Route, Instant)>,
    changes: ChangeLimiter,
    /// Since when the session has its address, as far as known.
    since: Instant,
    /// When the last packet arrived from it, as far as known.
    received_at: Instant,
    copy: Vec<u8>,
    copy_to: Option<Route>,
}

#[derive(Clone, Copy, Debug)]
struct Previous {
    route: Route,
    until: Instant,
    pace: PacketLimiter,
}

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
            candidate_pace: PacketLimiter::IDLE,
            check: None,
            previous: None,
            left: None,
            changes: ChangeLimiter::NONE,
            since: Instant::ZERO,
            received_at: now,
            copy: Vec::new(),
            copy_to: None,
        }
    }

    pub(super) fn pace_of(&mut self, peer: SocketAddr) -> Option<&mut PacketLimiter> {
        // The previous address first: it may be the genuine one.
        if let Some(previous) = &mut self.previous
            && previous.route.peer == peer
        {
            return Some(&mut previous.pace);
        }
        self.candidate
            .is_some_and(|candidate| candidate.route.peer == peer)
            .then_some(&mut self.candidate_pace)
    }

    pub(super) const fn on_current(&mut self, now: Instant) {
        self.received_at = now;
    }

    /// Processes a packet from another address. Returns the route if the session returns there at
    /// once. `current` is the session's route and whether it is validated.
    pub(super) fn on_off_path_packet(
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
            // Not counted as a change, and allowed once: an off-path attacker must win the address
            // again.
            self.previous = None;
            self.move_on(now, current, packet.pto);
            return Some(previous.route);
        }
        let is_port = current.span(Route::of(packet.arrival)) == Span::Port;
        // Same host, so the copies reach no third party.
        let pto = if is_port {
            packet.pto.min(PORT_SILENCE)
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

    /// Allows one change per second, and eight per minute unless the current address is silent.
    fn may_move(&self, now: Instant, pto: Duration) -> bool {
        let is_silent = now >= self.received_at + pto.saturating_mul(SILENCE_PTOS);
        self.changes.are_spaced(now) && (is_silent || self.changes.are_few(now))
    }

    pub(super) fn on_current_answer(&mut self, token: [u8; 8]) {
        let is_answer = self.check.is_some_and(|check| check.is_answered_by(token));
        if is_answer {
            self.check = None;
            self.candidate = None;
        }
    }

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

    pub(super) fn move_to(
        &mut self,
        now: Instant,
        (from, was_proved): (Route, bool),
        (to, pto): (Route, Duration),
    ) {
        self.changes.note(now);
        let is_settled = now.saturating_since(self.since) >= SETTLED_SPAN;
        if was_proved && (is_settled || self.previous.is_none()) {
            self.previous = Some(Previous {
                route: from,
                until: now + RETURN_SPAN,
                pace: PacketLimiter::IDLE,
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

    fn move_on(&mut self, now: Instant, from: Route, pto: Duration) {
        self.candidate = None;
        self.check = None;
        self.left = Some((from, now + pto.saturating_mul(COPY_PTOS)));
        self.since = now;
        self.received_at = now;
    }

    fn give_up(&mut self, now: Instant) {
        self.candidate = self
            .candidate
            .filter(|candidate| !candidate.challenge.is_expired(now));
        self.check = self.check.filter(|check| !check.is_expired(now));
        self.previous = self.previous.filter(|previous| now < previous.until);
        self.left = self.left.filter(|(_, until)| now < *until);
    }

    /// Returns the challenge that is due, and its route; `None` is the session's address.
    pub(super) fn poll_challenge(
        &mut self,
        now: Instant,
        generator: &mut Generator,
        pto: Duration,
    ) -> Option<([u8; 8], Option<Route>)> {
        if let Some(candidate) = &mut self.candidate
            && candidate.take_challenge(now)
        {
            let token = candidate.challenge.transmit(now, generator, pto);
            return Some((token, Some(candidate.route)));
        }
        let check = self.check.as_mut().filter(|check| check.is_due(now))?;
        Some((check.transmit(now, generator, pto), None))
    }

    /// Copies a datagram to the candidate, if that is a new port of the same host and within its
    /// allowance, else to the address left last. Returns whether it did.
    pub(super) fn copy(&mut self, now: Instant, datagram: &[u8]) -> bool {
        let len = u64::try_from(datagram.len()).unwrap_or(u64::MAX);
        let to = if let Some(candidate) = &mut self.candidate {
            candidate.take_copy(now, len).then_some(candidate.route)
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

    pub(super) fn is_expired(&mut self, now: Instant) -> bool {
        self.give_up(now);
        self.candidate.is_none()
            && self.check.is_none()
            && self.previous.is_none()
            && self.left.is_none()
            && self.copy_to.is_none()
            && self.changes.are_over(now)
    }

    pub(super) const fn memory(&self) -> usize {
        size_of::<Self>().saturating_add(self.copy.capacity())
    }
}

/// How long a challenge waits so that a packet to another port goes first: the bytes received from
/// there may allow only one.
const CHALLENGE_HOLD: Duration = Duration::from_millis(100);

const CHALLENGE_LEN: u64 = CHALLENGE_LEN_MAX as u64;

/// A new address of the peer, which is never sent more bytes than were received from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) route: Route,
    pub(super) address: SocketAddr,
    pub(super) challenge: Challenge,
    span: Span,
    since: Instant,
    received: u64,
    sent: u64,
}

impl Candidate {
    pub(super) fn new(packet: &OpenedPacket<'_>, current: Route) -> Self {
        let route = Route::of(packet.arrival);
        let span = current.span(route);
        let first = match span {
            Span::Port => packet.now + CHALLENGE_HOLD,
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

    pub(super) const fn on_packet(&mut self, len: u64) {
        self.received = self.received.saturating_add(len);
    }

    /// Returns whether another address may replace it: it had time to answer once.
    pub(super) fn is_replaceable(&self, now: Instant, pto: Duration) -> bool {
        self.challenge.is_expired(now) || now >= self.since + pto
    }

    pub(super) fn take_challenge(&mut self, now: Instant) -> bool {
        let is_sent = self.challenge.is_due(now) && CHALLENGE_LEN <= self.allowance();
        if is_sent {
            self.sent = self.sent.saturating_add(CHALLENGE_LEN);
        }
        is_sent
    }

    /// Returns whether to send it a copy of `len` bytes, and records it.
    pub(super) fn take_copy(&mut self, now: Instant, len: u64) -> bool {
        if self.span == Span::Host || self.challenge.is_expired(now) {
            return false;
        }
        // Reserve the bytes of a challenge that is due.
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

    /// Bytes that may still be sent to it.
    const fn allowance(&self) -> u64 {
        self.received.saturating_sub(self.sent)
    }
}

/// Least time to wait for a response, since the new path may be much slower: three times the PTO of
/// an unknown path, RFC 9000, section 8.2.4, and RFC 9002, section 6.2.2.
const CHALLENGE_LIFE: Duration = Duration::from_secs(3);
/// The wait in PTOs, if that is longer.
const CHALLENGE_LIFE_PTOS: u32 = 3;
/// Longest delay before the first retransmission: a bad old path must not slow the challenge.
const RETRANSMIT_DELAY_MAX: Duration = Duration::from_millis(250);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Largest packet with a challenge, in bytes: header, type and token, tag.
pub(in crate::session) const CHALLENGE_LEN_MAX: usize = Header::LEN_MAX + 9 + TAG_LEN;

/// A challenge, retransmitted with the same token after one PTO, at most 250 ms, then with backoff
/// up to 1 s. A response to any copy counts until it expires.
#[derive(Clone, Copy, Debug)]
pub(super) struct Challenge {
    /// Drawn when first sent.
    token: Option<[u8; 8]>,
    tries: u8,
    sent_at: Instant,
    next_at: Instant,
    /// When it expires, once sent.
    expires_at: Instant,
}

impl Challenge {
    pub(super) const fn due_at(at: Instant) -> Self {
        Self {
            token: None,
            tries: 0,
            sent_at: at,
            next_at: at,
            expires_at: at,
        }
    }

    /// Makes the first transmission due at `now`, if it was not sent yet.
    pub(super) fn retry_now(&mut self, now: Instant) {
        if self.tries == 0 {
            self.next_at = self.next_at.min(now);
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.next_at && !self.is_expired(now)
    }

    /// Returns whether it expired unanswered.
    pub(super) fn is_expired(&self, now: Instant) -> bool {
        self.tries > 0 && now >= self.expires_at
    }

    pub(super) fn transmit(
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
            self.expires_at = now + CHALLENGE_LIFE.max(pto.saturating_mul(CHALLENGE_LIFE_PTOS));
        }
        let gap = pto
            .min(RETRANSMIT_DELAY_MAX)
            .saturating_mul(1 << self.tries.min(16));
        self.next_at = now + gap.min(BACKOFF_MAX);
        self.tries = self.tries.saturating_add(1);
        token
    }

    pub(super) fn is_answered_by(&self, token: [u8; 8]) -> bool {
        self.token == Some(token)
    }

    /// Returns the RTT, unless it was retransmitted.
    pub(super) fn round_trip(&self, now: Instant) -> Option<Duration> {
        (self.tries == 1).then(|| now.saturating_since(self.sent_at))
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (self.tries == 0 || self.next_at < self.expires_at).then_some(self.next_at)
    }
}

/// Limits changes of address.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChangeLimiter {
    /// A ring of the last changes.
    times: [Option<Instant>; Self::PER_WINDOW],
    /// Index of the oldest.
    next: u8,
    last: Option<Instant>,
}

impl ChangeLimiter {
    /// Changes per [`Self::WINDOW`]; TWP/1, section 9.
    pub(super) const PER_WINDOW: usize = 8;
    pub(super) const WINDOW: Duration = Duration::from_secs(60);
    /// Least time between two.
    pub(super) const SPACING: Duration = Duration::from_secs(1);

    pub(super) const NONE: Self = Self {
        times: [None; Self::PER_WINDOW],
        next: 0,
        last: None,
    };

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

    pub(super) fn are_few(&self, now: Instant) -> bool {
        let oldest = self.times.get(usize::from(self.next)).copied().flatten();
        oldest.is_none_or(|oldest| now >= oldest + Self::WINDOW)
    }

    /// Returns whether the last change is out of the window.
    pub(super) fn are_over(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| now >= last + Self::WINDOW)
    }
}

/// A token bucket of packets in 8 bytes: the generic cell rate algorithm of ITU-T I.371.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketLimiter {
    full_at: Instant,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Time per packet.
    interval: Duration,
    burst: u32,
}

/// All addresses unknown to the session, together; TWP/1, section 8.
pub(super) const UNKNOWN_RATE: Rate = Rate::per_second(32, 32);
/// The candidate and the previous address, each: as much as a player sends. TWP/1, section 8.
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

impl PacketLimiter {
    pub(super) const IDLE: Self = Self {
        full_at: Instant::ZERO,
    };

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
        let mut changes = ChangeLimiter::NONE;
        let mut times = Vec::new();
        for millis in (0..200_000).step_by(100) {
            let now = Instant::from_millis(millis);
            if changes.are_spaced(now) && changes.are_few(now) {
                changes.note(now);
                times.push(millis);
            }
        }
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 1_000));
        assert!(times.windows(9).all(|nine| nine[8] - nine[0] >= 60_000));
        assert_eq!(times.len(), 4 * ChangeLimiter::PER_WINDOW);
        assert!(!changes.are_over(Instant::from_millis(200_000)));
        assert!(changes.are_over(Instant::from_millis(300_000)));
    }

    #[test]
    fn twp_f2_unknown_addresses_get_a_burst_of_32_and_32_a_second() {
        let mut pace = PacketLimiter::IDLE;
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

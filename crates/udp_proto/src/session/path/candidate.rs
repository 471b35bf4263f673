//! An address that the peer was heard at, and that has not answered yet.

use core::net::SocketAddr;
use core::time::Duration;

use wire::Instant;

use super::challenge::{self, Challenge};
use super::{Heard, Route, Span, real_address};

/// How long a challenge waits for a packet to another port to go first. What came from there so far
/// may be no more than a single packet: the game's next one comes first, and a NAT that has bound
/// its client anew costs it no further tick.
const HOLD: Duration = Duration::from_millis(100);

/// Bytes of a packet with a challenge, at most.
const CHALLENGE_LEN: u64 = challenge::PACKET_LEN_MAX as u64;

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
    pub(super) fn new(heard: &Heard<'_>, current: Route) -> Self {
        let route = Route::of(heard.arrival);
        let span = current.span(route);
        let first = match span {
            Span::Port => heard.now + HOLD,
            Span::Host => heard.now,
        };
        Self {
            route,
            address: real_address(heard.arrival),
            challenge: Challenge::due_at(first),
            span,
            since: heard.now,
            received: heard.len,
            sent: 0,
        }
    }

    /// Takes note of a further packet from it.
    pub(super) const fn on_packet(&mut self, len: u64) {
        self.received = self.received.saturating_add(len);
    }

    /// Returns whether another address may take its place: it had the time to answer once.
    pub(super) fn is_replaceable(&self, now: Instant, patience: Duration) -> bool {
        self.challenge.is_over(now) || now >= self.since + patience
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
            self.challenge.hasten(now);
        }
        is_sent
    }

    /// Bytes that may be sent to it.
    const fn allowance(&self) -> u64 {
        self.received.saturating_sub(self.sent)
    }
}

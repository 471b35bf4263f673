//! Challenges, answers to them, and what a change of address changes.

use core::net::SocketAddr;

use crypto::Aead;
use wire::{Arrival, Generator, Instant, Transmit};

use super::close::Phase;
use super::path::{Heard, Move, Span};
use super::{SentPacket, Session};
use crate::config::Mtu;
use crate::frame::{Elicits, Frame};
use crate::packet::PacketNumber;
use crate::sent::Cargo;

/// Tokens of challenges: those to send back, and those that came back in the packet at hand.
///
/// Two wait at a time. A peer asks two paths at once, and whoever moved behind his NAT gets both
/// questions by one. RFC 9000, section 8.2.2, asks for an answer to each; an unbounded queue of them
/// was CVE-2023-49295.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tokens {
    to_return: [Option<[u8; 8]>; 2],
    returned: [Option<[u8; 8]>; 2],
}

impl Tokens {
    /// Returns whether nothing is to be answered.
    pub(super) const fn is_idle(&self) -> bool {
        matches!(self.to_return, [None, None])
    }

    /// Takes a challenge of the peer's; one too many is dropped.
    pub(super) fn on_challenge(&mut self, token: [u8; 8]) {
        keep(&mut self.to_return, token);
    }

    /// Takes an answer of the peer's; one too many is dropped.
    pub(super) fn on_response(&mut self, token: [u8; 8]) {
        keep(&mut self.returned, token);
    }
}

fn keep(places: &mut [Option<[u8; 8]>; 2], token: [u8; 8]) {
    if let Some(place) = places.iter_mut().find(|place| place.is_none()) {
        *place = Some(token);
    }
}

impl<A: Aead> Session<A> {
    /// Takes note of where a packet came from that opened and was taken.
    pub(super) fn on_heard(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        (len, is_newest): (u64, bool),
    ) {
        let returned = core::mem::take(&mut self.tokens.returned);
        if !matches!(self.phase, Phase::Open | Phase::Flushing { .. }) {
            self.path.on_last_packet(arrival.peer, len);
            return;
        }
        if returned == [None; 2] && self.path.is_settled_at(&arrival.peer) {
            return;
        }
        let patience = self.rtt.pto();
        let heard = Heard {
            now,
            arrival,
            len,
            is_newest,
            acked: self.sent.largest_acked().map(PacketNumber::get),
            next: self.next_number().get(),
            patience,
        };
        if let Some(moved) = self.path.on_packet(&heard) {
            self.on_moved(now, &moved);
        }
        for token in returned.into_iter().flatten() {
            let answer = (arrival.peer, token);
            if let Some(moved) = self.path.on_response(now, answer, patience) {
                self.on_moved(now, &moved);
            }
        }
    }

    /// Begins anew what was measured of the path, where it is another one.
    fn on_moved(&mut self, now: Instant, moved: &Move) {
        self.tally.address_changes = self.tally.address_changes.saturating_add(1);
        self.news.moved = Some(moved.span);
        match moved.span {
            Span::Port => {}
            Span::Host => {
                self.rtt.reset(moved.round_trip);
                self.flow.restart(now);
                self.sent.measure_anew();
                self.sent.set_recovery(self.flow.recovery());
                self.mtu.restart();
                self.tell_rate();
            }
        }
    }

    /// Returns whether there may be something for [`poll_path`](Self::poll_path).
    pub(super) const fn has_path_work(&self) -> bool {
        self.path.is_roaming() || !self.tokens.is_idle()
    }

    /// Appends what goes to other addresses than the session's, and what answers a challenge.
    pub(super) fn poll_path(
        &mut self,
        now: Instant,
        (generator, seals_max): (&mut Generator, u64),
        buf: &mut Vec<u8>,
    ) -> Option<Transmit<SocketAddr>> {
        if let Some(copy) = self.path.poll_copy(buf) {
            return Some(copy);
        }
        if !matches!(self.phase, Phase::Open | Phase::Flushing { .. })
            || self.has_worn_out(seals_max)
        {
            return None;
        }
        let patience = self.rtt.pto();
        if let Some((token, to)) = self.path.poll_challenge(now, generator, patience) {
            let frames = [Some(Frame::PathChallenge(token)), None];
            let cargo = if self.path.is_current(&to.destination) {
                Cargo::Other
            } else {
                Cargo::Elsewhere
            };
            return self
                .send_apart(now, (generator, &frames, cargo), buf)
                .then_some(to);
        }
        if self.tokens.to_return == [None; 2] || !self.path.may_send() {
            return None;
        }
        let frames =
            core::mem::take(&mut self.tokens.to_return).map(|token| token.map(Frame::PathResponse));
        let start = buf.len();
        if !self.send_apart(now, (generator, &frames, Cargo::Other), buf) {
            return None;
        }
        self.path.count_sent(buf.len().saturating_sub(start));
        Some(self.transmit())
    }

    /// Appends a packet of nothing but `frames`; returns whether it could be sealed.
    fn send_apart(
        &mut self,
        now: Instant,
        (generator, frames, cargo): (&mut Generator, &[Option<Frame<'_>>; 2], Cargo),
        buf: &mut Vec<u8>,
    ) -> bool {
        if self.skip_number(generator).is_none() {
            return false;
        }
        let before = buf.len();
        let packet = self.begin(buf, Mtu::MIN.get());
        for frame in frames.iter().flatten() {
            frame.encode(buf);
        }
        let Some(number) = self.finish(buf, &packet) else {
            return false;
        };
        let len = buf.len().saturating_sub(before);
        let sent = SentPacket {
            number,
            at: now,
            len: u16::try_from(len).unwrap_or(u16::MAX),
            elicits: Elicits::Ack,
            cargo,
            described: None,
            untold: 0,
        };
        self.on_sent(now, &sent, 0);
        true
    }
}

//! Receiving: replay check, decryption, frames, key updates, close, and challenges of a path.

use core::net::SocketAddr;
use core::time::Duration;

use crypto::{Aead, OpeningKey, Provider};
use wire::{Arrival, Generator, Instant, Transmit};

use super::inbound_limiter::InboundVerdict;
use super::opening_keys::{Sealed, Unsealed};
use super::path::{Move, OpenedPacket, Span};
use super::{Ping, SentPacket, Session};
use crate::config::{KeyLimits, Mtu};
use crate::error::{CloseCode, CloseReason};
use crate::frame::{AckFrame, Elicits, Frame, FrameError, FramesLeft};
use crate::inbox::Reception;
use crate::nanos::Nanos;
use crate::packet::{Header, KeyPhase, PacketNumber, TAG_LEN};
use crate::replay::Verdict;
use crate::sent::{AckUnsent, ArrivedAck, Outcome, SentKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// It was decrypted, and its frames were processed.
    Taken,
    /// It is a duplicate, or too old for the replay window.
    Replayed,
    Forged,
    /// It exceeded the inbound limits and was not decrypted.
    Over,
    Late,
    /// It exceeded the limit for addresses other than the session's.
    OffPathLimited,
}

pub(crate) fn open<'a, A: Aead>(
    key: &OpeningKey<A>,
    number: PacketNumber,
    header: &Header,
    datagram: &'a mut [u8],
) -> Option<&'a [u8]> {
    let (clear, sealed) = datagram.split_at_mut_checked(header.encoded_len())?;
    let (body, tag) = sealed.split_at_mut_checked(sealed.len().checked_sub(TAG_LEN)?)?;
    let tag: &[u8; TAG_LEN] = (&*tag).try_into().ok()?;
    key.open(number.get(), clear, body, tag).ok()?;
    Some(body)
}

impl<A: Aead> Session<A> {
    /// Processes a packet for this session. State changes only if the packet authenticates.
    pub(crate) fn handle_packet<P: Provider<Aead = A>>(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        (header, datagram): (&Header, &mut [u8]),
        keying: &Keying<'_, P>,
    ) -> Opened {
        if matches!(self.phase, Phase::Draining { .. } | Phase::Gone) {
            return Opened::Late;
        }
        let len = datagram.len();
        if self.path.is_current(&arrival.peer) {
            if !self.admit_packet(now, len) {
                return Opened::Over;
            }
        } else if !self.path.admits(now, arrival.peer) {
            return Opened::OffPathLimited;
        }
        let expected = self.received.expected();
        let number = expected.widen(header.number);
        if self.received.check(number) != Verdict::Fresh {
            self.limiter.on_foreign();
            return Opened::Replayed;
        }
        let packet = Sealed {
            number,
            largest: self.received.largest(),
            header,
            datagram,
            rtt: &self.rtt,
        };
        let Some(opened) = self.opening.open(now, keying.provider, packet) else {
            self.limiter.on_forged(now);
            if self.opening.failed >= keying.limits.failed_opens_max() {
                self.abort(now, CloseCode::AeadLimit);
            }
            return Opened::Forged;
        };
        // The off-path limit applied before decryption. The packet is now known to be the peer's,
        // so it also counts against the session's inbound limits.
        if !self.path.is_current(&arrival.peer)
            && self.limiter.admit(now, len) != InboundVerdict::Accept
        {
            self.tally.packets_over_limit = self.tally.packets_over_limit.saturating_add(1);
            return Opened::Over;
        }
        self.limiter.on_opened(now, len);
        self.tally.packets_received = self.tally.packets_received.saturating_add(1);
        let len = u64::try_from(len).unwrap_or(0);
        self.tally.bytes_received = self.tally.bytes_received.saturating_add(len);
        if self.is_out_of_turn(&opened) {
            self.received.on_packet(now, number, Elicits::Nothing);
            self.abort(now, CloseCode::KeyUpdate);
            return Opened::Taken;
        }
        let acked = self.sent.largest_acked();
        self.take(now, number, opened.plaintext);
        if self.is_answer_missing(opened.generation, acked) {
            self.abort(now, CloseCode::KeyUpdate);
        }
        self.on_packet_opened(now, arrival, (len, number >= expected));
        if self.is_idle {
            self.compact(now);
        }
        Opened::Taken
    }

    /// Returns whether a packet is within the inbound limits. Ends the session on a flood if
    /// configured.
    fn admit_packet(&mut self, now: Instant, len: usize) -> bool {
        let entry = self.limiter.admit(now, len);
        if entry == InboundVerdict::Accept {
            return true;
        }
        self.tally.packets_over_limit = self.tally.packets_over_limit.saturating_add(1);
        if entry == InboundVerdict::Flood {
            self.abort(now, CloseCode::Flood);
        }
        false
    }

    pub(crate) fn take_first(&mut self, now: Instant, number: PacketNumber, plaintext: &[u8]) {
        self.tally.packets_received = self.tally.packets_received.saturating_add(1);
        self.take(now, number, plaintext);
    }

    /// Handles a PING. If the peer's keepalives arrive before ours are due, the session is idle.
    fn on_ping(&mut self, now: Instant) {
        if !self.is_idle && now >= self.message_at + self.idle_timeouts.keepalive {
            self.is_idle = true;
            self.shrink(now);
        }
    }

    /// Processes the frames of a decrypted packet and marks its number as received.
    fn take(&mut self, now: Instant, number: PacketNumber, plaintext: &[u8]) {
        self.received_at = now;
        self.idle_grace = Nanos::ZERO;
        if matches!(self.phase, Phase::Closing { .. }) {
            self.received.on_packet(now, number, Elicits::Nothing);
            self.on_packet_while_closing();
            let mut frames = FramesLeft::new(plaintext);
            while let Some(Ok(frame)) = frames.take(&self.channels) {
                if let Frame::Close { code, reason } = frame {
                    self.on_close(now, code, reason);
                }
            }
            return;
        }
        match self.take_frames(now, number, plaintext) {
            Ok((elicits, Reception::Taken)) => self.received.on_packet(now, number, elicits),
            // Withheld from ACKs, as if lost: a message that was given up never counts as
            // delivered.
            Ok((_, Reception::GivenUp)) => self.received.withhold(number),
            Err(code) => {
                self.received.on_packet(now, number, Elicits::Nothing);
                self.abort(now, code);
            }
        }
        if self.events.closed.is_none() {
            self.report_readable();
        }
        self.run_phase(now);
    }

    pub(super) fn report_readable(&mut self) {
        if !self.inbox.is_empty() && !self.is_readable_reported {
            self.is_readable_reported = true;
            self.events.is_readable = true;
        }
    }

    fn take_frames(
        &mut self,
        now: Instant,
        number: PacketNumber,
        plaintext: &[u8],
    ) -> Result<(Elicits, Reception), CloseCode> {
        let mut frames = FramesLeft::new(plaintext);
        let result = self.take_each(now, number, &mut frames);
        self.limiter.on_frames(now, frames.taken());
        result
    }

    fn take_each(
        &mut self,
        now: Instant,
        number: PacketNumber,
        frames: &mut FramesLeft<'_>,
    ) -> Result<(Elicits, Reception), CloseCode> {
        let (mut elicits, mut reception) = (Elicits::Nothing, Reception::Taken);
        let mut has_ack = false;
        loop {
            while let Some(message) = frames.take_message(&self.channels) {
                elicits = Elicits::Ack;
                self.is_idle = false;
                self.message_at = now;
                let taken = message
                    .and_then(|message| self.inbox.on_message(now, &message))
                    .map_err(|error| CloseCode::from_wire(error.close_code()))?;
                if taken == Reception::GivenUp {
                    reception = Reception::GivenUp;
                }
            }
            let next = frames.take(&self.channels);
            let frame = match &next {
                Some(Ok(frame)) => frame,
                Some(Err(FrameError::Message(error))) => {
                    return Err(CloseCode::from_wire(error.close_code()));
                }
                Some(Err(
                    FrameError::Truncated
                    | FrameError::UnknownType(_)
                    | FrameError::NotMinimal
                    | FrameError::TooLong
                    | FrameError::TooMany,
                )) => return Err(CloseCode::Frame),
                None => return Ok((elicits, reception)),
            };
            if frame.elicits() == Elicits::Ack {
                elicits = Elicits::Ack;
            }
            // Each ACK costs a pass over up to 2,049 slots, so a packet may carry only one.
            if matches!(frame, Frame::Ack(_)) && core::mem::replace(&mut has_ack, true) {
                return Err(CloseCode::Frame);
            }
            self.take_frame(now, number, frame)?;
        }
    }

    fn take_ack(
        &mut self,
        now: Instant,
        number: PacketNumber,
        ack: AckFrame<'_>,
    ) -> Result<(), CloseCode> {
        let arrived = ArrivedAck {
            at: now,
            packet: number,
            frame: ack,
        };
        let (sent, rtt, mut dispatch) = self.parts(now);
        let summary = sent
            .on_ack(arrived, rtt, |content, outcome| match outcome {
                Outcome::Lost => dispatch.on_lost(content),
                Outcome::Acked => dispatch.on_acknowledged(content),
            })
            .map_err(|AckUnsent| CloseCode::AckUnsent)?;
        self.count(now, &summary);
        if let Some(described) = summary.described {
            self.received.on_confirmed(described);
        }
        Ok(())
    }

    fn take_frame(
        &mut self,
        now: Instant,
        number: PacketNumber,
        frame: &Frame<'_>,
    ) -> Result<(), CloseCode> {
        match frame {
            Frame::Ack(ack) => self.take_ack(now, number, *ack)?,
            Frame::Close { code, reason } => self.on_close(now, *code, reason),
            Frame::Window(credit) => self.outbox.on_window(*credit),
            Frame::PathChallenge(token) => self.tokens.on_challenge(*token),
            Frame::PathResponse(token) => self.tokens.on_response(*token),
            // CONFIRM and IDENTITY were processed when the session opened. This version ignores
            // TIME. Messages were processed above.
            Frame::Ping => self.on_ping(now),
            Frame::Confirm { .. } | Frame::Identity { .. } | Frame::Time(_) | Frame::Message(_) => {
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// The application closed it; reliable messages are still delivered.
    Flushing {
        until: Instant,
        close_frame: Box<CloseFrame>,
    },
    /// CLOSE is sent three times, and in answer to packets.
    Closing {
        ends_at: Instant,
        closes: Box<Closes>,
    },
    /// The peer closed it; nothing is sent.
    Draining {
        ends_at: Instant,
    },
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CloseFrame {
    code: CloseCode,
    reason: Box<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Closes {
    close_frame: CloseFrame,
    /// When the next of the three is due; `None` after the last.
    pub(super) next_at: Option<Instant>,
    /// How many of the three remain.
    left: u8,
    /// Packets received since. CLOSE answers the 1st, 2nd, 4th, 8th, ...
    arrived: u32,
    is_answer_due: bool,
}

/// Least time for which a closing session answers; TWP/1, section 11.
const CLOSING_MIN: Duration = Duration::from_millis(200);
/// How many CLOSEs are sent unprompted.
const CLOSES: u8 = 3;
const REASON_MAX: usize = 128;

impl<A: Aead> Session<A> {
    /// Closes the session gracefully: reliable messages are delivered first, within `linger`.
    pub(crate) fn close(&mut self, now: Instant, code: CloseCode, reason: &[u8], linger: Duration) {
        if !self.is_open() {
            return;
        }
        let reason = reason.get(..REASON_MAX).unwrap_or(reason);
        self.phase = Phase::Flushing {
            until: now + linger,
            close_frame: Box::new(CloseFrame {
                code,
                reason: reason.into(),
            }),
        };
        self.run_phase(now);
    }

    /// Closes the session immediately, for a violation or because another session replaces it.
    pub(crate) fn abort(&mut self, now: Instant, code: CloseCode) {
        if matches!(self.phase, Phase::Open | Phase::Flushing { .. }) {
            self.end(CloseReason::Local(code), Box::default());
            self.begin_closing(now, code, Box::default());
        }
    }

    /// Closes the session immediately on the application's request.
    pub(crate) fn kick(&mut self, now: Instant, reason: &[u8]) {
        if matches!(self.phase, Phase::Open | Phase::Flushing { .. }) {
            let reason = reason.get(..REASON_MAX).unwrap_or(reason);
            self.end(CloseReason::Local(CloseCode::Kicked), Box::default());
            self.begin_closing(now, CloseCode::Kicked, reason.into());
        }
    }

    /// Rejects a session that was never reported to the application: raises no event.
    pub(crate) fn refuse(&mut self, now: Instant, code: CloseCode) {
        self.begin_closing(now, code, Box::default());
    }

    pub(super) fn on_close(&mut self, now: Instant, code: u16, text: &[u8]) {
        if matches!(self.phase, Phase::Open | Phase::Flushing { .. }) {
            // Messages that precede it in the same packet stay readable.
            self.report_readable();
            let reason = CloseReason::Peer(CloseCode::from_wire(code));
            self.end(reason, text.into());
        }
        if !matches!(self.phase, Phase::Draining { .. } | Phase::Gone) {
            self.forget_outbound();
            self.phase = Phase::Draining {
                ends_at: now + self.closing_span(),
            };
        }
    }

    /// Ends the session if `datagram` is a stateless reset. Returns whether it is one.
    pub(crate) fn on_reset(&mut self, datagram: &[u8]) -> bool {
        let is_reset = self
            .reset_token
            .as_ref()
            .is_some_and(|token| token.ends(datagram));
        if !is_reset || self.phase == Phase::Gone {
            return false;
        }
        if matches!(self.phase, Phase::Open | Phase::Flushing { .. }) {
            self.end(CloseReason::Reset, Box::default());
        }
        self.forget_outbound();
        self.phase = Phase::Gone;
        self.events.has_ended = true;
        true
    }

    pub(super) fn on_packet_while_closing(&mut self) {
        if let Phase::Closing { closes, .. } = &mut self.phase {
            closes.arrived = closes.arrived.saturating_add(1);
            if closes.arrived.is_power_of_two() {
                closes.is_answer_due = true;
            }
        }
    }

    /// Advances the phase when its deadline passed or its queue is empty.
    pub(super) fn run_phase(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Flushing { until, close_frame } if now >= *until || self.outbox.is_empty() => {
                let code = close_frame.code;
                let reason = core::mem::take(&mut close_frame.reason);
                self.end(CloseReason::Local(code), Box::default());
                self.begin_closing(now, code, reason);
            }
            Phase::Closing { ends_at, .. } | Phase::Draining { ends_at } if now >= *ends_at => {
                self.phase = Phase::Gone;
                self.events.has_ended = true;
            }
            Phase::Open
            | Phase::Flushing { .. }
            | Phase::Closing { .. }
            | Phase::Draining { .. }
            | Phase::Gone => {}
        }
    }

    /// Reports the end to the application, once.
    pub(super) fn end(&mut self, reason: CloseReason, text: Box<[u8]>) {
        self.outbox.abandon();
        self.events.closed = Some(Box::new((reason, text)));
    }

    pub(super) fn take_close(&mut self, now: Instant) -> Option<(CloseCode, Box<[u8]>)> {
        let spacing = self.rtt.pto();
        let Phase::Closing { closes, .. } = &mut self.phase else {
            return None;
        };
        let CloseFrame { code, reason } = &closes.close_frame;
        if closes.next_at.is_some_and(|at| at <= now) && closes.left > 0 {
            closes.left = closes.left.saturating_sub(1);
            closes.next_at = (closes.left > 0).then(|| now + spacing);
            return Some((*code, reason.clone()));
        }
        // An answer carries no reason, so it is shorter than the packet that it answers.
        core::mem::take(&mut closes.is_answer_due).then(|| (*code, Box::default()))
    }

    fn begin_closing(&mut self, now: Instant, code: CloseCode, reason: Box<[u8]>) {
        let is_own = matches!(code, CloseCode::Idle | CloseCode::TokenUsed);
        // These codes describe local conditions and do not go on the wire.
        let code = if is_own { CloseCode::NoError } else { code };
        self.forget_outbound();
        self.phase = Phase::Closing {
            ends_at: now + self.closing_span(),
            closes: Box::new(Closes {
                close_frame: CloseFrame { code, reason },
                next_at: Some(now),
                left: CLOSES,
                arrived: 0,
                is_answer_due: false,
            }),
        };
    }

    fn forget_outbound(&mut self) {
        self.outbox.forget();
        self.sent.forget();
    }

    fn closing_span(&self) -> Duration {
        self.rtt.pto().saturating_mul(3).max(CLOSING_MIN)
    }
}

/// Tokens of `PATH_CHALLENGE` to answer, and of `PATH_RESPONSE` received in the current packet: at
/// most two of each, since after a NAT rebinding the challenges of two paths arrive on one. RFC
/// 9000, section 8.2.2, requires an answer to each; an unbounded queue was CVE-2023-49295.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tokens {
    to_return: [Option<[u8; 8]>; 2],
    returned: [Option<[u8; 8]>; 2],
}

impl Tokens {
    pub(super) const fn is_idle(&self) -> bool {
        matches!(self.to_return, [None, None])
    }

    pub(super) fn on_challenge(&mut self, token: [u8; 8]) {
        keep(&mut self.to_return, token);
    }

    /// Stores a response; a third is dropped.
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
    pub(super) fn on_packet_opened(
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
        if returned == [None; 2] && self.path.is_unchanged_by(&arrival.peer) {
            return;
        }
        let pto = self.rtt.pto();
        let packet = OpenedPacket {
            now,
            arrival,
            len,
            is_newest,
            acked: self.sent.largest_acked().map(PacketNumber::get),
            next: self.next_number().get(),
            pto,
        };
        if let Some(moved) = self.path.on_packet(&packet) {
            self.on_moved(now, &moved);
        }
        for token in returned.into_iter().flatten() {
            let answer = (arrival.peer, token);
            if let Some(moved) = self.path.on_response(now, answer, pto) {
                self.on_moved(now, &moved);
            }
        }
    }

    fn on_moved(&mut self, now: Instant, moved: &Move) {
        self.tally.address_changes = self.tally.address_changes.saturating_add(1);
        self.events.moved = Some(moved.span);
        match moved.span {
            Span::Port => {}
            Span::Host => {
                self.rtt.reset(moved.round_trip);
                self.flow.restart(now);
                self.sent.reset_rtt_sampling();
                self.sent.set_recovery(self.flow.congestion.recovery);
                self.mtu.restart();
                self.report_rate();
            }
        }
    }

    pub(super) const fn has_path_work(&self) -> bool {
        self.path.is_migrating() || !self.tokens.is_idle()
    }

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
            || self.is_key_exhausted(seals_max)
        {
            return None;
        }
        let pto = self.rtt.pto();
        if let Some((token, to)) = self.path.poll_challenge(now, generator, pto) {
            let frames = [Some(Frame::PathChallenge(token)), None];
            let kind = if self.path.is_current(&to.destination) {
                SentKind::Other
            } else {
                SentKind::OffPath
            };
            return self
                .send_frames_only(now, (generator, &frames, kind), buf)
                .then_some(to);
        }
        if self.tokens.to_return == [None; 2] || !self.path.may_send() {
            return None;
        }
        let frames =
            core::mem::take(&mut self.tokens.to_return).map(|token| token.map(Frame::PathResponse));
        let start = buf.len();
        if !self.send_frames_only(now, (generator, &frames, SentKind::Other), buf) {
            return None;
        }
        self.path.count_sent(buf.len().saturating_sub(start));
        Some(self.transmit())
    }

    /// Appends a packet that holds only `frames`. Returns whether it was sealed.
    fn send_frames_only(
        &mut self,
        now: Instant,
        (generator, frames, kind): (&mut Generator, &[Option<Frame<'_>>; 2], SentKind),
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
            kind,
            described: None,
            untracked_frames: 0,
        };
        self.on_sent(now, &sent, 0);
        true
    }
}

pub(crate) struct Keying<'a, P> {
    pub(crate) provider: &'a P,
    pub(crate) limits: &'a KeyLimits,
}

/// Our current key phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct SealingPhase {
    pub(super) generation: u64,
    /// The phase's first packet number.
    first: PacketNumber,
    since: Instant,
    is_requested: bool,
}

impl SealingPhase {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            generation: 0,
            first: PacketNumber::ZERO,
            since: now,
            is_requested: false,
        }
    }

    pub(super) const fn bit(&self) -> KeyPhase {
        KeyPhase::of(self.generation)
    }
}

impl<A: Aead> Session<A> {
    /// Requests a key update, which happens with the first packet that may carry it.
    pub(crate) fn request_key_update(&mut self, now: Instant) {
        self.sealing_phase.is_requested = true;
        if self.may_update_keys(now) {
            // Send a packet even if nothing else waits.
            if self.ping == Ping::None {
                self.ping = Ping::Due;
            }
        }
    }

    /// Starts the next phase if it is due, in response to the peer's update or as our own. Called
    /// before each packet, so a response is never later than the packet that acknowledges the
    /// update.
    pub(super) fn update_keys<P: Provider<Aead = A>>(
        &mut self,
        now: Instant,
        keying: &Keying<'_, P>,
    ) {
        let is_behind = self.sealing_phase.generation < self.opening.generation;
        let is_turn = || self.wants_key_update(now, keying.limits) && self.may_update_keys(now);
        if !is_behind && !is_turn() {
            return;
        }
        self.sealing.update(keying.provider);
        self.sealing_phase = SealingPhase {
            generation: self.sealing_phase.generation.saturating_add(1),
            first: self.next_number(),
            since: now,
            is_requested: false,
        };
    }

    fn wants_key_update(&self, now: Instant, limits: &KeyLimits) -> bool {
        let phase = &self.sealing_phase;
        phase.is_requested
            || self.sealing.sealed_in_phase() >= limits.phase_packets()
            || now.saturating_since(phase.since) >= limits.phase_span()
    }

    /// Returns whether the peer opened a packet of this phase and had time to drop the one before
    /// last.
    fn may_update_keys(&self, now: Instant) -> bool {
        self.sent.largest_acked() >= Some(self.sealing_phase.first)
            && now.saturating_since(self.sealing_phase.since) >= self.rtt.pto().saturating_mul(3)
    }

    /// Returns whether the peer started a phase without knowing that we have its previous key.
    pub(super) const fn is_out_of_turn(&self, opened: &Unsealed<'_>) -> bool {
        opened.is_early && opened.generation > self.sealing_phase.generation
    }

    /// Returns whether the peer failed to answer our key update: after acknowledging a packet of
    /// our phase, it must seal in that phase. `acked` is the largest acknowledged number before
    /// this packet.
    pub(super) fn is_answer_missing(&self, generation: u64, acked: Option<PacketNumber>) -> bool {
        let first = Some(self.sealing_phase.first);
        generation < self.sealing_phase.generation
            && acked < first
            && self.sent.largest_acked() >= first
    }
}

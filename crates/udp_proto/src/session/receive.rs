//! Packets that come in: replay check, open, frames.

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

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// It opened, and its frames were taken.
    Taken,
    /// It was accepted before, or is too old to tell.
    Replayed,
    /// It did not open.
    Forged,
    /// It was over the inbound limits, and was not looked at.
    Over,
    /// The session is over.
    Late,
    /// It came from elsewhere, as too many did.
    OffPathLimited,
}

/// Opens a packet in place and returns its plaintext.
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
    /// Takes a packet that names this session. Only one that opens changes anything.
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
            if self.opening.failed() >= keying.limits.failed_opens_max() {
                self.abort(now, CloseCode::AeadLimit);
            }
            return Opened::Forged;
        };
        // What came from elsewhere was rationed before it was opened. Now it is known to be the peer's,
        // and counts with what came from where he was.
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

    /// Returns whether a packet of `len` bytes is within the limits; ends the session where its peer
    /// does not heed them.
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

    /// Takes the plaintext of the packet that opened the session.
    pub(crate) fn take_first(&mut self, now: Instant, number: PacketNumber, plaintext: &[u8]) {
        self.tally.packets_received = self.tally.packets_received.saturating_add(1);
        self.take(now, number, plaintext);
    }

    /// Takes note of a PING. Where the peer sends them before we do, it is they that tell that nothing
    /// else is sent.
    fn on_ping(&mut self, now: Instant) {
        if !self.is_idle && now >= self.message_at + self.silence.keepalive {
            self.is_idle = true;
            self.shrink(now);
        }
    }

    /// Takes the frames of a packet that opened, and sees to it that none takes them again.
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
            // As if it were lost: what was given up counts as delivered nowhere.
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

    /// Sees to it that the application hears of messages that wait.
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
            // A pass over 2,049 slots for a few bytes: one for each packet that had to be sealed.
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
            // CONFIRM and IDENTITY were seen to when the session opened, and their repeats say
            // the same. TIME belongs to what this version does not do yet. Messages were taken.
            Frame::Ping => self.on_ping(now),
            Frame::Confirm { .. } | Frame::Identity { .. } | Frame::Time(_) | Frame::Message(_) => {
            }
        }
        Ok(())
    }
}

/// Where a session stands between open and gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Messages flow.
    Open,
    /// The application has closed it; reliable messages are still sent.
    Flushing {
        /// When waiting ends.
        until: Instant,
        close_frame: Box<CloseFrame>,
    },
    /// CLOSE is sent: three times, and again when packets still come.
    Closing {
        /// When the slot is freed.
        gone_at: Instant,
        closes: Box<Closes>,
    },
    /// The peer has closed it: nothing is sent any more.
    Draining {
        /// When the slot is freed.
        gone_at: Instant,
    },
    /// Over.
    Gone,
}

/// What a CLOSE says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CloseFrame {
    code: CloseCode,
    reason: Box<[u8]>,
}

/// The CLOSEs of a closing session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Closes {
    close_frame: CloseFrame,
    /// When the next of the three leaves; `None` after the last.
    pub(super) next_at: Option<Instant>,
    /// How many of the three are left.
    left: u8,
    /// Packets that came since; CLOSE answers the 1st, 2nd, 4th, 8th ...
    arrived: u32,
    /// One of these answers waits to be sent.
    is_answer_due: bool,
}

/// Least time a closing session stays, so that its peer hears of it; TWP/1, section 11.
const CLOSING_MIN: Duration = Duration::from_millis(200);
/// How often CLOSE is sent without being asked for.
const CLOSES: u8 = 3;
/// Longest reason text, bytes.
const REASON_MAX: usize = 128;

impl<A: Aead> Session<A> {
    /// Ends the session in order: reliable messages first, for up to `linger`.
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

    /// Ends the session at once: the peer has broken the protocol, or another session replaces it.
    pub(crate) fn abort(&mut self, now: Instant, code: CloseCode) {
        if matches!(self.phase, Phase::Open | Phase::Flushing { .. }) {
            self.end(CloseReason::Local(code), Box::default());
            self.begin_closing(now, code, Box::default());
        }
    }

    /// Ends the session at once because the application says so.
    pub(crate) fn kick(&mut self, now: Instant, reason: &[u8]) {
        if matches!(self.phase, Phase::Open | Phase::Flushing { .. }) {
            let reason = reason.get(..REASON_MAX).unwrap_or(reason);
            self.end(CloseReason::Local(CloseCode::Kicked), Box::default());
            self.begin_closing(now, CloseCode::Kicked, reason.into());
        }
    }

    /// Ends a session that never was one for the application: its peer hears why, no event tells.
    pub(crate) fn refuse(&mut self, now: Instant, code: CloseCode) {
        self.begin_closing(now, code, Box::default());
    }

    /// Takes a CLOSE of the peer.
    pub(super) fn on_close(&mut self, now: Instant, code: u16, text: &[u8]) {
        if matches!(self.phase, Phase::Open | Phase::Flushing { .. }) {
            // What came in the same packet before it can still be read.
            self.report_readable();
            let reason = CloseReason::Peer(CloseCode::from_wire(code));
            self.end(reason, text.into());
        }
        if !matches!(self.phase, Phase::Draining { .. } | Phase::Gone) {
            self.forget_outbound();
            self.phase = Phase::Draining {
                gone_at: now + self.closing_span(),
            };
        }
    }

    /// Ends the session where `datagram` says that the server has lost it; returns whether it does.
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
        self.events.is_gone = true;
        true
    }

    /// Counts a packet that opened while CLOSE is being sent.
    pub(super) fn on_packet_while_closing(&mut self) {
        if let Phase::Closing { closes, .. } = &mut self.phase {
            closes.arrived = closes.arrived.saturating_add(1);
            if closes.arrived.is_power_of_two() {
                closes.is_answer_due = true;
            }
        }
    }

    /// Moves on where time or an empty queue says so.
    pub(super) fn run_phase(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Flushing { until, close_frame } if now >= *until || self.outbox.is_empty() => {
                let code = close_frame.code;
                let reason = core::mem::take(&mut close_frame.reason);
                self.end(CloseReason::Local(code), Box::default());
                self.begin_closing(now, code, reason);
            }
            Phase::Closing { gone_at, .. } | Phase::Draining { gone_at } if now >= *gone_at => {
                self.phase = Phase::Gone;
                self.events.is_gone = true;
            }
            Phase::Open
            | Phase::Flushing { .. }
            | Phase::Closing { .. }
            | Phase::Draining { .. }
            | Phase::Gone => {}
        }
    }

    /// Tells the application, once.
    pub(super) fn end(&mut self, reason: CloseReason, text: Box<[u8]>) {
        self.outbox.abandon();
        self.events.closed = Some(Box::new((reason, text)));
    }

    /// Returns the CLOSE that is due, and notes that it was sent.
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
        // An answer goes without the reason: it is shorter than what asked for it.
        core::mem::take(&mut closes.is_answer_due).then(|| (*code, Box::default()))
    }

    fn begin_closing(&mut self, now: Instant, code: CloseCode, reason: Box<[u8]>) {
        let is_own = matches!(code, CloseCode::Idle | CloseCode::TokenUsed);
        // These say what only we can know.
        let code = if is_own { CloseCode::NoError } else { code };
        self.forget_outbound();
        self.phase = Phase::Closing {
            gone_at: now + self.closing_span(),
            closes: Box::new(Closes {
                close_frame: CloseFrame { code, reason },
                next_at: Some(now),
                left: CLOSES,
                arrived: 0,
                is_answer_due: false,
            }),
        };
    }

    /// Gives back what messages and packets of ours hold: nothing of it is sent again. What has come
    /// can still be read.
    fn forget_outbound(&mut self) {
        self.outbox.forget();
        self.sent.forget();
    }

    fn closing_span(&self) -> Duration {
        self.rtt.pto().saturating_mul(3).max(CLOSING_MIN)
    }
}

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
        if returned == [None; 2] && self.path.is_settled_at(&arrival.peer) {
            return;
        }
        let pto = self.rtt.pto();
        let heard = OpenedPacket {
            now,
            arrival,
            len,
            is_newest,
            acked: self.sent.largest_acked().map(PacketNumber::get),
            next: self.next_number().get(),
            pto,
        };
        if let Some(moved) = self.path.on_packet(&heard) {
            self.on_moved(now, &moved);
        }
        for token in returned.into_iter().flatten() {
            let answer = (arrival.peer, token);
            if let Some(moved) = self.path.on_response(now, answer, pto) {
                self.on_moved(now, &moved);
            }
        }
    }

    /// Begins anew what was measured of the path, where it is another one.
    fn on_moved(&mut self, now: Instant, moved: &Move) {
        self.tally.address_changes = self.tally.address_changes.saturating_add(1);
        self.events.moved = Some(moved.span);
        match moved.span {
            Span::Port => {}
            Span::Host => {
                self.rtt.reset(moved.round_trip);
                self.flow.restart(now);
                self.sent.reset_rtt_sampling();
                self.sent.set_recovery(self.flow.recovery());
                self.mtu.restart();
                self.report_rate();
            }
        }
    }

    /// Returns whether there may be something for [`poll_path`](Self::poll_path).
    pub(super) const fn has_path_work(&self) -> bool {
        self.path.is_migrating() || !self.tokens.is_idle()
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
                .send_apart(now, (generator, &frames, kind), buf)
                .then_some(to);
        }
        if self.tokens.to_return == [None; 2] || !self.path.may_send() {
            return None;
        }
        let frames =
            core::mem::take(&mut self.tokens.to_return).map(|token| token.map(Frame::PathResponse));
        let start = buf.len();
        if !self.send_apart(now, (generator, &frames, SentKind::Other), buf) {
            return None;
        }
        self.path.count_sent(buf.len().saturating_sub(start));
        Some(self.transmit())
    }

    /// Appends a packet of nothing but `frames`; returns whether it could be sealed.
    fn send_apart(
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

/// What a session needs of its endpoint to change keys.
pub(crate) struct Keying<'a, P> {
    pub(crate) provider: &'a P,
    pub(crate) limits: &'a KeyLimits,
}

/// The phase that we seal in.
#[derive(Clone, Copy, Debug)]
pub(super) struct SealingPhase {
    /// How often we have changed our key.
    generation: u64,
    /// Number of the phase's first packet.
    first: PacketNumber,
    /// When it began.
    since: Instant,
    /// The application wants the next one.
    is_asked: bool,
}

impl SealingPhase {
    /// Phase 0.
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            generation: 0,
            first: PacketNumber::ZERO,
            since: now,
            is_asked: false,
        }
    }

    /// Returns how often we have changed our key.
    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the bit that packets bear.
    pub(super) const fn bit(&self) -> KeyPhase {
        KeyPhase::of(self.generation)
    }
}

impl<A: Aead> Session<A> {
    /// Asks for a new key. It comes with the first packet that may bear it.
    pub(crate) fn ask_for_keys(&mut self, now: Instant) {
        self.sealing_phase.is_asked = true;
        if self.may_change_keys(now) {
            // At once, whether or not there is anything to say.
            if self.ping == Ping::None {
                self.ping = Ping::Due;
            }
        }
    }

    /// Begins the next phase where it is due: as an answer to the peer's, or of our own.
    ///
    /// Called before each packet, so an answer is never later than the first packet that
    /// acknowledges what it answers.
    pub(super) fn change_keys<P: Provider<Aead = A>>(
        &mut self,
        now: Instant,
        keying: &Keying<'_, P>,
    ) {
        let is_behind = self.sealing_phase.generation < self.opening.generation();
        let is_turn = || self.wants_keys(now, keying.limits) && self.may_change_keys(now);
        if !is_behind && !is_turn() {
            return;
        }
        self.sealing.update(keying.provider);
        self.sealing_phase = SealingPhase {
            generation: self.sealing_phase.generation.saturating_add(1),
            first: self.next_number(),
            since: now,
            is_asked: false,
        };
    }

    fn wants_keys(&self, now: Instant, limits: &KeyLimits) -> bool {
        let phase = &self.sealing_phase;
        phase.is_asked
            || self.sealing.sealed_in_phase() >= limits.phase_packets()
            || now.saturating_since(phase.since) >= limits.phase_span()
    }

    /// Returns whether the peer has opened a packet of this phase, and has had time to forget the
    /// phase before: it holds two at a time.
    fn may_change_keys(&self, now: Instant) -> bool {
        self.sent.largest_acked() >= Some(self.sealing_phase.first)
            && now.saturating_since(self.sealing_phase.since) >= self.rtt.pto().saturating_mul(3)
    }

    /// Returns whether the peer began a phase of its own accord, not as an answer, and cannot know
    /// that we have the key of the one before.
    pub(super) const fn is_out_of_turn(&self, opened: &Unsealed<'_>) -> bool {
        opened.is_early && opened.generation > self.sealing_phase.generation
    }

    /// Returns whether the peer owes us its answer: who acknowledges a packet of our phase has its
    /// key, and seals in that phase or a later one. `acked` is what was acknowledged before the
    /// packet of phase `generation` was taken.
    pub(super) fn is_answer_missing(&self, generation: u64, acked: Option<PacketNumber>) -> bool {
        let first = Some(self.sealing_phase.first);
        generation < self.sealing_phase.generation
            && acked < first
            && self.sent.largest_acked() >= first
    }
}

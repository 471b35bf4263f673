//! Packets that come in: replay check, open, frames.

use core::net::SocketAddr;

use crypto::{Aead, OpeningKey, Provider};
use wire::{Arrival, Instant};

use super::close::Phase;
use super::gate::Entry;
use super::opening::Sealed;
use super::{Keying, Session};
use crate::error::CloseCode;
use crate::frame::{AckFrame, Elicits, Frame, FrameError, FramesLeft};
use crate::inbox::Reception;
use crate::nanos::Nanos;
use crate::packet::{Header, PacketNumber, TAG_LEN};
use crate::replay::Verdict;
use crate::sent::{AckUnsent, ArrivedAck, Outcome};

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
    Astray,
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
            if !self.lets_in(now, len) {
                return Opened::Over;
            }
        } else if !self.path.admits(now, arrival.peer) {
            return Opened::Astray;
        }
        let expected = self.received.expected();
        let number = expected.widen(header.number);
        if self.received.check(number) != Verdict::Fresh {
            self.gate.on_foreign();
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
            self.gate.on_forged(now);
            if self.opening.failed() >= keying.limits.failed_opens_max() {
                self.abort(now, CloseCode::AeadLimit);
            }
            return Opened::Forged;
        };
        // What came from elsewhere was rationed before it was opened. Now it is known to be the peer's,
        // and counts with what came from where he was.
        if !self.path.is_current(&arrival.peer) && self.gate.admit(now, len) != Entry::Open {
            self.tally.packets_over_limit = self.tally.packets_over_limit.saturating_add(1);
            return Opened::Over;
        }
        self.gate.on_opened(now, len);
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
        self.on_heard(now, arrival, (len, number >= expected));
        if self.is_resting {
            self.rest(now);
        }
        Opened::Taken
    }

    /// Returns whether a packet of `len` bytes is within the limits; ends the session where its peer
    /// does not heed them.
    fn lets_in(&mut self, now: Instant, len: usize) -> bool {
        let entry = self.gate.admit(now, len);
        if entry == Entry::Open {
            return true;
        }
        self.tally.packets_over_limit = self.tally.packets_over_limit.saturating_add(1);
        if entry == Entry::Flood {
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
        if !self.is_resting && now >= self.message_at + self.silence.keepalive {
            self.is_resting = true;
            self.shrink(now);
        }
    }

    /// Takes the frames of a packet that opened, and sees to it that none takes them again.
    fn take(&mut self, now: Instant, number: PacketNumber, plaintext: &[u8]) {
        self.heard_at = now;
        self.deaf_for = Nanos::ZERO;
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
        if self.news.closed.is_none() {
            self.tell_readable();
        }
        self.run_phase(now);
    }

    /// Sees to it that the application hears of messages that wait.
    pub(super) fn tell_readable(&mut self) {
        if !self.inbox.is_empty() && !self.is_readable_told {
            self.is_readable_told = true;
            self.news.is_readable = true;
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
        self.gate.on_frames(now, frames.taken());
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
                self.is_resting = false;
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
        let (sent, rtt, mut fates) = self.parts(now);
        let summary = sent
            .on_ack(arrived, rtt, |content, outcome| match outcome {
                Outcome::Lost => fates.on_lost(content),
                Outcome::Acked => fates.on_acknowledged(content),
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

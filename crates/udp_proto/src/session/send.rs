//! Sending: which frames, in which order, sealed in place.

use core::net::SocketAddr;
use core::time::Duration;

use crypto::{Aead, Provider, Role, SealError};
use wire::{Generator, Instant, Transmit};

use super::flow::SendContext;
use super::mtu::MtuProbing;
use super::path::CHALLENGE_LEN_MAX;
use super::receive::Phase;
use super::{AckDeferral, Confirm, Content, Keying, Ping, Sending, Session, SessionEvents};
use crate::channel::FRAMES_MAX;
use crate::error::CloseCode;
use crate::fragment::FRAGMENT_LEN;
use crate::frame::{Elicits, Frame};
use crate::handshake::{params, reset};
use crate::inbox::Inbox;
use crate::outbox::{End, FillPolicy, Outbox, Room};
use crate::packet::{Form, Header, PLAINTEXT_LEN_MIN, PacketNumber, TAG_LEN};
use crate::received::{Described, Written};
use crate::sent::{SentKind, SentPacket};

/// Seals reserved for CLOSE when a key nears its limit.
const SEALS_RESERVED: u64 = 64;
const CONTENTS_MAX: usize = FRAMES_MAX + 2;
/// Interval between packets padded to provoke a stateless reset.
const PADDED_SPAN: Duration = Duration::from_millis(200);

impl<A: Aead> Session<A> {
    pub(crate) fn poll_transmit<P: Provider<Aead = A>>(
        &mut self,
        now: Instant,
        generator: &mut Generator,
        buf: &mut Vec<u8>,
        keying: &Keying<'_, P>,
    ) -> Option<Transmit<SocketAddr>> {
        self.run_phase(now);
        let start = buf.len();
        if self.has_path_work() {
            // Also here, because a busy session never becomes idle, and finished migrations cost
            // each packet.
            self.path.shrink(now);
        }
        if self.has_path_work() {
            self.sealing.expand_key(keying.provider);
        }
        if self.has_path_work()
            && let Some(transmit) = self.poll_path(now, (generator, keying.limits.seals_max()), buf)
        {
            return Some(transmit);
        }
        // An amplification-limited path waits for the peer's next packet.
        if !self.path.may_send() || !self.poll_any(now, generator, buf, keying) {
            return None;
        }
        let datagram = buf.get(start..).unwrap_or_default();
        if self.path.on_sent(now, datagram) {
            // The acknowledgement of the copy may arrive first.
            self.sent.reset_rtt_sampling();
        }
        Some(self.transmit())
    }

    fn poll_any<P: Provider<Aead = A>>(
        &mut self,
        now: Instant,
        generator: &mut Generator,
        buf: &mut Vec<u8>,
        keying: &Keying<'_, P>,
    ) -> bool {
        if matches!(self.phase, Phase::Open | Phase::Flushing { .. }) {
            self.update_keys(now, keying);
            if self.is_key_exhausted(keying.limits.seals_max()) {
                self.abort(now, CloseCode::AeadLimit);
            } else if self.poll_packet(now, generator, buf, keying).is_some() {
                return true;
            }
        }
        let Some((code, reason)) = self.take_close(now) else {
            return false;
        };
        self.sealing.expand_key(keying.provider);
        let frame = Frame::Close {
            code: code.to_wire(),
            reason: &reason,
        };
        let packet = self.begin(buf, self.mtu.get());
        frame.encode(buf);
        self.finish(buf, &packet).is_some()
    }

    fn poll_packet<P: Provider<Aead = A>>(
        &mut self,
        now: Instant,
        generator: &mut Generator,
        buf: &mut Vec<u8>,
        keying: &Keying<'_, P>,
    ) -> Option<()> {
        if self.flow.detect_silence(now, &self.rtt) {
            self.mtu.on_black_hole(now);
        }
        let context = SendContext {
            now,
            rtt: &self.rtt,
            in_flight: self.sent.in_flight_bytes(),
            len: self.mtu.get(),
        };
        let begun = self.outbox.begun(self.flow.whole_max());
        let mut open = self.flow.open_channels(&context, begun);
        let mut begin_max = self.flow.begin_max(now, begun.1);
        if self.ping != Ping::None {
            // Probes ignore rates.
            (open, begin_max) = (u32::MAX, usize::MAX);
        }
        self.outbox.set_begin_max(begin_max);
        let plan = Plan {
            fill_policy: self.fill_policy(),
            open,
            has_messages: self.has_messages(open),
        };
        if !plan.has_messages && !self.has_to_report(now) {
            self.wait_for_rates(now, open);
            self.compact(now);
            return None;
        }
        self.sealing.expand_key(keying.provider);
        self.skip_number(generator)?;
        if self.mtu.is_due() && self.poll_mtu_probe(now, buf).is_some() {
            return Some(());
        }
        let packet = self.begin(buf, self.mtu.get());
        let body = self.write_frames(now, (&packet, &plan), buf);
        if buf.len() == packet.body {
            // The frame that required a packet waits for room in the record of packets in flight.
            buf.truncate(packet.start);
            return None;
        }
        let Some(number) = self.finish(buf, &packet) else {
            self.sent.discard();
            self.abort(now, CloseCode::AeadLimit);
            return None;
        };
        let sent = SentPacket {
            number,
            at: now,
            len: u16::try_from(buf.len().saturating_sub(packet.start)).unwrap_or(u16::MAX),
            elicits: body.elicits,
            kind: body.messages.kind,
            described: body.described,
            untracked_frames: body.messages.untracked_frames,
        };
        if body.messages.frames > 0 {
            self.is_idle = false;
            self.message_at = now;
        }
        self.on_sent(now, &sent, body.messages.frames);
        // Up to 20 % jitter, so that many sessions do not send at once.
        let part = generator.between(800, 1_000);
        self.keepalive_at = now
            + self
                .idle_timeouts
                .keepalive
                .saturating_mul(part)
                .divided(1_000);
        Some(())
    }

    /// Returns whether nothing else can be sent now, and if so releases idle memory. `false` may be
    /// wrong.
    pub(crate) fn compact_if_idle(&mut self, now: Instant) -> bool {
        let compact_if_idle = self.is_open()
            && !self.outbox.may_have_work()
            && !self.has_path_work()
            && !self.has_to_report(now);
        if compact_if_idle {
            self.report_rate();
            self.flow.on_idle();
            self.compact(now);
        }
        compact_if_idle
    }

    /// Occasionally skips a packet number; `None` if the key has no more.
    pub(super) fn skip_number(&mut self, generator: &mut Generator) -> Option<()> {
        if self.skips.skips(self.next_number(), generator) {
            // A peer that acknowledges it acknowledges what it never received.
            self.sealing.skip().ok()?;
            self.sent.skip();
        }
        Some(())
    }

    pub(super) fn on_sent(&mut self, now: Instant, packet: &SentPacket, frames: usize) {
        let kind = packet.kind;
        self.sent.on_sent(packet);
        let context = SendContext {
            now,
            rtt: &self.rtt,
            in_flight: self.sent.in_flight_bytes(),
            len: packet.len,
        };
        self.flow.on_sent(&context, kind, frames);
        self.tally.packets_sent = self.tally.packets_sent.saturating_add(1);
        self.tally.bytes_sent = self.tally.bytes_sent.saturating_add(u64::from(packet.len));
        self.keepalive_at = now + self.idle_timeouts.keepalive;
    }

    /// Computes when the channels outside `open` may send, if they wait for a rate or the window.
    fn wait_for_rates(&mut self, now: Instant, open: u32) {
        self.report_rate();
        if !self.outbox.may_have_work() {
            self.flow.on_idle();
            return;
        }
        if !self.has_room_in_flight() {
            return;
        }
        let (fill_policy, bulk) = (self.fill_policy(), self.flow.bulk_channels);
        let waiting = [bulk & !open, !bulk & !open]
            .into_iter()
            .filter(|channels| *channels != 0 && self.outbox.has_work_for(fill_policy, *channels))
            .fold(0, |waiting, channels| waiting | channels);
        let context = SendContext {
            now,
            rtt: &self.rtt,
            in_flight: self.sent.in_flight_bytes(),
            len: self.mtu.get(),
        };
        let (_, left) = self.outbox.begun(self.flow.whole_max());
        let to_begin = self.outbox.held_back(open & !bulk);
        let to_begin = to_begin.map(|bytes| bytes.saturating_add(left));
        self.flow.on_waiting(&context, waiting, to_begin);
    }

    fn has_messages(&self, open: u32) -> bool {
        self.outbox.may_have_work()
            && self.ping != Ping::Alone
            && (self.ping == Ping::Due || !self.sent.is_full())
            && self.has_room_on_record()
            && self.outbox.has_work_for(self.fill_policy(), open)
    }

    fn has_to_report(&self, now: Instant) -> bool {
        self.received.ack_due(now)
            || matches!(self.confirm, Some((_, Sending::Due)))
            || self.ping != Ping::None
            || self.keepalive_at <= now
            || self.inbox.window_to_send().is_some()
            || (self.mtu.is_due() && self.confirm.is_none())
    }

    /// Reserves part of the room in flight for reliable messages.
    const fn fill_policy(&self) -> FillPolicy {
        if self.sent.is_full_for_unreliable() {
            FillPolicy::ReliableFirst
        } else {
            FillPolicy::Any
        }
    }

    fn has_room_in_flight(&self) -> bool {
        !self.sent.is_full() && self.has_room_on_record()
    }

    const fn has_room_on_record(&self) -> bool {
        self.sent.contents_room() >= CONTENTS_MAX
    }

    /// Writes the frames of one packet: ACK first, then control frames, then messages.
    fn write_frames(
        &mut self,
        now: Instant,
        (packet, plan): (&Packet, &Plan),
        buf: &mut Vec<u8>,
    ) -> Body {
        let Plan {
            fill_policy,
            open,
            has_messages,
        } = *plan;
        let room = if has_messages {
            self.ack_room(now, packet.room)
        } else {
            packet.room
        };
        let is_padded = self.is_asking_for_a_reset(now);
        let described = self.write_ack(now, room, buf);
        let needs_ping = self.ping != Ping::None || self.keepalive_at <= now;
        let mut elicits = Elicits::Nothing;
        let mut messages = Messages::NONE;
        if self.write_window(buf) | self.write_confirm(buf) {
            elicits = Elicits::Ack;
        }
        if has_messages {
            let end = if is_padded { End::Frames } else { End::Packet };
            messages = self.write_messages(now, (packet, end, fill_policy, open), buf);
            if messages.frames > 0 {
                elicits = Elicits::Ack;
            }
            self.ack_deferral = match (messages.frames, self.ack_deferral) {
                (1.., AckDeferral::None) => AckDeferral::None,
                _ if !self.outbox.has_work_for(fill_policy, open) => AckDeferral::None,
                (0, _) => AckDeferral::NextPacket,
                // Later packets of this drain would have no room either.
                (_, AckDeferral::UntilDue | AckDeferral::NextPacket) => AckDeferral::UntilDue,
            };
        }
        // The last message may have no length field, so a PING is only written without messages.
        let asks = described.is_some()
            && elicits == Elicits::Nothing
            && self.received.asks_for_an_answer();
        if elicits == Elicits::Nothing && (needs_ping || asks) {
            self.write_ping(packet.start, buf);
            elicits = Elicits::Ack;
        }
        if is_padded && buf.len() > packet.body {
            let least = packet
                .start
                .saturating_add(reset::TRIGGER_LEN_MIN - TAG_LEN);
            buf.resize(buf.len().max(least), 0);
            self.padded_at = now;
        }
        self.ping = Ping::None;
        Body {
            elicits,
            described,
            messages,
        }
    }

    /// Returns whether the next packet is padded so that a server that lost the session can answer
    /// with a reset: a probe, or without acknowledgements one packet in 200 ms.
    fn is_asking_for_a_reset(&self, now: Instant) -> bool {
        let is_due = || self.flow.breaker.is_silent && now >= self.padded_at + PADDED_SPAN;
        self.is_resettable() && (self.ping != Ping::None || is_due())
    }

    fn write_messages(
        &mut self,
        now: Instant,
        (packet, end, fill_policy, open): (&Packet, End, FillPolicy, u32),
        buf: &mut Vec<u8>,
    ) -> Messages {
        let room = Room {
            bytes: packet.end().saturating_sub(buf.len()),
            end,
            fill_policy,
            channels: open,
        };
        let sent = &mut self.sent;
        let mut written = 0;
        let mut untracked_frames = 0_u8;
        let mut is_retransmit = false;
        let frames = self.outbox.fill(now, room, buf, &mut |frame| {
            is_retransmit |= frame.is_retransmit;
            written |= 1_u32.wrapping_shl(frame.content.channel().0.into());
            if !frame.is_tracked {
                untracked_frames = untracked_frames.saturating_add(1);
                return;
            }
            // `has_room_on_record` was checked.
            if sent.push(Content::Message(frame.content)).is_err() {
                debug_assert!(false, "no room for what a packet holds");
            }
        });
        let kind = if frames == 0 {
            SentKind::Other
        } else if written & self.flow.bulk_channels != 0 {
            SentKind::Bulk
        } else if written & self.reliable_channels != 0 {
            SentKind::Other
        } else {
            // Untracked frames are not recorded.
            let tracked =
                u8::try_from(frames.saturating_sub(untracked_frames.into())).unwrap_or(u8::MAX);
            if is_retransmit {
                SentKind::Retransmit(tracked)
            } else {
                SentKind::Unreliable(tracked)
            }
        };
        Messages {
            frames,
            kind,
            untracked_frames,
        }
    }

    pub(super) fn begin(&self, buf: &mut Vec<u8>, mtu: u16) -> Packet {
        let start = buf.len();
        let number = self.next_number();
        let form = number.form_after(self.sent.form_reference());
        let header = Header {
            key_phase: self.sealing_phase.bit(),
            destination: self.peer_cid,
            number: number.truncate(form.unwrap_or(Form::Four)),
        };
        header.encode(buf);
        let body = buf.len();
        Packet {
            start,
            body,
            room: usize::from(mtu)
                .saturating_sub(body.saturating_sub(start).saturating_add(TAG_LEN)),
        }
    }

    /// Pads and seals what was written since `begin`; on failure, truncates `buf` to the packet's
    /// start.
    pub(super) fn finish(&mut self, buf: &mut Vec<u8>, packet: &Packet) -> Option<PacketNumber> {
        // A last message without a length is never this short, so padding is not read as data.
        let shortest = packet.body.saturating_add(PLAINTEXT_LEN_MIN);
        if buf.len() < shortest {
            buf.resize(shortest, 0);
        }
        let end = buf.len();
        buf.resize(end.saturating_add(TAG_LEN), 0);
        let sealed = self.seal(buf, packet, end);
        if let Some(Ok(number)) = sealed {
            PacketNumber::new(number)
        } else {
            buf.truncate(packet.start);
            None
        }
    }

    fn seal(
        &mut self,
        buf: &mut [u8],
        packet: &Packet,
        end: usize,
    ) -> Option<Result<u64, SealError>> {
        let (compact, tag) = buf.split_at_mut_checked(end)?;
        let (compact, body) = compact.split_at_mut_checked(packet.body)?;
        let header = compact.get(packet.start..)?;
        Some(self.sealing.seal(header, body, tag.first_chunk_mut()?))
    }

    pub(super) const fn transmit(&self) -> Transmit<SocketAddr> {
        self.path.transmit()
    }

    pub(super) fn next_number(&self) -> PacketNumber {
        PacketNumber::new(self.sealing.next_number()).unwrap_or(PacketNumber::MAX)
    }

    pub(super) fn is_key_exhausted(&self, seals_max: u64) -> bool {
        self.sealing
            .sealed_in_phase()
            .saturating_add(SEALS_RESERVED)
            >= seals_max
            || self
                .next_number()
                .form_after(self.sent.form_reference())
                .is_none()
    }

    /// Returns how many bytes of `room` an ACK may use in a packet with messages. The peer counts
    /// what a truncated ACK omits as lost. So an ACK that is due is sent whole, unless it would
    /// displace messages twice in a row; one that is not due, if it leaves room for a fragment.
    pub(super) fn ack_room(&self, now: Instant, room: usize) -> usize {
        let remaining = room.saturating_sub(FRAGMENT_LEN + FRAGMENT_HEADER_LEN);
        match (self.received.ack_due(now), self.ack_deferral) {
            (true, AckDeferral::None | AckDeferral::UntilDue) => room,
            (true, AckDeferral::NextPacket) => remaining,
            (false, AckDeferral::None) if self.received.fits(remaining) => remaining,
            (false, _) => 0,
        }
    }

    pub(super) fn write_ack(
        &mut self,
        now: Instant,
        room: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Described> {
        if !self.received.wants_ack() {
            return None;
        }
        let written = self.received.write_ack(now, room, buf)?;
        self.opening.on_ack_written();
        match written {
            Written::Whole(whole) => Some(whole),
            Written::Cut => None,
        }
    }

    /// Writes a PING. A client pads it to the size of a challenge: after a migration the server may
    /// send it no more bytes than it received.
    pub(super) fn write_ping(&self, start: usize, buf: &mut Vec<u8>) {
        Frame::Ping.encode(buf);
        if self.role == Role::Dialler {
            let least = start.saturating_add(CHALLENGE_LEN_MAX.saturating_sub(TAG_LEN));
            buf.resize(buf.len().max(least), 0);
        }
    }

    /// Writes WINDOW if due. Returns whether it did.
    pub(super) fn write_window(&mut self, buf: &mut Vec<u8>) -> bool {
        let Some(credit) = self.inbox.window_to_send() else {
            return false;
        };
        if self.sent.push(Content::Window(credit)).is_err() {
            return false;
        }
        Frame::Window(credit).encode(buf);
        self.inbox.on_window_sent(credit);
        true
    }

    /// Writes CONFIRM, and IDENTITY in peer mode, until acknowledged. Returns whether it did.
    pub(super) fn write_confirm(&mut self, buf: &mut Vec<u8>) -> bool {
        // Also in every fourth packet, even if a copy is in flight. If the packets with CONFIRM
        // were lost, the peer ignores all others, and steady sending would postpone the probe that
        // repeats it.
        let is_turn = self.next_number().get().is_multiple_of(4);
        let Some((confirm, sending)) = &mut self.confirm else {
            return false;
        };
        let is_deferred = self.ack_deferral != AckDeferral::None && *sending == Sending::InFlight;
        let yields = is_deferred && !is_turn;
        if yields || self.sent.push(Content::Confirm).is_err() {
            return false;
        }
        let (body, identity) = &**confirm;
        if let Some((params, digest)) = body.split_first_chunk::<{ params::LEN }>()
            && let Some(channel_digest) = digest.first_chunk()
        {
            Frame::Confirm {
                params,
                channel_digest,
            }
            .encode(buf);
        }
        if let Some(identity) = identity
            && let Some((public_key, signature)) = identity.split_first_chunk()
            && let Some(signature) = signature.first_chunk()
        {
            Frame::Identity {
                public_key,
                signature,
            }
            .encode(buf);
        }
        *sending = Sending::InFlight;
        true
    }
}

/// Decided before a packet is written.
struct Plan {
    fill_policy: FillPolicy,
    /// Channels that may send: bit n is channel n.
    open: u32,
    has_messages: bool,
}

struct Body {
    elicits: Elicits,
    described: Option<Described>,
    messages: Messages,
}

struct Messages {
    frames: usize,
    kind: SentKind,
    untracked_frames: u8,
}

impl Messages {
    const NONE: Self = Self {
        frames: 0,
        kind: SentKind::Other,
        untracked_frames: 0,
    };
}

/// Offsets of a packet in the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    /// Offset of its first byte.
    start: usize,
    /// Offset of its plaintext.
    body: usize,
    /// Bytes of plaintext that fit.
    room: usize,
}

impl Packet {
    pub(super) const fn end(&self) -> usize {
        self.body.saturating_add(self.room)
    }
}

/// Header of a fragment in a packet: type, message id, index, count, length.
const FRAGMENT_HEADER_LEN: usize = 9;

/// Dispatches acknowledgements and losses to the components that wrote the frames.
pub(super) struct AckDispatch<'a> {
    pub(super) now: Instant,
    pub(super) outbox: &'a mut Outbox,
    pub(super) inbox: &'a mut Inbox,
    pub(super) confirm: &'a mut Option<(Box<Confirm>, Sending)>,
    pub(super) mtu: &'a mut MtuProbing,
    pub(super) events: &'a mut SessionEvents,
}

impl AckDispatch<'_> {
    pub(super) fn on_lost(&mut self, content: Content) {
        match content {
            Content::Message(message) => {
                self.outbox.on_lost(self.now, message);
            }
            Content::Confirm => {
                if let Some((_, sending)) = self.confirm {
                    *sending = Sending::Due;
                }
            }
            Content::Window(credit) => self.inbox.on_window_lost(credit),
            Content::MtuProbe(mtu) => {
                if let Some(outcome) = self.mtu.on_lost(self.now, mtu) {
                    self.events.mtu_checked = Some(outcome);
                }
            }
        }
    }

    pub(super) fn on_acknowledged(&mut self, content: Content) {
        match content {
            Content::Message(message) => self.outbox.on_acked(message),
            Content::Window(credit) => self.inbox.on_window_acked(credit),
            Content::Confirm => *self.confirm = None,
            Content::MtuProbe(mtu) => {
                if let Some(outcome) = self.mtu.on_acknowledged(self.now, mtu) {
                    self.events.mtu_checked = Some(outcome);
                }
            }
        }
    }
}

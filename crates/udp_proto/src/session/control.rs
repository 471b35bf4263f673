//! Frames that no message asks for: acknowledgements, credit, and the client's confirmation.

use crypto::{Aead, Role};
use wire::Instant;

use super::path::CHALLENGE_LEN_MAX;
use super::{Content, Crowding, Sending, Session};
use crate::fragment::FRAGMENT_LEN;
use crate::frame::Frame;
use crate::handshake::params;
use crate::packet::TAG_LEN;
use crate::received::{Described, Written};

/// Header of a fragment in a packet: type, message id, index, count, length.
const FRAGMENT_HEADER_LEN: usize = 9;

impl<A: Aead> Session<A> {
    /// What an ACK may take of the `room` of a packet in which messages want to leave, bytes.
    ///
    /// What a cut ACK leaves out counts as lost at the peer. So one that is due leaves whole, and
    /// is cut only where it would keep messages out of two packets in a row; and one that is not
    /// rides along only where it leaves room for a fragment.
    pub(super) fn ack_room(&self, now: Instant, room: usize) -> usize {
        let beside = room.saturating_sub(FRAGMENT_LEN + FRAGMENT_HEADER_LEN);
        match (self.received.ack_due(now), self.crowding) {
            (true, Crowding::None | Crowding::Before) => room,
            (true, Crowding::LastPacket) => beside,
            (false, Crowding::None) if self.received.fits(beside) => beside,
            (false, _) => 0,
        }
    }

    /// Writes an ACK of up to `room` bytes where one waits; returns what a whole one says.
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

    /// Writes a PING into the packet that begins at `start`. The client's is as long as a challenge: where
    /// it has moved, it gets no more bytes there than it sent, and one packet is to be enough.
    pub(super) fn write_ping(&self, start: usize, buf: &mut Vec<u8>) {
        Frame::Ping.encode(buf);
        if self.role == Role::Dialler {
            let least = start.saturating_add(CHALLENGE_LEN_MAX.saturating_sub(TAG_LEN));
            buf.resize(buf.len().max(least), 0);
        }
    }

    /// Writes the credit that the peer is to be told of; returns whether there is any.
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

    /// Writes CONFIRM, and IDENTITY in peer mode, until they are acknowledged; returns whether it
    /// did.
    pub(super) fn write_confirm(&mut self, buf: &mut Vec<u8>) -> bool {
        // In each fourth packet whatever waits: where those with it were lost, nothing that the others
        // hold is heard, and steady sending puts the probe off that would repeat it.
        let is_turn = self.next_number().get().is_multiple_of(4);
        let Some((confirm, sending)) = &mut self.confirm else {
            return false;
        };
        let is_crowded = self.crowding != Crowding::None && *sending == Sending::InFlight;
        let yields = is_crowded && !is_turn;
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

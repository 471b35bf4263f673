//! What goes into and comes out of the record of packets sent.

use core::fmt;
use core::time::Duration;

use wire::Instant;

use crate::frame::{AckFrame, Elicits};
use crate::packet::PacketNumber;
use crate::received::Described;

/// A packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// Its number, [`super::SentPackets::next_number`] or above it; numbers passed over count as
    /// skipped.
    pub number: PacketNumber,
    /// When it left.
    pub at: Instant,
    /// Its length, bytes of UDP payload.
    pub len: u16,
    /// Whether it asks for an acknowledgement; one that does not is never lost.
    pub elicits: Elicits,
    /// What sort of messages it holds.
    pub cargo: Cargo,
    /// The ACK it carried, where that was whole.
    pub described: Option<Described>,
    /// Frames in it of which nobody wants to hear; their loss is counted.
    pub untold: u8,
}

/// What sort of messages a packet holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cargo {
    /// So many frames of unreliable ones, at least one, and no other.
    Unreliable(u8),
    /// A reliable one of a bulk channel, whatever else it holds.
    Bulk,
    /// Padding that asks what size the path carries; its loss says nothing about congestion.
    Probe,
    /// None; it went to another address than the session's, and says nothing about the path there.
    Elsewhere,
    /// So many parts of one unreliable message that is split, sent again, and nothing else. A peer who has
    /// given the message up never acknowledges them: their loss says nothing about the path.
    Again(u8),
    /// Another reliable one, or none.
    Other,
}

impl Cargo {
    /// Returns whether the loss of such a packet may come from congestion of the path.
    pub(super) const fn says_of_path(self) -> bool {
        !matches!(self, Self::Probe | Self::Elsewhere | Self::Again(_))
    }

    pub(super) const fn is_again(self) -> bool {
        matches!(self, Self::Again(_))
    }
}

/// An ACK that arrived.
#[derive(Clone, Copy, Debug)]
pub struct ArrivedAck<'a> {
    /// When it arrived.
    pub at: Instant,
    /// The packet that carried it.
    pub packet: PacketNumber,
    /// What it says.
    pub frame: AckFrame<'a>,
}

/// What became of something sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It arrived.
    Acked,
    /// It counts as lost. Should it arrive after all, [`Acked`](Self::Acked) may follow.
    Lost,
}

/// What one call learnt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Eliciting packets newly acknowledged.
    pub acked_packets: u32,
    /// Packets newly counted as lost.
    pub lost_packets: u32,
    /// Of these, how many of [`Cargo::Again`].
    pub lost_again: u32,
    /// Of the newly lost ones, how many belong to the newest gap, those of [`Cargo::Again`] left out.
    pub lost_in_gap: u32,
    /// The gap that ended: when the packets on either side of it were sent, which arrived.
    pub gap: Option<(Instant, Instant)>,
    /// Packets acknowledged that had been counted as lost, those of [`Cargo::Again`] left out.
    pub spurious_packets: u32,
    /// The newest ACK of ours that the peer now has, for [`crate::received::Received`].
    pub described: Option<Described>,
    /// The round trip measured.
    pub rtt_sample: Option<Duration>,
    /// Bytes of packets newly acknowledged that were sent after
    /// [`super::SentPackets::set_recovery`]'s time.
    pub acked_bytes: u32,
    /// When the newest of the packets newly counted as lost was sent, those of [`Cargo::Probe`],
    /// [`Cargo::Elsewhere`] and [`Cargo::Again`] left out.
    pub lost_sent_at: Option<Instant>,
    /// The same of those in the gap, which [`Self::lost_sent_at`] leaves out.
    pub gap_lost_sent_at: Option<Instant>,
    /// Of those newly acknowledged, how many were longer than every path must carry, probes not
    /// counted.
    pub long_acked: u32,
    /// The same of those newly counted as lost.
    pub long_lost: u32,
    /// The [`SentPacket::untold`] of those newly counted as lost, all together.
    pub untold_lost: u32,
    /// Slots looked at; at most 2,049.
    pub slots_visited: u32,
}

/// What a timeout asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Nothing was due, or packets were counted as lost.
    Checked(Summary),
    /// Up to 2 packets shall leave: the oldest unacknowledged reliable data, or a PING. They may
    /// go over [`super::SentPackets::IN_FLIGHT_MAX`].
    Probe,
}

/// An ACK of a packet that was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckUnsent;

/// No room for further contents; the packet under way must leave without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentsFull<C>(pub C);

impl fmt::Display for AckUnsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("acknowledgement of a packet that was never sent")
    }
}

impl core::error::Error for AckUnsent {}

impl<C> fmt::Display for ContentsFull<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("packets in flight hold as much as is remembered")
    }
}

impl<C: fmt::Debug> core::error::Error for ContentsFull<C> {}

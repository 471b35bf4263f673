//! Other peers of the mesh, as seen by one peer.

use wire::Instant;

use super::clock::Pace;
use super::hashes::HashCursor;
use crate::message::MESH_SEATS_MAX;
use crate::repair::{Repair, RepairLimits};
use crate::tick::{PeerId, Tick};

/// Another peer of the mesh.
#[derive(Debug)]
pub(super) struct Link {
    /// The driver's id for it.
    pub(super) peer: PeerId,
    /// What it has of our inputs.
    pub(super) repair: Repair,
    /// Difference between its clock and ours.
    pub(super) pace: Pace,
    /// What it was sent of our state hashes.
    pub(super) hashes: HashCursor,
    /// Seat and first tick of its last request.
    pub(super) asked: Option<(u8, Tick)>,
    /// When its last datagram arrived.
    received_at: Instant,
    /// Until when it is suspected although it sends.
    suspect_until: Instant,
}

impl Link {
    pub(super) fn new(peer: PeerId, limits: &RepairLimits, now: Instant) -> Self {
        Self {
            peer,
            repair: Repair::new(limits),
            pace: Pace::default(),
            hashes: HashCursor::default(),
            asked: None,
            received_at: now,
            suspect_until: Instant::ZERO,
        }
    }

    /// A datagram arrived. After a silence of half of `peer_timeout`, in nanoseconds, the peer
    /// remains suspected for another `peer_timeout`: others may have removed it.
    pub(super) const fn on_received(&mut self, now: Instant, peer_timeout: u64) {
        if self.is_quiet(now, peer_timeout) {
            self.suspect_until = Instant::from_nanos(now.as_nanos().saturating_add(peer_timeout));
        }
        self.received_at = now;
    }

    /// Resets the silence, after a time in which we could not receive.
    pub(super) const fn forgive(&mut self, now: Instant) {
        self.received_at = now;
    }

    /// Returns whether it was silent for longer than `peer_timeout`.
    pub(super) const fn is_silent(&self, now: Instant, peer_timeout: u64) -> bool {
        self.silence(now) > peer_timeout
    }

    /// Returns whether it is neither silent nor suspected.
    pub(super) fn is_alive(&self, now: Instant, peer_timeout: u64) -> bool {
        !self.is_quiet(now, peer_timeout) && self.suspect_until <= now
    }

    const fn is_quiet(&self, now: Instant, peer_timeout: u64) -> bool {
        self.silence(now) > peer_timeout / 2
    }

    /// Nanoseconds since its last datagram.
    const fn silence(&self, now: Instant) -> u64 {
        now.as_nanos().saturating_sub(self.received_at.as_nanos())
    }
}

/// Hint slots, by the low bits of an id: twice as many as seats.
const HINTS: usize = 2 * MESH_SEATS_MAX as usize;

/// The driver's ids of all other peers; each datagram looks its sender up.
///
/// The hint avoids a scan with an end that a branch predictor cannot learn.
#[derive(Debug)]
pub(super) struct Roster {
    /// By seat; `None` for our own.
    numbers: Vec<Option<PeerId>>,
    /// The seat of an id, unless another id has the same low bits.
    hints: [u8; HINTS],
}

impl Roster {
    pub(super) fn new(numbers: impl Iterator<Item = Option<PeerId>>) -> Self {
        let numbers: Vec<_> = numbers.collect();
        let mut hints = [0; HINTS];
        for (number, seat) in numbers.iter().zip(0..) {
            if let Some(hint) = number.and_then(|number| hints.get_mut(place(number))) {
                *hint = seat;
            }
        }
        Self { numbers, hints }
    }

    /// Returns the seat of `peer`.
    pub(super) fn seat_of(&self, peer: PeerId) -> Option<u16> {
        let hint = *self.hints.get(place(peer))?;
        if self.numbers.get(usize::from(hint)) == Some(&Some(peer)) {
            return Some(hint.into());
        }
        let mut numbers = self.numbers.iter().zip(0..);
        let (_, seat) = numbers.find(|(number, _)| **number == Some(peer))?;
        Some(seat)
    }
}

fn place(peer: PeerId) -> usize {
    usize::try_from(peer.0).unwrap_or(0) % HINTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_its_seat_also_where_low_bits_are_the_same() {
        let numbers = [7, 1_000, 39, u32::MAX, 71, 0].map(PeerId);
        let seats = || numbers.into_iter().zip([0_u16, 1, 2, 4, 5, 6]);
        let of = |seat| seats().find(|(_, its)| *its == seat).map(|(peer, _)| peer);
        let roster = Roster::new((0..7).map(of));
        for (peer, seat) in seats() {
            assert_eq!(roster.seat_of(peer), Some(seat));
        }
        for peer in [8, 32, 103].map(PeerId) {
            assert_eq!(roster.seat_of(peer), None);
        }
    }
}

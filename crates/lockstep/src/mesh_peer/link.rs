//! What one peer knows of another.

use wire::Instant;

use super::clock::Pace;
use super::hashes::HashCursor;
use crate::message::MESH_SEATS_MAX;
use crate::repair::{Repair, RepairLimits};
use crate::tick::{PeerId, Tick};

/// Another peer of the mesh.
#[derive(Debug)]
pub(super) struct Link {
    /// The driver's number for it.
    pub(super) peer: PeerId,
    /// What it has of our inputs.
    pub(super) repair: Repair,
    /// How far its clock is from ours.
    pub(super) pace: Pace,
    /// What it was sent of our state hashes.
    pub(super) hashes: HashCursor,
    /// Whose inputs, from which tick on, it asked for last.
    pub(super) asked: Option<(u8, Tick)>,
    /// When it was last heard.
    heard_at: Instant,
    /// Until when it counts as one that falls silent, though it is heard.
    doubted_until: Instant,
}

impl Link {
    pub(super) fn new(peer: PeerId, limits: &RepairLimits, now: Instant) -> Self {
        Self {
            peer,
            repair: Repair::new(limits),
            pace: Pace::default(),
            hashes: HashCursor::default(),
            asked: None,
            heard_at: now,
            doubted_until: Instant::ZERO,
        }
    }

    /// Takes a datagram's arrival. After half of `peer_timeout`, in nanoseconds, in silence it is doubted for another
    /// `peer_timeout`: others may have given it up.
    pub(super) const fn on_heard(&mut self, now: Instant, peer_timeout: u64) {
        if self.is_quiet(now, peer_timeout) {
            self.doubted_until = Instant::from_nanos(now.as_nanos().saturating_add(peer_timeout));
        }
        self.heard_at = now;
    }

    /// Takes it as heard now, where what was said before could not be.
    pub(super) const fn forgive(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// Returns whether it was silent for longer than `peer_timeout`.
    pub(super) const fn is_silent(&self, now: Instant, peer_timeout: u64) -> bool {
        self.silence(now) > peer_timeout
    }

    /// Returns whether it is heard, and was of late.
    pub(super) fn is_alive(&self, now: Instant, peer_timeout: u64) -> bool {
        !self.is_quiet(now, peer_timeout) && self.doubted_until <= now
    }

    const fn is_quiet(&self, now: Instant, peer_timeout: u64) -> bool {
        self.silence(now) > peer_timeout / 2
    }

    /// Nanoseconds since it was last heard.
    const fn silence(&self, now: Instant) -> u64 {
        now.as_nanos().saturating_sub(self.heard_at.as_nanos())
    }
}

/// Places for seats, by the low bits of numbers: twice as many as there are seats.
const HINTS: usize = 2 * MESH_SEATS_MAX as usize;

/// The driver's numbers of all other peers; each datagram looks its sender up.
///
/// A scan ends elsewhere for each sender, which a processor cannot foresee: the more peers, the dearer.
#[derive(Debug)]
pub(super) struct Roster {
    /// By seat; `None` on our own.
    numbers: Vec<Option<PeerId>>,
    /// The seat that a number has, unless another one has the same low bits.
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

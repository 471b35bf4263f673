//! When our own key is changed, and what the peer's changes ask of us; docs/protocol.md, section 6.2.

use crypto::{Aead, Provider};
use wire::Instant;

use super::opening::Unsealed;
use super::{Ping, Session};
use crate::config::KeyLimits;
use crate::packet::{KeyPhase, PacketNumber};

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

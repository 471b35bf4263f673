//! Opening keys of one direction over its key phases, of which packets carry the low bits.

use core::time::Duration;

use crypto::{Aead, Iv, OpenError, Provider, Suite, TrafficSecret};
use wire::{Instant, TokenBucket};

/// The current key, the previous one for late packets, and the next ones.
///
/// A packet of a later phase that decrypts makes that phase the current one. Nothing else does, so
/// forged phases cost at most [`AHEAD_MAX`] key expansions, which are kept for the genuine packet;
/// phases further ahead are rate limited. Phases may be skipped, since lost packets advance
/// nothing.
pub(crate) struct KeyRing<A> {
    suite: Suite,
    /// Number of phases that packets distinguish: a power of two, at least 4.
    modulus: u8,
    /// Current phase mod `modulus`.
    phase: u8,
    /// Current phase in full.
    reached: u32,
    /// Rate limiter of advances over unopened phases; `None` until the first.
    advances: Option<TokenBucket>,
    secret: TrafficSecret,
    present: (A, Iv),
    previous: Option<Previous<A>>,
    /// Keys of the next phases, derived on demand.
    ahead: Vec<(TrafficSecret, (A, Iv))>,
}

/// The previous phase.
struct Previous<A> {
    key: (A, Iv),
    /// When it is dropped.
    until: Instant,
}

/// One sealed packet for [`KeyRing::open`].
pub(crate) struct Sealed<'a> {
    /// Low bits of the phase, from the packet.
    pub(crate) phase: u8,
    /// Value that the IV is combined with.
    pub(crate) mask: [u8; 12],
    pub(crate) aad: &'a [u8],
    /// Decrypted in place.
    pub(crate) body: &'a mut [u8],
    pub(crate) tag: &'a [u8; 16],
}

impl<A: Aead> KeyRing<A> {
    /// Creates a ring at phase 0.
    pub(crate) fn new<P: Provider<Aead = A>>(
        provider: &P,
        suite: Suite,
        secret: TrafficSecret,
        modulus: u8,
    ) -> Self {
        let present = secret.expand(provider, suite);
        Self {
            suite,
            modulus,
            phase: 0,
            reached: 0,
            advances: None,
            secret,
            present,
            previous: None,
            ahead: Vec::new(),
        }
    }

    /// Opens one packet in place.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the phase is too far ahead or the bytes were modified; the body is then
    /// garbage.
    pub(crate) fn open<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        sealed: Sealed<'_>,
    ) -> Result<(), OpenError> {
        let ahead = self.reduced(sealed.phase.wrapping_sub(self.phase));
        if ahead == 0 {
            return open_with(&self.present, sealed);
        }
        if ahead == self.modulus.wrapping_sub(1)
            && let Some(previous) = self.previous.as_ref().filter(|key| now < key.until)
        {
            return open_with(&previous.key, sealed);
        }
        let steps = usize::from(ahead);
        if steps > AHEAD_MAX {
            return self.open_far_ahead(provider, now, (ahead, sealed));
        }
        while self.ahead.len() < steps {
            let last = self.ahead.last().map_or(&self.secret, |(secret, _)| secret);
            let next = last.next(provider);
            let key = next.expand(provider, self.suite);
            self.ahead.push((next, key));
        }
        let (_, key) = self.ahead.get(steps.wrapping_sub(1)).ok_or(OpenError)?;
        open_with(key, sealed)?;
        self.advance(now, ahead);
        Ok(())
    }

    /// Opens a packet of a phase further ahead, if all packets of the phases in between were lost
    /// (up to an hour each). A forged one changes no key; the rate limiter of
    /// [`reach`](Self::reach) bounds its cost.
    fn open_far_ahead<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        (ahead, sealed): (u8, Sealed<'_>),
    ) -> Result<(), OpenError> {
        let full = || TokenBucket::new(ADVANCE_RATE, ADVANCE_BURST, now);
        let is_nearer_ahead = ahead <= self.modulus / 2;
        if !is_nearer_ahead
            || !self
                .advances
                .get_or_insert_with(full)
                .take(now, ahead.into())
        {
            return Err(OpenError);
        }
        let mut before = self.secret.next(provider);
        for _ in 2..ahead {
            before = before.next(provider);
        }
        let secret = before.next(provider);
        let key = secret.expand(provider, self.suite);
        open_with(&key, sealed)?;
        let before_key = before.expand(provider, self.suite);
        self.ahead = vec![(before, before_key), (secret, key)];
        self.advance(now, ahead);
        Ok(())
    }

    /// Advances to a phase that the sealing end announced, if it is later than any opened packet:
    /// the low bits do not distinguish phases a full round apart. Returns whether the rate limit
    /// allows it: each phase costs an expansion, [`ADVANCE_BURST`] at once and [`ADVANCE_RATE`] a second.
    pub(crate) fn reach<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        phase: u32,
    ) -> bool {
        let behind = phase.saturating_sub(self.reached);
        let full = || TokenBucket::new(ADVANCE_RATE, ADVANCE_BURST, now);
        if !self.advances.get_or_insert_with(full).take(now, behind) {
            return false;
        }
        for _ in self.reached..phase {
            if self.ahead.is_empty() {
                let next = self.secret.next(provider);
                let key = next.expand(provider, self.suite);
                self.ahead.push((next, key));
            }
            self.advance(now, 1);
        }
        true
    }

    /// Advances by `steps` phases.
    fn advance(&mut self, now: Instant, steps: u8) {
        for (secret, key) in self.ahead.drain(..usize::from(steps).min(self.ahead.len())) {
            self.secret = secret;
            let old = core::mem::replace(&mut self.present, key);
            self.previous = Some(Previous {
                key: old,
                until: now + PREVIOUS_KEPT,
            });
        }
        self.phase = self.reduced(self.phase.wrapping_add(steps));
        self.reached = self.reached.saturating_add(steps.into());
    }

    /// Returns `phase` mod `modulus`.
    fn reduced(&self, phase: u8) -> u8 {
        phase.checked_rem(self.modulus).unwrap_or(0)
    }
}

fn open_with<A: Aead>((aead, iv): &(A, Iv), sealed: Sealed<'_>) -> Result<(), OpenError> {
    let Sealed {
        mask,
        aad,
        body,
        tag,
        ..
    } = sealed;
    aead.open(iv.xor(mask), aad, body, tag)
}

/// Phases accepted without the rate limiter: the skipped ones and the next. With two bits for the
/// phase, these are all that packets distinguish once late packets are no longer accepted.
const AHEAD_MAX: usize = 3;
/// Phases that announcements may advance, in a burst and per second. An honest end announces each
/// within a second, and exceeds [`ADVANCE_RATE`] only above 2^22 frames a second.
const ADVANCE_BURST: u32 = 64;
const ADVANCE_RATE: u32 = 1;
/// How long late packets of the previous phase are accepted: three times the longest probe timeout
/// of a link in use (1 s; RFC 9002, section 6.2.2, allows as much before the first sample).
const PREVIOUS_KEPT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests;

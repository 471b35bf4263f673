//! Keys that decrypt the peer's packets: those of the current, previous and next phase.

use core::time::Duration;

use crypto::{Aead, OpeningKey, Provider, Suite, TrafficSecret};
use wire::Instant;

use super::receive;
use crate::packet::{Header, KeyPhase, PacketNumber};
use crate::rtt::RttEstimator;

/// The receiving key phases of one direction. The next key is expanded when a packet asks for it,
/// and kept for one second if that packet fails to authenticate. So a forger of the key phase bit
/// costs one expansion per second and blocks no genuine packet, since each is tried. The previous
/// secret is kept for three PTOs for reordered packets.
pub(super) struct OpeningKeys<A> {
    key: Option<Box<OpeningKey<A>>>,
    /// The current secret. `key` and the next phase's secret derive from it.
    secret: TrafficSecret,
    suite: Suite,
    pub(super) generation: u64,
    /// Lowest number received in the current phase. The previous phase sealed only lower ones.
    first: PacketNumber,
    old: Option<Old<A>>,
    next: Option<Box<Next<A>>>,
    /// We acknowledged a packet of the current phase.
    is_acknowledged: bool,
    /// Packets that failed to authenticate, in all phases.
    pub(super) failed: u64,
}

struct Old<A> {
    secret: TrafficSecret,
    /// Expanded for its first reordered packet.
    key: Option<Box<OpeningKey<A>>>,
    until: Instant,
}

struct Next<A> {
    key: OpeningKey<A>,
    secret: TrafficSecret,
    until: Instant,
}

pub(super) struct Sealed<'a, 'b> {
    pub(super) number: PacketNumber,
    pub(super) largest: Option<PacketNumber>,
    pub(super) header: &'a Header,
    pub(super) datagram: &'b mut [u8],
    /// Determines how long reordered packets are accepted.
    pub(super) rtt: &'a RttEstimator,
}

pub(super) struct Unsealed<'b> {
    pub(super) plaintext: &'b [u8],
    pub(super) generation: u64,
    /// It begins a phase before we acknowledged anything of the previous one.
    pub(super) is_early: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyGeneration {
    Old,
    Present,
    Next,
}

/// Least time for which a next key is kept after a failed packet.
const NEXT_KEPT: Duration = Duration::from_secs(1);

impl<A: Aead> OpeningKeys<A> {
    pub(super) fn new<P: Provider<Aead = A>>(
        provider: &P,
        suite: Suite,
        secret: TrafficSecret,
    ) -> Self {
        Self {
            key: Some(Box::new(secret.opening_key(provider, suite))),
            secret,
            suite,
            generation: 0,
            first: PacketNumber::ZERO,
            old: None,
            next: None,
            is_acknowledged: false,
            failed: 0,
        }
    }

    /// Decrypts a packet that passed the replay check, and advances to its phase if that is the
    /// next one.
    pub(super) fn open<'b, P: Provider<Aead = A>>(
        &mut self,
        now: Instant,
        provider: &P,
        packet: Sealed<'_, 'b>,
    ) -> Option<Unsealed<'b>> {
        let opened = match self.choose(now, &packet)? {
            KeyGeneration::Present => self.open_present(provider, packet),
            KeyGeneration::Old => self.open_old(provider, packet),
            KeyGeneration::Next => self.open_next(now, provider, packet),
        };
        if opened.is_none() {
            self.failed = self.failed.saturating_add(1);
        }
        opened
    }

    fn open_present<'b, P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        packet: Sealed<'_, 'b>,
    ) -> Option<Unsealed<'b>> {
        let number = packet.number;
        let (secret, suite) = (&self.secret, self.suite);
        let key = self
            .key
            .get_or_insert_with(|| Box::new(secret.opening_key(provider, suite)));
        let plaintext = packet.open(key)?;
        self.first = self.first.min(number);
        Some(Unsealed {
            plaintext,
            generation: self.generation,
            is_early: false,
        })
    }

    fn open_old<'b, P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        packet: Sealed<'_, 'b>,
    ) -> Option<Unsealed<'b>> {
        let old = self.old.as_mut()?;
        let (secret, suite) = (&old.secret, self.suite);
        let key = old
            .key
            .get_or_insert_with(|| Box::new(secret.opening_key(provider, suite)));
        Some(Unsealed {
            plaintext: packet.open(key)?,
            generation: self.generation.saturating_sub(1),
            is_early: false,
        })
    }

    fn open_next<'b, P: Provider<Aead = A>>(
        &mut self,
        now: Instant,
        provider: &P,
        packet: Sealed<'_, 'b>,
    ) -> Option<Unsealed<'b>> {
        let began = (packet.number, now + packet.rtt.pto().saturating_mul(3));
        if let Some(next) = &self.next {
            let plaintext = packet.open(&next.key)?;
            let next = *self.next.take()?;
            return Some(self.advance((next.key, next.secret), began, plaintext));
        }
        let secret = self.secret.next(provider);
        let key = secret.opening_key(provider, self.suite);
        if let Some(plaintext) = packet.open(&key) {
            return Some(self.advance((key, secret), began, plaintext));
        }
        self.next = Some(Box::new(Next {
            key,
            secret,
            until: now + NEXT_KEPT,
        }));
        None
    }

    /// Advances to the next phase, which began with packet `number` or shortly before.
    fn advance<'b>(
        &mut self,
        (key, secret): (OpeningKey<A>, TrafficSecret),
        (number, old_until): (PacketNumber, Instant),
        plaintext: &'b [u8],
    ) -> Unsealed<'b> {
        match &mut self.key {
            Some(held) => **held = key,
            None => self.key = Some(Box::new(key)),
        }
        self.old = Some(Old {
            secret: core::mem::replace(&mut self.secret, secret),
            key: None,
            until: old_until,
        });
        self.generation = self.generation.saturating_add(1);
        self.first = number;
        Unsealed {
            plaintext,
            generation: self.generation,
            is_early: !core::mem::replace(&mut self.is_acknowledged, false),
        }
    }

    /// Records that an ACK is sent, which reports the packet that began the phase or a later one.
    /// If that was withheld, the peer may make one more update than it is entitled to.
    pub(super) const fn on_ack_written(&mut self) {
        self.is_acknowledged = true;
    }

    pub(super) fn drop_expanded(&mut self) {
        self.key = None;
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.old.take_if(|old| old.until <= now);
        self.next.take_if(|next| next.until <= now);
    }

    /// Returns when the previous phase expires. A next key expires with a later timer: a forged
    /// packet sets none.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.old.as_ref().map(|old| old.until)
    }

    pub(super) fn memory(&self) -> usize {
        let old = self.old.as_ref().and_then(|old| old.key.as_ref());
        let old = old.map_or(0, |_| size_of::<OpeningKey<A>>());
        let next = self.next.as_ref().map_or(0, |_| size_of::<Next<A>>());
        let key = self.key.as_ref().map_or(0, |_| size_of::<OpeningKey<A>>());
        key.saturating_add(old).saturating_add(next)
    }

    /// Returns the phase of the packet; `None` if none with its key phase bit can have its number.
    fn choose(&self, now: Instant, packet: &Sealed<'_, '_>) -> Option<KeyGeneration> {
        if packet.header.key_phase == KeyPhase::of(self.generation) {
            Some(KeyGeneration::Present)
        } else if packet
            .largest
            .is_some_and(|largest| packet.number > largest)
        {
            // A phase ends only after one of its packets was acknowledged, so the current phase has
            // received one.
            Some(KeyGeneration::Next)
        } else {
            let is_held = self.old.as_ref().is_some_and(|old| now < old.until);
            (packet.number < self.first && is_held).then_some(KeyGeneration::Old)
        }
    }
}

impl<'b> Sealed<'_, 'b> {
    fn open<A: Aead>(self, key: &OpeningKey<A>) -> Option<&'b [u8]> {
        receive::open(key, self.number, self.header, self.datagram)
    }
}

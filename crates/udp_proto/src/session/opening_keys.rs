//! Keys that open the peer's packets: of its present phase, the one before, and the one to come.

use core::time::Duration;

use crypto::{Aead, OpeningKey, Provider, Suite, TrafficSecret};
use wire::Instant;

use super::receive;
use crate::packet::{Header, KeyPhase, PacketNumber};
use crate::rtt::RttEstimator;

/// The key phases of one direction, at its receiving end.
///
/// Only the present key is held ready, and where the session rests not even that. The next one is expanded when a packet asks for it, and kept
/// for a second where that packet did not open: whoever forges the bit costs one expansion a second,
/// and keeps no genuine packet out, since each is tried. The secret of the phase before stays for
/// three probe timeouts, for packets that were overtaken, and is expanded once where one comes.
pub(super) struct OpeningKeys<A> {
    /// Of the present phase; `None` while it is folded.
    key: Option<Box<OpeningKey<A>>>,
    /// What `key` is expanded from, and the next phase's secret is.
    secret: TrafficSecret,
    /// The same in all phases.
    suite: Suite,
    /// How often the peer has changed its key.
    generation: u64,
    /// Lowest number that opened in the present phase; what the phase before sealed lies below.
    first: PacketNumber,
    /// The phase before, until its time is over.
    old: Option<Old<A>>,
    /// The next phase, where a packet asked for it that did not open.
    next: Option<Box<Next<A>>>,
    /// We have acknowledged a packet of the present phase.
    is_acknowledged: bool,
    /// Packets that did not open, of all phases.
    failed: u64,
}

/// The phase before the present one.
struct Old<A> {
    secret: TrafficSecret,
    /// Expanded for the first packet of it that was overtaken.
    key: Option<Box<OpeningKey<A>>>,
    until: Instant,
}

/// The phase behind the present one.
struct Next<A> {
    key: OpeningKey<A>,
    secret: TrafficSecret,
    until: Instant,
}

/// A packet that has not been opened.
pub(super) struct Sealed<'a, 'b> {
    pub(super) number: PacketNumber,
    /// The largest number that has opened.
    pub(super) largest: Option<PacketNumber>,
    pub(super) header: &'a Header,
    pub(super) datagram: &'b mut [u8],
    /// What says for how long packets may be overtaken.
    pub(super) rtt: &'a RttEstimator,
}

/// A packet that was.
pub(super) struct Unsealed<'b> {
    pub(super) plaintext: &'b [u8],
    /// The phase that sealed it, counted from 0.
    pub(super) generation: u64,
    /// It begins a phase, and we have acknowledged nothing of the one before.
    pub(super) is_early: bool,
}

/// Which key a packet is tried with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyGeneration {
    Old,
    Present,
    Next,
}

/// How long a key is kept at least that was expanded for a packet that did not open.
const NEXT_KEPT: Duration = Duration::from_secs(1);

impl<A: Aead> OpeningKeys<A> {
    /// Starts with phase 0.
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

    /// Opens a packet that the replay window lets through, and goes to its phase where that is the
    /// next one. Nothing changes where it does not open, but for the count of these and the keys
    /// that are held ready.
    pub(super) fn open<'b, P: Provider<Aead = A>>(
        &mut self,
        now: Instant,
        provider: &P,
        packet: Sealed<'_, 'b>,
    ) -> Option<Unsealed<'b>> {
        match self.choose(&packet)? {
            KeyGeneration::Present => self.open_present(provider, packet),
            KeyGeneration::Old => self.open_old(now, provider, packet),
            KeyGeneration::Next => self.open_next(now, provider, packet),
        }
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
        let Some(plaintext) = packet.open(key) else {
            self.failed = self.failed.saturating_add(1);
            return None;
        };
        self.first = self.first.min(number);
        Some(Unsealed {
            plaintext,
            generation: self.generation,
            is_early: false,
        })
    }

    fn open_old<'b, P: Provider<Aead = A>>(
        &mut self,
        now: Instant,
        provider: &P,
        packet: Sealed<'_, 'b>,
    ) -> Option<Unsealed<'b>> {
        let old = self.old.as_mut().filter(|old| now < old.until)?;
        let (secret, suite) = (&old.secret, self.suite);
        let key = old
            .key
            .get_or_insert_with(|| Box::new(secret.opening_key(provider, suite)));
        let Some(plaintext) = packet.open(key) else {
            self.failed = self.failed.saturating_add(1);
            return None;
        };
        Some(Unsealed {
            plaintext,
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
        let number = packet.number;
        let old_until = now + packet.rtt.pto().saturating_mul(3);
        if let Some(next) = &self.next {
            let Some(plaintext) = packet.open(&next.key) else {
                self.failed = self.failed.saturating_add(1);
                return None;
            };
            let next = *self.next.take()?;
            return Some(self.advance((next.key, next.secret), (number, old_until), plaintext));
        }
        let secret = self.secret.next(provider);
        let key = secret.opening_key(provider, self.suite);
        let Some(plaintext) = packet.open(&key) else {
            self.failed = self.failed.saturating_add(1);
            self.next = Some(Box::new(Next {
                key,
                secret,
                until: now + NEXT_KEPT,
            }));
            return None;
        };
        Some(self.advance((key, secret), (number, old_until), plaintext))
    }

    /// Goes to the next phase, which began with packet `number` or a little before.
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

    /// Takes note that an ACK leaves. It reports the packet that began the phase, or a later one: it is
    /// written after that one was taken. Where that one was withheld, the peer is judged too mildly, and
    /// may change keys once more before it knows that we have.
    pub(super) const fn on_ack_written(&mut self) {
        self.is_acknowledged = true;
    }

    /// Keeps only the secret of the present phase, until a packet comes.
    pub(super) fn fold(&mut self) {
        self.key = None;
    }

    /// Drops what is held of other phases and whose time is over.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.old.take_if(|old| old.until <= now);
        self.next.take_if(|next| next.until <= now);
    }

    /// Returns when the phase before is to be forgotten. The key of the next one goes with the
    /// first timer behind its time: a forged packet sets none.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.old.as_ref().map(|old| old.until)
    }

    /// Returns how often the peer has changed its key.
    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns how many packets did not open.
    pub(super) const fn failed(&self) -> u64 {
        self.failed
    }

    /// Returns the heap memory it holds, bytes.
    pub(super) fn memory(&self) -> usize {
        let old = self.old.as_ref().and_then(|old| old.key.as_ref());
        let old = old.map_or(0, |_| size_of::<OpeningKey<A>>());
        let next = self.next.as_ref().map_or(0, |_| size_of::<Next<A>>());
        let key = self.key.as_ref().map_or(0, |_| size_of::<OpeningKey<A>>());
        key.saturating_add(old).saturating_add(next)
    }

    /// Returns the phase that a packet may be of; `None` where none with this bit can have its
    /// number.
    fn choose(&self, packet: &Sealed<'_, '_>) -> Option<KeyGeneration> {
        if packet.header.key_phase == KeyPhase::of(self.generation) {
            Some(KeyGeneration::Present)
        } else if packet
            .largest
            .is_some_and(|largest| packet.number > largest)
        {
            // A phase ends when a packet of it was acknowledged, so one of the present has opened.
            Some(KeyGeneration::Next)
        } else if packet.number < self.first {
            Some(KeyGeneration::Old)
        } else {
            None
        }
    }
}

impl<'b> Sealed<'_, 'b> {
    fn open<A: Aead>(self, key: &OpeningKey<A>) -> Option<&'b [u8]> {
        receive::open(key, self.number, self.header, self.datagram)
    }
}

//! Seals the frames of a link and prevents nonce reuse.

#[cfg(test)]
mod tests;

use core::fmt;
use core::time::Duration;
use std::collections::BTreeSet;

use crypto::{Aead, Iv, Provider, Suite, TrafficSecret};
use udp_proto::packet::PacketNumber;
use udp_proto::replay::{ReplayWindow, Verdict};
use wire::Instant;

use crate::hop::{HopHeader, HopKind, LabelName, Phase};
use crate::hop_key::{HopForm, HopKey, NextLabel};
use crate::link_secret::{EPOCHS, LinkSecret, ShardPair, mask};
use crate::shard::ShardId;

/// Seals the frames of one link and direction, from one shard to one shard.
///
/// nonce = iv XOR (label 4, generation 1, low 7 bytes of the packet number). The sealer requires a
/// [`Binding`] and a number for each nonce, and verifies itself that both are new:
///
/// 1. within a key epoch no two bindings have the same label and generation; live ones are carried
///    over to the next epoch, which has another key;
/// 2. a binding accepts a number once: an origin's only above the last one, a relay's only if its
///    window has not seen it, and the window lives as long as the binding.
///
/// Frames to a tag-only label use neither key nor nonce. The second rule applies to them too; the
/// first only as far as no two live bindings have the same label.
pub struct HopSealer<A> {
    from: ShardId,
    suite: Suite,
    secret: TrafficSecret,
    aead: A,
    iv: Iv,
    /// Key epoch; frames carry it mod 4.
    epoch: u32,
    /// The last epoch that the other end was notified of.
    told: u32,
    /// Frames sealed with the current key.
    sealed: u32,
    /// When the current key was first used.
    since: Option<Instant>,
    /// Labels bound in this key epoch.
    bound: BoundLabels,
    /// Id of this sealer; other sealers' bindings are refused.
    serial: u32,
}

/// The right to seal to a label of the next hop. Not `Clone`, since it tracks the used numbers.
#[derive(Debug)]
pub struct Binding {
    /// The label at the next hop.
    next: NextLabel,
    /// The sealer that created it.
    serial: u32,
    gate: Gate,
}

/// Which numbers are unused.
#[derive(Debug)]
enum Gate {
    /// Numbers above the last one, for an origin.
    Rising(Option<u64>),
    /// Numbers that the window has not seen, for a relay.
    Window(ReplayWindow),
}

/// The parts of a frame that its origin sets; equal on every hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Packet number in its flow and direction.
    pub number: u64,
    /// Key phase and piece.
    pub phase: Phase,
    /// Remaining hops after the next node.
    pub hops_left: u8,
    /// End-to-end ciphertext and tag.
    pub body: &'a [u8],
}

impl<A: Aead> HopSealer<A> {
    /// Creates the sealer from one shard to another; there must be only one.
    ///
    /// `serial` must differ from those of all sealers of the node whose bindings still exist.
    pub fn new<P: Provider<Aead = A>>(
        provider: &P,
        secret: &LinkSecret,
        pair: ShardPair,
        serial: u32,
    ) -> Self {
        let (suite, secret) = secret.of(provider, pair);
        let (aead, iv) = secret.expand(provider, suite);
        Self {
            from: pair.from,
            suite,
            secret,
            aead,
            iv,
            epoch: 0,
            told: 0,
            sealed: 0,
            since: None,
            bound: BoundLabels::default(),
            serial,
        }
    }

    /// Binds a label for packets that this node originates.
    ///
    /// # Errors
    ///
    /// [`BindError`] if the label was bound in this key epoch, or too many are.
    pub fn bind_origin<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        next: NextLabel,
    ) -> Result<Binding, BindError> {
        self.bind(provider, now, next, Gate::Rising(None))
    }

    /// Binds a label for packets that this node relays.
    ///
    /// # Errors
    ///
    /// As for [`bind_origin`](Self::bind_origin).
    pub fn bind_transit<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        next: NextLabel,
    ) -> Result<Binding, BindError> {
        self.bind(provider, now, next, Gate::Window(ReplayWindow::new()))
    }

    /// Releases a binding; one of another sealer is dropped without effect.
    ///
    /// Its label can be bound again at once if nothing was sealed to it, or if it is tag-only;
    /// otherwise from the next key epoch.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "whoever gives a binding back shall not seal with it"
    )]
    pub fn release(&mut self, binding: Binding) {
        if binding.serial != self.serial {
            return;
        }
        let NextLabel { name, form } = &binding.next;
        if binding.is_unused() || form.is_tag_only() {
            self.bound.forget(*name);
        } else {
            self.bound.release(*name);
        }
    }

    /// Appends one frame to `out`: header, hop tag, and the body, which is sealed again unless the
    /// label is tag-only.
    ///
    /// # Errors
    ///
    /// [`SealRefused`] if the number or binding is invalid; nothing is appended.
    pub fn seal<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        (binding, packet): (&mut Binding, Packet<'_>),
        out: &mut Vec<u8>,
    ) -> Result<(), SealRefused> {
        if binding.serial != self.serial {
            return Err(SealRefused::Foreign);
        }
        if self.is_worn(now) {
            self.advance(provider);
        }
        binding.take(packet.number)?;
        let NextLabel { name, ref form } = binding.next;
        if let HopForm::TagOnly(key) = form {
            packet.tag(name, key, out);
            return Ok(());
        }
        self.since.get_or_insert(now);
        self.sealed = self.sealed.saturating_add(1);
        let header = packet.header(self.epoch.to_le_bytes()[0] % EPOCHS, self.from, name);
        let aad = header.encode();
        out.extend_from_slice(&aad);
        let tag_at = out.len();
        out.extend_from_slice(&[0; 16]);
        out.extend_from_slice(packet.body);
        let nonce = self.iv.xor(mask(&header));
        if let Some((tag, body)) = out
            .get_mut(tag_at..)
            .and_then(<[u8]>::split_first_chunk_mut::<16>)
        {
            self.aead.seal(nonce, &aad, body, tag);
        }
        Ok(())
    }

    /// Returns the key epoch if the other end was not notified of it: an opener that received
    /// nothing for some epochs cannot derive it from two bits.
    pub(crate) const fn untold_epoch(&self) -> Option<u32> {
        if self.epoch > self.told {
            Some(self.epoch)
        } else {
            None
        }
    }

    /// Notes that the other end was notified of `epoch`.
    pub fn note_told(&mut self, epoch: u32) {
        self.told = self.told.max(epoch);
    }

    /// Returns whether a label is bound and not released.
    pub fn holds(&self, name: LabelName) -> bool {
        self.bound.holds(name)
    }

    /// Returns the number of labels that cannot be bound in this key epoch.
    pub fn bound(&self) -> usize {
        self.bound.len()
    }

    /// Returns the number of labels bound and not released.
    pub fn live(&self) -> usize {
        self.bound.live()
    }

    fn bind<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        next: NextLabel,
        gate: Gate,
    ) -> Result<Binding, BindError> {
        if self.is_worn(now) {
            self.advance(provider);
        }
        if self.bound.len() >= BOUND_MAX {
            return Err(BindError::Full);
        }
        if !self.bound.insert(next.name) {
            return Err(BindError::LabelTaken);
        }
        Ok(Binding {
            next,
            serial: self.serial,
            gate,
        })
    }

    /// Whether the key must change: by frames, by time, or because released labels occupy the room
    /// of other owners' labels.
    fn is_worn(&self, now: Instant) -> bool {
        let is_older = |span| {
            self.since
                .is_some_and(|since| now.saturating_since(since) >= span)
        };
        self.sealed >= EPOCH_FRAMES
            || is_older(EPOCH_SPAN)
            || (self.bound.released() >= BOUND_MAX / 4 && is_older(EPOCH_SPAN_MIN))
    }

    /// Advances to the next key. Live labels stay bound, so that none is bound twice.
    fn advance<P: Provider<Aead = A>>(&mut self, provider: &P) {
        self.secret = self.secret.next(provider);
        (self.aead, self.iv) = self.secret.expand(provider, self.suite);
        self.epoch = self.epoch.saturating_add(1);
        self.sealed = 0;
        self.since = None;
        self.bound.next_epoch();
    }
}

impl Packet<'_> {
    const fn header(&self, epoch: u8, from: ShardId, label: LabelName) -> HopHeader {
        HopHeader {
            kind: HopKind::Sealed,
            epoch,
            from,
            hops_left: self.hops_left,
            label,
            phase: self.phase,
            number: self.number,
        }
    }

    /// Appends the packet to `out` as a tag-only frame.
    fn tag(&self, label: LabelName, key: &HopKey, out: &mut Vec<u8>) {
        let sealed = self.header(0, ShardId::FIRST, label);
        let header = HopHeader {
            kind: HopKind::TagOnly,
            ..sealed
        };
        key.close(&header, self.body, out);
    }
}

impl Binding {
    /// Returns the label at the next hop.
    #[must_use]
    pub const fn name(&self) -> LabelName {
        self.next.name
    }

    /// Returns whether `number` is unused.
    #[must_use]
    pub fn is_fresh(&self, number: u64) -> bool {
        match &self.gate {
            Gate::Rising(last) => last.is_none_or(|last| number > last),
            Gate::Window(window) => {
                PacketNumber::new(number).is_some_and(|n| window.check(n) == Verdict::Fresh)
            }
        }
    }

    const fn is_unused(&self) -> bool {
        match &self.gate {
            Gate::Rising(last) => last.is_none(),
            Gate::Window(window) => window.largest().is_none(),
        }
    }

    /// Marks `number` as used.
    fn take(&mut self, number: u64) -> Result<(), SealRefused> {
        if !self.is_fresh(number) {
            return Err(SealRefused::Number);
        }
        match &mut self.gate {
            Gate::Rising(last) => *last = Some(number),
            Gate::Window(window) => {
                window.mark(PacketNumber::new(number).ok_or(SealRefused::Number)?);
            }
        }
        Ok(())
    }
}

impl<A> fmt::Debug for HopSealer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HopSealer")
            .field("epoch", &self.epoch)
            .field("sealed", &self.sealed)
            .field("bound", &self.bound.len())
            .finish_non_exhaustive()
    }
}

/// Why a label cannot be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BindError {
    /// It was bound in this key epoch.
    LabelTaken,
    /// The limit of bound labels is reached.
    Full,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LabelTaken => "the label was already bound in this key epoch",
            Self::Full => "the limit of labels of the link is reached",
        })
    }
}

impl core::error::Error for BindError {}

/// Why a frame cannot be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SealRefused {
    /// The number was or may have been used.
    Number,
    /// The binding belongs to another link.
    Foreign,
}

impl fmt::Display for SealRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Number => "the packet number was used on this label",
            Self::Foreign => "the binding belongs to another link",
        })
    }
}

impl core::error::Error for SealRefused {}

/// Frames per link key; half of what RFC 9001, section 6.6, allows for AES-GCM.
pub const EPOCH_FRAMES: u32 = 1 << 22;
/// Longest use of a link key.
pub const EPOCH_SPAN: Duration = Duration::from_secs(120);
/// Shortest use of a link key that is replaced because of released labels.
const EPOCH_SPAN_MIN: Duration = Duration::from_secs(10);
/// Labels bound on one link per key epoch; twice the labels of 10,000 flows, so that all can move.
pub const BOUND_MAX: usize = 65_536;

/// Labels that are or were bound under one key; none of them may be bound again under it.
///
/// Slot and generation are stored in 5 bytes: there may be
/// [`BOUND_MAX`](crate::hop_sealer::BOUND_MAX).
#[derive(Debug, Default)]
pub(crate) struct BoundLabels {
    live: BTreeSet<[u8; 5]>,
    /// Released after use.
    released: BTreeSet<[u8; 5]>,
}

impl BoundLabels {
    /// Adds a label; returns false if it is present.
    pub(crate) fn insert(&mut self, name: LabelName) -> bool {
        !self.released.contains(&key(name)) && self.live.insert(key(name))
    }

    /// Marks a label as released.
    pub(crate) fn release(&mut self, name: LabelName) {
        if self.live.remove(&key(name)) {
            self.released.insert(key(name));
        }
    }

    /// Removes a label that was released unused.
    pub(crate) fn forget(&mut self, name: LabelName) {
        self.live.remove(&key(name));
    }

    /// Removes the released labels: the key has changed.
    pub(crate) fn next_epoch(&mut self) {
        self.released.clear();
    }

    /// Whether it is bound and not released.
    pub(crate) fn holds(&self, name: LabelName) -> bool {
        self.live.contains(&key(name))
    }

    /// Number of bound labels that are not released.
    pub(crate) fn live(&self) -> usize {
        self.live.len()
    }

    /// Number of released labels.
    pub(crate) fn released(&self) -> usize {
        self.released.len()
    }

    /// Number of labels that cannot be bound.
    pub(crate) fn len(&self) -> usize {
        self.live.len().saturating_add(self.released.len())
    }
}

const fn key(name: LabelName) -> [u8; 5] {
    let [s0, s1, s2, s3] = name.slot.to_be_bytes();
    [s0, s1, s2, s3, name.generation]
}

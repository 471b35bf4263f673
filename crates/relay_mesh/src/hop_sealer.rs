//! The sealer of a link, which lets no nonce come twice.

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

/// Seals the frames of one link and direction that go from one shard to one shard.
///
/// nonce = iv XOR (label 4, generation 1, low 7 bytes of the packet number). It takes no nonce but
/// a [`Binding`] and a number, and trusts nobody for their being new:
///
/// 1. in one key epoch no two bindings name the same label and generation; live ones are carried
///    over to the next epoch, in which the key is another;
/// 2. a binding takes a number once: an origin's only above the last one, a relay's only if its
///    window has not seen it, and the window lives as long as the binding.
///
/// Frames to a label that takes a tag only use neither key nor nonce; the second rule holds for
/// them all the same, and of the first that no two live bindings name one label.
pub struct HopSealer<A> {
    from: ShardId,
    suite: Suite,
    secret: TrafficSecret,
    aead: A,
    iv: Iv,
    /// Key epoch; frames tell it mod 4.
    epoch: u32,
    /// That of which the other end was told.
    told: u32,
    /// Frames under the present key.
    sealed: u32,
    /// When the present key was first sealed with.
    since: Option<Instant>,
    /// Labels bound in this key epoch.
    bound: BoundLabels,
    /// Only bindings made here are sealed with.
    serial: u32,
}

/// A label of the next hop that one sealer may seal with; not `Clone`, since it holds the numbers
/// that were used.
#[derive(Debug)]
pub struct Binding {
    /// The label at the next hop.
    next: NextLabel,
    /// Which sealer made it.
    serial: u32,
    gate: Gate,
}

/// Which numbers are still unused.
#[derive(Debug)]
enum Gate {
    /// Those above the last one: of what we originate.
    Rising(Option<u64>),
    /// Those that the window has not seen: of what we relay.
    Window(ReplayWindow),
}

/// The parts of a frame that its origin decided; the same on every hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Number in its flow and direction.
    pub number: u64,
    /// Key phase and piece.
    pub phase: Phase,
    /// Hops that it may make beyond the next node.
    pub hops_left: u8,
    /// End-to-end ciphertext and its tag.
    pub body: &'a [u8],
}

impl<A: Aead> HopSealer<A> {
    /// Makes the sealer of what goes from one shard to the other; there must be no second one.
    ///
    /// `serial` must differ for all sealers of a node whose bindings are still held.
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

    /// Binds a label for what this node originates.
    ///
    /// # Errors
    ///
    /// [`BindError`] where the label was bound in this key epoch, or too many are.
    pub fn bind_origin<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        next: NextLabel,
    ) -> Result<Binding, BindError> {
        self.bind(provider, now, next, Gate::Rising(None))
    }

    /// Binds a label for what this node relays.
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

    /// Takes a binding back; one of another sealer is dropped and changes nothing.
    ///
    /// Its label can be bound again: at once where nothing was sealed under it, or where frames to it bear a
    /// tag only; else not before the next key epoch.
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

    /// Appends one frame to `out`: header, hop tag, and the body, sealed once more where the label takes
    /// sealed frames.
    ///
    /// # Errors
    ///
    /// [`SealRefused`] where number or binding are not to be used; nothing is appended.
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

    /// Returns its key epoch where the other end has not been told of it: an opener that hears nothing for some
    /// epochs cannot know by the two bits of a frame which one it is.
    pub(crate) const fn untold_epoch(&self) -> Option<u32> {
        if self.epoch > self.told {
            Some(self.epoch)
        } else {
            None
        }
    }

    /// Notes that the other end was told of `epoch`.
    pub fn note_told(&mut self, epoch: u32) {
        self.told = self.told.max(epoch);
    }

    /// Returns whether a label is bound and not given back.
    pub fn holds(&self, name: LabelName) -> bool {
        self.bound.holds(name)
    }

    /// Returns how many labels cannot be bound in this key epoch.
    pub fn bound(&self) -> usize {
        self.bound.len()
    }

    /// Returns how many labels are bound and not given back.
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

    /// Whether the next key is due: by frames, by time, or where labels that were given back take
    /// up the room of others, who may be another owner's.
    fn is_worn(&self, now: Instant) -> bool {
        let is_older = |span| {
            self.since
                .is_some_and(|since| now.saturating_since(since) >= span)
        };
        self.sealed >= EPOCH_FRAMES
            || is_older(EPOCH_SPAN)
            || (self.bound.released() >= BOUND_MAX / 4 && is_older(EPOCH_SPAN_MIN))
    }

    /// Goes to the next key. Live labels keep their place, so that none is bound twice in it.
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

    /// Appends it to `out` as a frame that bears a tag only.
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

    /// Returns whether `number` is still unused.
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

    /// Uses `number` up.
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

/// Why a label is not bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BindError {
    /// It was bound in this key epoch already.
    LabelTaken,
    /// As many labels are bound as may be.
    Full,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LabelTaken => "the next label was bound in this key epoch already",
            Self::Full => "the link has as many labels as it may",
        })
    }
}

impl core::error::Error for BindError {}

/// Why a frame is not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SealRefused {
    /// The number was used, or may have been.
    Number,
    /// The binding is of another link.
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

/// Frames under one link key; half of what RFC 9001, section 6.6, allows for AES-GCM.
pub const EPOCH_FRAMES: u32 = 1 << 22;
/// Longest time under one link key.
pub const EPOCH_SPAN: Duration = Duration::from_secs(120);
/// Least time under one link key that was changed for the labels given back in it.
const EPOCH_SPAN_MIN: Duration = Duration::from_secs(10);
/// Labels bound on one link in one key epoch; twice the labels of 10,000 flows, and room to move
/// them all.
pub const BOUND_MAX: usize = 65_536;

/// Which labels have been sealed to, or may be, under one key: in it none of them is bound again.
///
/// Slot and generation stand as 5 bytes: there may be [`BOUND_MAX`](crate::hop_sealer::BOUND_MAX) of them.
#[derive(Debug, Default)]
pub(crate) struct BoundLabels {
    live: BTreeSet<[u8; 5]>,
    /// Given back, and used.
    released: BTreeSet<[u8; 5]>,
}

impl BoundLabels {
    /// Notes that a label is bound; nothing changes, and the answer is false, where it was before.
    pub(crate) fn insert(&mut self, name: LabelName) -> bool {
        !self.released.contains(&key(name)) && self.live.insert(key(name))
    }

    /// Notes that a label was given back.
    pub(crate) fn release(&mut self, name: LabelName) {
        if self.live.remove(&key(name)) {
            self.released.insert(key(name));
        }
    }

    /// Forgets a label that was given back and never used.
    pub(crate) fn forget(&mut self, name: LabelName) {
        self.live.remove(&key(name));
    }

    /// Forgets those that were given back: the key is another.
    pub(crate) fn next_epoch(&mut self) {
        self.released.clear();
    }

    /// Whether it is bound and not given back.
    pub(crate) fn holds(&self, name: LabelName) -> bool {
        self.live.contains(&key(name))
    }

    /// How many are bound and not given back.
    pub(crate) fn live(&self) -> usize {
        self.live.len()
    }

    /// How many were given back.
    pub(crate) fn released(&self) -> usize {
        self.released.len()
    }

    /// How many cannot be bound.
    pub(crate) fn len(&self) -> usize {
        self.live.len().saturating_add(self.released.len())
    }
}

const fn key(name: LabelName) -> [u8; 5] {
    let [s0, s1, s2, s3] = name.slot.to_be_bytes();
    [s0, s1, s2, s3, name.generation]
}

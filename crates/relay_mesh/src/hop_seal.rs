//! Seals and opens the frames of a link, without nonce reuse.

use core::time::Duration;
use std::collections::BTreeSet;

use crypto::{Aead, Exporter, Iv, Label, OpenError, Provider, Suite, TrafficSecret};
use udp_proto::packet::PacketNumber;
use udp_proto::replay::{ReplayWindow, Verdict};
use wire::Instant;

use crate::hop::{HopForm, HopHeader, HopKey, HopKind, LabelName, NextLabel, Phase, ShardId};
use crate::key_ring::{KeyRing, Sealed};

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
pub(crate) struct HopSealer<A> {
    from: ShardId,
    suite: Suite,
    secret: TrafficSecret,
    aead: A,
    iv: Iv,
    /// Key epoch; frames carry it mod 4.
    epoch: u32,
    /// The last epoch that the other end was notified of.
    announced: u32,
    /// Frames sealed with the current key.
    sealed: u32,
    /// When the current key was first used.
    since: Option<Instant>,
    bound: BoundLabels,
    /// Other sealers' bindings are refused.
    serial: u32,
}

/// The right to seal to a label of the next hop. Not `Clone`, since it tracks the used numbers.
#[derive(Debug)]
pub(crate) struct Binding {
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
pub(crate) struct Packet<'a> {
    pub(crate) number: u64,
    pub(crate) phase: Phase,
    /// Remaining hops after the next node.
    pub(crate) hops_left: u8,
    /// End-to-end ciphertext and tag.
    pub(crate) body: &'a [u8],
}

impl<A: Aead> HopSealer<A> {
    /// Creates the only sealer from one shard to another. `serial` must differ from those of all
    /// sealers of the node with existing bindings.
    pub(crate) fn new<P: Provider<Aead = A>>(
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
            announced: 0,
            sealed: 0,
            since: None,
            bound: BoundLabels::default(),
            serial,
        }
    }

    /// Binds a label for packets that this node originates.
    pub(crate) fn bind_origin<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        next: NextLabel,
    ) -> Result<Binding, BindError> {
        self.bind(provider, now, next, Gate::Rising(None))
    }

    /// Binds a label for packets that this node relays.
    pub(crate) fn bind_transit<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        next: NextLabel,
    ) -> Result<Binding, BindError> {
        self.bind(provider, now, next, Gate::Window(ReplayWindow::new()))
    }

    /// Releases a binding; one of another sealer is dropped. Its label can be bound again at once
    /// if nothing was sealed to it, or if it is tag-only; otherwise from the next key epoch.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the caller must not seal with a released binding"
    )]
    pub(crate) fn release(&mut self, binding: Binding) {
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

    /// Appends one frame to `out`; its body is sealed again unless the label is tag-only.
    pub(crate) fn seal<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        (binding, packet): (&mut Binding, Packet<'_>),
        out: &mut Vec<u8>,
    ) -> Result<(), SealRefused> {
        if binding.serial != self.serial {
            return Err(SealRefused::Foreign);
        }
        if self.is_exhausted(now) {
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
        let sealed = out.get_mut(tag_at..);
        if let Some((tag, body)) = sealed.and_then(<[u8]>::split_first_chunk_mut) {
            self.aead.seal(nonce, &aad, body, tag);
        }
        Ok(())
    }

    /// Returns the key epoch if the other end was not notified of it: an opener that received
    /// nothing for some epochs cannot derive it from two bits.
    pub(crate) const fn unannounced_epoch(&self) -> Option<u32> {
        if self.epoch > self.announced {
            Some(self.epoch)
        } else {
            None
        }
    }

    pub(crate) fn on_announced(&mut self, epoch: u32) {
        self.announced = self.announced.max(epoch);
    }

    pub(crate) fn holds(&self, name: LabelName) -> bool {
        self.bound.live.contains(&key(name))
    }

    /// Returns the number of labels bound and not released.
    pub(crate) fn live(&self) -> usize {
        self.bound.live.len()
    }

    fn bind<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        next: NextLabel,
        gate: Gate,
    ) -> Result<Binding, BindError> {
        if self.is_exhausted(now) {
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

    /// Whether the key must change: by frames, by time, or because released labels occupy room.
    fn is_exhausted(&self, now: Instant) -> bool {
        let age = self.since.map(|since| now.saturating_since(since));
        let is_older = |span| age.is_some_and(|age| age >= span);
        self.sealed >= EPOCH_FRAMES
            || is_older(EPOCH_SPAN)
            || (self.bound.released.len() >= BOUND_MAX / 4 && is_older(EPOCH_SPAN_MIN))
    }

    /// Advances to the next key. Live labels stay bound, so that none is bound twice.
    fn advance<P: Provider<Aead = A>>(&mut self, provider: &P) {
        self.secret = self.secret.next(provider);
        (self.aead, self.iv) = self.secret.expand(provider, self.suite);
        self.epoch = self.epoch.saturating_add(1);
        self.sealed = 0;
        self.since = None;
        self.bound.released.clear();
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
    pub(crate) const fn name(&self) -> LabelName {
        self.next.name
    }

    pub(crate) fn is_fresh(&self, number: u64) -> bool {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BindError {
    /// It was bound in this key epoch.
    LabelTaken,
    /// The limit of bound labels is reached.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealRefused {
    /// The number was or may have been used.
    Number,
    /// The binding belongs to another link.
    Foreign,
}

/// Frames per link key; half of what RFC 9001, section 6.6, allows for AES-GCM.
pub(crate) const EPOCH_FRAMES: u32 = 1 << 22;
/// Longest use of a link key.
pub(crate) const EPOCH_SPAN: Duration = Duration::from_secs(120);
/// Shortest use of a link key that is replaced because of released labels.
const EPOCH_SPAN_MIN: Duration = Duration::from_secs(10);
/// Labels bound on one link per key epoch; twice the labels of 10,000 flows, so that all can move.
pub(crate) const BOUND_MAX: usize = 65_536;

/// Labels that are or were bound under one key, which may not be bound again under it; 5 bytes
/// each, since there may be [`BOUND_MAX`].
#[derive(Debug, Default)]
struct BoundLabels {
    live: BTreeSet<[u8; 5]>,
    released: BTreeSet<[u8; 5]>,
}

impl BoundLabels {
    fn insert(&mut self, name: LabelName) -> bool {
        !self.released.contains(&key(name)) && self.live.insert(key(name))
    }

    fn release(&mut self, name: LabelName) {
        if self.live.remove(&key(name)) {
            self.released.insert(key(name));
        }
    }

    /// Removes a label that was released unused.
    fn forget(&mut self, name: LabelName) {
        self.live.remove(&key(name));
    }

    fn len(&self) -> usize {
        self.live.len().saturating_add(self.released.len())
    }
}

const fn key(name: LabelName) -> [u8; 5] {
    let [s0, s1, s2, s3] = name.slot.to_be_bytes();
    [s0, s1, s2, s3, name.generation]
}

/// Opens the frames of one link and direction between two shards.
pub(crate) struct HopOpener<A> {
    keys: KeyRing<A>,
}

impl<A: Aead> HopOpener<A> {
    /// Creates the opener of frames from one shard to the other.
    pub(crate) fn new<P: Provider<Aead = A>>(
        provider: &P,
        secret: &LinkSecret,
        pair: ShardPair,
    ) -> Self {
        let (suite, secret) = secret.of(provider, pair);
        Self {
            keys: KeyRing::new(provider, suite, secret, EPOCHS),
        }
    }

    /// Returns false if the announced epoch is over 64 ahead, or exceeds one epoch a second.
    pub(crate) fn reach<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        epoch: u32,
    ) -> bool {
        self.keys.reach(provider, now, epoch)
    }

    /// Decrypts a sealed frame in place and returns its body, the end-to-end ciphertext and tag.
    pub(crate) fn open<'a, P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        header: &HopHeader,
        frame: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        let (aad, rest) = frame
            .split_first_chunk_mut::<{ HopHeader::LEN }>()
            .ok_or(OpenError)?;
        let (tag, body) = rest.split_first_chunk_mut::<16>().ok_or(OpenError)?;
        let sealed = Sealed {
            phase: header.epoch,
            mask: mask(header),
            aad,
            body,
            tag,
        };
        self.keys.open(provider, now, sealed)?;
        Ok(body)
    }
}

/// Secret of one direction of a link: Expand(exporter, "tw1 link", direction).
///
/// Each sealing shard has a key per opening shard, Expand(secret, "tw1 shard", from 1 | to 1), so
/// each sealer alone determines its nonces.
#[derive(Debug)]
pub(crate) struct LinkSecret(Exporter);

/// The sealing shard of one end and the opening shard of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardPair {
    pub(crate) from: ShardId,
    pub(crate) to: ShardId,
}

impl LinkSecret {
    /// `direction` is 0 for frames of the session's dialer, 1 for those of its accepter.
    pub(crate) fn new<P: Provider>(provider: &P, exporter: &Exporter, direction: u8) -> Self {
        Self(exporter.branch(provider, LINK, &[direction]))
    }

    pub(crate) fn of<P: Provider>(&self, provider: &P, pair: ShardPair) -> (Suite, TrafficSecret) {
        let context = [pair.from.place(), pair.to.place()];
        let secret = self.0.expand(provider, SHARD, &context);
        (Suite::Aes128Gcm, TrafficSecret::new(secret))
    }
}

/// Label, generation and number, which are combined with the IV into a nonce.
pub(crate) const fn mask(header: &HopHeader) -> [u8; 12] {
    let [l0, l1, l2, l3] = header.label.slot.to_be_bytes();
    let [_, n1, n2, n3, n4, n5, n6, n7] = header.number.to_be_bytes();
    let generation = header.label.generation;
    [l0, l1, l2, l3, generation, n1, n2, n3, n4, n5, n6, n7]
}

/// Key epochs that the header distinguishes.
pub(crate) const EPOCHS: u8 = 4;
const LINK: Label = Label::new("tw1 link");
const SHARD: Label = Label::new("tw1 shard");

#[cfg(test)]
mod tests;

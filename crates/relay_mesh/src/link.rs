//! Links: keys and addresses of the neighbours that exchange hop frames with this node.

use core::net::{IpAddr, SocketAddr};

use crypto::{Aead, Exporter, OpenError, Provider, Role};
use wire::Instant;

use crate::hop::{HopHeader, LabelName, ShardId};
use crate::hop_seal::{Binding, HopOpener, HopSealer, LinkSecret, ShardPair};
use crate::link_terms::{KeyEpoch, Packing};

/// Id of a known node; reused after the node has been gone for 10 minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LinkId(pub(crate) u16);

impl LinkId {
    /// This node itself, as the exit of its own players.
    pub(crate) const OWN: Self = Self(u16::MAX);
}

/// A shard's state of a neighbour with an open session.
pub(crate) struct Link<A> {
    /// Source address of its frames.
    pub(crate) remote: SocketAddr,
    /// Own address that frames to it are sent from, equal to that of the session's packets.
    pub(crate) local: Option<IpAddr>,
    pub(crate) packing: Packing,
    shard: ShardId,
    sends: LinkSecret,
    receives: LinkSecret,
    /// Serial of the first sealer; the others have the next numbers.
    serial: u32,
    /// By the neighbour's shard that opens.
    sealers: PerShard<HopSealer<A>>,
    /// By the neighbour's shard that seals.
    openers: PerShard<HopOpener<A>>,
}

/// A value per active shard of a neighbour.
type PerShard<T> = [Option<Box<T>>; ShardId::COUNT_MAX as usize];

/// A node's end of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Dialler,
    Accepter,
}

impl From<Role> for End {
    fn from(role: Role) -> Self {
        match role {
            Role::Dialler => Self::Dialler,
            Role::Accepter => Self::Accepter,
        }
    }
}

impl End {
    /// The direction number of what this end sends.
    pub(crate) const fn sends(self) -> u8 {
        match self {
            Self::Dialler => 0,
            Self::Accepter => 1,
        }
    }

    /// The direction number of what this end receives.
    pub(crate) const fn receives(self) -> u8 {
        match self {
            Self::Dialler => 1,
            Self::Accepter => 0,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct LinkRoot<'a> {
    pub(crate) exporter: &'a Exporter,
    pub(crate) end: End,
}

impl<A: Aead> Link<A> {
    /// Creates the link of one shard. `serial` is unique among all links of a node.
    pub(crate) fn new<P: Provider<Aead = A>>(
        provider: &P,
        root: LinkRoot<'_>,
        remote: SocketAddr,
        (shard, serial): (ShardId, u32),
    ) -> Self {
        let LinkRoot { exporter, end } = root;
        Self {
            remote,
            local: None,
            packing: Packing::Alone,
            shard,
            sends: LinkSecret::new(provider, exporter, end.sends()),
            receives: LinkSecret::new(provider, exporter, end.receives()),
            serial: serial.wrapping_mul(u32::from(ShardId::COUNT_MAX)),
            sealers: [const { None }; ShardId::COUNT_MAX as usize],
            openers: [const { None }; ShardId::COUNT_MAX as usize],
        }
    }

    /// Returns the sealer for a shard of the neighbour; creates it on first use.
    pub(crate) fn sealer_to<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        to: ShardId,
    ) -> Option<&mut HopSealer<A>> {
        let slot = self.sealers.get_mut(usize::from(to.place()))?;
        let pair = ShardPair {
            from: self.shard,
            to,
        };
        let serial = self.serial.wrapping_add(to.place().into());
        let new = || Box::new(HopSealer::new(provider, &self.sends, pair, serial));
        Some(slot.get_or_insert_with(new))
    }

    pub(crate) fn sealer_of(&mut self, binding: &Binding) -> Option<&mut HopSealer<A>> {
        self.sealer_mut(binding.name().shard())
    }

    fn sealer_mut(&mut self, to: ShardId) -> Option<&mut HopSealer<A>> {
        self.sealers
            .get_mut(usize::from(to.place()))?
            .as_deref_mut()
    }

    pub(crate) fn release(&mut self, binding: Binding) {
        if let Some(sealer) = self.sealer_of(&binding) {
            sealer.release(binding);
        }
    }

    /// Number of bound labels of the neighbour.
    pub(crate) fn live(&self) -> usize {
        self.sealers.iter().flatten().map(|held| held.live()).sum()
    }

    /// Whether a label of the neighbour is bound.
    pub(crate) fn holds(&self, name: LabelName) -> bool {
        let sealer = self.sealers.get(usize::from(name.shard().place()));
        matches!(sealer, Some(Some(sealer)) if sealer.holds(name))
    }

    /// Key epochs of its sealers that were not announced to the neighbour.
    pub(crate) fn unannounced_epochs(&self) -> impl Iterator<Item = KeyEpoch> {
        let sealers = (0..).zip(&self.sealers);
        sealers.filter_map(|(to, sealer)| {
            Some(KeyEpoch {
                from: self.shard,
                to: ShardId::new(to)?,
                epoch: sealer.as_deref()?.unannounced_epoch()?,
            })
        })
    }

    pub(crate) fn on_announced(&mut self, announced: KeyEpoch) {
        if let Some(sealer) = self.sealer_mut(announced.to) {
            sealer.on_announced(announced.epoch);
        }
    }

    /// Handles an announced epoch; returns false if it is not plausible.
    pub(crate) fn reach<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        announced: KeyEpoch,
    ) -> bool {
        let opener = self.opener_from(provider, announced.from);
        opener.is_some_and(|opener| opener.reach(provider, now, announced.epoch))
    }

    fn opener_from<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        from: ShardId,
    ) -> Option<&mut HopOpener<A>> {
        let slot = self.openers.get_mut(usize::from(from.place()))?;
        let to = self.shard;
        let pair = ShardPair { from, to };
        Some(slot.get_or_insert_with(|| Box::new(HopOpener::new(provider, &self.receives, pair))))
    }

    /// Decrypts a frame in place, and returns its body.
    ///
    /// The first frame from a shard of the neighbour, genuine or not, creates one of at most eight
    /// openers; it must have a label of the link and be from its address.
    pub(crate) fn open<'a, P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        header: &HopHeader,
        frame: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        let opener = self.opener_from(provider, header.from).ok_or(OpenError)?;
        opener.open(provider, now, header, frame)
    }
}

/// Values of the links that are up, by id; of a thousand known nodes few have one.
#[derive(Debug)]
pub(crate) struct LinkTable<L> {
    links: Vec<Option<Box<L>>>,
}

impl<L> LinkTable<L> {
    pub(crate) const fn new() -> Self {
        Self { links: Vec::new() }
    }

    pub(crate) fn set(&mut self, id: LinkId, link: Option<L>) {
        let index = usize::from(id.0);
        if self.links.len() <= index {
            self.links.resize_with(index.saturating_add(1), || None);
        }
        if let Some(slot) = self.links.get_mut(index) {
            *slot = link.map(Box::new);
        }
    }

    pub(crate) fn get(&self, id: LinkId) -> Option<&L> {
        self.links.get(usize::from(id.0))?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, id: LinkId) -> Option<&mut L> {
        self.links.get_mut(usize::from(id.0))?.as_deref_mut()
    }

    /// Links that are up, by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LinkId, &L)> {
        let all = (0..).map(LinkId).zip(&self.links);
        all.filter_map(|(id, link)| Some((id, link.as_deref()?)))
    }
}

/// A set of links as a bitmap, for fast tests in passes over thousands of labels.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkSet(Vec<u64>);

impl LinkSet {
    pub(crate) fn insert(&mut self, link: LinkId) {
        let (word, bit) = place(link);
        if self.0.len() <= word {
            self.0.resize(word.saturating_add(1), 0);
        }
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn contains(&self, link: LinkId) -> bool {
        let (word, bit) = place(link);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }
}

impl Extend<LinkId> for LinkSet {
    fn extend<I: IntoIterator<Item = LinkId>>(&mut self, links: I) {
        for link in links {
            self.insert(link);
        }
    }
}

fn place(link: LinkId) -> (usize, u64) {
    (usize::from(link.0 / 64), 1 << (link.0 % 64))
}

#[cfg(test)]
impl LinkSet {
    pub(crate) fn numbers(&self) -> Vec<u16> {
        let all = 0..=u16::MAX;
        all.filter(|link| self.contains(LinkId(*link))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_what_was_put_in() {
        let mut set = LinkSet::default();
        assert!(set.numbers().is_empty());
        set.extend([0, 63, 64, 1_000, u16::MAX, 64].map(LinkId));
        assert_eq!(set.numbers(), [0, 63, 64, 1_000, u16::MAX]);
        let mut other = LinkSet::default();
        other.extend([1, 64].map(LinkId));
        other.add_all(&set);
        assert_eq!(other.numbers(), [0, 1, 63, 64, 1_000, u16::MAX]);
    }
}

//! Links: keys and addresses of the neighbours that hop frames come from and go to.

use core::net::{IpAddr, SocketAddr};

use crypto::{Aead, Exporter, Provider};

use crate::grant::GrantKey;
use crate::hop::{HopKind, LabelName};
use crate::hop_key::{HopForm, HopKeyMaker};
use crate::hop_sealer::{HopOpener, HopSealer};
use crate::link_terms::LinkTerms;

/// Names a node that this one knows of, until that one was gone for 10 minutes; then it may name
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LinkId(pub(crate) u16);

impl LinkId {
    /// Stands for this node itself, where it is the exit of its own players: nodes known of are counted
    /// from 0, and are fewer.
    pub(crate) const OWN: Self = Self(u16::MAX);
}

/// What the data plane knows of a neighbour while a session with it is open.
#[derive(Debug)]
pub(crate) struct Link<A> {
    /// Where its frames come from.
    pub(crate) remote: SocketAddr,
    /// The address of ours that its frames go from, as the session's packets do.
    pub(crate) local: Option<IpAddr>,
    pub(crate) sealer: HopSealer<A>,
    pub(crate) opener: HopOpener<A>,
    pub(crate) grants: GrantKey,
    /// How frames with it are protected, as far as that is ours to say.
    pub(crate) kind: HopKind,
    /// What its node said.
    pub(crate) terms: LinkTerms,
    hop_keys: HopKeyMaker,
}

/// Which end of its session a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Dialler,
    Accepter,
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

impl<A: Aead> Link<A> {
    /// Makes the keys of a link from its session's exporter; `serial` is the sealer's.
    pub(crate) fn new<P: Provider<Aead = A>>(
        provider: &P,
        exporter: &Exporter,
        end: End,
        remote: SocketAddr,
        serial: u64,
    ) -> Self {
        Self {
            remote,
            local: None,
            sealer: HopSealer::new(provider, exporter, end.sends(), serial),
            opener: HopOpener::new(provider, exporter, end.receives()),
            grants: GrantKey::new(provider, exporter),
            kind: HopKind::Sealed,
            terms: LinkTerms::UNSAID,
            hop_keys: HopKeyMaker::new(provider, exporter),
        }
    }

    /// Says how frames to a label are protected that is given out for those of this link: by a tag
    /// only where both ends take that.
    pub(crate) fn form<P: Provider<Aead = A>>(&mut self, provider: &P, name: LabelName) -> HopForm {
        match (self.kind, self.terms.kind) {
            (HopKind::TagOnly, HopKind::TagOnly) => {
                HopForm::TagOnly(self.hop_keys.make(provider, name))
            }
            (HopKind::Sealed, _) | (_, HopKind::Sealed) => HopForm::Sealed,
        }
    }

    /// Whether frames may go to the other end as its label wants them.
    pub(crate) const fn allows(&self, form: &HopForm) -> bool {
        matches!(
            (form, self.kind),
            (HopForm::Sealed, _) | (_, HopKind::TagOnly)
        )
    }
}

/// Links by id: those that are up. Of a thousand nodes known few have one.
#[derive(Debug)]
pub(crate) struct LinkTable<A> {
    links: Vec<Option<Box<Link<A>>>>,
}

impl<A> LinkTable<A> {
    pub(crate) const fn new() -> Self {
        Self { links: Vec::new() }
    }

    /// Puts a link up, in place of one that was.
    pub(crate) fn set(&mut self, id: LinkId, link: Option<Link<A>>) {
        let index = usize::from(id.0);
        if self.links.len() <= index {
            self.links.resize_with(index.saturating_add(1), || None);
        }
        if let Some(slot) = self.links.get_mut(index) {
            *slot = link.map(Box::new);
        }
    }

    pub(crate) fn get(&self, id: LinkId) -> Option<&Link<A>> {
        self.links.get(usize::from(id.0))?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, id: LinkId) -> Option<&mut Link<A>> {
        self.links.get_mut(usize::from(id.0))?.as_deref_mut()
    }
}

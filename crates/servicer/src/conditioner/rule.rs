//! Which datagrams a conditioner takes, and the link each goes through.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wire::Instant;

use super::{Delivery, LinkModel};

/// The rules of one or more conditioners; clones share them, so that they can be changed while
/// drivers run.
///
/// The rule that says most counts: one that names the local end before one that does not, and
/// among those an address before a host before [`Remote::Any`].
#[derive(Clone, Default)]
pub struct Rules {
    links: Arc<Mutex<Links>>,
}

impl Rules {
    /// Makes an empty set: everything passes untouched.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends all that travels between `ends` through `link`, in place of the link it had.
    ///
    /// One link serves everything the rule names, as a wire does: datagrams on it queue for the
    /// same rate. What is already on its way arrives as the old link said.
    pub fn set(&self, ends: impl Into<Ends>, link: impl LinkModel + 'static) {
        self.lock().insert(ends.into(), Box::new(link));
    }

    /// Removes the rule for exactly these `ends`; returns whether there was one.
    pub fn remove(&self, ends: impl Into<Ends>) -> bool {
        self.lock().remove(&ends.into()).is_some()
    }

    /// Returns how many rules there are.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub(super) fn has_rule(&self, local: Option<IpAddr>, remote: SocketAddr) -> bool {
        let links = self.lock();
        candidates(local, remote).any(|ends| links.contains_key(&ends))
    }

    /// Asks the link for `local` and `remote`; false where no rule names them.
    pub(super) fn send(
        &self,
        (local, remote): (Option<IpAddr>, SocketAddr),
        now: Instant,
        datagram: &[u8],
        deliveries: &mut Vec<Delivery>,
    ) -> bool {
        let mut links = self.lock();
        let Some(ends) = candidates(local, remote).find(|ends| links.contains_key(ends)) else {
            return false;
        };
        if let Some(link) = links.get_mut(&ends) {
            link.send(now, datagram, deliveries);
        }
        true
    }

    /// A panic of a model in another thread leaves rules that are still rules.
    fn lock(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

/// Both ends of what a rule names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ends {
    /// Our address; `None` for any.
    pub local: Option<IpAddr>,
    /// The other side: where outbound datagrams go, where inbound ones come from.
    pub remote: Remote,
}

impl From<Remote> for Ends {
    /// From any address of ours.
    fn from(remote: Remote) -> Self {
        Self {
            local: None,
            remote,
        }
    }
}

impl From<SocketAddr> for Ends {
    /// From any address of ours.
    fn from(remote: SocketAddr) -> Self {
        Remote::Address(remote).into()
    }
}

impl From<IpAddr> for Ends {
    /// From any address of ours.
    fn from(remote: IpAddr) -> Self {
        Remote::Host(remote).into()
    }
}

/// The other side of what a rule names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remote {
    /// Everyone.
    Any,
    /// All ports of a host.
    Host(IpAddr),
    /// One port of a host.
    Address(SocketAddr),
}

/// The rules that could name these ends, the one that says most first.
fn candidates(local: Option<IpAddr>, remote: SocketAddr) -> impl Iterator<Item = Ends> {
    let locals = [local, None].into_iter().skip(usize::from(local.is_none()));
    locals.flat_map(move |local| {
        [
            Remote::Address(remote),
            Remote::Host(remote.ip()),
            Remote::Any,
        ]
        .map(|remote| Ends { local, remote })
    })
}

/// The link of each rule.
type Links = BTreeMap<Ends, Box<dyn LinkModel>>;

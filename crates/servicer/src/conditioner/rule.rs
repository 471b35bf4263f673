//! Rules that assign datagrams to link models.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wire::Instant;

use super::{Delivery, LinkModel};

/// The rules of one or more conditioners. Clones share them, so they can change while drivers run.
///
/// The most specific rule applies: a rule with a local address before one without, then an address
/// before a host before [`Remote::Any`].
#[derive(Clone, Default)]
pub struct Rules {
    links: Arc<Mutex<Links>>,
}

impl Rules {
    /// Creates an empty set, which passes all datagrams unchanged.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends all datagrams between `ends` through `link`, which replaces any earlier link.
    ///
    /// All datagrams of the rule share the link, its queue and its rate. Datagrams already in
    /// flight keep the arrival times of the old link.
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

    /// Sends through the link for `local` and `remote`. Returns false if no rule matches.
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

    /// Ignores poisoning: a model that panics does not invalidate the rules.
    fn lock(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

/// The addresses that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ends {
    /// Local address; `None` matches any.
    pub local: Option<IpAddr>,
    /// Remote address: destination of outbound datagrams, source of inbound ones.
    pub remote: Remote,
}

impl From<Remote> for Ends {
    /// Any local address.
    fn from(remote: Remote) -> Self {
        Self {
            local: None,
            remote,
        }
    }
}

impl From<SocketAddr> for Ends {
    /// Any local address.
    fn from(remote: SocketAddr) -> Self {
        Remote::Address(remote).into()
    }
}

impl From<IpAddr> for Ends {
    /// Any local address.
    fn from(remote: IpAddr) -> Self {
        Remote::Host(remote).into()
    }
}

/// The remote addresses that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remote {
    /// All addresses.
    Any,
    /// All ports of a host.
    Host(IpAddr),
    /// One port of a host.
    Address(SocketAddr),
}

/// The rules that could match, the most specific first.
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

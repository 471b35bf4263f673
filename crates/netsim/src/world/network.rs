//! Addresses, links, taps and interceptors.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use wire::{Instant, Seed};

use super::NodeIndex;
use crate::link::{Deliveries, Link};
use crate::{Datagram, LinkConfig, LinkStats};

/// The links between all nodes, created on first use.
pub(super) struct Network {
    seed: Seed,
    addresses: BTreeMap<SocketAddr, NodeIndex>,
    links: BTreeMap<Pair, Link>,
    own: BTreeMap<Pair, LinkConfig>,
    default: LinkConfig,
    taps: Vec<Tap>,
    interceptors: BTreeMap<Pair, Box<Interceptor>>,
}

impl Network {
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            seed,
            addresses: BTreeMap::new(),
            links: BTreeMap::new(),
            own: BTreeMap::new(),
            default: LinkConfig::default(),
            taps: Vec::new(),
            interceptors: BTreeMap::new(),
        }
    }

    pub(super) fn bind(&mut self, address: SocketAddr, node: NodeIndex) -> Result<(), NodeIndex> {
        let holder = *self.addresses.entry(address).or_insert(node);
        if holder == node { Ok(()) } else { Err(holder) }
    }

    pub(super) fn unbind(&mut self, address: SocketAddr) {
        self.addresses.remove(&address);
    }

    pub(super) fn holder(&self, address: SocketAddr) -> Option<NodeIndex> {
        self.addresses.get(&address).copied()
    }

    /// Changes every link that has no configuration of its own.
    pub(super) fn set_default(&mut self, config: LinkConfig) {
        self.default = config;
        for (pair, link) in &mut self.links {
            if pair.0 != pair.1 && !self.own.contains_key(pair) {
                link.set_config(config);
            }
        }
    }

    pub(super) fn set_link(&mut self, pair: Pair, config: LinkConfig) {
        self.own.insert(pair, config);
        if let Some(link) = self.links.get_mut(&pair) {
            link.set_config(config);
        }
    }

    pub(super) fn link_config(&self, pair: Pair) -> LinkConfig {
        config_of(&self.own, &self.default, pair)
    }

    pub(super) fn link_stats(&self, pair: Pair) -> LinkStats {
        self.links
            .get(&pair)
            .map_or_else(LinkStats::default, |link| *link.stats())
    }

    pub(super) fn send(&mut self, now: Instant, pair: Pair, len: usize) -> Deliveries {
        self.link(pair).send(now, len)
    }

    pub(super) fn tap(&mut self, pair: Option<Pair>, capacity: usize) -> TapId {
        self.taps.push(Tap {
            pair,
            capacity,
            captured: VecDeque::new(),
        });
        TapId(self.taps.len() - 1)
    }

    pub(super) fn captured(&self, tap: TapId) -> Option<&VecDeque<Captured>> {
        self.taps.get(tap.0).map(|tap| &tap.captured)
    }

    /// Records a datagram with every tap of its link.
    pub(super) fn watch(&mut self, at: Instant, pair: Pair, datagram: &Datagram) {
        let watching = |tap: &&mut Tap| tap.pair.is_none_or(|watched| watched == pair);
        for tap in self.taps.iter_mut().filter(watching) {
            if tap.captured.len() >= tap.capacity {
                tap.captured.pop_front();
            }
            if tap.capacity > 0 {
                tap.captured.push_back(Captured {
                    at,
                    datagram: datagram.clone(),
                });
            }
        }
    }

    pub(super) fn intercept(&mut self, pair: Pair, interceptor: Option<Box<Interceptor>>) {
        if let Some(interceptor) = interceptor {
            self.interceptors.insert(pair, interceptor);
        } else {
            self.interceptors.remove(&pair);
        }
    }

    pub(super) fn judge(&mut self, now: Instant, pair: Pair, datagram: &mut Datagram) -> Verdict {
        self.interceptors
            .get_mut(&pair)
            .map_or(Verdict::Pass, |interceptor| interceptor(now, datagram))
    }

    fn link(&mut self, pair: Pair) -> &mut Link {
        let (seed, own, default) = (self.seed, &self.own, &self.default);
        self.links.entry(pair).or_insert_with(|| {
            let config = config_of(own, default, pair);
            Link::new(config, seed.generator(purpose(pair)))
        })
    }
}

wire::debug_fields!(
    Network,
    this {
        addresses: this.addresses,
        links: this.links
    }
);

/// Returns a link's configuration. A node reaches itself through a perfect link.
fn config_of(own: &BTreeMap<Pair, LinkConfig>, default: &LinkConfig, pair: Pair) -> LinkConfig {
    match own.get(&pair) {
        Some(config) => *config,
        None if pair.0 == pair.1 => LinkConfig::default(),
        None => *default,
    }
}

pub(super) type Pair = (NodeIndex, NodeIndex);

/// An interceptor: may change the datagram's bytes, addresses and ECN mark.
pub(super) type Interceptor = dyn FnMut(Instant, &mut Datagram) -> Verdict;

/// Decision of an interceptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Pass it on, as changed.
    Pass,
    /// Drop it.
    Drop,
    /// Deliver it this much later than the link would.
    Delay(Duration),
}

/// Identifies a tap of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapId(usize);

/// A datagram that a tap saw, as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// When it was sent, in world time.
    pub at: Instant,
    /// What was sent.
    pub datagram: Datagram,
}

#[derive(Debug)]
struct Tap {
    /// The link it watches; `None` watches all.
    pair: Option<Pair>,
    /// Most captures kept; the oldest is dropped first.
    capacity: usize,
    captured: VecDeque<Captured>,
}

/// Returns the generator stream of a link, independent of the order of first use.
fn purpose((from, to): Pair) -> u64 {
    LINKS | (u64::from(from.0) << 24) | u64::from(to.0)
}

/// Start of the generator streams for links, above those for tests.
const LINKS: u64 = 1 << 63;

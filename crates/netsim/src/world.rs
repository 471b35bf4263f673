//! A virtual network of machines in virtual time.

mod driver;
mod host;
mod network;
mod node;
mod slot;

use core::any::Any;
use core::fmt;
use core::marker::PhantomData;
use core::net::SocketAddr;
use core::ops::Index;
use core::time::Duration;
use std::collections::VecDeque;

use wire::{Generator, Instant, Seed, UnixTime};

pub use host::{App, Directory, Host, Journal};
pub use network::{Captured, TapId, Verdict};
pub use node::{Datagram, Handle, Node, NodeConfig, NodeIndex, Outbox};
pub use slot::WallClock;

use crate::trace::Step;
use crate::{LinkConfig, LinkStats, Trace};
use driver::{Event, Schedule};
use network::Network;
use slot::Slot;

/// Nodes, the links between them, and scheduled events.
///
/// Equal seeds and equal calls give equal runs: simultaneous events run in the order in which they
/// were scheduled, each link has its own generator, and no clock, thread or hash order is used.
///
/// World time starts at [`Instant::ZERO`]; each node has its own clock.
#[derive(Debug)]
pub struct World {
    now: Instant,
    seed: Seed,
    /// Wall clock at world time zero.
    unix_start: UnixTime,
    slots: Vec<Slot>,
    network: Network,
    schedule: Schedule,
    trace: Trace,
}

impl World {
    /// Creates an empty world with perfect links.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self {
            now: Instant::ZERO,
            seed,
            unix_start: UnixTime::from_secs(UNIX_START_SECS),
            slots: Vec::new(),
            network: Network::new(seed),
            schedule: Schedule::default(),
            trace: Trace::new(),
        }
    }

    /// Adds a node that `build` creates, given the time on its clock.
    ///
    /// # Panics
    ///
    /// If another node has one of its addresses.
    pub fn add<T: Node>(
        &mut self,
        config: impl Into<NodeConfig>,
        build: impl FnOnce(Instant) -> T,
    ) -> Handle<T> {
        let index = NodeIndex(u32::try_from(self.slots.len()).unwrap_or(u32::MAX));
        let slot = Slot::new(self.now, config.into());
        for &address in &slot.addresses {
            self.bind(address, index);
        }
        let node = build(slot.local(self.now));
        self.slots.push(slot);
        self.slot_mut(index).node = Some(Box::new(node));
        self.request_turn(index, self.now);
        Handle {
            index,
            node: PhantomData,
        }
    }

    /// Lets the application call its node, at the time of the node's clock.
    ///
    /// Output is sent in a turn at the same time, or when the node's stall ends.
    ///
    /// # Panics
    ///
    /// If the node was killed.
    pub fn apply<T: Node, R>(
        &mut self,
        handle: Handle<T>,
        act: impl FnOnce(&mut T, Instant) -> R,
    ) -> R {
        let now = self.now;
        let slot = self.slot_mut(handle.index);
        let local = slot.local(now);
        let result = act(alive(slot.node_mut()), local);
        self.request_turn(handle.index, now);
        result
    }

    /// Returns a node; `None` if it was killed.
    #[must_use]
    pub fn get<T: Node>(&self, handle: Handle<T>) -> Option<&T> {
        let node: &dyn Any = self.slot(handle.index).node.as_deref()?;
        node.downcast_ref()
    }

    /// Kills a node's process: its memory and socket buffer are lost, its addresses stay. Returns
    /// whether it was alive.
    pub fn kill(&mut self, node: impl Into<NodeIndex>) -> bool {
        self.slot_mut(node.into()).stop()
    }

    /// Starts a new process on a node, killed or not, at the same addresses. The node's clock
    /// continues.
    pub fn restart<T: Node>(&mut self, handle: Handle<T>, build: impl FnOnce(Instant) -> T) {
        let now = self.now;
        let slot = self.slot_mut(handle.index);
        slot.stop();
        let node = build(slot.local(now));
        slot.node = Some(Box::new(node));
        self.request_turn(handle.index, now);
    }

    /// Suspends a node for `span`; its datagrams queue in the socket buffer.
    pub fn stall(&mut self, node: impl Into<NodeIndex>, span: Duration) {
        let until = self.now + span;
        let slot = self.slot_mut(node.into());
        slot.stalled_until = slot.stalled_until.max(until);
    }

    /// Changes a node's clock drift, in parts per million, without a jump.
    pub fn set_clock_drift(&mut self, node: impl Into<NodeIndex>, drift_ppm: i32) {
        let now = self.now;
        let index = node.into();
        self.slot_mut(index).clock.set_drift(now, drift_ppm);
        self.rearm(index);
    }

    /// Changes the wall clock of a node, and notifies it.
    pub fn set_wall_clock(&mut self, node: impl Into<NodeIndex>, wall_clock: WallClock) {
        let index = node.into();
        self.slot_mut(index).config.wall_clock = wall_clock;
        self.request_turn(index, self.now);
    }

    /// Binds another address of a node.
    ///
    /// # Panics
    ///
    /// If another node has the address.
    pub fn bind_address(&mut self, node: impl Into<NodeIndex>, address: SocketAddr) {
        let index = node.into();
        self.bind(address, index);
        let addresses = &mut self.slot_mut(index).addresses;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }

    /// Unbinds an address; datagrams in flight to it are lost.
    pub fn unbind_address(&mut self, address: SocketAddr) {
        if let Some(index) = self.network.holder(address) {
            self.network.unbind(address);
            self.slot_mut(index).addresses.retain(|it| *it != address);
        }
    }

    /// Configures all links that have no configuration of their own.
    pub fn set_default_link(&mut self, config: LinkConfig) {
        self.network.set_default(config);
    }

    /// Configures one direction of a link.
    pub fn set_link(
        &mut self,
        from: impl Into<NodeIndex>,
        to: impl Into<NodeIndex>,
        config: LinkConfig,
    ) {
        self.network.set_link((from.into(), to.into()), config);
    }

    /// Configures both directions of a link.
    pub fn set_links(
        &mut self,
        one: impl Into<NodeIndex>,
        other: impl Into<NodeIndex>,
        config: LinkConfig,
    ) {
        let (one, other) = (one.into(), other.into());
        self.set_link(one, other, config);
        self.set_link(other, one, config);
    }

    /// Cuts every link between `these` and `those`, in both directions; other settings are kept.
    pub fn partition(&mut self, these: &[NodeIndex], those: &[NodeIndex]) {
        self.change_links(these, those, LinkConfig::with_down);
    }

    /// Reverts [`partition`](Self::partition).
    pub fn heal(&mut self, these: &[NodeIndex], those: &[NodeIndex]) {
        self.change_links(these, those, LinkConfig::with_up);
    }

    /// Changes every link between `these` and `those`, in both directions.
    pub fn change_links(
        &mut self,
        these: &[NodeIndex],
        those: &[NodeIndex],
        change: impl Fn(LinkConfig) -> LinkConfig,
    ) {
        let pairs = these
            .iter()
            .flat_map(|&one| those.iter().map(move |&other| (one, other)));
        for (one, other) in pairs {
            for pair in [(one, other), (other, one)] {
                let config = change(self.network.link_config(pair));
                self.network.set_link(pair, config);
            }
        }
    }

    /// Returns the configuration of one direction of a link.
    #[must_use]
    pub fn link(&self, from: impl Into<NodeIndex>, to: impl Into<NodeIndex>) -> LinkConfig {
        self.network.link_config((from.into(), to.into()))
    }

    /// Returns the counters of one direction of a link.
    #[must_use]
    pub fn link_stats(&self, from: impl Into<NodeIndex>, to: impl Into<NodeIndex>) -> LinkStats {
        self.network.link_stats((from.into(), to.into()))
    }

    /// Returns how many datagrams a node's full socket buffer dropped.
    #[must_use]
    pub fn socket_drops(&self, node: impl Into<NodeIndex>) -> u64 {
        self.slot(node.into()).overflowed
    }

    /// Returns world time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Returns the time on a node's clock.
    #[must_use]
    pub fn local_now(&self, node: impl Into<NodeIndex>) -> Instant {
        self.slot(node.into()).local(self.now)
    }

    /// Returns the true wall clock.
    #[must_use]
    pub fn unix_now(&self) -> UnixTime {
        self.unix_start + self.now.saturating_since(Instant::ZERO)
    }

    /// Returns a generator for the test's own draws; `purpose` below 2^63, one for each use.
    #[must_use]
    pub fn generator(&self, purpose: u64) -> Generator {
        self.seed.generator(purpose & (u64::MAX >> 1))
    }

    /// Returns the trace.
    #[must_use]
    pub const fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns the trace, to mix in what the test observed.
    pub const fn trace_mut(&mut self) -> &mut Trace {
        &mut self.trace
    }

    /// Records the newest `capacity` datagrams sent from one node to another.
    pub fn tap(
        &mut self,
        from: impl Into<NodeIndex>,
        to: impl Into<NodeIndex>,
        capacity: usize,
    ) -> TapId {
        self.network.tap(Some((from.into(), to.into())), capacity)
    }

    /// Records the newest `capacity` datagrams sent by any node.
    pub fn tap_all(&mut self, capacity: usize) -> TapId {
        self.network.tap(None, capacity)
    }

    /// Returns what a tap of this world recorded, oldest first.
    #[must_use]
    pub fn captured(&self, tap: TapId) -> &VecDeque<Captured> {
        const NOTHING: &VecDeque<Captured> = &VecDeque::new();
        self.network.captured(tap).unwrap_or(NOTHING)
    }

    /// Sets the interceptor of a link, which decides about each datagram before the link does. It
    /// replaces an earlier one.
    pub fn intercept(
        &mut self,
        from: impl Into<NodeIndex>,
        to: impl Into<NodeIndex>,
        interceptor: impl FnMut(Instant, &mut Datagram) -> Verdict + 'static,
    ) {
        let pair = (from.into(), to.into());
        self.network.intercept(pair, Some(Box::new(interceptor)));
    }

    /// Removes the interceptor of a link.
    pub fn release(&mut self, from: impl Into<NodeIndex>, to: impl Into<NodeIndex>) {
        self.network.intercept((from.into(), to.into()), None);
    }

    /// Delivers a datagram after `delay`, bypassing all links, as an adversary near the receiver
    /// could.
    pub fn inject(&mut self, delay: Duration, datagram: Datagram) {
        self.trace.note(self.now, Step::Forged, &datagram);
        self.schedule
            .insert(self.now + delay, Event::Arrival(datagram));
    }

    fn bind(&mut self, address: SocketAddr, index: NodeIndex) {
        if let Err(holder) = self.network.bind(address, index) {
            #[expect(clippy::panic, reason = "the test that builds this world is wrong")]
            {
                panic!("{address} of {index:?} belongs to {holder:?}");
            }
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "names come from `add`, and no slot is removed"
    )]
    fn slot(&self, NodeIndex(index): NodeIndex) -> &Slot {
        &self.slots[usize::try_from(index).unwrap_or(usize::MAX)]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "names come from `add`, and no slot is removed"
    )]
    fn slot_mut(&mut self, NodeIndex(index): NodeIndex) -> &mut Slot {
        &mut self.slots[usize::try_from(index).unwrap_or(usize::MAX)]
    }
}

impl<T: Node> Index<Handle<T>> for World {
    type Output = T;

    /// Returns a node.
    ///
    /// # Panics
    ///
    /// If the node was killed.
    fn index(&self, handle: Handle<T>) -> &T {
        alive(self.get(handle))
    }
}

/// The predicate did not hold in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// World time at which the wait ended.
    pub at: Instant,
}

impl fmt::Display for Overdue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what was waited for had not come by {:?}", self.at)
    }
}

impl core::error::Error for Overdue {}

#[expect(
    clippy::expect_used,
    reason = "the test that asks knows whom it killed"
)]
const fn alive<T>(node: Option<T>) -> T {
    node.expect("the node was killed")
}

/// Wall clock at world time zero: 2025-01-01 00:00:00 UTC, so that tokens made there look usual.
const UNIX_START_SECS: u64 = 1_735_689_600;

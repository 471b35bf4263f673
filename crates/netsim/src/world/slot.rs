//! One host of a world: its process, clock and sockets.

use core::any::Any;
use core::fmt;
use core::net::SocketAddr;
use std::collections::VecDeque;

use wire::{Arrival, Instant};

use super::clock::Clock;
use super::{Datagram, Node, NodeConfig, WallClock};

/// One host: its process, clock and sockets.
pub(super) struct Slot {
    /// `None` while killed, and during its own turn.
    pub(super) node: Option<Box<dyn Node>>,
    pub(super) config: NodeConfig,
    pub(super) addresses: Vec<SocketAddr>,
    clock: Clock,
    /// Datagrams in the socket buffer, oldest first.
    pub(super) socket: VecDeque<Datagram>,
    /// Payload bytes in `socket`.
    pub(super) socket_len: usize,
    /// Datagrams dropped because the buffer was full.
    pub(super) overflowed: u64,
    pub(super) stalled_until: Instant,
    /// Time of the planned turn; any other planned turn is void.
    pub(super) turn_at: Option<Instant>,
    /// Time of the earliest planned wake-up.
    pub(super) armed: Option<Instant>,
    /// Time of the last turn, and turns at that time.
    last_turn: Instant,
    turns: u32,
}

impl Slot {
    pub(super) fn new(now: Instant, config: NodeConfig) -> Self {
        Self {
            node: None,
            addresses: config.addresses.clone(),
            clock: Clock::new(now, config.clock_offset, config.clock_drift_ppm),
            config,
            socket: VecDeque::new(),
            socket_len: 0,
            overflowed: 0,
            stalled_until: Instant::ZERO,
            turn_at: None,
            armed: None,
            last_turn: Instant::ZERO,
            turns: 0,
        }
    }

    pub(super) fn start(&mut self, node: Box<dyn Node>) {
        self.node = Some(node);
    }

    pub(super) fn stop(&mut self) -> bool {
        self.socket.clear();
        self.socket_len = 0;
        self.stalled_until = Instant::ZERO;
        self.node.take().is_some()
    }

    pub(super) fn stall(&mut self, until: Instant) {
        self.stalled_until = self.stalled_until.max(until);
    }

    pub(super) fn set_drift(&mut self, now: Instant, drift_ppm: i32) {
        self.clock.set_drift(now, drift_ppm);
    }

    pub(super) const fn set_wall_clock(&mut self, wall_clock: WallClock) {
        self.config.wall_clock = wall_clock;
    }

    pub(super) fn add_address(&mut self, address: SocketAddr) {
        if !self.addresses.contains(&address) {
            self.addresses.push(address);
        }
    }

    pub(super) fn remove_address(&mut self, address: SocketAddr) {
        self.addresses.retain(|held| *held != address);
    }

    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub(super) fn local(&self, now: Instant) -> Instant {
        self.clock.local(now)
    }

    pub(super) fn node(&self) -> Option<&dyn Node> {
        self.node.as_deref()
    }

    pub(super) fn node_mut<T: Node>(&mut self) -> Option<&mut T> {
        let node: &mut dyn Any = self.node.as_deref_mut()?;
        node.downcast_mut()
    }

    pub(super) const fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// When the node's earliest timer is due, in world time.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let deadline = self.node.as_ref()?.poll_timeout()?;
        Some(self.clock.world(deadline))
    }

    pub(super) const fn has_room(&self, len: usize) -> bool {
        self.config.socket_bytes.saturating_sub(self.socket_len) >= len
    }

    /// Passes a batch of waiting datagrams to `node`.
    pub(super) fn receive(&mut self, local: Instant, node: &mut dyn Node) {
        let batch = self.config.batch.max(1).min(self.socket.len());
        for mut datagram in self.socket.drain(..batch) {
            self.socket_len -= datagram.bytes.len();
            let arrival = Arrival {
                ecn: datagram.ecn,
                ..Arrival::from(datagram.source)
            };
            node.handle_datagram(local, datagram.destination, arrival, &mut datagram.bytes);
        }
    }

    /// Panics if a node runs turns without end at one point in time.
    pub(super) fn count_turn(&mut self, now: Instant) {
        if self.last_turn != now {
            self.last_turn = now;
            self.turns = 0;
        }
        self.turns += 1;
        assert!(
            self.turns < TURNS_MAX,
            "the node at {:?} had {TURNS_MAX} turns at {now:?}: its timers are due again as soon \
             as they have run, or its peers answer without delay",
            self.addresses
        );
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("alive", &self.node.is_some())
            .field("addresses", &self.addresses)
            .field("socket", &self.socket.len())
            .finish_non_exhaustive()
    }
}

/// Most turns at one point in time; more are an endless loop.
const TURNS_MAX: u32 = 20_000;

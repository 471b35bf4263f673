//! Threads that forward frames for the shards after the first.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crypto::Ring;
use relay_mesh::{Forwarder, STRAYS_MAX, Stray};
use serde::Serialize;
use servicer::{
    Application, Counters, Handle, Requests, SocketIndex, SpawnError, UdpServicer, UdpSocket,
};
use wire::{CommandId, Instant, Machine};

use super::emulation::Emulation;
use super::machine::{NodeMachine, NodeRequest};

/// The forwarding threads of a node. Dropping it stops them.
#[derive(Debug)]
pub(super) struct ForwarderThreads {
    handles: Vec<Handle<Infallible>>,
    strays: Arc<StrayQueue>,
}

pub(super) struct ForwarderContext<'a> {
    pub(super) name: &'a str,
    pub(super) emulation: &'a Emulation,
}

impl ForwarderThreads {
    /// Starts a thread per forwarder and socket. Datagrams for the node itself are sent to `node`.
    pub(super) fn start(
        forwarders: Vec<(Forwarder<Ring>, UdpSocket)>,
        node: &Requests<NodeRequest>,
        context: &ForwarderContext<'_>,
    ) -> Result<Self, SpawnError> {
        let strays = Arc::<StrayQueue>::default();
        let mut handles = Vec::with_capacity(forwarders.len());
        for (shard, (forwarder, socket)) in (1..).zip(forwarders) {
            let app = ForwarderApp {
                node: node.clone(),
                strays: Arc::clone(&strays),
                dropped: 0,
            };
            let servicer = UdpServicer::named(format!("{}-{shard}", context.name));
            let handle = context
                .emulation
                .apply(servicer)
                .spawn(vec![socket], forwarder, app)?;
            handles.push(handle);
        }
        Ok(Self { handles, strays })
    }

    /// Returns whether all threads run. Datagrams that the system assigns to a stopped thread's
    /// socket are lost.
    pub(super) fn is_running(&self) -> bool {
        self.handles.iter().all(Handle::is_running)
    }

    pub(super) fn counts(&self) -> ForwarderStats {
        ForwarderStats {
            drivers: self.handles.iter().map(Handle::requests).collect(),
            strays: Arc::clone(&self.strays),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct ForwarderStats {
    drivers: Vec<Requests<Infallible>>,
    strays: Arc<StrayQueue>,
}

impl ForwarderStats {
    pub(super) fn drivers(&self) -> impl Iterator<Item = Counters> {
        self.drivers.iter().map(Requests::counters)
    }

    pub(super) fn strays(&self) -> StrayStats {
        self.strays.stats()
    }
}

/// Datagrams for the node that arrived at another shard's socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StrayStats {
    /// Passed to the node.
    pub handed: u64,
    /// Dropped because the queue to the node was full.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct StrayQueue {
    waiting: Mutex<VecDeque<Stray>>,
    is_requested: AtomicBool,
    handed: AtomicU64,
    dropped: AtomicU64,
}

impl StrayQueue {
    fn stats(&self) -> StrayStats {
        StrayStats {
            handed: self.handed.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }

    /// Queues one; returns whether the node must be asked to take the queue.
    fn push(&self, stray: Stray) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= STRAYS_MAX {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        } else {
            waiting.push_back(stray);
        }
        !self.is_requested.swap(true, Ordering::SeqCst)
    }

    /// Records that the request could not be sent; the next `push` asks again.
    fn request_failed(&self) {
        self.is_requested.store(false, Ordering::SeqCst);
    }

    fn take(&self) -> VecDeque<Stray> {
        self.is_requested.store(false, Ordering::SeqCst);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = std::mem::take(&mut *waiting);
        let count = u64::try_from(taken.len()).unwrap_or(u64::MAX);
        self.handed.fetch_add(count, Ordering::Relaxed);
        taken
    }

    fn deliver(&self, now: Instant, node: &mut NodeMachine) {
        for mut stray in self.take() {
            Machine::handle_datagram(node, now, stray.arrival, &mut stray.datagram);
        }
    }
}

/// Passes a forwarder's datagrams to the node. At most one request is pending at a time.
struct ForwarderApp {
    node: Requests<NodeRequest>,
    strays: Arc<StrayQueue>,
    /// Drops of the forwarder that are already counted.
    dropped: u64,
}

wire::debug_fields!(ForwarderApp);

impl Application<Forwarder<Ring>> for ForwarderApp {
    type Request = Infallible;

    fn apply_request(
        &mut self,
        _: Instant,
        _: &mut Forwarder<Ring>,
        request: Infallible,
    ) -> ControlFlow<()> {
        match request {}
    }

    fn on_event(&mut self, _: Instant, forwarder: &mut Forwarder<Ring>, stray: Stray) {
        let dropped = forwarder.strays_dropped();
        let new = dropped.saturating_sub(self.dropped);
        self.strays.dropped.fetch_add(new, Ordering::Relaxed);
        self.dropped = dropped;
        if !self.strays.push(stray) {
            return;
        }
        let strays = Arc::clone(&self.strays);
        let request = NodeRequest::new(move |now, node| strays.deliver(now, node));
        if self.node.send(request).is_err() {
            self.strays.request_failed();
        }
    }

    fn on_receive_drops(
        &mut self,
        _: Instant,
        _: &mut Forwarder<Ring>,
        _: SocketIndex,
        count: u64,
    ) {
        // If the queue is full, the driver's counter still has the drops.
        let request =
            NodeRequest::new(move |now, node| node.record_receive_drops(now, None, count));
        self.node.send(request).ok();
    }

    fn on_command(
        &mut self,
        _: Instant,
        _: &mut Forwarder<Ring>,
        _: CommandId,
        command: Infallible,
    ) {
        match command {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relay_mesh::PeerAddr;

    fn stray(number: usize) -> Stray {
        let address = "192.0.2.1:9".parse().unwrap();
        Stray {
            arrival: PeerAddr::mesh(address).into(),
            datagram: number.to_be_bytes().to_vec(),
        }
    }

    #[test]
    fn strays_are_bounded_counted_and_requested_once() {
        let strays = StrayQueue::default();
        let requested = (0..STRAYS_MAX + 5).filter(|number| strays.push(stray(*number)));
        assert_eq!(requested.collect::<Vec<_>>(), [0], "one request waits");
        assert_eq!(strays.stats().dropped, 5);
        let taken = strays.take();
        assert_eq!(taken.len(), STRAYS_MAX);
        assert_eq!(taken.front(), Some(&stray(0)), "in order");
        assert_eq!(strays.stats().handed, u64::try_from(STRAYS_MAX).unwrap());
        // The queue has room and requests again.
        assert!(strays.push(stray(1)) && !strays.push(stray(2)));
        strays.request_failed();
        assert!(strays.push(stray(3)), "the request was not sent");
        assert_eq!(strays.take().len(), 3);
        assert!(strays.take().is_empty());
        assert_eq!(strays.stats().dropped, 5);
    }
}

//! Dialing the hub: host names resolved off the driver's thread, and the log of failed attempts.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::thread;

use crossbeam_channel::{Receiver, TryRecvError};
use hub::NodeEvent;
use wire::{CommandId, Instant, NodeId};

use crate::tcp::{Dial, DialError};

/// Resolves the host names of a join file. The name of one hub does not wait for that of another.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    known: BTreeMap<String, Vec<SocketAddr>>,
    running: BTreeMap<String, Receiver<Vec<SocketAddr>>>,
    /// The running dial to each hub, and its name.
    dialled: BTreeMap<NodeId, (CommandId, String)>,
    /// Number of dials; a name's addresses are tried in turn.
    turn: usize,
}

impl Lookup {
    /// Returns where to dial for `address`, `host:port`; `None` while it is being resolved.
    pub(super) fn dial(&mut self, id: CommandId, node: NodeId, address: String) -> Option<Dial> {
        if let Ok(address) = address.parse() {
            return Some(Dial {
                address,
                peer: node.into(),
            });
        }
        self.take_answer();
        let Some(found) = self.known.get(&address).filter(|found| !found.is_empty()) else {
            self.start(address);
            return None;
        };
        let turn = self.turn.checked_rem(found.len()).unwrap_or_default();
        self.turn = self.turn.wrapping_add(1);
        let socket = *found.get(turn)?;
        self.dialled.insert(node, (id, address));
        Some(Dial {
            address: socket,
            peer: node.into(),
        })
    }

    /// Returns whether the last resolution of `address` found nothing.
    pub(super) fn has_failed(&mut self, address: &str) -> bool {
        self.take_answer();
        self.known.get(address).is_some_and(Vec::is_empty)
    }

    /// Handles the end of a dial. After a failure the name is resolved again.
    pub(super) fn on_dialled<T, E>(&mut self, id: CommandId, result: &Result<T, E>) {
        let mut dialled = self.dialled.iter();
        let own = dialled.find(|(_, (dialled, _))| *dialled == id);
        let Some(node) = own.map(|(node, _)| *node) else {
            return;
        };
        if let Some((_, address)) = self.dialled.remove(&node)
            && result.is_err()
        {
            self.start(address);
        }
    }

    fn take_answer(&mut self) {
        self.running.retain(|name, answer| match answer.try_recv() {
            Ok(found) => {
                self.known.insert(name.clone(), found);
                false
            }
            Err(TryRecvError::Disconnected) => false,
            Err(TryRecvError::Empty) => true,
        });
    }

    fn start(&mut self, name: String) {
        self.take_answer();
        if self.running.contains_key(&name) || self.running.len() >= LOOKUPS_MAX {
            return;
        }
        let (sender, answer) = crossbeam_channel::bounded(1);
        let host = name.clone();
        let spawned = thread::Builder::new()
            .name("lookup".to_owned())
            .spawn(move || {
                let found = host.to_socket_addrs();
                let found = found.map(|found| found.take(ADDRESSES_MAX).collect());
                drop(sender.send(found.unwrap_or_default()));
            });
        if spawned.is_ok() {
            self.running.insert(name, answer);
        }
    }
}

const ADDRESSES_MAX: usize = 16;

/// Lookups at once; each has a thread.
const LOOKUPS_MAX: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DialFailure {
    NoAddress,
    Dial(DialError),
}

wire::display_text! { DialFailure {
    Self::NoAddress => "its name has no address",
    Self::Dial(DialError::Refused) =>
        "it refused the handshake; check that the hub's join file lists this node",
    Self::Dial(error) => "{error}",
}}

/// Logs a node's failed dials: a new reason at once, an unchanged one every minute for each hub.
#[derive(Debug)]
pub(super) struct DialLog {
    node: NodeId,
    /// The last dial to each hub.
    dialled: BTreeMap<NodeId, CommandId>,
    last_logged: BTreeMap<NodeId, (DialFailure, Instant)>,
}

impl DialLog {
    pub(super) const fn new(node: NodeId) -> Self {
        Self {
            node,
            dialled: BTreeMap::new(),
            last_logged: BTreeMap::new(),
        }
    }

    pub(super) fn on_dial(&mut self, id: CommandId, hub: NodeId) {
        self.dialled.insert(hub, id);
    }

    pub(super) fn on_failed(&mut self, now: Instant, id: CommandId, reason: DialFailure) {
        if let Some(hub) = self.hub_of(id)
            && self.should_log(now, hub, reason)
        {
            let node = self.node;
            tracing::warn!(%node, %hub, %reason, "the hub cannot be reached; retrying");
        }
    }

    pub(super) fn on_reached(&mut self, id: CommandId) {
        if let Some(hub) = self.hub_of(id)
            && self.last_logged.remove(&hub).is_some()
        {
            tracing::info!(node = %self.node, %hub, "reached the hub");
        }
    }

    /// Logs a refusal of a hub that the application may not handle.
    pub(super) fn on_event(&self, event: &NodeEvent) {
        if let NodeEvent::ShardRefused { shard, reason } = event {
            tracing::warn!(node = %self.node, shard, %reason, "a hub refuses this node");
        }
    }

    fn hub_of(&self, id: CommandId) -> Option<NodeId> {
        let mut dialled = self.dialled.iter();
        let (hub, _) = dialled.find(|(_, dialled)| **dialled == id)?;
        Some(*hub)
    }

    fn should_log(&mut self, now: Instant, hub: NodeId, reason: DialFailure) -> bool {
        let last = self.last_logged.get(&hub);
        let is_new = last.is_none_or(|(last_logged, at)| {
            *last_logged != reason || now.saturating_since(*at) >= REPEAT_INTERVAL
        });
        // A deliberate shutdown is not logged.
        let is_fault = reason != DialFailure::Dial(DialError::Ended);
        if is_new && is_fault {
            self.last_logged.insert(hub, (reason, now));
        }
        is_new && is_fault
    }
}

/// Interval at which an unchanged failure is logged again.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use crate::tcp::DialPeer;

    use super::*;

    const HUB: NodeId = NodeId([1; 32]);

    #[test]
    fn an_ip_address_is_dialled_at_once() {
        let dial = Lookup::default().dial(CommandId(1), HUB, "[::1]:7400".to_owned());
        assert_eq!(dial.unwrap().address, "[::1]:7400".parse().unwrap());
    }

    #[test]
    fn a_name_is_dialled_once_resolved() {
        let mut lookup = Lookup::default();
        let mut id = 0;
        let dial = loop {
            id += 1;
            let dial = lookup.dial(CommandId(id), HUB, "localhost:7400".to_owned());
            if let Some(dial) = dial {
                break dial;
            }
            assert!(!lookup.running.is_empty(), "no resolution runs");
            thread::yield_now();
        };
        assert!(dial.address.ip().is_loopback());
        assert_eq!(dial.address.port(), 7_400);
        assert!(matches!(dial.peer, DialPeer::Node(HUB)));
        assert!(!lookup.has_failed("localhost:7400"));
        // After a failed dial the name is resolved again; meanwhile the old address is dialed.
        lookup.on_dialled(CommandId(id), &Err::<(), _>(()));
        assert!(!lookup.running.is_empty());
        let again = lookup.dial(CommandId(id + 1), HUB, "localhost:7400".to_owned());
        assert!(again.is_some());
    }

    #[test]
    fn the_name_of_a_hub_does_not_wait_for_that_of_another() {
        let mut lookup = Lookup::default();
        for name in ["hub.invalid:7400", "localhost:7400"] {
            assert!(lookup.dial(CommandId(1), HUB, name.to_owned()).is_none());
        }
        assert_eq!(lookup.running.len(), 2);
        for number in 0..100 {
            let name = format!("hub-{number}.invalid:7400");
            assert!(lookup.dial(CommandId(1), HUB, name).is_none());
        }
        assert!(lookup.running.len() <= LOOKUPS_MAX);
    }

    #[test]
    fn a_name_without_addresses_is_reported_as_failed() {
        let mut lookup = Lookup::default();
        // RFC 6761, section 6.4: this name never resolves.
        let name = "hub.invalid:7400";
        assert!(!lookup.has_failed(name), "not resolved yet");
        assert!(lookup.dial(CommandId(1), HUB, name.to_owned()).is_none());
        while !lookup.has_failed(name) {
            assert!(!lookup.running.is_empty(), "no resolution runs");
            thread::yield_now();
        }
    }

    #[test]
    fn a_failure_is_logged_once_a_minute_and_a_new_one_at_once() {
        let mut dial_log = DialLog::new(NodeId([1; 32]));
        let (gone, refused) = (DialError::Gone, DialError::Refused);
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let last_logged: Vec<_> = [
            (0, gone),
            (1, gone),
            (59, gone),
            (60, gone),
            (61, refused),
            (62, refused),
            (63, DialError::Ended),
            (120, refused),
            (121, refused),
        ]
        .into_iter()
        .filter(|(second, error)| dial_log.should_log(at(*second), HUB, DialFailure::Dial(*error)))
        .map(|(second, _)| second)
        .collect();
        assert_eq!(last_logged, [0, 60, 61, 121]);
        let other = NodeId([2; 32]);
        assert!(dial_log.should_log(at(121), other, DialFailure::Dial(refused)));
        dial_log.on_dial(CommandId(1), HUB);
        dial_log.on_reached(CommandId(1));
        assert!(dial_log.should_log(at(122), HUB, DialFailure::Dial(refused)));
        assert!(dial_log.should_log(at(122), HUB, DialFailure::NoAddress));
        assert!(!dial_log.should_log(at(122), other, DialFailure::Dial(refused)));
    }
}

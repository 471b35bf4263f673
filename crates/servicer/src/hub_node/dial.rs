//! Dialing the hub: host names resolved off the driver's thread, and the log of failed attempts.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::thread;

use crossbeam_channel::{Receiver, TryRecvError};
use wire::{CommandId, Instant, NodeId};

use crate::tcp::{Dial, DialError};

/// Resolves the host names of a join file, one at a time.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    known: BTreeMap<String, Vec<SocketAddr>>,
    running: Option<(String, Receiver<Vec<SocketAddr>>)>,
    /// The running dial, and its name.
    dialled: Option<(CommandId, String)>,
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
        self.dialled = Some((id, address));
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
        if let Some((_, address)) = self.dialled.take_if(|(dialled, _)| *dialled == id)
            && result.is_err()
        {
            self.start(address);
        }
    }

    fn take_answer(&mut self) {
        let Some((name, answer)) = &self.running else {
            return;
        };
        match answer.try_recv() {
            Ok(found) => {
                self.known.insert(name.clone(), found);
                self.running = None;
            }
            Err(TryRecvError::Disconnected) => self.running = None,
            Err(TryRecvError::Empty) => {}
        }
    }

    fn start(&mut self, name: String) {
        self.take_answer();
        if self.running.is_some() {
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
            self.running = Some((name, answer));
        }
    }
}

const ADDRESSES_MAX: usize = 16;

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

/// Logs a node's failed dials: a new reason at once, an unchanged one every minute.
#[derive(Debug)]
pub(super) struct DialLog {
    node: NodeId,
    last_logged: Option<(DialFailure, Instant)>,
}

impl DialLog {
    pub(super) const fn new(node: NodeId) -> Self {
        Self {
            node,
            last_logged: None,
        }
    }

    pub(super) fn on_failed(&mut self, now: Instant, reason: DialFailure) {
        if self.should_log(now, reason) {
            let node = self.node;
            tracing::warn!(%node, %reason, "the hub cannot be reached; retrying");
        }
    }

    pub(super) fn on_joined(&mut self) {
        if self.last_logged.take().is_some() {
            tracing::info!(node = %self.node, "reached the hub");
        }
    }

    fn should_log(&mut self, now: Instant, reason: DialFailure) -> bool {
        let is_new = self.last_logged.is_none_or(|(last_logged, at)| {
            last_logged != reason || now.saturating_since(at) >= REPEAT_INTERVAL
        });
        // A deliberate shutdown is not logged.
        let is_fault = reason != DialFailure::Dial(DialError::Ended);
        if is_new && is_fault {
            self.last_logged = Some((reason, now));
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
            assert!(lookup.running.is_some(), "no resolution runs");
            thread::yield_now();
        };
        assert!(dial.address.ip().is_loopback());
        assert_eq!(dial.address.port(), 7_400);
        assert!(matches!(dial.peer, DialPeer::Node(HUB)));
        assert!(!lookup.has_failed("localhost:7400"));
        // After a failed dial the name is resolved again; meanwhile the old address is dialed.
        lookup.on_dialled(CommandId(id), &Err::<(), _>(()));
        assert!(lookup.running.is_some());
        let again = lookup.dial(CommandId(id + 1), HUB, "localhost:7400".to_owned());
        assert!(again.is_some());
    }
    #[test]
    fn a_name_without_addresses_is_reported_as_failed() {
        let mut lookup = Lookup::default();
        // RFC 6761, section 6.4: this name never resolves.
        let name = "hub.invalid:7400";
        assert!(!lookup.has_failed(name), "not resolved yet");
        assert!(lookup.dial(CommandId(1), HUB, name.to_owned()).is_none());
        while !lookup.has_failed(name) {
            assert!(lookup.running.is_some(), "no resolution runs");
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
        .filter(|(second, error)| dial_log.should_log(at(*second), DialFailure::Dial(*error)))
        .map(|(second, _)| second)
        .collect();
        assert_eq!(last_logged, [0, 60, 61, 121]);
        dial_log.on_joined();
        assert!(dial_log.should_log(at(122), DialFailure::Dial(refused)));
        assert!(dial_log.should_log(at(122), DialFailure::NoAddress));
    }
}

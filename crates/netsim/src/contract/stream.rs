//! A group of stream machines and the connections between them.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::{
    CloseCause, CommandId, ConnectionId, Generator, Instant, Outbound, PeerIdentity, Seed,
    StreamMachine, UnixTime,
};

use super::datagram::{CRAFTED_PER_MILLION, completion_delay};
use super::harness::{Captures, Group, OUTCOMES, Output, Post, START};
use super::{Reached, Rule, StreamContractSubject, StreamOutcomeOf, Violation};
use crate::adversary::below;

pub(super) struct StreamGroup<'a, S: StreamContractSubject> {
    subject: &'a S,
    machines: Vec<S::Machine>,
    /// Open ends by machine and id, in that order.
    ends: BTreeMap<(usize, ConnectionId), End>,
    /// Number of connections opened so far; the id of the next.
    opened: u32,
    outcomes: Generator,
    captures: Captures,
    buffer: Vec<u8>,
}

impl<'a, S: StreamContractSubject> StreamGroup<'a, S> {
    pub(super) fn new(subject: &'a S, seed: Seed) -> Self {
        Self {
            subject,
            machines: subject.build(seed, START),
            ends: BTreeMap::new(),
            opened: 0,
            outcomes: seed.generator(OUTCOMES),
            captures: Captures::default(),
            buffer: Vec::new(),
        }
    }

    /// Connects a pair of the group that is not connected.
    fn connect(&mut self, pair: usize, now: Instant, post: &mut Post<Input<S>>) -> bool {
        let known = self.subject.connections();
        let Some(&(one, other)) = known.get(pair) else {
            return false;
        };
        if self.ends.values().any(|end| end.pair == Some(pair)) {
            return false;
        }
        let connection = self.next_id();
        let opened = |peer, identity| Opened {
            connection,
            pair: Some(pair),
            peer: Some(peer),
            identity,
        };
        let input = Input::Opened(opened(one, self.subject.identity(one)));
        post.push(WIRE, other, input);
        let identity = self.subject.identity(other);
        self.open(one, now, &opened(other, identity))
    }

    const fn next_id(&mut self) -> ConnectionId {
        self.opened += 1;
        ConnectionId(self.opened)
    }

    fn open(&mut self, index: usize, now: Instant, opened: &Opened) -> bool {
        let end = End {
            pair: opened.pair,
            peer: opened.peer,
            credit: CREDIT,
            closing: false,
        };
        self.ends.insert((index, opened.connection), end);
        let Some(machine) = self.machines.get_mut(index) else {
            return false;
        };
        machine.handle_opened(now, opened.connection, &opened.identity);
        machine.handle_credit(now, opened.connection, CREDIT);
        true
    }

    /// Closes one end at once and notifies its machine; the other end is notified over the network.
    fn close(
        &mut self,
        index: usize,
        now: Instant,
        (connection, cause): (ConnectionId, CloseCause),
        post: &mut Post<Input<S>>,
    ) -> bool {
        let Some(end) = self.ends.remove(&(index, connection)) else {
            return false;
        };
        if let Some(to) = end.peer {
            post.push(WIRE, to, Input::Closed(connection, CloseCause::Finished));
        }
        if let Some(pair) = end.pair
            && let Some(&(one, _)) = self.subject.connections().get(pair)
        {
            post.push(RECONNECT, one, Input::Connect(pair));
        }
        let Some(machine) = self.machines.get_mut(index) else {
            return false;
        };
        machine.handle_closed(now, connection, cause);
        true
    }

    fn write(
        &mut self,
        index: usize,
        outbound: Outbound,
        record: &[u8],
        post: &mut Post<Input<S>>,
    ) -> Result<(), Violation> {
        let connection = outbound.connection;
        let end = self.ends.get_mut(&(index, connection));
        let open = end.filter(|end| !end.closing);
        let left = open.and_then(|end| Some((end.credit.checked_sub(record.len())?, end)));
        let Some((left, end)) = left else {
            return Err(Rule::Credit.violated(format!(
                "machine {index} wrote {} bytes to {connection:?}, which is closed or has less \
                 credit",
                record.len()
            )));
        };
        end.credit = left;
        end.closing = outbound.close;
        let peer = end.peer;
        self.captures.keep(record);
        if let Some(to) = peer {
            post.push(WIRE, to, Input::Frame(connection, record.to_vec()));
        }
        if outbound.close {
            let input = Input::Closed(connection, CloseCause::Local);
            post.push(Duration::ZERO, index, input);
        } else {
            post.push(WIRE, index, Input::Credit(connection, record.len()));
        }
        Ok(())
    }
}

impl<S: StreamContractSubject> Group for StreamGroup<'_, S> {
    type Input = Input<S>;

    fn begin(&mut self, now: Instant, unix: UnixTime, post: &mut Post<Input<S>>) {
        for machine in &mut self.machines {
            machine.set_unix_time(now, unix);
        }
        for (pair, (one, _)) in self.subject.connections().into_iter().enumerate() {
            post.push(Duration::ZERO, one, Input::Connect(pair));
        }
    }

    fn handle(
        &mut self,
        index: usize,
        now: Instant,
        input: Input<S>,
        post: &mut Post<Input<S>>,
    ) -> bool {
        match input {
            Input::Connect(pair) => return self.connect(pair, now, post),
            Input::Opened(opened) => return self.open(index, now, &opened),
            Input::Closed(id, cause) => return self.close(index, now, (id, cause), post),
            Input::Frame(..) | Input::Credit(..) | Input::Completed(..) => {}
        }
        let Some(machine) = self.machines.get_mut(index) else {
            return false;
        };
        match input {
            Input::Frame(id, record) if self.ends.contains_key(&(index, id)) => {
                machine.handle_frame(now, id, &record);
            }
            Input::Credit(id, bytes) => {
                let Some(end) = self.ends.get_mut(&(index, id)) else {
                    return false;
                };
                end.credit += bytes;
                machine.handle_credit(now, id, bytes);
            }
            Input::Completed(id, outcome) => machine.handle_completed(now, id, outcome),
            Input::Frame(..) | Input::Connect(_) | Input::Opened(_) | Input::Closed(..) => {
                return false;
            }
        }
        true
    }

    /// Performs an attack: a hostile record on an open connection, a failed connection, or an
    /// unknown peer's connection.
    fn attack(
        &mut self,
        index: usize,
        now: Instant,
        script: &mut Generator,
        post: &mut Post<Input<S>>,
    ) {
        let of_machine = (index, ConnectionId(0))..=(index, ConnectionId(u32::MAX));
        let connections: Vec<ConnectionId> = self
            .ends
            .range(of_machine)
            .map(|((_, id), _)| *id)
            .collect();
        let chosen = connections.get(below(script, connections.len())).copied();
        match (chosen, script.below(8)) {
            (None, _) | (_, 0) => {
                let opened = Opened {
                    connection: self.next_id(),
                    pair: None,
                    peer: None,
                    identity: self.subject.unknown_peer(script),
                };
                self.open(index, now, &opened);
            }
            // Twice as likely as a stranger, so that few connections are open at a time.
            (Some(connection), 1 | 2) => {
                self.close(index, now, (connection, CloseCause::Failed), post);
            }
            (Some(connection), _) => {
                let crafted = script
                    .chance(CRAFTED_PER_MILLION)
                    .then(|| self.subject.hostile(index, script))
                    .flatten();
                let record = crafted.unwrap_or_else(|| self.captures.mutate(script));
                if let Some(machine) = self.machines.get_mut(index) {
                    machine.handle_frame(now, connection, &record);
                }
            }
        }
    }

    fn poll_sent(
        &mut self,
        index: usize,
        now: Instant,
        post: &mut Post<Input<S>>,
    ) -> Result<Option<Output>, Violation> {
        let mut buffer = core::mem::take(&mut self.buffer);
        buffer.clear();
        let outbound = self
            .machines
            .get_mut(index)
            .and_then(|machine| machine.poll_outbound(now, &mut buffer));
        let written = outbound.map(|outbound| {
            self.write(index, outbound, &buffer, post).map(|()| Output {
                text: format!("{outbound:?}"),
                bytes: buffer.clone(),
            })
        });
        self.buffer = buffer;
        written.transpose()
    }

    fn completes(input: &Input<S>) -> Option<CommandId> {
        if let Input::Completed(id, _) = input {
            return Some(*id);
        }
        None
    }

    subject_methods!();
}

pub(super) enum Input<S: StreamContractSubject> {
    /// The pair with this index may connect, if it is not connected.
    Connect(usize),
    Opened(Opened),
    Frame(ConnectionId, Vec<u8>),
    Credit(ConnectionId, usize),
    Closed(ConnectionId, CloseCause),
    Completed(CommandId, StreamOutcomeOf<S>),
}

pub(super) struct Opened {
    connection: ConnectionId,
    /// Index of the pair; `None` for an unknown peer.
    pair: Option<usize>,
    /// The machine at the other end; `None` for an unknown peer.
    peer: Option<usize>,
    identity: PeerIdentity,
}

struct End {
    pair: Option<usize>,
    peer: Option<usize>,
    credit: usize,
    /// Whether its machine requested the close.
    closing: bool,
}

/// Bytes that a new connection may write before its peer has consumed any.
const CREDIT: usize = 65_536;
/// One-way delay. It is constant, so records stay in order.
const WIRE: Duration = Duration::from_millis(20);
/// Time after which a closed connection of the group reconnects.
const RECONNECT: Duration = Duration::from_millis(500);

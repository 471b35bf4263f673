//! Nodes that run one machine: with its application, and with a directory of its peers.

use core::net::SocketAddr;

use wire::{Arrival, CommandId, Effect, Instant, Machine, Transmit, UnixTime};

use super::{Node, Outbox};

/// Application callbacks; `()` ignores everything, [`Journal`] records events.
pub trait App<M: Machine>: 'static {
    /// Handles an event of the machine.
    fn on_event(&mut self, now: Instant, machine: &mut M, event: M::Event);

    /// Handles a command of the machine; by default it is never completed.
    fn on_command(
        &mut self,
        _now: Instant,
        _machine: &mut M,
        _id: CommandId,
        _command: M::Command,
    ) {
    }

    /// Runs the application's timers.
    fn on_timeout(&mut self, _now: Instant, _machine: &mut M) {}

    /// Returns when `on_timeout` is next needed.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// A machine that identifies peers by address, driven in the order of the workspace's drivers.
#[derive(Clone, Debug)]
pub struct Host<M, A> {
    /// The machine.
    pub machine: M,
    /// Its application.
    pub app: A,
    buffer: Vec<u8>,
}

impl<M: Machine<Peer = SocketAddr>, A: App<M>> Host<M, A> {
    /// Combines a machine and its application.
    #[must_use]
    pub const fn new(machine: M, app: A) -> Self {
        Self {
            machine,
            app,
            buffer: Vec::new(),
        }
    }

    fn drain_once(&mut self, now: Instant, outbox: &mut Outbox<'_>) -> u32 {
        let mut count = 0;
        while count < OUTPUTS_MAX
            && let Some(transmit) = self.machine.poll_transmit(now, &mut self.buffer)
        {
            for datagram in transmit.datagrams(&self.buffer) {
                outbox.send(
                    transmit.source,
                    transmit.destination,
                    transmit.ecn,
                    datagram,
                );
            }
            self.buffer.clear();
            count += 1;
        }
        while count < OUTPUTS_MAX
            && let Some((id, command)) = self.machine.poll_command()
        {
            self.app.on_command(now, &mut self.machine, id, command);
            count += 1;
        }
        while count < OUTPUTS_MAX
            && let Some(event) = self.machine.poll_event()
        {
            self.app.on_event(now, &mut self.machine, event);
            count += 1;
        }
        count
    }
}

impl<M, A> Node for Host<M, A>
where
    M: Machine<Peer = SocketAddr> + 'static,
    A: App<M>,
{
    fn handle_datagram(
        &mut self,
        now: Instant,
        local: SocketAddr,
        arrival: Arrival<SocketAddr>,
        datagram: &mut [u8],
    ) {
        let arrival = Arrival {
            local: Some(local.ip()),
            ..arrival
        };
        self.machine.handle_datagram(now, arrival, datagram);
    }

    fn handle_timeout(&mut self, now: Instant) {
        let due = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        if due(self.app.poll_timeout()) {
            self.app.on_timeout(now, &mut self.machine);
        }
        if due(self.machine.poll_timeout()) {
            self.machine.handle_timeout(now);
        }
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        self.machine.set_unix_time(now, unix);
    }

    /// Drains until there is no output, since the application may send while it handles an event.
    fn drain(&mut self, now: Instant, outbox: &mut Outbox<'_>) {
        let mut count = 0;
        loop {
            match self.drain_once(now, outbox) {
                0 => return,
                some => count += some,
            }
            assert!(
                count < OUTPUTS_MAX,
                "a machine and its application gave {OUTPUTS_MAX} outputs in one turn"
            );
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let machine = self.machine.poll_timeout();
        let app = self.app.poll_timeout();
        machine.into_iter().chain(app).min()
    }
}

impl<M: Machine> App<M> for () {
    fn on_event(&mut self, _now: Instant, _machine: &mut M, _event: M::Event) {}
}

/// An application that records each event with its time.
#[derive(Clone, Debug)]
pub struct Journal<E> {
    /// Events in order, with the node's time.
    pub events: Vec<(Instant, E)>,
}

impl<E> Default for Journal<E> {
    fn default() -> Self {
        Self { events: Vec::new() }
    }
}

impl<M: Machine<Event: 'static>> App<M> for Journal<M::Event> {
    fn on_event(&mut self, now: Instant, _machine: &mut M, event: M::Event) {
        self.events.push((now, event));
    }
}

/// Outputs of one turn above which a machine is considered to never go idle.
const OUTPUTS_MAX: u32 = 1_000_000;

/// A machine that identifies peers by numbers or names, with the address of each.
///
/// It lets such a machine run in a [`Host`](super::Host). Datagrams from an unknown address, or to
/// a peer without an address, are dropped and counted.
#[derive(Clone, Debug)]
pub struct Directory<M: Machine> {
    /// The machine.
    pub machine: M,
    /// Entries in insertion order, which is the search order.
    entries: Vec<(M::Peer, SocketAddr)>,
    dropped: u64,
}

impl<M: Machine<Peer: PartialEq>> Directory<M> {
    /// Creates an empty directory for `machine`.
    #[must_use]
    pub const fn new(machine: M) -> Self {
        Self {
            machine,
            entries: Vec::new(),
            dropped: 0,
        }
    }

    /// Adds the address of `peer`.
    #[must_use]
    pub fn with(mut self, peer: M::Peer, address: SocketAddr) -> Self {
        self.entries.push((peer, address));
        self
    }

    /// Returns how many datagrams were dropped for lack of an entry.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl<M: Machine<Peer: PartialEq>> Machine for Directory<M> {
    type Peer = SocketAddr;
    type Event = M::Event;
    type Command = M::Command;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<SocketAddr>, datagram: &mut [u8]) {
        let mut entries = self.entries.iter();
        let Some(&(peer, _)) = entries.find(|(_, address)| *address == arrival.peer) else {
            self.dropped += 1;
            return;
        };
        let arrival = Arrival {
            peer,
            real_source: arrival.real_source,
            local: arrival.local,
            ecn: arrival.ecn,
        };
        self.machine.handle_datagram(now, arrival, datagram);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.machine.handle_timeout(now);
    }

    fn handle_completed(
        &mut self,
        now: Instant,
        id: CommandId,
        outcome: <M::Command as Effect>::Outcome,
    ) {
        self.machine.handle_completed(now, id, outcome);
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        self.machine.set_unix_time(now, unix);
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        let start = buf.len();
        loop {
            let transmit = self.machine.poll_transmit(now, buf)?;
            let mut entries = self.entries.iter();
            let found = entries.find(|(peer, _)| *peer == transmit.destination);
            let Some(&(_, destination)) = found else {
                self.dropped += 1;
                buf.truncate(start);
                continue;
            };
            return Some(Transmit {
                destination,
                source: transmit.source,
                segment_len: transmit.segment_len,
                ecn: transmit.ecn,
            });
        }
    }

    fn poll_command(&mut self) -> Option<(CommandId, M::Command)> {
        self.machine.poll_command()
    }

    fn poll_event(&mut self) -> Option<M::Event> {
        self.machine.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }
}

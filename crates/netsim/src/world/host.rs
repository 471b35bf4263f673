//! A node that runs one machine and its application.

use core::net::SocketAddr;

use wire::{Arrival, CommandId, Instant, Machine, UnixTime};

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
    /// The buffer for `poll_transmit`.
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

    /// Polls all current output; returns the number of items.
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

//! Many clients on one thread.

use core::convert::Infallible;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;

use servicer::{Dial, DialError, StreamApplication};
use wire::{
    CloseCause, CommandId, ConnectionId, Effect, Instant, Outbound, PeerIdentity, StreamMachine,
};

/// A client's first message to a reliable server: kind and version.
const JOIN: [u8; 2] = [0, 1];

/// Connects many times to a reliable server, joins, and counts received records.
#[derive(Debug)]
pub struct Clients {
    dial: Dial,
    left_to_dial: u64,
    /// Dials in progress, at most what a server accepts from one source.
    running: u64,
    joining: VecDeque<ConnectionId>,
    incoming: Arc<AtomicU64>,
}

/// Maximum concurrent dials: half of what a server accepts from one source.
const DIALS_MAX: u64 = 16;

/// A dial.
#[derive(Debug)]
pub struct Call(Dial);

impl Effect for Call {
    type Outcome = Infallible;
}

impl Clients {
    /// Creates a load of `count` clients. Each received record increments `incoming`.
    pub const fn new(dial: Dial, count: u64, incoming: Arc<AtomicU64>) -> Self {
        Self {
            dial,
            left_to_dial: count,
            running: 0,
            joining: VecDeque::new(),
            incoming,
        }
    }
}

impl StreamMachine for Clients {
    type Event = Infallible;
    type Command = Call;

    fn handle_opened(&mut self, _: Instant, id: ConnectionId, _: &PeerIdentity) {
        self.joining.push_back(id);
    }
    fn handle_frame(&mut self, _: Instant, _: ConnectionId, _: &[u8]) {
        self.incoming.fetch_add(1, Ordering::Relaxed);
    }
    fn handle_credit(&mut self, _: Instant, _: ConnectionId, _: usize) {}
    fn handle_closed(&mut self, _: Instant, _: ConnectionId, _: CloseCause) {}
    fn poll_outbound(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<Outbound> {
        let connection = self.joining.pop_front()?;
        buf.extend_from_slice(&JOIN);
        Some(Outbound {
            connection,
            close: false,
        })
    }
    fn handle_timeout(&mut self, _: Instant) {}
    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }
    fn poll_command(&mut self) -> Option<(CommandId, Call)> {
        if self.running >= DIALS_MAX {
            return None;
        }
        self.left_to_dial = self.left_to_dial.checked_sub(1)?;
        self.running += 1;
        Some((CommandId(self.left_to_dial), Call(self.dial.clone())))
    }
    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// The clients' application, which sends nothing.
#[derive(Debug)]
pub struct Guests;

impl StreamApplication<Clients> for Guests {
    type Request = ();

    fn apply_request(&mut self, _: Instant, _: &mut Clients, (): ()) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    fn on_event(&mut self, _: Instant, _: &mut Clients, event: Infallible) {
        match event {}
    }
    fn on_command(
        &mut self,
        _: Instant,
        _: &mut Clients,
        _: CommandId,
        Call(dial): Call,
    ) -> Option<Dial> {
        Some(dial)
    }
    fn on_dialled(
        &mut self,
        _: Instant,
        clients: &mut Clients,
        _: CommandId,
        result: Result<ConnectionId, DialError>,
    ) {
        result.expect("the server is there");
        clients.running -= 1;
    }
}

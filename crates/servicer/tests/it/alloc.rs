//! No allocation in the steady state.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::ControlFlow;

use servicer::{Application, Config, Driver};
use wire::{Arrival, CommandId, Instant, Machine, Transmit};

use crate::harness::{bind, plain};

#[test]
fn steady_work_allocates_nothing() {
    let socket = bind("127.0.0.1");
    let address = socket.local_address();
    let (mut driver, requests) = Driver::new(
        vec![socket],
        BurstEcho::default(),
        NoRequests,
        Config::default(),
    )
    .unwrap();
    let client = plain("127.0.0.1");
    let mut bytes = [0; 2_000];
    let mut round = |number: usize| {
        let len = 1 + number % 1_200;
        client.send_to(&bytes[..len], address).unwrap();
        requests.send(number).unwrap();
        let before = driver.machine().received;
        while driver.machine().received == before {
            driver.wait().unwrap();
            assert_eq!(driver.turn(), ControlFlow::Continue(()));
        }
        // Two of one length are a run, the third is another; together they are a batch.
        for len in [len, len, len + 1] {
            assert_eq!(client.recv(&mut bytes).unwrap(), len);
        }
    };
    (0..2_000).for_each(&mut round);
    let before = allocations();
    (0..20_000).for_each(&mut round);
    assert_eq!(allocations() - before, 0);
}

/// Sends each datagram back three times, the last time a byte longer, from its own buffer.
#[derive(Debug)]
struct BurstEcho {
    bytes: [u8; 2_000],
    /// Peer and length.
    waiting: [Option<(SocketAddr, usize)>; 3],
    received: u64,
}

impl Default for BurstEcho {
    fn default() -> Self {
        Self {
            bytes: [0; 2_000],
            waiting: [None; 3],
            received: 0,
        }
    }
}

impl Machine for BurstEcho {
    type Peer = SocketAddr;
    type Event = Infallible;
    type Command = Infallible;

    fn handle_datagram(&mut self, _: Instant, arrival: Arrival<SocketAddr>, datagram: &mut [u8]) {
        self.bytes[..datagram.len()].copy_from_slice(datagram);
        let len = datagram.len();
        self.waiting = [len, len, len + 1].map(|len| Some((arrival.peer, len)));
        self.received += 1;
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_transmit(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        let (peer, len) = self.waiting.iter_mut().find_map(Option::take)?;
        buf.extend_from_slice(&self.bytes[..len]);
        Some(Transmit::to(peer))
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Ignores the numbers that it gets.
#[derive(Debug)]
struct NoRequests;

impl Application<BurstEcho> for NoRequests {
    type Request = usize;

    fn apply_request(&mut self, _: Instant, _: &mut BurstEcho, _: usize) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, _: &mut BurstEcho, event: Infallible) {
        match event {}
    }

    fn on_command(&mut self, _: Instant, _: &mut BurstEcho, _: CommandId, command: Infallible) {
        match command {}
    }
}

fn allocations() -> u64 {
    COUNT.get()
}

/// Counts per thread, because tests run in parallel.
struct Counting;

#[expect(unsafe_code, reason = "a counting allocator cannot be had without")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

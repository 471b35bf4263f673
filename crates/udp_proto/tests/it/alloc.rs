//! Packets and messages must not allocate in the steady state.

use core::cell::Cell;
use core::time::Duration;
use std::alloc::{GlobalAlloc, Layout, System};

use udp_proto::{ChannelId, Config, Event, SessionId};
use wire::{Arrival, Seed};

use crate::direct::{Line, Party};
use crate::harness::{Native, RELIABLE, UNRELIABLE};
use crate::key_update::{every, phases};

/// Two endpoints, with every buffer that a driver keeps.
struct Pair {
    line: Line<Native>,
    sessions: (SessionId, SessionId),
    buffer: Vec<u8>,
    message: Vec<u8>,
    received: u64,
}

impl Pair {
    fn new() -> Self {
        Self::with(Config::default())
    }

    fn with(config: Config) -> Self {
        let mut line = Line::between(
            Seed::from_number(1),
            config,
            |listen| listen,
            (Native::new(), Native::new()),
        );
        let sessions = line.join(1);
        Self {
            line,
            sessions,
            buffer: Vec::with_capacity(2_000),
            message: Vec::with_capacity(2_000),
            received: 0,
        }
    }

    /// Sends one message each way and delivers everything, 1/60 s later.
    fn tick(&mut self, channel: ChannelId) {
        self.line.now += Duration::from_millis(16);
        let (now, payload) = (self.line.now, [7; 100]);
        let Line { client, server, .. } = &mut self.line;
        let endpoints = [
            (&mut *client, self.sessions.0),
            (&mut *server, self.sessions.1),
        ];
        for (endpoint, session) in endpoints {
            endpoint.wake(now);
            endpoint
                .machine
                .send(now, session, channel, &payload)
                .expect("there is room");
        }
        loop {
            let there = carry(now, client, server, &mut self.buffer);
            let back = carry(now, server, client, &mut self.buffer);
            if !there && !back {
                break;
            }
        }
        for (endpoint, session) in [(client, self.sessions.0), (server, self.sessions.1)] {
            while let Some(event) = endpoint.machine.poll_event() {
                assert_eq!(event, Event::Readable { session });
                while endpoint
                    .machine
                    .receive(now, session, &mut self.message)
                    .is_some()
                {
                    self.received += 1;
                    self.message.clear();
                }
            }
        }
    }

    fn allocations(&mut self, channel: ChannelId, warm_up: u32, ticks: u32) -> u64 {
        for _ in 0..warm_up {
            self.tick(channel);
        }
        let before = (COUNT.get(), self.received);
        for _ in 0..ticks {
            self.tick(channel);
        }
        assert_eq!(self.received - before.1, u64::from(ticks) * 2);
        COUNT.get() - before.0
    }
}

/// Delivers what `from` has to send; returns whether there was any.
fn carry(
    now: wire::Instant,
    from: &mut Party<Native>,
    to: &mut Party<Native>,
    buffer: &mut Vec<u8>,
) -> bool {
    let mut is_any = false;
    while from.machine.poll_transmit(now, buffer).is_some() {
        to.machine
            .handle_datagram(now, Arrival::from(from.at), buffer);
        buffer.clear();
        is_any = true;
    }
    is_any
}

#[test]
fn twp_f3_100_000_unreliable_packets_each_way_allocate_nothing() {
    assert_eq!(Pair::new().allocations(UNRELIABLE, 1_000, 100_000), 0);
}

#[test]
fn twp_f3_reliable_messages_allocate_nothing_in_the_steady_state() {
    assert_eq!(Pair::new().allocations(RELIABLE, 2_000, 20_000), 0);
}

#[test]
fn twp_f3_changes_of_keys_allocate_nothing_either() {
    let mut pair = Pair::with(every(64));
    assert_eq!(pair.allocations(UNRELIABLE, 1_000, 20_000), 0);
    let phases = phases(&pair.line, pair.sessions);
    assert!(phases.iter().all(|count| *count > 250), "{phases:?}");
}

#[test]
fn refused_datagrams_allocate_nothing() {
    let mut pair = Pair::new();
    let mut junk = [0_u8; 1_200];
    let server = &mut pair.line.server;
    let (now, from) = (pair.line.now, pair.line.client.at);
    let taken = server.machine.stats().taken();
    let before = COUNT.get();
    for first in 0..=255 {
        for len in [1, 22, 45, 211, 1_200] {
            junk[0] = first;
            server
                .machine
                .handle_datagram(now, Arrival::from(from), &mut junk[..len]);
        }
    }
    assert_eq!(COUNT.get() - before, 0);
    assert_eq!(server.machine.stats().taken(), taken);
}

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// Number of allocations by this thread.
pub(crate) fn allocated() -> u64 {
    COUNT.get()
}

/// Bytes that this thread allocated and has not freed; negative if it frees what other threads
/// allocated.
pub(crate) fn held() -> i64 {
    HELD.get()
}

/// Peak bytes that this thread holds while `work` runs, above what it held before.
#[cfg(feature = "codec")]
pub(crate) fn peak(work: impl FnOnce()) -> i64 {
    let before = HELD.get();
    PEAK.set(before);
    work();
    PEAK.get() - before
}

/// At thread exit the counters no longer exist, and nothing is measured.
fn hold(bytes: i64) {
    HELD.try_with(|held| held.set(held.get().wrapping_add(bytes)))
        .ok();
    PEAK.try_with(|peak| peak.set(peak.get().max(HELD.try_with(Cell::get).unwrap_or(0))))
        .ok();
}

fn size(layout: Layout) -> i64 {
    i64::try_from(layout.size()).unwrap_or(i64::MAX)
}

struct Counter;

#[expect(unsafe_code, reason = "an allocator is counted by wrapping it")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.try_with(|count| count.set(count.get() + 1)).ok();
        hold(size(layout));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        hold(-size(layout));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTER: Counter = Counter;

//! Code that must not allocate: heartbeats, rejected records, look-ups, and timers without work.

use core::cell::Cell;
use core::time::Duration;
use std::alloc::{GlobalAlloc, Layout, System};

use matchmaker_core::Config;
use matchmaker_core::record::encode_heartbeat;
use wire::{ClientId, CommandId};

use crate::harness::{Harness, Server};

#[test]
fn the_steady_state_allocates_nothing() {
    let mut server = Server::new(1, 8);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    server.join(&mut harness);
    let ticket = harness.play(0..2, &mut server)[0];
    harness.submit(7);
    let mut heartbeat = Vec::new();
    encode_heartbeat(
        server.intake,
        server.matches.keys().map(|id| (*id, true)),
        &mut heartbeat,
    );
    let unknown = matchmaker_core::record::Intake::Open;
    let mut stale = Vec::new();
    encode_heartbeat(
        unknown,
        [(wire::MatchId([0; 16]), true)].into_iter(),
        &mut stale,
    );
    stale.truncate(stale.len() - 1);
    let mut reply = Vec::with_capacity(1_024);
    let mut turn = |harness: &mut Harness| {
        harness.now += Duration::from_millis(10);
        let records: [&[u8]; 4] = [&heartbeat, &stale, b"\x01\x63", b""];
        for record in records {
            reply.clear();
            harness
                .machine
                .handle_call(harness.now, server.link, record, &mut reply);
        }
        harness.machine.handle_timeout(harness.now);
        harness.machine.handle_completed(
            harness.now,
            CommandId(u64::MAX),
            matchmaker_core::Outcome::Started,
        );
        assert!(harness.machine.ticket(ticket).is_some());
        let waiting = harness.machine.ticket_of(ClientId(7)).unwrap();
        harness.machine.keep_ticket(harness.now, waiting);
        assert!(harness.machine.poll_event().is_none() && harness.machine.poll_command().is_none());
    };
    for _ in 0..1_000 {
        turn(&mut harness);
    }
    let before = COUNT.get();
    for _ in 0..25_000 {
        turn(&mut harness);
    }
    assert_eq!(COUNT.get() - before, 0);
}

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counter;

#[expect(unsafe_code, reason = "an allocator is counted by wrapping it")]
// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // When a thread ends, its counter is already dropped, and nothing is measured.
        COUNT.try_with(|count| count.set(count.get() + 1)).ok();
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTER: Counter = Counter;

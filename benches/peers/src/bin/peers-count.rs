//! `peers-count`: prints allocations, datagrams and memory of every case, one row per line.

use core::cell::Cell;
use std::alloc::{GlobalAlloc, Layout, System};

use harness::usage::answer;
use peers::count::{Allocator, rows};

/// The `--help` text.
const USAGE: &str = "\
Counts allocations, datagrams and memory of every case; prints a row a line.

Usage: peers-count";

fn main() {
    answer(USAGE, &[]);
    rows(Allocator {
        allocated: || COUNT.get(),
        held: || HELD.get(),
    });
}

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// Size of an allocation in glibc's heap: 8 bytes of overhead, in multiples of 16, at least 32.
fn taken(layout: Layout) -> i64 {
    let taken = (layout.size() + 8).next_multiple_of(16).max(32);
    i64::try_from(taken).unwrap_or(i64::MAX)
}

/// When a thread ends, its counters are gone and nothing is measured.
fn count(allocations: u64, bytes: i64) {
    COUNT
        .try_with(|count| count.set(count.get() + allocations))
        .ok();
    HELD.try_with(|held| held.set(held.get() + bytes)).ok();
}

struct Counter;

#[expect(unsafe_code, reason = "an allocator is counted by wrapping it")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, taken(layout));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -taken(layout));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTER: Counter = Counter;

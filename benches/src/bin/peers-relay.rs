//! `peers-relay [ROUNDS [PACKETS [FLOWS [CASES]]]]`: packets through a Tickwire relay and through
//! bare forwarders, one row per line. `CASES` is a prefix of case names that limits the run to
//! these.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use benches::relay::child::{pin, play_role};
use benches::relay::rounds::{Plan, measure};
use harness::usage::answer;

/// The `--help` text.
const USAGE: &str = "\
Sends packets through a relay of ours and through bare forwarders; prints a row a line.

Usage: peers-relay [ROUNDS [PACKETS [FLOWS [CASES]]]]

ROUNDS: 7 by default. PACKETS: 200,000 by default. FLOWS: 10,000 by default.
CASES: how the names begin of the cases to run; all by default.";

fn main() -> io::Result<()> {
    play_role(|| COUNT.load(Ordering::Relaxed));
    answer(USAGE, &[]);
    pin(1);
    let mut numbers = std::env::args()
        .skip(1)
        .map_while(|it| it.parse::<u32>().ok());
    let plan = Plan {
        rounds: numbers.next().unwrap_or(7).max(1),
        packets: numbers
            .next()
            .map_or(200_000, |it| usize::try_from(it).unwrap_or(1)),
        flows: numbers.next().unwrap_or(10_000),
        only: std::env::args().nth(4).unwrap_or_default(),
    };
    measure(&plan, &mut |row| row.print())
}

/// Allocations of all threads.
static COUNT: AtomicU64 = AtomicU64::new(0);

struct Counter;

#[expect(unsafe_code, reason = "an allocator is counted by wrapping it")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTER: Counter = Counter;

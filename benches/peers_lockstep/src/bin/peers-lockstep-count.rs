//! `peers-lockstep-count`: prints how often stacks allocate, and how often a server encodes.

use core::cell::Cell;
use harness::row;
use std::alloc::{GlobalAlloc, Layout, System};

use harness::usage::answer;
use peers_lockstep::case::{self, Case};
use peers_lockstep::cost::Contender;
use peers_lockstep::play::Pad;
use peers_lockstep::race::{Meter, Race, Turns};
use peers_lockstep::stack::fortress::Fortress;
use peers_lockstep::stack::ggrs::Ggrs;
use peers_lockstep::stack::tickwire_mesh::TickwireMesh;
use peers_lockstep::stack::tickwire_server::TickwireServer;
use peers_lockstep::stack::{FRAME, Stack};

/// Frames in which allocations are counted.
const FRAMES: u32 = 3_600;

/// The `--help` text.
const USAGE: &str = "\
Counts how often each stack allocates, and how often a server encodes; prints a row a line.

Usage: peers-lockstep-count";

fn main() {
    answer(USAGE, &[]);
    for case in case::bare() {
        allocations::<Ggrs<Pad>>(&case);
        allocations::<Fortress<Pad>>(&case);
        allocations::<TickwireServer<Pad>>(&case);
        allocations::<TickwireMesh<Pad>>(&case);
    }
    allocations::<TickwireServer<Pad>>(&case::many_players());
    for case in case::bare().into_iter().chain([case::many_players()]) {
        encodes(&case);
    }
}

/// Allocations per player's frame and, if there is a server, per server tick.
fn allocations<S: Stack<Pad> + 'static>(case: &Case) {
    let mut contender = Contender::new::<Pad, S>(case.setup, Turns::Each4Ms);
    let cost = contender.count(FRAMES, || COUNT.get());
    print(S::NAME, case, "allocations_per_frame", cost.player);
    if S::HAS_SERVER {
        #[expect(clippy::cast_precision_loss, reason = "a few players")]
        let players = case.setup.players as f64;
        let allocations = cost.server * players;
        print(S::NAME, case, "server_allocations_per_tick", allocations);
    }
}

/// Bundles that a server encodes per tick, independent of its clients' states.
fn encodes(case: &Case) {
    let mut race = Race::<Pad, TickwireServer<Pad>>::new(case.setup, Turns::Each4Ms);
    race.run(FRAME * FRAMES, &mut Meter::default());
    let stats = race.stack.stats();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let encodes = stats.bundles_encoded as f64 / stats.ticks_closed as f64;
    let name = <TickwireServer<Pad> as Stack<Pad>>::NAME;
    print(name, case, "encodes_per_tick", encodes);
}

fn print(stack: &str, case: &Case, metric: &str, value: f64) {
    row::print(stack, &case.name, metric, value);
}

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counter;

#[expect(unsafe_code, reason = "an allocator is counted by wrapping it")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // When a thread ends, its counter is gone and nothing is measured.
        COUNT.try_with(|count| count.set(count.get() + 1)).ok();
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

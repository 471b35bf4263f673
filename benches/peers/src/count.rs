//! Counted values: allocations, datagrams, memory.
//!
//! They have a separate program, so that counting does not slow the timed runs.

use crate::case::{CASES, Case};
use crate::idle::bytes_per_connection;
use crate::pair::{Link, Pair};
use crate::stack::Stack;
use crate::stack::enet::Enet;
use crate::stack::quinn_proto::QuinnProto;
use crate::stack::renet::Renet;
use crate::stack::tickwire::Tickwire;
use harness::row;

/// Readings of a counting allocator for this thread.
#[derive(Clone, Copy, Debug)]
pub struct Allocator {
    /// Number of allocations.
    pub allocated: fn() -> u64,
    /// Bytes allocated and not freed.
    pub held: fn() -> i64,
}

/// Messages before the count starts.
const WARM_UP: u64 = 10_000;
/// Messages counted, of both ends together, as in the goal.
const MESSAGES: u64 = 200_000;
/// The same for messages of 64 KiB.
const LONG_MESSAGES: u64 = 500;

/// Prints a row per count.
pub fn rows(allocator: Allocator) {
    of_stack::<Tickwire>(allocator);
    of_stack::<Renet>(allocator);
    of_stack::<QuinnProto>(allocator);
    of_stack::<Enet>(allocator);
}

fn of_stack<S: Stack>(allocator: Allocator) {
    for case in CASES {
        of_case::<S>(case, allocator.allocated);
    }
    row::print(
        S::NAME,
        "idle",
        "bytes_per_connection",
        bytes_per_connection::<S>(allocator.held),
    );
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn of_case<S: Stack>(case: Case, allocated: fn() -> u64) {
    let mut pair = Pair::<S>::new(case);
    let (warm_up, messages) = if case.len > 1_200 {
        (LONG_MESSAGES, LONG_MESSAGES)
    } else {
        (WARM_UP, MESSAGES)
    };
    pair.carry(warm_up);
    let (allocations, before) = (allocated(), pair.carried());
    pair.carry(messages);
    let (allocations, after) = (allocated() - allocations, pair.carried());
    let carried = (after.messages - before.messages) as f64;
    let datagrams = (after.datagrams - before.datagrams) as f64;
    let counts = [
        ("allocations_per_message", allocations as f64 / carried),
        ("datagrams_per_message", datagrams / carried),
    ];
    for (metric, value) in counts {
        row::print(S::NAME, case.name, metric, value);
    }
}

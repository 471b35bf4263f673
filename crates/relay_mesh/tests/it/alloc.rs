//! What a relay allocates for a packet: nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use netsim::Datagram;
use relay_mesh::Leg;
use wire::Seed;

use crate::harness::{ENTRY, Mesh, RELAY, START, Shape, mesh_address};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Counts allocations of each thread.
struct Counting;

#[expect(unsafe_code, reason = "a global allocator is unsafe to implement")]
// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, len) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

pub(crate) fn allocations() -> u64 {
    COUNT.with(Cell::get)
}

#[test]
fn mesh_f7_a_relay_allocates_nothing_for_a_frame() {
    let shape = Shape {
        rate: 5_000,
        ..Shape::default()
    };
    let mut mesh = Mesh::new(Seed::from_number(1), &shape);
    let (entry, relay) = (mesh.nodes[ENTRY], mesh.nodes[RELAY]);
    mesh.run(START + 1_000);
    // Genuine frames that the relay has not seen.
    let tap = mesh.world.tap(entry, relay, 100_000);
    mesh.world
        .intercept(entry, relay, |_, datagram: &mut Datagram| {
            if datagram.bytes.first() == Some(&0x81) {
                netsim::Verdict::Drop
            } else {
                netsim::Verdict::Pass
            }
        });
    mesh.run(250);
    let mut frames: Vec<Vec<u8>> = mesh
        .world
        .captured(tap)
        .iter()
        .map(|captured| captured.datagram.bytes.clone())
        .filter(|bytes| bytes.first() == Some(&0x81))
        .collect();
    assert!(frames.len() > 1_100, "{}", frames.len());
    let before = mesh.process(RELAY).node.frame_stats().sealed;
    let count = mesh.world.apply(relay, |process, now| {
        let mut out = Vec::with_capacity(2_048);
        let mut pass = |frame: &mut Vec<u8>| {
            let leg = Leg::mesh(mesh_address(ENTRY));
            process.node.handle_datagram(now, leg.into(), frame);
            out.clear();
            while process.node.poll_transmit(now, &mut out).is_some() {
                out.clear();
            }
            assert_eq!(process.node.poll_command(), None);
        };
        let (warm, counted) = frames.split_at_mut(100);
        warm.iter_mut().for_each(&mut pass);
        let start = allocations();
        counted.iter_mut().for_each(&mut pass);
        allocations() - start
    });
    let passed = mesh.process(RELAY).node.frame_stats().sealed - before;
    assert!(passed > 1_100, "{passed}");
    assert_eq!(count, 0, "for {passed} frames");
}

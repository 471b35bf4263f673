//! A relay allocates nothing per packet.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use relay_mesh::PeerAddr;
use relay_mesh::link_state::Message;

use crate::harness::{Adjust, ENTRY, RELAY, mesh_address};
use crate::unseen::{GENEROUS, Lens, frames, generous_tag_only, unseen};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Counts allocations per thread.
struct Counting;

#[expect(unsafe_code, reason = "a global allocator is unsafe to implement")]
// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, len) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

pub(crate) fn allocations() -> u64 {
    COUNT.with(Cell::get)
}

/// Asserts what the relay allocates for 100,000 single frames, after a warm-up of 1,000 frames.
fn pass(adjust: Adjust) {
    let (mut mesh, datagrams) = unseen(adjust, 245, Lens::One);
    let mut frames = frames(&datagrams);
    assert!(frames.len() > 101_000, "{}", frames.len());
    let before = mesh.process(RELAY).node.frame_stats().sealed;
    mesh.nonces.close();
    let relay = mesh.nodes[RELAY];
    let count = mesh.world.apply(relay, |process, now| {
        let mut out = Vec::with_capacity(2_048);
        let mut pass = |frame: &mut Vec<u8>| {
            let peer_addr = PeerAddr::mesh(mesh_address(ENTRY));
            process.node.handle_datagram(now, peer_addr.into(), frame);
            out.clear();
            while process.node.poll_transmit(now, &mut out).is_some() {
                out.clear();
            }
            assert_eq!(process.node.poll_command(), None);
        };
        let (warm, counted) = frames.split_at_mut(1_000);
        warm.iter_mut().for_each(&mut pass);
        let start = allocations();
        counted.iter_mut().for_each(&mut pass);
        allocations() - start
    });
    let passed = mesh.process(RELAY).node.frame_stats().sealed - before;
    assert!(passed > 101_000, "{passed}");
    assert_eq!(count, 0, "for {passed} frames");
}

#[test]
fn mesh_f7_a_relay_allocates_nothing_for_a_frame() {
    pass(GENEROUS);
}

#[test]
fn mesh_f7_a_relay_allocates_nothing_for_a_tag_only_frame() {
    pass(generous_tag_only);
}

#[test]
fn mesh_a1_a_count_without_entries_allocates_nothing() {
    // Digest and list of records with 1,024 entries, and a request of 64: none has an entry.
    for bytes in [[4, 4, 0], [17, 4, 0], [5, 0, 64]] {
        let before = allocations();
        assert!(Message::decode(&bytes).is_err(), "{bytes:?}");
        assert_eq!(allocations(), before, "{bytes:?}");
    }
}

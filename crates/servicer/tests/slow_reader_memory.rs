//! Memory that a server holds for a client that stops reading. Runs in a process of its own, so
//! that nothing else allocates.

#![cfg(test)]
#![expect(
    clippy::print_stdout,
    reason = "figures for people, which decide nothing"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use crypto::{Identity, Ring};
use servicer::{
    Admission, Clock, Dest, Dial, ReliableClient, ReliableConfig, ReliableServer, ServerEvent,
    StreamListener, TcpServicers, TlsIdentity,
};

/// Wait timeout; no test passes because of it.
const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn ls_19_a_stopped_reader_costs_at_most_its_queue_limit() {
    let identity = TlsIdentity::new(&Identity::generate(&mut Ring::new()).unwrap()).unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = StreamListener::bind(any, &identity, Admission::Anyone).unwrap();
    let address = listener.local_address();
    let mut config = ReliableConfig::default();
    config.servicers = Some(TcpServicers::Pool {
        threads: 1.try_into().unwrap(),
    });
    let mut server = ReliableServer::start("held", vec![listener], &config).unwrap();
    // A client whose application takes no events: it stops reading once this much is queued.
    config.event_bytes_max = 1 << 10;
    let peer = identity.node_id().into();
    let dial = Dial { address, peer };
    let client = ReliableClient::connect("idle", dial, None, Bytes::new(), &config).unwrap();
    let Some(ServerEvent::Join(request)) = server.wait_event(TIMEOUT) else {
        panic!("nobody came")
    };
    server.accept(request, Bytes::new()).unwrap();
    // One message fills its room, another waits behind it: from now on it reads nothing.
    send(&mut server, 2);
    let is_full = |client: &ReliableClient| {
        let counters = client.counters();
        // The first event is its acceptance.
        counters.records_in >= 3 && counters.events >= 2
    };
    let clock = Clock::new();
    let began = clock.now();
    while !is_full(&client) {
        let waited = clock.now().saturating_since(began);
        assert!(waited < TIMEOUT, "{waited:?}");
        std::thread::yield_now();
    }
    // Warm-up: sockets, sessions and queues have their buffers.
    send(&mut server, 50);
    assert!(server.poll_event().is_none());
    let before = HELD.load(Ordering::SeqCst);
    MOST.store(before, Ordering::SeqCst);
    let mut sent = 0;
    let waiting = loop {
        send(&mut server, 1);
        sent += 1;
        match server.poll_event() {
            Some(ServerEvent::Slow { waiting_bytes, .. }) => break waiting_bytes,
            None => assert!(sent < 200_000, "never given up"),
            other => panic!("{other:?}"),
        }
    };
    let grown = MOST.load(Ordering::SeqCst) - before;
    println!("{sent} messages of 1,000 B, {waiting} B waited, {grown} B held at most");
    assert!(waiting <= config.queued_bytes_max);
    // The queue's limit; plus up to 64 KiB of it that TLS has encrypted, and up to 64 KiB that the
    // client, in the same process, has read and not taken.
    assert!(grown <= config.queued_bytes_max + (128 << 10), "{grown}");
    drop(client);
}

/// Sends messages, each once the servicer has taken the last.
fn send(server: &mut ReliableServer, count: u64) {
    for _ in 0..count {
        let orders = |server: &ReliableServer| server.counters()[1].requests;
        let before = orders(server);
        server.send(Dest::All, Bytes::from(vec![7; 1_000])).unwrap();
        while orders(server) == before {
            std::thread::yield_now();
        }
    }
}

/// Bytes allocated now, and their peak.
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::SeqCst) + layout.size();
        MOST.fetch_max(held, Ordering::SeqCst);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        HELD.fetch_sub(layout.size(), Ordering::SeqCst);
        let held = HELD.fetch_add(len, Ordering::SeqCst) + len;
        MOST.fetch_max(held, Ordering::SeqCst);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, len) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

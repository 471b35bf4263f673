//! What a call and a mail allocate once everything is warm.

use core::cell::Cell;
use core::time::Duration;
use std::alloc::{GlobalAlloc, Layout, System};

use bytes::Bytes;
use hub::log::{MemorySegments, SegmentFile};
use hub::store::NewMail;
use hub::{
    Addr, Command, Completed, Hub, HubConfig, LogId, MailSeq, Node, NodeConfig, NodeEvent,
    SenderSeq, Store, StoreConfig, StoreOp,
};
use wire::{
    ClientId, CommandId, ConnectionId, InstanceId, Instant, PeerIdentity, Seed, StreamMachine,
    UnixTime,
};

use crate::bare::{LINK, OTHER};
use crate::world::{HUB, join_file, node_id};

/// The system allocator with counters per thread, since tests run in parallel.
struct Counting;

thread_local! {
    /// This thread's allocations and bytes held.
    static COUNT: Cell<(u64, i64)> = const { Cell::new((0, 0)) };
}

fn count(allocations: u64, bytes: i64) {
    // An ending thread frees memory after its counters are dropped.
    COUNT
        .try_with(|cell| {
            let (count, held) = cell.get();
            cell.set((count + allocations, held + bytes));
        })
        .ok();
}

#[expect(unsafe_code, reason = "an allocator can only be watched by being one")]
// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, i64::try_from(layout.size()).unwrap());
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -i64::try_from(layout.size()).unwrap());
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A hub, its store and two nodes, connected by one buffer.
struct Bench {
    hub: Hub,
    store: Store<MemorySegments>,
    nodes: [Node; 2],
    now: Instant,
    buf: Vec<u8>,
    /// Allocations so far in the hub, the nodes and the store.
    counts: [u64; 3],
    answered: u64,
    handled: u64,
}

const LINKS: [ConnectionId; 2] = [LINK, OTHER];
const BODY: Bytes = Bytes::from_static(&[7; 128]);

/// Returns the bytes that this thread holds.
pub(crate) fn held() -> i64 {
    COUNT.with(Cell::get).1
}

fn counted<R>(count: &mut u64, work: impl FnOnce() -> R) -> R {
    let before = COUNT.with(Cell::get).0;
    let result = work();
    *count += COUNT.with(Cell::get).0 - before;
    result
}

impl Bench {
    fn new() -> Self {
        let now = Instant::from_millis(1);
        let mut hub = Hub::new(HubConfig::default(), join_file(2), now);
        hub.set_unix_time(now, UnixTime::from_secs(1_700_000_000));
        let node = |index: u64| {
            let mut config = NodeConfig::default();
            config.watch_nodes = false;
            let instance = InstanceId(index);
            let seed = Seed::from_number(index);
            Node::new(config, &join_file(2), instance, seed, now).unwrap()
        };
        let mut bench = Self {
            hub,
            store: Store::open(
                MemorySegments::new(1 << 30),
                StoreConfig::default(),
                LogId(1),
            )
            .unwrap(),
            nodes: [node(1), node(2)],
            now,
            buf: Vec::with_capacity(70_000),
            counts: [0; 3],
            answered: 0,
            handled: 0,
        };
        for (index, link) in LINKS.into_iter().enumerate() {
            let identity = PeerIdentity::Node(node_id(index));
            bench.hub.handle_opened(now, link, &identity);
            bench.hub.handle_credit(now, link, usize::MAX);
            bench.nodes[index].handle_opened(now, link, &PeerIdentity::Node(HUB));
            bench.nodes[index].handle_credit(now, link, usize::MAX);
        }
        bench.turn();
        assert!(bench.nodes.iter().all(Node::is_joined));
        bench
    }

    /// Drains all parts until nothing is left to do.
    fn turn(&mut self) {
        let Self {
            hub, nodes, counts, ..
        } = self;
        let (now, buf) = (self.now, &mut self.buf);
        let [of_hub, of_nodes, of_store] = counts;
        loop {
            let mut moved = false;
            for (index, node) in nodes.iter_mut().enumerate() {
                while counted(of_nodes, || node.poll_outbound(now, buf)).is_some() {
                    counted(of_hub, || hub.handle_frame(now, LINKS[index], buf));
                    buf.clear();
                    moved = true;
                }
                while let Some(event) = counted(of_nodes, || node.poll_event()) {
                    moved = true;
                    match event {
                        // This request stays open.
                        NodeEvent::Request { body, .. } if body.is_empty() => {}
                        NodeEvent::Request { ticket, body, .. } => {
                            let replied = || node.reply(now, ticket, Ok(body.0));
                            counted(of_nodes, replied).unwrap();
                        }
                        NodeEvent::Reply { result, .. } => {
                            assert_eq!(result.unwrap().len(), 128);
                            self.answered += 1;
                        }
                        NodeEvent::Mail { claim, seq, .. } => {
                            counted(of_nodes, || node.acknowledge(now, claim, seq));
                            self.handled += 1;
                        }
                        _ => {}
                    }
                }
            }
            while let Some(command) = counted(of_hub, || hub.poll_command()) {
                moved = true;
                let mut outcomes = Vec::new();
                counted(of_store, || self.store.execute([command], &mut outcomes));
                while self.store.tidy() {}
                for (id, outcome) in outcomes {
                    counted(of_hub, || hub.handle_completed(now, id, outcome));
                }
            }
            while let Some(outbound) = counted(of_hub, || hub.poll_outbound(now, buf)) {
                moved = true;
                let index = usize::from(outbound.connection == OTHER);
                counted(of_nodes, || {
                    nodes[index].handle_frame(now, outbound.connection, buf);
                });
                buf.clear();
            }
            if !moved {
                return;
            }
        }
    }

    /// Runs `step` 1,000 times to warm up, then `rounds` times. Returns the allocations per 100
    /// rounds in the hub, in both nodes and in the store, and the increase of the bytes held.
    fn measure(&mut self, rounds: u64, mut step: impl FnMut(&mut Self)) -> ([u64; 3], i64) {
        for _ in 0..1_000 {
            step(self);
        }
        let held = COUNT.with(Cell::get).1;
        self.counts = [0; 3];
        for _ in 0..rounds {
            step(self);
        }
        let held = COUNT.with(Cell::get).1 - held;
        (
            self.counts.map(|count| (count * 100).div_ceil(rounds)),
            held,
        )
    }
}

fn call(bench: &mut Bench) {
    let to = Addr::Node(node_id(1));
    let wait = Duration::from_secs(9);
    let (now, node) = (bench.now, &mut bench.nodes[0]);
    let sent = counted(&mut bench.counts[1], || node.call(now, to, BODY, wait));
    sent.unwrap();
    bench.turn();
}

#[test]
fn a_call_and_its_answer_allocate_12_times_and_nothing_grows() {
    let mut bench = Bench::new();
    // Other calls are open, so no table is empty.
    for _ in 0..32 {
        let (to, wait) = (Addr::Node(node_id(1)), Duration::from_secs(9));
        let now = bench.now;
        bench.nodes[0].call(now, to, Bytes::new(), wait).unwrap();
    }
    let (per_100, held) = bench.measure(100_000, call);
    assert_eq!(bench.answered, 101_000);
    let [hub, nodes, store] = per_100;
    // The hub allocates the request and the reply once each. The nodes also allocate them for the
    // application. The rest are leaves of ordered tables that were empty or full.
    assert!(hub <= 600, "{hub} per 100 calls");
    assert!(nodes <= 600, "{nodes} per 100 calls");
    assert_eq!(store, 0, "a call never meets the store");
    assert_eq!(held, 0, "bytes more after 100,000 calls");
}

#[test]
fn a_mail_allocates_21_times_and_nothing_grows() {
    let mut bench = Bench::new();
    let (now, player) = (bench.now, ClientId(7));
    let claimed = bench.nodes[1].claim(now, player, MailSeq(0), Bytes::new());
    claimed.unwrap();
    bench.turn();
    let (per_100, held) = bench.measure(20_000, |bench| {
        let node = &mut bench.nodes[0];
        let sent = || node.mail(now, player, BODY, Duration::ZERO);
        counted(&mut bench.counts[1], sent).unwrap();
        bench.turn();
    });
    assert_eq!(bench.handled, 21_000);
    assert_eq!(bench.store.mail_count(), 0);
    let [hub, nodes, store] = per_100;
    // The worst case is one mail at a time: each has its own batch, read and acknowledgement, and
    // tables are empty in between.
    assert!(hub <= 900, "{hub} per 100 mails");
    assert!(nodes <= 200, "{nodes} per 100 mails");
    assert!(store <= 1_000, "{store} per 100 mails");
    assert_eq!(held, 0, "bytes more after 20,000 mails");
}

/// Stores 200,000 mails for random players, and returns the store.
fn store_many() -> Store<MemorySegments> {
    let mut config = StoreConfig::default();
    config.snapshot_after = 8 << 20;
    let disk = MemorySegments::new(1 << 30);
    let mut store = Store::open(disk, config, LogId(1)).unwrap();
    let (node, mut outcomes) = (node_id(0), Vec::new());
    let join = StoreOp::Join {
        node,
        instance: InstanceId(1),
        epoch: hub::Epoch(0),
        role: hub::Role::GameNode,
    };
    store.execute([(CommandId(0), Command::Store(join))], &mut outcomes);
    let Some((_, Ok(Completed::Joined { epoch, .. }))) = outcomes.pop() else {
        panic!("the disk works");
    };
    let mut generator = Seed::from_number(1).generator(0);
    for first in (1..=200_000).step_by(1_000) {
        let mails = (first..first + 1_000).map(|seq| NewMail {
            to: Addr::Player(ClientId(generator.below(25_000))).into(),
            node,
            epoch,
            seq: SenderSeq(seq),
            settled: SenderSeq(seq - 1),
            expires: UnixTime::from_secs(2_000_000_000),
            priority: 0,
            body: BODY.into(),
        });
        let append = Command::Store(StoreOp::Append(mails.collect()));
        store.execute([(CommandId(first), append)], &mut outcomes);
        outcomes.clear();
        while store.keep_up() {}
    }
    assert_eq!(store.mail_count(), 200_000);
    store
}

/// Returns the memory of `store` without its files, bytes for each mail, and the files.
fn index_bytes(store: Store<MemorySegments>) -> (i64, MemorySegments) {
    let mails = i64::try_from(store.mail_count()).unwrap();
    let held = COUNT.with(Cell::get).1;
    let disk = store.into_files();
    ((held - COUNT.with(Cell::get).1) / mails, disk)
}

#[test]
fn a_stored_mail_takes_54_bytes_of_memory() {
    let store = store_many();
    assert!(store.stats().snapshots > 0);
    let open = |disk| Store::open(disk, StoreConfig::default(), LogId(1)).unwrap();
    let (stored, disk) = index_bytes(store);
    let (restored, mut disk) = index_bytes(open(disk));
    for snapshot in disk.list_snapshots().unwrap() {
        disk.remove_snapshot(snapshot).unwrap();
    }
    let (replayed, _) = index_bytes(open(disk));
    eprintln!("bytes a mail: {stored} stored, {restored} restored, {replayed} replayed");
    for bytes in [stored, restored, replayed] {
        assert!((34..=54).contains(&bytes), "{bytes}");
    }
}

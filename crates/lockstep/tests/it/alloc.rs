//! The steady state allocates nothing, and hostile datagrams do not grow memory.

use core::cell::Cell;
use core::time::Duration;
use std::alloc::{GlobalAlloc, Layout, System};

use lockstep::{ClientConfig, ClientPeer, MatchServer, PeerId, StateHasher, Step};
use wire::{Arrival, Instant, Seat, Seed};

use crate::world::{MATCH, config, pad};

/// The system's allocator with counters per thread, because tests run in parallel.
struct Counting;

thread_local! {
    /// Number of allocations of this thread, and bytes that it holds.
    static COUNT: Cell<(u64, i64)> = const { Cell::new((0, 0)) };
}

fn count(allocations: u64, bytes: i64) {
    // A thread that ends frees memory after its counters were dropped.
    COUNT
        .try_with(|cell| {
            let (count, held) = cell.get();
            cell.set((count + allocations, held + bytes));
        })
        .ok();
}

#[expect(unsafe_code, reason = "an allocator can only be watched by being one")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, i64::try_from(layout.size()).unwrap());
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -i64::try_from(layout.size()).unwrap());
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of allocations of this thread so far.
pub(crate) fn allocations() -> u64 {
    COUNT.with(Cell::get).0
}

/// Bytes that this thread holds.
pub(crate) fn held() -> i64 {
    COUNT.with(Cell::get).1
}

/// A server and its clients, connected through a buffer; `loss_percent` of datagrams are dropped.
pub(crate) struct Bench {
    pub(crate) server: MatchServer<u16>,
    clients: Vec<ClientPeer<u16>>,
    now: Instant,
    buf: Vec<u8>,
    network: wire::Generator,
    held: Vec<u16>,
    /// Result of each client's latest simulation of a tick, in slot `tick % 64`.
    sums: Vec<[[u32; 3]; 64]>,
}

impl Bench {
    /// Games that predict up to `window` ticks. If `window` is not 0, the server forwards inputs.
    pub(crate) fn new(players: u16, window: u8) -> Self {
        let now = Instant::from_millis(1);
        let mut config = config(players);
        config.input_delay = lockstep::InputDelay::fixed(3).unwrap();
        config.forward_inputs = window > 0;
        let mut client_config = ClientConfig::default();
        client_config.window = window;
        let mut server = MatchServer::new(config, MATCH, Seed::from_number(1), now).unwrap();
        for index in 0..players {
            let peer = PeerId(index.into());
            server.join(now, peer, Seat(index)).unwrap();
        }
        let client = |index| {
            let seed = Seed::from_number(index);
            ClientPeer::new(client_config.clone(), PeerId(0), seed, now)
        };
        Self {
            server,
            clients: (0..players.into()).map(client).collect(),
            now,
            buf: Vec::with_capacity(2_000),
            network: Seed::from_number(2).generator(0),
            held: vec![0; players.into()],
            sums: vec![[[0; 3]; 64]; players.into()],
        }
    }

    fn run(&mut self, ticks: u32, loss_percent: u32) {
        let end = self.server.ticks_closed() + ticks;
        while self.server.ticks_closed() < end {
            self.step(loss_percent * 10_000);
        }
    }

    pub(crate) fn step(&mut self, loss: u32) {
        self.now += Duration::from_millis(4);
        self.server.handle_timeout(self.now);
        while let Some(to) = self.server.poll_transmit(self.now, &mut self.buf) {
            let index = usize::try_from(to.destination.0).unwrap();
            if !self.network.chance(loss) {
                let arrival = Arrival::from(PeerId(0));
                self.clients[index].handle_datagram(self.now, arrival, &mut self.buf);
            }
            self.buf.clear();
        }
        for (client, peer) in self.clients.iter_mut().zip((0..).map(PeerId)) {
            let held = &mut self.held[usize::try_from(peer.0).unwrap()];
            *held = pad(&mut self.network, held);
            client.submit(self.now, held).ok();
            client.handle_timeout(self.now);
            let sums = &mut self.sums[usize::try_from(peer.0).unwrap()];
            loop {
                let tick = match client.next_step(self.now) {
                    Step::Wait { .. } => break,
                    Step::Save(_) | Step::Load(_) => continue,
                    Step::Advance { turn, is_last } => {
                        let mut sum = [0; 3];
                        for (sum, (_, input, _)) in sum.iter_mut().zip(turn.inputs()) {
                            *sum = u32::from(input);
                        }
                        sums[usize::try_from(turn.tick().0 % 64).unwrap()] = sum;
                        if !is_last {
                            continue;
                        }
                        turn.tick()
                    }
                    Step::Settled(tick) => tick,
                };
                let sum = sums[usize::try_from(tick.0 % 64).unwrap()];
                let mut state = StateHasher::new(MATCH);
                for (section, sum) in ["one", "two", "three"].into_iter().zip(sum) {
                    state.section(section);
                    state.u32(sum);
                }
                client.report_state(tick, &state).unwrap();
            }
            while client.poll_event().is_some() {}
            while client.poll_transmit(self.now, &mut self.buf).is_some() {
                if !self.network.chance(loss) {
                    let arrival = Arrival::from(peer);
                    self.server
                        .handle_datagram(self.now, arrival, &mut self.buf);
                }
                self.buf.clear();
            }
        }
        while self.server.poll_event().is_some() {}
    }
}

#[test]
fn ls_9_eight_players_allocate_nothing_in_10_000_ticks_at_20_percent_loss() {
    let mut bench = Bench::new(8, 0);
    bench.run(1_000, 20);
    let (before, bytes) = (allocations(), held());
    bench.run(10_000, 20);
    assert_eq!(allocations() - before, 0);
    assert_eq!(held() - bytes, 0);
    assert!(
        bench.server.stats().hashes_compared > 8 * 10_900,
        "it worked"
    );
    assert!(
        bench.server.stats().catch_up_datagrams > 0,
        "repair included"
    );
}

#[test]
fn ls_9_nothing_is_allocated_in_10_000_ticks_of_eight_games_with_rollback() {
    let mut bench = Bench::new(8, 8);
    bench.run(1_000, 20);
    let (before, bytes) = (allocations(), held());
    bench.run(10_000, 20);
    assert_eq!(allocations() - before, 0);
    assert_eq!(held() - bytes, 0);
    let stats = bench.server.stats();
    assert!(stats.hashes_compared > 8 * 10_900, "it worked");
    assert!(stats.inputs_forwarded > 1_000, "{stats:?}");
    for client in &bench.clients {
        let stats = client.stats();
        assert!(stats.loads > 1_000 && stats.saves > 1_000, "{stats:?}");
    }
}

#[test]
fn ls_9_memory_is_taken_at_the_start_and_as_documented() {
    let before = held();
    let now = Instant::from_millis(1);
    let mut server = MatchServer::<u32>::new(config(64), MATCH, Seed::from_number(1), now).unwrap();
    let bytes = held() - before;
    // 1,024 bundles of at most 337 bytes; per seat 320 inputs, 1,024 hashes of 8 bytes, and its
    // player.
    assert!(
        bytes < 1_024 * 337 + 65 * 1_024 * 8 + 64 * (320 * 8 + 400) + 16_384,
        "{bytes}"
    );
    let counted = i64::try_from(server.memory_len()).unwrap();
    assert!(counted.abs_diff(bytes) < 16_384, "{counted} {bytes}");
    server.join(now, PeerId(1), Seat(0)).unwrap();
    server.handle_timeout(now);
    let mut welcome = Vec::with_capacity(100);
    server.poll_transmit(now, &mut welcome).unwrap();
    let mut again = welcome.clone();
    let before = held();
    let mut client = ClientPeer::<u32>::new(
        ClientConfig::default(),
        PeerId(0),
        Seed::from_number(1),
        now,
    );
    client.handle_datagram(now, Arrival::from(PeerId(0)), &mut welcome);
    let bytes = held() - before;
    // 1,024 bundles and hashes, 64 inputs, a queue of 64 events. Sections are allocated with the
    // first report.
    assert!(bytes < 1_024 * (337 + 4 + 8) + 16_384, "{bytes}");
    let counted = i64::try_from(client.memory_len()).unwrap();
    assert!(counted.abs_diff(bytes) < 2_048, "{counted} {bytes}");
    let before = held();
    let mut config = ClientConfig::default();
    config.window = 32;
    let mut predicting = ClientPeer::<u32>::new(config, PeerId(0), Seed::from_number(1), now);
    predicting.handle_datagram(now, Arrival::from(PeerId(0)), &mut again);
    let more = held() - before - bytes;
    // For each seat 98 rows of 5 bytes and 128 inputs of 8; 98 rows, and a hash each of 128 ticks.
    assert!(
        more < 64 * (98 * 5 + 128 * 8) + 98 * 64 + 128 * 8 + 1_024,
        "{more}"
    );
    let counted = i64::try_from(predicting.memory_len()).unwrap();
    assert!(
        counted.abs_diff(bytes + more) < 2_048,
        "{counted} {bytes} {more}"
    );
}

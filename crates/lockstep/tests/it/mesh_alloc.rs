//! A mesh allocates nothing in the steady state, and its reported memory is right.

use core::time::Duration;

use lockstep::{MeshConfig, MeshPeer, PeerId, Step};
use wire::{Arrival, Generator, Instant, Seat, Seed};

use crate::alloc::{allocations, held};
use crate::mesh_commit::committing;
use crate::mesh_world::{mesh, peer, peers};
use crate::world::{MATCH, pad, seat};

/// Peers connected through a buffer; `loss` of a million datagrams are dropped.
struct Bench {
    peers: Vec<MeshPeer<u16>>,
    pads: Vec<u16>,
    now: Instant,
    buf: Vec<u8>,
    network: Generator,
    ticks: u32,
}

impl Bench {
    fn new(count: usize, window: u8, config: fn(u16) -> MeshConfig) -> Self {
        let now = Instant::from_millis(1);
        let mut config = config(u16::try_from(count).unwrap());
        config.window = window;
        config.input_delay = 3;
        let machine = |index: usize| {
            let own = (MATCH, seat(index));
            let seed = Seed::from_number(u64::try_from(index).unwrap());
            MeshPeer::new(config.clone(), own, &peers(index, count), seed, now).unwrap()
        };
        Self {
            peers: (0..count).map(machine).collect(),
            pads: vec![0; count],
            now,
            buf: Vec::with_capacity(2_000),
            network: Seed::from_number(2).generator(0),
            ticks: 0,
        }
    }

    fn run(&mut self, ticks: u32, loss: u32) {
        let end = self.ticks + ticks;
        while self.ticks < end {
            self.now += Duration::from_millis(4);
            for index in 0..self.peers.len() {
                self.pads[index] = pad(&mut self.network, &self.pads[index]);
                self.step(index, loss);
            }
        }
    }

    fn step(&mut self, index: usize, loss: u32) {
        let now = self.now;
        let machine = &mut self.peers[index];
        machine.submit(now, &self.pads[index]).ok();
        machine.handle_timeout(now);
        loop {
            match machine.next_step(now) {
                Step::Wait { .. } => break,
                Step::Save(_) | Step::Load(_) => {}
                Step::Settled(tick) => machine.report(tick, 5).unwrap(),
                Step::Advance { turn, is_last } => {
                    let tick = turn.tick();
                    if is_last {
                        machine.report(tick, 5).unwrap();
                    }
                    if index == 0 {
                        self.ticks = self.ticks.max(tick.0);
                    }
                }
            }
        }
        while machine.poll_event().is_some() {}
        while let Some(to) = self.peers[index].poll_transmit(now, &mut self.buf) {
            let to = usize::try_from(to.destination.0).unwrap() - 100;
            if !self.network.chance(loss) {
                let arrival = Arrival::from(peer(index));
                self.peers[to].handle_datagram(now, arrival, &mut self.buf);
            }
            self.buf.clear();
        }
    }
}

#[test]
fn ls_9_mesh_allocates_nothing_in_10_000_ticks_at_20_percent_loss() {
    for (window, config) in [
        (0, mesh as fn(u16) -> MeshConfig),
        (8, mesh),
        (8, committing),
    ] {
        let mut bench = Bench::new(4, window, config);
        bench.run(1_000, 200_000);
        let (before, bytes) = (allocations(), held());
        bench.run(10_000, 200_000);
        assert_eq!(allocations() - before, 0);
        assert_eq!(held() - bytes, 0);
        let stats = bench.peers[1].stats();
        assert!(stats.hashes_compared > 4 * 10_900, "it worked: {stats:?}");
        assert!(stats.catch_up_datagrams > 0, "repair included");
    }
}

#[test]
fn ls_9_mesh_memory_is_taken_at_the_start_and_as_documented() {
    let peers: Vec<_> = (1..16)
        .map(|index| (Seat(index), PeerId(index.into())))
        .collect();
    let before = held();
    let mut config = mesh(16);
    config.window = 32;
    let seed = Seed::from_number(1);
    let now = Instant::from_millis(1);
    let machine = MeshPeer::<u32>::new(config, (MATCH, Seat(0)), &peers, seed, now).unwrap();
    let bytes = held() - before;
    // For each seat 1,024 bundles of at most 6 bytes, as many hashes of 8, and 128 predicted inputs
    // of 8; 98 rows of 128 bytes; 1,024 own hashes and times.
    let bound = 16 * (1_024 * (6 + 6 + 8) + 128 * 8) + 98 * 128 + 1_024 * (8 + 8 + 8) + 24_576;
    assert!(bytes < bound, "{bytes} {bound}");
    let counted = i64::try_from(machine.memory_len()).unwrap();
    assert!(counted.abs_diff(bytes) < 16_384, "{counted} {bytes}");
    // With commitments: heads of 17 bytes and salts of 8 for 512 ticks of each other seat, and
    // 1,024 own heads of 16 bytes and salts of 8.
    let before = held();
    let mut config = committing(16);
    config.window = 32;
    let machine = MeshPeer::<u32>::new(config, (MATCH, Seat(0)), &peers, seed, now).unwrap();
    let more = held() - before - bytes;
    assert!(more <= 15 * 512 * (17 + 8) + 1_024 * (16 + 8), "{more}");
    let more = i64::try_from(machine.memory_len()).unwrap() - counted;
    assert_eq!(more, 15 * 512 * (17 + 8) + 1_024 * (16 + 8));
}

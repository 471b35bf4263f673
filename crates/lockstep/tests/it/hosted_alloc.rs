//! A hosted match allocates nothing in the steady state, before and after its host stops.

use core::time::Duration;

use lockstep::{HostedPeer, Step};
use wire::{Arrival, Generator, Instant, Seed};

use crate::alloc::{allocations, held};
use crate::hosted_world::hosted;
use crate::mesh_world::{peer, peers};
use crate::world::{MATCH, pad, seat};

/// Players connected through a buffer; `loss` of a million datagrams are dropped.
struct Bench {
    players: Vec<HostedPeer<u16>>,
    pads: Vec<u16>,
    /// First running player.
    first: usize,
    now: Instant,
    buf: Vec<u8>,
    network: Generator,
    ticks: u32,
}

impl Bench {
    fn new(count: usize) -> Self {
        let now = Instant::from_millis(1);
        let config = hosted(u16::try_from(count).unwrap(), 0);
        let machine = |index: usize| {
            let own = (MATCH, seat(index));
            let seed = Seed::from_number(u64::try_from(index).unwrap());
            HostedPeer::new(config.clone(), own, &peers(index, count), seed, now).unwrap()
        };
        Self {
            players: (0..count).map(machine).collect(),
            pads: vec![0; count],
            first: 0,
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
            for index in self.first..self.players.len() {
                self.pads[index] = pad(&mut self.network, &self.pads[index]);
                self.step(index, loss);
            }
        }
    }

    fn step(&mut self, index: usize, loss: u32) {
        let now = self.now;
        let machine = &mut self.players[index];
        machine.submit(now, &self.pads[index]).ok();
        machine.handle_timeout(now);
        while let Some(to) = self.players[index].poll_transmit(now, &mut self.buf) {
            let to = usize::try_from(to.destination.0).unwrap() - 100;
            if to >= self.first && !self.network.chance(loss) {
                let arrival = Arrival::from(peer(index));
                self.players[to].handle_datagram(now, arrival, &mut self.buf);
            }
            self.buf.clear();
        }
        let machine = &mut self.players[index];
        while let Step::Advance { turn, .. } = machine.next_step(now) {
            let tick = turn.tick();
            machine.report(tick, 5).unwrap();
            if index + 1 == self.pads.len() {
                self.ticks = tick.0 + 1;
            }
        }
        while machine.poll_event().is_some() {}
    }
}

#[test]
fn ls_9_hosted_allocates_nothing_in_10_000_ticks_with_either_host() {
    let mut bench = Bench::new(4);
    for first in 0..2 {
        bench.first = first;
        bench.run(2_000, 200_000);
        let (before, bytes) = (allocations(), held());
        bench.run(10_000, 200_000);
        assert_eq!(allocations() - before, 0);
        assert_eq!(held() - bytes, 0);
        assert_eq!(usize::from(bench.players[3].host().0), first);
        let stats = bench.players[first].server().unwrap().stats();
        let is_repaired = stats.bundles_sent > stats.datagrams_sent * 11 / 10;
        assert!(is_repaired, "repair included: {stats:?}");
        assert!(bench.players[3].epoch() <= 1);
    }
}

#[test]
fn ls_9_hosted_memory_is_a_clients_and_for_the_host_also_a_servers() {
    let mut bench = Bench::new(8);
    bench.run(100, 0);
    for player in &bench.players {
        let server = player.server().map_or(0, lockstep::MatchServer::memory_len);
        let own = player.memory_len() - player.client().memory_len() - server;
        // Waiting events, at most 257, and links.
        assert!(own < 257 * 88 + 8 * 160 + 4_096, "{own}");
    }
    let before = held();
    drop(bench.players.remove(0));
    assert!(held() < before);
}

//! Time to verify a replay and to play it, with a game that does nothing.
//!
//! ```text
//! cargo bench -p tickwire-benches --bench replay
//! ```

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lockstep::replay::{ReplayConfig, ReplayLimits, ReplayPlayer, ReplayReader, ReplayWriter};
use lockstep::{ClientConfig, ClientPeer, Config, MatchServer, PeerId, Sim, StateHasher, Turn};
use wire::{Arrival, Instant, MatchId, Seat, Seed};

const ID: MatchId = MatchId([1; 16]);
/// Ten minutes at 60 Hz.
const TICKS: u32 = 36_000;
const SERVER: PeerId = PeerId(9_999);

/// A game that does nothing, with a constant hash.
#[derive(Debug, Default)]
struct Empty;

impl Sim for Empty {
    type Input = u16;
    type Snapshot = Vec<u8>;

    fn step(&mut self, _: &Turn<'_, u16>) {}
    fn save(&self, _: &mut Vec<u8>) {}
    fn load(&mut self, _: &Vec<u8>) {}
    fn hash(&self, _: &mut StateHasher) {}
}

/// Records eight players, each of which toggles one of 12 buttons in one tick of ten.
fn recording() -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut now = Instant::ZERO;
    let mut config = Config::default();
    config.seats = 8;
    let mut server = MatchServer::<u16>::new(config, ID, Seed::from_number(1), now)?;
    let mut clients = Vec::new();
    for seat in 0..8 {
        server.join(now, PeerId(seat.into()), Seat(seat))?;
        let seed = Seed::from_number(seat.into());
        clients.push(ClientPeer::<u16>::new(
            ClientConfig::default(),
            SERVER,
            seed,
            now,
        ));
    }
    let (mut file, mut datagram) = (Vec::new(), Vec::new());
    let mut writer = ReplayWriter::new(ReplayConfig::new(ID, 8), &mut file)?;
    let (mut whims, mut held) = (Seed::from_number(2).generator(0), [0_u16; 8]);
    let mut taken = 0;
    while taken < TICKS {
        now += Duration::from_nanos(16_666_666);
        server.handle_timeout(now);
        while let Some(transmit) = server.poll_transmit(now, &mut datagram) {
            let index = usize::try_from(transmit.destination.0)?;
            if let Some(client) = clients.get_mut(index) {
                client.handle_datagram(now, Arrival::from(SERVER), &mut datagram);
            }
            datagram.clear();
        }
        for ((peer, client), held) in (0..).map(PeerId).zip(&mut clients).zip(&mut held) {
            if whims.chance(100_000) {
                *held ^= 1 << whims.below(12);
            }
            client.submit(now, held).ok();
            client.handle_timeout(now);
            while client.poll_turn(now).is_some() {}
            while client.poll_transmit(now, &mut datagram).is_some() {
                server.handle_datagram(now, Arrival::from(peer), &mut datagram);
                datagram.clear();
            }
            while client.poll_event().is_some() {}
        }
        while let Some(turn) = server.poll_turn() {
            writer.turn(&turn, || StateHasher::new(ID).finish(), &mut file)?;
            taken = turn.tick().0;
        }
        while server.poll_event().is_some() {}
    }
    writer.finish(&mut file);
    Ok(file)
}

fn replay(criterion: &mut Criterion) {
    let Ok(file) = recording() else {
        return;
    };
    let limits = ReplayLimits::default();
    let Ok(replay) = ReplayReader::open(&file, &limits) else {
        return;
    };
    let mut group = criterion.benchmark_group("replay");
    group.throughput(Throughput::Elements(replay.ticks().into()));
    group.bench_function("open", |bencher| {
        bencher.iter(|| ReplayReader::open(black_box(&file), &limits).map(|it| it.ticks()));
    });
    group.bench_function("verify", |bencher| {
        bencher.iter(|| ReplayPlayer::new(black_box(&replay), Empty).map(|mut it| it.verify()));
    });
    group.finish();
}

criterion_group!(benches, replay);
criterion_main!(benches);

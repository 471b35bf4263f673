//! The cases of `ratio`, timed by criterion: each group holds a case and its floor.

use benches::flood::Flood;
use core::time::Duration;

use benches::floor::{BareCurve, BareDirection, BareHash};
use benches::handshake::Handshakes;
use benches::measure::Case;
use benches::pair::{MESSAGE_LEN, Pair, RELIABLE, UNRELIABLE};
use criterion::{Criterion, criterion_group, criterion_main};

fn ticks(criterion: &mut Criterion) {
    for (name, channel) in [
        ("tick, unreliable", UNRELIABLE),
        ("tick, reliable", RELIABLE),
    ] {
        let mut group = criterion.benchmark_group(name);
        let mut pair = Pair::new(channel);
        group.bench_function("ours", |bencher| bencher.iter(|| pair.tick()));
        let (mut up, mut down) = (BareDirection::new(), BareDirection::new());
        let message = [0x5A; MESSAGE_LEN];
        group.bench_function("floor", |bencher| {
            bencher.iter(|| {
                up.pass(&message);
                down.pass(&message);
            });
        });
        group.finish();
    }
}

fn handshake(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("handshake");
    let mut handshakes = Handshakes::new();
    group.bench_function("ours", |bencher| {
        bencher.iter_custom(|count| handshakes.run(u32::try_from(count).unwrap_or(u32::MAX)));
    });
    let mut curve = BareCurve::new();
    group.bench_function("floor", |bencher| bencher.iter(|| curve.shake_hands()));
    group.finish();
}

fn refusal(criterion: &mut Criterion) {
    for (name, mut flood) in [
        ("hello without cookie", Flood::without_cookie()),
        ("hello with stolen token", Flood::with_stolen_token()),
    ] {
        let mut group = criterion.benchmark_group(name);
        group.bench_function("ours", |bencher| bencher.iter(|| flood.refuse()));
        let hash = BareHash::new();
        group.bench_function("floor", |bencher| bencher.iter(|| hash.hash()));
        group.finish();
    }
}

/// Short enough that no key is worn: it seals 2^23 packets.
fn brief() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(2))
}

criterion_group! {
    name = benches;
    config = brief();
    targets = ticks, handshake, refusal
}
criterion_main!(benches);

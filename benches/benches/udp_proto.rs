//! The cases of `ratio`, measured by criterion in CPU time. Each group has a case and its floor.

use core::time::Duration;

use benches::flood::Flood;
use benches::floor::{BareCurve, BareDirection, BareHash};
use benches::handshake::Handshakes;
use benches::measure::{Case, Repeat};
use benches::pair::{MESSAGE_LEN, Pair, RELIABLE, UNRELIABLE};
use criterion::{Criterion, criterion_group, criterion_main};

fn ticks(criterion: &mut Criterion) {
    for (name, channel) in [
        ("tick, unreliable", UNRELIABLE),
        ("tick, reliable", RELIABLE),
    ] {
        let mut pair = Pair::new(channel);
        let (mut up, mut down) = (BareDirection::new(), BareDirection::new());
        let message = [0x5A; MESSAGE_LEN];
        let floor = move || {
            up.pass(&message);
            down.pass(&message);
        };
        group(criterion, name, Repeat(move || pair.tick()), Repeat(floor));
    }
}

fn handshake(criterion: &mut Criterion) {
    let mut curve = BareCurve::new();
    let floor = Repeat(move || curve.shake_hands());
    group(criterion, "handshake", Handshakes::new(), floor);
}

fn refusal(criterion: &mut Criterion) {
    for (name, mut flood) in [
        ("hello without cookie", Flood::without_cookie()),
        ("hello with stolen token", Flood::with_stolen_token()),
    ] {
        let hash = BareHash::new();
        let floor = Repeat(move || hash.hash());
        group(criterion, name, Repeat(move || flood.refuse()), floor);
    }
}

fn group(criterion: &mut Criterion, name: &str, mut ours: impl Case, mut floor: impl Case) {
    let mut group = criterion.benchmark_group(name);
    let cases: [(&str, &mut dyn Case); 2] = [("ours", &mut ours), ("floor", &mut floor)];
    for (name, case) in cases {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|count| case.run(u32::try_from(count).unwrap_or(u32::MAX)));
        });
    }
    group.finish();
}

/// Short enough that no key reaches its limit of 2^23 packets.
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

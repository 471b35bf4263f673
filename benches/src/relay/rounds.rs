//! Packets through each forwarder in turn, and what they cost it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use servicer::Clock;

use super::child::{Forwarder, Said, Stack};
use super::ends::Ends;
use super::routing::{Routing, times};
use super::row::Row;
use super::socket::{BATCH, Mass};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds of which the median counts.
    pub rounds: u32,
    /// Packets offered in each.
    pub packets: usize,
    /// Flows that memory is measured with.
    pub flows: u32,
}

/// A kind of packets: its name, and the bytes of a player's datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    name: &'static str,
    len: usize,
}

/// Cases that are measured. Those with a tag alone, and those of trunks, are not built.
const CASES: [Case; 2] = [
    Case {
        name: "sealed100",
        len: 100,
    },
    Case {
        name: "sealed1200",
        len: 1_200,
    },
];

/// What one round found, for a packet that arrived.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    cpu_ns: f64,
    allocations: f64,
    delivered: f64,
}

/// Measures all, and hands each row to `tell` when it is known.
///
/// # Errors
///
/// The system's.
pub fn measure(plan: Plan, tell: &mut dyn FnMut(Row)) -> io::Result<()> {
    let mut bare = [Bare::new(Stack::Plain)?, Bare::new(Stack::Mmsg)?];
    let mut relay = Relayed::new()?;
    for case in CASES {
        let mut found: [Vec<Found>; 3] = Default::default();
        let [plain, mmsg, tickwire] = &mut found;
        for _ in 0..plan.rounds {
            for (bare, found) in bare.iter_mut().zip([&mut *plain, &mut *mmsg]) {
                found.push(bare.round(case, plan.packets, &mut relay.ends));
            }
            tickwire.push(relay.round(case, plan.packets));
        }
        for (stack, found) in Stack::ALL.into_iter().zip(&found) {
            tell_case(stack, case, found, tell);
        }
    }
    let [plain, mmsg] = &mut bare;
    let forwarders = [
        &mut plain.forwarder,
        &mut mmsg.forwarder,
        &mut relay.forwarder,
    ];
    for (stack, forwarder) in Stack::ALL.into_iter().zip(forwarders) {
        let threads = as_f64(forwarder.ask().threads);
        tell(row(stack, "sealed100", "threads", threads));
    }
    tell(bytes_per_label(plan.flows)?);
    tell_routes(plan, tell);
    Ok(())
}

fn tell_case(stack: Stack, case: Case, found: &[Found], tell: &mut dyn FnMut(Row)) {
    type Metric = (&'static str, fn(&Found) -> f64);
    let metrics: [Metric; 3] = [
        ("cpu_ns_per_packet", |found| found.cpu_ns),
        ("allocations_per_packet", |found| found.allocations),
        ("delivered_share", |found| found.delivered),
    ];
    for (metric, of) in metrics {
        let value = median(found.iter().map(of).collect());
        tell(row(stack, case.name, metric, value));
    }
}

fn tell_routes(plan: Plan, tell: &mut dyn FnMut(Row)) {
    let mut mesh = Routing::new(1, 1_000);
    let (routes, _) = times(plan.rounds, || mesh.own());
    let (change, _) = times(plan.rounds * 20, || mesh.own_link_change());
    let (alternatives, _) = times(plan.rounds, || mesh.alternatives());
    let (pairs, _) = times(plan.rounds.min(5), || mesh.all_pairs());
    for (metric, value) in [
        ("routes_n1000/ms", routes),
        ("link_change_n1000/ms", change),
        ("alternatives_n1000/ms", alternatives),
        ("all_pairs_n1000/ms", pairs),
    ] {
        tell(row(Stack::Tickwire, "routes", metric, value));
    }
}

/// A bare forwarder, and eight sockets that send to it.
#[derive(Debug)]
struct Bare {
    forwarder: Forwarder,
    players: Vec<Mass>,
    sink: Mass,
}

impl Bare {
    fn new(stack: Stack) -> io::Result<Self> {
        let sink = Mass::new()?;
        let players: io::Result<_> = (0..FLOWS).map(|_| Mass::new()).collect();
        Ok(Self {
            forwarder: Forwarder::start(stack, sink.address())?,
            players: players?,
            sink,
        })
    }

    /// Sends and counts; the mesh that waits for its turn lives on meanwhile.
    fn round(&mut self, Case { len, .. }: Case, packets: usize, others: &mut Ends) -> Found {
        let datagram = vec![0x5A; len];
        // Who sends is known before it is measured.
        self.send(&datagram, BATCH * self.players.len(), others);
        settle(|| self.count(others));
        let before = self.forwarder.ask();
        let mut came = self.send(&datagram, packets, others);
        came += settle(|| self.count(others));
        found([before, self.forwarder.ask()], (came, packets))
    }

    fn send(&mut self, datagram: &[u8], packets: usize, others: &mut Ends) -> u64 {
        let to = self.forwarder.address;
        let mut came = 0;
        for burst in 0..packets / BATCH {
            let player = burst % self.players.len().max(1);
            if let Some(player) = self.players.get_mut(player) {
                player.send(to, core::iter::repeat_n(datagram, BATCH));
            }
            came += if burst % BATCH == 0 {
                self.count(others)
            } else {
                self.hear()
            };
        }
        came
    }

    fn count(&mut self, others: &mut Ends) -> u64 {
        others.step();
        self.hear()
    }

    fn hear(&mut self) -> u64 {
        let mut count = 0;
        self.sink.receive(|_, _| count += 1);
        count
    }
}

/// A relay of ours between an entry and an exit.
#[derive(Debug)]
struct Relayed {
    forwarder: Forwarder,
    ends: Ends,
}

impl Relayed {
    fn new() -> io::Result<Self> {
        let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
        let forwarder = Forwarder::start(Stack::Tickwire, nobody)?;
        let mut ends = Ends::new((forwarder.id, forwarder.address))?;
        ends.settle(FLOWS, PATIENCE);
        Ok(Self { forwarder, ends })
    }

    fn round(&mut self, Case { len, .. }: Case, packets: usize) -> Found {
        self.ends.settle(FLOWS, PATIENCE);
        let warm = self.ends.seal(BATCH * 16, (FLOWS, len));
        self.ends.send(&warm);
        settle(|| self.ends.count());
        let frames = self.ends.seal(packets, (FLOWS, len));
        let before = self.forwarder.ask();
        let mut came = self.ends.send(&frames);
        came += settle(|| self.ends.count());
        let after = self.forwarder.ask();
        found([before, after], (came, frames.count()))
    }
}

/// Memory that a label takes: two are given out for a flow, one each way.
fn bytes_per_label(flows: u32) -> io::Result<Row> {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    let mut forwarder = Forwarder::start(Stack::Tickwire, nobody)?;
    let mut ends = Ends::new((forwarder.id, forwarder.address))?;
    ends.settle(FLOWS, PATIENCE);
    let before = forwarder.ask().resident;
    ends.settle(flows, PATIENCE * 3);
    // Until the last of them have their labels.
    settle(|| ends.count());
    let after = forwarder.ask().resident;
    let labels = u64::from(flows - FLOWS) * 2;
    let value = as_f64(after.saturating_sub(before)) / as_f64(labels);
    Ok(row(Stack::Tickwire, "sealed100", "bytes_per_label", value))
}

/// Asks `count` until nothing has come for a while; returns how many came.
fn settle(mut count: impl FnMut() -> u64) -> u64 {
    let clock = Clock::new();
    let (mut came, mut last) = (0, clock.now());
    while clock.now().saturating_since(last) < QUIET {
        let more = count();
        if more > 0 {
            last = clock.now();
        }
        came += more;
    }
    came
}

fn found([before, after]: [Said; 2], (came, offered): (u64, usize)) -> Found {
    let cpu = after.cpu.saturating_sub(before.cpu);
    let arrived = as_f64(came.max(1));
    let offered = as_f64(u64::try_from(offered).unwrap_or(u64::MAX));
    Found {
        cpu_ns: cpu.as_secs_f64() * 1e9 / arrived,
        allocations: as_f64(after.allocations.saturating_sub(before.allocations)) / arrived,
        delivered: as_f64(came) / offered.max(1.0),
    }
}

const fn row(stack: Stack, case: &'static str, metric: &'static str, value: f64) -> Row {
    Row {
        stack: stack.name(),
        case,
        metric,
        value,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
const fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Flows whose packets are measured.
const FLOWS: u32 = 8;
/// Silence after which nothing more comes.
const QUIET: Duration = Duration::from_millis(20);
/// How long a mesh may take to come together.
const PATIENCE: Duration = Duration::from_secs(30);

//! Random faults under load: how long each flow waits for service, during a fault and after it.
//!
//! Seven nodes run as processes: two entries, three relays, two exits. A signed document names
//! three games, two over UDP and one over TCP. Players keep all flows busy, half at each entry. A
//! seed determines the sequence of faults. After each fault, the run waits until every flow has a
//! reply to a message that the player sent after the fault ended.

mod fault;
mod flows;
mod test_mesh;

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use fault::{Fault, FaultKind};
use flows::Flows;
use test_mesh::TestMesh;

/// Options of the run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Duration in seconds. A fault in progress then is the last.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=7_200))]
    seconds: u64,
    /// Number of flows; one in 25 is a TCP connection.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(8..=2_000))]
    flows: u16,
    /// Messages per second and flow.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=60))]
    rate: u16,
    /// Determines the sequence of faults.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Only faults of these kinds.
    #[arg(long, value_enum)]
    only: Vec<FaultKind>,
}

/// Runs for the given time. Returns whether each flow was served in time after each fault.
pub(crate) fn run(options: &Options) -> io::Result<bool> {
    let mut test_mesh = TestMesh::start()?;
    let mut flows = Flows::start(&test_mesh, options.flows, options.rate)?;
    let opened = wait_until_served(&flows, Instant::now(), OPENING_MAX);
    println!(
        "soak: seed {}; {} nodes; {} flows, {} served after {:.1} s",
        options.seed,
        test_mesh::NODES.len(),
        flows.count(),
        flows.count() - opened.unserved,
        opened.took.as_secs_f32()
    );
    if opened.unserved > 0 {
        println!("soak: FAILED, {}", flows.unserved_text(opened.since));
        return Ok(false);
    }
    let mut faults = fault::Draw::new(options.seed, &options.only);
    let mut worst = BTreeMap::new();
    let mut is_good = true;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(options.seconds) {
        std::thread::sleep(CALM);
        let fault = faults.next();
        is_good &= play(&mut test_mesh, &mut flows, &fault, &mut worst)?;
    }
    println!("soak: kind            faults  longest silence  service after the end");
    for (kind, worst) in &worst {
        println!("soak: {:15} {worst}", kind.to_string());
    }
    println!(
        "soak: {}; {} faults in {:.0} s, at most {:.1} s allowed after each",
        if is_good { "good" } else { "FAILED" },
        worst.values().map(|worst| worst.count).sum::<u32>(),
        began.elapsed().as_secs_f32(),
        SERVICE_MAX.as_secs_f32()
    );
    Ok(is_good)
}

/// Injects one fault. Returns whether each flow was served in time afterwards.
fn play(
    test_mesh: &mut TestMesh,
    flows: &mut Flows,
    fault: &Fault,
    worst: &mut BTreeMap<FaultKind, Worst>,
) -> io::Result<bool> {
    flows.reset_silence();
    fault.happen(test_mesh, flows)?;
    let ended = Instant::now();
    let served = wait_until_served(flows, ended, PATIENCE);
    let silence = flows.longest_silence();
    let is_good = served.unserved == 0 && served.took <= SERVICE_MAX;
    println!(
        "{:6.1} s  {fault}: longest silence {:.2} s, all served {}{}",
        flows.elapsed().as_secs_f32(),
        silence.as_secs_f32(),
        if served.unserved == 0 {
            format!("{:.2} s after its end", served.took.as_secs_f32())
        } else {
            format!("NOT; {}", flows.unserved_text(ended))
        },
        if is_good { "" } else { "  <-- too late" },
    );
    worst
        .entry(fault.kind())
        .or_default()
        .add(silence, served.took);
    Ok(is_good)
}

/// The result of a wait for service.
struct Served {
    /// Messages sent earlier do not count.
    since: Instant,
    took: Duration,
    unserved: usize,
}

/// Waits until each flow has a reply to a message that it sent after `since`.
fn wait_until_served(flows: &Flows, since: Instant, limit: Duration) -> Served {
    loop {
        let (unserved, last) = flows.served_since(since);
        if unserved == 0 || since.elapsed() >= limit {
            let took = if unserved == 0 { last } else { since.elapsed() };
            return Served {
                since,
                took,
                unserved,
            };
        }
        std::thread::sleep(LOOK);
    }
}

/// The worst results for one kind of fault.
#[derive(Default)]
struct Worst {
    count: u32,
    silence: Duration,
    service: Duration,
}

impl Worst {
    fn add(&mut self, silence: Duration, service: Duration) {
        self.count += 1;
        self.silence = self.silence.max(silence);
        self.service = self.service.max(service);
    }
}

impl std::fmt::Display for Worst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (silence, service) = (self.silence.as_secs_f32(), self.service.as_secs_f32());
        write!(f, "{:6}  {silence:13.2} s  {service:19.2} s", self.count)
    }
}

/// Maximum wait of a flow for service after a fault ends.
const SERVICE_MAX: Duration = Duration::from_secs(3);
/// How long the run waits beyond that, to report the delay.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit for all flows to open at the start.
const OPENING_MAX: Duration = Duration::from_secs(90);
/// Pause between two faults.
const CALM: Duration = Duration::from_secs(3);
/// Poll interval of the wait for service.
const LOOK: Duration = Duration::from_millis(20);

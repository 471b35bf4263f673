//! The sequence of all measurements.

use std::io;
use std::time::Duration;

use relay_mesh::hop::HopKind;
use servicer::Clock;

use super::child::{Forwarder, Role, Stack};
use super::ends::{Ends, Form};
use super::routing::{Routing, times};
use super::socket::Intake;
use super::subject::{Case, FLOWS, Found, NOBODY, PATIENCE, Subject, as_f64};
use super::{clients, paced};
use harness::row::Row;
use harness::statistics::median;

/// Size of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of rounds; the median counts.
    pub rounds: u32,
    /// Packets sent per round.
    pub packets: usize,
    /// Number of flows for the memory measurement.
    pub flows: u32,
    /// Prefix of the names of cases to measure; empty for all.
    pub only: String,
}

impl Plan {
    fn has(&self, case: &str) -> bool {
        case.starts_with(&self.only)
    }
}

/// Cases with one kind of link, measured with the same processes.
struct Group {
    kind: HopKind,
    /// How the sinks receive.
    intake: Intake,
    cases: &'static [Case],
    /// Names of the same cases with a relay without GSO.
    spread: &'static [&'static str],
    /// The case of packets sent one at a time.
    paced: Option<&'static str>,
}

/// All groups. Sinks of trunks receive like nodes, others like game sockets.
const GROUPS: [Group; 3] = [
    Group {
        kind: HopKind::Sealed,
        intake: Intake::Single,
        cases: &[
            Case::new("sealed100", &[100], Form::Single),
            Case::new("sealed1200", &[1_200], Form::Single),
        ],
        spread: &["spread_sealed100", "spread_sealed1200"],
        paced: Some("paced_sealed100"),
    },
    Group {
        kind: HopKind::TagOnly,
        intake: Intake::Single,
        cases: &[
            Case::new("hop100", &[100], Form::Single),
            Case::new("hop1200", &[1_200], Form::Single),
        ],
        spread: &["spread_hop100", "spread_hop1200"],
        paced: Some("paced_hop100"),
    },
    Group {
        kind: HopKind::TagOnly,
        intake: Intake::Joined,
        cases: &[
            Case::new("trunk100", &[100], Form::Bursts),
            Case::new("trunk1200", &[1_200], Form::Bursts),
            // Lengths which no single system call sends together.
            Case::new("packed100", &[60, 100], Form::Trunks),
        ],
        spread: &[],
        paced: None,
    },
];

/// Measures all cases. Passes each row to `tell` as soon as it is known.
///
/// # Errors
///
/// The system's error.
pub fn measure(plan: &Plan, tell: &mut dyn FnMut(Row)) -> io::Result<()> {
    for group in &GROUPS {
        if group.cases.iter().any(|case| plan.has(case.name)) {
            measure_group(plan, group, tell)?;
        }
    }
    if plan.has(clients::CASE) {
        clients::measure(plan.rounds, tell)?;
    }
    if plan.has("flows") {
        for row in many_flows(plan.flows)? {
            tell(row);
        }
    }
    if plan.has("routes") {
        tell_routes(plan, tell);
    }
    Ok(())
}

fn measure_group(plan: &Plan, group: &Group, tell: &mut dyn FnMut(Row)) -> io::Result<()> {
    let Group { kind, intake, .. } = *group;
    let start = |role| Subject::start(role, intake);
    let mut plain = start(Role::Plain)?;
    let mut mmsg = start(Role::Mmsg)?;
    let mut relay = start(Role::Relay(kind))?;
    relay.settle(&mut []);
    let mut spread = if group.spread.is_empty() {
        None
    } else {
        Some(start(Role::Spread(kind))?)
    };
    if let Some(spread) = &mut spread {
        spread.settle(&mut [&mut relay]);
    }
    for (place, case) in group.cases.iter().enumerate() {
        let mut found: [Vec<Found>; 3] = Default::default();
        let [of_plain, of_mmsg, of_relay] = &mut found;
        let mut of_spread = Vec::new();
        for _ in 0..plan.rounds {
            of_plain.push(plain.round(*case, plan.packets, &mut both(&mut relay, &mut spread)));
            of_mmsg.push(mmsg.round(*case, plan.packets, &mut both(&mut relay, &mut spread)));
            of_relay.push(relay.round(
                *case,
                plan.packets,
                &mut spread.iter_mut().collect::<Vec<_>>(),
            ));
            if let Some(spread) = &mut spread {
                of_spread.push(spread.round(*case, plan.packets, &mut [&mut relay]));
            }
        }
        for (stack, found) in Stack::ALL.into_iter().zip(&found) {
            tell_case(stack, case.name, found, tell);
        }
        if let Some(name) = group.spread.get(place) {
            tell_case(Stack::Tickwire, name, &of_spread, tell);
        }
    }
    if let Some(name) = group.paced {
        paced::measure(plan.rounds, name, [&mut plain, &mut relay], tell);
    }
    if kind == HopKind::Sealed {
        for (stack, subject) in Stack::ALL.into_iter().zip([&mut plain, &mut mmsg]) {
            let threads = as_f64(subject.forwarder().ask().threads);
            tell(row(stack, "sealed100", "threads", threads));
        }
    }
    Ok(())
}

/// Returns the subjects that must be kept running while another is measured.
fn both<'a>(relay: &'a mut Subject, spread: &'a mut Option<Subject>) -> Vec<&'a mut Subject> {
    core::iter::once(relay).chain(spread).collect()
}

fn tell_case(stack: Stack, case: &'static str, found: &[Found], tell: &mut dyn FnMut(Row)) {
    type Metric = (&'static str, fn(&Found) -> f64);
    let metrics: [Metric; 3] = [
        ("cpu_ns_per_packet", |found| found.cpu_ns),
        ("allocations_per_packet", |found| found.allocations),
        ("delivered_share", |found| found.delivered),
    ];
    for (metric, of) in metrics {
        let value = median(found.iter().map(of).collect());
        tell(row(stack, case, metric, value));
    }
}

fn tell_routes(plan: &Plan, tell: &mut dyn FnMut(Row)) {
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

/// Measures the memory per label, of which each flow has two, one per direction, and the threads of
/// a relay with many flows.
fn many_flows(flows: u32) -> io::Result<[Row; 2]> {
    let mut forwarder = Forwarder::start(Role::Relay(HopKind::Sealed), NOBODY)?;
    let relay = (forwarder.id, forwarder.address);
    let mut ends = Ends::new(relay, HopKind::Sealed, Intake::Single)?;
    ends.settle(FLOWS, PATIENCE);
    let before = forwarder.ask();
    ends.settle(flows, PATIENCE);
    // Until the last flows have their labels.
    let clock = Clock::new();
    let end = clock.now() + LABELS_AWAITED;
    while clock.now() < end {
        ends.step();
        super::nap(Duration::from_millis(1));
    }
    let after = forwarder.ask();
    let labels = u64::from(flows - FLOWS) * 2;
    let bytes = after.resident.saturating_sub(before.resident);
    let value = as_f64(bytes) / as_f64(labels);
    let threads = as_f64(after.threads);
    Ok([("bytes_per_label", value), ("threads", threads)]
        .map(|(metric, value)| row(Stack::Tickwire, "flows", metric, value)))
}

/// Creates a row.
pub(super) fn row(stack: Stack, case: &'static str, metric: &'static str, value: f64) -> Row {
    Row::new(stack.name(), case, metric, value)
}

/// Maximum further wait for labels of open flows.
const LABELS_AWAITED: Duration = Duration::from_secs(1);

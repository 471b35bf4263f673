//! One packet at a time: its CPU cost and its latency.

use std::time::Duration;

use servicer::Clock;

use super::child::Stack;
use super::ends::Form;
use super::rounds::row;
use super::subject::{Case, Subject, as_f64};
use harness::row::Row;
use harness::statistics::median;

/// Results of one round.
#[derive(Debug, Default)]
struct Found {
    /// CPU time per packet, minus what the process uses without packets.
    cpu_ns: f64,
    /// Latency of each packet in microseconds, from before the send until it is seen.
    micros: Vec<f64>,
}

/// Sends a packet per millisecond through a plain forwarder and a Tickwire relay alternately, and
/// reports the cost under the name of `case`.
pub(super) fn measure(
    rounds: u32,
    case: &'static str,
    [plain, ours]: [&mut Subject; 2],
    tell: &mut dyn FnMut(Row),
) {
    let mut found: [Vec<Found>; 2] = Default::default();
    let [of_plain, of_ours] = &mut found;
    for _ in 0..rounds {
        of_plain.push(passed(plain, ours));
        of_ours.push(passed(ours, plain));
    }
    for (stack, found) in [Stack::Plain, Stack::Tickwire].into_iter().zip(found) {
        let cpu = median(found.iter().map(|found| found.cpu_ns).collect());
        let mut micros: Vec<f64> = found.into_iter().flat_map(|found| found.micros).collect();
        micros.sort_by(f64::total_cmp);
        let quantile = |thousandths: usize| {
            let place = micros.len().saturating_sub(1) * thousandths / 1_000;
            micros.get(place).copied().unwrap_or(f64::NAN)
        };
        tell(row(stack, case, "cpu_ns_per_pass", cpu));
        tell(row(stack, case, "latency_us_p50", quantile(500)));
        tell(row(stack, case, "latency_us_p99", quantile(990)));
        tell(row(stack, case, "latency_us_p99.9", quantile(999)));
    }
}

/// Returns a round in which packets arrived. If the machine is busy, the mesh may stop using its
/// relay for a while, and no packet passes it.
fn passed(subject: &mut Subject, beside: &mut Subject) -> Found {
    let mut found = round(subject, beside);
    for _ in 1..TRIES {
        if !found.micros.is_empty() {
            break;
        }
        found = round(subject, beside);
    }
    found
}

fn round(subject: &mut Subject, beside: &mut Subject) -> Found {
    const CASE: Case = Case::new("", &[100], Form::Single);
    subject.prepare(CASE, PASSES, &mut [&mut *beside]);
    subject.count();
    let clock = Clock::new();
    let begin = subject.forwarder().ask();
    let mut due = clock.now();
    for _ in 0..PASSES {
        due += PACE;
        subject.count();
        beside.count();
        super::nap(due.saturating_since(clock.now()));
    }
    let idle = subject.forwarder().ask();
    let mut micros = Vec::with_capacity(PASSES);
    due = clock.now();
    for _ in 0..PASSES {
        due += PACE;
        let sent = clock.now();
        subject.send(CASE, 1);
        // Busy-waits, because a wake-up from sleep adds latency.
        while subject.look() == 0 && clock.now().saturating_since(sent) < LOST {}
        let took = clock.now().saturating_since(sent);
        if took < LOST {
            micros.push(took.as_secs_f64() * 1e6);
        }
        subject.count();
        beside.count();
        super::nap(due.saturating_since(clock.now()));
    }
    let end = subject.forwarder().ask();
    let idle_cpu = idle.cpu.saturating_sub(begin.cpu);
    let cpu = end.cpu.saturating_sub(idle.cpu).saturating_sub(idle_cpu);
    let passed = as_f64(u64::try_from(micros.len().max(1)).unwrap_or(1));
    Found {
        cpu_ns: cpu.as_secs_f64() * 1e9 / passed,
        micros,
    }
}

/// Maximum attempts until packets arrive.
const TRIES: u32 = 10;
/// Packets per round.
const PASSES: usize = 1_000;
/// Interval between packets.
const PACE: Duration = Duration::from_millis(1);
/// Time after which a packet counts as lost.
const LOST: Duration = Duration::from_millis(20);

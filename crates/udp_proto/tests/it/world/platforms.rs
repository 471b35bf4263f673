//! D1 on all platforms: behavior does not depend on the machine.

use netsim::{Handle, Trace};
use wire::Seed;

use super::faults::rows;
use super::storm::Storm;
use crate::harness::{Log, LogEntry, Peer};

/// Hash of every datagram, event and message of each row of the fault matrix, with its time. After
/// a change of what an endpoint sends or when, replace it by the test's output.
const TRACE: u64 = 0xf7d0_c996_5525_5ad4;

/// `kind xtask trace-hash` also runs it on Linux on ARM and in WebAssembly.
#[test]
fn twp_d1_every_platform_gives_one_trace() {
    let (mut all, mut steps, mut reported) = (0_u64, 0, 0);
    for (number, row) in (0..).zip(rows()) {
        let mut storm = Storm::run_row(Seed::from_number(number), row, |_| {});
        let clients = storm.players.iter().map(|player| player.client);
        let ends: Vec<_> = clients.chain([storm.testbed.server]).collect();
        for end in ends {
            reported += mix(&mut storm, end);
        }
        let trace: &Trace = storm.testbed.world.trace();
        steps += trace.count();
        all = all.wrapping_mul(0x100_0000_01B3) ^ trace.hash();
    }
    eprintln!("trace: {all:016x}");
    assert!(
        steps > 70_000 && reported > 7_000,
        "{steps} steps, {reported} told"
    );
    assert_eq!(all, TRACE, "found 0x{all:016x}");
}

/// Mixes an end's events and their times into the trace; returns their number.
fn mix(storm: &mut Storm, end: Handle<Peer>) -> usize {
    let Log {
        events,
        messages,
        reported,
        ..
    } = storm.testbed.log(end);
    let (mut events, mut messages) = (events.iter(), messages.iter());
    let mut lines = Vec::new();
    for (at, what) in reported {
        let text = match what {
            LogEntry::Event => format!("{:?}", events.next().unwrap()),
            LogEntry::Message => format!("{:?}", messages.next().unwrap()),
        };
        lines.push(format!("{} {text}", at.as_nanos()));
    }
    assert!(events.next().is_none() && messages.next().is_none());
    let trace = storm.testbed.world.trace_mut();
    for line in &lines {
        trace.mix(line.as_bytes());
    }
    lines.len()
}

use super::super::label_search::FAILOVER_PRIORITY;
use super::super::path_labels::TRIES;
use super::super::path_set::tests::path_set;
use super::super::path_table::tests::path;
use super::*;
use crate::link::LinkId;
use netsim::provider::SimProvider;
use wire::Seed;

fn flows(count: u64) -> Vec<FlowId> {
    let flows = (1..count).map(FlowId);
    [FlowId::PROBE].into_iter().chain(flows).collect()
}

fn request(flow: FlowId) -> LabelRequest {
    LabelRequest {
        flow,
        is_proved: true,
        is_warm: false,
    }
}

/// Sets the number of failed set-ups.
fn fail(path: &mut PathEntry, failures: u8) {
    path.setups.reset_failures();
    for number in 0..failures {
        path.setups.pause_until(Instant::ZERO);
        path.setups.on_failure(Instant::from_millis(number.into()));
    }
}

fn entry<A>(path_set: &mut PathSet<A>) -> &mut PathEntry {
    path_set.paths.iter_mut().next().expect("there is a path")
}

#[test]
fn after_a_failure_spare_paths_wait_briefly_for_the_active_one() {
    let provider = SimProvider::new(Seed::from_number(1));
    let mut path_set = path_set(&provider);
    let added = path_set.add_path(Instant::ZERO, path(1), LinkId(1));
    let id = added.expect("there is room").id;
    path_set.paths.activate(Instant::ZERO, id);
    let flows = || [FlowId::PROBE, FlowId(1)].into_iter();
    let priority_path =
        |path_set: &PathSet<_>, at| path_set.priority_path(Instant::ZERO + at, flows());
    assert_eq!(
        priority_path(&path_set, Duration::ZERO),
        None,
        "nothing failed"
    );
    path_set.label_search.on_failover(Instant::ZERO);
    let last = FAILOVER_PRIORITY.saturating_sub(Duration::from_millis(1));
    assert_eq!(priority_path(&path_set, Duration::ZERO), Some(id));
    assert_eq!(priority_path(&path_set, last), Some(id));
    assert_eq!(
        priority_path(&path_set, FAILOVER_PRIORITY),
        None,
        "nobody waits for longer"
    );
    assert_eq!(
        path_set.priority_path(Instant::ZERO, core::iter::empty()),
        None
    );
    fail(entry(&mut path_set), 1);
    assert_eq!(
        priority_path(&path_set, last),
        None,
        "labels may never come"
    );
}

#[test]
fn a_flow_without_a_label_searches_after_2_s_or_three_failures() {
    let provider = SimProvider::new(Seed::from_number(1));
    let mut path_set = path_set(&provider);
    let added = path_set.add_path(Instant::ZERO, path(1), LinkId(1));
    let id = added.expect("there is room").id;
    path_set.paths.activate(Instant::ZERO, id);
    let requests = [request(FlowId(1)), request(FlowId(2))];
    let both = BTreeSet::from([FlowId(1), FlowId(2)]);
    let at = |millis| Instant::from_millis(millis);
    assert!(path_set.update_unbound_flows(at(0), &requests).is_empty());
    assert!(
        path_set
            .update_unbound_flows(at(1_999), &requests)
            .is_empty()
    );
    assert_eq!(path_set.update_unbound_flows(at(2_000), &requests), both);
    // The first has its label or has ended; the next one waits from now on.
    assert!(
        path_set
            .update_unbound_flows(at(2_001), &requests[1..])
            .is_empty()
    );
    fail(entry(&mut path_set), TRIES);
    assert_eq!(path_set.update_unbound_flows(at(2_002), &requests), both);
    assert!(entry(&mut path_set).is_short(at(2_002)));
    // If no flow lacks a label, earlier failures no longer count.
    assert!(path_set.update_unbound_flows(at(2_003), &[]).is_empty());
    assert!(!entry(&mut path_set).is_short(at(9_000)));
    assert_eq!(entry(&mut path_set).setups.failures(), 0);
}

#[test]
fn requests_halve_after_each_failure_and_the_probe_goes_alone() {
    let provider = SimProvider::new(Seed::from_number(1));
    let mut path_set = path_set(&provider);
    let added = path_set.add_path(Instant::ZERO, path(1), LinkId(1));
    added.expect("there is room");
    let path = entry(&mut path_set);
    let all = flows(100);
    let mut lens = |failures| {
        fail(path, failures);
        let batches: Vec<&[FlowId]> = path.batches(&all).collect();
        assert_eq!(batches.concat(), all);
        batches.iter().map(|of| of.len()).collect::<Vec<_>>()
    };
    assert_eq!(lens(0), [64, 36]);
    assert_eq!(lens(1), [1, 32, 32, 32, 3]);
    assert_eq!(lens(2)[..3], [1, 16, 16]);
    assert_eq!(lens(6), [1; 100]);
    assert_eq!(lens(u8::MAX), [1; 100]);
    assert_eq!(path.batches(&[]).count(), 0);
}

#[test]
fn spare_paths_are_probed_by_the_node_they_serve() {
    let provider = SimProvider::new(Seed::from_number(1));
    let mut path_set = path_set(&provider);
    for number in [1, 2] {
        let added = path_set.add_path(Instant::ZERO, path(number), LinkId(number));
        added.expect("there is room");
    }
    let first = entry(&mut path_set).id;
    path_set.paths.activate(Instant::ZERO, first);
    let outsider = LabelRequest {
        is_proved: false,
        ..request(FlowId(3))
    };
    let requests = [LabelRequest::PROBE, request(FlowId(1)), outsider];
    let none = BTreeSet::new();
    let asked =
        |path_set: &PathSet<_>, place: usize, priority_path, stranded: &BTreeSet<FlowId>| {
            let path = path_set.paths.iter().nth(place).expect("there are two");
            path_set.missing(path, &requests, (priority_path, stranded))
        };
    let all = [FlowId::PROBE, FlowId(1), FlowId(3)];
    assert_eq!(
        asked(&path_set, 0, None, &none),
        all,
        "the path in use, for all"
    );
    assert_eq!(
        asked(&path_set, 1, None, &none),
        [FlowId::PROBE],
        "another is tried"
    );
    // Stranded flows; an unproved one uses the spare path only.
    let stranded = BTreeSet::from([FlowId(1), FlowId(3)]);
    let proved = [FlowId::PROBE, FlowId(1)];
    assert_eq!(asked(&path_set, 1, None, &stranded), proved);
    path_set.selector.set_spare(Some(path(2)));
    assert_eq!(asked(&path_set, 1, None, &stranded), all);
    assert_eq!(
        asked(&path_set, 1, Some(first), &stranded),
        [FlowId::PROBE],
        "in a hurry"
    );
}

//! Keys under link loss, killed nodes and hub restarts, checked against a model.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hub::kv::{KvError, KvKey, KvPrefix, KvPut, KvRange, Revision};
use hub::{KvAnswer, KvRequest, NodeConfig, WatchId};
use wire::Generator;

use super::{Seen, View, key};
use crate::world::{Power, World, seeds};

const NODES: usize = 3;

/// A write without an answer.
struct Write {
    key: KvKey,
    value: Option<Vec<u8>>,
    expected: Option<Revision>,
}

#[derive(Default)]
struct Model {
    /// Acknowledged writes.
    acked: BTreeMap<Revision, Write>,
    pending: BTreeMap<(usize, KvRequest), Write>,
    /// Keys with a deletion that may have been executed.
    maybe_deleted: BTreeSet<KvKey>,
    writes: u64,
    /// The watch of each node, with its prefix.
    watches: BTreeMap<usize, (WatchId, KvPrefix)>,
}

#[derive(Debug, Default)]
struct Counts {
    acked: usize,
    conflicts: u64,
    unknown: u64,
    resets: u64,
    resumed: u64,
}

#[test]
fn sim_h4_each_watch_has_no_gap_and_no_acknowledged_key_is_lost() {
    let mut counts = Counts::default();
    let all = seeds(40);
    let is_one = all.end - all.start == 1;
    for seed in all {
        run(seed, &mut counts);
    }
    let has_met = counts.acked > 0
        && counts.conflicts > 0
        && counts.unknown > 0
        && counts.resets > 0
        && counts.resumed > 0;
    assert!(is_one || has_met, "{counts:?}");
}

fn run(seed: u64, counts: &mut Counts) {
    let context = format!("seed {seed}");
    let mut world = World::new(seed, NODES);
    world.hub_config.lease = Duration::from_secs(1);
    world.hub_config.kv.history_changes_max = 12;
    world.start_hub();
    let (mut model, mut seen) = (Model::default(), Seen::default());
    for index in 0..NODES {
        start(&mut world, &mut model, index);
    }
    world.run_ms(1_500);
    for _ in 0..50 {
        for index in 0..NODES {
            write(&mut world, &mut model, index);
        }
        disturb(&mut world, &mut model, &mut seen, counts, &context);
        let pause = world.generator.below(150);
        world.run_ms(pause);
        absorb(&mut world, &mut model, &mut seen, counts, &context);
    }
    for index in 0..NODES {
        if world.nodes[index].is_none() {
            start(&mut world, &mut model, index);
        }
    }
    world.run_ms(8_000);
    absorb(&mut world, &mut model, &mut seen, counts, &context);
    check_end(&mut world, &model, &seen, &context);
    check_conditions(&model, &context);
    for (at, view) in &seen.views {
        check_view(&model, at.0, view, &context);
        counts.resets += u64::from(view.resets.saturating_sub(1));
        counts.resumed += u64::from(view.resets == 1);
    }
    counts.acked += model.acked.len();
}

fn start(world: &mut World, model: &mut Model, index: usize) {
    world.start_node(index, NodeConfig::default());
    let prefix = KvPrefix::new(["", "d/", "m/"][index]).unwrap();
    let watch = world.node(index).kv().watch(prefix.clone(), Revision::NONE);
    model.watches.insert(index, (watch.unwrap(), prefix));
}

fn write(world: &mut World, model: &mut Model, index: usize) {
    if world.nodes[index].is_none() || world.generator.chance(300_000) {
        return;
    }
    let generator = &mut world.generator;
    let class = ["d", "m", "l", "n"][usize::try_from(generator.below(4)).unwrap()];
    let key = key(&format!("{class}/{}", generator.below(3)));
    model.writes += 1;
    let value = (!generator.chance(200_000)).then(|| model.writes.to_be_bytes().to_vec());
    let expected = expected(generator, model, &key);
    let kv = world.node(index).kv();
    let request = match &value {
        Some(value) => {
            let mut put = KvPut::new(key.clone(), value.clone());
            put.expected = expected;
            put.lease = matches!(class, "l" | "n");
            if matches!(class, "m" | "n") {
                put = put.in_memory();
            }
            kv.put(put)
        }
        None => kv.delete(key.clone(), expected),
    };
    let write = Write {
        key,
        value,
        expected,
    };
    match request {
        Ok(request) => {
            model.pending.insert((index, request), write);
        }
        Err(error) => assert!(matches!(error, KvError::HubDown | KvError::Busy)),
    }
}

/// No condition, or the last acknowledged revision of the key.
fn expected(generator: &mut Generator, model: &Model, key: &KvKey) -> Option<Revision> {
    if generator.chance(500_000) {
        return None;
    }
    let last = model
        .acked
        .iter()
        .rev()
        .find(|(_, write)| write.key == *key);
    let last = last.filter(|(_, write)| write.value.is_some());
    Some(last.map_or(Revision::NONE, |(revision, _)| *revision))
}

fn disturb(
    world: &mut World,
    model: &mut Model,
    seen: &mut Seen,
    counts: &mut Counts,
    context: &str,
) {
    match world.generator.below(20) {
        0 => world.reset_some_stream(),
        1 => {
            let power = Power::draw(&mut world.generator);
            let down = Duration::from_millis(world.generator.below(1_500));
            world.crash_hub(power, down);
        }
        2 => {
            let index = usize::try_from(world.generator.below(NODES as u64)).unwrap();
            absorb(world, model, seen, counts, context);
            let lost: Vec<_> = model
                .pending
                .keys()
                .copied()
                .filter(|at| at.0 == index)
                .collect();
            for at in lost {
                let write = model.pending.remove(&at).unwrap();
                note_unknown(model, counts, write);
            }
            let (watch, _) = model.watches[&index];
            if let Some(view) = seen.views.remove(&(index, watch)) {
                check_view(model, index, &view, context);
            }
            world.crash_node(index);
            if world.generator.chance(700_000) {
                start(world, model, index);
            }
        }
        3 => {
            for index in 0..NODES {
                if world.nodes[index].is_none() {
                    start(world, model, index);
                }
            }
        }
        _ => {}
    }
}

fn note_unknown(model: &mut Model, counts: &mut Counts, write: Write) {
    counts.unknown += 1;
    if write.value.is_none() {
        model.maybe_deleted.insert(write.key);
    }
}

fn absorb(
    world: &mut World,
    model: &mut Model,
    seen: &mut Seen,
    counts: &mut Counts,
    context: &str,
) {
    seen.absorb(world.take_events(), context);
    for (index, request, result) in std::mem::take(&mut seen.answers) {
        let Some(write) = model.pending.remove(&(index, request)) else {
            panic!("{context}: an answer without a request");
        };
        match result {
            Ok(KvAnswer::Written { revision, .. }) => {
                let old = model.acked.insert(revision, write);
                assert!(
                    old.is_none(),
                    "{context}: revision {revision} was assigned twice"
                );
            }
            Err(KvError::Conflict { .. }) => counts.conflicts += 1,
            Err(KvError::Unknown) => note_unknown(model, counts, write),
            Err(KvError::NotFound | KvError::HubDown | KvError::OtherDurability) => {}
            Ok(_) | Err(_) => panic!("{context}: {result:?}"),
        }
    }
}

/// Every acknowledged change after the snapshot was reported.
fn check_view(model: &Model, index: usize, view: &View, context: &str) {
    let Some(base) = view.base else {
        return;
    };
    let (_, prefix) = &model.watches[&index];
    let seen: BTreeSet<_> = view.changes.iter().map(|(revision, _)| *revision).collect();
    for (revision, write) in model.acked.range(base..=view.last) {
        let is_watched = *revision > base && write.key.starts_with(prefix);
        assert!(
            !is_watched || seen.contains(revision),
            "{context}: node {index} has not seen {revision} of {:?}",
            write.key,
        );
    }
}

/// A write with a condition replaced the revision that it expected.
fn check_conditions(model: &Model, context: &str) {
    for (revision, write) in &model.acked {
        let Some(expected) = write.expected else {
            continue;
        };
        let before = model.acked.range(..revision).rev();
        let mut before = before.filter(|(_, other)| other.key == write.key);
        let Some((last, other)) = before.next() else {
            continue;
        };
        let is_deleted = other.value.is_none()
            || !write.key.as_str().starts_with("d/")
            || model.maybe_deleted.contains(&write.key);
        let is_linear = *last == expected
            || (*last < expected && expected != Revision::NONE)
            || (expected == Revision::NONE && is_deleted);
        assert!(
            is_linear,
            "{context}: {revision} expected {expected}, not {last}"
        );
    }
}

fn check_end(world: &mut World, model: &Model, seen: &Seen, context: &str) {
    let (entries, _) = world.hub().machine.kv_range(&KvRange::all(), 1_000);
    for (index, (watch, prefix)) in &model.watches {
        let view = &seen.views[&(*index, *watch)];
        let expected = entries.iter().filter(|entry| entry.key.starts_with(prefix));
        let expected: BTreeMap<_, _> = expected
            .map(|entry| (entry.key.clone(), (entry.revision, entry.value.to_vec())))
            .collect();
        assert_eq!(view.entries, expected, "{context}: node {index}");
    }
    for entry in &entries {
        if let Some(lease) = entry.lease {
            let mut epochs = seen.epochs.iter();
            let is_held = epochs.any(|(index, epoch)| {
                crate::world::node_id(*index) == lease.node && *epoch == lease.epoch
            });
            assert!(is_held, "{context}: {:?} outlives its run", entry.key);
        }
    }
    let mut last = BTreeMap::new();
    for (revision, write) in &model.acked {
        last.insert(&write.key, (revision, write));
    }
    for (key, (revision, write)) in last {
        if !key.as_str().starts_with("d/") || model.maybe_deleted.contains(key) {
            continue;
        }
        let entry = entries.iter().find(|entry| entry.key == *key);
        let is_kept = entry.is_some_and(|entry| {
            entry.revision > *revision || Some(entry.value.to_vec()) == write.value
        });
        assert!(
            is_kept || (entry.is_none() && write.value.is_none()),
            "{context}: {key} is {entry:?}, acknowledged {revision}",
        );
    }
}

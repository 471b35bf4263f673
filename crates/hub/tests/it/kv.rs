//! The key-value store between nodes: requests, leases, watches.

mod limit;
mod sim;

use std::collections::BTreeMap;
use std::time::Duration;

use hub::kv::{Durability, KvError, KvKey, KvPrefix, KvPut, KvRange, KvWrite, Revision};
use hub::{Epoch, HubEvent, KvAnswer, KvRequest, Node, NodeConfig, NodeEvent, WatchId};

use crate::world::{Power, World, body};

pub(super) fn key(text: &str) -> KvKey {
    KvKey::new(text).unwrap()
}

fn prefix(text: &str) -> KvPrefix {
    KvPrefix::new(text).unwrap()
}

fn durable(name: &str, value: &str) -> KvPut {
    KvPut::new(key(name), body(value))
}

/// What a watch has reported.
#[derive(Debug, Default)]
pub(super) struct View {
    /// The revision of the end of the last snapshot; `None` during a snapshot.
    pub(super) base: Option<Revision>,
    /// The last revision reported.
    pub(super) last: Revision,
    pub(super) entries: BTreeMap<KvKey, (Revision, Vec<u8>)>,
    /// The changes since the last snapshot.
    pub(super) changes: Vec<(Revision, KvKey)>,
    pub(super) resets: u32,
}

/// Answers and views of all nodes.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) answers: Vec<(usize, KvRequest, Result<KvAnswer, KvError>)>,
    pub(super) views: BTreeMap<(usize, WatchId), View>,
    pub(super) epochs: BTreeMap<usize, Epoch>,
}

impl Seen {
    pub(super) fn absorb(&mut self, events: Vec<(usize, NodeEvent)>, context: &str) {
        for (index, event) in events {
            match event {
                NodeEvent::KvAnswer { request, result } => {
                    self.answers.push((index, request, result));
                }
                NodeEvent::KvReset(watch) => {
                    let view = self.views.entry((index, watch)).or_default();
                    let resets = view.resets + 1;
                    *view = View {
                        resets,
                        ..View::default()
                    };
                }
                NodeEvent::KvChanged { watch, change } => {
                    let view = self
                        .views
                        .get_mut(&(index, watch))
                        .expect("a reset is first");
                    if view.base.is_some() {
                        assert!(
                            change.revision > view.last,
                            "{context}: changes are swapped"
                        );
                        view.last = change.revision;
                        view.changes.push((change.revision, change.key.clone()));
                    }
                    let known = view.entries.get(&change.key);
                    let is_newer = known.is_none_or(|(revision, _)| *revision < change.revision);
                    assert!(is_newer, "{context}: a key went back");
                    match change.value {
                        Some((value, _)) => {
                            let entry = (change.revision, value.to_vec());
                            view.entries.insert(change.key, entry);
                        }
                        None => {
                            view.entries.remove(&change.key);
                        }
                    }
                }
                NodeEvent::KvComplete { watch, revision } => {
                    let view = self
                        .views
                        .get_mut(&(index, watch))
                        .expect("a reset is first");
                    assert!(revision >= view.last, "{context}: the view went back");
                    view.last = revision;
                    view.base = view.base.or(Some(revision));
                }
                NodeEvent::Joined { epoch, .. } => {
                    self.epochs.insert(index, epoch);
                }
                _ => {}
            }
        }
    }
}

/// Runs one request of node 0 to its end.
fn ask(
    world: &mut World,
    request: impl FnOnce(&mut Node) -> Result<KvRequest, KvError>,
) -> Result<KvAnswer, KvError> {
    let request = request(world.node(0)).unwrap();
    world.run_ms(200);
    let found = world
        .take_events()
        .into_iter()
        .find_map(|event| match event {
            (
                0,
                NodeEvent::KvAnswer {
                    request: of,
                    result,
                },
            ) if of == request => Some(result),
            _ => None,
        });
    found.expect("an answer")
}

fn written(answer: Result<KvAnswer, KvError>) -> (Revision, Durability) {
    match answer {
        Ok(KvAnswer::Written {
            revision,
            durability,
        }) => (revision, durability),
        other => panic!("{other:?}"),
    }
}

fn value_of(world: &mut World, name: &str) -> Option<Vec<u8>> {
    let entry = world.hub().machine.kv_get(&key(name))?;
    Some(entry.value.to_vec())
}

#[test]
fn h4_a_node_sets_reads_and_deletes_keys_of_both_durabilities() {
    let mut world = World::joined(1, 2);
    let (first, durability) = written(ask(&mut world, |node| node.kv().put(durable("a/1", "x"))));
    assert_eq!(durability, Durability::Disk);
    let put = durable("a/2", "y").in_memory();
    let (second, durability) = written(ask(&mut world, |node| node.kv().put(put)));
    assert!(second > first);
    assert_eq!(durability, Durability::Memory);
    let put = durable("a/1", "z").expecting(Revision::NONE);
    let conflict = ask(&mut world, |node| node.kv().put(put));
    assert_eq!(conflict, Err(KvError::Conflict { current: first }));
    let put = durable("a/1", "z").expecting(first);
    let (third, _) = written(ask(&mut world, |node| node.kv().put(put)));
    assert!(third > second);
    let put = durable("a/1", "z").in_memory();
    let other = ask(&mut world, |node| node.kv().put(put));
    assert_eq!(other, Err(KvError::OtherDurability));
    let Ok(KvAnswer::Entry(Some(entry))) = ask(&mut world, |node| node.kv().get(key("a/1"))) else {
        panic!("the key exists")
    };
    assert_eq!((entry.revision, &entry.value[..]), (third, &b"z"[..]));
    let range = KvRange::prefix(&prefix("a/"));
    let page = ask(&mut world, |node| node.kv().range(range.clone(), 1));
    let Ok(KvAnswer::Page { entries, more }) = page else {
        panic!("{page:?}")
    };
    assert!(more && entries.len() == 1);
    let rest = range.after(&entries[0].key);
    let page = ask(&mut world, |node| node.kv().range(rest, 10));
    let Ok(KvAnswer::Page { entries, more }) = page else {
        panic!("{page:?}")
    };
    assert!(!more && entries[0].key == key("a/2"));
    for (name, expected) in [("a/1", Some(third)), ("a/2", None)] {
        written(ask(&mut world, |node| {
            node.kv().delete(key(name), expected)
        }));
        let gone = ask(&mut world, |node| node.kv().delete(key(name), None));
        assert_eq!(gone, Err(KvError::NotFound));
    }
    let none = ask(&mut world, |node| node.kv().get(key("a/1")));
    assert_eq!(none, Ok(KvAnswer::Entry(None)));
}

#[test]
fn h4_a_restart_of_the_hub_keeps_durable_keys_only_and_resets_watches() {
    let mut world = World::joined(2, 2);
    let watch = world
        .node(1)
        .kv()
        .watch(KvPrefix::default(), Revision::NONE);
    let at = (1, watch.unwrap());
    let (kept, _) = written(ask(&mut world, |node| node.kv().put(durable("kept", "x"))));
    let put = durable("lost", "y").in_memory();
    let (lost, _) = written(ask(&mut world, |node| node.kv().put(put)));
    world.take_events();
    world.crash_hub(Power::Cut, Duration::from_millis(100));
    world.run_ms(2_000);
    let mut seen = Seen::default();
    seen.absorb(world.take_events(), "restart");
    let view = &seen.views[&at];
    assert_eq!(view.resets, 1);
    assert!(view.last > lost, "revisions are not assigned again");
    let found: Vec<_> = view.entries.iter().collect();
    assert_eq!(found, [(&key("kept"), &(kept, b"x".to_vec()))]);
}

/// Node 0 with one durable and one other key that have its lease.
fn leased(seed: u64) -> World {
    let mut world = World::new(seed, 2);
    world.hub_config.lease = Duration::from_secs(2);
    world.start_hub();
    for index in 0..2 {
        world.start_node(index, NodeConfig::default());
    }
    world.run_ms(1_500);
    for put in [durable("disk", "x"), durable("memory", "y").in_memory()] {
        written(ask(&mut world, |node| node.kv().put(put.with_lease())));
    }
    assert!(value_of(&mut world, "disk").is_some() && value_of(&mut world, "memory").is_some());
    world
}

fn has_keys(world: &mut World) -> [bool; 2] {
    ["disk", "memory"].map(|name| value_of(world, name).is_some())
}

#[test]
fn h4_a_lease_ends_when_its_node_leaves_is_lost_or_restarts() {
    let mut world = leased(3);
    let now = world.now;
    world.node(0).leave(now);
    world.run_ms(300);
    assert_eq!(has_keys(&mut world), [false; 2], "left");

    let mut world = leased(4);
    world.crash_node(0);
    world.run_ms(1_000);
    assert_eq!(
        has_keys(&mut world),
        [true; 2],
        "the lease time has not passed"
    );
    world.run_ms(2_000);
    assert_eq!(has_keys(&mut world), [false; 2], "lost");

    let mut world = leased(5);
    world.crash_node(0);
    world.start_node(0, NodeConfig::default());
    world.run_ms(1_000);
    assert_eq!(has_keys(&mut world), [false; 2], "a later epoch");

    let mut world = leased(6);
    world.reset_some_stream();
    world.reset_some_stream();
    world.run_ms(5_000);
    assert_eq!(has_keys(&mut world), [true; 2], "the run has joined again");
}

#[test]
fn h4_after_a_hub_restart_a_lease_needs_its_holder_within_the_lease_time() {
    let mut world = leased(7);
    world.crash_hub(Power::Cut, Duration::from_millis(100));
    world.run_ms(5_000);
    assert_eq!(
        has_keys(&mut world),
        [true, false],
        "the holder has joined again"
    );
    world.crash_node(0);
    world.crash_hub(Power::Cut, Duration::from_millis(100));
    world.run_ms(1_000);
    assert_eq!(has_keys(&mut world), [true, false], "within the lease time");
    world.run_ms(3_000);
    assert_eq!(has_keys(&mut world), [false; 2]);
}

#[test]
fn h4_a_watch_continues_over_a_new_link_without_a_snapshot() {
    let mut world = World::joined(8, 2);
    let watch = world
        .node(1)
        .kv()
        .watch(prefix("a"), Revision::NONE)
        .unwrap();
    world.run_ms(300);
    let mut seen = Seen::default();
    seen.absorb(world.take_events(), "begin");
    for round in 0..5 {
        // Both links close; the node of the watch misses changes.
        world.reset_some_stream();
        world.reset_some_stream();
        world.run_ms(1_000);
        for name in ["a/1", "a/2", "b"] {
            let put = durable(name, &format!("{round}"));
            world.node(0).kv().put(put).unwrap();
        }
        world.run_ms(1_000);
        seen.absorb(world.take_events(), "changes");
    }
    let view = &seen.views[&(1, watch)];
    assert_eq!(view.resets, 1, "the first one");
    assert_eq!(view.changes.len(), 10);
    let now = world.now;
    assert!(world.node(1).kv().unwatch(watch));
    assert!(!world.node(1).kv().unwatch(watch));
    world.run_until(now + Duration::from_millis(200));
    world.node(0).kv().put(durable("a/1", "last")).unwrap();
    world.run_ms(300);
    seen.absorb(world.take_events(), "ended");
    assert_eq!(seen.views[&(1, watch)].changes.len(), 10);
}

#[test]
fn h4_requests_in_flight_at_the_end_of_a_link_are_reported_as_unknown() {
    let mut world = World::joined(9, 1);
    world.node(0).kv().put(durable("a", "x")).unwrap();
    world.node(0).kv().get(key("a")).unwrap();
    world.drain_all();
    world.crash_hub(Power::Stays, Duration::from_millis(100));
    world.node(0);
    world.run_ms(2_000);
    let answers = world
        .take_events()
        .into_iter()
        .filter_map(|event| match event {
            (_, NodeEvent::KvAnswer { result, .. }) => Some(result),
            _ => None,
        });
    let expected = [Err(KvError::Unknown), Err(KvError::HubDown)];
    assert_eq!(answers.collect::<Vec<_>>(), expected);
    // Repeated with its condition, the write happens once.
    let put = durable("a", "x").expecting(Revision::NONE);
    let answer = ask(&mut world, |node| node.kv().put(put));
    assert!(matches!(
        answer,
        Ok(KvAnswer::Written { .. }) | Err(KvError::Conflict { .. })
    ));
    world.crash_hub(Power::Stays, Duration::from_secs(60));
    world.run_ms(100);
    let refused = world.node(0).kv().put(durable("a", "y"));
    assert_eq!(refused, Err(KvError::HubDown));
}

#[test]
fn h4_the_process_of_the_hub_writes_and_reads_keys() {
    let mut world = World::joined(10, 1);
    let watch = world
        .node(0)
        .kv()
        .watch(KvPrefix::default(), Revision::NONE)
        .unwrap();
    let now = world.now;
    let write = KvWrite::Put(durable("motd", "hello"));
    world.hub().machine.kv_write(now, 7, write);
    world.run_ms(200);
    let done = world.hub_events.iter().find_map(|event| match event {
        HubEvent::KvDone { ticket: 7, result } => Some(*result),
        _ => None,
    });
    let revision = done.expect("a result").unwrap();
    let (entries, more) = world.hub().machine.kv_range(&KvRange::all(), 10);
    assert_eq!((entries.len(), more), (1, false));
    assert_eq!(entries[0].revision, revision);
    let mut seen = Seen::default();
    seen.absorb(world.take_events(), "local");
    let expected = (revision, b"hello".to_vec());
    assert_eq!(seen.views[&(0, watch)].entries[&key("motd")], expected);
}

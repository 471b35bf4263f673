//! Durable keys: conditions, limits, copies, snapshots, and a log that crashes repeatedly.

use std::collections::BTreeMap;

use super::snapshot::without_snapshots;
use super::*;
use crate::kv::{KvEntry, KvError, KvKey, KvLease, Revision};

const BY: KvLease = KvLease {
    node: NODE,
    epoch: Epoch(1),
};

fn key(number: u64) -> KvKey {
    KvKey::new(&format!("key/{number}")).unwrap()
}

fn kv(store: &mut Store<MemorySegments>, op: KvOp) -> Result<KvOutcome, StoreError> {
    match run(store, StoreOp::Kv(op))? {
        Completed::Kv(outcome) => Ok(outcome),
        other => panic!("{other:?}"),
    }
}

fn put(
    store: &mut Store<MemorySegments>,
    number: u64,
    expected: Option<Revision>,
    value: &[u8],
) -> Result<Result<Revision, KvError>, StoreError> {
    let op = KvOp::Put {
        by: None,
        lease: false,
        key: key(number),
        expected,
        value: Redacted(Bytes::copy_from_slice(value)),
    };
    kv(store, op).map(|outcome| result(&outcome))
}

fn delete(
    store: &mut Store<MemorySegments>,
    number: u64,
    expected: Option<Revision>,
) -> Result<Result<Revision, KvError>, StoreError> {
    let key = key(number);
    let by = None;
    kv(store, KvOp::Delete { by, key, expected }).map(|outcome| result(&outcome))
}

fn result(outcome: &KvOutcome) -> Result<Revision, KvError> {
    match outcome {
        KvOutcome::Done(revision) => Ok(*revision),
        KvOutcome::Refused(error) => Err(*error),
        KvOutcome::Loaded { .. } => panic!("not a write"),
    }
}

/// All keys, read in small pages, and the last revision.
fn load(store: &mut Store<MemorySegments>) -> (Vec<KvEntry>, Revision) {
    let mut found: Vec<KvEntry> = Vec::new();
    loop {
        let after = found.last().map(|entry| entry.key.clone());
        let bytes_max = 4_096;
        match kv(store, KvOp::Load { after, bytes_max }).unwrap() {
            KvOutcome::Loaded {
                entries,
                more,
                revision,
            } => {
                found.extend(entries);
                if !more {
                    return (found, revision);
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn h4_a_write_needs_the_expected_revision() {
    let mut store = open(MemorySegments::new(1 << 30));
    let none = Some(Revision::NONE);
    let first = put(&mut store, 1, none, b"a").unwrap().unwrap();
    let conflict = Err(KvError::Conflict { current: first });
    assert_eq!(put(&mut store, 1, none, b"b").unwrap(), conflict);
    let second = put(&mut store, 1, Some(first), b"b").unwrap().unwrap();
    assert!(second > first);
    let conflict = Err(KvError::Conflict { current: second });
    assert_eq!(delete(&mut store, 1, Some(first)).unwrap(), conflict);
    let third = delete(&mut store, 1, Some(second)).unwrap().unwrap();
    assert!(third > second);
    assert_eq!(delete(&mut store, 1, None).unwrap(), Err(KvError::NotFound));
    let missing = Err(KvError::Conflict {
        current: Revision::NONE,
    });
    assert_eq!(put(&mut store, 1, Some(second), b"c").unwrap(), missing);
    let (entries, revision) = load(&mut store);
    assert!(entries.is_empty() && revision > third);
}

#[test]
fn h4_keys_survive_a_restart_with_revision_and_lease_and_none_repeats() {
    let mut store = open(MemorySegments::new(1 << 30));
    assert_eq!(join(&mut store, 1), BY.epoch);
    let op = KvOp::Put {
        by: Some(BY),
        lease: true,
        key: key(2),
        expected: None,
        value: Redacted(Bytes::from_static(b"leased")),
    };
    let leased = result(&kv(&mut store, op).unwrap()).unwrap();
    let plain = put(&mut store, 1, None, b"plain").unwrap().unwrap();
    assert_eq!(
        kv(&mut store, KvOp::Advance),
        Ok(KvOutcome::Done(Revision::durable(plain.sequence() + 1)))
    );
    let (before, last) = load(&mut store);
    let mut store = open(store.into_files());
    let (after, revision) = load(&mut store);
    assert_eq!(after, before);
    assert!(revision > last, "changes in memory get new revisions");
    assert_eq!(after[0].revision, plain);
    assert_eq!((after[1].revision, after[1].lease), (leased, Some(BY)));
}

#[test]
fn hub_8_a_write_of_an_earlier_run_changes_nothing() {
    let mut store = open(MemorySegments::new(1 << 30));
    join(&mut store, 1);
    join(&mut store, 2);
    let value = Redacted(Bytes::from_static(b"late"));
    let op = KvOp::Put {
        by: Some(BY),
        lease: false,
        key: key(1),
        expected: None,
        value,
    };
    let refused = Ok(KvOutcome::Refused(KvError::HubDown));
    assert_eq!(kv(&mut store, op), refused);
    put(&mut store, 1, None, b"kept").unwrap().unwrap();
    let op = KvOp::Delete {
        by: Some(BY),
        key: key(1),
        expected: None,
    };
    assert_eq!(kv(&mut store, op), refused);
    assert_eq!(load(&mut store).0.len(), 1);
}

#[test]
fn hub_6_durable_keys_and_their_bytes_are_bounded() {
    let mut config = small();
    config.kv.keys_max = 3;
    config.kv.bytes_max = 100_000;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let full = Err(KvError::Full);
    for number in 0..3 {
        put(&mut store, number, None, b"small").unwrap().unwrap();
    }
    assert_eq!(put(&mut store, 3, None, b"small").unwrap(), full);
    put(&mut store, 0, None, &vec![1; 60_000]).unwrap().unwrap();
    assert_eq!(put(&mut store, 1, None, &vec![1; 40_000]).unwrap(), full);
    put(&mut store, 0, None, &vec![1; 60_001]).unwrap().unwrap();
    let long = put(&mut store, 0, None, &vec![1; 65_537]).unwrap();
    assert_eq!(long, Err(KvError::TooLarge));
    delete(&mut store, 0, None).unwrap().unwrap();
    put(&mut store, 3, None, &vec![1; 60_000]).unwrap().unwrap();
}

#[test]
fn hub_1_on_a_full_disk_a_key_can_be_deleted() {
    let mut store = open(MemorySegments::new(3 * StoreConfig::SEGMENT_BYTES_MIN));
    let mut number = 0;
    while put(&mut store, number, None, &vec![1; 60_000])
        .unwrap()
        .is_ok()
    {
        number += 1;
        while store.tidy() {}
    }
    assert!(number > 3);
    assert_eq!(
        put(&mut store, number, None, &vec![1; 60_000]).unwrap(),
        Err(KvError::Full)
    );
    for number in 0..number {
        delete(&mut store, number, None).unwrap().unwrap();
        while store.tidy() {}
    }
    put(&mut store, 0, None, &vec![1; 60_000]).unwrap().unwrap();
}

#[test]
fn hub_6_keys_that_are_overwritten_and_copied_use_bounded_disk() {
    let mut store = open(MemorySegments::new(1 << 30));
    // One old key in each segment, which only a copy frees.
    let mut last = BTreeMap::new();
    for round in 0..400_u64 {
        let number = if round % 40 == 0 { round } else { 1_000 };
        let value = vec![u8::try_from(round % 251).unwrap(); 20_000];
        let revision = put(&mut store, number, None, &value).unwrap().unwrap();
        last.insert(key(number), (revision, value));
        while store.keep_up() {}
        assert!(used(store.files_mut()).len() <= 6, "round {round}");
    }
    while store.tidy() {}
    let mut store = open(store.into_files());
    assert!(store.recovery().restored == 0);
    let found = load(&mut store).0.into_iter();
    let found: BTreeMap<_, _> = found
        .map(|entry| (entry.key, (entry.revision, entry.value.to_vec())))
        .collect();
    assert_eq!(found, last);
}

/// What the writers of the store know.
#[derive(Default)]
struct Model {
    /// Acknowledged state by key: the revision and the value, or `None` if deleted.
    known: BTreeMap<u64, (Revision, Option<Vec<u8>>)>,
    /// The write of each key with a lost report, since the last known state.
    unknown: BTreeMap<u64, Vec<Option<Vec<u8>>>>,
    last: Revision,
    writes: u64,
    conflicts: u64,
}

#[test]
fn h4_no_acknowledged_key_is_lost_over_random_crash_points() {
    let (mut crashes, mut snapshots, mut conflicts) = (0, 0, 0);
    let seeds = std::env::var("SEED").ok().map_or_else(
        || 0..100,
        |seed| {
            let seed: u64 = seed.parse().unwrap();
            seed..seed + 1
        },
    );
    for seed in seeds {
        let mut generator = Seed::from_number(seed).generator(1);
        let mut model = Model::default();
        let mut disk = MemorySegments::new(6 * StoreConfig::SEGMENT_BYTES_MIN);
        for _ in 0..25 {
            match generator.below(4) {
                0 => disk.fail_sync_after(generator.below(30)),
                1 => disk.stop_after(generator.below(60)),
                2 => disk.stop_after(generator.below(8)),
                _ => {}
            }
            match Store::open(disk, small(), LOG) {
                Ok(mut store) => {
                    live(seed, &mut model, &mut store, &mut generator);
                    crashes += u64::from(store.is_dead());
                    snapshots += store.stats().snapshots;
                    disk = store.into_files();
                }
                Err(OpenFailure { files, .. }) => disk = files,
            }
            if generator.chance(500_000) {
                disk.power_cut(&mut generator);
            } else {
                disk.kill();
            }
        }
        conflicts += model.conflicts;
        let mut store = open(disk);
        check(seed, &mut model, &mut store);
    }
    assert!(crashes > 0 && snapshots > 0 && conflicts > 0);
}

fn live(
    seed: u64,
    model: &mut Model,
    store: &mut Store<MemorySegments>,
    generator: &mut Generator,
) {
    check(seed, model, store);
    for _ in 0..generator.below(40) {
        if store.is_dead() {
            return;
        }
        if generator.chance(300_000) {
            for _ in 0..=generator.below(9) {
                store.tidy();
            }
            continue;
        }
        write(seed, model, store, generator);
    }
}

/// One write, half of them with the known revision or a wrong one.
fn write(
    seed: u64,
    model: &mut Model,
    store: &mut Store<MemorySegments>,
    generator: &mut Generator,
) {
    let number = generator.below(8);
    model.writes += 1;
    let value = (!generator.chance(250_000)).then(|| {
        let mut value = model.writes.to_be_bytes().to_vec();
        value.resize(usize::try_from(8 + generator.below(30_000)).unwrap(), 7);
        value
    });
    let known = model.known.get(&number);
    let current = known.filter(|(_, value)| value.is_some());
    let current = current.map_or(Revision::NONE, |(revision, _)| *revision);
    let expected = match generator.below(4) {
        0 => Some(current),
        1 => Some(Revision(current.0 ^ 1)),
        _ => None,
    };
    model.unknown.entry(number).or_default().push(value.clone());
    let outcome = match &value {
        Some(value) => put(store, number, expected, value),
        None => delete(store, number, expected),
    };
    let Ok(outcome) = outcome else {
        // The report is lost: the write may be on disk.
        return;
    };
    model.unknown.remove(&number);
    match outcome {
        Ok(revision) => {
            let is_allowed = expected.is_none_or(|expected| expected == current);
            assert!(is_allowed, "seed {seed}: a write against its condition");
            assert!(revision > model.last, "seed {seed}: revision {revision}");
            model.last = revision;
            model.known.insert(number, (revision, value));
        }
        Err(KvError::Conflict { current: found }) => {
            assert_eq!(found, current, "seed {seed}");
            assert_ne!(expected, Some(current), "seed {seed}");
            model.conflicts += 1;
        }
        Err(KvError::NotFound) => assert_eq!(current, Revision::NONE, "seed {seed}"),
        Err(KvError::Full) => {}
        Err(error) => panic!("seed {seed}: {error}"),
    }
}

/// Each key has its acknowledged state, or that of a write with a lost report; the model goes on with it.
fn check(seed: u64, model: &mut Model, store: &mut Store<MemorySegments>) {
    let Ok(outcome) = kv(
        store,
        KvOp::Load {
            after: None,
            bytes_max: usize::MAX,
        },
    ) else {
        return;
    };
    let KvOutcome::Loaded {
        entries, revision, ..
    } = outcome
    else {
        panic!("seed {seed}: {outcome:?}")
    };
    assert!(revision > model.last, "seed {seed}: a revision is repeated");
    for number in 0..8 {
        let found = entries.iter().find(|entry| entry.key == key(number));
        let value = found.map(|entry| entry.value.to_vec());
        let known = model.known.get(&number).cloned();
        let is_known = match (&known, found) {
            (Some((revision, Some(known))), Some(found)) => {
                found.revision == *revision && *found.value == known[..]
            }
            (Some((_, None)) | None, None) => true,
            _ => false,
        };
        let unknown = model.unknown.remove(&number).unwrap_or_default();
        assert!(
            is_known || unknown.contains(&value),
            "seed {seed}: key {number} is {found:?}, was {known:?}",
        );
        let revision = found.map_or(Revision::NONE, |entry| entry.revision);
        model.known.insert(number, (revision, value));
    }
    model.last = model.last.max(revision);
}

#[test]
fn lost_keys_do_not_end_a_page_early() {
    let mut store = open(MemorySegments::new(1 << 30));
    join(&mut store, 1);
    for number in 0..1_100 {
        put(&mut store, number, None, b"value").unwrap().unwrap();
    }
    let place = store.log.index.kv.get(&key(5)).unwrap().place;
    store.files_mut().flip_bit(
        place.segment,
        usize::try_from(place.offset).unwrap() + 20,
        3,
    );
    let (mut found, mut after) = (0, None);
    loop {
        let bytes_max = 1 << 20;
        match kv(&mut store, KvOp::Load { after, bytes_max }).unwrap() {
            KvOutcome::Loaded { entries, more, .. } => {
                found += entries.len();
                after = entries.last().map(|entry| entry.key.clone());
                if !more {
                    break;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(found, 1_099);
}

#[test]
fn hub_1_deleted_keys_leave_the_room_of_acknowledgements() {
    let mut store = open(MemorySegments::new(3 * StoreConfig::SEGMENT_BYTES_MIN));
    let epoch = join(&mut store, 1);
    let long = |number: u64| KvKey::new(&format!("{number:0>200}")).unwrap();
    for number in 0..1_000 {
        let op = KvOp::Put {
            by: None,
            lease: false,
            key: long(number),
            expected: None,
            value: Redacted(Bytes::new()),
        };
        result(&kv(&mut store, op).unwrap()).unwrap();
    }
    let mut seq = 0;
    while append(&mut store, mail(epoch, seq + 1, seq % 9, &[5; 5_000])) == Ok(MailVerdict::Stored)
    {
        seq += 1;
        while store.tidy() {}
    }
    let mut deleted = 0;
    loop {
        let op = KvOp::Delete {
            by: None,
            key: long(deleted),
            expected: None,
        };
        match result(&kv(&mut store, op).unwrap()) {
            Ok(_) => deleted += 1,
            Err(error) => {
                assert_eq!(error, KvError::Full);
                break;
            }
        }
        assert!(deleted < 500, "deletions have no limit");
    }
    assert!(deleted > 20, "{deleted}: deletions free room");
    // Nodes join, and each mail is acknowledged.
    join(&mut store, 2);
    for player in 0..9 {
        for mail in read_all(&mut store, player) {
            let acked = acknowledge(&mut store, player, mail.seq);
            assert_eq!(acked, Ok(Completed::Acked));
        }
    }
    assert_eq!(store.mail_count(), 0);
}

/// Puts a key of `len` bytes as `node`.
fn put_as(
    store: &mut Store<MemorySegments>,
    node: u8,
    number: u64,
    len: usize,
) -> Result<Revision, KvError> {
    let op = KvOp::Put {
        by: Some(KvLease {
            node: NodeId([node; 32]),
            epoch: Epoch(1),
        }),
        lease: false,
        key: key(number),
        expected: None,
        value: Redacted(Bytes::from(vec![1; len])),
    };
    result(&kv(store, op).unwrap())
}

#[test]
fn hub_8_one_node_and_one_role_have_shares_of_the_durable_keys() {
    let mut config = small();
    config.kv.keys_max = 100;
    config.kv.bytes_max = 1_000_000;
    config.shares = SenderShares::default();
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let roles = [Role::GameNode, Role::GameNode, Role::Matchmaker];
    for (node, role) in (1..).zip(roles) {
        let op = StoreOp::Join {
            node: NodeId([node; 32]),
            instance: INSTANCE,
            epoch: Epoch(0),
            role,
        };
        run(&mut store, op).unwrap();
    }
    let over = Err(KvError::OverShare);
    let fill = |store: &mut Store<MemorySegments>, node: u8, len: usize| {
        let first = u64::from(node) * 1_000;
        let mut keys = first..;
        let refused = keys.find_map(|number| put_as(store, node, number, len).err());
        (refused.unwrap(), keys.start - first - 1)
    };
    assert_eq!(fill(&mut store, 1, 10), (KvError::OverShare, 50));
    assert_eq!(fill(&mut store, 2, 10), (KvError::OverShare, 25));
    // A key is replaced within the share.
    put_as(&mut store, 1, 1_000, 20).unwrap();
    assert_eq!(put_as(&mut store, 2, 1_050, 20), over);
    // After a restart, with or without a snapshot, it is the same.
    while store.tidy() {}
    let disk = store.into_files();
    for disk in [disk.clone(), without_snapshots(&disk)] {
        let mut store = Store::open(disk, config, LOG).unwrap();
        assert_eq!(put_as(&mut store, 1, 1_050, 10), over);
        assert_eq!(put_as(&mut store, 2, 2_025, 10), over);
        // A key that another node takes over counts for that one.
        put_as(&mut store, 3, 1_000, 10).unwrap();
        put_as(&mut store, 1, 1_050, 10).unwrap();
        assert_eq!(fill(&mut store, 3, 10), (KvError::Full, 24));
        for number in 1_001..1_051 {
            delete(&mut store, number, None).unwrap().unwrap();
        }
        assert_eq!(store.log.index.kv.owners().of_role(Role::GameNode).keys, 25);
        assert_eq!(fill(&mut store, 1, 60_000), (KvError::OverShare, 8));
    }
}

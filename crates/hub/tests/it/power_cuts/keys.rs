//! Durable keys, and a reader that knows what was acknowledged.

use std::collections::BTreeMap;

use bytes::Bytes;
use hub::Redacted;
use hub::kv::{KvError, KvKey, Revision};
use hub::log::MemorySegments;
use hub::store::{Completed, KvOp, KvOutcome, Store, StoreOp};
use wire::Generator;

use super::run;

const KEYS: u64 = 8;

/// A key's value; `None` if it was deleted.
type Value = Option<Bytes>;

#[derive(Default)]
pub(super) struct Model {
    /// What was acknowledged last, by key.
    known: BTreeMap<u64, (Revision, Value)>,
    /// Writes with a lost answer, by key: each may be the state.
    open: BTreeMap<u64, Vec<Value>>,
    writes: u64,
    last: Revision,
}

impl Model {
    /// Writes one key, sometimes with a revision that it must have. Returns 1 if it is on disk.
    pub(super) fn write(
        &mut self,
        seed: u64,
        store: &mut Store<MemorySegments>,
        generator: &mut Generator,
    ) -> u64 {
        let number = generator.below(KEYS);
        self.writes += 1;
        let len = usize::try_from(generator.below(20_000)).unwrap();
        let mut value = self.writes.to_be_bytes().to_vec();
        value.resize(8 + len, 7);
        let value = (!generator.chance(250_000)).then(|| Bytes::from(value));
        let known = self.known.get(&number).filter(|(_, value)| value.is_some());
        let current = known.map_or(Revision::NONE, |(revision, _)| *revision);
        let expected = match generator.below(4) {
            0 => Some(current),
            1 => Some(Revision(current.0 ^ 1)),
            _ => None,
        };
        self.open.entry(number).or_default().push(value.clone());
        let key = key(number);
        let op = match value.clone() {
            Some(value) => KvOp::Put {
                by: None,
                lease: false,
                key,
                expected,
                value: Redacted(value),
            },
            None => KvOp::Delete {
                by: None,
                key,
                expected,
            },
        };
        let Ok(Completed::Kv(outcome)) = run(store, StoreOp::Kv(op)) else {
            return 0;
        };
        self.open.remove(&number);
        match outcome {
            KvOutcome::Done(revision) => {
                let is_allowed = expected.is_none_or(|expected| expected == current);
                assert!(is_allowed, "seed {seed}: a write against its condition");
                assert!(revision > self.last, "seed {seed}: a revision is repeated");
                self.last = revision;
                self.known.insert(number, (revision, value));
                1
            }
            KvOutcome::Refused(KvError::Conflict { current: found }) => {
                assert_eq!(found, current, "seed {seed}");
                0
            }
            KvOutcome::Refused(KvError::NotFound | KvError::Full) => 0,
            other => panic!("seed {seed}: {other:?}"),
        }
    }

    /// Each key has its acknowledged state, or that of a write with a lost answer.
    pub(super) fn check(&mut self, seed: u64, store: &mut Store<MemorySegments>) {
        let load = KvOp::Load {
            after: None,
            bytes_max: usize::MAX,
        };
        let Ok(Completed::Kv(KvOutcome::Loaded {
            entries, revision, ..
        })) = run(store, StoreOp::Kv(load))
        else {
            return;
        };
        assert!(revision > self.last, "seed {seed}: a revision is repeated");
        self.last = revision;
        for number in 0..KEYS {
            let found = entries.iter().find(|entry| entry.key == key(number));
            let open = self.open.remove(&number).unwrap_or_default();
            let value = found.map(|entry| entry.value.0.clone());
            let known = self.known.get(&number);
            let is_known = match (known, found) {
                (Some((revision, Some(known))), Some(found)) => {
                    found.revision == *revision && found.value.0 == *known
                }
                (Some((_, None)) | None, None) => true,
                _ => false,
            };
            assert!(
                is_known || open.contains(&value),
                "seed {seed}: key {number} was acknowledged and is lost"
            );
            let revision = found.map_or(revision, |entry| entry.revision);
            self.known.insert(number, (revision, value));
        }
    }
}

fn key(number: u64) -> KvKey {
    KvKey::new(&format!("key/{number}")).unwrap()
}

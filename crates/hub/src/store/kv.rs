//! Executes operations on durable keys.

use wire::NodeId;

use super::StoreConfig;
use super::op::{KvOp, KvOutcome, StoreError};
use crate::field::Redacted;
use crate::kv::owners::KeyUsage;
use crate::kv::{KvEntry, KvError, KvKey, KvLease, Revision, VALUE_BYTES_MAX};
use crate::log::format::{HEAD_BYTES, LogRecord, StoredKv};
use crate::log::{AppendError, Log, Purpose, ReadFailure, SegmentFile};

/// Limits of the durable keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KvStoreConfig {
    /// Durable keys. Default 65,536. Further ones are refused as `Full`.
    pub keys_max: usize,
    /// Size of all durable keys and values in the log, bytes. Default 64 MiB.
    pub bytes_max: u64,
}

impl Default for KvStoreConfig {
    fn default() -> Self {
        Self {
            keys_max: 65_536,
            bytes_max: 64 << 20,
        }
    }
}

/// Executes `op`; its change is durable after the next flush. The keys for a [`KvOp::Load`] are read with
/// [`load`] after that.
pub(super) fn execute<F: SegmentFile>(
    log: &mut Log<F>,
    config: &StoreConfig,
    op: &KvOp,
) -> Result<KvOutcome, StoreError> {
    let result = match op {
        KvOp::Load { after: Some(_), .. } => Ok(log.index.kv.sequence()),
        KvOp::Load { after: None, .. } | KvOp::Advance => advance(log),
        KvOp::Put {
            by,
            lease,
            key,
            expected,
            value,
        } => put(log, config, (*by, *lease), (key, *expected), value),
        KvOp::Delete { by, key, expected } => delete(log, *by, key, *expected),
    };
    match result {
        Ok(sequence) => Ok(KvOutcome::Done(Revision::durable(sequence))),
        Err(Failure::Refused(error)) => Ok(KvOutcome::Refused(error)),
        Err(Failure::Dead) => Err(StoreError::Failed),
    }
}

/// Assigns a number without a change.
fn advance<F: SegmentFile>(log: &mut Log<F>) -> Result<u64, Failure> {
    let sequence = next(log);
    append(log, &LogRecord::KvMark(sequence), Purpose::Delete)?;
    Ok(sequence)
}

enum Failure {
    Refused(KvError),
    Dead,
}

fn put<F: SegmentFile>(
    log: &mut Log<F>,
    config: &StoreConfig,
    (by, lease): (Option<KvLease>, bool),
    (key, expected): (&KvKey, Option<Revision>),
    value: &[u8],
) -> Result<u64, Failure> {
    check(log, by, key, expected)?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(Failure::Refused(KvError::TooLarge));
    }
    let table = &log.index.kv;
    let old = table.get(key).map(|entry| u64::from(entry.len));
    let value_len = value.len() as u64;
    let len = SET_HEAD_BYTES
        .saturating_add(key.as_bytes().len() as u64)
        .saturating_add(value_len);
    let bytes = table.bytes().saturating_sub(old.unwrap_or(0));
    let is_full = old.is_none() && table.len() >= config.kv.keys_max;
    if is_full || bytes.saturating_add(len) > config.kv.bytes_max {
        return Err(Failure::Refused(KvError::Full));
    }
    if let Some(by) = by {
        check_share(log, config, by.node, (key, len))?;
    }
    let sequence = next(log);
    let record = LogRecord::KvSet(StoredKv {
        sequence,
        by: by.map(|by| by.node),
        lease: by.filter(|_| lease),
        key: key.clone(),
        value: Redacted(value),
    });
    append(log, &record, Purpose::Data)?;
    Ok(sequence)
}

/// Refuses a key of `len` bytes in the log, if `node` has its share of the keys.
fn check_share<F: SegmentFile>(
    log: &Log<F>,
    config: &StoreConfig,
    node: NodeId,
    (key, len): (&KvKey, u64),
) -> Result<(), Failure> {
    let table = &log.index.kv;
    let old = table.get(key).filter(|entry| entry.by == Some(node));
    let freed = old.map(|entry| KeyUsage::one(entry.len.into()));
    let all = KeyUsage {
        keys: u64::try_from(config.kv.keys_max).unwrap_or(u64::MAX),
        bytes: config.kv.bytes_max,
    };
    let writer = (node, log.index.role_of(node));
    let change = (KeyUsage::one(len), freed.unwrap_or_default());
    if config
        .shares
        .has_key_room(writer, table.owners(), change, all)
    {
        Ok(())
    } else {
        Err(Failure::Refused(KvError::OverShare))
    }
}

fn delete<F: SegmentFile>(
    log: &mut Log<F>,
    by: Option<KvLease>,
    key: &KvKey,
    expected: Option<Revision>,
) -> Result<u64, Failure> {
    if log.index.kv.get(key).is_none() {
        return Err(Failure::Refused(KvError::NotFound));
    }
    check(log, by, key, expected)?;
    let sequence = next(log);
    let key = key.clone();
    append(log, &LogRecord::KvDelete { sequence, key }, Purpose::Delete)?;
    Ok(sequence)
}

/// Refuses a write of an earlier run of its node, or with another revision than expected.
fn check<F: SegmentFile>(
    log: &Log<F>,
    by: Option<KvLease>,
    key: &KvKey,
    expected: Option<Revision>,
) -> Result<(), Failure> {
    if let Some(by) = by {
        let run = log.index.node(by.node).map(|state| state.run);
        if run.is_none_or(|run| run.epoch != by.epoch) {
            return Err(Failure::Refused(KvError::HubDown));
        }
    }
    let entry = log.index.kv.get(key);
    let current = entry.map_or(Revision::NONE, |entry| Revision::durable(entry.sequence));
    if expected.is_some_and(|expected| expected != current) {
        return Err(Failure::Refused(KvError::Conflict { current }));
    }
    Ok(())
}

const fn next<F>(log: &Log<F>) -> u64 {
    log.index.kv.sequence().saturating_add(1)
}

fn append<F: SegmentFile>(
    log: &mut Log<F>,
    record: &LogRecord<'_>,
    purpose: Purpose,
) -> Result<(), Failure> {
    log.append(record, purpose).map_err(|error| match error {
        AppendError::Full => Failure::Refused(KvError::Full),
        AppendError::Dead => Failure::Dead,
    })
}

/// Reads keys after `after`, with nothing pending. Returns the outcome, and how many were lost.
pub(super) fn load<F: SegmentFile>(
    log: &mut Log<F>,
    after: Option<&KvKey>,
    bytes_max: usize,
    scratch: &mut Vec<u8>,
) -> (Result<KvOutcome, StoreError>, u64) {
    let mut entries = Vec::new();
    let mut bytes = 0_usize;
    let mut corrupt = 0_u64;
    let mut more = false;
    let places = log.index.kv.after(after);
    let places: Vec<_> = places
        .take(LOAD_KEYS_MAX.saturating_add(1))
        .map(|(key, place)| (key.clone(), *place))
        .collect();
    let is_cut = places.len() > LOAD_KEYS_MAX;
    for (key, place) in places {
        let len = usize::try_from(place.len).unwrap_or(usize::MAX);
        let is_over = bytes.saturating_add(len) > bytes_max || entries.len() >= LOAD_KEYS_MAX;
        if !entries.is_empty() && is_over {
            more = true;
            break;
        }
        match log.read_kv(&key, &place, scratch) {
            Ok(stored) => entries.push(KvEntry {
                key,
                revision: Revision::durable(stored.sequence),
                lease: stored.lease,
                value: stored.value.to_bytes(),
            }),
            Err(ReadFailure::Corrupt) => {
                corrupt = corrupt.saturating_add(1);
                log.index.kv.remove(&key);
            }
            Err(ReadFailure::Unreadable) if entries.is_empty() => {
                return (Err(StoreError::Busy), corrupt);
            }
            Err(ReadFailure::Unreadable) => {
                more = true;
                break;
            }
        }
        bytes = bytes.saturating_add(len);
    }
    // Lost keys do not count, so the last place may be reached without a full page.
    more |= is_cut;
    if entries.is_empty() && more {
        return (Err(StoreError::Busy), corrupt);
    }
    let revision = Revision::durable(log.index.kv.sequence());
    let loaded = KvOutcome::Loaded {
        entries,
        more,
        revision,
    };
    (Ok(loaded), corrupt)
}

/// Most keys of one [`KvOp::Load`].
const LOAD_KEYS_MAX: usize = 1_024;

/// Size of a [`LogRecord::KvSet`] with a lease and its node, without its key's characters and its value,
/// bytes.
const SET_HEAD_BYTES: u64 = HEAD_BYTES as u64 + 1 + 8 + 32 + 37 + 1;

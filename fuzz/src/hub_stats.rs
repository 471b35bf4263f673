//! Statistics: batches of nodes, queries of operators, rows of a store.

use hub::log::{MemorySegments, OpenError, SegmentFile, SegmentId, SnapshotId};
use hub::stats::{Batch, BatchWriter, Query, RollupConfig, Rollups, decode_answer, encode_answer};
use hub::stats_store::{StatsStore, StatsStoreConfig};
use wire::{NodeId, UnixTime};

use crate::hub_log::seal;

const NOW: UnixTime = UnixTime::from_secs(1_800_000_000);

/// Decodes a batch. An accepted one has one encoding, and is applied once.
pub fn batch(data: &[u8]) {
    let Ok(batch) = Batch::decode(data) else {
        return;
    };
    let mut writer = BatchWriter::default();
    for record in batch.records() {
        if writer.push(&record).is_err() {
            // It leaves room for the longest record.
            return;
        }
    }
    assert_eq!(writer.take(), data, "two ways to write {batch:?}");
    let mut rollups = Rollups::new(RollupConfig::default());
    let id = hub::stats::BatchId {
        node: NodeId([1; 32]),
        epoch: hub::Epoch(1),
        batch: hub::BatchSeq(1),
    };
    for _again in 0..2 {
        rollups.apply(id, NOW, &batch);
    }
    check(rollups);
}

/// Parses a query. An accepted one is parsed again from its text, and has an answer.
pub fn query(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    match Query::parse(text, NOW) {
        Ok(query) => {
            let again = query.to_string();
            assert!(
                again.len() > Query::TEXT_BYTES_MAX || Query::parse(&again, NOW) == Ok(query),
                "{text} is {again}"
            );
        }
        Err(error) => {
            assert!(text.is_char_boundary(error.position), "{error}");
            assert!(error.to_string().len() < 300, "{error}");
        }
    }
}

/// Loads the rows of a store: `key length 1, value length 2, key, value` each. What loads is written
/// and loaded again without a change.
pub fn rows(mut data: &[u8]) {
    let mut rows = Vec::new();
    while let Some(([key, high, low], rest)) = data.split_first_chunk() {
        let value = usize::from(u16::from_be_bytes([*high, *low]));
        let Some((key, rest)) = rest.split_at_checked(usize::from(*key)) else {
            break;
        };
        let Some((value, rest)) = rest.split_at_checked(value) else {
            break;
        };
        rows.push((key, value));
        data = rest;
    }
    if let Ok((rollups, _)) = Rollups::load(RollupConfig::default(), rows) {
        check(rollups);
    }
}

/// Decodes an answer. An accepted one has one encoding.
pub fn answer(data: &[u8]) {
    if let Ok(answer) = decode_answer(data) {
        let again = encode_answer(&answer);
        // An answer without rows has no columns.
        let is_empty = answer.as_ref().is_ok_and(|page| page.rows.is_empty());
        assert!(again == data || is_empty, "two ways to write {answer:?}");
    }
}

/// Opens a store of statistics on a segment and a checkpoint that a script has written. If it opens,
/// it opens again with the same counters.
///
/// The script is a sequence of `kind 1, length 1, bytes`. Kind 0 is a record of the segment and kind
/// 1 one of the checkpoint, both with a valid checksum; kinds 2 and 3 are raw bytes of either.
pub fn store(mut script: &[u8]) {
    let (mut segment, mut checkpoint) = (Vec::new(), Vec::new());
    while let Some(([kind, len], rest)) = script.split_first_chunk() {
        let len = usize::from(*len).min(rest.len());
        let (bytes, behind) = rest.split_at(len);
        script = behind;
        let file = if kind % 2 == 0 {
            &mut segment
        } else {
            &mut checkpoint
        };
        if kind % 4 < 2 {
            let offset = u64::try_from(file.len()).expect("it is in memory");
            seal(SegmentId(1), offset, bytes, file);
        } else {
            file.extend_from_slice(bytes);
        }
    }
    let mut disk = MemorySegments::new(16 << 20);
    let len = u64::try_from(segment.len()).expect("it is in memory");
    disk.allocate(SegmentId(1), len + 600)
        .expect("the disk has room");
    disk.write(SegmentId(1), 0, &segment)
        .expect("the disk works");
    disk.sync(SegmentId(1)).expect("the disk works");
    if !checkpoint.is_empty() {
        let id = SnapshotId(1);
        disk.append_snapshot(id, &checkpoint)
            .expect("the disk works");
        disk.sync_snapshot(id).expect("the disk works");
    }
    let open = |disk| {
        let opened = StatsStore::open(disk, StatsStoreConfig::default());
        opened.map_err(|failure| failure.error)
    };
    match open(disk) {
        Ok(store) => {
            let stats = store.rollup_stats();
            let mut again = open(store.into_files()).expect("what has opened opens");
            assert_eq!(again.rollup_stats(), stats, "lost by a start");
            // Whatever it has, a query has an answer.
            again
                .query("count, p50 of a from 0 to now step 1d", NOW)
                .ok();
        }
        Err(error) => assert!(
            matches!(
                error,
                OpenError::Corrupt(_) | OpenError::Missing(_) | OpenError::Foreign(_)
            ),
            "nothing failed: {error}"
        ),
    }
}

/// Every query of what was loaded has an answer, and everything expires.
fn check(mut rollups: Rollups) {
    let columns = "count, sum, min, max, mean, last, uniques, p50, p99";
    for name in ["a", "kill", "tick_us", "other"] {
        for step in ["10s", "1m", "1h", "1d"] {
            let text = format!("{columns} of {name} by map from 0 to now step {step}");
            let query = Query::parse(&text, NOW).expect("a query of the grammar");
            // Too many rows are an error.
            rollups.query(&query).ok();
        }
    }
    rollups.expire(UnixTime::from_millis(u64::MAX));
    let written = rollups.drain_dirty(7);
    assert!(!written.is_empty(), "the position is always written");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_has_a_batch_a_query_and_rows_that_are_accepted() {
        let bytes = include_bytes!("../corpus/hub_stats_batch/one_of_each");
        assert_eq!(Batch::decode(bytes).unwrap().record_count(), 5);
        let text = include_str!("../corpus/hub_stats_query/all_parts");
        assert_eq!(Query::parse(text, NOW).unwrap().filters.len(), 2);
        let bytes = include_bytes!("../corpus/hub_stats_answer/one_of_each");
        assert_eq!(decode_answer(bytes).unwrap().unwrap().rows.len(), 1);
        let rows = include_bytes!("../corpus/hub_stats_rows/one_of_each");
        let (first, value) = (rows[0], u16::from_be_bytes([rows[1], rows[2]]));
        assert_eq!((first, rows[3]), (1, 0));
        let meta = &rows[4..4 + usize::from(value)];
        let loaded = Rollups::load(RollupConfig::default(), [(&[0][..], meta)]);
        assert_eq!(loaded.unwrap().0.stats().batches, 1);
    }
}

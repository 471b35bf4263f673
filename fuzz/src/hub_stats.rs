//! Statistics: batches of nodes, queries of operators, rows of a store.

use hub::stats::{Batch, BatchWriter, Query, RollupConfig, Rollups};
use wire::{NodeId, UnixTime};

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
        let rows = include_bytes!("../corpus/hub_stats_rows/one_of_each");
        let (first, value) = (rows[0], u16::from_be_bytes([rows[1], rows[2]]));
        assert_eq!((first, rows[3]), (1, 0));
        let meta = &rows[4..4 + usize::from(value)];
        let loaded = Rollups::load(RollupConfig::default(), [(&[0][..], meta)]);
        assert_eq!(loaded.unwrap().0.stats().batches, 1);
    }
}

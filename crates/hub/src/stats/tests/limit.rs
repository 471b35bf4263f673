use super::*;
use crate::stats::{Applied, Cell, Query, QueryError};

fn counts(rollups: &Rollups, query: &str) -> Vec<f64> {
    let query = Query::parse(query, NOON + Duration::from_secs(10)).unwrap();
    let rows = rollups.query(&query).unwrap();
    rows.iter()
        .map(|row| query::number(&row.cells[0]))
        .collect()
}

fn many_series(count: u64) -> Vec<StatRecord> {
    (0..count)
        .map(|at| {
            record(
                NOON.as_secs(),
                &format!("s x={at}"),
                Sample::Event(5.into()),
            )
        })
        .collect()
}

#[test]
fn records_of_series_beyond_series_max_are_counted_in_other() {
    let config = RollupConfig {
        series_max: 3,
        ..RollupConfig::default()
    };
    let mut rollups = Rollups::new(config);
    rollups.apply(id(1, 1, 1), NOON, &batch(&many_series(8)));
    assert_eq!(counts(&rollups, "count of s from 0 to now step 1d"), [3.0]);
    assert_eq!(
        counts(&rollups, "sum of other from 0 to now step 10s"),
        [5.0]
    );
    assert_eq!(rollups.stats().other, 5);
    assert_eq!(rollups.series_count(), 4);
}

#[test]
fn hub_10_one_node_fills_its_share_of_the_series_and_no_more() {
    let config = RollupConfig {
        series_max: 10,
        node_series_max: 3,
        ..RollupConfig::default()
    };
    let mut rollups = Rollups::new(config);
    rollups.apply(id(1, 1, 1), NOON, &batch(&many_series(100)));
    assert_eq!(rollups.stats().over_share, 97);
    let one = record(NOON.as_secs(), "t", Sample::Add(1.into()));
    rollups.apply(id(2, 1, 1), NOON, &batch(&[one]));
    assert_eq!(counts(&rollups, "sum of t from 0 to now step 1d"), [1.0]);
    assert_eq!(rollups.series_count(), 3 + 1 + 1, "and `other`");
    // What expires frees its share.
    let later = NOON + Duration::from_secs(86_400);
    let mut forgetful = Rollups::new(RollupConfig {
        retention: [Some(Duration::from_secs(3_600)); 4],
        ..config
    });
    forgetful.apply(id(1, 1, 1), NOON, &batch(&many_series(100)));
    forgetful.expire(later + Duration::from_secs(86_400));
    assert_eq!(forgetful.series_count(), 0);
    forgetful.apply(id(1, 1, 2), NOON, &batch(&many_series(3)));
    assert_eq!(forgetful.stats().over_share, 97);
}

#[test]
fn hub_10_buckets_and_bytes_of_one_node_leave_room_for_others() {
    let config = RollupConfig {
        buckets_max: 1_000,
        node_buckets_max: 100,
        ..RollupConfig::default()
    };
    let records: Vec<_> = (0..400)
        .map(|at| record(NOON.as_secs() - at * 60, "a", Sample::Event(1.into())))
        .collect();
    let mut rollups = Rollups::new(config);
    rollups.apply(id(1, 1, 1), NOON, &batch(&records));
    assert!(rollups.bucket_count() <= 100);
    let one = record(NOON.as_secs(), "t", Sample::Add(1.into()));
    rollups.apply(id(2, 1, 1), NOON, &batch(std::slice::from_ref(&one)));
    assert_eq!(counts(&rollups, "sum of t from 0 to now step 10s"), [1.0]);
    let config = RollupConfig {
        bytes_max: 1 << 20,
        node_bytes_max: 20_000,
        ..RollupConfig::default()
    };
    let mut rollups = Rollups::new(config);
    rollups.apply(id(1, 1, 1), NOON, &batch(&records));
    assert!(rollups.memory_bytes() <= 20_000);
    rollups.apply(id(2, 1, 1), NOON, &batch(&[one]));
    assert_eq!(counts(&rollups, "sum of t from 0 to now step 10s"), [1.0]);
    // The room is that of what is there.
    assert!(!stored(rollups, config).is_empty());
}

#[test]
fn hub_10_no_node_adds_to_the_reserved_series() {
    let mut rollups = Rollups::new(RollupConfig::default());
    let records = ["other", "other x=y"]
        .map(|words| record(NOON.as_secs(), words, Sample::Add(1_000.into())));
    rollups.apply(id(1, 1, 1), NOON, &batch(&records));
    assert_eq!(
        counts(&rollups, "sum of other from 0 to now step 1d"),
        [2.0]
    );
    assert_eq!((rollups.stats().other, rollups.stats().over_share), (2, 0));
}

#[test]
fn hub_10_an_answer_reads_at_most_query_buckets_max_buckets() {
    let config = RollupConfig {
        query_buckets_max: 20,
        ..RollupConfig::default()
    };
    check_pages(config);
    let config = RollupConfig {
        query_sketches_max: 10,
        ..RollupConfig::default()
    };
    check_pages(config);
    let config = RollupConfig {
        rows_max: 10,
        ..RollupConfig::default()
    };
    check_pages(config);
}

/// Four series in 12 minutes with gaps: the pages together are the answer of rollups without a limit.
fn check_pages(config: RollupConfig) {
    let records: Vec<_> = (0..48)
        .map(|at| {
            let words = format!("s x={}", at % 4);
            let secs = NOON.as_secs() + at / 4 * 60 * (1 + at / 24);
            record(
                secs,
                &words,
                Sample::Event(i64::try_from(at).unwrap().into()),
            )
        })
        .collect();
    let now = NOON + Duration::from_secs(86_400);
    let (mut limited, mut free) = (Rollups::new(config), Rollups::new(RollupConfig::default()));
    for rollups in [&mut limited, &mut free] {
        rollups.apply(
            id(1, 1, 1),
            NOON + Duration::from_secs(3_600),
            &batch(&records),
        );
    }
    for text in [
        "p50, uniques, count of s from 0 to now step 1m",
        "p99, sum of s by x from 0 to now step 1m",
    ] {
        let mut query = Query::parse(text, now).unwrap();
        let all = free.query(&query).unwrap();
        let error = limited.query(&query);
        assert!(
            matches!(error, Err(QueryError::Work | QueryError::Rows(10))) || config.rows_max == 10,
            "{error:?}"
        );
        let (mut rows, mut pages) = (Vec::new(), 0);
        loop {
            let page = limited.query_page(&query).unwrap();
            assert!(page.rows.len() <= config.rows_max);
            rows.extend(page.rows);
            pages += 1;
            let Some(next) = page.next else {
                break;
            };
            assert!(next > query.from);
            query.from = next;
        }
        assert_eq!(rows, all);
        assert!(pages > 1);
    }
}

#[test]
fn hub_10_a_step_that_takes_too_much_work_is_refused() {
    let mut rollups = Rollups::new(RollupConfig {
        query_sketches_max: 5,
        ..RollupConfig::default()
    });
    rollups.apply(id(1, 1, 1), NOON, &batch(&many_series(6)));
    let query = |text| Query::parse(text, NOON + Duration::from_secs(10)).unwrap();
    let merged = query("p50 of s from 0 to now step 1d");
    assert_eq!(rollups.query_page(&merged), Err(QueryError::Work));
    assert_eq!(rollups.query(&merged), Err(QueryError::Work));
    assert_eq!(
        QueryError::Work.to_string(),
        "the answer takes too much work"
    );
    // Without quantiles no sketch is merged.
    let plain = query("count of s from 0 to now step 1d");
    assert_eq!(rollups.query(&plain).unwrap().len(), 1);
}

#[test]
fn nodes_beyond_nodes_max_are_refused() {
    let config = RollupConfig {
        nodes_max: 2,
        ..RollupConfig::default()
    };
    let mut rollups = Rollups::new(config);
    let one = batch(&many_series(1));
    for (node, applied) in [
        (1, Applied::Counted),
        (2, Applied::Counted),
        (3, Applied::Full),
    ] {
        assert_eq!(rollups.apply(id(node, 1, 1), NOON, &one), applied);
    }
    assert_eq!(rollups.apply(id(1, 1, 2), NOON, &one), Applied::Counted);
    assert_eq!(rollups.stats().records, 3);
}

#[test]
fn buckets_stay_within_buckets_max_and_coarse_levels_have_room_longest() {
    let config = RollupConfig {
        buckets_max: 100,
        ..RollupConfig::default()
    };
    let mut rollups = Rollups::new(config);
    let records: Vec<_> = (0..200)
        .map(|at| record(NOON.as_secs() - at * 60, "a", Sample::Add(1.into())))
        .collect();
    rollups.apply(id(1, 1, 1), NOON, &batch(&records));
    assert!(rollups.bucket_count() <= 100);
    let [tens, minutes, hours, days] = rollups.stats().no_room;
    assert_eq!((tens, hours, days), (150, 0, 0));
    assert!(minutes > 150, "{minutes}");
    let hours = counts(&rollups, "sum of a from 0 to now step 1h");
    assert_eq!(hours.iter().sum::<f64>().to_string(), "200");
}

#[test]
fn memory_stays_within_bytes_max_whatever_is_recorded() {
    let config = RollupConfig {
        bytes_max: 40_000,
        ..RollupConfig::default()
    };
    let mut rollups = Rollups::new(config);
    for number in 1..=50 {
        let records: Vec<_> = (0..100)
            .map(|at| {
                let value = (number * 100 + at) * 977 % 60_000;
                let mut record = record(
                    NOON.as_secs() - at % 7,
                    &format!("s x={}", at % 9),
                    Sample::Event(i64::try_from(value).unwrap().into()),
                );
                record.player = Some(ClientId(value));
                record
            })
            .collect();
        rollups.apply(id(1, 1, number), NOON, &batch(&records));
        assert!(
            rollups.memory_bytes() <= 40_000,
            "{}",
            rollups.memory_bytes()
        );
    }
    let trimmed: u64 = rollups.stats().trimmed.iter().sum();
    assert!(trimmed > 0);
    // What has a bucket is complete but for sketch and players.
    let found: f64 = counts(&rollups, "count of s from 0 to now step 1d")
        .iter()
        .sum();
    let lost = rollups.stats().no_room[3] + rollups.stats().other;
    assert_eq!(found.to_string(), (5_000 - lost).to_string());
    // The counted memory is that of what is there.
    assert!(!stored(rollups, config).is_empty());
}

#[test]
fn answers_stay_within_rows_max() {
    let config = RollupConfig {
        rows_max: 5,
        ..RollupConfig::default()
    };
    let mut rollups = Rollups::new(config);
    rollups.apply(id(1, 1, 1), NOON, &batch(&many_series(6)));
    let query = |text| Query::parse(text, NOON + Duration::from_secs(10)).unwrap();
    let all = query("count of s by x from 0 to now step 1d");
    assert_eq!(rollups.query(&all), Err(QueryError::Rows(5)));
    assert_eq!(
        QueryError::Rows(5).to_string(),
        "the answer has more than 5 rows"
    );
    let one = query("count of s where x = 3 by x from 0 to now step 1d");
    assert_eq!(rollups.query(&one).unwrap()[0].cells, [Cell::Number(1.0)]);
    let mut long = one;
    long.by = vec![name("x"); 9];
    assert_eq!(rollups.query(&long), Err(QueryError::TooLong));
}

#[test]
fn records_beyond_early_max_are_dropped_and_counted() {
    let config = RollupConfig {
        early_max: Duration::from_secs(5),
        ..RollupConfig::default()
    };
    let mut rollups = Rollups::new(config);
    let records = [5, 6].map(|at| record(NOON.as_secs() + at, "a", Sample::Add(1.into())));
    rollups.apply(id(1, 1, 1), NOON, &batch(&records));
    assert_eq!(rollups.stats().early, 1);
    assert_eq!(counts(&rollups, "count of a from 0 to now step 10s"), [1.0]);
    // Even a time that no bucket has.
    let config = RollupConfig {
        early_max: Duration::MAX,
        ..config
    };
    let mut rollups = Rollups::new(config);
    let never = StatRecord {
        time: UnixTime::from_millis(u64::MAX),
        ..record(0, "a", Sample::Add(1.into()))
    };
    rollups.apply(id(1, 1, 1), NOON, &batch(&[never]));
    assert_eq!(rollups.bucket_count(), 0);
    assert_eq!(rollups.stats().no_room, [1; 4]);
}

#[test]
fn buckets_expire_by_the_retention_of_their_level_and_late_records_are_counted() {
    let day = |days: u64| Duration::from_secs(86_400 * days);
    let config = RollupConfig {
        retention: [Some(day(1)), Some(day(2)), Some(day(3)), Some(day(4))],
        ..RollupConfig::default()
    };
    let mut rollups = Rollups::new(config);
    let one = batch(&[record(NOON.as_secs(), "a", Sample::Add(1.into()))]);
    rollups.apply(id(1, 1, 1), NOON, &one);
    let levels = |rollups: &Rollups| {
        ["10s", "1m", "1h", "1d"]
            .map(|step| counts(rollups, &format!("count of a from 0 to now step {step}")).len())
    };
    let mut table = Table::new();
    write(&mut rollups, 1, &mut table);
    // A bucket is kept until its end is older than the retention. That of the day began at midnight.
    for (days, behind, left) in [
        (1, 10, [0, 1, 1, 1]),
        (2, 60, [0, 0, 1, 1]),
        (3, 3_600, [0, 0, 0, 1]),
        (4, 43_200, [0, 0, 0, 0]),
    ] {
        let end = NOON + day(days) + Duration::from_secs(behind);
        let before = levels(&rollups);
        rollups.expire(UnixTime::from_secs(end.as_secs() - 1));
        assert_eq!(levels(&rollups), before, "{days}");
        rollups.expire(end);
        assert_eq!(levels(&rollups), left, "{days}");
        write(&mut rollups, 1, &mut table);
        let (loaded, _) = load(config, &table);
        assert_eq!(loaded.memory_bytes(), rollups.memory_bytes());
    }
    assert_eq!((rollups.series_count(), rollups.memory_bytes()), (0, 0));
    assert_eq!(table.keys().filter(|key| key[0] >= 2).count(), 0);
    rollups.apply(id(1, 1, 2), NOON + day(2) + Duration::from_secs(60), &one);
    assert_eq!(rollups.stats().late, [1, 1, 0, 0]);
    assert_eq!(levels(&rollups), [0, 0, 1, 1]);
}

#[test]
fn the_raw_log_is_kept_for_raw_retention() {
    let config = RollupConfig {
        raw_retention: Duration::from_secs(60),
        ..RollupConfig::default()
    };
    let horizon = Rollups::new(config).raw_horizon(UnixTime::from_secs(100));
    assert_eq!(horizon, UnixTime::from_secs(40));
}

#[test]
fn a_batch_takes_memory_in_proportion_to_its_length() {
    // The densest definitions: dimensions by index, 2 bytes each.
    let mut records = Vec::new();
    for at in 0..u64::MAX {
        let dimensions = (0..8).map(|place| {
            let value = (at >> (place * 3)) & 7;
            (name(&format!("{place}")), text(&format!("{value}")))
        });
        let mut one = record(0, "a", Sample::Add(1.into()));
        one.key = StatKey::new(name("a"), dimensions.collect()).unwrap();
        records.push(one);
        if records.len() == 2_700 {
            break;
        }
    }
    let bytes = encoded(&records);
    let batch = Batch::decode(&bytes).unwrap();
    let keys: usize = batch.series().iter().map(StatKey::memory_bytes).sum();
    assert!(keys <= 64 * bytes.len(), "{keys} for {}", bytes.len());
}

#[test]
fn rollups_that_are_never_stored_keep_no_list_of_what_has_expired() {
    let hour = Duration::from_secs(3_600);
    let config = RollupConfig {
        retention: [Some(hour); 4],
        ..RollupConfig::default()
    };
    let mut rollups = Rollups::new(config);
    for number in 1..100 {
        let now = UnixTime::from_secs(NOON.as_secs() + number * 86_400);
        let one = record(
            now.as_secs(),
            &format!("s x={number}"),
            Sample::Add(1.into()),
        );
        rollups.apply(id(1, 1, number), now, &batch(&[one]));
        rollups.expire(now);
    }
    assert_eq!((rollups.series_count(), rollups.bucket_count()), (1, 4));
    // Position, node, series, buckets.
    assert_eq!(rollups.drain_dirty(0).len(), 1 + 1 + 1 + 4);
}

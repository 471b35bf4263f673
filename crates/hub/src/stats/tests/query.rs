use proptest::prelude::*;

use super::*;
use crate::stats::{Aggregate, Cell, Level, Quantile, Query, QueryRow, QueryStep};

pub(super) fn number(cell: &Cell) -> f64 {
    match cell {
        Cell::Number(number) => *number,
        other => panic!("{other:?} is no number"),
    }
}

fn ask(rollups: &Rollups, query: &str) -> Vec<QueryRow> {
    let query = Query::parse(query, NOON + Duration::from_secs(3_600)).unwrap();
    rollups.query(&query).unwrap()
}

fn cells(rollups: &Rollups, query: &str) -> Vec<Vec<Cell>> {
    let rows = ask(rollups, query);
    rows.into_iter().map(|row| row.cells).collect()
}

fn numbers(values: &[f64]) -> Vec<Cell> {
    values.iter().copied().map(Cell::Number).collect()
}

#[test]
fn rows_are_grouped_filtered_and_ordered() {
    let at = NOON.as_secs();
    let add = |secs, words: &str, value: i64| record(secs, words, Sample::Add(value.into()));
    let rollups = rollups(&[
        add(at, "kill map=a region=eu", 1),
        add(at + 9, "kill map=a region=us", 2),
        add(at + 10, "kill map=b region=eu", 4),
        add(at + 10, "kill", 8),
        add(at + 10, "killer map=a", 16),
    ]);
    let all = cells(&rollups, "sum of kill from 0 to now step 1d");
    assert_eq!(all, [numbers(&[15.0])]);
    let by_time = cells(&rollups, "sum, count of kill from 0 to now step 10s");
    assert_eq!(by_time, [numbers(&[3.0, 2.0]), numbers(&[12.0, 2.0])]);
    let eu = cells(
        &rollups,
        "sum of kill where region = eu from 0 to now step 1m",
    );
    assert_eq!(eu, [numbers(&[5.0])]);
    let both = cells(
        &rollups,
        r#"sum of kill where region = "eu", map = b from 0 to now step 1m"#,
    );
    assert_eq!(both, [numbers(&[4.0])]);
    let rows = ask(&rollups, "sum of kill by map from 0 to now step 10s");
    let found: Vec<_> = rows
        .iter()
        .map(|row| {
            let group = row.group[0].as_ref().map_or("-", StatText::as_str);
            (row.start.as_secs() - at, group, number(&row.cells[0]))
        })
        .collect();
    assert_eq!(found, [(0, "a", 3.0), (10, "-", 8.0), (10, "b", 4.0)]);
    assert!(ask(&rollups, "sum of deaths from 0 to now step 1d").is_empty());
}

#[test]
fn the_range_is_rounded_to_whole_steps_and_its_end_is_not_included() {
    let at = NOON.as_secs();
    let records: Vec<_> = (0..10)
        .map(|step| record(at + step * 10, "a", Sample::Add(1.into())))
        .collect();
    let rollups = rollups(&records);
    for (from, to, rows) in [
        (20, 50, 3),
        (29, 41, 3),
        (20, 20, 0),
        (50, 20, 0),
        (0, 1, 1),
    ] {
        let text = format!("count of a from {} to {} step 10s", at + from, at + to);
        assert_eq!(ask(&rollups, &text).len(), rows, "{text}");
    }
    // A step that is no level is made of the coarsest that divides it.
    let rows = ask(&rollups, "count of a from 0 to now step 30s");
    let counts: Vec<_> = rows.iter().map(|row| number(&row.cells[0])).collect();
    assert_eq!(counts, [3.0, 3.0, 3.0, 1.0]);
    let step = |secs| QueryStep::new(Duration::from_secs(secs));
    assert_eq!(step(30).unwrap().level(), Level::TenSeconds);
    assert_eq!(step(7_200).unwrap().level(), Level::Hour);
    assert_eq!(step(86_400 * 7).unwrap().level(), Level::Day);
    assert_eq!((step(0), step(15)), (None, None));
    assert_eq!(QueryStep::new(Duration::from_millis(10_500)), None);
}

#[test]
fn the_newest_value_is_the_last_one() {
    let at = NOON.as_secs();
    let rollups = rollups(&[
        record(at + 2, "round", Sample::State(text("live"))),
        record(at + 1, "round", Sample::State(text("warm up"))),
        record(at + 1, "players", Sample::Set(3.into())),
        record(at + 1, "players", Sample::Set(float(2.5))),
    ]);
    let last = cells(
        &rollups,
        "last, sum, p50, mean of round from 0 to now step 1d",
    );
    let empty = [Cell::Empty, Cell::Empty, Cell::Empty];
    assert_eq!(last, [[&[Cell::Text(text("live"))][..], &empty].concat()]);
    let last = cells(
        &rollups,
        "last, mean, sum, min, max of players from 0 to now step 1d",
    );
    assert_eq!(last, [numbers(&[2.5, 2.75, 5.5, 2.5, 3.0])]);
}

#[test]
fn quantiles_lie_between_the_smallest_and_the_largest() {
    let at = NOON.as_secs();
    let records: Vec<_> = (1..=1_000)
        .map(|value| record(at, "e", Sample::Event(value.into())))
        .collect();
    let rollups = rollups(&records);
    let found = cells(
        &rollups,
        "p0, p50, p99.9, p99.99, p100 of e from 0 to now step 1h",
    );
    for (cell, exact) in found[0].iter().zip([1.0, 500.0, 999.0, 1_000.0, 1_000.0]) {
        assert!((number(cell) - exact).abs() <= exact / 100.0, "{cell:?}");
    }
    assert_eq!(found[0][0], Cell::Number(1.0));
    assert_eq!(found[0][4], Cell::Number(1_000.0));
}

/// Texts that are no queries, and their errors.
const ERRORS: &[(&str, &str)] = &[
    (
        "",
        "at byte 0: found the end where count, sum, min, max, mean, last, uniques or a quantile such as p99 is expected",
    ),
    (
        "count",
        "at byte 5: found the end where `,` or `of` is expected",
    ),
    (
        "count, avg of a",
        "at byte 7: found `avg` where count, sum, min, max, mean, last, uniques or a quantile such as p99 is expected",
    ),
    (
        "p100.01 of a",
        "at byte 0: found `p100.01` where count, sum, min, max, mean, last, uniques or a quantile such as p99 is expected",
    ),
    (
        "count of = ",
        "at byte 9: found `=` where a name, 1 to 32 of a-z 0-9 . _ -, is expected",
    ),
    (
        "count of Kill",
        "at byte 9: found `K` where a-z 0-9 . _ - , = or `\"` is expected",
    ),
    (
        "count of a with",
        "at byte 11: found `with` where `where`, `by` or `from` is expected",
    ),
    (
        "count of a where b c",
        "at byte 19: found `c` where `=` is expected",
    ),
    (
        "count of a where b = ,",
        "at byte 21: found `,` where a text of 1 to 64 bytes is expected",
    ),
    (
        "count of a where b = \"\"",
        "at byte 21: found `\"\"` where a text of 1 to 64 bytes is expected",
    ),
    (
        "count of a where b = \"c",
        "at byte 21: found `\"c` where a string that ends with `\"` is expected",
    ),
    (
        "count of a where b = c, b = d",
        "at byte 24: found `b` where another dimension is expected",
    ),
    (
        "count of a where b = c from",
        "at byte 27: found the end where seconds since 1970, `now`, or `now-` and a span such as 30d, is expected",
    ),
    (
        "count of a by b, b",
        "at byte 17: found `b` where another dimension is expected",
    ),
    (
        "count of a by b step",
        "at byte 16: found `step` where `,` or `from` is expected",
    ),
    (
        "count of a from -1 to now step 1d",
        "at byte 16: found `-1` where seconds since 1970, `now`, or `now-` and a span such as 30d, is expected",
    ),
    (
        "count of a from now-1w to now step 1d",
        "at byte 16: found `now-1w` where seconds since 1970, `now`, or `now-` and a span such as 30d, is expected",
    ),
    (
        "count of a from 0 until now step 1d",
        "at byte 18: found `until` where `to` is expected",
    ),
    (
        "count of a from 0 to now step 15s",
        "at byte 30: found `15s` where a multiple of 10s, such as 60s, 5m, 1h or 1d, is expected",
    ),
    (
        "count of a from 0 to now step 1d;",
        "at byte 32: found `;` where a-z 0-9 . _ - , = or `\"` is expected",
    ),
    (
        "count of a from 0 to now step 1d now",
        "at byte 33: found `now` where the end is expected",
    ),
];

#[test]
fn errors_say_where_and_what_is_expected() {
    for (text, error) in ERRORS {
        let found = Query::parse(text, NOON).unwrap_err();
        assert_eq!(found.to_string(), *error, "{text}");
    }
}

#[test]
fn texts_and_lists_are_bounded() {
    let long = format!("count of a from 0 to now step 1d{}", " ".repeat(2_048));
    let error = Query::parse(&long, NOON).unwrap_err();
    assert_eq!(error.position, Query::TEXT_BYTES_MAX);
    let columns = |count| {
        let columns = vec!["count"; count].join(",");
        Query::parse(&format!("{columns} of a from 0 to now step 1d"), NOON)
    };
    assert!(columns(16).is_ok());
    assert_eq!(columns(17).unwrap_err().expected, "at most 16 columns");
    let by = |count| {
        let by: Vec<_> = (0..count).map(|at| format!("d{at}")).collect();
        Query::parse(
            &format!("count of a by {} from 0 to now step 1d", by.join(",")),
            NOON,
        )
    };
    assert!(by(8).is_ok());
    assert_eq!(by(9).unwrap_err().expected, "at most 8 dimensions");
}

fn any_query() -> impl Strategy<Value = Query> {
    let name = "[a-z0-9._-]{1,32}".prop_map(|it| Name::new(&it).unwrap());
    let text = "[^\\p{Cc}]{1,16}".prop_map(|it| StatText::new(&it).unwrap());
    let simple = prop::sample::select(vec![
        Aggregate::Count,
        Aggregate::Sum,
        Aggregate::Min,
        Aggregate::Max,
        Aggregate::Mean,
        Aggregate::Last,
        Aggregate::Uniques,
    ]);
    let quantile = (0..=10_000_u16).prop_map(|it| Aggregate::Quantile(Quantile::new(it).unwrap()));
    let parts = (
        name.clone(),
        prop::collection::vec(prop_oneof![simple, quantile], 1..=16),
        prop::collection::btree_map(name.clone(), text, 0..=8),
        prop::collection::btree_set(name, 0..=8),
        any::<[u32; 2]>(),
        1..100_000_u64,
    );
    parts.prop_map(|(name, aggregates, filters, by, [from, to], tens)| {
        let step = QueryStep::new(Duration::from_secs(tens * 10)).unwrap();
        let [from, to] = [from, to].map(|secs| UnixTime::from_secs(secs.into()));
        let mut query = Query::new(name, from, to, step);
        query.aggregates = aggregates;
        query.filters = filters.into_iter().collect();
        query.by = by.into_iter().collect();
        query
    })
}

proptest! {
    #[test]
    fn a_query_is_read_as_it_is_written(query in any_query()) {
        let text = query.to_string();
        prop_assume!(text.len() <= Query::TEXT_BYTES_MAX);
        prop_assert_eq!(Query::parse(&text, NOON), Ok(query));
    }

    #[test]
    fn any_text_is_parsed_or_refused_within_it(text in "[a-z0-9 ,=\"\\\\.-]{0,80}|\\PC{0,80}") {
        if let Err(error) = Query::parse(&text, NOON) {
            prop_assert!(error.position <= text.len());
            prop_assert!(text.is_char_boundary(error.position));
        }
    }
}

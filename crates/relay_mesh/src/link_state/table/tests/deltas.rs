use super::*;
use crate::link_state::{DeltaOutcome, LinkDelta};

const THIRD: NodeId = NodeId([0xcc; 32]);

fn delta(origin: &Origin, base: u64, after: u16, changes: &[(u8, u16)]) -> LinkDelta {
    let changes = changes.iter().map(|&(position, millis)| {
        let report = LinkReport {
            delay: Cost::from_millis(millis),
            loss: LossCode(0),
        };
        (position, report)
    });
    LinkDelta {
        origin: origin.id().into(),
        base: u32::try_from(base).unwrap(),
        after,
        changes: changes.collect(),
    }
}

#[test]
fn pgx6_a_delta_changes_what_is_up_and_takes_nothing_down() {
    let mut origin = Origin::new(1);
    let records = origin.publish(None, &NEIGHBOURS);
    let (mut table, now) = (table(TableConfig::default()), Instant::ZERO);
    let early = delta(&origin, 3, 1, &[(0, 50)]);
    assert_eq!(table.accept_delta(now, PEER, early), DeltaOutcome::Unfit);
    assert_eq!(accept(&mut table, now, &records), TAKEN);
    let base = origin.publisher.version();
    let id = origin.id();
    let said = |table: &LinkStateTable, to| {
        let report = table.report(&id, NEIGHBOURS[to]).unwrap();
        report.delay.units() / 10
    };
    let take = |table: &mut LinkStateTable, delta| table.accept_delta(now, PEER, delta);
    let first = delta(&origin, base, 4, &[(0, 50), (1, 60)]);
    assert_eq!(take(&mut table, first.clone()), DeltaOutcome::Accepted);
    assert_eq!((said(&table, 0), said(&table, 1)), (50, 60));
    assert_eq!(take(&mut table, first), DeltaOutcome::Stale);
    let digest = table.digest();
    assert_eq!(digest.entries()[0].1, base + 4, "a digest tells of it");
    let next = delta(&origin, base, 5, &[(1, 70)]);
    assert_eq!(take(&mut table, next), DeltaOutcome::Accepted);
    assert_eq!(
        (said(&table, 0), said(&table, 1)),
        (20, 70),
        "the newest is all"
    );
    let other = delta(&origin, base + 1, 6, &[(1, 1)]);
    assert_eq!(take(&mut table, other), DeltaOutcome::Unfit);
    let beyond = delta(&origin, base, 7, &[(2, 1)]);
    assert_eq!(take(&mut table, beyond), DeltaOutcome::Forged);
    assert!(table.is_blamed(now, &PEER, &id));
    let good = delta(&origin, base, 8, &[(1, 80)]);
    assert_eq!(take(&mut table, good.clone()), DeltaOutcome::Ignored);
    assert_eq!(
        table.accept_delta(now, THIRD, good),
        DeltaOutcome::Accepted,
        "others are believed"
    );
    let stats = table.stats();
    assert_eq!((stats.deltas_accepted, stats.deltas_forged), (3, 1));
    assert_eq!((stats.deltas_unfit, stats.deltas_ignored), (2, 1));
}

#[test]
fn pgx6_a_record_shows_the_author_of_a_false_delta() {
    // The delta sent, what the record follows and reports, and whether the delta was false.
    for (number, after, millis, follows, says, is_lie) in [
        ("it is as told", 2, 50, 2, 50, false),
        ("within the margin", 2, 50, 2, 52, false),
        ("another cost", 2, 50, 2, 90, true),
        ("never told", 9, 50, 2, 50, true),
        ("one was missed", 1, 50, 2, 90, false),
    ] {
        let mut origin = Origin::new(1);
        let records = origin.publish(None, &NEIGHBOURS);
        let mut table = table(TableConfig::default());
        let now = Instant::ZERO;
        assert_eq!(accept(&mut table, now, &records), TAKEN);
        let base = origin.publisher.version();
        let reported = delta(&origin, base, after, &[(0, millis)]);
        assert_eq!(
            table.accept_delta(now, PEER, reported),
            DeltaOutcome::Accepted
        );
        let follows = u32::try_from(base).unwrap() + follows;
        let next = record(&mut origin, &records.node, (base + 20, follows), says);
        let provider = provider();
        let outcome = table.accept_links(now, &provider, THIRD, &next);
        assert_eq!(outcome, Outcome::Accepted);
        let id = origin.id();
        assert_eq!(table.is_blamed(now, &PEER, &id), is_lie, "{number}");
        assert!(!table.is_blamed(now, &THIRD, &id), "who tells the truth");
        let end = now + Duration::from_secs(30);
        assert!(!table.is_blamed(end, &PEER, &id), "for 30 s");
        let report = table.report(&id, NEIGHBOURS[0]).unwrap();
        assert_eq!(report.delay, Cost::from_millis(says), "the record counts");
    }
}

#[test]
fn pgx6_repeated_false_deltas_are_distrusted_for_longer_each_time() {
    let mut origin = Origin::new(1);
    let records = origin.publish(None, &NEIGHBOURS);
    let mut table = table(TableConfig::default());
    assert_eq!(accept(&mut table, Instant::ZERO, &records), TAKEN);
    let (id, base) = (origin.id(), origin.publisher.version());
    let mut now = Instant::ZERO;
    for seconds in [30, 60, 120, 240, 480, 600, 600] {
        let beyond = delta(&origin, base, 7, &[(2, 1)]);
        assert_eq!(table.accept_delta(now, PEER, beyond), DeltaOutcome::Forged);
        now += Duration::from_secs(seconds);
        let before = now.saturating_sub(Duration::from_millis(1));
        assert!(table.is_blamed(before, &PEER, &id), "{seconds} s");
        assert!(!table.is_blamed(now, &PEER, &id), "{seconds} s");
    }
    now += Duration::from_secs(600);
    let beyond = delta(&origin, base, 7, &[(2, 1)]);
    assert_eq!(table.accept_delta(now, PEER, beyond), DeltaOutcome::Forged);
    now += Duration::from_secs(30);
    assert!(!table.is_blamed(now, &PEER, &id), "it begins anew");
}

//! Members of groups, and mail to them.

use std::collections::{BTreeMap, BTreeSet};

use super::many::{many, settle};
use super::*;
use crate::field::GroupId;
use crate::record::{GROUP_BODY_BYTES_MAX, GroupError};

fn change(store: &mut Store<MemorySegments>, op: GroupOp) -> Result<GroupOutcome, StoreError> {
    match run(store, StoreOp::Group(op))? {
        Completed::Group(outcome) => Ok(outcome),
        other => panic!("{other:?}"),
    }
}

fn join_group(store: &mut Store<MemorySegments>, group: u64, player: u64) -> GroupOutcome {
    let (group, player) = (GroupId(group), ClientId(player));
    change(store, GroupOp::Join { group, player }).unwrap()
}

fn leave_group(store: &mut Store<MemorySegments>, group: u64, player: u64) -> GroupOutcome {
    let (group, player) = (GroupId(group), ClientId(player));
    change(store, GroupOp::Leave { group, player }).unwrap()
}

fn members(store: &mut Store<MemorySegments>, group: u64) -> Vec<u64> {
    let group = GroupId(group);
    let first = ClientId(0);
    match change(store, GroupOp::Members { group, first }).unwrap() {
        GroupOutcome::Members { players, .. } => {
            let players = players.iter().flat_map(|players| players.list().iter());
            players.map(|player| player.0).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn mail_group(epoch: Epoch, seq: u64, group: u64, body: &[u8]) -> NewMail {
    let mut new = mail(epoch, seq, 0, body);
    new.to = Addr::Group(GroupId(group)).into();
    new
}

#[test]
fn h6_members_survive_power_cuts_and_the_removal_of_old_segments() {
    let mut generator = Seed::from_number(9).generator(0);
    let mut store = open(MemorySegments::new(1 << 30));
    for player in [5, 3, 8] {
        assert_eq!(join_group(&mut store, 1, player), GroupOutcome::Done);
    }
    join_group(&mut store, 2, 3);
    leave_group(&mut store, 1, 5);
    assert_eq!(
        leave_group(&mut store, 7, 5),
        GroupOutcome::Done,
        "no member"
    );
    let epoch = join(&mut store, 1);
    for seq in 1..=600 {
        append(&mut store, mail(epoch, seq, 2, &vec![5; 20_000])).unwrap();
        let last = store.log.index.last_mail;
        acknowledge(&mut store, 2, last).unwrap();
        while store.tidy() {}
    }
    assert!(store.files_mut().list().unwrap()[0].0 > SegmentId(10));
    leave_group(&mut store, 2, 3);
    let mut disk = store.into_files();
    disk.power_cut(&mut generator);
    let mut store = open(disk);
    assert!(store.recovery().restored == 0 && store.recovery().records > 0);
    assert_eq!(members(&mut store, 1), [3, 8]);
    assert_eq!(members(&mut store, 2), [0; 0]);
}

#[test]
fn hub_h13_no_membership_is_lost_over_random_crash_points() {
    for seed in 0..80 {
        let mut generator = Seed::from_number(seed).generator(0);
        let mut disk = MemorySegments::new(5 * StoreConfig::SEGMENT_BYTES_MIN);
        let mut model: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        // A change with a lost answer may be on disk or not.
        let mut unknown: Option<GroupOp> = None;
        for _ in 0..12 {
            let mut store = match Store::open(disk, small(), LOG) {
                Ok(store) => store,
                Err(OpenFailure { mut files, .. }) => {
                    files.power_cut(&mut generator);
                    disk = files;
                    continue;
                }
            };
            store.files_mut().stop_after(generator.below(60));
            for _ in 0..generator.below(60) {
                let group = GroupId(generator.below(3));
                let player = ClientId(generator.below(9));
                let op = if generator.chance(600_000) {
                    GroupOp::Join { group, player }
                } else {
                    GroupOp::Leave { group, player }
                };
                // One without an answer is repeated first, as an application does.
                let ops = unknown.take().into_iter().chain([op]);
                for op in ops {
                    match change(&mut store, op) {
                        Ok(GroupOutcome::Done) => apply(&mut model, op),
                        Ok(other) => panic!("seed {seed}: {other:?}"),
                        Err(_) => {
                            unknown = Some(op);
                            break;
                        }
                    }
                }
                if unknown.is_some() {
                    break;
                }
                store.tidy();
            }
            disk = store.into_files();
            disk.power_cut(&mut generator);
        }
        let mut store = open(disk);
        if let Some(op) = unknown {
            change(&mut store, op).unwrap();
            apply(&mut model, op);
        }
        for (group, expected) in &model {
            let found: BTreeSet<_> = members(&mut store, *group).into_iter().collect();
            assert_eq!(found, *expected, "seed {seed}: group {group}");
        }
    }
}

fn apply(model: &mut BTreeMap<u64, BTreeSet<u64>>, op: GroupOp) {
    match op {
        GroupOp::Join { group, player } => {
            model.entry(group.0).or_default().insert(player.0);
        }
        GroupOp::Leave { group, player } => {
            model.entry(group.0).or_default().remove(&player.0);
        }
        GroupOp::Members { .. } => {}
    }
}

#[test]
fn hub_6_groups_members_and_groups_of_a_player_are_bounded() {
    let mut config = small();
    config.groups.groups_max = 3;
    config.groups.members_max = 4;
    config.groups.player_groups_max = 2;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let refused = GroupOutcome::Refused;
    for player in 0..4 {
        assert_eq!(join_group(&mut store, 1, player), GroupOutcome::Done);
    }
    assert_eq!(join_group(&mut store, 1, 9), refused(GroupError::GroupFull));
    assert_eq!(
        join_group(&mut store, 1, 3),
        GroupOutcome::Done,
        "a member already"
    );
    join_group(&mut store, 2, 0);
    assert_eq!(
        join_group(&mut store, 3, 0),
        refused(GroupError::PlayerFull)
    );
    join_group(&mut store, 3, 5);
    assert_eq!(join_group(&mut store, 4, 6), refused(GroupError::Full));
    leave_group(&mut store, 3, 5);
    assert_eq!(
        join_group(&mut store, 4, 6),
        GroupOutcome::Done,
        "group 3 has ended"
    );
}

#[test]
fn hub_6_members_take_at_most_an_eighth_of_a_segment() {
    let mut config = small();
    config.groups.player_groups_max = usize::MAX;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let mut count = 0_u64;
    while join_group(&mut store, count, 1) == GroupOutcome::Done {
        count += 1;
        assert!(count < 100_000, "without a bound");
    }
    let share = StoreConfig::SEGMENT_BYTES_MIN / 8;
    assert!(
        (share / 28..=share / 27).contains(&count),
        "{count} groups of one"
    );
    // The state is written at each start of a segment.
    let epoch = join(&mut store, 1);
    for seq in 1..=40 {
        append(&mut store, mail(epoch, seq, 2, &vec![5; 40_000])).unwrap();
        while store.tidy() {}
    }
    let mut store = open(store.into_files());
    assert_eq!(members(&mut store, count - 1), [1]);
}

#[test]
fn h6_a_mail_to_a_group_is_one_record_for_its_members_at_that_moment() {
    let mut config = small();
    config.mailbox_mails_max = 2;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let epoch = join(&mut store, 1);
    let none = settle(&mut store, mail_group(epoch, 1, 1, b"nobody"));
    assert_eq!(none.verdict, MailVerdict::Refused(MailRefusal::NoMember));
    for player in 1..=3 {
        join_group(&mut store, 1, player);
    }
    let long = vec![5; GROUP_BODY_BYTES_MAX + 1];
    let long = settle(&mut store, mail_group(epoch, 2, 1, &long));
    assert_eq!(long.verdict, MailVerdict::Refused(MailRefusal::TooLong));
    let all = settle(&mut store, mail_group(epoch, 3, 1, b"a"));
    assert_eq!((all.verdict, all.part), (MailVerdict::Stored, None));
    assert_eq!(all.to, many(&[1, 2, 3]), "the hub reads their mailboxes");
    join_group(&mut store, 1, 4);
    leave_group(&mut store, 1, 1);
    settle(&mut store, mail(epoch, 4, 2, b"b"));
    let some = settle(&mut store, mail_group(epoch, 5, 1, b"c"));
    let part = some.part.unwrap();
    assert_eq!(
        (part.stored, part.refused),
        (2, 1),
        "the mailbox of 2 is full"
    );
    let again = settle(&mut store, mail_group(epoch, 5, 1, b"c"));
    assert_eq!(again.part, Some(part), "resent");
    let found = [1, 2, 3, 4].map(|player| {
        let mails = read_all(&mut store, player).into_iter();
        mails.map(|mail| mail.body.0).collect::<Vec<_>>()
    });
    assert_eq!(
        found,
        [vec!["a"], vec!["a", "b"], vec!["a", "c"], vec!["c"]]
    );
}

#[test]
fn hub_6_the_longest_mail_to_the_largest_group_fits_one_record() {
    let mut config = small();
    config.groups.player_groups_max = 1;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let epoch = join(&mut store, 1);
    for player in 0..4_096 {
        assert_eq!(join_group(&mut store, 1, player), GroupOutcome::Done);
    }
    let full = GroupOutcome::Refused(GroupError::GroupFull);
    assert_eq!(join_group(&mut store, 1, 5_000), full);
    let body = vec![5; GROUP_BODY_BYTES_MAX];
    let settled = settle(&mut store, mail_group(epoch, 1, 1, &body));
    assert_eq!((settled.verdict, settled.part), (MailVerdict::Stored, None));
    let mut store = Store::open(store.into_files(), config, LOG).unwrap();
    assert_eq!(store.mail_count(), 4_096);
    assert_eq!(read_all(&mut store, 4_095)[0].body.0, body);
    assert_eq!(members(&mut store, 1).len(), 4_096);
}

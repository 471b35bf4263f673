//! Storage quotas and reserves.

use super::*;

fn count(store: &mut Store<MemorySegments>, epoch: Epoch, batch: u64, from: u64) -> Outcome {
    let entries = (from..from + 64)
        .map(|number| CountKey::from(Name::new(&format!("{number:032}")).unwrap()))
        .map(|key| (key, 1))
        .collect();
    let op = StoreOp::Count {
        node: NODE,
        epoch,
        batch: BatchSeq(batch),
        entries,
    };
    run(store, op)
}

fn join_as(store: &mut Store<MemorySegments>, node: u8, instance: u64) -> Outcome {
    let op = StoreOp::Join {
        node: NodeId([node; 32]),
        instance: InstanceId(instance),
        epoch: Epoch(0),
        role: Role::GameNode,
    };
    run(store, op)
}

#[test]
fn hub_5_names_of_counts_leave_room_for_nodes_and_refusals() {
    let mut config = small();
    config.mailbox_mails_max = 0;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let epoch = join(&mut store, 1);
    let mut batch = 0;
    while store.stats().counts_dropped == 0 {
        batch += 1;
        count(&mut store, epoch, batch, batch * 64).unwrap();
    }
    for node in 8..200 {
        let joined = join_as(&mut store, node, 1);
        assert!(matches!(joined, Ok(Completed::Joined { .. })), "{node}");
    }
    let full = Ok(MailVerdict::Refused(MailRefusal::MailboxFull));
    for seq in 1..=1_000 {
        assert_eq!(append(&mut store, mail(epoch, seq, 9, b"")), full, "{seq}");
    }
}

#[test]
fn hub_5_refusals_leave_room_for_nodes() {
    let mut config = small();
    config.mailbox_mails_max = 0;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let mut refused = 0;
    for node in 8..40 {
        let Ok(Completed::Joined { epoch, .. }) = join_as(&mut store, node, 1) else {
            panic!("no room for node {node}");
        };
        for seq in 1..=1_024 {
            let mut mail = mail(epoch, seq, 9, b"");
            mail.node = NodeId([node; 32]);
            let verdict = append(&mut store, mail).unwrap();
            refused += u32::from(verdict != MailVerdict::Busy);
        }
    }
    assert!((1_024..32 * 1_024).contains(&refused), "{refused}");
}

#[test]
fn hub_1_on_a_full_disk_counts_and_joins_leave_room_for_acknowledgements() {
    let segment = StoreConfig::SEGMENT_BYTES_MIN;
    let mut store = open(MemorySegments::new(3 * segment));
    let epoch = join(&mut store, 1);
    let mut seq = 0;
    while append(&mut store, mail(epoch, seq + 1, seq % 9, &[5; 5_000])) == Ok(MailVerdict::Stored)
    {
        seq += 1;
        while store.tidy() {}
    }
    // Counts of known entries are accepted until their share is full.
    let mut batch = 0;
    while count(&mut store, epoch, batch + 1, 0).is_ok() {
        batch += 1;
        assert!(batch < 10_000, "counts are never out of room");
    }
    // A node that restarts repeatedly can still join, until that limit is reached too.
    assert!(matches!(
        join_as(&mut store, 8, 1),
        Ok(Completed::Joined { .. })
    ));
    let mut starts = 1;
    while join_as(&mut store, 8, starts + 1).is_ok() {
        starts += 1;
        assert!(starts < 10_000, "joins are never out of room");
    }
    for player in 0..9 {
        for mail in read_all(&mut store, player) {
            let acked = acknowledge(&mut store, player, mail.seq);
            assert_eq!(acked, Ok(Completed::Acked), "of player {player}");
        }
    }
    while store.tidy() {}
    assert_eq!(
        count(&mut store, epoch, batch + 1, 0),
        Ok(Completed::Counted)
    );
    assert!(matches!(
        join_as(&mut store, 8, starts + 1),
        Ok(Completed::Joined { .. })
    ));
}

#[test]
fn hub_6_a_full_mailbox_refuses_permanently_and_records_it() {
    let mut config = small();
    config.mailbox_mails_max = 2;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let epoch = join(&mut store, 1);
    let full = Ok(MailVerdict::Refused(MailRefusal::MailboxFull));
    for seq in 1..=2 {
        assert_eq!(
            append(&mut store, mail(epoch, seq, 9, b"a")),
            Ok(MailVerdict::Stored)
        );
    }
    assert_eq!(append(&mut store, mail(epoch, 3, 9, b"a")), full);
    assert_eq!(
        append(&mut store, mail(epoch, 4, 8, b"a")),
        Ok(MailVerdict::Stored)
    );
    let mut disk = store.into_files();
    disk.power_cut(&mut Seed::from_number(1).generator(0));
    let mut store = Store::open(disk, config, LOG).unwrap();
    assert_eq!(
        append(&mut store, mail(epoch, 3, 9, b"a")),
        full,
        "the mark is 4, and yet this one is not on disk",
    );
    let mut next = mail(epoch, 5, 8, b"b");
    next.settled = SenderSeq(4);
    assert_eq!(append(&mut store, next), Ok(MailVerdict::Stored));
    assert!(store.log.index.node(NODE).unwrap().refused.is_empty());
}

#[test]
fn hub_6_unacknowledged_refusals_are_bounded() {
    let mut config = small();
    config.mailbox_mails_max = 0;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let epoch = join(&mut store, 1);
    let full = Ok(MailVerdict::Refused(MailRefusal::MailboxFull));
    for seq in 1..=1_024 {
        assert_eq!(append(&mut store, mail(epoch, seq, 9, b"")), full);
    }
    assert_eq!(
        append(&mut store, mail(epoch, 1_025, 9, b"")),
        Ok(MailVerdict::Busy)
    );
    let mut acknowledged = mail(epoch, 1_025, 9, b"");
    acknowledged.settled = SenderSeq(1_000);
    assert_eq!(append(&mut store, acknowledged), full);
}

#[test]
fn hub_6_all_mail_together_is_bounded() {
    let mut config = small();
    config.mails_max = 3;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let epoch = join(&mut store, 1);
    for seq in 1..=3 {
        assert_eq!(
            append(&mut store, mail(epoch, seq, seq, b"")),
            Ok(MailVerdict::Stored)
        );
    }
    assert_eq!(
        append(&mut store, mail(epoch, 4, 4, b"")),
        Ok(MailVerdict::Full)
    );
    config.mails_max = 100;
    config.live_bytes_max = 400;
    let mut store = Store::open(store.into_files(), config, LOG).unwrap();
    assert_eq!(
        append(&mut store, mail(epoch, 4, 4, &[0; 99])),
        Ok(MailVerdict::Full)
    );
    assert_eq!(
        append(&mut store, mail(epoch, 4, 4, b"")),
        Ok(MailVerdict::Stored)
    );
}

#[test]
fn hub_6_names_of_counts_are_bounded_and_counts_are_added_once() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    let keys: Vec<_> = (0..20_000)
        .map(|number| CountKey::from(Name::new(&format!("{number:032}")).unwrap()))
        .collect();
    for (batch, keys) in (1..).zip(keys.chunks(64)) {
        let op = StoreOp::Count {
            node: NODE,
            epoch,
            batch: BatchSeq(batch),
            entries: keys.iter().map(|key| (key.clone(), 2)).collect(),
        };
        assert_eq!(run(&mut store, op.clone()), Ok(Completed::Counted));
        assert_eq!(run(&mut store, op), Ok(Completed::Counted), "sent again");
    }
    let known = store.totals().count() as u64;
    assert_eq!(store.stats().counts_dropped, 20_000 - known);
    assert!((2_000..12_000).contains(&known), "{known}");
    assert!(store.totals().all(|(_, total)| total == 2));
    while store.tidy() {}
    let store = open(store.into_files());
    assert_eq!(store.totals().count() as u64, known);
    assert!(store.totals().all(|(_, total)| total == 2));
}

#[test]
fn hub_6_a_mailbox_is_bounded_in_mails_and_bytes() {
    let mut config = small();
    config.mailbox_bytes_max = 1_000;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let epoch = join(&mut store, 1);
    let full = Ok(MailVerdict::Refused(MailRefusal::MailboxFull));
    let stored = Ok(MailVerdict::Stored);
    assert_eq!(append(&mut store, mail(epoch, 1, 9, &[0; 800])), stored);
    assert_eq!(append(&mut store, mail(epoch, 2, 9, &[0; 800])), full);
    assert_eq!(append(&mut store, mail(epoch, 3, 8, &[0; 800])), stored);
}

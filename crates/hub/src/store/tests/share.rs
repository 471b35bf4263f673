//! Shares of a store, and the deletion of all mail of a sender.

use super::many::{mail_many, settle};
use super::snapshot::without_snapshots;
use super::*;

/// Node 1 and 2 are game nodes, 3 is a matchmaker.
fn join_three(store: &mut Store<MemorySegments>) -> [Epoch; 3] {
    [
        (1, Role::GameNode),
        (2, Role::GameNode),
        (3, Role::Matchmaker),
    ]
    .map(|(node, role)| join_as(store, node, role))
}

fn join_as(store: &mut Store<MemorySegments>, node: u8, role: Role) -> Epoch {
    let op = StoreOp::Join {
        node: NodeId([node; 32]),
        instance: INSTANCE,
        epoch: Epoch(0),
        role,
    };
    match run(store, op) {
        Ok(Completed::Joined { epoch, .. }) => epoch,
        other => panic!("{other:?}"),
    }
}

fn mail_of(node: u8, seq: u64, player: u64, len: usize) -> NewMail {
    let mut new = mail(Epoch(1), seq, player, &vec![5; len]);
    new.node = NodeId([node; 32]);
    new
}

/// Appends mails of `node`, each for another player, until one is not stored; returns its verdict, and
/// the number of the last one that is.
fn fill(store: &mut Store<MemorySegments>, node: u8, len: usize) -> (MailVerdict, u64) {
    for seq in 1.. {
        let player = u64::from(node) * 1_000_000 + seq;
        match append(store, mail_of(node, seq, player, len)).unwrap() {
            MailVerdict::Stored => while store.tidy() {},
            verdict => return (verdict, seq - 1),
        }
    }
    unreachable!("the range has no end");
}

fn usage(store: &mut Store<MemorySegments>, node: u8) -> SenderUsage {
    let from = NodeId([node; 32]);
    match run(store, StoreOp::Sent { from }) {
        Ok(Completed::Sent(usage)) => usage,
        other => panic!("{other:?}"),
    }
}

fn purge(store: &mut Store<MemorySegments>, node: u8) -> Result<SenderUsage, StoreError> {
    let from = NodeId([node; 32]);
    match run(store, StoreOp::Purge { from })? {
        Completed::Purged(usage) => Ok(usage),
        other => panic!("{other:?}"),
    }
}

/// A store of 1 MB.
fn limited() -> Store<MemorySegments> {
    let mut config = small();
    config.live_bytes_max = 1_000_000;
    config.mails_max = 2_000;
    config.shares = SenderShares::default();
    Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap()
}

#[test]
fn hub_8_node_percent_bounds_the_bytes_of_one_node_and_of_no_other() {
    let mut store = limited();
    join_three(&mut store);
    let (verdict, stored) = fill(&mut store, 1, 20_000);
    assert_eq!((verdict, stored), (MailVerdict::OverShare, 24));
    assert_eq!(usage(&mut store, 1).mails, 24);
    assert_eq!((store.stats().over_share, store.stats().full), (1, 0));
    let Ok(Completed::Status(status)) = run(&mut store, StoreOp::Status) else {
        panic!("no status");
    };
    assert_eq!(status.full, None, "the others have room");
    let other = append(&mut store, mail_of(3, 1, 9, 20_000));
    assert_eq!(other, Ok(MailVerdict::Stored));
    // Room for it is there once a player has read a mail of it.
    let last = store.log.index.last_mail;
    acknowledge(&mut store, 1_000_001, last).unwrap();
    let next = mail_of(1, 25, 9, 20_000);
    assert_eq!(append(&mut store, next), Ok(MailVerdict::Stored));
}

#[test]
fn hub_8_node_percent_bounds_the_mailboxes_that_one_node_fills() {
    let mut config = small();
    config.mails_max = 400_000;
    config.shares = SenderShares::default();
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    join_three(&mut store);
    let mut seq = 0;
    let verdict = loop {
        seq += 1;
        let players: Vec<u64> = (0..4_000).map(|player| seq * 4_000 + player).collect();
        let mut mail = mail_many(Epoch(1), seq, &players, b"");
        mail.node = NodeId([1; 32]);
        let verdict = settle(&mut store, mail).verdict;
        if verdict != MailVerdict::Stored {
            break verdict;
        }
    };
    assert_eq!((verdict, seq), (MailVerdict::OverShare, 51));
    assert_eq!(usage(&mut store, 1).mails, 200_000);
    assert_eq!(
        append(&mut store, mail_of(2, 1, 9, 10)),
        Ok(MailVerdict::Stored)
    );
}

#[test]
fn hub_8_role_percent_leaves_a_quarter_to_nodes_that_are_no_game_nodes() {
    let mut store = limited();
    join_three(&mut store);
    let stored = [1, 2].map(|node| {
        let (verdict, stored) = fill(&mut store, node, 20_000);
        assert_eq!(verdict, MailVerdict::OverShare);
        stored
    });
    assert_eq!(stored, [24, 13], "half, and a quarter");
    assert_eq!(fill(&mut store, 3, 20_000), (MailVerdict::Full, 12));
}

#[test]
fn hub_8_a_role_of_a_node_is_known_after_a_restart() {
    let mut store = limited();
    join_three(&mut store);
    fill(&mut store, 1, 20_000);
    fill(&mut store, 2, 20_000);
    while store.tidy() {}
    let config = store.config;
    let disk = store.into_files();
    for disk in [disk.clone(), without_snapshots(&disk)] {
        let mut store = Store::open(disk, config, LOG).unwrap();
        let role = store.log.index.senders().of_role(Role::GameNode);
        assert_eq!(role.mails, 37);
        let next = append(&mut store, mail_of(2, 14, 9, 20_000));
        assert_eq!(next, Ok(MailVerdict::OverShare));
        // The same run may join with another role.
        assert_eq!(join_as(&mut store, 2, Role::Admin), Epoch(1));
        let index = &store.log.index;
        assert_eq!(index.senders().of_role(Role::GameNode).mails, 24);
        assert_eq!(index.senders().of_role(Role::Admin).mails, 13);
        let next = append(&mut store, mail_of(2, 14, 9, 20_000));
        assert_eq!(next, Ok(MailVerdict::Stored));
    }
}

#[test]
fn hub_8_mailbox_percent_keeps_room_in_a_mailbox_for_other_nodes() {
    let mut config = small();
    config.mailbox_mails_max = 10;
    let mut share = SenderShare::WHOLE;
    share.mailbox_percent = 50;
    config.shares.set(Role::GameNode, share);
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    join_three(&mut store);
    let full = MailVerdict::Refused(MailRefusal::MailboxFull);
    for seq in 1..=7 {
        let expected = if seq > 5 { full } else { MailVerdict::Stored };
        let mail = mail_of(1, seq, 9, 10);
        assert_eq!(append(&mut store, mail), Ok(expected), "{seq}");
    }
    for seq in 1..=6 {
        let expected = if seq > 5 { full } else { MailVerdict::Stored };
        let mail = mail_of(3, seq, 9, 10);
        assert_eq!(append(&mut store, mail), Ok(expected), "{seq}");
    }
}

#[test]
fn hub_8_a_purge_deletes_the_mail_of_one_node_for_good() {
    let mut store = open(MemorySegments::new(1 << 30));
    join_three(&mut store);
    for seq in 1..=200 {
        for node in [1, 2] {
            append(&mut store, mail_of(node, seq, seq % 20, 5_000)).unwrap();
        }
    }
    let mut shared = mail_many(Epoch(1), 201, &[3, 4, 5], b"to all");
    shared.node = NodeId([1; 32]);
    settle(&mut store, shared);
    while store.tidy() {}
    assert!(store.stats().snapshots > 0, "a start uses one");
    assert_eq!(usage(&mut store, 1).mails, 203);
    assert_eq!(usage(&mut store, 9), SenderUsage::default());
    assert_eq!(store.mail_count(), 403, "counted only");
    assert_eq!(purge(&mut store, 1).unwrap().mails, 203);
    assert_eq!(store.stats().purged, 203);
    assert_eq!(purge(&mut store, 1).unwrap().mails, 0);
    for start in 0..3 {
        assert_eq!((store.mail_count(), start), (200, start));
        assert_eq!(usage(&mut store, 2).mails, 200);
        for player in 0..20 {
            let mails = read_all(&mut store, player);
            assert!(mails.iter().all(|mail| mail.node == NodeId([2; 32])));
        }
        store = open(store.into_files());
    }
    // It may send again.
    let next = mail_of(1, 202, 9, 10);
    assert_eq!(append(&mut store, next), Ok(MailVerdict::Stored));
    assert_eq!(open(store.into_files()).mail_count(), 201);
}

/// Property: over a power cut or a kill at each step, a purge has deleted all or nothing, and all if it
/// was confirmed; also between the steps of a snapshot.
#[test]
fn sim_hub_8_a_purge_is_whole_over_power_cuts_and_snapshots() {
    let mut whole = 0;
    for seed in 0..300 {
        let mut generator = Seed::from_number(seed).generator(0);
        let mut store = open(MemorySegments::new(1 << 30));
        join_three(&mut store);
        let mut stored = [0; 2];
        for seq in 1..=60 {
            for (node, stored) in [1, 2].into_iter().zip(&mut stored) {
                let len = usize::try_from(generator.below(30_000)).unwrap();
                let mail = mail_of(node, seq, generator.below(9), len);
                append(&mut store, mail).unwrap();
                *stored += 1;
            }
        }
        for _ in 0..generator.below(20) {
            store.tidy();
        }
        store.files_mut().stop_after(generator.below(6));
        let purged = purge(&mut store, 1);
        for _ in 0..generator.below(20) {
            store.tidy();
        }
        let mut disk = store.into_files();
        if generator.chance(500_000) {
            disk.power_cut(&mut generator);
        } else {
            disk.kill();
        }
        for disk in [disk.clone(), without_snapshots(&disk)] {
            let mut store = open(disk);
            let left = usage(&mut store, 1).mails;
            assert!(left == 0 || left == stored[0], "seed {seed}: {left} left");
            assert!(left == 0 || purged.is_err(), "seed {seed}: it is back");
            assert_eq!(usage(&mut store, 2).mails, stored[1], "seed {seed}");
            whole += u32::from(left == 0);
        }
    }
    assert!((100..500).contains(&whole), "{whole} of 600 deleted");
}

/// Property: a restart by a snapshot, or by the whole log, knows what each sender has stored.
#[test]
fn sim_hub_8_shares_after_a_restart_are_those_before() {
    for seed in 0..20 {
        let mut generator = Seed::from_number(seed).generator(0);
        let mut store = open(MemorySegments::new(1 << 30));
        join_three(&mut store);
        let mut seqs = [0; 3];
        for _ in 0..300 {
            let node = u8::try_from(generator.below(3)).unwrap();
            let seq = &mut seqs[usize::from(node)];
            match generator.below(8) {
                0..=3 => {
                    *seq += 1;
                    let len = usize::try_from(generator.below(20_000)).unwrap();
                    append(&mut store, mail_of(node + 1, *seq, generator.below(9), len)).unwrap();
                }
                4 => {
                    *seq += 1;
                    let mut mail = mail_many(Epoch(1), *seq, &[2, 3, 50], &[6; 3_000]);
                    mail.node = NodeId([node + 1; 32]);
                    settle(&mut store, mail);
                }
                5 => {
                    let last = store.log.index.last_mail;
                    acknowledge(&mut store, generator.below(9), last).unwrap();
                }
                6 if generator.chance(100_000) => {
                    purge(&mut store, node + 1).unwrap();
                }
                _ => {
                    for _ in 0..generator.below(8) {
                        store.tidy();
                    }
                }
            }
        }
        let before = [1, 2, 3].map(|node| usage(&mut store, node));
        let role = store.log.index.senders().of_role(Role::GameNode);
        assert_eq!(role.mails, before[0].mails + before[1].mails);
        let disk = store.into_files();
        for disk in [disk.clone(), without_snapshots(&disk)] {
            let mut store = open(disk);
            let after = [1, 2, 3].map(|node| usage(&mut store, node));
            assert_eq!(after, before, "seed {seed}");
            let found = store.log.index.senders().of_role(Role::GameNode);
            assert_eq!(found, role, "seed {seed}");
        }
    }
}

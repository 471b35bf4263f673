//! Mails that several mailboxes share.

use super::*;
use crate::record::{MailTo, PlayerList};

pub(super) fn many(players: &[u64]) -> MailTo {
    let players: Vec<_> = players.iter().copied().map(ClientId).collect();
    let mut ids = Vec::new();
    MailTo::Many(
        PlayerList::encode_into(&players, &mut ids)
            .unwrap()
            .to_ids(),
    )
}

pub(super) fn mail_many(epoch: Epoch, seq: u64, players: &[u64], body: &[u8]) -> NewMail {
    let mut new = mail(epoch, seq, 0, body);
    new.to = many(players);
    new
}

/// Stores one mail, and returns what the hub gets.
pub(super) fn settle(store: &mut Store<MemorySegments>, mail: NewMail) -> Settled {
    match run(store, StoreOp::Append(vec![mail])) {
        Ok(Completed::Appended(settled)) => settled.into_iter().next().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn live_bytes(store: &Store<MemorySegments>) -> u64 {
    store.log.index.live_bytes()
}

/// The bytes that are written to the only segment.
fn written(store: &mut Store<MemorySegments>) -> usize {
    let contents = store.files_mut().contents();
    contents.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

#[test]
fn hub_6_one_body_for_10_000_recipients_takes_their_lists_and_one_body_a_record() {
    let config = StoreConfig {
        snapshot_after: u64::MAX,
        ..StoreConfig::default()
    };
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let epoch = join(&mut store, 1);
    let before = written(&mut store);
    let players: Vec<u64> = (0..10_000).collect();
    let body = [5; 1_024];
    let (mut records, mut seq) = (0, 0);
    for players in players.chunks(PlayerList::LEN_MAX) {
        records += 1;
        seq += 1;
        let settled = settle(&mut store, mail_many(epoch, seq, players, &body));
        assert_eq!((settled.verdict, settled.part), (MailVerdict::Stored, None));
    }
    let bytes = written(&mut store) - before;
    assert!(
        bytes <= records * (1_024 + 256) + 10_000 * 16,
        "{bytes} bytes"
    );
    assert!(live_bytes(&store) <= u64::try_from(bytes).unwrap());
    assert_eq!(store.mail_count(), 10_000);
    assert_eq!(read_all(&mut store, 9_999)[0].body.0, body[..]);
}

#[test]
fn hub_1_a_shared_body_lives_while_one_mailbox_has_it() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    settle(&mut store, mail_many(epoch, 1, &[3, 5, 8], b"to all"));
    settle(&mut store, mail(epoch, 2, 5, b"to one"));
    let whole = live_bytes(&store);
    for player in [3, 5, 8] {
        let mails = read_all(&mut store, player);
        assert_eq!(mails[0].body.0, "to all");
        assert_eq!(mails[0].sender_seq, SenderSeq(1));
        assert_eq!(mails.len(), if player == 5 { 2 } else { 1 });
    }
    assert!(read_all(&mut store, 4).is_empty());
    let number = read_all(&mut store, 3)[0].seq;
    for player in [3, 8] {
        assert_eq!(
            acknowledge(&mut store, player, number),
            Ok(Completed::Acked)
        );
        assert_eq!(live_bytes(&store), whole, "player 5 has it");
    }
    let mut disk = store.into_files();
    disk.power_cut(&mut Seed::from_number(1).generator(0));
    let mut store = open(disk);
    assert_eq!(live_bytes(&store), whole);
    assert!(read_all(&mut store, 3).is_empty());
    assert_eq!(read_all(&mut store, 5)[0].body.0, "to all");
    acknowledge(&mut store, 5, number).unwrap();
    assert_eq!(live_bytes(&store), 77 + 6, "the mail to one");
    run(&mut store, StoreOp::Expire { now: LATER }).unwrap();
    assert_eq!((live_bytes(&store), store.mail_count()), (0, 0));
}

#[test]
fn hub_6_shared_mail_is_copied_for_those_that_still_have_it() {
    let segment = StoreConfig::SEGMENT_BYTES_MIN;
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    settle(&mut store, mail_many(epoch, 1, &[1, 3, 4, 5], b"waits"));
    let number = read_all(&mut store, 1)[0].seq;
    acknowledge(&mut store, 3, number).unwrap();
    for seq in 2..=2_000 {
        append(&mut store, mail(epoch, seq, 2, &vec![5; 20_000])).unwrap();
        let last = store.log.index.last_mail;
        acknowledge(&mut store, 2, last).unwrap();
        if seq == 1_000 {
            acknowledge(&mut store, 4, number).unwrap();
        }
        while store.tidy() {}
        assert!(store.files_mut().used() <= 6 * segment);
    }
    assert!(store.files_mut().list().unwrap()[0].0 > SegmentId(40));
    let mut store = open(store.into_files());
    for player in [1, 5] {
        assert_eq!(read_all(&mut store, player)[0].body.0, "waits");
    }
    for player in [3, 4] {
        assert!(read_all(&mut store, player).is_empty(), "{player}");
    }
    for player in [1, 5] {
        acknowledge(&mut store, player, number).unwrap();
    }
    assert_eq!(live_bytes(&store), 0);
}

#[test]
fn hub_1_a_snapshot_restores_shared_mail_as_the_whole_log_does() {
    let mut generator = Seed::from_number(3).generator(0);
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    for seq in 1..=400 {
        let players: Vec<u64> = (0..20).filter(|_| generator.chance(300_000)).collect();
        let body = vec![5; usize::try_from(generator.below(9_000)).unwrap()];
        let mut new = mail_many(epoch, seq, &[&[30][..], &players].concat(), &body);
        new.priority = u8::try_from(seq % 7).unwrap();
        settle(&mut store, new);
        let player = generator.below(20);
        if let Some(first) = read_all(&mut store, player).first() {
            acknowledge(&mut store, player, first.seq).unwrap();
        }
        while store.tidy() {}
    }
    assert!(store.stats().snapshots > 0);
    let expected = store.log.index.clone();
    let mut disk = store.into_files();
    let restored = open(disk.clone());
    assert!(restored.recovery().restored > 0);
    for snapshot in disk.list_snapshots().unwrap() {
        disk.remove_snapshot(snapshot).unwrap();
    }
    let whole = open(disk);
    assert_eq!(whole.recovery().restored, 0);
    for store in [restored, whole] {
        assert_eq!(store.log.index.live_bytes(), expected.live_bytes());
        let mut index = store.log.index.clone();
        // Each start counts.
        index.boot = expected.boot;
        assert!(index == expected);
    }
}

#[test]
fn hub_2_rejected_recipients_are_remembered_for_a_lost_answer() {
    let mut config = small();
    config.mailbox_mails_max = 1;
    let open = |disk| Store::open(disk, config, LOG).unwrap();
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    settle(&mut store, mail_many(epoch, 1, &[2, 4], b"fills"));
    let to = [1, 2, 3, 4, 5];
    let first = settle(&mut store, mail_many(epoch, 2, &to, b"some"));
    assert_eq!(first.verdict, MailVerdict::Stored);
    let part = first.part.clone().unwrap();
    assert_eq!((part.stored, part.refused), (3, 2));
    let MailTo::Many(players) = many(&to) else {
        panic!("several players");
    };
    assert_eq!(part.refused_of(players.list()), [ClientId(2), ClientId(4)]);
    // The answer is lost. Meanwhile there would be room.
    let last = store.log.index.last_mail;
    acknowledge(&mut store, 2, last).unwrap();
    for _ in 0..2 {
        let again = settle(&mut store, mail_many(epoch, 2, &to, b"some"));
        assert_eq!(again, first);
        assert_eq!(read_all(&mut store, 1).len(), 1, "not doubled");
        assert!(read_all(&mut store, 2).is_empty(), "and not stored later");
        let mut disk = store.into_files();
        disk.power_cut(&mut Seed::from_number(4).generator(0));
        store = open(disk);
    }
    // All of them are full: the usual refusal.
    let none = settle(&mut store, mail_many(epoch, 3, &[1, 3], b"none"));
    let full = MailVerdict::Refused(MailRefusal::MailboxFull);
    assert_eq!((none.verdict, none.part), (full, None));
    let mut next = mail_many(epoch, 4, &[2, 3], b"next");
    next.settled = SenderSeq(3);
    settle(&mut store, next);
    let state = store.log.index.node(NODE).unwrap();
    assert_eq!(
        state.refused.len(),
        1,
        "only the refusal that may be unknown"
    );
}

#[test]
fn hub_6_remembered_rejections_of_one_node_are_bounded() {
    let mut config = small();
    config.mailbox_mails_max = 1;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let epoch = join(&mut store, 1);
    let players: Vec<u64> = (0..4_095).collect();
    settle(&mut store, mail_many(epoch, 1, &players, b""));
    let mut seq = 1;
    loop {
        seq += 1;
        let to = [&players[..], &[5_000 + seq]].concat();
        let settled = settle(&mut store, mail_many(epoch, seq, &to, b""));
        if settled.verdict == MailVerdict::Busy {
            break;
        }
        assert_eq!(settled.part.unwrap().refused, 4_095);
        assert!(seq < 1_000, "without a bound");
    }
    let state = store.log.index.node(NODE).unwrap();
    assert!((60_000..=64 * 1_024).contains(&state.refused_bytes));
    // Once the sender knows of them, it continues.
    let mut next = mail_many(epoch, seq, &[0, 9_000], b"");
    next.settled = SenderSeq(seq - 1);
    assert_eq!(settle(&mut store, next).verdict, MailVerdict::Stored);
}

#[test]
fn hub_6_a_mail_to_many_that_exceeds_the_limits_of_the_store_waits() {
    let mut config = small();
    config.mails_max = 10;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let epoch = join(&mut store, 1);
    let to: Vec<u64> = (0..8).collect();
    let verdict = settle(&mut store, mail_many(epoch, 1, &to, b"")).verdict;
    assert_eq!(verdict, MailVerdict::Stored);
    let more = mail_many(epoch, 2, &to, b"");
    assert_eq!(settle(&mut store, more.clone()).verdict, MailVerdict::Full);
    assert_eq!(store.mail_count(), 8, "none of it is stored");
    for player in 0..8 {
        let last = store.log.index.last_mail;
        acknowledge(&mut store, player, last).unwrap();
    }
    assert_eq!(settle(&mut store, more).verdict, MailVerdict::Stored);
}

#[test]
fn hub_1_a_log_of_version_1_opens_with_all_it_holds() {
    let text = include_str!("../../../testdata/log_v1.hex");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("segment_1 "));
    let digits = line.unwrap().trim().as_bytes().chunks(2);
    let byte = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
    let bytes: Vec<_> = digits.map(byte).collect();
    let mut disk = MemorySegments::new(1 << 30);
    let segment = SegmentId(1);
    disk.allocate(segment, StoreConfig::SEGMENT_BYTES_MIN)
        .unwrap();
    disk.write(segment, 0, &bytes).unwrap();
    disk.sync(segment).unwrap();
    let mut store = open(disk);
    for start in 0..2 {
        let found = [8, 9].map(|player| {
            let mails = read_all(&mut store, player).into_iter();
            mails.map(|mail| mail.body.0).collect::<Vec<_>>()
        });
        assert_eq!(
            found,
            [vec!["other"], vec!["mail 2", "mail 3"]],
            "start {start}"
        );
        assert_eq!(store.total(&Name::new("kill").unwrap().into()), 4);
        let epoch = join(&mut store, 1);
        assert_eq!(epoch, Epoch(1));
        let again = mail(epoch, 4, 9, b"mail 4");
        let full = MailVerdict::Refused(MailRefusal::MailboxFull);
        assert_eq!(append(&mut store, again), Ok(full), "remembered");
        // Records of this version follow in the same segment.
        if start == 0 {
            settle(&mut store, mail_many(epoch, 7, &[1, 2], b"new"));
        }
        assert_eq!(read_all(&mut store, 2)[0].body.0, "new");
        store = open(store.into_files());
    }
}

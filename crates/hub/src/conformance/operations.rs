//! Checks of what a backend stores, by commands only.

use std::collections::BTreeMap;

use bytes::Bytes;
use wire::{ClientId, Generator, InstanceId, Seed, UnixTime};

use super::{MAILBOX_MAILS_MAX, NODE, Subject, limits, run, run_batch};
use crate::backend::Backend;
use crate::field::{Addr, BatchSeq, CountKey, Epoch, LogId, MailSeq, Name, Redacted, SenderSeq};
use crate::kv::{KvError, KvKey, Revision};
use crate::record::{MailRefusal, MailVerdict};
use crate::store::{Completed, KvOp, KvOutcome, Mail, NewMail, Outcome, StoreError, StoreOp};

const NOW: UnixTime = UnixTime::from_millis(1_000_000);
const LATER: UnixTime = UnixTime::from_millis(2_000_000);

/// Checks durable acknowledgements, order, duplicates, refusals, reads in pages, expiry, epochs,
/// counts and keys. `fresh` returns a subject with nothing stored; it is called once for each check.
///
/// # Panics
///
/// If the backend fails a check.
pub fn check_backend<S: Subject>(mut fresh: impl FnMut() -> S) {
    epochs_increase_and_outlive_a_crash(&mut fresh());
    acknowledged_mail_outlives_a_crash_in_order(&mut fresh());
    a_repeated_mail_is_stored_once(&mut fresh());
    a_mail_out_of_order_waits(&mut fresh());
    refusals_are_final_and_recorded(&mut fresh());
    pages_of_a_mailbox_have_no_gap(&mut fresh());
    expired_mail_is_deleted_and_not_read(&mut fresh());
    an_acknowledgement_deletes_for_good(&mut fresh());
    a_batch_of_counts_is_added_once(&mut fresh());
    a_batch_sees_its_own_writes(&mut fresh());
    keys_change_by_revision_and_outlive_a_crash(&mut fresh());
    nothing_is_lost_or_doubled_over_crashes(&mut fresh());
}

const fn join_op(instance: u64, epoch: Epoch) -> StoreOp {
    StoreOp::Join {
        node: NODE,
        instance: InstanceId(instance),
        epoch,
        role: crate::Role::GameNode,
    }
}

/// What a join returned: epoch, boot, log and both marks.
type JoinResult = (Epoch, u32, LogId, SenderSeq, BatchSeq);

fn try_join(backend: &mut impl Backend, instance: u64) -> JoinResult {
    match run(backend, join_op(instance, Epoch(0))) {
        Ok(Completed::Joined {
            epoch,
            boot,
            log,
            mail_mark,
            count_mark,
            ..
        }) => (epoch, boot, log, mail_mark, count_mark),
        other => panic!("a join was answered by {other:?}"),
    }
}

fn join(backend: &mut impl Backend, instance: u64) -> Epoch {
    try_join(backend, instance).0
}

fn mail(epoch: Epoch, seq: u64, player: u64, body: &[u8]) -> NewMail {
    NewMail {
        to: Addr::Player(ClientId(player)).into(),
        priority: 0,
        node: NODE,
        epoch,
        seq: SenderSeq(seq),
        settled: SenderSeq(0),
        expires: LATER,
        body: Redacted(Bytes::copy_from_slice(body)),
    }
}

fn append(backend: &mut impl Backend, mails: Vec<NewMail>) -> Vec<MailVerdict> {
    let count = mails.len();
    match run(backend, StoreOp::Append(mails)) {
        Ok(Completed::Appended(settled)) => {
            assert_eq!(settled.len(), count, "one verdict for each mail");
            settled.iter().map(|it| it.verdict).collect()
        }
        other => panic!("an append was answered by {other:?}"),
    }
}

const fn read_op(player: u64, after: MailSeq, bytes_max: usize, now: UnixTime) -> StoreOp {
    StoreOp::Read {
        player: ClientId(player),
        after,
        bytes_max,
        now,
    }
}

fn page(outcome: Outcome) -> (Vec<Mail>, bool) {
    match outcome {
        Ok(Completed::Mails { mails, more }) => (mails, more),
        other => panic!("a read was answered by {other:?}"),
    }
}

/// Reads a mailbox in pages; every page with a follower has at least one mail.
fn read_all(backend: &mut impl Backend, player: u64, bytes_max: usize) -> Vec<Mail> {
    let mut found: Vec<Mail> = Vec::new();
    loop {
        let after = found.last().map_or(MailSeq(0), |mail| mail.seq);
        let (mails, more) = page(run(backend, read_op(player, after, bytes_max, NOW)));
        assert!(!(more && mails.is_empty()), "an empty page with a follower");
        for mail in mails {
            let last = found.last().map_or(MailSeq(0), |mail| mail.seq);
            assert!(mail.seq > last, "{:?} follows {last:?}", mail.seq);
            found.push(mail);
        }
        if !more {
            return found;
        }
    }
}

fn bodies(mails: &[Mail]) -> Vec<&[u8]> {
    mails.iter().map(|mail| mail.body.0.as_ref()).collect()
}

fn epochs_increase_and_outlive_a_crash(subject: &mut impl Subject) {
    let mut backend = subject.open(limits());
    let (epoch, boot, log, ..) = try_join(&mut backend, 1);
    assert_eq!((epoch, boot), (Epoch(1), 1), "the first run");
    assert_eq!(join(&mut backend, 1), Epoch(1), "the same run");
    assert_eq!(join(&mut backend, 2), Epoch(2), "the next run");
    let verdicts = append(&mut backend, vec![mail(Epoch(2), 1, 9, b"a")]);
    assert_eq!(verdicts, [MailVerdict::Stored]);
    subject.crash(backend);
    let mut backend = subject.open(limits());
    let expected = (Epoch(2), 2, log, SenderSeq(1), BatchSeq(0));
    assert_eq!(try_join(&mut backend, 2), expected, "after a crash");
    let superseded = run(&mut backend, join_op(1, Epoch(1)));
    assert_eq!(superseded, Ok(Completed::Fenced), "a superseded run");
    assert_eq!(join(&mut backend, 1), Epoch(3), "which starts anew");
    let late = append(&mut backend, vec![mail(Epoch(2), 2, 9, b"late")]);
    assert_eq!(late, [MailVerdict::Busy], "mail of an earlier run");
}

fn acknowledged_mail_outlives_a_crash_in_order(subject: &mut impl Subject) {
    let mut backend = subject.open(limits());
    let epoch = join(&mut backend, 1);
    let mut expected = BTreeMap::<u64, Vec<Vec<u8>>>::new();
    for first in (1..=90).step_by(9) {
        let mails: Vec<_> = (first..first + 9)
            .map(|seq: u64| {
                let body = seq.to_string().into_bytes();
                let mail = mail(epoch, seq, seq % 4, &body);
                expected.entry(seq % 4).or_default().push(body);
                mail
            })
            .collect();
        let verdicts = append(&mut backend, mails);
        assert!(verdicts.iter().all(|it| *it == MailVerdict::Stored));
    }
    for _ in 0..2 {
        for (player, expected) in &expected {
            let mails = read_all(&mut backend, *player, 4_096);
            assert_eq!(bodies(&mails), *expected, "mailbox {player}");
        }
        subject.crash(backend);
        backend = subject.open(limits());
    }
}

fn a_repeated_mail_is_stored_once(subject: &mut impl Subject) {
    let mut backend = subject.open(limits());
    let epoch = join(&mut backend, 1);
    let first = mail(epoch, 1, 9, b"a");
    for _ in 0..2 {
        let verdicts = append(&mut backend, vec![first.clone(), first.clone()]);
        assert_eq!(verdicts, [MailVerdict::Stored; 2]);
        subject.crash(backend);
        backend = subject.open(limits());
    }
    assert_eq!(bodies(&read_all(&mut backend, 9, 4_096)), [b"a"]);
}

fn a_mail_out_of_order_waits(subject: &mut impl Subject) {
    let mut backend = subject.open(limits());
    let epoch = join(&mut backend, 1);
    let mails =
        [1, 3, 2, 3].map(|seq| mail(epoch, seq, 9, &[b'0' + u8::try_from(seq).unwrap_or(0)]));
    let verdicts = append(&mut backend, mails.to_vec());
    let stored = MailVerdict::Stored;
    assert_eq!(verdicts, [stored, MailVerdict::Busy, stored, stored]);
    assert_eq!(
        bodies(&read_all(&mut backend, 9, 4_096)),
        [b"1", b"2", b"3"]
    );
}

fn refusals_are_final_and_recorded(subject: &mut impl Subject) {
    let mut backend = subject.open(limits());
    let epoch = join(&mut backend, 1);
    let Ok(topic) = Name::new("news") else {
        panic!("a name");
    };
    let misdirected = NewMail {
        to: Addr::Topic(topic).into(),
        ..mail(epoch, 1, 9, b"")
    };
    let full = u64::from(MAILBOX_MAILS_MAX) + 2;
    let mut mails = vec![misdirected.clone()];
    mails.extend((2..=full).map(|seq| mail(epoch, seq, 9, b"x")));
    let verdicts = append(&mut backend, mails);
    let address = MailVerdict::Refused(MailRefusal::Address);
    let mailbox = MailVerdict::Refused(MailRefusal::MailboxFull);
    assert_eq!(verdicts.first(), Some(&address));
    assert_eq!(verdicts.last(), Some(&mailbox));
    let stored = verdicts.iter().filter(|it| **it == MailVerdict::Stored);
    assert_eq!(stored.count(), verdicts.len() - 2);
    for _ in 0..2 {
        let again = vec![misdirected.clone(), mail(epoch, full, 9, b"x")];
        assert_eq!(
            append(&mut backend, again),
            [address, mailbox],
            "sent again"
        );
        subject.crash(backend);
        backend = subject.open(limits());
    }
    let count = usize::try_from(MAILBOX_MAILS_MAX).unwrap_or(0);
    assert_eq!(read_all(&mut backend, 9, 1 << 20).len(), count);
}

fn pages_of_a_mailbox_have_no_gap(subject: &mut impl Subject) {
    let mut backend = subject.open(limits());
    let epoch = join(&mut backend, 1);
    let mails: Vec<_> = (1..=90)
        .map(|seq: u8| mail(epoch, seq.into(), 9, &vec![seq; 700]))
        .collect();
    append(&mut backend, mails);
    for bytes_max in [0, 1, 1_500, 10_000, 1 << 20] {
        let mails = read_all(&mut backend, 9, bytes_max);
        let firsts: Vec<_> = mails.iter().filter_map(|it| it.body.0.first()).collect();
        assert_eq!(
            firsts,
            (1..=90).collect::<Vec<u8>>().iter().collect::<Vec<_>>()
        );
    }
    let (first, more) = page(run(&mut backend, read_op(9, MailSeq(0), 0, NOW)));
    assert_eq!((first.len(), more), (1, true), "at least one");
    let (none, more) = page(run(&mut backend, read_op(8, MailSeq(0), 4_096, NOW)));
    assert_eq!((none.len(), more), (0, false), "an empty mailbox");
}

fn expired_mail_is_deleted_and_not_read(subject: &mut impl Subject) {
    let mut backend = subject.open(limits());
    let epoch = join(&mut backend, 1);
    let mut lasting = mail(epoch, 2, 9, b"stays");
    lasting.expires = UnixTime::from_millis(9_000_000);
    append(&mut backend, vec![mail(epoch, 1, 9, b"goes"), lasting]);
    let (both, _) = page(run(&mut backend, read_op(9, MailSeq(0), 4_096, NOW)));
    assert_eq!(bodies(&both), [&b"goes"[..], b"stays"]);
    let (late, _) = page(run(&mut backend, read_op(9, MailSeq(0), 4_096, LATER)));
    assert_eq!(bodies(&late), [b"stays"], "expired, and not deleted yet");
    let expired = |count| Ok(Completed::Expired { count });
    assert_eq!(run(&mut backend, StoreOp::Expire { now: NOW }), expired(0));
    assert_eq!(
        run(&mut backend, StoreOp::Expire { now: LATER }),
        expired(1)
    );
    assert_eq!(
        run(&mut backend, StoreOp::Expire { now: LATER }),
        expired(0)
    );
    assert_eq!(backend.stats().expired, 1);
    assert_eq!(bodies(&read_all(&mut backend, 9, 4_096)), [b"stays"]);
}

fn an_acknowledgement_deletes_for_good(subject: &mut impl Subject) {
    let mut backend = subject.open(limits());
    let epoch = join(&mut backend, 1);
    let mails = [1, 2, 3].map(|seq| mail(epoch, seq, 9, b"x"));
    append(&mut backend, mails.to_vec());
    let stored = read_all(&mut backend, 9, 4_096);
    let ack = |upto| StoreOp::Ack {
        player: ClientId(9),
        upto,
    };
    let acked = Ok(Completed::Acked);
    assert_eq!(run(&mut backend, ack(stored[1].seq)), acked);
    assert_eq!(run(&mut backend, ack(stored[1].seq)), acked, "again");
    assert_eq!(
        run(&mut backend, ack(MailSeq(1 << 40))),
        acked,
        "of another log"
    );
    for _ in 0..2 {
        let left = read_all(&mut backend, 9, 4_096);
        assert_eq!(left, stored[2..], "only what was acknowledged is deleted");
        subject.crash(backend);
        backend = subject.open(limits());
    }
}

fn a_batch_of_counts_is_added_once(subject: &mut impl Subject) {
    let mut backend = subject.open(limits());
    let epoch = join(&mut backend, 1);
    let Ok(Ok(key)) = Name::new("kills").map(|name| CountKey::new(name, &[])) else {
        panic!("a key");
    };
    let count = |epoch, batch| StoreOp::Count {
        node: NODE,
        epoch,
        batch: BatchSeq(batch),
        entries: vec![(key.clone(), 2)],
    };
    assert_eq!(run(&mut backend, count(epoch, 1)), Ok(Completed::Counted));
    assert_eq!(run(&mut backend, count(epoch, 1)), Ok(Completed::Counted));
    let stale = run(&mut backend, count(Epoch(epoch.0 + 1), 2));
    assert_eq!(stale, Err(StoreError::Busy), "of another run");
    subject.crash(backend);
    let mut backend = subject.open(limits());
    assert_eq!(try_join(&mut backend, 1).4, BatchSeq(1));
}

fn a_batch_sees_its_own_writes(subject: &mut impl Subject) {
    let mut backend = subject.open(limits());
    let epoch = join(&mut backend, 1);
    let outcomes = run_batch(
        &mut backend,
        vec![
            StoreOp::Append(vec![mail(epoch, 1, 9, b"a")]),
            read_op(9, MailSeq(0), 4_096, NOW),
            StoreOp::Append(vec![mail(epoch, 2, 9, b"b")]),
            read_op(9, MailSeq(0), 4_096, NOW),
        ],
    );
    let mut reads = outcomes.into_iter().skip(1).step_by(2);
    let first = reads.next().map(|read| page(read).0).unwrap_or_default();
    assert_eq!(bodies(&first).first(), Some(&&b"a"[..]));
    let last = reads.next().map(|read| page(read).0).unwrap_or_default();
    assert_eq!(bodies(&last), [b"a", b"b"]);
}

fn keys_change_by_revision_and_outlive_a_crash(subject: &mut impl Subject) {
    let Ok(key) = KvKey::new("match/1") else {
        panic!("a key");
    };
    let put = |expected, value: &'static [u8]| {
        StoreOp::Kv(KvOp::Put {
            by: None,
            lease: false,
            key: key.clone(),
            expected,
            value: Redacted(Bytes::from_static(value)),
        })
    };
    let load = || {
        StoreOp::Kv(KvOp::Load {
            after: None,
            bytes_max: 4_096,
        })
    };
    let mut backend = subject.open(limits());
    let first = done(run(&mut backend, put(Some(Revision::NONE), b"a")));
    let conflict = |current| {
        let error = KvError::Conflict { current };
        Ok(Completed::Kv(KvOutcome::Refused(error)))
    };
    let again = run(&mut backend, put(Some(Revision::NONE), b"b"));
    assert_eq!(again, conflict(first), "the key exists");
    let second = done(run(&mut backend, put(Some(first), b"b")));
    assert!(second > first, "revisions increase");
    assert_eq!(run(&mut backend, put(Some(first), b"c")), conflict(second));
    subject.crash(backend);
    let mut backend = subject.open(limits());
    let Ok(Completed::Kv(KvOutcome::Loaded {
        entries, revision, ..
    })) = run(&mut backend, load())
    else {
        panic!("the keys");
    };
    let found: Vec<_> = entries
        .iter()
        .map(|entry| (&entry.key, entry.revision, &entry.value.0[..]))
        .collect();
    assert_eq!(found, [(&key, second, &b"b"[..])]);
    assert!(revision > second, "a start assigns a new revision");
    let delete = StoreOp::Kv(KvOp::Delete {
        by: None,
        key: key.clone(),
        expected: Some(second),
    });
    assert!(done(run(&mut backend, delete.clone())) > revision);
    let missing = Ok(Completed::Kv(KvOutcome::Refused(KvError::NotFound)));
    assert_eq!(run(&mut backend, delete), missing);
}

fn done(outcome: Outcome) -> Revision {
    match outcome {
        Ok(Completed::Kv(KvOutcome::Done(revision))) => revision,
        other => panic!("a change of a key was answered by {other:?}"),
    }
}

/// A seeded run: mail, acknowledgements and crashes, against a model of what must be stored.
fn nothing_is_lost_or_doubled_over_crashes(subject: &mut impl Subject) {
    let mut generator = Seed::from_number(11).generator(0);
    let mut model = Model::default();
    for _ in 0..CRASHES {
        let mut backend = subject.open(limits());
        let epoch = join(&mut backend, 1);
        model.check(&mut backend);
        for _ in 0..generator.below(8) {
            model.step(&mut backend, epoch, &mut generator);
        }
        while generator.chance(500_000) && backend.tidy() {}
        subject.crash(backend);
    }
    model.check(&mut subject.open(limits()));
}

const CRASHES: u32 = 20;

#[derive(Default)]
struct Model {
    sent: u64,
    /// Numbers of the mails in each mailbox, oldest first.
    mailboxes: BTreeMap<u64, Vec<u64>>,
}

impl Model {
    fn step(&mut self, backend: &mut impl Backend, epoch: Epoch, generator: &mut Generator) {
        if generator.chance(700_000) {
            let mails: Vec<_> = (0..=generator.below(5))
                .map(|_| self.next_mail(epoch, generator))
                .collect();
            let verdicts = append(backend, mails);
            assert!(verdicts.iter().all(|it| *it == MailVerdict::Stored));
        } else {
            let player = generator.below(PLAYERS);
            let stored = read_all(backend, player, 4_096);
            let count = usize::try_from(generator.below(4)).unwrap_or(0);
            if let Some(last) = stored.iter().take(count).last() {
                let upto = last.seq;
                let player_id = ClientId(player);
                let op = StoreOp::Ack {
                    player: player_id,
                    upto,
                };
                assert_eq!(run(backend, op), Ok(Completed::Acked));
                let count = count.min(stored.len());
                self.mailboxes.entry(player).or_default().drain(..count);
            }
        }
    }

    fn next_mail(&mut self, epoch: Epoch, generator: &mut Generator) -> NewMail {
        self.sent += 1;
        let player = generator.below(PLAYERS);
        let mut body = self.sent.to_be_bytes().to_vec();
        body.resize(8 + usize::try_from(generator.below(20_000)).unwrap_or(0), 0);
        self.mailboxes.entry(player).or_default().push(self.sent);
        mail(epoch, self.sent, player, &body)
    }

    fn check(&self, backend: &mut impl Backend) {
        for player in 0..PLAYERS {
            let numbers: Vec<_> = read_all(backend, player, 1 << 16)
                .iter()
                .filter_map(|mail| mail.body.0.first_chunk().copied())
                .map(u64::from_be_bytes)
                .collect();
            let expected = self.mailboxes.get(&player).cloned().unwrap_or_default();
            assert_eq!(numbers, expected, "mailbox {player}");
        }
    }
}

const PLAYERS: u64 = 5;

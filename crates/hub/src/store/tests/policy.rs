//! What a full mailbox does.

use super::many::{mail_many, settle};
use super::*;
use crate::log::format::DROPS_MAX;

fn with_policy(on_full: OnFull, mails: u32, bytes: u64) -> (Store<MemorySegments>, Epoch) {
    let mut config = small();
    config.on_full = on_full;
    config.mailbox_mails_max = mails;
    config.mailbox_bytes_max = bytes;
    let mut store = Store::open(MemorySegments::new(1 << 30), config, LOG).unwrap();
    let epoch = join(&mut store, 1);
    (store, epoch)
}

fn prioritized(epoch: Epoch, seq: u64, priority: u8, body: &str) -> NewMail {
    let mut new = mail(epoch, seq, 9, body.as_bytes());
    new.priority = priority;
    new
}

fn bodies(store: &mut Store<MemorySegments>, player: u64) -> Vec<Bytes> {
    let mails = read_all(store, player);
    mails.into_iter().map(|mail| mail.body.0).collect()
}

#[test]
fn hub_4_a_full_mailbox_drops_its_oldest_mails_and_counts_them() {
    let (mut store, epoch) = with_policy(OnFull::DropOldest, 3, 1_000);
    for (seq, body) in (1..).zip(["a", "b", "c"]) {
        assert_eq!(
            settle(&mut store, prioritized(epoch, seq, 200, body)).dropped,
            0
        );
    }
    let settled = settle(&mut store, prioritized(epoch, 4, 0, "d"));
    assert_eq!((settled.verdict, settled.dropped), (MailVerdict::Stored, 1));
    assert_eq!(bodies(&mut store, 9), ["b", "c", "d"]);
    // By bytes: a long one takes the room of several.
    let long = "x".repeat(800);
    let settled = settle(&mut store, prioritized(epoch, 5, 0, &long));
    assert_eq!((settled.verdict, settled.dropped), (MailVerdict::Stored, 2));
    assert_eq!(bodies(&mut store, 9), ["d", &long]);
    // One that never fits is rejected, and drops nothing.
    let settled = settle(&mut store, prioritized(epoch, 6, 0, &"x".repeat(1_000)));
    let full = MailVerdict::Refused(MailRefusal::MailboxFull);
    assert_eq!((settled.verdict, settled.dropped), (full, 0));
    assert_eq!(
        (store.stats().dropped_oldest, store.stats().refused),
        (3, 1)
    );
    let mut disk = store.into_files();
    disk.power_cut(&mut Seed::from_number(4).generator(0));
    let mut store = open(disk);
    assert_eq!(bodies(&mut store, 9), ["d", &long], "dropped for good");
}

#[test]
fn hub_4_a_full_mailbox_drops_lower_priorities_first_and_keeps_the_order() {
    let (mut store, epoch) = with_policy(OnFull::DropLowestPriority, 4, 1 << 20);
    for (seq, (priority, body)) in (1..).zip([(5, "a"), (1, "b"), (3, "c"), (1, "d")]) {
        settle(&mut store, prioritized(epoch, seq, priority, body));
    }
    let mut store = Store::open(store.into_files(), store_config(), LOG).unwrap();
    let settled = settle(&mut store, prioritized(epoch, 5, 4, "e"));
    assert_eq!((settled.verdict, settled.dropped), (MailVerdict::Stored, 1));
    assert_eq!(bodies(&mut store, 9), ["a", "c", "d", "e"], "by number");
    settle(&mut store, prioritized(epoch, 6, 4, "f"));
    settle(&mut store, prioritized(epoch, 7, 4, "g"));
    assert_eq!(bodies(&mut store, 9), ["a", "e", "f", "g"]);
    // A mail gives way to a higher priority only.
    let full = MailVerdict::Refused(MailRefusal::MailboxFull);
    assert_eq!(
        settle(&mut store, prioritized(epoch, 8, 4, "h")).verdict,
        full
    );
    assert_eq!(settle(&mut store, mail(epoch, 9, 9, b"i")).verdict, full);
    assert_eq!(bodies(&mut store, 9), ["a", "e", "f", "g"]);
    assert_eq!(store.stats().dropped_low_priority, 3);
}

fn store_config() -> StoreConfig {
    let mut config = small();
    config.on_full = OnFull::DropLowestPriority;
    config.mailbox_mails_max = 4;
    config
}

#[test]
fn hub_6_one_mail_to_many_drops_a_bounded_number() {
    let (mut store, epoch) = with_policy(OnFull::DropOldest, 4, 1_100);
    let players: Vec<u64> = (0..4_096).collect();
    for seq in 1..=4 {
        settle(&mut store, mail_many(epoch, seq, &players, b""));
    }
    // Needs the room of three in each mailbox.
    let settled = settle(&mut store, mail_many(epoch, 5, &players, &[5; 600]));
    let part = settled.part.unwrap();
    assert!(usize::try_from(settled.dropped).unwrap() <= DROPS_MAX);
    assert_eq!(u32::from(part.stored) * 3, settled.dropped);
    assert_eq!(part.stored, 1_365);
    let number = store.log.index.last_mail;
    for player in [0, 1_364, 1_365, 4_095] {
        let mails = read_all(&mut store, player);
        let has_new = mails.iter().any(|mail| mail.seq == number);
        assert_eq!(
            (has_new, mails.len()),
            if player < 1_365 {
                (true, 2)
            } else {
                (false, 4)
            }
        );
    }
}

fn priority_of(seq: u64) -> u8 {
    u8::try_from(seq * 7 % 5).unwrap()
}

#[test]
fn hub_1_crashes_under_a_policy_keep_what_was_not_dropped() {
    for seed in 0..60 {
        let mut generator = Seed::from_number(seed).generator(0);
        let mut disk = MemorySegments::new(1 << 30);
        let mut config = store_config();
        config.mailbox_mails_max = 6;
        // Priority and number of each mail that was reported as stored.
        let mut stored: Vec<(u8, u64)> = Vec::new();
        // The last with a verdict, and the last that was sent.
        let (mut seq, mut last) = (0, 0);
        for _ in 0..12 {
            let mut store = Store::open(disk, config, LOG).unwrap();
            let epoch = join(&mut store, 1);
            store.files_mut().stop_after(generator.below(40));
            for _ in 0..generator.below(20) {
                last = seq + 1;
                let mail = prioritized(epoch, last, priority_of(last), "m");
                match append(&mut store, mail) {
                    Ok(MailVerdict::Stored) => {
                        seq += 1;
                        stored.push((priority_of(seq), seq));
                    }
                    Ok(MailVerdict::Refused(_)) => seq += 1,
                    Ok(_) => panic!("seed {seed}: busy"),
                    Err(_) => break,
                }
            }
            disk = store.into_files();
            disk.power_cut(&mut generator);
        }
        let mut store = Store::open(disk, config, LOG).unwrap();
        let found: Vec<_> = read_all(&mut store, 9)
            .iter()
            .map(|mail| mail.sender_seq.0)
            .collect();
        assert!(found.is_sorted_by(|a, b| a < b), "seed {seed}: {found:?}");
        // What is missing was dropped for a later mail of a higher priority.
        for (priority, seq) in &stored {
            let is_dropped = (seq + 1..=last).any(|later| priority_of(later) > *priority);
            assert!(
                found.contains(seq) || is_dropped,
                "seed {seed}: mail {seq} is lost"
            );
        }
    }
}

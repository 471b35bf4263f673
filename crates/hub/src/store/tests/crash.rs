//! A log that crashes repeatedly, and a model of what its sender and reader know.

use std::collections::{BTreeMap, BTreeSet};

use super::many::many;
use super::*;

/// What a sender and a reader of the store know.
#[derive(Default)]
struct Model {
    /// The sender's next number.
    next: u64,
    /// Mails that were reported as stored, by mailbox, in send order.
    stored: BTreeMap<u64, Vec<u64>>,
    /// Mails with a lost report.
    unknown: BTreeSet<u64>,
    /// Highest acknowledged number by mailbox.
    acked: BTreeMap<u64, MailSeq>,
    /// Acknowledged mails, by mailbox and number.
    handled: BTreeSet<(u64, u64)>,
}

#[test]
fn hub_h13_no_mail_is_lost_or_doubled_over_random_crash_points() {
    let seeds = std::env::var("SEED").ok().map_or_else(
        || 0..100,
        |seed| {
            let seed: u64 = seed.parse().unwrap();
            seed..seed + 1
        },
    );
    let mut seen = Seen::default();
    for seed in seeds {
        let mut generator = Seed::from_number(seed).generator(0);
        live_and_die(seed, &mut generator, &mut seen);
    }
    assert!(seen.crashes > 0, "a disk that never fails shows nothing");
    assert!(
        seen.died_open > 0,
        "nor one that is always recovered at once"
    );
    assert!(seen.restored > 0, "nor one without snapshots");
    assert!(
        seen.snapshots_ignored > 0,
        "nor one with complete snapshots only"
    );
}

/// What all runs have met.
#[derive(Default)]
struct Seen {
    crashes: u64,
    died_open: u64,
    /// Starts from a snapshot.
    restored: u64,
    snapshots_ignored: u64,
}

/// Runs one log 25 times, each with a fault or a crash at a random operation.
fn live_and_die(seed: u64, generator: &mut Generator, seen: &mut Seen) {
    let mut model = Model {
        next: 1,
        ..Model::default()
    };
    let mut disk = MemorySegments::new(5 * StoreConfig::SEGMENT_BYTES_MIN);
    for _ in 0..25 {
        match generator.below(4) {
            0 => disk.fail_sync_after(generator.below(30)),
            1 => disk.stop_after(generator.below(60)),
            // During recovery, which takes about five operations.
            2 => disk.stop_after(generator.below(8)),
            _ => {}
        }
        let mut store = match Store::open(disk, small(), LOG) {
            Ok(store) => store,
            Err(OpenFailure { mut files, .. }) => {
                // It crashed during recovery, and continues from there.
                seen.died_open += 1;
                if generator.chance(500_000) {
                    files.power_cut(generator);
                } else {
                    files.kill();
                }
                disk = files;
                continue;
            }
        };
        let recovery = store.recovery();
        seen.restored += u64::from(recovery.restored > 0);
        seen.snapshots_ignored += recovery.snapshots_ignored;
        for _ in 0..generator.below(40) {
            step(seed, &mut model, &mut store, generator);
            if store.is_dead() {
                break;
            }
        }
        seen.crashes += u64::from(store.is_dead());
        disk = store.into_files();
        if generator.chance(500_000) {
            disk.power_cut(generator);
        } else {
            disk.kill();
        }
    }
    let mut store = open(disk);
    check(seed, &mut model, &mut store);
}

fn step(
    seed: u64,
    model: &mut Model,
    store: &mut Store<MemorySegments>,
    generator: &mut Generator,
) {
    let Ok(Completed::Joined {
        epoch, mail_mark, ..
    }) = run(
        store,
        StoreOp::Join {
            node: NODE,
            instance: INSTANCE,
            epoch: Epoch(0),
            role: Role::GameNode,
        },
    )
    else {
        return;
    };
    assert!(
        mail_mark.0 < model.next,
        "seed {seed}: a mark past the last mail"
    );
    match generator.below(5) {
        0..=2 => send_some(model, store, epoch, generator),
        3 => {
            let player = generator.below(3);
            let mails = read_all(store, player);
            let Some(last) = mails.last() else { return };
            // Recorded before the call: an acknowledgement with a lost report may be on disk.
            let handled = mails.iter().map(|mail| (player, mail.sender_seq.0));
            model.handled.extend(handled);
            if acknowledge(store, player, last.seq).is_ok() {
                model.acked.insert(player, last.seq);
            }
        }
        // A crash may hit between any two steps.
        _ => {
            for _ in 0..=generator.below(9) {
                store.tidy();
            }
        }
    }
}

fn send_some(
    model: &mut Model,
    store: &mut Store<MemorySegments>,
    epoch: Epoch,
    generator: &mut Generator,
) {
    // Like a sender, repeats the mails of unknown state first.
    let again: Vec<u64> = model.unknown.iter().copied().collect();
    let fresh: Vec<u64> = (model.next..)
        .take(usize::try_from(generator.below(12)).unwrap())
        .collect();
    model.next += fresh.len() as u64;
    let mails: Vec<_> = again
        .iter()
        .chain(&fresh)
        .map(|seq| {
            let players = recipients(*seq);
            // The mailboxes never get full.
            let bytes_max = if players.len() > 1 { 3_000 } else { 30_000 };
            let body = vec![5; usize::try_from(seq * 977 % bytes_max).unwrap()];
            let mut mail = mail(epoch, *seq, seq % 3, &body);
            if players.len() > 1 {
                mail.to = many(players);
            }
            mail
        })
        .collect();
    model.unknown.extend(fresh);
    if let Ok(Completed::Appended(settled)) = run(store, StoreOp::Append(mails)) {
        for one in settled {
            match one.verdict {
                MailVerdict::Stored => {
                    model.unknown.remove(&one.seq.0);
                    for player in recipients(one.seq.0) {
                        let stored = model.stored.entry(*player).or_default();
                        assert_ne!(stored.last(), Some(&one.seq.0));
                        stored.push(one.seq.0);
                    }
                }
                MailVerdict::Busy | MailVerdict::Full | MailVerdict::OverShare => {}
                refused @ MailVerdict::Refused(_) => panic!("{refused:?}"),
            }
        }
    }
}

/// Every fourth mail is for several players.
fn recipients(seq: u64) -> &'static [u64] {
    const ALL: [u64; 3] = [0, 1, 2];
    match seq % 12 {
        0 => &ALL,
        4 => &[0, 2],
        8 => &[1, 2],
        _ => {
            let player = usize::try_from(seq % 3).unwrap();
            &ALL[player..=player]
        }
    }
}

fn check(seed: u64, model: &mut Model, store: &mut Store<MemorySegments>) {
    for player in 0..3 {
        let mails = read_all(store, player);
        let acked = model.acked.get(&player).copied().unwrap_or_default();
        assert!(
            mails.iter().all(|mail| mail.seq > acked),
            "seed {seed}: an acknowledged mail is back"
        );
        let found: Vec<u64> = mails.iter().map(|mail| mail.sender_seq.0).collect();
        assert!(
            found.is_sorted_by(|a, b| a < b),
            "seed {seed}: order or doubles in {found:?}"
        );
        for stored in model.stored.get(&player).into_iter().flatten() {
            assert!(
                found.contains(stored) || model.handled.contains(&(player, *stored)),
                "seed {seed}: mail {stored} was reported as stored and is lost",
            );
        }
    }
}

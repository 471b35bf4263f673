//! Files that are truncated, changed, or reassembled.

use super::*;
use crate::bundle;

/// A file with ticks, hashes, keyframes, seals and an end.
fn small() -> (Vec<u8>, Vec<Row>) {
    let rows = mixed_rows(3, 75, 11);
    let mut config = config(3, 8, 33);
    config.game = b"game 1.0".to_vec();
    config.seed = b"seed".to_vec();
    let (writer, _, mut file) = recording(config, &rows, &[40, 75]);
    writer.finish(&mut file);
    (file, rows)
}

/// Kind and byte range of each record, according to its header.
fn records(file: &[u8]) -> Vec<(u8, core::ops::Range<usize>)> {
    let mut at = 36 + 8 + 4 + 2 + 4;
    let mut records = Vec::new();
    while at < file.len() {
        let len = u32::from_be_bytes([0, file[at + 1], file[at + 2], file[at + 3]]);
        let end = at + 5 + usize::try_from(len).unwrap() + 4;
        records.push((file[at], at..end));
        at = end;
    }
    records
}

/// End offset of each tick's bundle.
fn bundle_ends(file: &[u8]) -> Vec<usize> {
    let shape = open(file).header().shape;
    let (mut ends, mut tick) = (Vec::new(), 0_u32);
    for (_, record) in records(file).into_iter().filter(|(kind, _)| *kind == 1) {
        let (mut at, end) = (record.start + 5, record.end - 4);
        while at < end {
            at += bundle::check(&file[at..end], shape).unwrap();
            ends.push(at);
            at += if tick % 8 == 0 { 8 } else { 0 };
            tick += 1;
        }
    }
    ends
}

#[test]
fn ls_15_a_changed_byte_anywhere_is_reported() {
    let (file, _) = small();
    let limits = ReplayLimits::default();
    assert!(ReplayReader::open(&file, &limits).is_ok());
    for at in 0..file.len() {
        for change in [1, 2, 4, 8, 16, 32, 64, 128, 0xff] {
            let mut changed = file.clone();
            changed[at] ^= change;
            let opened = ReplayReader::open(&changed, &limits);
            let Err(error) = opened else {
                panic!("byte {at} ^ {change:#x} is not seen");
            };
            let ReplayError::Damaged { offset, ticks, .. } = error else {
                assert!(at < 54, "{error:?} at {at}");
                continue;
            };
            // The part before the damage can still be played.
            assert!((54..=at).contains(&offset));
            let cut = ReplayReader::open(&changed[..offset], &limits).unwrap();
            assert_eq!(cut.ending(), Ending::Cut { unchecked: 0 });
            assert_eq!(cut.ticks(), ticks);
        }
    }
}

#[test]
fn ls_15_a_truncated_file_plays_to_its_last_complete_tick() {
    let (file, rows) = small();
    let ends = bundle_ends(&file);
    assert_eq!(ends.len(), rows.len());
    let limits = ReplayLimits::default();
    for len in 0..file.len() {
        let opened = ReplayReader::open(&file[..len], &limits);
        if len < 54 {
            let error = opened.unwrap_err();
            assert!(matches!(
                error,
                ReplayError::NotAReplay | ReplayError::Header
            ));
            continue;
        }
        let replay = opened.unwrap();
        let whole = ends.iter().filter(|end| **end <= len).count();
        assert_eq!(usize::try_from(replay.ticks()), Ok(whole), "{len} bytes");
        let Ending::Cut { unchecked } = replay.ending() else {
            panic!("{len} bytes are not all");
        };
        let is_under_checksum = |end: &&usize| {
            let all = records(&file);
            let (_, record) = all
                .iter()
                .find(|(_, record)| record.contains(*end))
                .unwrap();
            record.end <= len
        };
        let checked = ends[..whole].iter().filter(is_under_checksum).count();
        assert_eq!(usize::try_from(unchecked), Ok(whole - checked));
        let mut player = player(&replay);
        for row in &rows[..whole] {
            assert_eq!(player.step().unwrap().row(), row);
        }
        assert!(player.step().is_none());
        assert_eq!(player.verify().map(|it| it.ticks), Ok(replay.ticks()));
        player.seek(Tick(replay.ticks() / 2)).unwrap();
    }
}

#[test]
fn omitted_duplicated_and_moved_records_are_detected() {
    let (file, _) = small();
    let records = records(&file);
    let header = &file[..54];
    let kinds: Vec<_> = records.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [1, 1, 2, 1, 3, 1, 2, 1, 4]);
    let join = |order: &[usize]| {
        let parts = order.iter().map(|at| file[records[*at].1.clone()].to_vec());
        [header.to_vec(), parts.collect::<Vec<_>>().concat()].concat()
    };
    let all: Vec<_> = (0..records.len()).collect();
    assert_eq!(join(&all), file);
    let last = records.len() - 1;
    for at in all.clone() {
        let (mut without, mut twice) = (all.clone(), all.clone());
        without.remove(at);
        twice.insert(at, at);
        // Without its end the file is reported as cut.
        for order in [without, twice].iter().filter(|_| at < last) {
            assert_checksum(&join(order));
        }
        for other in at + 1..records.len() {
            let mut swapped = all.clone();
            swapped.swap(at, other);
            assert_checksum(&join(&swapped));
        }
    }
    let mut longer = file;
    longer.push(0);
    let error = ReplayReader::open(&longer, &ReplayLimits::default());
    let damage = Damage::End;
    assert!(matches!(error, Err(ReplayError::Damaged { damage: it, .. }) if it == damage));
}

fn assert_checksum(file: &[u8]) {
    let error = ReplayReader::open(file, &ReplayLimits::default());
    let is_found = matches!(
        error,
        Err(ReplayError::Damaged {
            damage: Damage::Checksum,
            ..
        })
    );
    assert!(is_found, "{error:?}");
}

#[test]
fn a_seal_is_valid_for_its_own_head_only() {
    let rows = rows(2, 60, 12);
    let (mut writer, _, mut file) = recording(config(2, 8, 25), &rows, &[0, 40]);
    writer.seal(b"the end", &mut file).unwrap();
    let end = writer.finish(&mut file);
    let replay = open(&file);
    let seals: Vec<_> = replay.seals().collect();
    assert_eq!(seals.len(), 3);
    let ticks: Vec<_> = seals.iter().map(|(head, _)| head.ticks).collect();
    assert_eq!(ticks, [0, 40, 60]);
    assert_eq!(seals[2], (end, &b"the end"[..]));
    let (shorter, ..) = recording(config(2, 8, 25), &rows[..40], &[]);
    assert_eq!(seals[1].0, shorter.head());
}

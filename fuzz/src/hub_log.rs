//! A hub's log on disk.

use hub::log::format::{self, HEAD_BYTES};
use hub::log::{MemorySegments, OpenError, SegmentFile, SegmentId};
use hub::record::MailVerdict;
use hub::store::NewMail;
use hub::{
    Addr, Command, Completed, Epoch, LogId, MailSeq, Outcome, Redacted, Store, StoreConfig, StoreOp,
};
use wire::{ClientId, CommandId, InstanceId, NodeId, UnixTime};

/// Decodes a payload as a record with a valid checksum. An accepted record has one encoding and
/// decodes at no other position.
pub fn record(data: &[u8]) {
    let mut bytes = Vec::new();
    seal(SegmentId(3), 40, data, &mut bytes);
    assert!(format::decode(&bytes, SegmentId(3), 41).is_err());
    assert!(format::decode(&bytes, SegmentId(4), 40).is_err());
    assert!(format::decode(data, SegmentId(3), 40).is_err());
    if let Ok((record, whole)) = format::decode(&bytes, SegmentId(3), 40) {
        assert_eq!(whole, bytes.len());
        let mut again = Vec::new();
        format::encode(&record, SegmentId(3), 40, &mut again);
        assert_eq!(again, bytes, "two ways to write {record:?}");
    }
}

/// Opens a store on segments that a script has written. If it opens, it opens again with the same
/// mail, accepts another mail, and still has it after the next start.
///
/// The script is a sequence of `kind 1, length 1, bytes`. Kinds 0 and 1 are a record with a valid
/// checksum, 2 is raw bytes, 3 starts another segment.
pub fn recovery(data: &[u8]) {
    let disk = fill(data);
    let store = match open(disk) {
        Ok(store) => store,
        Err(
            OpenError::Corrupt(_) | OpenError::Missing(_) | OpenError::Foreign(_) | OpenError::Full,
        ) => return,
        Err(error) => panic!("nothing failed: {error}"),
    };
    let (mails, totals) = contents(&store);
    let mut store = open(store.into_files()).expect("what has opened opens");
    assert_eq!(contents(&store), (mails, totals), "lost by a start");
    let verdict = append(&mut store);
    let mut store = open(store.into_files()).expect("what has opened opens");
    let read = StoreOp::Read {
        player: PLAYER,
        after: MailSeq(0),
        bytes_max: usize::MAX,
        now: UnixTime::from_millis(0),
    };
    let Ok(Completed::Mails { mails, .. }) = run(&mut store, read) else {
        panic!("a mailbox that is not read");
    };
    let is_there = mails.iter().any(|mail| mail.body.0 == BODY);
    assert_eq!(
        is_there,
        verdict == Some(MailVerdict::Stored),
        "{verdict:?}"
    );
}

const PLAYER: ClientId = ClientId(0xfeed_beef);
const BODY: &[u8] = b"appended by the fuzz function";

fn fill(mut script: &[u8]) -> MemorySegments {
    let mut segments = vec![Vec::new()];
    let mut number = 1;
    while let Some(([kind, len], rest)) = script.split_first_chunk() {
        let len = usize::from(*len).min(rest.len());
        let (bytes, behind) = rest.split_at(len);
        script = behind;
        let Some(segment) = segments.last_mut() else {
            return MemorySegments::new(0);
        };
        match kind % 4 {
            0 | 1 => {
                let offset = u64::try_from(segment.len()).expect("it is in memory");
                seal(SegmentId(number), offset, bytes, segment);
            }
            2 => segment.extend_from_slice(bytes),
            _ => {
                segments.push(Vec::new());
                number += 1;
            }
        }
    }
    let mut disk = MemorySegments::new(16 << 20);
    for (id, bytes) in (1..).map(SegmentId).zip(&segments) {
        let len = u64::try_from(bytes.len()).expect("it is in memory");
        // Space after the written part, as in a preallocated segment.
        disk.allocate(id, len + 600).expect("the disk has room");
        disk.write(id, 0, bytes).expect("the disk works");
        disk.sync(id).expect("the disk works");
    }
    disk
}

fn open(disk: MemorySegments) -> Result<Store<MemorySegments>, OpenError> {
    let mut config = StoreConfig::default();
    config.segment_bytes = 0;
    Store::open(disk, config, LogId(1)).map_err(|failure| failure.error)
}

fn contents(store: &Store<MemorySegments>) -> (usize, Vec<u64>) {
    let totals = store.totals().map(|(_, total)| total).collect();
    (store.mail_count(), totals)
}

/// Joins as a new node and appends one mail.
fn append(store: &mut Store<MemorySegments>) -> Option<MailVerdict> {
    let node = NodeId([0xf5; 32]);
    let join = StoreOp::Join {
        node,
        instance: InstanceId(0xf5f5),
        epoch: Epoch(0),
        role: hub::Role::GameNode,
    };
    let Ok(Completed::Joined {
        epoch, mail_mark, ..
    }) = run(store, join)
    else {
        return None;
    };
    let mail = NewMail {
        to: Addr::Player(PLAYER).into(),
        node,
        epoch,
        seq: mail_mark.next(),
        settled: mail_mark,
        expires: UnixTime::from_millis(u64::MAX),
        priority: 0,
        body: Redacted(bytes::Bytes::from_static(BODY)),
    };
    match run(store, StoreOp::Append(vec![mail])) {
        Ok(Completed::Appended(settled)) => settled.first().map(|one| one.verdict),
        _ => None,
    }
}

fn run(store: &mut Store<MemorySegments>, op: StoreOp) -> Outcome {
    let mut outcomes = Vec::new();
    store.execute([(CommandId(1), Command::Store(op))], &mut outcomes);
    outcomes.pop().expect("every command has its outcome").1
}

/// Writes `payload` as a record with a valid checksum at `offset` of `segment`.
pub(crate) fn seal(segment: SegmentId, offset: u64, payload: &[u8], out: &mut Vec<u8>) {
    let len = u32::try_from(payload.len()).expect("a short payload");
    let mut crc = crc32c::crc32c(&segment.0.to_be_bytes());
    for part in [&offset.to_be_bytes()[..], &len.to_be_bytes(), payload] {
        crc = crc32c::crc32c_append(crc, part);
    }
    let head: [[u8; 4]; HEAD_BYTES / 4] = [crc.to_be_bytes(), len.to_be_bytes()];
    out.extend_from_slice(head.as_flattened());
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_reaches_records_of_both_ages_and_holes() {
        let store = open(fill(include_bytes!("../corpus/hub_recovery/two_segments"))).unwrap();
        assert_eq!(store.recovery().segments, 2);
        assert_eq!(store.recovery().corrupt, 0);
        assert_eq!(store.totals().count(), 1);
        let rot = include_bytes!("../corpus/hub_recovery/rot_in_an_older_one");
        let store = open(fill(rot)).unwrap();
        assert_eq!(store.recovery().corrupt, 1);
        assert!(store.recovery().records > 8, "and what is behind it");
        let begun = include_bytes!("../corpus/hub_recovery/never_begun");
        assert_eq!(open(fill(begun)).unwrap().recovery().segments, 1);
    }
}

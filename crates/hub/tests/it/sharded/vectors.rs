//! The formats of shards are frozen, on the wire and on disk.

use std::fmt::Write as _;

use hub::Shard;
use hub::log::SegmentId;
use hub::log::format::{self, LogRecord};
use hub::record::ToHub;

use super::net::join_file;

#[test]
fn h12_records_of_shards_are_frozen() {
    let shard = Shard::new(1, 3).unwrap();
    let view = join_file(0..3, 0).view_of(shard);
    let mut record = Vec::new();
    ToHub::Shard(view).encode(&mut record);
    assert_eq!(ToHub::decode(&record), Ok(ToHub::Shard(view)));
    let (segment, stored) = (SegmentId(3), LogRecord::Shard(shard));
    let mut logged = Vec::new();
    format::encode(&stored, segment, 512, &mut logged);
    let len = logged.len();
    assert_eq!(format::decode(&logged, segment, 512), Ok((stored, len)));
    let text = include_str!("../../../testdata/shards.hex");
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let mut found = ["view ".to_owned(), "log ".to_owned()];
    for (line, bytes) in found.iter_mut().zip([&record, &logged]) {
        for byte in bytes {
            write!(line, "{byte:02x}").unwrap();
        }
    }
    assert_eq!(lines, found);
    for invalid in [[3, 3], [0, 0], [0, 17]] {
        record[1..3].copy_from_slice(&invalid);
        assert!(ToHub::decode(&record).is_err(), "{invalid:?}");
    }
}

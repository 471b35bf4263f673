//! A folder in use, closed, moved and reopened.

use super::*;

/// A temporary folder that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("tickwire-hub-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

#[test]
fn written_bytes_are_kept_and_space_is_preallocated() {
    let folder = Folder::new("keeps");
    let (first, second) = (SegmentId(1), SegmentId(20));
    let mut files = FileSegments::open(&folder.0).unwrap();
    files.allocate(second, 300_000).unwrap();
    files.allocate(first, 1_000).unwrap();
    files.write(first, 990, b"0123456789").unwrap();
    files.sync(first).unwrap();
    drop(files);
    let mut files = FileSegments::open(&folder.0).unwrap();
    assert_eq!(files.list(), Ok(vec![(first, 1_000), (second, 300_000)]));
    let mut buf = [9; 20];
    assert_eq!(files.read(first, 985, &mut buf), Ok(15));
    assert_eq!(&buf[..15], b"\0\0\0\0\x000123456789");
    files.remove(first).unwrap();
    assert_eq!(files.list(), Ok(vec![(second, 300_000)]));
    assert_eq!(files.remove(first), Err(FileError::Failed));
    assert_eq!(files.allocate(second, 1), Err(FileError::Failed));
    assert_eq!(files.list(), Ok(vec![(second, 300_000)]), "left as it is");
}

#[test]
fn a_file_without_a_segment_name_is_ignored() {
    let folder = Folder::new("names");
    let mut files = FileSegments::open(&folder.0).unwrap();
    files.allocate(SegmentId(1), 1_000).unwrap();
    for name in [
        "1.seg",
        "+1.seg",
        "+000000000000001.seg",
        "00000000000000001.seg",
    ] {
        std::fs::write(folder.0.join(name), b"a copy").unwrap();
    }
    assert_eq!(files.list(), Ok(vec![(SegmentId(1), 1_000)]));
}

#[test]
fn keeps_snapshots_beside_segments() {
    let folder = Folder::new("snapshots");
    let (first, second) = (SnapshotId(1), SnapshotId(30));
    let mut files = FileSegments::open(&folder.0).unwrap();
    files.allocate(SegmentId(1), 1_000).unwrap();
    files.append_snapshot(second, b"abc").unwrap();
    files.append_snapshot(first, b"0123").unwrap();
    files.append_snapshot(second, b"def").unwrap();
    files.sync_snapshot(second).unwrap();
    drop(files);
    std::fs::write(folder.0.join("2.idx"), b"a copy").unwrap();
    let mut files = FileSegments::open(&folder.0).unwrap();
    assert_eq!(files.list(), Ok(vec![(SegmentId(1), 1_000)]));
    assert_eq!(files.list_snapshots(), Ok(vec![first, second]));
    let mut buf = [0; 9];
    assert_eq!(files.read_snapshot(second, 2, &mut buf), Ok(4));
    assert_eq!(&buf[..4], b"cdef");
    files.remove_snapshot(second).unwrap();
    assert_eq!(files.list_snapshots(), Ok(vec![first]));
    assert_eq!(files.remove_snapshot(second), Err(FileError::Failed));
    assert_eq!(files.list_snapshots(), Ok(vec![first]));
}

#[test]
fn the_newest_segments_stay_open_during_any_reads() {
    let folder = Folder::new("open");
    let mut files = FileSegments::open(&folder.0).unwrap();
    let last = 40;
    for id in 1..=last {
        files.allocate(SegmentId(id), 600).unwrap();
    }
    let mut buf = [0; 8];
    for id in 1..=last - 2 {
        files.read(SegmentId(id), 0, &mut buf).unwrap();
        assert!(files.open.len() <= OPEN_MAX);
    }
    for id in [last - 1, last] {
        assert!(files.open.contains_key(&SegmentId(id)));
        // Written through the open descriptor: the path no longer exists.
        std::fs::rename(files.path(SegmentId(id)), folder.0.join("moved")).unwrap();
        files.write(SegmentId(id), 0, b"written").unwrap();
        files.sync(SegmentId(id)).unwrap();
    }
}

#[test]
fn a_folder_is_locked_by_one_process_at_a_time() {
    let folder = Folder::new("lock");
    let files = FileSegments::open(&folder.0).unwrap();
    let error = FileSegments::open(&folder.0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    drop(files);
    FileSegments::open(&folder.0).unwrap();
}

#[cfg(unix)]
#[test]
fn hub_1_a_removed_folder_is_a_failed_disk_not_a_full_one() {
    use crate::field::{Addr, Epoch, LogId, SenderSeq};
    use crate::store::{Command, NewMail, Store, StoreConfig, StoreError, StoreOp};
    use wire::{ClientId, CommandId, InstanceId, NodeId, UnixTime};

    let (folder, away) = (Folder::new("gone"), Folder::new("gone-away"));
    let files = FileSegments::open(&folder.0).unwrap();
    let config = StoreConfig {
        segment_bytes: 0,
        ..StoreConfig::default()
    };
    let mut store = Store::open(files, config, LogId(1)).unwrap();
    let mut outcomes = Vec::new();
    let node = NodeId([1; 32]);
    let join = StoreOp::Join {
        node,
        instance: InstanceId(1),
        epoch: Epoch(0),
        role: crate::field::Role::GameNode,
    };
    store.execute([(CommandId(1), Command::Store(join))], &mut outcomes);
    while store.tidy() {}
    std::fs::rename(&folder.0, &away.0).unwrap();
    // Until the open segment is full and the next one cannot be created.
    for number in 1..=64 {
        let mail = NewMail {
            to: Addr::Player(ClientId(number)).into(),
            node,
            epoch: Epoch(1),
            seq: SenderSeq(number),
            settled: SenderSeq(number - 1),
            expires: UnixTime::from_millis(u64::MAX),
            priority: 0,
            body: bytes::Bytes::from(vec![0; 60_000]).into(),
        };
        let append = Command::Store(StoreOp::Append(vec![mail]));
        outcomes.clear();
        store.execute([(CommandId(number), append)], &mut outcomes);
        while store.tidy() {}
        if store.is_dead() {
            break;
        }
    }
    assert!(store.is_dead());
    store.execute(
        [(
            CommandId(99),
            Command::Store(StoreOp::Expire {
                now: UnixTime::from_millis(1),
            }),
        )],
        &mut outcomes,
    );
    let last = outcomes.last();
    assert_eq!(last, Some(&(CommandId(99), Err(StoreError::Failed))));
}

#[cfg(unix)]
#[test]
fn shortage_of_descriptors_or_memory_is_transient() {
    for code in [23, 24] {
        assert!(is_shortage(&io::Error::from_raw_os_error(code)));
    }
    assert!(is_shortage(&ErrorKind::OutOfMemory.into()));
    for kind in [ErrorKind::NotFound, ErrorKind::ReadOnlyFilesystem] {
        assert!(!is_shortage(&kind.into()));
    }
}

#[test]
fn a_reopened_store_has_its_mail() {
    use crate::field::{Epoch, LogId};
    use crate::store::{Command, Store, StoreConfig, StoreOp};
    use wire::{CommandId, InstanceId, NodeId};

    let folder = Folder::new("store");
    for boot in 1..=2 {
        let files = FileSegments::open(&folder.0).unwrap();
        let config = StoreConfig {
            segment_bytes: 0,
            ..StoreConfig::default()
        };
        let mut store = Store::open(files, config, LogId(1)).unwrap();
        let join = StoreOp::Join {
            node: NodeId([1; 32]),
            instance: InstanceId(boot),
            epoch: Epoch(0),
            role: crate::field::Role::GameNode,
        };
        let mut outcomes = Vec::new();
        store.execute([(CommandId(1), Command::Store(join))], &mut outcomes);
        while store.tidy() {}
        let text = format!("{outcomes:?}");
        assert!(text.contains(&format!("Epoch({boot})")), "{text}");
    }
}

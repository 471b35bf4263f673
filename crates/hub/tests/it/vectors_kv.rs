//! The formats of the key-value store, on the wire and on disk, and of presence filters are frozen.

use std::fmt::Write;

use hub::kv::{Durability, KvError, KvKey, KvLease, KvPrefix, KvRange, Revision};
use hub::log::format::{self, LogRecord, StoredKv};
use hub::log::snapshot_format::{self, KeyEntry, SnapshotRecord};
use hub::log::{SegmentId, SnapshotId};
use hub::record::{
    KvItem, KvToHub, KvToNode, NodeFilter, PlayerFilter, PresenceFilter, ToHub, ToNode,
};
use hub::{Epoch, KvRequest, Name, Redacted, Role, WatchId};
use wire::{ClientId, NodeId};

const REQUEST: KvRequest = KvRequest(0x0102);
const WATCH: WatchId = WatchId(0x0304);
const REVISION: Revision = Revision(0x0506_0708);
const LEASE: KvLease = KvLease {
    node: NodeId([0xab; 32]),
    epoch: Epoch(4),
};

fn key() -> KvKey {
    KvKey::new("match/7").unwrap()
}

/// Asserts that `records`, one a line, are the lines of `text` that are not comments.
fn compare(file: &str, text: &str, records: Vec<(&str, Vec<u8>)>) {
    let mut found = String::new();
    for (name, bytes) in records {
        write!(found, "{name} ").unwrap();
        for byte in bytes {
            write!(found, "{byte:02x}").unwrap();
        }
        found.push('\n');
    }
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let expected: String = lines.flat_map(|line| [line, "\n"]).collect();
    assert_eq!(expected, found, "{file} should be:\n{found}");
}

#[test]
fn h12_key_records_of_nodes_are_frozen() {
    let put = |durability, lease, expected| KvToHub::Put {
        request: REQUEST,
        key: key(),
        durability,
        lease,
        expected,
        value: Redacted(&b"on"[..]),
    };
    let records = [
        ("put", put(Durability::Disk, false, None)),
        (
            "put_if_absent",
            put(Durability::Memory, true, Some(Revision::NONE)),
        ),
        (
            "delete",
            KvToHub::Delete {
                request: REQUEST,
                key: key(),
                expected: Some(REVISION),
            },
        ),
        (
            "get",
            KvToHub::Get {
                request: REQUEST,
                key: key(),
            },
        ),
        (
            "range",
            KvToHub::Range {
                request: REQUEST,
                limit: 100,
                range: KvRange::prefix(&KvPrefix::new("match/").unwrap()),
            },
        ),
        (
            "watch",
            KvToHub::Watch {
                watch: WATCH,
                from: REVISION,
                prefix: KvPrefix::new("match/").unwrap(),
            },
        ),
        ("unwatch", KvToHub::Unwatch(WATCH)),
    ];
    let encoded = records.map(|(name, record)| {
        let record = ToHub::Kv(record);
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(ToHub::decode(&bytes), Ok(record));
        (name, bytes)
    });
    let text = include_str!("../../testdata/kv_to_hub.hex");
    compare("kv_to_hub.hex", text, encoded.into());
}

fn records_of_hub() -> [(&'static str, KvToNode<'static>); 16] {
    let done = |result| KvToNode::Done {
        request: REQUEST,
        result,
    };
    let item = || KvItem {
        key: key(),
        revision: REVISION,
        lease: Some(LEASE),
        value: Redacted(&b"on"[..]),
    };
    let change = |value| KvToNode::Change {
        watch: WATCH,
        key: key(),
        revision: REVISION,
        value,
    };
    [
        ("done", done(Ok(REVISION))),
        (
            "conflict",
            done(Err(KvError::Conflict { current: REVISION })),
        ),
        ("not_found", done(Err(KvError::NotFound))),
        ("full", done(Err(KvError::Full))),
        ("busy", done(Err(KvError::Busy))),
        ("too_large", done(Err(KvError::TooLarge))),
        ("other_durability", done(Err(KvError::OtherDurability))),
        ("hub_down", done(Err(KvError::HubDown))),
        ("unknown", done(Err(KvError::Unknown))),
        (
            "entry",
            KvToNode::Entry {
                request: REQUEST,
                item: Some(item()),
            },
        ),
        (
            "no_entry",
            KvToNode::Entry {
                request: REQUEST,
                item: None,
            },
        ),
        (
            "page",
            KvToNode::Page {
                request: REQUEST,
                more: true,
                items: vec![item()],
            },
        ),
        ("reset", KvToNode::Reset(WATCH)),
        ("set", change(Some((Redacted(&b"on"[..]), Some(LEASE))))),
        ("deleted", change(None)),
        (
            "complete",
            KvToNode::Complete {
                watch: WATCH,
                revision: REVISION,
            },
        ),
    ]
}

#[test]
fn h12_key_records_of_the_hub_are_frozen() {
    let encoded = records_of_hub().map(|(name, record)| {
        let record = ToNode::Kv(record);
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(ToNode::decode(&bytes), Ok(record));
        (name, bytes)
    });
    let text = include_str!("../../testdata/kv_to_node.hex");
    compare("kv_to_node.hex", text, encoded.into());
}

#[test]
fn h12_key_records_of_the_log_are_frozen() {
    let (segment, offset) = (SegmentId(3), 512);
    let set = |lease| {
        LogRecord::KvSet(StoredKv {
            sequence: 0x0506,
            by: None,
            lease,
            key: key(),
            value: Redacted(b"on"),
        })
    };
    let deleted = LogRecord::KvDelete {
        sequence: 0x0507,
        key: key(),
    };
    let records = [
        ("set", set(None)),
        ("set_with_lease", set(Some(LEASE))),
        ("deleted", deleted),
        ("mark", LogRecord::KvMark(0x0508)),
    ];
    let mut encoded: Vec<_> = records
        .map(|(name, record)| {
            let mut bytes = Vec::new();
            format::encode(&record, segment, offset, &mut bytes);
            let len = bytes.len();
            assert_eq!(format::decode(&bytes, segment, offset), Ok((record, len)));
            (name, bytes)
        })
        .into();
    let entry = |sequence| KeyEntry {
        sequence,
        segment: 2,
        offset: 0x0304_0506,
        len: 0x0123,
    };
    let (keys, snapshot) = ([entry(9), entry(10)], SnapshotId(3));
    let mut bytes = Vec::new();
    snapshot_format::encode_keys(&keys, snapshot, offset, &mut bytes);
    let (decoded, _) = snapshot_format::decode(&bytes, snapshot, offset).unwrap();
    let SnapshotRecord::Keys(found) = decoded else {
        panic!("{decoded:?}");
    };
    assert!(found.iter().eq(keys));
    encoded.push(("snapshot_keys", bytes));
    let text = include_str!("../../testdata/kv_log.hex");
    compare("kv_log.hex", text, encoded);
}

#[test]
fn h12_key_records_with_their_writer_are_frozen() {
    let (segment, offset) = (SegmentId(3), 512);
    let record = LogRecord::KvSet(StoredKv {
        sequence: 0x0506,
        by: Some(NodeId([0xcd; 32])),
        lease: None,
        key: key(),
        value: Redacted(b"on"),
    });
    let mut bytes = Vec::new();
    format::encode(&record, segment, offset, &mut bytes);
    let len = bytes.len();
    assert_eq!(format::decode(&bytes, segment, offset), Ok((record, len)));
    let over_share = ToNode::Kv(KvToNode::Done {
        request: KvRequest(0x0102),
        result: Err(KvError::OverShare),
    });
    let mut answer = Vec::new();
    over_share.encode(&mut answer);
    assert_eq!(ToNode::decode(&answer), Ok(over_share));
    let encoded = vec![("set_by", bytes), ("over_share", answer)];
    let text = include_str!("../../testdata/kv_share.hex");
    compare("kv_share.hex", text, encoded);
}

#[test]
fn h12_presence_filters_are_frozen() {
    let matching = NodeFilter::Matching {
        roles: vec![Role::Matchmaker],
        services: vec![Name::new("shop").unwrap()],
    };
    let list = PlayerFilter::players(&[ClientId(0x0103), ClientId(0x0102)]).unwrap();
    let records = [
        (
            "nodes_and_range",
            matching,
            PlayerFilter::Range(ClientId(1), ClientId(2)),
        ),
        ("list", NodeFilter::None, list),
        ("all", NodeFilter::All, PlayerFilter::All),
    ];
    let encoded = records.map(|(name, nodes, players)| {
        let record = ToHub::Watch(PresenceFilter { nodes, players });
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(ToHub::decode(&bytes), Ok(record));
        (name, bytes)
    });
    let text = include_str!("../../testdata/presence.hex");
    compare("presence.hex", text, encoded.into());
}

//! The formats on the wire and on disk are frozen: one line of a file per record.

use std::collections::BTreeMap;
use std::fmt::Write;

use hub::log::format::{LogRecord, NodeRun, Start, StoredMail, StoredMailing};
use hub::log::snapshot_format::{
    self, IndexEntry, MailSize, SnapshotEnd, SnapshotHead, SnapshotRecord,
};
use hub::log::{SegmentId, SnapshotId, format};
use hub::record::{
    CallError, CallRequest, ClaimRequest, Delivery, DownReason, GroupAction, GroupError,
    GroupToHub, GroupToNode, Join, LiveOutcome, LiveToHub, LiveToNode, MailManySubmission,
    MailRefusal, MailSubmission, MailVerdict, NodeInfo, PartRefusal, PlayerList, Recipients,
    Request, RevokeReason, ToHub, ToNode, code,
};
use hub::{
    Addr, BatchSeq, CallId, ClaimGrant, ClaimNumber, CountKey, Epoch, GrantTerms, GroupId,
    GroupRequest, Lease, LiveSeq, LogId, MailSeq, Name, Redacted, RequestId, Role, SenderSeq,
};
use wire::{ClientId, InstanceId, NodeId, UnixTime};

const PLAYER: ClientId = ClientId(0x0102);
const NODE: NodeId = NodeId([0xab; 32]);

/// The lines `name hex` of a file. `#` starts a comment.
fn vectors(text: &str) -> BTreeMap<&str, Vec<u8>> {
    text.lines()
        .filter_map(|line| line.split('#').next()?.split_once(' '))
        .map(|(name, hex)| {
            let digits: Vec<_> = hex.trim().as_bytes().chunks(2).collect();
            let bytes = digits
                .iter()
                .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap());
            (name, bytes.collect())
        })
        .collect()
}

/// Asserts that every record of `records` has its line, and that there is no other line.
fn compare(file: &str, text: &str, records: Vec<(&str, Vec<u8>)>) {
    let expected = vectors(text);
    let found: BTreeMap<_, _> = records.into_iter().collect();
    for (name, bytes) in &found {
        let mut hex = String::new();
        for byte in bytes {
            write!(hex, "{byte:02x}").unwrap();
        }
        assert_eq!(expected.get(name), Some(bytes), "{file}: {name} {hex}");
    }
    assert_eq!(expected.len(), found.len(), "{file} has other lines");
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn key() -> CountKey {
    CountKey::new(name("kill"), &[(name("map"), name("dust"))]).unwrap()
}

#[expect(clippy::too_many_lines, reason = "a table, one entry for each record")]
fn records_of_nodes() -> Vec<(&'static str, ToHub<'static>)> {
    vec![
        (
            "join",
            ToHub::Join(Join {
                version: 1,
                role: Role::Matchmaker,
                instance: InstanceId(0x1122),
                epoch: Epoch(3),
                watch: Join::WATCH_NODES,
                services: vec![name("matchmaker")],
            }),
        ),
        ("heartbeat", ToHub::Heartbeat),
        ("leave", ToHub::Leave),
        (
            "call",
            ToHub::Call(CallRequest {
                call: CallId(5),
                timeout_ms: 1_000,
                to: Addr::Service(name("shop")),
                body: Redacted(b"buy"),
            }),
        ),
        (
            "reply",
            ToHub::Reply {
                request: RequestId(6),
                result: Ok(Redacted(b"done")),
            },
        ),
        (
            "reply_error",
            ToHub::Reply {
                request: RequestId(6),
                result: Err(CallError::Refused),
            },
        ),
        (
            "mail",
            ToHub::Mail(MailSubmission {
                seq: SenderSeq(8),
                settled: SenderSeq(7),
                ttl_s: 60,
                to: Addr::Player(PLAYER),
                body: Redacted(b"hi"),
            }),
        ),
        (
            "mail_ack",
            ToHub::MailAck {
                player: PLAYER,
                upto: MailSeq(9),
            },
        ),
        (
            "claim",
            ToHub::Claim(ClaimRequest {
                player: PLAYER,
                claim: ClaimNumber(1),
                lease: Lease::new(2, 3),
                delivered: MailSeq(9),
                acknowledged: MailSeq(8),
                meta: Redacted(b"lobby"),
            }),
        ),
        (
            "release",
            ToHub::Release {
                player: PLAYER,
                claim: ClaimNumber(1),
            },
        ),
        (
            "broadcast",
            ToHub::Broadcast {
                topic: name("news"),
                body: Redacted(b"all"),
            },
        ),
        (
            "counts",
            ToHub::Counts {
                batch: BatchSeq(4),
                entries: vec![(key(), 2)],
            },
        ),
        ("cancel", ToHub::Cancel { call: CallId(5) }),
        ("group_join", of_group(5, GroupAction::Join(PLAYER))),
        ("group_leave", of_group(6, GroupAction::Leave(PLAYER))),
        ("group_list", of_group(7, GroupAction::List(ClientId(0)))),
        (
            "group_send",
            of_group(8, GroupAction::Send(Redacted(b"raid"))),
        ),
        (
            "mail_many",
            ToHub::MailMany(MailManySubmission {
                seq: SenderSeq(9),
                settled: SenderSeq(8),
                ttl_s: 60,
                priority: 3,
                to: Recipients::Players(players()),
                body: Redacted(b"hi"),
            }),
        ),
        (
            "mail_group",
            ToHub::MailMany(MailManySubmission {
                seq: SenderSeq(10),
                settled: SenderSeq(8),
                ttl_s: 0,
                priority: 0,
                to: Recipients::Group(GROUP),
                body: Redacted(b"hi"),
            }),
        ),
        (
            "live_forward",
            ToHub::Live(LiveToHub::Forward {
                live: LiveSeq(4),
                players: players(),
                body: Redacted(b"gg"),
            }),
        ),
        (
            "live_cast",
            ToHub::Live(LiveToHub::Cast {
                live: LiveSeq(5),
                topic: name("guild.7"),
                body: Redacted(b"raid"),
            }),
        ),
        (
            "live_kick",
            ToHub::Live(LiveToHub::Kick {
                live: LiveSeq(6),
                player: PLAYER,
                reason: Redacted(b"cheat"),
            }),
        ),
        (
            "live_subscribe",
            ToHub::Live(LiveToHub::Subscribe(name("guild.7"))),
        ),
        (
            "live_unsubscribe",
            ToHub::Live(LiveToHub::Unsubscribe(name("guild.7"))),
        ),
    ]
}

const GROUP: GroupId = GroupId(0x0304);

fn of_group(request: u64, action: GroupAction<'static>) -> ToHub<'static> {
    ToHub::Group(GroupToHub {
        request: GroupRequest(request),
        group: GROUP,
        action,
    })
}

fn group_answers() -> Vec<(&'static str, ToNode<'static>)> {
    let done = |request, result| GroupToNode::Done {
        request: GroupRequest(request),
        result,
    };
    let page = |players, more| GroupToNode::Members {
        request: GroupRequest(7),
        players,
        more,
    };
    let sent = GroupToNode::Sent {
        request: GroupRequest(8),
        outcome: outcome(),
    };
    vec![
        ("group_done", ToNode::Group(done(5, Ok(())))),
        (
            "group_refused",
            ToNode::Group(done(6, Err(GroupError::GroupFull))),
        ),
        (
            "group_members",
            ToNode::Group(page(Some(players().to_ids()), true)),
        ),
        ("group_empty", ToNode::Group(page(None, false))),
        ("group_sent", ToNode::Group(sent)),
    ]
}

fn players() -> PlayerList<'static> {
    let buf = Box::leak(Box::new(Vec::new()));
    PlayerList::encode_into(&[PLAYER, ClientId(3)], buf).unwrap()
}

#[expect(clippy::too_many_lines, reason = "a table, one entry for each record")]
fn records_of_hub() -> Vec<(&'static str, ToNode<'static>)> {
    vec![
        (
            "joined",
            ToNode::Joined {
                epoch: Epoch(4),
                boot: 2,
                log: LogId(0x0506),
                mail_mark: SenderSeq(7),
                count_mark: BatchSeq(3),
            },
        ),
        ("heartbeat", ToNode::Heartbeat),
        ("down", ToNode::Down(DownReason::Fenced)),
        (
            "request",
            ToNode::Request(Request {
                request: RequestId(6),
                from: NODE,
                instance: InstanceId(0x1122),
                timeout_ms: 1_000,
                to: Addr::Node(NODE),
                body: Redacted(b"buy"),
            }),
        ),
        (
            "call_reply",
            ToNode::Reply {
                call: CallId(5),
                result: Err(CallError::TimedOut),
            },
        ),
        (
            "mail_stored",
            ToNode::MailSettled {
                first: SenderSeq(1),
                last: SenderSeq(8),
                verdict: MailVerdict::Stored,
                retry_ms: 0,
            },
        ),
        (
            "mail_refused",
            ToNode::MailSettled {
                first: SenderSeq(9),
                last: SenderSeq(9),
                verdict: MailVerdict::Refused(MailRefusal::MailboxFull),
                retry_ms: 0,
            },
        ),
        (
            "mail_busy",
            ToNode::MailSettled {
                first: SenderSeq(10),
                last: SenderSeq(10),
                verdict: MailVerdict::Busy,
                retry_ms: 100,
            },
        ),
        (
            "mail_part_refused",
            ToNode::MailPartRefused {
                seq: SenderSeq(11),
                part: part(),
            },
        ),
        (
            "deliver",
            ToNode::Deliver(Delivery {
                player: PLAYER,
                claim: ClaimNumber(1),
                seq: MailSeq(9),
                from: NODE,
                epoch: Epoch(4),
                sender_seq: SenderSeq(8),
                body: Redacted(b"hi"),
            }),
        ),
        (
            "granted",
            ToNode::Granted {
                player: PLAYER,
                claim: ClaimNumber(1),
                lease: Lease::new(2, 3),
            },
        ),
        (
            "revoked",
            ToNode::Revoked {
                player: PLAYER,
                claim: ClaimNumber(1),
                reason: RevokeReason::Taken,
            },
        ),
        (
            "hub_broadcast",
            ToNode::Broadcast {
                from: NODE,
                topic: name("news"),
                body: Redacted(b"all"),
            },
        ),
        ("counted", ToNode::Counted { upto: BatchSeq(4) }),
        ("presence_reset", ToNode::PresenceReset),
        (
            "presence_node",
            ToNode::PresenceNode {
                node: NODE,
                info: Some(NodeInfo {
                    instance: InstanceId(0x1122),
                    epoch: Epoch(4),
                    role: Role::GameNode,
                    services: vec![name("shop")],
                }),
            },
        ),
        (
            "presence_player",
            ToNode::PresencePlayer {
                player: PLAYER,
                holder: Some((NODE, Redacted(b"lobby"))),
            },
        ),
        ("presence_complete", ToNode::PresenceComplete),
        (
            "cancelled",
            ToNode::Cancelled {
                request: RequestId(6),
            },
        ),
        (
            "mailbox_empty",
            ToNode::MailboxEmpty {
                player: PLAYER,
                claim: ClaimNumber(1),
                settled: SenderSeq(8),
            },
        ),
        (
            "live_forward",
            ToNode::Live(LiveToNode::Forward {
                from: NODE,
                players: players(),
                body: Redacted(b"gg"),
            }),
        ),
        (
            "live_cast",
            ToNode::Live(LiveToNode::Cast {
                from: NODE,
                topic: name("guild.7"),
                body: Redacted(b"raid"),
            }),
        ),
        (
            "live_kick",
            ToNode::Live(LiveToNode::Kick {
                player: PLAYER,
                claim: ClaimNumber(1),
                from: NODE,
                reason: Redacted(b"cheat"),
            }),
        ),
        (
            "live_sent",
            ToNode::Live(LiveToNode::Sent {
                first: LiveSeq(4),
                last: LiveSeq(5),
                outcome: outcome(),
            }),
        ),
        ("live_missed", ToNode::Live(LiveToNode::Missed(3))),
    ]
}

/// The second of two players is rejected.
fn part() -> PartRefusal {
    let reason = MailRefusal::MailboxFull;
    PartRefusal::of_players(reason, players(), |player| player == PLAYER).unwrap()
}

fn outcome() -> LiveOutcome {
    let mut outcome = LiveOutcome::default();
    outcome.reached = 2;
    outcome.offline = 1;
    outcome.busy = 3;
    outcome.refused = 4;
    outcome
}

#[expect(clippy::too_many_lines, reason = "a table, one entry for each record")]
fn kept() -> Vec<(&'static str, LogRecord<'static>)> {
    vec![
        (
            "start",
            LogRecord::Start(Start {
                version: format::VERSION,
                boot: 2,
                last_mail: MailSeq(9),
                log: LogId(0x0506),
                time: UnixTime::from_millis(0x0708),
            }),
        ),
        ("ready", LogRecord::Ready),
        ("time", LogRecord::Time(UnixTime::from_millis(0x0809))),
        ("boot", LogRecord::Boot(3)),
        (
            "node",
            LogRecord::Node(NodeRun {
                node: NODE,
                instance: InstanceId(0x1122),
                epoch: Epoch(4),
                mail_mark: SenderSeq(8),
                count_mark: BatchSeq(3),
                role: None,
            }),
        ),
        (
            "mail",
            LogRecord::Mail(StoredMail {
                seq: MailSeq(9),
                player: PLAYER,
                expires: UnixTime::from_millis(0x0102_0304),
                node: NODE,
                epoch: Epoch(4),
                sender_seq: SenderSeq(8),
                body: Redacted(b"hi"),
            }),
        ),
        (
            "ack",
            LogRecord::Ack {
                player: PLAYER,
                upto: MailSeq(9),
            },
        ),
        (
            "refusal",
            LogRecord::Refusal {
                node: NODE,
                epoch: Epoch(4),
                seq: SenderSeq(9),
                reason: MailRefusal::MailboxFull,
            },
        ),
        (
            "counts",
            LogRecord::Counts {
                node: NODE,
                epoch: Epoch(4),
                batch: BatchSeq(4),
                entries: vec![(key(), 2)],
            },
        ),
        (
            "total",
            LogRecord::Total {
                key: key(),
                total: 7,
            },
        ),
        (
            "mailing",
            LogRecord::Mailing(StoredMailing {
                seq: MailSeq(10),
                expires: UnixTime::from_millis(0x0102_0304),
                node: NODE,
                epoch: Epoch(4),
                sender_seq: SenderSeq(9),
                priority: 3,
                players: players(),
                part: None,
                body: Redacted(b"hi"),
            }),
        ),
        (
            "mailing_part",
            LogRecord::Mailing(StoredMailing {
                seq: MailSeq(11),
                expires: UnixTime::from_millis(0x0102_0304),
                node: NODE,
                epoch: Epoch(4),
                sender_seq: SenderSeq(10),
                priority: 0,
                players: players(),
                part: Some(part()),
                body: Redacted(b"hi"),
            }),
        ),
        (
            "part_refusal",
            LogRecord::PartRefusal {
                node: NODE,
                epoch: Epoch(4),
                seq: SenderSeq(11),
                part: part(),
            },
        ),
        (
            "dropped",
            LogRecord::Dropped(vec![(PLAYER, MailSeq(9)), (ClientId(3), MailSeq(8))]),
        ),
        (
            "group_join",
            LogRecord::GroupJoin {
                group: GROUP,
                player: PLAYER,
            },
        ),
        (
            "group_leave",
            LogRecord::GroupLeave {
                group: GROUP,
                player: PLAYER,
            },
        ),
        (
            "group_members",
            LogRecord::GroupMembers {
                group: GROUP,
                players: players().to_ids(),
            },
        ),
    ]
}

#[test]
fn records_of_nodes_are_frozen() {
    let mut encoded = Vec::new();
    for (name, record) in records_of_nodes() {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(ToHub::decode(&bytes), Ok(record));
        encoded.push((name, bytes));
    }
    compare(
        "to_hub.hex",
        include_str!("../../testdata/to_hub.hex"),
        encoded,
    );
}

#[test]
fn records_of_the_hub_are_frozen() {
    let mut encoded = Vec::new();
    for (name, record) in records_of_hub().into_iter().chain(group_answers()) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(ToNode::decode(&bytes), Ok(record));
        encoded.push((name, bytes));
    }
    compare(
        "to_node.hex",
        include_str!("../../testdata/to_node.hex"),
        encoded,
    );
}

#[test]
fn a_claim_with_a_grant_is_frozen() {
    let terms = GrantTerms {
        player: PLAYER,
        node: NODE,
        not_after: UnixTime::from_secs(0x0102_0304),
    };
    let mut key = [5; 65];
    key[0] = 4;
    let grant = ClaimGrant::new(&terms, &key, &[6; 64]);
    assert_eq!(ClaimGrant::parse(grant.as_bytes()), Some(grant));
    assert_eq!(grant.terms(), terms);
    let mut message = b"tw1 hub claim grant".to_vec();
    message.extend_from_slice(&grant.as_bytes()[..114]);
    assert_eq!(ClaimGrant::message(&terms, &key)[..], message[..]);
    let record = ToHub::ClaimGranted {
        claim: ClaimRequest {
            player: PLAYER,
            claim: ClaimNumber(1),
            lease: Lease::new(4, 2),
            delivered: MailSeq(9),
            acknowledged: MailSeq(8),
            meta: Redacted(b"note"),
        },
        grant: grant.as_bytes(),
    };
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    assert_eq!(ToHub::decode(&bytes), Ok(record));
    let text = include_str!("../../testdata/to_hub_grant.hex");
    let encoded = vec![("claim_granted", bytes)];
    compare("to_hub_grant.hex", text, encoded);
}

#[test]
fn records_about_the_room_of_a_store_are_frozen() {
    let full = ToNode::MailSettled {
        first: SenderSeq(10),
        last: SenderSeq(11),
        verdict: MailVerdict::Full,
        retry_ms: 100,
    };
    let encoded = [("mail_full", full), ("has_room", ToNode::HasRoom)].map(|(name, record)| {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(ToNode::decode(&bytes), Ok(record));
        (name, bytes)
    });
    let text = include_str!("../../testdata/to_node_room.hex");
    compare("to_node_room.hex", text, encoded.into());
}

#[test]
fn records_of_the_log_are_frozen() {
    let (segment, offset) = (SegmentId(3), 512);
    let mut encoded = Vec::new();
    for (name, record) in kept() {
        let mut bytes = Vec::new();
        format::encode(&record, segment, offset, &mut bytes);
        let len = bytes.len();
        assert_eq!(format::decode(&bytes, segment, offset), Ok((record, len)));
        encoded.push((name, bytes));
    }
    compare("log.hex", include_str!("../../testdata/log.hex"), encoded);
}

#[test]
fn records_about_the_upkeep_of_a_store_are_frozen() {
    let (segment, offset) = (SegmentId(3), 512);
    let encoded = [("ran", LogRecord::Ran(0x0102_0304))].map(|(name, record)| {
        let mut bytes = Vec::new();
        format::encode(&record, segment, offset, &mut bytes);
        let len = bytes.len();
        assert_eq!(format::decode(&bytes, segment, offset), Ok((record, len)));
        (name, bytes)
    });
    let text = include_str!("../../testdata/log_upkeep.hex");
    compare("log_upkeep.hex", text, encoded.into());
}

#[test]
fn records_of_a_snapshot_are_frozen() {
    let (snapshot, offset) = (SnapshotId(3), 512);
    let head = SnapshotHead {
        log: LogId(0x0708),
        segment: SegmentId(4),
        start_checksum: 0x0a0b_0c0d,
    };
    let entry = |player, seq| IndexEntry {
        player,
        seq: MailSeq(seq),
        segment: 2,
        offset: 0x0304_0506,
        size: MailSize::own(0x0123),
        expires_s: 0x6b00_0000,
        sender: 0,
    };
    let entries = [entry(PLAYER, 9), entry(PLAYER, 10)];
    let end = SnapshotEnd {
        entries: 2,
        segment: SegmentId(5),
        offset: 0x0607,
    };
    let mut encoded = [Vec::new(), Vec::new(), Vec::new()];
    snapshot_format::encode_head(&head, snapshot, offset, &mut encoded[0]);
    snapshot_format::encode_entries(&entries, snapshot, offset, &mut encoded[1]);
    snapshot_format::encode_end(&end, snapshot, offset, &mut encoded[2]);
    let decoded = encoded.each_ref().map(|bytes| {
        let (record, whole) = snapshot_format::decode(bytes, snapshot, offset).unwrap();
        assert_eq!(whole, bytes.len());
        record
    });
    assert_eq!(decoded[0], SnapshotRecord::Head(head));
    let SnapshotRecord::Entries(found) = decoded[1] else {
        panic!("{:?}", decoded[1]);
    };
    assert!(found.iter().eq(entries));
    assert_eq!(decoded[2], SnapshotRecord::End(end));
    let encoded = ["head", "entries", "end"].into_iter().zip(encoded);
    let text = include_str!("../../testdata/snapshot.hex");
    compare("snapshot.hex", text, encoded.collect());
}

#[test]
fn records_about_senders_are_frozen() {
    let over_share = ToNode::MailSettled {
        first: SenderSeq(10),
        last: SenderSeq(11),
        verdict: MailVerdict::OverShare,
        retry_ms: 100,
    };
    let mut bytes = Vec::new();
    over_share.encode(&mut bytes);
    assert_eq!(ToNode::decode(&bytes), Ok(over_share));
    let text = include_str!("../../testdata/to_node_share.hex");
    compare("to_node_share.hex", text, vec![("mail_over_share", bytes)]);
    let run = NodeRun {
        node: NODE,
        instance: InstanceId(0x1122),
        epoch: Epoch(4),
        mail_mark: SenderSeq(8),
        count_mark: BatchSeq(3),
        role: Some(Role::Matchmaker),
    };
    let records = [
        ("purged", LogRecord::Purged(NODE)),
        ("node_with_role", LogRecord::Node(run)),
    ];
    let encoded = records.map(|(name, record)| {
        let (segment, offset) = (SegmentId(3), 512);
        let mut bytes = Vec::new();
        format::encode(&record, segment, offset, &mut bytes);
        let len = bytes.len();
        assert_eq!(format::decode(&bytes, segment, offset), Ok((record, len)));
        (name, bytes)
    });
    let text = include_str!("../../testdata/log_senders.hex");
    compare("log_senders.hex", text, encoded.into());
}

#[test]
fn the_senders_of_a_snapshot_are_frozen() {
    let (snapshot, offset) = (SnapshotId(3), 512);
    let entry = |seq, sender| IndexEntry {
        player: PLAYER,
        seq: MailSeq(seq),
        segment: 2,
        offset: 0x0304_0506,
        size: MailSize::own(0x0123),
        expires_s: 0x6b00_0000,
        sender,
    };
    let entries = [entry(9, 1), entry(10, 0x0102)];
    let senders = [(1, NODE), (0x0102, NodeId([9; 32]))];
    let mut encoded = [Vec::new(), Vec::new()];
    snapshot_format::encode_sent_entries(&entries, snapshot, offset, &mut encoded[0]);
    snapshot_format::encode_senders(&senders, snapshot, offset, &mut encoded[1]);
    let decoded = encoded.each_ref().map(|bytes| {
        let (record, whole) = snapshot_format::decode(bytes, snapshot, offset).unwrap();
        assert_eq!(whole, bytes.len());
        record
    });
    let [
        SnapshotRecord::SentEntries(found),
        SnapshotRecord::Senders(named),
    ] = decoded
    else {
        panic!("{decoded:?}");
    };
    assert!(found.iter().eq(entries) && named.iter().eq(senders));
    let encoded = ["sent_entries", "senders"].into_iter().zip(encoded);
    let text = include_str!("../../testdata/snapshot_senders.hex");
    compare("snapshot_senders.hex", text, encoded.collect());
}

#[test]
fn reserved_codes_are_refused_in_both_directions() {
    for (first, last) in code::RESERVED {
        for code in first..=last {
            let record = [code; 64];
            assert!(ToHub::decode(&record).is_err(), "{code}");
            assert!(ToNode::decode(&record).is_err(), "{code}");
        }
    }
}

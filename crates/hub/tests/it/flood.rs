//! One node that exceeds every limit: the others still work, and the hub's memory stays bounded.

use std::time::Duration;

use bytes::Bytes;
use hub::record::{
    CallError, CallRequest, ClaimRequest, DownReason, Join, MailVerdict, RevokeReason, ToHub,
    ToNode, VERSION,
};
use hub::store::Mail;
use hub::{
    Addr, BatchSeq, CallId, ClaimNumber, Command, Completed, DuplicateClaim, Epoch, HubConfig,
    JoinFile, Lease, LogId, MailSeq, Name, Redacted, RequestId, Role, SenderSeq, StoreOp,
};
use wire::{ClientId, ConnectionId, InstanceId, PeerIdentity, StreamMachine, UnixTime};

use crate::bare::{Bare, LINK, NOW, OTHER, THIRD, claim, down, mail, three};
use crate::world::node_id;

fn call(number: u64, to: usize, body: &[u8]) -> ToHub<'_> {
    ToHub::Call(CallRequest {
        call: CallId(number),
        timeout_ms: 60_000,
        to: Addr::Node(node_id(to)),
        body: Redacted(body),
    })
}

/// Results of calls in `records`.
fn answers(records: &[Vec<u8>]) -> Vec<Result<usize, CallError>> {
    records
        .iter()
        .filter_map(|record| match ToNode::decode(record) {
            Ok(ToNode::Reply { result, .. }) => Some(result.map(|body| body.len())),
            _ => None,
        })
        .collect()
}

fn requests(records: &[Vec<u8>]) -> Vec<RequestId> {
    records
        .iter()
        .filter_map(|record| match ToNode::decode(record) {
            Ok(ToNode::Request(request)) => Some(request.request),
            _ => None,
        })
        .collect()
}

#[test]
fn hub_6_repeated_claims_and_releases_leave_bounded_commands() {
    let mut config = HubConfig::default();
    config.ops_in_flight = 10;
    config.players_max = 100;
    let mut bare = three(config);
    let before = bare.hub.memory_bytes();
    for player in 0..10_000 {
        bare.send(
            LINK,
            &ToHub::Claim(ClaimRequest {
                player: ClientId(player),
                claim: ClaimNumber(player),
                lease: Lease::NONE,
                delivered: MailSeq(5),
                acknowledged: MailSeq(5),
                meta: Redacted(b""),
            }),
        );
        bare.send(
            LINK,
            &ToHub::Release {
                player: ClientId(player),
                claim: ClaimNumber(player),
            },
        );
        bare.written(LINK);
    }
    let held = bare.hub.memory_bytes() - before;
    assert!(held < 100 * 200, "{held} bytes");
    bare.drain_commands();
    assert!(bare.commands.len() <= 10, "{}", bare.commands.len());
    assert!(bare.hub.stats().acks_dropped > 9_000, "and it is counted");
}

#[test]
fn a_last_acknowledgement_is_stored_even_if_its_claim_has_ended() {
    let mut bare = three(HubConfig::default());
    bare.send(
        LINK,
        &ToHub::Claim(ClaimRequest {
            player: ClientId(7),
            claim: ClaimNumber(1),
            lease: Lease::NONE,
            delivered: MailSeq(5),
            acknowledged: MailSeq(5),
            meta: Redacted(b""),
        }),
    );
    bare.send(OTHER, &claim(7));
    bare.drain_commands();
    let acked = bare.commands.iter().any(|(_, command)| {
        let ack = StoreOp::Ack {
            player: ClientId(7),
            upto: MailSeq(5),
        };
        *command == Command::Store(ack)
    });
    assert!(acked, "{:?}", bare.commands);
}

#[test]
fn hub_6_an_unresponsive_store_gets_the_time_once() {
    let mut config = HubConfig::default();
    config.silence_max = Duration::MAX;
    let mut bare = Bare::new(config);
    // With a join the hub learns the newest time in the log. Nothing expires before that.
    bare.join(LINK, 0, 0);
    for second in 1..1_000 {
        bare.hub.handle_timeout(NOW + Duration::from_secs(second));
        bare.drain_commands();
    }
    let is_status = |(_, command): &(_, Command)| *command == Command::Store(StoreOp::Status);
    let statuses = bare.commands.extract_if(.., |it| is_status(it)).count();
    assert_eq!((statuses, bare.commands.len()), (1, 1));
    // After the store answers, the hub issues the operation again.
    let (id, _) = bare.commands.pop().unwrap();
    let later = NOW + Duration::from_secs(1_001);
    bare.hub
        .handle_completed(later, id, Ok(Completed::Expired { count: 0 }));
    bare.hub.handle_timeout(later);
    bare.drain_commands();
    assert_eq!(bare.commands.len(), 1);
}

#[test]
fn hub_5_a_node_with_too_many_requests_can_still_call() {
    let mut config = HubConfig::default();
    config.calls_max = 8;
    let mut bare = three(config);
    for number in 0..8 {
        bare.send(LINK, &call(number, 1, b""));
    }
    bare.send(OTHER, &call(1, 2, b""));
    assert_eq!(requests(&bare.written(THIRD).0).len(), 1);
}

#[test]
fn hub_5_a_flood_of_broadcasts_leaves_room_for_calls() {
    let mut config = HubConfig::default();
    config.link_bytes_max = 100_000;
    let mut bare = three(config);
    let topic = Name::new("news").unwrap();
    for _ in 0..1_000 {
        let body = &[7; 1_000];
        bare.send(
            LINK,
            &ToHub::Broadcast {
                topic,
                body: Redacted(body),
            },
        );
    }
    bare.send(THIRD, &call(1, 1, &vec![0; 30_000]));
    assert_eq!(requests(&bare.written(OTHER).0).len(), 1);
}

#[test]
fn hub_5_a_flood_of_calls_leaves_room_for_calls_of_others() {
    let mut config = HubConfig::default();
    config.link_bytes_max = 100_000;
    let mut bare = three(config);
    for number in 0..1_000 {
        bare.send(LINK, &call(number, 1, &[0; 1_000]));
    }
    bare.send(THIRD, &call(1, 1, &vec![0; 30_000]));
    let asked = requests(&bare.written(OTHER).0).len();
    assert!((40..=51).contains(&asked), "{asked}: half, and the other's");
    assert_eq!(bare.hub.stats().calls, asked as u64);
}

#[test]
fn hub_6_one_node_has_one_batch_of_counts_in_flight() {
    let mut bare = three(HubConfig::default());
    for batch in 1..=1_000 {
        let entries = Vec::new();
        let batch = BatchSeq(batch);
        bare.send(LINK, &ToHub::Counts { batch, entries });
        bare.drain_commands();
    }
    assert_eq!(bare.commands.len(), 1);
    // The next one is taken when that one completes, with or without an error.
    for outcome in [Ok(Completed::Counted), Err(hub::StoreError::Busy)] {
        let (id, _) = bare.commands.pop().unwrap();
        bare.hub.handle_completed(NOW, id, outcome);
        let batch = BatchSeq(2);
        let entries = Vec::new();
        bare.send(LINK, &ToHub::Counts { batch, entries });
        bare.drain_commands();
        assert_eq!(bare.commands.len(), 1);
    }
}

#[test]
fn hub_5_a_flood_of_mail_leaves_room_for_mail_of_others() {
    let mut config = HubConfig::default();
    config.store_bytes_in_flight = 100_000;
    let mut bare = three(config);
    let body = [7; 1_000];
    for seq in 1..=10_000 {
        bare.send(LINK, &mail(seq, &body));
        bare.drain_commands();
    }
    let before = bare.commands.len();
    bare.send(OTHER, &mail(1, &body));
    bare.drain_commands();
    assert_eq!(bare.commands.len(), before + 1);
    // Stored mail no longer counts against the limit.
    for (id, _) in bare.commands.drain(..3) {
        bare.hub
            .handle_completed(NOW, id, Ok(Completed::Appended(Vec::new())));
    }
    let busy = bare.hub.stats().mail_busy;
    bare.send(LINK, &mail(1, &body));
    assert_eq!(bare.hub.stats().mail_busy, busy);
}

#[test]
fn hub_5_mailbox_reads_leave_room_for_joins_and_mail() {
    let mut config = HubConfig::default();
    config.ops_in_flight = 10;
    let mut bare = three(config);
    for player in 0..100 {
        bare.send(LINK, &claim(player));
    }
    bare.drain_commands();
    assert_eq!(bare.commands.len(), 5, "reads take half at most");
    bare.send(OTHER, &mail(1, b""));
    bare.drain_commands();
    assert_eq!(bare.commands.len(), 6);
    assert_eq!(bare.hub.stats().mail_busy, 0);
}

#[test]
fn hub_6_mail_being_read_counts_before_it_arrives() {
    let mut config = HubConfig::default();
    config.unacknowledged_bytes_max = 256 * 1_024;
    config.link_bytes_max = 512 * 1_024;
    let mut bare = three(config);
    for player in 0..500 {
        bare.send(LINK, &claim(player));
    }
    bare.drain_commands();
    assert_eq!(
        bare.commands.len(),
        8,
        "64 KiB each, and the first of 500 for each"
    );
    let mut seq = 0;
    while let Some((id, command)) = bare.commands.pop() {
        assert!(matches!(command, Command::Store(StoreOp::Read { .. })));
        seq += 1;
        let mail = Mail {
            seq: MailSeq(seq),
            node: node_id(2),
            epoch: Epoch(1),
            sender_seq: SenderSeq(seq),
            body: Redacted(Bytes::from(vec![0; 60_000])),
        };
        let mails = Completed::Mails {
            mails: vec![mail],
            more: false,
        };
        bare.hub.handle_completed(NOW, id, Ok(mails));
        bare.drain_commands();
    }
    // Unwritten data delays the other reads.
    assert!((8..12).contains(&seq), "{seq} reads");
    let given = bare.written(LINK).0.len();
    assert!(given >= 8);
    bare.drain_commands();
    assert_eq!(bare.commands.len(), 8, "written, it makes room");
    assert!(bare.hub.nodes().any(|node| node == node_id(0)), "not cut");
}

#[test]
fn hub_6_unacknowledged_mails_of_one_player_are_bounded() {
    let mut config = HubConfig::default();
    config.unacknowledged_mails_max = 3;
    let mut bare = three(config);
    bare.send(LINK, &claim(1));
    for seq in 1..=10 {
        bare.drain_commands();
        let Some((id, _)) = bare.commands.pop() else {
            break;
        };
        let mail = Mail {
            seq: MailSeq(seq),
            node: node_id(2),
            epoch: Epoch(1),
            sender_seq: SenderSeq(seq),
            body: Redacted(Bytes::new()),
        };
        let mails = vec![mail];
        let more = true;
        bare.hub
            .handle_completed(NOW, id, Ok(Completed::Mails { mails, more }));
    }
    assert_eq!(bare.hub.stats().mail_given, 3);
    let player = ClientId(1);
    let upto = MailSeq(2);
    bare.send(LINK, &ToHub::MailAck { player, upto });
    bare.drain_commands();
    assert_eq!(bare.commands.len(), 2, "an acknowledgement and a read");
}

#[test]
fn hub_5_answers_that_are_too_long_together_end_no_link() {
    let mut config = HubConfig::default();
    config.link_bytes_max = 200_000;
    let mut bare = three(config);
    for number in 0..100 {
        bare.send(LINK, &call(number, 1, b""));
    }
    let long = vec![0; 60_000];
    for request in requests(&bare.written(OTHER).0) {
        let result = Ok(Redacted(&long[..]));
        bare.send(OTHER, &ToHub::Reply { request, result });
    }
    let (records, closed) = bare.written(LINK);
    assert!(!closed);
    let answers = answers(&records);
    assert_eq!(answers.len(), 100, "each call has its end");
    let whole = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(whole, 3);
    assert_eq!(answers[50], Err(CallError::Busy));
}

#[test]
fn a_grant_withdrawn_during_the_join_admits_no_node() {
    let mut bare = Bare::new(HubConfig::default());
    let identity = PeerIdentity::Node(node_id(0));
    bare.hub.handle_opened(NOW, LINK, &identity);
    let join = Join {
        version: VERSION,
        role: Role::GameNode,
        instance: InstanceId(1),
        epoch: Epoch(0),
        watch: 0,
        services: Vec::new(),
    };
    bare.send(LINK, &ToHub::Join(join));
    let (id, _) = bare.hub.poll_command().unwrap();
    let secret = hub::join_file::NetworkSecret::new([9; 32]);
    bare.hub.set_join_file(JoinFile::new(secret));
    let joined = Completed::Joined {
        epoch: Epoch(1),
        boot: 1,
        log: LogId(7),
        newest: UnixTime::default(),
        ran: Duration::ZERO,
        last_mail: MailSeq(1_000_000),
        mail_mark: SenderSeq(0),
        count_mark: BatchSeq(0),
    };
    bare.hub.handle_completed(NOW, id, Ok(joined));
    bare.hub.handle_credit(NOW, LINK, 1_000);
    let (records, closed) = bare.written(LINK);
    assert_eq!(down(&records), Some(DownReason::NotListed));
    assert!(closed);
    assert_eq!(bare.hub.nodes().count(), 0);
}

#[test]
fn hub_8_a_lease_of_another_node_takes_no_player() {
    let mut config = HubConfig::default();
    config.duplicate_claim = DuplicateClaim::Refuse;
    let mut bare = three(config);
    bare.send(LINK, &claim(1));
    bare.send(LINK, &claim(2));
    // Leases of this hub are sequential, so the newest one can be guessed.
    for lease in 0..4 {
        let forged = ToHub::Claim(ClaimRequest {
            player: ClientId(1),
            claim: ClaimNumber(1),
            lease: Lease::new(1, lease),
            delivered: MailSeq(0),
            acknowledged: MailSeq(0),
            meta: Redacted(b""),
        });
        bare.send(OTHER, &forged);
        assert_eq!(bare.hub.holder(ClientId(1)), Some(node_id(0)), "{lease}");
    }
    let (records, _) = bare.written(OTHER);
    let refused = records.iter().all(|record| {
        let reason = match ToNode::decode(record) {
            Ok(ToNode::Revoked { reason, .. }) => reason,
            other => panic!("{other:?}"),
        };
        matches!(reason, RevokeReason::Held | RevokeReason::Taken)
    });
    assert!(refused && records.len() == 4);
}

#[test]
fn hub_5_necessary_records_pass_a_flood_of_presence() {
    let mut bare = Bare::new(HubConfig::default());
    bare.join(LINK, 0, 0);
    bare.join(OTHER, 1, Join::WATCH_PLAYERS);
    bare.hub.handle_credit(NOW, OTHER, 1 << 20);
    bare.written(OTHER);
    bare.send(OTHER, &mail(1, b""));
    let (id, _) = bare.hub.poll_command().unwrap();
    let settled = hub::store::Settled {
        node: node_id(1),
        epoch: Epoch(1),
        seq: SenderSeq(1),
        to: Addr::Player(ClientId(1)).into(),
        verdict: MailVerdict::Stored,
        part: None,
        dropped: 0,
    };
    bare.hub
        .handle_completed(NOW, id, Ok(Completed::Appended(vec![settled])));
    bare.send(LINK, &claim(77));
    // The outbox of the node is never empty from here on.
    let (mut stored, mut seen) = (false, false);
    let topic = Name::new("news").unwrap();
    for _ in 0..3 {
        bare.send(
            LINK,
            &ToHub::Broadcast {
                topic,
                body: Redacted(b""),
            },
        );
    }
    for _ in 0..10 {
        bare.send(
            LINK,
            &ToHub::Broadcast {
                topic,
                body: Redacted(b""),
            },
        );
        let mut record = Vec::new();
        bare.hub.poll_outbound(NOW, &mut record).unwrap();
        let record = ToNode::decode(&record);
        stored |= matches!(record, Ok(ToNode::MailSettled { .. }));
        seen |= matches!(record, Ok(ToNode::PresencePlayer { .. }));
    }
    assert!(stored, "its mail is on disk");
    assert!(seen, "a player is there");
}

#[test]
fn hub_5_connections_of_one_node_leave_room_for_others() {
    let mut config = HubConfig::default();
    config.links_max = 20;
    config.node_links_max = 4;
    let mut bare = Bare::new(config);
    for id in 0..1_000 {
        let identity = PeerIdentity::Node(node_id(0));
        let link = ConnectionId(100 + id);
        bare.hub.handle_opened(NOW, link, &identity);
        bare.hub.handle_credit(NOW, link, 1_000);
        bare.written(link);
    }
    bare.join(OTHER, 1, 0);
    assert_eq!(bare.hub.nodes().collect::<Vec<_>>(), [node_id(1)]);
}

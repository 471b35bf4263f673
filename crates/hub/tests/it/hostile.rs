//! A hostile peer can do little, and within limits.

use std::time::Duration;

use bytes::Bytes;
use hub::DecodeError;
use hub::record::{
    BODY_BYTES_MAX, CallRequest, ClaimRequest, DownReason, MailVerdict, RECORD_BYTES_MAX, Request,
    ToHub, ToNode,
};
use hub::{
    Addr, BatchSeq, CallId, ClaimNumber, Command, Completed, Epoch, Hub, HubConfig, HubEvent,
    JoinFile, Lease, LogId, MailSeq, Name, Node, NodeConfig, NodeEvent, Redacted, RequestId,
    SendError, SenderSeq, StoreOp,
};
use wire::{
    ClientId, CloseCause, CommandId, ConnectionId, InstanceId, PeerIdentity, Seed, StreamMachine,
};

use crate::bare::{Bare, LINK, NOW, OTHER, down, mail};
use crate::world::{HUB, World, join_file, node_id};

#[test]
fn gonet_h12_an_unlisted_node_is_closed_before_it_sends() {
    let mut bare = Bare::new(HubConfig::default());
    for (link, identity) in [
        (LINK, PeerIdentity::Anonymous),
        (OTHER, PeerIdentity::Node(node_id(9))),
    ] {
        bare.hub.handle_opened(NOW, link, &identity);
        bare.hub.handle_credit(NOW, link, 1_000);
        bare.send(link, &mail(1, b""));
        let (records, closed) = bare.written(link);
        assert_eq!(down(&records), Some(DownReason::NotListed));
        assert!(closed);
    }
    assert!(bare.hub.poll_command().is_none());
}

#[test]
fn a_malformed_record_ends_its_link_and_no_other() {
    let records: [&[u8]; 6] = [b"", &[0xee], &[0x10], &[1], &[4, 0], &[2, 0]];
    for record in records {
        let mut bare = Bare::new(HubConfig::default());
        bare.join(LINK, 0, 0);
        bare.join(OTHER, 1, 0);
        for link in [LINK, OTHER] {
            bare.hub.handle_credit(NOW, link, 1_000);
        }
        bare.hub.handle_frame(NOW, LINK, record);
        assert_eq!(bare.hub.stats().malformed, 1, "{record:?}");
        let (records, closed) = bare.written(LINK);
        assert_eq!(down(&records), Some(DownReason::Protocol));
        assert!(closed);
        assert_eq!(bare.hub.nodes().collect::<Vec<_>>(), [node_id(1)]);
    }
}

#[test]
fn oversize_bodies_notes_and_lists_are_refused() {
    let long = vec![0; BODY_BYTES_MAX + 1];
    let mut encoded = Vec::new();
    mail(1, &long).encode(&mut encoded);
    assert_eq!(ToHub::decode(&encoded), Err(DecodeError::Count));
    encoded.clear();
    mail(1, &long[1..]).encode(&mut encoded);
    assert!(encoded.len() <= RECORD_BYTES_MAX);
    assert!(ToHub::decode(&encoded).is_ok());
    encoded.clear();
    let claim = ToHub::Claim(ClaimRequest {
        player: ClientId(1),
        claim: ClaimNumber(1),
        lease: Lease::NONE,
        delivered: MailSeq(0),
        acknowledged: MailSeq(0),
        meta: Redacted(&[0; 257]),
    });
    claim.encode(&mut encoded);
    assert_eq!(ToHub::decode(&encoded), Err(DecodeError::Count));
    // Lists with a count above the limit, or above the number of entries.
    assert_eq!(
        ToHub::decode(&[1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 17]),
        Err(DecodeError::Count),
    );
    assert_eq!(
        ToHub::decode(&[0x0b, 0, 0, 0, 0, 0, 0, 0, 1, 65]),
        Err(DecodeError::Count),
    );
    assert_eq!(
        ToHub::decode(&[0x0b, 0, 0, 0, 0, 0, 0, 0, 1, 64]),
        Err(DecodeError::Truncated),
    );
}

#[test]
fn hub_5_a_blocked_store_delays_no_call_and_costs_bounded_bytes() {
    let mut config = HubConfig::default();
    config.store_bytes_in_flight = 100_000;
    let mut bare = Bare::new(config);
    bare.join(LINK, 0, 0);
    bare.join(OTHER, 1, 0);
    for link in [LINK, OTHER] {
        bare.hub.handle_credit(NOW, link, 10 << 20);
        bare.written(link);
    }
    let body = vec![7; 1_000];
    for seq in 1..=10_000 {
        bare.send(LINK, &mail(seq, &body));
        bare.drain_commands();
    }
    let taken: usize = bare
        .commands
        .iter()
        .map(|(_, command)| match command {
            Command::Store(StoreOp::Append(mails)) => mails.len(),
            other => panic!("{other:?}"),
        })
        .sum();
    assert!((40..50).contains(&taken), "{taken} mails of 1,000 bytes");
    let busy = ToNode::MailSettled {
        first: SenderSeq(taken as u64 + 1),
        last: SenderSeq(10_000),
        verdict: MailVerdict::Busy,
        retry_ms: 100,
    };
    let (records, closed) = bare.written(LINK);
    assert!(!closed);
    assert_eq!(records.len(), 1, "one record tells of all");
    assert_eq!(ToNode::decode(&records[0]), Ok(busy));
    let call = ToHub::Call(CallRequest {
        call: CallId(1),
        timeout_ms: 100,
        to: Addr::Node(node_id(1)),
        body: Redacted(b"x"),
    });
    bare.send(LINK, &call);
    let (records, _) = bare.written(OTHER);
    assert!(matches!(
        ToNode::decode(&records[0]),
        Ok(ToNode::Request(_))
    ));
}

#[test]
fn hub_6_commands_in_flight_are_bounded() {
    let mut config = HubConfig::default();
    config.ops_in_flight = 10;
    let mut bare = Bare::new(config);
    bare.join(LINK, 0, 0);
    for seq in 1..=100 {
        bare.send(LINK, &mail(seq, b""));
        let counts = ToHub::Counts {
            batch: BatchSeq(seq),
            entries: Vec::new(),
        };
        bare.send(LINK, &counts);
        bare.drain_commands();
    }
    assert_eq!(bare.commands.len(), 10);
    assert!(bare.hub.stats().mail_busy > 80);
}

#[test]
fn hub_5_a_node_that_reads_nothing_is_disconnected_and_blocks_no_other() {
    let mut config = HubConfig::default();
    config.link_bytes_max = 50_000;
    let mut bare = Bare::new(config);
    bare.join(LINK, 0, 0);
    bare.join(OTHER, 1, 0);
    bare.hub.handle_credit(NOW, LINK, 10 << 20);
    bare.written(LINK);
    let news = ToHub::Broadcast {
        topic: Name::new("news").unwrap(),
        body: Redacted(&[0; 1_000]),
    };
    for _ in 0..1_000 {
        bare.send(LINK, &news);
    }
    let stats = bare.hub.stats();
    assert_eq!(stats.broadcasts + stats.broadcasts_dropped, 1_000);
    assert!((20..26).contains(&stats.broadcasts), "{stats:?}");
    for call in 0..100 {
        let call = ToHub::Call(CallRequest {
            call: CallId(call),
            timeout_ms: 100,
            to: Addr::Node(node_id(1)),
            body: Redacted(&[0; 1_000]),
        });
        bare.send(LINK, &call);
    }
    let (records, _) = bare.written(LINK);
    assert!(records.len() >= 75, "calls are refused at once");
    // If the queued answers to its own claims cannot be dropped, its link is closed: each claim
    // gets its own answer.
    for id in 0..10_000 {
        bare.send(
            OTHER,
            &ToHub::Claim(ClaimRequest {
                player: ClientId(id),
                claim: ClaimNumber(1),
                lease: Lease::NONE,
                delivered: MailSeq(0),
                acknowledged: MailSeq(0),
                meta: Redacted(b""),
            }),
        );
        bare.drain_commands();
    }
    let overrun = HubEvent::Refused {
        node: Some(node_id(1)),
        reason: DownReason::Overrun,
    };
    let mut events = std::iter::from_fn(|| bare.hub.poll_event());
    assert!(events.any(|event| event == overrun));
    assert!(bare.hub.player_count() < 5_000);
}

#[test]
fn hub_6_calls_of_one_node_are_bounded() {
    let mut config = HubConfig::default();
    config.calls_max = 8;
    let mut bare = Bare::new(config);
    bare.join(LINK, 0, 0);
    bare.join(OTHER, 1, 0);
    bare.hub.handle_credit(NOW, LINK, 1 << 20);
    bare.written(LINK);
    for call in 0..100 {
        let call = ToHub::Call(CallRequest {
            call: CallId(call),
            timeout_ms: u32::MAX,
            to: Addr::Node(node_id(1)),
            body: Redacted(b""),
        });
        bare.send(LINK, &call);
    }
    assert_eq!(bare.hub.stats().calls, 8);
    assert_eq!(bare.written(LINK).0.len(), 92);
    // Regardless of the timeout that the caller gave.
    let later = NOW + Duration::from_secs(60);
    bare.hub.handle_timeout(later);
    assert_eq!(bare.hub.stats().calls_failed, 100);
}

#[test]
fn hub_6_links_players_and_events_are_bounded() {
    let mut config = HubConfig::default();
    config.links_max = 2;
    config.players_max = 3;
    config.events_max = 5;
    let mut bare = Bare::new(config);
    bare.join(LINK, 0, 0);
    bare.join(OTHER, 1, 0);
    for id in 3..20 {
        let link = ConnectionId(id);
        let identity = PeerIdentity::Node(node_id(2));
        bare.hub.handle_opened(NOW, link, &identity);
        let (_, closed) = bare.written(link);
        assert!(closed);
    }
    for id in 0..10 {
        let claim = ToHub::Claim(ClaimRequest {
            player: ClientId(id),
            claim: ClaimNumber(id),
            lease: Lease::NONE,
            delivered: MailSeq(0),
            acknowledged: MailSeq(0),
            meta: Redacted(b""),
        });
        bare.send(LINK, &claim);
    }
    assert_eq!(bare.hub.player_count(), 3);
    assert_eq!(std::iter::from_fn(|| bare.hub.poll_event()).count(), 5);
    assert!(bare.hub.stats().events_dropped > 10);
}

#[test]
fn a_duplicate_completion_is_counted() {
    let mut bare = Bare::new(HubConfig::default());
    bare.join(LINK, 0, 0);
    bare.send(LINK, &mail(1, b""));
    let (id, _) = bare.hub.poll_command().unwrap();
    let done = || Ok(Completed::Appended(Vec::new()));
    bare.hub.handle_completed(NOW, id, done());
    bare.hub.handle_completed(NOW, id, done());
    bare.hub.handle_completed(NOW, CommandId(999), done());
    assert_eq!(bare.hub.stats().completions_unknown, 2);
}

#[test]
fn a_silent_link_is_closed() {
    let mut bare = Bare::new(HubConfig::default());
    let identity = PeerIdentity::Node(node_id(0));
    bare.hub.handle_opened(NOW, LINK, &identity);
    bare.join(OTHER, 1, 0);
    bare.hub.handle_timeout(NOW + Duration::from_millis(4_900));
    assert_eq!(bare.hub.nodes().count(), 1);
    bare.hub.handle_timeout(NOW + Duration::from_secs(6));
    assert_eq!(bare.hub.nodes().count(), 0);
    assert!(bare.written(LINK).1);
    bare.hub.handle_closed(NOW, LINK, CloseCause::Local);
}

#[test]
fn a_lease_never_granted_outranks_no_other() {
    let mut bare = Bare::new(HubConfig::default());
    bare.join(LINK, 0, 0);
    bare.join(OTHER, 1, 0);
    let claim = |lease| {
        ToHub::Claim(ClaimRequest {
            player: ClientId(1),
            claim: ClaimNumber(1),
            lease,
            delivered: MailSeq(0),
            acknowledged: MailSeq(0),
            meta: Redacted(b""),
        })
    };
    bare.send(LINK, &claim(Lease(u64::MAX)));
    bare.send(OTHER, &claim(Lease::NONE));
    assert_eq!(bare.hub.holder(ClientId(1)), Some(node_id(1)));
}

#[test]
fn hub_4_mail_without_a_wall_clock_waits() {
    let mut bare = Bare::new(HubConfig::default());
    bare.hub = Hub::new(HubConfig::default(), join_file(4), NOW);
    bare.join(LINK, 0, 0);
    bare.send(LINK, &mail(1, b""));
    assert!(bare.hub.poll_command().is_none());
    assert_eq!(bare.hub.stats().mail_busy, 1);
}

#[test]
fn hub_6_a_flood_of_mail_to_an_absent_player_is_refused_and_reported() {
    let mut world = World::new(3, 1);
    world.store_config.mailbox_mails_max = 50;
    world.start_hub();
    world.start_node(0, NodeConfig::default());
    world.run_ms(1_000);
    world.take_events();
    let now = world.now;
    for _ in 0..4_096 {
        let body = Bytes::from_static(&[1; 100]);
        world
            .node(0)
            .mail(now, ClientId(1), body, Duration::ZERO)
            .unwrap();
    }
    let full = world
        .node(0)
        .mail(now, ClientId(1), Bytes::new(), Duration::ZERO);
    assert!(full.is_err(), "the sender's queue is bounded, too");
    world.run_ms(20_000);
    let (mut stored, mut refused) = (0, 0);
    for (_, event) in world.take_events() {
        match event {
            NodeEvent::MailStored(_) => stored += 1,
            NodeEvent::MailRefused(..) => refused += 1,
            _ => {}
        }
    }
    assert_eq!((stored, refused), (50, 4_046));
    assert_eq!(world.hub().store.mail_count(), 50);
}

#[test]
fn hub_6_queues_of_a_node_are_bounded() {
    let mut config = NodeConfig::default();
    config.players_max = 2;
    config.count_keys_max = 3;
    config.outbox_bytes_max = 150;
    config.mail_bytes_max = 150;
    config.events_max = 5;
    let file = join_file(1);
    let mut node = Node::new(config, &file, InstanceId(1), Seed([1; 32]), NOW).unwrap();
    node.handle_opened(NOW, LINK, &PeerIdentity::Node(HUB));
    let receive = |node: &mut Node, record: ToNode<'_>| {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        node.handle_frame(NOW, LINK, &bytes);
    };
    let joined = ToNode::Joined {
        epoch: Epoch(1),
        boot: 1,
        log: LogId(7),
        mail_mark: SenderSeq(0),
        count_mark: BatchSeq(0),
    };
    receive(&mut node, joined);
    let hundred = || Bytes::from_static(&[1; 100]);
    let topic = Name::new("news").unwrap();
    assert_eq!(node.broadcast(NOW, topic, hundred()), Ok(()));
    let full = Err(SendError::Full(Redacted(hundred())));
    assert_eq!(node.broadcast(NOW, topic, hundred()), full);
    assert!(
        node.mail(NOW, ClientId(1), hundred(), Duration::ZERO)
            .is_ok()
    );
    assert!(
        node.mail(NOW, ClientId(1), hundred(), Duration::ZERO)
            .is_err()
    );
    for id in 0..4 {
        let claimed = node.claim(NOW, ClientId(id), MailSeq(0), Bytes::new());
        assert_eq!(claimed.is_ok(), id < 2);
    }
    for id in 0..9 {
        node.count(Name::new(&format!("key-{id}")).unwrap().into(), 1);
    }
    assert_eq!(node.stats().counts_dropped, 6);
    let long = Bytes::from(vec![0; BODY_BYTES_MAX + 1]);
    let too_long = Err(SendError::TooLong(Redacted(long.clone())));
    assert_eq!(node.broadcast(NOW, topic, long), too_long);
    for _ in 0..9 {
        let news = ToNode::Broadcast {
            from: node_id(0),
            topic,
            body: Redacted(b"x"),
        };
        receive(&mut node, news);
    }
    let request = ToNode::Request(Request {
        request: RequestId(1),
        from: node_id(0),
        instance: InstanceId(1),
        timeout_ms: 1,
        to: Addr::Node(node_id(0)),
        body: Redacted(b""),
    });
    receive(&mut node, request);
    assert_eq!(node.stats().broadcasts_dropped, 5);
    assert_eq!(node.stats().requests_refused, 1);
    assert_eq!(std::iter::from_fn(|| node.poll_event()).count(), 5);
}

#[test]
fn a_node_ignores_connections_of_other_peers() {
    let file = join_file(1);
    let config = NodeConfig::default();
    let mut node = Node::new(config, &file, InstanceId(1), Seed([1; 32]), NOW).unwrap();
    for identity in [PeerIdentity::Node(node_id(3)), PeerIdentity::Anonymous] {
        node.handle_opened(NOW, LINK, &identity);
        node.handle_credit(NOW, LINK, 1_000);
        let mut buf = Vec::new();
        let outbound = node.poll_outbound(NOW, &mut buf).unwrap();
        assert!(outbound.close && buf.is_empty());
        assert_eq!(node.poll_outbound(NOW, &mut buf), None);
    }
    assert_eq!(node.stats().strangers, 2);
    // If the join file names no hub, there is none to dial.
    let nobody = JoinFile::new(hub::join_file::NetworkSecret::new([0; 32]));
    let config = NodeConfig::default();
    assert!(Node::new(config, &nobody, InstanceId(1), Seed([1; 32]), NOW).is_none());
}

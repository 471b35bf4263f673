//! Join files that disagree, nodes that use the wrong hub, and hubs that report too much.

use bytes::Bytes;
use hub::log::MemorySegments;
use hub::log::OpenError;
use hub::record::{
    CallRequest, ClaimRequest, DownReason, GroupAction, GroupToHub, Join, MailManySubmission,
    MailSubmission, PlayerList, Recipients, ToHub, ToNode, VERSION,
};
use hub::{
    Addr, CallId, ClaimNumber, Epoch, GroupId, GroupRequest, Hub, HubConfig, JoinFile, Lease,
    LogId, MailSeq, Node, NodeConfig, NodeEvent, Redacted, Role, SendError, SenderSeq, Shard,
    Store, StoreConfig,
};
use wire::{
    ClientId, ConnectionId, InstanceId, Instant, NodeId, PeerIdentity, Seed, StreamMachine,
};

use super::behaviour::players_of;
use super::net::{Net, hub_id, join_file};
use crate::world::{body, node_id};

fn shard(index: u8, count: u8) -> Shard {
    Shard::new(index, count).unwrap()
}

#[test]
fn hub_6_a_join_file_has_at_most_sixteen_hubs() {
    let file = |hubs| join_file(0..hubs, 1).to_text();
    assert_eq!(JoinFile::parse(&file(16)).unwrap().hubs().count(), 16);
    let error = JoinFile::parse(&file(17)).unwrap_err();
    assert_eq!(
        (error.line, error.to_string()),
        (19, "line 19: over 16 hubs".to_owned())
    );
    let twice = format!("{}{}\n", file(2), join_file(0..1, 0).grants[0]);
    let error = JoinFile::parse(&twice).unwrap_err();
    assert_eq!(error.fault, hub::join_file::JoinFault::GrantTwice);
    // One that no file could hold.
    let node = |file: &JoinFile| {
        let (instance, seed) = (InstanceId(1), Seed([1; 32]));
        Node::new(NodeConfig::default(), file, instance, seed, Instant::ZERO)
    };
    assert!(node(&join_file(0..17, 1)).is_none());
    let mut file = join_file(0..3, 1);
    file.grants[1].addresses.clear();
    assert!(node(&file).is_none(), "a hub without an address");
}

#[test]
fn hub_9_a_node_with_other_hubs_in_its_join_file_stores_nothing() {
    for order in [vec![0, 2, 1], vec![1, 0, 2], vec![0, 1], vec![0]] {
        let mut net = Net::new(1, 3, 1);
        let file = join_file(order, 1);
        net.start_node_with(0, NodeConfig::default(), &file);
        let now = net.now;
        for player in players_of(3).into_iter().flatten() {
            let sent = net
                .node(0)
                .mail(now, player, body("x"), std::time::Duration::ZERO);
            assert!(sent.is_ok());
        }
        net.run_ms(3_000);
        let events = net.take_events();
        let refusals = events.iter().filter(|(_, event)| {
            matches!(
                event,
                NodeEvent::Refused(DownReason::WrongShard)
                    | NodeEvent::ShardRefused {
                        reason: DownReason::WrongShard,
                        ..
                    }
            )
        });
        assert!(refusals.count() >= file.hubs().count());
        assert!(
            !events
                .iter()
                .any(|(_, event)| matches!(event, NodeEvent::MailStored(_)))
        );
        for hub in &net.hubs {
            assert_eq!(hub.up.as_ref().unwrap().store.mail_count(), 0);
        }
    }
}

#[test]
fn hub_9_a_log_opens_only_for_its_own_shard() {
    let open = |disk, shard| {
        let mut config = StoreConfig::default();
        config.segment_bytes = 0;
        config.shard = shard;
        Store::open(disk, config, LogId(1)).map_err(Box::new)
    };
    let disk = MemorySegments::new(1 << 24);
    let disk = open(disk, Some(shard(1, 3))).unwrap().into_files();
    let failure = open(disk, Some(shard(1, 2))).unwrap_err();
    let (log, hub) = (shard(1, 3), shard(1, 2));
    assert_eq!(failure.error, OpenError::Shard { log, hub });
    assert!(failure.to_string().contains("shard 1 of 3"), "{failure}");
    let failure = open(failure.files, Some(Shard::ONLY)).unwrap_err();
    let failure = open(failure.files, Some(shard(2, 3))).unwrap_err();
    // A tool reads each.
    let disk = open(failure.files, None).unwrap().into_files();
    let disk = open(disk, Some(shard(1, 3))).unwrap().into_files();
    drop(disk);
    let disk = open(MemorySegments::new(1 << 24), Some(Shard::ONLY)).unwrap();
    let failure = open(disk.into_files(), Some(shard(0, 2))).unwrap_err();
    assert!(matches!(failure.error, OpenError::Shard { .. }));
}

const LINK: ConnectionId = ConnectionId(1);

/// A hub that is shard 1 of 3, and a node that has joined it.
struct Single {
    hub: Hub,
    store: Store<MemorySegments>,
}

impl Single {
    fn new() -> Self {
        let mut config = HubConfig::default();
        config.shard = shard(1, 3);
        let mut store_config = StoreConfig::default();
        store_config.segment_bytes = 0;
        store_config.shard = Some(config.shard);
        let disk = MemorySegments::new(1 << 24);
        let store = Store::open(disk, store_config, LogId(1)).unwrap();
        let mut hub = Hub::new(config, join_file(0..3, 1), Instant::ZERO);
        hub.set_unix_time(
            Instant::ZERO,
            wire::UnixTime::from_millis(1_700_000_000_000),
        );
        let mut single = Self { hub, store };
        let peer = PeerIdentity::Node(node_id(0));
        single.hub.handle_opened(Instant::ZERO, LINK, &peer);
        single.hub.handle_credit(Instant::ZERO, LINK, 1 << 20);
        single
    }

    fn joined() -> Self {
        let mut single = Self::new();
        let view = join_file(0..3, 1).view_of(shard(1, 3));
        single.send(&ToHub::Shard(view));
        assert_eq!(single.send(&join()), None);
        single
    }

    /// Sends a record; returns why the hub has closed the link, if it has.
    fn send(&mut self, record: &ToHub<'_>) -> Option<DownReason> {
        let mut encoded = Vec::new();
        record.encode(&mut encoded);
        self.hub.handle_frame(Instant::ZERO, LINK, &encoded);
        let mut outcomes = Vec::new();
        while let Some(command) = self.hub.poll_command() {
            self.store.execute([command], &mut outcomes);
        }
        for (id, outcome) in outcomes {
            self.hub.handle_completed(Instant::ZERO, id, outcome);
        }
        let mut down = None;
        let mut buf = Vec::new();
        while self.hub.poll_outbound(Instant::ZERO, &mut buf).is_some() {
            if let Ok(ToNode::Down(reason)) = ToNode::decode(&buf) {
                down = Some(reason);
            }
            buf.clear();
        }
        down
    }
}

fn join() -> ToHub<'static> {
    ToHub::Join(Join {
        version: VERSION,
        role: Role::GameNode,
        instance: InstanceId(1),
        epoch: Epoch(0),
        watch: 0,
        services: Vec::new(),
    })
}

#[test]
fn hub_9_a_hub_accepts_no_join_without_its_own_view() {
    let file = join_file(0..3, 1);
    let other = join_file([0, 1, 3], 1).view_of(shard(1, 3));
    for view in [file.view_of(shard(0, 3)), other] {
        let down = Single::new().send(&ToHub::Shard(view));
        assert_eq!(down, Some(DownReason::WrongShard));
    }
    assert_eq!(Single::new().send(&join()), Some(DownReason::WrongShard));
    let view = ToHub::Shard(file.view_of(shard(1, 3)));
    assert_eq!(Single::joined().send(&view), Some(DownReason::Protocol));
}

#[test]
fn hub_9_a_hub_stores_nothing_for_players_of_another_shard() {
    let players = players_of(3);
    let (own, other) = (players[1][0], players[2][0]);
    let mut ids = Vec::new();
    let both = PlayerList::encode_into(&[own, other], &mut ids).unwrap();
    let mail = |to| {
        ToHub::Mail(MailSubmission {
            seq: SenderSeq(1),
            settled: SenderSeq(0),
            ttl_s: 60,
            to,
            body: Redacted(b"x"),
        })
    };
    let group = |action| {
        ToHub::Group(GroupToHub {
            request: GroupRequest(1),
            group: GroupId(1),
            action,
        })
    };
    let records = [
        mail(Addr::Player(other)),
        ToHub::MailMany(MailManySubmission {
            seq: SenderSeq(1),
            settled: SenderSeq(0),
            ttl_s: 60,
            priority: 0,
            to: Recipients::Players(both),
            body: Redacted(b"x"),
        }),
        ToHub::Claim(ClaimRequest {
            player: other,
            claim: ClaimNumber(1),
            lease: Lease::NONE,
            delivered: MailSeq(0),
            acknowledged: MailSeq(0),
            meta: Redacted(b""),
        }),
        group(GroupAction::Join(other)),
    ];
    for record in records {
        let mut single = Single::joined();
        assert_eq!(
            single.send(&record),
            Some(DownReason::WrongShard),
            "{record:?}"
        );
        assert_eq!(single.store.mail_count(), 0);
        assert_eq!(single.hub.player_count(), 0);
    }
    let mut single = Single::joined();
    assert_eq!(single.send(&mail(Addr::Player(own))), None);
    assert_eq!(single.store.mail_count(), 1);
    let call = ToHub::Call(CallRequest {
        call: CallId(1),
        timeout_ms: 10,
        to: Addr::Player(other),
        body: Redacted(b"x"),
    });
    assert_eq!(single.send(&call), None, "it is unreachable here");
}

/// A node with links to three hubs, which are this test.
struct Watcher {
    node: Node,
}

impl Watcher {
    fn new(config: NodeConfig) -> Self {
        let file = join_file(0..3, 1);
        let node = Node::new(config, &file, InstanceId(1), Seed([1; 32]), Instant::ZERO);
        let mut watcher = Self {
            node: node.unwrap(),
        };
        watcher.node.handle_timeout(Instant::ZERO);
        while let Some((id, _)) = watcher.node.poll_command() {
            watcher.node.handle_completed(Instant::ZERO, id, Ok(()));
        }
        for hub in 0..3 {
            let peer = PeerIdentity::Node(hub_id(hub));
            watcher.node.handle_opened(Instant::ZERO, link(hub), &peer);
            watcher
                .node
                .handle_credit(Instant::ZERO, link(hub), 1 << 20);
            watcher.send(
                hub,
                &ToNode::Joined {
                    epoch: Epoch(1),
                    boot: 1,
                    log: LogId(1),
                    mail_mark: SenderSeq(0),
                    count_mark: hub::BatchSeq(0),
                },
            );
        }
        watcher
    }

    fn send(&mut self, hub: usize, record: &ToNode<'_>) -> Vec<NodeEvent> {
        let mut encoded = Vec::new();
        record.encode(&mut encoded);
        self.node.handle_frame(Instant::ZERO, link(hub), &encoded);
        let mut buf = Vec::new();
        while self.node.poll_outbound(Instant::ZERO, &mut buf).is_some() {
            buf.clear();
        }
        std::iter::from_fn(|| self.node.poll_event()).collect()
    }
}

fn link(hub: usize) -> ConnectionId {
    ConnectionId(u32::try_from(hub).unwrap() + 1)
}

fn present(player: u64) -> ToNode<'static> {
    ToNode::PresencePlayer {
        player: ClientId(player),
        holder: Some((NodeId([1; 32]), Redacted(b""))),
    }
}

#[test]
fn hub_6_hubs_that_report_players_for_ever_cost_bounded_memory() {
    let mut config = NodeConfig::default();
    config.watch_players = true;
    config.shards.watched_players_max = 1_000;
    let mut watcher = Watcher::new(config);
    for hub in 0..3 {
        watcher.send(hub, &ToNode::PresenceReset);
    }
    let mut reported = 0;
    for player in 0..6_000 {
        reported += watcher
            .send(usize::try_from(player % 3).unwrap(), &present(player))
            .len();
    }
    assert_eq!(reported, 1_000);
    assert_eq!(watcher.node.stats().presence_dropped, 5_000);
    assert!(watcher.node.memory_bytes() < 40_000);
    // Snapshots that begin again and again, and nodes that no join file could list.
    for round in 0..100 {
        watcher.send(1, &ToNode::PresenceReset);
        watcher.send(1, &present(10_000 + round));
        for byte in 0..=u8::MAX {
            let mut id = [byte; 32];
            id[0] = u8::try_from(round).unwrap();
            let info = hub::record::NodeInfo {
                instance: InstanceId(1),
                epoch: Epoch(1),
                role: Role::GameNode,
                services: Vec::new(),
            };
            let node = NodeId(id);
            watcher.send(
                0,
                &ToNode::PresenceNode {
                    node,
                    info: Some(info),
                },
            );
        }
    }
    assert!(watcher.node.memory_bytes() < 40_000 + 4_096 * 100);
}

#[test]
fn hub_9_a_restarted_hub_voids_only_its_own_players_that_are_gone() {
    let mut config = NodeConfig::default();
    config.watch_players = true;
    let mut watcher = Watcher::new(config);
    let mut events = Vec::new();
    for hub in 0..3 {
        events.extend(watcher.send(hub, &ToNode::PresenceReset));
        for step in 0..2 {
            events.extend(watcher.send(hub, &present(hub as u64 * 10 + step)));
        }
    }
    assert_eq!(events.len(), 7, "{events:?}");
    assert_eq!(watcher.send(0, &ToNode::PresenceComplete), []);
    assert_eq!(watcher.send(2, &ToNode::PresenceComplete), []);
    let complete = [NodeEvent::PresenceComplete];
    assert_eq!(watcher.send(1, &ToNode::PresenceComplete), complete);
    assert_eq!(watcher.send(1, &ToNode::PresenceReset), []);
    assert_eq!(watcher.send(1, &present(11)).len(), 1);
    let gone = NodeEvent::PlayerPresence(ClientId(10), None);
    let expected = [gone, NodeEvent::PresenceComplete];
    assert_eq!(watcher.send(1, &ToNode::PresenceComplete), expected);
}

#[test]
fn hub_6_multicasts_without_an_outcome_are_bounded() {
    let mut config = NodeConfig::default();
    config.shards.multicasts_max = 3;
    let mut watcher = Watcher::new(config);
    let players: Vec<_> = players_of(3).into_iter().map(|own| own[0]).collect();
    let mut send = || {
        let node = &mut watcher.node;
        node.multicast(Instant::ZERO, &players, Bytes::new())
    };
    for _ in 0..3 {
        assert!(send().is_ok());
    }
    assert!(matches!(send(), Err(SendError::Full(_))));
}

#[test]
fn hub_9_a_tool_may_join_one_hub_alone() {
    let mut net = Net::new(4, 3, 1);
    let mut config = NodeConfig::default();
    config.shards.only = Some(2);
    net.start_node(0, config);
    net.run_ms(1_500);
    assert!(net.node(0).is_joined());
    assert_eq!(net.node(0).hub_count(), 1);
    let own = players_of(3)[2][0];
    let now = net.now;
    let seq = net
        .node(0)
        .mail(now, own, body("x"), std::time::Duration::ZERO);
    net.run_ms(500);
    let stored = NodeEvent::MailStored(seq.unwrap());
    assert!(net.take_events().contains(&(0, stored)));
    let mails = |hub: usize| net.hubs[hub].up.as_ref().unwrap().store.mail_count();
    assert_eq!([mails(0), mails(1), mails(2)], [0, 0, 1]);
}

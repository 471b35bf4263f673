//! Groups from end to end: membership, live messages and mail, and limits of live messages.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use hub::record::{
    GroupAction, GroupError, GroupToHub, GroupToNode, LiveOutcome, LiveToHub, LiveToNode,
    PlayerList, ToHub, ToNode,
};
use hub::{
    GroupId, GroupRequest, HubConfig, LiveOverflow, LiveSeq, MailOptions, MailSeq, NodeConfig,
    NodeEvent, Redacted, SendError,
};
use wire::{ClientId, Instant, StreamMachine};

use crate::bare::{Bare, LINK, NOW, OTHER, claim, three};
use crate::world::{Power, World, body, seeds};

const GROUP: GroupId = GroupId(7);

fn claim_players(world: &mut World, players: u64, nodes: usize) {
    let now = world.now;
    for player in 0..players {
        let node = usize::try_from(player).unwrap() % nodes;
        let claim = world
            .node(node)
            .claim(now, ClientId(player), MailSeq(0), Bytes::new());
        claim.unwrap();
    }
    world.run_ms(500);
    world.take_events();
}

fn events_of(world: &mut World, node: usize) -> Vec<NodeEvent> {
    let events = world.take_events().into_iter();
    let own = events.filter(|(index, _)| *index == node);
    own.map(|(_, event)| event).collect()
}

fn join_all(world: &mut World, players: impl IntoIterator<Item = u64>) {
    let now = world.now;
    for player in players {
        world
            .node(0)
            .join_group(now, GROUP, ClientId(player))
            .unwrap();
    }
    world.run_ms(500);
    for event in events_of(world, 0) {
        let is_done = matches!(event, NodeEvent::GroupDone { result: Ok(()), .. });
        assert!(is_done, "{event:?}");
    }
}

#[test]
fn h6_members_are_listed_in_order_after_joins_and_leaves() {
    let mut world = World::joined(1, 2);
    world.take_events();
    join_all(&mut world, [5, 1, 9, 3]);
    let now = world.now;
    world.node(1).leave_group(now, GROUP, ClientId(3)).unwrap();
    world.run_ms(500);
    world.take_events();
    let now = world.now;
    let request = world.node(1).list_group(now, GROUP, ClientId(2)).unwrap();
    let empty = world
        .node(1)
        .list_group(now, GroupId(8), ClientId(0))
        .unwrap();
    world.run_ms(500);
    let page = |request, players: &[u64]| NodeEvent::GroupMembers {
        request,
        players: players.iter().copied().map(ClientId).collect(),
        more: false,
    };
    let events = events_of(&mut world, 1);
    assert_eq!(events.len(), 2);
    assert!(events.contains(&page(request, &[5, 9])), "{events:?}");
    assert!(events.contains(&page(empty, &[])), "{events:?}");
}

#[test]
fn h6_a_message_to_a_group_is_one_record_a_node_and_mail_waits_for_the_rest() {
    let mut world = World::joined(2, 3);
    claim_players(&mut world, 9, 3);
    // Two are offline.
    join_all(&mut world, [0, 1, 3, 4, 6, 20, 21]);
    let now = world.now;
    let request = world.node(0).send_group(now, GROUP, body("raid")).unwrap();
    let mail = world
        .node(0)
        .mail_group(now, GROUP, body("news"), MailOptions::default());
    let mail = mail.unwrap();
    world.run_ms(1_000);
    let mut outcome = LiveOutcome::default();
    (outcome.reached, outcome.offline) = (5, 2);
    let events = world.take_events();
    let sent = NodeEvent::GroupSent { request, outcome };
    assert!(events.contains(&(0, sent)), "{events:?}");
    assert!(
        events.contains(&(0, NodeEvent::MailStored(mail))),
        "{events:?}"
    );
    let ready = |node: usize| {
        let is_ready = |event: &NodeEvent| matches!(event, NodeEvent::MessageReady(_));
        events
            .iter()
            .filter(|(index, event)| *index == node && is_ready(event))
            .count()
    };
    // Players 0, 3 and 6 are on the first node, 1 and 4 on the second.
    assert_eq!([ready(0), ready(1), ready(2)], [3, 2, 0]);
    assert_eq!(world.hub().store.mail_count(), 7);
}

#[test]
fn sim_h6_memberships_survive_crashes_of_the_hub() {
    for seed in seeds(30) {
        let mut world = World::joined(seed, 2);
        let mut model = BTreeSet::new();
        for _ in 0..12 {
            let player = world.generator.below(8);
            let is_join = world.generator.chance(600_000);
            // Repeated until it is done, as an application must.
            loop {
                let now = world.now;
                let node = world.node(0);
                let request = if is_join {
                    node.join_group(now, GROUP, ClientId(player))
                } else {
                    node.leave_group(now, GROUP, ClientId(player))
                };
                if world.generator.chance(200_000) {
                    let millis = world.generator.below(30);
                    world.run_ms(millis);
                    let power = Power::draw(&mut world.generator);
                    world.crash_hub(power, Duration::from_millis(100));
                }
                world.run_ms(1_500);
                let request = match request {
                    Ok(request) => request,
                    Err(SendError::HubDown(_)) => continue,
                    Err(error) => panic!("seed {seed}: {error}"),
                };
                let answers: Vec<_> = events_of(&mut world, 0)
                    .into_iter()
                    .filter_map(|event| match event {
                        NodeEvent::GroupDone { request, result } => Some((request, result)),
                        _ => None,
                    })
                    .collect();
                assert_eq!(answers.len(), 1, "seed {seed}: each request has one answer");
                assert_eq!(answers[0].0, request);
                match answers[0].1 {
                    Ok(()) => break,
                    Err(GroupError::HubDown | GroupError::Busy) => {}
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            }
            if is_join {
                model.insert(ClientId(player));
            } else {
                model.remove(&ClientId(player));
            }
        }
        let now = world.now;
        let request = world.node(1).list_group(now, GROUP, ClientId(0)).unwrap();
        world.run_ms(1_000);
        let page = NodeEvent::GroupMembers {
            request,
            players: model.into_iter().collect(),
            more: false,
        };
        let events = events_of(&mut world, 1);
        assert!(events.contains(&page), "seed {seed}: {events:?}");
    }
}

fn send(request: u64) -> ToHub<'static> {
    ToHub::Group(GroupToHub {
        request: GroupRequest(request),
        group: GROUP,
        action: GroupAction::Send(Redacted(&[5; 1_000])),
    })
}

#[test]
fn hub_6_group_requests_to_a_stalled_store_are_bounded() {
    let mut bare = three(HubConfig::default());
    let before = bare.hub.memory_bytes();
    for request in 1..=100 {
        bare.send(LINK, &send(request));
    }
    bare.drain_commands();
    assert_eq!(bare.commands.len(), 64);
    assert!(bare.hub.memory_bytes() < before + 64 * 1_500 + 36 * 200);
    let is_busy = |record: &Vec<u8>| {
        let busy = Err(GroupError::Busy);
        let decoded = ToNode::decode(record);
        matches!(decoded, Ok(ToNode::Group(GroupToNode::Done { result, .. })) if result == busy)
    };
    let refused = bare.written(LINK).0.iter().filter(|it| is_busy(it)).count();
    assert_eq!(refused, 36);
    bare.send(OTHER, &send(1));
    bare.drain_commands();
    assert_eq!(bare.commands.len(), 65, "another link has room");
}

#[test]
fn hub_6_requests_of_a_node_are_bounded_and_end_with_the_link() {
    let mut world = World::new(3, 1);
    world.start_hub();
    let mut config = NodeConfig::default();
    config.group_requests_max = 5;
    world.start_node(0, config);
    world.run_ms(1_500);
    world.take_events();
    let now = world.now;
    for player in 0..5 {
        world
            .node(0)
            .join_group(now, GROUP, ClientId(player))
            .unwrap();
    }
    let over = world.node(0).join_group(now, GROUP, ClientId(9));
    assert!(matches!(over, Err(SendError::Full(_))));
    let long = Bytes::from(vec![0; 32_769]);
    let long = world.node(0).send_group(now, GROUP, long);
    assert!(matches!(long, Err(SendError::TooLong(_))));
    world.crash_hub(Power::Stays, Duration::from_millis(100));
    world.run_ms(200);
    let down = |event: &NodeEvent| {
        let down = Err(GroupError::HubDown);
        matches!(event, NodeEvent::GroupDone { result, .. } if *result == down)
    };
    let events = events_of(&mut world, 0);
    assert_eq!(
        events.iter().filter(|event| down(event)).count(),
        5,
        "{events:?}"
    );
}

/// Sends a live message to `count` players over `LINK`; returns the outcome.
fn forward(bare: &mut Bare, live: u64, count: u64) -> LiveOutcome {
    let players: Vec<_> = (0..count).map(ClientId).collect();
    let mut ids = Vec::new();
    let record = ToHub::Live(LiveToHub::Forward {
        live: LiveSeq(live),
        players: PlayerList::encode_into(&players, &mut ids).unwrap(),
        body: Redacted(b"gg"),
    });
    bare.send(LINK, &record);
    let records = bare.written(LINK).0;
    let found = records
        .iter()
        .find_map(|record| match ToNode::decode(record) {
            Ok(ToNode::Live(LiveToNode::Sent { outcome, .. })) => Some(outcome),
            _ => None,
        });
    found.unwrap()
}

#[test]
fn hub_5_live_messages_are_charged_by_receiver() {
    let mut config = HubConfig::default();
    config.live_receivers_max = 10_000;
    let mut bare = three(config);
    bare.send(OTHER, &claim(1));
    assert_eq!(forward(&mut bare, 1, 4_096).offline, 4_095);
    assert_eq!(forward(&mut bare, 2, 4_096).reached, 1);
    assert_eq!(forward(&mut bare, 3, 4_096).busy, 4_096, "over the limit");
    assert_eq!(forward(&mut bare, 4, 1_000).busy, 0);
    assert_eq!(bare.hub.stats().forwards_dropped, 4_096);
    let later: Instant = NOW + Duration::from_millis(300);
    bare.hub.handle_timeout(later);
    assert_eq!(forward(&mut bare, 5, 4_096).busy, 0, "after 250 ms");
}

#[test]
fn h7_a_body_that_queues_share_counts_once_in_the_total() {
    let mut world = World::new(4, 2);
    world.start_hub();
    let mut config = NodeConfig::default();
    config.live_bytes_max = 100_000;
    world.start_node(0, config);
    world.start_node(1, NodeConfig::default());
    world.run_ms(1_500);
    let now = world.now;
    let claims: Vec<_> = (0..100)
        .map(|player| {
            let claim = world
                .node(0)
                .claim(now, ClientId(player), MailSeq(0), Bytes::new());
            claim.unwrap()
        })
        .collect();
    world.run_ms(500);
    // 100 copies would take 3 MB.
    let now = world.now;
    let shared = Bytes::from(vec![5; 30_000]);
    assert_eq!(world.node(0).cast_locally(now, shared.clone()), 100);
    assert_eq!(
        world
            .node(0)
            .cast_locally(now, Bytes::from(vec![6; 30_000])),
        100
    );
    assert_eq!(
        world
            .node(0)
            .cast_locally(now, Bytes::from(vec![7; 30_000])),
        0,
        "full"
    );
    assert!(world.node(0).memory_bytes() < 300_000);
    for claim in &claims {
        while world.node(0).next_message(*claim).is_some() {}
    }
    assert_eq!(
        world
            .node(0)
            .cast_locally(now, Bytes::from(vec![8; 60_000])),
        100
    );
    for claim in claims {
        world.node(0).release(now, claim);
    }
    assert_eq!(world.node(0).cast_locally(now, shared), 0);
    assert!(
        world.node(0).memory_bytes() < 100_000,
        "sessions that ended hold nothing"
    );
}

#[test]
fn h7_spilled_mail_leaves_half_of_the_nodes_mail_to_itself() {
    let mut world = World::new(5, 1);
    world.start_hub();
    let mut config = NodeConfig::default();
    config.live_overflow = LiveOverflow::Spill;
    config.live_queue_max = 1;
    config.mails_max = 20;
    world.start_node(0, config);
    world.run_ms(1_500);
    let now = world.now;
    world
        .node(0)
        .claim(now, ClientId(1), MailSeq(0), Bytes::new())
        .unwrap();
    world.run_ms(500);
    // The hub is down: nothing is confirmed.
    world.crash_hub(Power::Stays, Duration::from_secs(60));
    world.run_ms(100);
    let now = world.now;
    for _ in 0..50 {
        world.node(0).cast_locally(now, body("live"));
    }
    assert_eq!(world.node(0).mails_waiting(), 10);
    let stats = world.node(0).stats();
    assert_eq!(
        (stats.live_queued, stats.live_spilled, stats.live_dropped),
        (1, 10, 39)
    );
    for _ in 0..10 {
        let mail = world
            .node(0)
            .mail(now, ClientId(2), body("own"), Duration::ZERO);
        mail.unwrap();
    }
}

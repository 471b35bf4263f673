//! A store without room: what the hub, its operator and the senders learn, and how mail flows again.

use std::time::Duration;

use bytes::Bytes;
use hub::record::{MailVerdict, ToNode};
use hub::{
    Command, Completed, FullReason, HubConfig, HubEvent, HubStatus, NodeEvent, Role, SendError,
    StoreOp,
};
use wire::{ClientId, StreamMachine};

use crate::bare::{LINK, NOW, OTHER, mail, three};
use crate::world::{World, node_id, seeds};

const SEGMENT: u64 = hub::StoreConfig::SEGMENT_BYTES_MIN;

/// Sends one mail of 20,000 bytes; returns whether the node took it.
fn send(world: &mut World, index: usize, player: u64) -> bool {
    let (now, body) = (world.now, Bytes::from(vec![5; 20_000]));
    let sent = world
        .node(index)
        .mail(now, ClientId(player), body, Duration::ZERO);
    !matches!(sent, Err(SendError::Full(_)))
}

fn count(world: &World, of: impl Fn(&NodeEvent) -> bool) -> usize {
    world.events.iter().filter(|(_, event)| of(event)).count()
}

/// A world whose disk is full of the mail of node 0.
fn full(seed: u64) -> (World, usize) {
    let mut world = World::joined(seed, 3);
    world.hub().store.files_mut().set_capacity(3 * SEGMENT);
    let mut sent = 0;
    while !world
        .events
        .iter()
        .any(|(_, event)| *event == NodeEvent::HubFull)
    {
        assert!(send(&mut world, 0, sent as u64 % 20));
        sent += 1;
        world.run_ms(10);
        assert!(sent < 200, "the disk is never full");
    }
    (world, sent)
}

#[test]
fn hub_4_a_full_disk_reaches_sender_log_and_health_at_once() {
    let (mut world, sent) = full(1);
    assert!(sent < 100, "and not when the queue of the node is full");
    world.run_ms(100);
    let is_full = |event: &&HubEvent| {
        matches!(
            event,
            HubEvent::StoreFull {
                reason: FullReason::Disk,
                ..
            }
        )
    };
    assert_eq!(world.hub_events.iter().filter(is_full).count(), 1);
    let health = world.hub().machine.health();
    assert_eq!(health.status, HubStatus::Degraded);
    assert_eq!(health.full, Some(FullReason::Disk));
    assert!(health.store.live_bytes > 0);
    for _ in 0..200 {
        send(&mut world, 1, 7);
        world.run_ms(1_000);
    }
    let events = world.hub_events.clone();
    let reports: Vec<_> = events.iter().filter(is_full).collect();
    assert_eq!(reports.len(), 4, "at once, and each minute");
    let Some(HubEvent::StoreFull { refused, .. }) = reports.last() else {
        panic!("no report");
    };
    let all = world.hub().machine.stats().mail_full;
    assert!((100..=all).contains(refused), "{refused} of {all}");
    assert_eq!(count(&world, |event| *event == NodeEvent::HubFull), 2);
}

#[test]
fn sim_hub_4_mail_flows_within_a_second_of_room_on_the_disk() {
    for seed in seeds(30) {
        let (mut world, _) = full(seed);
        // As long as it takes for every pause to be as long as it gets.
        let blocked = 1_000 + world.generator.below(60_000);
        for index in 0..3 {
            send(&mut world, index, 7);
        }
        world.run_ms(blocked);
        assert_eq!(world.hub().machine.health().status, HubStatus::Degraded);
        world.take_events();
        world.hub().store.files_mut().set_capacity(64 * SEGMENT);
        world.run_ms(1_000);
        for index in 0..3 {
            let has = |wanted: fn(&NodeEvent) -> bool| {
                world
                    .events
                    .iter()
                    .any(|(node, event)| *node == index && wanted(event))
            };
            assert!(
                has(|event| matches!(event, NodeEvent::MailStored(_))),
                "seed {seed}: node {index}"
            );
            assert!(has(|event| *event == NodeEvent::HubHasRoom));
        }
        assert_eq!(world.hub().machine.health().status, HubStatus::Ok);
        let is_over = |event: &HubEvent| matches!(event, HubEvent::StoreHasRoom { .. });
        assert_eq!(world.hub_events.iter().filter(|it| is_over(it)).count(), 1);
        world.run_ms(2_000);
        assert!(
            world
                .nodes
                .iter()
                .flatten()
                .all(|node| node.mails_waiting() == 0)
        );
    }
}

#[test]
fn a_node_that_got_full_is_notified_and_no_other() {
    let mut bare = three(HubConfig::default());
    bare.send(LINK, &mail(1, b"one"));
    let (id, command) = bare.hub.poll_command().unwrap();
    let Command::Store(StoreOp::Append(mails)) = command else {
        panic!("no mail");
    };
    let settled = hub::store::Settled {
        node: mails[0].node,
        epoch: mails[0].epoch,
        seq: mails[0].seq,
        to: mails[0].to.clone(),
        verdict: MailVerdict::Full,
        part: None,
        dropped: 0,
    };
    let appended = Completed::Appended(vec![settled]);
    bare.hub.handle_completed(NOW, id, Ok(appended));
    let (id, command) = bare.hub.poll_command().unwrap();
    assert_eq!(command, Command::Store(StoreOp::Status), "asked at once");
    let (records, _) = bare.written(LINK);
    assert!(matches!(
        ToNode::decode(&records[0]),
        Ok(ToNode::MailSettled {
            verdict: MailVerdict::Full,
            ..
        })
    ));
    let status = Completed::Status(hub::StoreStatus::default());
    bare.hub.handle_completed(NOW, id, Ok(status));
    let mut notified = [0; 2];
    let mut buf = Vec::new();
    while let Some(outbound) = bare.hub.poll_outbound(NOW, &mut buf) {
        if ToNode::decode(&buf) == Ok(ToNode::HasRoom) {
            notified[usize::from(outbound.connection == OTHER)] += 1;
        }
        buf.clear();
    }
    assert_eq!(notified, [1, 0]);
}

#[test]
fn hub_8_a_node_over_its_share_waits_is_reported_and_delays_no_other() {
    let mut world = World::joined_with(1, 2, |world| {
        world.store_config.live_bytes_max = 1_000_000;
    });
    let mut sent = 0;
    while count(&world, |event| *event == NodeEvent::OverShare) == 0 {
        assert!(send(&mut world, 0, sent));
        sent += 1;
        world.run_ms(10);
        assert!(sent < 100, "it has no share");
    }
    assert!(
        (24..30).contains(&sent),
        "half of the store is {sent} mails"
    );
    world.run_ms(100);
    let reports = |world: &World| {
        let all = world.hub_events.iter();
        all.filter(|event| {
            let is_of = |node| node == node_id(0);
            matches!(event, HubEvent::SenderOverShare { node, role: Role::GameNode, .. } if is_of(*node))
        })
        .count()
    };
    assert_eq!(reports(&world), 1);
    assert_eq!(world.hub().machine.health().status, HubStatus::Ok);
    send(&mut world, 1, 7);
    world.run_ms(1_000);
    let stored = |world: &World, index| {
        let is_stored = |event: &NodeEvent| matches!(event, NodeEvent::MailStored(_));
        let all = world.events.iter();
        all.filter(|(node, event)| *node == index && is_stored(event))
            .count()
    };
    assert_eq!(stored(&world, 1), 1);
    world.run_ms(200_000);
    assert_eq!(reports(&world), 4, "at once, and each minute");
    assert_eq!(count(&world, |event| *event == NodeEvent::OverShare), 1);
    let before = stored(&world, 0);
    assert_eq!(before, 24);
    assert!(world.hub().machine.stats().mail_over_share > 100);
    let op = StoreOp::Purge { from: node_id(0) };
    let purge = [(wire::CommandId(u64::MAX), Command::Store(op))];
    world.hub().store.execute(purge, &mut Vec::new());
    world.run_ms(2_000);
    assert_eq!(u64::try_from(stored(&world, 0)).unwrap(), sent);
    assert_eq!(count(&world, |event| *event == NodeEvent::HubHasRoom), 1);
}

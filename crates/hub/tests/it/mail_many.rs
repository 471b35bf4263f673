//! Mail to many from end to end: verdicts, lost answers, policies and limits.

use std::time::Duration;

use bytes::Bytes;
use hub::log::MemorySegments;
use hub::record::{
    MailManySubmission, MailRefusal, MailVerdict, PlayerList, Recipients, ToHub, ToNode,
};
use hub::{
    HubConfig, HubEvent, MailOptions, MailSeq, NodeEvent, OnFull, Redacted, SendError, SenderSeq,
};
use wire::{ClientId, StreamMachine};

use crate::bare::{Bare, LINK, NOW, OTHER, mail};
use crate::world::{Power, World, body, seeds};

fn ids(players: impl IntoIterator<Item = u64>) -> Vec<ClientId> {
    players.into_iter().map(ClientId).collect()
}

fn options(priority: u8) -> MailOptions {
    MailOptions {
        priority,
        ..MailOptions::default()
    }
}

/// The bodies that `player` gets at the node, each acknowledged.
fn read(world: &mut World, node: usize, player: u64) -> Vec<Bytes> {
    let now = world.now;
    let player = ClientId(player);
    let claim = world
        .node(node)
        .claim(now, player, MailSeq(0), Bytes::new());
    let claim = claim.unwrap();
    world.run_ms(1_000);
    let mut bodies = Vec::new();
    for (_, event) in world.take_events() {
        if let NodeEvent::Mail {
            claim: to,
            seq,
            body,
            ..
        } = event
            && to == claim
        {
            let now = world.now;
            world.node(node).acknowledge(now, claim, seq);
            bodies.push(body.0);
        }
    }
    world.run_ms(500);
    bodies
}

#[test]
fn hub_4_the_sender_gets_the_verdict_for_each_recipient() {
    let mut world = World::new(1, 2);
    world.store_config.mailbox_mails_max = 1;
    world.start_hub();
    for node in 0..2 {
        world.start_node(node, hub::NodeConfig::default());
    }
    world.run_ms(1_500);
    world.take_events();
    let now = world.now;
    let sender = world.node(0);
    let all = ids(1..=5);
    let first = sender
        .mail_many(now, &all[1..3], body("a"), options(0))
        .unwrap();
    let some = sender.mail_many(now, &all, body("b"), options(0)).unwrap();
    let none = sender.mail_many(now, &all, body("c"), options(0)).unwrap();
    world.run_ms(1_000);
    let events: Vec<_> = world
        .take_events()
        .into_iter()
        .map(|(_, event)| event)
        .collect();
    let full = MailRefusal::MailboxFull;
    let part = NodeEvent::MailPartRefused {
        seq: some,
        stored: 3,
        refused_count: 2,
        refused: ids(2..=3),
        reason: full,
    };
    for event in [
        NodeEvent::MailStored(first),
        part,
        NodeEvent::MailRefused(none, full),
    ] {
        assert!(events.contains(&event), "{event:?} of {events:?}");
    }
    assert_eq!(events.len(), 3);
    assert_eq!(world.node(0).mails_waiting(), 0);
    assert_eq!(read(&mut world, 1, 1), ["b"]);
    assert_eq!(read(&mut world, 1, 2), ["a"]);
    let stats = world.hub().machine.stats();
    assert_eq!((stats.mail_stored, stats.mail_refused), (2 + 3, 2 + 5));
}

#[test]
fn sim_hub_2_a_verdict_that_was_lost_is_the_same_again() {
    for seed in seeds(30) {
        let mut world = World::new(seed, 2);
        world.store_config.mailbox_mails_max = 1;
        world.start_hub();
        for node in 0..2 {
            world.start_node(node, hub::NodeConfig::default());
        }
        world.run_ms(1_500);
        let now = world.now;
        let full = ids([2, 4]);
        world
            .node(1)
            .mail_many(now, &full, body("fills"), options(0))
            .unwrap();
        world.run_ms(500);
        world.take_events();
        let now = world.now;
        let seq = world
            .node(0)
            .mail_many(now, &ids(1..=5), body("some"), options(0));
        let seq = seq.unwrap();
        // Before or after it is stored, and before or after the answer arrives.
        let millis = world.generator.below(40);
        world.run_ms(millis);
        let power = Power::draw(&mut world.generator);
        world.crash_hub(power, Duration::from_millis(300));
        // The full mailboxes are emptied, so a second verdict would be another one.
        world.run_ms(5_000);
        let verdicts: Vec<_> = world
            .take_events()
            .into_iter()
            .filter_map(|(_, event)| match event {
                NodeEvent::MailPartRefused { seq, refused, .. } => Some((seq, refused)),
                NodeEvent::MailStored(_) | NodeEvent::MailRefused(..) => {
                    panic!("seed {seed}: {event:?}")
                }
                _ => None,
            })
            .collect();
        assert_eq!(verdicts, [(seq, full)], "seed {seed}: once");
        for player in 1..=5 {
            let expected = if player % 2 == 0 { "fills" } else { "some" };
            assert_eq!(read(&mut world, 1, player), [expected], "seed {seed}");
        }
    }
}

#[test]
fn hub_4_mail_dropped_by_policy_is_counted_and_reported_to_the_operator() {
    let mut world = World::new(2, 2);
    world.store_config.mailbox_mails_max = 2;
    world.store_config.on_full = OnFull::DropLowestPriority;
    world.start_hub();
    world.start_node(0, hub::NodeConfig::default());
    world.run_ms(1_500);
    world.take_events();
    let now = world.now;
    let to = ids([7]);
    for (priority, text) in [(1, "low"), (9, "high"), (5, "middle"), (2, "late")] {
        world
            .node(0)
            .mail_many(now, &to, body(text), options(priority))
            .unwrap();
    }
    world.run_ms(2_000);
    let stored = |(_, event): &(usize, NodeEvent)| matches!(event, NodeEvent::MailStored(_));
    let events = world.take_events();
    assert_eq!(
        events.iter().filter(|it| stored(it)).count(),
        3,
        "{events:?}"
    );
    assert_eq!(world.hub().machine.stats().mail_dropped, 1);
    let reported = HubEvent::MailDropped { count: 1 };
    assert_eq!(
        world
            .hub_events
            .iter()
            .filter(|event| **event == reported)
            .count(),
        1
    );
    assert_eq!(
        read(&mut world, 0, 7),
        ["high", "middle"],
        "in order of number"
    );
}

#[test]
fn hub_6_lists_and_bodies_over_the_limits_are_returned() {
    let mut world = World::joined(3, 1);
    let now = world.now;
    let node = world.node(0);
    let none = node.mail_many(now, &[], body("a"), options(0));
    assert!(matches!(none, Err(SendError::Players(_))));
    let many = ids(0..4_097);
    let many = node.mail_many(now, &many, body("a"), options(0));
    assert!(matches!(many, Err(SendError::Players(_))));
    let long = Bytes::from(vec![0; 65_536 - 8 * 100 + 1]);
    let long = node.mail_many(now, &ids(0..100), long, options(0));
    assert!(matches!(long, Err(SendError::TooLong(_))));
    // Lists count as bytes that wait.
    let to = ids(0..4_096);
    let mut accepted = 0;
    while node.mail_many(now, &to, Bytes::new(), options(0)).is_ok() {
        accepted += 1;
    }
    assert_eq!(accepted, (16 << 20) / (4_096 * 8));
}

/// A mail to the first `count` players.
fn submission(seq: u64, buf: &mut Vec<u8>, count: u64) -> ToHub<'_> {
    ToHub::MailMany(MailManySubmission {
        seq: SenderSeq(seq),
        settled: SenderSeq(0),
        ttl_s: 0,
        priority: 0,
        to: Recipients::Players(PlayerList::encode_into(&ids(0..count), buf).unwrap()),
        body: Redacted(b""),
    })
}

#[test]
fn hub_5_mail_to_many_is_charged_by_recipient_and_leaves_room_for_others() {
    let mut config = HubConfig::default();
    config.store_bytes_in_flight = 1 << 20;
    let mut bare = Bare::new(config);
    bare.join(LINK, 0, 0);
    bare.join(OTHER, 1, 0);
    bare.hub.handle_credit(NOW, LINK, 1 << 20);
    bare.hub.handle_credit(NOW, OTHER, 1 << 20);
    let mut buf = Vec::new();
    for seq in 1..=20 {
        let record = submission(seq, &mut buf, 4_096);
        bare.send(LINK, &record);
    }
    let busy = bare.hub.stats().mail_busy;
    assert!(
        (16..20).contains(&busy),
        "{busy}: each takes 64 bytes a recipient"
    );
    bare.send(OTHER, &mail(1, b"one"));
    assert_eq!(bare.hub.stats().mail_busy, busy, "another link has room");
    let verdicts = bare.written(LINK).0;
    let is_busy = |record: &Vec<u8>| {
        matches!(
            ToNode::decode(record),
            Ok(ToNode::MailSettled {
                verdict: MailVerdict::Busy,
                ..
            })
        )
    };
    assert!(verdicts.iter().any(is_busy));
}

#[test]
fn hub_6_a_large_mailing_reaches_players_on_all_nodes_once() {
    let mut world = World::joined(4, 3);
    let players = ids(0..600);
    let now = world.now;
    for player in &players {
        let node = usize::try_from(player.0 % 3).unwrap();
        world
            .node(node)
            .claim(now, *player, MailSeq(0), Bytes::new())
            .unwrap();
    }
    world.run_ms(1_000);
    world.take_events();
    let now = world.now;
    world
        .node(0)
        .mail_many(now, &players, body("all"), options(0))
        .unwrap();
    world.run_ms(3_000);
    let mut got: Vec<_> = world
        .take_events()
        .into_iter()
        .filter_map(|(_, event)| match event {
            NodeEvent::Mail { claim, .. } => Some(claim.player()),
            _ => None,
        })
        .collect();
    got.sort_unstable();
    assert_eq!(got, players);
    let disk: &mut MemorySegments = world.hub().store.files_mut();
    let bodies = disk.contents();
    let count = bodies.windows(3).filter(|bytes| bytes == b"all").count();
    assert_eq!(count, 1, "one body");
}

//! Broadcasts, presence, joins and fencing.

use std::time::Duration;

use bytes::Bytes;
use hub::record::DownReason;
use hub::{Epoch, HubEvent, MailSeq, Name, NodeConfig, NodeEvent, Redacted, Role};
use wire::ClientId;

use crate::world::{Power, World, body, join_file, node_id, seeds, server, set, topic};

const PLAYER: ClientId = ClientId(7);

#[test]
fn hub_7_presence_is_complete_within_a_second_of_the_hubs_return() {
    for seed in seeds(30) {
        let mut world = World::joined(seed, 4);
        let now = world.now;
        for id in 0..400_u64 {
            let index = usize::try_from(id % 4).unwrap();
            let player = ClientId(id);
            world
                .node(index)
                .claim(now, player, MailSeq(0), Bytes::new())
                .unwrap();
        }
        world.run_ms(500);
        assert_eq!(world.hub().machine.player_count(), 400);
        let down = 100 + world.generator.below(20_000);
        world.crash_hub(
            if seed % 2 == 0 {
                Power::Cut
            } else {
                Power::Stays
            },
            Duration::from_millis(down),
        );
        world.run_ms(down);
        assert!(world.hub.is_some());
        world.run_ms(1_000);
        let hub = &world.hub().machine;
        assert_eq!(hub.player_count(), 400, "seed {seed}");
        for id in 0..400_u64 {
            let index = usize::try_from(id % 4).unwrap();
            let holder = hub.holder(ClientId(id));
            assert_eq!(holder, Some(node_id(index)), "seed {seed}");
        }
    }
}

#[test]
fn a_broadcast_reaches_every_other_node_once() {
    let mut world = World::joined(1, 3);
    world.take_events();
    let now = world.now;
    world
        .node(0)
        .broadcast(now, topic(), body("hello"))
        .unwrap();
    world.run_ms(100);
    let received: Vec<_> = world
        .take_events()
        .into_iter()
        .map(|(index, event)| {
            let expected = NodeEvent::Broadcast {
                from: node_id(0),
                topic: topic(),
                body: Redacted(body("hello")),
            };
            assert_eq!(event, expected);
            index
        })
        .collect();
    assert_eq!(set(received.clone()), set([1, 2]));
    assert_eq!(received.len(), 2);
}

#[test]
fn a_watcher_gets_the_present_state_and_then_changes() {
    let mut world = World::joined(1, 2);
    let now = world.now;
    world
        .node(0)
        .claim(now, PLAYER, MailSeq(0), body("lobby"))
        .unwrap();
    world.run_ms(200);
    world.crash_node(1);
    world.take_events();
    let mut watcher = server("matchmaker");
    watcher.watch_players = true;
    world.start_node(1, watcher);
    world.run_ms(1_000);
    let received: Vec<_> = world
        .take_events()
        .into_iter()
        .filter(|(index, _)| *index == 1)
        .map(|(_, event)| event)
        .skip_while(|event| *event != NodeEvent::PresenceReset)
        .collect();
    let [
        NodeEvent::PresenceReset,
        NodeEvent::NodePresence(first, Some(_)),
        NodeEvent::NodePresence(second, Some(own)),
        NodeEvent::PlayerPresence(PLAYER, Some(holder)),
        NodeEvent::PresenceComplete,
    ] = &received[..]
    else {
        panic!("{received:?}");
    };
    assert_eq!((*first, *second), (node_id(0), node_id(1)));
    assert_eq!(own.services, [Name::new("matchmaker").unwrap()]);
    assert_eq!(own.epoch, Epoch(2));
    assert_eq!(*holder, (node_id(0), Redacted(body("lobby"))));
    let now = world.now;
    world.node(0).leave(now);
    world.run_ms(100);
    let reported = set(world
        .take_events()
        .into_iter()
        .filter(|(index, _)| *index == 1)
        .map(|(_, event)| format!("{event:?}")));
    let removed = [
        NodeEvent::NodePresence(node_id(0), None),
        NodeEvent::PlayerPresence(PLAYER, None),
    ];
    assert_eq!(reported, set(removed.map(|event| format!("{event:?}"))));
    assert_eq!(world.hub().machine.player_count(), 0);
}

#[test]
fn hub_8_a_later_run_of_a_node_fences_the_earlier_one() {
    let mut world = World::joined(1, 1);
    // A second process with the same key starts. The first one is partitioned, and does not notice.
    let first = world.nodes[0].take();
    world.start_node(0, NodeConfig::default());
    world.run_ms(1_000);
    assert!(world.node(0).is_joined());
    let fenced = HubEvent::Refused {
        node: Some(node_id(0)),
        reason: DownReason::Fenced,
    };
    assert_eq!(
        world.hub_events.last(),
        Some(&HubEvent::NodeUp {
            node: node_id(0),
            instance: wire::InstanceId(2),
            epoch: Epoch(2),
            role: Role::GameNode,
        })
    );
    assert!(world.hub_events.contains(&fenced));
    // The first one is fenced when it reconnects, and stays away.
    world.nodes[0] = first;
    world.take_events();
    world.run_ms(10_000);
    let reported = world.take_events();
    assert!(reported.contains(&(0, NodeEvent::Refused(DownReason::Fenced))));
    let dials = world.node(0).stats().dials;
    world.run_ms(60_000);
    assert_eq!(world.node(0).stats().dials, dials);
}

#[test]
fn nodes_continue_with_a_hub_with_a_replaced_disk() {
    let mut world = World::joined(1, 1);
    let key = hub::CountKey::from(Name::new("kill").unwrap());
    for round in 0..2 {
        for _ in 0..5 {
            let now = world.now;
            world
                .node(0)
                .mail(now, PLAYER, body("x"), Duration::ZERO)
                .unwrap();
            world.node(0).count(key.clone(), 1);
            world.run_ms(1_500);
        }
        assert_eq!(world.node(0).mails_waiting(), 0);
        assert!(world.node(0).is_counted());
        assert_eq!(world.hub().store.mail_count(), 5);
        assert_eq!(world.hub().store.total(&key), 5);
        if round == 0 {
            world.replace_disk();
            world.run_ms(2_000);
        }
    }
}

#[test]
fn hub_2_after_a_disk_is_replaced_all_mail_of_the_new_log_is_delivered() {
    let mut world = World::joined(1, 2);
    let now = world.now;
    let node = world.node(1);
    let claim = node.claim(now, PLAYER, MailSeq(0), Bytes::new()).unwrap();
    let mut logs = Vec::new();
    for round in 0..2 {
        let mut handled = Vec::new();
        for number in 0..5 {
            let now = world.now;
            let text = body(&format!("{round}/{number}"));
            world
                .node(0)
                .mail(now, PLAYER, text, Duration::ZERO)
                .unwrap();
            world.run_ms(500);
            for (_, event) in world.take_events() {
                match event {
                    NodeEvent::Mail { seq, body, .. } => {
                        let now = world.now;
                        assert!(world.node(1).acknowledge(now, claim, seq));
                        handled.push(body);
                    }
                    NodeEvent::Joined { log, .. } => logs.push(log),
                    _ => {}
                }
            }
        }
        assert_eq!(handled.len(), 5, "of round {round}");
        world.run_ms(500);
        assert_eq!(world.hub().store.mail_count(), 0, "and acknowledged");
        world.replace_disk();
        world.run_ms(2_000);
    }
    assert!(logs.windows(2).any(|pair| pair[0] != pair[1]), "{logs:?}");
}

#[test]
fn an_unlisted_or_overreaching_node_is_reported_and_refused() {
    for (config, reason) in [
        (server("shop"), DownReason::ServiceRefused),
        (
            {
                let mut config = NodeConfig::default();
                config.role = Role::Admin;
                config
            },
            DownReason::RoleRefused,
        ),
    ] {
        let mut world = World::joined(1, 1);
        world.crash_node(0);
        world.start_node(0, config);
        world.run_ms(1_000);
        let events = world.take_events();
        assert!(events.contains(&(0, NodeEvent::Refused(reason))));
        assert!(!world.node(0).is_joined());
    }
    let mut world = World::joined(1, 1);
    world.hub().machine.set_join_file(join_file(0));
    world.drain_all();
    world.run_ms(100);
    let reported = world.take_events();
    assert!(reported.contains(&(0, NodeEvent::Refused(DownReason::NotListed))));
}

#[test]
fn hub_10_counts_are_added_once_though_batches_are_repeated() {
    for seed in seeds(30) {
        let mut world = World::joined(seed, 2);
        let key = hub::CountKey::from(Name::new("kill").unwrap());
        for round in 0..40 {
            world.node(0).count(key.clone(), 3);
            world.node(1).count(key.clone(), 1);
            world.run_ms(150);
            if round % 5 == 0 {
                world.reset_some_stream();
            }
            if round % 13 == 12 {
                world.crash_hub(
                    if round == 25 {
                        Power::Cut
                    } else {
                        Power::Stays
                    },
                    Duration::from_millis(400),
                );
            }
        }
        world.run_ms(5_000);
        assert_eq!(world.hub().store.total(&key), 160, "seed {seed}");
    }
}

#[test]
fn an_unreachable_hub_is_dialled_with_backoff() {
    let mut world = World::new(1, 1);
    world.start_node(0, NodeConfig::default());
    world.run_ms(60_000);
    let dials = world.node(0).stats().dials;
    assert!((115..260).contains(&dials), "{dials} dials in a minute");
}

#[test]
fn acknowledgements_that_wait_are_sent_before_a_node_leaves() {
    let mut world = World::joined(1, 2);
    let now = world.now;
    world
        .node(0)
        .mail(now, PLAYER, body("x"), Duration::ZERO)
        .unwrap();
    let claim = world
        .node(1)
        .claim(now, PLAYER, MailSeq(0), Bytes::new())
        .unwrap();
    world.run_ms(300);
    assert_eq!(world.hub().store.mail_count(), 1);
    let now = world.now;
    assert!(world.node(1).acknowledge(now, claim, MailSeq(1)));
    world.node(1).leave(now);
    world.run_ms(300);
    assert_eq!(world.hub().store.mail_count(), 0);
    assert_eq!(world.hub().machine.nodes().count(), 1);
}

#[test]
fn equal_seeds_give_equal_runs() {
    let run = || {
        let mut world = World::joined(5, 3);
        for round in 0..30 {
            let now = world.now;
            let player = ClientId(round % 4);
            let index = usize::try_from(round % 3).unwrap();
            let node = world.node(index);
            node.claim(now, player, MailSeq(0), Bytes::new()).unwrap();
            node.mail(now, player, body("x"), Duration::ZERO).unwrap();
            world.run_ms(70);
            if round % 9 == 8 {
                world.crash_hub(Power::Cut, Duration::from_millis(90));
            }
        }
        world.run_ms(2_000);
        let disk = world.hub().store.files_mut().contents();
        (format!("{:?}", world.take_events()), disk)
    };
    assert_eq!(run(), run());
}

//! Claims: at most one node holds a player.

use std::time::Duration;

use bytes::Bytes;
use hub::record::RevokeReason;
use hub::{DuplicateClaim, HubEvent, MailSeq, NodeConfig, NodeEvent};
use wire::ClientId;

use crate::world::{Power, World, node_id};

const PLAYER: ClientId = ClientId(7);

#[test]
fn hub_8_the_later_claim_wins_also_after_a_reconnect() {
    let mut world = World::joined(1, 2);
    let now = world.now;
    let first = world.node(0).claim(now, PLAYER, MailSeq(0), Bytes::new());
    world.run_ms(100);
    let second = world.node(1).claim(now, PLAYER, MailSeq(0), Bytes::new());
    world.run_ms(100);
    let events = world.take_events();
    let lost = NodeEvent::ClaimLost(first.unwrap(), RevokeReason::Taken);
    assert!(events.contains(&(0, lost)));
    assert!(events.contains(&(1, NodeEvent::Claimed(second.unwrap()))));
    assert_eq!(world.hub().machine.holder(PLAYER), Some(node_id(1)));
    let taken = HubEvent::PlayerTaken {
        player: PLAYER,
        from: node_id(0),
        by: node_id(1),
    };
    let reports = world.hub_events.iter().filter(|event| **event == taken);
    assert_eq!(reports.count(), 1);
    assert_eq!(world.hub().machine.stats().players_taken, 1);
    // Node 0 claims the player while node 1 is disconnected. Node 1 returns with an older lease.
    let away = Duration::from_millis(1);
    world.node(1);
    world.crash_hub(Power::Cut, away);
    world.run_ms(2_000);
    assert_eq!(world.hub().machine.holder(PLAYER), Some(node_id(1)));
    let now = world.now;
    let third = world.node(0).claim(now, PLAYER, MailSeq(0), Bytes::new());
    world.run_ms(100);
    world.crash_hub(Power::Stays, away);
    world.run_ms(2_000);
    assert_eq!(world.hub().machine.holder(PLAYER), Some(node_id(0)));
    let now = world.now;
    assert!(world.node(0).acknowledge(now, third.unwrap(), MailSeq(0)));
}

#[test]
fn a_second_claim_is_refused_if_configured() {
    let mut world = World::new(1, 2);
    world.hub_config.duplicate_claim = DuplicateClaim::Refuse;
    world.start_hub();
    for index in 0..2 {
        world.start_node(index, NodeConfig::default());
    }
    world.run_ms(1_000);
    let now = world.now;
    let first = world.node(0).claim(now, PLAYER, MailSeq(0), Bytes::new());
    world.run_ms(100);
    let second = world.node(1).claim(now, PLAYER, MailSeq(0), Bytes::new());
    world.run_ms(100);
    let refused = NodeEvent::ClaimLost(second.unwrap(), RevokeReason::Held);
    assert!(world.take_events().contains(&(1, refused)));
    assert_eq!(world.hub().machine.holder(PLAYER), Some(node_id(0)));
    let now = world.now;
    assert!(world.node(0).release(now, first.unwrap()));
    world.run_ms(100);
    assert_eq!(world.hub().machine.player_count(), 0);
}

#[test]
fn players_of_a_dead_node_are_free_after_the_lease_or_its_next_run() {
    let mut world = World::joined(1, 2);
    let now = world.now;
    for id in [1, 2] {
        world
            .node(0)
            .claim(now, ClientId(id), MailSeq(0), Bytes::new())
            .unwrap();
    }
    world.run_ms(100);
    world.crash_node(0);
    world.run_ms(9_000);
    assert_eq!(world.hub().machine.player_count(), 2);
    assert_eq!(world.hub().machine.holder(PLAYER), None);
    world.run_ms(1_500);
    assert_eq!(world.hub().machine.player_count(), 0);
}

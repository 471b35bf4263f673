//! What a node does with several hubs.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use hub::record::{CallError, LiveOutcome, MailRefusal, NodeFilter, PlayerFilter, PresenceFilter};
use hub::{
    Addr, GroupId, MailOptions, MailSeq, Name, NodeConfig, NodeEvent, PlayerMessage, Role,
    SendError, Shard,
};
use wire::ClientId;

use super::net::Net;
use crate::world::{Power, body, node_id, server};

/// The first players of each of `count` shards.
pub(super) fn players_of(count: u8) -> Vec<Vec<ClientId>> {
    let mut players = vec![Vec::new(); count.into()];
    for player in (0..400).map(ClientId) {
        let own: &mut Vec<_> = &mut players[usize::from(Shard::of_player(player, count))];
        if own.len() < 4 {
            own.push(player);
        }
    }
    players
}

fn claim(net: &mut Net, node: usize, player: ClientId) -> hub::ClaimId {
    let now = net.now;
    let claim = net.node(node).claim(now, player, MailSeq(0), Bytes::new());
    claim.unwrap()
}

const SECOND: Duration = Duration::from_secs(1);

fn outcome_of(net: &mut Net, live: hub::LiveSeq) -> Option<LiveOutcome> {
    let events = net.take_events().into_iter();
    let mut outcomes = events.filter_map(|(_, event)| match event {
        NodeEvent::LiveSent { first, outcome, .. } if first == live => Some(outcome),
        _ => None,
    });
    outcomes.next().expect("an outcome")
}

#[test]
fn hub_9_a_dead_shard_delays_no_call_or_mail_of_the_others() {
    let mut net = Net::joined(1, 3, 2, &NodeConfig::default());
    let players: Vec<_> = players_of(3).into_iter().map(|own| own[0]).collect();
    for player in &players {
        claim(&mut net, 1, *player);
    }
    net.run_ms(500);
    net.crash_hub(1, Power::Stays, None);
    net.run_ms(100);
    net.take_events();
    let now = net.now;
    for shard in [0, 2] {
        let to = Addr::Player(players[shard]);
        net.node(0).call(now, to, body("hello"), SECOND).unwrap();
    }
    let to = Addr::Player(players[1]);
    let failed = net.node(0).call(now, to, body("hello"), SECOND);
    assert!(matches!(failed, Err(SendError::HubDown(_))), "{failed:?}");
    // Every hub reaches a node: another one takes the place of its own.
    for _ in 0..2 {
        let to = Addr::Node(node_id(1));
        net.node(0).call(now, to, body("hello"), SECOND).unwrap();
    }
    let sent = players.iter().map(|player| {
        net.node(0)
            .mail(now, *player, body("mail"), Duration::ZERO)
            .unwrap()
    });
    let sent: Vec<_> = sent.collect();
    let live = net.node(0).multicast(now, &players, body("all")).unwrap();
    net.run_ms(100);
    let mut requests = 0;
    let mut stored = Vec::new();
    let mut outcome = None;
    for (_, event) in net.take_events() {
        match event {
            NodeEvent::Request { .. } => requests += 1,
            NodeEvent::MailStored(seq) => stored.push(seq),
            NodeEvent::LiveSent {
                first, outcome: it, ..
            } if first == live => outcome = it,
            _ => {}
        }
    }
    assert_eq!(requests, 4, "within 100 ms");
    assert_eq!(stored.len(), 2);
    assert!(!stored.contains(&sent[1]));
    let outcome = outcome.expect("an outcome");
    assert_eq!((outcome.reached, outcome.busy), (2, 1));
    net.restart_hub(1);
    net.run_ms(2_000);
    let events = net.take_events();
    let last = NodeEvent::MailStored(sent[1]);
    assert!(events.iter().any(|(_, event)| *event == last));
    assert!(net.node(0).is_joined_for(players[1]));
}

#[test]
fn hub_9_calls_of_several_shards_have_numbers_of_their_own() {
    let mut net = Net::joined(2, 3, 2, &NodeConfig::default());
    let players = players_of(3);
    let mut calls = BTreeSet::new();
    let now = net.now;
    for player in players.iter().flatten() {
        let to = Addr::Player(*player);
        let call = net.node(0).call(now, to, Bytes::new(), SECOND).unwrap();
        assert!(calls.insert(call));
    }
    let cancelled = *calls.first().unwrap();
    assert!(net.node(0).cancel(now, cancelled));
    assert!(!net.node(0).cancel(now, cancelled));
    calls.remove(&cancelled);
    net.run_ms(500);
    for (_, event) in net.take_events() {
        if let NodeEvent::Reply { call, result } = event {
            assert_eq!(result, Err(CallError::Unreachable));
            assert!(calls.remove(&call));
        }
    }
    assert!(calls.is_empty());
}

#[test]
fn hub_9_a_service_is_called_through_whichever_hub_is_up() {
    let mut net = Net::new(3, 3, 2);
    net.start_node(0, NodeConfig::default());
    net.start_node(1, server("matchmaker"));
    net.run_ms(1_500);
    for hub in 0..2 {
        net.crash_hub(hub, Power::Stays, None);
        net.run_ms(50);
        let (now, service) = (net.now, Name::new("matchmaker").unwrap());
        let to = Addr::Service(service);
        net.node(0).call(now, to, body("x"), SECOND).unwrap();
        net.run_ms(100);
        let events = net.take_events();
        let mut requests = events.into_iter().filter_map(|(_, event)| match event {
            NodeEvent::Request { ticket, .. } => Some(ticket),
            _ => None,
        });
        let ticket = requests.next().expect("a request");
        let now = net.now;
        net.node(1).reply(now, ticket, Ok(body("y"))).unwrap();
        net.run_ms(100);
        let is_reply = |event: &NodeEvent| matches!(event, NodeEvent::Reply { result: Ok(_), .. });
        assert!(net.take_events().iter().any(|(_, event)| is_reply(event)));
        let now = net.now;
        let topic = Name::new("news").unwrap();
        net.node(0).broadcast(now, topic, body("z")).unwrap();
        net.run_ms(100);
        let is_news = |event: &NodeEvent| matches!(event, NodeEvent::Broadcast { .. });
        assert!(net.take_events().iter().any(|(_, event)| is_news(event)));
    }
}

#[test]
fn hub_9_a_topic_reaches_the_players_of_all_shards_also_after_a_restart() {
    let mut net = Net::joined(4, 3, 2, &NodeConfig::default());
    let players: Vec<_> = players_of(3).into_iter().map(|own| own[0]).collect();
    let topics: Vec<_> = (0..6)
        .map(|number| Name::new(&format!("topic-{number}")).unwrap())
        .collect();
    let claims: Vec<_> = players
        .iter()
        .map(|player| claim(&mut net, 1, *player))
        .collect();
    for topic in &topics {
        for claim in &claims {
            let now = net.now;
            assert!(net.node(1).subscribe(now, *claim, *topic));
        }
    }
    for restart in [false, true] {
        if restart {
            for hub in 0..3 {
                net.crash_hub(hub, Power::Stays, Some(Duration::from_millis(100)));
            }
            net.run_ms(3_000);
        }
        net.run_ms(500);
        net.take_events();
        for topic in &topics {
            let now = net.now;
            let live = net.node(0).cast(now, *topic, body("x")).unwrap();
            net.run_ms(100);
            assert_eq!(
                outcome_of(&mut net, live).unwrap().reached,
                1,
                "one record a node"
            );
            for claim in &claims {
                let message = net.node(1).next_message(*claim);
                assert!(matches!(message, Some(PlayerMessage::Cast { .. })));
                assert_eq!(net.node(1).next_message(*claim), None);
            }
        }
    }
    // The last subscriber of a topic ends the subscription of the node.
    let now = net.now;
    net.node(1).unsubscribe(now, claims[0], topics[0]);
    net.node(1).release(now, claims[1]);
    claim(&mut net, 1, players[2]);
    net.run_ms(200);
    net.take_events();
    let now = net.now;
    let live = net.node(0).cast(now, topics[0], body("x")).unwrap();
    net.run_ms(100);
    assert_eq!(outcome_of(&mut net, live).unwrap().reached, 0);
}

#[test]
fn hub_9_a_group_spans_all_shards() {
    let mut net = Net::joined(5, 3, 2, &NodeConfig::default());
    let members: BTreeSet<_> = players_of(3).into_iter().flatten().collect();
    let group = GroupId(77);
    let mut claims = Vec::new();
    for player in &members {
        let now = net.now;
        net.node(0).join_group(now, group, *player).unwrap();
        claims.push(claim(&mut net, 1, *player));
    }
    net.run_ms(500);
    let events = net.take_events();
    let done = |event: &NodeEvent| matches!(event, NodeEvent::GroupDone { result: Ok(()), .. });
    assert_eq!(events.iter().filter(|(_, event)| done(event)).count(), 12);
    let now = net.now;
    let listed = net.node(0).list_group(now, group, ClientId(3)).unwrap();
    let sent = net.node(0).send_group(now, group, body("live")).unwrap();
    let options = MailOptions::default();
    let mailed = net.node(0).mail_group(now, group, body("mail"), options);
    let nobody = net
        .node(0)
        .mail_group(now, GroupId(78), body("mail"), options);
    let (mailed, nobody) = (mailed.unwrap(), nobody.unwrap());
    net.run_ms(500);
    let (mut mails, mut seen) = (0, 0);
    for (_, event) in net.take_events() {
        match event {
            NodeEvent::GroupMembers {
                request,
                players,
                more,
            } => {
                assert_eq!((request, more), (listed, false));
                let expected = members.iter().filter(|player| player.0 >= 3).copied();
                assert_eq!(players, expected.collect::<Vec<_>>());
                seen += 1;
            }
            NodeEvent::GroupSent { request, outcome } => {
                assert_eq!((request, outcome.reached), (sent, 12));
                seen += 1;
            }
            NodeEvent::MailStored(seq) => {
                assert_eq!(seq, mailed);
                seen += 1;
            }
            NodeEvent::MailRefused(seq, reason) => {
                assert_eq!((seq, reason), (nobody, MailRefusal::NoMember));
                seen += 1;
            }
            NodeEvent::Mail { .. } => mails += 1,
            _ => {}
        }
    }
    assert_eq!(seen, 4);
    // A mail behind a live message waits in the queue of the player.
    let mut queued = 0;
    for claim in claims {
        queued += std::iter::from_fn(|| net.node(1).next_message(claim)).count();
    }
    assert_eq!(mails + queued, 24, "one live message and one mail each");
}

#[test]
fn hub_9_a_group_is_reached_while_a_hub_is_away_and_listed_when_all_are_up() {
    let mut net = Net::joined(9, 3, 2, &NodeConfig::default());
    let group = GroupId(77);
    for player in players_of(3).into_iter().flatten() {
        let now = net.now;
        net.node(0).join_group(now, group, player).unwrap();
        claim(&mut net, 1, player);
    }
    net.run_ms(500);
    net.take_events();
    net.crash_hub(2, Power::Stays, None);
    net.run_ms(50);
    let now = net.now;
    let listed = net.node(0).list_group(now, group, ClientId(0));
    assert!(matches!(listed, Err(SendError::HubDown(_))));
    let sent = net.node(0).send_group(now, group, body("live")).unwrap();
    net.run_ms(200);
    let sent = net
        .take_events()
        .into_iter()
        .find_map(|(_, event)| match event {
            NodeEvent::GroupSent { request, outcome } if request == sent => Some(outcome),
            _ => None,
        });
    let outcome = sent.unwrap();
    assert_eq!((outcome.reached, outcome.busy), (8, 1));
}

#[test]
fn hub_9_the_verdicts_of_several_shards_are_one() {
    let mut net = Net::new(6, 3, 1);
    net.store_config.mailbox_mails_max = 1;
    for hub in 0..3 {
        net.crash_hub(hub, Power::Stays, None);
        net.restart_hub(hub);
    }
    net.start_node(0, NodeConfig::default());
    net.run_ms(1_500);
    let players: Vec<_> = players_of(3).into_iter().map(|own| own[0]).collect();
    let options = MailOptions::default();
    let now = net.now;
    // One of the three mailboxes is full, then all.
    net.node(0)
        .mail(now, players[2], body("x"), Duration::ZERO)
        .unwrap();
    let part = net
        .node(0)
        .mail_many(now, &players, body("y"), options)
        .unwrap();
    let none = net
        .node(0)
        .mail_many(now, &players, body("z"), options)
        .unwrap();
    net.run_ms(500);
    let mut seen = 0;
    for (_, event) in net.take_events() {
        if let NodeEvent::MailPartRefused {
            seq,
            stored,
            refused_count,
            refused,
            reason,
        } = event
        {
            assert_eq!((seq, stored, refused_count), (part, 2, 1));
            assert_eq!(
                (refused, reason),
                (vec![players[2]], MailRefusal::MailboxFull)
            );
            seen += 1;
        } else if let NodeEvent::MailRefused(seq, reason) = event {
            assert_eq!((seq, reason), (none, MailRefusal::MailboxFull));
            seen += 1;
        }
    }
    assert_eq!(seen, 2);
    assert_eq!(net.node(0).mails_waiting(), 0);
}

#[test]
fn hub_9_another_presence_filter_starts_over() {
    let mut config = NodeConfig::default();
    config.presence = Some(PresenceFilter {
        nodes: NodeFilter::All,
        players: PlayerFilter::None,
    });
    let mut net = Net::joined(7, 3, 2, &config);
    let players = players_of(3);
    for player in players.iter().flatten() {
        claim(&mut net, 1, *player);
    }
    net.run_ms(500);
    let events = net.take_events();
    assert!(
        !events
            .iter()
            .any(|(_, event)| matches!(event, NodeEvent::PlayerPresence(..)))
    );
    let (now, wanted) = (net.now, players[2][1]);
    let filter = PresenceFilter {
        nodes: NodeFilter::Matching {
            roles: vec![Role::Admin],
            services: Vec::new(),
        },
        players: PlayerFilter::players(&[wanted, players[0][0]]).unwrap(),
    };
    assert!(net.node(0).watch_presence(now, filter));
    net.run_ms(500);
    let events = net.take_events().into_iter();
    let events: Vec<_> = events
        .filter(|(node, _)| *node == 0)
        .map(|(_, event)| event)
        .collect();
    assert_eq!(events[0], NodeEvent::PresenceReset);
    let players: BTreeSet<_> = events
        .iter()
        .filter_map(|event| match event {
            NodeEvent::PlayerPresence(player, Some(_)) => Some(*player),
            _ => None,
        })
        .collect();
    assert_eq!(players, BTreeSet::from([wanted, players_of(3)[0][0]]));
    assert_eq!(events.last(), Some(&NodeEvent::PresenceComplete));
}

#[test]
fn hub_9_one_node_may_have_sixteen_hubs() {
    let mut net = Net::joined(8, 16, 2, &NodeConfig::default());
    assert_eq!(net.node(0).hub_count(), 16);
    let players: Vec<_> = players_of(16).into_iter().map(|own| own[0]).collect();
    for player in &players {
        claim(&mut net, 1, *player);
    }
    let now = net.now;
    let options = MailOptions::default();
    let seq = net.node(0).mail_many(now, &players, body("x"), options);
    net.run_ms(1_000);
    let events = net.take_events();
    let stored = NodeEvent::MailStored(seq.unwrap());
    assert!(events.contains(&(0, stored)));
    let mails = |event: &NodeEvent| matches!(event, NodeEvent::Mail { .. });
    assert_eq!(events.iter().filter(|(_, event)| mails(event)).count(), 16);
}

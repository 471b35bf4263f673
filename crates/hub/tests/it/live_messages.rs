//! Live messages: forward, multicast, topics, queues of players, kick.

use std::time::Duration;

use bytes::Bytes;
use hub::record::{DownReason, LiveOutcome, LiveToHub, PlayerList, TOPICS_MAX, ToHub, ToNode};
use hub::{
    ClaimId, HubConfig, LiveOverflow, LiveSeq, MailSeq, Name, Node, NodeConfig, NodeEvent,
    PlayerMessage, Redacted, Role, SendError,
};
use wire::{ClientId, StreamMachine};

use crate::bare::{LINK, NOW, OTHER, THIRD, claim as claim_record, down, three};
use crate::world::{Power, World, body, node_id, seeds, topic};

const PLAYER: ClientId = ClientId(7);

fn claim(world: &mut World, index: usize, player: ClientId) -> ClaimId {
    let now = world.now;
    let node = world.node(index);
    node.claim(now, player, MailSeq(0), Bytes::new()).unwrap()
}

/// The outcomes that a node was told, each as `(first, last, outcome)`.
fn outcomes(events: &[(usize, NodeEvent)]) -> Vec<(u64, u64, Option<LiveOutcome>)> {
    let outcome = |(_, event): &(usize, NodeEvent)| match event {
        NodeEvent::LiveSent {
            first,
            last,
            outcome,
        } => Some((first.0, last.0, *outcome)),
        _ => None,
    };
    let mut runs: Vec<(u64, u64, _)> = Vec::new();
    for (first, last, outcome) in events.iter().filter_map(outcome) {
        // How many share a record depends on the time.
        match runs.last_mut() {
            Some((_, end, known)) if *end + 1 == first && *known == outcome => *end = last,
            _ => runs.push((first, last, outcome)),
        }
    }
    runs
}

fn outcome(reached: u16, offline: u16, busy: u16) -> LiveOutcome {
    let mut outcome = LiveOutcome::default();
    outcome.reached = reached;
    outcome.offline = offline;
    outcome.busy = busy;
    outcome
}

/// Takes all messages that wait for a player.
fn take_all(node: &mut Node, claim: ClaimId) -> Vec<PlayerMessage> {
    std::iter::from_fn(|| node.next_message(claim)).collect()
}

fn text(message: &PlayerMessage) -> String {
    String::from_utf8(message.body().to_vec()).unwrap()
}

#[test]
fn h3_a_forward_reaches_the_players_node_and_its_outcome_is_reported() {
    let mut world = World::joined(1, 3);
    let held = claim(&mut world, 1, PLAYER);
    world.run_ms(100);
    world.take_events();
    let now = world.now;
    let node = world.node(0);
    assert_eq!(node.forward(now, PLAYER, body("gg")), Ok(LiveSeq(1)));
    assert_eq!(node.forward(now, PLAYER, body("wp")), Ok(LiveSeq(2)));
    assert_eq!(node.forward(now, ClientId(8), body("?")), Ok(LiveSeq(3)));
    world.run_ms(100);
    let events = world.take_events();
    assert_eq!(
        outcomes(&events),
        [
            (1, 2, Some(outcome(1, 0, 0))),
            (3, 3, Some(outcome(0, 1, 0)))
        ]
    );
    let ready: Vec<_> = events
        .iter()
        .filter(|(_, event)| *event == NodeEvent::MessageReady(held))
        .map(|(index, _)| *index)
        .collect();
    assert_eq!(ready, [1], "once for both messages");
    let message = |text| PlayerMessage::Forward {
        from: node_id(0),
        body: Redacted(body(text)),
    };
    assert_eq!(
        take_all(world.node(1), held),
        [message("gg"), message("wp")]
    );
    assert_eq!(world.node(1).message_count(held), 0);
    let stats = world.hub().machine.stats();
    assert_eq!((stats.forwards, stats.forwards_offline), (2, 1));
}

#[test]
fn h6_a_multicast_costs_one_record_a_node_and_reaches_each_player_once() {
    let mut bare = three(HubConfig::default());
    for player in 0..300 {
        let link = if player % 3 == 0 { OTHER } else { THIRD };
        bare.send(link, &claim_record(player));
    }
    bare.written(LINK);
    // Player 999 is offline.
    let players: Vec<_> = (0..300).chain([999]).map(ClientId).collect();
    let mut ids = Vec::new();
    let record = ToHub::Live(LiveToHub::Forward {
        live: LiveSeq(1),
        players: PlayerList::encode_into(&players, &mut ids).unwrap(),
        body: Redacted(b"all of you"),
    });
    bare.send(LINK, &record);
    let mut buf = Vec::new();
    let mut received: Vec<_> = Vec::new();
    let mut reported = None;
    while let Some(outbound) = bare.hub.poll_outbound(NOW, &mut buf) {
        match ToNode::decode(&buf).unwrap() {
            ToNode::Live(hub::record::LiveToNode::Forward { players, from, .. }) => {
                assert_eq!(from, node_id(0));
                received.push((outbound.connection, players.iter().collect::<Vec<_>>()));
            }
            ToNode::Live(hub::record::LiveToNode::Sent { outcome, .. }) => reported = Some(outcome),
            _ => {}
        }
        buf.clear();
    }
    let of = |rest: &[u64]| -> Vec<_> {
        let is_mine = |player: &u64| rest.contains(&(player % 3));
        (0..300).filter(is_mine).map(ClientId).collect()
    };
    received.sort();
    assert_eq!(received, [(OTHER, of(&[0])), (THIRD, of(&[1, 2]))]);
    assert_eq!(reported, Some(outcome(300, 1, 0)));
}

#[test]
fn h6_a_cast_reaches_each_subscriber_once_and_a_local_one_no_other_node() {
    let mut world = World::joined(1, 3);
    let claims: Vec<_> = (0..6_u64)
        .map(|player| {
            claim(
                &mut world,
                usize::try_from(player % 3).unwrap(),
                ClientId(player),
            )
        })
        .collect();
    let guild = Name::new("guild.7").unwrap();
    let now = world.now;
    for (index, held) in claims.iter().enumerate().filter(|(index, _)| *index != 3) {
        assert!(world.node(index % 3).subscribe(now, *held, guild));
    }
    world.run_ms(100);
    let now = world.now;
    world.node(0).cast(now, guild, body("raid")).unwrap();
    assert_eq!(world.node(1).cast_locally(now, body("maintenance")), 2);
    world.run_ms(100);
    let events = world.take_events();
    assert_eq!(outcomes(&events), [(1, 1, Some(outcome(2, 0, 0)))]);
    let mut received = Vec::new();
    for (index, held) in claims.iter().enumerate() {
        let messages = take_all(world.node(index % 3), *held);
        received.push(messages.iter().map(text).collect::<Vec<_>>());
    }
    let both = vec!["maintenance".to_owned(), "raid".to_owned()];
    let raid = vec!["raid".to_owned()];
    let expected = [&raid, &both, &raid, &vec![], &both, &raid].map(Clone::clone);
    assert_eq!(received, expected);

    // The last subscriber of a node ends its subscription at the hub.
    let now = world.now;
    world.node(1).unsubscribe(now, claims[1], guild);
    assert!(world.node(1).release(now, claims[4]));
    world.run_ms(100);
    let now = world.now;
    world.node(0).cast(now, guild, body("again")).unwrap();
    world.run_ms(100);
    let events = world.take_events();
    assert_eq!(outcomes(&events), [(2, 2, Some(outcome(1, 0, 0)))]);
}

#[test]
fn h8_subscriptions_are_restored_when_the_hub_returns() {
    for seed in seeds(10) {
        let mut world = World::joined(seed, 2);
        let held = claim(&mut world, 1, PLAYER);
        let now = world.now;
        assert!(world.node(1).subscribe(now, held, topic()));
        world.run_ms(100);
        world.crash_hub(Power::Cut, Duration::from_millis(500));
        world.run_ms(2_000);
        let now = world.now;
        world.node(0).cast(now, topic(), body("back")).unwrap();
        world.run_ms(100);
        let messages = take_all(world.node(1), held);
        assert_eq!(messages.iter().map(text).collect::<Vec<_>>(), ["back"]);
    }
}

/// A world whose node 1 holds the player with a queue of 4, and 10 messages sent to it.
fn overflow(overflow: LiveOverflow) -> (World, ClaimId) {
    let mut world = World::joined(1, 2);
    let mut config = NodeConfig::default();
    config.live_queue_max = 4;
    config.live_overflow = overflow;
    world.crash_node(1);
    world.start_node(1, config);
    world.run_ms(1_000);
    let held = claim(&mut world, 1, PLAYER);
    world.run_ms(100);
    world.take_events();
    let now = world.now;
    for number in 0..10 {
        let text = body(&number.to_string());
        world.node(0).forward(now, PLAYER, text).unwrap();
    }
    world.run_ms(500);
    (world, held)
}

fn texts(messages: &[PlayerMessage]) -> Vec<String> {
    messages.iter().map(text).collect()
}

#[test]
fn h7_a_full_queue_drops_the_newest_or_the_oldest() {
    let (mut world, held) = overflow(LiveOverflow::DropNewest);
    assert_eq!(texts(&take_all(world.node(1), held)), ["0", "1", "2", "3"]);
    assert_eq!(world.node(1).stats().live_dropped, 6);
    let (mut world, held) = overflow(LiveOverflow::DropOldest);
    assert_eq!(texts(&take_all(world.node(1), held)), ["6", "7", "8", "9"]);
    assert_eq!(world.node(1).stats().live_dropped, 6);
}

#[test]
fn h7_a_full_queue_asks_once_to_disconnect_the_player() {
    let (mut world, held) = overflow(LiveOverflow::Kick);
    let asked = world
        .take_events()
        .into_iter()
        .filter(|(_, event)| *event == NodeEvent::SlowPlayer(held));
    assert_eq!(asked.count(), 1);
    assert_eq!(world.node(1).stats().live_dropped, 6);
}

/// A sender and a player with a small queue that spills, in a seeded world.
struct Spilling {
    world: World,
    held: ClaimId,
    sent: u64,
    received: Vec<u64>,
}

impl Spilling {
    fn new(seed: u64) -> Self {
        let mut world = World::joined(seed, 2);
        let mut config = NodeConfig::default();
        config.live_queue_max = 4;
        config.live_overflow = LiveOverflow::Spill;
        world.crash_node(1);
        world.start_node(1, config);
        world.run_ms(1_000);
        let held = claim(&mut world, 1, PLAYER);
        world.run_ms(100);
        world.take_events();
        Self {
            world,
            held,
            sent: 0,
            received: Vec::new(),
        }
    }

    /// Sends a burst, up to `count` messages in all, and takes a few after a pause.
    fn step(&mut self, count: u64) {
        let now = self.world.now;
        let burst = self.world.generator.below(8).min(count - self.sent);
        for _ in 0..burst {
            let text = body(&self.sent.to_string());
            // Without a link nothing is sent.
            if self.world.node(0).forward(now, PLAYER, text).is_ok() {
                self.sent += 1;
            }
        }
        let pause = self.world.generator.below(60);
        self.world.run_ms(pause);
        for (index, event) in self.world.take_events() {
            if let (1, NodeEvent::Mail { seq, body, .. }) = (index, event) {
                self.receive(&body, Some(seq));
            }
        }
        for _ in 0..self.world.generator.below(5) {
            let Some(message) = self.world.node(1).next_message(self.held) else {
                break;
            };
            let seq = match &message {
                PlayerMessage::Mail { seq, .. } => Some(*seq),
                _ => None,
            };
            self.receive(message.body(), seq);
        }
    }

    fn receive(&mut self, body: &[u8], mail: Option<MailSeq>) {
        let number = str::from_utf8(body).unwrap().parse().unwrap();
        self.received.push(number);
        if let Some(seq) = mail {
            let (now, held) = (self.world.now, self.held);
            self.world.node(1).acknowledge(now, held, seq);
        }
    }
}

#[test]
fn sim_h7_a_full_queue_spills_to_the_mailbox_in_order() {
    for seed in seeds(60) {
        let mut spilling = Spilling::new(seed);
        while spilling.received.len() < 200 {
            spilling.step(200);
            let late = spilling.world.now.as_millis() > 600_000;
            assert!(!late, "seed {seed}: {:?}", spilling.received);
        }
        assert_eq!(
            spilling.received,
            (0..200).collect::<Vec<_>>(),
            "seed {seed}"
        );
        let stats = spilling.world.node(1).stats();
        assert!(stats.live_spilled > 0, "seed {seed}");
        assert_eq!(stats.live_dropped, 0);
    }
}

#[test]
fn sim_h7_spilled_messages_keep_their_order_under_link_and_hub_failures() {
    let mut all_spilled = 0;
    for seed in seeds(60) {
        let mut spilling = Spilling::new(seed);
        while spilling.sent < 300 {
            spilling.step(300);
            let world = &mut spilling.world;
            match world.generator.below(30) {
                0 if world.hub.is_some() => {
                    let power = Power::draw(&mut world.generator);
                    world.crash_hub(power, Duration::from_millis(80));
                }
                1 => world.reset_some_stream(),
                _ => {}
            }
        }
        // What was spilled arrives, though the links that it came over have ended.
        for _ in 0..400 {
            spilling.step(300);
        }
        let received = &spilling.received;
        assert!(
            received.is_sorted_by(|a, b| a < b),
            "seed {seed}: {received:?}"
        );
        let node = spilling.world.node(1);
        let (queued, spilled) = (node.stats().live_queued, node.stats().live_spilled);
        assert_eq!(
            received.len() as u64,
            queued + spilled,
            "seed {seed}: {received:?}, {:?}",
            node.stats()
        );
        all_spilled += spilled;
    }
    assert!(all_spilled > 0);
}

#[test]
fn h7_a_queue_and_all_queues_of_a_node_are_bounded_in_bytes() {
    let mut config = NodeConfig::default();
    config.live_queue_bytes_max = 10_000;
    config.live_bytes_max = 25_000;
    let mut world = World::joined(1, 2);
    world.crash_node(1);
    world.start_node(1, config);
    world.run_ms(1_000);
    let claims: Vec<_> = (0..4)
        .map(|id| claim(&mut world, 1, ClientId(id)))
        .collect();
    world.run_ms(100);
    let empty = world.node(1).memory_bytes();
    let now = world.now;
    for _ in 0..100 {
        // A body for each: one that they share would count once.
        for held in &claims {
            let kilobyte = Bytes::from(vec![0; 1_000]);
            world.node(0).forward(now, held.player(), kilobyte).unwrap();
        }
    }
    world.run_ms(500);
    let node = world.node(1);
    let counts: Vec<_> = claims
        .iter()
        .map(|held| node.message_count(*held))
        .collect();
    assert!(counts[0] >= 5 && counts[0] < 10, "{counts:?}");
    assert!(counts.iter().sum::<usize>() <= 25, "{counts:?}");
    assert!(node.memory_bytes() <= empty + 30_000);
    // What a session takes with it is free for others.
    let now = world.now;
    for held in claims {
        world.node(1).release(now, held);
    }
    assert!(world.node(1).memory_bytes() <= empty);
}

#[test]
fn h7_what_is_spilled_expires_after_the_configured_time() {
    let mut config = NodeConfig::default();
    config.live_queue_max = 1;
    config.live_overflow = LiveOverflow::Spill;
    config.spill_ttl = Duration::from_secs(60);
    let mut world = World::joined(1, 2);
    world.crash_node(1);
    world.start_node(1, config);
    world.run_ms(1_000);
    claim(&mut world, 1, PLAYER);
    world.run_ms(100);
    let now = world.now;
    world.node(0).forward(now, PLAYER, body("one")).unwrap();
    world.node(0).forward(now, PLAYER, body("two")).unwrap();
    world.run_ms(200);
    assert_eq!(world.hub().store.mail_count(), 1);
    world.run_ms(120_000);
    assert_eq!(world.hub().store.mail_count(), 0);
}

#[test]
fn the_outcome_is_unknown_if_the_link_closed() {
    let mut world = World::joined(1, 2);
    claim(&mut world, 1, PLAYER);
    world.run_ms(100);
    world.take_events();
    let now = world.now;
    world.node(0).forward(now, PLAYER, body("one")).unwrap();
    world.node(0).forward(now, PLAYER, body("two")).unwrap();
    world.crash_hub(Power::Stays, Duration::from_millis(100));
    world.run_ms(1_500);
    assert_eq!(outcomes(&world.take_events()), [(1, 2, None)]);
    let now = world.now;
    world.node(0).forward(now, PLAYER, body("three")).unwrap();
    world.run_ms(100);
    let reported = outcomes(&world.take_events());
    assert_eq!(reported, [(3, 3, Some(outcome(1, 0, 0)))]);
}

#[test]
fn a_mailbox_is_reported_empty_once_its_mail_was_delivered() {
    let mut world = World::joined(1, 2);
    let now = world.now;
    let day = Duration::from_secs(86_400);
    for number in 0..100 {
        let text = body(&number.to_string());
        world.node(0).mail(now, PLAYER, text, day).unwrap();
    }
    world.run_ms(200);
    world.take_events();
    let held = claim(&mut world, 1, PLAYER);
    let mut order = Vec::new();
    for _ in 0..20 {
        world.run_ms(20);
        for (index, event) in world.take_events() {
            match event {
                NodeEvent::Mail { seq, .. } => {
                    order.push("mail");
                    let now = world.now;
                    world.node(index).acknowledge(now, held, seq);
                }
                NodeEvent::MailboxEmpty(claim) if claim == held => order.push("empty"),
                _ => {}
            }
        }
    }
    let mut expected = vec!["mail"; 100];
    expected.push("empty");
    assert_eq!(order, expected);
    // And at once, if there is none.
    let other = claim(&mut world, 1, ClientId(8));
    world.run_ms(100);
    let events = world.take_events();
    let empty = (1, NodeEvent::MailboxEmpty(other));
    assert_eq!(events.iter().filter(|event| **event == empty).count(), 1);
}

#[test]
fn a_slow_node_is_notified_of_the_number_of_missed_broadcasts() {
    let mut config = HubConfig::default();
    config.link_bytes_max = 2_000;
    let mut bare = three(config);
    bare.send(OTHER, &ToHub::Live(LiveToHub::Subscribe(topic())));
    for live in 1..=20 {
        let record = if live % 2 == 0 {
            ToHub::Broadcast {
                topic: topic(),
                body: Redacted(&[1; 90]),
            }
        } else {
            ToHub::Live(LiveToHub::Cast {
                live: LiveSeq(live),
                topic: topic(),
                body: Redacted(&[1; 90]),
            })
        };
        bare.send(LINK, &record);
    }
    let stats = bare.hub.stats();
    let (records, _) = bare.written(OTHER);
    let mut missed = 0;
    let mut arrived = 0;
    for record in &records {
        match ToNode::decode(record).unwrap() {
            ToNode::Live(hub::record::LiveToNode::Missed(count)) => missed += count,
            ToNode::Live(_) | ToNode::Broadcast { .. } => arrived += 1,
            _ => {}
        }
    }
    assert_eq!(arrived + missed, 20);
    assert!(missed > 5, "{missed}");
    // The third node got only the broadcasts, and lost some, too.
    assert!(stats.broadcasts_dropped + stats.casts_dropped > missed);
}

#[test]
fn h9_a_kick_reaches_the_holder_if_the_role_permits_it() {
    let mut world = World::joined(1, 3);
    world.crash_node(2);
    let mut config = NodeConfig::default();
    config.role = Role::Matchmaker;
    world.start_node(2, config);
    world.run_ms(1_000);
    let held = claim(&mut world, 1, PLAYER);
    world.run_ms(100);
    world.take_events();
    let now = world.now;
    world.node(0).kick(now, PLAYER, body("mine")).unwrap();
    world.node(2).kick(now, PLAYER, body("cheat")).unwrap();
    world.node(2).kick(now, ClientId(8), body("who")).unwrap();
    world.run_ms(100);
    let events = world.take_events();
    let kicked: Vec<_> = events
        .iter()
        .filter(|(_, event)| matches!(event, NodeEvent::Kicked { .. }))
        .collect();
    let expected = NodeEvent::Kicked {
        claim: held,
        from: node_id(2),
        reason: Redacted(body("cheat")),
    };
    assert_eq!(kicked, [&(1, expected)]);
    let refused = events.iter().any(|(index, event)| {
        matches!(event, NodeEvent::LiveSent { outcome: Some(outcome), .. } if *index == 0 && outcome.refused == 1)
    });
    assert!(refused, "{events:?}");
    let reported: Vec<_> = events
        .into_iter()
        .filter(|(index, _)| *index == 2)
        .collect();
    assert_eq!(
        outcomes(&reported),
        [
            (1, 1, Some(outcome(1, 0, 0))),
            (2, 2, Some(outcome(0, 1, 0)))
        ]
    );
    let stats = world.hub().machine.stats();
    assert_eq!((stats.kicks, stats.kicks_refused), (1, 1));
}

#[test]
fn kick_roles_decide_which_nodes_may_kick() {
    for (roles, refused) in [(vec![Role::GameNode], 0), (vec![], 1)] {
        let mut config = HubConfig::default();
        config.kick_roles = roles;
        let mut bare = three(config);
        bare.send(OTHER, &claim_record(1));
        bare.send(
            LINK,
            &ToHub::Live(LiveToHub::Kick {
                live: LiveSeq(1),
                player: ClientId(1),
                reason: Redacted(b"cheat"),
            }),
        );
        assert_eq!(bare.hub.stats().kicks_refused, refused);
    }
}

#[test]
fn what_is_too_long_or_has_no_player_is_returned() {
    let mut world = World::joined(1, 1);
    let now = world.now;
    let node = world.node(0);
    let none = node.multicast(now, &[], body("x"));
    assert_eq!(none, Err(SendError::Players(Redacted(body("x")))));
    let over = vec![PLAYER; PlayerList::LEN_MAX + 1];
    assert!(matches!(
        node.multicast(now, &over, body("x")),
        Err(SendError::Players(_))
    ));
    let long = Bytes::from(vec![0; 65_536]);
    assert!(matches!(
        node.forward(now, PLAYER, long.clone()),
        Err(SendError::TooLong(_))
    ));
    assert!(matches!(
        node.kick(now, PLAYER, Bytes::from(vec![0; 257])),
        Err(SendError::TooLong(_))
    ));
    assert!(node.cast(now, topic(), long).is_ok());
    let fits = Bytes::from(vec![0; 65_536 - 16]);
    assert!(node.multicast(now, &[PLAYER, PLAYER], fits).is_ok());
}

#[test]
fn hub_6_topics_of_a_link_are_bounded() {
    let mut bare = three(HubConfig::default());
    let name = |number: usize| Name::new(&format!("t{number}")).unwrap();
    let empty = bare.hub.memory_bytes();
    for number in 0..TOPICS_MAX {
        bare.send(OTHER, &ToHub::Live(LiveToHub::Subscribe(name(number))));
    }
    bare.send(OTHER, &ToHub::Live(LiveToHub::Subscribe(name(0))));
    let (records, closed) = bare.written(OTHER);
    assert!(!closed, "{records:?}");
    assert!(bare.hub.memory_bytes() > empty + TOPICS_MAX * 64);
    let over = ToHub::Live(LiveToHub::Subscribe(name(TOPICS_MAX)));
    bare.send(OTHER, &over);
    let (records, closed) = bare.written(OTHER);
    assert!(closed);
    assert_eq!(down(&records), Some(DownReason::Protocol));
    // The link has taken its subscriptions with it.
    assert!(bare.hub.memory_bytes() <= empty + 4_096);
}

#[test]
fn outcomes_of_live_messages_are_written_in_their_order() {
    let mut bare = three(HubConfig::default());
    bare.send(OTHER, &claim_record(1));
    bare.written(LINK);
    let mut ids = Vec::new();
    for live in 1..=9 {
        // Reached and offline by turns, and some other record in between.
        let record = ToHub::Live(LiveToHub::Forward {
            live: LiveSeq(live),
            players: PlayerList::encode_into(&[ClientId(live % 2)], &mut ids).unwrap(),
            body: Redacted(b""),
        });
        bare.send(LINK, &record);
        bare.send(
            OTHER,
            &ToHub::Broadcast {
                topic: topic(),
                body: Redacted(b""),
            },
        );
    }
    let (records, _) = bare.written(LINK);
    let firsts = records
        .iter()
        .filter_map(|record| match ToNode::decode(record) {
            Ok(ToNode::Live(hub::record::LiveToNode::Sent { first, last, .. })) => {
                assert_eq!(first, last);
                Some(first.0)
            }
            _ => None,
        });
    assert_eq!(firsts.collect::<Vec<_>>(), (1..=9).collect::<Vec<_>>());
}

#[test]
fn h7_a_message_longer_than_a_queue_drops_no_other() {
    for (policy, kept) in [
        (LiveOverflow::DropNewest, 1),
        (LiveOverflow::DropOldest, 1),
        (LiveOverflow::Kick, 1),
    ] {
        let mut config = NodeConfig::default();
        config.live_queue_bytes_max = 1_000;
        config.live_overflow = policy;
        let mut world = World::joined(1, 2);
        world.crash_node(1);
        world.start_node(1, config);
        world.run_ms(1_000);
        let held = claim(&mut world, 1, PLAYER);
        world.run_ms(100);
        world.take_events();
        let now = world.now;
        let long = Bytes::from(vec![b'x'; 2_000]);
        // The first always fits.
        world.node(0).forward(now, PLAYER, long.clone()).unwrap();
        world.run_ms(100);
        assert_eq!(take_all(world.node(1), held).len(), 1);
        let now = world.now;
        world.node(0).forward(now, PLAYER, body("one")).unwrap();
        world.node(0).forward(now, PLAYER, long).unwrap();
        world.run_ms(100);
        let slow = (1, NodeEvent::SlowPlayer(held));
        assert!(!world.take_events().contains(&slow));
        assert_eq!(take_all(world.node(1), held).len(), kept);
    }
}

#[test]
fn h7_spilling_ends_if_the_mailbox_refuses_the_message() {
    let mut world = World::new(1, 2);
    world.store_config.mailbox_mails_max = 1;
    world.start_hub();
    let mut config = NodeConfig::default();
    config.live_queue_max = 1;
    config.live_overflow = LiveOverflow::Spill;
    world.start_node(0, NodeConfig::default());
    world.start_node(1, config);
    world.run_ms(1_500);
    let now = world.now;
    let day = Duration::from_secs(86_400);
    world.node(0).mail(now, PLAYER, body("old"), day).unwrap();
    world.run_ms(200);
    let held = claim(&mut world, 1, PLAYER);
    world.run_ms(100);
    let now = world.now;
    for text in ["a", "b"] {
        world.node(0).forward(now, PLAYER, body(text)).unwrap();
    }
    world.run_ms(300);
    // The mailbox holds the mail that is not acknowledged, so "b" is lost.
    let stats = world.node(1).stats();
    assert_eq!((stats.live_spilled, stats.live_dropped), (1, 1));
    assert_eq!(take_all(world.node(1), held).len(), 1);
    let now = world.now;
    world.node(0).forward(now, PLAYER, body("c")).unwrap();
    world.run_ms(300);
    assert_eq!(texts(&take_all(world.node(1), held)), ["c"]);
}

#[test]
fn h6_a_player_that_is_listed_twice_gets_the_message_once() {
    let mut world = World::joined(1, 2);
    let held = claim(&mut world, 1, PLAYER);
    world.run_ms(100);
    let now = world.now;
    let players = [PLAYER, ClientId(3), PLAYER];
    world.node(0).multicast(now, &players, body("gg")).unwrap();
    world.run_ms(100);
    assert_eq!(take_all(world.node(1), held).len(), 1);
    // A record with a player twice is invalid.
    let mut record = vec![hub::record::code::FORWARD, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2];
    record.extend([7_u64.to_be_bytes(), 7_u64.to_be_bytes()].concat());
    assert_eq!(ToHub::decode(&record), Err(hub::DecodeError::Count));
}

#[test]
fn hub_6_a_node_that_reads_no_outcome_is_disconnected() {
    let mut config = HubConfig::default();
    config.link_bytes_max = 4_000;
    let mut bare = three(config);
    bare.send(OTHER, &claim_record(1));
    bare.written(LINK);
    let mut ids = Vec::new();
    for live in 1..10_000 {
        // Each outcome differs from the one before.
        let player = ClientId(live % 2);
        let record = ToHub::Live(LiveToHub::Forward {
            live: LiveSeq(live),
            players: PlayerList::encode_into(&[player], &mut ids).unwrap(),
            body: Redacted(b""),
        });
        bare.send(LINK, &record);
    }
    let (records, closed) = bare.written(LINK);
    assert!(closed);
    assert_eq!(down(&records), Some(DownReason::Overrun));
    assert!(bare.hub.memory_bytes() < 100_000);
}

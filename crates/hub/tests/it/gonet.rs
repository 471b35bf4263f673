//! Defects of gonet that concern the hub: each situation, and what happens here.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use hub::record::{BODY_BYTES_MAX, CallError, CallRequest, ToHub, ToNode};
use hub::stats::{Sample, StatRecord};
use hub::{Addr, CallId, HubConfig, MailSeq, Name, NodeEvent, Redacted, RequestId, SendError};
use wire::{ClientId, StreamMachine};

use crate::bare::{Bare, LINK, NOW, OTHER, THIRD, three};
use crate::world::{Power, World, body, node_id, topic};

const PLAYER: ClientId = ClientId(7);

fn call(number: u64, to: usize, body: &[u8]) -> ToHub<'_> {
    ToHub::Call(CallRequest {
        call: CallId(number),
        timeout_ms: 1_000,
        to: Addr::Node(node_id(to)),
        body: Redacted(body),
    })
}

/// The numbers and bodies of the mails for the players of each node.
fn mails(world: &mut World) -> BTreeMap<usize, Vec<(MailSeq, Bytes)>> {
    let mut found: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for (index, event) in world.take_events() {
        if let NodeEvent::Mail { seq, body, .. } = event {
            found.entry(index).or_default().push((seq, body.0));
        }
    }
    found
}

#[test]
fn gonet_h5_a_broadcast_passes_a_node_that_reads_nothing() {
    let mut config = HubConfig::default();
    config.link_bytes_max = 50_000;
    let mut bare = Bare::new(config);
    for (index, link) in [LINK, OTHER, THIRD].into_iter().enumerate() {
        bare.join(link, index, 0);
    }
    bare.hub.handle_credit(NOW, THIRD, 1 << 30);
    bare.written(THIRD);
    for number in 0..1_000_u32 {
        let mut text = [0; 1_000];
        text[..4].copy_from_slice(&number.to_be_bytes());
        bare.send(
            LINK,
            &ToHub::Broadcast {
                topic: topic(),
                body: Redacted(&text),
            },
        );
        let (records, _) = bare.written(THIRD);
        let [record] = &records[..] else {
            panic!("{} records for broadcast {number}", records.len());
        };
        let Ok(ToNode::Broadcast { body, .. }) = ToNode::decode(record) else {
            panic!("{record:?}");
        };
        assert_eq!(body.0, text);
    }
    assert!(bare.hub.stats().broadcasts_dropped > 900, "for the other");
}

#[test]
fn gonet_h6_two_nodes_that_fill_each_others_queues_block_neither() {
    let mut config = HubConfig::default();
    config.link_bytes_max = 50_000;
    let mut bare = Bare::new(config);
    for (index, link) in [LINK, OTHER, THIRD].into_iter().enumerate() {
        bare.join(link, index, 0);
    }
    bare.hub.handle_credit(NOW, THIRD, 1 << 30);
    bare.written(THIRD);
    let long = [7; 1_000];
    for number in 0..500 {
        bare.send(LINK, &call(number, 1, &long));
        bare.send(OTHER, &call(number, 0, &long));
    }
    // Both queues are full, and the hub still answers at once.
    bare.send(THIRD, &call(1, 3, b""));
    let (records, _) = bare.written(THIRD);
    let unavailable = ToNode::decode(&records[0]);
    assert!(
        matches!(unavailable, Ok(ToNode::Reply { result: Err(_), .. })),
        "{unavailable:?}"
    );
    // Each call of both has an answer: refused at once, or answered once the other reads.
    let mut answered = BTreeMap::new();
    for link in [LINK, OTHER, LINK, OTHER] {
        bare.hub.handle_credit(NOW, link, 1 << 30);
        for record in bare.written(link).0 {
            match ToNode::decode(&record) {
                Ok(ToNode::Request(request)) => {
                    let result = Ok(Redacted(&b"ok"[..]));
                    let request: RequestId = request.request;
                    bare.send(link, &ToHub::Reply { request, result });
                }
                Ok(ToNode::Reply { call, result }) => {
                    let is_first = answered.insert((link, call), result.is_ok()).is_none();
                    assert!(is_first, "two answers");
                }
                _ => {}
            }
        }
    }
    assert_eq!(answered.len(), 1_000);
    assert!(answered.values().any(|is_ok| *is_ok));
}

#[test]
fn gonet_h7_bodies_of_any_permitted_length_keep_the_stream_in_step() {
    let mut world = World::joined(1, 2);
    world.take_events();
    // Lengths around 2^16, with and without the head of a record.
    for length in (65_525..=BODY_BYTES_MAX).chain([0, 1]) {
        let now = world.now;
        let long = Bytes::from(vec![5; length]);
        for sent in [long, body("next")] {
            world.node(0).broadcast(now, topic(), sent.clone()).unwrap();
            world.run_ms(100);
            let received = world.take_events();
            assert!(
                matches!(
                    &received[..],
                    [(1, NodeEvent::Broadcast { body, .. })] if body.0 == sent
                ),
                "{length} bytes"
            );
        }
    }
    let now = world.now;
    for length in [BODY_BYTES_MAX + 1, 65_540, 1 << 20] {
        let long = Bytes::from(vec![5; length]);
        let refused = world.node(0).broadcast(now, topic(), long.clone());
        assert_eq!(refused, Err(SendError::TooLong(Redacted(long))));
    }
}

#[test]
fn gonet_h10_mail_is_removed_by_acknowledgement_and_not_by_reading() {
    let mut world = World::joined(1, 3);
    world.take_events();
    let now = world.now;
    for text in ["a", "b", "c"] {
        let sent = world.node(0).mail(now, PLAYER, body(text), Duration::ZERO);
        sent.unwrap();
    }
    world.run_ms(500);
    world.take_events();
    let now = world.now;
    let claim = world
        .node(1)
        .claim(now, PLAYER, MailSeq(0), Bytes::new())
        .unwrap();
    world.run_ms(200);
    let first = mails(&mut world).remove(&1).unwrap();
    assert_eq!(first.len(), 3);
    let now = world.now;
    world.node(1).acknowledge(now, claim, first[0].0);
    world.run_ms(200);
    // The process dies with two mails that its player has not got.
    world.crash_node(1);
    let now = world.now;
    world
        .node(2)
        .claim(now, PLAYER, MailSeq(0), Bytes::new())
        .unwrap();
    // Between the claim and its answer, another arrives: it needs no further login.
    world
        .node(0)
        .mail(now, PLAYER, body("d"), Duration::ZERO)
        .unwrap();
    world.run_ms(500);
    let again = mails(&mut world).remove(&2).unwrap();
    assert_eq!(again[..2], first[1..], "with the same numbers");
    assert_eq!(again[2].1, body("d"));
    assert_eq!(again.len(), 3);
}

#[test]
fn gonet_h16_statistics_over_512_bytes_survive_a_lost_link_and_count_once() {
    let mut world = World::joined(1, 1);
    let time = world.unix();
    let key = Name::new("kill").unwrap();
    for round in 0..5 {
        for value in 0..500_i64 {
            world.node(0).statistics().record(&StatRecord {
                time,
                player: Some(ClientId(u64::try_from(value).unwrap())),
                key: key.into(),
                sample: Sample::Add(value.into()),
            });
        }
        // The link closes while the batch is on its way, or the answer is.
        world.run_ms(1_000 + round);
        world.reset_some_stream();
        world.run_ms(2_000);
    }
    world.run_ms(30_000);
    let now = world.unix();
    let statistics = world.node(0).statistics();
    assert!(statistics.is_stored());
    assert_eq!(statistics.counters().dropped, 0);
    let store = &mut world.hub().stats_store;
    let page = store.query("sum of kill from 0 to now step 1d", now);
    let page = page.unwrap();
    let cells: Vec<_> = page.rows.iter().map(|row| &row.cells[0]).collect();
    let sum: i32 = (0..500).sum();
    let expected = hub::stats::Cell::Number(f64::from(5 * sum));
    assert_eq!(cells, [&expected]);
}

#[test]
fn gonet_h17_calls_of_one_node_do_not_wait_for_each_other() {
    let mut bare = three(HubConfig::default());
    bare.send(LINK, &call(1, 1, b""));
    bare.send(LINK, &call(2, 2, b""));
    // The first callee never replies.
    let mut request = None;
    for record in bare.written(THIRD).0 {
        if let Ok(ToNode::Request(found)) = ToNode::decode(&record) {
            request = Some(found.request);
        }
    }
    let result = Ok(Redacted(&b"ok"[..]));
    let request = request.unwrap();
    bare.send(THIRD, &ToHub::Reply { request, result });
    let (records, _) = bare.written(LINK);
    let answer = ToNode::decode(&records[0]);
    assert!(matches!(
        answer,
        Ok(ToNode::Reply {
            call: CallId(2),
            result: Ok(_),
        })
    ));
}

#[test]
fn gonet_h17_a_hub_that_restarts_needs_no_restart_of_its_nodes() {
    let mut world = World::joined(1, 2);
    let now = world.now;
    world
        .node(1)
        .claim(now, PLAYER, MailSeq(0), Bytes::new())
        .unwrap();
    world.run_ms(500);
    world.take_events();
    let now = world.now;
    let to = Addr::Player(PLAYER);
    let second = Duration::from_secs(1);
    world.node(0).call(now, to, body("?"), second).unwrap();
    world.crash_hub(Power::Cut, Duration::from_millis(700));
    world.run_ms(100);
    let lost = world.take_events().into_iter().any(|(index, event)| {
        index == 0
            && matches!(
                event,
                NodeEvent::Reply {
                    result: Err(CallError::HubDown),
                    ..
                }
            )
    });
    assert!(lost, "a call fails once its link is closed");
    world.run_ms(3_000);
    world.take_events();
    let now = world.now;
    let to = Addr::Player(PLAYER);
    world.node(0).call(now, to, body("?"), second).unwrap();
    world.run_ms(100);
    let asked = world.take_events();
    assert!(
        asked
            .iter()
            .any(|(index, event)| *index == 1 && matches!(event, NodeEvent::Request { .. }))
    );
}

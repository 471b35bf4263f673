//! What a node may cost the hub with keys, and what it costs others.

use hub::kv::{Durability, KvKey, KvPrefix, KvRange, Revision};
use hub::record::{DownReason, KvToHub, KvToNode, RECORD_BYTES_MAX, ToHub, ToNode};
use hub::{
    Command, Completed, HubConfig, KvClientConfig, KvOp, KvOutcome, KvRequest, NodeConfig,
    Redacted, SenderShares, StoreOp, WatchId,
};
use wire::{ConnectionId, StreamMachine};

use super::key;
use crate::bare::{Bare, LINK, NOW, OTHER, down, three};
use crate::world::{World, body};

fn put(bare: &mut Bare, link: ConnectionId, number: u64, durability: Durability, value: &[u8]) {
    let put = KvToHub::Put {
        request: KvRequest(number),
        key: key(&format!("k/{number}")),
        durability,
        lease: false,
        expected: None,
        value: Redacted(value),
    };
    bare.send(link, &ToHub::Kv(put));
}

fn watch(bare: &mut Bare, link: ConnectionId, number: u64) {
    let watch = KvToHub::Watch {
        watch: WatchId(number),
        from: Revision::NONE,
        prefix: KvPrefix::default(),
    };
    bare.send(link, &ToHub::Kv(watch));
}

/// How many requests were done, and the last error.
fn results(bare: &mut Bare, link: ConnectionId) -> (usize, Option<String>) {
    let (records, _) = bare.written(link);
    let (mut done, mut last) = (0, None);
    for record in &records {
        match ToNode::decode(record) {
            Ok(ToNode::Kv(KvToNode::Done { result: Ok(_), .. })) => done += 1,
            Ok(ToNode::Kv(KvToNode::Done {
                result: Err(error), ..
            })) => last = Some(error.to_string()),
            _ => {}
        }
    }
    (done, last)
}

const FULL: &str = "there is no room for another key or value";
const OVER_SHARE: &str = "the keys of this node or role have their share";
const BUSY: &str = "too many requests are in flight";

#[test]
fn hub_6_keys_in_memory_are_bounded() {
    let mut config = HubConfig::default();
    config.kv.memory_keys_max = 10;
    config.kv.memory_bytes_max = 100_000;
    config.kv.shares = SenderShares::WHOLE;
    let mut bare = three(config);
    for number in 0..12 {
        put(&mut bare, LINK, number, Durability::Memory, b"x");
    }
    assert_eq!(results(&mut bare, LINK), (10, Some(FULL.into())));
    put(&mut bare, LINK, 1, Durability::Memory, &vec![1; 60_000]);
    put(&mut bare, LINK, 2, Durability::Memory, &vec![1; 60_000]);
    assert_eq!(results(&mut bare, LINK), (1, Some(FULL.into())));
    assert!(bare.hub.memory_bytes() < 300_000);
}

#[test]
fn hub_8_one_node_and_one_role_have_shares_of_the_keys_in_memory() {
    let mut config = HubConfig::default();
    config.kv.memory_keys_max = 100;
    let mut bare = three(config);
    for number in 0..60 {
        put(&mut bare, LINK, number, Durability::Memory, b"x");
    }
    assert_eq!(results(&mut bare, LINK), (50, Some(OVER_SHARE.into())));
    for number in 100..130 {
        put(&mut bare, OTHER, number, Durability::Memory, b"x");
    }
    let all = "three quarters are for all game nodes";
    assert_eq!(
        results(&mut bare, OTHER),
        (25, Some(OVER_SHARE.into())),
        "{all}"
    );
    assert_eq!(bare.hub.kv_stats().over_share, 15);
    // A key is replaced, and one that another node takes over counts for that one.
    put(&mut bare, LINK, 7, Durability::Memory, b"y");
    assert_eq!(results(&mut bare, LINK), (1, None));
    let delete = KvToHub::Delete {
        request: KvRequest(1_000),
        key: key("k/8"),
        expected: None,
    };
    bare.send(LINK, &ToHub::Kv(delete));
    put(&mut bare, OTHER, 7, Durability::Memory, b"z");
    put(&mut bare, LINK, 200, Durability::Memory, b"x");
    assert_eq!(results(&mut bare, LINK), (2, None));
}

#[test]
fn hub_6_durable_writes_in_flight_are_bounded_for_a_node_and_in_bytes() {
    let mut config = HubConfig::default();
    config.kv.node_writes_max = 5;
    config.kv.write_bytes_max = 200_000;
    let mut bare = three(config);
    for number in 0..100 {
        put(&mut bare, LINK, number, Durability::Disk, b"x");
    }
    assert_eq!(results(&mut bare, LINK), (0, Some(BUSY.into())));
    bare.drain_commands();
    let is_write = |(_, command): &(_, Command)| {
        matches!(command, Command::Store(StoreOp::Kv(KvOp::Put { .. })))
    };
    assert_eq!(
        bare.commands
            .iter()
            .filter(|command| is_write(command))
            .count(),
        5
    );
    // Another node is served until the bytes of all are used up.
    for number in 0..5 {
        put(&mut bare, OTHER, number, Durability::Disk, &vec![1; 60_000]);
    }
    bare.drain_commands();
    assert_eq!(
        bare.commands
            .iter()
            .filter(|command| is_write(command))
            .count(),
        8
    );
    // A change in memory waits for none of them.
    put(&mut bare, OTHER, 1_000, Durability::Memory, b"x");
    let (done, _) = results(&mut bare, OTHER);
    assert_eq!(done, 1);
    let commands = std::mem::take(&mut bare.commands);
    let revisions = (2..).map(Revision::durable);
    // In reverse: the answers are in order.
    let mut outcomes: Vec<_> = commands.into_iter().zip(revisions).collect();
    outcomes.reverse();
    for ((id, _), revision) in outcomes {
        let outcome = Ok(Completed::Kv(KvOutcome::Done(revision)));
        bare.hub.handle_completed(NOW, id, outcome);
    }
    assert_eq!(results(&mut bare, LINK), (5, None));
}

#[test]
fn hub_6_watches_of_a_node_are_bounded() {
    let mut config = HubConfig::default();
    config.kv.node_watches_max = 3;
    let mut bare = three(config);
    for number in 0..3 {
        watch(&mut bare, LINK, number);
        watch(&mut bare, LINK, number);
    }
    let (_, closed) = bare.written(LINK);
    assert!(!closed, "a number that is used again replaces its watch");
    watch(&mut bare, LINK, 3);
    let (records, closed) = bare.written(LINK);
    assert!(closed);
    assert_eq!(down(&records), Some(DownReason::Protocol));
}

#[test]
fn hub_5_a_watch_that_reads_nothing_costs_bounded_bytes_and_starts_over() {
    let mut config = HubConfig::default();
    config.kv.history_changes_max = 10;
    config.kv.history_bytes_max = 5_000;
    let mut bare = Bare::new(config);
    bare.join(LINK, 0, 0);
    bare.join(OTHER, 1, 0);
    bare.hub.handle_credit(NOW, OTHER, 1 << 30);
    bare.hub.handle_credit(NOW, LINK, 200);
    watch(&mut bare, LINK, 1);
    bare.written(LINK);
    let mut bytes = 0;
    for round in 0..1_000 {
        put(
            &mut bare,
            OTHER,
            round % 20,
            Durability::Memory,
            &[1; 1_000],
        );
        assert_eq!(results(&mut bare, OTHER), (1, None), "nobody waits");
        if round == 100 {
            bytes = bare.hub.memory_bytes();
        }
    }
    assert!(
        bare.hub.memory_bytes() <= bytes + 2_000,
        "its cost does not grow"
    );
    bare.hub.handle_credit(NOW, LINK, 1 << 30);
    let (records, _) = bare.written(LINK);
    let (mut resets, mut keys, mut complete) = (0, Vec::new(), 0);
    for record in &records {
        match ToNode::decode(record).unwrap() {
            ToNode::Kv(KvToNode::Reset(_)) => {
                resets += 1;
                keys.clear();
            }
            ToNode::Kv(KvToNode::Change { key, .. }) => keys.push(key),
            ToNode::Kv(KvToNode::Complete { .. }) => complete += 1,
            _ => {}
        }
    }
    assert!(resets > 0 && bare.hub.kv_stats().watch_resets > 0);
    assert_eq!((keys.len(), complete), (20, 1), "a whole snapshot");
}

#[test]
fn hub_6_a_page_fits_one_record_and_a_slow_reader_gets_busy() {
    let mut config = HubConfig::default();
    config.link_bytes_max = 200_000;
    let mut bare = three(config);
    for number in 0..30 {
        put(
            &mut bare,
            LINK,
            number,
            Durability::Memory,
            &vec![1; 30_000],
        );
    }
    bare.written(LINK);
    let range = |request| {
        ToHub::Kv(KvToHub::Range {
            request: KvRequest(request),
            limit: 1_024,
            range: KvRange::all(),
        })
    };
    bare.send(LINK, &range(1));
    let (records, _) = bare.written(LINK);
    assert!(records[0].len() <= RECORD_BYTES_MAX);
    let Ok(ToNode::Kv(KvToNode::Page { more, items, .. })) = ToNode::decode(&records[0]) else {
        panic!("a page")
    };
    assert!(more && items.len() == 2);
    for request in 0..100 {
        bare.send(LINK, &range(request));
    }
    let (records, closed) = bare.written(LINK);
    assert!(!closed);
    let pages = records.iter().filter(|record| record.len() > 1_000).count();
    assert!((3..10).contains(&pages), "{pages}");
}

#[test]
fn hub_6_requests_and_watches_of_a_node_are_bounded_by_the_node_too() {
    let mut world = World::joined(11, 1);
    let mut config = NodeConfig::default();
    config.kv.requests_max = 3;
    config.kv.outbox_bytes_max = 10_000;
    config.kv.watches_max = 2;
    assert_ne!(config.kv, KvClientConfig::default());
    world.start_node(0, config);
    world.run_ms(1_500);
    let kv = world.node(0).kv();
    let long = hub::kv::KvPut::new(key("a"), vec![0; 10_001]);
    assert!(kv.put(long).is_err());
    let put = hub::kv::KvPut::new(key("a"), body("x"));
    let accepted = (0..10).filter(|_| kv.put(put.clone()).is_ok()).count();
    assert_eq!((accepted, kv.requests_open()), (3, 3));
    let watch = |_: &u64| kv.watch(KvPrefix::default(), Revision::NONE).is_ok();
    assert_eq!((0..10).filter(watch).count(), 2);
    world.run_ms(500);
    assert_eq!(world.node(0).kv().requests_open(), 0);
    assert!(KvKey::new("a").is_ok());
}

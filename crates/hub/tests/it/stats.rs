//! Statistics over links: what nodes record is counted once, whatever fails meanwhile.

use std::time::Duration;

use hub::log::MemorySegments;
use hub::record::{StatsToHub, StatsToNode, StatsVerdict, ToHub, ToNode};
use hub::stats::{
    Batch, Counters, Number, QueryReason, Sample, StatRecord, Tallies, decode_answer,
};
use hub::stats_store::{StatsStore, read_raw_log};
use hub::{BatchSeq, Name, NodeConfig, NodeEvent, QueryId, Redacted, Role};
use wire::UnixTime;

use crate::world::{Power, World, seeds, server};

fn sample(time: UnixTime, value: i64) -> StatRecord {
    StatRecord {
        time,
        player: None,
        key: Name::new("kill").unwrap().into(),
        sample: Sample::Add(value.into()),
    }
}

/// The sum of all batches in the raw log, each once.
fn recount(disk: &mut MemorySegments) -> i64 {
    let mut sum = 0;
    read_raw_log(disk, &mut |raw| {
        for record in Batch::decode(&raw.bytes).unwrap().records() {
            if let Some(Number::Int(value)) = record.sample.number() {
                sum += value;
            }
        }
    })
    .unwrap();
    sum
}

fn total(store: &mut StatsStore<MemorySegments>, now: UnixTime) -> f64 {
    let now = now + Duration::from_secs(10);
    let page = store
        .query("sum of kill from 0 to now step 1d", now)
        .unwrap();
    let cells = page.rows.iter().map(|row| match row.cells[0] {
        hub::stats::Cell::Number(number) => number,
        _ => panic!("no number"),
    });
    cells.sum()
}

/// Links break, the hub and its statistics are killed, with and without power, and come back later.
/// Nodes never die, so every sample is counted once in the end.
#[test]
fn sim_hub_10_h8_nodes_buffer_while_the_hub_is_away_and_each_sample_counts_once() {
    let mut resent = 0;
    for seed in seeds(20) {
        let mut world = World::joined(seed, 3);
        let mut recorded = 0;
        for _step in 0..80 {
            let time = world.unix();
            let node = usize::try_from(world.generator.below(3)).unwrap();
            let value = i64::try_from(world.generator.below(100)).unwrap();
            world.node(node).statistics().record(&sample(time, value));
            recorded += value;
            match world.generator.below(12) {
                0 if world.hub.is_some() => {
                    let power = Power::draw(&mut world.generator);
                    let down = Duration::from_millis(world.generator.below(4_000));
                    world.crash_hub(power, down);
                }
                1 if world.hub.is_some() => world.reset_some_stream(),
                2 if world.hub.is_some() => {
                    let count = world.generator.below(6);
                    world.hub().stats_store.files_mut().stop_after(count);
                }
                _ => {}
            }
            let millis = world.generator.below(900);
            world.run_ms(millis);
        }
        world.run_ms(30_000);
        let now = world.unix();
        for node in 0..3 {
            let statistics = world.node(node).statistics();
            assert!(statistics.is_stored(), "seed {seed}: node {node}");
            assert_eq!(statistics.counters().dropped, 0);
            resent += statistics.counters().resent;
        }
        let store = &mut world.hub().stats_store;
        let found = total(store, now);
        assert_eq!(found.to_string(), recorded.to_string(), "seed {seed}");
        assert_eq!(recount(store.files_mut()), recorded, "seed {seed}");
    }
    assert!(resent > 0, "no batch was sent twice");
}

#[test]
fn h8_a_full_buffer_drops_and_counts_samples_while_the_hub_is_away() {
    let mut world = World::new(1, 1);
    let mut config = NodeConfig::default();
    config.statistics.bytes_max = 20_000;
    config.statistics.interval = Duration::from_millis(500);
    world.start_node(0, config);
    let time = world.unix();
    for _ in 0..100 {
        for _ in 0..100 {
            world.node(0).statistics().record(&sample(time, 1));
        }
        world.run_ms(600);
    }
    assert!(world.node(0).memory_bytes() < 40_000);
    let dropped = world.node(0).statistics().counters().dropped;
    assert!(dropped > 1_000, "{dropped}");
    world.start_hub();
    world.run_ms(20_000);
    let now = world.unix();
    assert!(world.node(0).statistics().is_stored());
    let found = total(&mut world.hub().stats_store, now);
    assert_eq!(found.to_string(), (10_000 - dropped).to_string());
}

#[test]
fn h11_counters_of_a_thread_reach_the_hub() {
    let mut world = World::joined(2, 1);
    let mut counters = Counters::new(4, 8);
    let kills = counters
        .register(Name::new("kill").unwrap().into())
        .unwrap();
    for _ in 0..100 {
        counters.count(kills, 3);
    }
    for value in 0..9 {
        counters.record(kills, value.into(), None);
    }
    let mut tallies = counters.take(Tallies::default());
    let time = world.unix();
    let keys = counters.keys().to_vec();
    world.node(0).statistics().add(&mut tallies, &keys, time);
    assert_eq!(world.node(0).statistics().counters().dropped, 1);
    world.run_ms(3_000);
    assert!(world.node(0).statistics().is_stored());
    let now = world.unix();
    let found = total(&mut world.hub().stats_store, now);
    assert_eq!(found.to_string(), (300 + 28).to_string());
}

/// The answers that node `index` got.
fn answers(world: &mut World) -> Vec<hub::stats::StatsAnswer> {
    let events = world.take_events().into_iter();
    let bytes = events.filter_map(|(_, event)| match event {
        NodeEvent::StatsAnswer { answer, .. } => Some(answer),
        _ => None,
    });
    bytes.map(|bytes| decode_answer(&bytes).unwrap()).collect()
}

#[test]
fn h11_a_permitted_role_queries_over_its_link_and_others_are_refused() {
    let mut world = World::new(3, 2);
    world.start_hub();
    world.start_node(0, server("matchmaker"));
    world.start_node(1, NodeConfig::default());
    world.run_ms(1_500);
    let time = world.unix();
    world.node(1).statistics().record(&sample(time, 7));
    world.run_ms(3_000);
    let now = world.now;
    let text = "sum of kill from 0 to now step 1d";
    world.node(0).query_statistics(now, text).unwrap();
    world.drain_all();
    world.run_ms(1_000);
    let answer = answers(&mut world).pop().unwrap().unwrap();
    assert_eq!(answer.rows[0].cells, [hub::stats::Cell::Number(7.0)]);
    let cases = [
        (1, text, QueryReason::Refused),
        (0, "sum of", QueryReason::Syntax),
    ];
    for (node, text, reason) in cases {
        let now = world.now;
        world.node(node).query_statistics(now, text).unwrap();
        world.drain_all();
        world.run_ms(1_000);
        let refusal = answers(&mut world).pop().unwrap().unwrap_err();
        assert_eq!(refusal.reason, reason);
    }
    // An open query ends with its link.
    let now = world.now;
    world.node(0).query_statistics(now, text).unwrap();
    world.crash_hub(Power::Stays, Duration::from_secs(60));
    world.run_ms(5_000);
    let refusal = answers(&mut world).pop().unwrap().unwrap_err();
    assert_eq!(refusal.reason, QueryReason::HubDown);
    let now = world.now;
    let error = world.node(0).query_statistics(now, text).unwrap_err();
    assert_eq!(error, hub::QuerySendError::HubDown);
}

/// A hub with the role `stats` has a link of its own; the one for mail may be down.
#[test]
fn h8_a_node_dials_the_hub_of_statistics_by_its_role() {
    let file = "tickwire-join 1\nnetwork-secret 0101010101010101010101010101010101010101010101010101010101010101\n\
        hub 0202020202020202020202020202020202020202020202020202020202020202 address=10.0.0.1:7400\n\
        stats 0303030303030303030303030303030303030303030303030303030303030303 address=10.0.0.2:7400\n";
    let file = hub::JoinFile::parse(file).unwrap();
    for (role, byte, host) in [
        (Role::Hub, 2, "10.0.0.1:7400"),
        (Role::Stats, 3, "10.0.0.2:7400"),
    ] {
        let mut config = NodeConfig::default();
        config.hub_role = role;
        let now = wire::Instant::from_millis(1);
        let seed = wire::Seed::from_number(1);
        let mut node = hub::Node::new(config, &file, wire::InstanceId(1), seed, now).unwrap();
        wire::StreamMachine::handle_timeout(&mut node, now);
        let (_, command) = wire::StreamMachine::poll_command(&mut node).unwrap();
        let hub::NodeCommand::Dial { hub, address } = command else {
            panic!("no dial");
        };
        assert_eq!((hub.0, &address[..]), ([byte; 32], host));
    }
}

#[test]
fn h8_mail_goes_on_if_the_disk_of_statistics_fails() {
    let mut world = World::joined(4, 1);
    world.keep_failed_stats = true;
    world.hub().stats_store.files_mut().fail_sync_after(0);
    let time = world.unix();
    world.node(0).statistics().record(&sample(time, 7));
    world.run_ms(3_000);
    assert!(world.hub_events.contains(&hub::HubEvent::StatsFailed));
    assert!(!world.node(0).statistics().is_stored());
    let now = world.now;
    let player = wire::ClientId(1);
    let ttl = Duration::from_secs(60);
    world
        .node(0)
        .mail(now, player, "hello".into(), ttl)
        .unwrap();
    world.drain_all();
    world.run_ms(1_000);
    let events = world.take_events();
    let is_stored = |(_, event): &(usize, NodeEvent)| matches!(event, NodeEvent::MailStored(_));
    assert!(events.iter().any(is_stored));
    // The process is started again: nothing was lost.
    world.keep_failed_stats = false;
    world.crash_hub(Power::Stays, Duration::from_millis(200));
    world.run_ms(10_000);
    let now = world.unix();
    assert_eq!(total(&mut world.hub().stats_store, now).to_string(), "7");
}

/// Formats change by a new version; these codes are never used for anything else.
#[test]
fn h12_link_records_of_statistics_are_frozen() {
    let batch = StatsToHub::Batch {
        batch: BatchSeq(7),
        bytes: Redacted(&[1, 2]),
    };
    let query = StatsToHub::Query {
        query: QueryId(8),
        text: Redacted(b"a"),
    };
    for (record, frozen) in [
        (batch, &b"\x28\0\0\0\0\0\0\0\x07\x01\x02"[..]),
        (query, b"\x29\0\0\0\0\0\0\0\x08a"),
    ] {
        let mut bytes = Vec::new();
        ToHub::Stats(record).encode(&mut bytes);
        assert_eq!(bytes, frozen);
        assert_eq!(ToHub::decode(frozen), Ok(ToHub::Stats(record)));
    }
    let settled = |verdict, retry_ms| StatsToNode::Settled {
        batch: BatchSeq(7),
        verdict,
        retry_ms,
    };
    let answer = StatsToNode::Answer {
        query: QueryId(8),
        bytes: Redacted(b"a"),
    };
    for (record, frozen) in [
        (
            settled(StatsVerdict::Stored, 0),
            &b"\x68\0\0\0\0\0\0\0\x07\0\0\0\0\0"[..],
        ),
        (
            settled(StatsVerdict::Refused, 0),
            b"\x68\0\0\0\0\0\0\0\x07\x01\0\0\0\0",
        ),
        (
            settled(StatsVerdict::Busy, 500),
            b"\x68\0\0\0\0\0\0\0\x07\xff\0\0\x01\xf4",
        ),
        (answer, b"\x69\0\0\0\0\0\0\0\x08a"),
    ] {
        let mut bytes = Vec::new();
        ToNode::Stats(record).encode(&mut bytes);
        assert_eq!(bytes, frozen);
        assert_eq!(ToNode::decode(frozen), Ok(ToNode::Stats(record)));
    }
}

/// One link has one batch in flight, and all together as many bytes as `bytes_in_flight`; queries
/// have limits too.
#[test]
fn h11_batches_and_queries_in_flight_are_bounded() {
    let mut world = World::new(5, 2);
    world.hub_config.stats.bytes_in_flight = 0;
    world.hub_config.stats.queries_in_flight = 0;
    world.hub_config.stats.query_roles = vec![Role::GameNode];
    world.start_hub();
    world.start_node(0, NodeConfig::default());
    let mut config = NodeConfig::default();
    config.statistics.queries_max = 1;
    world.start_node(1, config);
    world.run_ms(1_500);
    let time = world.unix();
    world.node(0).statistics().record(&sample(time, 7));
    world.run_ms(20_000);
    assert!(!world.node(0).statistics().is_stored());
    let busy = world.hub().machine.link_statistics().busy;
    assert!((20..=80).contains(&busy), "{busy} in 20 s");
    let (now, text) = (world.now, "sum of kill from 0 to now step 1d");
    world.node(1).query_statistics(now, text).unwrap();
    let error = world.node(1).query_statistics(now, text).unwrap_err();
    assert_eq!(error, hub::QuerySendError::Full);
    world.drain_all();
    world.run_ms(1_000);
    let refusal = answers(&mut world).pop().unwrap().unwrap_err();
    assert_eq!(refusal.reason, QueryReason::Busy);
    let long = "x".repeat(3_000);
    let error = world.node(1).query_statistics(now, &long).unwrap_err();
    assert_eq!(error, hub::QuerySendError::TooLong);
}

//! Calls: which node is called, which one answers, and how each call ends.

use std::time::Duration;

use bytes::Bytes;
use hub::record::{CallError, CallRequest, DownReason, ToHub};
use hub::{Addr, CallId, HubConfig, MailSeq, Name, NodeEvent, Redacted, RequestId, SendError};
use wire::ClientId;

use crate::bare::{LINK, OTHER, down, three};
use crate::world::{Power, World, body, node_id, server, set, topic};

const SECOND: Duration = Duration::from_secs(1);
const PLAYER: ClientId = ClientId(7);

fn call(world: &mut World, from: usize, to: Addr) -> CallId {
    let now = world.now;
    world
        .node(from)
        .call(now, to, body("ping"), SECOND)
        .unwrap()
}

/// Makes every node answer its requests with its own number.
fn answer_all(world: &mut World, events: Vec<(usize, NodeEvent)>) {
    let now = world.now;
    for (index, event) in events {
        if let NodeEvent::Request { ticket, .. } = event {
            let answer = body(&format!("{index}"));
            world.node(index).reply(now, ticket, Ok(answer)).unwrap();
        }
    }
    world.drain_all();
}

fn replies(events: &[(usize, NodeEvent)]) -> Vec<Result<Bytes, CallError>> {
    events
        .iter()
        .filter_map(|(_, event)| match event {
            NodeEvent::Reply { result, .. } => Some(result.clone().map(|body| body.0)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_call_reaches_a_node_a_player_and_a_service_and_is_answered() {
    let mut world = World::joined(1, 3);
    world.crash_node(2);
    world.start_node(2, server("matchmaker"));
    let now = world.now;
    world
        .node(1)
        .claim(now, PLAYER, MailSeq(0), Bytes::new())
        .unwrap();
    world.run_ms(1_000);
    world.take_events();
    for to in [
        Addr::Node(node_id(1)),
        Addr::Player(PLAYER),
        Addr::Service(Name::new("matchmaker").unwrap()),
    ] {
        call(&mut world, 0, to);
    }
    world.run_ms(100);
    let asked = world.take_events();
    for (_, event) in &asked {
        let NodeEvent::Request { from, instance, .. } = event else {
            panic!("{event:?}");
        };
        assert_eq!(*from, node_id(0), "stamped by the hub");
        assert_eq!(instance.0, 1);
    }
    answer_all(&mut world, asked);
    world.run_ms(100);
    let reported = set(replies(&world.take_events())
        .into_iter()
        .map(Result::unwrap));
    assert_eq!(reported, set([body("1"), body("2")]));
}

#[test]
fn gonet_h8_unanswered_calls_time_out_and_leave_no_state() {
    let mut world = World::joined(1, 2);
    world.take_events();
    for _ in 0..100 {
        call(&mut world, 0, Addr::Node(node_id(1)));
    }
    world.run_ms(1_100);
    let events = world.take_events();
    assert_eq!(replies(&events), vec![Err(CallError::TimedOut); 100]);
    // The late replies are counted.
    answer_all(&mut world, events);
    world.run_ms(100);
    assert_eq!(world.hub().machine.stats().replies_unknown, 100);
    // All slots are free again.
    for _ in 0..1_024 {
        call(&mut world, 0, Addr::Node(node_id(1)));
    }
    let now = world.now;
    let full = world
        .node(0)
        .call(now, Addr::Node(node_id(1)), body("one more"), SECOND);
    assert_eq!(full, Err(SendError::Full(Redacted(body("one more")))));
}

#[test]
fn a_cancelled_call_is_forgotten() {
    let mut world = World::joined(1, 2);
    world.take_events();
    let id = call(&mut world, 0, Addr::Node(node_id(1)));
    world.run_ms(100);
    let now = world.now;
    assert!(world.node(0).cancel(now, id));
    assert!(!world.node(0).cancel(now, id));
    world.run_ms(100);
    let asked = world.take_events();
    let cancelled = asked.iter().find_map(|(index, event)| match event {
        NodeEvent::Cancelled(ticket) => Some((*index, *ticket)),
        _ => None,
    });
    let request = asked.iter().find_map(|(index, event)| match event {
        NodeEvent::Request { ticket, .. } => Some((*index, *ticket)),
        _ => None,
    });
    assert_eq!(cancelled, request);
    answer_all(&mut world, asked);
    world.run_ms(2_000);
    assert_eq!(replies(&world.take_events()), []);
    // The reply ends the call at the hub, and reaches no other.
    assert_eq!(world.node(0).stats().replies_unknown, 0);
    let stats = world.hub().machine.stats();
    assert_eq!((stats.calls_cancelled, stats.replies_unknown), (1, 0));
}

#[test]
fn h2_a_call_that_is_cancelled_before_it_is_written_costs_the_callee_nothing() {
    let mut bare = three(HubConfig::default());
    bare.send(
        LINK,
        &ToHub::Call(CallRequest {
            call: CallId(1),
            timeout_ms: 1_000,
            to: Addr::Node(node_id(1)),
            body: Redacted(b"slow"),
        }),
    );
    bare.send(LINK, &ToHub::Cancel { call: CallId(1) });
    let (records, _) = bare.written(OTHER);
    assert_eq!(records, Vec::<Vec<u8>>::new());
    // A call that is not open is ignored.
    bare.send(LINK, &ToHub::Cancel { call: CallId(1) });
    bare.send(LINK, &ToHub::Cancel { call: CallId(7) });
    assert_eq!(bare.hub.stats().calls_cancelled, 1);
    assert_eq!(bare.written(LINK), (Vec::new(), false));
}

#[test]
fn hub_6_cancelled_calls_count_until_the_callee_replies() {
    let mut config = HubConfig::default();
    config.calls_max = 8;
    let mut bare = three(config);
    for number in 1..=100 {
        bare.send(
            LINK,
            &ToHub::Call(CallRequest {
                call: CallId(number),
                timeout_ms: 60_000,
                to: Addr::Node(node_id(1)),
                body: Redacted(b"?"),
            }),
        );
        bare.written(OTHER);
        bare.send(
            LINK,
            &ToHub::Cancel {
                call: CallId(number),
            },
        );
    }
    let stats = bare.hub.stats();
    assert_eq!((stats.calls, stats.calls_cancelled), (8, 8));
    bare.send(
        OTHER,
        &ToHub::Reply {
            request: RequestId(1),
            result: Ok(Redacted(b"!")),
        },
    );
    bare.send(
        LINK,
        &ToHub::Call(CallRequest {
            call: CallId(101),
            timeout_ms: 60_000,
            to: Addr::Node(node_id(1)),
            body: Redacted(b"?"),
        }),
    );
    assert_eq!(bare.hub.stats().calls, 9);
}

#[test]
fn a_call_with_the_number_of_an_open_one_closes_the_link() {
    let mut bare = three(HubConfig::default());
    let call = ToHub::Call(CallRequest {
        call: CallId(1),
        timeout_ms: 1_000,
        to: Addr::Node(node_id(1)),
        body: Redacted(b"?"),
    });
    bare.send(LINK, &call);
    bare.send(LINK, &call);
    let (records, closed) = bare.written(LINK);
    assert!(closed);
    assert_eq!(down(&records), Some(DownReason::Protocol));
}

#[test]
fn a_call_to_an_absent_player_fails_at_once() {
    let mut world = World::joined(1, 2);
    world.take_events();
    for to in [
        Addr::Node(node_id(9)),
        Addr::Player(PLAYER),
        Addr::Service(Name::new("nothing").unwrap()),
        Addr::Topic(topic()),
    ] {
        call(&mut world, 0, to);
    }
    world.run_ms(100);
    assert_eq!(
        replies(&world.take_events()),
        vec![Err(CallError::Unreachable); 4]
    );
}

#[test]
fn hub_7_calls_fail_in_the_turn_that_sees_the_end_of_a_link() {
    let mut world = World::joined(1, 2);
    world.delay_ms_max = 0;
    world.take_events();
    call(&mut world, 0, Addr::Node(node_id(1)));
    world.run_ms(10);
    world.crash_node(1);
    world.run_ms(0);
    assert_eq!(
        replies(&world.take_events()),
        [Err(CallError::NodeDown)],
        "the one that was asked is gone",
    );
    call(&mut world, 0, Addr::Node(node_id(0)));
    world.crash_hub(Power::Stays, SECOND);
    world.run_ms(0);
    let events = world.take_events();
    assert_eq!(replies(&events), [Err(CallError::HubDown)]);
    assert!(events.contains(&(0, NodeEvent::HubDown)));
    let now = world.now;
    let refused = world
        .node(0)
        .call(now, Addr::Player(PLAYER), body("x"), SECOND);
    assert_eq!(refused, Err(SendError::HubDown(Redacted(body("x")))));
}

//! Shutdown of the hub in order.

use std::time::Duration;

use bytes::Bytes;
use hub::record::{CallError, CallRequest, DownReason, Join, ToHub, ToNode, VERSION};
use hub::{
    Addr, CallId, Completed, Epoch, HubConfig, MailSeq, NodeEvent, Redacted, RequestId, Role,
};
use wire::{ClientId, ConnectionId, InstanceId, PeerIdentity, StreamMachine};

use crate::bare::{Bare, LINK, NOW, OTHER, THIRD, down, mail, three};
use crate::world::{World, body, node_id, seeds};

const PLAYER: ClientId = ClientId(7);

fn call(number: u64) -> ToHub<'static> {
    ToHub::Call(CallRequest {
        call: CallId(number),
        timeout_ms: 30_000,
        to: Addr::Node(node_id(1)),
        body: Redacted(b"?"),
    })
}

/// Whether the hub has closed the link as draining.
fn is_drained(bare: &mut Bare, link: ConnectionId) -> bool {
    let (records, closed) = bare.written(link);
    closed && down(&records) == Some(DownReason::Draining)
}

#[test]
fn h13_a_shutdown_finishes_open_calls_and_accepts_nothing_new() {
    let mut bare = three(HubConfig::default());
    bare.send(LINK, &call(1));
    bare.written(OTHER);
    bare.hub.drain(NOW, NOW + Duration::from_secs(5));
    assert!(!bare.hub.is_drained());

    // Nothing new: a call, a mail, a connection, a join.
    bare.send(LINK, &call(2));
    bare.send(LINK, &mail(1, b"late"));
    let fourth = ConnectionId(4);
    let identity = PeerIdentity::Node(node_id(3));
    bare.hub.handle_opened(NOW, fourth, &identity);
    let replies: Vec<_> = bare.written(LINK).0;
    let replies: Vec<_> = replies
        .iter()
        .map(|record| ToNode::decode(record))
        .collect();
    let refused = ToNode::Reply {
        call: CallId(2),
        result: Err(CallError::HubDown),
    };
    assert!(replies.contains(&Ok(refused)), "{replies:?}");
    bare.drain_commands();
    assert!(bare.commands.is_empty(), "{:?}", bare.commands);

    // The open call still gets its reply. Then the links close.
    assert!(!bare.hub.is_drained());
    bare.send(
        OTHER,
        &ToHub::Reply {
            request: RequestId(1),
            result: Ok(Redacted(b"!")),
        },
    );
    assert!(is_drained(&mut bare, LINK));
    for link in [LINK, OTHER, THIRD, fourth] {
        bare.hub.handle_closed(NOW, link, wire::CloseCause::Local);
    }
    assert!(bare.hub.is_drained());
}

#[test]
fn h13_a_shutdown_waits_for_the_store_and_not_longer_than_told() {
    for answers in [true, false] {
        let mut bare = three(HubConfig::default());
        bare.send(LINK, &mail(1, b"stored"));
        bare.drain_commands();
        let deadline = NOW + Duration::from_secs(2);
        bare.hub.drain(NOW, deadline);
        assert!(!is_drained(&mut bare, LINK));
        assert!(bare.hub.poll_timeout().unwrap() <= deadline);
        if answers {
            let (id, _) = bare.commands.remove(0);
            bare.hub
                .handle_completed(NOW, id, Ok(Completed::Appended(vec![])));
        } else {
            bare.hub.handle_timeout(deadline);
        }
        assert!(is_drained(&mut bare, LINK));
        for link in [LINK, OTHER, THIRD] {
            bare.hub
                .handle_closed(deadline, link, wire::CloseCause::Local);
        }
        assert_eq!(bare.hub.is_drained(), answers, "a command is still open");
    }
}

#[test]
fn a_join_during_a_shutdown_is_refused() {
    let mut bare = three(HubConfig::default());
    bare.send(LINK, &call(1));
    let fresh = ConnectionId(4);
    let identity = PeerIdentity::Node(node_id(3));
    bare.hub.handle_opened(NOW, fresh, &identity);
    bare.hub.drain(NOW, NOW + Duration::from_secs(5));
    bare.hub.handle_credit(NOW, fresh, 1_000);
    bare.send(
        fresh,
        &ToHub::Join(Join {
            version: VERSION,
            role: Role::GameNode,
            instance: InstanceId(1),
            epoch: Epoch(0),
            watch: 0,
            services: Vec::new(),
        }),
    );
    assert!(is_drained(&mut bare, fresh));
}

#[test]
fn sim_h13_mail_survives_a_shutdown_and_nodes_rejoin_the_next_hub() {
    for seed in seeds(30) {
        let mut world = World::joined(seed, 2);
        let now = world.now;
        let day = Duration::from_secs(86_400);
        for number in 0..50 {
            let text = body(&number.to_string());
            world.node(0).mail(now, PLAYER, text, day).unwrap();
            if number == 25 {
                let (now, deadline) = (world.now, world.now + Duration::from_secs(2));
                world.run_ms(seed % 20);
                world.hub().machine.drain(now, deadline);
                world.run_ms(1_000);
                assert!(world.hub().machine.is_drained(), "seed {seed}");
            }
        }
        let told: Vec<_> = world
            .take_events()
            .into_iter()
            .filter(|(_, event)| *event == NodeEvent::Refused(DownReason::Draining))
            .collect();
        assert!(told.len() >= 2, "seed {seed}: each node is told");
        world.crash_hub(crate::world::Power::Cut, Duration::from_millis(500));
        world.run_ms(3_000);
        let now = world.now;
        let node = world.node(1);
        let held = node.claim(now, PLAYER, MailSeq(0), Bytes::new()).unwrap();
        world.run_ms(1_000);
        let mails = world
            .take_events()
            .into_iter()
            .filter(|(_, event)| matches!(event, NodeEvent::Mail { claim, .. } if *claim == held));
        assert_eq!(mails.count(), 50, "seed {seed}");
    }
}

//! Debug output contains no body of a call or mail, and the disk contains no body of a call.

use std::time::Duration;

use bytes::Bytes;
use hub::log::format::{LogRecord, StoredMail};
use hub::record::{CallRequest, ClaimRequest, Delivery, MailSubmission, Request, ToHub, ToNode};
use hub::store::{Mail, NewMail};
use hub::{
    Addr, CallId, ClaimNumber, Command, Completed, Epoch, Lease, MailSeq, Name, NodeEvent,
    Redacted, RequestId, SendError, SenderSeq, StoreOp,
};
use wire::{ClientId, InstanceId, UnixTime};

use crate::bare::{Bare, LINK, OTHER};
use crate::world::{World, node_id};

/// A stand-in for a token key.
const KEY: &[u8] = b"key-of-32-bytes-that-no-log-says";

fn key() -> Bytes {
    Bytes::from_static(KEY)
}

/// Panics if `value` prints a part of the key, as text or as numbers.
fn check(value: &dyn std::fmt::Debug) {
    let text = format!("{value:?}{value:#?}").replace(char::is_whitespace, "");
    let numbers = format!("{:?}", &KEY[4..8]).replace(char::is_whitespace, "");
    assert!(!text.contains("of-32-bytes"), "{text}");
    assert!(!text.contains(numbers.trim_matches(['[', ']'])), "{text}");
}

fn stored() -> StoredMail<'static> {
    StoredMail {
        seq: MailSeq(1),
        player: ClientId(1),
        expires: UnixTime::from_millis(1),
        node: node_id(0),
        epoch: Epoch(1),
        sender_seq: SenderSeq(1),
        body: Redacted(KEY),
    }
}

#[test]
fn records_print_the_lengths_of_bodies_only() {
    let (to, topic) = (Addr::Player(ClientId(1)), Name::new("news").unwrap());
    let mail = MailSubmission {
        seq: SenderSeq(1),
        settled: SenderSeq(0),
        ttl_s: 0,
        to,
        body: Redacted(KEY),
    };
    let call = ToHub::Call(CallRequest {
        call: CallId(1),
        timeout_ms: 1,
        to,
        body: Redacted(KEY),
    });
    let claim = ToHub::Claim(ClaimRequest {
        player: ClientId(1),
        claim: ClaimNumber(1),
        lease: Lease::NONE,
        delivered: MailSeq(0),
        acknowledged: MailSeq(0),
        meta: Redacted(KEY),
    });
    let reply = ToHub::Reply {
        request: RequestId(1),
        result: Ok(Redacted(KEY)),
    };
    let news = ToHub::Broadcast {
        topic,
        body: Redacted(KEY),
    };
    assert!(format!("{call:?}").contains("body: 32 bytes"), "{call:?}");
    for record in [call, claim, reply, news, ToHub::Mail(mail)] {
        check(&record);
    }
    check(&mail);
}

#[test]
fn records_to_nodes_print_the_lengths_of_bodies_only() {
    let (to, topic) = (Addr::Player(ClientId(1)), Name::new("news").unwrap());
    let request = Request {
        request: RequestId(1),
        from: node_id(0),
        instance: InstanceId(1),
        timeout_ms: 1,
        to,
        body: Redacted(KEY),
    };
    let delivery = Delivery {
        player: ClientId(1),
        claim: ClaimNumber(1),
        seq: MailSeq(1),
        from: node_id(0),
        epoch: Epoch(1),
        sender_seq: SenderSeq(1),
        body: Redacted(KEY),
    };
    let reply = ToNode::Reply {
        call: CallId(1),
        result: Ok(Redacted(KEY)),
    };
    let news = ToNode::Broadcast {
        from: node_id(0),
        topic,
        body: Redacted(KEY),
    };
    let player = ToNode::PresencePlayer {
        player: ClientId(1),
        holder: Some((node_id(0), Redacted(KEY))),
    };
    let (asked, given) = (ToNode::Request(request), ToNode::Deliver(delivery));
    for record in [asked, given, reply, news, player] {
        check(&record);
    }
    check(&request);
    check(&delivery);
    check(&LogRecord::Mail(stored()));
    check(&stored());
}

#[test]
fn commands_events_and_errors_print_the_lengths_of_bodies_only() {
    let new = NewMail {
        to: Addr::Player(ClientId(1)).into(),
        node: node_id(0),
        epoch: Epoch(1),
        seq: SenderSeq(1),
        settled: SenderSeq(0),
        expires: UnixTime::from_millis(1),
        priority: 0,
        body: Redacted(key()),
    };
    check(&Command::Store(StoreOp::Append(vec![new])));
    let mail = Mail {
        seq: MailSeq(1),
        node: node_id(0),
        epoch: Epoch(1),
        sender_seq: SenderSeq(1),
        body: Redacted(key()),
    };
    let mails = vec![mail];
    check(&Completed::Mails { mails, more: false });
    let (from, topic) = (node_id(0), Name::new("news").unwrap());
    let call = CallId(1);
    let (player, result) = (ClientId(1), Ok(Redacted(key())));
    check(&NodeEvent::Reply { call, result });
    check(&NodeEvent::Broadcast {
        from,
        topic,
        body: Redacted(key()),
    });
    check(&NodeEvent::PlayerPresence(
        player,
        Some((from, Redacted(key()))),
    ));
    for error in [
        SendError::HubDown(Redacted(key())),
        SendError::Full(Redacted(key())),
        SendError::TooLong(Redacted(key())),
    ] {
        check(&error);
    }
}

#[test]
fn a_hub_and_its_nodes_print_no_bodies_in_flight() {
    let mut bare = Bare::new(hub::HubConfig::default());
    bare.join(LINK, 0, 0);
    bare.join(OTHER, 1, 0);
    let call = ToHub::Call(CallRequest {
        call: CallId(1),
        timeout_ms: 1_000,
        to: Addr::Node(node_id(1)),
        body: Redacted(KEY),
    });
    // No credit, so it stays in the outbox.
    bare.send(LINK, &call);
    check(&bare.hub);
    let mut world = World::joined(1, 2);
    let now = world.now;
    let to = Addr::Node(node_id(1));
    let wait = Duration::from_secs(9);
    world.node(0).call(now, to, key(), wait).unwrap();
    world.node(0).mail(now, ClientId(1), key(), wait).unwrap();
    check(world.node(0));
}

#[test]
fn call_bodies_reach_no_disk() {
    let mut world = World::joined(1, 2);
    world.take_events();
    let now = world.now;
    let wait = Duration::from_secs(9);
    let to = Addr::Node(node_id(1));
    world.node(0).call(now, to, key(), wait).unwrap();
    let other = Bytes::from_static(b"a mail, for comparison");
    world.node(0).mail(now, ClientId(1), other, wait).unwrap();
    world.run_ms(500);
    let asked = world.take_events();
    let mut received = 0;
    for (index, event) in asked {
        check(&event);
        if let NodeEvent::Request { ticket, body, .. } = event {
            received += 1;
            world.node(index).reply(now, ticket, Ok(body.0)).unwrap();
        }
    }
    world.run_ms(500);
    assert_eq!(received, 1);
    let disk = world.hub().store.files_mut().contents();
    let holds = |text: &[u8]| disk.windows(text.len()).any(|bytes| bytes == text);
    assert!(holds(b"for comparison"));
    assert!(!holds(&KEY[..16]));
    check(&world.hub().store);
}

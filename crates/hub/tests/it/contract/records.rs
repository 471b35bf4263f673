//! Random records of a hostile peer, and their parts.

use hub::record::{
    CallError, CallRequest, ClaimRequest, Delivery, DownReason, Join, LiveOutcome, LiveToHub,
    LiveToNode, MailSubmission, MailVerdict, PlayerList, Request, RevokeReason, ToHub, ToNode,
    VERSION,
};
use hub::{
    Addr, BatchSeq, CallId, ClaimNumber, CountKey, Epoch, Lease, LiveSeq, LogId, MailSeq, Name,
    Redacted, RequestId, Role, SenderSeq,
};
use wire::{ClientId, Generator, InstanceId};

use crate::world::node_id;

pub(super) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// One of a few topics.
fn topic_of(number: u64) -> Name {
    name(&format!("topic-{}", number % 5))
}

/// One of a few players, so that collisions occur.
pub(super) fn player(generator: &mut Generator) -> ClientId {
    ClientId(generator.below(40))
}

fn two_players<'a>(generator: &mut Generator, ids: &'a mut Vec<u8>) -> PlayerList<'a> {
    PlayerList::encode_into(&[player(generator), player(generator)], ids).unwrap()
}

fn live_to_hub<'a>(
    generator: &mut Generator,
    body: &'a [u8],
    ids: &'a mut Vec<u8>,
) -> LiveToHub<'a> {
    let (live, topic) = (LiveSeq(number(generator)), topic_of(generator.below(5)));
    match generator.below(5) {
        0 => LiveToHub::Forward {
            live,
            players: two_players(generator, ids),
            body: Redacted(body),
        },
        1 => LiveToHub::Cast {
            live,
            topic,
            body: Redacted(body),
        },
        2 => LiveToHub::Kick {
            live,
            player: player(generator),
            reason: Redacted(b"cheat"),
        },
        3 => LiveToHub::Subscribe(topic),
        _ => LiveToHub::Unsubscribe(topic),
    }
}

fn live_to_node<'a>(
    generator: &mut Generator,
    body: &'a [u8],
    ids: &'a mut Vec<u8>,
) -> LiveToNode<'a> {
    let from = node_id(0);
    match generator.below(5) {
        0 => LiveToNode::Forward {
            from,
            players: two_players(generator, ids),
            body: Redacted(body),
        },
        1 => LiveToNode::Cast {
            from,
            topic: topic_of(generator.below(5)),
            body: Redacted(body),
        },
        2 => LiveToNode::Kick {
            player: player(generator),
            claim: ClaimNumber(generator.below(9)),
            from,
            reason: Redacted(b"cheat"),
        },
        3 => LiveToNode::Sent {
            first: LiveSeq(number(generator)),
            last: LiveSeq(number(generator)),
            outcome: LiveOutcome::default(),
        },
        _ => LiveToNode::Missed(number(generator)),
    }
}

/// Small, close to the maximum, or any number.
pub(super) fn number(generator: &mut Generator) -> u64 {
    match generator.below(4) {
        0 => u64::MAX - generator.below(3),
        1 => generator.next_u64(),
        _ => generator.below(20),
    }
}

pub(super) fn body(generator: &mut Generator) -> Vec<u8> {
    let len = match generator.below(8) {
        0 => generator.below(3_000),
        _ => generator.below(100),
    };
    vec![7; usize::try_from(len).unwrap()]
}

pub(super) fn address(generator: &mut Generator) -> Addr {
    match generator.below(5) {
        0 => Addr::Player(player(generator)),
        1 => Addr::Service(name("matchmaker")),
        2 => Addr::Topic(name("news")),
        _ => Addr::Node(node_id(usize::try_from(generator.below(4)).unwrap())),
    }
}

pub(super) fn node_records(generator: &mut Generator, body: &[u8]) -> Vec<u8> {
    let (player, to) = (player(generator), address(generator));
    let (one, two, three) = (number(generator), number(generator), number(generator));
    let mut ids = Vec::new();
    let record = match generator.below(18) {
        0 => ToHub::Join(Join {
            version: VERSION,
            role: Role::GameNode,
            instance: InstanceId(one),
            epoch: Epoch(generator.next_u32() % 4),
            watch: 3,
            services: Vec::new(),
        }),
        1 => ToHub::Leave,
        2 | 3 => ToHub::Call(CallRequest {
            call: CallId(one),
            timeout_ms: generator.next_u32(),
            to,
            body: Redacted(body),
        }),
        4 => ToHub::Reply {
            request: RequestId(one),
            result: Ok(Redacted(body)),
        },
        5 | 6 => ToHub::Mail(MailSubmission {
            seq: SenderSeq(one),
            settled: SenderSeq(two),
            ttl_s: generator.next_u32(),
            to,
            body: Redacted(body),
        }),
        7 => ToHub::MailAck {
            player,
            upto: MailSeq(one),
        },
        8 | 9 => ToHub::Claim(ClaimRequest {
            player,
            claim: ClaimNumber(generator.below(9)),
            lease: Lease(one),
            delivered: MailSeq(two),
            acknowledged: MailSeq(three),
            meta: Redacted(b""),
        }),
        10 => ToHub::Broadcast {
            topic: name("news"),
            body: Redacted(body),
        },
        11 => ToHub::Cancel { call: CallId(one) },
        12..17 => ToHub::Live(live_to_hub(generator, body, &mut ids)),
        _ => ToHub::Counts {
            batch: BatchSeq(one),
            entries: vec![(CountKey::from(name("kills")), two)],
        },
    };
    let mut encoded = Vec::new();
    record.encode(&mut encoded);
    encoded
}

pub(super) fn records_of_hub(generator: &mut Generator, body: &[u8]) -> Vec<u8> {
    let (player, to) = (player(generator), address(generator));
    let (one, two) = (number(generator), number(generator));
    let mut ids = Vec::new();
    let claim = ClaimNumber(generator.below(9));
    let from = node_id(0);
    let record = match generator.below(16) {
        0 => ToNode::Joined {
            epoch: Epoch(generator.next_u32()),
            boot: 1,
            log: LogId(7),
            mail_mark: SenderSeq(one),
            count_mark: BatchSeq(two),
        },
        1 => ToNode::Down(DownReason::Busy),
        2 | 3 => ToNode::Request(Request {
            request: RequestId(one),
            from,
            instance: InstanceId(two),
            timeout_ms: generator.next_u32(),
            to,
            body: Redacted(body),
        }),
        4 => ToNode::Reply {
            call: CallId(one),
            result: Err(CallError::Refused),
        },
        5 => ToNode::MailSettled {
            first: SenderSeq(one),
            last: SenderSeq(two),
            verdict: MailVerdict::Busy,
            retry_ms: generator.next_u32(),
        },
        6 => ToNode::Deliver(Delivery {
            player,
            claim,
            seq: MailSeq(one),
            from,
            epoch: Epoch(1),
            sender_seq: SenderSeq(two),
            body: Redacted(body),
        }),
        7 => ToNode::Revoked {
            player,
            claim,
            reason: RevokeReason::Taken,
        },
        8 => ToNode::Broadcast {
            from,
            topic: name("news"),
            body: Redacted(body),
        },
        9 => ToNode::Cancelled {
            request: RequestId(one),
        },
        10 => ToNode::MailboxEmpty {
            player,
            claim,
            settled: SenderSeq(one),
        },
        11..16 => ToNode::Live(live_to_node(generator, body, &mut ids)),
        _ => ToNode::Counted {
            upto: BatchSeq(one),
        },
    };
    let mut encoded = Vec::new();
    record.encode(&mut encoded);
    encoded
}

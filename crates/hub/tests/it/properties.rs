//! Decoders accept any input without a panic, and encoding round-trips.

use hub::log::{SegmentId, format};
use hub::record::{
    CallError, CallRequest, ClaimRequest, Delivery, Join, MailSubmission, NodeInfo, Request, ToHub,
    ToNode,
};
use hub::{
    Addr, BatchSeq, CallId, ClaimNumber, CountKey, Epoch, Lease, MailSeq, Name, Redacted,
    RequestId, Role, SenderSeq,
};
use proptest::prelude::*;
use wire::{ClientId, InstanceId, NodeId};

fn name() -> impl Strategy<Value = Name> {
    "[a-z0-9._-]{1,32}".prop_map(|text| Name::new(&text).unwrap())
}

fn addr() -> impl Strategy<Value = Addr> {
    prop_oneof![
        any::<u64>().prop_map(|id| Addr::Player(ClientId(id))),
        any::<[u8; 32]>().prop_map(|id| Addr::Node(NodeId(id))),
        name().prop_map(Addr::Service),
        name().prop_map(Addr::Topic),
    ]
}

fn to_hub(record: &ToHub<'_>) {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    assert_eq!(ToHub::decode(&bytes).as_ref(), Ok(record));
}

fn to_node(record: &ToNode<'_>) {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    assert_eq!(ToNode::decode(&bytes).as_ref(), Ok(record));
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic_and_decoded_records_reencode(
        code in any::<u8>(),
        mut rest in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        rest.insert(0, code);
        let mut again = Vec::new();
        if let Ok(record) = ToHub::decode(&rest) {
            record.encode(&mut again);
            prop_assert_eq!(&again, &rest);
        }
        again.clear();
        if let Ok(record) = ToNode::decode(&rest) {
            record.encode(&mut again);
            prop_assert_eq!(&again, &rest);
        }
    }

    #[test]
    fn no_bytes_make_the_log_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        len in 0_u32..400,
        segment: u64,
        offset: u64,
    ) {
        prop_assert!(format::decode(&bytes, SegmentId(segment), offset).is_err());
        let mut bytes = bytes;
        if let Some(field) = bytes.get_mut(4..8) {
            field.copy_from_slice(&len.to_be_bytes());
        }
        prop_assert!(format::decode(&bytes, SegmentId(segment), offset).is_err());
    }

    #[test]
    fn a_log_record_decodes_only_at_its_own_position(
        player: u64, upto: u64, segment in 0_u64..1_000, offset in 0_u64..1_000, flip in 0_usize..200,
    ) {
        let record = format::LogRecord::Ack { player: ClientId(player), upto: MailSeq(upto) };
        let mut bytes = Vec::new();
        format::encode(&record, SegmentId(segment), offset, &mut bytes);
        let whole = bytes.len();
        let at = |bytes: &[u8], segment, offset| {
            format::decode(bytes, SegmentId(segment), offset).map(|(_, len)| len)
        };
        prop_assert_eq!(at(&bytes, segment, offset), Ok(whole));
        prop_assert!(at(&bytes, segment + 1, offset).is_err());
        prop_assert!(at(&bytes, segment, offset + 1).is_err());
        prop_assert!(at(&bytes[..whole - 1], segment, offset).is_err());
        bytes[flip / 8 % whole] ^= 1 << (flip % 8);
        prop_assert!(at(&bytes, segment, offset).is_err());
    }

    #[test]
    fn live_records_of_a_node_are_read_as_written(
        number: u64, small: u32, to in addr(), topic in name(), body: Vec<u8>,
    ) {
        let body = &body[..];
        to_hub(&ToHub::Call(CallRequest { call: CallId(number), timeout_ms: small, to, body: Redacted(body) }));
        to_hub(&ToHub::Reply { request: RequestId(number), result: Ok(Redacted(body)) });
        to_hub(&ToHub::Reply { request: RequestId(number), result: Err(CallError::Refused) });
        to_hub(&ToHub::Broadcast { topic, body: Redacted(body) });
        to_hub(&ToHub::Mail(MailSubmission {
            seq: SenderSeq(number), settled: SenderSeq(number / 2), ttl_s: small, to, body: Redacted(body),
        }));
        to_hub(&ToHub::Claim(ClaimRequest {
            player: ClientId(number), claim: ClaimNumber(1), lease: Lease(2),
            delivered: MailSeq(3), acknowledged: MailSeq(number), meta: Redacted(body),
        }));
        to_hub(&ToHub::Release { player: ClientId(number), claim: ClaimNumber(9) });
    }

    #[test]
    fn lists_are_read_as_written(
        names in proptest::collection::vec(name(), 0..=16),
        counts in proptest::collection::btree_map(name(), any::<u64>(), 0..=64),
        number: u64,
    ) {
        to_hub(&ToHub::Join(Join {
            version: 1, role: Role::Matchmaker, instance: InstanceId(number), epoch: Epoch(2), watch: 3,
            services: names.clone(),
        }));
        let entries = counts.into_iter().map(|(name, count)| (CountKey::from(name), count)).collect();
        to_hub(&ToHub::Counts { batch: BatchSeq(number), entries });
        to_node(&ToNode::PresenceNode { node: NodeId([3; 32]), info: Some(NodeInfo {
            instance: InstanceId(number), epoch: Epoch(4), role: Role::GameNode, services: names,
        }) });
    }

    #[test]
    fn records_of_the_hub_are_read_as_written(
        number: u64, small: u32, node: [u8; 32], to in addr(), body: Vec<u8>,
    ) {
        let (from, body) = (NodeId(node), &body[..]);
        to_node(&ToNode::Request(Request {
            request: RequestId(number), from, instance: InstanceId(number), timeout_ms: small, to,
            body: Redacted(body),
        }));
        to_node(&ToNode::Deliver(Delivery {
            player: ClientId(number), claim: ClaimNumber(1), seq: MailSeq(2), from,
            epoch: Epoch(small), sender_seq: SenderSeq(3), body: Redacted(body),
        }));
        to_node(&ToNode::Reply { call: CallId(number), result: Ok(Redacted(body)) });
        to_node(&ToNode::PresencePlayer { player: ClientId(number), holder: Some((from, Redacted(body))) });
        to_node(&ToNode::PresencePlayer { player: ClientId(number), holder: None });
    }
}

//! What an outbox reports about tracked messages.

use core::time::Duration;

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use udp_proto::channel::{ChannelConfig, ChannelId, ChannelTable, Content, MessageId};
use udp_proto::outbox::{End, FillPolicy, Outbox, Room};
use udp_proto::{Message, MessageOutcome, Settled};
use wire::Instant;

use super::pipe::ROOM;

/// One channel of each kind, in the order of their codes.
fn outbox() -> Outbox {
    let mut rows = [
        ChannelConfig::unreliable(),
        ChannelConfig::sequenced(),
        ChannelConfig::reliable_unordered(),
        ChannelConfig::reliable_ordered(),
    ];
    for row in &mut rows {
        row.queue_bytes_max = 8_000;
    }
    Outbox::new(ChannelTable::new(&rows).unwrap(), 256 << 10, 0)
}

fn packet(outbox: &mut Outbox, now: Instant) -> Vec<Content> {
    let room = Room {
        bytes: ROOM,
        end: End::Packet,
        fill_policy: FillPolicy::Any,
        channels: u32::MAX,
    };
    let mut contents = Vec::new();
    outbox.fill(now, room, &mut Vec::new(), &mut |frame| {
        contents.push(frame.content);
    });
    contents
}

fn track(outbox: &mut Outbox, now: Instant, channel: u8, len: usize) -> MessageId {
    let bytes = vec![1; len];
    let message = Message::new(ChannelId(channel), &bytes);
    outbox.send_tracked(now, &message).unwrap()
}

fn reported(outbox: &mut Outbox) -> Vec<MessageOutcome> {
    core::iter::from_fn(|| outbox.poll_settled().map(|settled| settled.outcome)).collect()
}

#[test]
fn u9_a_lost_message_is_reported_lost_half_a_second_later() {
    for (late_ms, outcome) in [
        (499, MessageOutcome::Delivered),
        (500, MessageOutcome::Lost),
    ] {
        let mut outbox = outbox();
        track(&mut outbox, Instant::ZERO, 0, 2_000);
        let first = packet(&mut outbox, Instant::ZERO);
        let second = packet(&mut outbox, Instant::ZERO);
        for content in first.iter().chain(&second) {
            outbox.on_lost(Instant::ZERO, *content);
        }
        assert_eq!(outbox.poll_timeout(), Some(Instant::from_millis(500)));
        assert!(!outbox.is_empty(), "its fate is open");
        outbox.on_acked(first[0]);
        outbox.handle_timeout(Instant::from_millis(late_ms));
        outbox.on_acked(second[0]);
        assert_eq!(reported(&mut outbox), [outcome]);
        assert_eq!(outbox.poll_timeout(), None);
        assert!(outbox.is_empty());
        outbox.handle_timeout(Instant::from_millis(5_000));
        assert_eq!(reported(&mut outbox), []);
    }
}

/// F1 and F3 of `MpGameServer`: a fragment is retransmitted, and the message is reported once.
#[test]
fn u9_a_reliable_message_is_delivered_once_complete() {
    for channel in [2, 3] {
        let mut outbox = outbox();
        track(&mut outbox, Instant::ZERO, channel, 5);
        track(&mut outbox, Instant::ZERO, channel, 2_000);
        let mut sent = Vec::new();
        while outbox.has_work() {
            sent.extend(packet(&mut outbox, Instant::ZERO));
        }
        for _ in 0..3 {
            for content in sent.clone() {
                outbox.on_lost(Instant::ZERO, content);
            }
            while outbox.has_work() {
                sent.extend(packet(&mut outbox, Instant::ZERO));
            }
        }
        assert_eq!(reported(&mut outbox), []);
        // The second does not wait for the first.
        sent.retain(|content| content.message() != MessageId(0));
        for content in sent.iter().filter(|content| content.fragment() == 0) {
            outbox.on_acked(*content);
        }
        assert_eq!(reported(&mut outbox), [], "one half");
        for content in sent {
            outbox.on_acked(content);
        }
        let settled = outbox.poll_settled();
        let expected = Settled {
            channel: ChannelId(channel),
            message: MessageId(1),
            outcome: MessageOutcome::Delivered,
        };
        assert_eq!(settled, Some(expected));
        assert_eq!(reported(&mut outbox), []);
        outbox.forget();
        assert_eq!(reported(&mut outbox), [MessageOutcome::Dropped]);
    }
}

/// Fragments of a message that have not arrived.
type Missing = BTreeSet<u16>;

proptest! {
    /// For any packet losses, each tracked message is reported once, and no other.
    #[test]
    fn u9_agrees_with_a_model(
        steps in prop::collection::vec((0_u8..8, 0_u8..4, any::<u16>()), 1..300),
    ) {
        let (mut outbox, mut now) = (outbox(), Instant::ZERO);
        let mut flying: Vec<Content> = Vec::new();
        let mut late: Vec<Content> = Vec::new();
        let mut open: BTreeMap<(ChannelId, MessageId), Missing> = BTreeMap::new();
        for (action, channel, number) in steps {
            let id = ChannelId(channel);
            let pick = usize::from(number);
            match action {
                0 | 1 => {
                    let len = pick % 2_500;
                    let fragments = if len <= 1_166 { 1 } else { len.div_ceil(1_120) };
                    let bytes = vec![1; len];
                    let message = Message::new(id, &bytes);
                    if let Ok(message) = outbox.send_tracked(now, &message) {
                        open.insert((id, message), (0..u16::try_from(fragments).unwrap()).collect());
                    }
                }
                2 => {
                    outbox.send(now, id, &[0; 30]).ok();
                }
                3 => flying.extend(packet(&mut outbox, now)),
                4 if !flying.is_empty() => {
                    let content = flying.swap_remove(pick % flying.len());
                    outbox.on_acked(content);
                    if let Some(left) = open.get_mut(&(content.channel(), content.message())) {
                        left.remove(&content.fragment());
                    }
                }
                5 if !flying.is_empty() => {
                    let content = flying.swap_remove(pick % flying.len());
                    outbox.on_lost(now, content);
                    late.push(content);
                }
                6 if !late.is_empty() => {
                    let content = late.swap_remove(pick % late.len());
                    outbox.on_acked(content);
                    if let Some(left) = open.get_mut(&(content.channel(), content.message())) {
                        left.remove(&content.fragment());
                    }
                }
                _ => {
                    now += Duration::from_millis(u64::from(number % 300));
                    outbox.handle_timeout(now);
                    prop_assert!(outbox.poll_timeout().is_none_or(|at| at > now));
                }
            }
            while let Some(settled) = outbox.poll_settled() {
                let left = open.remove(&(settled.channel, settled.message));
                prop_assert!(left.is_some(), "{settled:?} was told before, or never sent");
                prop_assert!(settled.outcome != MessageOutcome::Dropped);
                let is_delivered = settled.outcome == MessageOutcome::Delivered;
                prop_assert!(is_delivered || settled.channel.0 < 2);
                prop_assert_eq!(is_delivered, left.is_some_and(|left| left.is_empty()));
            }
            prop_assert!(open.values().all(|left| !left.is_empty()), "arrived, and not told");
        }
        outbox.abandon();
        while let Some(settled) = outbox.poll_settled() {
            prop_assert!(open.remove(&(settled.channel, settled.message)).is_some());
            prop_assert_eq!(settled.outcome, MessageOutcome::Dropped);
        }
        prop_assert!(open.is_empty());
        outbox.forget();
        prop_assert_eq!(outbox.poll_timeout(), None);
    }
}

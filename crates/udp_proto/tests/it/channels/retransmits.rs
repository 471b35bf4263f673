//! Unreliable messages that are retransmitted until their deadline, as an outbox and an inbox
//! handle them.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use udp_proto::channel::{
    ChannelConfig, ChannelError, ChannelId, ChannelTable, Content, MessageId, MsgFrame, MsgHeader,
};
use udp_proto::fragment::{FRAGMENT_LEN, FragmentError, Position};
use udp_proto::inbox::Inbox;
use udp_proto::outbox::{End, FillPolicy, Outbox, Room};
use udp_proto::{Message, MessageOutcome};
use wire::{Instant, Reader};

use super::pipe::ROOM;

const QUEUE: usize = 8_000;

fn table() -> ChannelTable {
    let mut rows = [
        ChannelConfig::unreliable(),
        ChannelConfig::sequenced(),
        ChannelConfig::reliable_ordered(),
    ];
    for row in &mut rows {
        row.queue_bytes_max = QUEUE;
    }
    ChannelTable::new(&rows).unwrap()
}

fn outbox() -> Outbox {
    Outbox::new(table(), 256 << 10, 0)
}

fn fill(outbox: &mut Outbox, now: Instant, fill_policy: FillPolicy) -> (Vec<Content>, Vec<u8>) {
    let room = Room {
        bytes: ROOM,
        end: End::Packet,
        fill_policy,
        channels: u32::MAX,
    };
    let (mut contents, mut out) = (Vec::new(), Vec::new());
    outbox.fill(now, room, &mut out, &mut |frame| {
        contents.push(frame.content);
    });
    (contents, out)
}

fn packet(outbox: &mut Outbox, now: Instant) -> Vec<Content> {
    fill(outbox, now, FillPolicy::Any).0
}

/// Sends a message that is retransmitted for 100 ms.
fn insist(outbox: &mut Outbox, now: Instant, channel: u8, bytes: &[u8]) -> MessageId {
    let message = Message::new(ChannelId(channel), bytes).until_deadline();
    outbox.send_tracked(now, &message).unwrap()
}

fn reported(outbox: &mut Outbox) -> Vec<MessageOutcome> {
    core::iter::from_fn(|| outbox.poll_settled().map(|settled| settled.outcome)).collect()
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

#[test]
fn u9_lost_messages_are_retransmitted_until_the_deadline() {
    for (channel, len) in [(0, 20), (0, 0), (0, 2_500), (1, 20), (1, 2_500)] {
        let mut outbox = outbox();
        insist(&mut outbox, Instant::ZERO, channel, &vec![7; len]);
        let mut before = Vec::new();
        for round in 0..4 {
            let now = at(round * 20);
            let (mut contents, mut frames) = (Vec::new(), Vec::new());
            while outbox.has_work() {
                let (some, bytes) = fill(&mut outbox, now, FillPolicy::Any);
                assert!(!some.is_empty());
                contents.extend(some);
                frames.push(bytes);
            }
            assert!(round == 0 || frames == before, "the same bytes again");
            before = frames;
            for content in contents {
                outbox.on_lost(now, content);
            }
        }
        assert!(!outbox.is_empty());
        outbox.handle_timeout(at(99));
        assert!(outbox.has_work());
        assert_eq!(outbox.poll_timeout(), Some(at(100)));
        outbox.handle_timeout(at(100));
        assert!(!outbox.has_work(), "after its deadline");
        assert_eq!(outbox.poll_timeout(), Some(at(600)));
        outbox.handle_timeout(at(599));
        assert_eq!(reported(&mut outbox), []);
        outbox.handle_timeout(at(600));
        assert_eq!(reported(&mut outbox), [MessageOutcome::Expired]);
        assert!(outbox.is_empty());
        assert_eq!(outbox.poll_timeout(), None);
    }
}

#[test]
fn u9_a_retransmittable_message_has_a_number() {
    let mut outbox = outbox();
    insist(&mut outbox, Instant::ZERO, 0, b"xyz");
    insist(&mut outbox, Instant::ZERO, 1, b"xyz");
    let (_, bytes) = fill(&mut outbox, Instant::ZERO, FillPolicy::Any);
    let unreliable = [0xe0, 0, 0, 0, 0, 0, 1, 3];
    let sequenced = [0x81, 0, 0];
    assert_eq!(
        bytes,
        [&unreliable[..], b"xyz", &sequenced, b"xyz"].concat()
    );
}

#[test]
fn u9_an_acknowledged_copy_delivers_once_and_stops_retransmission() {
    for late_ms in [10, 90, 599] {
        let mut outbox = outbox();
        insist(&mut outbox, Instant::ZERO, 0, &[7; 2_000]);
        let mut first = packet(&mut outbox, Instant::ZERO);
        first.extend(packet(&mut outbox, Instant::ZERO));
        for content in &first {
            outbox.on_lost(at(5), *content);
        }
        // One half arrived in both copies: the message is still incomplete.
        let again = packet(&mut outbox, at(6));
        assert_eq!(again, first[..1]);
        outbox.on_acked(first[0]);
        outbox.on_acked(again[0]);
        assert_eq!(reported(&mut outbox), []);
        outbox.handle_timeout(at(late_ms));
        outbox.on_acked(first[1]);
        assert_eq!(reported(&mut outbox), [MessageOutcome::Delivered]);
        assert!(!outbox.has_work());
        outbox.on_lost(at(late_ms), first[1]);
        outbox.handle_timeout(at(5_000));
        assert_eq!(reported(&mut outbox), []);
        assert!(!outbox.has_work());
    }
}

#[test]
fn u9_reliable_first_precedes_retransmissions() {
    let mut outbox = outbox();
    insist(&mut outbox, Instant::ZERO, 0, b"again");
    for content in packet(&mut outbox, Instant::ZERO) {
        outbox.on_lost(at(5), content);
    }
    assert!(outbox.has_work_for(FillPolicy::Any, u32::MAX));
    assert!(!outbox.has_work_for(FillPolicy::Any, 0b110));
    assert!(!outbox.has_work_for(FillPolicy::ReliableFirst, u32::MAX));
    assert_eq!(fill(&mut outbox, at(5), FillPolicy::ReliableFirst).0, []);
    outbox.send(at(5), ChannelId(2), b"first").unwrap();
    let (contents, _) = fill(&mut outbox, at(5), FillPolicy::ReliableFirst);
    let channels: Vec<u8> = contents.iter().map(|it| it.channel().0).collect();
    assert_eq!(channels, [2, 0]);
}

#[test]
fn u9_a_probe_retransmits_if_nothing_reliable_is_in_flight() {
    let mut outbox = outbox();
    insist(&mut outbox, Instant::ZERO, 0, b"again");
    let first = packet(&mut outbox, Instant::ZERO);
    assert!(outbox.probe());
    assert_eq!(packet(&mut outbox, at(30)), first);
    outbox.send(at(30), ChannelId(2), b"reliable").unwrap();
    let reliable = packet(&mut outbox, at(30));
    assert!(outbox.probe());
    assert_eq!(packet(&mut outbox, at(60)), reliable);
    outbox.on_acked(reliable[0]);
    outbox.on_acked(first[0]);
    assert!(!outbox.probe());
}

/// 100 times what the queue holds, none of it acknowledged.
#[test]
fn u9_kept_messages_stay_within_the_queue_limit() {
    let mut outbox = outbox();
    let (mut contents, mut most) = (Vec::new(), 0);
    for number in 0..1_000 {
        let message = Message::new(ChannelId(0), &[7; 800])
            .with_ttl(Duration::from_secs(60))
            .until_deadline();
        outbox.send_tracked(at(number), &message).unwrap();
        contents.extend(packet(&mut outbox, at(number)));
        most = most.max(outbox.memory());
    }
    // Two rings that grow by half; records of about 100 bytes, doubled; and their tracking.
    assert!(
        most < 2 * QUEUE * 8 / 5 + 1_024 * 2 * 120 + 4_096 * 24,
        "{most}"
    );
    for content in contents {
        outbox.on_lost(at(1_000), content);
    }
    let mut again = 0;
    while outbox.has_work() {
        again += packet(&mut outbox, at(1_000)).len();
    }
    // 840 bytes each.
    assert_eq!(again, QUEUE / 840);
    outbox.handle_timeout(at(1_500));
    assert_eq!(
        reported(&mut outbox),
        vec![MessageOutcome::Lost; 1_000 - again]
    );
    outbox.handle_timeout(at(70_000));
    assert_eq!(reported(&mut outbox), []);
    outbox.forget();
    assert_eq!(reported(&mut outbox), vec![MessageOutcome::Dropped; again]);
}

/// A message with a shorter lifetime than the one before it expires when that one is sent: it is
/// not sent, and it is reported as expired.
#[test]
fn u9_an_expired_message_is_not_sent() {
    for is_repeated in [false, true] {
        let mut outbox = outbox();
        let mut send = |ttl: u64, byte: u8| {
            let data = [byte; 9];
            let ttl = Duration::from_millis(ttl);
            let mut message = Message::new(ChannelId(0), &data).with_ttl(ttl);
            if is_repeated {
                message = message.until_deadline();
            }
            outbox.send_tracked(Instant::ZERO, &message).unwrap();
        };
        for (ttl, byte) in [(900, 1), (20, 2), (50, 3), (900, 4), (49, 5)] {
            send(ttl, byte);
        }
        let (contents, bytes) = fill(&mut outbox, at(50), FillPolicy::Any);
        let left: Vec<u64> = contents.iter().map(|it| it.message().0).collect();
        assert_eq!(left, [0, 3]);
        assert!(bytes.contains(&4) && !bytes.contains(&5));
        assert_eq!(reported(&mut outbox), [MessageOutcome::Expired; 3]);
        assert_eq!(outbox.counts().expired, 3);
        for content in contents {
            outbox.on_acked(content);
        }
        assert_eq!(reported(&mut outbox), [MessageOutcome::Delivered; 2]);
        assert!(!outbox.has_work());
    }
}

#[test]
fn u9_messages_1_024_numbers_behind_are_not_retransmitted() {
    let mut outbox = outbox();
    insist(&mut outbox, Instant::ZERO, 0, b"x");
    let first = packet(&mut outbox, Instant::ZERO);
    let mut inbox = Inbox::new(table(), 256 << 10, 0);
    for number in 1..=1_024_u64 {
        if number < 1_024 {
            assert_eq!(reported(&mut outbox), [], "{number}");
        }
        let message = Message::new(ChannelId(0), b"y").until_deadline();
        outbox
            .send(Instant::ZERO, message.channel, b"unnumbered")
            .unwrap();
        outbox.send_tracked(Instant::ZERO, &message).unwrap();
        let (_, bytes) = fill(&mut outbox, Instant::ZERO, FillPolicy::Any);
        let mut reader = Reader::new(&bytes);
        while !reader.is_empty() {
            let frame = MsgFrame::decode(&mut reader, &table()).unwrap();
            inbox.on_message(Instant::ZERO, &frame).unwrap();
        }
    }
    // The peer now treats it as old, and the next one after one more message.
    assert_eq!(reported(&mut outbox), [MessageOutcome::Lost; 2]);
    let repeated = inbox.counts().repeated;
    inbox.on_message(Instant::ZERO, &single(0, b"x")).unwrap();
    assert_eq!(inbox.counts().repeated, repeated + 1);
    outbox.on_acked(first[0]);
    assert_eq!(reported(&mut outbox), []);
}

fn single(id: u16, data: &[u8]) -> MsgFrame<'_> {
    let place = Position { index: 0, count: 1 };
    of(0, id, Some(place), data)
}

fn of(channel: u8, id: u16, fragment: Option<Position>, data: &[u8]) -> MsgFrame<'_> {
    MsgFrame {
        header: MsgHeader {
            channel: ChannelId(channel),
            id: Some(id),
            fragment,
        },
        data,
    }
}

#[test]
fn u9_twp_m2_a_copied_fragment_is_dropped_and_a_contradiction_closes() {
    let mut inbox = Inbox::new(table(), 256 << 10, 0);
    let (now, mut out) = (Instant::ZERO, Vec::new());
    for id in [0_u16, 1, 0, 1, 3, 2, 3, 2] {
        let data = id.to_be_bytes();
        inbox.on_message(now, &single(id, &data)).unwrap();
    }
    let mut read = Vec::new();
    while inbox.recv(&mut out).is_some() {
        read.push(out[1]);
    }
    assert_eq!(read, [0, 1, 3, 2]);
    assert_eq!(inbox.counts().repeated, 4);
    // An empty one, and the longest.
    inbox.on_message(now, &single(4, b"")).unwrap();
    inbox
        .on_message(now, &single(5, &[1; FRAGMENT_LEN]))
        .unwrap();
    let long = [1; FRAGMENT_LEN + 1];
    let refused = inbox.on_message(now, &single(6, &long));
    let error = ChannelError::Fragment(FragmentError::Length(FRAGMENT_LEN + 1));
    assert_eq!(refused, Err(error));
    // Half of a split message, and then the same number as a single frame.
    let half = Position { index: 0, count: 2 };
    let begun = of(0, 9, Some(half), &[1; FRAGMENT_LEN]);
    inbox.on_message(now, &begun).unwrap();
    let error = ChannelError::Fragment(FragmentError::Contradiction);
    assert_eq!(inbox.on_message(now, &single(9, b"x")), Err(error));
    // On other channels a message in one frame has no explicit number.
    for channel in [1, 2] {
        let place = Position { index: 0, count: 1 };
        let refused = inbox.on_message(now, &of(channel, 0, Some(place), b"x"));
        let error = ChannelError::Fragment(FragmentError::Count(1));
        assert_eq!(refused, Err(error));
    }
    let place = Position { index: 1, count: 1 };
    assert!(
        inbox
            .on_message(now, &of(0, 20, Some(place), b"x"))
            .is_err()
    );
}

/// A pending message: its unacknowledged fragments and its deadline.
type Open = BTreeMap<(ChannelId, MessageId), (BTreeSet<u16>, Instant)>;

fn arrive(open: &mut Open, content: Content) {
    if let Some((left, _)) = open.get_mut(&(content.channel(), content.message())) {
        left.remove(&content.fragment());
    }
}

proptest! {
    /// For any packet losses: each message is reported once, and as delivered exactly if all of it
    /// was acknowledged. It never expires before its deadline, and nothing is sent after that,
    /// except the rest of a split message without retransmission, for 2 s after its first part.
    #[test]
    fn u9_messages_until_their_deadline_agree_with_a_model(
        steps in prop::collection::vec((0_u8..9, 0_u8..2, any::<u16>()), 1..400),
    ) {
        let (mut outbox, mut now) = (outbox(), Instant::ZERO);
        let (mut flying, mut late) = (Vec::<Content>::new(), Vec::<Content>::new());
        let (mut open, mut once) = (Open::new(), BTreeSet::new());
        for (action, channel, number) in steps {
            let (id, pick) = (ChannelId(channel), usize::from(number));
            match action {
                0 | 1 => {
                    let bytes = vec![1; pick % 2_500];
                    let ttl = Duration::from_millis(u64::from(number % 700));
                    let mut message = Message::new(id, &bytes).with_ttl(ttl);
                    let is_repeated = number % 3 > 0;
                    if is_repeated {
                        message = message.until_deadline();
                    }
                    let whole = if is_repeated && channel == 0 { 1_120 } else { 1_166 };
                    let count = if bytes.len() <= whole { 1 } else { bytes.len().div_ceil(1_120) };
                    let all = (0..u16::try_from(count).unwrap()).collect();
                    let sent = outbox.send_tracked(now, &message).unwrap();
                    prop_assert!(open.insert((id, sent), (all, now + ttl)).is_none());
                    if !is_repeated && count > 1 {
                        once.insert((id, sent));
                    }
                }
                2 => {
                    outbox.send(now, ChannelId(2), &[0; 30]).ok();
                }
                3 => {
                    let had_work = outbox.has_work();
                    outbox.handle_timeout(now);
                    let has_work = outbox.has_work();
                    let contents = packet(&mut outbox, now);
                    prop_assert_eq!(contents.is_empty(), !has_work);
                    prop_assert!(had_work || !has_work);
                    for content in &contents {
                        let name = (content.channel(), content.message());
                        if let Some((_, deadline)) = open.get_mut(&name) {
                            prop_assert!(*deadline > now);
                            if once.remove(&name) {
                                *deadline = now + Duration::from_secs(2);
                            }
                        }
                    }
                    flying.extend(contents);
                }
                4 if !flying.is_empty() => {
                    let content = flying.swap_remove(pick % flying.len());
                    outbox.on_acked(content);
                    arrive(&mut open, content);
                }
                5 | 6 if !flying.is_empty() => {
                    let content = flying.swap_remove(pick % flying.len());
                    outbox.on_lost(now, content);
                    late.push(content);
                }
                7 if !late.is_empty() => {
                    let content = late.swap_remove(pick % late.len());
                    outbox.on_acked(content);
                    arrive(&mut open, content);
                }
                7 => {
                    outbox.probe();
                }
                _ => {
                    now += Duration::from_millis(u64::from(number % 200));
                    outbox.handle_timeout(now);
                    prop_assert!(outbox.poll_timeout().is_none_or(|at| at > now));
                }
            }
            while let Some(settled) = outbox.poll_settled() {
                let it = open.remove(&(settled.channel, settled.message));
                prop_assert!(it.is_some(), "{settled:?} was told before, or never sent");
                let Some((left, deadline)) = it else { break };
                let is_delivered = settled.outcome == MessageOutcome::Delivered;
                prop_assert_eq!(is_delivered, left.is_empty(), "{:?}", settled);
                if settled.outcome == MessageOutcome::Expired {
                    prop_assert!(deadline <= now);
                }
            }
            prop_assert!(open.values().all(|(left, _)| !left.is_empty()), "arrived, and not told");
        }
        // All packets in flight are lost: each message is reported in time.
        now += Duration::from_secs(1);
        outbox.handle_timeout(now);
        while outbox.has_work() {
            let contents = packet(&mut outbox, now);
            flying.extend(contents);
        }
        for content in flying {
            outbox.on_lost(now, content);
        }
        outbox.handle_timeout(now + Duration::from_millis(500));
        while let Some(settled) = outbox.poll_settled() {
            prop_assert!(settled.outcome != MessageOutcome::Dropped);
            prop_assert!(open.remove(&(settled.channel, settled.message)).is_some());
        }
        prop_assert!(open.is_empty(), "{open:?}");
        outbox.shrink();
        prop_assert_eq!(outbox.poll_timeout(), None);
    }
}

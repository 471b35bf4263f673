//! Resources that one node, player or failure cannot take from others.

use std::time::Duration;

use bytes::Bytes;
use hub::record::{CallError, CallRequest, Join, MailVerdict, RevokeReason, ToHub, ToNode};
use hub::{
    Addr, CallId, ClaimId, Command, Completed, HubConfig, HubEvent, MailSeq, NodeEvent, Redacted,
    StoreError, StoreOp,
};
use wire::{ClientId, CloseCause, CommandId, ConnectionId, PeerIdentity, StreamMachine};

use crate::bare::{Bare, LINK, NOW, OTHER, THIRD, claim, mail, three};
use crate::world::{World, node_id};

fn revoked(records: &[Vec<u8>], reason: RevokeReason) -> usize {
    records
        .iter()
        .filter(|record| {
            matches!(ToNode::decode(record), Ok(ToNode::Revoked { reason: found, .. }) if found == reason)
        })
        .count()
}

#[test]
fn hub_5_players_that_acknowledge_nothing_do_not_block_other_players() {
    const SILENT: u64 = 64;
    const LIVING: ClientId = ClientId(SILENT);
    let mut world = World::joined(3, 2);
    let now = world.now;
    for player in 0..=SILENT {
        for _ in 0..40 {
            let body = Bytes::from(vec![7; 2_000]);
            let sender = world.node(0);
            sender
                .mail(now, ClientId(player), body, Duration::ZERO)
                .unwrap();
        }
        world.run_ms(100);
        let now = world.now;
        world
            .node(1)
            .claim(now, ClientId(player), MailSeq(0), Bytes::new())
            .unwrap();
    }
    let mut handled = 0;
    let mut given = 0_u64;
    for _ in 0..500 {
        world.run_ms(10);
        let now = world.now;
        let mails: Vec<(ClaimId, MailSeq)> = world
            .take_events()
            .into_iter()
            .filter_map(|(_, event)| match event {
                NodeEvent::Mail { claim, seq, .. } => Some((claim, seq)),
                _ => None,
            })
            .collect();
        given += mails.len() as u64;
        for (claim, seq) in mails {
            if claim.player() == LIVING {
                handled += 1;
                assert!(world.node(1).acknowledge(now, claim, seq));
            }
        }
    }
    assert_eq!(handled, 40);
    // One MiB in total, plus the guaranteed share of each when others have used that up.
    assert!(given < 40 + 500 + 2 * SILENT, "{given}");
}

#[test]
fn unacknowledged_player_bytes_max_bounds_the_bytes_of_one_player() {
    let mut config = HubConfig::default();
    config.unacknowledged_player_bytes_max = 10_000;
    let mut bare = three(config);
    bare.send(LINK, &claim(1));
    let mut seq = 0;
    loop {
        bare.drain_commands();
        let Some((id, Command::Store(StoreOp::Read { bytes_max, .. }))) = bare.commands.pop()
        else {
            break;
        };
        assert!(bytes_max <= 10_000, "{bytes_max}");
        seq += 1;
        let brought = given(seq, 3_000);
        bare.hub.handle_completed(NOW, id, Ok(brought));
    }
    assert_eq!(seq, 4, "3,128 bytes each");
}

/// A read that returns one mail and has more.
fn given(seq: u64, len: usize) -> Completed {
    let mail = hub::store::Mail {
        seq: MailSeq(seq),
        node: node_id(2),
        epoch: hub::Epoch(1),
        sender_seq: hub::SenderSeq(seq),
        body: Redacted(Bytes::from(vec![0; len])),
    };
    let mails = vec![mail];
    let more = true;
    Completed::Mails { mails, more }
}

#[test]
fn hub_4_each_sender_is_notified_of_a_full_store() {
    let mut bare = three(HubConfig::default());
    for seq in 1..=3 {
        bare.send(LINK, &mail(seq, b"one"));
    }
    bare.send(OTHER, &mail(1, b"two"));
    let (id, _) = bare.hub.poll_command().unwrap();
    bare.hub.handle_completed(NOW, id, Err(StoreError::Busy));
    for (link, count) in [(LINK, 3), (OTHER, 1)] {
        let (records, _) = bare.written(link);
        // Written to the others meanwhile, and not checked.
        let Some(record) = records.first() else {
            assert_eq!(link, OTHER);
            continue;
        };
        let Ok(ToNode::MailSettled {
            first,
            last,
            verdict,
            retry_ms,
        }) = ToNode::decode(record)
        else {
            panic!("no verdict for {link:?}");
        };
        assert_eq!((verdict, retry_ms), (MailVerdict::Busy, 100));
        assert_eq!(last.0 - first.0 + 1, count);
    }
    assert_eq!(bare.hub.stats().mail_busy, 4);
}

#[test]
fn a_failed_read_is_retried_at_the_next_tick() {
    let mut bare = three(HubConfig::default());
    bare.send(LINK, &claim(1));
    for tick in 1..4 {
        bare.drain_commands();
        let reads = bare
            .commands
            .iter()
            .filter(|(_, command)| matches!(command, Command::Store(StoreOp::Read { .. })));
        assert_eq!(reads.count(), 1, "once a tick, and not in a loop");
        for (id, _) in std::mem::take(&mut bare.commands) {
            bare.hub.handle_completed(NOW, id, Err(StoreError::Busy));
        }
        bare.drain_commands();
        assert!(bare.commands.is_empty());
        bare.hub
            .handle_timeout(NOW + Duration::from_millis(250 * tick));
    }
}

/// Sends calls from `LINK` to `OTHER`, which does not read, and expires those with a deadline
/// within `wait`.
fn flood(bare: &mut Bare, timeout_ms: u32, wait: Duration) {
    let mut now = NOW;
    for number in 0..1_000 {
        let call = ToHub::Call(CallRequest {
            call: CallId(number),
            timeout_ms,
            to: Addr::Node(node_id(1)),
            body: Redacted(&[0; 1_000]),
        });
        let mut bytes = Vec::new();
        call.encode(&mut bytes);
        bare.hub.handle_frame(now, LINK, &bytes);
        now += wait;
        bare.hub.handle_timeout(now);
    }
}

#[test]
fn hub_5_calls_that_have_timed_out_count_until_they_are_written() {
    for timeout_ms in [0, 1] {
        let mut config = HubConfig::default();
        config.link_bytes_max = 100_000;
        let mut bare = three(config);
        flood(&mut bare, timeout_ms, Duration::from_millis(1));
        // A caller that reconnects counts as the same node.
        let again = ConnectionId(9);
        bare.drain_commands();
        bare.join(again, 0, 0);
        bare.hub.handle_credit(NOW, again, 1 << 30);
        let late = |call| {
            ToHub::Call(CallRequest {
                call: CallId(call),
                timeout_ms: 1_000,
                to: Addr::Node(node_id(1)),
                body: Redacted(&[0; 10_000]),
            })
        };
        bare.send(again, &late(1));
        let long = vec![0; 30_000];
        let other = ToHub::Call(CallRequest {
            call: CallId(1),
            timeout_ms: 1_000,
            to: Addr::Node(node_id(1)),
            body: Redacted(&long),
        });
        bare.send(THIRD, &other);
        let requests = |records: &[Vec<u8>]| {
            let is_request =
                |record: &&Vec<u8>| matches!(ToNode::decode(record), Ok(ToNode::Request(_)));
            records.iter().filter(is_request).count()
        };
        let (records, _) = bare.written(OTHER);
        let asked = requests(&records);
        let bytes: usize = records.iter().map(Vec::len).sum();
        assert!(
            asked > 0 && bytes < 85_000,
            "{asked} requests of {bytes} bytes"
        );
        assert_eq!(bare.hub.stats().calls, asked as u64);
        // Written calls no longer count.
        bare.send(again, &late(2));
        assert_eq!(requests(&bare.written(OTHER).0), 1, "{timeout_ms} ms");
    }
}

#[test]
fn calls_to_an_ended_link_no_longer_count() {
    let mut config = HubConfig::default();
    config.calls_max = 4;
    let mut bare = three(config);
    flood(&mut bare, 1, Duration::from_millis(1));
    assert_eq!(bare.hub.stats().calls, 4);
    bare.hub.handle_closed(NOW, OTHER, CloseCause::Failed);
    let to = Addr::Node(node_id(2));
    for number in 0..8 {
        let call = CallId(number);
        let timeout_ms = 1_000;
        let body = b"";
        let record = ToHub::Call(CallRequest {
            call,
            timeout_ms,
            to,
            body: Redacted(body),
        });
        bare.send(LINK, &record);
    }
    assert_eq!(bare.hub.stats().calls, 8);
}

#[test]
fn a_call_with_timeout_0_ends_at_once() {
    let mut bare = three(HubConfig::default());
    let call = ToHub::Call(CallRequest {
        call: CallId(1),
        timeout_ms: 0,
        to: Addr::Node(node_id(1)),
        body: Redacted(b""),
    });
    bare.send(LINK, &call);
    let (records, _) = bare.written(LINK);
    let over = ToNode::Reply {
        call: CallId(1),
        result: Err(CallError::TimedOut),
    };
    assert_eq!(ToNode::decode(&records[0]), Ok(over));
}

#[test]
fn node_players_max_bounds_the_players_of_one_node() {
    let mut config = HubConfig::default();
    config.players_max = 100;
    config.node_players_max = 60;
    let mut bare = three(config);
    for player in 0..1_000 {
        bare.send(LINK, &claim(player));
    }
    assert_eq!(bare.hub.player_count(), 60);
    let (records, _) = bare.written(LINK);
    assert_eq!(revoked(&records, RevokeReason::Busy), 940);
    for player in 1_000..1_030 {
        bare.send(OTHER, &claim(player));
    }
    assert_eq!(bare.hub.player_count(), 90);
    // It may claim its own player again, but cannot take another node's.
    bare.send(LINK, &claim(5));
    bare.send(LINK, &claim(1_000));
    let (records, _) = bare.written(LINK);
    assert_eq!(revoked(&records, RevokeReason::Busy), 1);
    assert_eq!(bare.hub.holder(ClientId(1_000)), Some(node_id(1)));
    let player = ClientId(7);
    let number = hub::ClaimNumber(1);
    bare.send(
        LINK,
        &ToHub::Release {
            player,
            claim: number,
        },
    );
    bare.send(LINK, &claim(1_000));
    assert_eq!(bare.hub.holder(ClientId(1_000)), Some(node_id(0)));
}

#[test]
fn hub_5_players_of_a_disconnected_node_are_freed_in_steps() {
    const PLAYERS: u64 = 20_000;
    let mut bare = Bare::new(HubConfig::default());
    bare.join(LINK, 0, 0);
    bare.join(OTHER, 1, Join::WATCH_PLAYERS);
    for link in [LINK, OTHER] {
        bare.hub.handle_credit(NOW, link, 1 << 30);
    }
    for player in 0..PLAYERS {
        bare.send(LINK, &claim(player));
    }
    bare.written(OTHER);
    bare.hub.handle_closed(NOW, LINK, CloseCause::Failed);
    // The node's players are released at once, with or without a notification.
    assert_eq!(bare.hub.holder(ClientId(PLAYERS - 1)), None);
    let removed = |records: &[Vec<u8>]| {
        let is_removal = |record: &&Vec<u8>| {
            let record = ToNode::decode(record);
            matches!(record, Ok(ToNode::PresencePlayer { holder: None, .. }))
        };
        records.iter().filter(is_removal).count() as u64
    };
    let (mut now, mut reported, mut turns) = (NOW, 0, 0);
    while reported < PLAYERS {
        let part = removed(&bare.written(OTHER).0);
        assert!(part <= 2_048, "{part} in one turn");
        reported += part;
        turns += 1;
        assert!(turns < 100, "{reported} are told of");
        now = bare.hub.poll_timeout().unwrap();
        bare.hub.handle_timeout(now);
        assert!(bare.hub.poll_timeout().unwrap() > now);
    }
    assert!(turns >= 10);
    assert_eq!(bare.hub.player_count() as u64, PLAYERS, "the lease holds");
    bare.hub.handle_timeout(now + Duration::from_secs(11));
    let left = bare.hub.player_count() as u64;
    assert!(left >= PLAYERS - 2_048, "{left}");
    for turn in 0..20 {
        let later = Duration::from_secs(11) + Duration::from_millis(250 * turn);
        bare.hub.handle_timeout(now + later);
    }
    assert_eq!(bare.hub.player_count(), 0);
}

#[test]
fn a_returning_node_keeps_players_claimed_again_during_the_sweep() {
    let mut bare = three(HubConfig::default());
    for player in 0..6_000 {
        bare.send(LINK, &claim(player));
    }
    bare.hub.handle_closed(NOW, LINK, CloseCause::Failed);
    bare.hub.handle_closed(NOW, OTHER, CloseCause::Failed);
    let again = ConnectionId(9);
    bare.join(again, 0, 0);
    for player in 5_000..6_000 {
        bare.send(again, &claim(player));
    }
    for second in 0..12 {
        for part in 0..4 {
            let later = Duration::from_millis(1_000 * second + 250 * part);
            bare.hub.handle_timeout(NOW + later);
            let mut bytes = Vec::new();
            ToHub::Heartbeat.encode(&mut bytes);
            bare.hub.handle_frame(NOW + later, again, &bytes);
        }
    }
    assert_eq!(bare.hub.player_count(), 1_000);
    assert_eq!(bare.hub.holder(ClientId(5_500)), Some(node_id(0)));
}

#[test]
fn hub_1_a_failed_store_is_reported_even_if_events_wait() {
    let mut config = HubConfig::default();
    config.events_max = 2;
    let mut bare = three(config);
    for number in 10..20 {
        let stranger = PeerIdentity::Anonymous;
        bare.hub.handle_opened(NOW, ConnectionId(number), &stranger);
    }
    assert!(bare.hub.stats().events_dropped > 0);
    bare.send(LINK, &claim(1));
    let (id, _): (CommandId, Command) = bare.hub.poll_command().unwrap();
    bare.hub.handle_completed(NOW, id, Err(StoreError::Failed));
    let reported: Vec<_> = core::iter::from_fn(|| bare.hub.poll_event()).collect();
    let failures = reported
        .iter()
        .filter(|event| **event == HubEvent::StoreFailed);
    assert_eq!(failures.count(), 1, "{reported:?}");
}

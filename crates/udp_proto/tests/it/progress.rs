//! Reports and repeats never block messages, and every drain ends.

use core::time::Duration;

use udp_proto::Config;

use crate::amplification::open_by_a_copy;
use crate::direct::{CLIENT, Line, Sent};
use crate::harness::{RELIABLE, UNRELIABLE, address};
use crate::hostile::unknown_address;
use crate::rogue::{Rogue, confirm};

/// CONFIRM is in every packet until it is acknowledged, and leaves no room for a full fragment.
#[test]
fn fragments_queued_at_connect_share_packets_with_confirm() {
    let mut line = Line::new(1);
    let credentials = line.token(1);
    let session = line.client.dial(line.now, &line.keys, credentials);
    let hello = line.client.drain(line.now).remove(0).bytes;
    line.server.take(line.now, line.client.at, &hello);
    let accept = line.server.drain(line.now).remove(0).bytes;
    line.client.take(line.now, line.server.at, &accept);
    let message = vec![7; 4_000];
    for channel in [UNRELIABLE, RELIABLE] {
        line.client
            .machine
            .send(line.now, session, channel, &message)
            .unwrap();
    }
    let sent = line.client.drain(line.now);
    assert!((7..=12).contains(&sent.len()), "{} packets", sent.len());
    for Sent { bytes, .. } in sent {
        line.server.take(line.now, line.client.at, &bytes);
    }
    line.run(1_000);
    let mut received = line.server.messages.clone();
    received.sort_by_key(|(channel, _)| *channel);
    assert_eq!(
        received,
        [(UNRELIABLE, message.clone()), (RELIABLE, message)]
    );
}

/// The longest message and the longest ACK do not fit in one packet: the ACK is truncated or left
/// out.
#[test]
fn a_long_ack_does_not_block_the_longest_message() {
    for len in [1_100, 1_120, 1_150, 1_160, 1_166] {
        let mut line = Line::new(2);
        let mut rogue = Rogue::new(2, &line.token(1));
        line.server.take(line.now, address(CLIENT), &rogue.hello);
        let accept = line.server.drain(line.now).remove(0).bytes;
        let mut session = rogue.accept(&accept);
        let first = session.packet(&confirm(&Config::default()));
        line.server.take(line.now, address(CLIENT), &first);
        line.server.drain(line.now);
        // 500 packets; each second one is lost.
        for _ in 0..500 {
            session.lose();
            let ping = session.packet(&[0x01]);
            line.server.take(line.now, address(CLIENT), &ping);
        }
        let theirs = line.server.sessions()[0];
        for _ in 0..3 {
            for channel in [RELIABLE, UNRELIABLE] {
                line.server
                    .machine
                    .send(line.now, theirs, channel, &vec![7; len])
                    .unwrap();
            }
        }
        let sent = line.server.drain(line.now);
        assert!((6..=9).contains(&sent.len()), "{} packets", sent.len());
        // The complete report is sent soon after.
        line.now += Duration::from_millis(30);
        line.server.wake(line.now);
        let reports = line.server.drain(line.now);
        assert!(reports.iter().any(|sent| sent.bytes.len() > 100));
    }
}

/// 30 messages per packet, and no acknowledgement for a long time.
#[test]
fn thousands_of_queued_messages_are_all_delivered() {
    let mut line = Line::new(3);
    let (session, _) = line.join(1);
    line.run(100);
    let (mut reliable, mut packets) = (0_u32, Vec::new());
    for _ in 0..600 {
        for _ in 0..29 {
            line.client
                .machine
                .send(line.now, session, UNRELIABLE, b"u")
                .unwrap();
        }
        let sent = line
            .client
            .machine
            .send(line.now, session, RELIABLE, &reliable.to_be_bytes());
        reliable += u32::from(sent.is_ok());
        packets.extend(line.client.drain(line.now));
    }
    assert!(packets.len() > 200, "{}", packets.len());
    // Only the reliable ones count, and all packets are lost.
    drop(packets);
    line.run(30_000);
    let received: Vec<u32> = line
        .server
        .messages
        .iter()
        .filter(|(channel, _)| *channel == RELIABLE)
        .map(|(_, message)| u32::from_be_bytes(message[..].try_into().unwrap()))
        .collect();
    assert_eq!(received, (0..reliable).collect::<Vec<_>>());
}

/// A session that waits, for a packet of the peer or for an answer that never arrives, is due only a
/// few times per second; otherwise a driver would spin.
#[test]
fn a_blocked_session_wakes_a_few_times_a_second() {
    let mut line = Line::new(4);
    // The server has much to send to an unvalidated address that is now silent.
    open_by_a_copy(&mut line, unknown_address(3));
    let theirs = line.server.machine.sessions().next().unwrap();
    for channel in [RELIABLE, UNRELIABLE] {
        for _ in 0..20 {
            line.server
                .machine
                .send(line.now, theirs, channel, &[9; 2_000])
                .unwrap();
        }
    }
    line.server.drain(line.now);
    let (start, mut calls) = (line.now, 0);
    while let Some(at) = line.server.machine.poll_timeout() {
        line.now = line.now.max(at);
        line.server.machine.handle_timeout(line.now);
        line.server.drain(line.now);
        calls += 1;
        assert!(
            calls <= 60,
            "{calls} in {:?}",
            line.now.saturating_since(start)
        );
    }
    assert!(line.now.saturating_since(start) >= Duration::from_secs(10));
    assert_eq!(line.server.machine.session_count(), 0, "it was given up");
}

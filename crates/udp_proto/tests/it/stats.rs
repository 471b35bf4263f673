//! Session counters of messages that did not arrive, one per cause.

use core::time::Duration;

use udp_proto::{Config, SessionId, SessionStats};

use crate::direct::{CLIENT, Line};
use crate::harness::{RELIABLE, UNRELIABLE, address};
use crate::rogue::{Rogue, confirm};

fn ours(line: &Line, session: SessionId) -> SessionStats {
    line.client.machine.session_stats(session).unwrap()
}

fn send(line: &mut Line, session: SessionId, message: &[u8]) {
    let now = line.now;
    line.client
        .machine
        .send(now, session, UNRELIABLE, message)
        .unwrap();
}

#[test]
fn displaced_expired_and_lost_messages_are_counted_separately() {
    let mut line = Line::new(1);
    let (session, _) = line.join(1);
    line.run(100);
    // 64 KiB hold 63 of them, with 40 bytes of overhead each.
    for _ in 0..70 {
        send(&mut line, session, &[1; 1_000]);
    }
    let stats = ours(&line, session);
    assert_eq!((stats.messages_sent, stats.messages_displaced), (70, 7));
    // No packet is requested for longer than the TTL.
    line.now += Duration::from_millis(101);
    line.client.wake(line.now);
    assert_eq!(ours(&line, session).messages_expired, 63);
    line.run(100);
    assert!(line.server.messages.is_empty());
    // Three are sent in one packet each and lost; later packets show it.
    for _ in 0..3 {
        send(&mut line, session, &[2; 1_000]);
    }
    assert_eq!(line.client.drain(line.now).len(), 3);
    for _ in 0..5 {
        send(&mut line, session, &[3; 1_000]);
        line.run(20);
    }
    let stats = ours(&line, session);
    assert_eq!((stats.message_frames_lost, stats.packets_lost), (3, 3));
    assert_eq!(line.server.messages.len(), 5);
    assert_eq!((stats.messages_displaced, stats.messages_expired), (7, 63));
}

#[test]
fn receiver_drops_and_duplicates_are_counted_separately() {
    let mut line = Line::new(2);
    let mut rogue = Rogue::new(2, &line.token(1));
    line.server.take(line.now, address(CLIENT), &rogue.hello);
    let accept = line.server.drain(line.now).remove(0).bytes;
    let mut session = rogue.accept(&accept);
    let mut send_plaintext = |line: &mut Line, plaintext: &[u8]| {
        let packet = session.packet(plaintext);
        line.server.take(line.now, address(CLIENT), &packet);
    };
    send_plaintext(&mut line, &confirm(&Config::default()));
    let theirs = line.server.machine.sessions().next().unwrap();
    let stats = |line: &Line| line.server.machine.session_stats(theirs).unwrap();
    // Unread: 80 messages of 1,000 bytes, with 64 KiB for messages and their records.
    for _ in 0..80 {
        send_plaintext(&mut line, &[&[0x80][..], &[1; 1_000]].concat());
    }
    let unread = stats(&line).messages_dropped_unread;
    assert!((15..=20).contains(&unread), "{unread}");
    let mut out = Vec::new();
    let mut read = 0;
    while line
        .server
        .machine
        .receive(line.now, theirs, &mut out)
        .is_some()
    {
        read += 1;
    }
    assert_eq!(read + unread, 80);
    // One fragment of two, and no more for two seconds.
    send_plaintext(
        &mut line,
        &[&[0xC0, 0, 0, 0, 0, 0, 2][..], &[1; 1_120]].concat(),
    );
    line.now += Duration::from_millis(2_001);
    line.server.wake(line.now);
    assert_eq!(stats(&line).messages_dropped_incomplete, 1);
    // The same reliable message in two packets.
    for _ in 0..2 {
        send_plaintext(&mut line, &[0x81, 0, 0, b'x', b'x']);
    }
    assert_eq!(stats(&line).message_frames_repeated, 1);
    assert_eq!(
        line.server.machine.receive(line.now, theirs, &mut out),
        Some(RELIABLE)
    );
    assert_eq!(stats(&line).messages_received, read + 1);
}

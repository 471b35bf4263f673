//! A session's records of sent packets.

use core::time::Duration;

use udp_proto::Config;
use wire::Seed;

use crate::direct::Line;
use crate::harness::{RELIABLE, UNRELIABLE};
use crate::link::Link;

/// Peak memory of client and server in a minute of 60 messages per second each way, with `loss`
/// lost datagrams per thousand.
fn most_in_a_minute(loss: u64) -> [usize; 2] {
    let mut generator = Seed::from_number(7).generator(0);
    let mut link = Link::new(31, Config::default(), move |_, bytes| {
        bytes[0] < 0x80 && generator.below(1_000) < loss
    });
    link.run(1_000);
    let (mine, theirs) = (link.dialled().unwrap(), link.accepted().unwrap());
    let mut most = [0; 2];
    for tick in 0..3_600_u32 {
        let now = link.line.now;
        let message = [tick.to_be_bytes(); 20].concat();
        let channel = if tick % 8 == 0 { RELIABLE } else { UNRELIABLE };
        let (client, server) = (&mut link.line.client, &mut link.line.server);
        client.machine.send(now, mine, channel, &message).unwrap();
        server.machine.send(now, theirs, channel, &message).unwrap();
        link.run(if tick % 3 == 0 { 16 } else { 17 });
        let (client, server) = (&link.line.client, &link.line.server);
        for (most, endpoint) in most.iter_mut().zip([client, server]) {
            *most = endpoint.machine.memory().max(*most);
        }
    }
    assert_eq!(link.closes(), []);
    most
}

/// One packet in a hundred is lost. Its record is kept for half a second or three probe timeouts,
/// not for the 1,024 packets after it.
#[test]
fn a_lost_packet_does_not_keep_records_of_later_ones() {
    let (without, with) = (most_in_a_minute(0), most_in_a_minute(10));
    for (without, with) in without.into_iter().zip(with) {
        assert!(with <= 2 * without, "{with} B, {without} B without loss");
    }
}

/// An end that only answers sends packets that are never acknowledged. Their records are dropped,
/// however long the other side sends.
#[test]
fn ack_only_packets_expire() {
    let mut link = Link::new(32, Config::default(), |_, _| false);
    link.run(1_000);
    let mine = link.dialled().unwrap();
    let mut most = [0; 2];
    for tick in 0..3_000 {
        let now = link.line.now;
        let client = &mut link.line.client.machine;
        client.send(now, mine, UNRELIABLE, &[7; 50]).unwrap();
        link.run(40);
        let half = tick / 1_500;
        most[half] = link.line.server.machine.memory().max(most[half]);
    }
    assert_eq!(most[0], most[1]);
    assert!(link.line.now.saturating_since(crate::direct::START) > Duration::from_secs(100));
}

/// 30 untracked messages per packet take no space in the record, and packets are sent until the
/// limit in flight. If they counted, 205 packets would reach 6,144.
#[test]
fn untracked_unreliable_messages_are_not_recorded() {
    let mut line = Line::new(33);
    let (session, _) = line.join(1);
    line.run(500);
    let (now, mut packets) = (line.now, 0);
    while line.now < now + Duration::from_millis(280) {
        line.now += Duration::from_millis(1);
        for _ in 0..60 {
            let machine = &mut line.client.machine;
            machine.send(line.now, session, UNRELIABLE, b"x").unwrap();
        }
        line.client.wake(line.now);
        packets += line.client.drain(line.now).len();
    }
    assert!((400..=800).contains(&packets), "{packets}");
}

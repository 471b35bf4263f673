//! RTT samples from the handshake, and when it gives none.

use core::time::Duration;

use udp_proto::{Credentials, Listen, SessionId, SessionStats};

use crate::direct::{Line, Sent};
use crate::harness::RELIABLE;

const WAY: Duration = Duration::from_millis(40);

fn stats(line: &Line, theirs: SessionId) -> [SessionStats; 2] {
    let ours = line.client.machine.sessions().next().unwrap();
    [
        line.client.machine.session_stats(ours).unwrap(),
        line.server.machine.session_stats(theirs).unwrap(),
    ]
}

fn samples(line: &Line) -> [Duration; 2] {
    let theirs = line.server.machine.sessions().next().unwrap();
    stats(line, theirs).map(|stats| stats.rtt)
}

fn to_server(line: &mut Line) -> usize {
    let sent = line.client.drain(line.now);
    line.now += WAY;
    for Sent { bytes, .. } in &sent {
        line.server.take(line.now, line.client.at, bytes);
    }
    sent.len()
}

fn to_client(line: &mut Line) {
    let sent = line.server.drain(line.now);
    line.now += WAY;
    for Sent { bytes, .. } in &sent {
        line.client.take(line.now, line.server.at, bytes);
    }
}

#[test]
fn a_handshake_without_repeats_is_the_first_rtt_sample() {
    for credentials in [None, Some(Credentials::Open)] {
        let mut line = Line::with(1, udp_proto::Config::default(), Listen::with_open_mode);
        let token = line.token(1);
        line.client
            .dial(line.now, &line.keys, credentials.unwrap_or(token));
        for _ in 0..3 {
            to_server(&mut line);
            to_client(&mut line);
        }
        assert_eq!(samples(&line), [WAY * 2; 2]);
    }
}

/// If two HELLOs were sent, the client cannot know which one the ACCEPT answers (Karn's ambiguity).
#[test]
fn a_retransmitted_hello_gives_no_rtt_sample() {
    let mut line = Line::new(2);
    let credentials = line.token(1);
    line.client.dial(line.now, &line.keys, credentials);
    assert_eq!(to_server(&mut line), 1);
    // The ACCEPT takes longer than the client's timeout: it arrives 20 ms after the second HELLO.
    let accept = line.server.drain(line.now).remove(0).bytes;
    line.now = line.client.machine.poll_timeout().unwrap();
    line.client.wake(line.now);
    assert_eq!(line.client.drain(line.now).len(), 1);
    line.now += Duration::from_millis(20);
    line.client.take(line.now, line.server.at, &accept);
    let session = line.client.machine.sessions().next().unwrap();
    let none = line.client.machine.session_stats(session).unwrap();
    assert_eq!((none.rtt, none.rtt_min), (Duration::ZERO, Duration::ZERO));
    // The first acknowledged packet gives the sample.
    for _ in 0..2 {
        to_server(&mut line);
        to_client(&mut line);
    }
    assert_eq!(samples(&line)[0], WAY * 2);
}

/// The same at the server, for a repeated ACCEPT or a repeated first packet.
#[test]
fn a_retransmitted_accept_or_first_packet_gives_no_rtt_sample() {
    for is_accept_lost in [true, false] {
        let mut line = Line::new(3);
        let credentials = line.token(1);
        line.client.dial(line.now, &line.keys, credentials);
        to_server(&mut line);
        if is_accept_lost {
            line.server.drain(line.now);
        } else {
            to_client(&mut line);
            assert_eq!(line.client.drain(line.now).len(), 1, "lost");
        }
        line.now = line.client.machine.poll_timeout().unwrap();
        line.client.wake(line.now);
        to_server(&mut line);
        to_client(&mut line);
        to_server(&mut line);
        let theirs = line.server.machine.sessions().next().unwrap();
        let none = stats(&line, theirs)[1];
        assert_eq!((none.rtt, none.rtt_min), (Duration::ZERO, Duration::ZERO));
        let now = line.now;
        line.server
            .machine
            .send(now, theirs, RELIABLE, b"x")
            .unwrap();
        to_client(&mut line);
        line.now += Duration::from_millis(30);
        line.client.wake(line.now);
        to_server(&mut line);
        // It also carried a CLOSE, and the client's reported delay is subtracted.
        let measured = stats(&line, theirs)[1].rtt;
        assert!(
            measured >= WAY * 2 && measured <= WAY * 2 + Duration::from_millis(30),
            "{measured:?}"
        );
    }
}

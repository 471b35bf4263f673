//! Many packets in flight, slow ends, deep queues and no loss: how much is retransmitted, and for
//! how long.

use core::num::NonZeroU64;
use core::time::Duration;
use std::collections::VecDeque;

use netsim::{LinkConfig, Rate};
use udp_proto::{SessionId, SessionStats};
use wire::Seed;

use crate::direct::{CLIENT, Line, without_rate_limits};
use crate::harness::{RELIABLE, SERVER, Testbed, UNRELIABLE, address};

/// A client and a server with drivers that receive and send once every few milliseconds.
struct Busy {
    line: Line,
    /// The client's and the server's.
    sessions: [SessionId; 2],
    /// Datagrams in flight to the client and to the server.
    queues: [VecDeque<Vec<u8>>; 2],
    /// Datagrams sent by the client and by the server.
    sent: [usize; 2],
    /// Milliseconds between turns.
    periods: [u64; 2],
    millis: u64,
}

impl Busy {
    fn new(seed: u64, periods: [u64; 2]) -> Self {
        let mut line = Line::new(seed);
        let (ours, theirs) = line.join(1);
        line.run(100);
        Self {
            line,
            sessions: [ours, theirs],
            queues: Default::default(),
            sent: [0; 2],
            periods,
            millis: 0,
        }
    }

    /// Queues as much reliable data as fits, and `unreliable` messages, at both ends; returns how
    /// many of the client's messages must arrive.
    fn fill(&mut self, unreliable: usize) -> usize {
        let now = self.line.now;
        let ends = [&mut self.line.client, &mut self.line.server];
        let mut taken = [0; 2];
        for ((end, session), taken) in ends.into_iter().zip(self.sessions).zip(&mut taken) {
            for message in [&[5; 60][..], &[6; 1_100]].into_iter().cycle() {
                let result = end.machine.send(now, session, RELIABLE, message);
                if result.is_err() {
                    break;
                }
                *taken += 1;
            }
            for _ in 0..unreliable {
                let result = end.machine.send(now, session, UNRELIABLE, &[7; 1_000]);
                result.unwrap();
            }
        }
        taken[0]
    }

    fn pass_a_millisecond(&mut self) {
        let now = self.line.now;
        let peers = [SERVER, CLIENT].map(address);
        let ends = [&mut self.line.client, &mut self.line.server];
        for (side, end) in ends.into_iter().enumerate() {
            if !self.millis.is_multiple_of(self.periods[side]) {
                continue;
            }
            for bytes in core::mem::take(&mut self.queues[side]) {
                end.take(now, peers[side], &bytes);
            }
            end.wake(now);
            for sent in end.drain(now) {
                self.queues[1 - side].push_back(sent.bytes);
                self.sent[side] += 1;
            }
        }
        self.line.now += Duration::from_millis(1);
        self.millis += 1;
    }

    fn stats(&self) -> [SessionStats; 2] {
        let [ours, theirs] = self.sessions;
        [
            self.line.client.machine.session_stats(ours).unwrap(),
            self.line.server.machine.session_stats(theirs).unwrap(),
        ]
    }
}

/// An end that answers rarely has a long report. If it also has much to send, the report does not
/// fit in the packet. Packets that the report omits count as lost.
#[test]
fn late_reports_of_a_busy_peer_cause_no_retransmission() {
    let slow = [1, 5, 20, 50, 300];
    let pairs = slow.into_iter().flat_map(|a| slow.map(|b| [a, b]));
    for (seed, periods) in (0..).zip(pairs) {
        let mut busy = Busy::new(seed, periods);
        let mut reliable = 0;
        for millis in 0..1_500_usize {
            reliable += busy.fill(12 + millis % 2);
            busy.pass_a_millisecond();
        }
        for _ in 0..3_000 {
            busy.pass_a_millisecond();
        }
        let incoming = &busy.line.server.messages;
        let arrived = incoming.iter().filter(|(channel, _)| *channel == RELIABLE);
        assert_eq!(arrived.count(), reliable, "{periods:?}");
        let sent = busy.sent;
        for (stats, sent) in busy.stats().into_iter().zip(sent) {
            let most = u64::try_from(sent / 100 + 8).unwrap();
            assert!(stats.packets_lost <= most, "{periods:?}: {stats:?}");
            assert!(
                stats.message_frames_repeated <= most,
                "{periods:?}: {stats:?}"
            );
        }
        // Only keepalives and their acknowledgements remain.
        for _ in 0..2_000 {
            busy.pass_a_millisecond();
        }
        let later = [busy.sent[0] - sent[0], busy.sent[1] - sent[1]];
        assert!(later.iter().all(|count| *count <= 8), "{later:?}");
    }
}

/// A bottleneck of 1 MB/s with a queue of a second: the RTT grows from 2 ms to that of all packets
/// in flight.
#[test]
fn sim_a_deep_queue_causes_no_retransmission() {
    for seed in 1..=4 {
        let mut testbed = Testbed::with(Seed::from_number(seed), without_rate_limits(), |listen| {
            listen
        });
        let (client, session) = testbed.join_with(1, without_rate_limits());
        testbed.run(500);
        let rate = Rate {
            bytes_per_second: NonZeroU64::new(1_000_000).unwrap(),
            queue_bytes: 4 << 20,
        };
        let delay = Duration::from_millis(1);
        let link = LinkConfig::default().with_delay(delay).with_rate(rate);
        let server = testbed.server;
        testbed.world.set_links(client, server, link);
        let mut reliable = 0;
        for _ in 0..3_000 {
            testbed.world.apply(client, |host, now| {
                let machine = &mut host.machine;
                while machine.send(now, session, RELIABLE, &[5; 400]).is_ok() {
                    reliable += 1;
                }
                // As much as fits, and a little more at the start.
                machine.send(now, session, UNRELIABLE, &[7; 500]).unwrap();
            });
            testbed.run(1);
        }
        testbed.run(4_000);
        let dropped = testbed.world.link_stats(client, server).queue_dropped;
        assert_eq!(dropped, 0, "nothing was lost");
        let incoming = &testbed.log(server).messages;
        let incoming = incoming
            .iter()
            .filter(|(_, channel, _)| *channel == RELIABLE);
        assert_eq!(incoming.count(), reliable);
        let stats = |machine: &udp_proto::Endpoint<_>| {
            let session = machine.sessions().next().unwrap();
            machine.session_stats(session).unwrap()
        };
        let ours = stats(&testbed.peer(client).machine);
        let theirs = stats(&testbed.peer(server).machine);
        assert!(reliable > 3_000, "{reliable}");
        assert_eq!(ours.packets_lost, 0, "seed {seed}: {ours:?}");
        let probed = theirs.message_frames_repeated;
        assert!(probed <= 16, "seed {seed}: {probed}");
        // Then it stops.
        testbed.run(2_000);
        let later = stats(&testbed.peer(client).machine).packets_sent;
        assert!(later - ours.packets_sent <= 8);
    }
}

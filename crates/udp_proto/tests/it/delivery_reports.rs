//! A message reported delivered has reached the peer's application, even if the network reorders
//! packets and the peer's process pauses.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use netsim::{Chance, Handle, Jitter, LinkConfig, Loss, Order, for_each_seed, test_site};
use udp_proto::{Event, Message, MessageId, MessageOutcome, SessionId};
use wire::{Generator, Seed};

use crate::direct::{Line, Sent};
use crate::harness::{Peer, Testbed, UNRELIABLE, runs_its_own_seeds};

/// How often a message is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    Once,
    UntilDeadline,
}

/// What a process does first after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Timer,
    Packet,
}

#[derive(Debug, Default)]
struct Tally {
    sent: usize,
    came: usize,
    delivered: usize,
}

/// Bursts of split messages to a server that pauses now and then.
struct Run {
    testbed: Testbed,
    client: Handle<Peer>,
    session: SessionId,
    generator: Generator,
    sent: BTreeMap<MessageId, u32>,
}

impl Run {
    fn new(seed: Seed) -> Self {
        let mut testbed = Testbed::new(seed);
        let server = testbed.server;
        testbed
            .world
            .apply(server, |host, _| host.app.is_echo = false);
        let (client, session) = testbed.join(1);
        testbed.run(500);
        let mut generator = testbed.world.generator(11);
        let percent = u32::try_from(generator.below(31)).unwrap();
        let jitter = Duration::from_millis(generator.below(120));
        let link = LinkConfig::default()
            .with_loss(Loss::Bernoulli(Chance::percent(percent)))
            .with_duplicate(Chance::percent(5))
            .with_order(Order::ByDelay)
            .with_delay(Duration::from_millis(10))
            .with_jitter(Jitter::Uniform(jitter));
        testbed.world.set_default_link(link);
        Self {
            testbed,
            client,
            session,
            generator,
            sent: BTreeMap::new(),
        }
    }

    fn send_plaintext(&mut self, longest: u64, ttl: Duration, leaves: Leaves) {
        let number = u32::try_from(self.sent.len()).unwrap();
        let len = self.generator.between(1_200, longest);
        let mut bytes = vec![1; usize::try_from(len).unwrap()];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        let mut message = Message::new(UNRELIABLE, &bytes).with_ttl(ttl);
        if leaves == Leaves::UntilDeadline {
            message = message.until_deadline();
        }
        let session = self.session;
        let id = self.testbed.world.apply(self.client, |host, now| {
            host.machine.send_tracked(now, session, &message)
        });
        self.sent.insert(id.unwrap(), number);
    }

    fn finish(mut self, tally: &mut Tally) {
        self.testbed.world.set_default_link(LinkConfig::default());
        self.testbed.run(8_000);
        let server = self.testbed.log(self.testbed.server);
        let numbers = server.messages.iter().map(|(_, _, bytes)| {
            let number = bytes[..4].try_into().unwrap();
            u32::from_be_bytes(number)
        });
        let came: BTreeSet<u32> = numbers.collect();
        assert_eq!(came.len(), server.messages.len(), "none came twice");
        tally.came += came.len();
        tally.sent += self.sent.len();
        let log = self.testbed.log(self.client);
        assert_eq!(log.closes(), []);
        let mut open = self.sent;
        for event in &log.events {
            if let Event::Settled {
                message, outcome, ..
            } = event
            {
                let number = open.remove(message).expect("told once");
                if *outcome == MessageOutcome::Delivered {
                    assert!(came.contains(&number), "{number} did not come");
                    tally.delivered += 1;
                }
            }
        }
        assert!(open.is_empty(), "not told: {open:?}");
    }
}

#[test]
fn sim_u9_delivered_is_true_under_reordering_loss_and_stalls() {
    let mut tally = Tally::default();
    for_each_seed(&test_site!(), 300, |seed| {
        let mut run = Run::new(seed);
        let burst = run.generator.between(1, 16);
        let longest = run.generator.between(1_300, 4_000);
        let ttl = Duration::from_millis(run.generator.between(300, 5_000));
        for _ in 0..8 {
            let leaves = if run.generator.chance(750_000) {
                Leaves::UntilDeadline
            } else {
                Leaves::Once
            };
            for _ in 0..burst {
                run.send_plaintext(longest, ttl, leaves);
            }
            if run.generator.chance(250_000) {
                let pause = run.generator.below(150);
                run.testbed.run(pause);
                let server = run.testbed.server;
                run.testbed.world.stall(server, Duration::from_secs(3));
                run.testbed.run(3_000);
            }
            let pause = run.generator.between(50, 400);
            run.testbed.run(pause);
        }
        run.finish(&mut tally);
    });
    if runs_its_own_seeds() {
        assert!(tally.delivered * 100 >= tally.came * 90, "{tally:?}");
        assert!(tally.came * 100 >= tally.sent * 50, "{tally:?}");
    }
}

/// The second half of a message waits in the socket of a paused process; returns the reported
/// outcomes and the number of arrived messages.
fn stall(millis: u64, first: First) -> (Vec<MessageOutcome>, usize) {
    let mut line = Line::new(4);
    let (ours, _) = line.join(1);
    line.run(3_000);
    let bytes = vec![5; 2_000];
    let message = Message::new(UNRELIABLE, &bytes)
        .with_ttl(Duration::from_secs(5))
        .until_deadline();
    let machine = &mut line.client.machine;
    machine.send_tracked(line.now, ours, &message).unwrap();
    let at = line.client.at;
    let is_half = |sent: &Sent| sent.bytes.len() > 500;
    let sent = line.client.drain(line.now);
    let halves: Vec<_> = sent.into_iter().filter(is_half).collect();
    assert_eq!(halves.len(), 2);
    line.server.take(line.now, at, &halves[0].bytes);
    let mut answers = line.server.drain(line.now);
    // The other half is lost and retransmitted.
    let mut second = None;
    while second.is_none() {
        line.now += Duration::from_millis(1);
        for Sent { bytes, .. } in answers.drain(..) {
            line.client.take(line.now, line.server.at, &bytes);
        }
        line.client.wake(line.now);
        for sent in line.client.drain(line.now) {
            if is_half(&sent) {
                second = Some(sent);
            } else {
                line.server.take(line.now, at, &sent.bytes);
            }
        }
        line.server.wake(line.now);
        answers = line.server.drain(line.now);
    }
    line.now += Duration::from_millis(millis);
    if first == First::Timer {
        line.server.wake(line.now);
    }
    line.server.take(line.now, at, &second.unwrap().bytes);
    line.server.wake(line.now);
    line.settle();
    line.run(8_000);
    let outcomes = line.client.events.iter().filter_map(|event| match event {
        Event::Settled { outcome, .. } => Some(*outcome),
        _ => None,
    });
    (outcomes.collect(), line.server.messages.len())
}

#[test]
fn u9_a_stalled_receiver_has_no_false_delivered_reports() {
    for first in [First::Packet, First::Timer] {
        for millis in [100, 1_000, 2_100, 3_000] {
            let (outcomes, came) = stall(millis, first);
            let is_delivered = outcomes == [MessageOutcome::Delivered];
            let place = (millis, first);
            assert_eq!(is_delivered, came == 1, "{place:?}: {outcomes:?}, {came}");
            assert_eq!(outcomes.len(), 1, "{place:?}");
            assert!(is_delivered || millis > 2_000, "{place:?}");
        }
    }
}

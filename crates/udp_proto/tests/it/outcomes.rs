//! Message outcomes: each is reported once and is correct.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use netsim::{Chance, Handle, Jitter, LinkConfig, Loss, Order, for_each_seed, test_site};
use udp_proto::{
    ChannelConfig, ChannelId, ChannelTable, CloseCode, Config, Delivery, Event, Message, MessageId,
    MessageOutcome, SendError, SessionId,
};
use wire::{Generator, Seed};

use crate::direct::{Line, Party, config};
use crate::harness::{Peer, RELIABLE, Testbed, UNRELIABLE, runs_its_own_seeds};

/// One channel of each kind, in the order of their codes.
fn rows() -> [ChannelConfig; 4] {
    [
        ChannelConfig::unreliable(),
        ChannelConfig::sequenced(),
        ChannelConfig::reliable_unordered(),
        ChannelConfig::reliable_ordered(),
    ]
}

fn all_kinds() -> Config {
    config(|config| config.channels = ChannelTable::new(&rows()).unwrap())
}

/// Message outcomes in `events`, in order.
pub(crate) fn reported(events: &[Event]) -> Vec<(ChannelId, MessageId, MessageOutcome)> {
    let settled = events.iter().filter_map(|event| match event {
        Event::Settled {
            channel,
            message,
            outcome,
            ..
        } => Some((*channel, *message, *outcome)),
        _ => None,
    });
    settled.collect()
}

fn outcomes(endpoint: &Party) -> Vec<MessageOutcome> {
    reported(&endpoint.events)
        .into_iter()
        .map(|(.., it)| it)
        .collect()
}

/// A client that tracks every message.
struct Sender {
    testbed: Testbed,
    client: Handle<Peer>,
    session: SessionId,
    generator: Generator,
    /// The number in the message, by channel and message id.
    sent: BTreeMap<(ChannelId, MessageId), u32>,
}

impl Sender {
    fn new(seed: Seed) -> Self {
        let mut testbed = Testbed::with(seed, all_kinds(), udp_proto::Listen::with_open_mode);
        let server = testbed.server;
        testbed
            .world
            .apply(server, |host, _| host.app.is_echo = false);
        let client = testbed.client_with(all_kinds());
        let session = testbed.dial(client, udp_proto::Credentials::Open);
        testbed.run(500);
        Self {
            generator: testbed.world.generator(7),
            testbed,
            client,
            session,
            sent: BTreeMap::new(),
        }
    }

    fn send_plaintext(&mut self, number: u32) {
        let channel = ChannelId(u8::try_from(self.generator.below(4)).unwrap());
        // A split message may arrive completely and still not be reassembled in time.
        let longest = if channel == ChannelId(0) {
            1_000
        } else {
            3_000
        };
        let len = usize::try_from(self.generator.between(4, longest)).unwrap();
        let mut bytes = vec![1; len];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        let mut message = Message::new(channel, &bytes);
        if self.generator.chance(100_000) {
            message = message.with_ttl(Duration::ZERO);
        }
        let session = self.session;
        let sent = self.testbed.world.apply(self.client, |host, now| {
            host.machine.send_tracked(now, session, &message)
        });
        match sent {
            Ok(id) => assert_eq!(self.sent.insert((channel, id), number), None),
            Err(error) => assert_eq!(error, SendError::Full),
        }
    }

    /// Checks that each message was reported once and correctly. Returns how many arrived and were
    /// reported lost.
    fn check(&self) -> usize {
        let server = self.testbed.log(self.testbed.server);
        let came: BTreeSet<(ChannelId, u32)> = server
            .messages
            .iter()
            .map(|(_, channel, bytes)| {
                let number = u32::from_be_bytes(bytes[..4].try_into().unwrap());
                (*channel, number)
            })
            .collect();
        let events = &self.testbed.log(self.client).events;
        let mut open = self.sent.clone();
        let mut false_losses = 0;
        for (channel, message, outcome) in reported(events) {
            let number = open.remove(&(channel, message)).expect("told once");
            let has_come = came.contains(&(channel, number));
            let delivery = rows()[usize::from(channel.0)].delivery;
            match outcome {
                // A newer one may have arrived first.
                MessageOutcome::Delivered if delivery == Delivery::Sequenced => {}
                MessageOutcome::Delivered => assert!(has_come, "{channel:?} {number}"),
                MessageOutcome::Lost => {
                    assert!(!delivery.is_reliable());
                    false_losses += usize::from(has_come);
                }
                MessageOutcome::Expired | MessageOutcome::Displaced => {
                    assert!(!delivery.is_reliable() && !has_come);
                }
                other => panic!("{other:?} while the session lives"),
            }
        }
        assert!(open.is_empty(), "not told: {open:?}");
        false_losses
    }
}

fn bad_link(generator: &mut Generator) -> LinkConfig {
    let mut percent = |most| Chance::percent(u32::try_from(generator.below(most)).unwrap());
    let millis = Duration::from_millis;
    LinkConfig::default()
        .with_loss(Loss::Bernoulli(percent(40)))
        .with_duplicate(percent(25))
        .with_reorder(percent(20), millis(60))
        .with_corrupt(percent(5))
        .with_jitter(Jitter::Uniform(millis(50)))
        .with_order(Order::ByDelay)
        .with_delay(millis(generator.between(5, 200)))
}

#[test]
fn sim_u9_each_outcome_is_reported_once_and_is_true() {
    let (mut told_of, mut false_losses) = (BTreeMap::<u8, usize>::new(), 0);
    for_each_seed(&test_site!(), 40, |seed| {
        let mut sender = Sender::new(seed);
        let link = bad_link(&mut sender.generator);
        sender.testbed.world.set_default_link(link);
        for number in 0..400 {
            sender.send_plaintext(number);
            let pause = sender.generator.below(20);
            sender.testbed.run(pause);
        }
        sender.testbed.world.set_default_link(LinkConfig::default());
        sender.testbed.run(10_000);
        if sender.testbed.log(sender.client).closes().is_empty() {
            false_losses += sender.check();
        }
        for (.., outcome) in reported(&sender.testbed.log(sender.client).events) {
            let kind = match outcome {
                MessageOutcome::Delivered => 0,
                MessageOutcome::Lost => 1,
                MessageOutcome::Expired => 2,
                _ => 3,
            };
            *told_of.entry(kind).or_default() += 1;
        }
    });
    if runs_its_own_seeds() {
        assert!(told_of[&0] > 8_000 && told_of[&1] > 500, "{told_of:?}");
        // Only if acknowledgements were lost for half a second in a row. If reported at once, one
        // loss of nine would be false.
        assert!(false_losses <= told_of[&1] / 500, "{false_losses}");
    }
}

#[test]
fn u9_an_unreliable_message_past_its_ttl_is_reported_expired() {
    let mut line = Line::new(1);
    let (session, _) = line.join(1);
    line.run(200);
    let message = Message::new(UNRELIABLE, b"now or never").with_ttl(Duration::from_millis(30));
    let machine = &mut line.client.machine;
    let id = machine.send_tracked(line.now, session, &message).unwrap();
    let patient = Message::new(UNRELIABLE, b"later, too").with_ttl(Duration::from_secs(1));
    let other = machine.send_tracked(line.now, session, &patient).unwrap();
    // The driver does not run, so nothing is sent.
    line.now += Duration::from_millis(30);
    line.client.wake(line.now);
    line.settle();
    let expected = (UNRELIABLE, id, MessageOutcome::Expired);
    assert_eq!(reported(&line.client.events), [expected]);
    line.run(200);
    let expected = (UNRELIABLE, other, MessageOutcome::Delivered);
    assert_eq!(reported(&line.client.events)[1..], [expected]);
    assert_eq!(line.server.messages, [(UNRELIABLE, b"later, too".to_vec())]);
}

#[test]
fn u9_displacement_by_an_untracked_message_is_reported() {
    let mut row = ChannelConfig::unreliable();
    row.queue_bytes_max = 500;
    let table = ChannelTable::new(&[row]).unwrap();
    let mut line = Line::with(
        1,
        config(|config| config.channels = table.clone()),
        |listen| listen,
    );
    let (session, _) = line.join(1);
    line.run(200);
    let machine = &mut line.client.machine;
    let message = Message::new(UNRELIABLE, &[1; 300]);
    let id = machine.send_tracked(line.now, session, &message).unwrap();
    machine
        .send(line.now, session, UNRELIABLE, &[2; 300])
        .unwrap();
    let Some(Event::Settled {
        message, outcome, ..
    }) = machine.poll_event()
    else {
        panic!("told at once")
    };
    assert_eq!((message, outcome), (id, MessageOutcome::Displaced));
}

/// Three ends: the peer times out, the peer closes, and we close without a linger time.
#[test]
fn u9_twp_t6_open_messages_are_reported_dropped_before_closed() {
    for end in 0..3 {
        let mut line = Line::with(
            2,
            config(|config| config.linger = Duration::ZERO),
            |listen| listen,
        );
        let (session, theirs) = line.join(1);
        line.run(200);
        let mut ids = Vec::new();
        for channel in [UNRELIABLE, RELIABLE] {
            let message = Message::new(channel, &[7; 2_000]);
            let machine = &mut line.client.machine;
            let id = machine.send_tracked(line.now, session, &message).unwrap();
            ids.push((channel, id, MessageOutcome::Dropped));
        }
        if end < 2 {
            // They are sent and lost.
            line.client.drain(line.now);
        }
        match end {
            0 => {
                // 10 s of silence, and the maximum grace for a late driver.
                line.now += Duration::from_secs(21);
                line.client.wake(line.now);
            }
            1 => {
                let server = &mut line.server.machine;
                server
                    .close(line.now, theirs, CloseCode::Kicked, b"")
                    .unwrap();
            }
            _ => {
                let client = &mut line.client.machine;
                client
                    .close(line.now, session, CloseCode::App, b"")
                    .unwrap();
            }
        }
        line.settle();
        assert_eq!(reported(&line.client.events), ids, "end {end}");
        let last = line.client.events.last().unwrap();
        assert!(matches!(last, Event::Closed { .. }), "{last:?}");
        line.run(20_000);
        assert_eq!(reported(&line.client.events), ids, "none after the end");
        let late = line.client.machine.send_tracked(
            line.now,
            session,
            &Message::new(RELIABLE, b"too late"),
        );
        assert_eq!(late, Err(SendError::Closed));
    }
}

#[test]
fn u9_closing_waits_for_the_outcomes_of_tracked_messages() {
    let mut testbed = Testbed::new(Seed::from_number(3));
    let link = LinkConfig::default().with_delay(Duration::from_millis(100));
    testbed.world.set_default_link(link);
    let (client, session) = testbed.join(1);
    testbed.run(1_000);
    testbed.world.apply(client, |host, now| {
        let message = Message::new(UNRELIABLE, b"last words");
        host.machine.send_tracked(now, session, &message).unwrap();
        host.machine
            .close(now, session, CloseCode::App, b"")
            .unwrap();
    });
    testbed.run(1_000);
    let events = &testbed.log(client).events;
    let outcomes: Vec<_> = reported(events).into_iter().map(|(.., it)| it).collect();
    assert_eq!(outcomes, [MessageOutcome::Delivered]);
    assert!(matches!(events.last(), Some(Event::Closed { .. })));
}

#[test]
fn u9_at_most_4096_messages_are_tracked_in_bounded_memory() {
    let mut row = ChannelConfig::reliable_unordered();
    row.queue_bytes_max = 1 << 20;
    let table = ChannelTable::new(&[ChannelConfig::unreliable(), row]).unwrap();
    let mut line = Line::with(
        4,
        config(|config| config.channels = table.clone()),
        |listen| listen,
    );
    let (session, _) = line.join(1);
    line.run(200);
    let before = line.client.machine.memory();
    let message = Message::new(RELIABLE, b"x");
    let machine = &mut line.client.machine;
    for _ in 0..4_096 {
        machine.send_tracked(line.now, session, &message).unwrap();
    }
    let refused = machine.send_tracked(line.now, session, &message);
    assert_eq!(refused, Err(SendError::TooManyTracked));
    machine.send(line.now, session, RELIABLE, b"x").unwrap();
    // 41 bytes of the queue, its record and fragment, and 24 of the tracker; capacities double.
    let grown = machine.memory() - before;
    assert!(grown < 4_096 * 2 * (1 + 48 + 2 + 24), "{grown}");
    line.run(2_000);
    assert_eq!(outcomes(&line.client), [MessageOutcome::Delivered; 4_096]);
    let machine = &mut line.client.machine;
    machine.send_tracked(line.now, session, &message).unwrap();
    line.run(5_000);
    assert!(line.client.machine.memory() <= before, "a quiet session");
}

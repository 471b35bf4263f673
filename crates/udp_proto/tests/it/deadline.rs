//! Messages of an unreliable channel that are retransmitted until their deadline.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use netsim::{Chance, Jitter, LinkConfig, Loss, Order, for_each_seed, test_site};
use udp_proto::{Event, Message, MessageId, MessageOutcome};
use wire::{Instant, Seed};

use crate::harness::{Testbed, UNRELIABLE};

/// Maximum one-way delay in [`run`], milliseconds.
const WAY_MS: u64 = 45;

/// Longest message that is not split, bytes.
const WHOLE: u64 = 1_120;

/// Outcomes of the messages of one run.
#[derive(Debug, Default)]
struct Tally {
    sent: usize,
    came: usize,
    delivered: usize,
    /// Reported as expired but delivered: only the acknowledgements were lost.
    arrived_unread: usize,
}

#[derive(Clone, Copy)]
struct Load {
    deadline: Duration,
    /// Whether they are retransmitted until then.
    is_repeated: bool,
    /// Longest message, bytes.
    longest: u64,
    /// Interval between messages, milliseconds.
    period: u32,
}

/// Messages of at least 20 bytes over 6 s, with 30 % loss each way and an RTT of 50 to 90 ms.
fn run(seed: Seed, load: Load, tally: &mut Tally) {
    let Load {
        deadline,
        is_repeated,
        longest,
        period,
    } = load;
    let mut testbed = Testbed::new(seed);
    let server = testbed.server;
    testbed
        .world
        .apply(server, |host, _| host.app.is_echo = false);
    let (client, session) = testbed.join(1);
    testbed.run(500);
    let link = LinkConfig::default()
        .with_loss(Loss::Bernoulli(Chance::percent(30)))
        .with_duplicate(Chance::percent(5))
        .with_order(Order::ByDelay)
        .with_delay(Duration::from_millis(25))
        .with_jitter(Jitter::Uniform(Duration::from_millis(WAY_MS - 25)));
    testbed.world.set_default_link(link);
    let mut generator = testbed.world.generator(9);
    let mut sent = BTreeMap::<MessageId, u32>::new();
    let mut fates = BTreeMap::<MessageId, (MessageOutcome, Instant)>::new();
    let mut came = BTreeMap::<u32, Instant>::new();
    let (mut seen_events, mut seen_messages) = (0, 0);
    for milli in 0..12_000_u32 {
        if milli == 8_000 {
            testbed.world.set_default_link(LinkConfig::default());
        }
        if milli % period == 0 && milli < 6_000 {
            let mut bytes = vec![1; usize::try_from(generator.between(20, longest)).unwrap()];
            bytes[..4].copy_from_slice(&milli.to_be_bytes());
            let mut message = Message::new(UNRELIABLE, &bytes).with_ttl(deadline);
            if is_repeated {
                message = message.until_deadline();
            }
            let id = testbed.world.apply(client, |host, now| {
                host.machine.send_tracked(now, session, &message).unwrap()
            });
            sent.insert(id, milli);
        }
        testbed.run(1);
        let now = testbed.world.now();
        for event in &testbed.log(client).events[seen_events..] {
            if let Event::Settled {
                message, outcome, ..
            } = event
            {
                assert_eq!(fates.insert(*message, (*outcome, now)), None, "told twice");
            }
        }
        seen_events = testbed.log(client).events.len();
        for (_, _, bytes) in &testbed.log(server).messages[seen_messages..] {
            let number = u32::from_be_bytes(bytes[..4].try_into().unwrap());
            assert_eq!(came.insert(number, now), None, "came twice");
        }
        seen_messages = testbed.log(server).messages.len();
    }
    assert!(testbed.log(client).closes().is_empty());
    judge(&sent, &fates, &came, load, tally);
}

/// Checks that each message was reported once and correctly.
fn judge(
    sent: &BTreeMap<MessageId, u32>,
    fates: &BTreeMap<MessageId, (MessageOutcome, Instant)>,
    came: &BTreeMap<u32, Instant>,
    load: Load,
    tally: &mut Tally,
) {
    let reported: BTreeSet<_> = fates.keys().collect();
    assert_eq!(reported, sent.keys().collect(), "each is told of");
    for (message, (outcome, told_at)) in fates {
        let number = sent[message];
        let arrival = came.get(&number);
        match outcome {
            MessageOutcome::Delivered => {
                assert!(arrival.is_some(), "{number} did not come");
                tally.delivered += 1;
            }
            MessageOutcome::Expired if load.is_repeated => {
                assert!(
                    arrival.is_none_or(|at| at < told_at),
                    "came after it was told"
                );
                tally.arrived_unread += usize::from(arrival.is_some());
            }
            MessageOutcome::Lost if !load.is_repeated => {}
            // Some parts arrived, but the others not before these were dropped.
            MessageOutcome::Lost if load.longest > WHOLE => {}
            other => panic!("{other:?}"),
        }
    }
    tally.sent += sent.len();
    tally.came += came.len();
}

#[test]
fn sim_u9_at_30_percent_loss_most_meet_their_deadline_and_none_repeats() {
    let again = Load {
        deadline: Duration::from_millis(600),
        is_repeated: true,
        longest: WHOLE,
        period: 20,
    };
    let once = Load {
        is_repeated: false,
        ..again
    };
    let (mut of_again, mut of_once) = (Tally::default(), Tally::default());
    for_each_seed(&test_site!(), 8, |seed| {
        run(seed, again, &mut of_again);
        run(seed, once, &mut of_once);
    });
    if std::env::var_os("SEED").is_none() {
        assert!(of_once.came * 100 < of_once.sent * 75, "{of_once:?}");
        assert!(of_again.came * 1_000 >= of_again.sent * 985, "{of_again:?}");
        assert!(
            of_again.delivered * 100 >= of_again.sent * 97,
            "{of_again:?}"
        );
        assert!(
            of_again.arrived_unread * 100 < of_again.sent,
            "{of_again:?}"
        );
    }
}

/// Three fragments, and a deadline within the 250 ms that a receiver waits for the rest.
#[test]
fn sim_u9_split_messages_are_completed_before_a_short_deadline() {
    let again = Load {
        deadline: Duration::from_millis(200),
        is_repeated: true,
        longest: 3_000,
        period: 60,
    };
    let once = Load {
        is_repeated: false,
        ..again
    };
    let (mut of_again, mut of_once) = (Tally::default(), Tally::default());
    for_each_seed(&test_site!(), 8, |seed| {
        run(seed, again, &mut of_again);
        run(seed, once, &mut of_once);
    });
    if std::env::var_os("SEED").is_none() {
        assert!(of_once.came * 100 < of_once.sent * 65, "{of_once:?}");
        assert!(of_again.came * 100 >= of_again.sent * 80, "{of_again:?}");
    }
}

/// The receiver does not know the deadline and keeps parts for two seconds, of eight messages only.
/// Still, each message reported delivered has arrived, and most that arrived are reported
/// delivered.
#[test]
fn sim_u9_split_messages_reported_delivered_have_arrived() {
    let mut tally = Tally::default();
    for_each_seed(&test_site!(), 8, |seed| {
        for (deadline, period) in [(900, 40), (5_000, 90)] {
            let load = Load {
                deadline: Duration::from_millis(deadline),
                is_repeated: true,
                longest: 6_000,
                period,
            };
            run(seed, load, &mut tally);
        }
    });
    if std::env::var_os("SEED").is_none() {
        assert!(tally.came * 100 >= tally.sent * 60, "{tally:?}");
        assert!(tally.delivered * 100 >= tally.came * 60, "{tally:?}");
    }
}

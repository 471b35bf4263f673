//! The machine contract of `wire::machine` for a `Hub` and its `Node`s.

mod records;

use std::time::Duration;

use bytes::Bytes;
use hub::record::{MailRefusal, MailVerdict};
use hub::store::{Mail, Settled};
use hub::{
    BatchSeq, Command, Completed, DialError, Epoch, Hub, HubConfig, HubEvent, LogId, MailSeq, Node,
    NodeCommand, NodeConfig, NodeEvent, Outcome, Redacted, Role, SenderSeq, StoreError, StoreOp,
    Ticket,
};
use netsim::contract::{Limits, StreamContractSubject, check_stream_contract};
use wire::{
    CloseCause, CommandId, ConnectionId, Effect, Generator, InstanceId, Instant, Outbound,
    PeerIdentity, Seed, StreamMachine, UnixTime,
};

use crate::world::{HUB, join_file, node_id};
use records::{address, body, name, node_records, number, player, records_of_hub};

/// A hub or a node, so that both fit in one group.
enum Part {
    Hub(Box<Hub>),
    Node(Box<Node>, Vec<Ticket>),
}

#[derive(Debug)]
#[expect(dead_code, reason = "the contract reads their debug output")]
enum Event {
    Hub(HubEvent),
    Node(NodeEvent),
}

#[derive(Debug)]
#[expect(dead_code, reason = "the contract reads their debug output")]
enum Task {
    Store(Command),
    Dial(NodeCommand),
}

enum Done {
    Store(Outcome),
    Dial(Result<(), DialError>),
}

impl Effect for Task {
    type Outcome = Done;
}

/// Calls the same method on either part.
macro_rules! either {
    ($part:expr, $machine:ident => $call:expr) => {
        match $part {
            Part::Hub($machine) => $call,
            Part::Node($machine, _) => $call,
        }
    };
}

impl StreamMachine for Part {
    type Event = Event;
    type Command = Task;

    fn handle_opened(&mut self, now: Instant, id: ConnectionId, peer: &PeerIdentity) {
        either!(self, machine => machine.handle_opened(now, id, peer));
    }

    fn handle_frame(&mut self, now: Instant, id: ConnectionId, record: &[u8]) {
        either!(self, machine => machine.handle_frame(now, id, record));
    }

    fn handle_credit(&mut self, now: Instant, id: ConnectionId, bytes: usize) {
        either!(self, machine => machine.handle_credit(now, id, bytes));
    }

    fn handle_closed(&mut self, now: Instant, id: ConnectionId, cause: CloseCause) {
        either!(self, machine => machine.handle_closed(now, id, cause));
    }

    fn poll_outbound(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Outbound> {
        either!(self, machine => machine.poll_outbound(now, buf))
    }

    fn handle_timeout(&mut self, now: Instant) {
        either!(self, machine => machine.handle_timeout(now));
    }

    fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: Done) {
        match (self, outcome) {
            (Self::Hub(hub), Done::Store(outcome)) => hub.handle_completed(now, id, outcome),
            (Self::Node(node, _), Done::Dial(outcome)) => node.handle_completed(now, id, outcome),
            // A stray completion that this machine did not request.
            (Self::Hub(_), Done::Dial(_)) | (Self::Node(..), Done::Store(_)) => {}
        }
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        either!(self, machine => machine.set_unix_time(now, unix));
    }

    fn poll_command(&mut self) -> Option<(CommandId, Task)> {
        match self {
            Self::Hub(hub) => hub
                .poll_command()
                .map(|(id, command)| (id, Task::Store(command))),
            Self::Node(node, _) => node
                .poll_command()
                .map(|(id, command)| (id, Task::Dial(command))),
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        match self {
            Self::Hub(hub) => hub.poll_event().map(Event::Hub),
            Self::Node(node, tickets) => {
                let event = node.poll_event()?;
                if let NodeEvent::Request { ticket, .. } = &event {
                    tickets.push(*ticket);
                }
                Some(Event::Node(event))
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        either!(self, machine => machine.poll_timeout())
    }
}

/// A hub with joined nodes. Its store answers anything at any time.
struct Switch;

const NODES: usize = 2;

/// Small, so that a flood reaches every limit.
fn hub_config() -> HubConfig {
    let mut config = HubConfig::default();
    config.links_max = 6;
    config.node_links_max = 3;
    config.players_max = 20;
    config.link_bytes_max = 4_000;
    config.unacknowledged_bytes_max = 4_000;
    config.unacknowledged_mails_max = 5;
    config.ops_in_flight = 16;
    config.store_bytes_in_flight = 10_000;
    config.calls_max = 8;
    config.watch_changes_max = 10;
    config.events_max = 20;
    config
}

fn node_config(index: usize) -> NodeConfig {
    let mut config = NodeConfig::default();
    config.watch_players = index == 1;
    config.mails_max = 20;
    config.mail_bytes_max = 2_000;
    config.outbox_bytes_max = 2_000;
    config.calls_max = 8;
    config.events_max = 50;
    config.players_max = 20;
    config.count_keys_max = 10;
    if index == 1 {
        config.role = Role::Matchmaker;
        config.services = vec![name("matchmaker")];
    }
    config
}

/// Random application calls to a node.
fn act(node: &mut Node, tickets: &mut Vec<Ticket>, now: Instant, generator: &mut Generator) {
    let body = Bytes::from(body(generator));
    let wait = Duration::from_millis(generator.below(3_000));
    // Whether the node accepts them is irrelevant here.
    match generator.below(40) {
        0..=9 => drop(node.call(now, address(generator), body, wait)),
        10..=19 => drop(node.mail(now, player(generator), body, wait)),
        20..=24 => {
            let delivered = MailSeq(generator.below(10));
            let player = player(generator);
            if let Ok(claim) = node.claim(now, player, delivered, Bytes::new()) {
                if generator.chance(300_000) {
                    node.release(now, claim);
                } else {
                    node.acknowledge(now, claim, MailSeq(generator.below(20)));
                }
            }
        }
        25..=28 => drop(node.broadcast(now, name("news"), body)),
        29..=33 => {
            let key = name(&format!("key-{}", generator.below(20)));
            node.count(key.into(), number(generator));
        }
        _ => {
            for ticket in tickets.drain(..) {
                drop(node.reply(now, ticket, Ok(body.clone())));
            }
        }
    }
    if generator.below(2_000) == 0 {
        node.leave(now);
    }
}

/// A valid or invalid outcome of `op`.
fn answer(op: &StoreOp, generator: &mut Generator) -> Outcome {
    match generator.below(4_000) {
        0 => return Err(StoreError::Failed),
        1..=400 => return Err(StoreError::Busy),
        _ => {}
    }
    Ok(match op {
        StoreOp::Join { .. } => match generator.below(20) {
            0 => Completed::Fenced,
            _ => Completed::Joined {
                epoch: Epoch(1 + generator.next_u32() % 2),
                boot: 1,
                log: LogId(7),
                newest: UnixTime::default(),
                ran: Duration::ZERO,
                last_mail: MailSeq(1_000_000),
                mail_mark: SenderSeq(0),
                count_mark: BatchSeq(0),
            },
        },
        StoreOp::Append(mails) => Completed::Appended(
            mails
                .iter()
                .map(|mail| Settled {
                    node: mail.node,
                    epoch: mail.epoch,
                    seq: mail.seq,
                    to: mail.to.clone(),
                    verdict: match generator.below(4) {
                        0 => MailVerdict::Busy,
                        1 => MailVerdict::Refused(MailRefusal::MailboxFull),
                        _ => MailVerdict::Stored,
                    },
                    part: None,
                    dropped: 0,
                })
                .collect(),
        ),
        StoreOp::Read { after, .. } => Completed::Mails {
            mails: (1..=generator.below(4))
                .map(|step| Mail {
                    seq: MailSeq(after.0.saturating_add(step)),
                    node: node_id(0),
                    epoch: Epoch(1),
                    sender_seq: SenderSeq(step),
                    body: Redacted(Bytes::from(body(generator))),
                })
                .collect(),
            more: generator.chance(300_000),
        },
        StoreOp::Ack { .. } => Completed::Acked,
        StoreOp::Count { .. } => Completed::Counted,
        _ => Completed::Expired { count: 0 },
    })
}

impl StreamContractSubject for Switch {
    type Machine = Part;

    fn build(&self, seed: Seed, now: Instant) -> Vec<Part> {
        let mut seeds = seed.generator(40);
        let hub = Hub::new(hub_config(), join_file(NODES), now);
        let nodes = (0..NODES).map(|index| {
            let instance = InstanceId(seeds.next_u64());
            let file = join_file(NODES);
            let node = Node::new(node_config(index), &file, instance, seeds.seed(), now);
            Part::Node(Box::new(node.unwrap()), Vec::new())
        });
        let nodes: Vec<_> = nodes.collect();
        core::iter::once(Part::Hub(Box::new(hub)))
            .chain(nodes)
            .collect()
    }

    fn connections(&self) -> Vec<(usize, usize)> {
        (1..=NODES).map(|node| (node, 0)).collect()
    }

    fn identity(&self, index: usize) -> PeerIdentity {
        PeerIdentity::Node(match index.checked_sub(1) {
            None => HUB,
            Some(node) => node_id(node),
        })
    }

    fn unknown_peer(&self, generator: &mut Generator) -> PeerIdentity {
        match generator.below(6) {
            0 => PeerIdentity::Anonymous,
            1 => PeerIdentity::Node(HUB),
            // One of the nodes, or an unknown one.
            other => PeerIdentity::Node(node_id(usize::try_from(other - 2).unwrap())),
        }
    }

    fn poke(&self, _: usize, part: &mut Part, now: Instant, generator: &mut Generator) {
        match part {
            Part::Hub(hub) => {
                if generator.below(1_000) == 0 {
                    hub.set_join_file(join_file(NODES - 1));
                }
            }
            Part::Node(node, tickets) => act(node, tickets, now, generator),
        }
    }

    fn hostile(&self, index: usize, generator: &mut Generator) -> Option<Vec<u8>> {
        let body = body(generator);
        Some(match index {
            0 => node_records(generator, &body),
            _ => records_of_hub(generator, &body),
        })
    }

    fn outcome(&self, task: Option<&Task>, generator: &mut Generator) -> Option<Done> {
        Some(match task {
            // One in ten is never completed.
            Some(_) if generator.chance(100_000) => return None,
            Some(Task::Store(Command::Store(op))) => Done::Store(answer(op, generator)),
            Some(Task::Store(_)) => return None,
            Some(Task::Dial(_)) => Done::Dial(match generator.below(3) {
                0 => Err(DialError),
                _ => Ok(()),
            }),
            None if generator.chance(500_000) => Done::Dial(Err(DialError)),
            None => Done::Store(Ok(Completed::Acked)),
        })
    }

    fn memory(&self, part: &Part) -> usize {
        either!(part, machine => machine.memory_bytes())
    }

    fn limits(&self) -> Limits {
        let mut limits = Limits::new(MEMORY);
        // Neither machine asserts that time moves forward: both keep the later time.
        limits.late_clock = true;
        limits.settle = Duration::from_secs(5);
        limits.steps = 120;
        limits.flood = 1_000;
        limits
    }
}

/// Twice the highest use of a run. 1,000 hostile records that left 100 bytes each would exceed it.
const MEMORY: usize = 40_000;

#[test]
fn sim_contract() {
    check_stream_contract(&netsim::test_site!(), 200, &Switch);
}

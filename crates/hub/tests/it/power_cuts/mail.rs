//! Mail, its senders and handlers, and groups.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use hub::log::MemorySegments;
use hub::record::{MailTo, MailVerdict, PlayerIds, PlayerList};
use hub::store::{Completed, GroupOp, GroupOutcome, Mail, NewMail, Settled, Store, StoreOp};
use hub::{Addr, Epoch, GroupId, MailSeq, Redacted, SenderSeq};
use wire::{ClientId, Generator, InstanceId};

use super::{LATER, Met, NODE, NOW, Sets, run};

const PLAYERS: u64 = 6;
const GROUPS: u64 = 2;

#[derive(Default)]
pub(super) struct Model {
    /// Mails sent so far.
    sent: u64,
    /// Mails without a verdict, in order: the sender sends them again.
    open: Vec<u64>,
    to: BTreeMap<u64, To>,
    /// Mails that were reported as stored, by recipient.
    stored: Sets,
    /// Mails that were handled, by player; doubles are a failure.
    handled: Sets,
    /// The last number that each client has kept.
    last: BTreeMap<u64, MailSeq>,
    groups: Sets,
    /// A change of a group with a lost answer; it is repeated first.
    group_open: Option<GroupOp>,
}

#[derive(Clone)]
enum To {
    Players(Vec<u64>),
    Group(u64),
}

impl Model {
    pub(super) fn send(
        &mut self,
        seed: u64,
        store: &mut Store<MemorySegments>,
        generator: &mut Generator,
        met: &mut Met,
    ) {
        for _ in 0..generator.below(8) {
            self.sent += 1;
            let to = match generator.below(6) {
                0 => To::Group(generator.below(GROUPS)),
                1 | 2 => {
                    let players = (0..PLAYERS).filter(|_| generator.chance(400_000));
                    let players: Vec<_> = players.collect();
                    let only = vec![self.sent % PLAYERS];
                    To::Players(if players.is_empty() { only } else { players })
                }
                _ => To::Players(vec![generator.below(PLAYERS)]),
            };
            self.to.insert(self.sent, to);
            self.open.push(self.sent);
        }
        self.send_open(seed, store, met);
    }

    /// Sends everything that has no verdict, and reads the verdicts.
    fn send_open(&mut self, seed: u64, store: &mut Store<MemorySegments>, met: &mut Met) {
        let Some(epoch) = join(store) else { return };
        let mails = self.open.iter().map(|tag| self.mail(epoch, *tag)).collect();
        let Ok(Completed::Appended(settled)) = run(store, StoreOp::Append(mails)) else {
            return;
        };
        for one in settled {
            match one.verdict {
                MailVerdict::Stored => self.on_stored(seed, &one, met),
                MailVerdict::Busy | MailVerdict::Full => met.full += 1,
                MailVerdict::Refused(reason) => {
                    // Nobody is in the group.
                    let to = &self.to[&one.seq.0];
                    assert!(matches!(to, To::Group(_)), "seed {seed}: {reason}");
                    self.open.retain(|tag| *tag != one.seq.0);
                }
                other => panic!("seed {seed}: {other:?}"),
            }
        }
    }

    fn mail(&self, epoch: Epoch, tag: u64) -> NewMail {
        let settled = self.open.first().map_or(0, |first| first - 1);
        NewMail {
            to: match &self.to[&tag] {
                To::Group(group) => MailTo::One(Addr::Group(GroupId(*group))),
                To::Players(players) => match players[..] {
                    [player] => MailTo::One(Addr::Player(ClientId(player))),
                    _ => MailTo::Many(ids(players)),
                },
            },
            node: NODE,
            epoch,
            seq: SenderSeq(tag),
            settled: SenderSeq(settled),
            expires: LATER,
            priority: 0,
            body: Redacted(body(tag)),
        }
    }

    fn on_stored(&mut self, seed: u64, one: &Settled, met: &mut Met) {
        let tag = one.seq.0;
        assert!(one.part.is_none(), "seed {seed}: no mailbox is full");
        self.open.retain(|open| *open != tag);
        met.stored += 1;
        let players: Vec<u64> = one.to.players().map(|player| player.0).collect();
        let players = match &self.to[&tag] {
            To::Players(players) => players.clone(),
            // A repeated answer names the group only.
            To::Group(_) => players,
        };
        for player in players {
            met.recipients += 1;
            self.stored.entry(player).or_default().insert(tag);
        }
    }

    /// A player's client reads its mail, handles what is new, and acknowledges it.
    pub(super) fn handle(
        &mut self,
        seed: u64,
        store: &mut Store<MemorySegments>,
        generator: &mut Generator,
        met: &mut Met,
    ) {
        let player = generator.below(PLAYERS);
        let Some(mails) = read_all(store, player) else {
            return;
        };
        for mail in &mails {
            self.check_mail(seed, player, mail);
            let last = self.last.entry(player).or_default();
            if mail.seq > *last {
                *last = mail.seq;
                let is_first = self
                    .handled
                    .entry(player)
                    .or_default()
                    .insert(mail.sender_seq.0);
                assert!(
                    is_first,
                    "seed {seed}: {:?} is handled twice",
                    mail.sender_seq
                );
                met.handled += 1;
            }
        }
        if generator.chance(700_000)
            && let Some(upto) = self.last.get(&player).copied()
        {
            // Its report may be lost; then the mails are read again, and not handled.
            let player = ClientId(player);
            drop(run(store, StoreOp::Ack { player, upto }));
        }
    }

    /// A mail is one that was sent to this player, unchanged.
    fn check_mail(&self, seed: u64, player: u64, mail: &Mail) {
        let tag = mail.sender_seq.0;
        assert_eq!(
            mail.body.0,
            body(tag),
            "seed {seed}: mail {tag} has changed"
        );
        let is_recipient = match self.to.get(&tag) {
            Some(To::Players(players)) => players.contains(&player),
            Some(To::Group(_)) => true,
            None => false,
        };
        assert!(is_recipient, "seed {seed}: mail {tag} for {player}");
    }

    pub(super) fn change_group(
        &mut self,
        seed: u64,
        store: &mut Store<MemorySegments>,
        generator: &mut Generator,
        met: &mut Met,
    ) {
        let group = GroupId(generator.below(GROUPS));
        let player = ClientId(generator.below(PLAYERS));
        let op = if generator.chance(600_000) {
            GroupOp::Join { group, player }
        } else {
            GroupOp::Leave { group, player }
        };
        let ops: Vec<_> = self.group_open.take().into_iter().chain([op]).collect();
        for op in ops {
            if !self.change(seed, store, op) {
                self.group_open = Some(op);
                return;
            }
            met.memberships += 1;
        }
        self.check_groups(seed, store);
    }

    /// Returns whether the change is on disk.
    fn change(&mut self, seed: u64, store: &mut Store<MemorySegments>, op: GroupOp) -> bool {
        match run(store, StoreOp::Group(op)) {
            Ok(Completed::Group(GroupOutcome::Done)) => {}
            Ok(other) => panic!("seed {seed}: {other:?}"),
            Err(_) => return false,
        }
        match op {
            GroupOp::Join { group, player } => {
                self.groups.entry(group.0).or_default().insert(player.0);
            }
            GroupOp::Leave { group, player } => {
                self.groups.entry(group.0).or_default().remove(&player.0);
            }
            _ => {}
        }
        true
    }

    fn check_groups(&self, seed: u64, store: &mut Store<MemorySegments>) {
        for number in 0..GROUPS {
            let op = GroupOp::Members {
                group: GroupId(number),
                first: ClientId(0),
            };
            let Ok(Completed::Group(GroupOutcome::Members { players, .. })) =
                run(store, StoreOp::Group(op))
            else {
                return;
            };
            let found: BTreeSet<u64> = players
                .iter()
                .flat_map(|players| {
                    players
                        .list()
                        .iter()
                        .map(|player| player.0)
                        .collect::<Vec<_>>()
                })
                .collect();
            let expected = self.groups.get(&number).cloned().unwrap_or_default();
            assert_eq!(found, expected, "seed {seed}: group {number}");
        }
    }

    /// After the last cut: repeats what has no answer.
    pub(super) fn settle(&mut self, seed: u64, store: &mut Store<MemorySegments>, met: &mut Met) {
        while store.tidy() {}
        if let Some(op) = self.group_open.take() {
            assert!(self.change(seed, store, op), "seed {seed}: the disk works");
        }
        self.check_groups(seed, store);
        self.send_open(seed, store, met);
    }

    /// Returns how many mails were reported as stored, are not handled, and are not there.
    pub(super) fn missing(&self, seed: u64, store: &mut Store<MemorySegments>) -> usize {
        let mut missing = 0;
        for player in 0..PLAYERS {
            let mails = read_all(store, player).unwrap_or_default();
            for mail in &mails {
                self.check_mail(seed, player, mail);
            }
            let numbers: Vec<_> = mails
                .iter()
                .map(|mail| (mail.seq, mail.sender_seq))
                .collect();
            assert!(
                numbers.is_sorted_by(|one, next| one.0 < next.0 && one.1 < next.1),
                "seed {seed}: order or doubles in {numbers:?}"
            );
            let found: BTreeSet<u64> = mails.iter().map(|mail| mail.sender_seq.0).collect();
            let handled = self.handled.get(&player).cloned().unwrap_or_default();
            let stored = self.stored.get(&player).cloned().unwrap_or_default();
            missing += stored
                .iter()
                .filter(|tag| !found.contains(tag) && !handled.contains(tag))
                .count();
        }
        missing
    }
}

fn join(store: &mut Store<MemorySegments>) -> Option<Epoch> {
    let op = StoreOp::Join {
        node: NODE,
        instance: InstanceId(1),
        epoch: Epoch(0),
        role: hub::Role::GameNode,
    };
    match run(store, op) {
        Ok(Completed::Joined { epoch, .. }) => Some(epoch),
        _ => None,
    }
}

fn read_all(store: &mut Store<MemorySegments>, player: u64) -> Option<Vec<Mail>> {
    let mut found: Vec<Mail> = Vec::new();
    loop {
        let op = StoreOp::Read {
            player: ClientId(player),
            after: found.last().map_or(MailSeq(0), |mail| mail.seq),
            bytes_max: 1 << 16,
            now: NOW,
        };
        match run(store, op) {
            Ok(Completed::Mails { mails, more }) => {
                found.extend(mails);
                if !more {
                    return Some(found);
                }
            }
            _ => return None,
        }
    }
}

/// The body of a mail, from which each other differs.
fn body(tag: u64) -> Bytes {
    let mut body = tag.to_be_bytes().to_vec();
    let len = usize::try_from(tag * 977 % 3_000).unwrap();
    body.extend((0..len).map(|at| u8::try_from((at + len) % 251).unwrap()));
    body.into()
}

fn ids(players: &[u64]) -> PlayerIds {
    let players: Vec<_> = players.iter().copied().map(ClientId).collect();
    let mut bytes = Vec::new();
    PlayerList::encode_into(&players, &mut bytes)
        .unwrap()
        .to_ids()
}

//! In-memory state of the log.

use std::collections::BTreeMap;

use wire::{ClientId, Encode, NodeId, UnixTime, Writer};

use super::format::{HEAD_BYTES, LogRecord, NodeRun, StoredMail, StoredMailing};
use super::groups::GroupTable;
use super::kv::KvTable;
use super::mails::Mails;
use super::segment::SegmentId;
use super::senders::Senders;
use super::snapshot_format::{IndexEntry, MailSize};
use crate::field::{BatchSeq, CountKey, Epoch, LogId, MailSeq, Role, SenderSeq};
use crate::record::{MailRefusal, PartRefusal};
use crate::shard::Shard;

/// State as of the last record: the position of each stored mail, and all small state.
///
/// Appends and recovery both use [`apply`](Self::apply), so a restart restores the same state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) boot: u32,
    pub(crate) last_mail: MailSeq,
    pub(crate) log: LogId,
    pub(crate) shard: Shard,
    /// The newest accepted wall clock.
    pub(crate) time: UnixTime,
    /// How long the hub has run since then with a wall clock far from it, milliseconds.
    pub(crate) ran: u64,
    /// The newest run of each node that ever joined.
    nodes: BTreeMap<NodeId, NodeState>,
    pub(super) mails: Mails,
    pub(crate) groups: GroupTable,
    pub(crate) kv: KvTable,
    totals: BTreeMap<CountKey, u64>,
    /// Size of all runs of nodes in a log, bytes.
    node_bytes: u64,
    /// Size of all refusals in a log, bytes.
    refusal_bytes: u64,
    /// Size of all totals in a log, bytes.
    total_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateKind {
    Nodes,
    Refusals,
    Totals,
    Groups,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeState {
    pub(crate) run: NodeRun,
    /// Rejected mails up to the mark that the sender may not know of.
    pub(crate) refused: BTreeMap<SenderSeq, Refused>,
    /// Size of these in a log, bytes.
    pub(crate) refused_bytes: u64,
}

/// A mail that was rejected, by all recipients or by some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    All(MailRefusal),
    Part(PartRefusal),
}

impl Refused {
    /// Returns its size in a log, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::All(_) => REFUSAL_BYTES,
            // One byte of the first is the reason.
            Self::Part(part) => {
                REFUSAL_BYTES.saturating_add(part.encoded_bytes().saturating_sub(1) as u64)
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MailEntry {
    pub(crate) place: Place,
    pub(crate) size: MailSize,
    /// In whole seconds, rounded up.
    pub(crate) expires: UnixTime,
    /// The number of its sender.
    pub(crate) sender: u16,
}

/// Size of a mailbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mailbox {
    pub(crate) count: u32,
    /// Their size in the log, bytes.
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) segment: SegmentId,
    /// Bytes from the start of the segment.
    pub(crate) offset: u64,
}

/// Size of a [`LogRecord::Refusal`], bytes.
pub(crate) const REFUSAL_BYTES: u64 = HEAD_BYTES as u64 + 46;
/// Size of a [`LogRecord::Node`] with a role, bytes.
pub(crate) const NODE_BYTES: u64 = HEAD_BYTES as u64 + 62;

impl Index {
    /// Applies a record of `len` bytes at `place`.
    pub(crate) fn apply(&mut self, record: &LogRecord<'_>, place: Place, len: u32) {
        match record {
            LogRecord::Start(start) => {
                self.boot = self.boot.max(start.boot);
                self.last_mail = self.last_mail.max(start.last_mail);
                self.log = start.log;
                self.time = start.time;
                self.ran = 0;
            }
            LogRecord::Time(time) => {
                self.time = *time;
                self.ran = 0;
            }
            LogRecord::Ran(ran) => self.ran = *ran,
            LogRecord::Ready => {}
            LogRecord::Boot(boot) => self.boot = self.boot.max(*boot),
            LogRecord::Node(run) => self.on_node(*run),
            LogRecord::Mail(mail) => {
                let entry = self.on_mail(mail, place, len);
                self.mails.put(entry);
            }
            LogRecord::Mailing(mailing) => {
                for entry in self.on_mailing(mailing, place, len) {
                    self.mails.put(entry);
                }
            }
            LogRecord::Ack { player, upto } => self.mails.acknowledge(*player, *upto),
            LogRecord::GroupJoin { group, player } => self.groups.join(*group, *player),
            LogRecord::GroupLeave { group, player } => self.groups.leave(*group, *player),
            LogRecord::GroupMembers { group, players } => self.groups.set(*group, players.list()),
            LogRecord::Purged(node) => {
                if let Some(sender) = self.senders().find(*node) {
                    self.mails.purge(sender);
                }
            }
            LogRecord::Dropped(mails) => {
                for (player, seq) in mails {
                    self.mails.remove(*player, *seq);
                }
            }
            LogRecord::Refusal {
                node,
                epoch,
                seq,
                reason,
            } => self.on_refused((*node, *epoch), *seq, Refused::All(*reason)),
            LogRecord::PartRefusal {
                node,
                epoch,
                seq,
                part,
            } => self.on_refused((*node, *epoch), *seq, Refused::Part(part.clone())),
            LogRecord::Counts {
                node,
                batch,
                entries,
                ..
            } => self.on_counts(*node, *batch, entries),
            LogRecord::Total { key, total } => self.set_total(key, *total),
            LogRecord::KvSet(stored) => {
                let role = stored.by.and_then(|by| self.role_of(by));
                self.kv.set(stored, role, place, len);
            }
            LogRecord::KvDelete { sequence, key } => self.kv.delete(key, *sequence),
            LogRecord::KvMark(sequence) => self.kv.on_mark(*sequence),
            LogRecord::Shard(shard) => self.shard = *shard,
        }
    }

    /// Returns all small state as records, for the start of a new segment.
    pub(crate) fn state(&self) -> impl Iterator<Item = LogRecord<'static>> {
        let nodes = self.nodes.values().flat_map(|state| {
            let refusals = state
                .refused
                .iter()
                .map(|(seq, refused)| refusal_record(&state.run, *seq, refused.clone()));
            core::iter::once(LogRecord::Node(state.run)).chain(refusals)
        });
        let totals = self.totals.iter().map(|(key, total)| LogRecord::Total {
            key: key.clone(),
            total: *total,
        });
        let mark = self.kv.sequence();
        let mark = (mark > 0).then_some(LogRecord::KvMark(mark));
        let ran = (self.ran > 0).then_some(LogRecord::Ran(self.ran));
        let shard = self.shard.is_partial();
        let shard = shard.then_some(LogRecord::Shard(self.shard));
        let state = nodes.chain(totals).chain(mark).chain(ran).chain(shard);
        state.chain(self.groups.state())
    }

    pub(crate) fn forget_refusals(&mut self, node: NodeId, settled: SenderSeq) {
        if let Some(state) = self.nodes.get_mut(&node) {
            while let Some(first) = state.refused.first_entry()
                && *first.key() <= settled
            {
                let bytes = first.remove().bytes();
                state.refused_bytes = state.refused_bytes.saturating_sub(bytes);
                self.refusal_bytes = self.refusal_bytes.saturating_sub(bytes);
            }
        }
    }

    /// Deletes up to `max` mails that have expired at `now`; returns how many.
    pub(crate) fn expire(&mut self, now: UnixTime, max: u32) -> u32 {
        self.mails.expire(now, max)
    }

    pub(crate) fn remove(&mut self, player: ClientId, seq: MailSeq) {
        self.mails.remove(player, seq);
    }

    pub(crate) fn node(&self, node: NodeId) -> Option<&NodeState> {
        self.nodes.get(&node)
    }

    /// Returns the role with which `node` has joined last, if the log has it.
    pub(crate) fn role_of(&self, node: NodeId) -> Option<Role> {
        self.node(node)?.run.role
    }

    pub(crate) fn mails_after(
        &self,
        player: ClientId,
        after: MailSeq,
    ) -> impl Iterator<Item = (MailSeq, MailEntry)> {
        self.mails.after(player, after)
    }

    /// Returns whether the mail is stored at `place`.
    pub(crate) fn is_live_at(&self, player: ClientId, seq: MailSeq, place: Place) -> bool {
        let entry = self.mails.get(player, seq);
        entry.is_some_and(|entry| entry.place == place)
    }

    pub(crate) const fn senders(&self) -> &Senders {
        self.mails.senders()
    }

    pub(crate) fn mailbox(&self, player: ClientId) -> Mailbox {
        self.mails.mailbox(player)
    }

    pub(crate) const fn mail_count(&self) -> usize {
        self.mails.len()
    }

    pub(crate) fn total(&self, key: &CountKey) -> u64 {
        self.totals.get(key).copied().unwrap_or(0)
    }

    pub(crate) fn totals(&self) -> impl Iterator<Item = (&CountKey, u64)> {
        self.totals.iter().map(|(key, total)| (key, *total))
    }

    pub(crate) fn has_total(&self, key: &CountKey) -> bool {
        self.totals.contains_key(key)
    }

    pub(crate) fn live_in(&self, segment: SegmentId) -> u64 {
        let mails = self.mails.live_in(segment);
        mails.saturating_add(self.kv.live_in(segment))
    }

    pub(crate) const fn live_bytes(&self) -> u64 {
        self.mails.live_bytes()
    }

    /// Returns the size of all stored mail and keys in the log, bytes.
    pub(crate) const fn data_bytes(&self) -> u64 {
        self.mails.live_bytes().saturating_add(self.kv.bytes())
    }

    pub(crate) const fn state_bytes(&self) -> u64 {
        self.node_bytes
            .saturating_add(self.refusal_bytes)
            .saturating_add(self.total_bytes)
            .saturating_add(self.groups.bytes())
    }

    pub(crate) const fn state_bytes_of(&self, kind: StateKind) -> u64 {
        match kind {
            StateKind::Nodes => self.node_bytes,
            StateKind::Refusals => self.refusal_bytes,
            StateKind::Totals => self.total_bytes,
            StateKind::Groups => self.groups.bytes(),
        }
    }

    fn on_counts(&mut self, node: NodeId, batch: BatchSeq, entries: &[(CountKey, u64)]) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.run.count_mark = node.run.count_mark.max(batch);
        }
        for (key, increase) in entries {
            let total = self.total(key).saturating_add(*increase);
            self.set_total(key, total);
        }
    }

    fn on_node(&mut self, run: NodeRun) {
        self.mails.senders_mut().set_role(run.node, run.role);
        self.kv.set_role(run.node, run.role);
        // The same run has joined with another role.
        if let Some(known) = self.nodes.get_mut(&run.node)
            && known.run.role != run.role
            && (known.run.instance, known.run.epoch) == (run.instance, run.epoch)
        {
            known.run.role = run.role;
            return;
        }
        let state = NodeState {
            run,
            refused: BTreeMap::new(),
            refused_bytes: 0,
        };
        match self.nodes.insert(run.node, state) {
            None => self.node_bytes = self.node_bytes.saturating_add(NODE_BYTES),
            Some(old) => {
                self.refusal_bytes = self.refusal_bytes.saturating_sub(old.refused_bytes);
            }
        }
    }

    fn settle(&mut self, node: NodeId, epoch: Epoch, seq: SenderSeq) {
        if let Some(state) = self.nodes.get_mut(&node)
            && state.run.epoch == epoch
        {
            state.run.mail_mark = state.run.mail_mark.max(seq);
        }
    }

    fn on_refused(&mut self, run: (NodeId, Epoch), seq: SenderSeq, refused: Refused) {
        self.settle(run.0, run.1, seq);
        if let Some(state) = self.nodes.get_mut(&run.0)
            && state.run.epoch == run.1
        {
            let bytes = refused.bytes();
            if state.refused.insert(seq, refused).is_none() {
                state.refused_bytes = state.refused_bytes.saturating_add(bytes);
                self.refusal_bytes = self.refusal_bytes.saturating_add(bytes);
            }
        }
    }

    /// Notes the numbers of a mail, and returns its position, to be put into the mailbox.
    pub(super) fn on_mail(&mut self, mail: &StoredMail<'_>, place: Place, len: u32) -> IndexEntry {
        self.last_mail = self.last_mail.max(mail.seq);
        self.settle(mail.node, mail.epoch, mail.sender_seq);
        let entry = MailEntry {
            place,
            size: MailSize::own(len),
            expires: mail.expires,
            sender: self.sender(mail.node),
        };
        IndexEntry::new(mail.player, mail.seq, &entry)
    }

    /// The same for a mail to several players.
    pub(super) fn on_mailing<'a>(
        &mut self,
        mailing: &StoredMailing<'a>,
        place: Place,
        len: u32,
    ) -> impl Iterator<Item = IndexEntry> + use<'a> {
        self.last_mail = self.last_mail.max(mailing.seq);
        self.settle(mailing.node, mailing.epoch, mailing.sender_seq);
        if let Some(part) = &mailing.part {
            let run = (mailing.node, mailing.epoch);
            self.on_refused(run, mailing.sender_seq, Refused::Part(part.clone()));
        }
        let size = MailSize::of(mailing.players.len(), len, mailing.body.len());
        let entry = MailEntry {
            place,
            size: size.with_priority(mailing.priority),
            expires: mailing.expires,
            sender: self.sender(mailing.node),
        };
        let seq = mailing.seq;
        let players = mailing.players.iter();
        players.map(move |player| IndexEntry::new(player, seq, &entry))
    }

    fn sender(&mut self, node: NodeId) -> u16 {
        let role = self.role_of(node);
        self.mails.senders_mut().number(node, role)
    }

    fn set_total(&mut self, key: &CountKey, total: u64) {
        if let Some(known) = self.totals.get_mut(key) {
            *known = total;
        } else {
            self.total_bytes = self.total_bytes.saturating_add(total_bytes(key));
            self.totals.insert(key.clone(), total);
        }
    }
}

/// Returns the size of a mail in a mailbox, bytes, as if its record were not shared.
pub(crate) fn mail_bytes(body_bytes: usize) -> u32 {
    let bytes = body_bytes.saturating_add(MAIL_HEAD_BYTES);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Returns the size of a record for `players` players, bytes.
pub(crate) fn mailing_bytes(players: usize, body_bytes: usize) -> u32 {
    let list = players.saturating_mul(size_of::<ClientId>());
    let bytes = MAILING_HEAD_BYTES
        .saturating_add(list)
        .saturating_add(body_bytes);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Size of a [`LogRecord::Mailing`] without its players and its body, bytes.
const MAILING_HEAD_BYTES: usize = HEAD_BYTES + 65;

/// Size of a [`LogRecord::Mail`] without its body, bytes.
const MAIL_HEAD_BYTES: usize = HEAD_BYTES + 69;

impl MailSize {
    /// Creates the size of a mail in a record for `players` players.
    pub(crate) fn of(players: usize, record_bytes: u32, body_bytes: usize) -> Self {
        if players > 1 {
            Self::shared(record_bytes, mail_bytes(body_bytes))
        } else {
            Self::own(record_bytes)
        }
    }
}

fn refusal_record(run: &NodeRun, seq: SenderSeq, refused: Refused) -> LogRecord<'static> {
    let (node, epoch) = (run.node, run.epoch);
    match refused {
        Refused::All(reason) => LogRecord::Refusal {
            node,
            epoch,
            seq,
            reason,
        },
        Refused::Part(part) => LogRecord::PartRefusal {
            node,
            epoch,
            seq,
            part,
        },
    }
}

/// Size of a [`LogRecord::Total`] without its key, bytes.
const HEAD_AND_TOTAL: u64 = HEAD_BYTES as u64 + 9;

/// Returns the size of a [`LogRecord::Total`] of `key`, bytes.
pub(crate) fn total_bytes(key: &CountKey) -> u64 {
    let mut encoded = Vec::new();
    key.encode(&mut Writer::new(&mut encoded));
    (encoded.len() as u64).saturating_add(HEAD_AND_TOTAL)
}

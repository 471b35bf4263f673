//! Executes the hub's store commands: a batch of commands, one sync, then the outcomes.

mod groups;
mod kv;
mod mailbox;
mod op;
mod room;
mod share;
#[cfg(test)]
mod tests;

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;

use wire::{ClientId, CommandId, InstanceId, NodeId, UnixTime};

use crate::field::{BatchSeq, CountKey, Epoch, LogId, MailSeq, Role, SenderSeq};
use crate::log::format::{LogRecord, NodeRun};
use crate::log::{
    AppendError, Log, NODE_BYTES, Purpose, ReadFailure, Recovery, SEGMENT_BYTES_MIN, SegmentFile,
    StateKind, total_bytes,
};
use crate::record::{MailTo, MailVerdict};
use crate::shard::Shard;

pub use crate::log::OpenFailure;
pub use crate::log::SenderUsage;
pub use groups::GroupStoreConfig;
pub use kv::KvStoreConfig;
pub use mailbox::OnFull;
pub use op::{
    Command, Completed, GroupOp, GroupOutcome, KvOp, KvOutcome, Mail, NewMail, Outcome, Settled,
    StoreError, StoreOp,
};
use room::resume_level;
pub use room::{FullReason, StoreStatus};
pub use share::{SenderShare, SenderShares};

/// Executes a hub's store commands on a log.
///
/// A storage thread takes all queued commands, calls [`execute`](Self::execute), sends the outcomes
/// to the hub, and calls [`keep_up`](Self::keep_up) until it returns false. While no command is
/// queued, it calls [`tidy`](Self::tidy) until that returns false. Nothing here uses clocks or
/// threads.
///
/// ```
/// use hub::{LogId, Store, StoreConfig, log::MemorySegments};
///
/// let disk = MemorySegments::new(64 << 20);
/// // The id of a new log; draw it at random.
/// let mut store = Store::open(disk, StoreConfig::default(), LogId(0x5eed))?;
/// let mut outcomes = Vec::new();
/// store.execute([], &mut outcomes);
/// while store.keep_up() {}
/// while store.tidy() {}
/// # Ok::<(), hub::OpenFailure<MemorySegments>>(())
/// ```
pub struct Store<F> {
    log: Log<F>,
    config: StoreConfig,
    recovery: Recovery,
    /// Why mail was refused for lack of room; `None` once there is room.
    full: Option<FullReason>,
    stats: StoreStats,
    /// Buffer for one record.
    scratch: Vec<u8>,
    /// Outcomes of submitted batches that were not polled yet.
    pub(crate) completed: VecDeque<(CommandId, Outcome)>,
}

/// Counters of a store since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StoreStats {
    /// Mails stored, one for each recipient.
    pub stored: u64,
    /// Mails that were stored before.
    pub duplicates: u64,
    /// Mails rejected permanently, one for each recipient.
    pub refused: u64,
    /// Stored mails dropped from full mailboxes, see [`OnFull::DropOldest`].
    pub dropped_oldest: u64,
    /// Stored mails dropped from full mailboxes, see [`OnFull::DropLowestPriority`].
    pub dropped_low_priority: u64,
    /// Mails not stored for now, other than for lack of room.
    pub busy: u64,
    /// Mails not stored for lack of room.
    pub full: u64,
    /// Mails not stored since their sender, or all senders of its role, exceed their
    /// [share](SenderShare).
    pub over_share: u64,
    /// Mails deleted by [`StoreOp::Purge`].
    pub purged: u64,
    /// Mails deleted because they expired.
    pub expired: u64,
    /// Mails and keys that failed their checksum: the disk has lost synced data.
    pub corrupt: u64,
    /// Reads that failed. The mail is kept, and read again.
    pub unreadable: u64,
    /// Acknowledgements of mails that are not in this log; they are ignored.
    pub acks_void: u64,
    /// Increases dropped, since there was no room for a new key.
    pub counts_dropped: u64,
    /// Snapshots of the mail index written.
    pub snapshots: u64,
    /// Snapshots dropped, since writing failed or their room was needed. The next start takes longer.
    pub snapshots_dropped: u64,
}

/// Most mails that one [`StoreOp::Expire`] deletes.
const EXPIRE_STEP: u32 = 1_024;

/// Resolution of the time in the log, milliseconds.
const TIME_STEP_MS: u64 = 60_000;

impl<F: SegmentFile> Store<F> {
    /// Recovers the log in `files`, and records a start of the hub. If `files` is empty, it creates
    /// a log with id `new`; draw that at random for each start.
    ///
    /// # Errors
    ///
    /// [`OpenFailure`] returns the files if the disk fails, has no room for a first segment, has
    /// lost synced data, or was written by another release.
    pub fn open(files: F, config: StoreConfig, new: LogId) -> Result<Self, OpenFailure<F>> {
        let (log, recovery) = Log::open(
            files,
            config.segment_bytes(),
            config.snapshot_after,
            (new, config.shard),
        )?;
        Ok(Self {
            log,
            config,
            recovery,
            full: None,
            stats: StoreStats::default(),
            scratch: Vec::new(),
            completed: VecDeque::new(),
        })
    }

    /// Gives the log a new id, durable on return. Nodes and clients then forget the numbers of mail
    /// and the revisions of keys that they know.
    ///
    /// Call it on a copy that continues an earlier state, such as a restored backup: the copy gives
    /// numbers again that the lost log has given, and a mark of that log would hide new mail. Draw
    /// `log` at random.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`] if there is no room for a segment, [`StoreError::Failed`] if the disk
    /// fails; the id is then the old one.
    pub fn renew_log_id(&mut self, log: LogId) -> Result<(), StoreError> {
        Ok(self.log.renew_id(log)?)
    }

    /// Executes all `commands`, syncs once, and appends the outcomes in order.
    ///
    /// An outcome is reported only after its data is on disk. Reads see the writes of this batch.
    pub fn execute(
        &mut self,
        commands: impl IntoIterator<Item = (CommandId, Command)>,
        outcomes: &mut Vec<(CommandId, Outcome)>,
    ) {
        let first = outcomes.len();
        let mut reads = Vec::new();
        let mut loads = Vec::new();
        for (id, command) in commands {
            let Command::Store(op) = command else {
                // Statistics have a separate store.
                outcomes.push((id, Err(StoreError::Busy)));
                continue;
            };
            let at = outcomes.len();
            let (mut read, mut load) = (None, None);
            if let StoreOp::Read {
                player,
                after,
                bytes_max,
                now,
            } = op
            {
                read = Some((player, after, bytes_max, now));
            } else if let StoreOp::Kv(KvOp::Load { after, bytes_max }) = &op {
                load = Some((after.clone(), *bytes_max));
            }
            let outcome = self.start(op);
            if let Some((player, after, bytes_max, now)) = read {
                reads.push((at, player, after, bytes_max, now));
            }
            if let (Some((after, bytes_max)), Ok(Completed::Kv(KvOutcome::Done(_)))) =
                (load, &outcome)
            {
                loads.push((at, after, bytes_max));
            }
            outcomes.push((id, outcome));
        }
        if self.log.flush().is_err() {
            for (_, outcome) in outcomes.iter_mut().skip(first) {
                *outcome = Err(StoreError::Failed);
            }
            return;
        }
        for (at, player, after, bytes_max, now) in reads {
            if let Some((_, outcome)) = outcomes.get_mut(at) {
                *outcome = self.read(player, after, bytes_max, now);
            }
        }
        for (at, after, bytes_max) in loads {
            let scratch = &mut self.scratch;
            let (loaded, corrupt) = kv::load(&mut self.log, after.as_ref(), bytes_max, scratch);
            self.stats.corrupt = self.stats.corrupt.saturating_add(corrupt);
            if let Some((_, outcome)) = outcomes.get_mut(at) {
                *outcome = loaded.map(Completed::Kv);
            }
        }
    }

    /// Executes an operation up to the sync; reads follow it.
    fn start(&mut self, op: StoreOp) -> Outcome {
        match op {
            StoreOp::Join {
                node,
                instance,
                epoch,
                role,
            } => self.join((node, role), instance, epoch),
            StoreOp::Append(mails) => Ok(Completed::Appended(
                mails.iter().map(|mail| self.append(mail)).collect(),
            )),
            StoreOp::Ack { player, upto } => self.acknowledge(player, upto),
            StoreOp::Clear { player } => self.clear(player),
            StoreOp::Count {
                node,
                epoch,
                batch,
                entries,
            } => self.count(node, epoch, batch, entries),
            StoreOp::Expire { now } => Ok(self.expire(now)),
            StoreOp::Group(op) => {
                let outcome = groups::execute(&mut self.log, self.config.groups, &op);
                outcome.map(Completed::Group)
            }
            StoreOp::Kv(op) => kv::execute(&mut self.log, &self.config, &op).map(Completed::Kv),
            StoreOp::Purge { from } => self.purge(from),
            StoreOp::Sent { from } => Ok(Completed::Sent(self.log.index.senders().of_node(from))),
            StoreOp::Status => Ok(Completed::Status(self.status())),
            StoreOp::Ran(ran) => self.record_run(ran),
            StoreOp::Read { .. } => Err(StoreError::Failed),
        }
    }

    /// Does one bounded step of housekeeping: allocates the next segment, or removes or copies the
    /// oldest. Returns whether there is more to do.
    pub fn tidy(&mut self) -> bool {
        self.log.tidy()
    }

    /// Does one step of housekeeping if much was written since; returns whether to call again. Call
    /// it after each batch until it returns false: this is what bounds disk use.
    pub fn keep_up(&mut self) -> bool {
        self.log.keep_up()
    }

    /// Returns whether the disk has failed. The store accepts nothing more; restart the process.
    pub const fn is_dead(&self) -> bool {
        self.log.is_dead
    }

    /// Returns what recovery found.
    pub const fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Returns the number of the last mail that was stored; no mail has a larger one.
    pub const fn last_mail(&self) -> MailSeq {
        self.log.index.last_mail
    }

    /// Returns the counters.
    pub const fn stats(&self) -> StoreStats {
        let mut stats = self.stats;
        (stats.snapshots, stats.snapshots_dropped) = self.log.snapshot_counts();
        stats.corrupt = stats.corrupt.saturating_add(self.log.corrupt());
        stats
    }

    /// Returns the number of mails stored.
    pub const fn mail_count(&self) -> usize {
        self.log.index.mail_count()
    }

    /// Returns the total of `key`.
    pub fn total(&self, key: &CountKey) -> u64 {
        self.log.index.total(key)
    }

    /// Returns all totals, ordered by key.
    pub fn totals(&self) -> impl Iterator<Item = (&CountKey, u64)> {
        self.log.index.totals()
    }

    /// Returns the files, for tests that inject faults.
    pub const fn files_mut(&mut self) -> &mut F {
        &mut self.log.files
    }

    /// Returns the files; unsynced data may be lost.
    pub fn into_files(self) -> F {
        self.log.files
    }

    fn join(
        &mut self,
        (node, role): (NodeId, Role),
        instance: InstanceId,
        claimed: Epoch,
    ) -> Outcome {
        let known = self.log.index.node(node).map(|state| state.run);
        let run = match known {
            Some(run) if run.instance == instance && run.role == Some(role) => run,
            Some(run) if run.instance == instance => {
                let role = Some(role);
                let run = NodeRun { role, ..run };
                self.log.append(&LogRecord::Node(run), Purpose::Join)?;
                run
            }
            Some(run) if claimed != Epoch(0) && claimed < run.epoch => {
                return Ok(Completed::Fenced);
            }
            _ => {
                let last = known.map_or(Epoch(0), |run| run.epoch);
                let grown = if known.is_some() { 0 } else { NODE_BYTES };
                self.check_state_room(StateKind::Nodes, grown)?;
                let run = NodeRun {
                    node,
                    instance,
                    epoch: Epoch(last.0.checked_add(1).ok_or(StoreError::Busy)?),
                    mail_mark: SenderSeq(0),
                    count_mark: BatchSeq(0),
                    role: Some(role),
                };
                self.log.append(&LogRecord::Node(run), Purpose::Join)?;
                run
            }
        };
        Ok(Completed::Joined {
            epoch: run.epoch,
            boot: self.log.index.boot,
            log: self.log.index.log,
            newest: self.log.index.time,
            ran: Duration::from_millis(self.log.index.ran),
            last_mail: self.log.index.last_mail,
            mail_mark: run.mail_mark,
            count_mark: run.count_mark,
        })
    }

    fn purge(&mut self, from: NodeId) -> Outcome {
        let usage = self.log.index.senders().of_node(from);
        if usage.mails > 0 {
            self.log.append(&LogRecord::Purged(from), Purpose::Ack)?;
            self.stats.purged = self.stats.purged.saturating_add(usage.mails);
        }
        Ok(Completed::Purged(usage))
    }

    fn acknowledge(&mut self, player: ClientId, upto: MailSeq) -> Outcome {
        // A mail that was never delivered cannot be acknowledged: the number belongs to another
        // log.
        if upto > self.log.index.last_mail {
            self.stats.acks_void = self.stats.acks_void.saturating_add(1);
            return Ok(Completed::Acked);
        }
        let first = self.log.index.mails_after(player, MailSeq(0)).next();
        if first.is_some_and(|(seq, _)| seq <= upto) {
            self.log
                .append(&LogRecord::Ack { player, upto }, Purpose::Ack)?;
        }
        Ok(Completed::Acked)
    }

    fn clear(&mut self, player: ClientId) -> Outcome {
        let mut count = 0_u64;
        let mut newest = None;
        for (seq, _) in self.log.index.mails_after(player, MailSeq(0)) {
            count = count.saturating_add(1);
            newest = Some(seq);
        }
        if let Some(upto) = newest {
            self.log
                .append(&LogRecord::Ack { player, upto }, Purpose::Ack)?;
        }
        Ok(Completed::Cleared { count })
    }

    fn count(
        &mut self,
        node: NodeId,
        epoch: Epoch,
        batch: BatchSeq,
        mut entries: Vec<(CountKey, u64)>,
    ) -> Outcome {
        let state = self.log.index.node(node).ok_or(StoreError::Busy)?;
        if state.run.epoch != epoch {
            return Err(StoreError::Busy);
        }
        if batch <= state.run.count_mark {
            return Ok(Completed::Counted);
        }
        let mut fresh = 0_u64;
        entries.retain(|(key, _)| {
            if self.log.index.has_total(key) {
                return true;
            }
            let needed = fresh.saturating_add(total_bytes(key));
            let fits = self.log.has_state_room(StateKind::Totals, needed);
            if fits {
                fresh = needed;
            } else {
                self.stats.counts_dropped = self.stats.counts_dropped.saturating_add(1);
            }
            fits
        });
        let record = LogRecord::Counts {
            node,
            epoch,
            batch,
            entries,
        };
        self.log.append(&record, Purpose::Data)?;
        Ok(Completed::Counted)
    }

    fn expire(&mut self, now: UnixTime) -> Completed {
        self.log.want_spare();
        let known = self.log.index.time;
        if now.as_millis().abs_diff(known.as_millis()) >= TIME_STEP_MS {
            // Without room it is recorded later.
            self.log
                .append(&LogRecord::Time(now), Purpose::Data)
                .unwrap_or_default();
        }
        let count = self.log.index.expire(now, EXPIRE_STEP);
        self.stats.expired = self.stats.expired.saturating_add(count.into());
        Completed::Expired { count }
    }

    fn record_run(&mut self, ran: Duration) -> Outcome {
        let ran = u64::try_from(ran.as_millis()).unwrap_or(u64::MAX);
        self.log.append(&LogRecord::Ran(ran), Purpose::Data)?;
        Ok(Completed::Ran)
    }

    fn status(&mut self) -> StoreStatus {
        let (live_bytes, mails) = (self.log.index.live_bytes(), self.log.index.mail_count());
        let mails = mails as u64;
        let mails_max = u64::try_from(self.config.mails_max).unwrap_or(u64::MAX);
        let has_quota = mails <= resume_level(mails_max)
            && live_bytes <= resume_level(self.config.live_bytes_max);
        let has_room = match self.full {
            None => true,
            Some(FullReason::Disk) => self.log.find_room(),
            Some(FullReason::Limit) => has_quota,
        };
        if has_room {
            self.full = None;
        }
        StoreStatus {
            full: self.full,
            live_bytes,
            mails,
            corrupt: self.stats().corrupt,
        }
    }

    fn read(
        &mut self,
        player: ClientId,
        after: MailSeq,
        bytes_max: usize,
        now: UnixTime,
    ) -> Outcome {
        let mut mails = Vec::new();
        let mut corrupt = Vec::new();
        let mut bytes = 0_usize;
        let mut more = false;
        let entries = self.log.index.mails_after(player, after);
        let entries = entries.filter(|(_, entry)| entry.expires > now);
        let entries: Vec<_> = entries.take(READ_MAILS_MAX.saturating_add(1)).collect();
        let is_cut = entries.len() > READ_MAILS_MAX;
        for (seq, entry) in entries {
            // Reading a mail reads the whole record that it shares.
            let len = usize::try_from(entry.size.record_bytes()).unwrap_or(usize::MAX);
            // At least one, so that a large mail does not block its mailbox.
            if !mails.is_empty()
                && (bytes.saturating_add(len) > bytes_max || mails.len() >= READ_MAILS_MAX)
            {
                more = true;
                break;
            }
            match self.log.read(player, seq, &entry, &mut self.scratch) {
                // The index rounds up.
                Ok(stored) if stored.expires <= now => continue,
                Ok(stored) => mails.push(Mail::from_stored(&stored)),
                Err(ReadFailure::Corrupt) => corrupt.push(seq),
                Err(ReadFailure::Unreadable) => {
                    // Later mails wait too, so that order is kept.
                    self.stats.unreadable = self.stats.unreadable.saturating_add(1);
                    more = true;
                    break;
                }
            }
            bytes = bytes.saturating_add(len);
        }
        for seq in corrupt {
            self.log.index.remove(player, seq);
            self.stats.corrupt = self.stats.corrupt.saturating_add(1);
        }
        // Lost mails do not count, so the last entry may be reached without a full page.
        more |= is_cut;
        if mails.is_empty() && more {
            return Err(StoreError::Busy);
        }
        Ok(Completed::Mails { mails, more })
    }

    const fn check_state_room(&self, kind: StateKind, bytes: u64) -> Result<(), StoreError> {
        if self.log.has_state_room(kind, bytes) {
            Ok(())
        } else {
            Err(StoreError::Busy)
        }
    }
}

/// Most mails of one read.
const READ_MAILS_MAX: usize = 256;

impl From<AppendError> for StoreError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Full => Self::Full,
            AppendError::Dead => Self::Failed,
        }
    }
}

impl<F: SegmentFile> Store<F> {
    fn append(&mut self, mail: &NewMail) -> Settled {
        let judged = self.judge(mail).unwrap_or_else(|error| match error {
            StoreError::Full => {
                self.full = Some(FullReason::Disk);
                MailVerdict::Full.into()
            }
            StoreError::Busy | StoreError::Failed => MailVerdict::Busy.into(),
        });
        match judged.verdict {
            MailVerdict::Busy => self.stats.busy = self.stats.busy.saturating_add(1),
            MailVerdict::Full => self.stats.full = self.stats.full.saturating_add(1),
            MailVerdict::OverShare => {
                self.stats.over_share = self.stats.over_share.saturating_add(1);
            }
            MailVerdict::Stored | MailVerdict::Refused(_) => {}
        }
        Settled {
            node: mail.node,
            epoch: mail.epoch,
            seq: mail.seq,
            to: judged.members.map_or_else(|| mail.to.clone(), MailTo::Many),
            verdict: judged.verdict,
            part: judged.part,
            dropped: judged.dropped,
        }
    }
}

/// Limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreConfig {
    /// Size of a segment on disk, bytes. Default 16 MiB, at least
    /// [`SEGMENT_BYTES_MIN`](Self::SEGMENT_BYTES_MIN), less than 4 GiB. A quarter of it bounds the keys of counts,
    /// an eighth the runs of nodes, an eighth the refusals, an eighth the members of groups: 16 MiB hold about 80,000 keys and
    /// 30,000 nodes. Larger segments are removed later and recover more slowly, since each start
    /// rewrites the newest one.
    pub segment_bytes: u64,
    /// Mails in one mailbox. Default 1,024.
    pub mailbox_mails_max: u32,
    /// Size of one mailbox, bytes. Default 1 MiB. Each mail counts about 77 bytes and its
    /// body; if several players share its body, rounded up to a 127th of the shared record.
    pub mailbox_bytes_max: u64,
    /// What happens to a mail for a full mailbox. Default: its sender is rejected.
    pub on_full: OnFull,
    /// Size of all stored mail in the log, bytes. Default 1 GiB. A body that several mailboxes share
    /// counts once. Disk use is at most twice that and
    /// a few segments.
    pub live_bytes_max: u64,
    /// Mails in all mailboxes. Default 4 million. Each takes 35 to 53 bytes of memory.
    pub mails_max: usize,
    /// How much of these one node may fill, and all nodes of a role; also of the durable keys.
    pub shares: SenderShares,
    /// Bytes of log after which a snapshot of the mail index is written. Default 16 MiB, at least 32
    /// for each stored mail; `u64::MAX` for none. A start reads about as much of the log.
    pub snapshot_after: u64,
    /// Limits of the durable keys.
    pub kv: KvStoreConfig,
    /// Limits of groups.
    pub groups: GroupStoreConfig,
    /// The hub's part, which an existing log must have; `None` for any. Default the only one.
    pub shard: Option<Shard>,
}

impl StoreConfig {
    /// Smallest segment, bytes: the eighth reserved for acknowledgements must hold the longest
    /// record.
    pub const SEGMENT_BYTES_MIN: u64 = SEGMENT_BYTES_MIN;

    pub(crate) fn segment_bytes(&self) -> u64 {
        let max = u64::from(u32::MAX);
        self.segment_bytes.clamp(Self::SEGMENT_BYTES_MIN, max)
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 16 << 20,
            mailbox_mails_max: 1_024,
            mailbox_bytes_max: 1 << 20,
            on_full: OnFull::RejectSender,
            live_bytes_max: 1 << 30,
            mails_max: 4_000_000,
            shares: SenderShares::default(),
            snapshot_after: 16 << 20,
            kv: KvStoreConfig::default(),
            groups: GroupStoreConfig::default(),
            shard: Some(Shard::ONLY),
        }
    }
}

impl<F: SegmentFile> fmt::Debug for Store<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("mail_count", &self.mail_count())
            .field("recovery", &self.recovery())
            .field("stats", &self.stats())
            .field("is_dead", &self.is_dead())
            .finish_non_exhaustive()
    }
}

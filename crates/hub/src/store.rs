//! What a storage thread owns: commands in, one sync, completions out.

mod admit;
mod config;
mod op;
#[cfg(test)]
mod tests;

use wire::{ClientId, CommandId, InstanceId, NodeId, UnixTime};

pub use crate::log::OpenFailure;
pub use config::StoreConfig;
pub use op::{Command, Completed, Mail, NewMail, Outcome, Settled, StoreError, StoreOp};

use crate::count::CountKey;
use crate::id::{BatchSeq, Epoch, LogId, MailSeq, SenderSeq};
use crate::log::format::{LogRecord, NodeRun};
use crate::log::{
    AppendError, Log, NODE_BYTES, Purpose, ReadFailure, Recovery, SegmentFile, StateKind,
    total_bytes,
};

/// Executes a hub's store commands on a log.
///
/// A storage thread takes all commands that wait, gives them to [`execute`](Self::execute), sends
/// the outcomes back to the hub, calls [`keep_up`](Self::keep_up) until it returns false, and
/// where no command waits [`tidy`](Self::tidy) until it returns false or one has come. Nothing here knows of time or threads.
///
/// ```
/// use hub::{id::LogId, log::MemorySegments, Store, StoreConfig};
///
/// let disk = MemorySegments::new(64 << 20);
/// // A log that is begun gets an id; it is to be drawn at random.
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
    stats: StoreStats,
    /// Takes one record that is read.
    scratch: Vec<u8>,
}

/// What a store has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// Mails that were put on disk.
    pub stored: u64,
    /// Mails that were on disk already.
    pub duplicates: u64,
    /// Mails refused for good.
    pub refused: u64,
    /// Mails not taken for now.
    pub busy: u64,
    /// Mails whose time was over.
    pub expired: u64,
    /// Mails that could not be read again: the disk has lost what it had confirmed.
    pub rotten: u64,
    /// Reads that the disk did not answer. The mail stays where it is, and is read again.
    pub unreadable: u64,
    /// Acknowledgements of mails that this log never had; they change nothing.
    pub acks_void: u64,
    /// Increases of keys that found no room for a new key.
    pub counts_dropped: u64,
}

/// Mails that one [`StoreOp::Expire`] drops at most.
const EXPIRE_STEP: u32 = 1_024;

/// How far the time in the log may be behind, milliseconds.
const TIME_STEP_MS: u64 = 60_000;

impl<F: SegmentFile> Store<F> {
    /// Reads what `files` hold and notes one more start of the hub. Where they hold nothing, a log
    /// is begun that is `new` from then on; it is drawn at random for each start.
    ///
    /// # Errors
    ///
    /// [`OpenFailure`] hands the files back where the disk fails, has no room for a first segment,
    /// has lost what it had confirmed, or holds what another release wrote.
    pub fn open(files: F, config: StoreConfig, new: LogId) -> Result<Self, OpenFailure<F>> {
        let (log, recovery) = Log::open(files, config.segment_bytes(), new)?;
        Ok(Self {
            log,
            config,
            recovery,
            stats: StoreStats::default(),
            scratch: Vec::new(),
        })
    }

    /// Does all of `commands`, syncs once, and appends the outcomes in their order.
    ///
    /// Nothing is reported as done that is not on disk. Reads see what this batch wrote.
    pub fn execute(
        &mut self,
        commands: impl IntoIterator<Item = (CommandId, Command)>,
        outcomes: &mut Vec<(CommandId, Outcome)>,
    ) {
        let first = outcomes.len();
        let mut reads = Vec::new();
        for (id, Command::Store(op)) in commands {
            let outcome = match op {
                StoreOp::Join {
                    node,
                    instance,
                    epoch,
                } => self.join(node, instance, epoch),
                StoreOp::Append(mails) => Ok(Completed::Appended(
                    mails.iter().map(|mail| self.append(mail)).collect(),
                )),
                StoreOp::Ack { player, upto } => self.acknowledge(player, upto),
                StoreOp::Count {
                    node,
                    epoch,
                    batch,
                    entries,
                } => self.count(node, epoch, batch, entries),
                StoreOp::Expire { now } => Ok(self.expire(now)),
                StoreOp::Read { .. } => {
                    reads.push((outcomes.len(), op));
                    Err(StoreError::Failed)
                }
            };
            outcomes.push((id, outcome));
        }
        if self.log.flush().is_err() {
            for (_, outcome) in outcomes.iter_mut().skip(first) {
                *outcome = Err(StoreError::Failed);
            }
            return;
        }
        for (at, op) in reads {
            if let (
                Some((_, outcome)),
                StoreOp::Read {
                    player,
                    after,
                    bytes_max,
                    now,
                },
            ) = (outcomes.get_mut(at), op)
            {
                *outcome = self.read(player, after, bytes_max, now);
            }
        }
    }

    /// Does one bounded step of housekeeping: allocates the next segment, removes or empties the
    /// oldest. Returns whether there is more to do.
    pub fn tidy(&mut self) -> bool {
        self.log.tidy()
    }

    /// Does one step of housekeeping where so much was written that it must not wait until no
    /// command does; returns whether to ask again. To be called after each batch until it returns
    /// false: disk use is bounded by that alone.
    pub fn keep_up(&mut self) -> bool {
        self.log.keep_up()
    }

    /// Returns whether the disk has failed; nothing is taken any more, and the hub's process
    /// starts again from what the disk holds.
    pub const fn is_dead(&self) -> bool {
        self.log.is_dead()
    }

    /// Returns what opening found.
    pub const fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Returns what was done since.
    pub const fn stats(&self) -> StoreStats {
        self.stats
    }

    /// Returns how many mails wait.
    pub fn mail_count(&self) -> usize {
        self.log.index().mail_count()
    }

    /// Returns how often `key` was counted.
    pub fn total(&self, key: &CountKey) -> u64 {
        self.log.index().total(key)
    }

    /// Returns all counts, in the order of their keys.
    pub fn totals(&self) -> impl Iterator<Item = (&CountKey, u64)> {
        self.log.index().totals()
    }

    /// Gives access to the files, for tests that break them.
    pub const fn files_mut(&mut self) -> &mut F {
        self.log.files_mut()
    }

    /// Gives the files back; what was not synced may be lost.
    pub fn into_files(self) -> F {
        self.log.into_files()
    }

    fn join(&mut self, node: NodeId, instance: InstanceId, said: Epoch) -> Outcome {
        let known = self.log.index().node(node).map(|state| state.run);
        let run = match known {
            Some(run) if run.instance == instance => run,
            Some(run) if said != Epoch(0) && said < run.epoch => return Ok(Completed::Fenced),
            _ => {
                let last = known.map_or(Epoch(0), |run| run.epoch);
                self.have_state_room(
                    StateKind::Nodes,
                    if known.is_some() { 0 } else { NODE_BYTES },
                )?;
                let run = NodeRun {
                    node,
                    instance,
                    epoch: Epoch(last.0.checked_add(1).ok_or(StoreError::Busy)?),
                    mail_mark: SenderSeq(0),
                    count_mark: BatchSeq(0),
                };
                self.log.append(&LogRecord::Node(run), Purpose::Join)?;
                run
            }
        };
        Ok(Completed::Joined {
            epoch: run.epoch,
            boot: self.log.index().boot,
            log: self.log.index().log,
            newest: self.log.index().time,
            mail_mark: run.mail_mark,
            count_mark: run.count_mark,
        })
    }

    fn acknowledge(&mut self, player: ClientId, upto: MailSeq) -> Outcome {
        let first = self.log.index().mails_after(player, MailSeq(0)).next();
        // Nobody has handled what was never given: the number is of a log that was here before.
        if upto > self.log.index().last_mail {
            self.stats.acks_void = self.stats.acks_void.saturating_add(1);
            return Ok(Completed::Acked);
        }
        // Nothing waits there: no record is needed.
        if first.is_some_and(|(seq, _)| seq <= upto) {
            self.log
                .append(&LogRecord::Ack { player, upto }, Purpose::Ack)?;
        }
        Ok(Completed::Acked)
    }

    fn count(
        &mut self,
        node: NodeId,
        epoch: Epoch,
        batch: BatchSeq,
        mut entries: Vec<(CountKey, u64)>,
    ) -> Outcome {
        let state = self.log.index().node(node).ok_or(StoreError::Busy)?;
        if state.run.epoch != epoch {
            return Err(StoreError::Busy);
        }
        if batch <= state.run.count_mark {
            return Ok(Completed::Counted);
        }
        let mut fresh = 0_u64;
        entries.retain(|(key, _)| {
            if self.log.index().has_total(key) {
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
        let known = self.log.index().time;
        if now.as_millis().abs_diff(known.as_millis()) >= TIME_STEP_MS {
            // Where there is no room for it, it is told again.
            self.log
                .append(&LogRecord::Time(now), Purpose::Data)
                .unwrap_or_default();
        }
        let mut count = 0;
        while count < EXPIRE_STEP && self.log.index_mut().expire_one(now) {
            count = count.saturating_add(1);
        }
        self.stats.expired = self.stats.expired.saturating_add(count.into());
        Completed::Expired { count }
    }

    fn read(
        &mut self,
        player: ClientId,
        after: MailSeq,
        bytes_max: usize,
        now: UnixTime,
    ) -> Outcome {
        let mut mails = Vec::new();
        let mut rotten = Vec::new();
        let mut bytes = 0_usize;
        let mut more = false;
        let entries: Vec<_> = self
            .log
            .index()
            .mails_after(player, after)
            .take(READ_MAILS_MAX.saturating_add(1))
            .collect();
        for (seq, entry) in entries {
            let len = usize::try_from(entry.len).unwrap_or(usize::MAX);
            // At least one, so that a large mail does not stop its mailbox.
            if !mails.is_empty()
                && (bytes.saturating_add(len) > bytes_max || mails.len() >= READ_MAILS_MAX)
            {
                more = true;
                break;
            }
            if entry.expires <= now {
                continue;
            }
            match self.log.read(&entry, &mut self.scratch) {
                Ok(stored) => mails.push(Mail::from_stored(&stored)),
                Err(ReadFailure::Rotten) => rotten.push(seq),
                Err(ReadFailure::Unreadable) => {
                    // It waits, and what is behind it too: nothing may overtake it.
                    self.stats.unreadable = self.stats.unreadable.saturating_add(1);
                    more = true;
                    break;
                }
            }
            bytes = bytes.saturating_add(len);
        }
        for seq in rotten {
            self.log.index_mut().remove(player, seq);
            self.stats.rotten = self.stats.rotten.saturating_add(1);
        }
        if mails.is_empty() && more {
            return Err(StoreError::Busy);
        }
        Ok(Completed::Mails { mails, more })
    }

    const fn have_state_room(&self, kind: StateKind, bytes: u64) -> Result<(), StoreError> {
        if self.log.has_state_room(kind, bytes) {
            Ok(())
        } else {
            Err(StoreError::Busy)
        }
    }
}

/// Mails that one read gives at most.
const READ_MAILS_MAX: usize = 64;

impl From<AppendError> for StoreError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Full => Self::Busy,
            AppendError::Dead => Self::Failed,
        }
    }
}

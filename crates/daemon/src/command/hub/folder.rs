//! `tickwire hub backup`, `restore` and `check`: work on the store's folder, without a key.

use std::io;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use crypto::Ring;
use hub::log::{FileSegments, Overlay};
use hub::{LogId, Store, StoreConfig};
use serde_json::json;

use super::super::print_line;
use crate::exit::{Exit, Failure, SystemFault};
use crate::store_copy::{PartialCopy, SegmentCopy, copy_segments};
use crate::trust;

/// Options of `hub backup`.
#[derive(Args, Clone, Debug)]
pub struct BackupFolder {
    /// The hub's folder; a hub may use it meanwhile.
    #[arg(long)]
    data: PathBuf,
    /// Folder to create with the copy.
    #[arg(long)]
    to: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// Options of `hub restore`.
#[derive(Args, Clone, Debug)]
pub struct RestoreFolder {
    /// A folder of `hub backup`.
    #[arg(long)]
    from: PathBuf,
    /// Folder to create for the hub.
    #[arg(long)]
    data: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// Options of `hub check`.
#[derive(Args, Clone, Debug)]
pub struct CheckFolder {
    /// A folder of a hub or a backup. While a hub uses it, records that it writes may look torn.
    #[arg(long)]
    data: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// What a folder holds.
struct Found {
    segments: u64,
    records: u64,
    mails: usize,
    torn_bytes: u64,
    /// Corrupt ranges.
    holes: u64,
}

impl BackupFolder {
    /// Copies the folder and checks the copy.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let (partial, mails) = copy_and_check(&self.data, &self.to)?;
        let copied = Copied::publish(partial, mails, (&self.data, &self.to))?;
        print_line(&if self.json {
            copied.json()
        } else {
            copied.text(&self.to)
        })
    }
}

impl RestoreFolder {
    /// Copies the backup, checks the copy, and gives it a new log id.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let (partial, mails) = copy_and_check(&self.from, &self.data)?;
        renew_log_id(partial.folder())?;
        let copied = Copied::publish(partial, mails, (&self.from, &self.data))?;
        print_line(&if self.json {
            copied.json()
        } else {
            copied.text(&self.data)
        })
    }
}

/// A folder that was copied, and what the copy holds.
struct Copied {
    copy: SegmentCopy,
    mails: usize,
}

impl Copied {
    /// Gives the copy its name.
    fn publish(partial: PartialCopy, mails: usize, paths: (&Path, &Path)) -> Result<Self, Failure> {
        let copy = partial.publish();
        let copy = copy.map_err(|error| copy_failure(paths, &error))?;
        Ok(Self { copy, mails })
    }

    fn json(&self) -> String {
        let SegmentCopy { segments, bytes } = self.copy;
        let mails = self.mails;
        json!({"schema": 1, "segments": segments, "bytes": bytes, "mails": mails}).to_string()
    }

    fn text(&self, to: &Path) -> String {
        let (segments, mails, to) = (self.copy.segments, self.mails, to.display());
        format!("{segments} segments with {mails} mails are in {to}")
    }
}

/// Copies a folder and checks the copy, which has no name yet; returns the mails in it.
fn copy_and_check(from: &Path, to: &Path) -> Result<(PartialCopy, usize), Failure> {
    let random = trust::random_instance(&mut Ring::new())?.0;
    let partial = copy_segments(from, to, random);
    let partial = partial.map_err(|error| copy_failure((from, to), &error))?;
    let found = check(partial.folder(), from)?;
    found.judge(from)?;
    Ok((partial, found.mails))
}

/// Gives the log in `folder` a new id. The lost log has given numbers of mail that this one will
/// give again; with another id, nodes and clients forget those that they know.
fn renew_log_id(folder: &Path) -> Result<(), Failure> {
    let log = LogId(trust::random_instance(&mut Ring::new())?.0);
    let refuse = |error: &dyn std::fmt::Display| Failure::file(folder, error);
    let files = FileSegments::open(folder).map_err(|error| refuse(&SystemFault(&error)))?;
    let store = Store::open(files, any_shard(), log);
    let mut store = store.map_err(|failure| refuse(&failure.error))?;
    store
        .renew_log_id(log)
        .map_err(|_| refuse(&"no segment can be added to the copy"))
}

/// The limits of a store that opens the log of any of several hubs.
fn any_shard() -> StoreConfig {
    let mut config = StoreConfig::default();
    config.shard = None;
    config
}

fn copy_failure((from, to): (&Path, &Path), error: &io::Error) -> Failure {
    let kind = error.kind();
    if kind == ErrorKind::NotFound {
        return Failure::file(from, "there is no segment of a hub in it");
    }
    let (from, to) = (from.display(), to.display());
    if kind == ErrorKind::AlreadyExists {
        Failure::refused(format_args!("{to}: there is a folder already"))
    } else if kind == ErrorKind::TimedOut {
        let sentence = format_args!("{from}: the hub replaces segments too fast; try again");
        Failure::new(Exit::TimedOut, sentence)
    } else {
        let error = SystemFault(error);
        Failure::refused(format_args!("{from} cannot be copied to {to}: {error}"))
    }
}

/// Reads all segments of a folder, and changes nothing. A failure names `shown`.
fn check(folder: &Path, shown: &Path) -> Result<Found, Failure> {
    let files =
        FileSegments::view(folder).map_err(|error| Failure::file(shown, SystemFault(&error)))?;
    let log = LogId(trust::random_instance(&mut Ring::new())?.0);
    let store = Store::open(Overlay::new(files), any_shard(), log);
    let store = store.map_err(|failure| {
        let error = failure.error;
        Failure::new(
            Exit::CheckFailed,
            format_args!("{}: {error}", shown.display()),
        )
    })?;
    let recovery = store.recovery();
    if recovery.segments == 0 {
        return Err(Failure::file(shown, "there is no segment of a hub in it"));
    }
    Ok(Found {
        segments: recovery.segments,
        records: recovery.records,
        mails: store.mail_count(),
        torn_bytes: recovery.torn_bytes,
        holes: recovery.corrupt,
    })
}

impl Found {
    fn judge(&self, folder: &Path) -> Result<(), Failure> {
        if self.holes == 0 {
            return Ok(());
        }
        let (folder, holes) = (folder.display(), self.holes);
        let sentence = format_args!(
            "{folder}: {holes} ranges are corrupt: mail that was acknowledged to its sender may be \
             lost"
        );
        Err(Failure::new(Exit::CheckFailed, sentence))
    }
}

impl CheckFolder {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let found = check(&self.data, &self.data)?;
        let Found {
            segments,
            records,
            mails,
            torn_bytes,
            holes,
        } = found;
        if self.json {
            let value = json!({
                "schema": 1,
                "segments": segments,
                "records": records,
                "mails": mails,
                "torn_bytes": torn_bytes,
                "corrupt_ranges": holes,
            });
            print_line(&value.to_string())?;
        } else {
            print_line(&format!(
                "{segments} segments, {records} records, {mails} mails; {torn_bytes} torn bytes at \
                 the end, {holes} corrupt ranges"
            ))?;
        }
        found.judge(&self.data)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hub::{Command, Completed, StoreOp};
    use wire::{CommandId, InstanceId, NodeId};

    use super::*;

    fn log_id(store: &mut Store<FileSegments>) -> LogId {
        let op = StoreOp::Join {
            node: NodeId([1; 32]),
            instance: InstanceId(1),
            epoch: hub::Epoch(0),
            role: hub::Role::GameNode,
        };
        let mut outcomes = Vec::new();
        store.execute([(CommandId(1), Command::Store(op))], &mut outcomes);
        let Some((_, Ok(Completed::Joined { log, .. }))) = outcomes.pop() else {
            panic!("a node joins");
        };
        log
    }

    #[test]
    fn ha5_a_restored_log_has_another_id_and_a_backup_the_same() {
        let base = std::env::temp_dir().join(format!("tickwire-restore-{}", std::process::id()));
        fs::remove_dir_all(&base).unwrap_or_default();
        let [data, copy, restored] = ["data", "copy", "restored"].map(|name| base.join(name));
        let open = |folder: &Path| {
            let files = FileSegments::open(folder).unwrap();
            Store::open(files, StoreConfig::default(), LogId(7)).unwrap()
        };
        assert_eq!(log_id(&mut open(&data)), LogId(7));
        let (to, json) = (copy.clone(), true);
        let backup = BackupFolder { data, to, json };
        backup.run().unwrap();
        let restore = RestoreFolder {
            from: copy.clone(),
            data: restored.clone(),
            json,
        };
        restore.run().unwrap();
        assert_eq!(log_id(&mut open(&copy)), LogId(7));
        let renewed = log_id(&mut open(&restored));
        assert_ne!(renewed, LogId(7));
        // Also at the next start.
        assert_eq!(log_id(&mut open(&restored)), renewed);
        // No partial folder is left.
        assert_eq!(fs::read_dir(&base).unwrap().count(), 3);
        fs::remove_dir_all(&base).unwrap();
    }
}

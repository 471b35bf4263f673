//! Copies of a store's folder, also while a hub uses it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// What [`copy_segments`] has copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentCopy {
    /// Segments of the copy.
    pub(crate) segments: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
}

/// Copies the segments of a store from the folder `from` to the new folder `to`, and syncs the
/// copy. A hub may use `from` meanwhile: the copy holds all mail that was acknowledged to its
/// sender before the call, and may hold mail that was deleted since. Snapshots are left out; the
/// first start of a hub on the copy reads all segments.
///
/// # Errors
///
/// The system's error; `AlreadyExists` if `to` exists, `NotFound` if `from` has no segment, and
/// `TimedOut` if the hub replaces segments faster than they are copied.
pub(crate) fn copy_segments(from: &Path, to: &Path) -> io::Result<SegmentCopy> {
    let first = list(from)?;
    if first.is_empty() {
        return Err(ErrorKind::NotFound.into());
    }
    fs::create_dir(to)?;
    copy_all(from, to, first)
}

/// Passes over the folder, at most.
const PASSES_MAX: usize = 64;

/// The newest segments are written to: the last is the spare, the one before it is in use.
const IN_USE: usize = 2;

fn copy_all(from: &Path, to: &Path, first: BTreeSet<u64>) -> io::Result<SegmentCopy> {
    let mut listed = first;
    let mut settled = BTreeSet::new();
    for _ in 0..PASSES_MAX {
        let sealed = listed.len().saturating_sub(IN_USE);
        // In order: mail moves to newer segments before an older one is removed.
        for (index, segment) in listed.iter().enumerate() {
            if settled.contains(segment) {
                continue;
            }
            match fs::copy(path(from, *segment), path(to, *segment)) {
                Ok(_) if index < sealed => drop(settled.insert(*segment)),
                Ok(_) => {}
                // Removed since it was listed.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let now = list(from)?;
        if now == listed {
            return finish(to, &listed);
        }
        listed = now;
    }
    Err(ErrorKind::TimedOut.into())
}

/// Removes copies of segments that are gone, and syncs the others.
fn finish(to: &Path, listed: &BTreeSet<u64>) -> io::Result<SegmentCopy> {
    let mut copy = SegmentCopy::default();
    for segment in list(to)? {
        let path = path(to, segment);
        if listed.contains(&segment) {
            let file = File::options().write(true).open(&path)?;
            file.sync_all()?;
            copy.segments = copy.segments.saturating_add(1);
            copy.bytes = copy.bytes.saturating_add(file.metadata()?.len());
        } else {
            fs::remove_file(&path)?;
        }
    }
    sync_folder(to)?;
    if let Some(above) = to.canonicalize()?.parent() {
        sync_folder(above)?;
    }
    Ok(copy)
}

/// Makes the entries of a folder durable; other systems than Unix write them through.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn path(folder: &Path, segment: u64) -> PathBuf {
    folder.join(format!("{segment:016}.seg"))
}

fn list(folder: &Path) -> io::Result<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_suffix(".seg"));
        let number = digits.and_then(|digits| digits.parse().ok());
        found.extend(number.filter(|number| path(folder, *number) == folder.join(&name)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("tickwire-backup-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::remove_dir_all(&folder).ok();
        folder
    }

    #[test]
    fn all_segments_are_copied_and_nothing_else() {
        let (from, to) = (folder("from"), folder("to"));
        fs::create_dir(&from).unwrap();
        assert_eq!(
            copy_segments(&from, &to).map_err(|error| error.kind()),
            Err(ErrorKind::NotFound)
        );
        for segment in 3..6 {
            fs::write(path(&from, segment), segment.to_string()).unwrap();
        }
        fs::write(from.join("lock"), "").unwrap();
        fs::write(from.join("0000000000000004.idx"), "x").unwrap();
        fs::write(from.join("4.seg"), "x").unwrap();
        let copied = copy_segments(&from, &to).unwrap();
        assert_eq!((copied.segments, copied.bytes), (3, 3));
        assert_eq!(list(&to).unwrap(), (3..6).collect());
        assert_eq!(fs::read_dir(&to).unwrap().count(), 3);
        assert_eq!(
            copy_segments(&from, &to).map_err(|error| error.kind()),
            Err(ErrorKind::AlreadyExists)
        );
        fs::remove_dir_all(&from).unwrap();
        fs::remove_dir_all(&to).unwrap();
    }

    #[test]
    fn segments_that_are_gone_leave_no_copy_and_used_ones_are_copied_again() {
        let (from, to) = (folder("moving"), folder("moved"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&to).unwrap();
        for segment in 1..5 {
            fs::write(path(&from, segment), "old").unwrap();
        }
        let first = list(&from).unwrap();
        // The hub goes on after the listing: the oldest is gone, the third was written to, and a
        // new one exists.
        fs::remove_file(path(&from, 1)).unwrap();
        fs::write(path(&to, 1), "old").unwrap();
        fs::write(path(&from, 3), "new").unwrap();
        fs::write(path(&from, 5), "new").unwrap();
        let copied = copy_all(&from, &to, first).unwrap();
        assert_eq!(copied.segments, 4);
        assert_eq!(list(&to).unwrap(), (2..6).collect());
        for segment in [3, 5] {
            assert_eq!(fs::read(path(&to, segment)).unwrap(), b"new");
        }
        fs::remove_dir_all(&from).unwrap();
        fs::remove_dir_all(&to).unwrap();
    }
}

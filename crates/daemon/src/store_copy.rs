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

/// A copy under a name that no hub uses. [`publish`](Self::publish) gives it its name; without it,
/// dropping removes the copy.
#[derive(Debug)]
pub(crate) struct PartialCopy {
    /// `TO.partial-RANDOM`, in the folder of `to`, so that a rename is one step.
    folder: PathBuf,
    to: PathBuf,
    copy: SegmentCopy,
    is_published: bool,
}

/// Copies the segments of a store from the folder `from` to a new folder `to`, which exists only
/// after [`PartialCopy::publish`]. A hub may use `from` meanwhile: the copy holds all mail that was
/// acknowledged to its sender before the call, and may hold mail that was deleted since. Snapshots
/// are left out; the first start of a hub on the copy reads all segments. `random` makes the name of
/// the partial folder unique.
///
/// # Errors
///
/// The system's error; `AlreadyExists` if `to` exists, `NotFound` if `from` has no segment, and
/// `TimedOut` if the hub replaces segments faster than they are copied.
pub(crate) fn copy_segments(from: &Path, to: &Path, random: u64) -> io::Result<PartialCopy> {
    let first = list(from)?;
    if first.is_empty() {
        return Err(ErrorKind::NotFound.into());
    }
    refuse_existing(to)?;
    let mut name = to.file_name().ok_or(ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".partial-{random:016x}"));
    let folder = to.with_file_name(name);
    create_private(&folder)?;
    let mut partial = PartialCopy {
        folder,
        to: to.to_owned(),
        copy: SegmentCopy::default(),
        is_published: false,
    };
    partial.copy = copy_all(from, &partial.folder, first)?;
    Ok(partial)
}

impl PartialCopy {
    /// The folder with the copy.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Syncs the copy and renames it, which is durable on return.
    pub(crate) fn publish(mut self) -> io::Result<SegmentCopy> {
        for entry in fs::read_dir(&self.folder)? {
            let file = File::options().write(true).open(entry?.path())?;
            #[cfg(unix)]
            file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
            file.sync_all()?;
        }
        sync_folder(&self.folder)?;
        // A rename would replace an empty folder.
        refuse_existing(&self.to)?;
        fs::rename(&self.folder, &self.to)?;
        self.is_published = true;
        if let Some(above) = self.to.canonicalize()?.parent() {
            sync_folder(above)?;
        }
        Ok(self.copy)
    }
}

impl Drop for PartialCopy {
    fn drop(&mut self) {
        if !self.is_published {
            // The name shows that it is of no use.
            fs::remove_dir_all(&self.folder).unwrap_or_default();
        }
    }
}

fn refuse_existing(to: &Path) -> io::Result<()> {
    match fs::symlink_metadata(to) {
        Ok(_) => Err(ErrorKind::AlreadyExists.into()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Creates a folder for its owner only.
fn create_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Copies a file; the copy is for its owner only.
fn copy_private(from: &Path, to: &Path) -> io::Result<u64> {
    let mut source = File::open(from)?;
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    io::copy(&mut source, &mut options.open(to)?)
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
            match copy_private(&path(from, *segment), &path(to, *segment)) {
                Ok(_) if index < sealed => drop(settled.insert(*segment)),
                Ok(_) => {}
                // Removed since it was listed.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let now = list(from)?;
        if now == listed {
            return keep(to, &listed);
        }
        listed = now;
    }
    Err(ErrorKind::TimedOut.into())
}

/// Removes copies of segments that are gone, and counts the others.
fn keep(to: &Path, listed: &BTreeSet<u64>) -> io::Result<SegmentCopy> {
    let mut copy = SegmentCopy::default();
    for segment in list(to)? {
        let path = path(to, segment);
        if listed.contains(&segment) {
            copy.segments = copy.segments.saturating_add(1);
            copy.bytes = copy.bytes.saturating_add(fs::metadata(&path)?.len());
        } else {
            fs::remove_file(&path)?;
        }
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

    fn mode(path: &Path) -> u32 {
        use std::os::unix::fs::PermissionsExt as _;
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn all_segments_are_copied_for_their_owner_and_nothing_else() {
        let (from, to) = (folder("from"), folder("to"));
        fs::create_dir(&from).unwrap();
        let fault = |from, to| copy_segments(from, to, 7).map_err(|error| error.kind());
        assert_eq!(fault(&from, &to).err(), Some(ErrorKind::NotFound));
        for segment in 3..6 {
            fs::write(path(&from, segment), segment.to_string()).unwrap();
        }
        fs::write(from.join("lock"), "").unwrap();
        fs::write(from.join("0000000000000004.idx"), "x").unwrap();
        fs::write(from.join("4.seg"), "x").unwrap();
        let partial = copy_segments(&from, &to, 7).unwrap();
        assert!(!to.exists() && partial.folder().exists());
        assert_eq!(mode(partial.folder()), 0o700);
        let copied = partial.publish().unwrap();
        assert_eq!((copied.segments, copied.bytes), (3, 3));
        assert_eq!(list(&to).unwrap(), (3..6).collect());
        assert_eq!(fs::read_dir(&to).unwrap().count(), 3);
        assert_eq!((mode(&to), mode(&path(&to, 3))), (0o700, 0o600));
        assert_eq!(fault(&from, &to).err(), Some(ErrorKind::AlreadyExists));
        fs::remove_dir_all(&from).unwrap();
        fs::remove_dir_all(&to).unwrap();
    }

    #[test]
    fn a_copy_that_is_not_published_has_no_name_and_is_removed() {
        let (from, to) = (folder("unpublished"), folder("unnamed"));
        fs::create_dir(&from).unwrap();
        fs::write(path(&from, 1), "x").unwrap();
        let partial = copy_segments(&from, &to, 8).unwrap();
        let left = partial.folder().to_owned();
        drop(partial);
        assert!(!left.exists() && !to.exists());
        // A folder that appears meanwhile is kept, an empty one too.
        let partial = copy_segments(&from, &to, 8).unwrap();
        fs::create_dir(&to).unwrap();
        let fault = partial.publish().map_err(|error| error.kind());
        assert_eq!(fault, Err(ErrorKind::AlreadyExists));
        assert!(!left.exists());
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

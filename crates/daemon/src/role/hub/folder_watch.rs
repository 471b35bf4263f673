//! Notices that the hub's folders are removed or replaced while it runs.
//!
//! Files that are open stay writable after their removal, so without this a hub would acknowledge mail
//! into files without a name until it needs the next one.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure};

/// The lock files of open folders, and which files they were.
#[derive(Debug)]
pub(super) struct FolderWatch(Vec<(PathBuf, FileId)>);

/// Identifies a file on this system.
type FileId = (u64, u64);

#[cfg(unix)]
fn file_id(metadata: &Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino())
}

/// Only whether it exists.
#[cfg(not(unix))]
const fn file_id(_: &Metadata) -> FileId {
    (0, 0)
}

impl FolderWatch {
    /// Watches open folders; leaves out those without a lock file.
    pub(super) fn of(folders: &[&Path]) -> Self {
        let locks = folders.iter().map(|folder| folder.join("lock"));
        let found = locks.filter_map(|lock| {
            let metadata = std::fs::metadata(&lock).ok()?;
            Some((lock, file_id(&metadata)))
        });
        Self(found.collect())
    }

    /// Checks that all folders are the ones that were opened.
    pub(super) fn check(&self) -> Result<(), Failure> {
        for (lock, id) in &self.0 {
            let is_there = match std::fs::metadata(lock) {
                Ok(metadata) => file_id(&metadata) == *id,
                // A fault of the system is none of the folder.
                Err(error) => error.kind() != ErrorKind::NotFound,
            };
            if !is_there {
                let folder = lock.parent().unwrap_or(lock).display();
                let sentence = format_args!(
                    "{folder}: this folder was removed or replaced while the hub used it: mail that \
                     it had acknowledged may be gone; start the hub again on a folder that stays"
                );
                return Err(Failure::new(Exit::CheckFailed, sentence));
            }
        }
        Ok(())
    }
}

/// Returns the first file of a folder that the system does not open, and its error: what a store that
/// cannot be opened does not say.
pub(super) fn first_fault(folder: &Path) -> Option<String> {
    let read = |path: &Path| {
        use std::io::Read as _;
        std::fs::File::open(path)?.read(&mut [0])
    };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return Some(error.to_string()),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    // Folders in it are of other stores, except those with the name of a segment.
    let files = paths.filter(|path| path.extension().is_some());
    let mut faults = files.filter_map(|path| {
        let error = read(&path).err()?;
        Some(format!("{}: {error}", path.display()))
    });
    faults.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_folder(name: &str) -> PathBuf {
        let name = format!("tickwire-folder-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::remove_dir_all(&folder).unwrap_or_default();
        std::fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn a_folder_that_is_removed_or_replaced_is_noticed() {
        let folder = new_folder("watch");
        std::fs::write(folder.join("lock"), "").unwrap();
        let watch = FolderWatch::of(&[&folder]);
        watch.check().unwrap();
        let other = folder.join("other");
        std::fs::write(&other, "").unwrap();
        std::fs::rename(&other, folder.join("lock")).unwrap();
        assert!(watch.check().is_err(), "replaced");
        std::fs::remove_dir_all(&folder).unwrap();
        let failure = watch.check().unwrap_err();
        let path = folder.display().to_string();
        assert!(failure.to_string().starts_with(&path), "{failure}");
    }

    #[test]
    fn the_file_that_cannot_be_read_is_named_with_the_systems_error() {
        let folder = new_folder("fault");
        std::fs::create_dir(folder.join("stats")).unwrap();
        std::fs::write(folder.join("lock"), "").unwrap();
        assert_eq!(first_fault(&folder), None);
        let segment = folder.join("0000000000000001.seg");
        std::fs::create_dir(&segment).unwrap();
        let fault = first_fault(&folder).unwrap();
        let path = segment.display().to_string();
        assert!(
            fault.starts_with(&path) && fault.contains("os error"),
            "{fault}"
        );
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(first_fault(&folder).unwrap().contains("os error"));
    }
}

//! The signed document in force, on disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use servicer::Clock;

/// Writes documents on a thread of its own, whole or not at all: a kill or a full disk leaves the one
/// before. What cannot be written is tried again each 5 s, until a newer one comes. Dropping it ends
/// the thread once the newest document is written, or could not be.
#[derive(Debug)]
pub(super) struct Store {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

/// Where documents wait for the thread, and callers for documents.
#[derive(Debug, Default)]
pub(super) struct Desk {
    papers: Mutex<Papers>,
    /// Something of it changed.
    news: Condvar,
}

#[derive(Debug, Default)]
struct Papers {
    /// The newest, with its number and version, as long as it is not written.
    waiting: Option<((u64, u64), Vec<u8>)>,
    /// The number of the document on disk: how many were accepted in this life up to it. A document that
    /// changes the admin keys may have a lower version than the one before it.
    written: u64,
    /// The number of the document that could not be written last, and why; `None` once one was.
    fault: Option<(u64, String)>,
    is_over: bool,
}

impl Store {
    /// Starts the thread; `tell` hears on it why a document could not be written.
    ///
    /// # Errors
    ///
    /// Where the system has no thread left.
    pub(super) fn start(
        path: PathBuf,
        tell: impl FnMut(u64, &str) + Send + 'static,
    ) -> io::Result<Self> {
        let desk = Arc::new(Desk::default());
        let of_thread = Arc::clone(&desk);
        let thread = thread::Builder::new()
            .name("config store".to_owned())
            .spawn(move || of_thread.serve(&path, tell))?;
        Ok(Self {
            desk,
            thread: Some(thread),
        })
    }

    /// Returns the place where documents are handed in.
    pub(super) fn desk(&self) -> Arc<Desk> {
        Arc::clone(&self.desk)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.desk.lock().is_over = true;
        self.desk.news.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that stores the configuration has panicked");
        }
    }
}

impl Desk {
    /// Hands in a document with its number and version; one that still waits is given up for it.
    pub(super) fn put(&self, (number, version): (u64, u64), bytes: Vec<u8>) {
        let mut papers = self.lock();
        papers.waiting = Some(((number, version), bytes));
        papers.fault = None;
        drop(papers);
        self.news.notify_all();
    }

    /// Waits until the document of this number or a newer one is on disk.
    ///
    /// # Errors
    ///
    /// Why it is not, after `patience` or once an attempt has failed.
    pub(super) fn wait(&self, number: u64, patience: Duration) -> Result<(), String> {
        let clock = Clock::new();
        let end = clock.now() + patience;
        let mut papers = self.lock();
        loop {
            if papers.written >= number {
                return Ok(());
            }
            // That of an older one says nothing: this one may not be handed in yet.
            if let Some((_, fault)) = papers.fault.as_ref().filter(|(of, _)| *of >= number) {
                return Err(fault.clone());
            }
            let left = end.saturating_since(clock.now());
            if left.is_zero() {
                return Err("the disk is slow".to_owned());
            }
            papers = self.pause(papers, left);
        }
    }

    fn serve(&self, path: &Path, mut tell: impl FnMut(u64, &str)) {
        let mut papers = self.lock();
        loop {
            let Some(((number, version), bytes)) = papers.waiting.take() else {
                if papers.is_over {
                    return;
                }
                papers = self.pause(papers, FOR_EVER);
                continue;
            };
            drop(papers);
            let written = replace(path, &bytes);
            let written = written.map_err(|error| format!("{}: {error}", path.display()));
            if let Err(fault) = &written {
                tell(version, fault);
            }
            papers = self.lock();
            let mut is_stuck = false;
            match written {
                Ok(()) => {
                    papers.written = number;
                    papers.fault = None;
                }
                Err(fault) => {
                    papers.fault = Some((number, fault));
                    // One that came meanwhile has its own turn at once.
                    is_stuck = papers.waiting.is_none();
                    papers.waiting.get_or_insert(((number, version), bytes));
                }
            }
            self.news.notify_all();
            if is_stuck {
                if papers.is_over {
                    return;
                }
                papers = self.pause(papers, AGAIN);
            }
        }
    }

    fn pause<'a>(&self, papers: MutexGuard<'a, Papers>, span: Duration) -> MutexGuard<'a, Papers> {
        let waited = self.news.wait_timeout(papers, span);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, Papers> {
        self.papers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a file whole or not at all: beside it, synced, and then under its name.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = PathBuf::from(draft);
    let written = write_synced(&draft, bytes).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // Half a file helps nobody, and may be what fills the disk.
        fs::remove_file(&draft).ok();
    }
    written?;
    // The name itself is on disk only once its folder is.
    #[cfg(unix)]
    {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file: File = options.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Wait before what could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// A thread without work looks around now and then.
const FOR_EVER: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tickwire-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn pgx7_the_newest_document_is_on_disk_once_it_was_waited_for() {
        let folder = Folder::new("store");
        let path = folder.0.join("config");
        let store = Store::start(path.clone(), |_, _| {}).unwrap();
        let desk = store.desk();
        for version in 1..=20_u64 {
            desk.put(
                (version, 100 - version),
                vec![u8::try_from(version).unwrap(); 10_000],
            );
        }
        desk.wait(20, PATIENCE).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [20; 10_000]);
        desk.put((21, 21), vec![21; 5]);
        drop(store);
        assert_eq!(fs::read(&path).unwrap(), [21; 5], "written before the end");
        assert_eq!(
            fs::read_dir(&folder.0).unwrap().count(),
            1,
            "no draft stays"
        );
    }

    #[test]
    fn pgx7_pgd_p14_a_document_that_cannot_be_written_leaves_the_one_before_and_is_told() {
        let folder = Folder::new("store-full");
        let path = folder.0.join("config");
        replace(&path, b"one").unwrap();
        // A folder where the draft goes: it cannot be opened, whoever runs this.
        fs::create_dir(folder.0.join("config.new")).unwrap();
        let (told, tells) = mpsc::channel();
        let store = Store::start(path.clone(), move |version, fault| {
            told.send((version, fault.to_owned())).unwrap();
        })
        .unwrap();
        let desk = store.desk();
        desk.put((2, 2), b"two".to_vec());
        let fault = desk.wait(2, PATIENCE).unwrap_err();
        assert!(fault.contains("config"), "{fault}");
        assert_eq!(tells.recv_timeout(PATIENCE).unwrap(), (2, fault));
        assert_eq!(fs::read(&path).unwrap(), b"one");
        fs::remove_dir(folder.0.join("config.new")).unwrap();
        // The next one is tried at once.
        desk.put((3, 3), b"three".to_vec());
        drop(store);
        assert_eq!(fs::read(&path).unwrap(), b"three");
    }

    #[test]
    fn pgx7_a_fault_is_that_of_its_version_alone() {
        let folder = Folder::new("store-faults");
        let path = folder.0.join("config");
        let draft = folder.0.join("config.new");
        fs::create_dir(&draft).unwrap();
        let (told, tells) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let store = Store::start(path.clone(), move |version, _| {
            told.send(version).unwrap();
            // Once the other end is dropped there is nothing to wait for.
            gone.recv().ok();
        })
        .unwrap();
        let desk = store.desk();
        desk.put((2, 2), b"two".to_vec());
        assert_eq!(tells.recv_timeout(PATIENCE), Ok(2));
        // The newer one comes while the older one fails.
        desk.put((3, 3), b"three".to_vec());
        go.send(()).unwrap();
        assert_eq!(tells.recv_timeout(PATIENCE), Ok(3), "at once");
        go.send(()).unwrap();
        assert!(desk.wait(3, PATIENCE).unwrap_err().contains("config"));
        assert!(desk.wait(2, PATIENCE).is_err(), "nor is the older one");
        // Whoever waits for one that is not handed in yet does not hear of the one before.
        let early = desk.wait(4, Duration::from_millis(20));
        assert_eq!(early, Err("the disk is slow".to_owned()));
        fs::remove_dir(&draft).unwrap();
        desk.put((4, 4), b"four".to_vec());
        desk.wait(4, PATIENCE).unwrap();
        drop((go, store));
        assert_eq!(fs::read(&path).unwrap(), b"four");
    }
}

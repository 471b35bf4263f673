//! Storage of the signed document in force.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use servicer::Clock;

use crate::control::spawn;
/// Writes documents atomically on its own thread: after a crash or on a full disk the previous one
/// is still there. A failed write is retried every 5 s until a newer document arrives. Dropping it
/// stops the thread after one more attempt.
#[derive(Debug)]
pub(super) struct DocumentWriter {
    store: Arc<DocumentStore>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
pub(super) struct DocumentStore {
    docs: Mutex<SignedDocs>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SignedDocs {
    /// The newest document that is not written yet, with its number and version.
    waiting: Option<((u64, u64), Vec<u8>)>,
    /// Number of the document on disk: the count of documents accepted since the start. Versions do
    /// not order documents: one that changes the admin keys may have a lower version than its
    /// predecessor.
    written: u64,
    /// Number of the last failed document and the reason; `None` after a successful write.
    error: Option<(u64, String)>,
    is_stopping: bool,
}

impl DocumentWriter {
    /// Starts the thread. `on_error` is called on it with the version and the reason of each failed
    /// write.
    pub(super) fn start(
        path: PathBuf,
        on_error: impl FnMut(u64, &str) + Send + 'static,
    ) -> io::Result<Self> {
        let store = Arc::new(DocumentStore::default());
        let for_thread = Arc::clone(&store);
        let thread = spawn("config store", move || for_thread.run(&path, on_error))?;
        Ok(Self {
            store,
            thread: Some(thread),
        })
    }

    pub(super) fn store(&self) -> Arc<DocumentStore> {
        Arc::clone(&self.store)
    }
}

impl Drop for DocumentWriter {
    fn drop(&mut self) {
        self.store.lock().is_stopping = true;
        self.store.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that stores the configuration has panicked");
        }
    }
}

impl DocumentStore {
    /// Queues a document with its number and version, replacing one that is still queued.
    pub(super) fn put(&self, (number, version): (u64, u64), bytes: Vec<u8>) {
        let mut docs = self.lock();
        docs.waiting = Some(((number, version), bytes));
        docs.error = None;
        drop(docs);
        self.changed.notify_all();
    }

    /// Waits until the document `number` or a newer one is on disk.
    pub(super) fn wait(&self, number: u64, timeout: Duration) -> Result<(), String> {
        let clock = Clock::new();
        let end = clock.now() + timeout;
        let mut docs = self.lock();
        loop {
            if docs.written >= number {
                return Ok(());
            }
            // An older document's error is ignored: this one may not be queued yet.
            if let Some((_, error)) = docs.error.as_ref().filter(|(of, _)| *of >= number) {
                return Err(error.clone());
            }
            let left = end.saturating_since(clock.now());
            if left.is_zero() {
                return Err("the disk is slow".to_owned());
            }
            docs = self.wait_for_change(docs, left);
        }
    }

    fn run(&self, path: &Path, mut on_error: impl FnMut(u64, &str)) {
        let mut docs = self.lock();
        loop {
            let Some(((number, version), bytes)) = docs.waiting.take() else {
                if docs.is_stopping {
                    return;
                }
                docs = self.wait_for_change(docs, IDLE_INTERVAL);
                continue;
            };
            drop(docs);
            let written = write_atomic(path, &bytes);
            let written = written.map_err(|error| format!("{}: {error}", path.display()));
            if let Err(error) = &written {
                on_error(version, error);
            }
            docs = self.lock();
            let mut should_back_off = false;
            match written {
                Ok(()) => {
                    docs.written = number;
                    docs.error = None;
                }
                Err(error) => {
                    docs.error = Some((number, error));
                    should_back_off = docs.waiting.is_none();
                    docs.waiting.get_or_insert(((number, version), bytes));
                }
            }
            self.changed.notify_all();
            if should_back_off {
                if docs.is_stopping {
                    return;
                }
                docs = self.wait_for_change(docs, RETRY_INTERVAL);
            }
        }
    }

    fn wait_for_change<'a>(
        &self,
        docs: MutexGuard<'a, SignedDocs>,
        span: Duration,
    ) -> MutexGuard<'a, SignedDocs> {
        let waited = self.changed.wait_timeout(docs, span);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, SignedDocs> {
        self.docs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a file atomically: writes and syncs a draft next to it, then renames the draft.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = PathBuf::from(draft);
    let written = write_synced(&draft, bytes).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // A partial draft may be what fills the disk.
        fs::remove_file(&draft).ok();
    }
    written?;
    // The rename is durable once the folder is synced.
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

const RETRY_INTERVAL: Duration = Duration::from_secs(5);
const IDLE_INTERVAL: Duration = Duration::from_secs(3_600);

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

    const TIMEOUT: Duration = Duration::from_secs(30);

    #[test]
    fn pgx7_the_newest_document_is_on_disk_after_a_wait() {
        let folder = Folder::new("store");
        let path = folder.0.join("config");
        let writer = DocumentWriter::start(path.clone(), |_, _| {}).unwrap();
        let store = writer.store();
        for version in 1..=20_u64 {
            store.put(
                (version, 100 - version),
                vec![u8::try_from(version).unwrap(); 10_000],
            );
        }
        store.wait(20, TIMEOUT).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [20; 10_000]);
        store.put((21, 21), vec![21; 5]);
        drop(writer);
        assert_eq!(fs::read(&path).unwrap(), [21; 5], "written before the end");
        assert_eq!(
            fs::read_dir(&folder.0).unwrap().count(),
            1,
            "no draft stays"
        );
    }

    #[test]
    fn pgx7_pgd_p14_a_failed_write_keeps_the_old_document_and_is_reported() {
        let folder = Folder::new("store-full");
        let path = folder.0.join("config");
        write_atomic(&path, b"one").unwrap();
        // The draft's name is a folder, so opening it fails for every user.
        fs::create_dir(folder.0.join("config.new")).unwrap();
        let (reported, reports) = mpsc::channel();
        let writer = DocumentWriter::start(path.clone(), move |version, error| {
            reported.send((version, error.to_owned())).unwrap();
        })
        .unwrap();
        let store = writer.store();
        store.put((2, 2), b"two".to_vec());
        let error = store.wait(2, TIMEOUT).unwrap_err();
        assert!(error.contains("config"), "{error}");
        assert_eq!(reports.recv_timeout(TIMEOUT).unwrap(), (2, error));
        assert_eq!(fs::read(&path).unwrap(), b"one");
        fs::remove_dir(folder.0.join("config.new")).unwrap();
        store.put((3, 3), b"three".to_vec());
        drop(writer);
        assert_eq!(fs::read(&path).unwrap(), b"three");
    }

    #[test]
    fn pgx7_a_write_error_belongs_to_its_document() {
        let folder = Folder::new("store-faults");
        let path = folder.0.join("config");
        let draft = folder.0.join("config.new");
        fs::create_dir(&draft).unwrap();
        let (reported, reports) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let writer = DocumentWriter::start(path.clone(), move |version, _| {
            reported.send(version).unwrap();
            // Returns an error once the sender is dropped.
            gone.recv().ok();
        })
        .unwrap();
        let store = writer.store();
        store.put((2, 2), b"two".to_vec());
        assert_eq!(reports.recv_timeout(TIMEOUT), Ok(2));
        // The newer document arrives while the older one fails.
        store.put((3, 3), b"three".to_vec());
        go.send(()).unwrap();
        assert_eq!(reports.recv_timeout(TIMEOUT), Ok(3), "at once");
        go.send(()).unwrap();
        assert!(store.wait(3, TIMEOUT).unwrap_err().contains("config"));
        assert!(store.wait(2, TIMEOUT).is_err(), "nor is the older one");
        // A wait for a document that is not queued yet ignores the previous one's error.
        let early = store.wait(4, Duration::from_millis(20));
        assert_eq!(early, Err("the disk is slow".to_owned()));
        fs::remove_dir(&draft).unwrap();
        store.put((4, 4), b"four".to_vec());
        store.wait(4, TIMEOUT).unwrap();
        drop((go, writer));
        assert_eq!(fs::read(&path).unwrap(), b"four");
    }
}

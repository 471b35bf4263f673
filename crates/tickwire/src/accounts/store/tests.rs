use core::sync::atomic::{AtomicU32, Ordering};

use crypto::Ring;

use super::*;
use crate::accounts::{Cost, Password};

/// A folder for one test, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tickwire-accounts-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn open(&self) -> FileStore {
        FileStore::open(&self.0, 2).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn name(text: &str) -> AccountName {
    text.parse().unwrap()
}

fn record(count: u32, locked_until: Option<u64>) -> AccountRecord {
    let password = Password::new("correct horse").unwrap();
    let cost = Cost::new(8, 1, 1).unwrap();
    AccountRecord {
        password: cost.hash(&mut Ring::new(), &password).unwrap(),
        failures: Failures {
            count,
            locked_until: locked_until.map(UnixTime::from_millis),
        },
    }
}

#[test]
fn b10_accounts_survive_a_restart() {
    let folder = Folder::new();
    let (one, other) = (record(0, None), record(7, Some(1_800_000_000_123)));
    let mut store = folder.open();
    assert_eq!(store.load(&name("ann")), Ok(None));
    assert_eq!(store.insert(&name("ann"), &one), Ok(true));
    assert_eq!(store.insert(&name("ann"), &other), Ok(false));
    assert_eq!(store.load(&name("ann")), Ok(Some(one)));
    assert_eq!(store.replace(&name("ann"), &other), Ok(()));
    drop(store);
    let mut store = folder.open();
    assert_eq!(store.load(&name("ann")), Ok(Some(other.clone())));
    // It counts the accounts that it finds.
    assert_eq!(store.insert(&name("con"), &other), Ok(true));
    assert_eq!(store.insert(&name("x"), &other), Err(StoreError::Full));
    assert_eq!(store.insert(&name("con"), &other), Ok(false));
}

#[test]
fn the_folder_is_locked_by_one_process_at_a_time() {
    let folder = Folder::new();
    let store = folder.open();
    let again = FileStore::open(&folder.0, 2).map(|_| ()).unwrap_err();
    assert_eq!(again, OpenStoreError::Busy);
    drop(store);
    folder.open();
}

#[test]
fn no_name_escapes_the_folder() {
    let folder = Folder::new();
    let mut store = FileStore::open(&folder.0, 9).unwrap();
    for text in [".", "..", "lock", "draft", "nul", "-", "a..b."] {
        assert_eq!(
            store.insert(&name(text), &record(0, None)),
            Ok(true),
            "{text}"
        );
    }
    let inside = fs::read_dir(&folder.0).unwrap().count();
    assert_eq!(inside, 7 + 1, "seven accounts and the lock");
}

#[test]
#[cfg(unix)]
fn the_folder_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let mut store = folder.open();
    store.insert(&name("ann"), &record(0, None)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.0), 0o700);
    assert_eq!(mode(&store.path(&name("ann"))), 0o600);
}

#[test]
fn a_foreign_file_is_no_account_and_is_not_overwritten() {
    let folder = Folder::new();
    let mut store = folder.open();
    let ann = name("ann");
    let good = to_text(&record(3, Some(5)));
    store.insert(&ann, &record(0, None)).unwrap();
    let load = |store: &mut FileStore, bytes: &[u8]| {
        fs::write(store.path(&ann), bytes).unwrap();
        store.load(&ann)
    };
    // Every truncation, and every changed byte at the beginnings of lines.
    for len in 0..good.len() {
        let cut = load(&mut store, &good.as_bytes()[..len]);
        // A file without the lock line is complete too.
        let is_whole = good[..len].ends_with("failures 3\n");
        assert_eq!(cut.is_ok(), is_whole, "{len}");
    }
    let long = format!("{good}{}", "x".repeat(1 << 20));
    let costly = good.replace("m=8,", "m=4000000000,");
    let extra = format!("{good}more\n");
    for bytes in [
        long.as_bytes(),
        costly.as_bytes(),
        extra.as_bytes(),
        b"\xff\xfe",
    ] {
        assert_eq!(load(&mut store, bytes), Err(StoreError::Corrupt));
    }
    assert_eq!(store.insert(&ann, &record(0, None)), Ok(false));
    assert!(load(&mut store, good.as_bytes()).unwrap().is_some());
}

#[test]
fn files_left_by_a_crash_block_no_account() {
    let folder = Folder::new();
    let mut store = folder.open();
    let (ann, old) = (name("ann"), record(0, None));
    store.insert(&ann, &old).unwrap();
    // As after a crash: partial content, longer than what will be written.
    fs::write(folder.0.join(DRAFT), "x".repeat(4_096)).unwrap();
    drop(store);
    let mut store = folder.open();
    assert_eq!(store.load(&ann), Ok(Some(old)));
    let new = record(1, None);
    store.replace(&ann, &new).unwrap();
    assert_eq!(store.load(&ann), Ok(Some(new)));
}

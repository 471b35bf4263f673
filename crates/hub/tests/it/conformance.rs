//! The embedded store as a backend: in memory, on a simulated disk, and on files.

use hub::conformance::{MemorySubject, Subject, check_backend, check_machine, open_store};
use hub::{Store, StoreConfig};
use wire::Seed;

#[test]
fn hub_9_the_store_in_memory_conforms() {
    check_backend(MemorySubject::new);
    check_machine(MemorySubject::new);
}

#[test]
fn hub_9_the_store_on_a_disk_that_loses_power_conforms() {
    let fresh = |seed| MemorySubject::with_power_cuts(Seed::from_number(seed).generator(0));
    for seed in 0..5 {
        check_backend(|| fresh(seed));
        check_machine(|| fresh(seed));
    }
}

#[cfg(feature = "fs")]
#[test]
fn hub_9_the_store_on_files_conforms() {
    check_backend(FileSubject::new);
    check_machine(FileSubject::new);
}

/// A folder of segment files, removed at the end.
#[cfg(feature = "fs")]
struct FileSubject(std::path::PathBuf);

#[cfg(feature = "fs")]
impl FileSubject {
    fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tickwire-conformance-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

#[cfg(feature = "fs")]
impl Subject for FileSubject {
    type Backend = Store<hub::log::FileSegments>;

    fn open(&mut self, config: StoreConfig) -> Self::Backend {
        open_store(hub::log::FileSegments::open(&self.0).unwrap(), config)
    }

    fn crash(&mut self, backend: Self::Backend) {
        drop(backend);
    }
}

#[cfg(feature = "fs")]
impl Drop for FileSubject {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

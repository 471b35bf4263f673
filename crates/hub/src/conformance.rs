//! A suite of checks for backends: what they store, and how the hub's machine copes with what they
//! return.
//!
//! A test of a backend implements [`Subject`] and calls [`check_backend`] and [`check_machine`]. A
//! failed check panics with its name and what it expected.

#![expect(
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed check ends the test that calls it"
)]

mod machine;
mod operations;
mod unreliable;

use wire::{CommandId, NodeId};

use crate::backend::Backend;
use crate::log::{MemorySegments, SegmentFile};
use crate::store::{Command, Outcome, StoreConfig, StoreOp};

pub use machine::check_machine;
pub use operations::check_backend;

/// A backend under test, with what it has stored.
pub trait Subject {
    /// The backend.
    type Backend: Backend;

    /// Opens the backend on what is stored, with the limits `config`.
    fn open(&mut self, config: StoreConfig) -> Self::Backend;

    /// Ends the backend without notice: only what is durable stays.
    fn crash(&mut self, backend: Self::Backend);
}

/// A [`Store`](crate::Store) in memory, for a subject that needs no files.
#[derive(Debug)]
pub struct MemorySubject {
    disk: Option<MemorySegments>,
    /// How a crash ends, if it is more than the end of the process.
    power: Option<wire::Generator>,
}

impl MemorySubject {
    /// Memory that outlives the process.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            disk: Some(MemorySegments::new(1 << 30)),
            power: None,
        }
    }

    /// A disk on which each crash is a power cut: unsynced sectors are lost, torn or reordered, as
    /// `generator` draws.
    #[must_use]
    pub const fn with_power_cuts(generator: wire::Generator) -> Self {
        Self {
            disk: Some(MemorySegments::new(1 << 30)),
            power: Some(generator),
        }
    }
}

impl Default for MemorySubject {
    fn default() -> Self {
        Self::new()
    }
}

impl Subject for MemorySubject {
    type Backend = crate::Store<MemorySegments>;

    fn open(&mut self, config: StoreConfig) -> Self::Backend {
        let Some(disk) = self.disk.take() else {
            panic!("opened twice without a crash between");
        };
        open_store(disk, config)
    }

    fn crash(&mut self, backend: Self::Backend) {
        let mut disk = backend.into_files();
        match &mut self.power {
            Some(generator) => disk.power_cut(generator),
            None => disk.kill(),
        }
        self.disk = Some(disk);
    }
}

/// Opens a store on `files`, as every subject on segments does.
///
/// # Panics
///
/// If the log does not open.
pub fn open_store<F: SegmentFile>(files: F, config: StoreConfig) -> crate::Store<F> {
    match crate::Store::open(files, config, crate::LogId(7)) {
        Ok(store) => store,
        Err(failure) => panic!("the log does not open: {}", failure.error),
    }
}

/// The limits that the suite gives a backend.
#[must_use]
pub fn limits() -> StoreConfig {
    StoreConfig {
        segment_bytes: StoreConfig::SEGMENT_BYTES_MIN,
        mailbox_mails_max: MAILBOX_MAILS_MAX,
        ..StoreConfig::default()
    }
}

const MAILBOX_MAILS_MAX: u32 = 100;

const NODE: NodeId = NodeId([7; 32]);

/// Submits `ops` as one batch, and returns their outcomes in order. Checks that each is completed
/// exactly once.
fn run_batch(backend: &mut impl Backend, ops: Vec<StoreOp>) -> Vec<Outcome> {
    let count = ops.len();
    let mut batch = (1..)
        .map(CommandId)
        .zip(ops.into_iter().map(Command::Store));
    backend.submit(&mut batch);
    let mut outcomes: Vec<Option<Outcome>> = vec![None; count];
    let mut missing = count;
    while missing > 0 {
        let Some((id, outcome)) = backend.poll_completed() else {
            assert!(
                backend.wait(),
                "{missing} of {count} commands have no outcome"
            );
            continue;
        };
        let at = usize::try_from(id.0).unwrap_or(0).wrapping_sub(1);
        let Some(slot) = outcomes.get_mut(at) else {
            panic!("an outcome of {id:?}, which was never submitted");
        };
        assert!(slot.is_none(), "{id:?} is completed twice");
        *slot = Some(outcome);
        missing -= 1;
    }
    while backend.keep_up() {}
    assert_eq!(backend.poll_completed(), None, "an outcome too many");
    outcomes.into_iter().flatten().collect()
}

fn run(backend: &mut impl Backend, op: StoreOp) -> Outcome {
    let mut outcomes = run_batch(backend, vec![op]);
    let Some(outcome) = outcomes.pop() else {
        panic!("no outcome");
    };
    outcome
}

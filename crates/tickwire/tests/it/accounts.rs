//! The accounts thread, through its public API.

use core::num::NonZeroU16;
use core::time::Duration;
use std::sync::mpsc::{Receiver, Sender, channel};

use tickwire::accounts::{
    AccountError, AccountName, AccountRecord, AccountStore, AccountThread, AccountThreadConfig,
    Answer, Cost, LockoutConfig, MemoryStore, Password, Request, StoreError, SubmitError,
};

const PATIENCE: Duration = Duration::from_secs(60);

fn config(requests_max: u16) -> AccountThreadConfig {
    AccountThreadConfig {
        cost: Cost::new(8, 1, 1).unwrap(),
        lockout: LockoutConfig::default(),
        requests_max: NonZeroU16::new(requests_max).unwrap(),
    }
}

fn name(text: &str) -> AccountName {
    text.parse().unwrap()
}

fn verify(account: &str, password: &str) -> Request {
    Request::Verify {
        name: name(account),
        password: Password::new(password).unwrap(),
    }
}

fn create(account: &str) -> Request {
    Request::Create {
        name: name(account),
        password: Password::new("correct horse").unwrap(),
    }
}

/// A store that blocks each call until the test releases it.
struct Gate {
    store: MemoryStore,
    called: Sender<()>,
    go: Receiver<()>,
}

impl Gate {
    fn new() -> (Self, Receiver<()>, Sender<()>) {
        let (called, calls) = channel();
        let (let_go, go) = channel();
        let store = MemoryStore::new(10);
        (Self { store, called, go }, calls, let_go)
    }
}

impl AccountStore for Gate {
    fn load(&mut self, name: &AccountName) -> Result<Option<AccountRecord>, StoreError> {
        self.called.send(()).ok();
        self.go.recv().ok();
        self.store.load(name)
    }

    fn insert(&mut self, name: &AccountName, record: &AccountRecord) -> Result<bool, StoreError> {
        self.store.insert(name, record)
    }

    fn replace(&mut self, name: &AccountName, record: &AccountRecord) -> Result<(), StoreError> {
        self.store.replace(name, record)
    }
}

#[test]
fn u21_a_tick_does_not_wait_for_a_hash_and_the_queue_is_bounded() {
    let (gate, calls, go) = Gate::new();
    let mut thread = AccountThread::start(gate, config(3)).unwrap();
    // The thread is blocked on the first; calls of the tick still return.
    let first = thread.submit(create("ann")).unwrap();
    calls.recv_timeout(PATIENCE).unwrap();
    assert_eq!(thread.poll(), None);
    let others = [
        thread.submit(verify("ann", "a wrong one")).unwrap(),
        thread.submit(verify("ann", "correct horse")).unwrap(),
    ];
    assert_eq!(thread.open_requests(), 3);
    let refused = thread.submit(verify("bob", "correct horse")).unwrap_err();
    let SubmitError::Busy(request) = refused else {
        panic!("{refused}");
    };
    assert!(matches!(*request, Request::Verify { name: account, .. } if account == name("bob")));
    // Answers that are not taken count, too.
    for _ in 0..3 {
        go.send(()).unwrap();
    }
    for _ in 0..2 {
        calls.recv_timeout(PATIENCE).unwrap();
    }
    assert!(matches!(thread.submit(*request), Err(SubmitError::Busy(_))));
    let received: Vec<_> = (0..3)
        .map(|_| thread.wait(PATIENCE).unwrap())
        .map(
            |Answer {
                 id,
                 name: account,
                 outcome,
             }| {
                assert_eq!(account, name("ann"));
                (id, outcome)
            },
        )
        .collect();
    let outcomes = [Ok(()), Err(AccountError::Refused), Ok(())];
    let ids = [first, others[0], others[1]];
    assert_eq!(received, ids.into_iter().zip(outcomes).collect::<Vec<_>>());
    assert_eq!(thread.open_requests(), 0);
    assert!(thread.submit(create("bob")).is_ok());
    drop(go);
}

/// A store that panics.
struct Broken;

impl AccountStore for Broken {
    fn load(&mut self, _: &AccountName) -> Result<Option<AccountRecord>, StoreError> {
        panic!("a store that is broken, as this test wants it");
    }

    fn insert(&mut self, _: &AccountName, _: &AccountRecord) -> Result<bool, StoreError> {
        Ok(true)
    }

    fn replace(&mut self, _: &AccountName, _: &AccountRecord) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn a_panic_of_the_store_is_reported_and_contained() {
    let mut thread = AccountThread::start(Broken, config(2)).unwrap();
    thread.submit(create("ann")).unwrap();
    assert_eq!(thread.wait(PATIENCE), None);
    let refused = thread.submit(create("ann")).unwrap_err();
    assert!(matches!(refused, SubmitError::Gone(_)), "{refused}");
}

#[test]
fn b10_an_account_thread_locks_guessed_names() {
    let mut thread = AccountThread::start(MemoryStore::new(10), config(100)).unwrap();
    thread.submit(create("ann")).unwrap();
    for _ in 0..6 {
        thread.submit(verify("ann", "a wrong one")).unwrap();
    }
    thread.submit(verify("ann", "correct horse")).unwrap();
    let received: Vec<_> = (0..8)
        .map(|_| thread.wait(PATIENCE).unwrap().outcome)
        .collect();
    assert_eq!(received[0], Ok(()));
    assert!(
        received[1..6]
            .iter()
            .all(|it| *it == Err(AccountError::Refused))
    );
    let is_locked = |it: &Result<(), AccountError>| matches!(it, Err(AccountError::Locked { .. }));
    assert!(received[6..].iter().all(is_locked), "{received:?}");
}

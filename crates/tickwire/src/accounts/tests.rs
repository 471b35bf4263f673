use core::time::Duration;
use std::io::ErrorKind;

use super::*;
use crate::accounts::MemoryStore;

const START: UnixTime = UnixTime::from_secs(1_000_000);

fn cheap() -> Cost {
    Cost::new(8, 1, 1).unwrap()
}

fn accounts() -> Accounts<MemoryStore> {
    Accounts::new(MemoryStore::new(10), cheap(), LockoutConfig::default()).unwrap()
}

fn name(text: &str) -> AccountName {
    text.parse().unwrap()
}

fn password(text: &str) -> Password {
    Password::new(text).unwrap()
}

#[test]
fn u21_b10_an_account_is_created_once_and_verifies_its_password() {
    let mut accounts = accounts();
    let ann = name("ann");
    let right = password("correct horse");
    assert_eq!(accounts.create(&ann, &right), Ok(()));
    assert_eq!(
        accounts.create(&ann, &password("another one")),
        Err(AccountError::Taken)
    );
    assert_eq!(accounts.verify(START, &ann, &right), Ok(()));
    let wrong = password("another one");
    assert_eq!(
        accounts.verify(START, &ann, &wrong),
        Err(AccountError::Refused)
    );
    let new = password("battery staple");
    assert_eq!(
        accounts.change(START, &ann, [&wrong, &new]),
        Err(AccountError::Refused)
    );
    assert_eq!(accounts.change(START, &ann, [&right, &new]), Ok(()));
    assert_eq!(
        accounts.verify(START, &ann, &right),
        Err(AccountError::Refused)
    );
    assert_eq!(accounts.verify(START, &ann, &new), Ok(()));
}

#[test]
fn b10_failures_lock_a_name_with_or_without_an_account() {
    let mut accounts = accounts();
    let right = password("correct horse");
    accounts.create(&name("ann"), &right).unwrap();
    let mut answers = Vec::new();
    for account in ["ann", "nobody"] {
        let account = name(account);
        let before = accounts.hashes();
        let mut results = Vec::new();
        for _ in 0..7 {
            results.push(accounts.verify(START, &account, &password("a wrong one")));
        }
        // An attempt on a locked name costs no hash.
        assert_eq!(accounts.hashes() - before, 5);
        answers.push(results);
    }
    assert_eq!(answers[0], answers[1]);
    let until = START + Duration::from_secs(30);
    let locked = Err(AccountError::Locked { until });
    assert_eq!(
        answers[0][4..],
        [Err(AccountError::Refused), locked, locked]
    );
    // The right password has to wait too, and then resets the count.
    assert_eq!(accounts.verify(START, &name("ann"), &right), locked);
    assert_eq!(accounts.verify(until, &name("ann"), &right), Ok(()));
    for _ in 0..4 {
        let results = accounts.verify(until, &name("ann"), &password("a wrong one"));
        assert_eq!(results, Err(AccountError::Refused));
    }
    assert_eq!(accounts.verify(until, &name("ann"), &right), Ok(()));
}

#[test]
fn b10_an_operator_can_unlock_a_name() {
    let mut accounts = accounts();
    let (ann, right) = (name("ann"), password("correct horse"));
    accounts.create(&ann, &right).unwrap();
    for _ in 0..5 {
        let results = accounts.change(START, &ann, [&password("a wrong one"), &right]);
        assert_eq!(results, Err(AccountError::Refused));
    }
    let results = accounts.verify(START, &ann, &right);
    assert!(
        matches!(results, Err(AccountError::Locked { .. })),
        "{results:?}"
    );
    let new = password("battery staple");
    assert_eq!(accounts.reset(&ann, &new), Ok(()));
    assert_eq!(accounts.verify(START, &ann, &new), Ok(()));
    assert_eq!(
        accounts.reset(&name("bob"), &new),
        Err(AccountError::Refused)
    );
}

#[test]
fn u21_a_login_upgrades_the_hash_to_the_current_cost() {
    let mut accounts = accounts();
    let (ann, right) = (name("ann"), password("correct horse"));
    accounts.create(&ann, &right).unwrap();
    accounts.cost = Cost::new(16, 2, 1).unwrap();
    let kept = |accounts: &mut Accounts<MemoryStore>| {
        let record = accounts.store.load(&ann).unwrap().unwrap();
        record.password.to_string()
    };
    accounts
        .verify(START, &ann, &password("a wrong one"))
        .unwrap_err();
    assert!(kept(&mut accounts).contains("$m=8,t=1,p=1$"));
    accounts.verify(START, &ann, &right).unwrap();
    assert!(kept(&mut accounts).contains("$m=16,t=2,p=1$"));
    let before = accounts.hashes();
    accounts.verify(START, &ann, &right).unwrap();
    assert_eq!(accounts.hashes() - before, 1);
}

#[test]
fn a_full_store_accepts_no_account() {
    let store = MemoryStore::new(2);
    let mut accounts = Accounts::new(store, cheap(), LockoutConfig::default()).unwrap();
    let right = password("correct horse");
    assert_eq!(accounts.create(&name("a"), &right), Ok(()));
    assert_eq!(accounts.create(&name("b"), &right), Ok(()));
    let full = Err(AccountError::Store(StoreError::Full));
    assert_eq!(accounts.create(&name("c"), &right), full);
    assert_eq!(
        accounts.create(&name("b"), &right),
        Err(AccountError::Taken)
    );
    assert_eq!(accounts.verify(START, &name("a"), &right), Ok(()));
}

/// A store with a full disk: it can be read, but not written.
struct FullDisk(MemoryStore);

impl AccountStore for FullDisk {
    fn load(&mut self, name: &AccountName) -> Result<Option<AccountRecord>, StoreError> {
        self.0.load(name)
    }

    fn insert(&mut self, _: &AccountName, _: &AccountRecord) -> Result<bool, StoreError> {
        Err(StoreError::Io(ErrorKind::StorageFull))
    }

    fn replace(&mut self, _: &AccountName, _: &AccountRecord) -> Result<(), StoreError> {
        Err(StoreError::Io(ErrorKind::StorageFull))
    }
}

#[test]
fn b10_a_failing_store_still_limits_guesses() {
    let mut accounts = accounts();
    let (ann, right) = (name("ann"), password("correct horse"));
    accounts.create(&ann, &right).unwrap();
    let store = FullDisk(accounts.store);
    let mut accounts = Accounts::new(store, cheap(), LockoutConfig::default()).unwrap();
    // A name without failures can log in, because nothing must be written.
    assert_eq!(accounts.verify(START, &ann, &right), Ok(()));
    let full = Err(AccountError::Store(StoreError::Io(ErrorKind::StorageFull)));
    for _ in 0..5 {
        assert_eq!(accounts.verify(START, &ann, &password("a wrong one")), full);
    }
    let results = accounts.verify(START, &ann, &right);
    assert!(
        matches!(results, Err(AccountError::Locked { .. })),
        "{results:?}"
    );
}

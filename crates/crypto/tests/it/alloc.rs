//! Packets, the key schedule and rejected tokens must not allocate; a key update may allocate only
//! an AEAD.
//!
//! AWS-LC allocates its contexts with the system's allocator, which this test does not count.

use core::cell::Cell;
use std::alloc::{GlobalAlloc, Layout, System};

use crypto::{Audience, Initial, Provider, Secret32, Suite, TokenError, TokenKey, TrafficSecret};
use wire::{InstanceId, UnixTime};

use crate::token::largest;

crate::for_each_provider!(
    packets_allocate_nothing_and_updates_only_the_aead,
    the_schedule_allocates_nothing,
    a_refused_token_allocates_nothing,
);

fn packets_allocate_nothing_and_updates_only_the_aead<P: Provider>(provider: &mut P) {
    let opening = traffic().opening_key(provider, Suite::Aes128Gcm);
    let mut sealing = traffic().into_sealing_key(provider, Suite::Aes128Gcm);
    let (mut body, mut tag) = ([7; 1_100], [0; 16]);
    let count = allocations(|| {
        for _ in 0..1_000 {
            let number = sealing.seal(b"head", &mut body, &mut tag).unwrap();
            opening.open(number, b"head", &mut body, &tag).unwrap();
        }
    });
    assert_eq!(count, 0);
    let aead_setup = allocations(|| drop(provider.aead(Suite::Aes128Gcm, &Secret32::new([1; 32]))));
    assert_eq!(allocations(|| sealing.update(provider)), aead_setup);
}

fn the_schedule_allocates_nothing<P: Provider>(provider: &mut P) {
    let count = allocations(|| {
        let initial = Initial::new(provider, Some(&Secret32::new([1; 32])));
        initial.hello_mac(provider, &[b"hello", b"token"]);
        let agreed = initial.agree(provider, &Secret32::new([2; 32]));
        let secrets = agreed.traffic(provider, &[3; 32]);
        drop(secrets.client.next(provider));
    });
    assert_eq!(count, 0);
}

fn a_refused_token_allocates_nothing<P: Provider>(provider: &mut P) {
    let grant = largest();
    let key = TokenKey::generate(provider, 1).unwrap();
    let token = key.seal(provider, 1, &grant).unwrap();
    let mut forged = token.as_bytes().to_vec();
    forged[700] ^= 1;
    let audience = Audience {
        app_id: 1,
        server_id: InstanceId(0),
    };
    let open = |now: UnixTime, bytes: &[u8]| {
        let mut outcome = None;
        let count = allocations(|| {
            outcome = key.open(provider, audience, now, bytes).err();
        });
        (outcome.unwrap(), count)
    };
    let aead_setup = allocations(|| drop(provider.aead(Suite::Aes256Gcm, &Secret32::new([1; 32]))));
    let now = grant.issued_at;
    assert_eq!(open(now, &forged), (TokenError::Forged, aead_setup));
    assert_eq!(open(now, &forged[..99]), (TokenError::Length(99), 0));
    assert_eq!(
        open(UnixTime::from_secs(0), &forged),
        (TokenError::Lifetime, 0)
    );
}

fn traffic() -> TrafficSecret {
    TrafficSecret::new(Secret32::new([1; 32]))
}

/// Runs `work` and returns this thread's number of allocations.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counter;

#[expect(unsafe_code, reason = "an allocator is counted by wrapping it")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // At thread exit the counter no longer exists, and nothing is measured.
        COUNT.try_with(|count| count.set(count.get() + 1)).ok();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTER: Counter = Counter;

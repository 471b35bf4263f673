//! Shares of one network, and bounds of memory.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::BTreeMap;

use proptest::prelude::*;
use wire::Seed;

use super::*;

fn net(index: u32) -> NetworkKey {
    NetworkKey::of(IpAddr::V4(Ipv4Addr::from(index << 8 | 7)))
}

fn answers() -> AnswerBudget {
    AnswerBudget::new(&mut Seed::from_number(1).generator(0))
}

#[test]
fn a_prefix_gets_its_burst_and_then_its_rate() {
    let mut budget = answers();
    let start = Instant::from_millis(7);
    let at_once = (0..10_000).filter(|_| budget.take(start, net(1))).count();
    assert_eq!(at_once, 256);
    let mut later = 0;
    for micros in 0..100_000 {
        if budget.take(start + Duration::from_micros(micros * 100), net(1)) {
            later += 1;
        }
    }
    // 10 s less the last step.
    assert_eq!(later, 2_559);
    let rested = start + Duration::from_secs(60);
    let at_once = (0..10_000).filter(|_| budget.take(rested, net(1))).count();
    assert_eq!(at_once, 256);
}

#[test]
fn twp_f1_a_flood_from_all_prefixes_spends_no_more_than_the_table_holds() {
    let mut budget = answers();
    let mut used = vec![0_u32; AnswerBudget::BUCKETS];
    for index in 0..200_000 {
        assert!(budget.take(Instant::ZERO, net(index)));
        used[budget.index(net(index))] += 1;
    }
    // 200,000 neighbouring prefixes spread over the table: about 3 for each bucket.
    assert!(used.iter().filter(|count| **count > 0).count() > AnswerBudget::BUCKETS / 2);
    assert!(used.iter().max() < Some(&100));
    assert_eq!(budget.full_at.len() * 8, 512 * 1_024);
}

#[test]
fn the_last_instant_does_not_overflow() {
    let mut budget = answers();
    assert!(budget.take(Instant::from_nanos(u64::MAX), net(1)));
    assert!(budget.take(Instant::from_nanos(u64::MAX - INTERVAL * 300), net(2)));
}

#[test]
fn twp_f1_one_prefix_holds_an_eighth() {
    let mut shares = PrefixShares::new(1_024, &mut Seed::from_number(1).generator(0));
    let (one, other) = (net(1), net(2));
    let granted = (0..5_000).filter(|_| shares.take(one).is_ok()).count();
    assert_eq!(granted, 128);
    assert_eq!(shares.take(one), Err(Refusal::Share));
    assert_eq!(shares.take(other), Ok(()));
    for _ in 0..895 {
        assert_eq!(shares.take_exempt(one), Ok(()));
    }
    assert_eq!(shares.take(other), Err(Refusal::Total));
    assert_eq!(shares.take_exempt(one), Err(Refusal::Total));
    shares.release(one);
    assert_eq!(shares.take(other), Ok(()));
}

proptest! {
    #[test]
    fn counts_agree_with_a_map_and_memory_with_the_total(
        total in 0_u32..40,
        steps in prop::collection::vec((0_u32..60, 0_u8..3), 0..600),
    ) {
        let mut shares = PrefixShares::new(total, &mut Seed::from_number(1).generator(0));
        let mut model: BTreeMap<u32, u32> = BTreeMap::new();
        for (source, action) in steps {
            let sum: u32 = model.values().sum();
            let held = model.get(&source).copied().unwrap_or(0);
            match action {
                0 => {
                    let granted = shares.take(net(source)).is_ok();
                    prop_assert_eq!(granted, sum < total && held < (total / 8).max(1));
                    if granted {
                        *model.entry(source).or_default() += 1;
                    }
                }
                1 => {
                    let granted = shares.take_exempt(net(source)).is_ok();
                    prop_assert_eq!(granted, sum < total);
                    if granted {
                        *model.entry(source).or_default() += 1;
                    }
                }
                _ => {
                    shares.release(net(source));
                    if let Some(held) = model.get_mut(&source) {
                        *held = held.saturating_sub(1);
                    }
                    model.retain(|_, held| *held > 0);
                }
            }
            prop_assert_eq!(shares.prefixes(), model.len());
            prop_assert!(shares.prefixes() <= usize::try_from(total).unwrap());
            prop_assert_eq!(shares.held_sum(), model.values().sum::<u32>());
            let held: Vec<u32> = shares.fullest().map(|source| shares.held(source)).collect();
            let mut expected: Vec<u32> = model.values().copied().collect();
            expected.sort_unstable_by(|a, b| b.cmp(a));
            prop_assert_eq!(held, expected);
        }
    }
}

fn over_reply_budget(rate: u32, burst: u32) -> Rationed {
    Rationed::new(
        rate,
        burst,
        Instant::ZERO,
        &mut Seed::from_number(1).generator(0),
    )
}

#[test]
fn twp_f1_one_prefix_gets_an_eighth_at_once_and_over_time() {
    let mut budget = over_reply_budget(1_000, 100);
    let at_once = (0..500)
        .filter(|_| budget.take(Instant::ZERO, net(1)).is_ok())
        .count();
    assert_eq!(at_once, 12);
    assert_eq!(budget.take(Instant::ZERO, net(1)), Err(Refusal::Share));
    assert_eq!(budget.take(Instant::ZERO, net(2)), Ok(()));
    let flood = (0..100_000_u64)
        .filter(|step| {
            let now = Instant::from_nanos(step * 100_000);
            budget.take(now, net(1)).is_ok()
        })
        .count();
    // 10 s at 125 a second.
    assert!((1_249..=1_250).contains(&flood), "{flood}");
}

#[test]
fn all_prefixes_together_get_the_full_budget() {
    let mut budget = over_reply_budget(500, 100);
    let mut granted = 0;
    let mut remembered = 0;
    for step in 0..200_000_u64 {
        let now = Instant::from_nanos(step * 50_000);
        let source = net(u32::try_from(step % 65_536).unwrap());
        granted += u32::from(budget.take(now, source).is_ok());
        remembered = remembered.max(budget.prefixes());
    }
    // 10 s and the burst.
    assert!((5_098..=5_100).contains(&granted), "{granted}");
    assert!(remembered <= 208, "{remembered}");
    assert!(budget.grants.capacity() >= budget.grants_max);
    assert_eq!(budget.take_exempt(Instant::from_millis(10_000)), Ok(()));
}

proptest! {
    #[test]
    fn grants_agree_with_buckets_that_are_never_forgotten(
        rate in 1_u32..3_000,
        burst in 1_u32..300,
        steps in prop::collection::vec((0_u64..20_000_000, 0_u32..12), 1..600),
    ) {
        let mut budget = over_reply_budget(rate, burst);
        let mut common = TokenBucket::new(rate, burst, Instant::ZERO);
        let interval = 8_000_000_000 / u64::from(rate);
        let depth = interval * u64::from((burst / 8).max(1));
        let mut full_at: BTreeMap<u32, u64> = BTreeMap::new();
        let mut now = 0;
        for (wait, source) in steps {
            now += wait / 8;
            let after = full_at.get(&source).map_or(now, |at| now.max(*at)) + interval;
            let expected = if after - now > depth {
                Err(Refusal::Share)
            } else if common.take(Instant::from_nanos(now), 1) {
                full_at.insert(source, after);
                Ok(())
            } else {
                Err(Refusal::Total)
            };
            prop_assert_eq!(budget.take(Instant::from_nanos(now), net(source)), expected);
            prop_assert!(budget.grants.len() < budget.grants_max);
        }
    }
}

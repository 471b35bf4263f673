use std::collections::BTreeSet;

use super::record::LABEL_LIFE;
use super::*;

const LIMITS: LabelLimits = LabelLimits {
    labels_max: 100,
    per_owner_max: 10,
    rate: 1_000,
    burst: 1_000,
    owner_rate: 10_000,
};
const A: LinkId = LinkId(1);
const B: LinkId = LinkId(2);

#[test]
fn mesh_a1_labels_are_bounded_in_all_and_for_each_owner() {
    let mut slab = LabelSlab::new(ShardId::FIRST, LIMITS);
    let now = Instant::ZERO;
    for _ in 0..10 {
        slab.reserve(now, A, B).unwrap();
    }
    assert_eq!(slab.reserve(now, A, B), Err(LabelRefusal::Full));
    for owner in 2..11 {
        for _ in 0..10 {
            slab.reserve(now, LinkId(owner), A).unwrap();
        }
    }
    assert_eq!(slab.reserve(now, LinkId(99), A), Err(LabelRefusal::Full));
    assert_eq!(slab.len(), 100);
    assert_eq!(slab.remove_where(|label| label.owner == A, |_, _| ()), 10);
    assert!(slab.reserve(now, A, B).is_ok());
}

#[test]
fn mesh_a1_a_label_that_ended_is_never_named_again() {
    let limits = LabelLimits {
        labels_max: 1,
        ..LIMITS
    };
    let mut slab = LabelSlab::new(ShardId(3), limits);
    let now = Instant::from_millis(1_000);
    let mut names = BTreeSet::new();
    for _ in 0..2 * USES + 10 {
        let name = slab.reserve(now, A, B).unwrap();
        assert_eq!(slab.get_mut(name).map(|label| label.previous), Some(B));
        assert_eq!(slab.reserve(now, A, B), Err(LabelRefusal::Full));
        slab.remove(name);
        assert!(slab.get_mut(name).is_none(), "it ended");
        assert!(names.insert(name), "{name:?} came twice");
    }
    assert_eq!((slab.retired, slab.places()), (2, 3));
}

#[test]
fn a_bound_label_references_its_links_and_a_reserved_one_none() {
    let mut slab = LabelSlab::new(ShardId::FIRST, LIMITS);
    let name = slab.reserve(Instant::ZERO, A, B).unwrap();
    let held = |slab: &LabelSlab| {
        let mut links = LinkSet::default();
        slab.add_held(&mut links);
        links.numbers()
    };
    let named = |slab: &LabelSlab| {
        let mut links = LinkSet::default();
        slab.add_named(&mut links);
        links.numbers()
    };
    let both = vec![A.0, B.0];
    assert_eq!((held(&slab), named(&slab)), (vec![], both.clone()));
    slab.bind_terminal(name, (7, 0));
    assert_eq!((held(&slab), named(&slab)), (both.clone(), both));
    slab.remove(name);
    assert_eq!((held(&slab), named(&slab)), (vec![], vec![]));
}

#[test]
fn only_its_owner_binds_a_label_and_once() {
    let mut slab = LabelSlab::new(ShardId::FIRST, LIMITS);
    let name = slab.reserve(Instant::ZERO, A, B).unwrap();
    assert!(slab.get_mut(name).unwrap().onward().is_none(), "not bound");
    assert_eq!(slab.check_reserved(name, B), Err(LabelRefusal::Unknown));
    assert_eq!(slab.check_reserved(name, A), Ok(()));
    slab.bind_terminal(name, (7, 0));
    assert_eq!(slab.check_reserved(name, A), Err(LabelRefusal::Bound));
    slab.bind_terminal(name, (8, 0));
    assert!(slab.get_mut(name).unwrap().leads_to(7));
}

#[test]
fn frames_put_off_the_end_and_are_rationed() {
    let mut slab = LabelSlab::new(ShardId::FIRST, LIMITS);
    let name = slab.reserve(Instant::ZERO, A, B).unwrap();
    let (label, fill, _) = slab.get_with_owner(name).unwrap();
    let later = Instant::from_millis(29_999);
    assert!(!label.is_expired(later));
    assert!(label.charge(fill, later, 1_000));
    assert!(!label.charge(fill, later, 1));
    assert!(!label.is_expired(Instant::from_millis(59_998)));
    assert!(label.is_expired(Instant::from_millis(59_999)));
}

#[test]
fn a_slab_gives_out_labels_of_its_shard_and_knows_no_others() {
    let now = Instant::ZERO;
    let mut slabs: Vec<_> = (0..ShardId::COUNT_MAX)
        .map(|place| LabelSlab::new(ShardId(place), LIMITS))
        .collect();
    let names: Vec<_> = slabs
        .iter_mut()
        .map(|slab| slab.reserve(now, A, B).unwrap())
        .collect();
    for (place, slab) in slabs.iter_mut().enumerate() {
        for (of, name) in names.iter().enumerate() {
            assert_eq!(usize::from(name.shard().place()), of);
            let is_own = of == place;
            assert_eq!(slab.get_mut(*name).is_some(), is_own);
            assert_eq!(slab.get_with_owner(*name).is_some(), is_own);
            assert_eq!(slab.check_reserved(*name, A).is_ok(), is_own);
            if !is_own {
                assert!(slab.remove(*name).is_none());
            }
        }
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.remove_where(|_| true, |_, _| ()), 1);
        // The same slot, in its next use.
        let again = slab.reserve(now, A, B).unwrap();
        assert_eq!(again.shard().place(), names[place].shard().place());
        assert!(slab.get_mut(again).is_some());
    }
}

#[test]
fn expired_labels_end_within_fifty_looks_at_a_part_of_all() {
    let limits = LabelLimits {
        labels_max: 1_000,
        per_owner_max: 1_000,
        ..LIMITS
    };
    let mut slab = LabelSlab::new(ShardId::FIRST, limits);
    let start = Instant::ZERO;
    for _ in 0..990 {
        slab.reserve(start, A, B).unwrap();
    }
    let later = start + LABEL_LIFE;
    let late = slab.reserve(later, A, B).unwrap();
    let each: Vec<u32> = (0..SWEEPS).map(|_| slab.sweep(later, |_, _| ())).collect();
    assert!(each.iter().all(|freed| *freed <= 20), "{each:?}");
    assert_eq!(each.iter().sum::<u32>(), 990);
    assert!(slab.get_mut(late).is_some());
    let each: u32 = (0..SWEEPS).map(|_| slab.sweep(later, |_, _| ())).sum();
    assert_eq!((each, slab.len()), (0, 1));
}

use std::collections::BTreeSet;

use wire::Seed;

use super::*;

#[test]
fn the_window_agrees_with_a_set_of_256_numbers() {
    let mut draw = Seed::from_number(1).generator(0);
    let (mut set, mut model) = (FragmentSet::default(), BTreeSet::new());
    assert_eq!(set.used(), [0; 0]);
    for _ in 0..6_000 {
        let index = u16::try_from(draw.below(300)).unwrap();
        assert_eq!(set.insert(index), index < 256 && model.insert(index));
        assert_eq!(usize::from(set.count), model.len());
        assert!((0..300).all(|index| set.has(index) == model.contains(&index)));
        let last = usize::from(model.last().map_or(0, |last| last / 8 + 1));
        assert_eq!(set.used().len(), last);
    }
    assert_eq!(set.count, FRAGMENTS_MAX);
}

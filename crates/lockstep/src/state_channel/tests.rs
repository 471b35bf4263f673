use std::collections::BTreeSet;

use wire::Seed;

use super::*;

#[test]
fn they_are_a_set_of_256_numbers() {
    let mut draw = Seed::from_number(1).generator(0);
    let (mut marks, mut model) = (Marks::default(), BTreeSet::new());
    assert_eq!(marks.used(), [0; 0]);
    for _ in 0..6_000 {
        let index = u16::try_from(draw.below(300)).unwrap();
        assert_eq!(marks.insert(index), index < 256 && model.insert(index));
        assert_eq!(usize::from(marks.count), model.len());
        assert!((0..300).all(|index| marks.has(index) == model.contains(&index)));
        let last = usize::from(model.last().map_or(0, |last| last / 8 + 1));
        assert_eq!(marks.used().len(), last);
    }
    assert_eq!(marks.count, FRAGMENTS_MAX);
}

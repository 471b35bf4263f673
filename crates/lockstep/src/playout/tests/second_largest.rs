use super::super::*;

#[test]
fn one_outlier_counts_for_nothing_and_two_do() {
    let mut largest = SecondLargest::new();
    largest.add(3);
    assert_eq!(largest.need(), None);
    largest.add(1);
    assert_eq!(largest.need(), Some(1));
    largest.add(90);
    assert_eq!(largest.need(), Some(3));
    largest.add(80);
    assert_eq!(largest.need(), Some(80));
}

#[test]
fn what_was_is_forgotten_after_two_windows() {
    let mut largest = SecondLargest::new();
    for need in [90, 80].into_iter().chain([0; 598]) {
        largest.add(need);
    }
    for _ in 0..599 {
        assert_eq!(largest.need(), Some(80));
        largest.add(0);
    }
    largest.add(0);
    assert_eq!(largest.need(), Some(0));
}

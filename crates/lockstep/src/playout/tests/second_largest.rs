use super::super::*;

#[test]
fn one_outlier_is_ignored_and_two_are_not() {
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
fn values_expire_after_two_windows() {
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

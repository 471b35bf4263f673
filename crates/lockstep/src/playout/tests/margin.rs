use super::super::*;

#[test]
fn one_outlier_counts_for_nothing_and_two_do() {
    let mut margin = Margin::new();
    margin.add(3);
    assert_eq!(margin.need(), None);
    margin.add(1);
    assert_eq!(margin.need(), Some(1));
    margin.add(90);
    assert_eq!(margin.need(), Some(3));
    margin.add(80);
    assert_eq!(margin.need(), Some(80));
}

#[test]
fn what_was_is_forgotten_after_two_windows() {
    let mut margin = Margin::new();
    for need in [90, 80].into_iter().chain([0; 598]) {
        margin.add(need);
    }
    for _ in 0..599 {
        assert_eq!(margin.need(), Some(80));
        margin.add(0);
    }
    margin.add(0);
    assert_eq!(margin.need(), Some(0));
}

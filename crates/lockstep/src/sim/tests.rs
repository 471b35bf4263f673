use super::*;

#[test]
fn a_save_evicts_the_oldest_and_a_rewind_drops_newer_ones() {
    let mut saves = Saves::<u32>::new(3);
    for tick in 0..5 {
        *saves.slot(Tick(tick)).unwrap() = tick * 10;
    }
    assert_eq!(saves.rewind(Tick(1)), None);
    for tick in 2..5 {
        *saves.slot(Tick(tick)).unwrap() = tick * 10;
    }
    assert_eq!(saves.rewind(Tick(3)), Some(&30));
    *saves.slot(Tick(5)).unwrap() = 50;
    assert_eq!(saves.rewind(Tick(4)), None, "void since tick 3");
    assert_eq!(saves.newest(Tick(4)), Some((Tick(3), &30)));
    assert_eq!(saves.rewind(Tick(2)), Some(&20), "and not forgotten");
    // A game that restarted with an older state saves that one first.
    *saves.slot(Tick(1)).unwrap() = 11;
    *saves.slot(Tick(2)).unwrap() = 22;
    assert_eq!(saves.rewind(Tick(1)), Some(&11));
    assert_eq!(saves.newest(Tick(9)), Some((Tick(1), &11)));
}

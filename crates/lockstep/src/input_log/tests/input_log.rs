use super::super::*;
use std::collections::BTreeMap;

#[test]
fn keeps_the_window_and_the_first_vote() {
    let mut log = InputLog::new(1);
    let mut model = BTreeMap::new();
    let mut generator = wire::Seed::from_number(5).generator(0);
    for closed in 0..2_000_u32 {
        let tick = closed + u32::try_from(generator.below(64)).unwrap();
        let value = u8::try_from(generator.below(256)).unwrap();
        let is_new = !model.contains_key(&tick);
        assert_eq!(log.insert(Tick(tick), &[value]), is_new);
        model.entry(tick).or_insert(value);
        for tick in closed.saturating_sub(BEHIND_MAX)..closed + INPUT_AHEAD_MAX {
            assert_eq!(log.get(Tick(tick)).map(|v| v[0]), model.get(&tick).copied());
        }
        assert_eq!(log.next, Tick(model.keys().next_back().unwrap() + 1));
    }
}
